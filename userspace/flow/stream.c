// SPDX-License-Identifier: BSD-2-Clause
/* Puts the records of all traces into one order and says which thread each belongs to. */
#include "flow/stream.h"

#include <stdlib.h>
#include <string.h>

#include "flow/source.h"
#include "flow/threads.h"

#define BATCH	512

struct lane {
	struct flow_source *source;
	struct flow_labels labels;
	size_t trace;
	size_t at, count;
	bool ended;
	bool before_done;	/* the record at @at has been looked at for a switch before it */
	bool have_after;	/* @sw is to come next */
	struct ptw_flow sw;
	struct ptw_flow batch[BATCH];
};

struct ptw_stream {
	struct ptw_recording *rec;
	struct ptw_stream_options options;
	struct flow_threads threads;
	struct lane **lane;
	size_t lanes;
	size_t current;		/* the lane whose record was returned last */
	bool failed;
	struct ptw_trace_totals none;
	struct ptw_trace_totals *totals;
};

static int add_lane(struct ptw_stream *s, size_t trace, struct ptw_error *err)
{
	struct lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
	s->lane[s->lanes++] = lane;
	lane->trace = trace;
	if (flow_labels_init(&lane->labels, &s->threads, s->rec, &s->rec->trace[trace]))
		return ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
	lane->source = flow_source_new(s->rec, trace, s->options.flags, err);
	return lane->source ? 0 : -1;
}

/* The last name of each thread */
static void name_threads(struct ptw_stream *s)
{
	for (size_t i = 0; i < s->rec->side_count; i++) {
		const struct ptw_side_event *e = &s->rec->side[i];
		struct ptw_side_detail detail;
		uint32_t index;

		if (e->type != PTW_SIDE_COMM || e->tid <= 0)
			continue;
		index = flow_thread_find(&s->threads, e->pid, e->tid, -1);
		if (index == UINT32_MAX)
			return;
		ptw_side_detail(e, &detail);
		snprintf(s->threads.thread[index]->comm, sizeof(s->threads.thread[index]->comm), "%.15s",
			 detail.name);
	}
}

struct ptw_stream *ptw_stream_open(struct ptw_recording *recording, const struct ptw_stream_options *options,
				   struct ptw_error *err)
{
	struct ptw_stream *s = calloc(1, sizeof(*s));
	size_t count = options->trace ? options->traces : recording->trace_count;

	if (!s)
		goto no_memory;
	s->rec = recording;
	s->options = *options;
	s->lane = calloc(count ? count : 1, sizeof(struct lane *));
	s->totals = calloc(recording->trace_count + 1, sizeof(*s->totals));
	if (!s->lane || !s->totals)
		goto no_memory;
	for (size_t i = 0; i < count; i++) {
		if (add_lane(s, options->trace ? options->trace[i] : i, err)) {
			ptw_stream_close(s);
			return NULL;
		}
	}
	name_threads(s);
	return s;
no_memory:
	ptw_stream_close(s);
	ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
	return NULL;
}

void ptw_stream_close(struct ptw_stream *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->lanes; i++) {
		flow_source_free(s->lane[i]->source);
		flow_labels_free(&s->lane[i]->labels);
		free(s->lane[i]);
	}
	free(s->lane);
	free(s->totals);
	flow_threads_free(&s->threads);
	free(s);
}

/* The record that is next on the lane; NULL: none any more */
static struct ptw_flow *head(struct lane *l)
{
	if (l->have_after)
		return &l->sw;
	if (l->at == l->count && !l->ended) {
		l->at = 0;
		l->count = flow_source_fill(l->source, l->batch, BATCH);
		l->ended = !l->count;
	}
	return l->at < l->count ? &l->batch[l->at] : NULL;
}

static struct lane *choose(struct ptw_stream *s)
{
	struct lane *best = NULL;
	uint64_t time = 0;

	for (size_t i = 0; i < s->lanes; i++) {
		struct ptw_flow *flow = head(s->lane[i]);

		if (!flow)
			continue;
		if (s->options.order == PTW_ORDER_TRACE)
			return s->lane[i];
		if (!best || flow->time < time) {
			best = s->lane[i];
			time = flow->time;
		}
	}
	return best;
}

const struct ptw_flow *ptw_stream_next(struct ptw_stream *s)
{
	struct lane *l = choose(s);
	struct ptw_flow *flow;

	if (!l)
		return NULL;
	if (l->have_after) {
		l->have_after = false;
		return &l->sw;
	}
	flow = &l->batch[l->at];
	if (!l->before_done && flow_labels_before(&l->labels, flow, &l->sw)) {
		l->before_done = true;
		return &l->sw;
	}
	l->before_done = false;
	l->at++;
	l->have_after = flow_labels_after(&l->labels, flow, &l->sw);
	s->failed |= l->labels.failed;
	return flow;
}

bool ptw_stream_failed(const struct ptw_stream *s, struct ptw_error *err)
{
	if (s->failed)
		ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
	return s->failed;
}

uint32_t ptw_stream_threads(const struct ptw_stream *s)
{
	return s->threads.count;
}

const struct ptw_thread *ptw_stream_thread(const struct ptw_stream *s, uint32_t index)
{
	return s->threads.thread[index];
}

bool ptw_stream_place(struct ptw_stream *s, const struct ptw_flow *flow, uint64_t addr,
		      struct ptw_place *place)
{
	const struct ptw_symbol *symbol = s->rec->symbols ? ptw_symbols_at(s->rec->symbols, addr) : NULL;

	*place = (struct ptw_place){ .symbol = symbol };
	if (!symbol)
		return false;
	place->start = symbol->addr;
	place->object = symbol->module;
	return true;
}

char *ptw_stream_symbol(struct ptw_stream *s, const struct ptw_flow *flow, uint64_t addr, char *buf, size_t size)
{
	struct ptw_place place;

	if (!ptw_stream_place(s, flow, addr, &place))
		snprintf(buf, size, "0x%016llx", (unsigned long long)addr);
	else
		snprintf(buf, size, place.object ? "%s+0x%llx [%s]" : "%s+0x%llx", place.symbol->name,
			 (unsigned long long)(addr - place.start), place.object);
	return buf;
}

const struct ptw_trace_totals *ptw_stream_totals(const struct ptw_stream *s, size_t trace)
{
	for (size_t i = 0; i < s->lanes; i++)
		if (s->lane[i]->trace == trace)
			flow_source_totals(s->lane[i]->source, &s->totals[trace]);
	return &s->totals[trace];
}
