// SPDX-License-Identifier: BSD-2-Clause
/* WATCH_*: what is refused, what hits, what a hit does, and CPUs that come and go meanwhile. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"

#define BAD_POINTER ((void *)16)

/* ---- arguments ---- */

/* WATCH_ADD with one thing changed fails with ERROR and leaves the argument alone. */
#define REFUSED(expected, name, change) \
	do { \
		struct ptwatch_watch arg = good, copy; \
		change; \
		copy = arg; \
		FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg), expected, "WATCH_ADD with " name); \
		if (memcmp(&arg, &copy, sizeof(arg))) \
			ok(false, "WATCH_ADD with " name " changed its argument"); \
	} while (0)

static void watch_refusals(int fd, struct ptwatch_watch good)
{
	REFUSED(EINVAL, "flags", arg.flags = 1);
	REFUSED(EINVAL, "an id", arg.id = 1);
	REFUSED(EINVAL, "no action", arg.actions = 0);
	REFUSED(EINVAL, "an unknown action", arg.actions |= 8);
	REFUSED(EINVAL, "FREEZE without a trace", arg.actions |= PTWATCH_ACTION_FREEZE);
	REFUSED(EINVAL, "no access", arg.access = 0);
	REFUSED(EINVAL, "an unknown access", arg.access = 4);
	REFUSED(EINVAL, "length 0", arg.len = 0);
	REFUSED(EINVAL, "length 3", arg.len = 3);
	REFUSED(EINVAL, "length 12", arg.len = 12);
	REFUSED(EINVAL, "length 40", arg.len = 40);
	REFUSED(EINVAL, "8 bytes at +4", arg.address += 4);
	REFUSED(EINVAL, "8 bytes at +1", arg.address += 1);
	REFUSED(EINVAL, "4 bytes at +2", arg.len = 4; arg.address += 2);
	REFUSED(EINVAL, "2 bytes at +1", arg.len = 2; arg.address += 1);
	REFUSED(EINVAL, "4 bytes of code", arg.access = PTWATCH_ACCESS_X; arg.len = 4);
	REFUSED(EINVAL, "address 0", arg.address = 0);
	REFUSED(EINVAL, "a user address", arg.address = (uintptr_t)&arg & ~7UL);
	REFUSED(EINVAL, "the last user address", arg.address = 0x00007ffffffff000);
	REFUSED(EINVAL, "an address that is not canonical", arg.address = 0x8000000000000000);
	REFUSED(EINVAL, "an address below the kernel's half", arg.address = 0xffff7ffffffffff8);
	REFUSED(EINVAL, "an unmapped address", arg.address = 0xffffffffff000000);
	REFUSED(EINVAL, "the last address there is", arg.address = -8ULL);
	REFUSED(EINVAL, "a label without end", memset(arg.label, 'a', sizeof(arg.label)));
	REFUSED(EINVAL, "a newline in the label", strcpy(arg.label, "a\nb"));
	REFUSED(EINVAL, "DEL in the label", strcpy(arg.label, "a\x7f"));
	REFUSED(EINVAL, "a byte above ASCII in the label", strcpy(arg.label, "a\xc3\xa4"));
	/* What the kernel itself refuses: entry code, and the tables its entry code needs. */
	REFUSED(EINVAL, "entry code", arg.access = PTWATCH_ACCESS_X;
		arg.address = symbol("entry_SYSCALL_64"));
	REFUSED(EINVAL, "code of the #DB handler", arg.access = PTWATCH_ACCESS_X;
		arg.address = symbol("exc_debug"));
	REFUSED(EINVAL, "the per-CPU offsets", arg.address = symbol("__per_cpu_offset"));
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, NULL), EFAULT, "WATCH_ADD from NULL");
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, BAD_POINTER), EFAULT, "WATCH_ADD from a bad pointer");
}

static void watch_sizes(int fd, struct ptwatch_watch good)
{
	struct {
		struct ptwatch_watch arg;
		uint64_t more;
	} big = { .arg = good };
	struct ptwatch_watch small = good;

	big.arg.size = sizeof(big);
	big.more = 1;
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &big), E2BIG, "WATCH_ADD with an unknown byte set");
	big.more = 0;
	WORKS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &big), "WATCH_ADD with unknown bytes of zero");
	WORKS(del_watch(fd, big.arg.id), "WATCH_DEL");
	small.size = 4;
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &small), EINVAL, "WATCH_ADD with size 4");
	small.size = offsetof(struct ptwatch_watch, label);
	memset(small.label, 0xff, sizeof(small.label));
	WORKS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &small), "WATCH_ADD of a caller without labels");
	ok(small.id != 0, "gets an id");
	is((uint8_t)small.label[0], 0xff, "and no byte behind its size");
	WORKS(del_watch(fd, small.id), "WATCH_DEL");
	good.label[0] = '\0';
	WORKS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &good), "WATCH_ADD with an empty label");
	WORKS(del_watch(fd, good.id), "WATCH_DEL");
	good.id = 0;
	memset(good.label, '~', sizeof(good.label) - 1);
	WORKS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &good), "WATCH_ADD with the longest label");
	WORKS(del_watch(fd, good.id), "WATCH_DEL");
}

