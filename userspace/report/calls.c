// SPDX-License-Identifier: BSD-2-Clause
#include "report/calls.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report/call_stack.h"
#include "decode/clock.h"
#include "report/ring.h"

/*
 * A line is written when this many came after it: by then most calls have returned and their duration is
 * known, and so is how far out the trace goes, on which the indentation depends.
 */
#define LOOKAHEAD	65536

#define INDENT		2
#define MAX_INDENT	120

/* What stands on a line of its own, besides the steps of the call stack. */
#define LINE_ALARM	(PTW_STEP_GAP + 1)

struct line {
	struct ptw_step step;
	int kind;		/* enum ptw_step_kind or LINE_ALARM */
	bool has_time;
	bool returned;		/* @duration is known */
	uint64_t ns, tsc;
	uint64_t duration;
	char *text;		/* of a gap; owned */
};

struct report {
	const struct ptw_view *view;
	const struct ptw_calls_options *options;
	struct ptw_out *out;
	struct ptw_clock clock;
	struct ptw_call_stack stack;
	struct ptw_ring lines;		/* struct line */
	bool no_memory;
	uint64_t calls;			/* among the lines that were written */
	bool has_time;
	uint64_t ns, tsc;		/* of the newest item with a time */
	uint64_t printed_ns;		/* of the line printed last; 0: none */
	/* The smallest depth of each stretch that still has lines in the ring. */
	int64_t *outermost;
	uint64_t outermost_first;	/* stretch of outermost[0] */
	size_t outermost_count, outermost_room;
};

static bool is_call(int kind)
{
	return kind == PTW_STEP_CALL || kind == PTW_STEP_TAIL_CALL || kind == PTW_STEP_INTERRUPT ||
	       kind == PTW_STEP_SYSCALL;
}

/* ---- how far out each stretch goes ---- */

static int note_depth(struct report *r, uint64_t stretch, int64_t depth)
{
	size_t i;

	/* Stretches are numbered upwards; the ring drops the lowest. */
	if (r->outermost_count == 0)
		r->outermost_first = stretch;
	while (r->outermost_first + r->outermost_count <= stretch) {
		if (r->outermost_count == r->outermost_room) {
			size_t room = r->outermost_room ? 2 * r->outermost_room : 64;
			int64_t *grown = reallocarray(r->outermost, room, sizeof(*grown));

			if (!grown)
				return -1;
			r->outermost = grown;
			r->outermost_room = room;
		}
		r->outermost[r->outermost_count++] = INT64_MAX;
	}
	i = stretch - r->outermost_first;
	if (depth < r->outermost[i])
		r->outermost[i] = depth;
	return 0;
}

/*
 * The lines of stretches before @stretch are gone. In batches, or dropping them would cost more than keeping
 * them.
 */
static void forget_before(struct report *r, uint64_t stretch)
{
	size_t gone = stretch - r->outermost_first;

	if (gone < 1024 || gone < r->outermost_count / 2)
		return;
	memmove(r->outermost, r->outermost + gone, (r->outermost_count - gone) * sizeof(*r->outermost));
	r->outermost_count -= gone;
	r->outermost_first = stretch;
}

static int64_t shown_depth(const struct report *r, const struct line *line)
{
	int64_t outermost = r->outermost[line->step.stretch - r->outermost_first];

	return line->step.depth > outermost ? line->step.depth - outermost : 0;
}

/* ---- text ---- */

static void text_duration(struct ptw_out *out, const char *before, uint64_t ns, int width)
{
	char buf[32];

	if (ns < 1000000)
		snprintf(buf, sizeof(buf), "%s%" PRIu64 ".%03" PRIu64 "us", before, ns / 1000, ns % 1000);
	else if (ns < 1000000000)
		snprintf(buf, sizeof(buf), "%s%" PRIu64 ".%03" PRIu64 "ms", before, ns / 1000000,
			 ns / 1000 % 1000);
	else
		snprintf(buf, sizeof(buf), "%s%" PRIu64 ".%03" PRIu64 "s", before, ns / 1000000000,
			 ns / 1000000 % 1000);
	ptw_out_printf(out, "%*s ", width, buf);
}

