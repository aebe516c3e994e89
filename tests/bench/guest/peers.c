/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel executes for a context switch, and for perf's ioctls, by the emulator's counters
 * (tests/emulator/README.md).
 *
 * peers pingpong N	two processes on CPU 0 send a byte back and forth N times; prints the kernel instructions
 *			of one of 2 * N switches in the cheapest BATCH rounds
 * peers onoff N	intel_pt//k on each CPU, enabled and disabled N times through perf's ioctls; prints the
 *			kernel instructions of all CPUs for the cheapest of each
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Short enough for some to be without a tick of the timer, however slow the machine is. */
#define BATCH 5
#define LEAF 0x4fff0000
#define SIGNATURE 0x54506d45
#define KERNEL 0x10
#define ALL_KERNEL 0x12
#define MAX_CPUS 64

static uint64_t count(uint32_t what)
{
	uint32_t a, b, c, d;

	__cpuid_count(LEAF, what, a, b, c, d);
	if (b != SIGNATURE) {
		fprintf(stderr, "peers: this CPU is not an emulated one that counts instructions\n");
		exit(1);
	}
	return (uint64_t)d << 32 | a;
}

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

static int pingpong(unsigned int n)
{
	uint64_t best = UINT64_MAX, before, now;
	int there[2], back[2];
	char c = 0;

	pin(0);
	must(!pipe(there) && !pipe(back), "pipe");
	if (!fork()) {
		close(there[1]);
		while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1)
			;
		_exit(0);
	}
	for (unsigned int i = 0; i < n / BATCH; i++) {
		before = count(KERNEL);
		for (int k = 0; k < BATCH; k++)
			must(write(there[1], &c, 1) == 1 && read(back[0], &c, 1) == 1, "pipe");
		now = count(KERNEL);
		if (now - before < best)
			best = now - before;
	}
	close(there[1]);
	wait(NULL);
	printf("switch %" PRIu64 "\n", best / (2 * BATCH));
	return 0;
}

static int onoff(unsigned int n)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr), .config = 1 << 10, .disabled = 1, .exclude_user = 1, .exclude_hv = 1,
	};
	FILE *f = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), fds[MAX_CPUS];
	uint64_t on = UINT64_MAX, off = UINT64_MAX, a, b, c;
	size_t page = 4096, data = 9 * page;

	must(f && fscanf(f, "%u", &attr.type) == 1, "intel_pt");
	for (int i = 0; i < cpus; i++) {
		struct perf_event_mmap_page *p;

		fds[i] = syscall(SYS_perf_event_open, &attr, -1, i, -1, 0);
		must(fds[i] >= 0, "perf_event_open");
		p = mmap(NULL, data, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
		must(p != MAP_FAILED, "mmap");
		p->aux_offset = data;
		p->aux_size = 1 << 20;
		must(mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fds[i], data) != MAP_FAILED, "mmap of AUX");
	}
	for (unsigned int i = 0; i < n; i++) {
		a = count(ALL_KERNEL);
		for (int k = 0; k < cpus; k++)
			ioctl(fds[k], PERF_EVENT_IOC_ENABLE, 0);
		b = count(ALL_KERNEL);
		for (int k = 0; k < cpus; k++)
			ioctl(fds[k], PERF_EVENT_IOC_DISABLE, 0);
		c = count(ALL_KERNEL);
		on = b - a < on ? b - a : on;
		off = c - b < off ? c - b : off;
	}
	printf("on %" PRIu64 "\noff %" PRIu64 "\n", on, off);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "pingpong"))
		return pingpong(atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "onoff"))
		return onoff(atoi(argv[2]));
	fprintf(stderr, "usage: peers pingpong N | peers onoff N\n");
	return 2;
}
