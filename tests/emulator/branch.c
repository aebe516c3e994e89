/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow tracking: turns the blocks that QEMU executes into the events that packets report.
 *
 * Generated code notes in hot->branched that the last branch of a block has been begun. The next
 * block, or the next discontinuity, tells where it went. It can't be noted at the block's start:
 * QEMU leaves blocks in the middle (a store to a watched or a code page, device access) and goes on
 * at the next instruction with a new block, which must not look like a branch taken.
 */
#include "vcpu.h"

#include <inttypes.h>

#define RFLAGS_IF (1u << 9)
#define STATUS_TOPA_PMI (1ULL << 55)
#define CR3_NO_FLUSH (1ULL << 63)
#define CR3_ADDRESS 0x000ffffffffff000ULL
#define PSB_PERIOD(ctl) (2048ULL << CTL_PSBFREQ(ctl))
/* How long an overflow lasts, in branches. */
#define OVERFLOW_BRANCHES 40

static bool branches_on(const struct vcpu *v)
{
	return v->rtit.ctl & CTL_BRANCHEN;
}

/* ContextEn: privilege and address space (SDM, "Filtering by CPL", "Filtering by CR3"). */
static bool context_en(const struct vcpu *v)
{
	uint64_t ctl = v->rtit.ctl;

	if (!(ctl & (v->flow.cpl ? CTL_USER : CTL_OS)))
		return false;
	return !(ctl & CTL_CR3FILTER) ||
	       (v->flow.cr3 & CR3_ADDRESS) == (v->rtit.cr3_match & CR3_ADDRESS);
}

static bool has_ranges(const struct vcpu *v)
{
	return v->rtit.ctl >> 32 & 0xffff;
}

/* FilterEn: in one of the filter ranges, or there are none. */
static bool filter_en(const struct vcpu *v, uint64_t ip)
{
	bool any = false;

	if (!has_ranges(v))
		return true;
	for (unsigned int i = 0; i < RTIT_MAX_RANGES; i++) {
		if (CTL_ADDR_CFG(v->rtit.ctl, i) != ADDR_CFG_FILTER)
			continue;
		any = true;
		if (rtit_in_range(&v->rtit, i, ip))
			return true;
	}
	return !any;
}

static bool in_stop_range(const struct vcpu *v, uint64_t ip)
{
	if (!has_ranges(v))
		return false;
	for (unsigned int i = 0; i < RTIT_MAX_RANGES; i++)
		if (CTL_ADDR_CFG(v->rtit.ctl, i) == ADDR_CFG_STOP && rtit_in_range(&v->rtit, i, ip))
			return true;
	return false;
}

static void ret_clear(struct flow *f)
{
	f->ret_n = 0;
}

static void ret_push(struct flow *f, uint64_t ip)
{
	f->ret_top = (f->ret_top + 1) % RET_STACK;
	f->ret[f->ret_top] = ip;
	if (f->ret_n < RET_STACK)
		f->ret_n++;
}

/*
 * Whether a RET to ip may be a single TNT bit. One that may not be empties the stack: decoders
 * differ in whether they pop theirs then, and an empty stack is right for all of them.
 */
static bool ret_compressed(struct vcpu *v, uint64_t ip)
{
	struct flow *f = &v->flow;

	if (!opts.compress_ret || v->rtit.ctl & (CTL_DISRETC | CTL_DISTNT) || !f->ret_n ||
	    f->ret[f->ret_top] != ip) {
		ret_clear(f);
		return false;
	}
	f->ret_top = (f->ret_top + RET_STACK - 1) % RET_STACK;
	f->ret_n--;
	return true;
}

/* MODE.Exec. Event trace puts the interrupt flag into it. */
static void mode_exec(struct vcpu *v)
{
	packet_mode_exec(&v->writer, v->flow.mode, v->rtit.ctl & CTL_EVENTEN && v->flow.iflag);
}

