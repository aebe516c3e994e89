// SPDX-License-Identifier: BSD-2-Clause
/*
 * Watches amid what others do: debuggers with debug registers and single steps of their own, CPUs
 * that come and go while they hit, other CPUs that are to be frozen, and the user code behind a hit.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptwatch_netlink.h>

#include "guest.h"

#define MSR_RTIT_CTL	0x570
#define MSR_RTIT_STATUS	0x571
#define EMU_BYTES	0x4fff0014	/* packet bytes of a CPU, by the emulator's counter */
#define STOPPED		(1U << 5)

static uint64_t read_msr(unsigned int cpu, uint32_t msr)
{
	uint64_t value;
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/cpu/%u/msr", cpu);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pread(fd, &value, 8, msr) != 8)
		die("can't read MSR %#x of CPU %u", msr, cpu);
	close(fd);
	return value;
}

static bool traces(unsigned int cpu)
{
	return (read_msr(cpu, MSR_RTIT_CTL) & 1) && !(read_msr(cpu, MSR_RTIT_STATUS) & STOPPED);
}

/* ---- the user code behind a hit ---- */

/* Frames whose addresses are known: where the system call returns to, and each one's caller. */
#define FRAME __attribute__((noinline, noclone, optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))

static uint64_t frames[4];

FRAME static long innermost(int fd, const char *text, size_t len)
{
	uint64_t ip;
	long result;

	frames[1] = (uintptr_t)__builtin_return_address(0);
	__asm__ volatile("leaq 1f(%%rip), %1\n\tsyscall\n1:"
			 : "=a"(result), "=&r"(ip)
			 : "0"(SYS_write), "D"(fd), "S"(text), "d"(len)
			 : "rcx", "r11", "memory");
	frames[0] = ip;
	return result;
}

FRAME static long middle(int fd, const char *text, size_t len)
{
	long result;

	frames[2] = (uintptr_t)__builtin_return_address(0);
	result = innermost(fd, text, len);
	__asm__ volatile("" ::: "memory");
	return result;
}

FRAME static long outermost(int fd, const char *text, size_t len)
{
	long result;

	frames[3] = (uintptr_t)__builtin_return_address(0);
	result = middle(fd, text, len);
	__asm__ volatile("" ::: "memory");
	return result;
}

void test_user_stacks(void)
{
	static const char text[] = "store 1 1 5";
	uint64_t word = symbol("pokee_word"), got[64];
	int fd = open_device(), pokee = open("/proc/pokee", O_WRONLY | O_CLOEXEC);
	uint32_t id = add_watch(fd, watch_arg(word, 8, PTWATCH_ACCESS_W));
	const void *stack;
	unsigned int len, i;
	char message[8192];

	pin(1);
	if (pokee < 0 || outermost(pokee, text, sizeof(text) - 1) < 0)
		die("poke");
	if (read(fd, message, sizeof(message)) < 0)
		die("no alarm");
	stack = alarm_attribute(message, PTWATCH_A_USER_STACK, &len);
	ok(stack && len >= sizeof(frames) && len <= sizeof(got), "a hit in a system call has a user stack");
	if (stack && len >= sizeof(frames) && len <= sizeof(got)) {
		memcpy(got, stack, len);
		for (i = 0; i < 4; i++)
			is(got[i], frames[i], "its frame %u, from the system call outwards", i);
	}
	/* From another CPU it is a worker that pokes. */
	pin(0);
	if (write(pokee, text, sizeof(text) - 1) < 0)
		die("poke");
	if (read(fd, message, sizeof(message)) < 0)
		die("no alarm");
	ok(!alarm_attribute(message, PTWATCH_A_USER_STACK, &len), "a hit of a kernel thread has none");
	del_watch(fd, id);
	close(pokee);
	close(fd);
}

/* ---- FREEZE_ALL ---- */

static volatile bool stop;

static void *busy_on_cpu_1(void *arg)
{
	(void)arg;
	pin(1);
	while (!stop)
		getppid();
	return NULL;
}

