// SPDX-License-Identifier: GPL-2.0
/* What the CPU enumerates about Intel PT, and what of it a session may ask for. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitops.h>
#include <linux/printk.h>
#include <linux/security.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <asm/cpufeature.h>
#include <asm/hw_breakpoint.h>
#include <asm/intel-family.h>
#include <asm/msr-index.h>
#include <asm/special_insns.h>
#include <asm/tsc.h>

#include "ptwatch.h"

enum { EAX, EBX, ECX, EDX };

/* SDM vol. 3C, "Intel PT capability enumeration", tables for leaf 0x14 subleaves 0 and 1 */
static const struct {
	const char *name;
	u8 subleaf;
	u8 reg;
	u32 mask;
} cap_table[] = {
	[PTW_CAP_CR3_FILTERING]		= { "cr3_filtering",		0, EBX, BIT(0) },
	[PTW_CAP_PSB_CYC]		= { "psb_cyc",			0, EBX, BIT(1) },
	[PTW_CAP_IP_FILTERING]		= { "ip_filtering",		0, EBX, BIT(2) },
	[PTW_CAP_MTC]			= { "mtc",			0, EBX, BIT(3) },
	[PTW_CAP_PTWRITE]		= { "ptwrite",			0, EBX, BIT(4) },
	[PTW_CAP_POWER_EVENTS]		= { "power_events",		0, EBX, BIT(5) },
	[PTW_CAP_EVENT_TRACE]		= { "event_trace",		0, EBX, BIT(7) },
	[PTW_CAP_TNT_DISABLE]		= { "tnt_disable",		0, EBX, BIT(8) },
	[PTW_CAP_TOPA_OUTPUT]		= { "topa_output",		0, ECX, BIT(0) },
	[PTW_CAP_TOPA_MULTIPLE_ENTRIES]	= { "topa_multiple_entries",	0, ECX, BIT(1) },
	[PTW_CAP_NUM_ADDRESS_RANGES]	= { "num_address_ranges",	1, EAX, GENMASK(2, 0) },
	[PTW_CAP_MTC_PERIODS]		= { "mtc_periods",		1, EAX, GENMASK(31, 16) },
	[PTW_CAP_CYCLE_THRESHOLDS]	= { "cycle_thresholds",		1, EBX, GENMASK(15, 0) },
	[PTW_CAP_PSB_PERIODS]		= { "psb_periods",		1, EBX, GENMASK(31, 16) },
};

/* IA32_VMX_MISC (SDM vol. 3D, appendix A.6): Intel PT can be used in VMX operation */
#define VMX_MISC_INTEL_PT	BIT_ULL(14)

struct leaves {
	u32 reg[2][4];
};

/* What all CPUs have. */
static struct leaves leaf_14;
static u32 leaf_15[4];
bool ptw_vmx_excludes;

static bool has_pt(void)
{
	return boot_cpu_data.x86_vendor == X86_VENDOR_INTEL && boot_cpu_has(X86_FEATURE_INTEL_PT);
}

static void read_leaves(struct leaves *leaves)
{
	u32 (*r)[4] = leaves->reg;

	memset(leaves, 0, sizeof(*leaves));
	cpuid_count(0x14, 0, &r[0][EAX], &r[0][EBX], &r[0][ECX], &r[0][EDX]);
	if (r[0][EAX])
		cpuid_count(0x14, 1, &r[1][EAX], &r[1][EBX], &r[1][ECX], &r[1][EDX]);
}

static u32 cap_of(const struct leaves *leaves, enum ptw_cap cap)
{
	u32 mask = cap_table[cap].mask;

	return (leaves->reg[cap_table[cap].subleaf][cap_table[cap].reg] & mask) >> __ffs(mask);
}

/* Each capability is a bit or a set of bits, but for one, which is a number. */
static bool has_all(const struct leaves *cpu, const struct leaves *all)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cap_table); i++) {
		u32 want = cap_of(all, i), have = cap_of(cpu, i);

		if (i == PTW_CAP_NUM_ADDRESS_RANGES ? have < want : want & ~have)
			return false;
	}
	return true;
}

static DEFINE_RAW_SPINLOCK(intersect_lock);

static void intersect(void *info)
{
	u32 (*all)[4] = leaf_14.reg, ranges;
	struct leaves mine;
	unsigned int i;

	read_leaves(&mine);
	raw_spin_lock(&intersect_lock);
	ranges = min(cap_of(&mine, PTW_CAP_NUM_ADDRESS_RANGES),
		     cap_of(&leaf_14, PTW_CAP_NUM_ADDRESS_RANGES));
	for (i = EAX; i <= EDX; i++) {
		/* EAX of subleaf 0 is the number of the last subleaf. */
		all[0][i] = i == EAX ? min(all[0][i], mine.reg[0][i]) : all[0][i] & mine.reg[0][i];
		all[1][i] &= mine.reg[1][i];
	}
	all[1][EAX] = (all[1][EAX] & ~cap_table[PTW_CAP_NUM_ADDRESS_RANGES].mask) | ranges;
	raw_spin_unlock(&intersect_lock);
}

