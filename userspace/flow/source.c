// SPDX-License-Identifier: BSD-2-Clause
#include "flow/source.h"

#include <stdlib.h>
#include <string.h>

#include "decode/clock.h"

struct flow_source {
	const struct ptw_recording *rec;
	size_t trace;
	unsigned int flags;
	struct ptw_decoder *decoder;
	struct ptw_clock clock;
	struct ptw_trace_totals totals;
	bool timed;
	uint64_t time;
	/* A branch whose target is not known yet */
	bool pending;
	enum ptw_insn_class class;
	uint8_t bits, speculative;
	uint64_t from, next;
	uint64_t run;		/* where the run of instructions began */
	uint64_t run_insns;
};

struct flow_source *flow_source_new(struct ptw_recording *rec, size_t trace, unsigned int flags,
				    struct ptw_error *err)
{
	struct flow_source *s = calloc(1, sizeof(*s));
	struct ptw_decoder_config config = {
		.params = &rec->params,
		.image = &rec->image,
		.data = rec->trace[trace].data,
		.size = rec->trace[trace].size,
		.flags = PTW_DECODE_SKIP_UNREADABLE,
	};

	if (!s) {
		ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
		return NULL;
	}
	s->rec = rec;
	s->trace = trace;
	s->flags = flags;
	s->clock.params = &rec->params;
	s->totals.bytes = rec->trace[trace].size;
	s->decoder = ptw_decoder_new(&config, err);
	if (!s->decoder) {
		free(s);
		return NULL;
	}
	return s;
}

void flow_source_free(struct flow_source *s)
{
	if (!s)
		return;
	ptw_decoder_free(s->decoder);
	free(s);
}

void flow_source_totals(const struct flow_source *s, struct ptw_trace_totals *totals)
{
	*totals = s->totals;
}

static struct ptw_flow *put(struct flow_source *s, struct ptw_flow *out, enum ptw_flow_kind kind)
{
	*out = (struct ptw_flow){
		.kind = kind,
		.flags = s->timed ? PTW_FLOW_TIMED : 0,
		.cpu = s->rec->trace[s->trace].cpu,
		.trace = s->trace,
		.time = s->time,
		.insns = s->totals.insns,
	};
	return out;
}

static const struct ptw_symbol *symbol_at(const struct flow_source *s, uint64_t addr)
{
	return s->rec->symbols ? ptw_symbols_at(s->rec->symbols, addr) : NULL;
}

static size_t end_run(struct flow_source *s, struct ptw_flow *out, uint64_t to)
{
	struct ptw_flow *f;

	if (!(s->flags & PTW_STREAM_RUNS) || !s->run_insns)
		return 0;
	f = put(s, out, PTW_FLOW_RUN);
	f->from = s->run;
	f->to = to;
	f->value = s->run_insns;
	s->run_insns = 0;
	return 1;
}

/* The pending branch went to @to. */
static size_t arrive(struct flow_source *s, struct ptw_flow *out, uint64_t to)
{
	static const enum ptw_flow_kind kinds[] = {
		[PTW_INSN_CALL] = PTW_FLOW_CALL,	 [PTW_INSN_RETURN] = PTW_FLOW_RETURN,
		[PTW_INSN_JUMP] = PTW_FLOW_JUMP,	 [PTW_INSN_COND_JUMP] = PTW_FLOW_JUMP,
		[PTW_INSN_FAR_CALL] = PTW_FLOW_SYSCALL,	 [PTW_INSN_FAR_RETURN] = PTW_FLOW_FAR_RETURN,
		[PTW_INSN_FAR_JUMP] = PTW_FLOW_JUMP,
	};
	struct ptw_flow *f;
	size_t n;

	if (!s->pending)
		return 0;
	s->pending = false;
	if (to == s->next && s->class != PTW_INSN_CALL)
		return 0;
	s->totals.branches++;
	if (s->flags & PTW_STREAM_TOTALS)
		return 0;
	if (kinds[s->class] == PTW_FLOW_JUMP && !(s->flags & PTW_STREAM_ALL_JUMPS)) {
		const struct ptw_symbol *a = symbol_at(s, s->from), *b = symbol_at(s, to);

		if (a == b)
			return 0;
	}
	n = end_run(s, out, s->from);
	f = put(s, out + n, kinds[s->class]);
	f->bits = s->bits;
	f->flags |= s->speculative ? PTW_FLOW_SPECULATIVE : 0;
	f->from = s->from;
	f->to = to;
	f->value = kinds[s->class] == PTW_FLOW_CALL || kinds[s->class] == PTW_FLOW_SYSCALL ? s->next : 0;
	return n + 1;
}

