// SPDX-License-Identifier: BSD-2-Clause
#include "recording/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WRITE_SIZE	(1u << 18)

int ptw_temporary_file(char *path, size_t size)
{
	const char *dir = getenv("TMPDIR");
	int fd;

	snprintf(path, size, "%s/ptwatch-XXXXXX", dir && *dir ? dir : "/var/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

static int write_out(struct ptw_spool *s)
{
	size_t done = 0;

	while (done < s->used) {
		ssize_t n = write(s->fd, s->buffer + done, s->used - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		done += n;
	}
	s->written += s->used;
	s->used = 0;
	return 0;
}

/* From here on only what is on its way to the file is in memory. */
static int spill(struct ptw_spool *s)
{
	char path[PATH_MAX];

	s->fd = ptw_temporary_file(path, sizeof(path));
	if (s->fd < 0)
		return -1;
	s->spilt = true;
	return write_out(s);
}

static int make_room(struct ptw_spool *s)
{
	size_t room = s->room ? 2 * s->room : 64 * s->item;
	uint8_t *grown;

	if (s->spilt)
		return write_out(s);
	if (room > s->limit) {
		if (spill(s))
			return -1;
		room = WRITE_SIZE / s->item * s->item;
	}
	grown = realloc(s->buffer, room);
	if (!grown)
		return -1;
	s->buffer = grown;
	s->room = room;
	return 0;
}

int ptw_spool_add(struct ptw_spool *s, const void *item)
{
	if (s->used + s->item > s->room && make_room(s))
		return -1;
	memcpy(s->buffer + s->used, item, s->item);
	s->used += s->item;
	s->count++;
	return 0;
}

const void *ptw_spool_end(struct ptw_spool *s)
{
	errno = 0;
	if (!s->spilt)
		return s->buffer;
	if (write_out(s))
		return NULL;
	s->map = mmap(NULL, s->written, PROT_READ, MAP_SHARED, s->fd, 0);
	if (s->map == MAP_FAILED) {
		s->map = NULL;
		return NULL;
	}
	close(s->fd);
	s->fd = -1;
	free(s->buffer);
	s->buffer = NULL;
	return s->map;
}

void ptw_spool_drop(const struct ptw_spool *s)
{
	if (s->map)
		madvise(s->map, s->written, MADV_DONTNEED);
}

void ptw_spool_free(struct ptw_spool *s)
{
	if (s->map)
		munmap(s->map, s->written);
	if (s->spilt && s->fd >= 0)
		close(s->fd);
	free(s->buffer);
	*s = (struct ptw_spool){ .item = s->item, .limit = s->limit };
}
