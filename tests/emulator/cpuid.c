/* SPDX-License-Identifier: BSD-2-Clause */
/* CPUID, and the patching of registers after an intercepted instruction. */
#include "vcpu.h"

#define LEAF_1_ECX_VMX (1u << 5)
#define LEAF_7_EBX_PT (1u << 25)

/*
 * TCG executes CPUID by itself; what the model answers differently is put into the registers
 * afterwards. Skipping the instruction instead would lose the arithmetic flags, which TCG keeps in
 * an unevaluated form across instructions.
 */
void cpuid_on_insn(unsigned int index, void *site)
{
	struct vcpu *v = vcpu_get(index);
	uint32_t leaf = guest_reg(v, GUEST_RAX), subleaf = guest_reg(v, GUEST_RCX);
	struct patch *p = &v->patch;
	struct cpuid_regs r;
	uint64_t count;

	if (leaf == COUNT_LEAF) {
		if (count_mark(v, !(guest_reg(v, GUEST_CS) & 3), subleaf) || !count_read(v, subleaf, &count))
			count = 0;
		p->write = PATCH_EAX | PATCH_EBX | PATCH_ECX | PATCH_EDX;
		p->eax = count;
		p->edx = count >> 32;
		p->ebx = COUNT_SIGNATURE;
		p->ecx = 0;
		p->ebx_or = 0;
		p->ecx_or = 0;
	} else if (leaf == 1 && opts.model->vmx != VMX_NONE) {
		p->write = 0;
		p->ebx_or = 0;
		p->ecx_or = LEAF_1_ECX_VMX;
	} else if (leaf == 7 && subleaf == 0 && model_has_pt(opts.model)) {
		p->write = 0;
		p->ebx_or = LEAF_7_EBX_PT;
		p->ecx_or = 0;
	} else if (model_cpuid(opts.model, leaf, subleaf, &r)) {
		p->write = PATCH_EAX | PATCH_EBX | PATCH_ECX | PATCH_EDX;
		p->eax = r.eax;
		p->ebx = r.ebx;
		p->ecx = r.ecx;
		p->edx = r.edx;
		p->ebx_or = 0;
		p->ecx_or = 0;
	} else {
		return;
	}
	patch_later(v, site);
}

void patch_later(struct vcpu *v, const struct site *s)
{
	v->patch.page_off = s->vaddr & 0xfff;
	v->patch.pending = true;
	/* Else there is a callback on the next instruction. */
	v->patch.at_block = s->last;
	if (s->last) {
		instrument_update(v);
		want_attention(v);
	}
}

void patch_apply(struct vcpu *v)
{
	struct patch *p = &v->patch;

	p->pending = false;
	/* Writing a 32-bit register zeroes the upper half, so the full register is meant. */
	if (p->write & PATCH_EAX)
		guest_set_reg(v, GUEST_RAX, p->eax);
	if (p->write & PATCH_EBX)
		guest_set_reg(v, GUEST_RBX, p->ebx);
	if (p->write & PATCH_ECX)
		guest_set_reg(v, GUEST_RCX, p->ecx);
	if (p->write & PATCH_EDX)
		guest_set_reg(v, GUEST_RDX, p->edx);
	if (p->ebx_or)
		guest_set_reg(v, GUEST_RBX, guest_reg(v, GUEST_RBX) | p->ebx_or);
	if (p->ecx_or)
		guest_set_reg(v, GUEST_RCX, guest_reg(v, GUEST_RCX) | p->ecx_or);
}
