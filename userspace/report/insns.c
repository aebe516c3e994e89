// SPDX-License-Identifier: BSD-2-Clause
#include "report/insns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "decode/clock.h"
#include "report/disasm.h"
#include "report/gap.h"
#include "report/ring.h"
#include "report/source_line.h"
#include "report/story.h"

#define SYMBOL_COLUMN	36
#define DISASM_COLUMN	44

enum entry_kind { ENTRY_INSN, ENTRY_EVENT, ENTRY_GAP };

/* One line of the report, kept until it is known whether it is within the last N or the last microseconds. */
struct entry {
	struct ptw_flow flow;	/* of an instruction: the run that it is of; else with .from and .to as .event wants them */
	enum entry_kind kind;
	bool is_alarm;
	bool resumes;		/* PTW_EVENT_ENABLED: where tracing ended last */
	uint8_t size;		/* of an instruction, at @ip: */
	uint8_t raw[15];
	uint64_t ip;
};

struct report {
	const struct ptw_view *view;
	const struct ptw_insns_options *options;
	struct ptw_out *out;
	struct ptw_stream *stream;
	struct ptw_ring kept;	/* struct entry */
	uint64_t kept_insns;
	uint64_t counted;	/* with count_only */
	struct ptw_flow interrupt;	/* waits for what comes next: it may have ended tracing */
	bool have_interrupt;
	uint64_t left_to;	/* where tracing ended; 0: unknown */
	uint64_t behind;	/* the last system call: where it returns to */
	uint64_t skip;		/* so many instructions at the beginning are not within --tail */
	bool have_before;	/* what came last, and no gap after it: */
	uint64_t time_before, tsc_before;
};

static void pop(struct report *r)
{
	struct entry *e = ptw_ring_first(&r->kept);

	r->kept_insns -= e->kind == ENTRY_INSN;
	ptw_ring_pop(&r->kept);
}

static unsigned int code_bits(const struct report *r, const struct entry *e)
{
	return e->flow.bits ? e->flow.bits : r->view->params->bits;
}

/* ---- places ---- */

/* "sym+0x1d [module]", or the address as "0x… [module]" */
static char *place_text(struct report *r, const struct entry *e, uint64_t addr, char *buf, size_t size)
{
	struct ptw_place place;

	ptw_stream_place(r->stream, &e->flow, addr, &place);
	ptw_place_text(&place, addr, buf, size);
	return buf;
}

/* The same beside the address: without a symbol "[module]" */
static char *symbol_text(struct report *r, const struct entry *e, uint64_t addr, char *buf, size_t size)
{
	struct ptw_place place;

	buf[0] = '\0';
	if (ptw_stream_place(r->stream, &e->flow, addr, &place))
		ptw_place_text(&place, addr, buf, size);
	else if (place.object)
		snprintf(buf, size, "[%s]", place.object);
	return buf;
}

/* What a branch goes to; where that has no symbol, it is said best by the address in the instruction. */
static const char *target_text(struct report *r, const struct entry *e, uint64_t addr, char *buf, size_t size)
{
	struct ptw_place place;

	if (!ptw_stream_place(r->stream, &e->flow, addr, &place))
		return NULL;
	ptw_place_text(&place, addr, buf, size);
	return buf;
}

static bool source_text(struct report *r, const struct entry *e, char *buf, size_t size)
{
	struct ptw_place place;

	if (!r->options->lines)
		return false;
	if (ptw_source_lines_find(r->options->lines, e->ip, buf, size))
		return true;
	return ptw_stream_place(r->stream, &e->flow, e->ip, &place) && place.path &&
	       ptw_source_lines_find_in(r->options->lines, place.path, place.file_addr, buf, size);
}

/* ---- text ---- */