bool ptw_caps_cpu_ok(void)
{
	struct leaves mine;

	read_leaves(&mine);
	return has_all(&mine, &leaf_14);
}

/*
 * VMX_MISC[14] clear: VMXON clears TraceEn, and any write of IA32_RTIT_CTL while VMX is on faults
 * (SDM vol. 3D, appendix A.6).
 */
static bool vmx_forbids_pt(void)
{
	u64 misc;

	return boot_cpu_has(X86_FEATURE_VMX) && !rdmsrq_safe(MSR_IA32_VMX_MISC, &misc) &&
	       !(misc & VMX_MISC_INTEL_PT);
}

void ptw_caps_init(void)
{
	unsigned int i;

	if (!has_pt())
		return;
	read_leaves(&leaf_14);
	/* The cores of a hybrid part differ: of each capability, what all of them have. */
	on_each_cpu(intersect, NULL, true);
	if (boot_cpu_data.cpuid_level >= 0x15)
		cpuid_count(0x15, 0, &leaf_15[EAX], &leaf_15[EBX], &leaf_15[ECX], &leaf_15[EDX]);
	ptw_vmx_excludes = vmx_forbids_pt();
	for (i = 0; i < ARRAY_SIZE(cap_table); i++)
		pr_debug("%s %#x\n", cap_table[i].name, ptw_cap(i));
}

u32 ptw_cap(enum ptw_cap cap)
{
	return cap_of(&leaf_14, cap);
}

unsigned int ptw_caps_ranges(void)
{
	if (!ptw_cap(PTW_CAP_IP_FILTERING))
		return 0;
	return min(ptw_cap(PTW_CAP_NUM_ADDRESS_RANGES), PTW_MAX_RANGES);
}

bool ptw_caps_traceable(void)
{
	return ptw_cap(PTW_CAP_TOPA_OUTPUT);
}

u32 ptw_caps_modes(void)
{
	u32 modes = 0;

	if (!ptw_caps_traceable())
		return 0;
	modes = BIT(PTWATCH_MODE_RING);
	/*
	 * With one entry to a table (Broadwell), INT comes before the region is full, STOP loses
	 * what the CPU still holds, and nothing tells that the region was gone round: good for a
	 * ring of one region and no more.
	 */
	if (!ptw_cap(PTW_CAP_TOPA_MULTIPLE_ENTRIES))
		return modes;
	modes |= BIT(PTWATCH_MODE_BANKS);
	if (ptw_pmi_available())
		modes |= BIT(PTWATCH_MODE_STREAM);
	return modes;
}

bool ptw_caps_vmx_conflict(void)
{
	return ptw_vmx_excludes && (native_read_cr4() & X86_CR4_VMXE);
}

/* BDM106: on Broadwell, TraceEn with BranchEn clear faults. */
static bool branch_en_required(void)
{
	if (boot_cpu_data.x86 != 6)
		return false;
	switch (boot_cpu_data.x86_model) {
	case 0x3d: /* Broadwell */
	case 0x47: /* Broadwell, Iris */
	case 0x4f: /* Broadwell server */
	case 0x56: /* Broadwell-DE */
		return true;
	default:
		return false;
	}
}

static u64 rtit_ctl_available(void)
{
	u64 ctl = 0;

	if (!ptw_caps_traceable())
		return 0;
	ctl = RTIT_CTL_OS | RTIT_CTL_USR | RTIT_CTL_TSC_EN | RTIT_CTL_DISRETC | RTIT_CTL_BRANCH_EN;
	if (ptw_cap(PTW_CAP_MTC))
		ctl |= RTIT_CTL_MTC_EN | RTIT_CTL_MTC_RANGE;
	if (ptw_cap(PTW_CAP_PSB_CYC))
		ctl |= RTIT_CTL_CYCLEACC | RTIT_CTL_CYC_THRESH | RTIT_CTL_PSB_FREQ;
	if (ptw_cap(PTW_CAP_PTWRITE))
		ctl |= PTWATCH_RTIT_CTL_PTWEN | PTWATCH_RTIT_CTL_FUPONPTW;
	if (ptw_cap(PTW_CAP_POWER_EVENTS))
		ctl |= PTWATCH_RTIT_CTL_PWREVTEN;
	if (ptw_cap(PTW_CAP_EVENT_TRACE))
		ctl |= PTWATCH_RTIT_CTL_EVENTEN;
	if (ptw_cap(PTW_CAP_TNT_DISABLE))
		ctl |= PTWATCH_RTIT_CTL_DISTNT;
	return ctl;
}

/*
 * Value n of a control field is valid if bit n of the enumeration is set; 0 stands for "unused" and
 * is always valid.
 */
static bool field_valid(u64 ctl, u64 mask, u32 valid)
{
	unsigned int value = (ctl & mask) >> __ffs64(mask);

	return !value || (valid & BIT(value));
}