static void text_times(struct report *r, const struct line *line)
{
	struct ptw_out *out = r->out;
	bool known = ptw_clock_known(r->view->params);

	if (r->options->no_time)
		return;
	ptw_out_colour(out, PTW_DIM);
	if (!line->has_time)
		ptw_out_printf(out, "%16s %10s ", "-", "");
	else if (!known)
		ptw_out_printf(out, "%16" PRIu64 " %10s ", line->ns, "");
	else
		ptw_out_printf(out, "%6" PRIu64 ".%09" PRIu64 " ", line->ns / 1000000000,
			       line->ns % 1000000000);
	if (line->has_time && known) {
		/* Many lines share a time: timing packets come every so often only. */
		if (r->printed_ns && line->ns > r->printed_ns)
			text_duration(out, "+", line->ns - r->printed_ns, 10);
		else
			ptw_out_printf(out, "%10s ", "");
		r->printed_ns = line->ns;
	}
	if (known && line->returned && line->duration)
		text_duration(out, "", line->duration, 10);
	else
		ptw_out_printf(out, "%10s ", "");
	ptw_out_colour(out, PTW_PLAIN);
}

static void text_place(struct report *r, const char *before, uint64_t addr)
{
	char name[256];

	ptw_out_printf(r->out, "%s%s", before,
		       addr ? ptw_view_symbol(r->view, addr, name, sizeof(name)) : "?");
}

static void text_what(struct report *r, const struct line *line)
{
	const struct ptw_step *step = &line->step;
	char mark[224];

	switch (line->kind) {
	case PTW_STEP_CALL:
	case PTW_STEP_TAIL_CALL:
		text_place(r, "", step->ip);
		ptw_out_colour(r->out, PTW_DIM);
		text_place(r, line->kind == PTW_STEP_CALL ? " <- " : " <~ ", step->from);
		ptw_out_text(r->out, line->kind == PTW_STEP_CALL ? "" : " (tail call)");
		break;
	case PTW_STEP_INTERRUPT:
	case PTW_STEP_SYSCALL:
		ptw_out_colour(r->out, PTW_YELLOW);
		if (step->ip) {
			text_place(r, line->kind == PTW_STEP_SYSCALL ? "=== system call → " :
				   "=== interrupt/exception → ", step->ip);
			text_place(r, " at ", step->from);
		} else {
			/* An interrupt into filtered code and the end of tracing look the same. */
			text_place(r, line->kind == PTW_STEP_SYSCALL ? "=== system call, not traced, at " :
				   "=== not traced from ", step->from);
		}
		break;
	case PTW_STEP_BEGIN:
		ptw_out_colour(r->out, PTW_DIM);
		text_place(r, "--- begins in ", step->ip);
		break;
	case PTW_STEP_OUTER:
		ptw_out_colour(r->out, PTW_DIM);
		text_place(r, "--- back in ", step->ip);
		text_place(r, " from ", step->from);
		break;
	case PTW_STEP_SWITCH:
		ptw_out_colour(r->out, PTW_YELLOW);
		text_place(r, "--- another stack: now in ", step->ip);
		text_place(r, " from ", step->from);
		break;
	case LINE_ALARM:
		text_place(r, "", step->ip);
		ptw_out_colour(r->out, PTW_RED);
		ptw_out_printf(r->out, "  <-- %s", ptw_view_alarm_mark(r->view, mark, sizeof(mark)));
		break;
	default:
		ptw_out_colour(r->out, PTW_RED);
		ptw_out_printf(r->out, "--- gap: %s", line->text ? line->text : "");
	}
	ptw_out_colour(r->out, PTW_PLAIN);
}

static void text_line(struct report *r, const struct line *line, int64_t depth)
{
	int64_t indent = INDENT * depth;

	text_times(r, line);
	if (r->view->trace->cpu >= 0)
		ptw_out_printf(r->out, "%3d ", r->view->trace->cpu);
	if (indent > MAX_INDENT)
		ptw_out_printf(r->out, " %*s[%" PRId64 "] ", MAX_INDENT, "", depth);
	else
		ptw_out_printf(r->out, " %*s", (int)indent, "");
	text_what(r, line);
	ptw_out_text(r->out, "\n");
}