static void text_head(struct report *r, const struct entry *e)
{
	struct ptw_out *out = r->out;
	int32_t tid;

	if (!r->options->no_time) {
		ptw_out_colour(out, PTW_DIM);
		if (!(e->flow.flags & PTW_FLOW_TIMED))
			ptw_out_printf(out, "%16s ", "-");
		else if (ptw_clock_known(r->view->params))
			ptw_out_printf(out, "%6" PRIu64 ".%09" PRIu64 " ", e->flow.time / 1000000000,
				       e->flow.time % 1000000000);
		else
			ptw_out_printf(out, "%16" PRIu64 " ", e->flow.time);
		ptw_out_colour(out, PTW_PLAIN);
	}
	if (e->flow.cpu >= 0)
		ptw_out_printf(out, "%3d ", e->flow.cpu);
	if (!r->options->threads)
		return;
	tid = ptw_stream_thread(r->stream, e->flow.thread)->tid;
	if (tid >= 0)
		ptw_out_printf(out, "%7d ", tid);
	else
		ptw_out_text(out, "      - ");
}

static void text_insn(struct report *r, const struct entry *e)
{
	char symbol[256], disasm[192] = "", text[512], mark[224];
	uint64_t target = 0;

	text_head(r, e);
	if (r->options->disasm)
		ptw_disasm_format(r->options->disasm, e->ip, e->raw, e->size, code_bits(r, e), disasm, sizeof(disasm),
				  &target);
	if (target && target_text(r, e, target, symbol, sizeof(symbol)))
		snprintf(text, sizeof(text), "%s  # %s", disasm, symbol);
	else
		snprintf(text, sizeof(text), "%s", disasm);

	ptw_out_printf(r->out, "%016" PRIx64 "  ", e->ip);
	if (r->options->symbols) {
		ptw_out_colour(r->out, PTW_CYAN);
		ptw_out_printf(r->out, "%-*s  ", SYMBOL_COLUMN, symbol_text(r, e, e->ip, symbol, sizeof(symbol)));
		ptw_out_colour(r->out, PTW_PLAIN);
	}
	if (source_text(r, e, symbol, sizeof(symbol)))
		ptw_out_printf(r->out, "%-*s  %s", DISASM_COLUMN, text, symbol);
	else
		ptw_out_text(r->out, text);
	if (e->flow.flags & PTW_FLOW_SPECULATIVE)
		ptw_out_text(r->out, "  (in transaction)");
	if (e->is_alarm) {
		ptw_out_colour(r->out, PTW_RED);
		ptw_out_printf(r->out, "  <-- %s", ptw_view_alarm_mark(r->view, mark, sizeof(mark)));
		ptw_out_colour(r->out, PTW_PLAIN);
	}
	ptw_out_text(r->out, "\n");
}

static bool event_has_from(const struct entry *e)
{
	return e->flow.event == PTW_EVENT_ASYNC_BRANCH || e->flow.event == PTW_EVENT_ASYNC_DISABLED;
}

/* The address of others is where they happened. */
static bool event_leads_to(const struct entry *e)
{
	return e->flow.event == PTW_EVENT_DISABLED || e->flow.event == PTW_EVENT_ASYNC_DISABLED ||
	       e->flow.event == PTW_EVENT_ASYNC_BRANCH || e->flow.event == PTW_EVENT_OVERFLOW;
}

static void text_event(struct report *r, const struct entry *e)
{
	char from[256], to[256];

	text_head(r, e);
	ptw_out_colour(r->out, PTW_YELLOW);
	ptw_out_printf(r->out, "--- %s", ptw_event_name(e->flow.event));
	if (event_has_from(e))
		ptw_out_printf(r->out, " at %s", place_text(r, e, e->flow.from, from, sizeof(from)));
	if (e->flow.event == PTW_EVENT_EXEC_MODE)
		ptw_out_printf(r->out, " %" PRIu64 "-bit", e->flow.value);
	else if (e->flow.event == PTW_EVENT_INTERRUPT)
		ptw_out_printf(r->out, " %" PRIu64, e->flow.value);
	else if (e->flow.value && e->flow.event != PTW_EVENT_ENABLED)
		ptw_out_printf(r->out, " 0x%" PRIx64, e->flow.value);
	if (e->flow.to)
		ptw_out_printf(r->out, " %s %s", event_leads_to(e) ? "→" : "at",
			       place_text(r, e, e->flow.to, to, sizeof(to)));
	ptw_out_colour(r->out, PTW_PLAIN);
	ptw_out_text(r->out, "\n");
}

