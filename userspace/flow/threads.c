// SPDX-License-Identifier: BSD-2-Clause
#include "flow/threads.h"

#include <stdlib.h>
#include <string.h>

/*
 * A switch is told twice: by the old thread before its stack is left, by the new one after. Times in a trace
 * may be behind (by the distance of timing packets), never ahead but for the error of an estimate.
 */
#define AHEAD_NS	1000
/* At the switch itself: how far behind the trace's time may be. */
#define BEHIND_NS	1000000

static uint32_t hash(int32_t tid, int32_t cpu)
{
	return ((uint32_t)tid * 31 + (uint32_t)cpu) * 2654435761u;
}

static int grow_slots(struct flow_threads *t)
{
	uint32_t slots = t->slots ? 2 * t->slots : 256, *slot = calloc(slots, sizeof(*slot));

	if (!slot)
		return -1;
	for (uint32_t i = 0; i < t->count; i++) {
		uint32_t h = hash(t->thread[i]->tid, t->thread[i]->cpu) >> 8;

		while (slot[h &= slots - 1])
			h++;
		slot[h] = i + 1;
	}
	free(t->slot);
	t->slot = slot;
	t->slots = slots;
	return 0;
}

uint32_t flow_thread_find(struct flow_threads *t, int32_t pid, int32_t tid, int32_t cpu)
{
	struct ptw_thread **grown;
	uint32_t h;

	if (tid > 0)
		cpu = -1;
	if (2 * t->count >= t->slots && grow_slots(t))
		return UINT32_MAX;
	for (h = hash(tid, cpu) >> 8; t->slot[h &= t->slots - 1]; h++) {
		struct ptw_thread *have = t->thread[t->slot[h] - 1];

		if (have->tid == tid && have->cpu == cpu) {
			if (have->pid < 0)
				have->pid = pid;
			return t->slot[h] - 1;
		}
	}
	grown = t->count & (t->count - 1) ? t->thread :
		reallocarray(t->thread, t->count ? 2 * t->count : 1, sizeof(*grown));
	if (!grown)
		return UINT32_MAX;
	t->thread = grown;
	grown[t->count] = malloc(sizeof(**grown));
	if (!grown[t->count])
		return UINT32_MAX;
	*grown[t->count] = (struct ptw_thread){ .pid = pid, .tid = tid, .cpu = cpu };
	t->slot[h] = ++t->count;
	return t->count - 1;
}

void flow_threads_free(struct flow_threads *t)
{
	for (uint32_t i = 0; i < t->count; i++)
		free(t->thread[i]);
	free(t->thread);
	free(t->slot);
}

/* ---- one trace ---- */

static bool concerns(const struct ptw_side_event *e, const struct ptw_recorded_trace *trace)
{
	if (e->type != PTW_SIDE_SWITCH)
		return false;
	return trace->cpu >= 0 ? e->cpu == trace->cpu : e->tid == trace->tid;
}

/* Who ran when the trace began */
static int first_thread(struct flow_labels *l, const struct ptw_recording *rec,
			const struct ptw_recorded_trace *trace)
{
	int32_t pid = -1, tid = trace->tid, cpu = trace->cpu;

	for (size_t i = 0; i < rec->side_count && tid < 0; i++) {
		const struct ptw_side_event *e = &rec->side[i];

		if (cpu < 0 || e->cpu != cpu)
			continue;
		if (e->type == PTW_SIDE_START || (e->type == PTW_SIDE_SWITCH && (e->out || e->pid != e->other_pid ||
										 e->tid != e->other_tid))) {
			pid = e->pid;
			tid = e->tid;
			break;
		}
	}
	l->thread = flow_thread_find(l->threads, pid, tid, cpu);
	return l->thread == UINT32_MAX ? -1 : 0;
}

