// SPDX-License-Identifier: BSD-2-Clause
/*
 * What tracing costs, in kernel instructions that the emulator counts; in a guest, on CPU 0. Prints lines
 * "NAME VALUE"; tests/bench/trace.sh makes a table of them.
 */
#include <cpuid.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/perf_event.h>
#include <linux/ptwatch.h>

#define PAGE	4096UL
#define RING	PTWATCH_MODE_RING
#define USER	(PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_TSCEN | PTWATCH_RTIT_CTL_BRANCHEN)

__attribute__((noreturn)) static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- the emulator's counters, see tests/emulator/README.md ---- */

#define EMU_LEAF	0x4fff0000
#define EMU_MARK1	0x01
#define EMU_MARK2	0x02
#define EMU_KERNEL	0x110	/* between the marks, this CPU */
#define EMU_USER	0x111

static uint64_t emu(uint32_t n)
{
	uint32_t eax, ebx, ecx, edx;

	__cpuid_count(EMU_LEAF, n, eax, ebx, ecx, edx);
	if (ebx != 0x54506d45) {
		fprintf(stderr, "this is not the emulator\n");
		exit(1);
	}
	return (uint64_t)edx << 32 | eax;
}

/* Each of the two in one place only, so that the truth can be searched for them. */
__attribute__((noinline)) void mark1(void)
{
	emu(EMU_MARK1);
}

__attribute__((noinline)) void mark2(void)
{
	emu(EMU_MARK2);
}

/* The address of the CPUID in a mark: what the truth has of it. */
static unsigned long long cpuid_of(void (*mark)(void))
{
	const uint8_t *code = (const uint8_t *)(uintptr_t)mark;

	while (code[0] != 0x0f || code[1] != 0xa2)
		code++;
	return (uintptr_t)code;
}

/* ---- context switches ---- */

/* So short that most batches are over before the next tick. */
#define ROUNDS	1
#define BATCHES	400

static int to[2], from[2];
static pid_t partner;

static void start_partner(void)
{
	char byte;

	if (pipe(to) || pipe(from))
		fail("pipe");
	partner = fork();
	if (partner < 0)
		fail("fork");
	if (!partner) {
		close(to[1]);
		while (read(to[0], &byte, 1) == 1 && write(from[1], &byte, 1) == 1)
			;
		_exit(0);
	}
}

/* Kernel instructions of a switch and what goes with it, at best, in hundredths. */
static uint64_t ping_pong(void (*between)(void))
{
	uint64_t best = UINT64_MAX, n;
	unsigned int batch, i;
	char byte = 0;

	for (batch = 0; batch < BATCHES; batch++) {
		mark1();
		for (i = 0; i < ROUNDS; i++)
			if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
				fail("ping-pong");
		mark2();
		n = emu(EMU_KERNEL);
		if (n < best)
			best = n;
		if (between)
			between();
	}
	return best * 100 / (2 * ROUNDS);
}

static void result(const char *name, uint64_t hundredths)
{
	printf("%s %llu.%02llu\n", name, (unsigned long long)hundredths / 100,
	       (unsigned long long)hundredths % 100);
	fflush(stdout);
}

/* ---- ptwatch ---- */

static int pmu_type(void)
{
	FILE *f = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
	int type;

	if (!f || fscanf(f, "%d", &type) != 1)
		fail("intel_pt");
	fclose(f);
	return type;
}

#define ALL	(1U << 31)	/* not this process alone; no flag of SETUP's */

static int session(uint64_t ctl, uint32_t mode, uint32_t flags, uint32_t records)
{
	static uint8_t cpu0 = 1;
	struct ptwatch_trace arg = {
		.size = sizeof(arg),
		.flags = flags & ~ALL,
		.rtit_ctl = ctl,
		.buffer_size = 1 << 20,
		.cpus = (uintptr_t)&cpu0,
		.cpus_size = 1,
		.pt_pmu_type = pmu_type(),
		.mode = mode,
		.banks = mode == PTWATCH_MODE_BANKS ? 4 : 0,
		.switch_records = records,
	};
	int fd = open(PTWATCH_DEVICE, O_RDWR | O_CLOEXEC);

	if (!records && !arg.banks && !(flags & ALL)) {
		arg.target_kind = PTWATCH_TARGET_PROCESS;
		arg.target = getpid();
	}
	if (fd < 0 || ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg) ||
	    ioctl(fd, PTWATCH_IOC_TRACE_START)) {
		fprintf(stderr, "reason %u, holder %u\n", arg.reason, arg.holder_pid);
		fail("ptwatch session");
	}
	/* What is measured has to be what it is called. */
	if (arg.target_kind && arg.filter != (flags & PTWATCH_TRACE_NO_CR3 ? PTWATCH_FILTER_SWITCH : PTWATCH_FILTER_CR3)) {
		fprintf(stderr, "the filter is %u\n", arg.filter);
		exit(1);
	}
	return fd;
}

/* ---- perf ---- */

static struct perf_event_mmap_page *ring;
static void *aux_area;
static size_t aux_size = 1 << 20, ring_size = 1025 * PAGE;