static void text_gap(struct report *r, const struct entry *e)
{
	char text[256];

	text_head(r, e);
	ptw_out_colour(r->out, PTW_RED);
	ptw_out_printf(r->out, "--- gap: %s", ptw_flow_describe_gap(&e->flow, text, sizeof(text)));
	ptw_out_colour(r->out, PTW_PLAIN);
	ptw_out_text(r->out, "\n");
}

/* ---- JSON ---- */

static void json_symbol(struct report *r, const struct entry *e, const char *key, uint64_t addr)
{
	struct ptw_place place;

	if (ptw_stream_place(r->stream, &e->flow, addr, &place)) {
		ptw_out_printf(r->out, ",\"%s\":", key);
		ptw_out_json_string(r->out, place.symbol->name);
		ptw_out_printf(r->out, ",\"%s_offset\":%" PRIu64, key, addr - place.start);
	}
	if (place.object) {
		ptw_out_printf(r->out, ",\"%s_module\":", key);
		ptw_out_json_string(r->out, place.object);
	}
}

static void json_head(struct report *r, const struct entry *e, const char *type)
{
	int32_t tid = ptw_stream_thread(r->stream, e->flow.thread)->tid;

	ptw_out_printf(r->out, "{\"type\":\"%s\"", type);
	if (e->flow.cpu >= 0)
		ptw_out_printf(r->out, ",\"cpu\":%d", e->flow.cpu);
	if (r->options->threads && tid >= 0)
		ptw_out_printf(r->out, ",\"tid\":%d", tid);
	if (!(e->flow.flags & PTW_FLOW_TIMED))
		return;
	ptw_out_printf(r->out, ",\"tsc\":%" PRIu64, e->flow.tsc);
	if (ptw_clock_known(r->view->params))
		ptw_out_printf(r->out, ",\"time_ns\":%" PRIu64, e->flow.time);
}

static void json_insn(struct report *r, const struct entry *e)
{
	uint64_t target;
	char text[256];
	int i;

	json_head(r, e, "insn");
	ptw_out_printf(r->out, ",\"ip\":\"0x%016" PRIx64 "\"", e->ip);
	json_symbol(r, e, "symbol", e->ip);
	ptw_out_text(r->out, ",\"bytes\":\"");
	for (i = 0; i < e->size; i++)
		ptw_out_printf(r->out, "%02x", e->raw[i]);
	ptw_out_text(r->out, "\"");
	if (r->options->disasm) {
		ptw_disasm_format(r->options->disasm, e->ip, e->raw, e->size, code_bits(r, e), text, sizeof(text),
				  &target);
		ptw_out_text(r->out, ",\"insn\":");
		ptw_out_json_string(r->out, text);
	}
	if (source_text(r, e, text, sizeof(text))) {
		ptw_out_text(r->out, ",\"source\":");
		ptw_out_json_string(r->out, text);
	}
	if (e->flow.flags & PTW_FLOW_SPECULATIVE)
		ptw_out_text(r->out, ",\"speculative\":true");
	if (e->is_alarm)
		ptw_out_printf(r->out, ",\"alarm\":%" PRIu64, r->view->alarm_number);
	ptw_out_text(r->out, "}\n");
}

static void json_event(struct report *r, const struct entry *e)
{
	uint64_t value = e->flow.event == PTW_EVENT_ENABLED ? e->resumes : e->flow.value;

	json_head(r, e, "event");
	ptw_out_printf(r->out, ",\"event\":\"%s\",\"offset\":\"0x%" PRIx64 "\"", ptw_event_name(e->flow.event),
		       e->flow.offset);
	if (event_has_from(e)) {
		ptw_out_printf(r->out, ",\"from\":\"0x%016" PRIx64 "\"", e->flow.from);
		json_symbol(r, e, "from_symbol", e->flow.from);
	}
	if (e->flow.to) {
		ptw_out_printf(r->out, ",\"ip\":\"0x%016" PRIx64 "\"", e->flow.to);
		json_symbol(r, e, "symbol", e->flow.to);
	}
	if (value)
		ptw_out_printf(r->out, ",\"value\":\"0x%" PRIx64 "\"", value);
	ptw_out_text(r->out, "}\n");
}