/* ---- JSON ---- */

static const char *kind_name(int kind)
{
	static const char *const names[] = {
		[PTW_STEP_BEGIN] = "begin",
		[PTW_STEP_CALL] = "call",
		[PTW_STEP_TAIL_CALL] = "tail-call",
		[PTW_STEP_INTERRUPT] = "interrupt",
		[PTW_STEP_SYSCALL] = "syscall",
		[PTW_STEP_OUTER] = "outer",
		[PTW_STEP_SWITCH] = "switch",
		[PTW_STEP_GAP] = "gap",
		[LINE_ALARM] = "alarm",
	};

	return names[kind];
}

static void json_place(struct report *r, const char *key, const char *symbol_key, uint64_t addr)
{
	char name[256];

	if (!addr)
		return;
	ptw_out_printf(r->out, ",\"%s\":\"0x%016" PRIx64 "\"", key, addr);
	if (!r->view->symbols || !ptw_symbols_at(r->view->symbols, addr))
		return;
	ptw_out_printf(r->out, ",\"%s\":", symbol_key);
	ptw_out_json_string(r->out, ptw_view_symbol(r->view, addr, name, sizeof(name)));
}

static void json_line(struct report *r, const struct line *line, int64_t depth)
{
	bool known = ptw_clock_known(r->view->params);

	ptw_out_printf(r->out, "{\"type\":\"%s\"", kind_name(line->kind));
	if (r->view->trace->cpu >= 0)
		ptw_out_printf(r->out, ",\"cpu\":%d", r->view->trace->cpu);
	if (line->has_time)
		ptw_out_printf(r->out, ",\"tsc\":%" PRIu64, line->tsc);
	if (line->has_time && known)
		ptw_out_printf(r->out, ",\"time_ns\":%" PRIu64, line->ns);
	if (line->returned && known)
		ptw_out_printf(r->out, ",\"duration_ns\":%" PRIu64, line->duration);
	ptw_out_printf(r->out, ",\"depth\":%" PRId64, depth);
	json_place(r, "ip", "symbol", line->step.ip);
	json_place(r, "from", "caller", line->step.from);
	if (line->kind == LINE_ALARM)
		ptw_out_printf(r->out, ",\"alarm\":%" PRIu64, r->view->alarm_number);
	if (line->text) {
		ptw_out_text(r->out, ",\"error\":");
		ptw_out_json_string(r->out, line->text);
	}
	ptw_out_text(r->out, "}\n");
}

/* ---- lines come and go ---- */

static void write_line(struct report *r, const struct line *line)
{
	int64_t depth = shown_depth(r, line);

	if (r->out->error)
		return;
	/* What breaks the story is shown however deep it is. */
	if (r->options->depth && (uint64_t)depth >= r->options->depth && line->kind != PTW_STEP_GAP &&
	    line->kind != LINE_ALARM)
		return;
	r->calls += is_call(line->kind);
	if (r->options->count_only)
		return;
	if (r->options->format == PTW_FORMAT_JSON)
		json_line(r, line, depth);
	else if (r->options->format == PTW_FORMAT_TEXT)
		text_line(r, line, depth);
	else if (is_call(line->kind))
		ptw_out_ip_line(r->out, line->step.ip);
}

static void drop_first(struct report *r, bool write)
{
	struct line *line = ptw_ring_first(&r->lines);

	if (write)
		write_line(r, line);
	forget_before(r, line->step.stretch);
	free(line->text);
	ptw_ring_pop(&r->lines);
}

static void keep_window(struct report *r)
{
	const struct ptw_calls_options *options = r->options;
	struct line *line;

	while (options->tail && r->lines.count > options->tail)
		drop_first(r, false);
	if (options->last_ns)
		while ((line = ptw_ring_first(&r->lines)) && line->ns + options->last_ns < r->ns)
			drop_first(r, false);
	while (!options->tail && !options->last_ns && r->lines.count > LOOKAHEAD)
		drop_first(r, true);
}

