/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of one emulated CPU, and what the QEMU-facing files offer each other.
 *
 * Every vCPU runs in a thread of its own, and all its callbacks run there: nothing here is shared
 * between vCPUs but the options and the model, which don't change after the start.
 */
#ifndef VCPU_H
#define VCPU_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "insn.h"
#include "model.h"
#include "packet.h"
#include "qemu_internal.h"
#include "qemu_plugin_api.h"
#include "rtit.h"
#include "topa.h"

#define MAX_VCPUS 64

/* Errata of real processors that the packets may be made to have. */
#define ERRATUM_BDM70	(1u << 0)	/* FUP and MODE in a PSB+ before TIP.PGE */
#define ERRATUM_SKD007	(1u << 1)	/* OVF after the first byte of a longer CYC */
#define ERRATUM_SKD010	(1u << 2)	/* no FUP after OVF */
#define ERRATUM_SKL014	(1u << 3)	/* TIP.PGD without IP if a direct branch leaves the filter */
#define ERRATUM_SKL168	(1u << 4)	/* the CYC before a PSB is dropped */
#define ERRATUM_APL11	(1u << 5)	/* OVF followed by TIP.PGD when TraceEn is cleared */
#define ERRATUM_APL12	(1u << 6)	/* FUP after OVF although the filter is off */

/* The plugin's arguments. */
struct options {
	const struct model *model;
	const char *truth_dir;	/* NULL: none */
	bool verify;		/* check the flow tracking against the real rip */
	bool stats;		/* print a summary at exit */
	bool log;		/* print trace starts, stops and PMIs */
	bool drill;		/* trace from the start, to nowhere */
	bool long_tnt;		/* pack TNT bits into long packets */
	bool compress_ret;	/* RET compression, unless CTL.DisRETC forbids it */
	unsigned int errata;	/* ERRATUM_* */
	uint64_t overflow;	/* packet bytes between overflows of the internal buffer, 0: none */
};

extern struct options opts;

/*
 * The part that generated code touches (in a scoreboard).
 *
 * clock counts executed instructions, a block's as it begins, and is the alarm clock at the same time: the
 * block callback comes while it is above CLOCK_ALARM. For an overflow of the PMU it is set so far below; to
 * have the callback at every block, for tracing and pending register patches, it is set above. What was
 * executed is clock + vcpu.clock_base.
 */
struct hot {
	uint64_t clock[2];	/* by CPL: [0] 1 to 3, [1] 0 */
	uint64_t begun;		/* the struct block begun last, or 0 */
	uint64_t branched;	/* the struct block whose last branch has been begun, or 0 */
	uint64_t truth;		/* not 0: the truth callbacks are on */
	/* vCPUs write these all the time: keep them out of each other's cache lines. */
	uint64_t pad[11];
};

/* Generated code finds a vCPU's part by a shift if the size is a power of two. */
_Static_assert(sizeof(struct hot) == 128, "struct hot");

#define CLOCK_ALARM	(1ULL << 63)
#define CLOCK_RINGING	(3ULL << 62)
/* The farthest that an alarm may be set, in instructions. */
#define ALARM_MAX	(1ULL << 61)

/* A translated block. Addresses are those of the first mapping it was translated for. */
struct block {
	uint64_t start;
	uint64_t end;		/* address after the last instruction */
	const char *host;	/* where QEMU keeps its first byte: the same at every mapping */
	struct insn last;	/* the last instruction, if it is a branch (or INT1) */
	uint16_t last_off;	/* its offset from start */
	uint16_t n;
	bool kernel;		/* executed at CPL 0 */
	bool rep;		/* ends with a REP, to which QEMU comes back while it lasts */
	uint16_t *counted;	/* up to where instructions are counted when number i runs; NULL: all */
	uint16_t off[];		/* offset of each instruction */
};

/* An intercepted instruction. */
struct site {
	uint64_t vaddr;		/* as translated */
	uint64_t block;		/* start of its block, likewise */
	uint8_t len;
	bool last;		/* of its block */
};

/*
 * Registers that an intercepted instruction must leave behind. TCG executes CPUID and RDMSR in its
 * own way; the values are put in afterwards, at the next instruction or discontinuity.
 */
struct patch {
	bool pending;
	bool at_block;		/* the next instruction is in another block */
	uint16_t page_off;	/* offset of the instruction in its page, to recognise its fault */
	uint8_t write;		/* registers to write: PATCH_* */
	uint32_t eax, ebx, ecx, edx;
	uint32_t ebx_or, ecx_or;	/* bits to add to what TCG leaves there */
};

#define PATCH_EAX 1
#define PATCH_EBX 2
#define PATCH_ECX 4
#define PATCH_EDX 8

#define RET_STACK 64