static void json_gap(struct report *r, const struct entry *e)
{
	if (e->flow.event == PTW_EVENT_OVERFLOW) {
		json_event(r, e);
		return;
	}
	json_head(r, e, "gap");
	ptw_out_printf(r->out,
		       ",\"offset\":\"0x%" PRIx64 "\",\"lost\":%" PRIu64 ",\"ip\":\"0x%016" PRIx64
		       "\",\"error\":",
		       e->flow.offset, e->flow.value, e->flow.from);
	ptw_out_json_string(r->out, e->flow.text);
	ptw_out_text(r->out, "}\n");
}

/* ---- lines ---- */

static void write_entry(struct report *r, const struct entry *e)
{
	bool json = r->options->format == PTW_FORMAT_JSON;

	if (r->options->format == PTW_FORMAT_IP) {
		if (e->kind == ENTRY_INSN)
			ptw_out_ip_line(r->out, e->ip);
	} else if (e->kind == ENTRY_INSN) {
		(json ? json_insn : text_insn)(r, e);
	} else if (e->kind == ENTRY_GAP) {
		(json ? json_gap : text_gap)(r, e);
	} else {
		(json ? json_event : text_event)(r, e);
	}
}

static bool has_filter(const struct ptw_insns_options *options)
{
	return options->from_ns || options->to_ns || options->high || options->function;
}

static bool is_in_function(const struct report *r, const struct ptw_flow *flow, uint64_t addr)
{
	const struct ptw_insns_options *options = r->options;
	struct ptw_place place;

	return ptw_stream_place(r->stream, flow, addr, &place) && !strcmp(place.symbol->name, options->function) &&
	       (!options->object || (place.object && !strcmp(place.object, options->object)));
}

static bool is_wanted(const struct report *r, const struct entry *e)
{
	const struct ptw_insns_options *options = r->options;
	uint64_t ns = e->flow.time;

	if (ns < options->from_ns || (options->to_ns && ns > options->to_ns))
		return false;
	if (options->function)
		return e->kind == ENTRY_INSN && is_in_function(r, &e->flow, e->ip);
	if (!options->high)
		return true;
	return e->kind == ENTRY_INSN && e->ip >= options->low && e->ip < options->high;
}

static int keep_entry(struct report *r, const struct entry *entry)
{
	const struct ptw_insns_options *options = r->options;
	struct entry *e = ptw_ring_push(&r->kept);

	if (!e)
		return -1;
	*e = *entry;
	r->kept_insns += e->kind == ENTRY_INSN;
	while (options->tail && r->kept_insns > options->tail)
		pop(r);
	if (options->last_ns)
		while ((e = ptw_ring_first(&r->kept)) && e->flow.time + options->last_ns < entry->flow.time)
			pop(r);
	return 0;
}

static int take_entry(struct report *r, const struct entry *e)
{
	/* What comes between two instructions goes with the second. */
	if (e->flow.insns < r->skip)
		return 0;
	if (has_filter(r->options) && !is_wanted(r, e))
		return 0;
	if (r->options->found)
		r->options->found->insns += e->kind == ENTRY_INSN;
	if (r->options->tail || r->options->last_ns)
		return keep_entry(r, e);
	if (r->options->count_only)
		r->counted += e->kind == ENTRY_INSN;
	else
		write_entry(r, e);
	return 0;
}

/* ---- the stream ---- */

