/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of `ptwatch calls`: who called whom, with times, interrupts and exceptions in between.
 *
 * What is hard about it is said where it is done, in calls.c: a trace begins in the middle of functions,
 * threads switch stacks, functions end in jumps to others, and thunks return to where they were never called
 * from.
 */
#ifndef PTWATCH_REPORT_CALLS_H
#define PTWATCH_REPORT_CALLS_H

#include "report/view.h"

struct ptw_calls_options {
	enum ptw_format format;		/* PTW_FORMAT_IP: the address of each function called */
	bool no_time;			/* text: without the columns */
	bool count_only;		/* write nothing, only count what would be written */
	uint64_t tail;			/* only so many lines at the end; 0: all */
	uint64_t last_ns;		/* only what happened so long before the end; 0: all */
	uint64_t depth;			/* only so many levels; 0: all */
};

/**
 * ptw_report_calls() - write the calls of @view's trace
 * @count: out: calls, interrupts and system calls within what @options ask for; may be NULL
 *
 * Return: 0, or -1: @err tells why.
 */
int ptw_report_calls(const struct ptw_view *view, const struct ptw_calls_options *options,
		     struct ptw_out *out, uint64_t *count, struct ptw_error *err);

#endif /* PTWATCH_REPORT_CALLS_H */