static size_t take_insn(struct flow_source *s, struct ptw_flow *out, const struct ptw_insn *insn)
{
	size_t n = arrive(s, out, insn->ip);

	s->totals.insns++;
	if (!s->run_insns++)
		s->run = insn->ip;
	s->from = insn->ip;
	s->next = insn->ip + insn->size;
	s->bits = insn->bits;
	s->speculative = insn->speculative;
	s->class = insn->class;
	s->pending = insn->class != PTW_INSN_OTHER && insn->class != PTW_INSN_PTWRITE &&
		     insn->class != PTW_INSN_UNKNOWN;
	return n;
}

static size_t put_event(struct flow_source *s, struct ptw_flow *out, const struct ptw_event *e)
{
	struct ptw_flow *f = put(s, out, PTW_FLOW_EVENT);

	f->event = e->type;
	f->from = e->has_ip ? e->ip : 0;
	f->value = e->value;
	if (e->type == PTW_EVENT_PTWRITE)
		f->kind = PTW_FLOW_MARKER;
	return 1;
}

static size_t take_event(struct flow_source *s, struct ptw_flow *out, const struct ptw_item *item)
{
	const struct ptw_event *e = &item->event;
	bool async = e->type == PTW_EVENT_ASYNC_DISABLED || e->type == PTW_EVENT_ASYNC_BRANCH;
	struct ptw_flow *f;
	size_t n = 0;

	if (e->status_update)
		return 0;
	switch (e->type) {
	case PTW_EVENT_ENABLED:
		s->pending = false;
		n = end_run(s, out, s->from);
		f = put(s, out + n, PTW_FLOW_BEGIN);
		f->to = e->ip;
		f->value = e->value;
		return n + 1;
	case PTW_EVENT_DISABLED:
	case PTW_EVENT_ASYNC_DISABLED:
	case PTW_EVENT_ASYNC_BRANCH:
		n = arrive(s, out, async ? e->from : e->has_ip ? e->ip : 0);
		n += end_run(s, out + n, s->from);
		if (async && !(s->flags & PTW_STREAM_TOTALS)) {
			f = put(s, out + n++, PTW_FLOW_INTERRUPT);
			f->from = e->from;
			f->to = e->has_ip ? e->ip : 0;
			s->totals.branches++;
		}
		if (e->type != PTW_EVENT_ASYNC_BRANCH) {
			f = put(s, out + n++, PTW_FLOW_END);
			f->from = async ? e->from : s->from;
		}
		return n;
	case PTW_EVENT_OVERFLOW:
		s->pending = false;
		n = end_run(s, out, s->from);
		f = put(s, out + n, PTW_FLOW_GAP);
		f->event = PTW_EVENT_OVERFLOW;
		f->text = "overflow: the CPU dropped packets";
		f->to = e->has_ip ? e->ip : 0;
		f->offset = item->offset;
		s->totals.overflows++;
		return n + 1;
	case PTW_EVENT_CBR:
	case PTW_EVENT_OTHER:
		return 0;
	default:
		return s->flags & PTW_STREAM_TOTALS ? 0 : put_event(s, out, e);
	}
}

static size_t take_error(struct flow_source *s, struct ptw_flow *out, const struct ptw_item *item)
{
	size_t n = end_run(s, out, s->from);
	struct ptw_flow *f = put(s, out + n, PTW_FLOW_GAP);

	s->pending = false;
	f->event = PTW_EVENT_OTHER;
	f->text = item->error.text;
	f->from = item->error.ip;
	f->offset = item->offset;
	f->value = item->error.lost;
	s->totals.errors++;
	s->totals.lost += item->error.lost;
	return n + 1;
}

size_t flow_source_fill(struct flow_source *s, struct ptw_flow *out, size_t room)
{
	struct ptw_item item;
	size_t n = 0;

	while (!n || n + 8 <= room) {
		if (ptw_decoder_next(s->decoder, &item) == PTW_ITEM_END)
			break;
		if (item.has_time) {
			s->time = ptw_clock_ns(&s->clock, item.tsc);
			s->timed = true;
			if (!s->totals.first_time)
				s->totals.first_time = s->time;
			s->totals.last_time = s->time;
		}
		n += item.kind == PTW_ITEM_INSN	 ? take_insn(s, out + n, &item.insn) :
		     item.kind == PTW_ITEM_EVENT ? take_event(s, out + n, &item) :
						   take_error(s, out + n, &item);
	}
	return n;
}
