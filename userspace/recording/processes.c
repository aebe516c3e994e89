// SPDX-License-Identifier: BSD-2-Clause
#include "recording/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <elfutils/libdwelf.h>

#include "recording/perf_file.h"

/* Files whose build id is known: few are mapped by very many. */
#define CACHED_FILES 256
#define BUILD_ID_MAX 20
#define PATH_ROOM (PATH_MAX + 64)	/* a path, and what a function appends to it */

struct file_id {
	dev_t device;
	ino_t inode;
	uint8_t id[BUILD_ID_MAX];
	uint8_t size;	/* 0: the file has none */
};

struct describe {
	const char *proc;
	int (*put)(void *arg, struct record *record, struct ptw_error *err);
	void *arg;
	struct ptw_error *err;
	struct record record;
	struct file_id file[CACHED_FILES];
	size_t files;
};

/* A line of /proc/PID/maps */
struct map {
	uint64_t start, end, offset;
	char flags[5];
	char path[PATH_MAX];
};

static int put(struct describe *d)
{
	return d->put(d->arg, &d->record, d->err);
}

/* "Name:" and "PPid:" of a process or thread. Return: false, it is gone. */
static bool read_status(const char *dir, char *name, size_t size, uint32_t *parent)
{
	char path[PATH_ROOM], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/status", dir);
	file = fopen(path, "re");
	if (!file)
		return false;
	name[0] = '\0';
	*parent = 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "PPid: %u", parent) == 1)
			break;
	fclose(file);
	/* Not "Name:", in which blanks and the like are spelled out. */
	snprintf(path, sizeof(path), "%s/comm", dir);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fgets(name, size, file))
		name[strcspn(name, "\n")] = '\0';
	fclose(file);
	return true;
}

static int put_thread(struct describe *d, uint32_t pid, uint32_t tid, uint32_t parent_pid, uint32_t parent_tid,
		      const char *name)
{
	/* That bit tells perf not to copy the parent's mappings: they follow, or are shared. */
	record_begin(&d->record, PERF_RECORD_FORK, PERF_RECORD_MISC_FORK_EXEC);
	record_u32(&d->record, pid);
	record_u32(&d->record, parent_pid);
	record_u32(&d->record, tid);
	record_u32(&d->record, parent_tid);
	record_u64(&d->record, 0);
	if (put(d))
		return -1;
	record_begin(&d->record, PERF_RECORD_COMM, 0);
	record_u32(&d->record, pid);
	record_u32(&d->record, tid);
	record_string(&d->record, name);
	return put(d);
}

static int put_threads(struct describe *d, const char *dir, uint32_t pid)
{
	char path[PATH_ROOM], name[64];
	struct dirent *entry;
	DIR *tasks;
	int ret = 0;

	snprintf(path, sizeof(path), "%s/task", dir);
	tasks = opendir(path);
	while (tasks && !ret && (entry = readdir(tasks))) {
		uint32_t tid = strtoul(entry->d_name, NULL, 10), parent;

		if (!tid || tid == pid)
			continue;
		snprintf(path, sizeof(path), "%s/task/%u", dir, tid);
		if (read_status(path, name, sizeof(name), &parent))
			ret = put_thread(d, pid, tid, pid, pid, name);
	}
	if (tasks)
		closedir(tasks);
	return ret;
}

/* "start-end flags offset major:minor inode   path" */
static bool parse_map(char *line, struct map *map)
{
	unsigned long long start, end, offset;
	int used = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%llx-%llx %4s %llx %*x:%*x %*u %n", &start, &end, map->flags, &offset, &used) < 4 || !used)
		return false;
	map->start = start;
	map->end = end;
	map->offset = offset;
	/* As the kernel calls what has no name in its own records. */
	snprintf(map->path, sizeof(map->path), "%s", line[used] ? line + used : "//anon");
	return true;
}

static void read_build_id(const char *path, struct file_id *id)
{
	const void *found = NULL;
	ssize_t size = -1;
	Elf *elf;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	id->size = 0;
	if (fd < 0)
		return;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (elf)
		size = dwelf_elf_gnu_build_id(elf, &found);
	if (size > 0 && size <= BUILD_ID_MAX) {
		memcpy(id->id, found, size);
		id->size = size;
	}
	elf_end(elf);
	close(fd);
}

