/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who runs on a CPU, by the records of its switches and by what the trace shows of them. Private to flow/.
 *
 * A record says when a switch is decided on; the stack is left a little later, in __switch_to_asm. Where that function is
 * in the trace, it is when threads change, to the instruction. It isn't always: while another process runs that is
 * not traced, or behind a gap, only time tells of a switch. So what the trace shows has to find its record, and
 * the times of a trace may be behind by the distance of timing packets.
 */
#ifndef PTWATCH_FLOW_RUNS_H
#define PTWATCH_FLOW_RUNS_H

#include "recording/recording.h"

struct flow_runs {
	const struct ptw_side_event *side;
	const uint32_t *at;	/* indices in @side of the CPU's switches */
	size_t count, next;
	int32_t pid, tid;	/* who runs; -1: unknown */
	bool preempted;		/* whoever ran before did not leave by itself */
	bool seen;		/* __switch_to_asm is in the trace */
	bool unseen;		/* the last switch was taken by its time alone; */
	uint64_t since;		/* … which is this */
	bool early;		/* the trace shows a switch whose record is still to come */
	bool begun;		/* no switch was seen since tracing began; set by who reads the trace */
	int32_t home;		/* the process whose user code ran last; 0: none has yet */
};

/**
 * flow_runs_until() - it is @time (ns)
 * @settled: no switch is under way: user code runs
 *
 * Return: whether switches were passed.
 */
bool flow_runs_until(struct flow_runs *runs, uint64_t time, bool settled);

/** flow_runs_switch() - __switch_to_asm is entered, at @time if @timed. Return: whether a switch was passed. */
bool flow_runs_switch(struct flow_runs *runs, bool timed, uint64_t time);

#endif /* PTWATCH_FLOW_RUNS_H */
