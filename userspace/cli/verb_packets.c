// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch packets: the trace as the hardware wrote it. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/trace_source.h"
#include "cli/verb.h"
#include "report/packets.h"

#define ACCEPT	(ACCEPT_IP_FORMAT | ACCEPT_TAIL)

static void print_help(void)
{
	fputs("The packets of a trace, one a line: offset (hex), type, payload, time; with --format ip the addresses in them.\n\n"
	      "Usage: ptwatch packets -i RECORDING [OPTION]…\n"
	      "       ptwatch packets --raw TRACE [--cpu F/M/S] [OPTION]…\n\n", stdout);
	trace_options_help(ACCEPT);
	fputs("\nExamples:\n\n"
	      "  ptwatch packets -i crime -C 1 --tail 50\n"
	      "  ptwatch packets --raw pt.bin --cpu 6/85/4 --json\n", stdout);
}

static void on_gap(void *context, const struct ptw_view *view, const char *kind, const char *text)
{
	trace_source_gap(context, view, kind, text);
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_packets_options packets = {
		.format = source->options->format,
		.count_only = source->options->count,
		.no_time = source->options->no_time,
		.tail = source->options->tail,
		.last_ns = source->options->last_ns,
		.on_gap = on_gap,
		.context = source,
	};
	uint64_t count, total = 0;
	size_t i;

	for (i = 0; i < source->count; i++) {
		if (ptw_report_packets(&source->view[i], &packets, out, &count, err))
			return -1;
		total += count;
	}
	if (!total)
		trace_source_nothing(source, source->options->format == PTW_FORMAT_IP ? "no packet with an address in the trace" :
				     "no packet in the trace: are these bytes of Intel PT?");
	if (source->options->count)
		ptw_out_printf(out, "%" PRIu64 "\n", total);
	return 0;
}

static int run(int argc, char **argv)
{
	static const struct trace_verb verb = {
		.name = "packets",
		.accept = ACCEPT,
		.help = print_help,
		.report = report,
	};

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_packets = {
	.name = "packets",
	.summary = "the packets of a trace, with payload, offset and time",
	.run = run,
};
