// SPDX-License-Identifier: BSD-2-Clause
/* Latencies for people and for programs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/duration.h"
#include "report/latency_private.h"
#include "report/thread_text.h"

#define BUCKETS	40
#define BAR	50
#define ONLY	6	/* as many functions are named */

static const struct { unsigned int permyriad; const char *name, *key; } percentiles[] = {
	{ 5000, "P50", "p50_ns" }, { 9000, "P90", "p90_ns" }, { 9900, "P99", "p99_ns" },
	{ 9990, "P99.9", "p999_ns" }, { 10000, "max", "max_ns" },
};

/* What the extra time was. A softirq runs in an interrupt's exit, or in a thread that lets bottom halves in. */
static const char *culprit_kind(const struct ptw_latency *l, const struct ptw_latency_pair *pair)
{
	const struct ptw_culprit *culprit = &pair->culprit;
	size_t i;

	for (i = 0; i < culprit->depth; i++) {
		const char *name = l->names.name[pair->path.node[culprit->chain[i]].name].text;

		if (name && (!strcmp(name, "__do_softirq") || !strcmp(name, "handle_softirqs")))
			return culprit->kind == PTW_PATH_INTERRUPT ? "interrupt, softirq" : "softirq";
	}
	switch (culprit->kind) {
	case PTW_PATH_INTERRUPT:
		return "interrupt";
	case PTW_PATH_OUT:
		return "switched out";
	default:
		return "on CPU";
	}
}

static const char *node_name(const struct ptw_latency *l, const struct ptw_path_node *node)
{
	if (node->kind == PTW_PATH_OUT)
		return "[switched out]";
	return node->name ? l->names.name[node->name].text : "[this function itself]";
}

static const struct ptw_path_node *culprit_node(const struct ptw_latency_pair *pair)
{
	return pair->named < 0 ? NULL : &pair->path.node[pair->culprit.chain[pair->named]];
}

static uint64_t culprit_extra(const struct ptw_latency_pair *pair)
{
	if (pair->named >= 0)
		return pair->culprit.extra[pair->named];
	return pair->culprit.depth ? pair->culprit.extra[pair->culprit.depth - 1] : 0;
}

struct only {
	uint32_t name;
	uint64_t total;
};

static int longest_first(const void *a, const void *b)
{
	const struct only *oa = a, *ob = b;

	if (oa->total != ob->total)
		return oa->total < ob->total ? 1 : -1;
	return oa->name < ob->name ? -1 : oa->name > ob->name;
}

/* Functions that no more than one pair in a hundred visited, and none of the typical ones; with most time first. */
static size_t rare_functions(const struct ptw_latency *l, const struct ptw_latency_pair *pair, struct only **list)
{
	const struct ptw_path *path = &pair->path;
	struct only *only = calloc(path->count, sizeof(*only));
	size_t count = 0, i, j;

	*list = only;
	for (i = 1; only && i < path->count; i++) {
		const struct ptw_path_node *node = &path->node[i];

		if (!node->name || node->kind == PTW_PATH_PHASE || node->kind == PTW_PATH_OUT ||
		    !ptw_latency_rare(l, node->name))
			continue;
		for (j = 0; j < count && only[j].name != node->name; j++)
			;
		if (j == count)
			only[count++].name = node->name;
		only[j].total += node->total;
	}
	if (count)
		qsort(only, count, sizeof(*only), longest_first);
	return count;
}

static uint64_t typical(const struct ptw_latency *l, uint64_t sum)
{
	return l->typical_count ? sum / l->typical_count : 0;
}

/* What interrupts take in pairs as typical ones, or (*@scaled) elsewhere of a time as long as that of @pair. */
static uint64_t usual_interrupts(const struct ptw_latency *l, const struct ptw_latency_pair *pair, bool *scaled)
{
	const struct ptw_path_node *node = pair->path.node;
	uint64_t sum = 0, mean = typical(l, l->typical.interrupt);
	uint32_t i, j;

	for (i = 1; i < pair->path.count; i++) {
		if (node[i].kind != PTW_PATH_INTERRUPT)
			continue;
		for (j = 1; j < i && (node[j].kind != PTW_PATH_INTERRUPT || node[j].name != node[i].name); j++)
			;
		if (j == i)
			sum += ptw_path_load(&l->load, &pair->path, node[i].name, pair->duration);
	}
	*scaled = sum > mean;
	return *scaled ? sum : mean;
}

/* ---- text ---- */

