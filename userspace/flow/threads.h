/* SPDX-License-Identifier: BSD-2-Clause */
/* Which thread a record of the stream belongs to. Private to flow/. */
#ifndef PTWATCH_FLOW_THREADS_H
#define PTWATCH_FLOW_THREADS_H

#include "flow/runs.h"
#include "flow/stream.h"
#include "recording/spool.h"

/** struct flow_threads - all threads seen; zero-initialise */
struct flow_threads {
	struct ptw_thread **thread;	/* allocated one by one: pointers to them stay */
	uint32_t count;
	uint32_t *slot;			/* index + 1; a hash over tid and cpu */
	uint32_t slots;
};

/** flow_thread_find() - index of the thread, made if needed. Return: UINT32_MAX: out of memory. */
uint32_t flow_thread_find(struct flow_threads *threads, int32_t pid, int32_t tid, int32_t cpu);
void flow_threads_free(struct flow_threads *threads);

/** struct flow_labels - follows one trace through the records of switches on its CPU */
struct flow_labels {
	struct flow_threads *threads;
	struct ptw_spool at;		/* of @runs */
	struct flow_runs runs;
	uint32_t thread;		/* that runs now */
	uint64_t switch_to;		/* address of the function that switches stacks; 0: unknown */
	bool failed;			/* out of memory */
};

int flow_labels_init(struct flow_labels *labels, struct flow_threads *threads,
		     const struct ptw_recording *rec, const struct ptw_recorded_trace *trace);

/**
 * flow_labels_before() - whether a switch comes before @flow, which it then fills in *@sw
 * flow_labels_after() - whether one comes behind it
 *
 * Both write @flow->thread.
 */
bool flow_labels_before(struct flow_labels *labels, struct ptw_flow *flow, struct ptw_flow *sw);
bool flow_labels_after(struct flow_labels *labels, const struct ptw_flow *flow, struct ptw_flow *sw);
void flow_labels_free(struct flow_labels *labels);

#endif /* PTWATCH_FLOW_THREADS_H */
