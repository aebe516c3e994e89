/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What follows an overflow where the CPU has errata, made fit for libipt: some of them it does not know in each version, and of
 * others it guesses. docs/errata.md has them. Private to flow/.
 */
#ifndef PTWATCH_FLOW_MEND_H
#define PTWATCH_FLOW_MEND_H

#include "flow/engine.h"

/**
 * struct mend - a stretch, which begins at a PSB
 *
 * Offsets in @copy are those in the stretch, and @inserted more behind the PSB. Where an address was put in full, what stands
 * before it has moved by its bytes.
 */
struct mend {
	uint8_t *copy;		/* NULL: it is good as it is, up to @distrust */
	size_t size;		/* of @copy, which ends at @distrust */
	size_t inserted;
	size_t distrust;	/* OVF in the trace behind which nothing tells where the CPU went on, up to the next PSB; 0: none */
};

/** mend_stretch() - from @start to @end of @engine's trace. Return: false: out of memory */
bool mend_stretch(struct mend *mend, const struct engine *engine, size_t start, size_t end);

#endif /* PTWATCH_FLOW_MEND_H */