static void text_summary(const struct ptw_latency *l, struct ptw_out *out)
{
	char text[PTW_DURATION];
	size_t i;

	ptw_out_colour(out, PTW_BOLD);
	ptw_out_printf(out, "%s → %s", l->options.from.text, l->options.to.text);
	ptw_out_colour(out, PTW_PLAIN);
	if (l->options.by >= 0)
		ptw_out_printf(out, " by %s", l->options.format.field[l->options.by].name);
	ptw_out_printf(out, ": %zu pair%s", l->count, l->count == 1 ? "" : "s");
	if (l->open_starts)
		ptw_out_printf(out, ", %" PRIu64 " start%s without an end", l->open_starts, l->open_starts == 1 ? "" : "s");
	if (l->lone_ends)
		ptw_out_printf(out, ", %" PRIu64 " end%s without a start", l->lone_ends, l->lone_ends == 1 ? "" : "s");
	ptw_out_text(out, "\n");
	if (!l->count)
		return;
	ptw_out_text(out, "\n ");
	for (i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++)
		ptw_out_printf(out, " %s %s ", percentiles[i].name,
			       ptw_duration(ptw_latency_percentile(l, percentiles[i].permyriad), text));
	ptw_out_printf(out, " (mean %s", ptw_duration(ptw_latency_mean(l), text));
	ptw_out_printf(out, ", min %s)\n\n", ptw_duration(ptw_latency_percentile(l, 0), text));
}

static void text_histogram(const struct ptw_latency *l, struct ptw_out *out)
{
	struct ptw_latency_bucket bucket[BUCKETS];
	size_t count = ptw_latency_buckets(l, bucket, BUCKETS), i;
	char low[PTW_DURATION], high[PTW_DURATION];
	uint64_t most = 1;

	for (i = 0; i < count; i++)
		if (bucket[i].count > most)
			most = bucket[i].count;
	for (i = 0; i < count; i++) {
		int bar = (int)((bucket[i].count * BAR + most - 1) / most), j;

		/* Where nothing is between a few far away and the rest, that is one line. */
		if (!bucket[i].count && i && !bucket[i - 1].count) {
			if (bucket[i + 1].count)
				ptw_out_text(out, "           ⋮\n");
			continue;
		}
		ptw_out_printf(out, "  %10s … %10s %8" PRIu64 "  ", ptw_duration(bucket[i].low, low),
			       ptw_duration(bucket[i].high, high), bucket[i].count);
		for (j = 0; j < bar; j++)
			ptw_out_text(out, "█");
		ptw_out_text(out, "\n");
	}
}

static void text_spent(struct ptw_out *out, const char *what, uint64_t time, uint64_t usual)
{
	char text[PTW_DURATION];

	ptw_out_printf(out, "%s %s", what, ptw_duration(time, text));
	ptw_out_printf(out, " (%s)", ptw_duration(usual, text));
}

/* The chain from outside in; where it does not fit the line, its middle is left out. */
static void text_chain(const struct ptw_latency *l, struct ptw_out *out, const struct ptw_latency_pair *pair)
{
	const struct ptw_culprit *culprit = &pair->culprit;
	size_t first = 0, i, length = 0;

	while (first < culprit->depth && pair->path.node[culprit->chain[first]].kind == PTW_PATH_PHASE)
		first++;
	if (culprit->depth - first < 2)
		return;
	/* From the end, as many as fit. */
	for (i = culprit->depth; i > first; i--) {
		length += strlen(node_name(l, &pair->path.node[culprit->chain[i - 1]])) + 3;
		if (length > 90)
			break;
	}
	ptw_out_printf(out, "      by way of   %s", i > first ? "… → " : "");
	for (; i < culprit->depth; i++)
		ptw_out_printf(out, "%s%s", node_name(l, &pair->path.node[culprit->chain[i]]),
			       i + 1 < culprit->depth ? " → " : "\n");
}

