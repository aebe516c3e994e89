/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line of `ptwatch watch`. */
#ifndef PTWATCH_CLI_WATCH_OPTIONS_H
#define PTWATCH_CLI_WATCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/ptwatch.h>

#include "control/condition.h"
#include "control/watch_target.h"

#define MAX_TARGETS 16

struct watch_options {
	struct ptw_watch_target target[MAX_TARGETS];
	unsigned int targets;
	bool wait_module;
	bool percpu;		/* what is waited for is a per-CPU variable */
	pid_t pid;		/* process of targets in a process; 0: none */

	/* which hits count */
	bool has_condition;
	struct ptw_value_condition condition;
	struct ptwatch_who filter[PTWATCH_MAX_WHO];
	unsigned int filters;
	uint8_t *hit_cpus;	/* NULL: all */
	size_t hit_cpus_size;
	uint64_t skip;
	const char *stack;	/* symbol that must be in the stack; NULL: any stack */
	uint32_t storm;		/* 0: the module's default; UINT32_MAX: never */

	/* how many of them */
	uint64_t count;		/* 0: until something else ends it */
	uint64_t rate;		/* 0: the module's default */
	uint64_t timeout;	/* ns; 0: none */

	uint32_t actions;	/* PTWATCH_ACTION_* */
	bool persistent;
	bool json;

	/* the trace */
	const char *output;
	uint64_t buffer;
	const char *buffer_text;	/* as typed; NULL: the default */
	uint64_t where;		/* PTWATCH_RTIT_CTL_OS, PTWATCH_RTIT_CTL_USER */
	uint8_t *cpus;		/* NULL: all online */
	size_t cpus_size;

	char **command;		/* NULL: none */
};

/* The actions that work on a trace. */
#define TRACE_ACTIONS \
	(PTWATCH_ACTION_FREEZE | PTWATCH_ACTION_FREEZE_ALL | PTWATCH_ACTION_START | PTWATCH_ACTION_STOP)

/**
 * watch_options_parse() - read it; to be freed with watch_options_free() in any case
 * Return: -1 to go on, else the exit status.
 */
int watch_options_parse(struct watch_options *opt, int argc, char **argv);
void watch_options_free(struct watch_options *opt);

#endif /* PTWATCH_CLI_WATCH_OPTIONS_H */
