/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who else may hold what we were refused. The kernel does not tell who has a debug register or Intel PT, so
 * this looks at /proc: which processes have perf events or /dev/ptwatch open, and which are traced. Best
 * effort: processes of others are seen by root only, and events that belong to the kernel itself not at
 * all.
 */
#ifndef PTWATCH_CONTROL_HOLDERS_H
#define PTWATCH_CONTROL_HOLDERS_H

#include <stddef.h>

enum ptw_holder {
	PTW_HOLDER_PERF = 1 << 0,	/* has a perf event open */
	PTW_HOLDER_PTWATCH = 1 << 1,	/* has /dev/ptwatch open */
	PTW_HOLDER_TRACER = 1 << 2,	/* traces another process: gdb, strace */
	PTW_HOLDER_ALL = 7,
};

/**
 * ptw_holders_text() - "perf (pid 812), gdb (pid 99)": processes other than this one that hold any of @kinds
 * @kinds: enum ptw_holder, or'ed
 *
 * Return: how many there are, also when not all fit into @buf; @buf is "" for none.
 */
int ptw_holders_text(unsigned int kinds, char *buf, size_t size);

/**
 * ptw_holders_each() - call @found(pid, comm, kinds, arg) for each such process, in order of their numbers
 */
void ptw_holders_each(unsigned int kinds,
		      void (*found)(int pid, const char *comm, unsigned int kinds, void *arg), void *arg);

#endif /* PTWATCH_CONTROL_HOLDERS_H */