/* PSB+, in the order in which real processors send it. ip: the next instruction; start: TIP.PGE may follow. */
static void psb_plus(struct vcpu *v, uint64_t ip, bool start)
{
	struct packet_writer *w = &v->writer;
	struct flow *f = &v->flow;

	if (opts.errata & ERRATUM_SKL168) {
		clock_drop_cyc(v);
		w->stamp = NULL;
	}
	packet_psb(w);
	/* No CYC inside of PSB+. */
	w->stamp = NULL;
	/* The erratum is about a PSB+ that TIP.PGE follows; with ranges nobody knows yet whether it does. */
	if (branches_on(v) && (f->packet_en || (start && f->context_en && !has_ranges(v) && opts.errata & ERRATUM_BDM70))) {
		mode_exec(v);
		if (opts.model->tsx)
			packet_mode_tsx(w, false, false);
		packet_ip(w, PACKET_FUP, ip);
		/* libipt takes no address from the one that should not be, perf does: in full, the next is right for both. */
		if (!f->packet_en)
			w->ip_known = false;
	} else if (f->packet_en && v->rtit.ctl & CTL_EVENTEN) {
		mode_exec(v);
	}
	if (v->rtit.ctl & CTL_OS && f->context_en)
		packet_pip(w, f->cr3 & CR3_ADDRESS, false);
	clock_tsc_packets(v);
	packet_cbr(w, opts.model->base_ratio);
	packet_psbend(w);
	w->stamp = clock_stamp;
	/* Who begins to decode there needs the rest. */
	f->psb_cut = w->lost;
	/* The decoder may begin here and know of no CALL before. */
	ret_clear(f);
}

/*
 * The context is that of the CS selector cs and RFLAGS. True if MODE.Exec is another one.
 */
static bool set_context(struct vcpu *v, uint16_t cs, uint64_t rflags)
{
	enum packet_exec mode = guest_exec_mode(v, cs);
	bool iflag = rflags & RFLAGS_IF;
	bool changed = mode != v->flow.mode || (v->rtit.ctl & CTL_EVENTEN && iflag != v->flow.iflag);

	v->flow.cpl = cs & 3;
	v->flow.mode = mode;
	v->flow.iflag = iflag;
	return changed;
}

/* What PacketEn is for an instruction at ip. */
static bool evaluate(struct vcpu *v, uint64_t ip)
{
	struct flow *f = &v->flow;

	f->context_en = context_en(v);
	f->filter_en = filter_en(v, ip);
	return f->context_en && f->filter_en;
}

static void begin(struct vcpu *v, uint64_t ip)
{
	v->flow.packet_en = true;
	ret_clear(&v->flow);
	if (!branches_on(v))
		return;
	/* The mode may have changed while nobody looked. */
	mode_exec(v);
	packet_ip(&v->writer, PACKET_TIP_PGE, ip);
}

/* by: the branch that left, NULL if it was none. */
static void end(struct vcpu *v, uint64_t ip, const struct insn *by)
{
	bool direct = by && (by->kind == INSN_JUMP || by->kind == INSN_CALL);

	v->flow.packet_en = false;
	ret_clear(&v->flow);
	if (!branches_on(v))
		return;
	/* Where a context goes that may not be traced is not told. */
	if (v->flow.context_en && !(direct && opts.errata & ERRATUM_SKL014))
		packet_ip(&v->writer, PACKET_TIP_PGD, ip);
	else
		packet_ip_none(&v->writer, PACKET_TIP_PGD);
}

/*
 * The internal buffer takes packets again (SDM, "Internal Buffer Overflow"): OVF, and if PacketEn is
 * 1, where the flow is. ip: the next instruction. If PacketEn is 0, TIP.PGE will tell that.
 */
