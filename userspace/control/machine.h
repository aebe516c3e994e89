/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machine and its kernel tell about themselves, with and without our module: CPUID, sysfs, perf. */
#ifndef PTWATCH_CONTROL_MACHINE_H
#define PTWATCH_CONTROL_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/ptwatch.h>

#include "common/error.h"
#include "decode/pt_params.h"

/** struct ptw_pt_capability - one bit of CPUID leaf 0x14 subleaf 0 (SDM vol. 3C, "Intel Processor Trace") */
struct ptw_pt_capability {
	const char *name;	/* as a program reads it */
	const char *meaning;	/* as a person reads it */
	uint8_t reg;		/* 0 EAX, 1 EBX, 2 ECX, 3 EDX */
	uint8_t bit;
};

extern const struct ptw_pt_capability ptw_pt_capabilities[];
extern const size_t ptw_pt_capability_count;

/** ptw_pt_has() - whether @info says that the CPU has @capability */
bool ptw_pt_has(const struct ptwatch_info *info, const struct ptw_pt_capability *capability);

/** struct ptw_rtit_field - a bit or field of IA32_RTIT_CTL that a session may set (<linux/ptwatch.h>) */
struct ptw_rtit_field {
	const char *name;	/* as the SDM calls it */
	const char *meaning;	/* as a person reads it */
	uint64_t mask;
};

extern const struct ptw_rtit_field ptw_rtit_fields[];
extern const size_t ptw_rtit_field_count;

/**
 * ptw_rtit_values() - which values of @field this CPU takes
 * Return: bit n set: n; 0: the field can't be set to anything but 0.
 */
uint32_t ptw_rtit_values(const struct ptwatch_info *info, const struct ptw_rtit_field *field);

/** ptw_rtit_names() - the fields that @ctl has bits of, "PTWEn, EventEn". Return: @buf. */
char *ptw_rtit_names(uint64_t ctl, char *buf, size_t size);

/**
 * ptw_machine_cpuid() - fill the fields of @info that CPUID alone gives, for when the module can't
 *
 * Of PTWATCH_INFO_* only PT and TRACEABLE, as far as CPUID tells; rtit_ctl, tsc_khz, max_nonturbo_ratio and
 * the buffer size stay 0.
 */
void ptw_machine_cpuid(struct ptwatch_info *info);

/** ptw_no_pt() - "this CPU has no Intel PT", with the reason as far as CPUID tells it; for when it has none */
const char *ptw_no_pt(void);

/**
 * ptw_five_levels() - whether the kernel uses 5-level page tables
 *
 * Then its half of the addresses begins at 0xff00000000000000 rather than at 0xffff800000000000.
 */
bool ptw_five_levels(void);

/** ptw_read_line() - the first line of a small file, without newline. Return: 0, or -errno. */
int ptw_read_line(const char *path, char *buf, size_t size);

/** ptw_pt_pmu_type() - number of perf's intel_pt PMU; -1: the kernel has none */
int ptw_pt_pmu_type(void);

/**
 * ptw_online_cpus() - the CPUs that are online, as ptw_parse_cpus() gives them
 * Return: how many, or -1.
 */
int ptw_online_cpus(uint8_t **bitmap, size_t *size);

/** enum ptw_lockdown - the kernel's lockdown mode */
enum ptw_lockdown {
	PTW_LOCKDOWN_UNKNOWN,	/* securityfs is not mounted, or the kernel has no lockdown */
	PTW_LOCKDOWN_NONE,
	PTW_LOCKDOWN_INTEGRITY,
	PTW_LOCKDOWN_CONFIDENTIALITY,
};
enum ptw_lockdown ptw_lockdown(void);
const char *ptw_lockdown_name(enum ptw_lockdown mode);

/**
 * ptw_pt_probe_perf() - whether perf could take Intel PT on @cpu right now
 *
 * Opens a disabled event and closes it at once; nothing is traced.
 *
 * Return: 0 free; -EBUSY someone holds it; another -errno: can't tell (no intel_pt PMU, no rights).
 */
int ptw_pt_probe_perf(int pmu_type, int cpu);

/**
 * ptw_perf_time() - TSC to perf's clock, as the kernel publishes it in the page of any perf event
 * @params: out: have_time and time_*; have_time stays false where the kernel does not vouch for the TSC
 */
void ptw_perf_time(struct ptw_pt_params *params);

#endif /* PTWATCH_CONTROL_MACHINE_H */
