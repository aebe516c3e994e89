// SPDX-License-Identifier: BSD-2-Clause
#include "recording/binary.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <elfutils/libdwelf.h>

#define ID_MAX	20

bool ptw_binary_has_id(const char *path, const uint8_t *id, size_t id_size)
{
	const void *have = NULL;
	ssize_t size = -1;
	bool same;
	Elf *elf;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (elf)
		size = dwelf_elf_gnu_build_id(elf, &have);
	/* perf's list pads short ids with zeros and older ones don't tell their size. */
	same = size > 0 && (size_t)size <= id_size && !memcmp(have, id, size);
	elf_end(elf);
	close(fd);
	return same;
}

static bool is_file(const char *path, struct stat *st)
{
	return !stat(path, st) && S_ISREG(st->st_mode) && st->st_size;
}

static void hex(const uint8_t *id, size_t size, char *text)
{
	for (size_t i = 0; i < size; i++)
		sprintf(text + 2 * i, "%02x", id[i]);
}

static char *cached(const char *format, const char *dir, const char *more, const char *id, const uint8_t *raw,
		    size_t size)
{
	char path[PATH_MAX];
	struct stat st;

	if (!dir || !*dir)
		return NULL;
	/* Both caches name files by the id: perf's splits it behind two digits. */
	if (more)
		snprintf(path, sizeof(path), format, dir, more, id);
	else
		snprintf(path, sizeof(path), format, dir, id, id + 2);
	return is_file(path, &st) && ptw_binary_has_id(path, raw, size) ? strdup(path) : NULL;
}

static char *find_cached(const uint8_t *id, size_t size, bool vdso)
{
	const char *home = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
	char text[2 * ID_MAX + 1] = "", *found;

	hex(id, size, text);
	found = cached("%s/.debug/.build-id/%.2s/%s/elf", home, NULL, text, id, size);
	if (!found && vdso)
		found = cached("%s/.debug/.build-id/%.2s/%s/vdso", home, NULL, text, id, size);
	if (!found)
		found = cached("%s%s/%s/executable", getenv("DEBUGINFOD_CACHE_PATH"), "", text, id, size);
	if (!found)
		found = cached("%s%s/%s/executable", xdg, "/debuginfod_client", text, id, size);
	if (!found && !xdg)
		found = cached("%s%s/%s/executable", home, "/.cache/debuginfod_client", text, id, size);
	return found;
}

char *ptw_binary_find(const char *name, const uint8_t *id, size_t id_size, time_t recorded)
{
	bool vdso = !strcmp(name, "[vdso]");
	struct stat st;

	if (id_size > ID_MAX)
		id_size = ID_MAX;
	if (name[0] == '/' && name[1] != '/' && is_file(name, &st) &&
	    (id && id_size ? ptw_binary_has_id(name, id, id_size) : st.st_mtime <= recorded))
		return strdup(name);
	return id && id_size ? find_cached(id, id_size, vdso) : NULL;
}
