/* SPDX-License-Identifier: BSD-2-Clause */
/* What an emulated CPU model enumerates. No dependency on QEMU. */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* CPUID.14H.0:EBX */
#define PT_CAP_CR3_FILTER	(1u << 0)
#define PT_CAP_PSB_CYC		(1u << 1)
#define PT_CAP_IP_FILTER	(1u << 2)
#define PT_CAP_MTC		(1u << 3)
#define PT_CAP_PTWRITE		(1u << 4)
#define PT_CAP_POWER		(1u << 5)
#define PT_CAP_PRESERVE		(1u << 6)
#define PT_CAP_EVENT		(1u << 7)
#define PT_CAP_NO_TNT		(1u << 8)
/* CPUID.14H.0:ECX */
#define PT_CAP_TOPA		(1u << 0)
#define PT_CAP_TOPA_MULTI	(1u << 1)
#define PT_CAP_SINGLE_RANGE	(1u << 2)

/* VMX and Intel PT: CPUID.1:ECX[5] and IA32_VMX_MISC[14]. */
enum model_vmx {
	VMX_NONE,
	VMX_WITHOUT_PT,		/* VMXON ends tracing */
	VMX_WITH_PT,
};

struct model {
	const char *name;
	const char *about;
	const char *qemu_cpu;		/* what goes with it as QEMU's -cpu */
	uint32_t pt_ebx;		/* CPUID.14H.0:EBX, PT_CAP_* */
	uint32_t pt_ecx;		/* CPUID.14H.0:ECX, PT_CAP_* */
	unsigned int num_ranges;	/* CPUID.14H.1:EAX[2:0] */
	uint16_t mtc_periods;		/* CPUID.14H.1:EAX[31:16], bitmap of MTCFreq encodings */
	uint16_t cyc_thresholds;	/* CPUID.14H.1:EBX[15:0], bitmap of CycThresh encodings */
	uint16_t psb_freqs;		/* CPUID.14H.1:EBX[31:16], bitmap of PSBFreq encodings */
	bool tsx;			/* PSB+ has MODE.TSX */
	enum model_vmx vmx;
	bool branch_always;		/* BranchEn=0 is #GP (erratum BDM106) */
	uint32_t tsc_denominator;	/* CPUID.15H:EAX, 0: leaf not there */
	uint32_t tsc_numerator;		/* CPUID.15H:EBX; TSC = crystal * EBX / EAX */
	uint8_t base_ratio;		/* nominal core : bus ratio; MSR 0xCE[15:8], payload of CBR */
	uint32_t pmu_eax;		/* CPUID.0AH:EAX */
	uint32_t pmu_edx;		/* CPUID.0AH:EDX */
	unsigned int phys_bits;		/* MAXPHYADDR, what QEMU's TCG enumerates */
	unsigned int virt_bits;		/* linear address width that canonical addresses have */
};

/* Whether there is anything at all: PT, and the PMU that belongs to it. */
static inline bool model_has_pt(const struct model *m)
{
	return m->pt_ecx;
}

/* The model called name, or NULL. */
const struct model *model_find(const char *name);
const struct model *model_default(void);
/* All names, separated by commas. */
const char *model_names(void);
/* One line for each model, with what it is. */
void model_list(FILE *to);
/* IA32_VMX_MISC. False if the model has no VMX. */
bool model_vmx_misc(const struct model *m, uint64_t *value);

struct cpuid_regs {
	uint32_t eax, ebx, ecx, edx;
};

/*
 * What the model answers for a leaf of its own (0x14, 0x15, 0x0A). False if the leaf is none of
 * these and QEMU's answer stands. Leaf 7's bit is the caller's: everything else there is QEMU's.
 */
bool model_cpuid(const struct model *m, uint32_t leaf, uint32_t subleaf, struct cpuid_regs *r);

#endif /* MODEL_H */
