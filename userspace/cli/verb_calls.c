// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch calls: who called whom. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/output.h"
#include "cli/trace_story.h"
#include "cli/verb.h"
#include "common/number.h"
#include "decode/clock.h"
#include "report/calls.h"
#include "report/duration.h"

#define ACCEPT	(ACCEPT_IP_FORMAT | ACCEPT_WINDOW | ACCEPT_DEPTH)
#define CONTEXT	15	/* lines on either side of --around */

enum { OPT_AROUND = TRACE_OPTION_OWN, OPT_CONTEXT, OPT_TID };

static struct {
	const char *around;
	uint64_t context;
	bool context_given;
	int32_t tid;
} own = { .context = CONTEXT, .tid = -1 };

static void print_help(void)
{
	fputs("Calls and returns as a tree, with times; interrupts, system calls and switches of threads in between.\n\n"
	      "Usage: ptwatch calls -i RECORDING [OPTION]…\n"
	      "       ptwatch calls --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n"
	      "Columns: time, total (until the function returned), self (without its callees, interrupts and time\n"
	      "switched out), CPU, function <- caller.\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf calls:\n\n"
	      "      --around SYM        only what is near each entry of this function\n"
	      "      --context N         lines before and after it (15; with --depth 0)\n"
	      "      --depth N           with --around: what led there, and N levels of calls below it until it returns\n"
	      "      --tid TID           only this thread, on whatever CPU it ran\n"
	      "\nExamples:\n\n"
	      "  ptwatch calls -i crime --last 40us\n"
	      "  ptwatch calls -i rec --around vfs_read --context 5\n"
	      "  ptwatch calls -i rec --around serve_one --depth 2\n"
	      "  ptwatch calls --raw pt.bin --cpu 6/85/4 --image hello,1000,86fb1,401000 --depth 3\n",
	      stdout);
}

static int take_option(int option, const char *value)
{
	uint64_t number;

	switch (option) {
	case OPT_AROUND:
		own.around = value;
		return PTW_EXIT_OK;
	case OPT_CONTEXT:
		own.context_given = true;
		if (ptw_parse_uint(value, 0, 1 << 20, &own.context))
			return cli_usage("calls", "--context '%s': must be a number of lines, such as 15", value);
		return PTW_EXIT_OK;
	default:
		if (ptw_parse_uint(value, 0, INT32_MAX, &number))
			return cli_usage("calls", "--tid '%s': must be the number of a thread", value);
		own.tid = (int32_t)number;
		return PTW_EXIT_OK;
	}
}

static int check(const struct trace_options *options)
{
	if (own.context_given && !own.around)
		return cli_usage("calls", "--context goes with --around SYM");
	return PTW_EXIT_OK;
}

struct report {
	struct ptw_calls *calls;
	struct ptw_calls_found found;
};

static int on_event(void *context, const struct ptw_story_event *event)
{
	return ptw_calls_take(((struct report *)context)->calls, event);
}

static int on_end(void *context)
{
	struct report *report = context;

	return ptw_calls_end(report->calls, &report->found);
}

/* The calls of the trace of @view, or, with NULL, of all that are chosen, in the order of time. */
static int report_traces(struct trace_source *source, const struct ptw_view *view, struct ptw_calls_options *calls,
			 struct ptw_out *out, struct report *report, struct ptw_error *err)
{
	size_t trace = view ? view->trace - trace_source_recording(source)->trace : 0;
	struct trace_story_options story = {
		.order = view ? PTW_ORDER_TRACE : PTW_ORDER_TIME, .trace = view ? &trace : NULL, .traces = 1,
		.on_event = on_event, .on_end = on_end, .context = report, .only_thread = own.tid >= 0, .tid = own.tid,
	};
	char mark[224];
	int ret;

	calls->alarm = view ? view->alarm : NULL;
	if (calls->alarm) {
		calls->point = view->point;
		calls->alarm_mark = ptw_view_alarm_mark(view, mark, sizeof(mark));
		calls->alarm_number = view->alarm_number;
		calls->beyond_alarm = view->beyond_alarm;
	}
	report->calls = ptw_calls_new(calls, out);
	if (!report->calls)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	ret = trace_story_run(source, &story, err);
	ptw_calls_free(report->calls);
	return ret;
}

static void say_nothing_found(struct trace_source *source, const struct ptw_calls_found *found)
{
	char last[PTW_DURATION], times[CLI_TIMES];

	if (own.around && !found->entries)
		trace_source_nothing(source, "%s is not entered in the trace; `ptwatch flame` tells which functions are", own.around);
	else if (own.around && source->options->last_ns)
		trace_source_nothing(source, "%s is entered %s, but not within the last %s: give a longer --last", own.around,
				     cli_times(found->entries, times), ptw_duration(source->options->last_ns, last));
	else
		trace_source_nothing(source, "nothing ran in the trace; `ptwatch stat` tells what there is in it");
}

/* "sym+0x10" and "0xaddr" name the function that is there. */
static void inner_to_function(struct ptw_function *around, const struct ptw_symbols *symbols)
{
	const struct ptw_symbol *symbol = around->address ? ptw_symbols_at(symbols, around->address) : NULL;

	if (symbol)
		around->address = symbol->addr;
}

static int report_calls(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	const struct trace_options *options = source->options;
	struct ptw_calls_options calls = {
		.format = options->format,
		.no_time = options->no_time,
		.ticks = !ptw_clock_known(source->view[0].params),
		.count_only = options->count,
		.tail = options->tail,
		.last_ns = options->last_ns,
		.depth = options->depth,
		/* With --depth the tree is what is wanted, and not what only ran next to it. */
		.context = own.context_given || !options->depth ? own.context : 0,
		.tid = own.tid,
		.width = cli_width(stdout, 0),
	};
	struct report report = { 0 };
	struct ptw_function around;
	size_t i;

	if (own.around) {
		if (ptw_function_find(&around, own.around, source->view[0].symbols, source->view[0].image, err))
			return -1;
		inner_to_function(&around, source->view[0].symbols);
		calls.around = &around;
	}
	if (own.tid >= 0) {
		if (report_traces(source, NULL, &calls, out, &report, err))
			return -1;
	} else {
		for (i = 0; i < source->count; i++)
			if (report_traces(source, &source->view[i], &calls, out, &report, err))
				return -1;
	}
	if (options->count)
		ptw_out_printf(out, "%" PRIu64 "\n", report.found.calls);
	if (!report.found.lines)
		say_nothing_found(source, &report.found);
	return 0;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "around", required_argument, NULL, OPT_AROUND },
		{ "context", required_argument, NULL, OPT_CONTEXT },
		{ "tid", required_argument, NULL, OPT_TID },
		{ 0 },
	};
	static const struct trace_verb verb = {
		.name = "calls",
		.accept = ACCEPT,
		.follows_code = true,
		.help = print_help,
		.options = options,
		.take_option = take_option,
		.check = check,
		.report = report_calls,
	};

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_calls = {
	.name = "calls",
	.summary = "the path that led there: calls and returns with times",
	.run = run,
};
