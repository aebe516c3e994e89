// SPDX-License-Identifier: BSD-2-Clause
#include "report/insns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "decode/clock.h"
#include "report/disasm.h"
#include "report/ring.h"
#include "report/source_line.h"

#define SYMBOL_COLUMN	36
#define DISASM_COLUMN	44

/* One line of the report, kept until it is known whether it is within the last N or the last microseconds. */
struct entry {
	struct ptw_item item;
	uint8_t raw[15];	/* of an instruction */
	bool is_alarm;
	int32_t tid;		/* -1: unknown */
	uint64_t ns;
};

struct report {
	const struct ptw_view *view;
	const struct ptw_insns_options *options;
	struct ptw_out *out;
	struct ptw_clock clock;
	struct ptw_ring kept;	/* struct entry */
	uint64_t kept_insns;
	uint64_t counted;	/* with count_only */
	uint64_t ns;		/* of the newest item with a time */
	size_t side_next;	/* of options->side */
	int32_t tid;		/* the thread that runs; -1: unknown */
};

static void pop(struct report *r)
{
	struct entry *e = ptw_ring_first(&r->kept);

	r->kept_insns -= e->item.kind == PTW_ITEM_INSN;
	ptw_ring_pop(&r->kept);
}

static unsigned int code_bits(const struct report *r, const struct ptw_insn *insn)
{
	return insn->bits ? insn->bits : r->view->params->bits;
}

/* ---- text ---- */

static void text_head(struct report *r, const struct entry *e)
{
	struct ptw_out *out = r->out;

	if (!r->options->no_time) {
		ptw_out_colour(out, PTW_DIM);
		if (!e->item.has_time)
			ptw_out_printf(out, "%16s ", "-");
		else if (ptw_clock_known(r->view->params))
			ptw_out_printf(out, "%6" PRIu64 ".%09" PRIu64 " ", e->ns / 1000000000,
				       e->ns % 1000000000);
		else
			ptw_out_printf(out, "%16" PRIu64 " ", e->ns);
		ptw_out_colour(out, PTW_PLAIN);
	}
	if (r->view->trace->cpu >= 0)
		ptw_out_printf(out, "%3d ", r->view->trace->cpu);
	if (r->options->side && e->tid >= 0)
		ptw_out_printf(out, "%7d ", e->tid);
	else if (r->options->side)
		ptw_out_text(out, "      - ");
}

static void text_insn(struct report *r, const struct entry *e)
{
	const struct ptw_insn *insn = &e->item.insn;
	char symbol[256], disasm[192] = "", text[512], mark[224];
	uint64_t target = 0;

	text_head(r, e);
	if (r->options->disasm)
		ptw_disasm_format(r->options->disasm, insn->ip, e->raw, insn->size, code_bits(r, insn),
				  disasm, sizeof(disasm), &target);
	if (target && r->view->symbols && ptw_symbols_at(r->view->symbols, target)) {
		ptw_view_symbol(r->view, target, symbol, sizeof(symbol));
		snprintf(text, sizeof(text), "%s  # %s", disasm, symbol);
	} else {
		snprintf(text, sizeof(text), "%s", disasm);
	}
	symbol[0] = '\0';
	if (r->view->symbols && ptw_symbols_at(r->view->symbols, insn->ip))
		ptw_view_symbol(r->view, insn->ip, symbol, sizeof(symbol));

	ptw_out_printf(r->out, "%016" PRIx64 "  ", insn->ip);
	if (r->view->symbols) {
		ptw_out_colour(r->out, PTW_CYAN);
		ptw_out_printf(r->out, "%-*s  ", SYMBOL_COLUMN, symbol);
		ptw_out_colour(r->out, PTW_PLAIN);
	}
	if (r->options->lines && ptw_source_lines_find(r->options->lines, insn->ip, symbol, sizeof(symbol)))
		ptw_out_printf(r->out, "%-*s  %s", DISASM_COLUMN, text, symbol);
	else
		ptw_out_text(r->out, text);
	if (insn->speculative)
		ptw_out_text(r->out, "  (in transaction)");
	if (e->is_alarm) {
		ptw_out_colour(r->out, PTW_RED);
		ptw_out_printf(r->out, "  <-- %s", ptw_view_alarm_mark(r->view, mark, sizeof(mark)));
		ptw_out_colour(r->out, PTW_PLAIN);
	}
	ptw_out_text(r->out, "\n");
}

