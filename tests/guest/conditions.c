// SPDX-License-Identifier: BSD-2-Clause
/* Which hits count, and what can be watched: conditions by table, targets, and why some are refused. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"

/* ---- conditions ---- */

/* 10 stores of VALUE, VALUE + 1, …: which of them are alarms? */
static const struct value_case {
	uint32_t op, flags, size;
	uint64_t value, mask, first;
	unsigned int alarms;
	const char *name;
} value_cases[] = {
	{ PTWATCH_VALUE_EQ, 0, 0, 5, 0, 0, 1, "== 5" },
	{ PTWATCH_VALUE_NE, 0, 0, 5, 0, 0, 9, "!= 5" },
	{ PTWATCH_VALUE_LT, 0, 0, 5, 0, 0, 5, "< 5" },
	{ PTWATCH_VALUE_LE, 0, 0, 5, 0, 0, 6, "<= 5" },
	{ PTWATCH_VALUE_GT, 0, 0, 5, 0, 0, 4, "> 5" },
	{ PTWATCH_VALUE_GE, 0, 0, 5, 0, 0, 5, ">= 5" },
	{ PTWATCH_VALUE_NE, 0, 0, 0, 4, 0, 4, "& 4" },
	{ PTWATCH_VALUE_EQ, 0, 0, 2, 6, 0, 2, "& 6 == 2" },
	{ PTWATCH_VALUE_LT, 0, 0, 5, 0, -5ULL, 5, "< 5, from -5 on, unsigned" },
	{ PTWATCH_VALUE_LT, PTWATCH_VALUE_SIGNED, 0, 5, 0, -5ULL, 10, "< 5, from -5 on, signed" },
	{ PTWATCH_VALUE_GE, PTWATCH_VALUE_SIGNED, 0, -2ULL, 0, -5ULL, 7, ">= -2, signed" },
	{ PTWATCH_VALUE_EQ, 0, 1, 3, 0, 0x1200, 1, "the first byte == 3" },
	{ PTWATCH_VALUE_LT, PTWATCH_VALUE_SIGNED, 1, 0, 0, 0x127b, 5, "the first byte < 0, signed" },
	{ PTWATCH_VALUE_GT, 0, 2, 0xfffd, 0, 0x1fffb, 2, "the first 2 bytes > 0xfffd" },
	{ PTWATCH_VALUE_EQ, 0, 4, 1, 0, 0x700000000, 1, "the first 4 bytes == 1" },
	{ PTWATCH_VALUE_CHANGED, 0, 0, 0, 0, 0, 9, "changed, the first not" },
	{ PTWATCH_VALUE_CHANGED, 0, 0, 0, 0xc, 0, 2, "changed in 2 bits" },
	{ PTWATCH_VALUE_GT, 0, 0, 1ULL << 63, 0, (1ULL << 63) - 4, 5, "> 2^63" },
};

static void values(int fd, uint64_t word)
{
	size_t i;

	for (i = 0; i < sizeof(value_cases) / sizeof(value_cases[0]); i++) {
		const struct value_case *c = &value_cases[i];
		struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
		struct ptwatch_watch_stat stat;
		uint32_t id;

		/* What it was is the first old value. */
		if (poke("store", 0, 1, c->first))
			die("poke");
		arg.value_op = c->op;
		arg.value_flags = c->flags;
		arg.value_size = c->size;
		arg.value = c->value;
		arg.value_mask = c->mask;
		id = add_watch(fd, arg);
		if (poke("store", 1, 10, c->first))
			die("poke");
		stat = settled(fd, id);
		is(stat.alarms, c->alarms, "%s: alarms of 10 stores", c->name);
		is(stat.filtered, 10 - c->alarms, "%s: the others are filtered", c->name);
		del_watch(fd, id);
	}
}

