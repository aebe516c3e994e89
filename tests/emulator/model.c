/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of CPU models. */
#include "model.h"

#include <string.h>

/*
 * TSC ticks per crystal tick. The real parts have 84 or so. TCG executes some fifty times fewer
 * instructions per second than they do while its TSC runs at the host's rate, so with a real ratio
 * every few dozen instructions would get an MTC. A crystal that is slower by the same factor keeps
 * the density of timing packets realistic. Software must take the ratio from CPUID anyway.
 */
#define CRYSTAL_RATIO 504

/* Version 4, 4 counters of 48 bits, 7 events known; 3 fixed counters of 48 bits. */
#define PMU_V4_EAX 0x07300404
#define PMU_V4_EDX 0x00000603

/* What all models with timing packets have in common. */
#define TIMING \
	.mtc_periods = 0x0249, \
	.cyc_thresholds = 0x3fff, \
	.psb_freqs = 0x003f, \
	.tsc_denominator = 2, \
	.tsc_numerator = 2 * CRYSTAL_RATIO

/* What TCG fixes, and the PMU that suits all of them. */
#define COMMON \
	.base_ratio = 21, \
	.pmu_eax = PMU_V4_EAX, \
	.pmu_edx = PMU_V4_EDX, \
	.phys_bits = 40, \
	.virt_bits = 48

#define SKYLAKE_EBX (PT_CAP_CR3_FILTER | PT_CAP_PSB_CYC | PT_CAP_IP_FILTER | PT_CAP_MTC)
#define ALL_ECX (PT_CAP_TOPA | PT_CAP_TOPA_MULTI | PT_CAP_SINGLE_RANGE)

static const struct model models[] = {
	{
		.name = "skylake-server",
		.about = "2 ranges, MTC, CYC, CR3 filter; the default",
		.qemu_cpu = "Skylake-Server",
		.pt_ebx = SKYLAKE_EBX,
		.pt_ecx = ALL_ECX,
		.num_ranges = 2,
		.tsx = true,
		.vmx = VMX_NONE,
		TIMING, COMMON,
	},
	{
		.name = "skylake-client",
		.about = "skylake-server as the client part, which has more errata",
		.qemu_cpu = "Skylake-Client",
		.pt_ebx = SKYLAKE_EBX,
		.pt_ecx = ALL_ECX,
		.num_ranges = 2,
		.tsx = true,
		.vmx = VMX_NONE,
		TIMING, COMMON,
	},
	{
		.name = "goldmont",
		.about = "skylake-server with PTWRITE, as an Atom, which has errata of its own",
		.qemu_cpu = "Denverton",
		.pt_ebx = SKYLAKE_EBX | PT_CAP_PTWRITE,
		.pt_ecx = ALL_ECX,
		.num_ranges = 2,
		.vmx = VMX_NONE,
		TIMING, COMMON,
	},
	{
		.name = "broadwell",
		.about = "single-entry ToPA, BranchEn always on; no ranges, no MTC, no CYC; PT or VMX",
		.qemu_cpu = "Broadwell",
		.pt_ebx = PT_CAP_CR3_FILTER,
		.pt_ecx = PT_CAP_TOPA,
		.tsx = true,
		.vmx = VMX_WITHOUT_PT,
		.branch_always = true,
		COMMON,
	},
	{
		.name = "icelake-server",
		.about = "skylake-server with 4 ranges, PTWRITE and VMX",
		.qemu_cpu = "Icelake-Server",
		.pt_ebx = SKYLAKE_EBX | PT_CAP_PTWRITE,
		.pt_ecx = ALL_ECX,
		.num_ranges = 4,
		.tsx = true,
		.vmx = VMX_WITH_PT,
		TIMING, COMMON,
	},
	{
		.name = "sapphirerapids",
		.about = "icelake-server with 2 ranges, power events, PSB and PMI preservation",
		.qemu_cpu = "SapphireRapids",
		.pt_ebx = SKYLAKE_EBX | PT_CAP_PTWRITE | PT_CAP_POWER | PT_CAP_PRESERVE,
		.pt_ecx = ALL_ECX,
		.num_ranges = 2,
		.tsx = true,
		.vmx = VMX_WITH_PT,
		TIMING, COMMON,
	},
	{
		.name = "alderlake-n",
		.about = "a client: all of sapphirerapids, event trace and TNT disable",
		.qemu_cpu = "Skylake-Client,model=190,stepping=0,+monitor",
		.pt_ebx = SKYLAKE_EBX | PT_CAP_PTWRITE | PT_CAP_POWER | PT_CAP_PRESERVE | PT_CAP_EVENT |
			  PT_CAP_NO_TNT,
		.pt_ecx = ALL_ECX,
		.num_ranges = 4,
		.vmx = VMX_WITH_PT,
		TIMING, COMMON,
	},
	{
		.name = "single-entry",
		.about = "skylake-server with single-entry ToPA as the only output",
		.qemu_cpu = "Skylake-Server",
		.pt_ebx = SKYLAKE_EBX,
		.pt_ecx = PT_CAP_TOPA,
		.num_ranges = 2,
		.tsx = true,
		TIMING, COMMON,
	},
	{
		.name = "none",
		.about = "what QEMU has without the emulator: neither Intel PT nor a PMU",
		.qemu_cpu = "Skylake-Server",
		.phys_bits = 40,
		.virt_bits = 48,
	},
};

#define NUM_MODELS (sizeof(models) / sizeof(models[0]))

const struct model *model_find(const char *name)
{
	for (size_t i = 0; i < NUM_MODELS; i++)
		if (!strcmp(models[i].name, name))
			return &models[i];
	return NULL;
}

const struct model *model_default(void)
{
	return &models[0];
}

const char *model_names(void)
{
	static char names[256];
	size_t n = 0;

	for (size_t i = 0; i < NUM_MODELS; i++)
		n += snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", models[i].name);
	return names;
}

void model_list(FILE *to)
{
	for (size_t i = 0; i < NUM_MODELS; i++)
		fprintf(to, "      %-16s %s (-cpu %s)\n", models[i].name, models[i].about, models[i].qemu_cpu);
}

bool model_vmx_misc(const struct model *m, uint64_t *value)
{
	*value = m->vmx == VMX_WITH_PT ? 1ULL << 14 : 0;
	return m->vmx != VMX_NONE;
}

bool model_cpuid(const struct model *m, uint32_t leaf, uint32_t subleaf, struct cpuid_regs *r)
{
	memset(r, 0, sizeof(*r));
	if (!model_has_pt(m))
		return false;
	switch (leaf) {
	case 0x0a:
		r->eax = m->pmu_eax;
		r->edx = m->pmu_edx;
		return true;
	case 0x14:
		if (subleaf == 0) {
			/* The highest subleaf. */
			r->eax = m->num_ranges || m->mtc_periods || m->psb_freqs ? 1 : 0;
			r->ebx = m->pt_ebx;
			r->ecx = m->pt_ecx;
		} else if (subleaf == 1) {
			r->eax = m->num_ranges | (uint32_t)m->mtc_periods << 16;
			r->ebx = m->cyc_thresholds | (uint32_t)m->psb_freqs << 16;
		}
		return true;
	case 0x15:
		r->eax = m->tsc_denominator;
		r->ebx = m->tsc_numerator;
		return true;
	}
	return false;
}
