/* SPDX-License-Identifier: BSD-2-Clause */
/* The performance monitoring interrupt. */
#include "vcpu.h"

/* The local APIC in xAPIC mode, where every system we boot leaves it. */
#define APIC_ICR_LOW	0xfee00300
#define APIC_LVTPC	0xfee00340
#define LVT_MASKED	(1u << 16)
#define LVT_VECTOR_MODE	0x7ffu		/* vector and delivery mode */
#define ICR_SELF	(1u << 18)	/* destination shorthand */

void pmi_raise(struct vcpu *v)
{
	uint32_t lvt, icr;

	v->n_pmi++;
	if (guest_read_phys(v, APIC_LVTPC, &lvt, 4))
		return;
	if (opts.log)
		fprintf(stderr, "intel_pt: cpu%u: PMI, LVTPC %#x, PERF_GLOBAL_STATUS %#lx\n",
			v->index, lvt, v->pmu.global_status);
	if (lvt & LVT_MASKED)
		return;
	/*
	 * A plugin can't raise interrupts, but it can write the APIC's registers: mask the entry as
	 * the hardware does and send ourselves what it says. QEMU takes it at the next block.
	 */
	icr = lvt & LVT_VECTOR_MODE;
	icr |= ICR_SELF;
	lvt |= LVT_MASKED;
	guest_write_phys(v, APIC_LVTPC, &lvt, 4);
	guest_write_phys(v, APIC_ICR_LOW, &icr, 4);
}
