// SPDX-License-Identifier: BSD-2-Clause
/*
 * Every 64-bit process has the same vDSO, and so have we. The other one a process of ours asks for: no 32-bit program may
 * run yet, and none be installed here. A file of the kernel's package would not do, because the kernel fits the code to the
 * CPU when it boots.
 */
#include "recording/vdso.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording/file.h"

#define MAP_VDSO_32	0x2002	/* of arch_prctl(2); kernels with CONFIG_CHECKPOINT_RESTORE have it */
#define PLACE		0x40000000UL
#define SIZE_LIMIT	(1UL << 20)
#define RANGES		8

struct range {
	unsigned long start, end;
};

/* What a process has mapped whose name begins with one of the two. Return: how many. */
static size_t find_ranges(pid_t pid, const char *name, const char *other, struct range *range)
{
	char line[512], path[64];
	size_t count = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && count < RANGES && fgets(line, sizeof(line), maps)) {
		const char *at = strchr(line, '[');

		if (at && (!strncmp(at, name, strlen(name)) || !strncmp(at, other, strlen(other))) &&
		    sscanf(line, "%lx-%lx", &range[count].start, &range[count].end) == 2)
			count++;
	}
	if (maps)
		fclose(maps);
	return count;
}

/* The vDSO of process @pid to @dir/@name */
static void copy_from(pid_t pid, const char *dir, const char *name)
{
	struct range range[RANGES];
	char path[4096];
	void *bytes;
	size_t size;
	int fd;

	if (!find_ranges(pid, "[vdso]", "[vdso]", range) || range[0].end - range[0].start > SIZE_LIMIT)
		return;
	size = range[0].end - range[0].start;
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	bytes = malloc(size);
	if (bytes && !ptw_read_at(fd, bytes, size, range[0].start, path, NULL) &&
	    snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path))
		ptw_write_file(path, bytes, size, NULL);
	free(bytes);
	close(fd);
}

/* In a process of its own, which shares nothing with the recorder: system calls only. It stays until @peer is closed. */
static void become_32_bit(const struct range *range, size_t count, int peer)
{
	char byte = 0;

	/* There can be one only. */
	for (size_t i = 0; i < count; i++)
		munmap((void *)range[i].start, range[i].end - range[i].start);
	if (syscall(SYS_arch_prctl, MAP_VDSO_32, PLACE) > 0 && write(peer, &byte, 1) == 1)
		while (read(peer, &byte, 1) > 0)
			;
	_exit(0);
}

static void copy_32_bit(const char *dir)
{
	struct range range[RANGES];
	size_t count = find_ranges(getpid(), "[vdso]", "[vvar", range);
	int pair[2];
	char byte;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return;
	/* As fork(), but nobody who waits for a child of ours gets a signal of this one. */
	pid = syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
	if (!pid) {
		close(pair[0]);
		become_32_bit(range, count, pair[1]);
	}
	close(pair[1]);
	if (pid > 0 && read(pair[0], &byte, 1) == 1)
		copy_from(pid, dir, "vdso32");
	close(pair[0]);
	if (pid > 0)
		waitpid(pid, NULL, __WALL);
}

void vdso_copy(const char *dir)
{
	copy_from(getpid(), dir, "vdso");
	copy_32_bit(dir);
}
