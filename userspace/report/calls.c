// SPDX-License-Identifier: BSD-2-Clause
#include "report/calls.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <linux/ptwatch.h>

#include "report/duration.h"
#include "report/gap.h"
#include "report/ring.h"
#include "report/thread_text.h"

#define LOOKAHEAD	65536	/* lines */
#define INDENT		2
#define MAX_INDENT	40
#define SHORT_NAME	16	/* columns that are left of a long name */

enum line_kind {
	LINE_CALL, LINE_TAIL_CALL, LINE_INTERRUPT, LINE_EXCEPTION, LINE_SYSCALL,
	LINE_BEGIN, LINE_STACK, LINE_SWITCH, LINE_GAP, LINE_MARKER, LINE_ALARM,
};

struct line {
	uint8_t kind;		/* enum line_kind */
	bool has_time;
	bool returned;		/* @total and @self are known */
	bool wanted;		/* near what --around names */
	bool too_deep;		/* below it, deeper than asked for */
	bool after_others;	/* some were left out before it */
	int32_t cpu;
	const struct ptw_thread *thread;
	uint64_t stretch;
	int64_t depth;
	uint64_t time, total, self;
	uint64_t ip, from;
	struct ptw_place place, from_place;
	uint64_t value;		/* LINE_MARKER */
	char *text;		/* LINE_GAP; owned */
};

/* What lines of one thread without a gap have in common: how far out they go. */
struct stretch {
	int64_t outermost;
	uint64_t lines;		/* in the ring */
};

/* What is known of a thread, behind ptw_story_thread.user. */
struct thread_state {
	uint64_t stretch;	/* number among calls->stretch */
	uint64_t story_stretch;
	uint64_t inside;	/* so many frames of its stack are of what --around names */
	bool arrived;		/* it was switched to, which is not told before something of it is seen */
	struct ptw_story_event arrival;
	int64_t arrival_depth;
	LIST_ENTRY(thread_state) next;
};

struct ptw_calls {
	struct ptw_calls_options options;
	struct ptw_out *out;
	struct ptw_ring lines;		/* struct line */
	struct ptw_ring kept;		/* of those that are shown, the last ones, where not all lines are */
	LIST_HEAD(, thread_state) threads;
	struct stretch *stretch;
	uint64_t stretch_first;		/* number of stretch[0] */
	size_t stretch_count, stretch_room;
	struct ptw_calls_found found;
	uint64_t newest;		/* time */
	uint64_t wanted_until;		/* number of the line after the last one that is near */
	bool skipped;			/* lines were, since */
	bool alarm_told;
	const struct ptw_thread *last_thread;	/* of the line written last */
	struct ptw_story_thread *last_story;	/* whose event came last */
};

/* What a frame's .user holds: where its line is, and that it is to be written. */
#define FRAME_WANTED	1

static uint64_t frame_line(const struct ptw_frame *frame)
{
	return ((uint64_t)(uintptr_t)frame->user >> 1) - 1;
}

static void set_frame_line(struct ptw_frame *frame, uint64_t number, unsigned int flags)
{
	frame->user = (void *)(uintptr_t)((number + 1) << 1 | flags);
}

static bool frame_wanted(const struct ptw_frame *frame)
{
	return (uintptr_t)frame->user & FRAME_WANTED;
}

struct ptw_calls *ptw_calls_new(const struct ptw_calls_options *options, struct ptw_out *out)
{
	struct ptw_calls *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->options = *options;
	c->out = out;
	c->lines.element = c->kept.element = sizeof(struct line);
	return c;
}

static bool is_call(int kind)
{
	return kind <= LINE_SYSCALL;
}

/* ---- how far out each stretch goes ---- */

