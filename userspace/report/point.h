/* SPDX-License-Identifier: BSD-2-Clause */
/* A moment in a thread's story, as a person spells it: a function's entry or return, an address, a marker. */
#ifndef PTWATCH_REPORT_POINT_H
#define PTWATCH_REPORT_POINT_H

#include "report/function.h"
#include "report/marker.h"
#include "report/story.h"

enum ptw_point_kind {
	PTW_POINT_ENTRY,	/* sym: the function is entered */
	PTW_POINT_RETURN,	/* return:sym: it is left */
	PTW_POINT_ADDRESS,	/* sym+0x10, 0xaddr: the instruction there is executed */
	PTW_POINT_MARKER,	/* marker:0xA0: PTWRITE of that type, which is the first field of the format */
};

struct ptw_point {
	enum ptw_point_kind kind;
	uint64_t value;		/* ADDRESS, MARKER: address or type */
	struct ptw_function function;	/* ENTRY, RETURN */
	char text[128];		/* as typed */
};

/** ptw_point_parse() - the point that @spelling names; functions as ptw_function_find() */
int ptw_point_parse(struct ptw_point *point, const char *spelling, const struct ptw_symbols *symbols,
		    const struct ptw_image *image, const struct ptw_marker_format *format, struct ptw_error *err);

/** ptw_point_matches() - whether @event is that moment */
bool ptw_point_matches(const struct ptw_point *point, const struct ptw_marker_format *format,
		       const struct ptw_story_event *event);

#endif /* PTWATCH_REPORT_POINT_H */
