// SPDX-License-Identifier: BSD-2-Clause
/* Puts the records of all traces into one order and says which thread each belongs to. */
#include "flow/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "flow/code.h"
#include "flow/jobs.h"
#include "flow/threads.h"

#define SLACK_NS	1000000	/* as in decode/clock.c */

struct lane {
	struct flow_labels labels;
	struct job_batch *batch;
	size_t at;
	bool ended;
	bool before_done;	/* the record at @at has been looked at for switches before it */
	bool have_sw;		/* @sw is to come next */
	struct ptw_flow sw;
	uint64_t time;		/* of the newest record */
};

/* Looking up what is at an address costs more than all else that a report does with most branches. */
#define PLACES		2048

struct known_place {
	uint64_t addr, state;
	struct code_space *space;
	struct ptw_place place;
	bool known;
};

struct ptw_stream {
	struct ptw_recording own;	/* a copy: who opens may have put it together on the stack */
	const struct ptw_recording *rec;
	struct ptw_stream_options options;
	struct flow_threads threads;
	struct ptw_code *code;
	struct jobs *jobs;
	struct lane *lane;
	size_t *trace;		/* of each lane */
	size_t lanes;
	size_t current;		/* lane to go on with as long as its times are not above @limit */
	uint64_t limit;
	uint64_t told;		/* bytes, to on_progress() */
	bool chosen;
	bool failed;
	size_t passed;		/* of the recording's events: up to the time of the last switch */
	struct ptw_trace_totals none;
	/* Where a process's code was found last */
	bool have_space;
	int32_t space_pid;
	uint64_t space_since, space_until;
	struct code_space *space;
	struct known_place place[PLACES];
};

/* The thread of that number, made if needed. Return: NULL: out of memory. */
static struct flow_thread *thread_of(struct ptw_stream *s, int32_t pid, int32_t tid)
{
	uint32_t index = flow_thread_find(&s->threads, pid, tid, -1);

	return index == UINT32_MAX ? NULL : s->threads.thread[index];
}

static void take_name(struct flow_thread *thread, const struct ptw_side_event *e)
{
	struct ptw_side_detail detail;

	ptw_side_detail(e, &detail);
	ptw_printable(detail.name, thread->public.comm, sizeof(thread->public.comm));
	/*
	 * When another thread than the first one of a process runs a program, it gets the number of the first, which exits, and
	 * goes on with that: then an exit is no end.
	 */
	if (e->exec) {
		thread->lives_on |= thread->gone;
		thread->gone = false;
	}
}

/* Who is made has the name of who made it, until told otherwise. Of those that ran already, what follows tells the name. */
static int inherit_name(struct ptw_stream *s, struct flow_thread *child, const struct ptw_side_event *e)
{
	const struct flow_thread *parent;

	child->gone = false;
	if (e->exec || e->other_tid <= 0)
		return 0;
	parent = thread_of(s, e->other_pid, e->other_tid);
	if (!parent)
		return -1;
	memcpy(child->public.comm, parent->public.comm, sizeof(child->public.comm));
	return 0;
}

/* The last name of each thread, and whether it ends when it exits */
static void learn_threads(struct ptw_stream *s)
{
	for (size_t i = 0; i < s->rec->side_count; i++) {
		const struct ptw_side_event *e = &s->rec->side[i];
		struct flow_thread *thread;

		ptw_recording_passed(s->rec, i);
		if (!(i & 0xffff))
			ptw_room_drop(&s->threads.room);
		if ((e->type != PTW_SIDE_COMM && e->type != PTW_SIDE_FORK && e->type != PTW_SIDE_EXIT) || e->tid <= 0)
			continue;
		thread = thread_of(s, e->pid, e->tid);
		if (!thread)
			return;
		if (e->type == PTW_SIDE_COMM)
			take_name(thread, e);
		else if (e->type == PTW_SIDE_EXIT)
			thread->gone = true;
		else if (inherit_name(s, thread, e))
			return;
	}
}