static uint64_t cgroup_id(void)
{
	struct {
		uint32_t bytes;
		int32_t type;
		uint64_t id;
	} handle = { .bytes = 8 };
	int mount;

	/* Of the root, which all are below of. */
	if (syscall(SYS_name_to_handle_at, AT_FDCWD, "/sys/fs/cgroup", &handle, &mount, 0))
		die("no id of the root cgroup");
	return handle.id;
}

static void persons(int fd, uint64_t word)
{
	const struct {
		struct ptwatch_who who[3];
		unsigned int n;
		bool alarms;
		const char *name;
	} cases[] = {
		{ { { PTWATCH_WHO_PID, 0, syscall(SYS_gettid), "" } }, 1, true, "our pid" },
		{ { { PTWATCH_WHO_PID, 0, 1, "" } }, 1, false, "pid 1" },
		{ { { PTWATCH_WHO_PID, 0, 1, "" }, { PTWATCH_WHO_PID, 0, getpid(), "" } }, 2, true,
		  "pid 1 or ours" },
		{ { { PTWATCH_WHO_PID, PTWATCH_WHO_DENY, getpid(), "" } }, 1, false, "not our pid" },
		{ { { PTWATCH_WHO_TGID, 0, getpid(), "" } }, 1, true, "our tgid" },
		{ { { PTWATCH_WHO_TGID, PTWATCH_WHO_DENY, 1, "" } }, 1, true, "not tgid 1" },
		{ { { PTWATCH_WHO_COMM, 0, 0, "device" } }, 1, true, "device" },
		{ { { PTWATCH_WHO_COMM, 0, 0, "dev*" } }, 1, true, "dev*" },
		{ { { PTWATCH_WHO_COMM, 0, 0, "dev" } }, 1, false, "dev" },
		{ { { PTWATCH_WHO_COMM, 0, 0, "devices" } }, 1, false, "devices" },
		{ { { PTWATCH_WHO_COMM, PTWATCH_WHO_DENY, 0, "dev*" } }, 1, false, "not dev*" },
		{ { { PTWATCH_WHO_COMM, 0, 0, "device" }, { PTWATCH_WHO_PID, 0, 1, "" } }, 2, false,
		  "device, and pid 1" },
		{ { { PTWATCH_WHO_COMM, 0, 0, "device" },
		    { PTWATCH_WHO_TGID, PTWATCH_WHO_DENY, getpid(), "" } }, 2, false,
		  "device, but not our tgid" },
		{ { { PTWATCH_WHO_CGROUP, 0, cgroup_id(), "" } }, 1, true, "below the root cgroup" },
		{ { { PTWATCH_WHO_CGROUP, PTWATCH_WHO_DENY, cgroup_id(), "" } }, 1, false,
		  "not below the root cgroup" },
		{ { { PTWATCH_WHO_CGROUP, 0, 0x7777777, "" } }, 1, false, "an unknown cgroup" },
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
		struct ptwatch_watch_stat stat;
		uint32_t id;

		arg.filters = (uintptr_t)cases[i].who;
		arg.nr_filters = cases[i].n;
		id = add_watch(fd, arg);
		if (poke("store", 1, 3, 1))
			die("poke");
		stat = settled(fd, id);
		is(stat.alarms, cases[i].alarms ? 3 : 0, "%s: alarms", cases[i].name);
		is(stat.filtered, cases[i].alarms ? 0 : 3, "%s: filtered", cases[i].name);
		del_watch(fd, id);
	}
}

