/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for what grows with a recording and is looked at here and there: a little is plain memory, more is a temporary
 * file that is mapped, of which what was not used for a while need not stay in memory. All of it is freed at once.
 *
 * One thread allocates, and nobody else uses it then; later many may use what they were given, and drop it.
 */
#ifndef PTWATCH_RECORDING_ROOM_H
#define PTWATCH_RECORDING_ROOM_H

#include <stddef.h>
#include <stdint.h>

#define PTW_ROOM_SIZES	320

/** struct ptw_room - zero-initialise, but for @limit */
struct ptw_room {
	size_t limit;		/* bytes in plain memory; more are in the file */
	/* private */
	struct ptw_room_piece { uint8_t *start; size_t size; uint8_t in_file; } *piece;
	size_t pieces;
	size_t total;		/* bytes of all pieces, */
	size_t used;		/* … and of the last one those that are given away */
	uint64_t file_size;
	int fd;			/* while file_size is not 0 */
	void *spare[PTW_ROOM_SIZES];	/* given back, by size; each begins with the next one's address */
};

/** ptw_room_alloc() - @size bytes of zeros, for any type. Return: NULL: errno tells why. */
void *ptw_room_alloc(struct ptw_room *room, size_t size);

/**
 * ptw_room_grow() - an array with room for one more; it doubles at the powers of two
 * @array: what this returned last; NULL for @count 0
 * @count: how many there are
 * @size: of one
 *
 * Return: the array, perhaps elsewhere; NULL: errno tells why, and @array is as it was.
 */
void *ptw_room_grow(struct ptw_room *room, void *array, size_t count, size_t size);

/** ptw_room_give_back() - @size bytes that ptw_room_alloc() returned for that size */
void ptw_room_give_back(struct ptw_room *room, void *at, size_t size);

/** ptw_room_drop() - none of it need stay in memory: it comes again from the file. Any thread, at any time but an allocation. */
void ptw_room_drop(const struct ptw_room *room);

/** ptw_room_free() - all that was given */
void ptw_room_free(struct ptw_room *room);

#endif /* PTWATCH_RECORDING_ROOM_H */