void test_freeze_all(void)
{
	struct ptwatch_watch arg = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	const volatile struct ptwatch_control *page[2];
	struct ptwatch_info info = { .size = sizeof(info) };
	struct ptwatch_control c[2];
	int fd = open_device();
	pthread_t thread;
	unsigned int cpu;
	uint32_t id;

	if (setup(fd, 3) || ioctl(fd, PTWATCH_IOC_INFO, &info))
		die("SETUP and INFO");
	for (cpu = 0; cpu < 2; cpu++)
		page[cpu] = map_control(fd, cpu);
	arg.actions |= PTWATCH_ACTION_FREEZE_ALL;
	id = add_watch(fd, arg);
	stop = false;
	if (ioctl(fd, PTWATCH_IOC_TRACE_START) || pthread_create(&thread, NULL, busy_on_cpu_1, NULL))
		die("START");
	sleep_ms(20);
	if (poke("store", 0, 1, 0))
		die("poke");
	is(settled(fd, id).alarms, 1, "FREEZE_ALL: an alarm");
	stop = true;
	pthread_join(thread, NULL);
	for (cpu = 0; cpu < 2; cpu++) {
		c[cpu] = read_control(page[cpu]);
		is(c[cpu].state, PTWATCH_STATE_FROZEN, "CPU %u is FROZEN", cpu);
		ok(c[cpu].head || c[cpu].flags, "with a trace");
		ok(!traces(cpu), "and traces no more");
	}
	ok(c[1].stop_tsc >= c[0].stop_tsc && c[1].stop_tsc - c[0].stop_tsc < 1000ULL * info.tsc_khz,
	   "the other CPU's trace ends after the hit, within a second (%lld cycles)",
	   (long long)(c[1].stop_tsc - c[0].stop_tsc));
	is(poll_device(fd, 1000) & POLLIN, POLLIN, "POLLIN for the frozen traces");
	/* A mapping keeps the session. */
	for (cpu = 0; cpu < 2; cpu++)
		munmap((void *)page[cpu], PAGE);
	close(fd);
}

/* ---- CPUs that come and go while they hit ---- */

static void *hammer(void *arg)
{
	pin(0);
	while (!stop)
		if (poke("store", 0, 50, 0))
			*(bool *)arg = true;
	return NULL;
}

void test_hotplug_storm(void)
{
	uint64_t word = symbol("pokee_word");
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	struct ptwatch_watch_stat stat;
	int fd = open_device();
	bool failed = false;
	pthread_t thread;
	uint32_t id, ids[4];
	unsigned int i;

	arg.max_rate = 500;
	arg.max_storm = UINT32_MAX;
	id = add_watch(fd, arg);
	stop = false;
	if (pthread_create(&thread, NULL, hammer, &failed))
		die("no thread");
	for (i = 0; i < 6; i++) {
		uint32_t other = add_watch(fd, watch_arg(word + 8, 16, PTWATCH_ACCESS_RW));

		if (!online(1, false))
			die("CPU 1 does not go offline");
		/* Every second one is removed while the CPU is away. */
		if (i % 2)
			del_watch(fd, other);
		if (!online(1, true))
			die("CPU 1 does not come back");
		if (i % 2 == 0)
			del_watch(fd, other);
	}
	stop = true;
	pthread_join(thread, NULL);
	ok(!failed, "hits went on while CPU 1 came and went");
	stat = settled(fd, id);
	is(stat.armed_cpus, 2, "it is armed on both CPUs");
	is(stat.missed, 0, "none was missed");
	if (poke("store", 1, 9, 0))
		die("poke");
	is(settled(fd, id).hits - stat.hits, 9, "and CPU 1 hits it");
	dropped_alarms += settled(fd, id).dropped;
	pin(0);
	del_watch(fd, id);
	for (i = 0; i < 4; i++)
		ids[i] = add_watch(fd, watch_arg(word + 8 * i, 8, PTWATCH_ACCESS_W));
	ok(ids[3], "no debug register leaked: four can be had");
	close(fd);
}

/* ---- debuggers ---- */

static volatile uint64_t mine[5] __attribute__((aligned(64)));

