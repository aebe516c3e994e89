// SPDX-License-Identifier: BSD-2-Clause
/* Alarms on their way: read(2), listeners that come later, a million hits, storms, hits in bad places. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/genetlink.h>
#include <linux/hw_breakpoint.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/ptwatch_netlink.h>

#include "guest.h"

/* An attribute of a message of read(2); a size that is not the wanted one is no value expected. */
static uint64_t attribute(const char *message, int wanted, unsigned int size)
{
	uint64_t value = 0;
	unsigned int len;
	const void *payload = alarm_attribute(message, wanted, &len);

	if (!payload || len != size)
		return 0xbadbadbad;
	memcpy(&value, payload, size);
	return value;
}

static void reading(uint64_t word)
{
	int fd = open_device(), other = open_device();
	uint32_t id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	struct pollfd p = { .fd = fd, .events = POLLRDBAND };
	uint64_t seq = 0;
	char buf[8192];
	unsigned int i;
	ssize_t n;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	fcntl(other, F_SETFL, O_NONBLOCK);
	FAILS(read(fd, buf, sizeof(buf)), EAGAIN, "read without an alarm");
	is(poll(&p, 1, 0), 0, "no POLLRDBAND");
	if (poke("store", 1, 3, 0x50))
		die("poke");
	settled(fd, id);
	is(poll(&p, 1, 1000), 1, "POLLRDBAND with alarms");
	FAILS(read(fd, buf, 100), EMSGSIZE, "read into too small a buffer");
	for (i = 0; i < 3; i++) {
		n = read(fd, buf, sizeof(buf));
		if (!ok(n > 0, "read gives alarm %u", i + 1))
			continue;
		is(((struct nlmsghdr *)buf)->nlmsg_len, n, "a message of the size it says");
		is(attribute(buf, PTWATCH_A_WATCH, 4), id, "of the watch");
		is(attribute(buf, PTWATCH_A_NEW, 8), 0x50 + i, "with its value");
		is(attribute(buf, PTWATCH_A_UNREAD, 8), 0, "and none before it missed");
		ok(!i || attribute(buf, PTWATCH_A_SEQ, 8) == seq + 1, "in order");
		seq = attribute(buf, PTWATCH_A_SEQ, 8);
	}
	FAILS(read(fd, buf, sizeof(buf)), EAGAIN, "and no fourth");
	FAILS(read(other, buf, sizeof(buf)), EAGAIN, "another session gets none");
	for (i = 0; i < PTWATCH_READ_MAX + 10; i += 14)
		if (poke("counted", 0, 14, i) || settled(fd, id).dropped)
			die("poke");
	ok(read(fd, buf, sizeof(buf)) > 0, "after more alarms than are kept");
	is(attribute(buf, PTWATCH_A_UNREAD, 8), i - PTWATCH_READ_MAX, "UNREAD tells how many are gone");
	is(attribute(buf, PTWATCH_A_NEW, 8), i - PTWATCH_READ_MAX, "which were the oldest");
	close(other);
	close(fd);
}