static void text_pair(const struct ptw_latency *l, struct ptw_out *out, size_t number)
{
	const struct ptw_latency_pair *pair = l->worst[number];
	const struct ptw_culprit *culprit = &pair->culprit;
	uint64_t usual = typical(l, l->typical.count ? l->typical.node[0].total : 0);
	const struct ptw_path_node *node = culprit_node(pair);
	char text[PTW_DURATION], start[PTW_DURATION], thread[PTW_THREAD_TEXT];
	struct only *only;
	bool scaled;
	size_t count, i;

	ptw_out_printf(out, "\n  #%-2zu ", number + 1);
	ptw_out_colour(out, PTW_BOLD);
	ptw_out_text(out, ptw_duration(pair->duration, text));
	ptw_out_colour(out, PTW_PLAIN);
	ptw_out_printf(out, "  at %s", ptw_time(pair->start, start));
	if (pair->cpu >= 0)
		ptw_out_printf(out, "  cpu %d", pair->cpu);
	if (pair->end_cpu != pair->cpu)
		ptw_out_printf(out, " → %d", pair->end_cpu);
	if (pair->tid >= 0)
		ptw_out_printf(out, "  thread %s", ptw_thread_text(pair->tid, pair->comm, thread));
	if (pair->end_tid != pair->tid)
		ptw_out_printf(out, " → %d", pair->end_tid);
	if (pair->has_id)
		ptw_out_printf(out, "  %s 0x%" PRIx64, l->options.format.field[l->options.by].name, pair->id);
	ptw_out_text(out, "\n      ");
	text_spent(out, "on CPU", pair->path.on_cpu, typical(l, l->typical.on_cpu));
	text_spent(out, ", interrupts", pair->path.interrupt, usual_interrupts(l, pair, &scaled));
	text_spent(out, ", switched out", pair->path.switched_out, typical(l, l->typical.switched_out));
	ptw_out_text(out, scaled ? "; (usual; interrupts: in as long a time)\n" : "; (usual)\n");
	if (pair->path.gap)
		ptw_out_text(out, "      trace is missing in between: what follows may not be all\n");
	if (pair->duration > usual && culprit->depth + culprit->spread_count) {
		ptw_out_printf(out, "      +%s", ptw_duration(pair->duration - usual, text));
		if (culprit->phase)
			ptw_out_printf(out, "  +%s in phase %s", ptw_duration(culprit->phase_extra, text),
				       l->names.name[culprit->phase].text);
		if (node) {
			ptw_out_printf(out, "  +%s %s: ", ptw_duration(culprit_extra(pair), text), culprit_kind(l, pair));
			ptw_out_colour(out, PTW_RED);
			ptw_out_text(out, node_name(l, node));
			ptw_out_colour(out, PTW_PLAIN);
		} else {
			ptw_out_text(out, "  of several:");
			for (i = 0; i < culprit->spread_count; i++)
				ptw_out_printf(out, "%s %s +%s", i ? "," : "", node_name(l, &pair->path.node[culprit->spread[i]]),
					       ptw_duration(culprit->spread_extra[i], text));
		}
		ptw_out_text(out, "\n");
		text_chain(l, out, pair);
	}
	count = rare_functions(l, pair, &only);
	if (count) {
		ptw_out_text(out, "      only here   ");
		for (i = 0; i < count && i < ONLY; i++)
			ptw_out_printf(out, "%s%s %s", i ? ", " : "", l->names.name[only[i].name].text,
				       ptw_duration(only[i].total, text));
		if (count > ONLY)
			ptw_out_printf(out, " and %zu more", count - ONLY);
		ptw_out_text(out, "\n");
	}
	free(only);
}

void ptw_latency_write_text(const struct ptw_latency *l, struct ptw_out *out)
{
	size_t i;

	text_summary(l, out);
	if (!l->count)
		return;
	text_histogram(l, out);
	if (l->worst_count)
		ptw_out_printf(out, "\nThe longest %zu, against the typical (mean of %" PRIu64 " pairs up to P50):\n", l->worst_count,
			       l->typical_count);
	for (i = 0; i < l->worst_count; i++)
		text_pair(l, out, i);
}

/* ---- JSON ---- */

static void json_spent(struct ptw_out *out, const struct ptw_path *path, uint64_t count)
{
	ptw_out_printf(out, "\"on_cpu_ns\":%" PRIu64 ",\"interrupt_ns\":%" PRIu64 ",\"switched_out_ns\":%" PRIu64,
		       path->on_cpu / count, path->interrupt / count, path->switched_out / count);
}

static void json_summary(const struct ptw_latency *l, struct ptw_out *out)
{
	size_t i;

	ptw_out_text(out, "{\"type\":\"summary\",\"from\":");
	ptw_out_json_string(out, l->options.from.text);
	ptw_out_text(out, ",\"to\":");
	ptw_out_json_string(out, l->options.to.text);
	if (l->options.by >= 0) {
		ptw_out_text(out, ",\"by\":");
		ptw_out_json_string(out, l->options.format.field[l->options.by].name);
	}
	ptw_out_printf(out, ",\"count\":%zu,\"starts_without_end\":%" PRIu64 ",\"ends_without_start\":%" PRIu64, l->count,
		       l->open_starts, l->lone_ends);
	for (i = 0; l->count && i < sizeof(percentiles) / sizeof(percentiles[0]); i++)
		ptw_out_printf(out, ",\"%s\":%" PRIu64, percentiles[i].key,
			       ptw_latency_percentile(l, percentiles[i].permyriad));
	if (l->count)
		ptw_out_printf(out, ",\"min_ns\":%" PRIu64 ",\"mean_ns\":%" PRIu64, ptw_latency_percentile(l, 0),
			       ptw_latency_mean(l));
	if (l->typical_count) {
		ptw_out_text(out, ",\"typical\":{");
		json_spent(out, &l->typical, l->typical_count);
		ptw_out_printf(out, ",\"pairs\":%" PRIu64 "}", l->typical_count);
	}
	ptw_out_text(out, "}\n");
}

