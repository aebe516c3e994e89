/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the verbs share in talking to a person: terminals, colours, near matches, `--help` and option
 * errors.
 */
#ifndef PTWATCH_CLI_OUTPUT_H
#define PTWATCH_CLI_OUTPUT_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/error.h"

/**
 * cli_colour() - whether @stream may carry colours: it is a terminal that can, and NO_COLOR is unset or
 * empty
 */
bool cli_colour(FILE *stream);

/** cli_width() - columns of the terminal behind @stream, at least 40; @fallback when it is none */
int cli_width(FILE *stream, int fallback);

/**
 * cli_near() - the entry of @words that was most likely meant by @typed
 * @words: NULL-terminated
 * Return: the entry; NULL when none is near.
 */
const char *cli_near(const char *typed, const char *const *words);

/**
 * cli_bad_option() - report what getopt_long() returned '?' or ':' for
 * @option: what getopt_long() returned; the option string must begin with ':' or "+:" and opterr be 0
 * Return: PTW_EXIT_USAGE.
 */
int cli_bad_option(const char *verb, int option, char **argv, const struct option *options);

/** cli_shown() - @text for a message: what is empty would not be seen there. Return: @text or "''". */
const char *cli_shown(const char *text);

#define CLI_TIMES	32

/** cli_times() - "once", "17 times". Return: @buf. */
char *cli_times(uint64_t count, char buf[CLI_TIMES]);

/** cli_progress() - a line on stderr for what takes longer than a second; @format without newline */
void cli_progress(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * cli_sync() - flush stdout, and remember why when it can't be written: later errno is about something else
 * Return: 0, or the errno of the first flush that failed.
 */
int cli_sync(void);

/**
 * cli_flush() - cli_sync() at the end of a verb
 *
 * A reader who left (EPIPE, where SIGPIPE is ignored) has seen what was wanted and gets no message.
 * Return: PTW_EXIT_FAILED with a message when stdout can't be written, else PTW_EXIT_OK.
 */
int cli_flush(const char *verb);

/** cli_stdout_closed() - fail with a message in @err when the program was started without a stdout */
int cli_stdout_closed(struct ptw_error *err);

#endif /* PTWATCH_CLI_OUTPUT_H */
