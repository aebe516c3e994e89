/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What to trace, as a person asks for it: the options that `record` and `snapshot` share, checked against what the
 * CPU can do before anything is set up.
 */
#ifndef PTWATCH_CLI_CAPTURE_OPTIONS_H
#define PTWATCH_CLI_CAPTURE_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "control/device.h"
#include "control/process.h"
#include "symbols/symbols.h"

#define TRACE_PLACES 8

struct capture_options {
	uint64_t where;			/* PTWATCH_RTIT_CTL_OS, PTWATCH_RTIT_CTL_USER; 0: both */
	uint8_t *cpus;			/* NULL: all online */
	size_t cpus_size;
	bool all;
	pid_t pid;			/* 0: none */
	const char *cgroup;
	bool follow_fork;
	uint64_t set, clear;		/* bits of IA32_RTIT_CTL */
	int mtc, cyc, psb;		/* values of the fields; -1: the default */
	const char *range[TRACE_PLACES];
	uint32_t range_kind[TRACE_PLACES];	/* PTWATCH_RANGE_* */
	unsigned int ranges;
	const char *start_at, *stop_at;
};

/* getopt_long() tables of the verbs begin with these; the values are 512 and up. */
#define TRACE_OPTIONS                                                \
	{ "all", no_argument, NULL, 'a' },                           \
	{ "cpu", required_argument, NULL, 'C' },                     \
	{ "pid", required_argument, NULL, 'p' },                     \
	{ "cgroup", required_argument, NULL, TRACE_CGROUP },         \
	{ "follow-fork", no_argument, NULL, TRACE_FOLLOW_FORK },     \
	{ "user", no_argument, NULL, 'u' },                          \
	{ "kernel", no_argument, NULL, 'k' },                        \
	{ "filter", required_argument, NULL, TRACE_FILTER },         \
	{ "stop-in", required_argument, NULL, TRACE_STOP_IN },       \
	{ "start-at", required_argument, NULL, TRACE_START_AT },     \
	{ "stop-at", required_argument, NULL, TRACE_STOP_AT },       \
	{ "mtc", required_argument, NULL, TRACE_MTC },               \
	{ "cyc", optional_argument, NULL, TRACE_CYC },               \
	{ "psb", required_argument, NULL, TRACE_PSB },               \
	{ "ptw", no_argument, NULL, TRACE_PTW },                     \
	{ "pwr-evt", no_argument, NULL, TRACE_PWR_EVT },             \
	{ "event-trace", no_argument, NULL, TRACE_EVENT_TRACE },     \
	{ "no-tnt", no_argument, NULL, TRACE_NO_TNT },               \
	{ "no-retc", no_argument, NULL, TRACE_NO_RETC },             \
	{ "no-tsc", no_argument, NULL, TRACE_NO_TSC },               \
	{ "no-branch", no_argument, NULL, TRACE_NO_BRANCH }
#define TRACE_SHORT_OPTIONS "aC:p:uk"

enum {
	TRACE_CGROUP = 512, TRACE_FOLLOW_FORK, TRACE_FILTER, TRACE_STOP_IN, TRACE_START_AT, TRACE_STOP_AT, TRACE_MTC,
	TRACE_CYC, TRACE_PSB, TRACE_PTW, TRACE_PWR_EVT, TRACE_EVENT_TRACE, TRACE_NO_TNT, TRACE_NO_RETC, TRACE_NO_TSC,
	TRACE_NO_BRANCH,
};

/* Their part of --help */
extern const char capture_options_help[];

#define TRACE_OPTIONS_INIT { .mtc = -1, .cyc = -1, .psb = -1 }

/**
 * capture_option() - take one of them, with optarg
 * Return: -1 it was taken; -2 it is none of them; else the exit status, and the person was told.
 */
int capture_option(struct capture_options *options, const char *verb, int option);

/** capture_options_check() - what contradicts itself. Return: -1 nothing; else the exit status. */
int capture_options_check(const struct capture_options *options, const char *verb, bool command);

/** capture_options_need_process() - whether a place is in user code, so that the process must be there to find it */
bool capture_options_need_process(const struct capture_options *options);

/** struct trace_place - where --start-at and --stop-at are */
struct trace_place {
	uint64_t address;
	uint64_t size;		/* of the function; 0: unknown */
	bool user;
	char label[PTWATCH_LABEL_SIZE];
};

/** struct trace_places - what is needed to find places */
struct trace_places {
	struct ptw_symbols *symbols;	/* of the kernel; loaded when first needed */
	struct ptw_process *process;	/* NULL: none is known */
	const char *program;		/* the file that it executes */
};

/** trace_place_find() - the code that @spelling means */
int trace_place_find(struct trace_places *places, const char *spelling, struct trace_place *place,
		     struct ptw_error *err);

/**
 * capture_options_request() - fill in @request but for its buffer
 * @target: process to trace in place of options->pid; 0: none
 */
int capture_options_request(const struct capture_options *options, const struct ptwatch_info *info,
			  struct trace_places *places, pid_t target, struct ptw_trace_request *request,
			  struct ptw_error *err);

void trace_places_free(struct trace_places *places);
void capture_options_free(struct capture_options *options);

#endif /* PTWATCH_CLI_CAPTURE_OPTIONS_H */
