// SPDX-License-Identifier: BSD-2-Clause
#include "cli/trace_story.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/output.h"
#include "report/gap.h"

struct run {
	struct trace_source *source;
	struct ptw_stream *stream;
	const struct trace_story_options *options;
	int64_t progress;	/* second of the last line about it */
};

static bool place(void *context, const struct ptw_flow *flow, uint64_t addr, struct ptw_place *out)
{
	struct run *run = context;

	return ptw_stream_place(run->stream, flow, addr, out);
}

static const struct ptw_thread *thread(void *context, uint32_t index)
{
	struct run *run = context;

	return ptw_stream_thread(run->stream, index);
}

static void on_progress(void *context, uint64_t done, uint64_t size)
{
	struct run *run = context;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - run->progress < 1)
		return;
	run->progress = now.tv_sec;
	cli_progress(run->source->options->verb, "%d %%", size ? (int)(done * 100.0 / size) : 100);
}

/* The view of the trace with this index in the recording. */
static const struct ptw_view *view_of(const struct trace_source *source, struct ptw_recording *recording, uint32_t trace)
{
	size_t i;

	for (i = 0; i < source->count; i++)
		if (source->view[i].trace == &recording->trace[trace])
			return &source->view[i];
	return &source->view[0];
}

static void tell_gap(struct run *run, struct ptw_recording *recording, const struct ptw_flow *flow)
{
	char text[256];

	trace_source_gap(run->source, view_of(run->source, recording, flow->trace), ptw_flow_gap_kind(flow),
			 ptw_flow_describe_gap(flow, text, sizeof(text)));
}

static int tell(struct run *run, struct ptw_recording *recording, struct ptw_story *story)
{
	const struct ptw_flow *flow;
	int ret = 0;

	while (!ret && (flow = ptw_stream_next(run->stream))) {
		run->source->flows++;
		if (flow->kind == PTW_FLOW_GAP)
			tell_gap(run, recording, flow);
		if (run->options->on_flow)
			run->options->on_flow(run->options->context, flow);
		ret = ptw_story_take(story, flow);
	}
	if (!ret)
		ret = ptw_story_end(story);
	if (ret >= 0 && run->options->on_end && run->options->on_end(run->options->context))
		return -1;
	return ret;
}

/* Fails where the thread that is asked for is not in the recording at all. */
static int find_thread(const struct run *run, struct ptw_error *err)
{
	uint32_t i, count = ptw_stream_threads(run->stream);

	for (i = 0; i < count && ptw_stream_thread(run->stream, i)->tid != run->options->tid; i++)
		;
	if (i < count)
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "--tid %d: no such thread in the trace; `ptwatch stat` lists them", run->options->tid);
}

static int run_stream(struct run *run, struct ptw_recording *recording, struct ptw_error *err)
{
	const struct trace_story_options *options = run->options;
	struct ptw_story_config config = {
		.place = place, .thread = thread, .source = run, .through = recording->params.through, .point = options->point,
		.point_count = options->point_count, .on_event = options->on_event, .context = options->context,
	};
	struct ptw_story *story = ptw_story_new(&config);
	int ret;

	if (!story)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	if (options->on_stream)
		options->on_stream(options->context, run->stream);
	ret = tell(run, recording, story);
	ptw_story_free(story);
	if (ptw_stream_failed(run->stream, err))
		return -1;
	if (ret < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	return !ret && options->only_thread ? find_thread(run, err) : 0;
}

int trace_story_run(struct trace_source *source, const struct trace_story_options *options, struct ptw_error *err)
{
	struct ptw_recording *recording = trace_source_recording(source);
	struct run run = { .source = source, .options = options };
	struct ptw_stream_options stream = {
		.order = options->order,
		.threads = source->options->jobs,
		.flags = (options->point_count ? PTW_STREAM_RUNS | PTW_STREAM_ALL_JUMPS : 0) |
			 (options->order == PTW_ORDER_TIME ? PTW_STREAM_SWITCHES : 0),
		.trace = options->trace,
		.traces = options->traces,
		.on_progress = isatty(STDERR_FILENO) ? on_progress : NULL,
		.context = &run,
	};
	size_t *chosen = NULL, i;
	int ret;

	if (!options->trace) {
		chosen = calloc(source->count, sizeof(*chosen));
		if (!chosen)
			return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		for (i = 0; i < source->count; i++)
			chosen[i] = source->view[i].trace - recording->trace;
		stream.trace = chosen;
		stream.traces = source->count;
	}
	run.stream = ptw_stream_open(recording, &stream, err);
	ret = run.stream ? run_stream(&run, recording, err) : -1;
	ptw_stream_close(run.stream);
	free(chosen);
	return ret;
}