static void forget_stretches(struct ptw_calls *c)
{
	size_t gone = 0;

	/* In batches, or dropping them would cost more than keeping them. */
	if (c->stretch_count < 1024)
		return;
	while (gone < c->stretch_count && !c->stretch[gone].lines)
		gone++;
	if (gone < c->stretch_count / 2)
		return;
	memmove(c->stretch, c->stretch + gone, (c->stretch_count - gone) * sizeof(*c->stretch));
	c->stretch_count -= gone;
	c->stretch_first += gone;
}

static int new_stretch(struct ptw_calls *c, struct thread_state *state)
{
	if (c->stretch_count == c->stretch_room) {
		size_t room = c->stretch_room ? 2 * c->stretch_room : 64;
		struct stretch *grown = reallocarray(c->stretch, room, sizeof(*grown));

		if (!grown)
			return -1;
		c->stretch = grown;
		c->stretch_room = room;
	}
	state->stretch = c->stretch_first + c->stretch_count;
	c->stretch[c->stretch_count++] = (struct stretch){ .outermost = INT64_MAX };
	return 0;
}

static struct thread_state *state_of(struct ptw_calls *c, struct ptw_story_thread *thread)
{
	struct thread_state *state = thread->user;

	if (!state) {
		state = calloc(1, sizeof(*state));
		if (!state)
			return NULL;
		LIST_INSERT_HEAD(&c->threads, state, next);
		thread->user = state;
	} else if (state->story_stretch == thread->stretch && state->stretch >= c->stretch_first) {
		return state;
	}
	state->story_stretch = thread->stretch;
	return new_stretch(c, state) ? NULL : state;
}

static int64_t shown_depth(const struct ptw_calls *c, const struct line *line)
{
	return line->depth - c->stretch[line->stretch - c->stretch_first].outermost;
}

/* ---- text ---- */

static bool continues(char byte)
{
	return (byte & 0xc0) == 0x80;
}

static int columns_of(const char *text)
{
	int columns = 0;

	for (; *text; text++)
		columns += !continues(*text);
	return columns;
}

/* @name in no more than @width columns: of a longer one both ends, with … in the middle. */
static void format_name(char *buf, size_t size, const char *name, int width)
{
	int columns = width ? columns_of(name) : 0, head = width / 2, skip = columns - width + 1;
	const char *at = name, *rest;

	if (columns <= width) {
		snprintf(buf, size, "%s", name);
		return;
	}
	for (; head; head--)
		for (at++; continues(*at); at++)
			;
	for (rest = at; skip; skip--)
		for (rest++; continues(*rest); rest++)
			;
	snprintf(buf, size, "%.*s…%s", (int)(at - name), name, rest);
}

/* "sym+0x1d [module]"; @width: at most so many columns for the symbol, 0: as many as it has */
static int format_place(char *buf, size_t size, const struct ptw_place *place, uint64_t addr, int width)
{
	struct ptw_place shorter = *place;
	struct ptw_symbol symbol;
	char name[256];

	if (!addr)
		return snprintf(buf, size, "?");
	if (!place->symbol || !width)
		return ptw_place_text(place, addr, buf, size);
	format_name(name, sizeof(name), place->symbol->name, width);
	symbol = *place->symbol;
	symbol.name = name;
	shorter.symbol = &symbol;
	return ptw_place_text(&shorter, addr, buf, size);
}

static int text_times(const struct ptw_calls *c, char *buf, size_t size, const struct line *line)
{
	char total[PTW_DURATION] = "", self[PTW_DURATION] = "", time[PTW_DURATION] = "-";

	if (c->options.no_time)
		return 0;
	if (line->has_time && c->options.ticks)
		snprintf(time, sizeof(time), "%" PRIu64, line->time);
	else if (line->has_time)
		ptw_time(line->time, time);
	/* Many lines share a time, since timing packets come every so often only: then nothing is known. */
	if (line->returned && line->total && !c->options.ticks) {
		ptw_duration(line->total, total);
		ptw_duration(line->self, self);
	}
	return snprintf(buf, size, "%16s %10s %10s ", time, total, self);
}