static void json_culprit(const struct ptw_latency *l, struct ptw_out *out, const struct ptw_latency_pair *pair)
{
	const struct ptw_culprit *culprit = &pair->culprit;
	const struct ptw_path_node *node = culprit_node(pair);
	size_t i;

	ptw_out_printf(out, ",\"cause\":\"%s\",\"culprit\":", culprit_kind(l, pair));
	if (node)
		ptw_out_json_string(out, node_name(l, node));
	else
		ptw_out_text(out, "null");
	ptw_out_printf(out, ",\"culprit_extra_ns\":%" PRIu64, culprit_extra(pair));
	if (culprit->phase) {
		ptw_out_text(out, ",\"phase\":");
		ptw_out_json_string(out, l->names.name[culprit->phase].text);
		ptw_out_printf(out, ",\"phase_extra_ns\":%" PRIu64, culprit->phase_extra);
	}
	ptw_out_text(out, ",\"spread\":[");
	for (i = 0; i < culprit->spread_count; i++) {
		ptw_out_text(out, i ? ",{\"function\":" : "{\"function\":");
		ptw_out_json_string(out, node_name(l, &pair->path.node[culprit->spread[i]]));
		ptw_out_printf(out, ",\"extra_ns\":%" PRIu64 "}", culprit->spread_extra[i]);
	}
	ptw_out_text(out, "],\"path\":[");
	for (i = 0; i < culprit->depth; i++) {
		if (i)
			ptw_out_text(out, ",");
		ptw_out_json_string(out, node_name(l, &pair->path.node[culprit->chain[i]]));
	}
	ptw_out_text(out, "]");
}

static void json_pair(const struct ptw_latency *l, struct ptw_out *out, size_t number)
{
	const struct ptw_latency_pair *pair = l->worst[number];
	struct only *only;
	bool scaled;
	size_t count, i;

	ptw_out_printf(out, "{\"type\":\"pair\",\"rank\":%zu,\"duration_ns\":%" PRIu64 ",\"time_ns\":%" PRIu64, number + 1,
		       pair->duration, pair->start);
	if (pair->cpu >= 0)
		ptw_out_printf(out, ",\"cpu\":%d,\"end_cpu\":%d", pair->cpu, pair->end_cpu);
	if (pair->tid >= 0) {
		ptw_out_printf(out, ",\"pid\":%d,\"tid\":%d,\"end_tid\":%d,\"comm\":", pair->pid, pair->tid, pair->end_tid);
		ptw_out_json_string(out, pair->comm);
	}
	if (pair->has_id) {
		ptw_out_text(out, ",");
		ptw_out_json_string(out, l->options.format.field[l->options.by].name);
		ptw_out_printf(out, ":\"0x%" PRIx64 "\"", pair->id);
	}
	ptw_out_text(out, ",");
	json_spent(out, &pair->path, 1);
	ptw_out_printf(out, ",\"interrupt_usual_ns\":%" PRIu64, usual_interrupts(l, pair, &scaled));
	ptw_out_printf(out, ",\"interrupt_usual_scaled\":%s", scaled ? "true" : "false");
	ptw_out_printf(out, ",\"gap\":%s", pair->path.gap ? "true" : "false");
	json_culprit(l, out, pair);
	count = rare_functions(l, pair, &only);
	ptw_out_text(out, ",\"only_here\":[");
	for (i = 0; i < count; i++) {
		ptw_out_text(out, i ? ",{\"function\":" : "{\"function\":");
		ptw_out_json_string(out, l->names.name[only[i].name].text);
		ptw_out_printf(out, ",\"total_ns\":%" PRIu64 "}", only[i].total);
	}
	ptw_out_text(out, "]}\n");
	free(only);
}

void ptw_latency_write_json(const struct ptw_latency *l, struct ptw_out *out)
{
	struct ptw_latency_bucket bucket[BUCKETS];
	size_t count = ptw_latency_buckets(l, bucket, BUCKETS), i;

	json_summary(l, out);
	for (i = 0; i < count; i++)
		ptw_out_printf(out, "{\"type\":\"bucket\",\"low_ns\":%" PRIu64 ",\"high_ns\":%" PRIu64 ",\"count\":%" PRIu64 "}\n",
			       bucket[i].low, bucket[i].high, bucket[i].count);
	for (i = 0; i < l->worst_count; i++)
		json_pair(l, out, i);
}
