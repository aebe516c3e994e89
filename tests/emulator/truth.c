/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The truth: what a perfect decoder would say. With truth=DIR the address of every instruction that
 * is executed while PacketEn is 1 goes to DIR/cpuN.ips, in order, 64-bit little-endian; a 0 marks
 * each TraceEn 0 -> 1, and a 1 each place where an overflow of the internal buffer has resolved. What
 * was executed during the overflow is there, too.
 *
 * It is gathered by its own callbacks on every instruction, from RIP, CS and CR3 as the guest has
 * them, and shares nothing with the flow tracking and the packets that it judges.
 *
 * QEMU's callback comes when an instruction begins. The rules that make "begun" into "executed":
 *
 *  - An interrupt or exception that would return to the instruction begun last means that it did
 *    not complete: it is dropped. It comes again after the return. An interrupted REP is such a
 *    case too: the processor's FUP names the REP itself, which then counts as not executed yet.
 *  - INT instructions that interrupt are dropped, too: FUP names the instruction itself, as that of a fault does.
 *  - Not dropped are jumps to themselves (they completed, and began anew).
 *  - The same instruction twice in a row is one: QEMU begins an instruction again when a store (also
 *    the push of a CALL) hits a watched or a code page, when an atomic access needs the other CPUs to
 *    stand still, and for iterations of REP. Only a direct branch to itself can really follow itself.
 *  - The first instruction in a TraceStop range is not executed in the trace; what led there is.
 *  - The WRMSR that clears TraceEn is dropped: processors report its own address as the place where
 *    the trace ended.
 *
 * DIR/cpuN.counts has a line for each trace without ranges and CR3 filter that a WRMSR ended: how many instructions
 * were kept of it, INT instructions included, and how many the counters of instrument.c counted meanwhile in the
 * traced rings. These are the same.
 */
#include "vcpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES 65536

#define FLAG_SELF	1	/* a direct branch to itself */
#define FLAG_INT1	2
#define FLAG_SOFT_INT	4

#define RFLAGS_RF (1u << 16)

#define CR3_ADDRESS 0x000ffffffffff000ULL

struct seen {
	uint64_t vaddr;
	uint8_t flags;
};

bool truth_init(void)
{
	if (!opts.truth_dir)
		return true;
	if (mkdir(opts.truth_dir, 0777) && !g_file_test(opts.truth_dir, G_FILE_TEST_IS_DIR)) {
		fprintf(stderr, "intel_pt: truth=%s: can't make that directory\n", opts.truth_dir);
		return false;
	}
	return true;
}

void truth_vcpu_init(struct vcpu *v)
{
	g_autofree char *path = NULL;

	if (!opts.truth_dir)
		return;
	path = g_strdup_printf("%s/cpu%u.ips", opts.truth_dir, v->index);
	v->truth.file = fopen(path, "wb");
	if (!v->truth.file) {
		perror(path);
		exit(1);
	}
	v->truth.buf = g_new(uint64_t, ENTRIES);
	g_free(path);
	path = g_strdup_printf("%s/cpu%u.counts", opts.truth_dir, v->index);
	v->truth.counts = fopen(path, "w");
	if (!v->truth.counts) {
		perror(path);
		exit(1);
	}
}

static void flush(struct truth *t, size_t n)
{
	if (fwrite(t->buf, 8, n, t->file) != n) {
		perror("intel_pt: truth");
		exit(1);
	}
	memmove(t->buf, t->buf + n, (t->n - n) * 8);
	t->n -= n;
}

static void append(struct truth *t, uint64_t ip)
{
	/* The last one may still have to be taken back. */
	if (t->n == ENTRIES)
		flush(t, ENTRIES - 1);
	t->buf[t->n++] = ip;
}

static void forget_last(struct truth *t)
{
	t->last = 0;
	t->last_kept = false;
}

static void drop_last(struct truth *t)
{
	if (t->last_kept) {
		t->n--;
		t->kept--;
	}
	forget_last(t);
}

static bool in_filter(const struct rtit *r, uint64_t ip)
{
	bool any = false, in = false;

	if (!(r->ctl >> 32 & 0xffff))
		return true;
	for (unsigned int i = 0; i < RTIT_MAX_RANGES; i++) {
		if (CTL_ADDR_CFG(r->ctl, i) == ADDR_CFG_FILTER) {
			any = true;
			in |= rtit_in_range(r, i, ip);
		}
	}
	return in || !any;
}

static bool in_stop(const struct rtit *r, uint64_t ip)
{
	if (!(r->ctl >> 32 & 0xffff))
		return false;
	for (unsigned int i = 0; i < RTIT_MAX_RANGES; i++)
		if (CTL_ADDR_CFG(r->ctl, i) == ADDR_CFG_STOP && rtit_in_range(r, i, ip))
			return true;
	return false;
}

