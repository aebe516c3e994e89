// SPDX-License-Identifier: GPL-2.0
/*
 * Context switches: a record of each, and tracing that is switched with the task. Both in the probe
 * of sched_switch, on the CPU concerned, with IRQs off and its runqueue locked; what it costs is
 * paid at every switch.
 */
#include <linux/percpu.h>
#include <linux/sched.h>
#include <asm/barrier.h>
#include <asm/msr.h>

#include "ptwatch.h"

struct ptw_buffer *ptw_switches_alloc(unsigned int cpu, u32 records)
{
	struct ptwatch_switches *page;
	struct ptw_buffer *buffer;

	BUILD_BUG_ON(sizeof(struct ptwatch_switch) != 32);
	buffer = ptw_buffer_alloc(cpu, PAGE_ALIGN(PAGE_SIZE +
						  (u64)records * sizeof(struct ptwatch_switch)));
	if (!buffer)
		return NULL;
	page = buffer->address;
	page->size = sizeof(*page);
	page->cpu = cpu;
	page->records = records;
	page->data_offset = PAGE_SIZE;
	return buffer;
}

void ptw_switches_note(struct ptw_buffer *switches, struct task_struct *prev,
		       struct task_struct *next, u32 flags)
{
	struct ptwatch_switches *page = switches->address;
	struct ptwatch_switch *record = switches->address + PAGE_SIZE;

	record += page->head & (page->records - 1);
	record->tsc = rdtsc();
	record->prev_tid = prev->pid;
	record->prev_pid = prev->tgid;
	record->next_tid = next->pid;
	record->next_pid = next->tgid;
	record->cpu = page->cpu;
	record->flags = flags;
	/* Pairs with the reader's acquire: it sees a record only when it is complete. */
	smp_store_release(&page->head, page->head + 1);
}

void ptw_switch_on_switch(void *data, bool preempt, struct task_struct *prev,
			  struct task_struct *next, unsigned int prev_state)
{
	struct ptw_cpu_trace *ct = this_cpu_read(ptw_owner);
	unsigned int state;
	bool on_task;

	if (!ct)
		return;
	state = READ_ONCE(ct->state);
	if (ct->switches && (state == PTWATCH_STATE_RUNNING || state == PTWATCH_STATE_FROZEN))
		ptw_switches_note(ct->switches, prev, next, preempt ? PTWATCH_SWITCH_PREEMPT : 0);
	if (ct->trace->filter != PTWATCH_FILTER_SWITCH)
		return;
	on_task = ptw_target_has(ct->trace->target, next);
	if (on_task == ct->on_task)
		return;
	WRITE_ONCE(ct->on_task, on_task);
	ptw_engine_sync(ct);
}
