// SPDX-License-Identifier: BSD-2-Clause
/*
 * In the guest: what a hit costs, in kernel instructions of the #DB path, IRQs off, the cost of the
 * stores themselves taken away. A line each: NAME INSTRUCTIONS. QEMU executes a store that hits twice.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../guest/guest.h"

#define HITS 16		/* less than a CPU has records */
#define ROUNDS 5

static uint64_t counted(void)
{
	char text[32] = "";
	int fd = open("/proc/pokee", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		die("can't read /proc/pokee");
	close(fd);
	return strtoull(text, NULL, 10);
}

static uint64_t all_kernel(void)
{
	uint32_t a = 0x4fff0000, b, c = 0x12, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d)::"memory");
	return a | (uint64_t)d << 32;
}

static uint64_t base;

/* The best of ROUNDS pokes. */
static uint64_t cost(const char *kind, unsigned int hits, uint64_t value)
{
	uint64_t best = UINT64_MAX, n;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		if (poke(kind, 1, hits, value))
			die("poke %s", kind);
		n = counted();
		best = n < best ? n : best;
		sleep_ms(20);
	}
	return (best - base * hits) / hits;
}

static void watched(const char *name, int fd, struct ptwatch_watch arg)
{
	uint32_t id = add_watch(fd, arg);

	printf("%s %llu\n", name, (unsigned long long)cost("counted", HITS, 1));
	del_watch(fd, id);
}

/* All CPUs, until everything is delivered, without what happens in that time anyway. */
static void everywhere(const char *name, int fd, struct ptwatch_watch arg)
{
	uint64_t n[2];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		uint32_t id = add_watch(fd, arg);
		uint64_t before = all_kernel();

		if (poke(i ? "counted" : "beside", 1, HITS, 1))
			die("poke");
		sleep_ms(300);
		n[i] = all_kernel() - before;
		del_watch(fd, id);
	}
	printf("%s %lld\n", name, (long long)(n[1] - n[0]) / HITS);
}

static void freezes(const char *name, uint32_t flags, uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_trace trace = trace_arg(KERNEL_TRACE, 16 * PAGE);
	uint64_t best[2] = { UINT64_MAX, UINT64_MAX }, n;
	int fd = open_device();
	unsigned int i, k;

	trace.flags = flags;
	if (ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace))
		die("SETUP fails");
	arg.actions |= PTWATCH_ACTION_FREEZE;
	for (k = 0; k < 2; k++) {
		uint32_t id;

		/* In the second round the value is never the wanted one. */
		if (k) {
			arg.value_op = PTWATCH_VALUE_EQ;
			arg.value = 0xdead;
		}
		id = add_watch(fd, arg);
		for (i = 0; i < ROUNDS; i++) {
			if (ioctl(fd, PTWATCH_IOC_TRACE_THAW) ||
			    ioctl(fd, PTWATCH_IOC_TRACE_START) || poke("counted", 1, 1, 1))
				die("START and poke");
			n = counted();
			best[k] = n < best[k] ? n : best[k];
			settled(fd, id);
			ioctl(fd, PTWATCH_IOC_TRACE_STOP);
		}
		del_watch(fd, id);
	}
	printf("freeze-%s %llu\n", name, (unsigned long long)(best[0] - base));
	printf("freeze-%s-false %llu\n", name, (unsigned long long)(best[1] - base));
	close(fd);
}

int main(void)
{
	uint64_t word = symbol("pokee_word");
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W), other;
	struct ptwatch_who who = { .kind = PTWATCH_WHO_COMM, .comm = "nobody" };
	int fd = open_device();

	base = cost("counted", HITS, 1);
	printf("base %llu\n", (unsigned long long)base);
	printf("empty %llu\n", (unsigned long long)cost("empty", HITS, 1));
	other = arg;
	other.value_op = PTWATCH_VALUE_EQ;
	other.value = 0xdead;
	watched("false-value", fd, other);
	other = arg;
	other.nr_filters = 1;
	other.filters = (uintptr_t)&who;
	watched("false-comm", fd, other);
	watched("event", fd, arg);
	everywhere("event-all", fd, arg);
	other = arg;
	other.actions = PTWATCH_ACTION_LOG;
	watched("log", fd, other);
	everywhere("log-all", fd, other);
	close(fd);

	freezes("handler", PTWATCH_TRACE_NO_TRACESTOP | PTWATCH_TRACE_NO_EARLY, word);
	freezes("early", PTWATCH_TRACE_NO_TRACESTOP, word);
	freezes("hardware", 0, word);
	return 0;
}
