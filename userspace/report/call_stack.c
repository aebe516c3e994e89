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
	s->begun = false;
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

static bool place_at(const struct ptw_call_stack *s, uint64_t addr, struct ptw_place *place)
{
	return addr && s->place && s->place(s->context, addr, place);
}

/* Code between a call or a return and where it really goes; of no interest to a reader. */
static bool is_thunk(const struct ptw_call_stack *s, uint64_t addr)
{
	static const char *const prefixes[] = {
		"__x86_indirect_", "__x86_return_thunk", "srso_", "retbleed_", "its_", "__llvm_retpoline_",
	};
	struct ptw_place place;
	size_t i;

	if (!place_at(s, addr, &place))
		return false;
	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(place.symbol->name, prefixes[i], strlen(prefixes[i])))
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
	if (kind == PTW_STEP_CALL && is_thunk(s, ip))
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

	if (is_thunk(s, ip))
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

/* A jump to the first instruction of another function, but not to the cold part of the same one. */
static void jump(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	struct ptw_place to, here;

	if (!place_at(s, ip, &to) || to.start != ip || strstr(to.symbol->name, ".cold"))
		return;
	if (place_at(s, from, &here) && here.start == to.start)
		return;
	replace(s, ip, from);
}

static void leave(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	ptrdiff_t i = find_frame(s, ip, false);
	struct ptw_place to;

	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	/*
	 * A return to the start of a function: its address was put on the stack in place of the real one
	 * (retpolines, return trampolines of tracers). The last call is undone and the function runs instead.
	 */
	if (s->count && place_at(s, ip, &to) && to.start == ip && strncmp(to.symbol->name, "ret_from_fork", 13)) {
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

/* Tracing goes on at @ip, after a pause or a gap. */
static void begin(struct ptw_call_stack *s, uint64_t ip, bool resumes)
{
	ptrdiff_t i = find_frame(s, ip, true);

	if (i < 0)
		i = find_frame(s, ip, false);
	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	if (resumes && s->begun)
		return;
	if (s->begun)
		new_stretch(s);
	s->begun = true;
	tell(s, PTW_STEP_BEGIN, ip, 0);
}

static void gap(struct ptw_call_stack *s, const struct ptw_flow *flow)
{
	new_stretch(s);
	tell(s, PTW_STEP_GAP, 0, 0);
	s->begun = flow->to != 0;
	if (flow->to)
		tell(s, PTW_STEP_BEGIN, flow->to, 0);
}

/* The first that is seen of a thread: it was running where the branch came from. */
static void begin_with(struct ptw_call_stack *s, const struct ptw_flow *flow)
{
	if (s->begun || !flow->from)
		return;
	s->begun = true;
	tell(s, PTW_STEP_BEGIN, flow->from, 0);
}

int ptw_call_stack_take(struct ptw_call_stack *s, const struct ptw_flow *flow)
{
	switch (flow->kind) {
	case PTW_FLOW_CALL:
	case PTW_FLOW_SYSCALL:
	case PTW_FLOW_RETURN:
	case PTW_FLOW_FAR_RETURN:
	case PTW_FLOW_JUMP:
	case PTW_FLOW_INTERRUPT:
	case PTW_FLOW_RUN:
		begin_with(s, flow);
		break;
	default:
		break;
	}
	switch (flow->kind) {
	case PTW_FLOW_CALL:
		/* A call for the sake of the pushed address is none. */
		return flow->to == flow->value ? 0 : enter(s, PTW_STEP_CALL, flow->to, flow->from, flow->value);
	case PTW_FLOW_SYSCALL:
		return flow->to == flow->value ? 0 : enter(s, PTW_STEP_SYSCALL, flow->to, flow->from, flow->value);
	case PTW_FLOW_INTERRUPT:
		return enter(s, PTW_STEP_INTERRUPT, flow->to, flow->from, flow->from);
	case PTW_FLOW_RETURN:
		leave(s, flow->to, flow->from);
		return 0;
	case PTW_FLOW_FAR_RETURN:
		/* Out of the kernel, if only that is traced. */
		if (!flow->to)
			pop_to(s, 0);
		else
			leave_far(s, flow->to, flow->from);
		return 0;
	case PTW_FLOW_JUMP:
		jump(s, flow->to, flow->from);
		return 0;
	case PTW_FLOW_BEGIN:
		begin(s, flow->to, flow->value == 1);
		return 0;
	case PTW_FLOW_GAP:
		gap(s, flow);
		return 0;
	default:
		return 0;
	}
}
