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