int ptw_caps_check_rtit_ctl(u64 ctl, u64 *unsupported)
{
	const u64 known = RTIT_CTL_OS | RTIT_CTL_USR | RTIT_CTL_TSC_EN | RTIT_CTL_DISRETC |
			  RTIT_CTL_BRANCH_EN | RTIT_CTL_MTC_EN | RTIT_CTL_MTC_RANGE |
			  RTIT_CTL_CYCLEACC | RTIT_CTL_CYC_THRESH | RTIT_CTL_PSB_FREQ |
			  PTWATCH_RTIT_CTL_PTWEN | PTWATCH_RTIT_CTL_FUPONPTW |
			  PTWATCH_RTIT_CTL_PWREVTEN | PTWATCH_RTIT_CTL_EVENTEN |
			  PTWATCH_RTIT_CTL_DISTNT;
	u64 lacks;

	if (ctl & ~known)
		return -EINVAL;
	if (!(ctl & (RTIT_CTL_OS | RTIT_CTL_USR)))
		return -EINVAL;
	if (!(ctl & RTIT_CTL_MTC_EN) && (ctl & RTIT_CTL_MTC_RANGE))
		return -EINVAL;
	if (!(ctl & RTIT_CTL_CYCLEACC) && (ctl & RTIT_CTL_CYC_THRESH))
		return -EINVAL;
	if (!(ctl & PTWATCH_RTIT_CTL_PTWEN) && (ctl & PTWATCH_RTIT_CTL_FUPONPTW))
		return -EINVAL;

	lacks = ctl & ~rtit_ctl_available();
	if (!(ctl & RTIT_CTL_BRANCH_EN) && branch_en_required())
		lacks |= RTIT_CTL_BRANCH_EN;
	if ((ctl & RTIT_CTL_MTC_EN) &&
	    !(ptw_cap(PTW_CAP_MTC_PERIODS) &
	      BIT((ctl & RTIT_CTL_MTC_RANGE) >> RTIT_CTL_MTC_RANGE_OFFSET)))
		lacks |= RTIT_CTL_MTC_RANGE;
	if (!field_valid(ctl, RTIT_CTL_CYC_THRESH, ptw_cap(PTW_CAP_CYCLE_THRESHOLDS)))
		lacks |= RTIT_CTL_CYC_THRESH;
	if (!field_valid(ctl, RTIT_CTL_PSB_FREQ, ptw_cap(PTW_CAP_PSB_PERIODS)))
		lacks |= RTIT_CTL_PSB_FREQ;
	*unsupported = lacks;
	return lacks ? -EOPNOTSUPP : 0;
}

void ptw_caps_fill_info(struct ptwatch_info *info)
{
	u64 platform_info;

	info->abi = PTWATCH_ABI_VERSION;
	if (has_pt())
		info->flags |= PTWATCH_INFO_PT;
	if (ptw_caps_traceable())
		info->flags |= PTWATCH_INFO_TRACEABLE;
	if (ptw_caps_traceable() && !ptw_cap(PTW_CAP_TOPA_MULTIPLE_ENTRIES))
		info->flags |= PTWATCH_INFO_SINGLE_REGION;
	if (ptw_cap(PTW_CAP_CR3_FILTERING))
		info->flags |= PTWATCH_INFO_CR3_FILTER;
	if (boot_cpu_has(X86_FEATURE_PTI))
		info->flags |= PTWATCH_INFO_PTI;
	if (ptw_vmx_excludes)
		info->flags |= PTWATCH_INFO_VMX_CONFLICT;
	if (security_locked_down(LOCKDOWN_PERF))
		info->flags |= PTWATCH_INFO_LOCKDOWN;
	info->family = boot_cpu_data.x86;
	info->model = boot_cpu_data.x86_model;
	info->stepping = boot_cpu_data.x86_stepping;
	memcpy(info->cpuid_14_0, leaf_14.reg[0], sizeof(info->cpuid_14_0));
	memcpy(info->cpuid_14_1, leaf_14.reg[1], sizeof(info->cpuid_14_1));
	memcpy(info->cpuid_15, leaf_15, sizeof(info->cpuid_15));
	info->address_ranges = ptw_caps_ranges();
	info->mtc_periods = ptw_cap(PTW_CAP_MTC) ? ptw_cap(PTW_CAP_MTC_PERIODS) : 0;
	info->cyc_thresholds = ptw_cap(PTW_CAP_PSB_CYC) ? ptw_cap(PTW_CAP_CYCLE_THRESHOLDS) : 0;
	info->psb_periods = ptw_cap(PTW_CAP_PSB_CYC) ? ptw_cap(PTW_CAP_PSB_PERIODS) : 0;
	if (!rdmsrq_safe(MSR_PLATFORM_INFO, &platform_info))
		info->max_nonturbo_ratio = (platform_info >> 8) & 0xff;
	info->tsc_khz = tsc_khz;
	info->rtit_ctl = rtit_ctl_available();
	info->max_buffer_size = ptw_buffer_max_size();
	info->breakpoint_slots = HBP_NUM;
	info->modes = ptw_caps_modes();
	if (branch_en_required())
		info->rtit_ctl_required = RTIT_CTL_BRANCH_EN;
}
