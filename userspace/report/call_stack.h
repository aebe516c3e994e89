/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call stack of a thread, followed through the branches of its flow. Tells what happened as steps; knows
 * nothing of output.
 *
 * A step's depth counts from where the stretch began (see @stretch): it is negative in functions that were
 * already running then, once the trace returns to them.
 */
#ifndef PTWATCH_REPORT_CALL_STACK_H
#define PTWATCH_REPORT_CALL_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flow/stream.h"

#define PTW_NO_STEP	UINT64_MAX

enum ptw_step_kind {
	PTW_STEP_BEGIN, /* a stretch of trace begins, in the middle of @ip's function */
	PTW_STEP_CALL, /* @from calls @ip */
	PTW_STEP_TAIL_CALL, /* the function of @from ends in a jump to the function @ip */
	PTW_STEP_INTERRUPT, /* interrupt or exception at @from, entry at @ip */
	PTW_STEP_SYSCALL, /* SYSCALL, INT n or the like at @from, entry at @ip */
	PTW_STEP_OUTER, /* back at @ip in a function that was running when the stretch began */
	PTW_STEP_SWITCH, /* @from returned to @ip, where nothing we saw had called from: another stack */
	PTW_STEP_GAP, /* something is missing here */
};

struct ptw_step {
	enum ptw_step_kind kind;
	uint64_t stretch;	/* number of the stretch of trace without gaps or stack switches */
	int64_t depth;
	uint64_t ip;		/* 0: outside of what is traced */
	uint64_t from;
	bool anew;		/* tracing was off since it ended: what was done meanwhile is no part of what the frames before did */
};

struct ptw_call_frame {
	uint64_t ret;		/* where the return goes; 0: unknown, tracing began in it */
	uint64_t step;		/* what on_step() returned for the call */
	uint64_t runs;		/* the function that was entered */
	uint64_t from;		/* the instruction that is left */
	bool far;		/* interrupt or system call: an IRET or the like ends it */
	bool silent;		/* a thunk was called, whose target is what counts */
	bool inner;		/* … or perhaps no thunk, but the middle of the function itself: then it is still to be told */
	size_t hidden;		/* silent ones among the frames outside of this one */
	uint64_t thunk_from;	/* the stack's, when this one was entered */
};

struct ptw_call_stack {
	/* What is at @addr, false: unknown. NULL: no tail calls, no thunks. */
	bool (*place)(void *context, uint64_t addr, struct ptw_place *place);
	/* A step; the return value names it in on_return(). */
	uint64_t (*on_step)(void *context, const struct ptw_step *step);
	/* The call that step @step began is over. */
	void (*on_return)(void *context, uint64_t step);
	void *context;
	bool through;		/* struct ptw_pt_params.through */

	struct ptw_call_frame *frame;	/* the rest is private */
	size_t count, room;
	int64_t base;			/* depth of the outermost frame */
	uint64_t stretch;
	bool begun;			/* something is known of where the thread is */
	uint64_t thunk_from;		/* the jump that went to a thunk last; 0: none did */
};

/** ptw_call_stack_init() - with everything but the first five fields as it must be at the start of a trace */
void ptw_call_stack_init(struct ptw_call_stack *stack);

/** ptw_call_stack_take() - the next record of the thread's flow. Return: 0, -1: out of memory. */
int ptw_call_stack_take(struct ptw_call_stack *stack, const struct ptw_flow *flow);

/** ptw_call_stack_depth() - depth of the function that runs now */
int64_t ptw_call_stack_depth(const struct ptw_call_stack *stack);

void ptw_call_stack_free(struct ptw_call_stack *stack);

#endif /* PTWATCH_REPORT_CALL_STACK_H */
