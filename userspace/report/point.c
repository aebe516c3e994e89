// SPDX-License-Identifier: BSD-2-Clause
#include "report/point.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_marker(struct ptw_point *point, const char *value, const struct ptw_marker_format *format,
			struct ptw_error *err)
{
	char *end;
	size_t i;

	point->kind = PTW_POINT_MARKER;
	for (i = 0; i < format->name_count; i++) {
		if (!strcmp(format->name[i].name, value)) {
			point->value = format->name[i].type;
			return 0;
		}
	}
	errno = 0;
	point->value = strtoull(value, &end, 0);
	if (errno || end == value || *end)
		return ptw_error_set(err, PTW_EXIT_USAGE, "'marker:%s': must be marker:TYPE, such as marker:0xA0%s", value,
				     format->name_count ? ", or a name that --names gives" : "");
	if (format->field[0].bits < 64 && point->value >> format->field[0].bits)
		return ptw_error_set(err, PTW_EXIT_USAGE, "'marker:%s': the field %s has only %u bits", value,
				     format->field[0].name, format->field[0].bits);
	return 0;
}

int ptw_point_parse(struct ptw_point *point, const char *spelling, const struct ptw_symbols *symbols,
		    const struct ptw_marker_format *format, struct ptw_error *err)
{
	static const char marker[] = "marker:", ret[] = "return:";
	bool is_return = !strncmp(spelling, ret, strlen(ret));
	const char *name = is_return ? spelling + strlen(ret) : spelling;
	const struct ptw_symbol *symbol;

	*point = (struct ptw_point){ 0 };
	snprintf(point->text, sizeof(point->text), "%s", spelling);
	if (!strncmp(spelling, marker, strlen(marker)))
		return parse_marker(point, spelling + strlen(marker), format, err);
	if (!symbols)
		return ptw_error_set(err, PTW_EXIT_FAILED, "'%s': the trace comes without symbols", spelling);
	if (ptw_symbols_resolve(symbols, name, &point->value, &symbol, err))
		return -1;
	symbol = ptw_symbols_at(symbols, point->value);
	if (symbol && symbol->addr == point->value)
		point->kind = is_return ? PTW_POINT_RETURN : PTW_POINT_ENTRY;
	else if (is_return)
		return ptw_error_set(err, PTW_EXIT_USAGE, "'%s': only a function returns, %s is inside of one", spelling, name);
	else
		point->kind = PTW_POINT_ADDRESS;
	return 0;
}

bool ptw_point_matches(const struct ptw_point *point, const struct ptw_marker_format *format,
		       const struct ptw_story_event *event)
{
	switch (point->kind) {
	case PTW_POINT_ENTRY:
		return event->kind == PTW_STORY_ENTER && event->frame->ip == point->value;
	case PTW_POINT_RETURN:
		return event->kind == PTW_STORY_LEAVE && event->frame->ip == point->value && !event->cut;
	case PTW_POINT_ADDRESS:
		return event->kind == PTW_STORY_POINT && event->ip == point->value;
	default:
		return event->kind == PTW_STORY_MARKER && ptw_marker_get(format, 0, event->value) == point->value;
	}
}
