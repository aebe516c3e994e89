// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch export: for other tools. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <linux/ptwatch.h>

#include "cli/output.h"
#include "cli/trace_story.h"
#include "cli/verb.h"
#include "decode/clock.h"
#include "recording/writer.h"
#include "report/database.h"

#define ACCEPT	(ACCEPT_NO_COUNT | ACCEPT_OWN_FORMAT | ACCEPT_NO_JSON | ACCEPT_OWN_OUTPUT)

enum { OPT_PERF = TRACE_OPTION_OWN, OPT_SQLITE };

static struct {
	bool perf, sqlite;
} own;

static void print_help(void)
{
	fputs("A recording for other tools: as an SQLite database, or as a recording that stock perf opens.\n\n"
	      "Usage: ptwatch export -i RECORDING --sqlite -o FILE [OPTION]…\n"
	      "       ptwatch export -i RECORDING --perf -o DIR [OPTION]…\n"
	      "       ptwatch export --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… --sqlite -o FILE\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf export:\n\n"
	      "      --sqlite            calls, switches, markers, gaps and alarms; ptwatch-export(1) has the schema\n"
	      "      --perf              the traces of the chosen CPUs, with what perf needs to find code: perf script -i DIR\n"
	      "  -o, --output PATH       where to; --sqlite makes a new file, --perf a directory\n"
	      "\nExamples:\n\n"
	      "  ptwatch export -i rec --sqlite -o rec.db\n"
	      "  sqlite3 rec.db 'SELECT name, sum(self_ns) t FROM call JOIN symbol ON symbol = symbol.id GROUP BY name ORDER BY t DESC LIMIT 9'\n"
	      "  ptwatch export -i crime -C 1 --perf -o one && perf script -i one --itrace=i0ns\n",
	      stdout);
}

static int take_option(int option, const char *value)
{
	if (option == OPT_PERF)
		own.perf = true;
	else
		own.sqlite = true;
	return PTW_EXIT_OK;
}

static int check(const struct trace_options *options)
{
	if (own.perf == own.sqlite)
		return cli_usage("export", "%s", own.perf ? "--perf and --sqlite: only one of them" : "as what? --perf or --sqlite");
	if (!options->output)
		return cli_usage("export", "-o %s is needed: where to", own.perf ? "DIR" : "FILE");
	if (own.perf && options->raw)
		return cli_usage("export", "--perf goes with -i: perf finds no code for raw bytes");
	return PTW_EXIT_OK;
}

/* ---- SQLite ---- */

static int on_event(void *context, const struct ptw_story_event *event)
{
	return ptw_database_take(context, event);
}

static int export_sqlite(struct trace_source *source, struct ptw_error *err)
{
	struct trace_story_options story = { .order = PTW_ORDER_TIME, .on_event = on_event };
	const struct ptw_recording *recording = trace_source_recording(source);
	const struct trace_options *options = source->options;
	struct ptw_error story_err;
	size_t i, alarms;
	int ret;

	story.context = ptw_database_new(options->output, options->input ? options->input : options->raw, err);
	if (!story.context)
		return -1;
	ret = trace_story_run(source, &story, &story_err);
	alarms = trace_source_alarms(source);
	for (i = 0; i < alarms; i++)
		ptw_database_alarm(story.context, &recording->alarm[i], ptw_tsc_to_ns(&recording->params, recording->alarm[i].tsc));
	if (ptw_database_end(story.context, err))
		return -1;
	if (ret)
		*err = story_err;
	else if (!source->flows)
		trace_source_nothing(source, "nothing ran in the trace, so there are no calls in the database; `ptwatch stat` tells what there is in it");
	return ret;
}

/* ---- perf ---- */

/* Any number that no event of the traces has */
#define SIDEBAND_ID	(1ull << 32)

