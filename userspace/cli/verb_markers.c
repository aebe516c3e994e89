// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch markers: what programs wrote into the trace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/trace_story.h"
#include "cli/verb.h"
#include "report/markers.h"

#define ACCEPT	ACCEPT_OWN_FORMAT

enum { OPT_FORMAT = TRACE_OPTION_OWN, OPT_NAMES, OPT_TYPE };

static struct {
	const char *format_text, *type_text;
	struct ptw_marker_format format;
	uint64_t type;
} own = { .format_text = PTW_MARKER_DEFAULT };

static void print_help(void)
{
	fputs("What programs wrote into the trace with PTWRITE: time, CPU, thread, value, its fields, place in the code.\n\n"
	      "Usage: ptwatch markers -i RECORDING [OPTION]…\n"
	      "       ptwatch markers --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf markers:\n\n"
	      "      --format FIELDS     their fields as NAME:BITS, from the top (" PTW_MARKER_DEFAULT ")\n"
	      "      --names TYPE=NAME,… names of the types, which are the first field\n"
	      "      --type TYPE         only markers of this type: a number, or one of the names\n"
	      "\nExamples:\n\n"
	      "  ptwatch markers -i rec --format 'type:8 id:56' --names 0xA0=start,0xA4=done\n"
	      "  ptwatch markers -i rec --type 0xA0 --count\n"
	      "  ptwatch markers --raw pt.bin --cpu 6/85/4 --image hello,1000,86fb1,401000\n",
	      stdout);
}

static int take_option(int option, const char *value)
{
	struct ptw_error err;

	switch (option) {
	case OPT_FORMAT:
		own.format_text = value;
		break;
	case OPT_NAMES:
		if (ptw_marker_names_parse(&own.format, value, &err))
			return cli_usage("markers", "%s", err.text);
		break;
	default:
		own.type_text = value;
	}
	return PTW_EXIT_OK;
}

static int check(const struct trace_options *options)
{
	struct ptw_error err;
	char *end;
	size_t i;

	if (ptw_marker_format_parse(&own.format, own.format_text, &err))
		return cli_usage("markers", "%s", err.text);
	if (!own.type_text)
		return PTW_EXIT_OK;
	for (i = 0; i < own.format.name_count; i++) {
		if (!strcmp(own.format.name[i].name, own.type_text)) {
			own.type = own.format.name[i].type;
			return PTW_EXIT_OK;
		}
	}
	errno = 0;
	own.type = strtoull(own.type_text, &end, 0);
	if (errno || end == own.type_text || *end)
		return cli_usage("markers", "--type '%s': must be a number, such as 0xA0, or a name that --names gives",
				 own.type_text);
	return PTW_EXIT_OK;
}

static int on_event(void *context, const struct ptw_story_event *event)
{
	return ptw_markers_take(context, event);
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_markers markers = {
		.format = &own.format, .out = out, .json = source->options->format == PTW_FORMAT_JSON,
		.count_only = source->options->count, .has_type = own.type_text, .type = own.type,
	};
	struct trace_story_options story = { .order = PTW_ORDER_TIME, .on_event = on_event, .context = &markers };

	if (trace_story_run(source, &story, err))
		return -1;
	if (source->options->count)
		ptw_out_printf(out, "%" PRIu64 "\n", markers.count);
	if (!markers.count && markers.others)
		trace_source_nothing(source, "no marker of type %s among %" PRIu64 "; without --type all are shown", own.type_text,
				     markers.others);
	else if (!markers.count)
		trace_source_nothing(source, "no PTWRITE in the trace; record with --ptw a program that executes it");
	return 0;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "format", required_argument, NULL, OPT_FORMAT },
		{ "names", required_argument, NULL, OPT_NAMES },
		{ "type", required_argument, NULL, OPT_TYPE },
		{ 0 },
	};
	static const struct trace_verb verb = {
		.name = "markers",
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

const struct ptw_verb verb_markers = {
	.name = "markers",
	.summary = "what programs wrote into the trace with PTWRITE, and when",
	.run = run,
};
