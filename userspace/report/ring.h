/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue of equal elements that grows as needed; what is within a window of the trace waits in it. */
#ifndef PTWATCH_REPORT_RING_H
#define PTWATCH_REPORT_RING_H

#include <stddef.h>
#include <stdint.h>

struct ptw_ring {
	size_t element;		/* size of one; set before use, all else zero */
	size_t room;		/* a power of two */
	size_t first, count;
	uint64_t popped;	/* elements that were in it before: the first has this number */
	char *base;
};

/** ptw_ring_push() - room for one more element at the end, with arbitrary contents; NULL: out of memory */
void *ptw_ring_push(struct ptw_ring *ring);

/** ptw_ring_at() - element number @number, counted since the beginning; NULL: not in the ring (any more) */
void *ptw_ring_at(const struct ptw_ring *ring, uint64_t number);

/** ptw_ring_first() - the oldest element; NULL: empty */
void *ptw_ring_first(const struct ptw_ring *ring);
void ptw_ring_pop(struct ptw_ring *ring);
void ptw_ring_free(struct ptw_ring *ring);

#endif /* PTWATCH_REPORT_RING_H */
