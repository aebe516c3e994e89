// SPDX-License-Identifier: GPL-2.0
/*
 * Which CPUs are traced, for which session, and in what state each one is.
 *
 * A CPU's state changes on that CPU with IRQs off (start, stop), in its #DB handler (freeze), or
 * under ptw_config_lock while it does not run. The control page is a copy for user space, written
 * in process context under ptw_config_lock only, so a #DB that hits in the middle of anything here
 * leaves no half-written page behind.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <asm/barrier.h>
#include <asm/msr.h>

#include "ptwatch.h"

/*
 * The trace that owns Intel PT on a CPU. Set and cleared on that CPU with IRQs off, so its #DB
 * handler sees the old or the new value, and memory that it points to is freed only after it was
 * cleared.
 */
static DEFINE_PER_CPU(struct ptw_cpu_trace *, owner);

/* The trace that waits for a CPU to come back online; under ptw_config_lock. */
static DEFINE_PER_CPU(struct ptw_cpu_trace *, offline);

/*
 * The machine is on its way to sleep or not fully back: a START must wait, as those who call it are
 * frozen later than our notifier stops what runs. Under ptw_config_lock.
 */
static bool asleep;

/* The machine goes down, set once: nobody may start what ptw_trace_halt() stopped. */
static bool halted;

/* ---- on the CPU concerned ---- */

struct own_call {
	struct ptw_cpu_trace *ct;
	int error;
};

static void own_local(void *info)
{
	struct own_call *call = info;

	if (ptw_caps_vmx_conflict()) {
		call->error = -EBUSY;
		return;
	}
	call->error = ptw_rtit_save(&call->ct->saved);
	if (call->error)
		return;
	call->ct->owned = true;
	this_cpu_write(owner, call->ct);
}

static void stop_local(void *info)
{
	struct ptw_cpu_trace *ct = info;

	/*
	 * A #DB before the cmpxchg freezes and we leave it so; one after it sees STOPPED and leaves
	 * the MSRs to us.
	 */
	if (cmpxchg_local(&ct->state, PTWATCH_STATE_RUNNING, PTWATCH_STATE_STOPPED) !=
	    PTWATCH_STATE_RUNNING)
		return;
	ptw_rtit_stop(&ct->output);
	WRITE_ONCE(ct->enabled, false);
	ct->stop_tsc = rdtsc();
}

static void disown_local(void *info)
{
	struct ptw_cpu_trace *ct = info;

	stop_local(ct);
	if (!ct->owned)
		return;
	this_cpu_write(owner, NULL);
	ptw_rtit_restore(&ct->saved);
	ct->owned = false;
}

static void start_local(void *info)
{
	struct ptw_cpu_trace *ct = info;

	if (cmpxchg_local(&ct->state, PTWATCH_STATE_STOPPED, PTWATCH_STATE_RUNNING) !=
	    PTWATCH_STATE_STOPPED)
		return;
	ct->start_tsc = rdtsc();
	if (READ_ONCE(halted) || ptw_caps_vmx_conflict() ||
	    ptw_rtit_start(&ct->output, &ct->trace->config)) {
		WRITE_ONCE(ct->state, PTWATCH_STATE_ERROR);
		return;
	}
	WRITE_ONCE(ct->enabled, true);
	/*
	 * A #DB since the cmpxchg froze a trace that was not enabled yet, and then we enabled it:
	 * undo that.
	 */
	barrier();
	if (READ_ONCE(ct->state) != PTWATCH_STATE_RUNNING) {
		ptw_rtit_stop(&ct->output);
		WRITE_ONCE(ct->enabled, false);
	}
}

bool ptw_trace_freeze(const struct ptw_session *session)
{
	struct ptw_cpu_trace *ct = this_cpu_read(owner);

	if (!ct || ct->trace->session != session || READ_ONCE(ct->state) != PTWATCH_STATE_RUNNING)
		return false;
	/*
	 * A hit inside start_local() may find the output MSRs not written yet. They are perf's
	 * then, and to note them down would make start_local() trace into perf's memory; it looks
	 * at the state when it is done and stops.
	 */
	if (READ_ONCE(ct->enabled)) {
		ptw_rtit_stop(&ct->output);
		WRITE_ONCE(ct->enabled, false);
	}
	ct->stop_tsc = rdtsc();
	/*
	 * After output: whoever sees FROZEN on another CPU finds it complete. Pairs with the
	 * acquire in publish().
	 */
	smp_store_release(&ct->state, PTWATCH_STATE_FROZEN);
	return true;
}

void ptw_trace_emergency_stop(void *unused)
{
	struct ptw_cpu_trace *ct = this_cpu_read(owner);

	if (ct)
		stop_local(ct);
}

