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

#include "recording/recording.h"

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
	struct stat st;

	if (id_size > ID_MAX)
		id_size = ID_MAX;
	if (name[0] == '/' && name[1] != '/' && is_file(name, &st) &&
	    (id && id_size ? ptw_binary_has_id(name, id, id_size) : st.st_mtime <= recorded))
		return strdup(name);
	return id && id_size ? find_cached(id, id_size, ptw_binary_is_vdso(name)) : NULL;
}

bool ptw_binary_is_vdso(const char *name)
{
	return !strcmp(name, PTW_VDSO) || !strcmp(name, PTW_VDSO_32);
}

const char *ptw_binary_mapped(const char *name, uint64_t addr)
{
	return !strcmp(name, PTW_VDSO) && addr < 1ULL << 32 ? PTW_VDSO_32 : name;
}

const char *ptw_binary_known_as(const char *name)
{
	const char *last = strrchr(name, '/');

	if (!strcmp(name, PTW_VDSO))
		return "vdso";
	if (!strcmp(name, PTW_VDSO_32))
		return "vdso32";
	return last ? last + 1 : name;
}

bool ptw_binary_generated(const char *name)
{
	return !strncmp(name, "//anon", 6) || !strncmp(name, "/memfd:", 7) || !strncmp(name, "/dev/zero", 9) ||
	       !strncmp(name, "[anon", 5) || !strcmp(name, "[heap]") || !strncmp(name, "[stack", 6);
}

static char *advice_for(const char *name, const char *id, bool known, bool here)
{
	char *text;
	int ret;

	if (known && here)
		ret = asprintf(&text, "%s is not the file here that ran, which had the build id %s: put that one here as "
			       "~/.debug/.build-id/%.2s/%s/elf (perf's cache; `perf archive` where it ran collects all of them)",
			       name, id, id, id + 2);
	else if (known && name[0] == '/')
		ret = asprintf(&text, "%s with the build id %s ran, but is not here: copy it here from where it ran, or as "
			       "~/.debug/.build-id/%.2s/%s/elf (perf's cache; `perf archive` there collects all of them)",
			       name, id, id, id + 2);
	else if (known)
		ret = asprintf(&text, "%s with the build id %s ran, but is not here: copy it from where it ran to "
			       "~/.debug/.build-id/%.2s/%s/vdso (perf's cache)", name, id, id, id + 2);
	else if (here)
		ret = asprintf(&text, "%s ran, but the file here is newer than the recording, which tells no build id: put here the one "
			       "that ran, with its time, or record again (perf: with --buildid-mmap)", name);
	else if (name[0] == '/')
		ret = asprintf(&text, "%s ran, but is not here: copy it here from where it ran, with its time (cp -p)", name);
	else
		ret = asprintf(&text, "%s ran, but is not here, and the recording tells no build id to look for it by: record again (perf: "
			       "with --buildid-mmap)", name);
	return ret < 0 ? NULL : text;
}

/* A list without sizes pads shorter ids, of 16 and 8 bytes. */
static size_t unpadded(const uint8_t *id, size_t size)
{
	static const uint8_t zeros[ID_MAX];

	if (size < ID_MAX)
		return size;
	return memcmp(id + 16, zeros, ID_MAX - 16) ? ID_MAX : memcmp(id + 8, zeros, ID_MAX - 8) ? 16 : 8;
}

void ptw_binary_missing(const char *name, const uint8_t *id, size_t id_size, char **gap, char **advice)
{
	const char *last = strrchr(name, '/');
	char text[2 * ID_MAX + 1] = "";
	struct stat st;

	*gap = *advice = NULL;
	if (ptw_binary_generated(name)) {
		*gap = strdup("no code of memory without a file");
		*advice = strdup("code ran that a program generated in memory: have it write what it generates as a jitdump file "
				 "(jit-PID.dump) while it is recorded, as perf asks for, too");
		return;
	}
	if (!strcmp(name, "[uprobes]")) {
		*gap = strdup("no code of [uprobes]");
		*advice = strdup("[uprobes]: a probe in a program (uprobe) has copies of instructions run, which are nowhere else: record "
				 "while there is none, or the kernel alone (-k)");
		return;
	}
	if (id)
		hex(id, unpadded(id, id_size), text);
	if (asprintf(gap, "no code of %.100s", last && last[1] ? last + 1 : name) < 0)
		*gap = NULL;
	*advice = advice_for(name, text, id && id_size, name[0] == '/' && name[1] != '/' && is_file(name, &st));
}
