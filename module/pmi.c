// SPDX-License-Identifier: GPL-2.0
/*
 * The interrupt at the end of a ToPA region that has INT. It comes as a performance monitoring
 * interrupt, through the local APIC's LVTPC, which Linux has deliver NMIs; bit 55 of
 * IA32_PERF_GLOBAL_STATUS says that it is Intel PT's. The core PMU's driver leaves that bit alone
 * unless perf's own intel_pt event runs, which the hold (hold.c) rules out.
 */
#include <linux/percpu.h>
#include <asm/apic.h>
#include <asm/msr-index.h>
#include <asm/nmi.h>

#include "ptwatch.h"

#define STATUS_TOPA_PMI		BIT_ULL(55)

/*
 * We took bit 55 away before the NMI that it stands for came, so that NMI will find no reason: it
 * is ours.
 */
static DEFINE_PER_CPU(bool, awaited);

bool ptw_pmi_available(void)
{
	u32 eax, ebx, ecx, edx;

	if (boot_cpu_data.cpuid_level < 0xa)
		return false;
	/* IA32_PERF_GLOBAL_STATUS came with version 2. */
	cpuid_count(0xa, 0, &eax, &ebx, &ecx, &edx);
	return (eax & 0xff) >= 2;
}

/*
 * Delivery masks the entry. The core PMU's handler unmasks it, but only while it has events of its
 * own; where there is no such driver nobody ever did. Another vector there is a hypervisor's, for
 * the guest that runs (mediated vPMU): then PTWATCH_IOC_TRACE_FLUSH has to do.
 */
static bool unmask(void)
{
	u32 lvtpc = apic->read(APIC_LVTPC);

	if (!(lvtpc & APIC_LVT_MASKED))
		return false;
	if ((lvtpc & 0xff) || ((lvtpc & APIC_MODE_MASK) && (lvtpc & APIC_MODE_MASK) != APIC_DM_NMI))
		return false;
	apic->write(APIC_LVTPC, APIC_DM_NMI);
	return true;
}

static void acknowledge(void)
{
	wrmsrq(MSR_CORE_PERF_GLOBAL_OVF_CTRL, STATUS_TOPA_PMI);
}

static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	struct ptw_cpu_trace *ct = this_cpu_read(ptw_owner);
	u64 status = 0;

	if (ct && ct->stream.sink)
		rdmsrq(MSR_CORE_PERF_GLOBAL_STATUS, status);
	if (!(status & STATUS_TOPA_PMI)) {
		if (!this_cpu_read(awaited))
			return NMI_DONE;
		this_cpu_write(awaited, false);
		return NMI_HANDLED;
	}
	/*
	 * Both before tracing goes on, or an interrupt of the next region could be cleared or
	 * masked with this one. One that comes while we are here waits for the end of this NMI.
	 */
	acknowledge();
	unmask();
	ptw_engine_request(ct, PTW_REQUEST_RESTART);
	irq_work_queue(&ct->wake);
	return NMI_HANDLED;
}

void ptw_pmi_arm(struct ptw_cpu_trace *ct)
{
	ct->lvtpc = unmask();
}

void ptw_pmi_disarm(struct ptw_cpu_trace *ct)
{
	u64 status;

	rdmsrq(MSR_CORE_PERF_GLOBAL_STATUS, status);
	if (status & STATUS_TOPA_PMI) {
		acknowledge();
		this_cpu_write(awaited, true);
	}
	if (ct->lvtpc)
		apic->write(APIC_LVTPC, APIC_DM_NMI | APIC_LVT_MASKED);
	ct->lvtpc = false;
}

int ptw_pmi_init(void)
{
	if (!ptw_caps_traceable() || !ptw_pmi_available())
		return 0;
	/* First: the core PMU's driver must not wonder about an NMI without a counter. */
	return register_nmi_handler(NMI_LOCAL, on_nmi, NMI_FLAG_FIRST, "ptwatch");
}

void ptw_pmi_exit(void)
{
	if (ptw_caps_traceable() && ptw_pmi_available())
		unregister_nmi_handler(NMI_LOCAL, "ptwatch");
}
