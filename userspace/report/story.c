// SPDX-License-Identifier: BSD-2-Clause
#include "report/story.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_LIMIT	(1u << 17)	/* of a thread */

struct ptw_story {
	struct ptw_story_config config;
	struct ptw_story_thread **thread;	/* by the stream's index; NULL: not yet seen */
	size_t thread_count;
	/* What is at hand, as far as it counts here: the record itself may be gone before the story ends. NULL: nothing yet. */
	const struct ptw_flow *flow;
	struct ptw_flow at;
	uint64_t now;
	uint64_t serial;
	int status;			/* of on_event(); then nothing more is told */
};

struct ptw_story *ptw_story_new(const struct ptw_story_config *config)
{
	struct ptw_story *story = calloc(1, sizeof(*story));

	if (story)
		story->config = *config;
	return story;
}

static void free_thread(struct ptw_story_thread *thread)
{
	ptw_call_stack_free(&thread->stack);
	free(thread->frame);
	free(thread);
}

void ptw_story_free(struct ptw_story *story)
{
	size_t i;

	if (!story)
		return;
	for (i = 0; i < story->thread_count; i++) {
		if (story->thread[i])
			free_thread(story->thread[i]);
	}
	free(story->thread);
	free(story);
}

struct ptw_story_thread *ptw_story_thread(const struct ptw_story *story, uint32_t index)
{
	return index < story->thread_count ? story->thread[index] : NULL;
}

int ptw_place_text(const struct ptw_place *place, uint64_t addr, char *buf, size_t size)
{
	const char *open = place->object ? " [" : "", *object = place->object ? place->object : "", *close = place->object ? "]" : "";

	if (!place->symbol)
		return snprintf(buf, size, "0x%016" PRIx64 "%s%s%s", addr, open, object, close);
	return snprintf(buf, size, "%s+0x%" PRIx64 "%s%s%s", place->symbol->name, addr - place->start, open, object, close);
}

const char *ptw_frame_name(const struct ptw_frame *frame, char *buf, size_t size)
{
	if (frame->place.symbol)
		return frame->place.symbol->name;
	if (frame->ip && frame->place.object)
		snprintf(buf, size, "0x%" PRIx64 " [%s]", frame->ip, frame->place.object);
	else if (frame->ip)
		snprintf(buf, size, "0x%" PRIx64, frame->ip);
	else if (frame->kind == PTW_FRAME_SYSCALL)
		snprintf(buf, size, "[system call]");
	else
		snprintf(buf, size, "[not traced]");
	return buf;
}

/* ---- telling ---- */

static void tell(struct ptw_story_thread *thread, struct ptw_story_event *event)
{
	struct ptw_story *story = thread->story;

	if (story->status)
		return;
	event->thread = thread;
	event->cpu = thread->cpu;
	event->has_time = story->flow && story->flow->flags & PTW_FLOW_TIMED;
	event->time = story->now;
	event->insns = story->flow ? story->flow->insns : 0;
	event->trace = story->flow ? story->flow->trace : 0;
	thread->time = event->time;
	story->status = story->config.on_event(story->config.context, event);
}

/* ---- frames ---- */

static void leave_at(struct ptw_story_thread *thread, bool cut, uint64_t now, uint64_t off_cpu)
{
	struct ptw_frame *frame = &thread->frame[thread->frame_count - 1];
	struct ptw_story_event event = { .kind = PTW_STORY_LEAVE, .cut = cut, .frame = frame, .ip = frame->ip };
	uint64_t off = off_cpu - frame->off_at_entry;

	frame->total = now > frame->entered ? now - frame->entered : 0;
	frame->on_cpu = frame->total > off ? frame->total - off : 0;
	frame->self = frame->on_cpu > frame->children ? frame->on_cpu - frame->children : 0;
	if (thread->frame_count > 1)
		frame[-1].children += frame->on_cpu;
	tell(thread, &event);
	thread->frame_count--;
}

static void leave_top(struct ptw_story_thread *thread, bool cut)
{
	leave_at(thread, cut, thread->running ? thread->story->now : thread->out_at, thread->off_cpu);
}

static void leave_to(struct ptw_story_thread *thread, size_t count, bool cut)
{
	while (thread->frame_count > count)
		leave_top(thread, cut);
}

/* All, as of when tracing of the thread ended */
static void leave_ended(struct ptw_story_thread *thread)
{
	while (thread->frame_count)
		leave_at(thread, true, thread->end_at, thread->off_at_end);
}

static bool starts_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

/* Both come the same way; the kernel's name of the entry tells them apart. An NMI interrupts whoever runs. */
static enum ptw_frame_kind interrupt_kind(const struct ptw_symbol *entry)
{
	const char *name = entry ? entry->name : "";

	if ((starts_with(name, "asm_exc_") && !starts_with(name, "asm_exc_nmi")) || starts_with(name, "exc_page_fault") ||
	    !strcmp(name, "page_fault") || starts_with(name, "async_page_fault"))
		return PTW_FRAME_EXCEPTION;
	return PTW_FRAME_INTERRUPT;
}

