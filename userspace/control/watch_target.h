/* SPDX-License-Identifier: BSD-2-Clause */
/* What to watch, as a person writes it: PLACE:LEN:MODE. */
#ifndef PTWATCH_CONTROL_WATCH_TARGET_H
#define PTWATCH_CONTROL_WATCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/ptwatch.h>

#include "common/error.h"
#include "control/kernel_memory.h"
#include "symbols/symbols.h"
#include "symbols/types.h"

/* Bytes the debug registers of a CPU can watch together. */
#define PTW_WATCH_MAX_LEN 32

enum ptw_place {
	PTW_PLACE_SYMBOL,	/* "sym", "sym+0x10", "module:sym" */
	PTW_PLACE_ADDRESS,	/* "0xffffffffc0a01180" */
	PTW_PLACE_FIELD,	/* "task_struct.cred@PID", "inode.i_size@0xADDR" */
	PTW_PLACE_USER_SYMBOL,	/* "binary!sym", "binary!sym+8", "binary!sym@PID" */
	PTW_PLACE_USER_ADDRESS,	/* "0x55d0c0de4010", "0x55d0c0de4010@PID" */
};

struct ptw_watch_target {
	enum ptw_place kind;
	char text[320];			/* as it was written */
	char place[256];		/* without "binary!" and "@…" */
	char binary[256];		/* of PTW_PLACE_USER_SYMBOL */
	pid_t pid;			/* "@PID"; 0: none */
	uint64_t owner;			/* "@0xADDR": where the struct of the field is; 0: none */
	uint32_t len;			/* 0: not said; known after ptw_watch_target_resolve() */
	uint32_t access;		/* PTWATCH_ACCESS_*; 0: likewise */

	/* After ptw_watch_target_resolve(), what struct ptwatch_watch wants: */
	uint32_t flags;			/* PTWATCH_WATCH_PERCPU, USER, WAIT_MODULE */
	uint64_t address;		/* of PTW_PLACE_*ADDRESS already after parsing */
	pid_t tgid;			/* of a user place: its process */
	char module[PTWATCH_MODULE_SIZE], symbol[PTWATCH_SYMBOL_SIZE];
	char label[PTWATCH_LABEL_SIZE];	/* "sym+0x0", "task_struct.cred@1234"; "" for an address without a name */
	/* and what a person should know: */
	bool is_signed;			/* the type of the place is a signed one */
	bool is_code;			/* a data watch on instructions */
	bool inside_code;		/* an execute watch behind the beginning of a symbol */
	char note[400];			/* "": nothing else */
};

/**
 * ptw_watch_target_parse() - read PLACE:LEN:MODE
 * @text: LEN is 1, 2, 4, 8, 16, 24 or 32, MODE is w, rw or x; x has no LEN. The place of a field and of user
 *	code has a size of its own and may stand alone, or with one of the two.
 *
 * Everything that is wrong whatever the machine fails with PTW_EXIT_USAGE: the form, LEN, MODE, and an
 * address given as a number that is misaligned.
 */
int ptw_watch_target_parse(const char *text, struct ptw_watch_target *target, struct ptw_error *err);

/** struct ptw_target_context - where targets are looked up; zeros but for the first three fields */
struct ptw_target_context {
	const struct ptw_symbols *symbols;	/* NULL: not known */
	bool wait_module;			/* symbols of modules are watched whenever those are loaded */
	pid_t pid;				/* process of user places that name none; 0: none */
	struct ptw_types *types;		/* read when the first target wants them */
	struct ptw_kernel_memory *memory;
};

/**
 * ptw_watch_target_resolve() - find @target's address, size and label
 *
 * What only this machine can tell fails with PTW_EXIT_FAILED: an unknown symbol, type, field or process, a
 * misaligned or oversized place, data watched for execution; PTW_EXIT_UNSUPPORTED: no BTF, no /proc/kcore.
 */
int ptw_watch_target_resolve(struct ptw_watch_target *target, struct ptw_target_context *context,
			     struct ptw_error *err);

/** ptw_target_context_release() - free what resolving read */
void ptw_target_context_release(struct ptw_target_context *context);

/** ptw_watch_target_slots() - debug registers it takes on each CPU */
unsigned int ptw_watch_target_slots(const struct ptw_watch_target *target);

#endif /* PTWATCH_CONTROL_WATCH_TARGET_H */