static enum sink_mode mode_of(unsigned int flags)
{
	return flags & PTW_STREAM_IPS	     ? SINK_IPS :
	       flags & PTW_STREAM_TOTALS     ? SINK_TOTALS :
	       flags & PTW_STREAM_INSNS	     ? SINK_INSNS :
	       flags & PTW_STREAM_RUNS	     ? SINK_RUNS :
	       flags & PTW_STREAM_ALL_JUMPS ? SINK_ALL :
					       SINK_FLOW;
}

static struct jobs *open_jobs(struct ptw_stream *s, struct ptw_error *err)
{
	const struct ptw_stream_options *options = &s->options;
	struct jobs_trace *trace = calloc(s->lanes ? s->lanes : 1, sizeof(*trace));
	struct jobs *jobs;

	if (!trace) {
		ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
		return NULL;
	}
	for (size_t i = 0; i < s->lanes; i++)
		trace[i] = (struct jobs_trace){ s->trace[i], &s->lane[i].labels };
	jobs = jobs_new(s->rec, s->code, trace, s->lanes, mode_of(options->flags), options->flags & PTW_STREAM_REFERENCE,
			options->threads, err);
	free(trace);
	return jobs;
}

struct ptw_stream *ptw_stream_open(const struct ptw_recording *recording, const struct ptw_stream_options *options,
				   struct ptw_error *err)
{
	struct ptw_stream *s = calloc(1, sizeof(*s));
	size_t count = options->trace ? options->traces : recording->trace_count;
	int why;

	errno = 0;
	if (!s)
		goto no_memory;
	s->own = *recording;
	s->rec = recording = &s->own;
	s->options = *options;
	s->threads.room.limit = FLOW_THREADS_LIMIT;
	s->lane = calloc(count ? count : 1, sizeof(*s->lane));
	s->trace = calloc(count ? count : 1, sizeof(*s->trace));
	s->code = code_new(recording);
	if (!s->lane || !s->trace || !s->code)
		goto no_memory;
	if (options->flags & PTW_STREAM_ALL_CODE && code_unreadable(s->code)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "image %s: cannot be read", code_unreadable(s->code));
		ptw_stream_close(s);
		return NULL;
	}
	for (s->lanes = 0; s->lanes < count; s->lanes++) {
		size_t trace = options->trace ? options->trace[s->lanes] : s->lanes;

		s->trace[s->lanes] = trace;
		if (flow_labels_init(&s->lane[s->lanes].labels, &s->threads, recording, &recording->trace[trace],
				     options->flags & PTW_STREAM_SWITCHES))
			goto no_memory;
	}
	learn_threads(s);
	ptw_recording_side_drop(recording);
	ptw_recording_records_drop(recording);
	s->jobs = open_jobs(s, err);
	if (!s->jobs) {
		ptw_stream_close(s);
		return NULL;
	}
	return s;
no_memory:
	why = errno;
	ptw_stream_close(s);
	if (why == ENOMEM || !why)
		ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
	else
		ptw_error_set(err, PTW_EXIT_FAILED, "what it tells of processes: %s; so much of it needs room in $TMPDIR, or /var/tmp",
			      strerror(why));
	return NULL;
}

void ptw_stream_close(struct ptw_stream *s)
{
	if (!s)
		return;
	for (size_t i = 0; s->jobs && i < s->lanes; i++)
		jobs_done(s->jobs, s->lane[i].batch);
	/* Who decodes looks at the labels' switches. */
	jobs_free(s->jobs);
	for (size_t i = 0; i < s->lanes; i++)
		flow_labels_free(&s->lane[i].labels);
	code_free(s->code);
	free(s->lane);
	free(s->trace);
	flow_threads_free(&s->threads);
	free(s);
}

