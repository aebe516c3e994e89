/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a failure travels: the function that notices it writes one line for people, with the remedy, and the exit
 * status of the program (design: 0 done, 1 failed, 2 wrong usage, 3 done with gaps, 4 this machine can't).
 * Callers pass it up unchanged; only the program prints it. No global state.
 */
#ifndef PTWATCH_COMMON_ERROR_H
#define PTWATCH_COMMON_ERROR_H

#include <stdarg.h>

enum ptw_exit {
	PTW_EXIT_OK = 0,
	PTW_EXIT_FAILED = 1,
	PTW_EXIT_USAGE = 2,
	PTW_EXIT_GAPS = 3,
	PTW_EXIT_UNSUPPORTED = 4,
};

struct ptw_error {
	enum ptw_exit status;
	char text[1024];	/* one line, no newline, no program name: "what: value: why; remedy" */
};

/**
 * ptw_error_set() - describe a failure
 * @err: where; may be NULL, then nothing happens
 * @status: exit status the failure leads to
 * @format: printf format of the line
 *
 * Return: -1, so that a function can `return ptw_error_set(…)`.
 */
int ptw_error_set(struct ptw_error *err, enum ptw_exit status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* PTWATCH_COMMON_ERROR_H */