/* Mappings, names, forks, switches, changes of code: what perf needs to find the code that ran, and whose it was. */
static int write_sideband(const struct ptw_recording *recording, struct ptw_recording_writer *writer, struct ptw_error *err)
{
	static const uint64_t id = SIDEBAND_ID;
	size_t i, size;

	if (!recording->side_count)
		return 0;
	if (ptw_recording_set_sideband(writer, &id, 1, err))
		return -1;
	for (i = 0; i < recording->side_count; i++) {
		const struct ptw_side_event *event = &recording->side[i];
		const void *record = ptw_recording_side_record(recording, event, &size);

		ptw_recording_passed(recording, i);
		if (event->type != PTW_SIDE_AUX_LOST && ptw_recording_add_side(writer, event, record, size, err))
			return -1;
	}
	return 0;
}

/* The code of the kernel, which has a directory, and files with that of processes. */
static int write_code(const char *input, struct ptw_recording_writer *writer, struct ptw_error *err)
{
	char path[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	DIR *dir = opendir(input);

	/* A file of perf's own: what it needs is where that was recorded. */
	if (!dir)
		return 0;
	while ((entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", input, entry->d_name);
		if (strcmp(entry->d_name, "data") && strcmp(entry->d_name, "alarms.jsonl") && !stat(path, &st) && S_ISREG(st.st_mode))
			ptw_recording_add_copy(writer, path);
	}
	closedir(dir);
	snprintf(path, sizeof(path), "%s/kcore_dir", input);
	return stat(path, &st) ? 0 : ptw_recording_add_kernel_from(writer, path, err);
}

static int write_recording(struct trace_source *source, struct ptw_recording_writer *writer, struct ptw_error *err)
{
	const struct ptw_recording *recording = source->recording;
	size_t i;

	if (write_code(source->options->input, writer, err) || write_sideband(recording, writer, err))
		return -1;
	for (i = 0; i < source->count; i++) {
		const struct ptw_recorded_trace *trace = source->view[i].trace;

		if (trace->cpu < 0)
			return ptw_error_set(err, PTW_EXIT_FAILED, "--perf: the trace of thread %d is of no CPU", trace->tid);
		if (ptw_recording_add_trace(writer, trace->cpu, trace->data, trace->size, NULL, 0, err))
			return -1;
	}
	for (i = 0; i < recording->alarm_count; i++)
		if (ptw_recording_add_alarm(writer, &recording->alarm[i], err))
			return -1;
	return 0;
}

static bool has_switches(const struct ptw_recording *recording)
{
	size_t i;

	for (i = 0; i < recording->side_count && recording->side[i].type != PTW_SIDE_SWITCH; i++)
		;
	return i < recording->side_count;
}

static int export_perf(struct trace_source *source, struct ptw_error *err)
{
	const struct ptw_pt_params *params = &source->recording->params;
	struct ptw_trace_config config = {
		.params = *params,
		/* No other number of an event source; perf only compares it with those in the same file. */
		.pt_pmu_type = 8,
		.rtit_ctl = PTWATCH_RTIT_CTL_OS | (source->recording->side_count ? PTWATCH_RTIT_CTL_USER : 0) |
			    PTWATCH_RTIT_CTL_TSCEN | PTWATCH_RTIT_CTL_BRANCHEN |
			    (uint64_t)params->mtc_freq << 14 | (params->mtc_freq ? PTWATCH_RTIT_CTL_MTCEN : 0),
	};
	struct ptw_recording_writer *writer;

	config.switches = has_switches(source->recording);
	writer = ptw_recording_create(source->options->output, &config, err);
	if (!writer)
		return -1;
	if (write_recording(source, writer, err)) {
		ptw_recording_abort(writer);
		return -1;
	}
	return ptw_recording_finish(writer, err);
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	return own.perf ? export_perf(source, err) : export_sqlite(source, err);
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "perf", no_argument, NULL, OPT_PERF },
		{ "sqlite", no_argument, NULL, OPT_SQLITE },
		{ 0 },
	};
	static const struct trace_verb verb = {
		.name = "export",
		.accept = ACCEPT,
		.help = print_help,
		.options = options,
		.take_option = take_option,
		.check = check,
		.report = report,
	};

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_export = {
	.name = "export",
	.summary = "a recording for other tools: SQLite, perf",
	.run = run,
};
