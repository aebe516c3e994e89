/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traces cut at PSBs into jobs, which threads decode ahead of the one that reads. What is ready waits, but
 * only so much of it: memory does not grow with the recording. Private to flow/.
 *
 * One lock guards the lists of jobs and batches. A job that runs belongs to its thread; a batch that was
 * handed out belongs to the reader.
 */
#ifndef PTWATCH_FLOW_JOBS_H
#define PTWATCH_FLOW_JOBS_H

#include "flow/sink.h"
#include "flow/threads.h"

struct jobs;

/** struct job_batch - in the order of the trace */
struct job_batch {
	struct job_batch *next;
	struct ptw_flow *flow;
	size_t count, room;
	char *text;		/* SINK_IPS, SINK_INSNS */
	size_t text_size, text_room;
	uint64_t insns;		/* of the trace before the job: to be added to each record's */
};

/** struct jobs_trace - one that is to be decoded: its @index, and its @labels, which stay, as they are at its beginning */
struct jobs_trace {
	size_t index;
	const struct flow_labels *labels;
};

/** jobs_new() - for @traces in @trace; @threads 0: one for each core. NULL: @err tells why. */
struct jobs *jobs_new(const struct ptw_recording *rec, struct ptw_code *code, const struct jobs_trace *trace, size_t traces,
		      enum sink_mode mode, bool reference, unsigned int threads, struct ptw_error *err);

/** jobs_next() - next batch of lane @lane (an index in @trace), for jobs_done() before jobs_free(); NULL: the end, or out of memory */
struct job_batch *jobs_next(struct jobs *jobs, size_t lane);
void jobs_done(struct jobs *jobs, struct job_batch *batch);

bool jobs_failed(const struct jobs *jobs);
const struct ptw_trace_totals *jobs_totals(const struct jobs *jobs, size_t lane);

/** jobs_bytes() - how many bytes of all were decoded */
uint64_t jobs_bytes(struct jobs *jobs);
void jobs_free(struct jobs *jobs);

#endif /* PTWATCH_FLOW_JOBS_H */
