/* SPDX-License-Identifier: BSD-2-Clause */
/* From an opened source to the stories of its threads: what most verbs report from. Private to cli/. */
#ifndef PTWATCH_CLI_TRACE_STORY_H
#define PTWATCH_CLI_TRACE_STORY_H

#include "cli/trace_source.h"
#include "flow/stream.h"
#include "report/story.h"

struct trace_story_options {
	enum ptw_stream_order order;
	const size_t *trace;		/* indices of the traces; NULL: all that the source has chosen */
	size_t traces;
	const uint64_t *point;		/* see struct ptw_story_config */
	size_t point_count;
	/* A story event, as struct ptw_story_config's; returning a number above 0 ends the story early. */
	int (*on_event)(void *context, const struct ptw_story_event *event);
	/* The stream and its records, for whoever needs more than the story; may be NULL. */
	void (*on_stream)(void *context, struct ptw_stream *stream);
	void (*on_flow)(void *context, const struct ptw_flow *flow);
	/* Once all is told, while threads and places are still there; may be NULL. Returns 0; -1: out of memory. */
	int (*on_end)(void *context);
	void *context;
	bool only_thread;		/* the report is of thread @tid: fail if there is none */
	int32_t tid;
};

/**
 * trace_story_run() - decode, and tell the story; gaps and progress are told on the way
 * Return: 0, or -1: @err tells why.
 */
int trace_story_run(struct trace_source *source, const struct trace_story_options *options, struct ptw_error *err);

#endif /* PTWATCH_CLI_TRACE_STORY_H */