static void other_conditions(int fd, uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	uint8_t cpus = 2;
	uint32_t id;

	arg.cpus = (uintptr_t)&cpus;
	arg.cpus_size = 1;
	id = add_watch(fd, arg);
	if (poke("store", 0, 4, 1) || poke("store", 1, 3, 1))
		die("poke");
	stat = settled(fd, id);
	is(stat.armed_cpus, 1, "a set of one CPU: armed there");
	is(stat.hits, 3, "and hit there");
	del_watch(fd, id);

	arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	arg.skip = 4;
	arg.max_hits = 2;
	arg.value_op = PTWATCH_VALUE_NE;
	arg.value_mask = 1;
	id = add_watch(fd, arg);
	/* Odd ones count: 1 3 5 7 are skipped, 9 and 11 are alarms. */
	if (poke("store", 0, 12, 0))
		die("poke");
	stat = settled(fd, id);
	is(stat.alarms, 2, "skip 4 of those that count, then two alarms");
	is(stat.filtered, 10, "what was skipped or did not count is filtered");
	is(stat.state, PTWATCH_WATCH_DONE, "the watch is done");
	del_watch(fd, id);

	arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	arg.stack_start = symbol("pokee_write");
	arg.stack_end = symbol_end("pokee_write");
	id = add_watch(fd, arg);
	if (poke("store", 0, 3, 0))
		die("poke");
	is(settled(fd, id).alarms, 3, "only below pokee_write: alarms");
	del_watch(fd, id);
	arg.stack_start = symbol("pokee_function");
	arg.stack_end = symbol_end("pokee_function");
	id = add_watch(fd, arg);
	if (poke("store", 0, 3, 0))
		die("poke");
	is(settled(fd, id).filtered, 3, "only below another function: filtered");
	del_watch(fd, id);
}

/* ---- refusals, with reasons ---- */

#define WHY(expected, error, name, change) \
	do { \
		struct ptwatch_refusal why = { .size = sizeof(why), .reason = 99 }; \
		struct ptwatch_watch arg = good; \
		arg.refusal = (uintptr_t)&why; \
		change; \
		FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg), error, "WATCH_ADD with " name); \
		is(why.reason, expected, "the reason, " name); \
	} while (0)

static void reasons(int fd, uint64_t word)
{
	struct ptwatch_watch good = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_who who = { .kind = 9 };
	uint8_t no_cpus = 0;

	WHY(PTWATCH_WHY_FIELD, EINVAL, "no action", arg.actions = 0);
	WHY(PTWATCH_WHY_FIELD, EINVAL, "an unknown flag", arg.flags = 1U << 31);
	WHY(PTWATCH_WHY_FIELD, EINVAL, "a value beyond its size", arg.value_op = 1; arg.value_size = 1;
	    arg.value = 256);
	WHY(PTWATCH_WHY_FIELD, EINVAL, "a condition on an instruction's value",
	    arg.access = PTWATCH_ACCESS_X; arg.value_op = 1);
	WHY(PTWATCH_WHY_FIELD, EINVAL, "persistent and freezing",
	    arg.flags = PTWATCH_WATCH_PERSISTENT; arg.actions |= PTWATCH_ACTION_FREEZE);
	WHY(PTWATCH_WHY_LENGTH, EINVAL, "12 bytes", arg.len = 12);
	WHY(PTWATCH_WHY_ALIGN, EINVAL, "a misaligned address", arg.address += 4);
	WHY(PTWATCH_WHY_CANONICAL, EINVAL, "a user address", arg.address = 0x1000);
	WHY(PTWATCH_WHY_UNMAPPED, EINVAL, "an unmapped address", arg.address = 0xffffffffff000000);
	WHY(PTWATCH_WHY_KERNEL, EINVAL, "the per-CPU offsets", arg.address = symbol("__per_cpu_offset"));
	WHY(PTWATCH_WHY_NOT_PERCPU, EINVAL, "PERCPU of no per-CPU variable",
	    arg.flags = PTWATCH_WATCH_PERCPU);
	WHY(PTWATCH_WHY_NO_TRACE, EINVAL, "FREEZE without a trace", arg.actions |= PTWATCH_ACTION_FREEZE);
	WHY(PTWATCH_WHY_LABEL, EINVAL, "a newline in the label", strcpy(arg.label, "a\n"));
	WHY(PTWATCH_WHY_FILTER, EINVAL, "an unknown filter", arg.filters = (uintptr_t)&who;
	    arg.nr_filters = 1);
	WHY(PTWATCH_WHY_CPUS, EINVAL, "no CPU", arg.cpus = (uintptr_t)&no_cpus; arg.cpus_size = 1);
	WHY(PTWATCH_WHY_NO_PROCESS, ESRCH, "a process that is not there",
	    arg.flags = PTWATCH_WATCH_USER; arg.tgid = 4000000; arg.address = 0x10000);
	WHY(PTWATCH_WHY_USER_RANGE, EINVAL, "a kernel address in a process",
	    arg.flags = PTWATCH_WATCH_USER; arg.tgid = getpid());
	WHY(PTWATCH_WHY_NO_SYMBOL, ENOENT, "no such symbol in a loaded module",
	    arg.flags = PTWATCH_WATCH_WAIT_MODULE; arg.address = 0; strcpy(arg.module, "pokee");
	    strcpy(arg.symbol, "no_such_symbol"));
}