static const char *thread_name(const struct ptw_thread *thread, char *buf)
{
	if (thread->tid < 0)
		snprintf(buf, PTW_THREAD_TEXT, "cpu %d", thread->cpu);
	else if (thread->tid == 0)
		snprintf(buf, PTW_THREAD_TEXT, "idle");
	else
		ptw_thread_text(thread->tid, thread->comm, buf);
	return buf;
}

/* @width: of each of the two names at most so many columns; 0: as many as it has */
static void format_what(const struct ptw_calls *c, char *buf, size_t size, const struct line *line, enum ptw_colour *colour,
			const int width[2])
{
	char ip[400], from[400];

	format_place(ip, sizeof(ip), &line->place, line->ip, width[0]);
	format_place(from, sizeof(from), &line->from_place, line->from, width[1]);
	*colour = PTW_PLAIN;
	switch (line->kind) {
	case LINE_CALL:
		snprintf(buf, size, "%s <- %s", ip, from);
		break;
	case LINE_TAIL_CALL:
		snprintf(buf, size, "%s <~ %s (tail call)", ip, from);
		break;
	case LINE_INTERRUPT:
	case LINE_EXCEPTION:
		*colour = PTW_YELLOW;
		if (line->ip && line->from)
			snprintf(buf, size, "=== %s → %s at %s", line->kind == LINE_INTERRUPT ? "interrupt" : "exception", ip, from);
		else if (line->ip)
			snprintf(buf, size, "=== %s → %s", line->kind == LINE_INTERRUPT ? "interrupt" : "exception", ip);
		else	/* an interrupt into filtered code and the end of tracing look the same */
			snprintf(buf, size, "=== not traced from %s", from);
		break;
	case LINE_SYSCALL:
		*colour = PTW_YELLOW;
		if (line->ip && line->from)
			snprintf(buf, size, "=== system call → %s at %s", ip, from);
		else if (line->ip)
			snprintf(buf, size, "=== system call → %s", ip);
		else
			snprintf(buf, size, "=== system call, not traced, at %s", from);
		break;
	case LINE_BEGIN:
		*colour = PTW_DIM;
		if (line->from)
			snprintf(buf, size, "--- back in %s from %s", ip, from);
		else
			snprintf(buf, size, "--- begins in %s", ip);
		break;
	case LINE_STACK:
		*colour = PTW_YELLOW;
		snprintf(buf, size, "--- another stack: now in %s from %s", ip, from);
		break;
	case LINE_SWITCH:
		*colour = PTW_YELLOW;
		snprintf(buf, size, "--- thread %s runs", thread_name(line->thread, from));
		break;
	case LINE_MARKER:
		*colour = PTW_CYAN;
		snprintf(buf, size, "*** marker 0x%" PRIx64 " at %s", line->value, ip);
		break;
	case LINE_ALARM:
		*colour = PTW_RED;
		snprintf(buf, size, "%s  <-- %s", ip, c->options.alarm_mark);
		break;
	default:
		*colour = PTW_RED;
		snprintf(buf, size, "--- gap: %s", line->text ? line->text : "");
	}
}

/* How wide the two names of @line may be for it to get so many columns narrower; they keep enough to be known by. */
static void shorten(const struct line *line, int excess, int width[2])
{
	const struct ptw_symbol *symbol[2] = { line->ip ? line->place.symbol : NULL, line->from ? line->from_place.symbol : NULL };
	int i;

	for (i = 0; i < 2; i++)
		width[i] = symbol[i] ? columns_of(symbol[i]->name) : 0;
	for (; excess > 0; excess--) {
		i = width[1] > width[0];
		if (width[i] <= SHORT_NAME)
			return;
		width[i]--;
	}
}

