/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a CPU did, from its trace: one stream of instructions (or blocks of them), events and errors, with
 * times.
 *
 *	struct ptw_decoder *decoder = ptw_decoder_new(&config, &err);
 *	struct ptw_item item;
 *
 *	while (ptw_decoder_next(decoder, &item) != PTW_ITEM_END)
 *		switch (item.kind) { … }
 *	ptw_decoder_free(decoder);
 *
 * A decoder belongs to one trace and shares nothing with others: several can run at the same time.
 *
 * Nothing in a trace ends the stream early: after an error the decoder goes on at the next PSB, and the error
 * item says what was lost. The stream always ends, whatever the bytes are.
 */
#ifndef PTWATCH_DECODE_DECODER_H
#define PTWATCH_DECODE_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "decode/image.h"
#include "decode/pt_params.h"

enum ptw_item_kind {
	PTW_ITEM_INSN, /* item.insn; with PTW_DECODE_BLOCKS item.insn is the last one of a block of .count */
	PTW_ITEM_EVENT, /* item.event */
	PTW_ITEM_ERROR, /* item.error: a stretch that could not be decoded */
	PTW_ITEM_END,
};

enum ptw_insn_class {
	PTW_INSN_OTHER, PTW_INSN_CALL, PTW_INSN_RETURN, PTW_INSN_JUMP, PTW_INSN_COND_JUMP,
	PTW_INSN_FAR_CALL,	/* SYSCALL, SYSENTER, INT n, … */
	PTW_INSN_FAR_RETURN,	/* IRET, SYSRET, SYSEXIT, … */
	PTW_INSN_FAR_JUMP,
	PTW_INSN_PTWRITE,
	PTW_INSN_UNKNOWN,	/* blocks only: the library did not say */
};

struct ptw_insn {
	uint64_t ip;		/* first instruction; the same as @last_ip unless this is a block */
	uint64_t last_ip;
	uint32_t count;		/* instructions: 1, or the block's */
	enum ptw_insn_class class;	/* of the instruction at @last_ip */
	uint8_t bits;		/* 16, 32, 64; 0: unknown */
	bool speculative;	/* inside a transaction that may have aborted */
	uint8_t size;		/* bytes of the instruction; 0 for blocks */
	const uint8_t *raw;	/* its @size bytes, until the next call; NULL for blocks */
};

enum ptw_event_type {
	PTW_EVENT_ENABLED, /* tracing begins at .ip; .value: 1 when it resumes where it was disabled */
	PTW_EVENT_DISABLED, /* tracing ended; .ip: where the CPU went */
	PTW_EVENT_ASYNC_DISABLED, /* the same at .from, by an interrupt or exception */
	PTW_EVENT_ASYNC_BRANCH, /* interrupt or exception: .from, which did not execute, to .ip */
	PTW_EVENT_PAGING, /* CR3 is .value */
	PTW_EVENT_OVERFLOW, /* the CPU dropped packets; tracing resumes at .ip */
	PTW_EVENT_EXEC_MODE, /* .value-bit mode at .ip */
	PTW_EVENT_TSX, /* .value: bit 0 in a transaction, bit 1 aborted */
	PTW_EVENT_STOP, /* TraceStop */
	PTW_EVENT_VMCS, /* base address in .value */
	PTW_EVENT_EXSTOP, /* execution stopped at .ip */
	PTW_EVENT_MWAIT, /* .value: ext << 32 | hints */
	PTW_EVENT_PWRE, /* .value: C-state << 4 | sub state */
	PTW_EVENT_PWRX, /* .value: deepest << 4 | last C-state */
	PTW_EVENT_PTWRITE, /* .value by the instruction at .ip */
	PTW_EVENT_CBR, /* .value: core:bus ratio */
	PTW_EVENT_MNT, /* .value */
	PTW_EVENT_INTERRUPT, /* event trace: vector in .value at .ip */
	PTW_EVENT_IRET,
	PTW_EVENT_SMI,
	PTW_EVENT_RSM,
	PTW_EVENT_SIPI,
	PTW_EVENT_INIT,
	PTW_EVENT_VMENTRY,
	PTW_EVENT_VMEXIT,
	PTW_EVENT_SHUTDOWN,
	PTW_EVENT_UINTR,
	PTW_EVENT_UIRET,
	PTW_EVENT_IFLAGS,
	PTW_EVENT_SWINTR,
	PTW_EVENT_SYSCALL,
	PTW_EVENT_TRIGGER,
	PTW_EVENT_OTHER, /* the library knows more than we do */
};

struct ptw_event {
	enum ptw_event_type type;
	bool has_ip;		/* @ip is known; it may be filtered out or suppressed */
	bool status_update;	/* a PSB repeats the state; nothing happened */
	uint64_t ip;
	uint64_t from;
	uint64_t value;
};

struct ptw_decode_error {
	int code;		/* libipt's */
	const char *text;	/* libipt's, or ours where libipt has no word for it */
	uint64_t ip;		/* where the walk stood; 0: nowhere yet */
	uint64_t resume;	/* trace offset at which decoding goes on: the next PSB, or the end */
	uint64_t lost;		/* bytes between the item's offset and @resume */
};

struct ptw_item {
	enum ptw_item_kind kind;
	bool has_time;
	uint64_t tsc;		/* at the last timing packet before; without @has_time 0 */
	uint64_t offset; /* in the trace: exact for errors, near for the others (libipt reads ahead); 0 for
			    instructions */
	union {
		struct ptw_insn insn;
		struct ptw_event event;
		struct ptw_decode_error error;
	};
};

enum ptw_decode_flags {
	/*
	 * Blocks of instructions instead of single ones: several times faster. Their number depends on the
	 * version of libipt, the number of instructions in all of them doesn't.
	 */
	PTW_DECODE_BLOCKS = 1 << 0,
	/* Blocks end at calls and direct jumps, too: for those who want to know of them. */
	PTW_DECODE_SHORT_BLOCKS = 1 << 3,
	PTW_DECODE_NO_TIME = 1 << 1, /* item.tsc isn't needed: saves a call for each instruction */
	PTW_DECODE_SKIP_UNREADABLE =
		1 << 2, /* do without sections whose file can't be read, instead of failing */
};

struct ptw_decoder_config {
	const struct ptw_pt_params *params;	/* not needed after ptw_decoder_new() */
	const struct ptw_image *image;		/* not needed after ptw_decoder_new() */
	const uint8_t *data;			/* must stay */
	size_t size;
	unsigned int flags;			/* enum ptw_decode_flags */
};

struct ptw_decoder;

/** ptw_decoder_new() - a decoder at the start of the trace; NULL: @err tells why */
struct ptw_decoder *ptw_decoder_new(const struct ptw_decoder_config *config, struct ptw_error *err);

/** ptw_decoder_next() - the next item of the stream; at the end PTW_ITEM_END again and again */
enum ptw_item_kind ptw_decoder_next(struct ptw_decoder *decoder, struct ptw_item *item);

/** ptw_decoder_offset() - how far in the trace the decoder is, for progress */
uint64_t ptw_decoder_offset(const struct ptw_decoder *decoder);
void ptw_decoder_free(struct ptw_decoder *decoder);

/** ptw_event_name() - "enabled", "overflow", … */
const char *ptw_event_name(enum ptw_event_type type);

#endif /* PTWATCH_DECODE_DECODER_H */
