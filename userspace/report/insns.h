/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of `ptwatch insns`: every instruction that a CPU executed, in order. */
#ifndef PTWATCH_REPORT_INSNS_H
#define PTWATCH_REPORT_INSNS_H

#include "report/view.h"

struct ptw_disasm;
struct ptw_source_lines;

struct ptw_insns_options {
	enum ptw_format format;
	bool no_time;				/* text: without the column */
	bool count_only;			/* write nothing; for ptw_count_insns() */
	uint64_t tail;				/* only so many instructions at the end; 0: all */
	uint64_t last_ns;			/* only what happened so long before the end; 0: all */
	uint64_t from_ns, to_ns;		/* only from this time to that one; 0: from the start, to the end */
	uint64_t low, high;			/* only addresses from @low up to before @high; 0, 0: all */
	/* The kernel's records, for the thread that ran; NULL: without that column. */
	const struct ptw_side_event *side;
	size_t side_count;
	struct ptw_disasm *disasm;		/* text and JSON; NULL: without */
	struct ptw_source_lines *lines;		/* NULL: without */
};

/** ptw_report_insns() - write the instructions of @view's trace. Return: 0, or -1: @err tells why. */
int ptw_report_insns(const struct ptw_view *view, const struct ptw_insns_options *options,
		     struct ptw_out *out, struct ptw_error *err);

/** ptw_count_insns() - how many instructions ptw_report_insns() would write */
int ptw_count_insns(const struct ptw_view *view, const struct ptw_insns_options *options, uint64_t *count,
		    struct ptw_error *err);

#endif /* PTWATCH_REPORT_INSNS_H */