static void persistent(uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_entry entry = { .size = sizeof(entry) };
	struct ptwatch_watch_stat stat = { .size = sizeof(stat), .flags = PTWATCH_STAT_ANY };
	int fd = open_device(), later;
	char buf[8192];
	unsigned int i;
	uint32_t id;

	arg.flags = PTWATCH_WATCH_PERSISTENT;
	strcpy(arg.label, "persistent");
	id = add_watch(fd, arg);
	if (poke("store", 0, 1, 1))
		die("poke");
	settled(fd, id);
	close(fd);
	if (poke("store", 1, 2, 2))
		die("poke");
	later = open_device();
	FAILS(stat_watch(later, id, &stat), ENOENT, "a persistent watch is no other session's");
	stat = (struct ptwatch_watch_stat){ .size = sizeof(stat), .id = id, .flags = PTWATCH_STAT_ANY };
	do {
		if (!WORKS(ioctl(later, PTWATCH_IOC_WATCH_STAT, &stat), "but anyone's to ask about"))
			break;
		sleep_ms(1);
	} while (stat.alarms < 3);
	is(stat.hits, 3, "it is hit after its session is gone");
	WORKS(ioctl(later, PTWATCH_IOC_WATCH_NEXT, &entry), "WATCH_NEXT finds it");
	is(entry.id, id, "by its id");
	is(entry.owner_tgid, getpid(), "with its owner");
	ok(!strcmp(entry.owner_comm, "device"), "whose name is told");
	ok(!strcmp(entry.label, "persistent"), "and its label");
	is(entry.address, word, "and address");
	entry.id++;
	FAILS(ioctl(later, PTWATCH_IOC_WATCH_NEXT, &entry), ENOENT, "there is no other");
	fcntl(later, F_SETFL, O_NONBLOCK);
	FAILS(read(later, buf, sizeof(buf)), EAGAIN, "who does not listen hears nothing");
	WORKS(ioctl(later, PTWATCH_IOC_LISTEN), "LISTEN");
	for (i = 0; i < 3; i++) {
		ok(read(later, buf, sizeof(buf)) > 0, "who listens later gets alarm %u", i + 1);
		is(attribute(buf, PTWATCH_A_NEW, 8), i + 1, "as it was");
	}
	if (poke("store", 1, 1, 9))
		die("poke");
	fcntl(later, F_SETFL, 0);
	ok(read(later, buf, sizeof(buf)) > 0, "and waits for the next one");
	is(attribute(buf, PTWATCH_A_NEW, 8), 9, "which comes");
	FAILS(del_watch(later, id), ENOENT, "WATCH_DEL is for one's own");
	WORKS(ioctl(later, PTWATCH_IOC_WATCH_REMOVE, (unsigned long)id), "WATCH_REMOVE");
	FAILS(ioctl(later, PTWATCH_IOC_WATCH_REMOVE, (unsigned long)id), ENOENT, "but not twice");
	close(later);
}

static void *many_pokes(void *arg)
{
	return poke("store", 1, *(unsigned int *)arg, 0) ? (void *)1 : NULL;
}

/* On both CPUs at once. */
static void both(unsigned int n)
{
	void *failed = NULL;
	pthread_t thread;

	if (pthread_create(&thread, NULL, many_pokes, &n) || poke("store", 0, n, 0) ||
	    pthread_join(thread, &failed) || failed)
		die("poke on both CPUs");
}

static void million(uint64_t word)
{
	/* A hit takes milliseconds there. */
	const uint64_t pieces = slow_kernel() ? 1 : 50, hits = pieces * 2 * 10000;
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	int fd = open_device();
	struct ptwatch_watch_stat stat;
	unsigned int i;
	uint32_t id;

	arg.max_rate = 1000;
	arg.max_storm = UINT32_MAX;
	arg.value_op = PTWATCH_VALUE_NE;
	arg.value_mask = 1;
	id = add_watch(fd, arg);
	/* In pieces: the kernel is not to believe that a CPU hangs. */
	for (i = 0; i < pieces; i++)
		both(10000);
	stat = settled(fd, id);
	is(stat.hits, hits, "%llu hits on two CPUs", (unsigned long long)hits);
	is(stat.alarms + stat.filtered + stat.rate_limited + stat.dropped, hits, "each is accounted for");
	/* A CPU may read the other's value. */
	ok(stat.filtered > hits / 10 && stat.filtered < hits / 10 * 9, "many are filtered (%llu)",
	   (unsigned long long)stat.filtered);
	ok(stat.rate_limited && stat.alarms, "some are over the rate, some are alarms");
	is(stat.ignored, 0, "none is ignored");
	dropped_alarms += stat.dropped;
	del_watch(fd, id);

	arg.max_storm = 5000;
	id = add_watch(fd, arg);
	/* The worker that disarms needs a CPU, and a piece leaves it none. */
	for (i = 0; i < 10; i++)
		both(10000);
	stat = settled(fd, id);
	is(stat.state, PTWATCH_WATCH_STORM, "a storm disarms the watch");
	is(stat.armed_cpus, 0, "everywhere");
	ok(stat.hits >= 5000 && stat.hits < 200000, "before it is over (%llu hits)",
	   (unsigned long long)stat.hits);
	dropped_alarms += stat.dropped;
	close(fd);
}

