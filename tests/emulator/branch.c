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

	if (!opts.compress_ret || v->rtit.ctl & CTL_DISRETC || !f->ret_n ||
	    f->ret[f->ret_top] != ip) {
		ret_clear(f);
		return false;
	}
	f->ret_top = (f->ret_top + RET_STACK - 1) % RET_STACK;
	f->ret_n--;
	return true;
}

/* PSB+, in the order in which real processors send it. ip: the next instruction. */
static void psb_plus(struct vcpu *v, uint64_t ip)
{
	struct packet_writer *w = &v->writer;
	struct flow *f = &v->flow;

	packet_psb(w);
	/* No CYC inside of PSB+. */
	w->stamp = NULL;
	if (f->packet_en && branches_on(v)) {
		packet_mode_exec(w, f->mode, false);
		packet_ip(w, PACKET_FUP, ip);
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

/* Let the context registers be those of the CS selector cs. True if the mode changed. */
static bool set_cs(struct vcpu *v, uint16_t cs)
{
	enum packet_exec mode = guest_exec_mode(v, cs);
	bool changed = mode != v->flow.mode;

	v->flow.cpl = cs & 3;
	v->flow.mode = mode;
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
	packet_mode_exec(&v->writer, v->flow.mode, false);
	packet_ip(&v->writer, PACKET_TIP_PGE, ip);
}

static void end(struct vcpu *v, uint64_t ip)
{
	v->flow.packet_en = false;
	ret_clear(&v->flow);
	if (!branches_on(v))
		return;
	/* Where a context goes that may not be traced is not told. */
	if (v->flow.context_en)
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
	if (!f->packet_en || !branches_on(v))
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
		psb_plus(v, ip);
	return true;
}

/* TraceStop, if ip is where a range says so. True if tracing has ended. */
static bool check_stop(struct vcpu *v, uint64_t ip)
{
	if (!v->flow.context_en || !in_stop_range(v, ip))
		return false;
	if (v->flow.packet_en)
		end(v, ip);
	if (v->writer.lost) {
		truth_stop(v);
		overflow_resolve(v, ip);
	}
	packet_tracestop(&v->writer);
	packet_flush(&v->writer);
	trace_halt(v, STATUS_STOPPED);
	return true;
}

/* The flow goes on at ip, without a branch or with one that needs no packet of its own. */
static bool edge(struct vcpu *v, uint64_t ip)
{
	bool was = v->flow.packet_en, now = evaluate(v, ip);

	if (check_stop(v, ip))
		return true;
	if (!was && now)
		begin(v, ip);
	else if (was && !now)
		end(v, ip);
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
	if (edge(v, ip) || !f->packet_en || !branches_on(v))
		return;
	switch (insn->kind) {
	case INSN_COND:
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
	case INSN_SOFT_INT:
		if (mode_changed)
			packet_mode_exec(w, f->mode, false);
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
	if (!has_ranges(v))
		return;
	for (unsigned int i = 1; i < b->n && b->off[i] < limit && v->tracing; i++)
		edge(v, b->start + b->off[i] + v->flow.delta);
}

/*
 * The block that was begun last is over; the flow arrived at ip. cs: the selector at ip, for far
 * branches.
 */
static void finish_block(struct vcpu *v, bool branched, uint64_t ip, uint16_t cs)
{
	const struct block *b = v->flow.block;
	uint64_t next;
	bool mode_changed;

	if (!b) {
		edge(v, ip);
		return;
	}
	if (!branched) {
		inner_edges(v, b, ip - b->start - v->flow.delta);
		if (v->tracing)
			edge(v, ip);
		return;
	}
	inner_edges(v, b, UINT64_MAX);
	if (!v->tracing)
		return;
	mode_changed = b->last.kind == INSN_FAR && set_cs(v, cs);
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
	return guest_reg(v, GUEST_RIP);
}

static bool take_branched(struct vcpu *v)
{
	bool branched = v->flow.block && v->hot->branched == (uintptr_t)v->flow.block;

	v->hot->branched = 0;
	return branched;
}

void branch_on_block(struct vcpu *v, const struct block *b)
{
	bool branched = take_branched(v);
	uint64_t pc = locate(v, b, branched);
	uint16_t cs = 0;

	v->n_blocks++;
	if (branched && v->flow.block->last.kind == INSN_FAR)
		cs = guest_reg(v, GUEST_CS);
	/* After a discontinuity everything before it has been settled. */
	if (v->flow.resume)
		v->flow.block = NULL;
	finish_block(v, branched, pc, cs);
	v->flow.block = b;
	v->flow.delta = pc - b->start;
	v->flow.resume = 0;
	if (!v->tracing)
		return;
	if (v->writer.lost && !overflow_over(v, pc, branched))
		return;
	clock_tick(v);
	if (v->writer.since_psb >= PSB_PERIOD(v->rtit.ctl))
		psb_plus(v, pc);
}

/*
 * An interrupt or exception took the flow from `from`, the address to which it would return, to
 * `to`. The vCPU is in the handler already, with the frame pushed.
 */
void branch_on_discon(struct vcpu *v, uint64_t from, uint64_t to)
{
	const struct block *b = v->flow.block;
	struct packet_writer *w = &v->writer;
	bool branched = take_branched(v), was, now, mode_changed, soft = false;
	uint64_t branch_pc = 0;

	if (branched) {
		branch_pc = b->start + b->last_off + v->flow.delta;
		if (b->last.kind == INSN_SOFT_INT) {
			/*
			 * An INT instruction is a far transfer, but a fault of it (a gate that may
			 * not be used) is an exception, with an error code.
			 */
			soft = !guest_frame_has_error(v);
			branched = false;
		} else if (from == branch_pc) {
			/* It faulted; except for a jump to itself, which can't. */
			branched = b->last.disp == -b->last.len &&
				   (b->last.kind == INSN_JUMP || b->last.kind == INSN_COND);
		}
	}
	if (v->flow.resume)
		v->flow.block = NULL;
	if (soft)
		inner_edges(v, b, UINT64_MAX);
	else
		finish_block(v, branched, from,
			     branched && b->last.kind == INSN_FAR ? guest_frame(v, 1) : 0);
	v->flow.resume = to;
	v->flow.block = NULL;
	if (!v->tracing)
		return;
	mode_changed = set_cs(v, guest_reg(v, GUEST_CS));
	if (soft) {
		retire(v, &b->last, from, to, mode_changed);
		return;
	}
	was = v->flow.packet_en;
	now = evaluate(v, to);
	if (was && branches_on(v))
		packet_ip(w, PACKET_FUP, from);
	if (check_stop(v, to))
		return;
	if (was && now) {
		if (!branches_on(v))
			return;
		if (mode_changed)
			packet_mode_exec(w, v->flow.mode, false);
		packet_ip(w, PACKET_TIP, to);
	} else if (was) {
		end(v, to);
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

static void output_events(struct vcpu *v, unsigned int events)
{
	if (events & TOPA_EVENT_ERROR)
		trace_halt(v, STATUS_ERROR);
	if (events & TOPA_EVENT_STOP)
		trace_halt(v, STATUS_STOPPED);
	if (events & TOPA_EVENT_INT) {
		v->pmu.global_status |= 1ULL << 55;
		pmi_raise(v);
	}
}

/* Hook of the packet writer. */
void trace_output(void *opaque, const uint8_t *data, size_t len)
{
	struct vcpu *v = opaque;

	if (v->rtit.status & (STATUS_ERROR | STATUS_STOPPED))
		return;
	output_events(v, topa_write(&v->topa, data, len));
}

void trace_halt(struct vcpu *v, uint64_t status_bit)
{
	v->rtit.status |= status_bit;
	v->tracing = false;
	v->flow.packet_en = false;
	/* What is still buffered has nowhere to go. */
	packet_reset(&v->writer);
	truth_stop(v);
	if (opts.log)
		fprintf(stderr, "intel_pt: cpu%u: halted, STATUS bit %#" PRIx64 "\n", v->index,
			status_bit);
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
	unsigned int events;

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
	v->hot->branched = 0;
	ret_clear(f);
	f->cr3 = guest_reg(v, GUEST_CR3);
	set_cs(v, guest_reg(v, GUEST_CS));
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
	clock_start(v);
	/* A new trace begins with PSB+, one that goes on with the time. TIP.PGE comes next. */
	if (!v->rtit.packet_byte_cnt)
		psb_plus(v, 0);
	else
		clock_tsc_packets(v);
	truth_start(v);
	want_attention(v);
}

void trace_stop(struct vcpu *v, uint64_t insn_vaddr)
{
	struct flow *f = &v->flow;
	const struct block *b = f->block;

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
	v->tracing = false;
	f->packet_en = false;
	if (opts.log)
		fprintf(stderr, "intel_pt: cpu%u: stop, STATUS %#" PRIx64 " MASK_PTRS %#" PRIx64 "\n",
			v->index, v->rtit.status, v->rtit.output_mask);
}
