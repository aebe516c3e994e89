// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch stat: what there is in a recording. */
#include <pthread.h>
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
		trace_source_gap(source, &source->view[i], ptw_flow_gap_kind(flow),
				 ptw_flow_describe_gap(flow, text, sizeof(text)));
	}
	for (i = 0; i < source->count; i++) {
		stat->trace[i].totals = *ptw_stream_totals(stream, source->view[i].trace - recording->trace);
		stat->trace[i].followed = true;
	}
	return ptw_stream_failed(stream, err) ? -1 : 0;
}

/* What the packets alone tell: where there is code, following it tells that, and more. */
static void packets_gap(void *context, size_t trace, const struct ptw_packet *packet)
{
	struct trace_source *source = context;
	char text[256];

	if (!trace_source_recording(source)->image.count)
		trace_source_gap(source, &source->view[trace], packet->error,
				 ptw_gap_describe(packet->error, packet->offset, packet->size, 0, text, sizeof(text)));
}

/* Packets of all traces, while others decode. */
struct packet_count {
	struct trace_source *source;
	struct ptw_stat *stat;
	struct ptw_error err;
	int ret;
};

static void *count_packets(void *context)
{
	struct packet_count *count = context;

	for (size_t i = 0; i < count->source->count && !count->ret; i++)
		count->ret = ptw_stat_packets(count->stat, i, count->source->view[i].params, count->source->view[i].trace,
					      packets_gap, count->source, &count->err);
	return NULL;
}

static int count_all(struct trace_source *source, struct ptw_stat *stat, size_t *chosen, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_recording *recording = trace_source_recording(source);
	struct packet_count packets = { .source = source, .stat = stat };
	struct ptw_stream_options options = {
		.order = PTW_ORDER_TIME, .flags = PTW_STREAM_SWITCHES, .threads = source->options->jobs, .trace = chosen, .traces = source->count,
	};
	struct ptw_stream *stream = NULL;
	pthread_t thread;
	bool beside;
	int ret = 0;
	size_t i;

	for (i = 0; i < source->count; i++) {
		chosen[i] = source->view[i].trace - recording->trace;
		stat->trace[i].cpu = source->view[i].trace->cpu;
		stat->trace[i].tid = source->view[i].trace->tid;
	}
	beside = source->options->jobs != 1 && !pthread_create(&thread, NULL, count_packets, &packets);
	if (!beside)
		count_packets(&packets);
	/* Packets need no code. */
	if (!recording->image.count)
		trace_source_missing_code(source);
	if (recording->image.count && (beside || !packets.ret)) {
		stream = ptw_stream_open(recording, &options, err);
		ret = stream ? count_flow(source, stat, stream, err) : -1;
	}
	if (beside)
		pthread_join(thread, NULL);
	if (!ret && packets.ret) {
		*err = packets.err;
		ret = -1;
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
