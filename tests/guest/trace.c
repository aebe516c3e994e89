// SPDX-License-Identifier: BSD-2-Clause
/* INFO, TRACE_*, mmap, and who may have Intel PT. */
#include <cpuid.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest.h"

#define BAD_POINTER ((void *)16)

/* ---- info ---- */

static void info_sizes(int fd)
{
	struct {
		struct ptwatch_info info;
		uint8_t more[64];
	} big;
	struct ptwatch_info info;
	size_t i;
	bool same;

	memset(&info, 0xa5, sizeof(info));
	info.size = 8;
	WORKS(ioctl(fd, PTWATCH_IOC_INFO, &info), "INFO with the shortest size");
	is(info.size, 8, "keeps the caller's size");
	is(info.abi, PTWATCH_ABI_VERSION, "and writes what fits");
	for (same = true, i = 8; i < sizeof(info); i++)
		same &= ((uint8_t *)&info)[i] == 0xa5;
	ok(same, "and not a byte more");

	memset(&big, 0, sizeof(big));
	big.info.size = sizeof(big);
	WORKS(ioctl(fd, PTWATCH_IOC_INFO, &big), "INFO with a longer size and zeros behind");
	is(big.info.size, sizeof(big), "keeps the caller's size");
	big.info.size = sizeof(big);
	big.more[63] = 1;
	FAILS(ioctl(fd, PTWATCH_IOC_INFO, &big), E2BIG, "INFO with a longer size and a byte set behind");

	memset(&info, 0, sizeof(info));
	info.size = 4;
	FAILS(ioctl(fd, PTWATCH_IOC_INFO, &info), EINVAL, "INFO with size 4");
	info.size = 0;
	FAILS(ioctl(fd, PTWATCH_IOC_INFO, &info), EINVAL, "INFO with size 0");
	big.info.size = 1U << 31;
	FAILS(ioctl(fd, PTWATCH_IOC_INFO, &big), E2BIG, "INFO with size 2 GiB");
	FAILS(ioctl(fd, PTWATCH_IOC_INFO, NULL), EFAULT, "INFO to NULL");
	FAILS(ioctl(fd, PTWATCH_IOC_INFO, BAD_POINTER), EFAULT, "INFO to a bad pointer");
	FAILS(ioctl(fd, PTWATCH_IOC_INFO, (void *)-4096UL), EFAULT, "INFO to a kernel address");
}