void ptw_trace_halt(void)
{
	/*
	 * Before the IPIs: a start_local() that did not see it is over when its CPU takes the IPI.
	 */
	WRITE_ONCE(halted, true);
	on_each_cpu(ptw_trace_emergency_stop, NULL, true);
}

/* ---- the control page; under ptw_config_lock ---- */

static void publish(struct ptw_cpu_trace *ct, u64 freeze_seq)
{
	struct ptwatch_control *control = ct->buffer->control;
	u32 state = smp_load_acquire(&ct->state);	/* pairs with ptw_trace_freeze() */
	u64 head = control->head;

	if (state != PTWATCH_STATE_RUNNING) {
		head = ptw_topa_offset(ct->buffer->topa, &ct->output);
		/* A ring that was once full stays full. */
		if (ct->start_tsc && !ct->wrapped)
			ct->wrapped = ptw_buffer_written_at(ct->buffer, head);
		if (ct->output.status & RTIT_STATUS_ERROR)
			state = PTWATCH_STATE_ERROR;
	}

	/*
	 * A reader that sees an even sequence twice saw no change in between: the fields lie
	 * between two barriers.
	 */
	WRITE_ONCE(control->sequence, control->sequence + 1);
	smp_wmb();
	control->state = state;
	control->flags = ct->wrapped ? PTWATCH_CONTROL_WRAPPED : 0;
	control->head = head;
	control->start_tsc = ct->start_tsc;
	control->stop_tsc = ct->stop_tsc;
	control->rtit_ctl = ct->trace->config.ctl | RTIT_CTL_TOPA | RTIT_CTL_TRACEEN;
	control->rtit_status = ct->output.status;
	if (freeze_seq || state != PTWATCH_STATE_FROZEN)
		control->freeze_seq = freeze_seq;
	smp_wmb();
	WRITE_ONCE(control->sequence, control->sequence + 1);
}

bool ptw_trace_publish_freeze(const struct ptw_session *session, const struct ptw_alarm *alarm,
			      u64 *head, u64 *size)
{
	struct ptw_trace *trace = session ? session->trace : NULL;
	struct ptw_cpu_trace *ct = trace ? trace->cpu[alarm->cpu] : NULL;

	lockdep_assert_held(&ptw_config_lock);
	if (!ct || READ_ONCE(ct->state) != PTWATCH_STATE_FROZEN)
		return false;
	/* Thawed, started and frozen again by a later hit, before this alarm was delivered? */
	if (alarm->tsc < ct->stop_tsc)
		return false;
	publish(ct, alarm->seq);
	*head = ct->buffer->control->head;
	*size = ct->wrapped ? ct->buffer->size : *head;
	return true;
}

/* ---- setting up and tearing down ---- */

static void call_on(unsigned int cpu, smp_call_func_t func, void *info)
{
	/*
	 * Fails only for an offline CPU, which cpus_read_lock() or the hotplug callback rules out.
	 */
	WARN_ON_ONCE(smp_call_function_single(cpu, func, info, true));
}

/*
 * Get PT on an online CPU: first the hold, so that perf can't start between our look at TraceEn and
 * our first write.
 */
static int own_cpu(struct ptw_cpu_trace *ct)
{
	struct own_call call = { .ct = ct };
	struct perf_event *hold;

	/* Without perf's PMU nothing is held, and a stopped trace does not show in TraceEn. */
	if (per_cpu(owner, ct->cpu))
		return -EBUSY;
	hold = ptw_hold_get(ct->cpu, ct->trace->pmu_type);
	if (IS_ERR(hold))
		return PTR_ERR(hold);
	call_on(ct->cpu, own_local, &call);
	if (call.error) {
		ptw_hold_put(hold);
		return call.error;
	}
	ct->hold = hold;
	return 0;
}

static void disown_cpu(struct ptw_cpu_trace *ct)
{
	if (per_cpu(offline, ct->cpu) == ct)
		per_cpu(offline, ct->cpu) = NULL;
	if (ct->owned)
		call_on(ct->cpu, disown_local, ct);
	ptw_hold_put(ct->hold);
	ct->hold = NULL;
}

static void cpu_trace_free(struct ptw_cpu_trace *ct)
{
	if (!ct)
		return;
	ptw_buffer_put(ct->buffer);
	kfree(ct);
}

static struct ptw_cpu_trace *cpu_trace_alloc(struct ptw_trace *trace, unsigned int cpu)
{
	struct ptw_cpu_trace *ct = kzalloc_node(sizeof(*ct), GFP_KERNEL, cpu_to_node(cpu));

