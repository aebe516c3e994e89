/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An array that is first filled and then only read, of any size: a small one is in memory, a large one in a temporary file
 * that is mapped, of which what was read need not stay in memory.
 */
#ifndef PTWATCH_RECORDING_SPOOL_H
#define PTWATCH_RECORDING_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** struct ptw_spool - zero-initialise, but for @item and @limit */
struct ptw_spool {
	size_t item;		/* size of one */
	size_t limit;		/* bytes in memory; more are written to the file */
	size_t count;		/* of items */
	/* private */
	uint8_t *buffer;
	size_t used, room;
	uint64_t written;
	int fd;			/* while there is a file */
	bool spilt;
	void *map;
};

/** ptw_spool_add() - Return: 0; -1: errno tells why */
int ptw_spool_add(struct ptw_spool *spool, const void *item);

/** ptw_spool_end() - no more will be added. Return: the items; NULL: there are none, or, with errno other than 0, it failed. */
const void *ptw_spool_end(struct ptw_spool *spool);

/** ptw_spool_drop() - none of it need stay in memory: it comes again from the file */
void ptw_spool_drop(const struct ptw_spool *spool);
void ptw_spool_free(struct ptw_spool *spool);

/** ptw_temporary_file() - an empty one without a name, in $TMPDIR or /var/tmp. Return: fd or -1; @path: what it was called. */
int ptw_temporary_file(char *path, size_t size);

#endif /* PTWATCH_RECORDING_SPOOL_H */
