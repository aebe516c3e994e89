/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "qemu_internal.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "vcpu.h"

/* How far a CPU's registers may be from the beginning of its structure. */
#define ENV_LIMIT 0x10000
/* A pair of values that is nowhere else. In 32-bit code a register's upper half can't be set. */
#define MAGIC_RAX 0x51454d55ULL
#define MAGIC_RCX 0x7c24a806ULL
#define RFLAGS_TF (1u << 8)
/* QEMU's MemOpIdx: log2 of the size above 5 bits of MMU index. */
#define MEMOP_IDX(bytes, mmu) (((bytes) == 8 ? 3u : 2u) << 5 | (mmu))

static int64_t (*elapsed_ticks)(void);
static void *(*get_cpu)(int index);
static void (*queue_flush)(void *cpu);
static bool (*restore_state)(void *cpu, uintptr_t host_pc);
static uint32_t (*load_32)(void *env, uint64_t addr, uint32_t memop_idx, uintptr_t host_pc);
static uint64_t (*load_64)(void *env, uint64_t addr, uint32_t memop_idx, uintptr_t host_pc);
static int (*mmu_index)(void *env, unsigned int cpl);
static void (*single_step)(void *env);
/* From a CPU's structure to its registers. */
static size_t env_offset;
/* Of RIP in them, in words; -1: not found. */
static int rip_index;

bool internal_init(void)
{
	static const struct {
		void **to;
		const char *name;
	} wanted[] = {
		{ (void **)&elapsed_ticks, "cpus_get_elapsed_ticks" },
		{ (void **)&get_cpu, "qemu_get_cpu" },
		{ (void **)&queue_flush, "queue_tb_flush" },
		{ (void **)&restore_state, "cpu_restore_state" },
		{ (void **)&load_32, "cpu_ldl_mmu" },
		{ (void **)&load_64, "cpu_ldq_mmu" },
		{ (void **)&mmu_index, "x86_mmu_index_pl" },
		{ (void **)&single_step, "helper_single_step" },
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		*wanted[i].to = dlsym(RTLD_DEFAULT, wanted[i].name);
		if (*wanted[i].to)
			continue;
		fprintf(stderr, "intel_pt: this QEMU exports no %s; QEMU 11.1 as Debian builds it is needed\n",
			wanted[i].name);
		return false;
	}
	return true;
}

int64_t internal_ticks(void)
{
	return elapsed_ticks();
}

void internal_flush(unsigned int index)
{
	queue_flush(get_cpu(index));
}

void internal_restore_state(unsigned int index, uintptr_t call_site)
{
	restore_state(get_cpu(index), call_site);
}

/* RAX and RCX are the first of the registers: look where they show up. */
static size_t find_env(struct vcpu *v)
{
	uint64_t rax = guest_reg(v, GUEST_RAX), rcx = guest_reg(v, GUEST_RCX);
	const uint64_t *cpu = get_cpu(v->index);
	size_t found = 0;

	guest_set_reg(v, GUEST_RAX, MAGIC_RAX);
	guest_set_reg(v, GUEST_RCX, MAGIC_RCX);
	for (size_t i = 1; i < ENV_LIMIT / 8 && !found; i++)
		if (cpu[i] == MAGIC_RAX && cpu[i + 1] == MAGIC_RCX)
			found = i * 8;
	guest_set_reg(v, GUEST_RAX, rax);
	guest_set_reg(v, GUEST_RCX, rcx);
	if (!found) {
		fprintf(stderr, "intel_pt: can't find the registers of a CPU in this QEMU\n");
		abort();
	}
	return found;
}

/* RIP follows RAX and the other registers, of which there are 16, or 32 with APX. */
static void find_rip(struct vcpu *v)
{
	const uint64_t *env = (const uint64_t *)((char *)get_cpu(v->index) + env_offset);
	uint64_t rip = guest_reg(v, GUEST_RIP);

	rip_index = env[32] == rip ? 32 : env[16] == rip ? 16 : -1;
}

void internal_learn(struct vcpu *v)
{
	if (v->env)
		return;
	if (!env_offset) {
		env_offset = find_env(v);
		find_rip(v);
	}
	v->env = (uint64_t *)((char *)get_cpu(v->index) + env_offset);
}

uint64_t internal_rip(struct vcpu *v)
{
	/* Not in 32-bit code, where the search would zero halves of registers. */
	if (!v->env && v->flow.mode == PACKET_EXEC_64)
		internal_learn(v);
	return v->env && rip_index > 0 ? v->env[rip_index] : guest_reg(v, GUEST_RIP);
}

void internal_continue(struct vcpu *v, uint64_t pc)
{
	/* Where TCG isn't told that an instruction ends, it knows of no single step either. */
	if (v->env && rip_index > 0 && guest_reg(v, GUEST_RFLAGS) & RFLAGS_TF) {
		/* The plugin interface shows RIP, but writes it only by qemu_plugin_set_pc(). */
		v->env[rip_index] = pc;
		single_step(v->env);
	}
	qemu_plugin_set_pc(pc);
}

uint64_t internal_load(struct vcpu *v, uint64_t vaddr, unsigned int bytes, unsigned int cpl, uintptr_t call_site)
{
	uint32_t idx = MEMOP_IDX(bytes, mmu_index(v->env, cpl));

	return bytes == 8 ? load_64(v->env, vaddr, idx, call_site) : load_32(v->env, vaddr, idx, call_site);
}
