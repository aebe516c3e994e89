// SPDX-License-Identifier: BSD-2-Clause
#include "recording/room.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "recording/spool.h"

#define UNIT		16
#define SMALL		4096		/* up to here each multiple of UNIT is a size of its own; then the powers of two are */
#define SMALL_SIZES	(SMALL / UNIT + 1)
#define PIECE		((size_t)1 << 20)

/* What is really taken for @size bytes. */
static size_t rounded(size_t size)
{
	if (size <= SMALL)
		return size ? (size + UNIT - 1) / UNIT * UNIT : UNIT;
	return size > SIZE_MAX / 4 ? 0 : (size_t)1 << (64 - __builtin_clzll(size - 1));
}

static void **spares(struct ptw_room *room, size_t size)
{
	return &room->spare[size <= SMALL ? size / UNIT : (size_t)(SMALL_SIZES + __builtin_ctzll(size))];
}

/* The room is there before it is touched: of a disk that is full nobody learns but by a signal then. */
static uint8_t *map_more(struct ptw_room *room, size_t size)
{
	char path[PATH_MAX];
	uint8_t *start;

	if (!room->file_size) {
		room->fd = ptw_temporary_file(path, sizeof(path));
		if (room->fd < 0)
			return NULL;
	}
	errno = posix_fallocate(room->fd, room->file_size, size);
	start = errno ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, room->fd, room->file_size);
	if (start == MAP_FAILED) {
		if (!room->file_size)
			close(room->fd);
		return NULL;
	}
	room->file_size += size;
	return start;
}

/* The more there is, the larger the next one is, so that there are few. */
static bool add_piece(struct ptw_room *room, size_t least)
{
	size_t size = room->total / 8 > PIECE ? room->total / 8 / PIECE * PIECE : PIECE;
	bool in_file;
	struct ptw_room_piece *grown;
	uint8_t *start;

	if (least > size)
		size = (least + PIECE - 1) / PIECE * PIECE;
	grown = reallocarray(room->piece, room->pieces + 1, sizeof(*grown));
	if (!grown)
		return false;
	room->piece = grown;
	in_file = room->total + size > room->limit;
	start = in_file ? map_more(room, size) : calloc(1, size);
	if (!start)
		return false;
	grown[room->pieces++] = (struct ptw_room_piece){ start, size, in_file };
	room->total += size;
	room->used = 0;
	return true;
}

void *ptw_room_alloc(struct ptw_room *room, size_t size)
{
	size_t taken = rounded(size);
	void **spare, *at;

	if (!taken) {
		errno = ENOMEM;
		return NULL;
	}
	spare = spares(room, taken);
	at = *spare;
	if (at) {
		memcpy(spare, at, sizeof(*spare));
		return memset(at, 0, taken);
	}
	if ((!room->pieces || room->piece[room->pieces - 1].size - room->used < taken) && !add_piece(room, taken))
		return NULL;
	at = room->piece[room->pieces - 1].start + room->used;
	room->used += taken;
	return at;
}

void ptw_room_give_back(struct ptw_room *room, void *at, size_t size)
{
	void **spare;

	if (!at)
		return;
	spare = spares(room, rounded(size));
	memcpy(at, spare, sizeof(*spare));
	*spare = at;
}

void *ptw_room_grow(struct ptw_room *room, void *array, size_t count, size_t size)
{
	void *grown;

	if (count & (count - 1))
		return array;
	if (count > SIZE_MAX / 2 / size) {
		errno = ENOMEM;
		return NULL;
	}
	grown = ptw_room_alloc(room, (count ? 2 * count : 1) * size);
	if (!grown || !count)
		return grown;
	memcpy(grown, array, count * size);
	ptw_room_give_back(room, array, count * size);
	return grown;
}

void ptw_room_drop(const struct ptw_room *room)
{
	for (size_t i = 0; i < room->pieces; i++)
		if (room->piece[i].in_file)
			madvise(room->piece[i].start, room->piece[i].size, MADV_DONTNEED);
}

void ptw_room_free(struct ptw_room *room)
{
	for (size_t i = 0; i < room->pieces; i++) {
		if (room->piece[i].in_file)
			munmap(room->piece[i].start, room->piece[i].size);
		else
			free(room->piece[i].start);
	}
	free(room->piece);
	if (room->file_size)
		close(room->fd);
	*room = (struct ptw_room){ .limit = room->limit };
}