static void slots(int fd, uint64_t word)
{
	struct ptwatch_refusal why = { .size = sizeof(why) };
	struct ptwatch_watch arg = watch_arg(word, 24, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	uint32_t id = add_watch(fd, arg), last;

	if (poke("repmovs", 0, 1, 7) || poke("beside", 1, 3, 7))
		die("poke");
	stat = settled(fd, id);
	/* REP MOVSQ of four words: QEMU reports one of them. The three words beside: two are in it. */
	ok(stat.hits >= 3, "a watch of 24 bytes is hit in each part (%llu)", (unsigned long long)stat.hits);
	is(stat.armed_cpus, 2, "it is armed on both CPUs");
	arg = watch_arg(word, 16, PTWATCH_ACCESS_W);
	arg.refusal = (uintptr_t)&why;
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg), ENOSPC, "16 bytes more need more registers");
	is(why.reason, PTWATCH_WHY_SLOTS, "that is the reason");
	is(why.slots, 4, "a CPU has four");
	is(why.slots_needed, 2, "two are needed");
	is(why.slots_ours, 3, "three are ours");
	is(why.slots_others, 0, "none is someone else's");
	last = add_watch(fd, watch_arg(word + 24, 8, PTWATCH_ACCESS_W));
	del_watch(fd, last);
	del_watch(fd, id);
	id = add_watch(fd, watch_arg(word, 32, PTWATCH_ACCESS_W));
	if (poke("store", 0, 2, 7) || poke("beside", 1, 3, 7))
		die("poke");
	is(settled(fd, id).alarms, 5, "a watch of 32 bytes: an alarm for each store into it");
	del_watch(fd, id);
}