static int debuggee(void *arg)
{
	unsigned int i;

	(void)arg;
	pin(1);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 1;
	raise(SIGSTOP);
	for (i = 0; i < 2; i++)
		mine[0] = i;
	/* To be stepped through. */
	for (i = 0; i < 1000; i++)
		mine[4] += i;
	return 0;
}

static pid_t start_debuggee(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(debuggee(NULL));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		die("no debuggee");
	return pid;
}

static int set_debugreg(pid_t pid, unsigned int n, uint64_t value)
{
	return ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg) + 8 * n, value);
}

/* Ends with the debuggee. Return: how often it was stopped by its debug register 0. */
static unsigned int run_debuggee(pid_t pid)
{
	unsigned int traps = 0;
	int status;

	for (;;) {
		if (ptrace(PTRACE_CONT, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid)
			die("PTRACE_CONT");
		if (!WIFSTOPPED(status))
			break;
		traps += WSTOPSIG(status) == SIGTRAP &&
			 (ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user, u_debugreg) + 8 * 6, NULL) & 1);
	}
	is(status, 0, "the debuggee ends well");
	return traps;
}

static void debug_registers(uint64_t word)
{
	struct ptwatch_refusal why = { .size = sizeof(why) };
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	int fd = open_device();
	uint32_t id = add_watch(fd, arg);
	pid_t pid = start_debuggee();
	unsigned int i;

	for (i = 0; i < 3; i++)
		WORKS(set_debugreg(pid, i, (uintptr_t)&mine[i]), "beside a watch, ptrace gets register %u", i);
	FAILS(set_debugreg(pid, 3, (uintptr_t)&mine[3]), ENOSPC, "but not a fourth");
	/* Register 0: enabled, for writes of 8 bytes. */
	WORKS(set_debugreg(pid, 7, 1 | 9 << 16), "and one is enabled");
	if (poke("store", 1, 4, 0))
		die("poke");
	pin(0);
	is(run_debuggee(pid), 2, "the debugger sees both hits of its own");
	is(settled(fd, id).hits, 4, "and we see ours");
	del_watch(fd, id);

	pid = start_debuggee();
	for (i = 0; i < 4; i++)
		WORKS(set_debugreg(pid, i, (uintptr_t)&mine[i]), "without one, it gets register %u", i);
	arg.refusal = (uintptr_t)&why;
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg), ENOSPC, "then there is none for a watch");
	is(why.reason, PTWATCH_WHY_SLOTS, "for that reason");
	WORKS(set_debugreg(pid, 7, 1 | 9 << 16), "the debugger's are untouched");
	is(run_debuggee(pid), 2, "and hit");
	id = add_watch(fd, arg);
	ok(id, "when it is gone, the watch can be had");
	close(fd);
}

/* Single steps on CPU 1. Return: bytes of trace meanwhile; @stopped: after how many of them it had stopped. */
static uint64_t single_steps(unsigned int n, unsigned int *stopped)
{
	pid_t pid = start_debuggee();
	uint64_t before = read_msr(1, EMU_BYTES);
	int status;

	*stopped = 0;
	while (n--) {
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid ||
		    !WIFSTOPPED(status))
			die("PTRACE_SINGLESTEP");
		*stopped += read_msr(1, MSR_RTIT_STATUS) >> 5 & 1;
	}
	before = read_msr(1, EMU_BYTES) - before;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return before;
}

/*
 * A hit stops the trace by hardware, at the entry of #DB. So does everyone else's #DB, after which
 * it must go on.
 */