static void drain(void)
{
	__atomic_store_n(&ring->data_tail, ring->data_head, __ATOMIC_RELEASE);
	ring->aux_tail = ring->aux_head;
}

static int perf(struct perf_event_attr *attr, pid_t pid, int cpu, bool aux)
{
	int fd = syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		fail("perf_event_open");
	ring = mmap(NULL, ring_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED)
		fail("perf ring");
	if (!aux)
		return fd;
	ring->aux_offset = ring_size;
	ring->aux_size = aux_size;
	aux_area = mmap(NULL, aux_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, ring_size);
	if (aux_area == MAP_FAILED)
		fail("perf AUX");
	return fd;
}

static void end_perf(int fd, bool aux)
{
	if (aux && munmap(aux_area, aux_size))
		fail("munmap of AUX");
	if (munmap(ring, ring_size))
		fail("munmap of the ring");
	if (close(fd))
		fail("close");
	/* The kernel goes on looking for events at each switch for a second. */
	usleep(1500000);
}

static void switches(void)
{
	struct perf_event_attr pt = {
		.type = pmu_type(), .size = sizeof(pt), .config = 0x400 /* TSC; branches unless told otherwise */,
		.exclude_kernel = 1,
	};
	/* What `perf record` opens for context switches beside a trace. */
	struct perf_event_attr side = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(side), .config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
			       PERF_SAMPLE_CPU,
		.sample_id_all = 1, .context_switch = 1, .exclude_kernel = 1,
		.sample_period = 1, .watermark = 1, .wakeup_watermark = 1 << 20,
	};
	int fd;

	start_partner();
	ping_pong(NULL);
	result("switch-none", ping_pong(NULL));
	/*
	 * Nothing of ours is in the scheduler's way, but the emulator is slower: where that makes ticks of
	 * the load average fall into every round, it does so here, too.
	 */
	fd = session(USER, RING, ALL, 0);
	result("switch-traced", ping_pong(NULL));
	close(fd);
	fd = session(USER, RING, 0, 0);
	result("switch-cr3", ping_pong(NULL));
	close(fd);
	fd = session(USER, RING, PTWATCH_TRACE_NO_CR3, 0);
	result("switch-toggle", ping_pong(NULL));
	close(fd);
	fd = session(USER, PTWATCH_MODE_STREAM, PTWATCH_TRACE_NO_CR3, 0);
	result("switch-toggle-stream", ping_pong(NULL));
	close(fd);
	fd = session(USER, RING, 0, 1024);
	result("switch-record", ping_pong(NULL));
	close(fd);
	result("switch-none-again", ping_pong(NULL));
	fd = perf(&pt, getpid(), -1, true);
	result("switch-perf-pt", ping_pong(drain));
	end_perf(fd, true);
	fd = perf(&side, -1, 0, false);
	result("switch-perf-side", ping_pong(drain));
	end_perf(fd, false);
	result("switch-none-last", ping_pong(NULL));
}

/* ---- start and stop on one CPU ---- */

static void start_stop(void)
{
	struct perf_event_attr pt = {
		.type = pmu_type(), .size = sizeof(pt), .config = 0x400, .disabled = 1,
		.exclude_kernel = 1,
	};
	uint64_t best[4] = { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX }, n;
	unsigned int i;
	int fd;

	fd = session(USER, RING, 0, 128);
	ioctl(fd, PTWATCH_IOC_TRACE_STOP);
	for (i = 0; i < 20; i++) {
		mark1();
		ioctl(fd, PTWATCH_IOC_TRACE_START);
		mark2();
		n = emu(EMU_KERNEL);
		best[0] = n < best[0] ? n : best[0];
		mark1();
		ioctl(fd, PTWATCH_IOC_TRACE_STOP);
		mark2();
		n = emu(EMU_KERNEL);
		best[1] = n < best[1] ? n : best[1];
	}
	close(fd);
	fd = perf(&pt, -1, 0, true);
	for (i = 0; i < 20; i++) {
		mark1();
		ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
		mark2();
		n = emu(EMU_KERNEL);
		best[2] = n < best[2] ? n : best[2];
		mark1();
		ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
		mark2();
		n = emu(EMU_KERNEL);
		best[3] = n < best[3] ? n : best[3];
		drain();
	}
	end_perf(fd, true);
	result("start", best[0] * 100);
	result("stop", best[1] * 100);
	result("perf-enable", best[2] * 100);
	result("perf-disable", best[3] * 100);
}

/* ---- a bank swap ---- */

/*
 * All that the CPU executes between the marks, kernel and user; the truth tells which of it was traced.
 */
static void bank_swap(void)
{
	int fd = session(USER | PTWATCH_RTIT_CTL_OS, PTWATCH_MODE_BANKS, 0, 0);

	mark1();
	ioctl(fd, PTWATCH_IOC_TRACE_FREEZE);
	mark2();
	printf("swap-mark1 %llx\nswap-mark2 %llx\n", cpuid_of(mark1), cpuid_of(mark2));
	result("swap-executed", (emu(EMU_KERNEL) + emu(EMU_USER)) * 100);
	ioctl(fd, PTWATCH_IOC_TRACE_STOP);
	close(fd);
}

int main(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
	switches();
	start_stop();
	bank_swap();
	return 0;
}
