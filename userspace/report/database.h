/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The story of a recording as an SQLite database, for whoever wants to ask more than the reports answer.
 *
 *	meta		key, value: "schema" 1, "program", "recording"
 *	thread		id, pid, tid, cpu, comm
 *	symbol		id, name, object (module or file; NULL: the kernel itself)
 *	call		id, parent (call.id; NULL), thread, cpu, kind (begin, call, tail-call, interrupt, exception,
 *			syscall), symbol, ip, from_ip, start_ns, end_ns, total_ns, on_cpu_ns, self_ns, complete (1: it returned)
 *	switch		thread, cpu, time_ns, running (1: in, 0: out)
 *	marker		thread, cpu, time_ns, value, ip
 *	gap		thread, cpu, time_ns, trace_offset, lost, error
 *	alarm		seq, time_ns, cpu, pid, tgid, comm, access, address, ip, old_value, new_value, label
 *
 * Times are nanoseconds of the recording's clock. Addresses and values are 64-bit integers as SQLite has them:
 * signed; printf('%x', ip) shows them as usual.
 */
#ifndef PTWATCH_REPORT_DATABASE_H
#define PTWATCH_REPORT_DATABASE_H

#include "common/error.h"
#include "recording/recording.h"
#include "report/story.h"

struct ptw_database;

/** ptw_database_new() - a new database at @path, which must not exist. NULL: @err tells why. */
struct ptw_database *ptw_database_new(const char *path, const char *recording, struct ptw_error *err);

/** ptw_database_take() - an event of the story. Return: 0; 1: it can't be written, ptw_database_end() tells why. */
int ptw_database_take(struct ptw_database *db, const struct ptw_story_event *event);

/** ptw_database_alarm() - an alarm that hit at @time */
int ptw_database_alarm(struct ptw_database *db, const struct ptw_alarm *alarm, uint64_t time);

/** ptw_database_end() - close it; frees @db. Return: 0, or -1: @err tells why, and there is no file. */
int ptw_database_end(struct ptw_database *db, struct ptw_error *err);

#endif /* PTWATCH_REPORT_DATABASE_H */