/* Where only the kernel is traced, it is entered by beginning there. */
static enum ptw_frame_kind begin_kind(const struct ptw_step *step, const struct ptw_place *place)
{
	if (!place->symbol || place->start != step->ip)
		return PTW_FRAME_BEGIN;
	if (starts_with(place->symbol->name, "entry_SYSCALL") || starts_with(place->symbol->name, "entry_SYSENTER") ||
	    starts_with(place->symbol->name, "entry_INT80"))
		return PTW_FRAME_SYSCALL;
	if (starts_with(place->symbol->name, "asm_") || starts_with(place->symbol->name, "irq_entries_start"))
		return interrupt_kind(place->symbol);
	return PTW_FRAME_BEGIN;
}

static enum ptw_frame_kind frame_kind(const struct ptw_step *step, const struct ptw_place *place)
{
	switch (step->kind) {
	case PTW_STEP_CALL:
		return PTW_FRAME_CALL;
	case PTW_STEP_TAIL_CALL:
		return PTW_FRAME_TAIL_CALL;
	case PTW_STEP_INTERRUPT:
		return interrupt_kind(place->symbol);
	case PTW_STEP_SYSCALL:
		return PTW_FRAME_SYSCALL;
	case PTW_STEP_SWITCH:
		return PTW_FRAME_SWITCH;
	default:
		return begin_kind(step, place);
	}
}

static bool is_far(const struct ptw_frame *frame)
{
	return frame->kind == PTW_FRAME_INTERRUPT || frame->kind == PTW_FRAME_EXCEPTION ||
	       frame->kind == PTW_FRAME_SYSCALL;
}

static uint64_t enter(struct ptw_story_thread *thread, const struct ptw_step *step)
{
	struct ptw_story *story = thread->story;
	struct ptw_story_event event = { .kind = PTW_STORY_ENTER, .ip = step->ip };
	struct ptw_frame *frame;

	/* No sane stack: what returns from there will not be seen to return. */
	if (thread->frame_count == FRAMES_LIMIT)
		leave_to(thread, 0, true);
	if (thread->frame_count == thread->frame_room) {
		size_t room = thread->frame_room ? 2 * thread->frame_room : 16;
		struct ptw_frame *grown = reallocarray(thread->frame, room, sizeof(*grown));

		if (!grown) {
			story->status = -1;
			return PTW_NO_STEP;
		}
		thread->frame = grown;
		thread->frame_room = room;
	}
	frame = &thread->frame[thread->frame_count++];
	*frame = (struct ptw_frame){
		.ip = step->ip,
		.from = step->from,
		.serial = story->serial++,
		.depth = step->depth,
		.entered = story->now,
		.off_at_entry = thread->off_cpu,
	};
	frame->place = (struct ptw_place){ 0 };
	if (step->ip && story->config.place)
		story->config.place(story->config.source, story->flow, step->ip, &frame->place);
	frame->kind = frame_kind(step, &frame->place);
	event.frame = frame;
	tell(thread, &event);
	return frame->serial;
}

static uint64_t on_step(void *context, const struct ptw_step *step)
{
	struct ptw_story_thread *thread = context;
	struct ptw_frame *top;

	/* What is known of the stack begins anew: nothing of it will be seen to return. */
	if (step->stretch != thread->stretch) {
		if (step->anew)
			leave_ended(thread);
		leave_to(thread, 0, true);
		thread->stretch = step->stretch;
	}
	if (step->kind == PTW_STEP_GAP)
		return PTW_NO_STEP;
	while ((top = ptw_story_top(thread)) && top->depth >= step->depth) {
		/* The entry code of an interrupt jumps around inside of the interrupt. */
		if (step->kind == PTW_STEP_TAIL_CALL && top->depth == step->depth && is_far(top))
			break;
		leave_top(thread, false);
	}
	return enter(thread, step);
}

static void on_return(void *context, uint64_t serial)
{
	struct ptw_story_thread *thread = context;
	size_t i = thread->frame_count;

	while (i && thread->frame[i - 1].serial > serial)
		i--;
	if (i && thread->frame[i - 1].serial == serial)
		leave_to(thread, i - 1, false);
}

/* ---- threads ---- */

bool ptw_story_place(const struct ptw_story_thread *thread, uint64_t addr, struct ptw_place *place)
{
	const struct ptw_story_config *config = &thread->story->config;

	return config->place && config->place(config->source, thread->story->flow, addr, place);
}

static bool place_of(void *context, uint64_t addr, struct ptw_place *place)
{
	return ptw_story_place(context, addr, place);
}

static struct ptw_story_thread *thread_of(struct ptw_story *story, uint32_t index, int32_t cpu)
{
	struct ptw_story_thread *thread, **grown;
	size_t i;