/* None of the run is wanted, or only how many it has: then there is no need to look at each. */
static bool passes_whole(struct report *r, const struct ptw_flow *run, uint64_t time)
{
	const struct ptw_insns_options *options = r->options;

	if (r->view->alarm && r->view->point.found && !r->view->beyond_alarm && run->insns > r->view->point.insn_index)
		return false;
	if (run->insns <= r->skip || time < options->from_ns || (options->to_ns && time > options->to_ns))
		return true;
	if (options->high && (run->to < options->low || run->from >= options->high) && run->from <= run->to)
		return true;
	/* It may go on from one function into the next, but seldom across a whole one. */
	if (options->function && !is_in_function(r, run, run->from) && !is_in_function(r, run, run->to))
		return true;
	if (!options->count_only || options->high || options->function || options->tail || options->last_ns)
		return false;
	r->counted += run->value;
	if (options->found)
		options->found->insns += run->value;
	return true;
}

/* Return: 0; 1: the alarm was among them, and ends the report; -1: out of memory. */
static int take_run(struct report *r, const struct ptw_flow *run)
{
	const struct ptw_view *view = r->view;
	struct entry e = { .flow = *run, .kind = ENTRY_INSN, .ip = run->from };
	const uint8_t *code = run->code;
	uint64_t i;

	/* A run has the time of the branch at its end; an instruction that of the last thing before it. */
	if (r->have_before) {
		e.flow.time = r->time_before;
		e.flow.tsc = r->tsc_before;
	}
	if (passes_whole(r, run, e.flow.time))
		return 0;
	for (i = run->insns - run->value; i < run->insns && !r->out->error; i++) {
		e.size = *code;
		memcpy(e.raw, code + 1, e.size);
		e.is_alarm = view->alarm && view->point.found && i == view->point.insn_index;
		if (take_entry(r, &e))
			return -1;
		if (e.is_alarm && !view->beyond_alarm)
			return 1;
		e.ip += e.size;
		code += 1 + e.size;
	}
	return 0;
}

static int take_event(struct report *r, const struct ptw_flow *flow, enum ptw_event_type type, uint64_t from, uint64_t to)
{
	struct entry e = { .flow = *flow, .kind = type == PTW_EVENT_OVERFLOW ? ENTRY_GAP : ENTRY_EVENT };

	e.flow.event = type;
	e.flow.from = from;
	e.flow.to = to;
	if (type == PTW_EVENT_ENABLED)
		e.resumes = to == r->left_to;
	return take_entry(r, &e);
}

static int take_interrupt(struct report *r)
{
	struct ptw_flow *flow = &r->interrupt;

	r->have_interrupt = false;
	flow->value = 0;
	return take_event(r, flow, PTW_EVENT_ASYNC_BRANCH, flow->from, flow->to);
}

static int take_end(struct report *r, struct ptw_flow *end)
{
	bool async = end->value;

	/* A system call that isn't followed comes back behind it. */
	r->left_to = async ? end->from : r->behind ? r->behind : end->to;
	end->value = 0;
	return take_event(r, end, async ? PTW_EVENT_ASYNC_DISABLED : PTW_EVENT_DISABLED, end->from, end->to);
}

static void note_span(struct ptw_insns_found *found, const struct ptw_flow *flow)
{
	if (!(flow->flags & PTW_FLOW_TIMED))
		return;
	if (!found->timed || flow->time < found->first_ns)
		found->first_ns = flow->time;
	if (!found->timed || flow->time > found->last_ns)
		found->last_ns = flow->time;
	found->timed = true;
}

static void note_time(struct report *r, const struct ptw_flow *flow)
{
	if (r->options->found)
		note_span(r->options->found, flow);
	/* One run in two pieces: what comes before the second is what came before the first. */
	if (flow->flags & PTW_FLOW_GOES_ON)
		return;
	r->have_before = flow->kind != PTW_FLOW_GAP && flow->flags & PTW_FLOW_TIMED;
	r->time_before = flow->time;
	r->tsc_before = flow->tsc;
}

