// SPDX-License-Identifier: BSD-2-Clause
#include "report/call_stack.h"

#include <stdlib.h>
#include <string.h>

/* Deeper than any kernel or sane user stack; what is deeper loses its outermost half. */
#define MAX_FRAMES	16384
#define CALL_SIZE	5	/* bytes of a direct call */
/* A thunk in place is no longer, and what its last call leads to is a MOV or LEA and a RET: the RET begins so far in. */
#define THUNK_SIZE	32
#define THUNK_RET	8

void ptw_call_stack_init(struct ptw_call_stack *s)
{
	s->frame = NULL;
	s->count = s->room = 0;
	s->base = 0;
	s->stretch = 0;
	s->begun = false;
	s->thunk_from = 0;
}

void ptw_call_stack_free(struct ptw_call_stack *s)
{
	free(s->frame);
	s->frame = NULL;
	s->count = s->room = 0;
}

/* Frames that are not told, up to and with the innermost @count */
static size_t hidden(const struct ptw_call_stack *s, size_t count)
{
	return count ? s->frame[count - 1].hidden + s->frame[count - 1].silent : 0;
}

int64_t ptw_call_stack_depth(const struct ptw_call_stack *s)
{
	return s->base + (int64_t)(s->count - hidden(s, s->count));
}

static uint64_t tell_at(struct ptw_call_stack *s, int64_t depth, enum ptw_step_kind kind, uint64_t ip, uint64_t from)
{
	struct ptw_step step = {
		.kind = kind,
		.stretch = s->stretch,
		.depth = depth,
		.ip = ip,
		.from = from,
	};

	return s->on_step(s->context, &step);
}

static uint64_t tell(struct ptw_call_stack *s, enum ptw_step_kind kind, uint64_t ip, uint64_t from)
{
	return tell_at(s, ptw_call_stack_depth(s), kind, ip, from);
}

static bool place_at(const struct ptw_call_stack *s, uint64_t addr, struct ptw_place *place)
{
	return addr && s->place && s->place(s->context, addr, place);
}