/* The result can't be written: the watch must not stay. */
static void watch_read_only(int fd, struct ptwatch_watch good)
{
	struct ptwatch_watch *arg = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;
	uint32_t id[4];

	if (arg == MAP_FAILED)
		die("no memory");
	*arg = good;
	mprotect(arg, PAGE, PROT_READ);
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, arg), EFAULT, "WATCH_ADD with a read-only argument");
	munmap(arg, PAGE);
	for (i = 0; i < 4; i++) {
		WORKS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &good), "leaves debug register %u free", i);
		id[i] = good.id;
		good.id = 0;
	}
	for (i = 0; i < 4; i++)
		del_watch(fd, id[i]);
}

static void four_registers(int fd, struct ptwatch_watch good)
{
	struct ptwatch_watch_stat stat;
	int other = open_device();
	uint32_t id[4], again;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		struct ptwatch_watch arg = good;

		arg.address += 8 * i;
		WORKS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg), "watch %u of 4", i + 1);
		id[i] = arg.id;
		is(arg.max_rate, ANY_RATE, "keeps its max_rate");
	}
	ok(id[0] && id[0] < id[1] && id[1] < id[2] && id[2] < id[3], "their ids grow");
	REFUSED(ENOSPC, "no debug register free", );
	FAILS(ioctl(other, PTWATCH_IOC_WATCH_ADD, &good), ENOSPC, "nor for another session");
	for (i = 0; i < 4; i++) {
		if (stat_watch(fd, id[i], &stat))
			die("no stat");
		is(stat.armed_cpus, 2, "watch %u is armed on both CPUs", i + 1);
		is(stat.hits + stat.alarms + stat.ignored + stat.rate_limited + stat.dropped, 0,
		   "and nothing hit it");
	}
	FAILS(stat_watch(other, id[0], &stat), ENOENT, "WATCH_STAT of another session's watch");
	FAILS(del_watch(other, id[0]), ENOENT, "WATCH_DEL of another session's watch");
	FAILS(stat_watch(fd, id[3] + 1000, &stat), ENOENT, "WATCH_STAT of an unknown id");
	FAILS(del_watch(fd, id[3] + 1000), ENOENT, "WATCH_DEL of an unknown id");
	FAILS(del_watch(fd, 0), ENOENT, "WATCH_DEL of id 0");
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_DEL, (1UL << 32) + id[0]), ENOENT,
	      "WATCH_DEL of an id with bits above 32");
	WORKS(del_watch(fd, id[1]), "WATCH_DEL of the second");
	FAILS(del_watch(fd, id[1]), ENOENT, "but not twice");
	FAILS(stat_watch(fd, id[1], &stat), ENOENT, "nor its WATCH_STAT");
	again = add_watch(other, good);
	ok(again > id[3], "another session gets the register, and a new id");
	close(other);
	again = add_watch(fd, good);
	WORKS(del_watch(fd, again), "and what it had is free again when it ends");
	del_watch(fd, id[0]);
	del_watch(fd, id[2]);
	del_watch(fd, id[3]);
}

static volatile bool stop_poking;

static void *poke_cpu_0(void *arg)
{
	(void)arg;
	while (!stop_poking)
		if (poke("store", 0, 100, 0))
			return (void *)1;
	return NULL;
}

/*
 * WATCH_ADD that arms CPU 0, where hits wait for it, and finds no register on CPU 1: its alarms
 * outlive it, and the session.
 */
static void armed_in_part(struct ptwatch_watch good)
{
	/* Fewer alarms than a CPU has records: none may be dropped, as nobody could count it. */
	unsigned int i, refused = 0, n = 30;
	int fd = open_device(), busy[4];
	void *failed = NULL;
	uint32_t id, next;
	pthread_t thread;

	good.max_hits = 1;
	id = add_watch(fd, good);
	del_watch(fd, id);
	close(fd);
	for (i = 0; i < 4; i++) {
		busy[i] = perf_watch(1, good.address + 8 * i);
		if (busy[i] < 0)
			die("perf gets no debug register of CPU 1");
	}
	stop_poking = false;
	if (pthread_create(&thread, NULL, poke_cpu_0, NULL))
		die("no thread");
	pin(1);
	for (i = 0; i < n; i++) {
		struct ptwatch_watch arg = good;

		fd = open_device();
		refused += ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg) == -1 && errno == ENOSPC;
		close(fd);
	}
	is(refused, n, "WATCH_ADD amid hits, without a register on CPU 1: ENOSPC");
	stop_poking = true;
	if (pthread_join(thread, &failed) || failed)
		die("poke");
	for (i = 0; i < 4; i++)
		close(busy[i]);
	pin(0);
	fd = open_device();
	next = add_watch(fd, good);
	ok(next > id + n, "no other watch gets the id that alarms of a refused one may carry");
	is(poll_device(fd, 100), 0, "nor its alarms");
	close(fd);
}

