/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PTWRITE. TCG raises #UD for it, so where the model has the instruction it is executed here: the operand is
 * read, with all faults that a load has, and the guest goes on behind it.
 */
#include "vcpu.h"

static uint64_t segment_base(struct vcpu *v, char segment)
{
	if (segment == 'f')
		return guest_reg(v, GUEST_FS_BASE);
	return segment == 'g' ? guest_reg(v, GUEST_GS_BASE) : 0;
}

/* Register number n of instruction encodings. */
static uint64_t gpr(struct vcpu *v, int n)
{
	static const enum guest_reg low[] = {
		GUEST_RAX, GUEST_RCX, GUEST_RDX, GUEST_RBX, GUEST_RSP, GUEST_RBP, GUEST_RSI, GUEST_RDI,
	};

	if (n >= 8)
		return guest_reg(v, GUEST_R8 + (n - 8));
	return guest_reg(v, low[n]);
}

static uint64_t address(struct vcpu *v, const struct operand *o, uint64_t next, bool code64)
{
	uint64_t sum = (int64_t)o->disp;

	if (o->rip)
		sum += next;
	if (o->base >= 0)
		sum += gpr(v, o->base);
	if (o->index >= 0)
		sum += gpr(v, o->index) * o->scale;
	if (o->addr32)
		sum = (uint32_t)sum;
	sum += segment_base(v, o->segment);
	return code64 ? sum : (uint32_t)sum;
}

/* As many of the instruction's bytes as there are: the next page may not be there. */
static size_t fetch(struct vcpu *v, uint64_t rip, uint8_t *bytes, size_t size)
{
	size_t left = 0x1000 - (rip & 0xfff);

	if (guest_read_virt(v, rip, bytes, size))
		return size;
	return left < size && guest_read_virt(v, rip, bytes, left) ? left : 0;
}

void ptwrite_on_insn(unsigned int index, void *opaque)
{
	uintptr_t call_site = CALL_SITE();
	struct vcpu *v = vcpu_get(index);
	const struct site *s = opaque;
	uint64_t rip, next, value;
	struct operand o;
	uint8_t bytes[15];
	uint16_t cs;
	bool code64;

	if (!(opts.model->pt_ebx & PT_CAP_PTWRITE))
		return;
	internal_learn(v);
	/*
	 * RIP is that of some instruction of the block. It must not be changed as long as it may remain TCG's
	 * business to raise #UD, as generated code counts from it.
	 */
	rip = s->vaddr + ((guest_reg(v, GUEST_RIP) - s->block) & ~0xfffULL);
	cs = guest_reg(v, GUEST_CS);
	code64 = guest_exec_mode(v, cs) == PACKET_EXEC_64;
	if (!insn_ptwrite(bytes, fetch(v, rip, bytes, sizeof(bytes)), code64, &o))
		return;
	next = rip + o.insn_len;
	if (o.is_reg)
		value = gpr(v, o.reg);
	else
		value = internal_load(v, address(v, &o, next, code64), o.bytes, cs & 3, call_site);
	internal_restore_state(index, call_site);
	branch_on_ptwrite(v, rip, next, o.bytes == 8 ? value : (uint32_t)value, o.bytes);
	internal_continue(v, code64 ? next : (uint32_t)next);
}
