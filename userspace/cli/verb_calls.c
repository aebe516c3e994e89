// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch calls: who called whom. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/trace_source.h"
#include "cli/verb.h"
#include "report/calls.h"

#define ACCEPT	(ACCEPT_IP_FORMAT | ACCEPT_WINDOW | ACCEPT_DEPTH)

static void print_help(void)
{
	fputs("Calls and returns, with times, indented by depth; interrupts and exceptions in between.\n\n"
	      "Usage: ptwatch calls -i RECORDING [OPTION]…\n"
	      "       ptwatch calls --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n"
	      "Columns: time, +time since the line before, duration of the call, CPU, function <- "
	      "caller.\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nExamples:\n\n"
	      "  ptwatch calls -i crime --last 40us\n"
	      "  ptwatch calls --raw pt.bin --cpu 6/85/4 --image hello,1000,86fb1,401000 --depth 3\n",
	      stdout);
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	const struct trace_options *options = source->options;
	struct ptw_calls_options calls = {
		.format = options->format,
		.no_time = options->no_time,
		.count_only = options->count,
		.tail = options->tail,
		.last_ns = options->last_ns,
		.depth = options->depth,
	};
	uint64_t count, total = 0;
	size_t i;

	for (i = 0; i < source->count; i++) {
		if (ptw_report_calls(&source->view[i], &calls, out, &count, err))
			return -1;
		total += count;
	}
	if (options->count)
		ptw_out_printf(out, "%" PRIu64 "\n", total);
	return 0;
}

static int run(int argc, char **argv)
{
	static const struct trace_verb verb = {
		.name = "calls",
		.accept = ACCEPT,
		.follows_code = true,
		.help = print_help,
		.report = report,
	};

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_calls = {
	.name = "calls",
	.summary = "the path that led there: calls and returns with times",
	.run = run,
};
