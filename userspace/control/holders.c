// SPDX-License-Identifier: BSD-2-Clause
#include "control/holders.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/ptwatch.h>

struct process {
	int pid;
	unsigned int kinds;
};

struct processes {
	struct process *list;
	size_t count;
	size_t room;
};

static struct process *add_process(struct processes *all, int pid)
{
	struct process *list;

	for (size_t i = 0; i < all->count; i++)
		if (all->list[i].pid == pid)
			return &all->list[i];
	if (all->count == all->room) {
		list = realloc(all->list, (all->room + 64) * sizeof(*list));
		if (!list)
			return NULL;
		all->list = list;
		all->room += 64;
	}
	all->list[all->count] = (struct process){ .pid = pid };
	return &all->list[all->count++];
}

static unsigned int kinds_of_files(int pid)
{
	char path[300], target[64];
	unsigned int kinds = 0;
	struct dirent *entry;
	ssize_t len;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return 0;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, entry->d_name);
		len = readlink(path, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = '\0';
		if (!strcmp(target, "anon_inode:[perf_event]"))
			kinds |= PTW_HOLDER_PERF;
		else if (!strcmp(target, PTWATCH_DEVICE))
			kinds |= PTW_HOLDER_PTWATCH;
	}
	closedir(dir);
	return kinds;
}

static int tracer_of(int pid)
{
	char path[64], line[256];
	int tracer = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "TracerPid: %d", &tracer) == 1)
			break;
	fclose(file);
	return tracer;
}

static void comm_of(int pid, char *comm, size_t size)
{
	char path[64];
	FILE *file;

	snprintf(comm, size, "?");
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(comm, size, file))
		comm[strcspn(comm, "\n")] = '\0';
	fclose(file);
}

static int by_pid(const void *a, const void *b)
{
	return ((const struct process *)a)->pid - ((const struct process *)b)->pid;
}

void ptw_holders_each(unsigned int kinds,
		      void (*found)(int pid, const char *comm, unsigned int kinds, void *arg), void *arg)
{
	struct processes all = { 0 };
	struct process *process;
	struct dirent *entry;
	char comm[32];
	int pid, tracer;
	DIR *proc = opendir("/proc");

	if (!proc)
		return;
	while ((entry = readdir(proc))) {
		unsigned int held = 0;

		pid = atoi(entry->d_name);
		if (pid <= 0)
			continue;
		if (kinds & (PTW_HOLDER_PERF | PTW_HOLDER_PTWATCH))
			held = kinds_of_files(pid) & kinds;
		if (held) {
			process = add_process(&all, pid);
			if (process)
				process->kinds |= held;
		}
		if (!(kinds & PTW_HOLDER_TRACER))
			continue;
		tracer = tracer_of(pid);
		if (tracer) {
			process = add_process(&all, tracer);
			if (process)
				process->kinds |= PTW_HOLDER_TRACER;
		}
	}
	closedir(proc);
	if (all.count)
		qsort(all.list, all.count, sizeof(all.list[0]), by_pid);
	for (size_t i = 0; i < all.count; i++) {
		if (all.list[i].pid == getpid())
			continue;
		comm_of(all.list[i].pid, comm, sizeof(comm));
		found(all.list[i].pid, comm, all.list[i].kinds, arg);
	}
	free(all.list);
}

struct text {
	char *buf;
	size_t size;
	size_t used;
	int count;
};

static void append(int pid, const char *comm, unsigned int kinds, void *arg)
{
	struct text *text = arg;
	char one[64];
	int len;

	text->count++;
	len = snprintf(one, sizeof(one), "%s%s (pid %d)", text->used ? ", " : "", comm, pid);
	if (text->used + len >= text->size)
		return;
	memcpy(text->buf + text->used, one, len + 1);
	text->used += len;
}

int ptw_holders_text(unsigned int kinds, char *buf, size_t size)
{
	struct text text = { .buf = buf, .size = size };

	buf[0] = '\0';
	ptw_holders_each(kinds, append, &text);
	return text.count;
}
