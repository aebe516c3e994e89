/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of `ptwatch insns`: every instruction that a CPU executed, in order. */
#ifndef PTWATCH_REPORT_INSNS_H
#define PTWATCH_REPORT_INSNS_H

#include "report/view.h"

struct ptw_disasm;
struct ptw_source_lines;

/** struct ptw_insns_found - what there was; of several reports, that of all */
struct ptw_insns_found {
	uint64_t insns;			/* that were wanted */
	bool timed;			/* times are known, of all that is in the traces: */
	uint64_t first_ns, last_ns;
};

struct ptw_insns_options {
	enum ptw_format format;
	bool no_time;				/* text: without the column */
	bool count_only;			/* write nothing; for ptw_count_insns() */
	uint64_t tail;				/* only so many instructions at the end; 0: all */
	uint64_t last_ns;			/* only what happened so long before the end; 0: all */
	uint64_t from_ns, to_ns;		/* only from this time to that one; 0: from the start, to the end */
	uint64_t low, high;			/* only addresses from @low up to before @high; 0, 0: all */
	const char *function, *object;		/* only the function of that name, of that file or module; NULL: any */
	bool threads;				/* with the thread that ran */
	bool symbols;				/* text: with that column */
	struct ptw_disasm *disasm;		/* text and JSON; NULL: without */
	struct ptw_source_lines *lines;		/* NULL: without */
	struct ptw_insns_found *found;		/* to be told where there is a window or a function; NULL: not */
};

/** ptw_report_insns() - write the instructions of @view's trace. Return: 0, or -1: @err tells why. */
int ptw_report_insns(const struct ptw_view *view, const struct ptw_insns_options *options,
		     struct ptw_out *out, struct ptw_error *err);

/** ptw_count_insns() - how many instructions ptw_report_insns() would write */
int ptw_count_insns(const struct ptw_view *view, const struct ptw_insns_options *options, uint64_t *count,
		    struct ptw_error *err);

#endif /* PTWATCH_REPORT_INSNS_H */