void test_info(void)
{
	struct ptwatch_info info = { .size = sizeof(info) };
	uint32_t r[4], family, model;
	int fd = open_device();

	if (!WORKS(ioctl(fd, PTWATCH_IOC_INFO, &info), "INFO"))
		die("there is nothing to go by");
	is(info.size, sizeof(info), "size");
	is(info.abi, PTWATCH_ABI_VERSION, "abi");
	is(info.flags & (PTWATCH_INFO_PT | PTWATCH_INFO_TRACEABLE),
	   PTWATCH_INFO_PT | PTWATCH_INFO_TRACEABLE, "the CPU has Intel PT and can be traced");
	is(info.flags & ~(PTWATCH_INFO_PT | PTWATCH_INFO_TRACEABLE | PTWATCH_INFO_VMX_CONFLICT |
			  PTWATCH_INFO_PTI), PTWATCH_INFO_CR3_FILTER,
	   "a CR3 filter, no lockdown, and no flag without a name");
	is(info.modes, 7, "modes: ring, stream, banks");
	is(info.rtit_ctl_required, 0, "no bit of rtit_ctl is required");

	__cpuid(1, r[0], r[1], r[2], r[3]);
	family = (r[0] >> 8) & 0xf;
	model = (r[0] >> 4) & 0xf;
	if (family == 6 || family == 15)
		model |= (r[0] >> 12) & 0xf0;
	if (family == 15)
		family += (r[0] >> 20) & 0xff;
	is(info.family, family, "family is CPUID's");
	is(info.model, model, "model is CPUID's");
	is(info.stepping, r[0] & 0xf, "stepping is CPUID's");

	__cpuid_count(0x14, 0, r[0], r[1], r[2], r[3]);
	ok(r[0] && !memcmp(info.cpuid_14_0, r, sizeof(r)), "cpuid_14_0 is CPUID's");
	__cpuid_count(0x14, 1, r[0], r[1], r[2], r[3]);
	ok(!memcmp(info.cpuid_14_1, r, sizeof(r)), "cpuid_14_1 is CPUID's");
	is(info.address_ranges, r[0] & 7, "address_ranges");
	is(info.mtc_periods, r[0] >> 16, "mtc_periods");
	is(info.cyc_thresholds, r[1] & 0xffff, "cyc_thresholds");
	is(info.psb_periods, r[1] >> 16, "psb_periods");
	__cpuid_count(0x15, 0, r[0], r[1], r[2], r[3]);
	ok(!memcmp(info.cpuid_15, r, sizeof(r)), "cpuid_15 is CPUID's");

	/* The guest's CPU has every packet the uapi knows. */
	is(info.rtit_ctl,
	   PTWATCH_RTIT_CTL_CYCEN | PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_USER |
		   PTWATCH_RTIT_CTL_MTCEN | PTWATCH_RTIT_CTL_TSCEN | PTWATCH_RTIT_CTL_DISRETC |
		   PTWATCH_RTIT_CTL_BRANCHEN | PTWATCH_RTIT_CTL_MTCFREQ |
		   PTWATCH_RTIT_CTL_CYCTHRESH | PTWATCH_RTIT_CTL_PSBFREQ,
	   "rtit_ctl names every bit this CPU can do");
	ok(info.tsc_khz > 100000 && info.tsc_khz < 10000000, "tsc_khz is a frequency");
	is(info.breakpoint_slots, 4, "breakpoint_slots");
	ok(info.max_buffer_size >= 16 * PAGE && info.max_buffer_size % PAGE == 0,
	   "max_buffer_size is whole pages");

	info_sizes(fd);
	FAILS(ioctl(fd, _IO(PTWATCH_IOC_MAGIC, 0x7f), 0), ENOTTY, "an unknown ioctl");
	FAILS(ioctl(fd, _IO(0, 0), 0), ENOTTY, "an ioctl of nobody");
	FAILS(ioctl(fd, _IO(PTWATCH_IOC_MAGIC, 0x00), &info), ENOTTY,
	      "INFO's number with the wrong direction");
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		die("can't set O_NONBLOCK");
	FAILS(read(fd, r, sizeof(r)), EAGAIN, "read without an alarm");
	FAILS(write(fd, r, sizeof(r)), EINVAL, "write");
	close(fd);
}

/* ---- setup ---- */

static int setup_with(int fd, struct ptwatch_trace arg)
{
	return ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &arg);
}

/* TRACE_SETUP with one field changed fails with ERROR. */
#define REFUSED(expected, name, change) \
	do { \
		struct ptwatch_trace arg = good; \
		change; \
		FAILS(setup_with(fd, arg), expected, "SETUP with " name); \
	} while (0)

static int set_up_and_release(int fd, struct ptwatch_trace arg)
{
	if (setup_with(fd, arg))
		return -1;
	return ioctl(fd, PTWATCH_IOC_TRACE_RELEASE);
}

