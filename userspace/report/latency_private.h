/* SPDX-License-Identifier: BSD-2-Clause */
/* What latency.c found and latency_text.c writes. */
#ifndef PTWATCH_REPORT_LATENCY_PRIVATE_H
#define PTWATCH_REPORT_LATENCY_PRIVATE_H

#include <sys/queue.h>

#include "recording/spool.h"
#include "report/latency.h"

#define PTW_LATENCY_SAMPLE	256	/* paths that are kept to learn what is typical */

struct ptw_latency {
	struct ptw_latency_options options;
	struct ptw_path_names names;

	struct ptw_spool durations;	/* of all pairs */
	const uint64_t *duration;	/* the same, once there are no more */
	size_t count;
	uint64_t open_starts, lone_ends;
	uint64_t sum;

	struct ptw_latency_pair **worst;	/* a heap with the shortest on top; descending in the end */
	size_t worst_count;
	struct { uint64_t duration; struct ptw_path path; } sample[PTW_LATENCY_SAMPLE];
	size_t sample_count;
	uint64_t random;
	struct ptw_path typical;
	uint64_t typical_count;
	struct ptw_path_load load;
	struct ptw_path scratch;

	LIST_HEAD(, latency_thread) threads;
	struct latency_open *open;	/* with @by: of all threads, in no order */
	size_t open_count, open_room;
	uint32_t *slot;			/* a hash by id: index in @open, + 1 */
	size_t slots;
};

#endif /* PTWATCH_REPORT_LATENCY_PRIVATE_H */
