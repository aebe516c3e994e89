// SPDX-License-Identifier: BSD-2-Clause
/* How sessions end, who may have one, and the module's coming and going. */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include "guest.h"

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif
#define NOBODY 65534
#define LOCKDOWN "/sys/kernel/security/lockdown"

/* ---- the end ---- */

static uint64_t word;

/* All that a session can hold: four watches and a running trace of both CPUs. */
static void take_all(int fd)
{
	unsigned int i;

	if (setup(fd, 3) || ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("SETUP and START");
	for (i = 0; i < 4; i++) {
		struct ptwatch_watch arg = watch_arg(word + 8 * i, 8, PTWATCH_ACCESS_W);

		arg.actions |= PTWATCH_ACTION_FREEZE;
		add_watch(fd, arg);
	}
}

static void all_is_free(const char *after)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	int fd = open_device(), got = 0;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		arg.id = 0;
		got += !ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg);
	}
	is(got, 4, "%s: four watches are free", after);
	WORKS(setup(fd, 3), "%s: so is Intel PT on both CPUs", after);
	close(fd);
	ok(perf_pt_trace(0) > 0, "%s: and perf can have it", after);
}

static void all_is_taken(const char *after)
{
	struct ptwatch_watch arg = watch_arg(word, 8, PTWATCH_ACCESS_W);
	int fd = open_device();

	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &arg), ENOSPC, "%s: no watch is free", after);
	FAILS(setup(fd, 1), EBUSY, "%s: nor is Intel PT", after);
	close(fd);
}

/* A child that holds what TAKE took until it gets a byte or is killed. */
struct holder {
	pid_t pid;
	int to;
};

static struct holder hold(int inherited)
{
	int to[2], from[2], fd = inherited;
	struct holder h;
	char byte = 0;

	if (pipe(to) || pipe(from))
		die("no pipe");
	h.pid = fork();
	if (h.pid < 0)
		die("can't fork");
	if (!h.pid) {
		close(to[1]);
		if (fd < 0) {
			fd = open_device();
			take_all(fd);
		}
		if (write(from[1], &byte, 1) != 1)
			_exit(1);
		if (read(to[0], &byte, 1) < 0)
			_exit(1);
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	if (read(from[0], &byte, 1) != 1)
		die("the child did not come so far");
	close(from[0]);
	h.to = to[1];
	return h;
}

static void end_holder(struct holder h, int sig)
{
	int status;

	if (sig)
		kill(h.pid, sig);
	close(h.to);
	if (waitpid(h.pid, &status, 0) != h.pid)
		die("the child is not there");
}

void test_session_end(void)
{
	int fd = open_device(), copy;
	struct holder h;
	unsigned int i;

	word = symbol("pokee_word");
	take_all(fd);
	all_is_taken("while open");
	close(fd);
	all_is_free("after close");
	if (poke("store", 0, 10, 0) || poke("store", 1, 10, 0))
		die("poke");

	fd = open_device();
	take_all(fd);
	copy = dup(fd);
	close(fd);
	all_is_taken("after close of one of two descriptors");
	close(copy);
	all_is_free("after the other");

	fd = open_device();
	take_all(fd);
	h = hold(fd);
	close(fd);
	all_is_taken("after close with a forked child");
	end_holder(h, 0);
	all_is_free("after the child's end");

	h = hold(-1);
	all_is_taken("while a child has it");
	end_holder(h, SIGKILL);
	all_is_free("after kill -9");

	/* Hits while everything goes away: alarms are on their way to a session that ends. */
	for (i = 0; i < 10; i++) {
		fd = open_device();
		take_all(fd);
		if (poke("repmovs", i % 2, 20, i))
			die("poke");
		close(fd);
	}
	all_is_free("after sessions that ended amid alarms");
}

/* ---- rights ---- */

/* As nobody, with no capability but those of a mask. */
static void become(uint64_t caps)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = caps, .permitted = caps },
		{ .effective = caps >> 32, .permitted = caps >> 32 },
	};

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) ||
	    setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY) ||
	    syscall(SYS_capset, &header, data))
		_exit(200);
}

static int open_as_nobody(void *arg)
{
	(void)arg;
	become(0);
	return open(PTWATCH_DEVICE, O_RDWR) < 0 ? errno : 0;
}