static void setup_refusals(int fd, struct ptwatch_trace good, uint64_t max)
{
	uint8_t cpus[16];
	int type;

	REFUSED(EINVAL, "flags", arg.flags = 1);
	REFUSED(EINVAL, "reserved", arg.reserved = 1);
	REFUSED(EINVAL, "nr_cpus", arg.nr_cpus = 1);
	REFUSED(EINVAL, "neither OS nor USER",
		arg.rtit_ctl &= ~(PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_USER));
	REFUSED(EINVAL, "TraceEn", arg.rtit_ctl |= 1);
	REFUSED(EINVAL, "ToPA", arg.rtit_ctl |= 1ULL << 8);
	REFUSED(EINVAL, "FabricEn", arg.rtit_ctl |= 1ULL << 6);
	REFUSED(EINVAL, "CR3Filter", arg.rtit_ctl |= 1ULL << 7);
	REFUSED(EINVAL, "ADDR0_CFG", arg.rtit_ctl |= 1ULL << 32);
	REFUSED(EINVAL, "bit 63", arg.rtit_ctl |= 1ULL << 63);
	REFUSED(EINVAL, "an MTCFreq without MTCEn", arg.rtit_ctl |= 3ULL << 14);
	REFUSED(EINVAL, "a CycThresh without CYCEn", arg.rtit_ctl |= 1ULL << 19);
	/* The CPU has MTC periods 0, 3, 6 and 9, thresholds up to 13 and PSB periods up to 5. */
	REFUSED(EOPNOTSUPP, "MTCFreq 1", arg.rtit_ctl |= PTWATCH_RTIT_CTL_MTCEN | 1ULL << 14);
	REFUSED(EOPNOTSUPP, "MTCFreq 15", arg.rtit_ctl |= PTWATCH_RTIT_CTL_MTCEN | 15ULL << 14);
	REFUSED(EOPNOTSUPP, "CycThresh 14", arg.rtit_ctl |= PTWATCH_RTIT_CTL_CYCEN | 14ULL << 19);
	REFUSED(EOPNOTSUPP, "PSBFreq 6", arg.rtit_ctl |= 6ULL << 24);
	REFUSED(EOPNOTSUPP, "PSBFreq 15", arg.rtit_ctl |= 15ULL << 24);
	REFUSED(EINVAL, "no buffer", arg.buffer_size = 0);
	REFUSED(EINVAL, "half a page", arg.buffer_size = PAGE / 2);
	REFUSED(EINVAL, "a page and a byte", arg.buffer_size = PAGE + 1);
	REFUSED(EINVAL, "more than max_buffer_size", arg.buffer_size = max + PAGE);
	REFUSED(EINVAL, "an endless buffer", arg.buffer_size = -PAGE);
	/* The kernel's own (0 to 5: hardware, software, tracepoint, …) and those it counts up to. */
	for (type = 0; type <= good.pt_pmu_type + 5; type++) {
		struct ptwatch_trace arg = good;

		if (type == good.pt_pmu_type)
			continue;
		arg.pt_pmu_type = type;
		FAILS(setup_with(fd, arg), EINVAL, "SETUP with PMU %d, which is not intel_pt", type);
	}
	REFUSED(EINVAL, "a PMU that does not exist", arg.pt_pmu_type = 9999);

	memset(cpus, 0, sizeof(cpus));
	good.cpus = (uintptr_t)cpus;
	good.cpus_size = sizeof(cpus);
	REFUSED(EINVAL, "an empty set of CPUs", );
	cpus[0] = 1 << 7;
	REFUSED(EINVAL, "a CPU that does not exist (7)", );
	cpus[0] = 1 << 0;
	cpus[15] = 1 << 7;
	REFUSED(EINVAL, "a CPU that does not exist (127) beside one that does", );
	cpus[15] = 0;
	REFUSED(EINVAL, "a set of CPUs of no bytes", arg.cpus_size = 0);
	REFUSED(EINVAL, "bytes of a set that is not there", arg.cpus = 0);
	REFUSED(EFAULT, "a set of CPUs at a bad pointer", arg.cpus = (uintptr_t)BAD_POINTER);
	cpus[0] = 3;
	if (!online(1, false))
		die("CPU 1 does not go offline");
	REFUSED(EINVAL, "an offline CPU", );
	if (!online(1, true))
		die("CPU 1 does not come back");
}

static void setup_sizes(int fd, struct ptwatch_trace good)
{
	struct {
		struct ptwatch_trace arg;
		uint64_t more;
	} big = { .arg = good };

	big.arg.size = sizeof(big);
	big.more = 1ULL << 63;
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &big), E2BIG, "SETUP with an unknown byte set");
	big.more = 0;
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &big), "SETUP with unknown bytes of zero");
	is(big.arg.size, sizeof(big), "keeps the caller's size");
	is(big.arg.nr_cpus, 2, "and tells how many CPUs it set up");
	is(big.arg.buffer_size, good.buffer_size, "with what buffer");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_RELEASE), "RELEASE");
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, NULL), EFAULT, "SETUP from NULL");
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, BAD_POINTER), EFAULT, "SETUP from a bad pointer");
}

/* The result can't be written: the trace must not stay. */
static void setup_read_only(int fd, struct ptwatch_trace good)
{
	struct ptwatch_trace *arg = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (arg == MAP_FAILED)
		die("no memory");
	*arg = good;
	mprotect(arg, PAGE, PROT_READ);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_SETUP, arg), EFAULT, "SETUP with a read-only argument");
	munmap(arg, PAGE);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_START), EINVAL, "leaves no trace behind");
}

