// SPDX-License-Identifier: BSD-2-Clause
/* What the tests of /dev/ptwatch share; see guest.h. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/genetlink.h>
#include <linux/hw_breakpoint.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>

#include "guest.h"

/* ---- checks ---- */

static unsigned int checks, failed;

static bool vcheck(bool good, const char *name, va_list ap)
{
	checks++;
	if (!good)
		failed++;
	printf("%sok %u - ", good ? "" : "not ", checks);
	vprintf(name, ap);
	putchar('\n');
	fflush(stdout);
	return good;
}

bool ok(bool good, const char *name, ...)
{
	va_list ap;

	va_start(ap, name);
	vcheck(good, name, ap);
	va_end(ap);
	return good;
}

bool is(uint64_t got, uint64_t expected, const char *name, ...)
{
	va_list ap;

	va_start(ap, name);
	if (!vcheck(got == expected, name, ap))
		diag("got %#llx (%llu), expected %#llx (%llu)", (unsigned long long)got,
		     (unsigned long long)got, (unsigned long long)expected,
		     (unsigned long long)expected);
	va_end(ap);
	return got == expected;
}

bool check_call(long result, int error, int expected, const char *name, ...)
{
	bool good = expected ? result == -1 && error == expected : result != -1;
	va_list ap;

	va_start(ap, name);
	if (!vcheck(good, name, ap)) {
		if (result == -1)
			diag("failed with %s (%d)", strerrorname_np(error), error);
		else
			diag("returned %ld", result);
		diag("expected %s", expected ? strerrorname_np(expected) : "success");
	}
	va_end(ap);
	return good;
}

void diag(const char *text, ...)
{
	va_list ap;

	va_start(ap, text);
	printf("# ");
	vprintf(text, ap);
	putchar('\n');
	fflush(stdout);
	va_end(ap);
}

int done_testing(void)
{
	printf("1..%u\n", checks);
	fflush(stdout);
	return failed ? 1 : 0;
}

void die(const char *text, ...)
{
	int error = errno;
	va_list ap;

	va_start(ap, text);
	vcheck(false, text, ap);
	va_end(ap);
	diag("the test ends here: %s", strerror(error));
	done_testing();
	exit(1);
}

/* ---- the machine ---- */

void pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("can't run on CPU %u", cpu);
}

/*
 * /proc/kallsyms, read once: making it costs the guest seconds. Only ptwatch.ko moves while we run:
 * its symbols are good until test_module().
 */
static struct symbol {
	uint64_t address;
	const char *name;
} *symbols;
static size_t nr_symbols;

static void load_symbols(void)
{
	size_t size = 0, room = 0;
	char *text = NULL, *line, *end;
	ssize_t n;
	int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	do {
		if (size == room)
			text = realloc(text, (room += 16 << 20) + 1);
		if (fd < 0 || !text)
			die("can't read /proc/kallsyms");
		n = read(fd, text + size, room - size);
		size += n > 0 ? n : 0;
	} while (n > 0);
	close(fd);
	text[size] = '\0';

	/* ADDRESS TYPE NAME, and for a module's symbol a tab and [MODULE] */
	for (room = 0, line = text; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		if (nr_symbols == room)
			symbols = realloc(symbols, (room += 65536) * sizeof(*symbols));
		if (!symbols || end - line < 20)
			die("can't make sense of /proc/kallsyms");
		line[strcspn(line, "\t")] = '\0';
		symbols[nr_symbols].address = strtoull(line, NULL, 16);
		symbols[nr_symbols++].name = line + 19;
	}
}

uint64_t symbol(const char *name)
{
	size_t i;

	if (!symbols)
		load_symbols();
	for (i = 0; i < nr_symbols; i++)
		if (!strcmp(symbols[i].name, name) && symbols[i].address)
			return symbols[i].address;
	die("there is no symbol %s", name);
}

bool has_symbol(const char *name)
{
	size_t i;

	if (!symbols)
		load_symbols();
	for (i = 0; i < nr_symbols; i++)
		if (!strcmp(symbols[i].name, name))
			return true;
	return false;
}