static const struct file_id *find_build_id(struct describe *d, const char *path, const struct stat *st)
{
	struct file_id *id;

	for (size_t i = 0; i < d->files; i++)
		if (d->file[i].device == st->st_dev && d->file[i].inode == st->st_ino)
			return &d->file[i];
	id = &d->file[d->files < CACHED_FILES ? d->files++ : CACHED_FILES - 1];
	id->device = st->st_dev;
	id->inode = st->st_ino;
	read_build_id(path, id);
	return id;
}

static int put_map(struct describe *d, const char *dir, uint32_t pid, const struct map *map)
{
	const struct file_id *id = NULL;
	char path[PATH_ROOM];
	struct stat st;
	uint32_t prot = 0;

	if (map->path[0] == '/' && map->path[1] != '/') {
		/* The very file, whatever has its name now and wherever the process has its root. */
		snprintf(path, sizeof(path), "%s/map_files/%llx-%llx", dir, (unsigned long long)map->start,
			 (unsigned long long)map->end);
		if (!stat(path, &st) && S_ISREG(st.st_mode))
			id = find_build_id(d, path, &st);
	}
	prot |= map->flags[0] == 'r' ? PROT_READ : 0;
	prot |= map->flags[1] == 'w' ? PROT_WRITE : 0;
	prot |= map->flags[2] == 'x' ? PROT_EXEC : 0;
	record_begin(&d->record, PERF_RECORD_MMAP2,
		     PERF_RECORD_MISC_USER | (id && id->size ? PERF_RECORD_MISC_MMAP_BUILD_ID : 0));
	record_u32(&d->record, pid);
	record_u32(&d->record, pid);
	record_u64(&d->record, map->start);
	record_u64(&d->record, map->end - map->start);
	record_u64(&d->record, map->offset);
	if (id && id->size) {
		record_u32(&d->record, id->size);
		record_add(&d->record, id->id, BUILD_ID_MAX);
	} else {
		/* major, minor, inode and its generation: known only where there is a file */
		record_u32(&d->record, 0);
		record_u32(&d->record, 0);
		record_u64(&d->record, id ? id->inode : 0);
		record_u64(&d->record, 0);
	}
	record_u32(&d->record, prot);
	record_u32(&d->record, map->flags[3] == 's' ? MAP_SHARED : MAP_PRIVATE);
	record_string(&d->record, map->path);
	return put(d);
}

static int put_maps(struct describe *d, const char *dir, uint32_t pid)
{
	char path[PATH_ROOM], *line = NULL;
	size_t room = 0;
	struct map map;
	FILE *file;
	int ret = 0;

	snprintf(path, sizeof(path), "%s/maps", dir);
	file = fopen(path, "re");
	while (file && !ret && getline(&line, &room, file) > 0)
		if (parse_map(line, &map) && map.flags[2] == 'x')
			ret = put_map(d, dir, pid, &map);
	free(line);
	if (file)
		fclose(file);
	return ret;
}

int ptw_processes_describe(const char *proc, int (*put_record)(void *arg, struct record *record, struct ptw_error *err),
			   void *arg, struct ptw_error *err)
{
	struct describe *d = calloc(1, sizeof(*d));
	DIR *all = opendir(proc);
	char dir[PATH_MAX], name[64];
	struct dirent *entry;
	int ret = 0;

	if (!d || !all) {
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", proc, strerror(errno));
		goto out;
	}
	d->proc = proc;
	d->put = put_record;
	d->arg = arg;
	d->err = err;
	while (!ret && (entry = readdir(all))) {
		uint32_t pid = isdigit((unsigned char)entry->d_name[0]) ? strtoul(entry->d_name, NULL, 10) : 0, parent;

		if (!pid)
			continue;
		snprintf(dir, sizeof(dir), "%s/%u", proc, pid);
		if (!read_status(dir, name, sizeof(name), &parent))
			continue;
		ret = put_thread(d, pid, pid, parent, parent, name);
		if (!ret)
			ret = put_maps(d, dir, pid);
		if (!ret)
			ret = put_threads(d, dir, pid);
	}
out:
	if (all)
		closedir(all);
	free(d);
	return ret;
}
