/* SPDX-License-Identifier: BSD-2-Clause */
/* What a report looks at: one trace and all that is known about it. */
#ifndef PTWATCH_REPORT_VIEW_H
#define PTWATCH_REPORT_VIEW_H

#include "flow/stream.h"
#include "recording/recording.h"
#include "report/alarm_point.h"
#include "report/out.h"

enum ptw_format { PTW_FORMAT_TEXT, PTW_FORMAT_IP, PTW_FORMAT_JSON };

struct ptw_view {
	const struct ptw_recording *recording;	/* NULL: raw bytes, and what follows is all there is */
	const struct ptw_recorded_trace *trace;
	const struct ptw_pt_params *params;
	const struct ptw_image *image;
	const struct ptw_symbols *symbols;	/* NULL: none */
	unsigned int threads;			/* to decode with; 0: one for each core */
	bool all_code;				/* fail where a file of @image can't be read */

	/* The alarm at which the story of this trace ends; NULL: none. */
	const struct ptw_alarm *alarm;
	struct ptw_alarm_point point;
	uint64_t alarm_number;			/* its sequence number, as in alarms.jsonl */
	bool beyond_alarm;			/* show what came after it, too */

	/* Told of each PTW_FLOW_GAP as it comes by; may be NULL. */
	void (*on_gap)(void *context, const struct ptw_view *view, const struct ptw_flow *gap);
	/* Called now and then with the trace offset reached; may be NULL. */
	void (*on_progress)(void *context, const struct ptw_view *view, uint64_t offset);
	void *context;
};

/**
 * ptw_view_stream() - the view's trace as a stream, with whoever is asked for gaps and progress told of them
 * @flags: enum ptw_stream_flags
 */
struct ptw_stream *ptw_view_stream(const struct ptw_view *view, unsigned int flags, struct ptw_error *err);

/** ptw_view_gap() - tell the view of a gap in the stream */
static inline void ptw_view_gap(const struct ptw_view *view, const struct ptw_flow *gap)
{
	if (view->on_gap)
		view->on_gap(view->context, view, gap);
}

/** ptw_view_symbol() - "sym+0x1d [module]", or the address as 0x… . Return: @buf. */
char *ptw_view_symbol(const struct ptw_view *view, uint64_t addr, char *buf, size_t size);

/** ptw_view_alarm_mark() - "ALARM #1 write kv_cache_meta+0x0". Return: @buf. */
char *ptw_view_alarm_mark(const struct ptw_view *view, char *buf, size_t size);

#endif /* PTWATCH_REPORT_VIEW_H */
