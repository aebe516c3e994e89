/* SPDX-License-Identifier: BSD-2-Clause */
/* Which thread a record of the stream belongs to. Private to flow/. */
#ifndef PTWATCH_FLOW_THREADS_H
#define PTWATCH_FLOW_THREADS_H

#include "flow/runs.h"
#include "flow/stream.h"
#include "recording/room.h"
#include "recording/spool.h"

struct flow_thread {
	struct ptw_thread public;
	bool exited;			/* it is about to run for the last time */
	bool gone;			/* it has exited, as far as the records were gone through before anything is decoded */
	bool lives_on;			/* another one goes on with its number behind that */
};

/** struct flow_threads - all threads seen; zero-initialise, but for room.limit */
struct flow_threads {
	struct ptw_room room;		/* of all that follows */
	struct flow_thread **thread;	/* allocated one by one: pointers to them stay */
	uint32_t count;
	uint32_t *slot;			/* index + 1; a hash over tid and cpu */
	uint32_t slots;
};

#define FLOW_THREADS_LIMIT	(4u << 20)	/* for room.limit: that of some ten thousands */

/** flow_thread_find() - index of the thread, made if needed. Return: UINT32_MAX: out of memory. */
uint32_t flow_thread_find(struct flow_threads *threads, int32_t pid, int32_t tid, int32_t cpu);
void flow_threads_free(struct flow_threads *threads);

/** struct flow_labels - follows one trace through the records of switches on its CPU */
struct flow_labels {
	struct flow_threads *threads;
	const struct ptw_recording *rec;
	struct ptw_spool at;		/* of @runs */
	struct flow_runs runs;
	uint32_t thread;		/* that runs now */
	bool all;			/* tell of each switch, also of those that the trace shows nothing of */
	bool by_time;			/* … of which only time tells */
	bool news;			/* who runs may have changed since @thread */
	size_t told;			/* so many of @runs' switches are told */
	struct ptw_flow at_flow;	/* what comes before or behind the switches that are still to be told */
	uint64_t time, insns;		/* of what was told last */
	uint64_t switch_to;		/* address of the function that switches stacks; 0: unknown */
	bool failed;			/* out of memory */
};

/** flow_labels_init() - @all: tell of each switch that is recorded, also of those that the trace shows nothing of */
int flow_labels_init(struct flow_labels *labels, struct flow_threads *threads,
		     const struct ptw_recording *rec, const struct ptw_recorded_trace *trace, bool all);

/**
 * flow_labels_before() - what comes before @flow
 * flow_labels_after() - what comes behind it
 * flow_labels_trailing() - the trace is at its end: the next switch that is recorded. Return: false: there is none.
 *
 * Behind each of them flow_labels_next() tells the switches, one by one, in *@sw, until it returns false; then @labels->thread
 * is who executes @flow.
 */
void flow_labels_before(struct flow_labels *labels, const struct ptw_flow *flow);
void flow_labels_after(struct flow_labels *labels, const struct ptw_flow *flow);
bool flow_labels_trailing(struct flow_labels *labels);
bool flow_labels_next(struct flow_labels *labels, struct ptw_flow *sw);
void flow_labels_free(struct flow_labels *labels);

#endif /* PTWATCH_FLOW_THREADS_H */