	if (index >= story->thread_count) {
		size_t count = index + 1 > 2 * story->thread_count ? index + 1 : 2 * story->thread_count;

		grown = reallocarray(story->thread, count, sizeof(*grown));
		if (!grown)
			return NULL;
		for (i = story->thread_count; i < count; i++)
			grown[i] = NULL;
		story->thread = grown;
		story->thread_count = count;
	}
	if (story->thread[index])
		return story->thread[index];
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return NULL;
	thread->index = index;
	thread->info = story->config.thread(story->config.source, index);
	thread->cpu = cpu;
	thread->story = story;
	thread->stack = (struct ptw_call_stack){
		.place = place_of, .on_step = on_step, .on_return = on_return, .context = thread,
		.through = story->config.through,
	};
	ptw_call_stack_init(&thread->stack);
	return story->thread[index] = thread;
}

static void switch_out(struct ptw_story_thread *thread)
{
	struct ptw_story_event event = { .kind = PTW_STORY_OUT };

	if (!thread->running)
		return;
	tell(thread, &event);
	thread->running = false;
	thread->out_at = thread->story->now;
}

static void switch_in(struct ptw_story_thread *thread, int32_t cpu)
{
	struct ptw_story_event event = { .kind = PTW_STORY_IN };
	uint64_t now = thread->story->now;

	thread->cpu = cpu;
	if (thread->running)
		return;
	thread->running = true;
	if (thread->seen && now > thread->out_at)
		thread->off_cpu += now - thread->out_at;
	thread->seen = true;
	tell(thread, &event);
}

/* ---- records ---- */

static void take_points(struct ptw_story *story, struct ptw_story_thread *thread, const struct ptw_flow *flow)
{
	size_t i;

	for (i = 0; i < story->config.point_count; i++) {
		uint64_t point = story->config.point[i];
		struct ptw_story_event event = { .kind = PTW_STORY_POINT, .ip = point };

		if (point >= flow->from && point <= flow->to)
			tell(thread, &event);
	}
}

/* Nothing more will be seen of it. */
static void end_thread(struct ptw_story_thread *thread)
{
	struct ptw_frame *top = ptw_story_top(thread);

	/* An interrupt that is not traced is nothing that lasts: nothing more was traced. */
	if (top && top->kind == PTW_FRAME_INTERRUPT && !top->ip)
		leave_ended(thread);
	else
		leave_to(thread, 0, true);
}

static void forget_thread(struct ptw_story_thread *thread)
{
	struct ptw_story_event event = { .kind = PTW_STORY_OVER };
	struct ptw_story *story = thread->story;

	switch_out(thread);
	end_thread(thread);
	tell(thread, &event);
	/* Consumers end with what they have, of which it is. */
	if (story->status)
		return;
	story->thread[thread->index] = NULL;
	free_thread(thread);
}

static void take_switch(struct ptw_story *story, struct ptw_story_thread *thread, const struct ptw_flow *flow)
{
	struct ptw_story_thread *old = flow->value < story->thread_count ? story->thread[flow->value] : NULL;

	if (old)
		switch_out(old);
	if (old && old != thread && flow->flags & PTW_FLOW_EXITED)
		forget_thread(old);
	/* Whoever runs here can't run elsewhere: the other CPU's news are still to come. */
	if (thread->cpu != flow->cpu)
		switch_out(thread);
}

int ptw_story_take(struct ptw_story *story, const struct ptw_flow *flow)
{
	struct ptw_story_thread *thread = thread_of(story, flow->thread, flow->cpu);
	struct ptw_story_event event = { .ip = flow->from, .value = flow->value };

	if (!thread)
		return -1;
	story->at.flags = flow->flags;
	story->at.cpu = flow->cpu;
	story->at.thread = flow->thread;
	story->at.trace = flow->trace;
	story->at.time = flow->time;
	story->at.insns = flow->insns;
	story->flow = &story->at;
	if (flow->flags & PTW_FLOW_TIMED)
		story->now = flow->time;
	if (flow->kind == PTW_FLOW_SWITCH)
		take_switch(story, thread, flow);
	switch_in(thread, flow->cpu);
	if (ptw_call_stack_take(&thread->stack, flow))
		return -1;
	switch (flow->kind) {
	case PTW_FLOW_FAR_RETURN:
		/* Out of what is traced, and so out of the entry with which that began. */
		if (!flow->to)
			leave_to(thread, 0, false);
		break;
	case PTW_FLOW_END:
		thread->end_at = story->now;
		thread->off_at_end = thread->off_cpu;
		break;
	case PTW_FLOW_RUN:
		take_points(story, thread, flow);
		break;
	case PTW_FLOW_MARKER:
		event.kind = PTW_STORY_MARKER;
		tell(thread, &event);
		break;
	case PTW_FLOW_GAP:
		event.kind = PTW_STORY_GAP;
		event.ip = flow->to ? flow->to : flow->from;
		event.text = flow->text;
		event.offset = flow->offset;
		tell(thread, &event);
		break;
	}
	return story->status;
}

int ptw_story_end(struct ptw_story *story)
{
	size_t i;

	for (i = 0; i < story->thread_count && !story->status; i++) {
		struct ptw_story_thread *thread = story->thread[i];

		if (thread)
			end_thread(thread);
	}
	return story->status;
}