/* Return: as take_run() */
static int take(struct report *r, const struct ptw_flow *flow)
{
	struct entry gap = { .kind = ENTRY_GAP };
	struct ptw_flow copy = *flow;

	/* Between an interrupt and the end of tracing that it is there may be what else changed there. */
	if (r->have_interrupt && flow->kind == PTW_FLOW_END && flow->value)
		r->have_interrupt = false;
	else if (r->have_interrupt && flow->kind != PTW_FLOW_EVENT && take_interrupt(r))
		return -1;
	switch (flow->kind) {
	case PTW_FLOW_RUN:
		return take_run(r, flow);
	case PTW_FLOW_SYSCALL:
	case PTW_FLOW_CALL:
		r->behind = flow->value;
		return 0;
	case PTW_FLOW_RETURN:
	case PTW_FLOW_JUMP:
	case PTW_FLOW_FAR_RETURN:
		r->behind = 0;
		return 0;
	case PTW_FLOW_INTERRUPT:
		r->interrupt = *flow;
		r->have_interrupt = true;
		return 0;
	case PTW_FLOW_BEGIN:
		copy.value = 0;
		return take_event(r, &copy, PTW_EVENT_ENABLED, 0, flow->to);
	case PTW_FLOW_END:
		return take_end(r, &copy);
	case PTW_FLOW_MARKER:
	case PTW_FLOW_EVENT:
		return take_event(r, flow, flow->event, 0, flow->from);
	case PTW_FLOW_GAP:
		ptw_view_gap(r->view, flow);
		gap.flow = *flow;
		r->left_to = 0;
		return take_entry(r, &gap);
	default:
		return 0;
	}
}

static int walk(struct report *r, struct ptw_error *err)
{
	const struct ptw_flow *flow;
	int ret = 0;

	while (!ret && !r->out->error && (flow = ptw_stream_next(r->stream))) {
		ret = take(r, flow);
		note_time(r, flow);
	}
	if (!ret && r->have_interrupt)
		ret = take_interrupt(r);
	if (ptw_stream_failed(r->stream, err))
		return -1;
	return ret < 0 ? ptw_error_set(err, PTW_EXIT_FAILED, "out of memory; ask for less with --tail or --last") : 0;
}

/* ---- addresses alone ---- */

#define LINE	17		/* 16 digits and a newline */
#define TAIL_LIMIT	(4u << 20)	/* lines to be kept in memory for --tail */

/* The last lines of all that came by, in a ring. */
struct tail {
	char *text;
	size_t room, at, used;
};

static void keep_tail(struct tail *tail, const char *text, size_t size)
{
	if (size > tail->room) {
		text += size - tail->room;
		size = tail->room;
	}
	while (size) {
		size_t part = tail->room - tail->at < size ? tail->room - tail->at : size;

		memcpy(tail->text + tail->at, text, part);
		tail->at = (tail->at + part) % tail->room;
		tail->used = tail->used + part < tail->room ? tail->used + part : tail->room;
		text += part;
		size -= part;
	}
}

static void write_tail(struct ptw_out *out, const struct tail *tail)
{
	size_t start = (tail->at + tail->room - tail->used) % tail->room;
	size_t part = tail->room - start < tail->used ? tail->room - start : tail->used;

	ptw_out_write(out, tail->text + start, part);
	ptw_out_write(out, tail->text, tail->used - part);
}

static int write_ips(const struct ptw_view *view, struct ptw_stream *stream, uint64_t left, struct tail *tail,
		     struct ptw_out *out, struct ptw_error *err)
{
	const struct ptw_flow *flow;
	const char *text;
	size_t size, count;

	while (left && !out->error && ptw_stream_ips(stream, &text, &size, &flow, &count)) {
		for (size_t i = 0; i < count; i++)
			if (flow[i].kind == PTW_FLOW_GAP)
				ptw_view_gap(view, &flow[i]);
		if (size / LINE > left)
			size = left * LINE;
		left -= size / LINE;
		if (tail->room)
			keep_tail(tail, text, size);
		else
			ptw_out_write(out, text, size);
	}
	return ptw_stream_failed(stream, err) ? -1 : 0;
}

static uint64_t insns_wanted(const struct ptw_view *view)
{
	return view->alarm && view->point.found && !view->beyond_alarm ? view->point.insn_index + 1 : UINT64_MAX;
}

