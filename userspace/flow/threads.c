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
		     const struct ptw_recorded_trace *trace)
{
	const uint32_t *at;

	*l = (struct flow_labels){ .threads = threads, .at = { .item = sizeof(*at), .limit = AT_LIMIT } };
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
	return first_thread(l, rec, trace);
}

void flow_labels_free(struct flow_labels *l)
{
	ptw_spool_free(&l->at);
}

/* Tell who runs now. Return: whether that is news. */
static bool tell(struct flow_labels *l, const struct ptw_flow *flow, struct ptw_flow *sw)
{
	uint32_t thread = flow_thread_find(l->threads, l->runs.pid, l->runs.tid, flow->cpu);

	if (thread == UINT32_MAX) {
		l->failed = true;
		return false;
	}
	if (thread == l->thread)
		return false;
	*sw = (struct ptw_flow){
		.kind = PTW_FLOW_SWITCH,
		.flags = (flow->flags & PTW_FLOW_TIMED) | (l->runs.preempted ? PTW_FLOW_PREEMPTED : 0),
		.cpu = flow->cpu, .trace = flow->trace, .thread = thread,
		.time = flow->time, .insns = flow->insns, .value = l->thread,
	};
	l->thread = thread;
	return true;
}

static bool is_switch(const struct flow_labels *l, const struct ptw_flow *flow)
{
	return l->switch_to && flow->to == l->switch_to && (flow->kind == PTW_FLOW_CALL || flow->kind == PTW_FLOW_JUMP);
}

bool flow_labels_before(struct flow_labels *l, struct ptw_flow *flow, struct ptw_flow *sw)
{
	bool user = flow->to && !(flow->to & CODE_KERNEL_HALF);
	bool changed = false;

	if (flow->kind == PTW_FLOW_BEGIN)
		l->runs.begun = true;
	/* The call that switches is the old thread's, however late it comes. */
	if (flow->flags & PTW_FLOW_TIMED && !is_switch(l, flow))
		changed = flow_runs_until(&l->runs, flow->time, user) && tell(l, flow, sw);
	flow->thread = l->thread;
	return changed;
}

bool flow_labels_after(struct flow_labels *l, const struct ptw_flow *flow, struct ptw_flow *sw)
{
	if (!is_switch(l, flow))
		return false;
	return flow_runs_switch(&l->runs, flow->flags & PTW_FLOW_TIMED, flow->time) && tell(l, flow, sw);
}
