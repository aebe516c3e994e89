// SPDX-License-Identifier: BSD-2-Clause
#include "control/machine.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "common/number.h"

enum { EAX, EBX, ECX, EDX };

const struct ptw_pt_capability ptw_pt_capabilities[] = {
	{ "cr3_filter",		"trace one address space only (CR3 match)",		EBX, 0 },
	{ "psb_cyc",		"choose the PSB period; cycle-accurate mode",		EBX, 1 },
	{ "address_filter",	"address ranges to trace or to stop at; state kept over warm reset", EBX, 2 },
	{ "mtc",		"MTC packets: time between TSC packets",		EBX, 3 },
	{ "ptwrite",		"PTWRITE instruction",					EBX, 4 },
	{ "power_events",	"power event packets",					EBX, 5 },
	{ "psb_pmi_preserve",	"PSB and PMI state can be saved and restored",		EBX, 6 },
	{ "event_trace",	"interrupt and event packets",				EBX, 7 },
	{ "tnt_disable",	"TNT packets can be switched off",			EBX, 8 },
	{ "topa",		"output to a table of regions (ToPA)",			ECX, 0 },
	{ "topa_multi",		"ToPA tables with many regions",			ECX, 1 },
	{ "single_range",	"output to one contiguous range",			ECX, 2 },
	{ "trace_transport",	"output to the trace transport subsystem",		ECX, 3 },
	{ "lip",		"addresses in packets are linear, with CS base (LIP)",	ECX, 31 },
};
const size_t ptw_pt_capability_count = sizeof(ptw_pt_capabilities) / sizeof(ptw_pt_capabilities[0]);

const struct ptw_rtit_field ptw_rtit_fields[] = {
	{ "OS",		"trace the kernel",				PTWATCH_RTIT_CTL_OS },
	{ "User",	"trace user code",				PTWATCH_RTIT_CTL_USER },
	{ "BranchEn",	"branches",					PTWATCH_RTIT_CTL_BRANCHEN },
	{ "TSCEn",	"TSC packets",					PTWATCH_RTIT_CTL_TSCEN },
	{ "MTCEn",	"MTC packets",					PTWATCH_RTIT_CTL_MTCEN },
	{ "MTCFreq",	"crystal clocks from MTC to MTC, 2^n",		PTWATCH_RTIT_CTL_MTCFREQ },
	{ "CYCEn",	"cycle counts",					PTWATCH_RTIT_CTL_CYCEN },
	{ "CycThresh",	"least cycles from CYC to CYC, 2^(n-1)",	PTWATCH_RTIT_CTL_CYCTHRESH },
	{ "PSBFreq",	"bytes from PSB to PSB, 2 KiB << n",		PTWATCH_RTIT_CTL_PSBFREQ },
	{ "DisRETC",	"no RET compression",				PTWATCH_RTIT_CTL_DISRETC },
	{ "PTWEn",	"PTWRITE",					PTWATCH_RTIT_CTL_PTWEN },
	{ "FUPonPTW",	"the address of each PTWRITE",			PTWATCH_RTIT_CTL_FUPONPTW },
	{ "PwrEvtEn",	"power events",					PTWATCH_RTIT_CTL_PWREVTEN },
	{ "EventEn",	"interrupts and other events",			PTWATCH_RTIT_CTL_EVENTEN },
	{ "DisTNT",	"no TNT packets",				PTWATCH_RTIT_CTL_DISTNT },
};
const size_t ptw_rtit_field_count = sizeof(ptw_rtit_fields) / sizeof(ptw_rtit_fields[0]);

uint32_t ptw_rtit_values(const struct ptwatch_info *info, const struct ptw_rtit_field *field)
{
	if (!(info->rtit_ctl & field->mask))
		return 0;
	switch (field->mask) {
	case PTWATCH_RTIT_CTL_MTCFREQ:
		return info->mtc_periods;
	case PTWATCH_RTIT_CTL_CYCTHRESH:
		return info->cyc_thresholds;
	case PTWATCH_RTIT_CTL_PSBFREQ:
		return info->psb_periods;
	default:
		return info->rtit_ctl_required & field->mask ? 1U << 1 : 1U << 0 | 1U << 1;
	}
}

char *ptw_rtit_names(uint64_t ctl, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < ptw_rtit_field_count && used < size; i++)
		if (ctl & ptw_rtit_fields[i].mask)
			used += snprintf(buf + used, size - used, "%s%s", used ? ", " : "", ptw_rtit_fields[i].name);
	return buf;
}

bool ptw_pt_has(const struct ptwatch_info *info, const struct ptw_pt_capability *capability)
{
	return info->cpuid_14_0[capability->reg] >> capability->bit & 1;
}

#if defined(__x86_64__) || defined(__i386__)
static void cpuid(unsigned int leaf, unsigned int subleaf, uint32_t *reg)
{
	if (!__get_cpuid_count(leaf, subleaf, &reg[EAX], &reg[EBX], &reg[ECX], &reg[EDX]))
		memset(reg, 0, 4 * sizeof(*reg));
}