/* Where the traced flow stands. */
struct flow {
	bool context_en;
	bool filter_en;
	bool packet_en;
	uint8_t cpl;
	enum packet_exec mode;
	uint64_t cr3;
	const struct block *block;	/* the block last begun, NULL: unknown */
	uint64_t delta;			/* its real address - block->start */
	uint64_t resume;		/* where the last discontinuity went, 0: none since */
	uint64_t ret[RET_STACK];	/* return addresses for RET compression, a ring */
	unsigned int ret_top, ret_n;
	unsigned int lost_branches;	/* in the overflow that lasts */
	bool psb_cut;			/* it fell into a PSB+ */
	bool psb_late;			/* one is due, but waits (SKL168) */
	unsigned int settled;		/* instructions of the block whose filter edges have been told */
	bool iflag;			/* RFLAGS.IF, for event trace */
	bool iflag_asked;		/* it may have changed before the next block */
	bool power_down;		/* halted: PWRX is due */
};

struct clock {
	uint64_t last_mtc;	/* crystal ticks >> MTCFreq of the last MTC or TMA */
	uint64_t cyc_base;	/* executed instructions at the last CYC */
	unsigned int stride;
};

#define PMU_GP 4
#define PMU_FIXED 3

struct pmu {
	uint64_t gp[PMU_GP];
	uint64_t fixed[PMU_FIXED];
	uint64_t evtsel[PMU_GP];
	uint64_t fixed_ctrl;
	uint64_t global_ctrl;
	uint64_t global_status;
	uint64_t seen[2];	/* executed instructions that the counters have counted */
	bool counting;		/* a counter is on */
	bool armed;		/* an overflow would interrupt */
	uint64_t deadline;	/* executed instructions at which the next overflow may be due */
	uint64_t plain[8];	/* MSRs that only store */
};

struct truth {
	FILE *file;
	uint64_t *buf;
	size_t n;
	uint64_t delta;
	bool context;
	uint64_t last;		/* address of the last instruction begun, 0: none */
	bool last_kept;
	uint8_t last_flags;
	/* To check the counting of instructions: since TraceEn was set. */
	FILE *counts;
	uint64_t kept;		/* instructions in the file */
	uint64_t interrupting;	/* INT instructions that are not, though executed */
	uint64_t before[2];	/* executed instructions until then */
};

struct vcpu {
	unsigned int index;
	struct hot *hot;
	uint64_t *env;		/* QEMU's registers, see qemu_internal.c */
	uint64_t clock_base[2];	/* executed instructions - hot->clock */
	unsigned int clock_seq;	/* odd while clock_base and hot->clock don't belong together */
	GByteArray *scratch;
	struct patch patch;
	bool gp_pending;	/* RCX holds a number that makes TCG raise #GP */
	uint64_t gp_rcx;	/* its real value */
	bool exception;		/* an exception is being delivered */
	bool counts;		/* what it executes is counted: see instrument.c */
	bool needs_count;	/* of what needs that: the PMU, */
	bool needs_blocks;	/* and the block callback */
	uint64_t settle_at;	/* executed instructions after which it may go */
	struct rtit rtit;
	struct topa topa;
	struct topa_memory mem;
	struct packet_writer writer;
	bool tracing;		/* TriggerEn: TraceEn and neither Stopped nor Error */
	struct flow flow;
	struct clock clock;
	struct pmu pmu;
	struct truth truth;
	uint64_t gdt_base;	/* linear; 0: no LGDT seen yet */
	uint64_t idt_base;
	uint64_t handlers[256];	/* of the IDT as last read */
	uint8_t exec_cache[8192];	/* by selector >> 3: 1 + enum packet_exec, 0: unknown */
	/* statistics */
	uint64_t n_pmi;
	uint64_t n_overflows;
	uint64_t n_rip_reads, n_rip_wrong, n_flow_wrong, n_blocks;
};

/* Of struct hot. */
extern struct qemu_plugin_scoreboard *board;

struct vcpu *vcpu_get(unsigned int index);
unsigned int vcpu_count(void);

/* Instructions executed outside (0) and at (1) CPL 0. In a callback, those of blocks that lie ahead are not
 * in it, but for the rest of the running one. */
static inline uint64_t executed_at(const struct vcpu *v, int kernel)
{
	return v->clock_base[kernel] + v->hot->clock[kernel];
}

static inline uint64_t executed(const struct vcpu *v)
{
	return executed_at(v, 0) + executed_at(v, 1);
}