/* Events that say nothing about the flow would only come between the instructions. */
static bool event_is_news(const struct ptw_event *event)
{
	return !event->status_update && event->type != PTW_EVENT_CBR && event->type != PTW_EVENT_OTHER;
}

static void text_event(struct report *r, const struct entry *e)
{
	const struct ptw_event *event = &e->item.event;
	char from[256], to[256];

	text_head(r, e);
	ptw_out_colour(r->out, PTW_YELLOW);
	ptw_out_printf(r->out, "--- %s", ptw_event_name(event->type));
	if (event->type == PTW_EVENT_ASYNC_BRANCH || event->type == PTW_EVENT_ASYNC_DISABLED)
		ptw_out_printf(r->out, " at %s", ptw_view_symbol(r->view, event->from, from, sizeof(from)));
	if (event->has_ip)
		ptw_out_printf(r->out, " %s %s", event->type == PTW_EVENT_ENABLED ? "at" : "→",
			       ptw_view_symbol(r->view, event->ip, to, sizeof(to)));
	if (event->value && event->type != PTW_EVENT_ENABLED)
		ptw_out_printf(r->out, " 0x%" PRIx64, event->value);
	ptw_out_colour(r->out, PTW_PLAIN);
	ptw_out_text(r->out, "\n");
}

static void text_gap(struct report *r, const struct entry *e)
{
	char text[256];

	text_head(r, e);
	ptw_out_colour(r->out, PTW_RED);
	ptw_out_printf(r->out, "--- gap: %s", ptw_item_describe_gap(&e->item, text, sizeof(text)));
	ptw_out_colour(r->out, PTW_PLAIN);
	ptw_out_text(r->out, "\n");
}

/* ---- JSON ---- */

static void json_symbol(struct report *r, const char *key, uint64_t addr)
{
	const struct ptw_symbol *symbol = r->view->symbols ? ptw_symbols_at(r->view->symbols, addr) : NULL;

	if (!symbol)
		return;
	ptw_out_printf(r->out, ",\"%s\":", key);
	ptw_out_json_string(r->out, symbol->name);
	ptw_out_printf(r->out, ",\"%s_offset\":%" PRIu64, key, addr - symbol->addr);
	if (symbol->module) {
		ptw_out_printf(r->out, ",\"%s_module\":", key);
		ptw_out_json_string(r->out, symbol->module);
	}
}

static void json_head(struct report *r, const struct entry *e, const char *type)
{
	ptw_out_printf(r->out, "{\"type\":\"%s\"", type);
	if (r->view->trace->cpu >= 0)
		ptw_out_printf(r->out, ",\"cpu\":%d", r->view->trace->cpu);
	if (r->options->side && e->tid >= 0)
		ptw_out_printf(r->out, ",\"tid\":%d", e->tid);
	if (!e->item.has_time)
		return;
	ptw_out_printf(r->out, ",\"tsc\":%" PRIu64, e->item.tsc);
	if (ptw_clock_known(r->view->params))
		ptw_out_printf(r->out, ",\"time_ns\":%" PRIu64, e->ns);
}

static void json_insn(struct report *r, const struct entry *e)
{
	const struct ptw_insn *insn = &e->item.insn;
	uint64_t target;
	char text[256];
	int i;

	json_head(r, e, "insn");
	ptw_out_printf(r->out, ",\"ip\":\"0x%016" PRIx64 "\"", insn->ip);
	json_symbol(r, "symbol", insn->ip);
	ptw_out_text(r->out, ",\"bytes\":\"");
	for (i = 0; i < insn->size; i++)
		ptw_out_printf(r->out, "%02x", e->raw[i]);
	ptw_out_text(r->out, "\"");
	if (r->options->disasm) {
		ptw_disasm_format(r->options->disasm, insn->ip, e->raw, insn->size, code_bits(r, insn), text,
				  sizeof(text), &target);
		ptw_out_text(r->out, ",\"insn\":");
		ptw_out_json_string(r->out, text);
	}
	if (r->options->lines && ptw_source_lines_find(r->options->lines, insn->ip, text, sizeof(text))) {
		ptw_out_text(r->out, ",\"source\":");
		ptw_out_json_string(r->out, text);
	}
	if (insn->speculative)
		ptw_out_text(r->out, ",\"speculative\":true");
	if (e->is_alarm)
		ptw_out_printf(r->out, ",\"alarm\":%" PRIu64, r->view->alarm_number);
	ptw_out_text(r->out, "}\n");
}

