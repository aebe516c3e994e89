/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMSR, WRMSR and RDPMC. TCG ignores writes to MSRs it doesn't know and reads them as 0, so ours
 * are served here: a write before TCG executes (and ignores) it, a read by patching EAX and EDX
 * afterwards. #GP is raised by letting TCG execute the instruction with the number of an MSR that
 * faults, an x2APIC one while x2APIC is off; RCX is put right when the fault is delivered.
 */
#include "vcpu.h"

#define MSR_FAULTING 0x800
/* As firmware leaves it. VMXON is #UD under TCG all the same. */
#define MSR_FEATURE_CONTROL 0x3a
#define FEATURE_LOCKED 1
#define FEATURE_VMX 4
#define MSR_VMX_MISC 0x485
#define CR4_PCE (1u << 8)
#define CR4_VMXE (1u << 13)

static enum msr_result read_msr(struct vcpu *v, uint32_t msr, uint64_t *value)
{
	enum msr_result ret;
	uint64_t live = 0;

	if ((msr & COUNT_MSR_MASK) == COUNT_MSR)
		return count_read(v, msr & ~COUNT_MSR_MASK, value) ? MSR_OK : MSR_GP;
	if (msr == MSR_FEATURE_CONTROL && opts.model->vmx != VMX_NONE) {
		*value = FEATURE_LOCKED | FEATURE_VMX;
		return MSR_OK;
	}
	if (msr == MSR_VMX_MISC)
		return model_vmx_misc(opts.model, value) ? MSR_OK : MSR_OTHER;
	if (msr >= MSR_RTIT_OUTPUT_BASE && msr <= MSR_RTIT_ADDR3_B) {
		trace_sync(v);
		if (v->tracing) {
			live = STATUS_TRIGGEREN;
			live |= v->flow.context_en ? STATUS_CONTEXTEN : 0;
			live |= v->flow.filter_en ? STATUS_FILTEREN : 0;
		}
		ret = rtit_read(&v->rtit, opts.model, msr, live, value);
		if (ret != MSR_OTHER)
			return ret;
	}
	return pmu_read(v, msr, value);
}

/*
 * TCG has no VMX, but where that excludes Intel PT what matters can be had: CR4.VMXE is set, TraceEn is cleared, and
 * IA32_RTIT_CTL can't be written (SDM vol. 3D, appendix A.6). The kernel doesn't know of the bit in CR4, and clears it
 * when it next writes CR4.
 */
static enum msr_result set_vmx(struct vcpu *v, bool on, uint64_t insn_vaddr)
{
	uint64_t cr4 = guest_reg(v, GUEST_CR4);

	if (opts.model->vmx == VMX_NONE)
		return MSR_GP;
	guest_set_reg(v, GUEST_CR4, on ? cr4 | CR4_VMXE : cr4 & ~(uint64_t)CR4_VMXE);
	if (on && opts.model->vmx == VMX_WITHOUT_PT && v->rtit.ctl & CTL_TRACEEN) {
		trace_stop(v, insn_vaddr);
		v->rtit.ctl &= ~(uint64_t)CTL_TRACEEN;
	}
	return MSR_OK;
}

static enum msr_result write_msr(struct vcpu *v, uint32_t msr, uint64_t value, uint64_t insn_vaddr)
{
	bool was_on = v->rtit.ctl & CTL_TRACEEN;
	struct rtit changed = v->rtit;
	enum msr_result ret;

	if (msr == VMX_MSR)
		return set_vmx(v, value, insn_vaddr);
	if ((msr & COUNT_MSR_MASK) == COUNT_MSR)
		return count_mark(v, true, msr & ~COUNT_MSR_MASK) ? MSR_OK : MSR_GP;
	if (msr == MSR_FEATURE_CONTROL && opts.model->vmx != VMX_NONE)
		return MSR_GP;
	if (msr == MSR_RTIT_CTL && opts.model->vmx == VMX_WITHOUT_PT && guest_reg(v, GUEST_CR4) & CR4_VMXE)
		return MSR_GP;
	ret = rtit_write(&changed, opts.model, msr, value);
	if (ret == MSR_OTHER)
		return pmu_write(v, msr, value);
	if (ret != MSR_OK)
		return ret;
	if (msr != MSR_RTIT_CTL) {
		v->rtit = changed;
		return MSR_OK;
	}
	/* The last packets still go by the old configuration. */
	if (was_on && !(value & CTL_TRACEEN))
		trace_stop(v, insn_vaddr);
	v->rtit.ctl = value;
	if (!was_on && value & CTL_TRACEEN)
		trace_start(v);
	return MSR_OK;
}

static void raise_gp(struct vcpu *v)
{
	v->gp_rcx = guest_reg(v, GUEST_RCX);
	v->gp_pending = true;
	guest_set_reg(v, GUEST_RCX, MSR_FAULTING);
}

/* Outside ring 0 QEMU raises #GP itself. */
static bool privileged(struct vcpu *v)
{
	return !(guest_reg(v, GUEST_CS) & 3);
}

void msr_on_rdmsr(unsigned int index, void *site)
{
	struct vcpu *v = vcpu_get(index);
	struct patch *p = &v->patch;
	uint64_t value;

	if (!privileged(v))
		return;
	switch (read_msr(v, guest_reg(v, GUEST_RCX), &value)) {
	case MSR_OTHER:
		return;
	case MSR_GP:
		raise_gp(v);
		return;
	case MSR_OK:
		break;
	}
	p->write = PATCH_EAX | PATCH_EDX;
	p->eax = value;
	p->edx = value >> 32;
	p->ebx_or = 0;
	p->ecx_or = 0;
	patch_later(v, site);
}

void msr_on_wrmsr(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	const struct site *s = opaque;
	uint64_t value;

	if (!privileged(v))
		return;
	value = (uint32_t)guest_reg(v, GUEST_RAX) | guest_reg(v, GUEST_RDX) << 32;
	if (write_msr(v, guest_reg(v, GUEST_RCX), value, s->vaddr) == MSR_GP)
		raise_gp(v);
}

/* TCG has no RDPMC: it raises #GP where CR4.PCE says so, and #UD else. So it is skipped. */
void msr_on_rdpmc(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	const struct site *s = opaque;
	uint64_t value;

	if (!privileged(v) && !(guest_reg(v, GUEST_CR4) & CR4_PCE))
		return;
	if (!pmu_rdpmc(v, guest_reg(v, GUEST_RCX), &value))
		return;
	if (guest_exec_mode(v, guest_reg(v, GUEST_CS)) == PACKET_EXEC_64)
		internal_learn(v);
	internal_restore_state(index, CALL_SITE());
	guest_set_reg(v, GUEST_RAX, (uint32_t)value);
	guest_set_reg(v, GUEST_RDX, value >> 32);
	internal_continue(v, guest_reg(v, GUEST_RIP) + s->len);
}