static void text_line(struct ptw_calls *c, const struct line *line, int64_t depth)
{
	int64_t indent = INDENT * depth;
	char head[128], what[1024];
	enum ptw_colour colour;
	int width[2] = { 0 }, length;

	length = text_times(c, head, sizeof(head), line);
	if (line->cpu >= 0)
		length += snprintf(head + length, sizeof(head) - length, "%3d ", line->cpu);
	ptw_out_colour(c->out, PTW_DIM);
	ptw_out_write(c->out, head, length);
	ptw_out_colour(c->out, PTW_PLAIN);
	if (indent > MAX_INDENT)
		length += snprintf(head, sizeof(head), " %*s[%" PRId64 "] ", MAX_INDENT - 6, "", depth);
	else
		length += snprintf(head, sizeof(head), " %*s", (int)indent, "");
	ptw_out_text(c->out, head);
	format_what(c, what, sizeof(what), line, &colour, width);
	/* The alarm is what all the rest is about. */
	if (c->options.width && line->kind != LINE_ALARM && length + columns_of(what) > c->options.width) {
		shorten(line, length + columns_of(what) - c->options.width, width);
		format_what(c, what, sizeof(what), line, &colour, width);
	}
	ptw_out_colour(c->out, colour);
	ptw_out_text(c->out, what);
	if (colour != PTW_PLAIN)
		ptw_out_colour(c->out, PTW_PLAIN);
	ptw_out_text(c->out, "\n");
}

/* ---- JSON ---- */

static const char *kind_name(int kind)
{
	static const char *const names[] = {
		[LINE_CALL] = "call",	      [LINE_TAIL_CALL] = "tail-call", [LINE_INTERRUPT] = "interrupt",
		[LINE_EXCEPTION] = "exception", [LINE_SYSCALL] = "syscall",   [LINE_BEGIN] = "begin",
		[LINE_STACK] = "stack",       [LINE_SWITCH] = "switch",     [LINE_GAP] = "gap",	      [LINE_MARKER] = "marker",
		[LINE_ALARM] = "alarm",
	};

	return names[kind];
}

static void json_place(struct ptw_out *out, const char *key, const char *symbol_key, const char *module_key,
		       const struct ptw_place *place, uint64_t addr)
{
	char name[400];

	if (!addr)
		return;
	ptw_out_printf(out, ",\"%s\":\"0x%016" PRIx64 "\"", key, addr);
	if (place->symbol) {
		format_place(name, sizeof(name), place, addr, 0);
		ptw_out_printf(out, ",\"%s\":", symbol_key);
		ptw_out_json_string(out, name);
	}
	if (place->object) {
		ptw_out_printf(out, ",\"%s\":", module_key);
		ptw_out_json_string(out, place->object);
	}
}

static void json_line(struct ptw_calls *c, const struct line *line, int64_t depth)
{
	struct ptw_out *out = c->out;

	ptw_out_printf(out, "{\"type\":\"%s\"", kind_name(line->kind));
	if (line->cpu >= 0)
		ptw_out_printf(out, ",\"cpu\":%d", line->cpu);
	if (line->thread->tid >= 0) {
		ptw_out_printf(out, ",\"pid\":%d,\"tid\":%d,\"comm\":", line->thread->pid, line->thread->tid);
		ptw_out_json_string(out, line->thread->comm);
	}
	if (line->has_time)
		ptw_out_printf(out, ",\"%s\":%" PRIu64, c->options.ticks ? "ticks" : "time_ns", line->time);
	if (line->returned && !c->options.ticks)
		ptw_out_printf(out, ",\"duration_ns\":%" PRIu64 ",\"self_ns\":%" PRIu64, line->total, line->self);
	ptw_out_printf(out, ",\"depth\":%" PRId64, depth);
	json_place(out, "ip", "symbol", "module", &line->place, line->ip);
	json_place(out, "from", "caller", "caller_module", &line->from_place, line->from);
	if (line->kind == LINE_MARKER)
		ptw_out_printf(out, ",\"value\":\"0x%016" PRIx64 "\"", line->value);
	if (line->kind == LINE_ALARM)
		ptw_out_printf(out, ",\"alarm\":%" PRIu64, c->options.alarm_number);
	if (line->text) {
		ptw_out_text(out, ",\"error\":");
		ptw_out_json_string(out, line->text);
	}
	ptw_out_text(out, "}\n");
}

