/* SPDX-License-Identifier: BSD-2-Clause */
/* Access to the guest's registers and memory, from callbacks on the vCPU's own thread. */
#include "vcpu.h"

#include <string.h>

#define EFER_LMA (1u << 10)

static const char *const reg_names[GUEST_REGS] = {
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	"rip", "eflags", "cs", "cr2", "cr3", "cr4", "efer", "fs_base", "gs_base",
};

/* The same handles serve every vCPU. */
static struct qemu_plugin_register *regs[GUEST_REGS];

bool guest_find_regs(void)
{
	GArray *list = qemu_plugin_get_registers();
	bool complete = true;

	for (unsigned int i = 0; i < list->len; i++) {
		struct plugin_reg_desc *d = &g_array_index(list, struct plugin_reg_desc, i);

		for (int k = 0; k < GUEST_REGS; k++)
			if (!strcmp(d->name, reg_names[k]))
				regs[k] = d->handle;
	}
	g_array_free(list, TRUE);
	for (int k = 0; k < GUEST_REGS; k++) {
		if (regs[k])
			continue;
		fprintf(stderr, "intel_pt: QEMU shows no register %s\n", reg_names[k]);
		complete = false;
	}
	return complete;
}

uint64_t guest_reg(struct vcpu *v, enum guest_reg reg)
{
	uint64_t value = 0;

	g_byte_array_set_size(v->scratch, 0);
	if (qemu_plugin_read_register(regs[reg], v->scratch))
		memcpy(&value, v->scratch->data, MIN(v->scratch->len, 8));
	return value;
}

unsigned int guest_translated_cpl(void)
{
	static __thread GByteArray *buf;

	if (!buf)
		buf = g_byte_array_new();
	g_byte_array_set_size(buf, 0);
	return qemu_plugin_read_register(regs[GUEST_CS], buf) ? buf->data[0] & 3 : 0;
}

void guest_set_reg(struct vcpu *v, enum guest_reg reg, uint64_t value)
{
	g_byte_array_set_size(v->scratch, 8);
	memcpy(v->scratch->data, &value, 8);
	if (!qemu_plugin_write_register(regs[reg], v->scratch))
		fprintf(stderr, "intel_pt: cpu%u: can't write %s\n", v->index, reg_names[reg]);
}

int guest_read_phys(struct vcpu *v, uint64_t pa, void *data, size_t len)
{
	int ret = qemu_plugin_read_memory_hwaddr(pa, v->scratch, len);

	if (!ret)
		memcpy(data, v->scratch->data, len);
	return ret;
}

int guest_write_phys(struct vcpu *v, uint64_t pa, const void *data, size_t len)
{
	g_byte_array_set_size(v->scratch, len);
	memcpy(v->scratch->data, data, len);
	return qemu_plugin_write_memory_hwaddr(pa, v->scratch);
}

bool guest_read_virt(struct vcpu *v, uint64_t va, void *data, size_t len)
{
	g_byte_array_set_size(v->scratch, 0);
	if (!qemu_plugin_read_memory_vaddr(va, v->scratch, len) || v->scratch->len < len)
		return false;
	memcpy(data, v->scratch->data, len);
	return true;
}

bool guest_frame_has_error(struct vcpu *v)
{
	/*
	 * In long mode the CPU aligns the stack to 16 bytes and pushes five words, or six with an
	 * error code. So one bit of RSP tells.
	 */
	return !(guest_reg(v, GUEST_RSP) & 8);
}

uint64_t guest_frame(struct vcpu *v, int n)
{
	uint64_t rsp = guest_reg(v, GUEST_RSP), value = 0;

	guest_read_virt(v, rsp + 8 * (n + !(rsp & 8)), &value, 8);
	return value;
}

/*
 * QEMU doesn't show the descriptor tables to plugins, so their addresses are taken from the operands of LGDT
 * and LIDT as they are loaded: the access of 2 bytes is the limit, the base follows it.
 */
static bool table_base(struct vcpu *v, uint32_t info, uint64_t vaddr, uint64_t *base)
{
	bool lma = guest_reg(v, GUEST_EFER) & EFER_LMA;
	uint8_t operand[10] = { 0 };

	if (qemu_plugin_mem_size_shift(info) != 1 || !guest_read_virt(v, vaddr, operand, lma ? 10 : 6))
		return false;
	memcpy(base, operand + 2, 8);
	return true;
}

void guest_on_lgdt(unsigned int index, uint32_t info, uint64_t vaddr, void *opaque)
{
	struct vcpu *v = vcpu_get(index);

	(void)opaque;
	if (table_base(v, info, vaddr, &v->gdt_base))
		memset(v->exec_cache, 0, sizeof(v->exec_cache));
}

void guest_on_lidt(unsigned int index, uint32_t info, uint64_t vaddr, void *opaque)
{
	struct vcpu *v = vcpu_get(index);

	(void)opaque;
	if (table_base(v, info, vaddr, &v->idt_base))
		memset(v->handlers, 0, sizeof(v->handlers));
}

static int find_handler(const struct vcpu *v, uint64_t to)
{
	for (int i = 0; i < 256; i++)
		if (v->handlers[i] == to)
			return i;
	return -1;
}

/* The handlers that a 64-bit IDT names. */
static void read_idt(struct vcpu *v)
{
	uint64_t gates[512];

	memset(v->handlers, 0, sizeof(v->handlers));
	if (!guest_read_virt(v, v->idt_base, gates, sizeof(gates)))
		return;
	for (int i = 0; i < 256; i++)
		v->handlers[i] = (gates[2 * i] & 0xffff) | (gates[2 * i] >> 32 & 0xffff0000) |
				 gates[2 * i + 1] << 32;
}

int guest_vector(struct vcpu *v, uint64_t to)
{
	int vector = find_handler(v, to);

	if (vector >= 0)
		return vector;
	read_idt(v);
	return find_handler(v, to);
}

enum packet_exec guest_exec_mode(struct vcpu *v, uint16_t cs)
{
	bool lma = guest_reg(v, GUEST_EFER) & EFER_LMA;
	enum packet_exec mode = lma ? PACKET_EXEC_64 : PACKET_EXEC_32;
	uint8_t *cached = &v->exec_cache[cs >> 3];
	uint64_t desc;

	/* 64-bit code doesn't come from an LDT in practice, and LLDT isn't followed. */
	if (cs & 4)
		return PACKET_EXEC_32;
	if (*cached)
		return *cached - 1;
	if (!v->gdt_base || !guest_read_virt(v, v->gdt_base + (cs & ~7u), &desc, 8))
		return mode;
	if (lma && desc >> 53 & 1)		/* CS.L */
		mode = PACKET_EXEC_64;
	else if (desc >> 54 & 1)		/* CS.D */
		mode = PACKET_EXEC_32;
	else
		mode = PACKET_EXEC_16;
	*cached = mode + 1;
	return mode;
}
