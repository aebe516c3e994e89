/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of `ptwatch markers`: each PTWRITE, with its time, thread, place in the code and fields. */
#ifndef PTWATCH_REPORT_MARKERS_H
#define PTWATCH_REPORT_MARKERS_H

#include "report/marker.h"
#include "report/out.h"
#include "report/story.h"

struct ptw_markers {
	const struct ptw_marker_format *format;
	struct ptw_out *out;
	bool json;
	bool count_only;
	bool has_type;		/* only markers whose first field is @type */
	uint64_t type;
	uint64_t count;		/* so far */
	uint64_t others;	/* … and of other types */
};

/** ptw_markers_take() - an event of the story; other than markers are passed over */
int ptw_markers_take(struct ptw_markers *markers, const struct ptw_story_event *event);

#endif /* PTWATCH_REPORT_MARKERS_H */