/* ---- lines come and go ---- */

/* Is it among what is wanted, wherever the window is? */
static bool is_shown(const struct ptw_calls *c, const struct line *line)
{
	if (c->options.around)
		return line->wanted;
	/* What breaks the story is shown however deep it is. */
	return !c->options.depth || (uint64_t)shown_depth(c, line) < c->options.depth || line->kind == LINE_GAP ||
	       line->kind == LINE_ALARM || line->kind == LINE_SWITCH;
}

static void write_line(struct ptw_calls *c, const struct line *line)
{
	if (c->out->error)
		return;
	c->found.lines++;
	c->found.calls += is_call(line->kind);
	if (c->options.count_only)
		return;
	if (c->options.format == PTW_FORMAT_JSON) {
		json_line(c, line, shown_depth(c, line));
	} else if (c->options.format == PTW_FORMAT_TEXT) {
		if (line->after_others && c->last_thread)
			ptw_out_text(c->out, "…\n");
		text_line(c, line, shown_depth(c, line));
	} else if (is_call(line->kind)) {
		ptw_out_ip_line(c->out, line->ip);
	}
	c->last_thread = line->thread;
}

static void forget_line(struct ptw_calls *c, const struct line *line)
{
	c->stretch[line->stretch - c->stretch_first].lines--;
	forget_stretches(c);
	free(line->text);
}

static void drop_kept(struct ptw_calls *c, bool write)
{
	struct line *line = ptw_ring_first(&c->kept);

	if (write)
		write_line(c, line);
	forget_line(c, line);
	ptw_ring_pop(&c->kept);
}

/* Are the last ones wanted of fewer lines than all? Then which these are is known only when all were seen. */
static bool keeps(const struct ptw_calls *c)
{
	return c->options.tail && (c->options.around || c->options.depth);
}

/* The first line is over: into the output, or behind what is kept for it. */
static int pass_first(struct ptw_calls *c)
{
	struct line *line = ptw_ring_first(&c->lines), *kept;

	if (!is_shown(c, line)) {
		c->skipped = c->skipped || c->options.around;
		forget_line(c, line);
	} else {
		line->after_others = c->skipped;
		c->skipped = false;
		if (keeps(c)) {
			kept = ptw_ring_push(&c->kept);
			if (!kept)
				return -1;
			*kept = *line;
			while (c->kept.count > c->options.tail)
				drop_kept(c, false);
		} else {
			write_line(c, line);
			forget_line(c, line);
		}
	}
	ptw_ring_pop(&c->lines);
	return 0;
}

static void drop_first(struct ptw_calls *c)
{
	forget_line(c, ptw_ring_first(&c->lines));
	ptw_ring_pop(&c->lines);
}

static int keep_window(struct ptw_calls *c)
{
	uint64_t lookahead = c->options.tail > LOOKAHEAD ? c->options.tail : LOOKAHEAD;
	bool tail = c->options.tail && !keeps(c);
	struct line *line;

	while (tail && c->lines.count > c->options.tail)
		drop_first(c);
	if (c->options.last_ns)
		while ((line = ptw_ring_first(&c->lines)) && line->time + c->options.last_ns < c->newest)
			drop_first(c);
	while (!tail && !c->options.last_ns && c->lines.count > lookahead)
		if (pass_first(c))
			return -1;
	return 0;
}

/* So many levels below what --around names are wanted, and nothing deeper. */
static bool in_reach(const struct ptw_calls *c, const struct ptw_story_thread *thread, size_t level)
{
	size_t frame = thread->frame_count;

	while (frame-- && level - frame <= c->options.depth)
		if (ptw_function_is(c->options.around, &thread->frame[frame]))
			return true;
	return false;
}