/* The first of these functions that the kernel has. */
static uint64_t any_symbol(const char *const *names)
{
	for (; names[1]; names++)
		if (has_symbol(*names))
			break;
	return symbol(*names);
}

/* Execution in the middle of things: what matters is that nothing hangs, and the kernel's log. */
static void bad_places(void)
{
	static const char *const scheduler[] = { "update_rq_clock", "pick_next_task_fair", NULL };
	static const char *const allocator[] = { "kmem_cache_alloc_noprof", "kmem_cache_alloc", NULL };
	static const char *const printk[] = { "vprintk_store", NULL };
	static const char *const softirq[] = { "run_timer_softirq", "net_rx_action", NULL };
	const struct {
		const char *name;
		uint64_t address;
	} places[] = {
		{ "the scheduler, under a runqueue's lock", any_symbol(scheduler) },
		{ "the allocator", any_symbol(allocator) },
		{ "printk", any_symbol(printk) },
		{ "softirqs", any_symbol(softirq) },
	};
	unsigned int i, k;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct ptwatch_watch arg = watch_arg(places[i].address, 8, PTWATCH_ACCESS_X);
		struct ptwatch_watch_stat stat;
		int fd = open_device();
		uint32_t id;

		arg.actions |= PTWATCH_ACTION_LOG;
		arg.max_rate = 20;
		id = add_watch(fd, arg);
		for (k = 0; k < 20; k++) {
			int pipes[2];

			if (pipe(pipes))
				die("no pipe");
			close(pipes[0]);
			close(pipes[1]);
			sleep_ms(2);
			/* Our own alarm, for printk. */
			if (i == 2 && !k) {
				int log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);

				if (log < 0 || write(log, "device: hello\n", 14) != 14)
					die("no /dev/kmsg");
				close(log);
			}
		}
		/* It goes on being hit, so the sum does not come to rest; alarms are on their way. */
		for (k = 0; k < 500; k++) {
			if (stat_watch(fd, id, &stat))
				die("no stat");
			if (stat.alarms)
				break;
			sleep_ms(10);
		}
		ok(stat.alarms, "hits in %s are alarms (%llu hits)", places[i].name,
		   (unsigned long long)stat.hits);
		close(fd);
	}
}

/* perf has registers of its own, and both see their hits. */
static void with_perf(uint64_t word)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_W,
		.bp_addr = word + 8,
		.bp_len = HW_BREAKPOINT_LEN_8,
	};
	struct ptwatch_refusal why = { .size = sizeof(why) };
	struct ptwatch_watch arg = watch_arg(word, 24, PTWATCH_ACCESS_W);
	int fd = open_device(), perf = syscall(SYS_perf_event_open, &attr, -1, 1, -1, 0);
	uint64_t count = 0;
	uint32_t id;

	if (perf < 0)
		die("perf has no debug register");
	id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	if (poke("store", 1, 5, 0) || poke("beside", 1, 6, 0) || read(perf, &count, 8) != 8)
		die("poke");
	is(settled(fd, id).hits, 5, "beside perf: our hits");
	is(count, 2, "and perf's");
	arg.refusal = (uintptr_t)&why;
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg), ENOSPC, "more than what is left");
	is(why.cpu, 1, "is missing on the CPU where perf has one");
	is(why.slots_ours, 1, "of which one is ours");
	is(why.slots_others, 1, "and one someone else's");
	close(perf);
	close(fd);
}

void test_delivery(void)
{
	uint64_t word = symbol("pokee_word");

	reading(word);
	persistent(word);
	million(word);
	bad_places();
	with_perf(word);
}