static void stat_arguments(int fd, struct ptwatch_watch good)
{
	uint32_t id = add_watch(fd, good);
	struct ptwatch_watch_stat stat = { .size = sizeof(stat), .id = id };
	struct {
		struct ptwatch_watch_stat stat;
		uint64_t more;
	} big = { .stat = { .size = sizeof(big), .id = id }, .more = 1 };

	stat.reserved = 1;
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_STAT, &stat), EINVAL, "WATCH_STAT with reserved");
	stat.reserved = 0;
	stat.flags = 2;
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_STAT, &stat), EINVAL, "WATCH_STAT with an unknown flag");
	stat = (struct ptwatch_watch_stat){ .size = 4, .id = id };
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_STAT, &stat), EINVAL, "WATCH_STAT with size 4");
	stat = (struct ptwatch_watch_stat){ .size = 16, .id = id, .hits = 77 };
	WORKS(ioctl(fd, PTWATCH_IOC_WATCH_STAT, &stat), "WATCH_STAT with size 16");
	is(stat.armed_cpus, 2, "writes what fits");
	is(stat.hits, 77, "and no byte more");
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_STAT, &big), E2BIG, "WATCH_STAT with an unknown byte set");
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_STAT, NULL), EFAULT, "WATCH_STAT to NULL");
	del_watch(fd, id);
}

void test_watch_arguments(void)
{
	struct ptwatch_watch good = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch usual = good;
	int fd = open_device();

	strcpy(good.label, "pokee_word+0x0");
	watch_refusals(fd, good);
	watch_sizes(fd, good);
	watch_read_only(fd, good);
	four_registers(fd, good);
	stat_arguments(fd, good);
	armed_in_part(good);
	usual.max_rate = 0;
	WORKS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &usual), "WATCH_ADD without a rate");
	is(usual.max_rate, 100, "tells the module's");
	close(fd);
}

/* ---- hits ---- */

/* POKES of KIND on each CPU: that many hits, and an alarm for each. */
static void count_hits(int fd, uint32_t id, const char *what, const char *kind, uint64_t value,
		       unsigned int pokes, unsigned int expected)
{
	unsigned int cpu;

	for (cpu = 0; cpu < 2; cpu++) {
		struct ptwatch_watch_stat before = settled(fd, id), after;

		if (poke(kind, cpu, pokes, value))
			die("poke %s", kind);
		after = settled(fd, id);
		is(after.hits - before.hits, expected, "%s: %s on CPU %u: hits", what, kind, cpu);
		is(after.alarms - before.alarms, expected, "%s: %s on CPU %u: alarms", what, kind, cpu);
	}
}

static void hits_of_writes(int fd, uint64_t word)
{
	static char byte = 'u';
	uint32_t id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	const char *const what = "a write watch of 8 bytes";
	static const char *const kinds[] = { "store",	"same",	   "byte",   "straddle",
					     "irqsoff", "cmpxchg", "memcpy", "repmovs" };
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		count_hits(fd, id, what, kinds[i], 0x1000, 20, 20);
	/* The word is 0 now, the exchange expects something else, and fails. */
	if (poke("store", 0, 1, 0))
		die("poke");
	count_hits(fd, id, what, "cmpxchg", 5, 20, 20);
	count_hits(fd, id, what, "user", (uintptr_t)&byte, 20, 20);
	count_hits(fd, id, what, "read", 0, 20, 0);
	count_hits(fd, id, what, "beside", 0, 20, 0);
	count_hits(fd, id, what, "exec", 0, 20, 0);
	del_watch(fd, id);
	poll_device(fd, 0);
	if (poke("store", 0, 5, 0) || poke("store", 1, 5, 0))
		die("poke");
	is(poll_device(fd, 200), 0, "after WATCH_DEL there are no alarms");
}

