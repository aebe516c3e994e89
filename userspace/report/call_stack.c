// SPDX-License-Identifier: BSD-2-Clause
#include "report/call_stack.h"

#include <stdlib.h>
#include <string.h>

/* Deeper than any kernel or sane user stack; what is deeper loses its outermost half. */
#define MAX_FRAMES	16384

void ptw_call_stack_init(struct ptw_call_stack *s)
{
	s->frame = NULL;
	s->count = s->room = 0;
	s->base = 0;
	s->stretch = 0;
	s->fresh = true;
	s->branch.valid = false;
	s->function_start = s->function_end = 0;
}

void ptw_call_stack_free(struct ptw_call_stack *s)
{
	free(s->frame);
	s->frame = NULL;
	s->count = s->room = 0;
}

int64_t ptw_call_stack_depth(const struct ptw_call_stack *s)
{
	return s->base + (int64_t)s->count;
}

static uint64_t tell(struct ptw_call_stack *s, enum ptw_step_kind kind, uint64_t ip, uint64_t from)
{
	struct ptw_step step = {
		.kind = kind,
		.stretch = s->stretch,
		.depth = ptw_call_stack_depth(s),
		.ip = ip,
		.from = from,
	};

	return s->on_step(s->context, &step);
}

static const struct ptw_symbol *symbol_at(const struct ptw_call_stack *s, uint64_t addr)
{
	return s->symbols ? ptw_symbols_at(s->symbols, addr) : NULL;
}

