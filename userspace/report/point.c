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
		    const struct ptw_image *image, const struct ptw_marker_format *format, struct ptw_error *err)
{
	static const char marker[] = "marker:", ret[] = "return:";
	bool is_return = !strncmp(spelling, ret, strlen(ret));
	const char *name = is_return ? spelling + strlen(ret) : spelling;
	const struct ptw_symbol *symbol;

	*point = (struct ptw_point){ 0 };
	snprintf(point->text, sizeof(point->text), "%s", spelling);
	if (!strncmp(spelling, marker, strlen(marker)))
		return parse_marker(point, spelling + strlen(marker), format, err);
	if (ptw_function_find(&point->function, name, symbols, image, err))
		return -1;
	point->kind = is_return ? PTW_POINT_RETURN : PTW_POINT_ENTRY;
	point->value = point->function.address;
	symbol = point->value && symbols ? ptw_symbols_at(symbols, point->value) : NULL;
	if (!point->value || (symbol && symbol->addr == point->value))
		return 0;
	if (is_return)
		return ptw_error_set(err, PTW_EXIT_USAGE, "'%s': only a function returns, %s is inside of one", spelling, name);
	point->kind = PTW_POINT_ADDRESS;
	return 0;
}

bool ptw_point_matches(const struct ptw_point *point, const struct ptw_marker_format *format,
		       const struct ptw_story_event *event)
{
	switch (point->kind) {
	case PTW_POINT_ENTRY:
		return event->kind == PTW_STORY_ENTER && ptw_function_is(&point->function, event->frame);
	case PTW_POINT_RETURN:
		return event->kind == PTW_STORY_LEAVE && !event->cut && ptw_function_is(&point->function, event->frame);
	case PTW_POINT_ADDRESS:
		return event->kind == PTW_STORY_POINT && event->ip == point->value;
	default:
		return event->kind == PTW_STORY_MARKER && ptw_marker_get(format, 0, event->value) == point->value;
	}
}
