// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch latency: how long from here to there, and why longer. */
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "cli/trace_story.h"
#include "cli/verb.h"
#include "common/number.h"
#include "decode/clock.h"
#include "report/latency.h"

#define ACCEPT	(ACCEPT_NO_COUNT | ACCEPT_OWN_FORMAT)
#define WORST	10

enum { OPT_FROM = TRACE_OPTION_OWN, OPT_TO, OPT_BY, OPT_FORMAT, OPT_NAMES, OPT_WORST };

static struct {
	const char *from, *to, *by, *format;
	struct ptw_marker_format names;
	uint64_t worst;
} own = { .format = PTW_MARKER_DEFAULT, .worst = WORST };

static void print_help(void)
{
	fputs("How long it takes from one moment to another: count, percentiles, histogram; and for the longest, where the\n"
	      "extra time went.\n\n"
	      "Usage: ptwatch latency -i RECORDING --from POINT --to POINT [OPTION]…\n"
	      "       ptwatch latency --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… --from POINT --to POINT\n\n"
	      "A POINT is SYM (the function is entered), return:SYM (it returns), SYM+0x10 or 0xADDR (the instruction\n"
	      "there is executed), or marker:TYPE (a PTWRITE whose first field is TYPE).\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf latency:\n\n"
	      "      --from POINT        where each pair begins\n"
	      "      --to POINT          … and ends\n"
	      "      --by FIELD          pair markers by this field, across threads; without it thread by thread\n"
	      "      --format FIELDS     fields of markers from the top (" PTW_MARKER_DEFAULT ")\n"
	      "      --names TYPE=NAME,… names of the types of markers\n"
	      "      --worst N           explain so many of the longest (10)\n"
	      "\nExamples:\n\n"
	      "  ptwatch latency -i rec --from recv_request --to send_response\n"
	      "  ptwatch latency -i rec --from marker:0xA0 --to marker:0xA4 --by id --names 0xA1=prefill,0xA2=decode\n"
	      "  ptwatch latency -i rec --from vfs_read --to return:vfs_read --worst 3\n",
	      stdout);
}

static int usage(const struct ptw_error *err)
{
	return cli_usage("latency", "%s", err->text);
}

static int take_option(int option, const char *value)
{
	struct ptw_error err;

	switch (option) {
	case OPT_FROM:
		own.from = value;
		break;
	case OPT_TO:
		own.to = value;
		break;
	case OPT_BY:
		own.by = value;
		break;
	case OPT_FORMAT:
		own.format = value;
		break;
	case OPT_NAMES:
		if (ptw_marker_names_parse(&own.names, value, &err))
			return usage(&err);
		break;
	default:
		if (ptw_parse_uint(value, 0, 10000, &own.worst))
			return cli_usage("latency", "--worst '%s': must be a number from 0 to 10000", value);
	}
	return PTW_EXIT_OK;
}

static int check(const struct trace_options *options)
{
	struct ptw_error err;

	if (!own.from || !own.to)
		return cli_usage("latency", "%s is needed: where a pair %s", own.from ? "--to POINT" : "--from POINT",
				 own.from ? "ends" : "begins");
	if (ptw_marker_format_parse(&own.names, own.format, &err))
		return usage(&err);
	if (own.by && ptw_marker_field(&own.names, own.by) < 0)
		return cli_usage("latency", "--by '%s': no such field in --format '%s'", own.by, own.format);
	if (own.by && (strncmp(own.from, "marker:", 7) || strncmp(own.to, "marker:", 7)))
		return cli_usage("latency", "--by %s pairs markers: --from and --to must be marker:TYPE", own.by);
	return PTW_EXIT_OK;
}

static int on_event(void *context, const struct ptw_story_event *event)
{
	return ptw_latency_take(context, event);
}

static void say_no_pair(struct trace_source *source, const struct ptw_latency *latency)
{
	bool markers = !strncmp(own.from, "marker:", 7) || !strncmp(own.to, "marker:", 7);
	const char *look = markers ? "`ptwatch markers` tells which markers there are" : "`ptwatch flame` tells which functions ran";
	char started[CLI_TIMES], ended[CLI_TIMES];
	uint64_t starts, ends;

	ptw_latency_unmatched(latency, &starts, &ends);
	cli_times(starts, started);
	cli_times(ends, ended);
	if (!starts && !ends)
		trace_source_nothing(source, "no pair: neither %s nor %s came by in the trace; %s", own.from, own.to, look);
	else if (!starts)
		trace_source_nothing(source, "no pair: %s came by %s, but %s never; %s", own.to, ended, own.from, look);
	else if (!ends)
		trace_source_nothing(source, "no pair: %s came by %s, but %s never; %s", own.from, started, own.to, look);
	else if (own.by)
		trace_source_nothing(source, "no pair: %s came by %s and %s %s, but never with the same %s; look at them: `ptwatch markers`",
				     own.from, started, own.to, ended, own.by);
	else
		trace_source_nothing(source, "no pair: %s came by %s and %s %s, but in no thread one after the other; turn --from and --to "
				     "round, or pair markers across threads with --by FIELD", own.from, started, own.to, ended);
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_latency_options latency = { .format = own.names, .by = -1, .worst = own.worst };
	struct trace_story_options story = { .order = PTW_ORDER_TIME, .on_event = on_event };
	uint64_t points[2];
	int ret;

	if (ptw_point_parse(&latency.from, own.from, source->view[0].symbols, source->view[0].image, &own.names, err) ||
	    ptw_point_parse(&latency.to, own.to, source->view[0].symbols, source->view[0].image, &own.names, err))
		return -1;
	if (!ptw_clock_known(source->view[0].params))
		return ptw_error_set(err, PTW_EXIT_USAGE, "without --nom-freq N nothing is known about times");
	if (own.by)
		latency.by = ptw_marker_field(&own.names, own.by);
	if (latency.from.kind == PTW_POINT_ADDRESS)
		points[story.point_count++] = latency.from.value;
	if (latency.to.kind == PTW_POINT_ADDRESS)
		points[story.point_count++] = latency.to.value;
	story.point = points;
	story.context = ptw_latency_new(&latency);
	if (!story.context)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	ret = trace_story_run(source, &story, err);
	if (!ret && ptw_latency_end(story.context))
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	if (!ret)
		(source->options->format == PTW_FORMAT_JSON ? ptw_latency_write_json : ptw_latency_write_text)(story.context, out);
	if (!ret && !ptw_latency_count(story.context))
		say_no_pair(source, story.context);
	ptw_latency_free(story.context);
	return ret;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "from", required_argument, NULL, OPT_FROM },	   { "to", required_argument, NULL, OPT_TO },
		{ "by", required_argument, NULL, OPT_BY },	   { "format", required_argument, NULL, OPT_FORMAT },
		{ "names", required_argument, NULL, OPT_NAMES },   { "worst", required_argument, NULL, OPT_WORST },
		{ 0 },
	};
	static const struct trace_verb verb = {
		.name = "latency",
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

const struct ptw_verb verb_latency = {
	.name = "latency",
	.summary = "how long from one point to another, and what was different when it took long",
	.run = run,
};