static void per_cpu(int fd)
{
	struct ptwatch_watch arg = watch_arg(symbol("pokee_percpu"), 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	uint32_t id;

	arg.flags = PTWATCH_WATCH_PERCPU;
	arg.value_op = PTWATCH_VALUE_CHANGED;
	if (poke("percpu", 0, 1, 100) || poke("percpu", 1, 1, 200))
		die("poke");
	id = add_watch(fd, arg);
	/* Each CPU has its own old value. */
	if (poke("percpu", 0, 1, 100) || poke("percpu", 1, 1, 200) || poke("percpu", 0, 3, 101) ||
	    poke("percpu", 1, 4, 201))
		die("poke");
	stat = settled(fd, id);
	is(stat.armed_cpus, 2, "a per-CPU variable: armed on both CPUs");
	is(stat.hits, 9, "each CPU's stores to its own hit");
	is(stat.filtered, 2, "what did not change is told for each CPU");
	is(stat.alarms, 7, "the rest are alarms");
	del_watch(fd, id);
}

/* ---- a process ---- */

static volatile uint64_t target __attribute__((aligned(32)));
static volatile int step;

static void *late_thread(void *arg)
{
	(void)arg;
	target = 11;
	target = 12;
	return NULL;
}

static void *early_thread(void *arg)
{
	pthread_t late;

	(void)arg;
	while (step != 1)
		sleep_ms(1);
	target = 21;
	/* Created while the watch is there. */
	if (pthread_create(&late, NULL, late_thread, NULL) || pthread_join(late, NULL))
		return (void *)1;
	return NULL;
}

static void process(int fd)
{
	struct ptwatch_watch arg = watch_arg((uintptr_t)&target, 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	pthread_t early;
	uint32_t id;

	if (zero < 0 || pthread_create(&early, NULL, early_thread, NULL))
		die("no thread");
	arg.flags = PTWATCH_WATCH_USER;
	arg.tgid = getpid();
	id = add_watch(fd, arg);
	is(settled(fd, id).armed_cpus, 2, "a process's watch: armed in both threads");
	target = 1;
	step = 1;
	pthread_join(early, NULL);
	stat = settled(fd, id);
	is(stat.hits, 4, "hits of this thread, of one that was there, of one that came");
	is(stat.alarms, 4, "are alarms");
	if (read(zero, (void *)&target, 1) != 1)
		die("read");
	is(settled(fd, id).hits, 5, "a system call that writes there hits");
	is(settled(fd, id).armed_cpus, 1, "one thread is left");
	del_watch(fd, id);
	target = 2;
	close(zero);
}

/* ---- modules that are not there yet ---- */

static void load_kvdemo(void)
{
	int file = open("/ptwatch/kvdemo.ko", O_RDONLY | O_CLOEXEC);

	if (file < 0 || syscall(SYS_finit_module, file, "", 0))
		die("kvdemo.ko can't be loaded");
	close(file);
}

static void wait_module(int fd)
{
	struct ptwatch_watch arg = watch_arg(0, 8, PTWATCH_ACCESS_X);
	struct ptwatch_watch_stat stat;
	uint32_t init, data;
	unsigned int i;

	arg.flags = PTWATCH_WATCH_WAIT_MODULE;
	strcpy(arg.module, "kvdemo");
	/* Only a watch that is armed before it runs sees it. */
	strcpy(arg.symbol, "kvdemo_init");
	init = add_watch(fd, arg);
	strcpy(arg.symbol, "kv_cache_meta");
	arg.access = PTWATCH_ACCESS_W;
	data = add_watch(fd, arg);
	for (i = 1; i <= 2; i++) {
		stat = settled(fd, data);
		is(stat.state, PTWATCH_WATCH_WAITING, "a watch waits for its module (%u)", i);
		is(stat.armed_cpus, 0, "armed nowhere");
		load_kvdemo();
		stat = settled(fd, data);
		is(stat.state, PTWATCH_WATCH_ARMED, "the module comes: armed");
		is(stat.armed_cpus, 2, "on both CPUs");
		stat = settled(fd, init);
		is(stat.alarms, i, "its init function was seen");
		is(stat.state, PTWATCH_WATCH_WAITING, "whose memory is free now, and not watched");
		WORKS(syscall(SYS_delete_module, "kvdemo", O_NONBLOCK), "it can be unloaded");
	}
	is(settled(fd, data).state, PTWATCH_WATCH_WAITING, "it is gone: the watch waits");
	is(settled(fd, data).armed_cpus, 0, "armed nowhere");
	is(settled(fd, data).missed, 0, "nothing went wrong");
	del_watch(fd, init);
	del_watch(fd, data);

	load_kvdemo();
	strcpy(arg.symbol, "kv_cache_meta");
	arg.address = 8;
	data = add_watch(fd, arg);
	is(settled(fd, data).state, PTWATCH_WATCH_ARMED, "a module that is there: armed at once");
	del_watch(fd, data);
	if (syscall(SYS_delete_module, "kvdemo", O_NONBLOCK))
		die("kvdemo stays");
}

void test_conditions(void)
{
	uint64_t word = symbol("pokee_word");
	int fd = open_device();

	values(fd, word);
	persons(fd, word);
	other_conditions(fd, word);
	close(fd);
}

void test_targets(void)
{
	uint64_t word = symbol("pokee_word");
	int fd = open_device();

	reasons(fd, word);
	slots(fd, word);
	per_cpu(fd);
	process(fd);
	wait_module(fd);
	close(fd);
}
