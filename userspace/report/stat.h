/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of `ptwatch stat`: what there is in a recording, by CPU and by thread. */
#ifndef PTWATCH_REPORT_STAT_H
#define PTWATCH_REPORT_STAT_H

#include "decode/packets.h"
#include "flow/stream.h"
#include "recording/room.h"
#include "report/out.h"

#define PTW_STAT_PACKETS	(PTW_PACKET_UNKNOWN + 1)

/** struct ptw_stat_trace - one CPU's trace */
struct ptw_stat_trace {
	int32_t cpu, tid;
	uint64_t bytes, packets, packet[PTW_STAT_PACKETS];	/* by type */
	uint64_t packet_bytes[PTW_STAT_PACKETS];
	uint64_t unread;		/* bytes that are no packets; */
	uint64_t skipped;		/* … and of these the ones before the first */
	struct ptw_trace_totals totals;
	bool followed;			/* @totals are known: code was there to follow */
};

struct ptw_stat_thread {
	uint32_t index;
	uint64_t insns, branches, switches, gaps;
	uint64_t time;			/* on a CPU */
	bool seen;
};

struct ptw_stat {
	struct ptw_stat_trace *trace;
	size_t trace_count;
	struct ptw_stat_thread *thread;		/* by the stream's index */
	size_t thread_count;
	/* private */
	struct ptw_room room;			/* of @thread */
	uint64_t taken;
	struct ptw_stat_cpu { uint64_t insns, time; uint32_t thread; bool used; } *at;	/* by trace */
	size_t at_count;
};

/** ptw_stat_packets() - count the packets of trace @index; @on_gap: called for what is none */
int ptw_stat_packets(struct ptw_stat *stat, size_t index, const struct ptw_pt_params *params,
		     const struct ptw_recorded_trace *bytes,
		     void (*on_gap)(void *context, size_t index, const struct ptw_packet *packet), void *context,
		     struct ptw_error *err);

/** ptw_stat_take() - a record of the stream. Return: 0; -1: out of memory. */
int ptw_stat_take(struct ptw_stat *stat, const struct ptw_flow *flow);

/** ptw_stat_write() - for people, or as JSON; @thread: the threads by index, as struct ptw_stat has them */
void ptw_stat_write(const struct ptw_stat *stat, const struct ptw_thread *(*thread)(void *context, uint32_t index),
		    void *context, bool json, struct ptw_out *out);
void ptw_stat_free(struct ptw_stat *stat);

#endif /* PTWATCH_REPORT_STAT_H */