static int report_ips(const struct ptw_view *view, const struct ptw_insns_options *options, struct ptw_out *out,
		      struct ptw_error *err)
{
	struct tail tail = { .room = options->tail * LINE };
	struct ptw_stream *stream;
	int ret;

	if (tail.room) {
		tail.text = malloc(tail.room);
		if (!tail.text)
			return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory; ask for less with --tail");
	}
	stream = ptw_view_stream(view, PTW_STREAM_IPS, err);
	ret = stream ? write_ips(view, stream, insns_wanted(view), &tail, out, err) : -1;
	ptw_stream_close(stream);
	if (!ret && tail.used)
		write_tail(out, &tail);
	free(tail.text);
	return ret;
}

/* How many instructions the trace has, up to the alarm; gaps are told only where @gaps. */
static int count_all(const struct ptw_view *view, bool gaps, uint64_t *count, struct ptw_error *err)
{
	struct ptw_stream *stream = ptw_view_stream(view, PTW_STREAM_TOTALS, err);
	uint64_t wanted = insns_wanted(view);
	const struct ptw_flow *flow;
	int ret;

	if (!stream)
		return -1;
	while ((flow = ptw_stream_next(stream)))
		if (gaps && flow->kind == PTW_FLOW_GAP)
			ptw_view_gap(view, flow);
	*count = ptw_stream_totals(stream, view->recording ? view->trace - view->recording->trace : 0)->insns;
	ret = ptw_stream_failed(stream, err) ? -1 : 0;
	ptw_stream_close(stream);
	if (*count > wanted)
		*count = wanted;
	return ret;
}

int ptw_report_insns(const struct ptw_view *view, const struct ptw_insns_options *options,
		     struct ptw_out *out, struct ptw_error *err)
{
	struct report r = {
		.view = view, .options = options, .out = out, .kept = { .element = sizeof(struct entry) },
	};
	uint64_t count;
	int ret;

	if (options->format == PTW_FORMAT_IP && !options->last_ns && !has_filter(options) && options->tail <= TAIL_LIMIT)
		return report_ips(view, options, out, err);
	/* To count is far faster than to look at each. */
	if (options->tail && !has_filter(options)) {
		if (count_all(view, false, &count, err))
			return -1;
		r.skip = count > options->tail ? count - options->tail : 0;
	}
	r.stream = ptw_view_stream(view, PTW_STREAM_INSNS, err);
	if (!r.stream)
		return -1;
	ret = walk(&r, err);
	while (ret == 0 && !out->error && r.kept.count) {
		write_entry(&r, ptw_ring_first(&r.kept));
		pop(&r);
	}
	ptw_stream_close(r.stream);
	ptw_ring_free(&r.kept);
	return ret;
}

/* Within the last microseconds, or a filter: each instruction has to be asked. */
static int count_wanted(const struct ptw_view *view, const struct ptw_insns_options *options, uint64_t *count,
		      struct ptw_error *err)
{
	struct ptw_out nothing = { 0 };
	struct ptw_insns_options keep_all = *options;
	struct report r = {
		.view = view, .options = &keep_all, .out = &nothing, .kept = { .element = sizeof(struct entry) },
	};
	int ret;

	keep_all.format = PTW_FORMAT_IP;
	keep_all.count_only = true;
	r.stream = ptw_view_stream(view, PTW_STREAM_INSNS, err);
	if (!r.stream)
		return -1;
	ret = walk(&r, err);
	ptw_stream_close(r.stream);
	*count = keep_all.tail || keep_all.last_ns ? r.kept_insns : r.counted;
	ptw_ring_free(&r.kept);
	return ret;
}

int ptw_count_insns(const struct ptw_view *view, const struct ptw_insns_options *options, uint64_t *count,
		    struct ptw_error *err)
{
	*count = 0;
	if (options->last_ns || has_filter(options))
		return count_wanted(view, options, count, err);
	if (count_all(view, true, count, err))
		return -1;
	if (options->tail && *count > options->tail)
		*count = options->tail;
	return 0;
}