	if (!ct)
		return NULL;
	ct->trace = trace;
	ct->cpu = cpu;
	ct->state = PTWATCH_STATE_STOPPED;
	ct->buffer = ptw_buffer_alloc(cpu, trace->buffer_size);
	if (!ct->buffer) {
		kfree(ct);
		return NULL;
	}
	ptw_topa_first(ct->buffer->topa, &ct->output);
	return ct;
}

static void trace_destroy(struct ptw_trace *trace)
{
	unsigned int cpu;

	for_each_cpu(cpu, &trace->cpus) {
		if (!trace->cpu[cpu])
			continue;
		disown_cpu(trace->cpu[cpu]);
		publish(trace->cpu[cpu], 0);
		cpu_trace_free(trace->cpu[cpu]);
	}
	kfree(trace);
}

int ptw_trace_setup(struct ptw_session *session, const struct ptwatch_trace *arg,
		    const struct cpumask *cpus)
{
	struct ptw_trace *trace;
	unsigned int cpu;
	int error;

	lockdep_assert_held(&ptw_config_lock);
	if (session->trace)
		return -EBUSY;

	trace = kzalloc(struct_size(trace, cpu, nr_cpu_ids), GFP_KERNEL);
	if (!trace)
		return -ENOMEM;
	trace->session = session;
	trace->config.ctl = arg->rtit_ctl;
	trace->buffer_size = arg->buffer_size;
	trace->pmu_type = arg->pt_pmu_type;
	cpumask_copy(&trace->cpus, cpus);

	for_each_cpu(cpu, cpus) {
		trace->cpu[cpu] = cpu_trace_alloc(trace, cpu);
		error = trace->cpu[cpu] ? own_cpu(trace->cpu[cpu]) : -ENOMEM;
		if (error)
			goto fail;
		publish(trace->cpu[cpu], 0);
	}

	spin_lock(&session->trace_lock);
	session->trace = trace;
	spin_unlock(&session->trace_lock);
	return 0;

fail:
	trace_destroy(trace);
	return error;
}

void ptw_trace_release(struct ptw_session *session)
{
	struct ptw_trace *trace = session->trace;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return;
	spin_lock(&session->trace_lock);
	session->trace = NULL;
	spin_unlock(&session->trace_lock);
	trace_destroy(trace);
}

int ptw_trace_range_get(struct ptw_session *session, u64 start, u64 end, unsigned int kind)
{
	struct ptw_trace *trace = session->trace;
	unsigned int i;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return -EINVAL;
	for (i = 0; i < ptw_caps_ranges(); i++)
		if (!ptw_rtit_range_kind(&trace->config, i))
			break;
	if (i == ptw_caps_ranges())
		return -ENOSPC;
	trace->config.addr[2 * i] = start;
	trace->config.addr[2 * i + 1] = end;
	trace->config.ctl |= (u64)kind << (32 + 4 * i);
	return i;
}

void ptw_trace_range_put(struct ptw_session *session, int range)
{
	struct ptw_trace *trace = session->trace;

	lockdep_assert_held(&ptw_config_lock);
	if (trace)
		trace->config.ctl &= ~(0xfULL << (32 + 4 * range));
}

struct ptw_buffer *ptw_trace_buffer(struct ptw_session *session, unsigned int cpu)
{
	struct ptw_buffer *buffer = NULL;

	spin_lock(&session->trace_lock);
	if (session->trace && cpu < nr_cpu_ids && session->trace->cpu[cpu]) {
		buffer = session->trace->cpu[cpu]->buffer;
		ptw_buffer_get(buffer);
	}
	spin_unlock(&session->trace_lock);
	return buffer;
}

bool ptw_trace_any_frozen(struct ptw_session *session)
{
	bool frozen = false;
	unsigned int cpu;

	spin_lock(&session->trace_lock);
	if (session->trace)
		for_each_cpu(cpu, &session->trace->cpus)
			if (READ_ONCE(session->trace->cpu[cpu]->buffer->control->state) ==
			    PTWATCH_STATE_FROZEN)
				frozen = true;
	spin_unlock(&session->trace_lock);
	return frozen;
}

/* ---- start, stop, thaw ---- */

static void stop_and_publish(struct ptw_cpu_trace *ct)
{
	ct->resume = false;
	if (cpu_online(ct->cpu))
		call_on(ct->cpu, stop_local, ct);
	publish(ct, 0);
}