static void hits_of_lengths(int fd, uint64_t word)
{
	uint32_t id;

	id = add_watch(fd, watch_arg(word + 4, 4, PTWATCH_ACCESS_W));
	count_hits(fd, id, "a write watch of the upper 4 bytes", "byte", 1, 10, 0);
	count_hits(fd, id, "a write watch of the upper 4 bytes", "straddle", 1, 10, 10);
	count_hits(fd, id, "a write watch of the upper 4 bytes", "store", 1, 10, 10);
	del_watch(fd, id);
	id = add_watch(fd, watch_arg(word + 2, 2, PTWATCH_ACCESS_W));
	count_hits(fd, id, "a write watch of 2 bytes", "byte", 1, 10, 10);
	count_hits(fd, id, "a write watch of 2 bytes", "memcpy", 1, 10, 0);
	del_watch(fd, id);
	id = add_watch(fd, watch_arg(word + 3, 1, PTWATCH_ACCESS_W));
	count_hits(fd, id, "a write watch of 1 byte", "byte", 1, 10, 10);
	count_hits(fd, id, "a write watch of 1 byte", "straddle", 1, 10, 0);
	del_watch(fd, id);
}

static void hits_of_reads_and_calls(int fd, uint64_t word)
{
	uint32_t id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_RW));

	count_hits(fd, id, "a read-write watch", "read", 0, 20, 20);
	count_hits(fd, id, "a read-write watch", "store", 0, 20, 20);
	count_hits(fd, id, "a read-write watch", "cmpxchg", 99, 20, 20);
	count_hits(fd, id, "a read-write watch", "beside", 0, 20, 0);
	del_watch(fd, id);
	id = add_watch(fd, watch_arg(symbol("pokee_function"), 8, PTWATCH_ACCESS_X));
	count_hits(fd, id, "an execution watch", "exec", 0, 20, 20);
	count_hits(fd, id, "an execution watch", "store", 0, 20, 0);
	del_watch(fd, id);
}

/*
 * Several watches: each counts its own hits. Each instruction meets one of them, because QEMU reports
 * only the first of the watches that an instruction meets (a real CPU sets a bit of DR6 for each).
 */
static void hits_of_several(int fd, uint64_t word)
{
	uint32_t a = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	uint32_t b = add_watch(fd, watch_arg(word + 8, 8, PTWATCH_ACCESS_W));
	uint32_t c = add_watch(fd, watch_arg(word + 16, 8, PTWATCH_ACCESS_RW));

	if (poke("store", 0, 7, 0) || poke("byte", 1, 2, 0) || poke("beside", 1, 11, 0))
		die("poke");
	is(settled(fd, a).hits, 9, "three watches: the word");
	is(settled(fd, b).hits, 4, "its neighbour");
	is(settled(fd, c).hits, 4, "its neighbour's");
	del_watch(fd, a);
	del_watch(fd, b);
	del_watch(fd, c);
}

void test_hits(void)
{
	uint64_t word = symbol("pokee_word");
	int fd = open_device();

	hits_of_writes(fd, word);
	hits_of_lengths(fd, word);
	hits_of_reads_and_calls(fd, word);
	hits_of_several(fd, word);
	close(fd);
}

/* ---- limits, and being told ---- */

uint64_t dropped_alarms;

static void one_shot(int fd, uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	uint64_t hits;
	uint32_t id;

	arg.max_hits = 1;
	id = add_watch(fd, arg);
	if (poke("store", 0, 3, 0))
		die("poke");
	stat = settled(fd, id);
	is(stat.alarms, 1, "a one-shot watch raises one alarm");
	is(stat.armed_cpus, 0, "and is disarmed then");
	ok(stat.hits >= 1 && stat.hits <= 3, "what hits before that is counted");
	is(stat.ignored, stat.hits - 1, "as ignored");
	is(stat.rate_limited + stat.dropped, 0, "and nothing else");
	hits = stat.hits;
	if (poke("store", 0, 3, 0) || poke("store", 1, 3, 0))
		die("poke");
	is(settled(fd, id).hits, hits, "later pokes do not hit it");
	WORKS(del_watch(fd, id), "WATCH_DEL of a watch that is disarmed");

	arg.max_hits = 3;
	id = add_watch(fd, arg);
	if (poke("store", 0, 1, 0) || poke("store", 1, 1, 0))
		die("poke");
	stat = settled(fd, id);
	is(stat.alarms, 2, "max_hits 3: two alarms by two pokes");
	is(stat.armed_cpus, 2, "still armed");
	if (poke("store", 0, 5, 0))
		die("poke");
	stat = settled(fd, id);
	is(stat.alarms, 3, "three alarms in the end");
	is(stat.armed_cpus, 0, "and disarmed");
	del_watch(fd, id);
}

static void rate(int fd, uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	uint32_t id;

	arg.max_rate = 5;
	id = add_watch(fd, arg);
	/* Far less than a second for 20 stores. */
	if (poke("store", 0, 20, 0))
		die("poke");
	stat = settled(fd, id);
	is(stat.hits, 20, "max_rate 5: 20 hits at once");
	is(stat.alarms, 5, "are 5 alarms");
	is(stat.rate_limited, 15, "and 15 that are counted only");
	sleep_ms(1300);
	if (poke("store", 1, 20, 0))
		die("poke");
	stat = settled(fd, id);
	is(stat.alarms, 10, "5 more in the next second");
	is(stat.rate_limited, 30, "and 15 not");
	is(stat.armed_cpus, 2, "it stays armed");
	del_watch(fd, id);
}

