/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of `ptwatch evidence`: what happened, as an investigator wants to read it.
 *
 * Of all that a thread did only few things count: where it entered and left the kernel, what was copied from and to
 * the user, whose rights changed, what was executed, which module's code ran. These are kept as rows while a system
 * call lasts; they become evidence when the alarm hits in it, when it does something of note (rights, exec, modules,
 * other processes), or when it is within the window of time that is asked for.
 */
#ifndef PTWATCH_REPORT_EVIDENCE_H
#define PTWATCH_REPORT_EVIDENCE_H

#include "recording/recording.h"
#include "report/alarm_point.h"
#include "report/out.h"
#include "report/story.h"

struct ptw_evidence_options {
	/* The story of this alarm, up to its hit; NULL: of what is of note, or of the window. */
	const struct ptw_alarm *alarm;
	struct ptw_alarm_point point;
	uint64_t alarm_number;
	bool window;		/* all rows from @from to @to (0: the end) */
	uint64_t from, to;
	bool all;		/* all that is of note, not only what follows a change of rights that is no one's right */
	int32_t tid;		/* only this thread; -1: all */
};

struct ptw_evidence;

struct ptw_evidence *ptw_evidence_new(const struct ptw_evidence_options *options);

/** ptw_evidence_take() - an event of the story. Return: 0; 1: nothing more is wanted; -1: out of memory. */
int ptw_evidence_take(struct ptw_evidence *evidence, const struct ptw_story_event *event);

/** ptw_evidence_settle() - the story is over; its records of processes follow, in order of time. Return: 0; -1: out of memory. */
int ptw_evidence_settle(struct ptw_evidence *evidence);

/** ptw_evidence_exec() - the kernel's own record: at @time the process @pid runs the program @name. Return: 0, -1. */
int ptw_evidence_exec(struct ptw_evidence *evidence, uint64_t time, int32_t cpu, int32_t pid, int32_t tid, const char *name);

/** ptw_evidence_fork() - @parent made the process @pid: what it does belongs to the parent's story */
void ptw_evidence_fork(struct ptw_evidence *evidence, uint64_t time, int32_t pid, int32_t parent);

/** ptw_evidence_end() - that was all */
void ptw_evidence_end(struct ptw_evidence *evidence);

/** ptw_evidence_write() - the table, while the story's places are still there. Return: how many rows it has. */
size_t ptw_evidence_write(const struct ptw_evidence *evidence, struct ptw_out *out, bool json);
void ptw_evidence_free(struct ptw_evidence *evidence);

#endif /* PTWATCH_REPORT_EVIDENCE_H */