void test_setup(void)
{
	struct ptwatch_trace good = trace_arg(KERNEL_TRACE, 16 * PAGE);
	struct ptwatch_info info = { .size = sizeof(info) };
	int fd = open_device();

	if (ioctl(fd, PTWATCH_IOC_INFO, &info))
		die("INFO fails");
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_START), EINVAL, "START without a trace");
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), EINVAL, "STOP without a trace");
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_THAW), EINVAL, "THAW without a trace");
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_RELEASE), EINVAL, "RELEASE without a trace");

	setup_refusals(fd, good, info.max_buffer_size);
	FAILS(ioctl(fd, PTWATCH_IOC_TRACE_START), EINVAL, "after all of these there is no trace");
	WORKS(perf_pt_trace(0), "and perf can trace CPU 0");
	WORKS(perf_pt_trace(1), "and CPU 1");

	setup_sizes(fd, good);
	setup_read_only(fd, good);
	good.rtit_ctl |= PTWATCH_RTIT_CTL_MTCEN | 3ULL << 14 | PTWATCH_RTIT_CTL_CYCEN | 13ULL << 19 |
			 5ULL << 24 | PTWATCH_RTIT_CTL_DISRETC;
	WORKS(set_up_and_release(fd, good), "SETUP with every packet and the last of each field");
	good.rtit_ctl = PTWATCH_RTIT_CTL_USER;
	WORKS(set_up_and_release(fd, good), "SETUP with no packets but the least");
	good.buffer_size = PAGE;
	WORKS(set_up_and_release(fd, good), "SETUP with one page");
	close(fd);
}

/* ---- ownership ---- */

static const uint32_t rtit_msrs[] = { 0x560, 0x561, 0x570, 0x571, 0x572, 0x580, 0x581, 0x582, 0x583 };
#define NR_RTIT (sizeof(rtit_msrs) / sizeof(rtit_msrs[0]))

static void read_rtit(unsigned int cpu, uint64_t *to)
{
	char path[32];
	size_t i;
	int fd;

	snprintf(path, sizeof(path), "/dev/cpu/%u/msr", cpu);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		die("%s is not there: is msr.ko loaded?", path);
	for (i = 0; i < NR_RTIT; i++)
		if (pread(fd, &to[i], 8, rtit_msrs[i]) != 8)
			die("can't read MSR %#x", rtit_msrs[i]);
	close(fd);
}

static void same_msrs(const uint64_t *before, const uint64_t *after, unsigned int cpu)
{
	size_t i;

	for (i = 0; i < NR_RTIT; i++)
		is(after[i], before[i], "MSR %#x of CPU %u is as perf left it", rtit_msrs[i], cpu);
}

static void against_perf(void)
{
	uint64_t before[2][NR_RTIT], during[NR_RTIT], after[NR_RTIT];
	int fd = open_device(), perf;
	unsigned int cpu;

	for (cpu = 0; cpu < 2; cpu++) {
		ok(perf_pt_trace(cpu) > 0, "perf traces CPU %u", cpu);
		read_rtit(cpu, before[cpu]);
		ok(before[cpu][0], "and leaves its output base in MSR 0x560");
	}
	WORKS(setup(fd, 3), "SETUP after perf");
	FAILS(perf_pt_open(0), EBUSY, "perf is kept off CPU 0");
	FAILS(perf_pt_open(1), EBUSY, "and off CPU 1");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START");
	work_ms(20);
	FAILS(perf_pt_open(0), EBUSY, "also while it runs");
	read_rtit(0, during);
	is(during[2], KERNEL_TRACE | 1 | 1 << 8, "IA32_RTIT_CTL is what was asked for, TraceEn, ToPA");
	ok(during[0] != before[0][0], "the output goes elsewhere than perf's");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "STOP");
	read_rtit(0, during);
	is(during[2], 0, "IA32_RTIT_CTL is 0 then");
	FAILS(perf_pt_open(0), EBUSY, "perf is kept off a stopped trace, too");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_RELEASE), "RELEASE");
	for (cpu = 0; cpu < 2; cpu++) {
		read_rtit(cpu, after);
		same_msrs(before[cpu], after, cpu);
		ok(perf_pt_trace(cpu) > 0, "perf traces CPU %u again, into its own buffer", cpu);
	}

	/* RELEASE of a running trace, and end of a session with one. */
	read_rtit(0, before[0]);
	WORKS(setup(fd, 1), "SETUP on CPU 0 only");
	WORKS(perf_pt_trace(1), "perf has CPU 1 meanwhile");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_RELEASE), "RELEASE while it runs");
	read_rtit(0, after);
	same_msrs(before[0], after, 0);
	WORKS(setup(fd, 1), "SETUP");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START");
	close(fd);
	read_rtit(0, after);
	same_msrs(before[0], after, 0);

	fd = open_device();
	perf = perf_pt_open(1);
	WORKS(perf, "perf holds CPU 1");
	FAILS(setup(fd, 3), EBUSY, "SETUP on both CPUs then");
	WORKS(perf_pt_trace(0), "which left CPU 0 to perf");
	WORKS(setup(fd, 1), "SETUP on CPU 0");
	close(perf);
	close(fd);
}

