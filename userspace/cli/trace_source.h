/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the verbs that read traces have in common: where the trace comes from (a recording, or raw bytes
 * and what is told about them), which part of it is wanted, and how it is shown. Private to cli/.
 */
#ifndef PTWATCH_CLI_TRACE_SOURCE_H
#define PTWATCH_CLI_TRACE_SOURCE_H

#include <getopt.h>
#include <stdbool.h>

#include "recording/recording.h"
#include "report/view.h"

/* Bits of trace_options_parse()'s @accept: the options that only some of the verbs have. */
enum trace_options_accept {
	ACCEPT_IP_FORMAT = 1 << 0,
	ACCEPT_WINDOW = 1 << 1,		/* --tail, --last, --time, --no-time, --all */
	ACCEPT_DISASM = 1 << 2,		/* --source, --debug, --syntax */
	ACCEPT_DEPTH = 1 << 3,
	ACCEPT_NO_COUNT = 1 << 4,	/* not --count */
	ACCEPT_OWN_FORMAT = 1 << 5,	/* --format is the verb's own, or not there */
	ACCEPT_NO_JSON = 1 << 6,	/* nor --json */
	ACCEPT_TAIL = 1 << 9,		/* --tail, --last, --time, --no-time */
	ACCEPT_OUTPUT = 1 << 7,		/* -o FILE, which the report writes in place of stdout */
	ACCEPT_OWN_OUTPUT = 1 << 8,	/* -o, which the verb opens itself */
};

#define TRACE_OPTION_OWN	1024

#define GAP_KINDS	16	/* as many are told apart */
#define GAP_LINES	10	/* of each kind; the rest is only counted */

struct trace_options {
	const char *verb;
	bool help;

	/* where from */
	const char *input;		/* -i; NULL: raw */
	const char *cpus_text;		/* -C as typed */
	const char *raw;
	struct ptw_pt_params params;	/* of --raw */
	struct ptw_image image;		/* of --raw */
	bool image_table;		/* --images was given */
	uint8_t *cpus;			/* -C: a bitmap; NULL: not given */
	size_t cpus_size;

	/* what and how */
	const char *output;		/* -o; NULL: stdout */
	enum ptw_format format;
	const char *format_text;	/* of --format, as typed */
	bool json;			/* --json was given */
	bool count;
	bool no_time;
	bool all;
	bool source;
	bool intel_syntax;
	const char **debug_files;
	size_t debug_file_count;
	uint64_t tail, last_ns, depth;
	unsigned int jobs;		/* threads to decode with; 0: one for each core */
};

struct trace_verb;

/**
 * trace_options_parse() - read the command line of @verb
 * Return: PTW_EXIT_OK, or the exit status: the error is printed. With @options->help nothing else is checked.
 */
int trace_options_parse(struct trace_options *options, const struct trace_verb *verb, int argc, char **argv);
void trace_options_free(struct trace_options *options);

/** trace_options_help() - print what such verbs accept, for their --help */
void trace_options_help(unsigned int accept);

/* An opened source. */
struct trace_source {
	const struct trace_options *options;
	struct ptw_recording *recording;	/* NULL: raw */
	struct ptw_symbols *raw_symbols;	/* of the ELF files among --image */
	struct ptw_recording raw_recording;	/* raw bytes as a recording of one trace; owns nothing */
	struct ptw_recorded_trace raw;
	struct ptw_view *view;			/* one for each trace selected, in the order of CPUs */
	size_t count;
	uint64_t flows;				/* records of the stream that made the story */
	uint64_t gaps;				/* errors, overflows and the like that were reported */
	struct {
		const char *kind;
		uint64_t count;
	} gap[GAP_KINDS];
	int64_t progress;			/* second of the last line about it */
	bool nothing_told;			/* that there is nothing to print, and why */
};

/** trace_source_nothing() - a line on stderr, as nothing printed is no answer; the first one says it */
void trace_source_nothing(struct trace_source *source, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * trace_source_gap() - tell of a gap in @view's trace: a line on stderr, unless many of @kind were told
 * @kind: a string that is not freed, the same for gaps of the same kind
 */
void trace_source_gap(struct trace_source *source, const struct ptw_view *view, const char *kind,
		      const char *text);

/**
 * trace_source_alarms() - the alarms that have a place in time
 * Return: how many; with none where the clock of the trace is not known, which is told then.
 */
size_t trace_source_alarms(struct trace_source *source);

/** trace_source_missing_code() - a line on stderr if the recording lacks code that was traced */
void trace_source_missing_code(const struct trace_source *source);

/** trace_source_recording() - what is read: the recording, or raw bytes as one */
struct ptw_recording *trace_source_recording(struct trace_source *source);

/* What the verbs do not have in common. */
struct trace_verb {
	const char *name;
	unsigned int accept;		/* enum trace_options_accept */
	bool follows_code;		/* needs the code that ran, and finds the alarm in it */
	void (*help)(void);		/* prints --help */
	/* Options of its own: NULL, or an array that ends with a NULL name; values of .val from TRACE_OPTION_OWN on. */
	const struct option *options;
	/* One of these. Returns PTW_EXIT_OK, or the exit status: the error is printed. May be NULL without options. */
	int (*take_option)(int option, const char *value);
	/* Looks at the whole once all options are read; may be NULL. Returns the same. */
	int (*check)(const struct trace_options *options);
	/* Returns 0, or -1: @err tells why. */
	int (*report)(struct trace_source *source, struct ptw_out *out, struct ptw_error *err);
};

/** trace_verb_run() - the verb from its command line to its exit status */
int trace_verb_run(const struct trace_verb *verb, int argc, char **argv);

#endif /* PTWATCH_CLI_TRACE_SOURCE_H */
