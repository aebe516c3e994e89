// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch flame: on which stacks the time was spent. */
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "cli/trace_story.h"
#include "cli/verb.h"
#include "common/number.h"
#include "decode/clock.h"
#include "report/flame.h"

#define ACCEPT	(ACCEPT_NO_COUNT | ACCEPT_OWN_FORMAT | ACCEPT_OUTPUT)

enum { OPT_FORMAT = TRACE_OPTION_OWN, OPT_IDLE, OPT_TID };

static struct {
	const char *format;
	bool idle;
	int32_t tid;
} own = { .tid = -1 };

static void print_help(void)
{
	fputs("On which stacks the time on the CPU was spent: as folded stacks, or as a picture (SVG) that needs nothing else.\n\n"
	      "Usage: ptwatch flame -i RECORDING [-o FILE.svg] [OPTION]…\n"
	      "       ptwatch flame --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf flame:\n\n"
	      "      --format FORMAT     folded (thread;outer;inner NANOSECONDS) or svg; without it svg for a FILE.svg\n"
	      "      --idle              the idle threads, too\n"
	      "      --tid TID           only this thread\n"
	      "\nExamples:\n\n"
	      "  ptwatch flame -i rec -o rec.svg\n"
	      "  ptwatch flame -i rec | sort -t ' ' -k 2 -n | tail\n",
	      stdout);
}

static int take_option(int option, const char *value)
{
	uint64_t number;

	switch (option) {
	case OPT_FORMAT:
		if (strcmp(value, "folded") && strcmp(value, "svg"))
			return cli_usage("flame", "--format '%s': must be folded or svg", value);
		own.format = value;
		break;
	case OPT_IDLE:
		own.idle = true;
		break;
	default:
		if (ptw_parse_uint(value, 0, INT32_MAX, &number))
			return cli_usage("flame", "--tid '%s': must be the number of a thread", value);
		own.tid = (int32_t)number;
	}
	return PTW_EXIT_OK;
}

static int check(const struct trace_options *options)
{
	if (options->json && own.format)
		return cli_usage("flame", "--format %s and --json: only one of them", own.format);
	if (options->raw && !ptw_clock_known(&options->params))
		return cli_usage("flame", "without --nom-freq N nothing is known about times");
	return PTW_EXIT_OK;
}

static bool wants_svg(const struct trace_options *options)
{
	size_t length = options->output ? strlen(options->output) : 0;

	if (own.format)
		return !strcmp(own.format, "svg");
	if (length > 3 && !strcmp(options->output + length - 3, ".gz"))
		length -= 3;
	return length > 4 && !strncmp(options->output + length - 4, ".svg", 4);
}

static int on_event(void *context, const struct ptw_story_event *event)
{
	return ptw_flame_take(context, event);
}

static void say_nothing_found(struct trace_source *source)
{
	if (!ptw_clock_known(source->view[0].params))
		trace_source_nothing(source, "without --nom-freq N nothing is known about times");
	else
		trace_source_nothing(source, "no time was spent%s; `ptwatch stat` tells what there is in the trace",
				     own.idle ? "" : ", but perhaps by idle threads (--idle)");
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct trace_story_options story = {
		.order = PTW_ORDER_TIME, .on_event = on_event, .only_thread = own.tid >= 0, .tid = own.tid,
	};
	const struct trace_options *options = source->options;
	struct ptw_flame *flame = ptw_flame_new(own.idle, own.tid);
	int ret;

	if (!flame)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	story.context = flame;
	ret = trace_story_run(source, &story, err);
	if (!ret && options->format == PTW_FORMAT_JSON)
		ptw_flame_write_json(flame, out);
	else if (!ret && wants_svg(options))
		ptw_flame_write_svg(flame, options->input ? options->input : options->raw, out);
	else if (!ret)
		ptw_flame_write_folded(flame, out);
	if (!ret && ptw_flame_empty(flame))
		say_nothing_found(source);
	ptw_flame_free(flame);
	return ret;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "format", required_argument, NULL, OPT_FORMAT },
		{ "idle", no_argument, NULL, OPT_IDLE },
		{ "tid", required_argument, NULL, OPT_TID },
		{ 0 },
	};
	static const struct trace_verb verb = {
		.name = "flame",
		.accept = ACCEPT,
		.follows_code = true,
		.help = print_help,
		.options = options,
		.take_option = take_option,
		.check = check,
		.report = report,
	};

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_flame = {
	.name = "flame",
	.summary = "on which stacks the time was spent: folded, or a picture",
	.run = run,
};
