/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel tells beside the trace, through perf_event_open(2): which process maps, executes, forks and exits,
 * which task runs where, and when the kernel changes its own code. As perf does it: a dummy event on each CPU, whose
 * ring of records is emptied while the trace runs.
 *
 * To be opened before the trace starts and closed after it stopped: the first event that wants switches makes the
 * kernel change its scheduler's code (the static branch perf_sched_events), and the last one changes it back. For the
 * same reason there is no event of a task here, only events of CPUs.
 */
#ifndef PTWATCH_CONTROL_SIDEBAND_H
#define PTWATCH_CONTROL_SIDEBAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/perf_event.h>

#include "common/error.h"

/* What ends each record: struct perf_sample_id of recording/perf_file.h */
#define PTW_SIDEBAND_SAMPLE_TYPE \
	(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER)

#define PTW_SIDEBAND_RING (512UL << 10)

struct ptw_sideband;

/** struct ptw_sideband_request - what ptw_sideband_open() should listen to */
struct ptw_sideband_request {
	const uint8_t *cpus;	/* bitmap: of these CPUs also the switches; NULL: of all */
	size_t cpus_size;
	bool switches;		/* context switches; false: someone else tells them */
	size_t ring_size;	/* bytes for each CPU, a power of two of pages; 0: PTW_SIDEBAND_RING */
};

/**
 * ptw_sideband_open() - listen on every online CPU: processes come and go on any, whichever are traced
 * Return: to be closed with ptw_sideband_close(); NULL: @err tells.
 */
struct ptw_sideband *ptw_sideband_open(const struct ptw_sideband_request *request, struct ptw_error *err);
void ptw_sideband_close(struct ptw_sideband *sideband);

/** ptw_sideband_fd() - readable (poll) when a ring is a quarter full, or a CPU may have come: drain and renew */
int ptw_sideband_fd(const struct ptw_sideband *sideband);

/** ptw_sideband_ids() - the ids that the records carry, one for each event there is or was; owned by @sideband */
const uint64_t *ptw_sideband_ids(const struct ptw_sideband *sideband, size_t *count);

/** ptw_sideband_id() - the one of @cpu; 0: it was not online */
uint64_t ptw_sideband_id(const struct ptw_sideband *sideband, uint32_t cpu);

/** ptw_sideband_take - gets records of the kernel as they lie in a ring, in up to two pieces; -1 ends the draining */
typedef int ptw_sideband_take(void *arg, const void *first, size_t first_size, const void *second, size_t second_size,
			      struct ptw_error *err);

/**
 * ptw_sideband_drain() - hand out what has come in since the last time
 * Return: 0, or -1 as @take did.
 *
 * Per CPU oldest first, one CPU after the other. A record that a call hands out may be older than others of the call
 * before, but not than those of the one before that: ptw_recording_end_round() after each call says so to readers.
 */
int ptw_sideband_drain(struct ptw_sideband *sideband, ptw_sideband_take *take, void *arg, struct ptw_error *err);

/**
 * ptw_sideband_renew() - listen again on a CPU that went offline and came back, or came for the first time
 * @take: gets what was heard there before
 * @cpu: that CPU
 * Return: 1, there may be more: call again; 0, there is none; -1: nobody listens on @cpu, @err tells.
 *
 * What the kernel told there since the CPU came back was not heard. The ids have become more.
 */
int ptw_sideband_renew(struct ptw_sideband *sideband, ptw_sideband_take *take, void *arg, int *cpu,
		       struct ptw_error *err);

/**
 * ptw_sideband_missed() - a CPU of which records were lost, as far as drained, since it was last told here
 * Return: true: there may be more, call again; false: there is none.
 */
bool ptw_sideband_missed(struct ptw_sideband *sideband, uint32_t *cpu);

/** ptw_sideband_lost() - records that the kernel dropped because a ring was full, as far as drained */
uint64_t ptw_sideband_lost(const struct ptw_sideband *sideband);

/**
 * ptw_sideband_visit() - let this thread run on each CPU of @request once
 *
 * That is a switch on each of them: from there on the records tell who runs. CPUs that this thread may not run on
 * are left out.
 */
void ptw_sideband_visit(const struct ptw_sideband *sideband);

#endif /* PTWATCH_CONTROL_SIDEBAND_H */
