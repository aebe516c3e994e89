/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is instrumented with what, and the counting of executed instructions.
 *
 * There are three kinds of translation. As long as nobody counts, a block has nothing but the callbacks of what it
 * intercepts, if anything. When a counter is looked at for the first time, or one of the PMU's is on, all blocks are
 * translated anew: each adds the number of its instructions to a counter and notes that it has begun. And when the
 * first vCPU traces or samples, so that it needs the block callback, again, with that; and back when nobody has
 * needed it for a while. Blocks that intercept something count always: so that what comes after the instruction which
 * asked for it counts, too.
 *
 * Counted is what was executed: instructions that completed. A block counts as a whole as it begins (up to
 * and with the next intercepted instruction, so that the callback of that sees exact counts), and is put
 * right where it turns out not to complete:
 *
 *  - A fault: RF is set in the pushed flags. The instruction it returns to, and what comes after it in the
 *    block begun last, was not executed.
 *  - INTO that traps: RF is clear, and what comes after it in the block was not executed.
 *  - An interrupt in the middle of a REP, likewise.
 *  - QEMU leaves a block to repeat an instruction alone: a store to a watched or a code page, an atomic access
 *    for which the other CPUs must stand still, the next iterations of a REP. A block of one instruction
 *    begins then that lies in the block begun last.
 *  - The same for device memory, but the repetition goes without all callbacks except those on memory accesses.
 */
#include "vcpu.h"

/* Executed instructions of a CPU without need for the callback, before it is done without. */
#define SETTLE (1ULL << 28)
#define RFLAGS_RF (1u << 16)

#define HOT(field) ((qemu_plugin_u64){ board, offsetof(struct hot, field) })

enum translation {
	BARE,			/* only what is intercepted */
	COUNTING,
	CALLING,		/* counting, and with the block callback */
};

static struct {
	GMutex lock;
	enum translation kind;
	bool count;		/* counters were looked at: there is no way back to BARE */
} blocks;

/* Translate so from now on, if that is more. What v executes counts already; the others' part begins as they stop. */
static void translate(struct vcpu *v, enum translation kind)
{
	if (kind == BARE)
		return;
	v->counts = true;
	if (kind <= blocks.kind)
		return;
	blocks.kind = kind;
	internal_flush(v->index);
}

/* All translations are gone, and all vCPUs stand still. */
void instrument_flushed(void)
{
	for (unsigned int i = 0; i < vcpu_count(); i++) {
		struct vcpu *v = vcpu_get(i);

		/* The block that it noted last may have been over long ago. */
		if (!v->counts)
			v->hot->begun = 0;
		v->counts = blocks.kind != BARE;
	}
}

void instrument_vcpu_init(struct vcpu *v)
{
	v->counts = blocks.kind != BARE;
}

void instrument_count(struct vcpu *v)
{
	g_mutex_lock(&blocks.lock);
	blocks.count = true;
	translate(v, COUNTING);
	g_mutex_unlock(&blocks.lock);
}

void instrument_update(struct vcpu *v)
{
	bool need = v->tracing || v->pmu.armed || (v->patch.pending && v->patch.at_block), needed = v->needs_blocks;

	if (need == needed && v->pmu.counting == v->needs_count)
		return;
	g_mutex_lock(&blocks.lock);
	v->needs_blocks = need;
	v->needs_count = v->pmu.counting;
	translate(v, need ? CALLING : v->needs_count ? COUNTING : BARE);
	g_mutex_unlock(&blocks.lock);
	if (need || !needed)
		return;
	v->settle_at = executed(v) + SETTLE;
	want_attention(v);
}

static void settle(struct vcpu *v)
{
	bool needed = false, count;

	g_mutex_lock(&blocks.lock);
	count = blocks.count;
	for (unsigned int i = 0; i < vcpu_count(); i++) {
		needed |= vcpu_get(i)->needs_blocks;
		count |= vcpu_get(i)->needs_count;
	}
	if (!needed && blocks.kind == CALLING) {
		blocks.kind = count ? COUNTING : BARE;
		internal_flush(v->index);
	}
	g_mutex_unlock(&blocks.lock);
}

static unsigned int counted(const struct block *b, int i)
{
	return b->counted ? b->counted[i] : b->n;
}

/* The index of the instruction at offset off of b, or -1. */
static int index_at(const struct block *b, uint64_t off)
{
	if (off >= b->end - b->start)
		return -1;
	for (int i = 0; i < b->n; i++)
		if (b->off[i] == off)
			return i;
	return -1;
}

static struct block *begun(const struct vcpu *v)
{
	return (struct block *)(uintptr_t)v->hot->begun;
}

/* Of the block begun last only the first n instructions were executed. */
static void cut_short(struct vcpu *v, const struct block *b, int i, int n)
{
	v->clock_base[b->kernel] -= counted(b, i) - n;
	v->hot->begun = 0;
}