/* More hits than records while the worker gets no chance to run. */
static void flood(int fd, uint64_t word)
{
	uint32_t id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	struct ptwatch_watch_stat stat;

	if (poke("irqsoff", 0, 1000, 0))
		die("poke");
	stat = settled(fd, id);
	is(stat.hits, 1000, "1000 hits with interrupts off");
	ok(stat.alarms > 0 && stat.alarms < 1000, "are some alarms");
	is(stat.dropped, 1000 - stat.alarms, "and the others dropped, each one counted");
	is(stat.ignored + stat.rate_limited, 0, "and nothing else");
	dropped_alarms += stat.dropped;
	del_watch(fd, id);
}

static void *poke_cpu_1(void *arg)
{
	(void)arg;
	return poke("store", 1, 3000, 0) ? (void *)1 : NULL;
}

/* Both CPUs at once claim from the same few alarms. */
static void race_for_alarms(int fd, uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	void *failed = NULL;
	pthread_t thread;
	uint32_t id;

	arg.max_hits = 10;
	id = add_watch(fd, arg);
	if (pthread_create(&thread, NULL, poke_cpu_1, NULL) || poke("store", 0, 3000, 0) ||
	    pthread_join(thread, &failed) || failed)
		die("poke on both CPUs");
	stat = settled(fd, id);
	is(stat.alarms, 10, "max_hits 10 with both CPUs hitting: 10 alarms");
	is(stat.ignored + stat.dropped, stat.hits - 10, "the others are ignored, or dropped");
	dropped_alarms += stat.dropped;
	is(stat.armed_cpus, 0, "and it is disarmed");
	del_watch(fd, id);

	id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	if (pthread_create(&thread, NULL, poke_cpu_1, NULL) || poke("store", 0, 3000, 0) ||
	    pthread_join(thread, &failed) || failed)
		die("poke on both CPUs");
	stat = settled(fd, id);
	is(stat.hits, 6000, "without a limit, 3000 hits of each CPU at once are counted");
	is(stat.alarms + stat.dropped, 6000, "as alarms or dropped");
	dropped_alarms += stat.dropped;
	del_watch(fd, id);
}

static void poll_alarms(int fd, uint64_t word)
{
	uint32_t id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	struct pollfd only_in = { .fd = fd, .events = POLLIN };
	struct epoll_event event = { .events = EPOLLPRI };
	int other = open_device(), ep;

	/* What earlier parts raised is seen and gone. */
	poll_device(fd, 0);
	is(poll_device(fd, 0), 0, "no POLLPRI before an alarm");
	if (poke("store", 0, 1, 0))
		die("poke");
	is(poll_device(fd, 10000), POLLPRI, "POLLPRI after one");
	is(poll_device(fd, 0), 0, "which is seen once");
	is(poll_device(other, 0), 0, "and not by another session");
	if (poke("store", 1, 1, 0))
		die("poke");
	settled(fd, id);
	is(poll(&only_in, 1, 0), 0, "who polls for POLLIN alone gets nothing");
	is(poll_device(fd, 10000), POLLPRI, "and takes it from nobody");

	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event))
		die("epoll");
	is(epoll_wait(ep, &event, 1, 0), 0, "epoll: nothing before an alarm");
	if (poke("store", 1, 1, 0))
		die("poke");
	is(epoll_wait(ep, &event, 1, 10000), 1, "EPOLLPRI after one");
	is(event.events, EPOLLPRI, "and nothing else");
	is(epoll_wait(ep, &event, 1, 0), 0, "which is seen once");
	close(ep);
	del_watch(fd, id);
	close(other);
}

/* symbol() knows the symbols of the beginning only. */
static uint64_t fresh_symbol(const char *wanted)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	unsigned long long address;
	char line[512], name[256];

	if (!file)
		die("/proc/kallsyms can't be read");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%llx %*c %255s", &address, name) == 2 && !strcmp(name, wanted)) {
			fclose(file);
			return address;
		}
	die("there is no symbol %s", wanted);
}

