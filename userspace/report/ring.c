// SPDX-License-Identifier: BSD-2-Clause
#include "report/ring.h"

#include <stdlib.h>
#include <string.h>

static int grow(struct ptw_ring *ring)
{
	size_t room = ring->room ? 2 * ring->room : 256;
	size_t head = ring->room - ring->first;
	char *base = reallocarray(NULL, room, ring->element);

	if (!base)
		return -1;
	if (head > ring->count)
		head = ring->count;
	if (ring->count) {
		memcpy(base, ring->base + ring->first * ring->element, head * ring->element);
		memcpy(base + head * ring->element, ring->base, (ring->count - head) * ring->element);
	}
	free(ring->base);
	ring->base = base;
	ring->room = room;
	ring->first = 0;
	return 0;
}

void *ptw_ring_push(struct ptw_ring *ring)
{
	if (ring->count == ring->room && grow(ring))
		return NULL;
	return ring->base + ((ring->first + ring->count++) & (ring->room - 1)) * ring->element;
}

void *ptw_ring_at(const struct ptw_ring *ring, uint64_t number)
{
	if (number < ring->popped || number - ring->popped >= ring->count)
		return NULL;
	return ring->base + ((ring->first + (number - ring->popped)) & (ring->room - 1)) * ring->element;
}

void *ptw_ring_first(const struct ptw_ring *ring)
{
	return ring->count ? ring->base + ring->first * ring->element : NULL;
}

void ptw_ring_pop(struct ptw_ring *ring)
{
	ring->first = (ring->first + 1) & (ring->room - 1);
	ring->count--;
	ring->popped++;
}

void ptw_ring_free(struct ptw_ring *ring)
{
	free(ring->base);
	ring->base = NULL;
	ring->room = ring->first = ring->count = 0;
}