static void overflow_resolve(struct vcpu *v, uint64_t ip)
{
	struct packet_writer *w = &v->writer;
	struct flow *f = &v->flow;

	packet_ovf(w);
	truth_overflow(v);
	v->n_overflows++;
	f->lost_branches = 0;
	/* No RET may be compressed against a CALL that was lost. */
	ret_clear(f);
	if (!branches_on(v))
		return;
	if (!f->packet_en) {
		/* It is about FilterEn alone: no address of a context that may not be traced is told. */
		if (ip && f->context_en && opts.errata & ERRATUM_APL12)
			packet_ip(w, PACKET_FUP, ip);
		else if (!ip && opts.errata & ERRATUM_APL11)
			packet_ip_none(w, PACKET_TIP_PGD);
		return;
	}
	if (opts.errata & ERRATUM_SKD010)
		return;
	/*
	 * No MODE.Exec may come between OVF and FUP, and a PSB+ with another mode than the last is an
	 * error to libipt. So a change that was lost is told as if packets had been off.
	 */
	if (f->mode == w->mode)
		packet_ip(w, PACKET_FUP, ip);
	else
		begin(v, ip);
}

/*
 * A block begins at ip during an overflow. True if that is over now. It may resolve only at the target of
 * a branch: elsewhere QEMU may be about to repeat the last instruction, which would be told as the next
 * one.
 */
static bool overflow_over(struct vcpu *v, uint64_t ip, bool branched)
{
	if (!branched || ++v->flow.lost_branches < OVERFLOW_BRANCHES)
		return false;
	overflow_resolve(v, ip);
	if (v->flow.psb_cut)
		psb_plus(v, ip, false);
	return true;
}

/* A PSB+ is due, and comes; with that erratum after another block, so that there are cycles to lose. */
static bool psb_comes(struct vcpu *v)
{
	if (v->writer.since_psb < PSB_PERIOD(v->rtit.ctl))
		return false;
	if (!(opts.errata & ERRATUM_SKL168))
		return true;
	v->flow.psb_late = !v->flow.psb_late;
	return !v->flow.psb_late;
}

static void halt(struct vcpu *v, uint64_t status_bit)
{
	v->rtit.status |= status_bit;
	v->tracing = false;
	instrument_update(v);
	v->flow.packet_en = false;
	/* What is still buffered has nowhere to go. */
	packet_reset(&v->writer);
	if (opts.log)
		fprintf(stderr, "intel_pt: cpu%u: halted, STATUS bit %#" PRIx64 "\n", v->index,
			status_bit);
}

/* TraceStop, if ip is where a range says so. True if tracing has ended. */
static bool check_stop(struct vcpu *v, uint64_t ip, const struct insn *by)
{
	if (!v->flow.context_en || !in_stop_range(v, ip))
		return false;
	if (v->flow.packet_en)
		end(v, ip, by);
	if (v->writer.lost) {
		truth_stop(v);
		overflow_resolve(v, ip);
	}
	packet_tracestop(&v->writer);
	packet_flush(&v->writer);
	halt(v, STATUS_STOPPED);
	return true;
}

/* The flow goes on at ip, by the branch `by` or, if that is NULL, without one. True if that needs no packet. */
static bool edge(struct vcpu *v, uint64_t ip, const struct insn *by)
{
	bool was = v->flow.packet_en, now = evaluate(v, ip);

	if (check_stop(v, ip, by))
		return true;
	if (!was && now)
		begin(v, ip);
	else if (was && !now)
		end(v, ip, by);
	return was != now;
}