/* The watched word's module is unloaded: whoever gets its memory next is not watched. */
static void module_gone(int fd)
{
	int file = open("/ptwatch/kvdemo.ko", O_RDONLY | O_CLOEXEC);
	struct ptwatch_watch_stat stat;
	uint32_t other, id;

	if (file < 0 || syscall(SYS_finit_module, file, "", 0))
		die("kvdemo.ko can't be loaded");
	close(file);
	id = add_watch(fd, watch_arg(fresh_symbol("kv_cache_meta"), 8, PTWATCH_ACCESS_W));
	other = add_watch(fd, watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W));
	stat = settled(fd, id);
	is(stat.armed_cpus, 2, "a word in a module is armed");
	WORKS(syscall(SYS_delete_module, "kvdemo", O_NONBLOCK), "the module can be unloaded");
	is(settled(fd, id).armed_cpus, 0, "and the word is armed no more");
	is(settled(fd, other).armed_cpus, 2, "another module's is");
	WORKS(del_watch(fd, id), "WATCH_DEL of a watch whose module is gone");
	del_watch(fd, other);
}

void test_limits(void)
{
	uint64_t word = symbol("pokee_word");
	int fd = open_device();

	one_shot(fd, word);
	rate(fd, word);
	flood(fd, word);
	race_for_alarms(fd, word);
	poll_alarms(fd, word);
	module_gone(fd);
	close(fd);
}

/* ---- freeze ---- */

static struct ptwatch_watch freezing(uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);

	arg.actions |= PTWATCH_ACTION_FREEZE;
	return arg;
}

/* The watch belongs to a session without the CPU that hits: nothing to freeze. */
static void freeze_elsewhere(uint64_t word)
{
	int a = open_device(), b = open_device();
	const volatile struct ptwatch_control *page;
	uint32_t id;

	if (setup(a, 1) || setup(b, 2) || ioctl(a, PTWATCH_IOC_TRACE_START) ||
	    ioctl(b, PTWATCH_IOC_TRACE_START))
		die("two sessions, two CPUs");
	page = map_control(b, 1);
	id = add_watch(a, freezing(word));
	if (poke("store", 1, 1, 0))
		die("poke");
	is(settled(a, id).alarms, 1, "a hit on a CPU of another session is an alarm");
	is(read_control(page).state, PTWATCH_STATE_RUNNING, "and does not freeze the other's trace");
	is(poll_device(a, 0), POLLPRI, "there is no POLLIN");
	munmap((void *)page, PAGE);
	close(a);
	close(b);
}

static void freeze_before_start(uint64_t word)
{
	int fd = open_device();
	const volatile struct ptwatch_control *page;
	uint32_t id;

	if (setup(fd, 3))
		die("SETUP fails");
	page = map_control(fd, 0);
	id = add_watch(fd, freezing(word));
	if (poke("store", 0, 1, 0))
		die("poke");
	is(settled(fd, id).alarms, 1, "a hit before START is an alarm");
	is(read_control(page).state, PTWATCH_STATE_STOPPED, "and freezes nothing");
	is(read_control(page).freeze_seq, 0, "freeze_seq is 0");
	munmap((void *)page, PAGE);
	close(fd);
}

