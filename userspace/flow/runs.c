// SPDX-License-Identifier: BSD-2-Clause
#include "flow/runs.h"

/*
 * A switch is told twice: by the old thread before its stack is left, by the new one after. Times in a trace
 * may be behind (by the distance of timing packets), never ahead but for the error of an estimate.
 */
#define AHEAD_NS	1000
/* So far timing packets are apart, where there are all kinds of them */
#define NEAR_NS		20000
/* At the switch itself: how far behind the trace's time may be. And how long after its record a switch may come. */
#define BEHIND_NS	1000000

/* So many records are passed one by one. */
#define FAR		32

static const struct ptw_side_event *event_at(const struct flow_runs *r, size_t i)
{
	return i < r->count ? &r->side[r->at[i]] : NULL;
}

static bool is_ahead(const struct ptw_side_event *e, uint64_t time)
{
	return e->time + AHEAD_NS >= time;
}

static void take(struct flow_runs *r, const struct ptw_side_event *e)
{
	r->pid = e->other_pid;
	r->tid = e->other_tid;
	r->preempted = e->preempted;
	r->next++;
}

/* The next departure behind @r->next + @skip; NULL: none */
static const struct ptw_side_event *next_out(const struct flow_runs *r, size_t skip)
{
	const struct ptw_side_event *e;

	while ((e = event_at(r, r->next + skip)) && !e->out)
		skip++;
	return e;
}

/*
 * Is the next switch, whose record lies back, still to be seen? While its code is in the trace, a departure means
 * nothing yet, unless somebody arrived since or another one left. Some tell of the arrival with the departure, as soon
 * as a switch is decided on, and some never.
 */
static bool is_under_way(const struct flow_runs *r, uint64_t time)
{
	const struct ptw_side_event *e = event_at(r, r->next), *after = event_at(r, r->next + 1), *out;

	/* Seen before its record's time came */
	if (!e->out || r->early)
		return false;
	out = next_out(r, 1);
	if (out && !is_ahead(out, time))
		return false;
	return after && after->time > e->time ? is_ahead(after, time) : time - e->time < BEHIND_NS;
}

/*
 * Past what lies far back, of which nothing depends on more than the last two departures: a job that begins in the middle
 * of a trace has all before it to pass.
 */
static void skip_far(struct flow_runs *r, uint64_t time)
{
	size_t low = r->next + FAR, high = r->count;

	if (high <= low || is_ahead(event_at(r, low), time))
		return;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (is_ahead(event_at(r, mid), time))
			high = mid;
		else
			low = mid + 1;
	}
	for (unsigned int outs = 0; low > r->next && outs < 3; low--)
		outs += event_at(r, low - 1)->out;
	r->next = low;
}

bool flow_runs_until(struct flow_runs *r, uint64_t time, bool settled)
{
	const struct ptw_side_event *e, *after;
	bool passed = false;

	if (settled || !r->seen)
		skip_far(r, time);
	while ((e = event_at(r, r->next)) && !is_ahead(e, time)) {
		after = event_at(r, r->next + 1);
		if (r->seen && !settled && is_under_way(r, time))
			break;
		take(r, e);
		passed = true;
		if (e->out) {
			r->unseen = !r->early;
			r->since = e->time;
			r->early = false;
		}
		/* Records get lost: who leaves next has arrived, whatever the last one that we have said. */
		if (after && after->out && after->tid >= 0 && after->tid != e->other_tid && is_ahead(after, time)) {
			r->pid = after->pid;
			r->tid = after->tid;
			r->preempted = false;
		}
	}
	if (settled && r->pid > 0)
		r->home = r->pid;
	return passed;
}

/*
 * Where tracing began meanwhile, what was decided on before is no switch that can be seen, if another one is at hand: one to
 * the process that is traced, when it is known, else the first that is not over yet. @e is the next departure.
 */
static const struct ptw_side_event *begun_by(const struct flow_runs *r, const struct ptw_side_event *e, uint64_t time)
{
	const struct ptw_side_event *after;

	for (size_t i = r->next; (after = event_at(r, i)) && after->time <= time + NEAR_NS; i++) {
		if (!after->out)
			continue;
		if (!is_ahead(e, time))
			e = after;
		if (r->home && after->other_pid == r->home)
			return after;
	}
	return e;
}

bool flow_runs_switch(struct flow_runs *r, bool timed, uint64_t time)
{
	const struct ptw_side_event *e, *after;

	r->seen = true;
	if (timed)
		flow_runs_until(r, time, false);
	/* Arrivals of switches that are done */
	while ((e = event_at(r, r->next)) && !e->out)
		r->next++;
	/* One that was decided on long ago was not in the trace, if another one is at hand. */
	after = timed && !r->begun && e && e->time < time ? next_out(r, 1) : NULL;
	if (after && (after->time <= time || after->time - time < (time - e->time) / 4))
		e = after;
	if (timed && r->begun && e)
		e = begun_by(r, e, time);
	while (event_at(r, r->next) != e)
		r->next++;
	r->begun = false;
	/* It is the one that time told of, however long ago (the CPU may have been away), unless the next one is at hand. */
	if (timed && r->unseen && (!e || (e->time > time + NEAR_NS && e->time - time > (time - r->since) / 64))) {
		r->unseen = false;
		return true;
	}
	r->early = timed && e && e->time > time + BEHIND_NS;
	if (!e || r->early)
		return false;
	r->unseen = false;
	take(r, e);
	return true;
}