/* The branch insn, whose next instruction in memory is at next, went to ip. */
static void retire(struct vcpu *v, const struct insn *insn, uint64_t next, uint64_t ip,
		   bool mode_changed)
{
	struct packet_writer *w = &v->writer;
	struct flow *f = &v->flow;

	if (opts.verify && ((insn->kind == INSN_COND && ip != next && ip != next + insn->disp) ||
			    ((insn->kind == INSN_JUMP || insn->kind == INSN_CALL) &&
			     ip != next + insn->disp))) {
		v->n_flow_wrong++;
		fprintf(stderr, "intel_pt: cpu%u: branch before %#" PRIx64 " can't go to %#" PRIx64 "\n",
			v->index, next, ip);
	}
	if (insn->iret)
		event_iret(v, next - insn->len);
	if (edge(v, ip, insn) || !f->packet_en || !branches_on(v))
		return;
	switch (insn->kind) {
	case INSN_COND:
		if (!(v->rtit.ctl & CTL_DISTNT))
			packet_tnt(w, ip != next);
		break;
	case INSN_CALL:
		/* A call to the next instruction only reads the IP; decoders don't push it either. */
		if (insn->disp)
			ret_push(f, next);
		break;
	case INSN_INDIRECT_CALL:
		ret_push(f, next);
		packet_ip(w, PACKET_TIP, ip);
		break;
	case INSN_RET:
		if (ret_compressed(v, ip))
			packet_tnt(w, true);
		else
			packet_ip(w, PACKET_TIP, ip);
		break;
	case INSN_FAR:
		if (mode_changed)
			mode_exec(v);
		packet_ip(w, PACKET_TIP, ip);
		break;
	case INSN_INDIRECT_JUMP:
		packet_ip(w, PACKET_TIP, ip);
		break;
	default:
		break;
	}
}

/*
 * Filter edges inside a block, once it is known how far it was executed: up to, not including, the
 * instruction at the offset limit. Only the order of packets matters, so late is fine.
 */
static void inner_edges(struct vcpu *v, const struct block *b, uint64_t limit)
{
	unsigned int *i = &v->flow.settled;

	if (!has_ranges(v))
		return;
	for (; *i < b->n && b->off[*i] < limit && v->tracing; (*i)++)
		edge(v, b->start + b->off[*i] + v->flow.delta, NULL);
}

/*
 * The block that was begun last is over; the flow arrived at ip. cs and rflags: what they are at ip, for far
 * branches.
 */
static void finish_block(struct vcpu *v, bool branched, uint64_t ip, uint16_t cs, uint64_t rflags)
{
	const struct block *b = v->flow.block;
	uint64_t next;
	bool mode_changed;

	if (!b) {
		edge(v, ip, NULL);
		return;
	}
	if (!branched) {
		inner_edges(v, b, ip - b->start - v->flow.delta);
		if (v->tracing)
			edge(v, ip, NULL);
		return;
	}
	inner_edges(v, b, UINT64_MAX);
	if (!v->tracing)
		return;
	mode_changed = b->last.kind == INSN_FAR && set_context(v, cs, rflags);
	next = b->end + v->flow.delta;
	retire(v, &b->last, next, ip, mode_changed);
}

/*
 * The real address of block b, which is about to be executed. A block is translated once and used
 * at every address that its page is mapped to; reading RIP is dear, so where the way here is known
 * it is followed instead, checked by the offset in the page.
 */
static uint64_t locate(struct vcpu *v, const struct block *b, bool branched)
{
	const struct block *prev = v->flow.block;
	uint64_t next, target, pc = 0;

	if (v->flow.resume) {
		pc = v->flow.resume;
	} else if (prev) {
		next = prev->end + v->flow.delta;
		target = next + prev->last.disp;
		if (!branched)
			pc = next;
		else if (prev->last.kind == INSN_JUMP || prev->last.kind == INSN_CALL)
			pc = target;
		else if (prev->last.kind == INSN_COND && (next ^ target) & 0xfff)
			pc = (next ^ b->start) & 0xfff ? target : next;
	}
	if (pc && !((pc ^ b->start) & 0xfff)) {
		if (opts.verify && pc != guest_reg(v, GUEST_RIP)) {
			v->n_rip_wrong++;
			pc = guest_reg(v, GUEST_RIP);
		}
		return pc;
	}
	v->n_rip_reads++;
	return internal_rip(v);
}

/* Event trace: CLI, STI or POPF was executed before ip. */
static void branch_iflag(struct vcpu *v, uint64_t ip, uint64_t rflags)
{
	bool iflag = rflags & RFLAGS_IF;

	v->flow.iflag_asked = false;
	if (iflag == v->flow.iflag)
		return;
	v->flow.iflag = iflag;
	if (!v->flow.packet_en)
		return;
	mode_exec(v);
	packet_ip(&v->writer, PACKET_FUP, ip);
}