static int open_as_wrong_caps(void *arg)
{
	(void)arg;
	become(~(1ULL << CAP_PERFMON | 1ULL << CAP_SYS_ADMIN) & ((1ULL << 39) - 1));
	return open(PTWATCH_DEVICE, O_RDWR) < 0 ? errno : 0;
}

#define CGROUPS "/tmp/ptwatch-cgroups"

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return good;
}

/* In a cgroup that may have 16 MiB: the errno of setting up 64. */
static int in_small_cgroup(void *arg)
{
	struct ptwatch_trace trace = trace_arg(KERNEL_TRACE, 64 << 20);
	uint8_t cpu0 = 1;
	int fd;

	(void)arg;
	trace.cpus = (uintptr_t)&cpu0;
	trace.cpus_size = 1;
	if (!put(CGROUPS "/small/memory.max", "16M") || !put(CGROUPS "/small/cgroup.procs", "0"))
		return 200;
	fd = open_device();
	return ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace) ? errno : 0;
}

static void test_memory(void)
{
	struct ptwatch_info info = { .size = sizeof(info) };
	int fd = open_device();

	if (ioctl(fd, PTWATCH_IOC_INFO, &info) || info.max_buffer_size < 64 << 20)
		die("the guest is too small for this test");
	close(fd);
	mkdir(CGROUPS, 0700);
	if (mount("none", CGROUPS, "cgroup2", 0, NULL) ||
	    !put(CGROUPS "/cgroup.subtree_control", "+memory") || mkdir(CGROUPS "/small", 0700))
		die("no cgroup");
	is(in_child(in_small_cgroup, NULL), ENOMEM,
	   "buffers count as memory of the cgroup: ENOMEM, and nobody is killed");
	rmdir(CGROUPS "/small");
	umount(CGROUPS);
	rmdir(CGROUPS);
}

static struct ptwatch_watch a_watch;
static int type;

enum perfmon_call { PERFMON_OPEN, PERFMON_USER, PERFMON_KERNEL, PERFMON_WATCH };

/* With CAP_PERFMON alone: the errno of one call, on a device opened with it. */
static int with_perfmon(void *arg)
{
	enum perfmon_call call = *(enum perfmon_call *)arg;
	struct ptwatch_trace trace = {
		.size = sizeof(trace),
		.buffer_size = 16 * PAGE,
		.pt_pmu_type = type,
		.rtit_ctl = USER_TRACE,
	};
	int fd;

	become(1ULL << CAP_PERFMON);
	fd = open(PTWATCH_DEVICE, O_RDWR);
	if (fd < 0)
		return errno;
	switch (call) {
	case PERFMON_OPEN:
		return 0;
	case PERFMON_USER:
		return ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace) ||
		       ioctl(fd, PTWATCH_IOC_TRACE_START) || ioctl(fd, PTWATCH_IOC_TRACE_STOP) ?
			       errno : 0;
	case PERFMON_KERNEL:
		trace.rtit_ctl = KERNEL_TRACE;
		return ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace) ? errno : 0;
	case PERFMON_WATCH:
		return ioctl(fd, PTWATCH_IOC_WATCH_ADD, &a_watch) ? errno : 0;
	}
	return 201;
}

/* With CAP_SYS_ADMIN alone all is allowed. */
static int with_sysadmin(void *arg)
{
	struct ptwatch_trace trace = trace_arg(KERNEL_TRACE, 16 * PAGE);
	int fd;

	(void)arg;
	become(1ULL << CAP_SYS_ADMIN);
	fd = open(PTWATCH_DEVICE, O_RDWR);
	if (fd < 0 || ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace) ||
	    ioctl(fd, PTWATCH_IOC_WATCH_ADD, &a_watch))
		return errno;
	return 0;
}

/* A descriptor of root's in the hands of someone who lost the right. */
static int inherited(void *arg)
{
	int fd = *(int *)arg;

	become(0);
	return ioctl(fd, PTWATCH_IOC_WATCH_ADD, &a_watch) ? errno : 0;
}

static int inherited_start(void *arg)
{
	int fd = *(int *)arg;

	become(0);
	return ioctl(fd, PTWATCH_IOC_TRACE_START) ? errno : 0;
}

