/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the CPUs did, as one stream of branches, events and times, told thread by thread: what every report
 * is made from.
 *
 *	struct ptw_stream *stream = ptw_stream_open(recording, &options, &err);
 *	const struct ptw_flow *flow;
 *
 *	while ((flow = ptw_stream_next(stream)))
 *		switch (flow->kind) { … }
 *	ptw_stream_close(stream);
 *
 * With PTW_ORDER_TIME the records of all traces come in the order of time (equal times: one CPU after the
 * other, each CPU's in its order). As every record names its thread, that is also the story of each thread in
 * order, wherever it ran: a report keeps what it knows of a thread under @thread and needs no other sorting.
 * With PTW_ORDER_TRACE one trace comes after the other.
 *
 * Interrupts and system calls belong to the thread that was running. The thread changes with a record
 * PTW_FLOW_SWITCH, which already carries the new one; the branch that comes before it is the call or jump to
 * the kernel's __switch_to_asm, and the new thread goes on with the return out of that. Without records of
 * switches in the recording, a CPU's trace has one thread for all (see ptw_thread.tid).
 */
#ifndef PTWATCH_FLOW_STREAM_H
#define PTWATCH_FLOW_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "decode/event.h"
#include "recording/recording.h"
#include "symbols/symbols.h"

enum ptw_flow_kind {
	/*
	 * Branches that were taken: the instruction at .from went to .to. .to is 0 where tracing ended with
	 * the branch and the trace does not tell.
	 */
	PTW_FLOW_CALL,		/* .value: where its return goes */
	PTW_FLOW_RETURN,
	PTW_FLOW_JUMP,		/* only out of the function (tail calls, thunks), unless PTW_STREAM_ALL_JUMPS */
	PTW_FLOW_SYSCALL,	/* SYSCALL, SYSENTER, INT n, …; .value: the address behind the instruction */
	PTW_FLOW_FAR_RETURN,	/* IRET, SYSRET, SYSEXIT, … */
	PTW_FLOW_INTERRUPT,	/* interrupt, exception, fault: .from did not execute (yet), handler at .to */

	PTW_FLOW_BEGIN,		/* tracing begins at .to; .value: 1 when where it ended last */
	PTW_FLOW_END,		/* tracing ends behind .from; the CPU went to .to (0: unknown); .value: 1: by an INTERRUPT */
	PTW_FLOW_SWITCH,	/* the CPU runs another thread; .value: index of the old one */
	PTW_FLOW_MARKER,	/* PTWRITE of .value at .from */
	PTW_FLOW_EVENT,		/* .event with .value, at .from where that is known: CR3, power, mode, … */
	PTW_FLOW_GAP,		/* flow is missing before .to (0: unknown): .text, .offset; .value: bytes lost */
	PTW_FLOW_RUN,		/* with PTW_STREAM_RUNS: .value instructions without a branch from .from to .to; .code */
};

enum ptw_flow_flags {
	PTW_FLOW_PREEMPTED = 1 << 0,	/* SWITCH: the old thread wanted to run on */
	PTW_FLOW_TIMED = 1 << 1,	/* @time is known */
	PTW_FLOW_SPECULATIVE = 1 << 2,	/* in a transaction, which may have been aborted */
	PTW_FLOW_GOES_ON = 1 << 3,	/* RUN: the first piece of one; where it was cut depends on what was decoded before */
	PTW_FLOW_EXITED = 1 << 4,	/* SWITCH: the old thread has ended; with PTW_ORDER_TIME */
};

/** struct ptw_flow - one record of the stream */
struct ptw_flow {
	uint8_t kind;		/* enum ptw_flow_kind */
	uint8_t flags;		/* enum ptw_flow_flags */
	uint8_t event;		/* enum ptw_event_type: PTW_FLOW_EVENT's; of a GAP overflow or other */
	uint8_t bits;		/* 16, 32, 64: mode at .from; 0: unknown */
	int32_t cpu;		/* -1: the trace of a thread */
	uint32_t thread;	/* for ptw_stream_thread(); dense, from 0 */
	uint32_t trace;		/* index in the recording's traces */
	uint64_t time;		/* nanoseconds, as the recording's clock has it; never less than before */
	uint64_t insns;		/* instructions that this trace executed so far, up to and with .from */
	uint64_t from, to;
	uint64_t value;
	union {
		const char *text;	/* PTW_FLOW_GAP: what happened; stays as long as the stream */
		const uint8_t *code;	/* RUN with PTW_STREAM_INSNS: of each instruction its size, then its bytes */
	};
	uint64_t offset;	/* GAP: in the trace; EVENT, BEGIN, END: near it; else 0 */
	uint64_t tsc;		/* that @time was made from; 0: unknown */
};

/* The text of a gap at the end: the last packet is not all there. */
#define PTW_GAP_CUT		"incomplete packet"
/* How texts of gaps begin that go on with bytes and addresses: the code is there, but not clear. */
#define PTW_GAP_NO_CODE		"code that Zydis can't disassemble"
#define PTW_GAP_OTHER_CODE	"code that Zydis takes for a branch and libipt does not"

enum ptw_stream_order { PTW_ORDER_TIME, PTW_ORDER_TRACE };

enum ptw_stream_flags {
	PTW_STREAM_ALL_JUMPS = 1 << 0,	/* each taken branch: conditional ones and jumps inside of functions, too */
	PTW_STREAM_RUNS = 1 << 1,	/* PTW_FLOW_RUN between the branches */
	PTW_STREAM_TOTALS = 1 << 2,	/* no branches at all: gaps, switches, begin and end, with .insns */
	PTW_STREAM_INSNS = 1 << 6,	/* all jumps, runs, and the bytes of the code that ran: .code */
	PTW_STREAM_IPS = 1 << 3,	/* the same, and ptw_stream_ips() instead of ptw_stream_next() */
	PTW_STREAM_SWITCHES = 1 << 7,	/* each switch that was recorded, at its time: also while nothing is traced on the CPU */
	PTW_STREAM_ALL_CODE = 1 << 5,	/* fail if a file of the recording's image can't be read */
	PTW_STREAM_REFERENCE = 1 << 4,	/* by libipt alone (see flow/slow.c): what all else is measured against */
};

struct ptw_stream_options {
	enum ptw_stream_order order;
	unsigned int flags;
	unsigned int threads;		/* to decode with; 0: one for each core */
	const size_t *trace;		/* indices of the traces that are wanted; NULL: all */
	size_t traces;
	/* Called now and then with how much of all bytes is done; may be NULL. */
	void (*on_progress)(void *context, uint64_t done, uint64_t size);
	void *context;
};

/** struct ptw_thread - a thread that was on a CPU */
struct ptw_thread {
	int32_t pid;		/* -1: unknown */
	int32_t tid;		/* 0: idle, of @cpu; -1: whatever ran on @cpu */
	int32_t cpu;		/* of idle and unknown ones; else -1 */
	char comm[16];		/* its last name; "" unknown */
};

/** struct ptw_place - what an address is */
struct ptw_place {
	const struct ptw_symbol *symbol;	/* NULL: none */
	uint64_t start;		/* address of the symbol there, as mapped */
	const char *object;	/* module or file (its last part); NULL: the kernel itself, or unknown */
	const char *path;	/* of a file that a process had mapped; NULL: none */
	uint64_t file_addr;	/* where the address is in it, as linked */
};

struct ptw_stream;

/** ptw_stream_open() - NULL: @err tells why. @recording must stay. */
struct ptw_stream *ptw_stream_open(const struct ptw_recording *recording, const struct ptw_stream_options *options,
				   struct ptw_error *err);

/** ptw_stream_next() - the next record, valid until the next call; NULL: the end, or ptw_stream_failed() */
const struct ptw_flow *ptw_stream_next(struct ptw_stream *stream);

/**
 * ptw_stream_ips() - with PTW_STREAM_IPS: the next of all executed addresses, one trace after the other
 * @text: out: lines of 16 hex digits, valid until the next call
 * @flow: out: what happened among them (gaps, beginnings, ends), @count of them
 *
 * Return: false: the end, or ptw_stream_failed().
 */
bool ptw_stream_ips(struct ptw_stream *stream, const char **text, size_t *size, const struct ptw_flow **flow,
		    size_t *count);

/** ptw_stream_failed() - whether the stream ended early (out of memory); then @err tells why */
bool ptw_stream_failed(const struct ptw_stream *stream, struct ptw_error *err);

/** ptw_stream_threads() - how many threads were seen so far */
uint32_t ptw_stream_threads(const struct ptw_stream *stream);
const struct ptw_thread *ptw_stream_thread(const struct ptw_stream *stream, uint32_t index);

/**
 * ptw_stream_place() - the symbol at @addr, as the thread of @flow had it mapped at the time of @flow
 * Return: false: there is none; @place may still tell the file.
 */
bool ptw_stream_place(struct ptw_stream *stream, const struct ptw_flow *flow, uint64_t addr,
		      struct ptw_place *place);

/** ptw_stream_totals() - what one trace came to, once the stream is at its end */
struct ptw_trace_totals {
	uint64_t bytes, insns, branches, errors, overflows, lost;
	uint64_t first_time, last_time;
};
const struct ptw_trace_totals *ptw_stream_totals(const struct ptw_stream *stream, size_t trace);

void ptw_stream_close(struct ptw_stream *stream);

/**
 * ptw_jitdump_unclocked() - the jitdump of a process whose times are not the CPU's, so that its code is taken to be there from
 * the moment on at which the file was mapped
 *
 * Return: its path, to be freed; NULL: there is none.
 */
char *ptw_jitdump_unclocked(const struct ptw_recording *recording);

#endif /* PTWATCH_FLOW_STREAM_H */