void branch_on_cli(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);
	const struct site *s = opaque;

	if (!v->tracing || !(v->rtit.ctl & CTL_EVENTEN) || v->flow.cpl)
		return;
	inner_edges(v, v->flow.block, s->vaddr - v->flow.block->start + 1);
	if (v->tracing)
		branch_iflag(v, s->vaddr + v->flow.delta + s->len, 0);
}

/* STI or POPF, which end their block: the next one, or an interrupt before it, shows what has become of it. */
void branch_on_sti(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);

	(void)opaque;
	v->flow.iflag_asked = v->tracing && v->rtit.ctl & CTL_EVENTEN;
}

void branch_settle(struct vcpu *v, const struct site *s)
{
	if (v->flow.block)
		inner_edges(v, v->flow.block, s->vaddr - v->flow.block->start + 1);
}

/*
 * Whether the branch of the block begun last has been begun. next: the block that begins now, if one does: a
 * branch that QEMU repeats alone, since it stores to a watched or a code page, has not happened yet.
 */
static bool take_branched(struct vcpu *v, const struct block *next)
{
	const struct block *b = v->flow.block;
	bool branched = b && v->hot->branched == (uintptr_t)b;

	if (branched && next && next->n == 1 && next != b && next->last.kind == b->last.kind &&
	    next->last.len == b->last.len && b->last.kind != INSN_COND && b->last.kind != INSN_JUMP &&
	    (next->host && b->host && !((next->start ^ b->start) >> 12) ?
	     next->host - b->host == b->last_off : next->start - b->start == b->last_off))
		branched = false;

	v->hot->branched = 0;
	return branched;
}

void branch_on_block(struct vcpu *v, const struct block *b)
{
	bool branched = take_branched(v, b);
	uint64_t pc = locate(v, b, branched), rflags = 0;
	uint16_t cs = 0;

	v->n_blocks++;
	if (branched && v->flow.block->last.kind == INSN_FAR) {
		cs = guest_reg(v, GUEST_CS);
		if (v->rtit.ctl & CTL_EVENTEN)
			rflags = guest_reg(v, GUEST_RFLAGS);
	}
	if (v->flow.power_down)
		power_wake(v, false);
	/* After a discontinuity everything before it has been settled. */
	if (v->flow.resume)
		v->flow.block = NULL;
	finish_block(v, branched, pc, cs, rflags);
	v->flow.block = b;
	v->flow.delta = pc - b->start;
	v->flow.settled = 1;
	v->flow.resume = 0;
	if (v->flow.iflag_asked)
		branch_iflag(v, pc, guest_reg(v, GUEST_RFLAGS));
	if (!v->tracing)
		return;
	if (v->writer.lost && !overflow_over(v, pc, branched))
		return;
	clock_tick(v);
	if (psb_comes(v))
		psb_plus(v, pc, false);
}

/*
 * An interrupt or exception took the flow from `from`, the address to which it would return, to
 * `to`. Of a software interrupt `from` is the address of INT itself, and that is what FUP names, too
 * (SDM, "FUP Cases and IP Payload"). The vCPU is in the handler already, with the frame pushed.
 */
void branch_on_discon(struct vcpu *v, uint64_t from, uint64_t to)
{
	const struct block *b = v->flow.block;
	struct packet_writer *w = &v->writer;
	bool branched = take_branched(v, NULL), was, now, mode_changed;
	uint64_t branch_pc;

	if (branched) {
		branch_pc = b->start + b->last_off + v->flow.delta;
		if (b->last.kind == INSN_INT1) {
			from = branch_pc;
			branched = false;
		}
		/* It faulted; except for a jump to itself, which can't. */
		if (from == branch_pc)
			branched = b->last.disp == -b->last.len &&
				   (b->last.kind == INSN_JUMP || b->last.kind == INSN_COND);
	}
	if (v->flow.resume)
		v->flow.block = NULL;
	if (v->flow.power_down)
		power_wake(v, true);
	finish_block(v, branched, from, branched && b->last.kind == INSN_FAR ? guest_frame(v, 1) : 0,
		     guest_frame(v, 2));
	if (v->tracing && v->flow.iflag_asked)
		branch_iflag(v, from, guest_frame(v, 2));
	v->flow.resume = to;
	v->flow.block = NULL;
	if (!v->tracing)
		return;
	event_interrupt(v, from, to);
	mode_changed = set_context(v, guest_reg(v, GUEST_CS), guest_reg(v, GUEST_RFLAGS));
	was = v->flow.packet_en;
	now = evaluate(v, to);
	if (was && branches_on(v))
		packet_ip(w, PACKET_FUP, from);
	if (check_stop(v, to, NULL))
		return;
	if (was && now) {
		if (!branches_on(v))
			return;
		if (mode_changed)
			mode_exec(v);
		packet_ip(w, PACKET_TIP, to);
	} else if (was) {
		end(v, to, NULL);
	} else if (now) {
		begin(v, to);
	}
}