void test_freeze(void)
{
	uint64_t word = symbol("pokee_word");
	const volatile struct ptwatch_control *page[2];
	struct ptwatch_watch arg = freezing(word);
	struct ptwatch_control c, again;
	const uint8_t *data;
	int fd = open_device();
	uint64_t before, after;
	uint32_t id;

	freeze_before_start(word);
	freeze_elsewhere(word);

	if (setup(fd, 3))
		die("SETUP fails");
	page[0] = map_control(fd, 0);
	page[1] = map_control(fd, 1);
	data = map_data(fd, 1, 16 * PAGE);
	arg.max_hits = 1;
	id = add_watch(fd, arg);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START with a freezing watch");
	is(poll_device(fd, 0), 0, "nothing to poll yet");
	before = rdtsc();
	if (poke("store", 1, 1, 0))
		die("poke");
	after = rdtsc();
	is(settled(fd, id).armed_cpus, 0, "a hit: the one-shot watch is disarmed");
	is(poll_device(fd, 10000), POLLIN | POLLPRI, "POLLPRI for the alarm, POLLIN for the freeze");
	is(poll_device(fd, 0), POLLIN, "POLLIN as long as a trace is frozen");
	c = read_control(page[1]);
	is(c.state, PTWATCH_STATE_FROZEN, "the CPU that hit is FROZEN");
	ok(c.freeze_seq, "by alarm %llu", (unsigned long long)c.freeze_seq);
	ok(c.stop_tsc > before && c.stop_tsc < after, "at the time of the hit");
	ok(c.head || c.flags, "with a trace");
	ok(c.flags || starts_with_psb(data), "that begins with a PSB, if it has not wrapped");
	is(c.rtit_status & 0x30, 0, "IA32_RTIT_STATUS has neither Error nor Stopped");
	is(read_control(page[0]).state, PTWATCH_STATE_RUNNING, "the other CPU runs on");
	is(read_control(page[0]).freeze_seq, 0, "its freeze_seq is 0");

	pin(1);
	work_ms(20);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START");
	again = read_control(page[1]);
	is(again.state, PTWATCH_STATE_FROZEN, "does not thaw");
	is(again.head, c.head, "the frozen trace's head stays");
	is(again.freeze_seq, c.freeze_seq, "and its freeze_seq");
	is(again.stop_tsc, c.stop_tsc, "and its stop_tsc");
	is(read_control(page[0]).state, PTWATCH_STATE_RUNNING, "the other CPU still runs");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "STOP");
	is(read_control(page[1]).state, PTWATCH_STATE_FROZEN, "does not thaw either");
	is(read_control(page[1]).freeze_seq, c.freeze_seq, "freeze_seq stays");
	is(read_control(page[0]).state, PTWATCH_STATE_STOPPED, "the other CPU stops");
	is(poll_device(fd, 0), POLLIN, "still POLLIN");

	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_THAW), "THAW");
	again = read_control(page[1]);
	is(again.state, PTWATCH_STATE_STOPPED, "the frozen CPU is STOPPED");
	is(again.freeze_seq, 0, "freeze_seq is 0");
	is(again.head, c.head, "the trace is still there");
	is(poll_device(fd, 0), 0, "no POLLIN any more");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_THAW), "THAW of what is not frozen is no error");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START");
	is(read_control(page[1]).state, PTWATCH_STATE_RUNNING, "runs again");

	/* Again and again with the same watch, on both CPUs: each freeze has its own alarm. */
	del_watch(fd, id);
	id = add_watch(fd, freezing(word));
	if (poke("store", 0, 3, 0))
		die("poke");
	is(settled(fd, id).alarms, 3, "three hits are three alarms");
	again = read_control(page[0]);
	is(again.state, PTWATCH_STATE_FROZEN, "the first froze");
	is(again.freeze_seq, c.freeze_seq + 1, "and freeze_seq is the first's number");
	if (poke("store", 1, 1, 0))
		die("poke");
	settled(fd, id);
	is(read_control(page[1]).freeze_seq, c.freeze_seq + 4, "the other CPU's freeze is the fourth");

	munmap((void *)page[0], PAGE);
	munmap((void *)page[1], PAGE);
	munmap((void *)data, 16 * PAGE);
	close(fd);
}

/* ---- hotplug ---- */

static void cpu_1(bool on)
{
	if (!online(1, on))
		die("CPU 1 does not go %s", on ? "online" : "offline");
}

static uint32_t armed(int fd, uint32_t id)
{
	struct ptwatch_watch_stat stat;

	if (stat_watch(fd, id, &stat))
		die("no stat");
	return stat.armed_cpus;
}

static void hotplug_watches(int fd, uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	uint32_t id = add_watch(fd, arg), late, spent;
	unsigned int i;

	is(armed(fd, id), 2, "a watch is armed on both CPUs");
	arg.address += 8;
	arg.max_hits = 1;
	spent = add_watch(fd, arg);
	if (poke("beside", 0, 1, 0))
		die("poke");
	is(settled(fd, spent).alarms, 1, "another has its last alarm");
	pin(0);
	for (i = 1; i <= 3; i++) {
		struct ptwatch_watch_stat stat;

		cpu_1(false);
		is(armed(fd, id), 1, "CPU 1 goes offline: armed on one (%u)", i);
		cpu_1(true);
		is(armed(fd, id), 2, "back online: armed on both (%u)", i);
		stat = settled(fd, id);
		if (poke("store", 1, 7, 0))
			die("poke");
		is(settled(fd, id).hits - stat.hits, 7, "CPU 1 hits it (%u)", i);
		pin(0);
	}
	is(armed(fd, spent), 0, "a watch that had its last alarm is not armed again");

	cpu_1(false);
	late = add_watch(fd, watch_arg(word + 8, 8, PTWATCH_ACCESS_W));
	is(armed(fd, late), 1, "a watch added meanwhile is armed on one");
	del_watch(fd, id);
	cpu_1(true);
	is(armed(fd, late), 2, "and on both when CPU 1 is back");
	if (poke("beside", 1, 3, 0))
		die("poke");
	is(settled(fd, late).hits, 1, "CPU 1 hits it");
	pin(0);
	del_watch(fd, late);
	del_watch(fd, spent);
}