static void against_each_other(void)
{
	int a = open_device(), b = open_device();
	struct ptwatch_trace bare = trace_arg(KERNEL_TRACE, PAGE);
	const volatile struct ptwatch_control *ca, *cb;
	uint8_t cpu0 = 1;

	WORKS(setup(a, 1), "a session takes CPU 0");
	FAILS(setup(a, 1), EBUSY, "a second SETUP in it");
	FAILS(setup(a, 2), EBUSY, "also for another CPU");
	FAILS(setup(b, 1), EBUSY, "another session's SETUP on CPU 0");
	FAILS(setup(b, 3), EBUSY, "or on both");
	WORKS(setup(b, 2), "but not on CPU 1");
	ca = map_control(a, 0);
	cb = map_control(b, 1);
	WORKS(ioctl(a, PTWATCH_IOC_TRACE_START), "START of the first");
	WORKS(ioctl(b, PTWATCH_IOC_TRACE_START), "and of the second");
	is(read_control(ca).state, PTWATCH_STATE_RUNNING, "CPU 0 runs");
	is(read_control(cb).state, PTWATCH_STATE_RUNNING, "CPU 1 runs");
	WORKS(ioctl(b, PTWATCH_IOC_TRACE_STOP), "STOP of the second");
	is(read_control(ca).state, PTWATCH_STATE_RUNNING, "CPU 0 still runs");
	is(read_control(cb).state, PTWATCH_STATE_STOPPED, "CPU 1 does not");
	WORKS(ioctl(a, PTWATCH_IOC_TRACE_RELEASE), "RELEASE of the first");
	WORKS(ioctl(b, PTWATCH_IOC_TRACE_RELEASE), "and of the second");
	munmap((void *)ca, PAGE);
	munmap((void *)cb, PAGE);

	/* Without a hold, perf would trace into memory of the past. */
	bare.pt_pmu_type = -1;
	bare.cpus = (uintptr_t)&cpu0;
	bare.cpus_size = 1;
	FAILS(setup_with(a, bare), EINVAL, "SETUP that says there is no intel_pt PMU");
	WORKS(setup(b, 1), "takes nothing");
	close(a);
	close(b);
}

void test_ownership(void)
{
	against_each_other();
	against_perf();
}

/* ---- mmap ---- */

static void *map(int fd, size_t size, int prot, int flags, uint64_t offset)
{
	return mmap(NULL, size, prot, flags, fd, offset);
}

static bool all_zero(const uint8_t *p, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		if (p[i])
			return false;
	return true;
}