static void set_wanted(struct ptw_calls *c, struct line *line, const struct ptw_story_event *event,
		       const struct thread_state *state)
{
	size_t level = event->thread->frame_count;

	line->wanted = c->lines.popped + c->lines.count - 1 < c->wanted_until;
	if (!c->options.around || !c->options.depth || !state->inside)
		return;
	/* What breaks the story is shown however deep it is. */
	line->wanted = line->kind == LINE_GAP || line->kind == LINE_SWITCH ||
		       in_reach(c, event->thread, line->kind == LINE_MARKER ? level : level - 1);
	line->too_deep = !line->wanted;
}

static struct line *add_line(struct ptw_calls *c, const struct ptw_story_event *event, enum line_kind kind, int64_t depth)
{
	struct thread_state *state = state_of(c, event->thread);
	struct stretch *stretch;
	struct line *line;

	if (!state)
		return NULL;
	line = ptw_ring_push(&c->lines);
	if (!line)
		return NULL;
	*line = (struct line){
		.kind = kind, .has_time = event->has_time, .time = event->time, .cpu = event->cpu,
		.thread = event->thread->info, .stretch = state->stretch, .depth = depth,
	};
	set_wanted(c, line, event, state);
	stretch = &c->stretch[state->stretch - c->stretch_first];
	stretch->lines++;
	if (depth < stretch->outermost)
		stretch->outermost = depth;
	if (event->has_time && event->time > c->newest)
		c->newest = event->time;
	return line;
}

static void place_at(const struct ptw_story_event *event, uint64_t addr, struct ptw_place *place)
{
	*place = (struct ptw_place){ 0 };
	if (addr)
		ptw_story_place(event->thread, addr, place);
}

static const uint8_t frame_kinds[] = {
	[PTW_FRAME_BEGIN] = LINE_BEGIN,		[PTW_FRAME_SWITCH] = LINE_STACK,
	[PTW_FRAME_CALL] = LINE_CALL,		[PTW_FRAME_TAIL_CALL] = LINE_TAIL_CALL,
	[PTW_FRAME_INTERRUPT] = LINE_INTERRUPT, [PTW_FRAME_EXCEPTION] = LINE_EXCEPTION,
	[PTW_FRAME_SYSCALL] = LINE_SYSCALL,
};

static uint64_t last_line(const struct ptw_calls *c)
{
	return c->lines.popped + c->lines.count - 1;
}

static void fill_enter(const struct ptw_story_event *event, struct line *line, const struct ptw_frame *frame)
{
	line->ip = frame->ip;
	line->place = frame->place;
	line->from = frame->from;
	place_at(event, line->from, &line->from_place);
}

/* The function that @frame entered before the oldest line that is still there: it led to what comes now. */
static int add_frame(struct ptw_calls *c, const struct ptw_story_event *event, struct ptw_frame *frame)
{
	struct line *line = add_line(c, event, frame_kinds[frame->kind], frame->depth);

	if (!line)
		return -1;
	fill_enter(event, line, frame);
	line->has_time = frame->entered != 0;
	line->time = frame->entered;
	set_frame_line(frame, last_line(c), 0);
	return 0;
}

/* The functions that called what is entered, as far as they are not among the lines any more. */
static int add_callers(struct ptw_calls *c, const struct ptw_story_event *event)
{
	size_t i;

	for (i = 0; i + 1 < event->thread->frame_count; i++) {
		struct ptw_frame *frame = &event->thread->frame[i];

		if (frame->user && !frame_wanted(frame) && !ptw_ring_at(&c->lines, frame_line(frame)) && add_frame(c, event, frame))
			return -1;
	}
	return 0;
}