void test_rights(void)
{
	enum perfmon_call call;
	int fd;

	test_memory();
	type = pt_pmu_type();
	a_watch = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	is(in_child(open_as_nobody, NULL), EPERM, "open without capabilities: EPERM");
	is(in_child(open_as_wrong_caps, NULL), EPERM, "open with all other capabilities: EPERM");
	call = PERFMON_OPEN;
	is(in_child(with_perfmon, &call), 0, "CAP_PERFMON alone: open");
	call = PERFMON_USER;
	is(in_child(with_perfmon, &call), 0, "user code may be traced");
	call = PERFMON_KERNEL;
	is(in_child(with_perfmon, &call), EPERM, "the kernel may not: EPERM");
	call = PERFMON_WATCH;
	is(in_child(with_perfmon, &call), EPERM, "nor be watched: EPERM");
	is(in_child(with_sysadmin, NULL), 0, "CAP_SYS_ADMIN alone: all of it");

	fd = open_device();
	is(in_child(inherited, &fd), EPERM, "a descriptor of root's gives no right to watch");
	if (setup(fd, 1))
		die("SETUP fails");
	is(in_child(inherited_start, &fd), EPERM, "nor to start tracing the kernel");
	close(fd);
}

/* ---- the module ---- */

static int unload(void)
{
	return syscall(SYS_delete_module, "ptwatch", O_NONBLOCK);
}

static int load(void)
{
	int fd = open("/ptwatch/ptwatch.ko", O_RDONLY | O_CLOEXEC), result;

	if (fd < 0)
		die("/ptwatch/ptwatch.ko is not there");
	result = syscall(SYS_finit_module, fd, "", 0);
	close(fd);
	return result;
}

void test_module(void)
{
	struct ptwatch_info info = { .size = sizeof(info) };
	int fd = open_device(), i, cycles;
	uint8_t *data;

	word = symbol("pokee_word");
	/* The kernel's word for a module in use. */
	FAILS(unload(), EAGAIN, "unloading while the device is open");
	if (setup(fd, 1))
		die("SETUP fails");
	data = (uint8_t *)map_data(fd, 0, PAGE);
	close(fd);
	FAILS(unload(), EAGAIN, "unloading while there is a mapping");
	munmap(data, PAGE);
	WORKS(unload(), "unloading when all is closed");
	FAILS(open(PTWATCH_DEVICE, O_RDWR), ENOENT, "the device is gone");
	ok(perf_pt_trace(0) > 0, "perf traces without us");
	WORKS(load(), "loading again");
	fd = open_device();
	WORKS(ioctl(fd, PTWATCH_IOC_INFO, &info), "INFO");
	close(fd);

	/* Unload as soon as can be after hits: alarms are on their way. */
	for (cycles = i = 0; i < 5; i++) {
		fd = open_device();
		take_all(fd);
		if (poke("repmovs", i % 2, 20, i))
			die("poke");
		close(fd);
		cycles += !unload() && !load();
	}
	is(cycles, 5, "unloading and loading amid alarms");
	if (!online(1, false) || !online(1, true))
		die("CPU 1 does not go off and on");
	all_is_free("at the end");
}

/* ---- lockdown ---- */

void test_lockdown(void)
{
	struct ptwatch_watch watch = watch_arg(symbol("pokee_word"), 8, PTWATCH_ACCESS_W);
	struct ptwatch_trace user = trace_arg(USER_TRACE, 16 * PAGE);
	struct ptwatch_info info = { .size = sizeof(info) };
	static const char mode[] = "confidentiality";
	int fd = open_device(), set_up = open_device();
	int lockdown = open(LOCKDOWN, O_WRONLY | O_CLOEXEC);

	if (setup(set_up, 1))
		die("SETUP fails");
	if (lockdown < 0 || write(lockdown, mode, strlen(mode)) != (ssize_t)strlen(mode))
		die("can't write to " LOCKDOWN);
	close(lockdown);
	WORKS(ioctl(fd, PTWATCH_IOC_INFO, &info), "lockdown=confidentiality: INFO");
	is(info.flags & PTWATCH_INFO_LOCKDOWN, PTWATCH_INFO_LOCKDOWN, "tells it");
	FAILS(setup(fd, 2), EPERM, "the kernel is not traced");
	FAILS(ioctl(set_up, PTWATCH_IOC_TRACE_START), EPERM, "also not by who set up before");
	FAILS(ioctl(fd, PTWATCH_IOC_WATCH_ADD, &watch), EPERM, "nor watched");
	close(set_up);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &user), "user code may be set up");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "and traced");
	close(fd);
}
