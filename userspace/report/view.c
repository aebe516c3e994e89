// SPDX-License-Identifier: BSD-2-Clause
#include "report/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/alarm_text.h"

/* Often enough for a line a second at any speed, seldom enough to cost nothing. */
#define PROGRESS_STEPS	(1u << 16)

struct ptw_decoder *ptw_view_decoder(const struct ptw_view *view, unsigned int flags, struct ptw_error *err)
{
	struct ptw_decoder_config config = {
		.params = view->params,
		.image = view->image,
		.data = view->trace->data,
		.size = view->trace->size,
		.flags = view->decode_flags | flags,
	};

	return ptw_decoder_new(&config, err);
}

enum ptw_item_kind ptw_view_next(const struct ptw_view *view, struct ptw_decoder *decoder,
				 struct ptw_item *item, uint64_t *steps)
{
	ptw_decoder_next(decoder, item);
	if (item->kind != PTW_ITEM_INSN && view->on_gap && ptw_item_is_gap(item))
		view->on_gap(view->context, view, item);
	if (++*steps % PROGRESS_STEPS == 0 && view->on_progress)
		view->on_progress(view->context, view, ptw_decoder_offset(decoder));
	return item->kind;
}

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
		.flags = flags | (view->decode_flags & PTW_DECODE_SKIP_UNREADABLE ? 0 : PTW_STREAM_ALL_CODE),
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

void ptw_view_gap(const struct ptw_view *view, const struct ptw_flow *flow)
{
	bool overflow = flow->event == PTW_EVENT_OVERFLOW;
	struct ptw_item item = {
		.kind = overflow ? PTW_ITEM_EVENT : PTW_ITEM_ERROR,
		.has_time = flow->flags & PTW_FLOW_TIMED,
		.offset = flow->offset,
	};

	if (!view->on_gap)
		return;
	if (overflow)
		item.event = (struct ptw_event){
			.type = PTW_EVENT_OVERFLOW, .has_ip = flow->to, .ip = flow->to,
		};
	else
		item.error = (struct ptw_decode_error){
			.text = flow->text, .ip = flow->from, .lost = flow->value,
			.resume = flow->offset + flow->value,
		};
	view->on_gap(view->context, view, &item);
}

char *ptw_item_describe_gap(const struct ptw_item *item, char *buf, size_t size)
{
	const struct ptw_decode_error *error = &item->error;
	static const char here[] = " at this address";
	char at[32] = "";
	size_t length;

	if (item->kind == PTW_ITEM_EVENT) {
		if (item->event.has_ip)
			snprintf(at, sizeof(at), ", goes on at 0x%016" PRIx64, item->event.ip);
		snprintf(buf, size, "trace offset 0x%" PRIx64 ": overflow: the CPU dropped packets%s",
			 item->offset, at);
		return buf;
	}
	length = strlen(error->text);
	if (error->ip) {
		snprintf(at, sizeof(at), " at 0x%016" PRIx64, error->ip);
		/* libipt's "no memory mapped at this address" */
		if (length > strlen(here) && !strcmp(error->text + length - strlen(here), here))
			length -= strlen(here);
	}
	snprintf(buf, size,
		 "trace offset 0x%" PRIx64 ": %.*s%s; %" PRIu64 " bytes lost, goes on at offset 0x%" PRIx64,
		 item->offset, (int)length, error->text, at, error->lost, error->resume);
	return buf;
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