/* The lines near the last one, and those of the functions that it was called from. */
static void want(struct ptw_calls *c, const struct ptw_story_thread *thread)
{
	uint64_t number = last_line(c), i;
	uint64_t first = number > c->options.context ? number - c->options.context : 0;
	struct line *line;
	size_t frame;

	for (i = first > c->lines.popped ? first : c->lines.popped; i <= number; i++) {
		line = ptw_ring_at(&c->lines, i);
		line->wanted = line->wanted || !line->too_deep;
	}
	for (frame = 0; frame < thread->frame_count; frame++) {
		line = thread->frame[frame].user ? ptw_ring_at(&c->lines, frame_line(&thread->frame[frame])) : NULL;
		if (!line)
			continue;
		line->wanted = true;
		set_frame_line(&thread->frame[frame], frame_line(&thread->frame[frame]), FRAME_WANTED);
	}
	c->wanted_until = number + 1 + c->options.context;
}

static int take_enter(struct ptw_calls *c, const struct ptw_story_event *event)
{
	bool around = c->options.around && ptw_function_is(c->options.around, event->frame);
	struct thread_state *state = around ? state_of(c, event->thread) : NULL;
	struct line *line;

	if (around && (!state || (c->options.last_ns ? 0 : add_callers(c, event))))
		return -1;
	if (around)
		state->inside++;
	c->found.entries += around;
	line = add_line(c, event, frame_kinds[event->frame->kind], event->frame->depth);
	if (!line)
		return -1;
	fill_enter(event, line, event->frame);
	set_frame_line(event->frame, last_line(c), 0);
	if (around)
		want(c, event->thread);
	return keep_window(c);
}

static void take_leave(struct ptw_calls *c, const struct ptw_story_event *event)
{
	struct thread_state *state = event->thread->user;
	struct line *line;

	if (!event->frame->user)
		return;
	if (c->options.around && state && ptw_function_is(c->options.around, event->frame))
		state->inside--;
	line = ptw_ring_at(&c->lines, frame_line(event->frame));
	if (!line || event->cut || line->kind == LINE_BEGIN || line->kind == LINE_STACK)
		return;
	line->returned = true;
	line->total = event->frame->total;
	line->self = event->frame->self;
}

static int64_t depth_of(const struct ptw_story_thread *thread)
{
	return ptw_call_stack_depth(&thread->stack);
}

static int take_other(struct ptw_calls *c, const struct ptw_story_event *event, int64_t depth)
{
	enum line_kind kind = event->kind == PTW_STORY_GAP ? LINE_GAP : event->kind == PTW_STORY_IN ? LINE_SWITCH : LINE_MARKER;
	struct line *line = add_line(c, event, kind, depth + (kind == LINE_MARKER));
	char text[256];

	if (!line)
		return -1;
	if (kind == LINE_GAP) {
		line->text = strdup(ptw_gap_describe(event->text, event->offset, event->value, event->ip, text, sizeof(text)));
	} else if (kind == LINE_MARKER) {
		line->ip = event->ip;
		line->value = event->value;
		place_at(event, line->ip, &line->place);
	}
	return keep_window(c);
}

/* The first event that comes behind the access: in the same trace, with more instructions executed, or the trap. */
static bool behind_alarm(const struct ptw_calls *c, const struct ptw_story_event *event)
{
	uint64_t insns = c->options.point.insn_index + 1;

	if (!c->options.alarm || !c->options.point.found || c->alarm_told)
		return false;
	return event->insns > insns ||
	       (event->insns == insns && event->kind == PTW_STORY_ENTER &&
		(event->frame->kind == PTW_FRAME_INTERRUPT || event->frame->kind == PTW_FRAME_EXCEPTION));
}

