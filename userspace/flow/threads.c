// SPDX-License-Identifier: BSD-2-Clause
#include "flow/threads.h"

#include <stdlib.h>
#include <string.h>

#include "flow/code.h"

static uint32_t hash(int32_t tid, int32_t cpu)
{
	return ((uint32_t)tid * 31 + (uint32_t)cpu) * 2654435761u;
}

static int grow_slots(struct flow_threads *t)
{
	uint32_t slots = t->slots ? 2 * t->slots : 256, *slot = ptw_room_alloc(&t->room, slots * sizeof(*slot));

	if (!slot)
		return -1;
	for (uint32_t i = 0; i < t->count; i++) {
		uint32_t h = hash(t->thread[i]->public.tid, t->thread[i]->public.cpu) >> 8;

		while (slot[h &= slots - 1])
			h++;
		slot[h] = i + 1;
	}
	ptw_room_give_back(&t->room, t->slot, t->slots * sizeof(*slot));
	t->slot = slot;
	t->slots = slots;
	return 0;
}

uint32_t flow_thread_find(struct flow_threads *t, int32_t pid, int32_t tid, int32_t cpu)
{
	struct flow_thread **grown;
	uint32_t h;

	if (tid > 0)
		cpu = -1;
	if (2 * t->count >= t->slots && grow_slots(t))
		return UINT32_MAX;
	for (h = hash(tid, cpu) >> 8; t->slot[h &= t->slots - 1]; h++) {
		struct ptw_thread *have = &t->thread[t->slot[h] - 1]->public;

		if (have->tid == tid && have->cpu == cpu) {
			if (have->pid < 0)
				have->pid = pid;
			return t->slot[h] - 1;
		}
	}
	grown = ptw_room_grow(&t->room, t->thread, t->count, sizeof(*grown));
	if (!grown)
		return UINT32_MAX;
	t->thread = grown;
	grown[t->count] = ptw_room_alloc(&t->room, sizeof(**grown));
	if (!grown[t->count])
		return UINT32_MAX;
	grown[t->count]->public = (struct ptw_thread){ .pid = pid, .tid = tid, .cpu = cpu };
	t->slot[h] = ++t->count;
	return t->count - 1;
}

void flow_threads_free(struct flow_threads *t)
{
	ptw_room_free(&t->room);
}

/* ---- one trace ---- */

/* Bytes for the switches of a CPU that are kept in memory */
#define AT_LIMIT	(1u << 20)

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
	int32_t cpu = trace->cpu;

	l->runs.pid = -1;
	l->runs.tid = trace->tid;
	for (size_t i = 0; i < rec->side_count && l->runs.tid < 0; i++) {
		const struct ptw_side_event *e = &rec->side[i];

		ptw_recording_passed(rec, i);
		if (cpu < 0 || e->cpu != cpu)
			continue;
		if (e->type == PTW_SIDE_START || (e->type == PTW_SIDE_SWITCH && (e->out || e->pid != e->other_pid ||
										 e->tid != e->other_tid))) {
			l->runs.pid = e->pid;
			l->runs.tid = e->tid;
			break;
		}
	}
	l->thread = flow_thread_find(l->threads, l->runs.pid, l->runs.tid, cpu);
	return l->thread == UINT32_MAX ? -1 : 0;
}

int flow_labels_init(struct flow_labels *l, struct flow_threads *threads, const struct ptw_recording *rec,
		     const struct ptw_recorded_trace *trace, bool all)
{
	const uint32_t *at;

	*l = (struct flow_labels){ .threads = threads, .at = { .item = sizeof(*at), .limit = AT_LIMIT } };
	l->rec = rec;
	l->at_flow = (struct ptw_flow){ .cpu = trace->cpu, .trace = trace - rec->trace };
	for (size_t i = 0; i < rec->side_count; i++) {
		uint32_t index = i;

		ptw_recording_passed(rec, i);
		if (concerns(&rec->side[i], trace) && ptw_spool_add(&l->at, &index)) {
			flow_labels_free(l);
			return -1;
		}
	}
	at = ptw_spool_end(&l->at);
	if (!at && l->at.count) {
		flow_labels_free(l);
		return -1;
	}
	l->runs = (struct flow_runs){ .side = rec->side, .at = at, .count = l->at.count };
	if (rec->symbols && ptw_symbols_resolve(rec->symbols, "__switch_to_asm", &l->switch_to, NULL, NULL))
		l->switch_to = 0;
	if (first_thread(l, rec, trace))
		return -1;
	/* Records of a thread's own trace do not say who runs instead. */
	l->all = all && trace->cpu >= 0;
	if (l->all && l->at.count && rec->side[at[0]].out) {
		/* Whoever runs when the trace begins may have come by a switch that is recorded. */
		l->thread = flow_thread_find(threads, rec->side[at[0]].pid, rec->side[at[0]].tid, trace->cpu);
		return l->thread == UINT32_MAX ? -1 : 0;
	}
	return 0;
}

