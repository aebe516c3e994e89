/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of `ptwatch packets`: a line for each packet, with the time as timing packets before it tell. */
#ifndef PTWATCH_REPORT_PACKETS_H
#define PTWATCH_REPORT_PACKETS_H

#include "report/view.h"

struct ptw_packets_options {
	enum ptw_format format;
	bool count_only;	/* write nothing, only count */
	bool no_time;		/* text: without the column */
	uint64_t tail;		/* only so many packets at the end; 0: all */
	uint64_t last_ns;	/* only those so long before the end; 0: all */
	/* Bytes that are no packets, an incomplete packet, an overflow; may be NULL. */
	void (*on_gap)(void *context, const struct ptw_view *view, const char *kind, const char *text);
	void *context;
};

/**
 * ptw_report_packets() - write the packets of @view's trace
 * @count: out: how many there are
 */
int ptw_report_packets(const struct ptw_view *view, const struct ptw_packets_options *options,
		       struct ptw_out *out, uint64_t *count, struct ptw_error *err);

#endif /* PTWATCH_REPORT_PACKETS_H */