int ptw_trace_start(struct ptw_session *session)
{
	struct ptw_trace *trace = session->trace;
	cpumask_var_t started;
	unsigned int cpu;
	int error = 0;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return -EINVAL;
	if (!zalloc_cpumask_var(&started, GFP_KERNEL))
		return -ENOMEM;
	for_each_cpu(cpu, &trace->cpus) {
		struct ptw_cpu_trace *ct = trace->cpu[cpu];

		if (asleep || !cpu_online(cpu)) {
			ct->resume = true;
			continue;
		}
		/* What was refused (VMX was on) may be allowed by now. */
		if (ct->owned)
			cmpxchg(&ct->state, PTWATCH_STATE_ERROR, PTWATCH_STATE_STOPPED);
		if (READ_ONCE(ct->state) == PTWATCH_STATE_STOPPED)
			cpumask_set_cpu(cpu, started);
		call_on(cpu, start_local, ct);
		if (READ_ONCE(ct->state) == PTWATCH_STATE_ERROR)
			error = -EBUSY;
		publish(ct, 0);
	}
	/* Those that ran before this call go on. */
	if (error)
		for_each_cpu(cpu, started)
			stop_and_publish(trace->cpu[cpu]);
	free_cpumask_var(started);
	return error;
}

int ptw_trace_stop(struct ptw_session *session)
{
	struct ptw_trace *trace = session->trace;
	unsigned int cpu;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return -EINVAL;
	for_each_cpu(cpu, &trace->cpus)
		stop_and_publish(trace->cpu[cpu]);
	return 0;
}

int ptw_trace_thaw(struct ptw_session *session)
{
	struct ptw_trace *trace = session->trace;
	unsigned int cpu;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return -EINVAL;
	for_each_cpu(cpu, &trace->cpus) {
		/*
		 * Not RUNNING, so neither the CPU's IPIs (they need our lock) nor its #DB handler
		 * touch the state.
		 */
		cmpxchg(&trace->cpu[cpu]->state, PTWATCH_STATE_FROZEN,
			cpu_online(cpu) ? PTWATCH_STATE_STOPPED : PTWATCH_STATE_OFFLINE);
		publish(trace->cpu[cpu], 0);
	}
	return 0;
}

/* ---- CPUs that come and go, and sleep ---- */

void ptw_trace_cpu_offline(unsigned int cpu)
{
	struct ptw_cpu_trace *ct;

	mutex_lock(&ptw_config_lock);
	ct = per_cpu(owner, cpu);
	if (ct) {
		bool running = READ_ONCE(ct->state) == PTWATCH_STATE_RUNNING;

		disown_cpu(ct);
		/* One that was stopped for the machine's sleep is to resume, too. */
		if (running)
			ct->resume = READ_ONCE(ct->state) == PTWATCH_STATE_STOPPED;
		if (ct->state == PTWATCH_STATE_STOPPED)
			ct->state = PTWATCH_STATE_OFFLINE;
		per_cpu(offline, cpu) = ct;
		publish(ct, 0);
	}
	mutex_unlock(&ptw_config_lock);
}

void ptw_trace_cpu_online(unsigned int cpu)
{
	struct ptw_cpu_trace *ct;
	int error;

	mutex_lock(&ptw_config_lock);
	ct = per_cpu(offline, cpu);
	if (ct) {
		per_cpu(offline, cpu) = NULL;
		if (ct->state == PTWATCH_STATE_OFFLINE)
			ct->state = PTWATCH_STATE_STOPPED;
		error = own_cpu(ct);
		if (error) {
			ct->state = PTWATCH_STATE_ERROR;
			pr_warn("CPU %u is back online but not traced: Intel PT is taken (%d)\n",
				cpu, error);
		} else if (ct->resume && !asleep) {
			call_on(cpu, start_local, ct);
		}
		/* Of a CPU that is back before the machine is, ptw_trace_resume() takes care. */
		if (error || !asleep)
			ct->resume = false;
		publish(ct, 0);
	}
	mutex_unlock(&ptw_config_lock);
}

static void set_asleep(bool sleep, void (*func)(struct ptw_cpu_trace *ct))
{
	unsigned int cpu;

	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	asleep = sleep;
	for_each_online_cpu(cpu)
		if (per_cpu(owner, cpu))
			func(per_cpu(owner, cpu));
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
}

static void suspend_one(struct ptw_cpu_trace *ct)
{
	bool running = READ_ONCE(ct->state) == PTWATCH_STATE_RUNNING;

	call_on(ct->cpu, stop_local, ct);
	ct->resume = running && READ_ONCE(ct->state) == PTWATCH_STATE_STOPPED;
	publish(ct, 0);
}

static void resume_one(struct ptw_cpu_trace *ct)
{
	if (!ct->resume)
		return;
	ct->resume = false;
	call_on(ct->cpu, start_local, ct);
	publish(ct, 0);
}

void ptw_trace_suspend(void)
{
	set_asleep(true, suspend_one);
}

void ptw_trace_resume(void)
{
	set_asleep(false, resume_one);
}
