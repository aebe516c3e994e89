// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch stat: what there is in a recording. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/trace_story.h"
#include "cli/verb.h"
#include "report/gap.h"
#include "report/stat.h"

#define ACCEPT	(ACCEPT_NO_COUNT | ACCEPT_OWN_FORMAT)

static void print_help(void)
{
	fputs("What there is in a recording: bytes, packets, instructions, branches, errors, overflows and gaps, by CPU and\n"
	      "by thread.\n\n"
	      "Usage: ptwatch stat -i RECORDING [OPTION]…\n"
	      "       ptwatch stat --raw TRACE --cpu F/M/S [--image FILE,FILEOFF,SIZE,VADDR]… [OPTION]…\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nExamples:\n\n"
	      "  ptwatch stat -i rec\n"
	      "  ptwatch stat --raw pt.bin --cpu 6/85/4 --image hello,1000,86fb1,401000 --json\n",
	      stdout);
}

static const struct ptw_thread *get_thread(void *context, uint32_t index)
{
	return ptw_stream_thread(context, index);
}

static int count_flow(struct trace_source *source, struct ptw_stat *stat, struct ptw_stream *stream, struct ptw_error *err)
{
	struct ptw_recording *recording = trace_source_recording(source);
	const struct ptw_flow *flow;
	char text[256];
	size_t i;

	while ((flow = ptw_stream_next(stream))) {
		if (ptw_stat_take(stat, flow))
			return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		if (flow->kind != PTW_FLOW_GAP)
			continue;
		for (i = 0; i + 1 < source->count && source->view[i].trace != &recording->trace[flow->trace]; i++)
			;
		trace_source_gap(source, &source->view[i], flow->event == PTW_EVENT_OVERFLOW ? "overflow" : flow->text,
				 ptw_gap_describe(flow->text, flow->offset, flow->value, flow->to ? flow->to : flow->from,
						  text, sizeof(text)));
	}
	for (i = 0; i < source->count; i++) {
		stat->trace[i].totals = *ptw_stream_totals(stream, source->view[i].trace - recording->trace);
		stat->trace[i].followed = true;
	}
	return ptw_stream_failed(stream, err) ? -1 : 0;
}

static int count_all(struct trace_source *source, struct ptw_stat *stat, size_t *chosen, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_recording *recording = trace_source_recording(source);
	struct ptw_stream_options options = {
		.order = PTW_ORDER_TRACE, .flags = PTW_STREAM_TOTALS, .trace = chosen, .traces = source->count,
	};
	struct ptw_stream *stream = NULL;
	int ret = 0;
	size_t i;

	for (i = 0; i < source->count; i++) {
		const struct ptw_recorded_trace *trace = source->view[i].trace;

		chosen[i] = trace - recording->trace;
		stat->trace[i].cpu = trace->cpu;
		stat->trace[i].tid = trace->tid;
		if (ptw_stat_packets(&stat->trace[i], source->view[i].params, trace->data, trace->size, err))
			return -1;
	}
	/* Packets need no code. */
	if (recording->image.count) {
		stream = ptw_stream_open(recording, &options, err);
		ret = stream ? count_flow(source, stat, stream, err) : -1;
	}
	if (!ret)
		ptw_stat_write(stat, get_thread, stream, source->options->format == PTW_FORMAT_JSON, out);
	ptw_stream_close(stream);
	return ret;
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_stat stat = { .trace_count = source->count };
	size_t *chosen = calloc(source->count, sizeof(*chosen));
	int ret;

	stat.trace = calloc(source->count, sizeof(*stat.trace));
	if (!chosen || !stat.trace)
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	else
		ret = count_all(source, &stat, chosen, out, err);
	free(chosen);
	ptw_stat_free(&stat);
	return ret;
}

static int run(int argc, char **argv)
{
	static const struct trace_verb verb = { .name = "stat", .accept = ACCEPT, .help = print_help, .report = report };

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_stat = {
	.name = "stat",
	.summary = "what there is in a recording: packets, instructions, errors, by CPU and thread",
	.run = run,
};