/* The instruction that block b begins with, as one of those in c; -1 if it isn't there. */
static int repeated(const struct block *c, const struct block *b)
{
	/* The same page of memory is next to itself at every mapping, two pages are not. */
	if (c->host && b->host && !((c->start ^ b->start) >> 12))
		return index_at(c, b->host - c->host);
	return index_at(c, b->start - c->start);
}

/* A block of a single instruction begins that may be a repetition. */
static void on_single(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	const struct block *b = opaque, *c = begun(v);
	int i;

	/* A branch to itself is no repetition. */
	if (!c || (c == b && !b->rep))
		return;
	i = repeated(c, b);
	if (i >= 0)
		cut_short(v, c, i, i);
}

/* Memory is accessed by such an instruction. It is a repetition if its block has not begun. */
static void on_single_access(unsigned int index, uint32_t info, uint64_t vaddr, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	const struct block *b = opaque, *c = begun(v);
	int i;

	(void)info;
	(void)vaddr;
	if (!c || c == b)
		return;
	i = repeated(c, b);
	if (i >= 0)
		cut_short(v, c, i, i + 1);
}

static void on_block(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	uint64_t now = executed(v), left;

	if (v->patch.pending) {
		patch_apply(v);
		instrument_update(v);
	}
	if (now >= v->pmu.deadline)
		pmu_sync(v);
	if (v->tracing)
		branch_on_block(v, opaque);
	if (v->tracing)
		return;
	left = v->pmu.deadline - now;
	if (!v->needs_blocks) {
		if (now >= v->settle_at)
			settle(v);
		left = MIN(left, SETTLE);
	}
	set_alarm(v, left);
}

static void on_insn_after(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);

	(void)opaque;
	if (v->patch.pending)
		patch_apply(v);
}

static bool fetch_fault(struct vcpu *v, uint64_t from)
{
	const uint64_t fetch = 1 << 4;	/* of the page fault error code */

	return guest_frame_has_error(v) && guest_frame(v, -1) & fetch && guest_reg(v, GUEST_CR2) - from < 16;
}

/* An interrupt or exception will return to `from`: that and what is after it was not executed. */
static void count_discon(struct vcpu *v, uint64_t from, bool exception)
{
	const struct block *c = begun(v);
	int i;

	if (!c || !v->counts)
		return;
	/* A block may run at another address than it was translated for, by whole pages. */
	i = index_at(c, (from - c->start) & 0xfff);
	if (i < 0)
		return;
	if (exception && !(guest_frame(v, 2) & RFLAGS_RF)) {
		/* INTO, the one software interrupt that doesn't end its block; others come of its last instruction. */
		cut_short(v, c, i, i + 1);
	} else if (exception ? !fetch_fault(v, from) : c->rep && i == c->n - 1) {
		cut_short(v, c, i, i);
	}
}

static void on_discon(unsigned int index, int type, uint64_t from, uint64_t to, void *opaque)
{
	struct vcpu *v = vcpu_get(index);

	(void)opaque;
	if (type == DISCON_EXCEPTION) {
		v->exception = true;
		return;
	}
	if (v->gp_pending) {
		v->gp_pending = false;
		guest_set_reg(v, GUEST_RCX, v->gp_rcx);
	}
	if (v->patch.pending) {
		/* If the instruction itself faulted, its registers are what they were. */
		if ((from & 0xfff) == v->patch.page_off)
			v->patch.pending = false;
		else
			patch_apply(v);
		instrument_update(v);
	}
	count_discon(v, from, v->exception);
	v->exception = false;
	truth_on_discon(v, from);
	if (v->tracing)
		branch_on_discon(v, from, to);
}

static void intercept(struct qemu_plugin_insn *insn, const struct insn *d, uint64_t block, bool last)
{
	static const struct {
		plugin_vcpu_cb cb;
		int regs;
	} callbacks[] = {
		[INSN_CPUID] = { cpuid_on_insn, REGS_WRITE },
		[INSN_RDMSR] = { msr_on_rdmsr, REGS_WRITE },
		[INSN_WRMSR] = { msr_on_wrmsr, REGS_WRITE },
		[INSN_RDPMC] = { msr_on_rdpmc, REGS_WRITE_PC },
		[INSN_PTWRITE] = { ptwrite_on_insn, REGS_WRITE_PC },
		/* Only while the block callback is on. */
		[INSN_CLI] = { branch_on_cli, REGS_READ },
		[INSN_STI] = { branch_on_sti, REGS_NONE },
		[INSN_HLT] = { power_on_halt, REGS_READ },
		[INSN_MWAIT] = { power_on_mwait, REGS_READ },
	};
	uint32_t caps = opts.model->pt_ebx;
	struct site *s;

	if (d->kind == INSN_MOV_TO_CR3)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, branch_on_mov_cr3, REGS_READ,
						       (void *)(uintptr_t)d->reg);
	if (d->kind == INSN_LGDT)
		qemu_plugin_register_vcpu_mem_cb(insn, guest_on_lgdt, REGS_READ, MEM_READ, NULL);
	if (d->kind == INSN_LIDT)
		qemu_plugin_register_vcpu_mem_cb(insn, guest_on_lidt, REGS_READ, MEM_READ, NULL);
	if (d->kind >= G_N_ELEMENTS(callbacks) || !callbacks[d->kind].cb)
		return;
	if ((d->kind == INSN_CLI || d->kind == INSN_STI) && !(blocks.kind == CALLING && caps & PT_CAP_EVENT))
		return;
	if ((d->kind == INSN_HLT || d->kind == INSN_MWAIT) && !(blocks.kind == CALLING && caps & PT_CAP_POWER))
		return;
	s = block_alloc(sizeof(*s));
	s->vaddr = qemu_plugin_insn_vaddr(insn);
	s->block = block;
	s->len = d->len;
	s->last = last;
	qemu_plugin_register_vcpu_insn_exec_cb(insn, callbacks[d->kind].cb, callbacks[d->kind].regs, s);
}

