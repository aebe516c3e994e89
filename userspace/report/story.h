/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each thread did: branches go in, as the stream tells them; out come functions entered and left, interrupts,
 * system calls, switches, markers and gaps, each with its thread and time. Knows nothing of output: latency, calls,
 * flame, timeline, evidence and export are small consumers of this.
 *
 *	struct ptw_story *story = ptw_story_new(&config);
 *
 *	while ((flow = ptw_stream_next(stream)))
 *		ptw_story_take(story, flow);
 *	ptw_story_end(story);
 *	ptw_story_free(story);
 *
 * A thread keeps its call stack while it is switched out, on whatever CPU it goes on. Where nobody recorded which
 * thread ran, each CPU counts as one thread with tid -1. The story keeps nothing else of the past, and of a thread that has
 * exited nothing at all.
 */
#ifndef PTWATCH_REPORT_STORY_H
#define PTWATCH_REPORT_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flow/stream.h"
#include "report/call_stack.h"

enum ptw_story_kind {
	PTW_STORY_ENTER,	/* .frame began */
	PTW_STORY_LEAVE,	/* .frame is over: it returned, or with .cut it went out of sight */
	PTW_STORY_OUT,		/* the thread stopped running on .cpu */
	PTW_STORY_IN,		/* … and goes on, on .cpu */
	PTW_STORY_MARKER,	/* PTWRITE: .value, written at .ip */
	PTW_STORY_GAP,		/* trace is missing: .text says why, .value how many bytes, .offset where */
	PTW_STORY_OVER,		/* the thread has ended, all its frames are left, and it is forgotten: .user must be let go */
	PTW_STORY_POINT,	/* the instruction at .ip, one of config.point, is executed */
};

enum ptw_frame_kind {
	PTW_FRAME_BEGIN,	/* was running when the trace, or what we know of its stack, began */
	PTW_FRAME_SWITCH,	/* the same, and what we knew of the stack proved to be another one's */
	PTW_FRAME_CALL,
	PTW_FRAME_TAIL_CALL,
	PTW_FRAME_INTERRUPT,
	PTW_FRAME_EXCEPTION,	/* a fault or trap of the thread itself, as a page fault */
	PTW_FRAME_SYSCALL,
};

/* A function that runs. Times are in nanoseconds as the stream's. */
struct ptw_frame {
	enum ptw_frame_kind kind;
	uint64_t ip;		/* its first instruction; BEGIN: where it was; 0: not traced */
	uint64_t from;		/* the call, or the interrupted instruction; 0: not known */
	struct ptw_place place;	/* of @ip; .symbol NULL: none */
	uint64_t serial;	/* unique in the story, rising */
	int64_t depth;		/* see call_stack.h */
	uint64_t entered;	/* time */
	uint64_t off_at_entry;	/* the thread's off_cpu then */
	uint64_t children;	/* on-CPU time of what it called, and of interrupts */
	void *user;		/* of the consumer */
	/* For LEAVE: */
	uint64_t total;		/* time from entry to end */
	uint64_t on_cpu;	/* … without the time that the thread was switched out */
	uint64_t self;		/* … and without that of its callees and interrupts */
};

struct ptw_story_thread {
	uint32_t index;		/* the stream's */
	const struct ptw_thread *info;
	int32_t cpu;		/* where it runs, or ran last */
	bool running;
	bool seen;		/* has run before */
	struct ptw_frame *frame;	/* outermost first */
	size_t frame_count, frame_room;
	uint64_t off_cpu;	/* time switched out so far */
	uint64_t out_at;	/* since when it is switched out */
	uint64_t end_at;	/* when tracing of it ended last, */
	uint64_t off_at_end;	/* … and its off_cpu then */
	uint64_t time;		/* of its last event */
	uint64_t stretch;
	void *user;		/* of the consumer */
	struct ptw_call_stack stack;
	struct ptw_story *story;
};

struct ptw_story_event {
	enum ptw_story_kind kind;
	struct ptw_story_thread *thread;
	int32_t cpu;
	uint32_t trace;		/* index in the recording's traces */
	bool has_time;
	bool cut;
	uint64_t time;
	uint64_t ip;
	uint64_t value;
	const char *text;
	uint64_t offset, insns;	/* see struct ptw_flow */
	struct ptw_frame *frame;	/* ENTER, LEAVE: valid during the call */
};

struct ptw_story_config {
	/* What is at @addr for the thread and time of @flow; false: unknown. NULL: nothing is known. */
	bool (*place)(void *source, const struct ptw_flow *flow, uint64_t addr, struct ptw_place *place);
	const struct ptw_thread *(*thread)(void *source, uint32_t index);
	void *source;
	bool through;		/* struct ptw_pt_params.through */
	/* Addresses whose execution is to be told by itself; needs PTW_FLOW_RUN. */
	const uint64_t *point;
	size_t point_count;
	/* Return nonzero to end: ptw_story_take() then returns it. */
	int (*on_event)(void *context, const struct ptw_story_event *event);
	void *context;
};

struct ptw_story *ptw_story_new(const struct ptw_story_config *config);

/** ptw_story_take() - the next record. Return: 0; -1: out of memory; else what on_event() returned. */
int ptw_story_take(struct ptw_story *story, const struct ptw_flow *flow);

/** ptw_story_end() - the trace ended: every frame that still runs is left, cut */
int ptw_story_end(struct ptw_story *story);
void ptw_story_free(struct ptw_story *story);

/** ptw_story_thread() - the thread with the stream's @index; NULL: not seen yet */
struct ptw_story_thread *ptw_story_thread(const struct ptw_story *story, uint32_t index);

/** ptw_story_place() - what is at @addr for @thread, now: only during on_event() */
bool ptw_story_place(const struct ptw_story_thread *thread, uint64_t addr, struct ptw_place *place);

/** ptw_story_top() - the frame that runs in @thread; NULL: none */
static inline struct ptw_frame *ptw_story_top(const struct ptw_story_thread *thread)
{
	return thread->frame_count ? &thread->frame[thread->frame_count - 1] : NULL;
}

/** ptw_place_text() - "sym+0x1d [module]"; without a symbol "0x… [module]". Return: as snprintf(). */
int ptw_place_text(const struct ptw_place *place, uint64_t addr, char *buf, size_t size);

#define PTW_FRAME_NAME	96	/* bytes: room for what is no symbol */

/**
 * ptw_frame_name() - the function's name for people: the symbol, or "[interrupt]", "0x… [libx.so]"
 * Return: @buf or the symbol's name.
 */
const char *ptw_frame_name(const struct ptw_frame *frame, char *buf, size_t size);

#endif /* PTWATCH_REPORT_STORY_H */