/* Code between a call or a return and where it really goes; of no interest to a reader. */
static bool is_thunk(const struct ptw_symbol *symbol)
{
	static const char *const prefixes[] = {
		"__x86_indirect_", "__x86_return_thunk", "srso_", "retbleed_", "its_", "__llvm_retpoline_",
	};
	size_t i;

	for (i = 0; symbol && i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(symbol->name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static int push(struct ptw_call_stack *s, uint64_t ret, bool far)
{
	if (s->count == MAX_FRAMES) {
		memmove(s->frame, s->frame + MAX_FRAMES / 2, MAX_FRAMES / 2 * sizeof(*s->frame));
		s->count = MAX_FRAMES / 2;
		s->base += MAX_FRAMES / 2;
	}
	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct ptw_call_frame *grown = reallocarray(s->frame, room, sizeof(*grown));

		if (!grown)
			return -1;
		s->frame = grown;
		s->room = room;
	}
	s->frame[s->count++] = (struct ptw_call_frame){ .ret = ret, .step = PTW_NO_STEP, .far = far };
	return 0;
}

/* Leave frames until @count are left. */
static void pop_to(struct ptw_call_stack *s, size_t count)
{
	while (s->count > count) {
		struct ptw_call_frame *frame = &s->frame[--s->count];

		if (frame->step != PTW_NO_STEP && s->on_return)
			s->on_return(s->context, frame->step);
	}
}

/* Nothing is known of the frames any more: they didn't return, they are out of sight. */
static void new_stretch(struct ptw_call_stack *s)
{
	s->count = 0;
	s->base = 0;
	s->stretch++;
}

/* Index of the innermost frame that returns to @ip; -1: none. */
static ptrdiff_t find_frame(const struct ptw_call_stack *s, uint64_t ip, bool far)
{
	ptrdiff_t i;

	for (i = (ptrdiff_t)s->count - 1; i >= 0; i--)
		if (s->frame[i].ret == ip && s->frame[i].far == far)
			return i;
	return -1;
}

static int enter(struct ptw_call_stack *s, enum ptw_step_kind kind, uint64_t ip, uint64_t from, uint64_t ret)
{
	if (push(s, ret, kind == PTW_STEP_INTERRUPT || kind == PTW_STEP_SYSCALL))
		return -1;
	if (kind == PTW_STEP_CALL && is_thunk(symbol_at(s, ip)))
		s->frame[s->count - 1].silent = true;
	else
		s->frame[s->count - 1].step = tell(s, kind, ip, from);
	return 0;
}

/* The function at @ip takes the place of the running one: it will return for it. */
static void replace(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	struct ptw_call_frame *top = s->count ? &s->frame[s->count - 1] : NULL;
	uint64_t step;

	if (is_thunk(symbol_at(s, ip)))
		return;
	if (top && top->silent) {
		top->silent = false;
		/* The caller is known by where it is returned to; one byte less is inside of its call. */
		top->step = tell(s, PTW_STEP_CALL, ip, top->ret - 1);
		return;
	}
	if (top && top->step != PTW_NO_STEP && !top->far && s->on_return)
		s->on_return(s->context, top->step);
	step = tell(s, PTW_STEP_TAIL_CALL, ip, from);
	/* The entry code of an interrupt jumps around; the interrupt lasts until its IRET. */
	if (top && !top->far)
		top->step = step;
}

/*
 * Most jumps stay in their function, and looking up symbols is what costs: keep the stretch around @from and
 * @ip in mind that is known to be one function.
 */
static void remember_function(struct ptw_call_stack *s, uint64_t start, uint64_t from, uint64_t ip)
{
	uint64_t end = (from > ip ? from : ip) + 1;

	if (s->function_start != start || s->function_end < end)
		s->function_end = end;
	s->function_start = start;
}

/* A jump to the first instruction of another function, but not to the cold part of the same one. */
static void jump(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	const struct ptw_symbol *to, *here;

	if (ip >= s->function_start && ip < s->function_end && from >= s->function_start &&
	    from < s->function_end)
		return;
	to = symbol_at(s, ip);
	here = symbol_at(s, from);
	if (to && here && to->addr == here->addr) {
		remember_function(s, here->addr, from, ip);
		return;
	}
	if (to && to->addr == ip && !strstr(to->name, ".cold"))
		replace(s, ip, from);
}

static void leave(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	ptrdiff_t i = find_frame(s, ip, false);
	const struct ptw_symbol *to;

	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	/*
	 * A return to the start of a function: its address was put on the stack in place of the real one
	 * (retpolines, return trampolines of tracers). The last call is undone and the function runs instead.
	 */
	to = symbol_at(s, ip);
	if (to && to->addr == ip && s->count && strncmp(to->name, "ret_from_fork", 13)) {
		if (s->count > 1 && s->frame[s->count - 2].silent)
			s->count--;
		replace(s, ip, from);
		return;
	}
	if (!s->count) {
		s->base--;
		tell(s, PTW_STEP_OUTER, ip, from);
		return;
	}
	/* The scheduler returned on another thread's stack, or the code unwound it by hand. */
	new_stretch(s);
	tell(s, PTW_STEP_SWITCH, ip, from);
}

static void leave_far(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	ptrdiff_t i = find_frame(s, ip, true);

	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	/*
	 * Not back to where it came from (signal, fixed-up fault, other thread): out of the innermost one all
	 * the same.
	 */
	for (i = (ptrdiff_t)s->count - 1; i >= 0 && !s->frame[i].far; i--)
		;
	if (i >= 0) {
		pop_to(s, i);
		new_stretch(s);
		tell(s, PTW_STEP_SWITCH, ip, from);
		return;
	}
	s->count = 0;
	s->base--;
	tell(s, PTW_STEP_OUTER, ip, from);
}

int ptw_call_stack_arrive(struct ptw_call_stack *s, uint64_t ip)
{
	uint64_t from = s->branch.ip, next = s->branch.next;

	if (!s->branch.valid)
		return 0;
	s->branch.valid = false;
	/* Not taken; a call for the sake of the pushed address; an IRET to itself to serialise. */
	if (ip == next)
		return 0;

	switch (s->branch.class) {
	case PTW_INSN_CALL:
		return enter(s, PTW_STEP_CALL, ip, from, next);
	case PTW_INSN_FAR_CALL:
		return enter(s, PTW_STEP_SYSCALL, ip, from, next);
	case PTW_INSN_RETURN:
		leave(s, ip, from);
		return 0;
	case PTW_INSN_FAR_RETURN:
		leave_far(s, ip, from);
		return 0;
	default:
		jump(s, ip, from);
		return 0;
	}
}

static void begin(struct ptw_call_stack *s, uint64_t ip)
{
	if (!s->fresh)
		return;
	s->fresh = false;
	tell(s, PTW_STEP_BEGIN, ip, 0);
}

static int take_insn(struct ptw_call_stack *s, const struct ptw_insn *insn)
{
	if (s->branch.valid && ptw_call_stack_arrive(s, insn->ip))
		return -1;
	begin(s, insn->ip);
	if (insn->class != PTW_INSN_OTHER && insn->class != PTW_INSN_PTWRITE) {
		s->branch.valid = true;
		s->branch.class = insn->class;
		s->branch.ip = insn->ip;
		s->branch.next = insn->ip + insn->size;
	}
	return 0;
}

/* Where the stream ends for now; the flow may come back to a frame that we know. */
static int take_disabled(struct ptw_call_stack *s, const struct ptw_event *event)
{
	if (event->type == PTW_EVENT_ASYNC_DISABLED) {
		if (ptw_call_stack_arrive(s, event->from))
			return -1;
		begin(s, event->from);
		return enter(s, PTW_STEP_INTERRUPT, event->has_ip ? event->ip : 0, event->from, event->from);
	}
	if (!s->branch.valid)
		return 0;
	if (s->branch.class == PTW_INSN_FAR_RETURN) {
		/* Out of the kernel, if only that is traced. */
		s->branch.valid = false;
		pop_to(s, 0);
		return 0;
	}
	return ptw_call_stack_arrive(s, event->has_ip ? event->ip : 0);
}

static void take_enabled(struct ptw_call_stack *s, const struct ptw_event *event)
{
	ptrdiff_t i;

	s->branch.valid = false;
	i = find_frame(s, event->ip, true);
	if (i < 0)
		i = find_frame(s, event->ip, false);
	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	if (event->value && !s->fresh)	/* resumes where it was disabled */
		return;
	new_stretch(s);
	s->fresh = true;
}

static int take_event(struct ptw_call_stack *s, const struct ptw_event *event)
{
	if (event->status_update)
		return 0;
	switch (event->type) {
	case PTW_EVENT_ENABLED:
		take_enabled(s, event);
		return 0;
	case PTW_EVENT_DISABLED:
	case PTW_EVENT_ASYNC_DISABLED:
		return take_disabled(s, event);
	case PTW_EVENT_ASYNC_BRANCH:
		if (ptw_call_stack_arrive(s, event->from))
			return -1;
		begin(s, event->from);
		return enter(s, PTW_STEP_INTERRUPT, event->has_ip ? event->ip : 0, event->from, event->from);
	default:
		return 0;
	}
}

int ptw_call_stack_take(struct ptw_call_stack *s, const struct ptw_item *item)
{
	bool overflow = item->kind == PTW_ITEM_EVENT && item->event.type == PTW_EVENT_OVERFLOW &&
			!item->event.status_update;

	if (item->kind == PTW_ITEM_INSN)
		return take_insn(s, &item->insn);
	if (item->kind == PTW_ITEM_ERROR || overflow) {
		s->branch.valid = false;
		new_stretch(s);
		tell(s, PTW_STEP_GAP, 0, 0);
		s->fresh = true;
		return 0;
	}
	return item->kind == PTW_ITEM_EVENT ? take_event(s, &item->event) : 0;
}