static bool intercepts_any(struct qemu_plugin_tb *tb)
{
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct insn d;
		uint8_t bytes[16];

		insn_decode(bytes, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i), bytes, sizeof(bytes)), &d);
		if (d.kind >= INSN_CPUID)
			return true;
	}
	return false;
}

static bool reads_counts(enum insn_kind kind)
{
	return kind >= INSN_CPUID;
}

/* Whether QEMU may execute it alone, to repeat it. What is emulated here loads by itself. */
static bool may_repeat(const struct insn *d)
{
	return !d->plain && d->kind != INSN_COND && d->kind != INSN_JUMP && d->kind != INSN_PTWRITE;
}

/* Addition of the counts of all instructions from `from` on, up to the next that looks at them. */
static unsigned int segment(struct block *b, const bool *looks, unsigned int from)
{
	unsigned int to = from;

	while (to < b->n && !looks[to++])
		;
	if (b->counted)
		for (unsigned int i = from; i < to; i++)
			b->counted[i] = to;
	return to;
}

static void on_translate(struct qemu_plugin_tb *tb, void *opaque)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	g_autofree bool *looks = NULL;
	qemu_plugin_u64 clock = HOT(clock);
	struct insn d = { 0 };
	unsigned int to = 0;
	uint64_t vaddr = 0;
	bool any = false, intercepts = false;
	struct block *b;

	(void)opaque;
	if (blocks.kind == BARE && !intercepts_any(tb))
		return;
	b = block_alloc(sizeof(*b) + n * sizeof(b->off[0]));
	looks = g_new0(bool, n);
	b->start = qemu_plugin_tb_vaddr(tb);
	b->host = qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
	b->kernel = !guest_translated_cpl();
	b->n = n;
	clock.offset += 8 * b->kernel;
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t bytes[16];

		insn_decode(bytes, qemu_plugin_insn_data(insn, bytes, sizeof(bytes)), &d);
		vaddr = qemu_plugin_insn_vaddr(insn);
		b->off[i] = vaddr - b->start;
		looks[i] = reads_counts(d.kind);
		any |= looks[i] && i < n - 1;
		intercepts |= d.kind >= INSN_CPUID;
	}
	b->end = vaddr + d.len;
	b->rep = d.rep;
	if (any)
		b->counted = block_alloc(n * sizeof(b->counted[0]));

	if (n == 1 && blocks.kind != BARE && may_repeat(&d)) {
		qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_single, REGS_NONE, COND_NE, HOT(begun), 0, b);
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, 0), on_single_access, REGS_NONE,
						 MEM_RW, b);
	}
	if (blocks.kind == CALLING) {
		qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_block, REGS_WRITE, COND_GT, clock,
							  CLOCK_ALARM, b);
		truth_translate(tb, HOT(truth));
	}
	to = segment(b, looks, 0);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, OP_ADD, clock, to);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, OP_STORE, HOT(begun), (uintptr_t)b);
	if (intercepts) {
		for (size_t i = 0; i < n; i++) {
			struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
			uint8_t bytes[16];

			if (i && looks[i - 1])
				qemu_plugin_register_vcpu_insn_exec_cb(insn, on_insn_after, REGS_WRITE, NULL);
			if (i == to) {
				to = segment(b, looks, to);
				qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, OP_ADD, clock, to - i);
			}
			insn_decode(bytes, qemu_plugin_insn_data(insn, bytes, sizeof(bytes)), &d);
			intercept(insn, &d, b->start, i == n - 1);
		}
	}
	if (insn_is_branch(d.kind) || d.kind == INSN_INT1) {
		b->last = d;
		b->last_off = b->off[n - 1];
		if (blocks.kind == CALLING)
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(qemu_plugin_tb_get_insn(tb, n - 1),
									    OP_STORE, HOT(branched),
									    (uintptr_t)b);
	}
}

void instrument_init(qemu_plugin_id_t id)
{
	/* The first CPU begins so, without a flush. */
	blocks.count = opts.stats;
	blocks.kind = opts.drill ? CALLING : opts.stats ? COUNTING : BARE;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate, NULL);
	qemu_plugin_register_vcpu_discon_cb(id, DISCON_INTERRUPT | DISCON_EXCEPTION, on_discon, NULL);
}