/* Returns the number of the line; PTW_NO_STEP without memory. */
static uint64_t add_line(struct report *r, int kind, const struct ptw_step *step, char *text)
{
	struct line *line;
	uint64_t number;

	if (note_depth(r, step->stretch, step->depth) || !(line = ptw_ring_push(&r->lines))) {
		r->no_memory = true;
		free(text);
		return PTW_NO_STEP;
	}
	*line = (struct line){
		.step = *step, .kind = kind, .text = text,
		.has_time = r->has_time, .ns = r->ns, .tsc = r->tsc,
	};
	number = r->lines.popped + r->lines.count - 1;
	keep_window(r);
	return number;
}

static uint64_t on_step(void *context, const struct ptw_step *step)
{
	struct report *r = context;

	if (step->kind == PTW_STEP_GAP)
		return PTW_NO_STEP;	/* take_gap() has more to say */
	return add_line(r, step->kind, step, NULL);
}

static void on_return(void *context, uint64_t step)
{
	struct report *r = context;
	struct line *line = ptw_ring_at(&r->lines, step);

	if (!line)
		return;
	line->returned = true;
	line->duration = line->has_time && r->ns > line->ns ? r->ns - line->ns : 0;
}

static void take_gap(struct report *r, const struct ptw_item *item)
{
	struct ptw_step step = { .kind = PTW_STEP_GAP, .stretch = r->stack.stretch };
	char text[256];

	add_line(r, PTW_STEP_GAP, &step, strdup(ptw_item_describe_gap(item, text, sizeof(text))));
}

static void take_alarm(struct report *r)
{
	const struct ptw_view *view = r->view;
	bool before = view->alarm->ip != 0 && view->point.access_before;
	struct ptw_step step = { .ip = before ? view->alarm->ip : view->point.access_ip };

	/* A watch for execution hits where the last branch went, before the instruction there. */
	if (before && ptw_call_stack_arrive(&r->stack, view->alarm->ip))
		r->no_memory = true;
	step.stretch = r->stack.stretch;
	step.depth = ptw_call_stack_depth(&r->stack) + 1;
	add_line(r, LINE_ALARM, &step, NULL);
}

static int walk(struct report *r, struct ptw_decoder *decoder, struct ptw_error *err)
{
	const struct ptw_view *view = r->view;
	uint64_t steps = 0, index = 0;
	struct ptw_item item;

	while (!r->out->error && !r->no_memory &&
	       ptw_view_next(view, decoder, &item, &steps) != PTW_ITEM_END) {
		if (item.has_time) {
			r->has_time = true;
			r->tsc = item.tsc;
			r->ns = ptw_clock_ns(&r->clock, item.tsc);
		}
		if (ptw_call_stack_take(&r->stack, &item))
			r->no_memory = true;
		if (item.kind != PTW_ITEM_INSN) {
			if (ptw_item_is_gap(&item))
				take_gap(r, &item);
			continue;
		}
		if (!view->alarm || !view->point.found || index++ != view->point.insn_index)
			continue;
		take_alarm(r);
		if (!view->beyond_alarm)
			break;
	}
	if (r->no_memory)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "out of memory; ask for less with --tail or --last");
	return 0;
}

int ptw_report_calls(const struct ptw_view *view, const struct ptw_calls_options *options,
		     struct ptw_out *out, uint64_t *count, struct ptw_error *err)
{
	struct report r = {
		.view = view,
		.options = options,
		.out = out,
		.clock = { .params = view->params },
		.lines = { .element = sizeof(struct line) },
		.stack = { .symbols = view->symbols,
			   .on_step = on_step,
			   .on_return = on_return,
			   .context = &r },
	};
	struct ptw_decoder *decoder;
	int ret;

	decoder = ptw_view_decoder(view, 0, err);
	if (!decoder)
		return -1;
	ptw_call_stack_init(&r.stack);
	ret = walk(&r, decoder, err);
	ptw_decoder_free(decoder);
	ptw_call_stack_free(&r.stack);
	while (r.lines.count)
		drop_first(&r, ret == 0);
	ptw_ring_free(&r.lines);
	free(r.outermost);
	if (count)
		*count = r.calls;
	return ret;
}