static void mapping_refusals(int fd)
{
	const uint64_t size = 16 * PAGE;
	const int r = PROT_READ, rw = PROT_READ | PROT_WRITE, rx = PROT_READ | PROT_EXEC;
	const uint64_t control = PTWATCH_MMAP_CONTROL(0), data = PTWATCH_MMAP_DATA(0);

	FAILS(map(fd, PAGE, rw, MAP_SHARED, control), EPERM, "a writable control page");
	FAILS(map(fd, size, rw, MAP_SHARED, data), EPERM, "a writable buffer");
	FAILS(map(fd, PAGE, rx, MAP_SHARED, control), EPERM, "an executable control page");
	FAILS(map(fd, size, rx, MAP_SHARED, data), EPERM, "an executable buffer");
	FAILS(map(fd, PAGE, r, MAP_PRIVATE, control), EINVAL, "a private control page");
	FAILS(map(fd, size, r, MAP_PRIVATE, data), EINVAL, "a private buffer");
	FAILS(map(fd, 2 * PAGE, r, MAP_SHARED, control), EINVAL, "two control pages");
	FAILS(map(fd, size + PAGE, r, MAP_SHARED, data), EINVAL, "a page behind the buffer");
	FAILS(map(fd, PAGE, r, MAP_SHARED, control + PAGE), EINVAL, "an offset behind the control page");
	FAILS(map(fd, PAGE, r, MAP_SHARED, data + PAGE), EINVAL, "an offset inside the buffer");
	FAILS(map(fd, PAGE, r, MAP_SHARED, PTWATCH_MMAP_CONTROL(1)), EINVAL,
	      "the control page of a CPU that is not traced");
	FAILS(map(fd, PAGE, r, MAP_SHARED, PTWATCH_MMAP_DATA(7)), EINVAL,
	      "the buffer of a CPU that does not exist");
	FAILS(map(fd, PAGE, r, MAP_SHARED, PTWATCH_MMAP_CONTROL(0x7fffff)), EINVAL,
	      "the control page of the last CPU there could be");
}

static void fresh_control_page(const volatile struct ptwatch_control *page)
{
	struct ptwatch_control c = read_control(page);

	is(c.size, sizeof(c), "control.size");
	is(c.cpu, 0, "control.cpu");
	is(c.sequence % 2, 0, "control.sequence is even");
	is(c.state, PTWATCH_STATE_STOPPED, "control.state");
	is(c.flags, 0, "control.flags");
	is(c.bank, 0, "control.bank");
	is(c.data_size, 16 * PAGE, "control.data_size");
	is(c.head, 0, "control.head");
	is(c.tail, 0, "control.tail");
	is(c.lost, 0, "control.lost");
	is(c.start_tsc, 0, "control.start_tsc");
	is(c.stop_tsc, 0, "control.stop_tsc");
	is(c.rtit_ctl, KERNEL_TRACE | 1 | 1 << 8, "control.rtit_ctl, with TraceEn and ToPA");
	is(c.rtit_status, 0, "control.rtit_status");
	is(c.freeze_seq, 0, "control.freeze_seq");
	ok(all_zero((const uint8_t *)page + sizeof(c), PAGE - sizeof(c)),
	   "zeros to the end of the control page");
}

void test_mapping(void)
{
	const uint64_t size = 16 * PAGE;
	const volatile struct ptwatch_control *control;
	const uint8_t *data, *part;
	static uint8_t traced[16 * PAGE];
	int fd = open_device(), other, reader;

	FAILS(map(fd, PAGE, PROT_READ, MAP_SHARED, PTWATCH_MMAP_CONTROL(0)), EINVAL,
	      "no control page without a trace");
	if (setup(fd, 1))
		die("SETUP fails");
	mapping_refusals(fd);

	control = map_control(fd, 0);
	data = map_data(fd, 0, size);
	fresh_control_page(control);
	ok(all_zero(data, size), "the buffer is zero before first use");
	FAILS(mprotect((void *)data, size, PROT_READ | PROT_WRITE), EACCES,
	      "making the buffer writable");
	FAILS(mprotect((void *)control, PAGE, PROT_READ | PROT_WRITE), EACCES,
	      "making the control page writable");
	FAILS(mprotect((void *)data, size, PROT_READ | PROT_EXEC), EACCES,
	      "making the buffer executable");
	FAILS(munmap((void *)data, PAGE), EINVAL, "unmapping the buffer's first page");
	FAILS(munmap((void *)(data + size - PAGE), PAGE), EINVAL, "or its last");
	FAILS(munmap((void *)(data + 4 * PAGE), PAGE), EINVAL, "or one in the middle");
	FAILS(mremap((void *)data, size, size + PAGE, MREMAP_MAYMOVE), EFAULT, "growing a mapping");
	part = map_data(fd, 0, PAGE);
	WORKS(munmap((void *)part, PAGE), "a mapping of the buffer's beginning comes and goes");

	if (ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("START fails");
	work_ms(10);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_RELEASE), "RELEASE with mappings");
	memcpy(traced, data, size);
	ok(contains_psb(traced, size), "the buffer is still readable");
	is(read_control(control).state, PTWATCH_STATE_STOPPED, "the control page tells it stopped");
	ok(read_control(control).head > 0 || read_control(control).flags, "and where");
	FAILS(map(fd, PAGE, PROT_READ, MAP_SHARED, PTWATCH_MMAP_DATA(0)), EINVAL,
	      "there is nothing to map any more");

	/* A new trace is new memory; the old mapping stays what it was. */
	if (setup(fd, 1))
		die("SETUP fails");
	part = map_data(fd, 0, size);
	ok(all_zero(part, size), "the next trace's buffer is zero");
	ok(!memcmp(traced, data, size), "the old one still has its trace");
	munmap((void *)data, size);
	munmap((void *)control, PAGE);

	/* The mapping is a reference to the session. */
	close(fd);
	other = open_device();
	FAILS(setup(other, 1), EBUSY, "a mapping keeps the session after close");
	munmap((void *)part, size);
	WORKS(setup(other, 1), "which ends with the last mapping");
	close(other);

	/* Who only reads needs no write permission. */
	reader = open(PTWATCH_DEVICE, O_RDONLY | O_CLOEXEC);
	WORKS(reader, "open for reading");
	WORKS(setup(reader, 1), "SETUP through it");
	part = map(reader, size, PROT_READ, MAP_SHARED, PTWATCH_MMAP_DATA(0));
	if (WORKS((long)part, "mmap through it")) {
		FAILS(mprotect((void *)part, size, PROT_READ | PROT_WRITE), EACCES,
		      "but not writable");
		munmap((void *)part, size);
	}
	close(reader);
}

