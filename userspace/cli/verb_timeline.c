// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch timeline: for Perfetto and speedscope. */
#include <stdio.h>

#include "cli/output.h"
#include "cli/trace_story.h"
#include "cli/verb.h"
#include "common/number.h"
#include "report/timeline.h"

#define ACCEPT	(ACCEPT_NO_COUNT | ACCEPT_OWN_FORMAT | ACCEPT_NO_JSON | ACCEPT_DEPTH | ACCEPT_OUTPUT)

enum { OPT_FORMAT = TRACE_OPTION_OWN, OPT_NAMES, OPT_TID, OPT_JSON };

static struct {
	const char *format_text;
	struct ptw_marker_format format;
	int32_t tid;
} own = { .format_text = PTW_MARKER_DEFAULT, .tid = -1 };

static void print_help(void)
{
	fputs("A picture in time for Perfetto (https://ui.perfetto.dev) or speedscope: threads with their calls, system calls,\n"
	      "interrupts, markers, alarms and gaps; and what each CPU ran. Trace Event JSON.\n\n"
	      "Usage: ptwatch timeline -i RECORDING -o FILE.json.gz [OPTION]…\n"
	      "       ptwatch timeline --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf timeline:\n\n"
	      "      --tid TID           only this thread\n"
	      "      --format FIELDS     fields of markers from the top (" PTW_MARKER_DEFAULT ")\n"
	      "      --names TYPE=NAME,… names of the types of markers\n"
	      "      --json              changes nothing: it is JSON\n"
	      "\nExamples:\n\n"
	      "  ptwatch timeline -i rec -o rec.json.gz\n"
	      "  ptwatch timeline -i rec --depth 6 | gzip >rec.json.gz\n",
	      stdout);
}

static int take_option(int option, const char *value)
{
	struct ptw_error err;
	uint64_t number;

	switch (option) {
	case OPT_FORMAT:
		own.format_text = value;
		break;
	case OPT_NAMES:
		if (ptw_marker_names_parse(&own.format, value, &err))
			return cli_usage("timeline", "%s", err.text);
		break;
	case OPT_JSON:
		break;
	default:
		if (ptw_parse_uint(value, 0, INT32_MAX, &number))
			return cli_usage("timeline", "--tid '%s': must be the number of a thread", value);
		own.tid = (int32_t)number;
	}
	return PTW_EXIT_OK;
}

static int check(const struct trace_options *options)
{
	struct ptw_error err;

	if (ptw_marker_format_parse(&own.format, own.format_text, &err))
		return cli_usage("timeline", "%s", err.text);
	return PTW_EXIT_OK;
}

static int on_event(void *context, const struct ptw_story_event *event)
{
	return ptw_timeline_take(context, event);
}

static void add_alarms(struct ptw_timeline *timeline, struct trace_source *source)
{
	const struct ptw_recording *recording = trace_source_recording(source);
	size_t i, count = trace_source_alarms(source);

	for (i = 0; i < count; i++)
		ptw_timeline_alarm(timeline, &recording->alarm[i], ptw_tsc_to_ns(&recording->params, recording->alarm[i].tsc));
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_timeline_options options = { .depth = source->options->depth, .tid = own.tid, .format = &own.format };
	struct trace_story_options story = {
		.order = PTW_ORDER_TIME, .on_event = on_event, .only_thread = own.tid >= 0, .tid = own.tid,
	};
	struct ptw_timeline *timeline = ptw_timeline_new(&options, out);
	int ret;

	if (!timeline)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	story.context = timeline;
	ret = trace_story_run(source, &story, err);
	add_alarms(timeline, source);
	if (!ptw_timeline_end(timeline) && !ret)
		trace_source_nothing(source, "nothing ran in the trace, so the picture is empty; `ptwatch stat` tells what there is in it");
	ptw_timeline_free(timeline);
	return ret;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "format", required_argument, NULL, OPT_FORMAT },
		{ "names", required_argument, NULL, OPT_NAMES },
		{ "tid", required_argument, NULL, OPT_TID },
		{ "json", no_argument, NULL, OPT_JSON },
		{ 0 },
	};
	static const struct trace_verb verb = {
		.name = "timeline",
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

const struct ptw_verb verb_timeline = {
	.name = "timeline",
	.summary = "a picture in time, for Perfetto or speedscope",
	.run = run,
};
