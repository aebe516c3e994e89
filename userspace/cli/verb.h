/* SPDX-License-Identifier: BSD-2-Clause */
/* A verb of the program: `ptwatch VERB …`. Each lives in cli/verb_NAME.c and is listed in cli/main.c. */
#ifndef PTWATCH_CLI_VERB_H
#define PTWATCH_CLI_VERB_H

#include "common/error.h"

/* What is written without -o, and read without -i */
#define DEFAULT_OUTPUT	"ptwatch.data"

struct ptw_verb {
	const char *name;
	const char *summary;	/* one line for `ptwatch --help` */
	/* argv[0] is the verb's name. Returns an enum ptw_exit; prints its own errors with cli_error(). */
	int (*run)(int argc, char **argv);
};

extern const struct ptw_verb verb_info, verb_watch, verb_record, verb_snapshot, verb_packets, verb_insns, verb_calls;
extern const struct ptw_verb verb_latency, verb_markers, verb_stat;
extern const struct ptw_verb verb_watches, verb_unwatch;
extern const struct ptw_verb verb_evidence, verb_flame, verb_timeline, verb_export;

/** cli_error() - print "ptwatch VERB: <error>" on stderr; returns @err->status so that a verb can return it */
int cli_error(const char *verb, const struct ptw_error *err);

/**
 * cli_usage() - print a usage error and where help is: exit status PTW_EXIT_USAGE
 * Return: PTW_EXIT_USAGE
 */
int cli_usage(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* PTWATCH_CLI_VERB_H */