uint64_t symbol_end(const char *name)
{
	uint64_t start = symbol(name), end = UINT64_MAX;
	size_t i;

	for (i = 0; i < nr_symbols; i++)
		if (symbols[i].address > start && symbols[i].address < end)
			end = symbols[i].address;
	return end;
}

uint64_t rdtsc(void)
{
	return __builtin_ia32_rdtsc();
}

int pt_pmu_type(void)
{
	FILE *f = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
	int type;

	if (!f || fscanf(f, "%d", &type) != 1)
		die("there is no intel_pt PMU");
	fclose(f);
	return type;
}

bool online(unsigned int cpu, bool on)
{
	char path[64];
	bool good;
	int fd;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/online", cpu);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		die("%s is not there", path);
	good = write(fd, on ? "1" : "0", 1) == 1;
	close(fd);
	return good;
}

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ULL + ts.tv_nsec / 1000000;
}

bool slow_kernel(void)
{
	struct utsname name;

	return !uname(&name) && strstr(name.release, "debug");
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

void work_ms(unsigned int ms)
{
	uint64_t end = now_ms() + ms;
	volatile unsigned int sum = 0;
	unsigned int i;

	do {
		for (i = 0; i < 2000; i++)
			if (i * 2654435761U & 0x10000)
				sum += i;
		syscall(SYS_getppid);
	} while (now_ms() < end);
}

int in_child(int (*func)(void *), void *arg)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("can't fork");
	if (!pid)
		_exit(func(arg));
	if (waitpid(pid, &status, 0) != pid)
		die("can't wait for a child");
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- sessions ---- */

int open_device(void)
{
	int fd = open(PTWATCH_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("can't open " PTWATCH_DEVICE);
	return fd;
}

struct ptwatch_trace trace_arg(uint64_t rtit_ctl, uint64_t buffer_size)
{
	return (struct ptwatch_trace){
		.size = sizeof(struct ptwatch_trace),
		.rtit_ctl = rtit_ctl,
		.buffer_size = buffer_size,
		.pt_pmu_type = pt_pmu_type(),
	};
}

int setup(int fd, uint8_t cpu_mask)
{
	struct ptwatch_trace arg = trace_arg(KERNEL_TRACE, 16 * PAGE);

	arg.cpus = (uintptr_t)&cpu_mask;
	arg.cpus_size = 1;
	return ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg);
}

const volatile struct ptwatch_control *map_control(int fd, unsigned int cpu)
{
	void *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_CONTROL(cpu));

	if (map == MAP_FAILED)
		die("can't map the control page of CPU %u", cpu);
	return map;
}

const uint8_t *map_data(int fd, unsigned int cpu, uint64_t size)
{
	void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_DATA(cpu));

	if (map == MAP_FAILED)
		die("can't map the buffer of CPU %u", cpu);
	return map;
}

struct ptwatch_control read_control(const volatile struct ptwatch_control *control)
{
	struct ptwatch_control copy;
	uint32_t sequence;

	do {
		sequence = __atomic_load_n(&control->sequence, __ATOMIC_ACQUIRE);
		copy = *control;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (sequence % 2 || sequence != control->sequence);
	return copy;
}

bool starts_with_psb(const uint8_t *data)
{
	unsigned int i;

	for (i = 0; i < 16; i += 2)
		if (data[i] != 0x02 || data[i + 1] != 0x82)
			return false;
	return true;
}

bool contains_psb(const uint8_t *data, uint64_t size)
{
	uint64_t i;

	for (i = 0; i + 16 <= size; i++)
		if (starts_with_psb(data + i))
			return true;
	return false;
}

/* ---- watches and pokes ---- */

struct ptwatch_watch watch_arg(uint64_t address, uint32_t len, uint32_t access)
{
	return (struct ptwatch_watch){
		.size = sizeof(struct ptwatch_watch),
		.address = address,
		.len = len,
		.access = access,
		.actions = PTWATCH_ACTION_EVENT,
		.max_rate = ANY_RATE,
	};
}

uint32_t add_watch(int fd, struct ptwatch_watch watch)
{
	if (ioctl(fd, PTWATCH_IOC_WATCH_ADD, &watch))
		die("can't add a watch at %#llx", (unsigned long long)watch.address);
	return watch.id;
}

int del_watch(int fd, uint32_t id)
{
	return ioctl(fd, PTWATCH_IOC_WATCH_DEL, (unsigned long)id);
}

int stat_watch(int fd, uint32_t id, struct ptwatch_watch_stat *stat)
{
	*stat = (struct ptwatch_watch_stat){ .size = sizeof(*stat), .id = id };
	return ioctl(fd, PTWATCH_IOC_WATCH_STAT, stat);
}

struct ptwatch_watch_stat settled(int fd, uint32_t id)
{
	uint64_t end = now_ms() + 20000;
	struct ptwatch_watch_stat stat;

