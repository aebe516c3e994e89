// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch evidence: what happened, step by step, for an investigator. */
#include <stdio.h>

#include "cli/output.h"
#include "cli/trace_story.h"
#include "cli/verb.h"
#include "common/number.h"
#include "recording/sideband.h"
#include "report/evidence.h"

#define ACCEPT	(ACCEPT_NO_COUNT | ACCEPT_OWN_FORMAT)

enum { OPT_FROM = TRACE_OPTION_OWN, OPT_TO, OPT_EVERYTHING, OPT_TID, OPT_ALARM };

static struct {
	bool window, everything, alarm_given;
	uint64_t from, to, alarm;
	int32_t tid;
} own = { .tid = -1 };

static void print_help(void)
{
	fputs("What happened, as a table: time since T0, address, event, symbol, meaning. From the system call that started\n"
	      "it to the alarm; without an alarm, from the first change of credentials in a system call whose work that is\n"
	      "not, with all of note that the process and its children did from then on.\n\n"
	      "Usage: ptwatch evidence -i RECORDING [OPTION]…\n"
	      "       ptwatch evidence --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf evidence:\n\n"
	      "      --alarm N           the alarm with this number; without it the last one that froze a trace\n"
	      "      --from TIME         all that counts from this time on, in seconds as the other verbs show them\n"
	      "      --to TIME           … up to this one\n"
	      "      --everything        all of note: changes of credentials, exec, modules, other processes\n"
	      "      --tid TID           only this thread\n"
	      "\nExamples:\n\n"
	      "  ptwatch evidence -i crime\n"
	      "  ptwatch evidence -i rec --json\n"
	      "  ptwatch evidence -i rec --from 126.4579 --to 126.4581\n",
	      stdout);
}

static int take_option(int option, const char *value)
{
	uint64_t number;

	switch (option) {
	case OPT_FROM:
	case OPT_TO:
		own.window = true;
		if (ptw_parse_duration(value, option == OPT_FROM ? &own.from : &own.to))
			return cli_usage("evidence", "--%s '%s': must be a time in seconds, such as 126.4579",
					 option == OPT_FROM ? "from" : "to", value);
		return PTW_EXIT_OK;
	case OPT_EVERYTHING:
		own.everything = true;
		return PTW_EXIT_OK;
	case OPT_ALARM:
		own.alarm_given = true;
		if (ptw_parse_uint(value, 1, UINT64_MAX, &own.alarm))
			return cli_usage("evidence", "--alarm '%s': must be the number of an alarm", value);
		return PTW_EXIT_OK;
	default:
		if (ptw_parse_uint(value, 0, INT32_MAX, &number))
			return cli_usage("evidence", "--tid '%s': must be the number of a thread", value);
		own.tid = (int32_t)number;
		return PTW_EXIT_OK;
	}
}

static int check(const struct trace_options *options)
{
	if (own.window && own.to && own.to < own.from)
		return cli_usage("evidence", "--to comes before --from");
	if (own.alarm_given && (own.window || own.everything))
		return cli_usage("evidence", "--alarm and %s: only one of them", own.window ? "--from or --to" : "--everything");
	return PTW_EXIT_OK;
}

struct report {
	const struct ptw_recording *recording;
	struct ptw_evidence *evidence;
	struct ptw_out *out;
	bool json;
	size_t rows;
};

static int on_event(void *context, const struct ptw_story_event *event)
{
	struct report *report = context;

	return ptw_evidence_take(report->evidence, event);
}

/* The kernel's own records about processes. */
static int add_records(struct ptw_evidence *evidence, const struct ptw_recording *recording)
{
	struct ptw_side_detail detail;
	size_t i;

	for (i = 0; i < recording->side_count; i++) {
		const struct ptw_side_event *side = &recording->side[i];

		ptw_recording_passed(recording, i);
		if (side->type == PTW_SIDE_FORK)
			ptw_evidence_fork(evidence, side->time, side->pid, side->other_pid);
		if (side->type != PTW_SIDE_COMM || !side->exec)
			continue;
		ptw_side_detail(side, &detail);
		if (ptw_evidence_exec(evidence, side->time, side->cpu, side->pid, side->tid, detail.name))
			return -1;
	}
	return 0;
}

/* Rows name symbols of the programs, which are gone when the stream is closed. */
static int on_end(void *context)
{
	struct report *report = context;

	if (ptw_evidence_settle(report->evidence) || add_records(report->evidence, report->recording))
		return -1;
	ptw_evidence_end(report->evidence);
	report->rows = ptw_evidence_write(report->evidence, report->out, report->json);
	return 0;
}

static int choose_alarm(const struct trace_source *source, struct ptw_evidence_options *options, struct ptw_error *err)
{
	const struct ptw_view *view;
	size_t i;

	for (i = 0; i < source->count; i++) {
		view = &source->view[i];
		if (!view->alarm || !view->point.found || (own.alarm_given && view->alarm_number != own.alarm))
			continue;
		if (options->alarm && options->alarm->tsc > view->alarm->tsc)
			continue;
		options->alarm = view->alarm;
		options->point = view->point;
		options->alarm_number = view->alarm_number;
	}
	if (own.alarm_given && !options->alarm)
		return ptw_error_set(err, PTW_EXIT_FAILED, "alarm #%llu: no trace was frozen by it, or its access is not in it",
				     (unsigned long long)own.alarm);
	return 0;
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct ptw_evidence_options options = {
		.window = own.window, .from = own.from, .to = own.to, .all = own.everything, .tid = own.tid,
	};
	struct trace_story_options story = {
		.order = PTW_ORDER_TIME, .on_event = on_event, .on_end = on_end, .only_thread = own.tid >= 0, .tid = own.tid,
	};
	struct report report = { .out = out, .json = source->options->format == PTW_FORMAT_JSON };
	int ret;

	if (!own.window && !own.everything && choose_alarm(source, &options, err))
		return -1;
	story.context = &report;
	report.evidence = ptw_evidence_new(&options);
	report.recording = trace_source_recording(source);
	if (!report.evidence)
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	else
		ret = trace_story_run(source, &story, err);
	if (!ret && !report.rows)
		trace_source_nothing(source, "%s", own.window ? "no system call of which the kernel's code was traced, in that time" :
			"nothing of note in it; --from and --to show all of a stretch");
	ptw_evidence_free(report.evidence);
	return ret;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "alarm", required_argument, NULL, OPT_ALARM },     { "from", required_argument, NULL, OPT_FROM },
		{ "to", required_argument, NULL, OPT_TO },	     { "everything", no_argument, NULL, OPT_EVERYTHING },
		{ "tid", required_argument, NULL, OPT_TID },	     { 0 },
	};
	static const struct trace_verb verb = {
		.name = "evidence",
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

const struct ptw_verb verb_evidence = {
	.name = "evidence",
	.summary = "what happened, step by step, from the system call to the hit",
	.run = run,
};