static void foreign_exceptions(uint64_t word)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	const volatile struct ptwatch_control *page;
	int fd = open_device(), perf;
	uint64_t without, with;
	unsigned int i, stopped;
	uint32_t id;

	if (setup(fd, 2) || ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("SETUP and START");
	page = map_control(fd, 1);
	without = single_steps(200, &stopped);
	arg.actions |= PTWATCH_ACTION_FREEZE;
	arg.value_op = PTWATCH_VALUE_EQ;
	arg.value = 0xdead;
	id = add_watch(fd, arg);
	ok(read_msr(1, MSR_RTIT_CTL) >> 32 & 0xffff, "the trace has a range that stops it");
	with = single_steps(200, &stopped);
	/* If only the timer, every 10 ms, made it go on, it would stand still after most, and write less than a tenth. */
	is(stopped, 0, "200 single steps of a debugger: the trace goes on after each");
	ok(with >= without / 2, "and is as long as without a watch (%llu bytes, %llu)", (unsigned long long)with,
	   (unsigned long long)without);
	ok(traces(1), "CPU 1 traces after them");

	if (poke("store", 1, 5, 0))
		die("poke");
	ok(traces(1), "and after hits whose condition is false");
	pin(0);
	is(settled(fd, id).filtered, 5, "of which there were five");

	perf = perf_watch(1, word + 8);
	if (perf < 0 || poke("beside", 1, 3, 0))
		die("perf's breakpoint, and poke");
	pin(0);
	for (i = 0; i < 400 && !traces(1); i++)
		sleep_ms(5);
	ok(traces(1), "and after a hit of perf's, for which nobody calls us: by the timer");
	close(perf);
	is(read_control(page).state, PTWATCH_STATE_RUNNING, "CPU 1 is RUNNING all the while");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "STOP");
	is(read_control(page).flags & PTWATCH_CONTROL_STOPPED, 0, "nothing says that a range stopped it");
	if (ioctl(fd, PTWATCH_IOC_TRACE_START) || poke("store", 1, 1, 0xdead))
		die("START and poke");
	is(settled(fd, id).alarms, 1, "a hit whose condition holds");
	is(read_control(page).state, PTWATCH_STATE_FROZEN, "freezes");
	pin(0);
	munmap((void *)page, PAGE);
	close(fd);
}

/* What stops at #DBs is not taken for a stream that is full. */
static void stream_and_hits(uint64_t word)
{
	struct ptwatch_trace trace = trace_arg(KERNEL_TRACE, 64 * PAGE);
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	const volatile struct ptwatch_control *page;
	struct ptwatch_advance advance = { .size = sizeof(advance), .cpu = 1 };
	uint8_t cpus = 2;
	int fd = open_device();
	char message[8192];
	const uint32_t *how;
	unsigned int i, len;
	uint64_t head = 0;
	uint32_t id;

	trace.mode = PTWATCH_MODE_STREAM;
	trace.cpus = (uintptr_t)&cpus;
	trace.cpus_size = 1;
	if (ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace))
		die("SETUP of a stream");
	page = map_control(fd, 1);
	arg.actions |= PTWATCH_ACTION_FREEZE;
	arg.value_op = PTWATCH_VALUE_EQ;
	arg.value = 0xdead;
	id = add_watch(fd, arg);
	if (ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("START");
	for (i = 0; i < 4; i++) {
		if (poke("store", 1, 10, 0) || ioctl(fd, PTWATCH_IOC_TRACE_FLUSH))
			die("poke and FLUSH");
		ok(page->head > head, "a stream grows across hits whose condition is false");
		head = page->head;
		advance.tail = head;
		if (ioctl(fd, PTWATCH_IOC_TRACE_ADVANCE, &advance))
			die("ADVANCE");
	}
	is(settled(fd, id).filtered, 40, "40 of them");
	is(page->lost, 0, "no byte is lost");
	is(page->nr_losses, 0, "there is no gap");
	is(read_control(page).flags & (PTWATCH_CONTROL_OVERRUN | PTWATCH_CONTROL_STOPPED), 0,
	   "it neither overran nor was stopped");
	if (poke("store", 1, 1, 0xdead))
		die("poke");
	is(settled(fd, id).alarms, 1, "a hit whose condition holds");
	pin(0);
	is(read_control(page).state, PTWATCH_STATE_FROZEN, "freezes it");
	is(page->lost, 0, "without a loss");
	if (read(fd, message, sizeof(message)) < 0)
		die("no alarm");
	how = alarm_attribute(message, PTWATCH_A_FREEZE, &len);
	is(how ? *how : 99, PTWATCH_FREEZE_HARDWARE, "by hardware");
	munmap((void *)page, PAGE);
	close(fd);
}

void test_debuggers(void)
{
	uint64_t word = symbol("pokee_word");

	debug_registers(word);
	foreign_exceptions(word);
	stream_and_hits(word);
}
