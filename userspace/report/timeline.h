/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of `ptwatch timeline`: Trace Event JSON, as Perfetto and speedscope read it.
 *
 * Each thread is a track with its calls, interrupts, system calls, markers and gaps; each CPU is one with the threads
 * that it ran. Events that share a time, because timing packets come every so often only, are told a nanosecond
 * apart: so their order, and what is inside of what, is not lost.
 */
#ifndef PTWATCH_REPORT_TIMELINE_H
#define PTWATCH_REPORT_TIMELINE_H

#include "recording/recording.h"
#include "report/marker.h"
#include "report/out.h"
#include "report/story.h"

struct ptw_timeline_options {
	uint64_t depth;		/* only so many levels of calls; 0: all */
	int32_t tid;		/* only this thread; -1: all */
	const struct ptw_marker_format *format;
};

struct ptw_timeline;

/** ptw_timeline_new() - and write the beginning */
struct ptw_timeline *ptw_timeline_new(const struct ptw_timeline_options *options, struct ptw_out *out);

/** ptw_timeline_take() - an event of the story. Return: 0; 1: the output failed; -1: out of memory. */
int ptw_timeline_take(struct ptw_timeline *timeline, const struct ptw_story_event *event);

/** ptw_timeline_alarm() - an alarm that hit at @time */
void ptw_timeline_alarm(struct ptw_timeline *timeline, const struct ptw_alarm *alarm, uint64_t time);

/** ptw_timeline_end() - write the end; threads must still be there. Return: whether there is anything to see. */
bool ptw_timeline_end(struct ptw_timeline *timeline);
void ptw_timeline_free(struct ptw_timeline *timeline);

#endif /* PTWATCH_REPORT_TIMELINE_H */