/* Code between a call or a return and where it really goes; of no interest to a reader. */
static bool is_thunk_name(const char *name, bool kernel)
{
	/* The last ones are the kernel's; programs may call their functions so. */
	static const char *const prefixes[] = {
		"__x86_indirect_", "__x86_return_thunk", "__llvm_retpoline_", "srso_", "retbleed_", "its_",
	};
	size_t i, known = kernel ? sizeof(prefixes) / sizeof(prefixes[0]) : 3;

	for (i = 0; i < known; i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static bool is_thunk(const struct ptw_call_stack *s, uint64_t addr)
{
	struct ptw_place place;

	return place_at(s, addr, &place) && is_thunk_name(place.symbol->name, addr >> 63);
}

/* Where the kernel runs the instructions in whose place it put a probe: the function they are from goes on there. */
static bool is_probe_slot(const struct ptw_call_stack *s, uint64_t addr)
{
	struct ptw_place place;

	return addr >> 63 && place_at(s, addr, &place) &&
	       (!strcmp(place.symbol->name, "kprobe_insn_page") || !strcmp(place.symbol->name, "kprobe_optinsn_page"));
}

/* What compilers split off a function is the function still: f.cold is f, and landing pads of exceptions lie there. */
static bool is_cold(const struct ptw_place *place)
{
	return strstr(place->symbol->name, ".cold");
}

static bool same_function(const struct ptw_place *a, const struct ptw_place *b)
{
	const char *name = a->symbol->name, *cold = strstr(name, ".cold"), *other = b->symbol->name;
	const char *other_cold = strstr(other, ".cold");
	size_t length = cold ? (size_t)(cold - name) : strlen(name);

	if (a->start == b->start)
		return true;
	if (!cold == !other_cold)
		return false;
	return length == (other_cold ? (size_t)(other_cold - other) : strlen(other)) && !strncmp(name, other, length);
}

static int push(struct ptw_call_stack *s, uint64_t ret, bool far, uint64_t ip)
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
	s->frame[s->count] = (struct ptw_call_frame){
		.ret = ret, .step = PTW_NO_STEP, .far = far, .runs = ip, .hidden = hidden(s, s->count), .thunk_from = s->thunk_from,
	};
	s->count++;
	return 0;
}

/* Leave frames until @count are left. */
static void pop_to(struct ptw_call_stack *s, size_t count)
{
	while (s->count > count) {
		struct ptw_call_frame *frame = &s->frame[--s->count];

		if (frame->step != PTW_NO_STEP && s->on_return)
			s->on_return(s->context, frame->step);
		/* What was interrupted may be a thunk. */
		if (frame->far)
			s->thunk_from = frame->thunk_from;
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

/*
 * How many frames there are when the function of @ip runs that is on the stack, the innermost such. For what unwinds the
 * stack by hand (exceptions, longjmp), and where a call was not in the trace from which it is returned. -1: it is
 * not on the stack, or an interrupt lies between.
 */
static ptrdiff_t find_running(const struct ptw_call_stack *s, uint64_t ip)
{
	struct ptw_place to, at;
	size_t i = s->count;

	if (!i || !place_at(s, ip, &to))
		return -1;
	if (place_at(s, s->frame[i - 1].runs, &at) && same_function(&at, &to))
		return i;
	/* A signal's handler may leave by longjmp. */
	for (; i && (!s->frame[i - 1].far || !(ip >> 63)); i--) {
		const struct ptw_call_frame *frame = &s->frame[i - 1];

		/* What was interrupted may be the first instruction of its function. */
		if (place_at(s, frame->far ? frame->from : frame->ret - 1, &at) && same_function(&at, &to))
			return i - 1;
	}
	return -1;
}

static bool is_near(uint64_t a, uint64_t b)
{
	return (a < b ? b - a : a - b) <= THUNK_SIZE;
}

/*
 * A function calls its own middle: a thunk that is built in, or, as assembly may, a function without a name. In the kernel,
 * where assembly has many of these, only what is as near as in a thunk.
 */
static bool is_inner(const struct ptw_call_stack *s, const struct ptw_place *to, uint64_t ip, uint64_t from)
{
	struct ptw_place at;

	return to->start != ip && (!(ip >> 63) || is_near(ip, from)) && place_at(s, from, &at) && at.start == to->start;
}

/* Whether a thunk is still what the middle of the function, which runs, may be, now that @flow comes */
static bool may_be_thunk(const struct ptw_call_stack *s, const struct ptw_flow *flow)
{
	const struct ptw_call_frame *top = &s->frame[s->count - 1];
	struct ptw_place to;

	switch (flow->kind) {
	case PTW_FLOW_RUN:
	case PTW_FLOW_RETURN:
		return true;
	case PTW_FLOW_CALL:
		return place_at(s, flow->to, &to) && is_inner(s, &to, flow->to, flow->from);
	case PTW_FLOW_INTERRUPT:
		return is_near(top->runs, top->from) && flow->from >= top->runs && flow->from - top->runs <= THUNK_RET;
	default:
		return false;
	}
}

static int enter(struct ptw_call_stack *s, enum ptw_step_kind kind, uint64_t ip, uint64_t from, uint64_t ret)
{
	struct ptw_call_frame *frame;
	struct ptw_place to;

	if (push(s, ret, kind == PTW_STEP_INTERRUPT || kind == PTW_STEP_SYSCALL, ip))
		return -1;
	frame = &s->frame[s->count - 1];
	frame->from = from;
	if (kind == PTW_STEP_CALL && place_at(s, ip, &to)) {
		frame->silent = is_thunk_name(to.symbol->name, ip >> 63);
		frame->inner = !frame->silent && is_inner(s, &to, ip, from);
		frame->silent |= frame->inner;
	}
	if (!frame->silent)
		frame->step = tell(s, kind, ip, from);
	return 0;
}

/* What was called in the middle of a function is no thunk. */
static void tell_inner(struct ptw_call_stack *s)
{
	size_t i = s->count;

	while (i && s->frame[i - 1].inner)
		i--;
	for (; i < s->count; i++) {
		struct ptw_call_frame *frame = &s->frame[i];

		frame->silent = frame->inner = false;
		frame->hidden = hidden(s, i);
		frame->step = tell_at(s, s->base + (int64_t)(i + 1 - frame->hidden), PTW_STEP_CALL, frame->runs, frame->from);
	}
}

/* The function at @ip takes the place of the running one: it will return for it. */
static void replace(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	struct ptw_call_frame *top = s->count ? &s->frame[s->count - 1] : NULL;
	uint64_t step;

	if (is_thunk(s, ip)) {
		s->thunk_from = from;
		return;
	}
	if (top && !top->far)
		top->runs = ip;
	if (top && top->silent) {
		top->silent = top->inner = false;
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

/* To the first instruction of another function, or, by longjmp, into the middle of one that waits. */
static void jump(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	const struct ptw_call_frame *top = s->count ? &s->frame[s->count - 1] : NULL;
	struct ptw_place to, here, at;
	bool known = place_at(s, from, &here);
	ptrdiff_t running;

	if (!place_at(s, ip, &to) || (known && same_function(&here, &to)) || is_probe_slot(s, ip))
		return;
	if (to.start == ip && !is_cold(&to)) {
		/* What jumps was called by a call not in the trace: it does not take the place of its caller. */
		if (!known || !top || top->far || !place_at(s, top->runs, &at) || same_function(&here, &at))
			replace(s, ip, from);
		return;
	}
	running = find_running(s, ip);
	if (running >= 0)
		pop_to(s, running);
}

/*
 * What runs at @ip was called, by calls not in the trace, from what is on the stack: until it returns there, it takes
 * the place of the function in which tracing began. Return: false: tracing did not begin again here.
 */
static bool begin_above(struct ptw_call_stack *s, enum ptw_step_kind kind, uint64_t ip, uint64_t from)
{
	struct ptw_call_frame *frame;
	size_t i;

	for (i = s->count; i && !s->frame[i - 1].far && s->frame[i - 1].ret; i--)
		;
	if (!i || s->frame[i - 1].far)
		return false;
	frame = &s->frame[i - 1];
	pop_to(s, i);
	if (frame->step != PTW_NO_STEP && s->on_return)
		s->on_return(s->context, frame->step);
	frame->runs = ip;
	frame->step = tell(s, kind, ip, from);
	return true;
}

static void leave(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	ptrdiff_t i = find_frame(s, ip, false);
	struct ptw_place to;

	if (i >= 0) {
		/*
		 * What goes back to the middle of its function was no thunk. Nor is what the kernel's RET leaves: the tracers'
		 * return trampoline is built as one, and calls.
		 */
		if (s->frame[i].inner)
			pop_to(s, i + 1);
		if (s->frame[i].inner || (s->frame[s->count - 1].inner && from >> 63))
			tell_inner(s);
		pop_to(s, i);
		return;
	}
	/*
	 * A return to the start of a function: its address was put on the stack in place of the real one
	 * (retpolines, return trampolines of tracers). The last call is undone and the function runs instead.
	 */
	if (s->count && place_at(s, ip, &to) && to.start == ip && !is_cold(&to) &&
	    strncmp(to.symbol->name, "ret_from_fork", 13)) {
		const struct ptw_call_frame *top = &s->frame[s->count - 1];
		bool in_thunk = top->silent && (top->inner || is_thunk(s, top->ret - 1));

		if (in_thunk || (s->count > 1 && top[-1].silent))
			s->count--;
		/* Of a jump to a thunk the jump is what a reader looks for. */
		replace(s, ip, in_thunk && s->thunk_from ? s->thunk_from : from);
		s->thunk_from = 0;
		return;
	}
	if (!s->count) {
		s->base--;
		tell(s, PTW_STEP_OUTER, ip, from);
		return;
	}
	i = find_running(s, ip);
	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	if (begin_above(s, PTW_STEP_OUTER, ip, from))
		return;
	/* On another thread's stack, or in a function that we have not seen on this one. */
	new_stretch(s);
	tell(s, PTW_STEP_SWITCH, ip, from);
}

/* The handler of a signal, for all we know: user code, at the start of a function, but not that of a program. */
static bool is_handler(const struct ptw_call_stack *s, uint64_t ip)
{
	struct ptw_place place;

	return !(ip >> 63) && (!place_at(s, ip, &place) || (place.start == ip && strcmp(place.symbol->name, "_start")));
}

/* Whether a program was replaced in frames @first and following: nothing is left of the stack then. */
static bool is_exec(const struct ptw_call_stack *s, size_t first)
{
	struct ptw_place place;

	for (; first < s->count; first++)
		if (place_at(s, s->frame[first].runs, &place) && strstr(place.symbol->name, "execve"))
			return true;
	return false;
}

/*
 * The kernel was entered by frame @i, and goes on elsewhere: in the handler of a signal, which runs in between until
 * rt_sigreturn leads back.
 */
static void divert(struct ptw_call_stack *s, size_t i, uint64_t ip)
{
	struct ptw_call_frame *frame = &s->frame[i];

	pop_to(s, i + 1);
	if (frame->step != PTW_NO_STEP && s->on_return)
		s->on_return(s->context, frame->step);
	frame->runs = ip;
	frame->step = tell(s, PTW_STEP_CALL, ip, frame->ret);
}

static void leave_far(struct ptw_call_stack *s, uint64_t ip, uint64_t from)
{
	ptrdiff_t i = find_frame(s, ip, true);
	struct ptw_place to, at;

	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	for (i = (ptrdiff_t)s->count - 1; i >= 0 && !s->frame[i].far; i--)
		;
	if (i < 0) {
		s->count = 0;
		s->base--;
		tell(s, PTW_STEP_OUTER, ip, from);
		return;
	}
	/* A fault that was mended by going on elsewhere in the function. */
	if (place_at(s, ip, &to) && place_at(s, s->frame[i].ret, &at) && same_function(&at, &to)) {
		pop_to(s, i);
		return;
	}
	/* A probe's breakpoint goes on with a copy of the instruction elsewhere, and from there back in the function. */
	if (is_probe_slot(s, ip) || is_probe_slot(s, s->frame[i].ret)) {
		pop_to(s, i);
		return;
	}
	/* … or does what a call does whose place it has. */
	if (ip >> 63 && place_at(s, s->frame[i].runs, &at) && !strcmp(at.symbol->name, "asm_exc_int3") &&
	    place_at(s, ip, &to) && to.start == ip) {
		uint64_t call = s->frame[i].ret;

		pop_to(s, i);
		enter(s, PTW_STEP_CALL, ip, call, call + CALL_SIZE);
		return;
	}
	if (!(s->frame[i].ret >> 63) && is_handler(s, ip) && !is_exec(s, i)) {
		divert(s, i, ip);
		return;
	}
	pop_to(s, i);
	new_stretch(s);
	tell(s, PTW_STEP_SWITCH, ip, from);
}

static bool is_start(const struct ptw_call_stack *s, uint64_t ip)
{
	struct ptw_place place;

	return place_at(s, ip, &place) && place.start == ip;
}

/*
 * Breakpoints at functions stopped tracing, before the first instruction of the one, and began it again, before that of the
 * other. The handler of a signal is at its first instruction, too, but what it interrupts hardly ever: only where there may be
 * such breakpoints is it taken for one.
 */
static bool begins_anew(const struct ptw_call_stack *s, uint64_t ip)
{
	const struct ptw_call_frame *top = s->count ? &s->frame[s->count - 1] : NULL;

	return !s->through && top && top->far && !top->runs && top->ret == top->from && !(top->from >> 63) && !(ip >> 63) &&
	       is_start(s, top->from) && is_start(s, ip);
}

/* Tracing goes on at @ip, after a pause in which anything may have been done: it is taken for as little as possible. */
static void begin(struct ptw_call_stack *s, uint64_t ip, bool resumes)
{
	ptrdiff_t i = find_frame(s, ip, true);

	if (i < 0)
		i = find_frame(s, ip, false);
	if (i < 0 && !(ip >> 63) && !begins_anew(s, ip))
		i = find_running(s, ip);
	if (i >= 0) {
		pop_to(s, i);
		return;
	}
	if (resumes && s->begun)
		return;
	if (begins_anew(s, ip)) {
		new_stretch(s);
		s->on_step(s->context, &(struct ptw_step){ .kind = PTW_STEP_BEGIN, .stretch = s->stretch, .ip = ip, .anew = true });
		return;
	}
	/* Tracing stopped by a WRMSR looks like an interrupt to somewhere that is not traced. */
	if (s->count && ip >> 63 && s->frame[s->count - 1].far && !s->frame[s->count - 1].runs &&
	    s->frame[s->count - 1].ret >> 63)
		pop_to(s, s->count - 1);
	if (s->count && s->frame[s->count - 1].far && !(s->frame[s->count - 1].ret >> 63) && is_handler(s, ip)) {
		divert(s, s->count - 1, ip);
		return;
	}
	/* In the kernel tracing stops and starts in the middle of things. */
	if (s->count && ip >> 63 && s->frame[s->count - 1].runs >> 63) {
		if (!begin_above(s, PTW_STEP_BEGIN, ip, 0) && !push(s, 0, false, ip))
			s->frame[s->count - 1].step = tell(s, PTW_STEP_BEGIN, ip, 0);
		return;
	}
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
	if (s->count && s->frame[s->count - 1].inner && !may_be_thunk(s, flow))
		tell_inner(s);
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
