/* SPDX-License-Identifier: BSD-2-Clause */
/* What to watch, as a person writes it: PLACE:LEN:MODE. */
#ifndef PTWATCH_CONTROL_WATCH_TARGET_H
#define PTWATCH_CONTROL_WATCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/ptwatch.h>

#include "common/error.h"
#include "symbols/symbols.h"

struct ptw_watch_target {
	char place[256];		/* "sym", "sym+0x10", "module:sym", "0xaddr": for ptw_symbols_resolve() */
	uint32_t len;
	uint32_t access;		/* PTWATCH_ACCESS_* */
	bool is_address;		/* @place is a plain number, @address is known already */
	uint64_t address;		/* otherwise after ptw_watch_target_resolve() */
	char label[PTWATCH_LABEL_SIZE];	/* "sym+0x0" after ptw_watch_target_resolve(); "" for an address without a name */
};

/**
 * ptw_watch_target_parse() - read PLACE:LEN:MODE
 * @text: LEN is 1, 2, 4 or 8, MODE is w, rw or x; with x, LEN must be omitted (or 8)
 *
 * Everything that is wrong whatever the machine fails with PTW_EXIT_USAGE: the form, LEN, MODE, and an
 * address given as a number that is misaligned or not in the kernel's half.
 */
int ptw_watch_target_parse(const char *text, struct ptw_watch_target *target, struct ptw_error *err);

/**
 * ptw_watch_target_resolve() - find @target's address and label
 * @symbols: may be NULL for a target that is an address
 *
 * What only this kernel's symbols can tell fails with PTW_EXIT_FAILED: an unknown symbol, a misaligned one,
 * data watched for execution and per-CPU symbols, whose value is an offset.
 */
int ptw_watch_target_resolve(struct ptw_watch_target *target, const struct ptw_symbols *symbols,
			     struct ptw_error *err);

#endif /* PTWATCH_CONTROL_WATCH_TARGET_H */
