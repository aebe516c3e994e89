/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel's code is by now, as far as its changes were told, and what it really is: where the two differ, a change
 * was not heard. Private to recording/.
 */
#ifndef PTWATCH_RECORDING_LIVE_CODE_H
#define PTWATCH_RECORDING_LIVE_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "recording/kernel_copy.h"
#include "recording/record.h"

struct live_page;

/** struct live_code - pages whose changes were told; zero-initialise; live_code_free() */
struct live_code {
	struct live_page **page;	/* by address */
	size_t pages;
};

/**
 * live_code_take() - a text-poke record of the kernel
 * @dir: the copy of the kernel, from which changes are counted; what it does not have is passed over
 */
void live_code_take(struct live_code *live, const char *dir, const struct record *record);

/**
 * live_code_compare() - look for changes that nobody told
 * @proc: "/proc"; another place in tests
 * @layout: of the copy in @dir
 * @poke: called with a text-poke record for each of them, without what ends a record; from then on it is told
 */
int live_code_compare(struct live_code *live, const char *proc, const char *dir, const struct ptw_kernel_layout *layout,
		      int (*poke)(void *arg, struct record *record, struct ptw_error *err), void *arg, struct ptw_error *err);

void live_code_free(struct live_code *live);

#endif /* PTWATCH_RECORDING_LIVE_CODE_H */