/* ---- tracing ---- */

/* So large that no machine, however fast, fills it between START and STOP. */
#define STARTED_SIZE	(1024 * PAGE)

static void start_and_stop(int fd)
{
	const volatile struct ptwatch_control *page = map_control(fd, 0);
	const uint8_t *data = map_data(fd, 0, STARTED_SIZE);
	struct ptwatch_control c;
	uint64_t before, after, first;

	before = rdtsc();
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START");
	after = rdtsc();
	c = read_control(page);
	is(c.state, PTWATCH_STATE_RUNNING, "the state is RUNNING");
	ok(c.start_tsc >= before && c.start_tsc <= after, "start_tsc lies in the call");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START again is no error");
	is(read_control(page).start_tsc, c.start_tsc, "and changes nothing");

	before = rdtsc();
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "STOP");
	after = rdtsc();
	c = read_control(page);
	is(c.state, PTWATCH_STATE_STOPPED, "the state is STOPPED");
	ok(c.stop_tsc >= before && c.stop_tsc <= after, "stop_tsc lies in the call");
	is(c.flags, 0, "a ring that is not full has not wrapped");
	ok(c.head > 16 && c.head < STARTED_SIZE, "head is behind some bytes");
	ok(starts_with_psb(data), "the trace begins with a PSB");
	ok(!all_zero(data + c.head - 8, 8), "the bytes before head were written");
	ok(all_zero(data + c.head, STARTED_SIZE - c.head), "those behind it were not");
	is(c.freeze_seq, 0, "nothing froze");
	is(c.rtit_status & 0x30, 0, "IA32_RTIT_STATUS has neither Error nor Stopped");
	is(c.tail + c.lost + c.bank, 0, "tail, lost and bank are 0");

	first = c.head;
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "STOP again is no error");
	work_ms(5);
	is(read_control(page).head, first, "nothing is traced after STOP");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START goes on");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "and STOP stops");
	c = read_control(page);
	ok(c.head > first, "behind what was there");
	ok(starts_with_psb(data + first), "with a new PSB");
	munmap((void *)page, PAGE);
	munmap((void *)data, STARTED_SIZE);
}