static void json_event(struct report *r, const struct entry *e)
{
	const struct ptw_event *event = &e->item.event;

	json_head(r, e, "event");
	ptw_out_printf(r->out, ",\"event\":\"%s\",\"offset\":\"0x%" PRIx64 "\"", ptw_event_name(event->type),
		       e->item.offset);
	if (event->type == PTW_EVENT_ASYNC_BRANCH || event->type == PTW_EVENT_ASYNC_DISABLED) {
		ptw_out_printf(r->out, ",\"from\":\"0x%016" PRIx64 "\"", event->from);
		json_symbol(r, "from_symbol", event->from);
	}
	if (event->has_ip) {
		ptw_out_printf(r->out, ",\"ip\":\"0x%016" PRIx64 "\"", event->ip);
		json_symbol(r, "symbol", event->ip);
	}
	if (event->value)
		ptw_out_printf(r->out, ",\"value\":\"0x%" PRIx64 "\"", event->value);
	ptw_out_text(r->out, "}\n");
}

static void json_gap(struct report *r, const struct entry *e)
{
	const struct ptw_decode_error *error = &e->item.error;

	if (e->item.kind == PTW_ITEM_EVENT) {
		json_event(r, e);
		return;
	}
	json_head(r, e, "gap");
	ptw_out_printf(r->out,
		       ",\"offset\":\"0x%" PRIx64 "\",\"lost\":%" PRIu64 ",\"ip\":\"0x%016" PRIx64
		       "\",\"error\":",
		       e->item.offset, error->lost, error->ip);
	ptw_out_json_string(r->out, error->text);
	ptw_out_text(r->out, "}\n");
}

/* ---- the stream ---- */

static void write_entry(struct report *r, const struct entry *e)
{
	bool json = r->options->format == PTW_FORMAT_JSON;

	if (r->options->format == PTW_FORMAT_IP) {
		if (e->item.kind == PTW_ITEM_INSN)
			ptw_out_ip_line(r->out, e->item.insn.ip);
	} else if (e->item.kind == PTW_ITEM_INSN) {
		(json ? json_insn : text_insn)(r, e);
	} else if (ptw_item_is_gap(&e->item)) {
		(json ? json_gap : text_gap)(r, e);
	} else if (event_is_news(&e->item.event)) {
		(json ? json_event : text_event)(r, e);
	}
}

static void fill_entry(struct report *r, struct entry *e, const struct ptw_item *item, bool is_alarm)
{
	e->item = *item;
	e->is_alarm = is_alarm;
	if (item->kind == PTW_ITEM_INSN) {
		memcpy(e->raw, item->insn.raw, item->insn.size);
		e->item.insn.raw = NULL;
	}
	e->ns = r->ns;
	e->tid = r->tid;
}

/* The kernel tells who runs since when; the moment itself is as exact as the timing packets. */
static void find_thread(struct report *r)
{
	const struct ptw_insns_options *options = r->options;
	const struct ptw_side_event *side;

	for (; r->side_next < options->side_count && options->side[r->side_next].time <= r->ns; r->side_next++) {
		side = &options->side[r->side_next];
		if (side->cpu != r->view->trace->cpu)
			continue;
		if (side->type == PTW_SIDE_SWITCH)
			r->tid = side->other_tid;
		else if (side->type == PTW_SIDE_START)
			r->tid = side->tid;
	}
}

static bool has_filter(const struct ptw_insns_options *options)
{
	return options->from_ns || options->to_ns || options->high;
}

static bool is_wanted(const struct report *r, const struct ptw_item *item)
{
	const struct ptw_insns_options *options = r->options;

	if (r->ns < options->from_ns || (options->to_ns && r->ns > options->to_ns))
		return false;
	if (!options->high)
		return true;
	return item->kind == PTW_ITEM_INSN && item->insn.ip >= options->low && item->insn.ip < options->high;
}

static int keep_entry(struct report *r, const struct ptw_item *item, bool is_alarm)
{
	const struct ptw_insns_options *options = r->options;
	struct entry *e = ptw_ring_push(&r->kept);

	if (!e)
		return -1;
	fill_entry(r, e, item, is_alarm);
	r->kept_insns += item->kind == PTW_ITEM_INSN;
	while (options->tail && r->kept_insns > options->tail)
		pop(r);
	if (options->last_ns)
		while ((e = ptw_ring_first(&r->kept)) && e->ns + options->last_ns < r->ns)
			pop(r);
	return 0;
}