static int tell_alarm(struct ptw_calls *c, struct ptw_story_thread *thread, const struct ptw_story_event *at)
{
	struct ptw_story_event event = { .thread = thread, .cpu = thread->cpu };
	int64_t depth = depth_of(thread) + 1;
	struct line *line;

	c->alarm_told = true;
	if (at) {
		event.has_time = at->has_time;
		event.time = at->time;
		/* Its own frame is already on the stack. */
		depth -= at->kind == PTW_STORY_ENTER;
	} else {
		event.has_time = c->newest != 0;
		event.time = c->newest;
	}
	line = add_line(c, &event, LINE_ALARM, depth);
	if (!line)
		return -1;
	line->wanted = true;
	/* A watch for execution hits where the last branch went, before the instruction there. */
	line->ip = c->options.alarm->access == PTWATCH_ACCESS_X ? c->options.alarm->ip : c->options.point.access_ip;
	place_at(&event, line->ip, &line->place);
	if (keep_window(c))
		return -1;
	return c->options.beyond_alarm ? 0 : 1;
}

/* Where nobody recorded who ran, there is nothing to tell; nor of whoever ran without being traced. */
static int note_arrival(struct ptw_calls *c, const struct ptw_story_event *event)
{
	struct thread_state *state = event->thread->info->tid < 0 ? NULL : state_of(c, event->thread);

	if (!state)
		return event->thread->info->tid < 0 ? 0 : -1;
	state->arrived = true;
	state->arrival = *event;
	state->arrival_depth = depth_of(event->thread);
	return 0;
}

static int take_arrival(struct ptw_calls *c, const struct ptw_story_event *event)
{
	struct thread_state *state = event->thread->user;

	if (!state || !state->arrived)
		return 0;
	state->arrived = false;
	return event->kind == PTW_STORY_OUT ? 0 : take_other(c, &state->arrival, state->arrival_depth);
}

static void forget(struct ptw_calls *c, const struct ptw_story_event *event)
{
	struct thread_state *state = event->thread->user;

	if (c->last_story == event->thread)
		c->last_story = NULL;
	if (!state)
		return;
	LIST_REMOVE(state, next);
	free(state);
}

int ptw_calls_take(struct ptw_calls *c, const struct ptw_story_event *event)
{
	int ret;

	if (c->out->error)
		return 1;
	if (event->kind == PTW_STORY_OVER) {
		forget(c, event);
		return 0;
	}
	if (behind_alarm(c, event)) {
		ret = tell_alarm(c, event->thread, event);
		if (ret)
			return ret;
	}
	c->last_story = event->thread;
	if (c->options.tid >= 0 && event->thread->info->tid != c->options.tid)
		return 0;
	ret = event->kind == PTW_STORY_IN ? 0 : take_arrival(c, event);
	if (ret)
		return ret;
	switch (event->kind) {
	case PTW_STORY_ENTER:
		return take_enter(c, event);
	case PTW_STORY_LEAVE:
		take_leave(c, event);
		return 0;
	case PTW_STORY_IN:
		return note_arrival(c, event);
	case PTW_STORY_GAP:
	case PTW_STORY_MARKER:
		return take_other(c, event, depth_of(event->thread));
	default:
		return 0;
	}
}

int ptw_calls_end(struct ptw_calls *c, struct ptw_calls_found *found)
{
	int ret = 0;

	if (c->options.alarm && c->options.point.found && !c->alarm_told && c->last_story)
		ret = tell_alarm(c, c->last_story, NULL);
	while (ret >= 0 && c->lines.count)
		ret = pass_first(c);
	while (ret >= 0 && c->kept.count)
		drop_kept(c, true);
	found->calls += c->found.calls;
	found->lines += c->found.lines;
	found->entries += c->found.entries;
	c->found = (struct ptw_calls_found){ 0 };
	return ret < 0 ? -1 : 0;
}

void ptw_calls_free(struct ptw_calls *c)
{
	struct thread_state *state;

	if (!c)
		return;
	while ((state = LIST_FIRST(&c->threads))) {
		LIST_REMOVE(state, next);
		free(state);
	}
	while (c->lines.count)
		drop_first(c);
	while (c->kept.count)
		drop_kept(c, false);
	ptw_ring_free(&c->lines);
	ptw_ring_free(&c->kept);
	free(c->stretch);
	free(c);
}
