// SPDX-License-Identifier: BSD-2-Clause
#include "recording/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *path, int error, struct ptw_error *err)
{
	if (error == ENOSPC || error == EDQUOT)
		return ptw_error_set(
			err, PTW_EXIT_FAILED,
			"%s: %s; free some space or record elsewhere", path,
			strerror(error));
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(error));
}

int ptw_create_file(const char *path, struct ptw_error *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 ? failed(path, errno, err) : fd;
}

int ptw_write_all(int fd, const void *data, size_t size, const char *path, struct ptw_error *err)
{
	const char *p = data;

	while (size) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed(path, errno, err);
		p += n;
		size -= n;
	}
	return 0;
}

int ptw_close_file(int fd, const char *path, struct ptw_error *err)
{
	return close(fd) && errno != EINTR ? failed(path, errno, err) : 0;
}

int ptw_write_file(const char *path, const void *data, size_t size, struct ptw_error *err)
{
	int fd = ptw_create_file(path, err), ret;

	if (fd < 0)
		return -1;
	ret = ptw_write_all(fd, data, size, path, err);
	if (ptw_close_file(fd, path, ret ? NULL : err))
		ret = -1;
	return ret;
}

int ptw_read_at(int fd, void *data, size_t size, uint64_t offset, const char *path, struct ptw_error *err)
{
	char *p = data;

	while (size) {
		ssize_t n = pread(fd, p, size, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ptw_error_set(err, PTW_EXIT_FAILED, "%s: offset 0x%llx: %s", path,
					     (unsigned long long)offset, strerror(errno));
		if (!n)
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "%s: offset 0x%llx: the file ends here", path,
					     (unsigned long long)offset);
		p += n;
		size -= n;
		offset += n;
	}
	return 0;
}

char *ptw_read_text(const char *path, size_t *size, struct ptw_error *err)
{
	size_t capacity = 1 << 16, used = 0;
	char *text = malloc(capacity);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		failed(path, errno, err);
		goto fail;
	}
	while (text) {
		ssize_t n = read(fd, text + used, capacity - used - 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			failed(path, errno, err);
			goto fail;
		}
		if (!n) {
			close(fd);
			text[used] = 0;
			*size = used;
			return text;
		}
		used += n;
		if (capacity - used < 4096) {
			char *grown = realloc(text, capacity *= 2);

			if (!grown)
				free(text);
			text = grown;
		}
	}
	ptw_error_set(err, PTW_EXIT_FAILED, "%s: out of memory", path);
fail:
	free(text);
	if (fd >= 0)
		close(fd);
	return NULL;
}
