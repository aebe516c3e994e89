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
#define WINDOWS 9
#define ANY UINT32_MAX

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

/* What the stores and the counting itself cost, without a watch: of HITS stores, and of one. */
static uint64_t base, base_of_one;

/* The best of ROUNDS pokes. */
static uint64_t best_of(const char *kind, unsigned int hits)
{
	uint64_t best = UINT64_MAX, n;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		if (poke(kind, 1, hits, 1))
			die("poke %s", kind);
		n = counted();
		best = n < best ? n : best;
		sleep_ms(20);
	}
	return best;
}

static uint64_t cost(const char *kind)
{
	return (best_of(kind, HITS) - base) / HITS;
}

static void watched(const char *name, int fd, struct ptwatch_watch arg)
{
	uint32_t id = add_watch(fd, arg);

	printf("%s %llu\n", name, (unsigned long long)cost("counted"));
	/* Delivering these is not to be counted with the next. */
	settled(fd, id);
	del_watch(fd, id);
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Looks every 5 ms, until all hits are delivered or *looks are used up, and counts them. */
static uint64_t window(int fd, uint32_t id, const char *kind, unsigned int *looks)
{
	uint64_t before = all_kernel();
	struct ptwatch_watch_stat stat;
	unsigned int n = 0;

	if (poke(kind, 1, HITS, 1))
		die("poke %s", kind);
	do {
		sleep_ms(5);
		if (stat_watch(fd, id, &stat))
			die("no stat of watch %u", id);
	} while (++n < *looks &&
		 (*looks != ANY || stat.hits != stat.alarms + stat.dropped));
	*looks = n;
	return all_kernel() - before;
}

/*
 * All CPUs, until everything is delivered. In the same time they do other things as well, some
 * thousand instructions a tick: hence the median of the differences to windows as long in which
 * what is stored to is not watched.
 */
static void everywhere(const char *name, int fd, struct ptwatch_watch arg)
{
	int64_t difference[WINDOWS];
	unsigned int i;
	uint32_t id = add_watch(fd, arg);

	for (i = 0; i < WINDOWS; i++) {
		unsigned int looks = ANY;
		uint64_t busy = window(fd, id, "counted", &looks);

		difference[i] = (int64_t)(busy - window(fd, id, "beside", &looks)) / HITS;
	}
	if (settled(fd, id).alarms != WINDOWS * HITS)
		die("%s: not everything was delivered", name);
	del_watch(fd, id);
	qsort(difference, WINDOWS, sizeof(difference[0]), compare);
	printf("%s %lld\n", name, (long long)difference[WINDOWS / 2]);
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
	printf("freeze-%s %llu\n", name, (unsigned long long)(best[0] - base_of_one));
	printf("freeze-%s-false %llu\n", name, (unsigned long long)(best[1] - base_of_one));
	close(fd);
}

int main(void)
{
	uint64_t word = symbol("pokee_word");
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W), other;
	struct ptwatch_who who = { .kind = PTWATCH_WHO_COMM, .comm = "nobody" };
	int fd = open_device();

	base = best_of("counted", HITS);
	base_of_one = best_of("counted", 1);
	printf("empty %llu\n", (unsigned long long)cost("empty"));
	arg.max_rate = UINT32_MAX;
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