static int take(struct report *r, const struct ptw_item *item, bool is_alarm)
{
	struct entry e;

	if (item->has_time)
		r->ns = ptw_clock_ns(&r->clock, item->tsc);
	if (r->options->side)
		find_thread(r);
	if (has_filter(r->options) && !is_wanted(r, item))
		return 0;
	if (r->options->tail || r->options->last_ns)
		return keep_entry(r, item, is_alarm);
	if (r->options->count_only) {
		r->counted += item->kind == PTW_ITEM_INSN;
		return 0;
	}
	if (r->options->format == PTW_FORMAT_IP) {
		if (item->kind == PTW_ITEM_INSN)
			ptw_out_ip_line(r->out, item->insn.ip);
		return 0;
	}
	fill_entry(r, &e, item, is_alarm);
	write_entry(r, &e);
	return 0;
}

static int walk(struct report *r, struct ptw_decoder *decoder, struct ptw_error *err)
{
	const struct ptw_view *view = r->view;
	uint64_t steps = 0, index = 0;
	struct ptw_item item;

	while (!r->out->error && ptw_view_next(view, decoder, &item, &steps) != PTW_ITEM_END) {
		bool is_alarm = item.kind == PTW_ITEM_INSN && view->alarm && view->point.found &&
				index++ == view->point.insn_index;

		if (take(r, &item, is_alarm))
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "out of memory; ask for less with --tail or --last");
		if (is_alarm && !view->beyond_alarm)
			break;
	}
	return 0;
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

int ptw_report_insns(const struct ptw_view *view, const struct ptw_insns_options *options,
		     struct ptw_out *out, struct ptw_error *err)
{
	struct report r = {
		.view = view, .options = options, .out = out,
		.clock = { .params = view->params },
		.kept = { .element = sizeof(struct entry) },
		.tid = view->trace->tid,
	};
	struct ptw_decoder *decoder;
	int ret;

	if (options->format == PTW_FORMAT_IP && !options->last_ns && !has_filter(options) && options->tail <= TAIL_LIMIT)
		return report_ips(view, options, out, err);
	decoder = ptw_view_decoder(view, 0, err);
	if (!decoder)
		return -1;
	ret = walk(&r, decoder, err);
	ptw_decoder_free(decoder);
	while (ret == 0 && !out->error && r.kept.count) {
		write_entry(&r, ptw_ring_first(&r.kept));
		pop(&r);
	}
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
		.view = view, .options = &keep_all, .out = &nothing,
		.clock = { .params = view->params },
		.kept = { .element = sizeof(struct entry) },
	};
	struct ptw_decoder *decoder;
	int ret;

	keep_all.side = NULL;
	keep_all.format = PTW_FORMAT_IP;
	keep_all.count_only = true;
	decoder = ptw_view_decoder(view, 0, err);
	if (!decoder)
		return -1;
	ret = walk(&r, decoder, err);
	ptw_decoder_free(decoder);
	*count = keep_all.tail || keep_all.last_ns ? r.kept_insns : r.counted;
	ptw_ring_free(&r.kept);
	return ret;
}

int ptw_count_insns(const struct ptw_view *view, const struct ptw_insns_options *options, uint64_t *count,
		    struct ptw_error *err)
{
	struct ptw_stream *stream;
	const struct ptw_flow *flow;
	uint64_t wanted = insns_wanted(view);
	int ret;

	*count = 0;
	if (options->last_ns || has_filter(options))
		return count_wanted(view, options, count, err);
	stream = ptw_view_stream(view, PTW_STREAM_TOTALS, err);
	if (!stream)
		return -1;
	while ((flow = ptw_stream_next(stream)))
		if (flow->kind == PTW_FLOW_GAP)
			ptw_view_gap(view, flow);
	*count = ptw_stream_totals(stream, view->recording ? view->trace - view->recording->trace : 0)->insns;
	ret = ptw_stream_failed(stream, err) ? -1 : 0;
	ptw_stream_close(stream);
	if (*count > wanted)
		*count = wanted;
	if (options->tail && *count > options->tail)
		*count = options->tail;
	return ret;
}
