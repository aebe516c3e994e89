/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of `ptwatch calls`: the tree of calls of each thread, with times, interrupts and exceptions in between.
 *
 * A line for each function entered. It is written when many others came after it: by then most calls have returned
 * and their times are known, and so is how far out the trace goes, on which the indentation depends.
 */
#ifndef PTWATCH_REPORT_CALLS_H
#define PTWATCH_REPORT_CALLS_H

#include "report/function.h"
#include "report/out.h"
#include "report/story.h"
#include "report/view.h"

struct ptw_calls_options {
	enum ptw_format format;		/* PTW_FORMAT_IP: the address of each function called */
	bool no_time;			/* text: without the columns */
	bool ticks;			/* times are ticks of an unknown length */
	bool count_only;		/* write nothing, only count what would be written */
	uint64_t tail;			/* only so many lines at the end; 0: all */
	uint64_t last_ns;		/* only what happened so long before the end; 0: all */
	uint64_t depth;			/* only so many levels, with @around below it; 0: all */
	const struct ptw_function *around;	/* only lines near an entry of this function; NULL: all */
	uint64_t context;		/* … so many before and after it, but none that is too deep */
	int32_t tid;			/* only this thread; -1: all */
	int width;			/* columns of a line of text; 0: as long as it gets */

	/* The alarm at which the story ends, in the trace that is told; NULL: none. */
	const struct ptw_alarm *alarm;
	struct ptw_alarm_point point;
	const char *alarm_mark;		/* "ALARM #1 write kv_cache_meta+0x0" */
	uint64_t alarm_number;
	bool beyond_alarm;
};

struct ptw_calls;

struct ptw_calls *ptw_calls_new(const struct ptw_calls_options *options, struct ptw_out *out);

/** ptw_calls_take() - an event of the story. Return: 0; 1: nothing more is wanted; -1: out of memory. */
int ptw_calls_take(struct ptw_calls *calls, const struct ptw_story_event *event);

/* What there is within what the options ask for. */
struct ptw_calls_found {
	uint64_t calls;		/* and interrupts and system calls */
	uint64_t lines;		/* … and all else that is told */
	uint64_t entries;	/* of what .around names, in the whole trace */
};

/**
 * ptw_calls_end() - write what is still to be written
 * @found: what was found is added
 * Return: 0; -1: out of memory.
 */
int ptw_calls_end(struct ptw_calls *calls, struct ptw_calls_found *found);
void ptw_calls_free(struct ptw_calls *calls);

#endif /* PTWATCH_REPORT_CALLS_H */