void flow_labels_free(struct flow_labels *l)
{
	ptw_spool_free(&l->at);
}

/* Tell who runs now. Return: whether that is news. */
static bool tell(struct flow_labels *l, int32_t pid, int32_t tid, bool preempted, uint64_t time, struct ptw_flow *sw)
{
	const struct ptw_flow *flow = &l->at_flow;
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
		.time = time, .insns = flow->insns, .value = l->thread,
	};
	l->time = time;
	l->thread = thread;
	return true;
}

/* When the switch of record @e was, which the trace does not show: between what it does show. */
static uint64_t time_of(const struct flow_labels *l, const struct ptw_side_event *e)
{
	uint64_t time = e->time < l->time ? l->time : e->time;

	return time < l->at_flow.time ? time : l->at_flow.time;
}

/* The next record that is to be told. All of them need not stay in memory. */
static const struct ptw_side_event *pass(struct flow_labels *l)
{
	const struct ptw_side_event *e = &l->runs.side[l->runs.at[l->told++]];

	if (l->all && !(l->told & 0xffff)) {
		ptw_recording_side_drop(l->rec);
		ptw_spool_drop(&l->at);
	}
	return e;
}

bool flow_labels_next(struct flow_labels *l, struct ptw_flow *sw)
{
	/* Of the last one the trace may know better. */
	while (l->told + 1 < l->runs.next) {
		const struct ptw_side_event *e = pass(l);

		if (l->all && tell(l, e->other_pid, e->other_tid, e->preempted, time_of(l, e), sw))
			return true;
	}
	if (!l->news)
		return false;
	l->news = false;
	if (l->told < l->runs.next) {
		uint64_t time = time_of(l, pass(l));

		return tell(l, l->runs.pid, l->runs.tid, l->runs.preempted, l->all && l->by_time ? time : l->at_flow.time, sw);
	}
	return tell(l, l->runs.pid, l->runs.tid, l->runs.preempted, l->at_flow.time, sw);
}

static bool is_switch(const struct flow_labels *l, const struct ptw_flow *flow)
{
	return l->switch_to && flow->to == l->switch_to && (flow->kind == PTW_FLOW_CALL || flow->kind == PTW_FLOW_JUMP);
}

void flow_labels_before(struct flow_labels *l, const struct ptw_flow *flow)
{
	bool user = flow->to && !(flow->to & CODE_KERNEL_HALF);

	if (flow->kind == PTW_FLOW_BEGIN)
		l->runs.begun = true;
	/* The call that switches is the old thread's, however late it comes. */
	if (!(flow->flags & PTW_FLOW_TIMED) || is_switch(l, flow) || !flow_runs_until(&l->runs, flow->time, user))
		return;
	l->at_flow = *flow;
	l->news = l->by_time = true;
}

void flow_labels_after(struct flow_labels *l, const struct ptw_flow *flow)
{
	if (flow->flags & PTW_FLOW_TIMED)
		l->time = flow->time;
	l->insns = flow->insns;
	if (!is_switch(l, flow) || !flow_runs_switch(&l->runs, flow->flags & PTW_FLOW_TIMED, flow->time))
		return;
	l->at_flow = *flow;
	l->news = true;
	l->by_time = false;
}

bool flow_labels_trailing(struct flow_labels *l)
{
	const struct ptw_side_event *e;

	if (!l->all || l->runs.next == l->runs.count)
		return false;
	e = &l->runs.side[l->runs.at[l->runs.next++]];
	l->runs.pid = e->other_pid;
	l->runs.tid = e->other_tid;
	l->runs.preempted = e->preempted;
	l->at_flow.flags = PTW_FLOW_TIMED;
	l->at_flow.time = e->time > l->time ? e->time : l->time;
	l->at_flow.insns = l->insns;
	l->news = l->by_time = true;
	return true;
}