/* The same of any CPU, while it runs. */
static inline uint64_t executed_by(const struct vcpu *v, int kernel)
{
	unsigned int seq;
	uint64_t value;

	do {
		seq = __atomic_load_n(&v->clock_seq, __ATOMIC_ACQUIRE);
		value = __atomic_load_n(&v->clock_base[kernel], __ATOMIC_RELAXED) +
			__atomic_load_n(&v->hot->clock[kernel], __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (seq & 1 || seq != __atomic_load_n(&v->clock_seq, __ATOMIC_RELAXED));
	return value;
}

static inline void set_clock(struct vcpu *v, uint64_t value)
{
	__atomic_store_n(&v->clock_seq, v->clock_seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++) {
		v->clock_base[i] += v->hot->clock[i] - value;
		v->hot->clock[i] = value;
	}
	__atomic_store_n(&v->clock_seq, v->clock_seq + 1, __ATOMIC_RELEASE);
}

/* Let the block callback come at every block. It stops that itself when nothing needs it. */
static inline void want_attention(struct vcpu *v)
{
	set_clock(v, CLOCK_RINGING);
}

/*
 * Let it come in `left` instructions or before: either of the two clocks may get there alone, so
 * each gets half of it.
 */
static inline void set_alarm(struct vcpu *v, uint64_t left)
{
	set_clock(v, CLOCK_ALARM - left / 2);
}

/* guest.c: registers and memory */
enum guest_reg {
	GUEST_RAX, GUEST_RCX, GUEST_RDX, GUEST_RBX, GUEST_RSP, GUEST_RBP, GUEST_RSI, GUEST_RDI,
	GUEST_R8, GUEST_R9, GUEST_R10, GUEST_R11, GUEST_R12, GUEST_R13, GUEST_R14, GUEST_R15,
	GUEST_RIP, GUEST_RFLAGS, GUEST_CS, GUEST_CR2, GUEST_CR3, GUEST_CR4, GUEST_EFER, GUEST_FS_BASE, GUEST_GS_BASE,
	GUEST_REGS,
};
bool guest_find_regs(void);
/* The CPL of code that is being translated. */
unsigned int guest_translated_cpl(void);
uint64_t guest_reg(struct vcpu *v, enum guest_reg reg);
void guest_set_reg(struct vcpu *v, enum guest_reg reg, uint64_t value);
int guest_read_phys(struct vcpu *v, uint64_t pa, void *data, size_t len);
int guest_write_phys(struct vcpu *v, uint64_t pa, const void *data, size_t len);
bool guest_read_virt(struct vcpu *v, uint64_t va, void *data, size_t len);
/* In a discontinuity: whether the frame that was just pushed has an error code. */
bool guest_frame_has_error(struct vcpu *v);
/* The same: n-th word of the frame (0 RIP, 1 CS, 2 RFLAGS, 3 RSP, 4 SS), -1 the error code. */
uint64_t guest_frame(struct vcpu *v, int n);
/* The mode that code of this CS selector runs in. */
enum packet_exec guest_exec_mode(struct vcpu *v, uint16_t cs);
/* The vector whose handler is at `to`, or -1. */
int guest_vector(struct vcpu *v, uint64_t to);
void guest_on_lidt(unsigned int index, uint32_t info, uint64_t vaddr, void *opaque);
void guest_on_lgdt(unsigned int index, uint32_t info, uint64_t vaddr, void *opaque);

/* cpuid.c */
void cpuid_on_insn(unsigned int index, void *site);
/* Have v->patch put into the registers once the instruction at s has been executed. */
void patch_later(struct vcpu *v, const struct site *s);
void patch_apply(struct vcpu *v);

/* count.c */
#define COUNT_MSR		0x4fff0000
#define COUNT_MSR_MASK		0xffff0000
#define COUNT_LEAF		0x4fff0000
#define COUNT_SIGNATURE		0x54506d45	/* "EmPT", in EBX of the leaf */
enum {
	COUNT_BEGIN		= 0x01,
	COUNT_END		= 0x02,
	COUNT_PMIS		= 0x03,	/* PMIs of this CPU */
	COUNT_KERNEL		= 0x10,	/* instructions executed by this CPU */
	COUNT_USER		= 0x11,
	COUNT_ALL_KERNEL	= 0x12,	/* by all CPUs */
	COUNT_ALL_USER		= 0x13,
	COUNT_BYTES		= 0x14,	/* packet bytes of this CPU */
	COUNT_ALL_BYTES		= 0x15,
	COUNT_CLASS0		= 0x20,	/* packet bytes of all CPUs by enum packet_class */
	COUNT_BETWEEN		= 0x100, /* any of these between the marks */
};
/* WRMSR: VMX operation as by VMXON (value 1) or VMXOFF (0) */
#define VMX_MSR			(COUNT_MSR + 0x04)
/* False if there is no such counter. */
bool count_read(struct vcpu *v, uint32_t what, uint64_t *value);
/* COUNT_BEGIN or COUNT_END; false if it is neither. kernel: the privilege of the marking instruction. */
bool count_mark(struct vcpu *v, bool kernel, uint32_t what);

/* msr.c */
void msr_on_rdmsr(unsigned int index, void *site);
void msr_on_wrmsr(unsigned int index, void *site);
/* RDPMC, which TCG doesn't have. */
void msr_on_rdpmc(unsigned int index, void *site);

/* ptwrite.c */
void ptwrite_on_insn(unsigned int index, void *site);

/* blocks.c */
void blocks_init(qemu_plugin_id_t id);
/* Zeroed memory for a block that is being translated, for as long as its translation can be executed. */
void *block_alloc(size_t size);

/* instrument.c */
void instrument_init(qemu_plugin_id_t id);
void instrument_vcpu_init(struct vcpu *v);
/* The counts of all vCPUs are wanted from here on, the rest of the running block included. */
void instrument_count(struct vcpu *v);
/* To be called when QEMU has thrown away all translations. */
void instrument_flushed(void);
/* To be called when one of the reasons has changed for which a vCPU needs the block callback. */
void instrument_update(struct vcpu *v);

/* branch.c */
/* TraceEn 0 -> 1, after the registers have been set. */
void trace_start(struct vcpu *v);
/* Trace all, from the first instruction on, without the guest's knowledge: opts.drill. */
void trace_drill(struct vcpu *v);
/* TraceEn 1 -> 0 by the WRMSR at insn_vaddr (as translated). */
void trace_stop(struct vcpu *v, uint64_t insn_vaddr);
/* Output is impossible from here on (ToPA STOP or error, TraceStop). */
void trace_halt(struct vcpu *v, uint64_t status_bit);
/* Write what is buffered to the guest and bring the RTIT registers up to date. */
void trace_sync(struct vcpu *v);
void branch_on_block(struct vcpu *v, const struct block *b);
void branch_on_discon(struct vcpu *v, uint64_t from, uint64_t to);
void branch_on_mov_cr3(unsigned int index, void *gpr);
void branch_on_cli(unsigned int index, void *site);
/* STI or POPF */
void branch_on_sti(unsigned int index, void *site);
/* Bring packets up to date before the instruction at s, of the running block. */
void branch_settle(struct vcpu *v, const struct site *s);
/* The PTWRITE at ip has been executed. */
void branch_on_ptwrite(struct vcpu *v, uint64_t ip, uint64_t next, uint64_t value, unsigned int bytes);

/* Hook of the packet writer: output to the guest. */
void trace_output(void *vcpu, const uint8_t *data, size_t len);

/* clock.c */
uint64_t clock_tsc(void);
void clock_start(struct vcpu *v);
/* Begin to count cycles anew, without having told those so far (erratum SKL168). */
void clock_drop_cyc(struct vcpu *v);
/* Time packets that are due by now. */
void clock_tick(struct vcpu *v);
/* TSC, and TMA where MTC is on. */
void clock_tsc_packets(struct vcpu *v);
/* Hook of the packet writer: CYC. */
void clock_stamp(void *vcpu);

/* interrupt.c */
/* Deliver the performance monitoring interrupt as LVTPC says. */
void pmi_raise(struct vcpu *v);

/* pmu.c */
enum msr_result pmu_read(struct vcpu *v, uint32_t msr, uint64_t *value);
enum msr_result pmu_write(struct vcpu *v, uint32_t msr, uint64_t value);
/* Let the counters catch up; raises the PMI on overflow. */
void pmu_sync(struct vcpu *v);
/* Value of a counter as RDPMC selects it. False if there is no such counter. */
bool pmu_rdpmc(struct vcpu *v, uint32_t ecx, uint64_t *value);

/* truth.c */
bool truth_init(void);
void truth_vcpu_init(struct vcpu *v);
void truth_translate(struct qemu_plugin_tb *tb, qemu_plugin_u64 on);
void truth_start(struct vcpu *v);
void truth_stop(struct vcpu *v);
/* TraceEn is about to be cleared by WRMSR: note what was counted, for comparison. */
void truth_count(struct vcpu *v);
void truth_on_discon(struct vcpu *v, uint64_t from);
/* An overflow of the internal buffer has resolved. */
void truth_overflow(struct vcpu *v);
void truth_exit(void);

/* event.c */
/* An interrupt or exception at `from` goes to `to`; before the context changes. */
void event_interrupt(struct vcpu *v, uint64_t from, uint64_t to);
/* The IRET at ip, likewise. */
void event_iret(struct vcpu *v, uint64_t ip);

/* power.c */
void power_on_halt(unsigned int index, void *site);
void power_on_mwait(unsigned int index, void *site);
/* The CPU goes on after one of these: by an interrupt, or by itself, which only MWAIT does. */
void power_wake(struct vcpu *v, bool interrupt);

#endif /* VCPU_H */