/* MOV to CR3 is about to be executed; it ends its block. */
void branch_on_mov_cr3(unsigned int index, void *gpr)
{
	struct vcpu *v = vcpu_get(index);

	if (!v->tracing)
		return;
	v->flow.cr3 = guest_reg(v, (uintptr_t)gpr) & ~CR3_NO_FLUSH;
	v->flow.context_en = context_en(v);
	/* A context that ends is told by TIP.PGD alone, with the next block. */
	if (v->rtit.ctl & CTL_OS && v->flow.context_en)
		packet_pip(&v->writer, v->flow.cr3 & CR3_ADDRESS, false);
}

void branch_on_ptwrite(struct vcpu *v, uint64_t ip, uint64_t next, uint64_t value, unsigned int bytes)
{
	struct packet_writer *w = &v->writer;
	bool fup = v->rtit.ctl & CTL_FUPONPTW;

	if (!v->tracing)
		return;
	/* It is the last instruction of its block, whose end QEMU doesn't know. */
	if (v->flow.block)
		inner_edges(v, v->flow.block, UINT64_MAX);
	v->flow.block = NULL;
	v->flow.resume = next;
	if (!v->tracing || !v->flow.packet_en || !(v->rtit.ctl & CTL_PTWEN))
		return;
	packet_ptwrite(w, value, bytes, fup);
	if (fup)
		packet_ip(w, PACKET_FUP, ip);
}

static void output_events(struct vcpu *v, unsigned int events)
{
	if (events & TOPA_EVENT_ERROR)
		trace_halt(v, STATUS_ERROR);
	if (events & TOPA_EVENT_STOP)
		trace_halt(v, STATUS_STOPPED);
	if (events & TOPA_EVENT_INT) {
		v->pmu.global_status |= STATUS_TOPA_PMI;
		pmi_raise(v);
	}
}

/* Hook of the packet writer. */
void trace_output(void *opaque, const uint8_t *data, size_t len)
{
	struct vcpu *v = opaque;

	if (opts.drill || v->rtit.status & (STATUS_ERROR | STATUS_STOPPED))
		return;
	output_events(v, topa_write(&v->topa, data, len));
}

void trace_halt(struct vcpu *v, uint64_t status_bit)
{
	halt(v, status_bit);
	truth_stop(v);
}

void trace_sync(struct vcpu *v)
{
	if (!(v->rtit.ctl & CTL_TRACEEN))
		return;
	packet_flush(&v->writer);
	v->rtit.output_base = v->topa.base;
	v->rtit.output_mask = v->topa.mask_ptrs;
	v->rtit.packet_byte_cnt = v->writer.since_psb;
}

