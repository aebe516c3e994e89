// SPDX-License-Identifier: BSD-2-Clause
#include "report/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/alarm_text.h"

static void on_stream_progress(void *context, uint64_t done, uint64_t size)
{
	const struct ptw_view *view = context;

	if (view->on_progress)
		view->on_progress(view->context, view, done);
}

struct ptw_stream *ptw_view_stream(const struct ptw_view *view, unsigned int flags, struct ptw_error *err)
{
	const size_t trace = view->recording ? view->trace - view->recording->trace : 0;
	struct ptw_stream_options options = {
		.order = PTW_ORDER_TRACE,
		.flags = flags | (view->all_code ? PTW_STREAM_ALL_CODE : 0),
		.threads = view->threads,
		.trace = &trace,
		.traces = 1,
		.on_progress = on_stream_progress,
		.context = (void *)view,
	};
	struct ptw_recording raw = {
		.params = *view->params,
		.trace = (struct ptw_recorded_trace *)view->trace,
		.trace_count = 1,
		.image = *view->image,
		.symbols = (struct ptw_symbols *)view->symbols,
	};

	return ptw_stream_open(view->recording ? view->recording : &raw, &options, err);
}

char *ptw_view_symbol(const struct ptw_view *view, uint64_t addr, char *buf, size_t size)
{
	if (view->symbols)
		return ptw_symbols_format(view->symbols, addr, buf, size);
	snprintf(buf, size, "0x%016" PRIx64, addr);
	return buf;
}

char *ptw_view_alarm_mark(const struct ptw_view *view, char *buf, size_t size)
{
	const struct ptw_alarm *alarm = view->alarm;
	char name[160];

	if (alarm->label[0])
		snprintf(name, sizeof(name), "%s", alarm->label);
	else
		ptw_view_symbol(view, alarm->address, name, sizeof(name));
	snprintf(buf, size, "ALARM #%" PRIu64 " %s %s", view->alarm_number, ptw_access_text(alarm->access),
		 name);
	return buf;
}