	do {
		if (stat_watch(fd, id, &stat))
			die("no stat of watch %u", id);
		if (stat.hits == stat.alarms + stat.filtered + stat.ignored + stat.rate_limited +
				 stat.dropped)
			return stat;
		sleep_ms(1);
	} while (now_ms() < end);
	die("hits are accounted for: %llu, but alarms %llu ignored %llu limited %llu dropped %llu",
	    (unsigned long long)stat.hits, (unsigned long long)stat.alarms,
	    (unsigned long long)stat.ignored, (unsigned long long)stat.rate_limited,
	    (unsigned long long)stat.dropped);
}

int poke(const char *kind, unsigned int cpu, unsigned int count, uint64_t value)
{
	char text[80];
	int fd, len, error = 0;

	pin(cpu);
	fd = open("/proc/pokee", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		die("/proc/pokee is not there: is pokee.ko loaded?");
	len = snprintf(text, sizeof(text), "%s %u %u %#llx", kind, cpu, count,
		       (unsigned long long)value);
	if (write(fd, text, len) != len)
		error = errno ?: EIO;
	close(fd);
	errno = error;
	return error ? -1 : 0;
}

const void *alarm_attribute(const void *message, int wanted, unsigned int *len)
{
	const struct nlmsghdr *nlh = message;
	const char *p = (const char *)message + NLMSG_HDRLEN + GENL_HDRLEN;
	const char *end = (const char *)message + nlh->nlmsg_len;

	while (p + NLA_HDRLEN <= end) {
		const struct nlattr *a = (const void *)p;

		if (a->nla_len < NLA_HDRLEN)
			break;
		if (a->nla_type == wanted) {
			*len = a->nla_len - NLA_HDRLEN;
			return p + NLA_HDRLEN;
		}
		p += NLA_ALIGN(a->nla_len);
	}
	return NULL;
}

short poll_device(int fd, int timeout)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLPRI };

	return poll(&p, 1, timeout) == 1 ? p.revents : 0;
}

/* ---- perf ---- */

int perf_pt_open(unsigned int cpu)
{
	struct perf_event_attr attr = {
		.type = pt_pmu_type(),
		.size = sizeof(attr),
		.config = PTWATCH_RTIT_CTL_TSCEN,
		.disabled = 1,
	};

	return syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

long perf_pt_trace(unsigned int cpu)
{
	const size_t aux_size = 16 * PAGE, ring_size = 2 * PAGE;
	struct perf_event_mmap_page *page;
	long bytes = -1;
	uint8_t *aux;
	int fd;

	pin(cpu);
	fd = perf_pt_open(cpu);
	if (fd < 0)
		return -1;
	page = mmap(NULL, ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		goto out_fd;
	page->aux_offset = ring_size;
	page->aux_size = aux_size;
	aux = mmap(NULL, aux_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, ring_size);
	if (aux == MAP_FAILED)
		goto out_page;
	if (ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))
		goto out_aux;
	syscall(SYS_getppid);
	if (ioctl(fd, PERF_EVENT_IOC_DISABLE, 0))
		goto out_aux;
	if (starts_with_psb(aux))
		bytes = page->aux_head;
out_aux:
	munmap(aux, aux_size);
out_page:
	munmap(page, ring_size);
out_fd:
	close(fd);
	return bytes;
}

int perf_watch(unsigned int cpu, uint64_t address)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_W,
		.bp_addr = address,
		.bp_len = HW_BREAKPOINT_LEN_8,
	};

	return syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}