static void fill_ring(void)
{
	/* 7 pages are regions of 4, 2 and 1: the table has several entries. */
	struct ptwatch_trace arg = trace_arg(KERNEL_TRACE, 7 * PAGE);
	const volatile struct ptwatch_control *page;
	struct ptwatch_control c;
	const uint8_t *data;
	unsigned int tries;
	int fd = open_device();

	if (setup_with(fd, arg))
		die("SETUP fails");
	page = map_control(fd, 0);
	data = map_data(fd, 0, 7 * PAGE);
	for (tries = 0; tries < 100; tries++) {
		if (ioctl(fd, PTWATCH_IOC_TRACE_START))
			die("START fails");
		work_ms(50);
		if (ioctl(fd, PTWATCH_IOC_TRACE_STOP))
			die("STOP fails");
		c = read_control(page);
		if (c.flags & PTWATCH_CONTROL_WRAPPED)
			break;
	}
	is(c.flags, PTWATCH_CONTROL_WRAPPED, "a ring that is full is WRAPPED");
	ok(c.head < 7 * PAGE, "head is in the buffer");
	ok(!all_zero(data + 7 * PAGE - 64, 64), "its last bytes were written");
	ok(!all_zero(data + 4 * PAGE - 64, 64) && !all_zero(data + 4 * PAGE, 64),
	   "on both sides of the first region's end");
	is(c.state, PTWATCH_STATE_STOPPED, "the state is STOPPED");
	is(c.rtit_status & 0x30, 0, "IA32_RTIT_STATUS has neither Error nor Stopped");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START goes on");
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_STOP), "and STOP stops");
	is(read_control(page).flags, PTWATCH_CONTROL_WRAPPED, "it stays WRAPPED");
	munmap((void *)page, PAGE);
	munmap((void *)data, 7 * PAGE);
	close(fd);
}

/* With USER alone, what the kernel does leaves nothing: an idle CPU's trace is a PSB+ at most. */
static void user_only(void)
{
	const volatile struct ptwatch_control *page[2];
	struct ptwatch_trace arg = trace_arg(USER_TRACE, 64 * PAGE);
	uint64_t head[2];
	int fd = open_device();
	volatile unsigned int i;

	WORKS(setup_with(fd, arg), "SETUP of user code alone");
	page[0] = map_control(fd, 0);
	page[1] = map_control(fd, 1);
	is(read_control(page[0]).rtit_ctl, USER_TRACE | 1 | 1 << 8, "control.rtit_ctl says so");
	if (ioctl(fd, PTWATCH_IOC_TRACE_START))
		die("START fails");
	/* As many branches however slow the machine is: a bit each. */
	for (i = 0; i < 50000; i++)
		;
	if (ioctl(fd, PTWATCH_IOC_TRACE_STOP))
		die("STOP fails");
	head[0] = read_control(page[0]).head;
	head[1] = read_control(page[1]).head;
	ok(head[0] > 1000, "the CPU that works writes (%llu bytes)", (unsigned long long)head[0]);
	ok(head[1] < head[0] / 2, "the idle one next to nothing (%llu bytes)",
	   (unsigned long long)head[1]);
	munmap((void *)page[0], PAGE);
	munmap((void *)page[1], PAGE);
	close(fd);
}

/*
 * A hit inside START, before the CPU knows our buffer: the output MSRs are still perf's then, and
 * must not become ours.
 */
static void hit_inside_start(void)
{
	struct ptwatch_watch arg = watch_arg(symbol("ptw_rtit_start"), 8, PTWATCH_ACCESS_X);
	const volatile struct ptwatch_control *page;
	uint64_t perfs[NR_RTIT], ours[NR_RTIT];
	int fd = open_device();
	const uint8_t *data;
	uint32_t id;

	if (perf_pt_trace(0) <= 0)
		die("perf does not trace");
	read_rtit(0, perfs);
	if (setup(fd, 1))
		die("SETUP fails");
	page = map_control(fd, 0);
	data = map_data(fd, 0, 16 * PAGE);
	arg.actions |= PTWATCH_ACTION_FREEZE;
	id = add_watch(fd, arg);
	WORKS(ioctl(fd, PTWATCH_IOC_TRACE_START), "START with a watch that it hits itself");
	is(settled(fd, id).alarms, 1, "is an alarm");
	is(read_control(page).state, PTWATCH_STATE_FROZEN, "and freezes");
	read_rtit(0, ours);
	is(ours[2], 0, "IA32_RTIT_CTL is 0");
	ok(ours[0] != perfs[0], "the output never went to perf's memory");
	ok(starts_with_psb(data), "but to the session's buffer");
	ok(read_control(page).head >= 16, "as head tells");
	del_watch(fd, id);
	munmap((void *)page, PAGE);
	munmap((void *)data, 16 * PAGE);
	close(fd);
}

void test_tracing(void)
{
	int fd = open_device();

	if (setup_with(fd, trace_arg(KERNEL_TRACE, STARTED_SIZE)))
		die("SETUP fails");
	start_and_stop(fd);
	close(fd);
	fill_ring();
	user_only();
	hit_inside_start();
}
