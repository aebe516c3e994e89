/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMSR, WRMSR and RDPMC. TCG ignores writes to MSRs it doesn't know and reads them as 0, so ours
 * are served here: a write before TCG executes (and ignores) it, a read by patching EAX and EDX
 * afterwards. #GP is raised by letting TCG execute the instruction with the number of an MSR that
 * faults, an x2APIC one while x2APIC is off; RCX is put right when the fault is delivered.
 */
#include "vcpu.h"

#define MSR_FAULTING 0x800

/*
 * MSRs of the emulator's own, for measurements by the guest. Reading one costs the instructions of
 * the read and nothing else.
 */
#define MSR_EMU_PMIS		0x4fff0003	/* PMIs of this CPU */
#define MSR_EMU_INSNS_KERNEL	0x4fff0010	/* instructions executed by this CPU */
#define MSR_EMU_INSNS_USER	0x4fff0011
#define MSR_EMU_ALL_KERNEL	0x4fff0012	/* the same, sum of all CPUs */
#define MSR_EMU_ALL_USER	0x4fff0013
#define MSR_EMU_BYTES		0x4fff0014	/* packet bytes of this CPU */
#define MSR_EMU_ALL_BYTES	0x4fff0015
#define MSR_EMU_CLASS0		0x4fff0020	/* packet bytes of all CPUs by enum packet_class */
#define MSR_EMU_FIRST		MSR_EMU_PMIS
#define MSR_EMU_LAST		(MSR_EMU_CLASS0 + PACKET_CLASSES - 1)

static uint64_t sum_insns(int kernel)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < vcpu_count(); i++)
		sum += executed_at(vcpu_get(i), kernel);
	return sum;
}

static enum msr_result emu_read(struct vcpu *v, uint32_t msr, uint64_t *value)
{
	*value = 0;
	switch (msr) {
	case MSR_EMU_PMIS:
		*value = v->n_pmi;
		return MSR_OK;
	case MSR_EMU_INSNS_KERNEL:
		*value = executed_at(v, 1);
		return MSR_OK;
	case MSR_EMU_INSNS_USER:
		*value = executed_at(v, 0);
		return MSR_OK;
	case MSR_EMU_ALL_KERNEL:
		*value = sum_insns(1);
		return MSR_OK;
	case MSR_EMU_ALL_USER:
		*value = sum_insns(0);
		return MSR_OK;
	case MSR_EMU_BYTES:
		*value = v->writer.total;
		return MSR_OK;
	case MSR_EMU_ALL_BYTES:
		for (unsigned int i = 0; i < vcpu_count(); i++)
			*value += vcpu_get(i)->writer.total;
		return MSR_OK;
	}
	if (msr < MSR_EMU_CLASS0)
		return MSR_GP;
	for (unsigned int i = 0; i < vcpu_count(); i++)
		*value += vcpu_get(i)->writer.bytes[msr - MSR_EMU_CLASS0];
	return MSR_OK;
}

static enum msr_result read_msr(struct vcpu *v, uint32_t msr, uint64_t *value)
{
	enum msr_result ret;
	uint64_t live = 0;

	if (msr >= MSR_EMU_FIRST && msr <= MSR_EMU_LAST)
		return emu_read(v, msr, value);
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

static enum msr_result write_msr(struct vcpu *v, uint32_t msr, uint64_t value, uint64_t insn_vaddr)
{
	bool was_on = v->rtit.ctl & CTL_TRACEEN;
	struct rtit changed = v->rtit;
	enum msr_result ret;

	if (msr >= MSR_EMU_FIRST && msr <= MSR_EMU_LAST)
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

void msr_on_rdmsr(unsigned int index, void *insn_vaddr)
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
	p->page_off = (uintptr_t)insn_vaddr & 0xfff;
	p->pending = true;
	want_attention(v);
}

void msr_on_wrmsr(unsigned int index, void *insn_vaddr)
{
	struct vcpu *v = vcpu_get(index);
	uint64_t value;

	if (!privileged(v))
		return;
	value = (uint32_t)guest_reg(v, GUEST_RAX) | guest_reg(v, GUEST_RDX) << 32;
	if (write_msr(v, guest_reg(v, GUEST_RCX), value, (uintptr_t)insn_vaddr) == MSR_GP)
		raise_gp(v);
}

/*
 * TCG has no RDPMC (it raises #UD), so it must be skipped. That loses the arithmetic flags if they
 * were set in the same block; compilers never keep them across it.
 */
void msr_on_rdpmc(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	struct skip *s = opaque;
	uint64_t value = pmu_rdpmc(v, guest_reg(v, GUEST_RCX));
	/* The block may run at another address than it was translated for, by whole pages. */
	uint64_t delta = (guest_reg(v, GUEST_RIP) - s->block_start) & ~0xfffULL;

	guest_set_reg(v, GUEST_RAX, (uint32_t)value);
	guest_set_reg(v, GUEST_RDX, value >> 32);
	qemu_plugin_set_pc(s->next + delta);
}