void ptw_machine_cpuid(struct ptwatch_info *info)
{
	uint32_t reg[4];

	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->breakpoint_slots = 4;
	cpuid(1, 0, reg);
	info->stepping = reg[EAX] & 0xf;
	info->model = reg[EAX] >> 4 & 0xf;
	info->family = reg[EAX] >> 8 & 0xf;
	if (info->family == 6 || info->family == 0xf)
		info->model |= reg[EAX] >> 12 & 0xf0;
	if (info->family == 0xf)
		info->family += reg[EAX] >> 20 & 0xff;
	cpuid(0x15, 0, info->cpuid_15);
	cpuid(7, 0, reg);
	if (!(reg[EBX] & 1U << 25))
		return;
	info->flags |= PTWATCH_INFO_PT;
	cpuid(0x14, 0, info->cpuid_14_0);
	if (info->cpuid_14_0[EAX] >= 1)
		cpuid(0x14, 1, info->cpuid_14_1);
	if (info->cpuid_14_0[ECX] & 1U << 1)
		info->flags |= PTWATCH_INFO_TRACEABLE;
	if (info->cpuid_14_0[EBX] & 1U << 2)
		info->address_ranges = info->cpuid_14_1[EAX] & 7;
	if (info->cpuid_14_0[EBX] & 1U << 3)
		info->mtc_periods = info->cpuid_14_1[EAX] >> 16;
	if (info->cpuid_14_0[EBX] & 1U << 1) {
		info->cyc_thresholds = info->cpuid_14_1[EBX] & 0xffff;
		info->psb_periods = info->cpuid_14_1[EBX] >> 16;
	}
}

const char *ptw_no_pt(void)
{
	uint32_t reg[4];

	cpuid(0, 0, reg);
	if (reg[EBX] != signature_INTEL_ebx || reg[ECX] != signature_INTEL_ecx || reg[EDX] != signature_INTEL_edx)
		return "this CPU has no Intel PT (only Intel's have)";
	/* ECX bit 31 is what hypervisors set and CPUs don't. */
	cpuid(1, 0, reg);
	if (reg[ECX] & 1U << 31)
		return "this CPU has no Intel PT (in this VM: the hypervisor hides it)";
	return "this CPU has no Intel PT";
}
#else
const char *ptw_no_pt(void)
{
	return "this CPU has no Intel PT (only Intel's have)";
}

void ptw_machine_cpuid(struct ptwatch_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
}
#endif

bool ptw_five_levels(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[4096];
	bool found = false, yes = false;

	/* The kernel takes the flag away where it has no use for it. */
	while (file && !found && fgets(line, sizeof(line), file)) {
		found = !strncmp(line, "flags", 5);
		yes = found && (strstr(line, " la57 ") || strstr(line, " la57\n"));
	}
	if (file)
		fclose(file);
	return yes;
}

int ptw_read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");
	int ret = 0;

	buf[0] = '\0';
	if (!file)
		return -errno;
	if (!fgets(buf, size, file))
		ret = ferror(file) ? -EIO : -ENODATA;
	buf[strcspn(buf, "\n")] = '\0';
	fclose(file);
	return ret;
}

int ptw_pt_pmu_type(void)
{
	char line[32];
	uint64_t type;

	if (ptw_read_line("/sys/bus/event_source/devices/intel_pt/type", line, sizeof(line)) ||
	    ptw_parse_uint(line, 0, INT32_MAX, &type))
		return -1;
	return (int)type;
}

int ptw_online_cpus(uint8_t **bitmap, size_t *size)
{
	char line[4096];

	if (ptw_read_line("/sys/devices/system/cpu/online", line, sizeof(line)))
		return -1;
	return ptw_parse_cpus(line, bitmap, size);
}

enum ptw_lockdown ptw_lockdown(void)
{
	char line[128];

	/* The mode in force is the one in brackets: "none [integrity] confidentiality". */
	if (ptw_read_line("/sys/kernel/security/lockdown", line, sizeof(line)))
		return PTW_LOCKDOWN_UNKNOWN;
	if (strstr(line, "[none]"))
		return PTW_LOCKDOWN_NONE;
	if (strstr(line, "[integrity]"))
		return PTW_LOCKDOWN_INTEGRITY;
	if (strstr(line, "[confidentiality]"))
		return PTW_LOCKDOWN_CONFIDENTIALITY;
	return PTW_LOCKDOWN_UNKNOWN;
}

const char *ptw_lockdown_name(enum ptw_lockdown mode)
{
	static const char *const name[] = { "unknown", "none", "integrity", "confidentiality" };

	return name[mode];
}

static int open_event(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	attr->size = sizeof(*attr);
	return syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

int ptw_pt_probe_perf(int pmu_type, int cpu)
{
	struct perf_event_attr attr = { .disabled = 1 };
	int fd;

	if (pmu_type < 0)
		return -ENODEV;
	attr.type = pmu_type;
	/* Not BranchEn: where bit 0 is clear the driver sets it itself, and refuses who asks for it. */
	attr.config = PTWATCH_RTIT_CTL_TSCEN;
	fd = open_event(&attr, -1, cpu);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

void ptw_perf_time(struct ptw_pt_params *params)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.disabled = 1,
		.exclude_kernel = 1,
	};
	volatile struct perf_event_mmap_page *page;
	size_t size = sysconf(_SC_PAGESIZE);
	uint32_t lock;
	int fd;

	params->have_time = false;
	/*
	 * An event of a CPU, not of a task: opening one of a task switches on perf's part of the scheduler
	 * (the static branch perf_sched_events), and a second after closing it off again. The trace would
	 * run through code that is not what /proc/kcore shows at its end, and could not be decoded.
	 */
	fd = open_event(&attr, -1, sched_getcpu());
	if (fd < 0)
		return;
	page = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return;
	/* The kernel updates the page under a sequence count of its own. */
	do {
		lock = page->lock;
		atomic_thread_fence(memory_order_acquire);
		params->have_time = page->cap_user_time_zero;
		params->time_shift = page->time_shift;
		params->time_mult = page->time_mult;
		params->time_zero = page->time_zero;
		atomic_thread_fence(memory_order_acquire);
	} while (page->lock != lock || lock & 1);
	munmap((void *)page, size);
}