static void hotplug_tracing(int fd)
{
	const volatile struct ptwatch_control *page = map_control(fd, 1);
	struct ptwatch_control c;

	if (ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("START fails");
	cpu_1(false);
	c = read_control(page);
	is(c.state, PTWATCH_STATE_OFFLINE, "a traced CPU goes offline: OFFLINE");
	ok(c.head || c.flags, "what it wrote is there");
	cpu_1(true);
	is(read_control(page).state, PTWATCH_STATE_RUNNING, "back online: RUNNING");
	FAILS(perf_pt_open(1), EBUSY, "and still kept from perf");
	if (ioctl(fd, PTWATCH_IOC_TRACE_STOP))
		die("STOP fails");
	ok(read_control(page).head != c.head || read_control(page).flags, "it wrote on");

	cpu_1(false);
	is(read_control(page).state, PTWATCH_STATE_OFFLINE, "a stopped CPU goes offline: OFFLINE");
	cpu_1(true);
	is(read_control(page).state, PTWATCH_STATE_STOPPED, "back online: STOPPED");

	cpu_1(false);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START while it is offline");
	is(read_control(page).state, PTWATCH_STATE_OFFLINE, "it stays OFFLINE");
	cpu_1(true);
	is(read_control(page).state, PTWATCH_STATE_RUNNING, "back online: RUNNING");

	cpu_1(false);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "STOP while it is offline");
	cpu_1(true);
	is(read_control(page).state, PTWATCH_STATE_STOPPED, "back online: STOPPED");
	munmap((void *)page, PAGE);
}

static void write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die("can't write %s to %s", text, path);
	close(fd);
}

/*
 * To sleep as far as freezing processes, and back. No further: that would be the end of the file
 * system our output goes to.
 */
static void sleep_and_wake(int fd)
{
	const volatile struct ptwatch_control *page[2] = { map_control(fd, 0), map_control(fd, 1) };
	uint64_t start[2];
	unsigned int cpu;

	if (ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("START fails");
	for (cpu = 0; cpu < 2; cpu++)
		start[cpu] = read_control(page[cpu]).start_tsc;
	write_to("/sys/module/suspend/parameters/pm_test_delay", "0");
	/* No further than that: the guest's 9p does not survive it when devices sleep. */
	write_to("/sys/power/pm_test", "freezer");
	write_to("/sys/power/state", "mem");
	write_to("/sys/power/pm_test", "none");
	for (cpu = 0; cpu < 2; cpu++) {
		struct ptwatch_control c = read_control(page[cpu]);

		is(c.state, PTWATCH_STATE_RUNNING, "the machine slept: CPU %u is RUNNING", cpu);
		ok(c.start_tsc > start[cpu], "again, that is: it was stopped");
	}
	if (ioctl(fd, PTWATCH_IOC_TRACE_STOP))
		die("STOP fails");
	write_to("/sys/power/pm_test", "freezer");
	write_to("/sys/power/state", "mem");
	write_to("/sys/power/pm_test", "none");
	for (cpu = 0; cpu < 2; cpu++) {
		is(read_control(page[cpu]).state, PTWATCH_STATE_STOPPED,
		   "what was stopped before is STOPPED after: CPU %u", cpu);
		munmap((void *)page[cpu], PAGE);
	}
}

static void hotplug_frozen(int fd, uint64_t word)
{
	const volatile struct ptwatch_control *page = map_control(fd, 1);
	uint32_t id = add_watch(fd, freezing(word));
	struct ptwatch_control c;

	if (ioctl(fd, PTWATCH_IOC_TRACE_START) || poke("store", 1, 1, 0))
		die("START and poke");
	settled(fd, id);
	pin(0);
	c = read_control(page);
	is(c.state, PTWATCH_STATE_FROZEN, "CPU 1 is frozen");
	cpu_1(false);
	is(read_control(page).state, PTWATCH_STATE_FROZEN, "it goes offline: FROZEN");
	is(read_control(page).head, c.head, "with its head");
	cpu_1(true);
	is(read_control(page).state, PTWATCH_STATE_FROZEN, "back online: FROZEN");
	is(read_control(page).freeze_seq, c.freeze_seq, "with its freeze_seq");
	is(read_control(page).head, c.head, "and its head");

	cpu_1(false);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_THAW), "THAW while it is offline");
	cpu_1(true);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START when it is back");
	is(read_control(page).state, PTWATCH_STATE_RUNNING, "it runs");
	munmap((void *)page, PAGE);
	del_watch(fd, id);
}

void test_hotplug(void)
{
	uint64_t word = symbol("pokee_word");
	int fd = open_device();

	hotplug_watches(fd, word);
	if (setup(fd, 3))
		die("SETUP fails");
	hotplug_tracing(fd);
	sleep_and_wake(fd);
	hotplug_frozen(fd, word);
	close(fd);

	/* The session ends while one of its CPUs is away. */
	fd = open_device();
	if (setup(fd, 3) || ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("SETUP and START");
	add_watch(fd, freezing(word));
	cpu_1(false);
	close(fd);
	cpu_1(true);
	ok(perf_pt_trace(1) > 0, "a session ends while CPU 1 is offline: perf can trace it later");
	fd = open_device();
	WORKS(setup(fd, 3), "and another session, too");
	close(fd);
}