static void tell_progress(struct ptw_stream *s)
{
	uint64_t done, size = 0;

	if (!s->options.on_progress)
		return;
	done = jobs_bytes(s->jobs);
	if (done == s->told)
		return;
	s->told = done;
	for (size_t i = 0; i < s->lanes; i++)
		size += s->rec->trace[s->trace[i]].size;
	s->options.on_progress(s->options.context, done, size);
}

/* Times of a trace don't run backwards, even where one job's estimate was ahead of what the next begins with. */
static void settle_batch(struct lane *l)
{
	for (size_t i = 0; i < l->batch->count; i++) {
		struct ptw_flow *f = &l->batch->flow[i];

		f->insns += l->batch->insns;
		if (f->kind == PTW_FLOW_RUN && l->batch->text) {
			f->code = (const uint8_t *)l->batch->text + f->offset;
			f->offset = 0;
		}
		if (f->time < l->time && (!(f->flags & PTW_FLOW_TIMED) || l->time - f->time < SLACK_NS))
			f->time = l->time;
		else
			l->time = f->time;
	}
}

/* Behind the end of a CPU's trace. What comes behind an alarm is of no interest: it froze the trace. */
static struct ptw_flow *trailing(struct ptw_stream *s, struct lane *l)
{
	if (s->rec->alarm_count)
		return NULL;
	while (!l->have_sw && flow_labels_trailing(&l->labels))
		l->have_sw = flow_labels_next(&l->labels, &l->sw);
	return l->have_sw ? &l->sw : NULL;
}

/* The record that is next on the lane; NULL: none any more */
static struct ptw_flow *head(struct ptw_stream *s, struct lane *l)
{
	struct ptw_flow *flow;

	if (l->ended)
		return trailing(s, l);
	if (l->have_sw)
		return &l->sw;
	l->have_sw = flow_labels_next(&l->labels, &l->sw);
	if (l->have_sw)
		return &l->sw;
	while (!l->ended && (!l->batch || l->at == l->batch->count)) {
		jobs_done(s->jobs, l->batch);
		l->at = 0;
		l->batch = jobs_next(s->jobs, l - s->lane);
		if (l->batch)
			settle_batch(l);
		else
			l->ended = true;
		tell_progress(s);
	}
	if (l->ended)
		return trailing(s, l);
	flow = &l->batch->flow[l->at];
	if (!l->before_done) {
		l->before_done = true;
		flow_labels_before(&l->labels, flow);
		l->have_sw = flow_labels_next(&l->labels, &l->sw);
	}
	return l->have_sw ? &l->sw : flow;
}

/* The lane whose record comes next; it goes on with that lane up to @s->limit. NULL: the end. */
static struct lane *choose(struct ptw_stream *s)
{
	uint64_t best = UINT64_MAX;
	bool found = false;

	if (s->chosen) {
		struct ptw_flow *flow = head(s, &s->lane[s->current]);

		if (flow && flow->time <= s->limit)
			return &s->lane[s->current];
	}
	s->limit = UINT64_MAX;
	for (size_t i = 0; i < s->lanes; i++) {
		struct ptw_flow *flow = head(s, &s->lane[i]);

		if (!flow)
			continue;
		if (s->options.order == PTW_ORDER_TRACE) {
			found = true;
			s->current = i;
			break;
		}
		if (!found || flow->time < best) {
			if (found)
				s->limit = best;
			best = flow->time;
			s->current = i;
			found = true;
		} else if (flow->time < s->limit) {
			s->limit = flow->time;
		}
	}
	s->chosen = found;
	return found ? &s->lane[s->current] : NULL;
}

/* Who has exited up to @time */
static void note_exits(struct ptw_stream *s, uint64_t time)
{
	for (; s->passed < s->rec->side_count && s->rec->side[s->passed].time <= time; s->passed++) {
		const struct ptw_side_event *e = &s->rec->side[s->passed];
		struct flow_thread *thread;

		ptw_recording_passed(s->rec, s->passed);
		if (!(s->passed & 0xfff))
			ptw_room_drop(&s->threads.room);
		if ((e->type != PTW_SIDE_EXIT && e->type != PTW_SIDE_FORK) || e->tid <= 0)
			continue;
		thread = thread_of(s, e->pid, e->tid);
		if (thread)
			thread->exited = e->type == PTW_SIDE_EXIT && !thread->lives_on;
		else
			s->failed = true;
	}
}