void trace_start(struct vcpu *v)
{
	struct flow *f = &v->flow;
	bool inject = v->rtit.ctl & CTL_INJECTPSBPMI;
	bool pend_psb = inject && v->rtit.status & STATUS_PENDPSB;
	bool pend_pmi = inject && v->rtit.status & STATUS_PENDTOPAPMI;
	unsigned int events;

	if (inject)
		v->rtit.status &= ~(STATUS_PENDPSB | STATUS_PENDTOPAPMI);
	if (opts.log)
		fprintf(stderr, "intel_pt: cpu%u: start, CTL %#" PRIx64 " BASE %#" PRIx64
			" MASK_PTRS %#" PRIx64 "\n", v->index, v->rtit.ctl, v->rtit.output_base,
			v->rtit.output_mask);
	packet_reset(&v->writer);
	v->writer.long_tnt = opts.long_tnt;
	v->writer.since_psb = v->rtit.packet_byte_cnt;
	v->topa.base = v->rtit.output_base;
	v->topa.mask_ptrs = v->rtit.output_mask;
	f->packet_en = false;
	f->block = NULL;
	f->resume = 0;
	f->lost_branches = 0;
	f->psb_cut = false;
	f->psb_late = false;
	f->settled = 1;
	f->iflag_asked = false;
	f->power_down = false;
	v->hot->branched = 0;
	ret_clear(f);
	f->cr3 = guest_reg(v, GUEST_CR3);
	set_context(v, guest_reg(v, GUEST_CS), guest_reg(v, GUEST_RFLAGS));
	f->context_en = context_en(v);
	f->filter_en = false;
	/* With Stopped or Error left set nothing is traced (TriggerEn = 0). */
	if (v->rtit.status & (STATUS_ERROR | STATUS_STOPPED))
		return;
	events = topa_start(&v->topa, !(v->rtit.ctl & CTL_TOPA));
	if (events) {
		output_events(v, events);
		return;
	}
	v->tracing = true;
	instrument_update(v);
	clock_start(v);
	/* A new trace begins with PSB+, one that goes on with the time. TIP.PGE comes next. */
	if (!v->rtit.packet_byte_cnt || pend_psb)
		psb_plus(v, guest_reg(v, GUEST_RIP), true);
	else
		clock_tsc_packets(v);
	truth_start(v);
	want_attention(v);
	if (pend_pmi) {
		v->pmu.global_status |= STATUS_TOPA_PMI;
		pmi_raise(v);
	}
}

void trace_drill(struct vcpu *v)
{
	v->rtit.ctl = CTL_TRACEEN | CTL_OS | CTL_USER | CTL_BRANCHEN | CTL_TSCEN | CTL_MTCEN | CTL_CYCEN | CTL_EVENTEN;
	v->tracing = true;
	v->flow.settled = 1;
	v->flow.mode = PACKET_EXEC_16;
	packet_reset(&v->writer);
	instrument_update(v);
	want_attention(v);
}

void trace_stop(struct vcpu *v, uint64_t insn_vaddr)
{
	struct flow *f = &v->flow;
	const struct block *b = f->block;

	truth_count(v);
	truth_stop(v);
	if (v->tracing) {
		if (b)
			inner_edges(v, b, insn_vaddr - b->start + 1);
		/*
		 * As real processors have it: FUP with the address of the WRMSR itself, which
		 * counts as not traced any more, and TIP.PGD without IP.
		 */
		if (f->packet_en && branches_on(v)) {
			packet_ip(&v->writer, PACKET_FUP, insn_vaddr + f->delta);
			packet_ip_none(&v->writer, PACKET_TIP_PGD);
		}
		packet_tnt_flush(&v->writer);
		/* The buffer is emptied now, and with it an overflow is over. */
		f->packet_en = false;
		if (v->writer.lost)
			overflow_resolve(v, 0);
	}
	trace_sync(v);
	/* A PSB that was due comes at the next start, if software asks for that. */
	if (opts.model->pt_ebx & PT_CAP_PRESERVE && v->tracing && v->writer.since_psb >= PSB_PERIOD(v->rtit.ctl))
		v->rtit.status |= STATUS_PENDPSB;
	v->tracing = false;
	instrument_update(v);
	f->packet_en = false;
	if (opts.log)
		fprintf(stderr, "intel_pt: cpu%u: stop, STATUS %#" PRIx64 " MASK_PTRS %#" PRIx64 "\n",
			v->index, v->rtit.status, v->rtit.output_mask);
}
