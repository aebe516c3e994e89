// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch packets: the trace as the hardware wrote it. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/output.h"
#include "cli/trace_source.h"
#include "cli/verb.h"
#include "report/packets.h"

static void print_help(void)
{
	fputs("The packets of a trace, one a line: offset (hex), type, payload.\n\n"
	      "Usage: ptwatch packets -i RECORDING [OPTION]…\n"
	      "       ptwatch packets --raw TRACE [--cpu F/M/S] [OPTION]…\n\n", stdout);
	trace_options_help(0);
	fputs("\nExamples:\n\n"
	      "  ptwatch packets -i crime -C 1\n"
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
	if (source->options->count)
		ptw_out_printf(out, "%" PRIu64 "\n", total);
	return 0;
}

static int run(int argc, char **argv)
{
	static struct ptw_out out;
	struct trace_options options;
	struct trace_source source;
	struct ptw_error err;
	bool failed;
	int status;

	status = trace_options_parse(&options, "packets", 0, argc, argv);
	if (status || options.help) {
		if (!status) {
			print_help();
			status = cli_flush("packets");
		}
		goto out_options;
	}
	status = trace_source_open(&source, &options);
	if (status)
		goto out_options;
	ptw_out_init(&out, stdout, false);
	failed = report(&source, &out, &err);
	status = trace_source_finish(&source, &out, failed, &err);
	trace_source_close(&source);
out_options:
	trace_options_free(&options);
	return status;
}

const struct ptw_verb verb_packets = {
	.name = "packets",
	.summary = "the packets of a trace, with payload and offset",
	.run = run,
};