/* The switch that ends a thread: the first one behind its exit at which it does not want to run on. */
static const struct ptw_flow *ended_by(struct ptw_stream *s, struct ptw_flow *sw)
{
	struct flow_thread *old = s->threads.thread[sw->value];

	if (s->options.order != PTW_ORDER_TIME || !(sw->flags & PTW_FLOW_TIMED))
		return sw;
	note_exits(s, sw->time);
	if (!old->exited || sw->flags & PTW_FLOW_PREEMPTED)
		return sw;
	old->exited = false;
	sw->flags |= PTW_FLOW_EXITED;
	return sw;
}

const struct ptw_flow *ptw_stream_next(struct ptw_stream *s)
{
	struct lane *l = choose(s);
	struct ptw_flow *flow;

	if (!l) {
		s->failed |= jobs_failed(s->jobs);
		return NULL;
	}
	s->failed |= l->labels.failed;
	if (l->have_sw) {
		l->have_sw = false;
		return ended_by(s, &l->sw);
	}
	flow = &l->batch->flow[l->at++];
	flow->thread = l->labels.thread;
	l->before_done = false;
	flow_labels_after(&l->labels, flow);
	return flow;
}

bool ptw_stream_ips(struct ptw_stream *s, const char **text, size_t *size, const struct ptw_flow **flow,
		    size_t *count)
{
	for (; s->current < s->lanes; s->current++) {
		struct lane *l = &s->lane[s->current];

		jobs_done(s->jobs, l->batch);
		l->batch = jobs_next(s->jobs, s->current);
		tell_progress(s);
		if (!l->batch)
			continue;
		settle_batch(l);
		*text = l->batch->text;
		*size = l->batch->text_size;
		*flow = l->batch->flow;
		*count = l->batch->count;
		return true;
	}
	s->failed |= jobs_failed(s->jobs);
	return false;
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
	return &s->threads.thread[index]->public;
}

static struct code_space *space_at(struct ptw_stream *s, int32_t pid, uint64_t time)
{
	if (s->have_space && pid == s->space_pid && time >= s->space_since && time < s->space_until)
		return s->space;
	s->space = code_space_at(s->code, pid, time);
	s->space_pid = pid;
	s->have_space = true;
	s->space_since = 0;
	s->space_until = UINT64_MAX;
	if (s->space)
		code_space_span(s->space, &s->space_since, &s->space_until);
	return s->space;
}

bool ptw_stream_place(struct ptw_stream *s, const struct ptw_flow *flow, uint64_t addr,
		      struct ptw_place *place)
{
	uint64_t time = flow->flags & PTW_FLOW_TIMED ? flow->time : UINT64_MAX;
	struct code_space *space = NULL;
	struct known_place *known;
	uint64_t state;

	if (!(addr & CODE_KERNEL_HALF))
		space = space_at(s, s->threads.thread[flow->thread]->public.pid, time);
	state = code_state(s->code, space, time);
	known = &s->place[(addr ^ (uintptr_t)space >> 4) * 0x9e3779b97f4a7c15ULL >> 53];
	if (!known->known || known->addr != addr || known->space != space || known->state != state) {
		*known = (struct known_place){ .addr = addr, .space = space, .state = state, .known = true };
		code_place(s->code, space, time, addr, &known->place);
	}
	*place = known->place;
	return place->symbol;
}

const struct ptw_trace_totals *ptw_stream_totals(const struct ptw_stream *s, size_t trace)
{
	for (size_t i = 0; i < s->lanes; i++)
		if (s->trace[i] == trace)
			return jobs_totals(s->jobs, i);
	return &s->none;
}