static void on_block(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	const uint64_t *start = opaque;
	uint64_t ctl = v->rtit.ctl;
	bool user = guest_reg(v, GUEST_CS) & 3;

	v->truth.delta = guest_reg(v, GUEST_RIP) - *start;
	v->truth.context = ctl & (user ? CTL_USER : CTL_OS);
	if (ctl & CTL_CR3FILTER && (guest_reg(v, GUEST_CR3) ^ v->rtit.cr3_match) & CR3_ADDRESS)
		v->truth.context = false;
}

static void on_insn(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	struct truth *t = &v->truth;
	const struct seen *s = opaque;
	uint64_t ip = s->vaddr + t->delta;

	if (ip == t->last && !(s->flags & FLAG_SELF))
		return;
	if (t->context && in_stop(&v->rtit, ip)) {
		/* All before it was executed. */
		v->hot->truth = 0;
		forget_last(t);
		return;
	}
	t->last = ip;
	t->last_flags = s->flags;
	t->last_kept = t->context && in_filter(&v->rtit, ip);
	if (t->last_kept) {
		append(t, ip);
		t->kept++;
	}
}

void truth_translate(struct qemu_plugin_tb *tb, qemu_plugin_u64 on)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	uint64_t *start;

	if (!opts.truth_dir)
		return;
	start = block_alloc(sizeof(*start));
	*start = qemu_plugin_tb_vaddr(tb);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_block, REGS_READ, COND_NE, on, 0, start);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		struct seen *s = block_alloc(sizeof(*s));
		uint8_t bytes[16];
		struct insn d;

		insn_decode(bytes, qemu_plugin_insn_data(insn, bytes, sizeof(bytes)), &d);
		s->vaddr = qemu_plugin_insn_vaddr(insn);
		if ((d.kind == INSN_JUMP || d.kind == INSN_COND || d.kind == INSN_CALL) && d.disp == -d.len)
			s->flags |= FLAG_SELF;
		if (d.kind == INSN_INT1)
			s->flags |= FLAG_INT1;
		if (d.kind == INSN_SOFT_INT || d.kind == INSN_INT1)
			s->flags |= FLAG_SOFT_INT;
		qemu_plugin_register_vcpu_insn_exec_cond_cb(insn, on_insn, REGS_NONE, COND_NE, on,
							    0, s);
	}
}

void truth_start(struct vcpu *v)
{
	if (!opts.truth_dir)
		return;
	append(&v->truth, 0);
	forget_last(&v->truth);
	v->truth.kept = 0;
	v->truth.interrupting = 0;
	for (int i = 0; i < 2; i++)
		v->truth.before[i] = executed_at(v, i);
	v->hot->truth = 1;
}

void truth_count(struct vcpu *v)
{
	struct truth *t = &v->truth;
	uint64_t ctl = v->rtit.ctl, executed = 0;

	if (!opts.truth_dir || !v->hot->truth || ctl & CTL_CR3FILTER || ctl >> 32 & 0xffff)
		return;
	if (ctl & CTL_USER)
		executed += executed_at(v, 0) - t->before[0];
	/* Without the WRMSR itself. */
	if (ctl & CTL_OS)
		executed += executed_at(v, 1) - t->before[1] - 1;
	fprintf(t->counts, "%" PRIu64 " %" PRIu64 "\n", t->kept - t->last_kept + t->interrupting, executed);
}

void truth_stop(struct vcpu *v)
{
	if (!opts.truth_dir || !v->hot->truth)
		return;
	v->hot->truth = 0;
	drop_last(&v->truth);
}

void truth_on_discon(struct vcpu *v, uint64_t from)
{
	struct truth *t = &v->truth;

	if (!v->hot->truth)
		return;
	if ((t->last == from && !(t->last_flags & FLAG_SELF)) || t->last_flags & FLAG_INT1) {
		/* It faulted, or it was executed. */
		if (t->last_kept && t->last_flags & FLAG_SOFT_INT && !(guest_frame(v, 2) & RFLAGS_RF))
			t->interrupting++;
		drop_last(t);
	} else {
		forget_last(t);
	}
}

void truth_overflow(struct vcpu *v)
{
	if (opts.truth_dir)
		append(&v->truth, 1);
}

void truth_exit(void)
{
	for (unsigned int i = 0; i < vcpu_count(); i++) {
		struct truth *t = &vcpu_get(i)->truth;

		if (!t->file)
			continue;
		flush(t, t->n);
		fclose(t->file);
		fclose(t->counts);
	}
}