int flow_labels_init(struct flow_labels *l, struct flow_threads *threads, const struct ptw_recording *rec,
		     const struct ptw_recorded_trace *trace)
{
	*l = (struct flow_labels){ .threads = threads, .side = rec->side };
	for (size_t i = 0; i < rec->side_count; i++) {
		uint32_t *grown;

		if (!concerns(&rec->side[i], trace))
			continue;
		grown = l->count & (l->count - 1) ? l->at :
			reallocarray(l->at, l->count ? 2 * l->count : 1, sizeof(*grown));
		if (!grown)
			return -1;
		l->at = grown;
		l->at[l->count++] = i;
	}
	if (rec->symbols && ptw_symbols_resolve(rec->symbols, "__switch_to_asm", &l->switch_to, NULL, NULL))
		l->switch_to = 0;
	return first_thread(l, rec, trace);
}

void flow_labels_free(struct flow_labels *l)
{
	free(l->at);
}

/* A thread runs now. Return: whether that is news. */
static bool change_to(struct flow_labels *l, int32_t pid, int32_t tid, bool preempted,
		      const struct ptw_flow *flow, struct ptw_flow *sw)
{
	uint32_t thread = flow_thread_find(l->threads, pid, tid, flow->cpu);

	if (thread == UINT32_MAX) {
		l->failed = true;
		return false;
	}
	if (thread == l->thread)
		return false;
	*sw = (struct ptw_flow){
		.kind = PTW_FLOW_SWITCH,
		.flags = (flow->flags & PTW_FLOW_TIMED) | (preempted ? PTW_FLOW_PREEMPTED : 0),
		.cpu = flow->cpu, .trace = flow->trace, .thread = thread,
		.time = flow->time, .insns = flow->insns, .value = l->thread,
	};
	l->thread = thread;
	return true;
}

static bool change(struct flow_labels *l, const struct ptw_side_event *e, const struct ptw_flow *flow,
		   struct ptw_flow *sw)
{
	return change_to(l, e->other_pid, e->other_tid, e->preempted, flow, sw);
}

/*
 * What time alone tells: a switch whose arrival lies back was missed, or its code is not in the trace. While
 * that code is, a departure alone means nothing yet.
 */
bool flow_labels_before(struct flow_labels *l, struct ptw_flow *flow, struct ptw_flow *sw)
{
	bool changed = false;

	while (l->next < l->count && flow->flags & PTW_FLOW_TIMED) {
		const struct ptw_side_event *e = &l->side[l->at[l->next]];

		if (e->time + AHEAD_NS >= flow->time || (l->kernel && e->out && l->next + 1 < l->count &&
							 l->side[l->at[l->next + 1]].time + AHEAD_NS >= flow->time))
			break;
		changed |= change(l, e, flow, sw);
		l->next++;
		/* Records get lost: who leaves next has arrived, whatever the last one that we have said. */
		if (l->next < l->count) {
			const struct ptw_side_event *after = &l->side[l->at[l->next]];

			if (after->out && after->tid >= 0 && after->tid != e->other_tid &&
			    after->time + AHEAD_NS >= flow->time)
				changed |= change_to(l, after->pid, after->tid, false, flow, sw);
		}
	}
	flow->thread = l->thread;
	return changed;
}

bool flow_labels_after(struct flow_labels *l, const struct ptw_flow *flow, struct ptw_flow *sw)
{
	const struct ptw_side_event *e;

	if (!l->switch_to || flow->to != l->switch_to ||
	    (flow->kind != PTW_FLOW_CALL && flow->kind != PTW_FLOW_JUMP))
		return false;
	l->kernel = true;
	/* Arrivals of switches that are done */
	while (l->next < l->count && !l->side[l->at[l->next]].out)
		l->next++;
	if (l->next == l->count)
		return false;
	e = &l->side[l->at[l->next]];
	if (flow->flags & PTW_FLOW_TIMED && e->time > flow->time + BEHIND_NS)
		return false;
	l->next++;
	return change(l, e, flow, sw);
}
