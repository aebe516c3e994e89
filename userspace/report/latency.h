/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report of `ptwatch latency`: how long it takes from one moment to another, and what was different when it took
 * long.
 *
 * Pairs are found thread by thread. A start whose function still runs is paired with the end inside of it (nested
 * starts: the innermost first). Of several starts whose functions are over, the newest is taken: who overlaps
 * requests in one thread pairs them by a field of their markers (@by), and then across threads, too.
 */
#ifndef PTWATCH_REPORT_LATENCY_H
#define PTWATCH_REPORT_LATENCY_H

#include "report/marker.h"
#include "report/out.h"
#include "report/path.h"
#include "report/point.h"
#include "report/story.h"

struct ptw_latency_options {
	struct ptw_point from, to;
	struct ptw_marker_format format;
	int by;			/* field of the markers that pairs them; -1: by thread */
	uint64_t worst;		/* how many to explain */
};

struct ptw_latency;

struct ptw_latency *ptw_latency_new(const struct ptw_latency_options *options);

/** ptw_latency_take() - an event of the story. Return: 0; -1: out of memory. */
int ptw_latency_take(struct ptw_latency *latency, const struct ptw_story_event *event);

/** ptw_latency_end() - the story is over: sorts the pairs. Return: 0; -1: out of memory. */
int ptw_latency_end(struct ptw_latency *latency);
void ptw_latency_free(struct ptw_latency *latency);

/* ---- what was found, after ptw_latency_end() ---- */

struct ptw_latency_pair {
	uint64_t start, duration;
	int32_t cpu, end_cpu;
	int32_t pid, tid, end_tid;
	char comm[16];
	bool has_id;
	uint64_t id;
	struct ptw_path path;
	struct ptw_culprit culprit;
	/*
	 * Who is to be named, as an index in culprit.chain: the innermost function there that hardly any other pair
	 * visited, else the innermost one; not the scheduler, but who called it. -1: no single function.
	 */
	int named;
};

struct ptw_latency_bucket { uint64_t low, high, count; };	/* low <= duration < high */

uint64_t ptw_latency_count(const struct ptw_latency *latency);

/** ptw_latency_unmatched() - starts without an end, ends without a start */
void ptw_latency_unmatched(const struct ptw_latency *latency, uint64_t *starts, uint64_t *ends);

/**
 * ptw_latency_percentile() - the smallest duration that at least @permyriad of 10,000 pairs do not exceed (nearest
 * rank); 10000: the longest, 0: the shortest
 */
uint64_t ptw_latency_percentile(const struct ptw_latency *latency, unsigned int permyriad);
uint64_t ptw_latency_mean(const struct ptw_latency *latency);

/** ptw_latency_buckets() - at most @max buckets, each a power of two wide; from the first to the last one with pairs */
size_t ptw_latency_buckets(const struct ptw_latency *latency, struct ptw_latency_bucket *bucket, size_t max);

/** ptw_latency_worst() - the longest pairs, the longest first. Return: how many. */
size_t ptw_latency_worst(const struct ptw_latency *latency, const struct ptw_latency_pair ***pair);

/** ptw_latency_rare() - whether the function is one that no more than one pair in a hundred visited */
bool ptw_latency_rare(const struct ptw_latency *latency, uint32_t name);

const struct ptw_path_names *ptw_latency_names(const struct ptw_latency *latency);

/** ptw_latency_write_text(), ptw_latency_write_json() - all of it, for people and for programs */
void ptw_latency_write_text(const struct ptw_latency *latency, struct ptw_out *out);
void ptw_latency_write_json(const struct ptw_latency *latency, struct ptw_out *out);

#endif /* PTWATCH_REPORT_LATENCY_H */
