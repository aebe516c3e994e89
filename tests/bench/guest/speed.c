/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * speed OUT [CTL]: do pieces of work when the host says so: OUT/go.N holds the name of piece N = 1, 2, …; OUT/done.N
 * is there when it has been done. An empty name is the end. All on CPU 0. With CTL it is traced meanwhile, IA32_RTIT_CTL
 * being that, into a single range at RANGE, which the kernel must have left alone (memmap=1M$0x30000000).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANGE 0x30000000
#define RANGE_SIZE 0x100000
#define PAGE 4096

static volatile unsigned int sink;

static int compare(const void *a, const void *b)
{
	unsigned int x = *(const unsigned int *)a, y = *(const unsigned int *)b;

	return x < y ? -1 : x > y;
}

static void sort(int n)
{
	unsigned int count = 20000, x = 1;

	while (n--) {
		unsigned int *a = malloc(count * sizeof(*a));

		for (unsigned int i = 0; i < count; i++) {
			x = x * 1103515245 + 12345;
			a[i] = x >> 8;
		}
		qsort(a, count, sizeof(*a), compare);
		sink += a[count / 2];
		free(a);
	}
}

static void strings(int n)
{
	char buf[PAGE];

	while (n--) {
		for (int i = 0; i < PAGE; i++)
			buf[i] = i * n;
		for (int i = 0; i < PAGE; i++)
			sink += buf[i];
		snprintf(buf, 200, "%d %s %x", n, "hello", sink);
		sink += strlen(buf);
	}
}

static void syscalls(int n)
{
	while (n--)
		syscall(SYS_getppid);
}

static void reads(int n)
{
	int fd = open("/proc/self/stat", O_RDONLY);
	char buf[512];

	while (n--)
		sink += pread(fd, buf, sizeof(buf), 0);
	close(fd);
}

static void forks(int n)
{
	while (n--) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

static void faults(int n)
{
	while (n--) {
		char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (int i = 0; i < 64; i++)
			p[i * PAGE] = 1;
		munmap(p, 64 * PAGE);
	}
}

/* The name of the next piece. */
static void await(const char *out, unsigned int n, char *name, size_t size)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/go.%u", out, n);
	while (!(f = fopen(path, "r")))
		usleep(20000);
	if (!fgets(name, size, f))
		name[0] = 0;
	name[strcspn(name, "\n")] = 0;
	fclose(f);
}

static void wrmsr(int fd, uint32_t msr, uint64_t value)
{
	if (pwrite(fd, &value, 8, msr) == 8)
		return;
	printf("WRMSR %#x faults\n", msr);
	exit(1);
}

static void trace(uint64_t ctl)
{
	int fd = open("/dev/cpu/0/msr", O_RDWR);

	wrmsr(fd, 0x571, 0);
	wrmsr(fd, 0x560, RANGE);
	wrmsr(fd, 0x561, RANGE_SIZE - 1);
	wrmsr(fd, 0x570, ctl);
	close(fd);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int n);
		int n;
	} work[] = {
		{ "sort", sort, 2 }, { "strings", strings, 800 }, { "syscall", syscalls, 50000 },
		{ "read", reads, 2000 }, { "fork", forks, 25 }, { "fault", faults, 30 },
	};
	char name[32], path[256];

	cpu_set_t set;

	if (argc < 2)
		return 2;
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	if (argc > 2)
		trace(strtoull(argv[2], NULL, 16));
	for (unsigned int n = 1;; n++) {
		await(argv[1], n, name, sizeof(name));
		if (!name[0])
			return 0;
		for (size_t i = 0; i < sizeof(work) / sizeof(work[0]); i++)
			if (!strcmp(work[i].name, name))
				work[i].run(work[i].n);
		snprintf(path, sizeof(path), "%s/done.%u", argv[1], n);
		close(open(path, O_CREAT | O_WRONLY, 0644));
	}
}
