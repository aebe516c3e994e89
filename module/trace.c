// SPDX-License-Identifier: GPL-2.0
/*
 * Which CPUs are traced for which session: setting up, starting, stopping, CPUs that come and go.
 * What happens on the CPU itself is in engine.c.
 *
 * The control page is a copy for user space, written in process context under ptw_config_lock only,
 * so a #DB that hits in the middle of anything here leaves no half-written page behind. The words
 * that are marked "live" in the uapi are the exception: passes store each by itself.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/percpu.h>
#include <linux/pid_namespace.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <asm/barrier.h>
#include <asm/msr.h>

#include "ptwatch.h"

/* The trace that waits for a CPU to come back online; under ptw_config_lock. */
static DEFINE_PER_CPU(struct ptw_cpu_trace *, offline);

/*
 * The machine is on its way to sleep or not fully back: a START must wait, as those who call it are
 * frozen later than our notifier stops what runs. Under ptw_config_lock.
 */
static bool asleep;

static u64 last_id;	/* under ptw_config_lock */

/* ---- on the CPU concerned ---- */

struct own_call {
	struct ptw_cpu_trace *ct;
	int error;
	u32 reason;
};

static void own_local(void *info)
{
	struct own_call *call = info;
	struct ptw_cpu_trace *ct = call->ct;

	if (ptw_caps_vmx_conflict()) {
		call->error = -EBUSY;
		call->reason = PTWATCH_REASON_VMX;
		return;
	}
	if (!ptw_caps_cpu_ok()) {
		call->error = -EOPNOTSUPP;
		call->reason = PTWATCH_REASON_CPU_DIFFERS;
		return;
	}
	call->error = ptw_rtit_save(&ct->saved);
	if (call->error) {
		call->reason = PTWATCH_REASON_ENABLED;
		return;
	}
	ct->loaded = false;
	ct->owned = true;
	this_cpu_write(ptw_owner, ct);
	if (ct->stream.sink)
		ptw_pmi_arm(ct);
}

static void disown_local(void *info)
{
	struct ptw_cpu_trace *ct = info;

	ptw_engine_stop(ct);
	if (!ct->owned)
		return;
	if (ct->stream.sink)
		ptw_pmi_disarm(ct);
	this_cpu_write(ptw_owner, NULL);
	ptw_rtit_restore(&ct->saved);
	ct->owned = false;
}

void ptw_trace_halt(bool wait)
{
	/*
	 * Before the IPIs: a pass that did not see it is over when its CPU takes the IPI.
	 */
	ptw_engine_halt();
	on_each_cpu(ptw_trace_emergency_stop, NULL, wait);
}

/* ---- the control page; under ptw_config_lock ---- */

/* Where a ring that rests at @output ends, and whether it is full. */
static u64 ring_head(const struct ptw_buffer *buffer, const struct ptw_rtit_output *output,
		     bool used, u32 *flags)
{
	bool wrapped;
	u64 head = ptw_topa_offset(buffer->topa, output, &wrapped);

	if (!ptw_cap(PTW_CAP_TOPA_MULTIPLE_ENTRIES))
		wrapped = used && ptw_buffer_written_at(buffer, head);
	*flags = wrapped ? PTWATCH_CONTROL_WRAPPED : 0;
	return head;
}

static void publish_banks(struct ptw_cpu_trace *ct)
{
	unsigned int i;

	for (i = 0; i < ct->nr_banks; i++) {
		struct ptwatch_bank *to = &ct->control->banks[i];
		struct ptw_bank *bank = &ct->banks[i];

		to->state = smp_load_acquire(&bank->state);	/* pairs with freeze() */
		to->start_tsc = bank->start_tsc;
		if (to->state != PTWATCH_BANK_FROZEN) {
			to->head = to->flags = to->stop_tsc = to->freeze_seq = 0;
			continue;
		}
		to->head = ring_head(bank->buffer, &bank->output, true, &to->flags);
		to->stop_tsc = bank->stop_tsc;
		to->freeze_seq = bank->freeze_seq;
	}
}

/* @output: where it stands if that is known although it is RUNNING; else NULL */
static void publish_at(struct ptw_cpu_trace *ct, u64 freeze_seq,
		       const struct ptw_rtit_output *output)
{
	struct ptwatch_control *control = ct->control;
	u32 state = smp_load_acquire(&ct->state);	/* pairs with freeze() */
	u32 wrapped = control->flags & PTWATCH_CONTROL_WRAPPED;
	u64 head = control->head;

	if (state != PTWATCH_STATE_RUNNING)
		output = &ct->output;
	if (output && ct->trace->mode != PTWATCH_MODE_STREAM)
		head = ring_head(ct->banks[ct->bank].buffer, output, ct->start_tsc, &wrapped);

	/*
	 * A reader that sees an even sequence twice saw no change in between: the fields lie
	 * between two barriers.
	 */
	WRITE_ONCE(control->sequence, control->sequence + 1);
	smp_wmb();
	control->state = state;
	control->flags = wrapped | READ_ONCE(ct->flags);
	control->bank = READ_ONCE(ct->bank);
	/* A stream's is live. */
	if (ct->trace->mode != PTWATCH_MODE_STREAM)
		control->head = head;
	control->start_tsc = ct->start_tsc;
	control->stop_tsc = ct->stop_tsc;
	control->rtit_ctl = ct->trace->config.ctl | RTIT_CTL_TOPA | RTIT_CTL_TRACEEN;
	if (output)
		control->rtit_status = output->status;
	if (freeze_seq || state != PTWATCH_STATE_FROZEN)
		control->freeze_seq = freeze_seq;
	if (ct->trace->mode == PTWATCH_MODE_BANKS)
		publish_banks(ct);
	smp_wmb();
	WRITE_ONCE(control->sequence, control->sequence + 1);
}

static void publish(struct ptw_cpu_trace *ct, u64 freeze_seq)
{
	publish_at(ct, freeze_seq, NULL);
}

/* The bank that the alarm's hit froze: the youngest that is not younger than the alarm. */
static struct ptw_bank *bank_of(struct ptw_cpu_trace *ct, const struct ptw_alarm *alarm)
{
	struct ptw_bank *found = NULL;
	unsigned int i;

	for (i = 0; i < ct->nr_banks; i++) {
		struct ptw_bank *bank = &ct->banks[i];

		if (ct->nr_banks > 1 && smp_load_acquire(&bank->state) != PTWATCH_BANK_FROZEN)
			continue;
		if (bank->stop_tsc <= alarm->tsc && (!found || bank->stop_tsc > found->stop_tsc))
			found = bank;
	}
	/* Freed meanwhile, and what is found is another alarm's? */
	return found && !found->freeze_seq ? found : NULL;
}

bool ptw_trace_publish_freeze(const struct ptw_session *session, const struct ptw_alarm *alarm,
			      u32 *number, u64 *head, u64 *size)
{
	struct ptw_trace *trace = session ? session->trace : NULL;
	struct ptw_cpu_trace *ct = trace ? trace->cpu[alarm->cpu] : NULL;
	struct ptw_bank *bank;
	u32 state, flags;

	lockdep_assert_held(&ptw_config_lock);
	if (!ct)
		return false;
	/* Thawed, started and frozen again by a later hit, before this alarm was delivered? */
	state = smp_load_acquire(&ct->state);
	if (ct->nr_banks == 1 && (state != PTWATCH_STATE_FROZEN || alarm->tsc < ct->stop_tsc))
		return false;
	if (trace->mode == PTWATCH_MODE_STREAM) {
		publish(ct, alarm->seq);
		*number = 0;
		*head = *size = ct->control->head;
		return true;
	}
	bank = ct->nr_banks == 1 ? &ct->banks[0] : bank_of(ct, alarm);
	if (!bank)
		return false;
	bank->freeze_seq = alarm->seq;
	publish(ct, state == PTWATCH_STATE_FROZEN && bank == &ct->banks[ct->bank] ? alarm->seq : 0);
	*number = bank - ct->banks;
	*head = ring_head(bank->buffer, &bank->output, true, &flags);
	*size = flags & PTWATCH_CONTROL_WRAPPED ? bank->buffer->size : *head;
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
static int own_cpu(struct ptw_cpu_trace *ct, struct ptwatch_trace *why)
{
	struct ptw_cpu_trace *other = per_cpu(ptw_owner, ct->cpu);
	struct own_call call = { .ct = ct };
	struct perf_event *hold;

	why->reason_cpu = ct->cpu;
	/* Without perf's PMU nothing is held, and a stopped trace does not show in TraceEn. */
	if (other) {
		why->reason = PTWATCH_REASON_SESSION;
		why->holder_pid = other->trace->owner_pid;
		memcpy(why->holder_comm, other->trace->owner_comm, sizeof(why->holder_comm));
		return -EBUSY;
	}
	hold = ptw_hold_get(ct->cpu, ct->trace->pmu_type);
	if (IS_ERR(hold)) {
		if (PTR_ERR(hold) == -EBUSY)
			why->reason = PTWATCH_REASON_PERF;
		return PTR_ERR(hold);
	}
	call_on(ct->cpu, own_local, &call);
	if (call.error) {
		why->reason = call.reason;
		ptw_hold_put(hold);
		return call.error;
	}
	why->reason_cpu = 0;
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

static void wake_session(struct irq_work *work)
{
	struct ptw_cpu_trace *ct = container_of(work, struct ptw_cpu_trace, wake);

	wake_up_interruptible(&ct->trace->session->wait);
}

static void cpu_trace_free(struct ptw_cpu_trace *ct)
{
	unsigned int i;

	if (!ct)
		return;
	/* Its CPU let go of it, so nobody queues it any more. */
	irq_work_sync(&ct->wake);
	ptw_stream_free(ct);
	for (i = 0; i < ct->nr_banks; i++)
		ptw_buffer_put(ct->banks[i].buffer);
	ptw_buffer_put(ct->switches);
	ptw_buffer_put(ct->control_page);
	kfree(ct);
}

static int alloc_banks(struct ptw_cpu_trace *ct)
{
	const struct ptw_trace *trace = ct->trace;
	unsigned int i;

	for (i = 0; i < ct->nr_banks; i++) {
		struct ptw_bank *bank = &ct->banks[i];

		bank->buffer = ptw_buffer_alloc_output(ct->cpu, trace->buffer_size,
						       trace->region_size,
						       trace->mode == PTWATCH_MODE_STREAM ?
							       PTW_TOPA_STREAM : PTW_TOPA_RING);
		if (!bank->buffer)
			return -ENOMEM;
		bank->state = i ? PTWATCH_BANK_FREE : PTWATCH_BANK_ACTIVE;
	}
	ptw_topa_seek(ct->banks[0].buffer->topa, 0, 0, &ct->output);
	return trace->mode == PTWATCH_MODE_STREAM ? ptw_stream_init(ct) : 0;
}

static struct ptw_cpu_trace *cpu_trace_alloc(struct ptw_trace *trace, unsigned int cpu)
{
	struct ptw_cpu_trace *ct;
	int error = -ENOMEM;

	ct = kzalloc_node(struct_size(ct, banks, trace->nr_banks), GFP_KERNEL, cpu_to_node(cpu));
	if (!ct)
		return ERR_PTR(-ENOMEM);
	ct->trace = trace;
	ct->cpu = cpu;
	ct->state = PTWATCH_STATE_STOPPED;
	ct->nr_banks = trace->nr_banks;
	init_irq_work(&ct->wake, wake_session);

	ct->control_page = ptw_buffer_alloc(cpu, PAGE_SIZE);
	if (!ct->control_page)
		goto fail;
	ct->control = ct->control_page->address;
	ct->control->size = sizeof(*ct->control);
	ct->control->cpu = cpu;
	ct->control->data_size = trace->buffer_size;
	if (trace->switch_records) {
		ct->switches = ptw_switches_alloc(cpu, trace->switch_records);
		if (!ct->switches)
			goto fail;
	}
	error = alloc_banks(ct);
	if (error)
		goto fail;
	return ct;

fail:
	cpu_trace_free(ct);
	return ERR_PTR(error);
}

static void trace_destroy(struct ptw_trace *trace)
{
	unsigned int cpu;

	for_each_cpu(cpu, &trace->cpus)
		if (trace->cpu[cpu]) {
			disown_cpu(trace->cpu[cpu]);
			publish(trace->cpu[cpu], 0);
		}
	/* No CPU looks at it any more, but a probe of exec may still be telling them to. */
	ptw_target_put(trace->target);
	for_each_cpu(cpu, &trace->cpus)
		cpu_trace_free(trace->cpu[cpu]);
	kfree(trace);
}

static void set_ranges(struct ptw_rtit_config *config, const struct ptwatch_trace *arg)
{
	unsigned int i;

	for (i = 0; i < arg->nr_ranges; i++) {
		config->addr[2 * i] = arg->ranges[i].start;
		config->addr[2 * i + 1] = arg->ranges[i].end;
		config->ctl |= (u64)arg->ranges[i].kind << (32 + 4 * i);
	}
}

int ptw_trace_setup(struct ptw_session *session, struct ptwatch_trace *arg,
		    const struct cpumask *cpus, struct ptw_target *target)
{
	struct ptw_trace *trace;
	unsigned int cpu;
	int error;

	lockdep_assert_held(&ptw_config_lock);
	error = session->trace ? -EBUSY : -ENOMEM;
	trace = session->trace ? NULL : kzalloc(struct_size(trace, cpu, nr_cpu_ids), GFP_KERNEL);
	if (!trace) {
		ptw_target_put(target);
		return error;
	}
	trace->session = session;
	trace->id = ++last_id;
	trace->config.ctl = arg->rtit_ctl;
	set_ranges(&trace->config, arg);
	trace->mode = arg->mode;
	trace->flags = arg->flags;
	trace->nr_banks = arg->banks ?: 1;
	trace->buffer_size = arg->buffer_size;
	trace->region_size = arg->region_size;
	trace->switch_records = arg->switch_records;
	trace->pmu_type = arg->pt_pmu_type;
	trace->target = target;
	trace->filter = ptw_target_filter(target);
	trace->owner_pid = task_tgid_nr(current);
	get_task_comm(trace->owner_comm, current->group_leader);
	cpumask_copy(&trace->cpus, cpus);

	if (target) {
		error = ptw_target_arm(target, trace);
		if (error)
			goto fail;
		if (trace->filter == PTWATCH_FILTER_CR3)
			trace->config.ctl |= RTIT_CTL_CR3EN;
	}
	for_each_cpu(cpu, cpus) {
		struct ptw_cpu_trace *ct = cpu_trace_alloc(trace, cpu);

		if (IS_ERR(ct)) {
			error = PTR_ERR(ct);
			goto fail;
		}
		trace->cpu[cpu] = ct;
		error = own_cpu(ct, arg);
		if (error)
			goto fail;
		publish(ct, 0);
	}

	spin_lock(&session->trace_lock);
	session->trace = trace;
	spin_unlock(&session->trace_lock);
	arg->filter = trace->filter;
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

/* Every CPU that has the old configuration takes over the new one. */
static void reload(struct ptw_trace *trace)
{
	on_each_cpu_mask(&trace->cpus, ptw_engine_reload, trace, true);
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
	/* In this order, see take_config(). */
	WRITE_ONCE(trace->config.addr[2 * i], start);
	WRITE_ONCE(trace->config.addr[2 * i + 1], end);
	WRITE_ONCE(trace->config.ctl, trace->config.ctl | (u64)kind << (32 + 4 * i));
	reload(trace);
	return i;
}

void ptw_trace_range_put(struct ptw_session *session, int range)
{
	struct ptw_trace *trace = session->trace;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return;
	WRITE_ONCE(trace->config.ctl, trace->config.ctl & ~(0xfULL << (32 + 4 * range)));
	reload(trace);
}

/* The offsets of PTWATCH_MMAP_*(): CPU in 62:40, what in 39:38, bank in 38:35 */
#define OFFSET_DATA	BIT_ULL(39)
#define OFFSET_SWITCHES	BIT_ULL(38)
#define OFFSET_BANK	35

static struct ptw_buffer *buffer_at(struct ptw_cpu_trace *ct, u64 offset)
{
	u64 what = offset & GENMASK_ULL(39, 0);

	if (!what)
		return ct->control_page;
	if (what == OFFSET_SWITCHES)
		return ct->switches;
	what -= OFFSET_DATA;
	if (what & GENMASK_ULL(OFFSET_BANK - 1, 0) || what >> OFFSET_BANK >= ct->nr_banks)
		return NULL;
	return ct->banks[what >> OFFSET_BANK].buffer;
}

struct ptw_buffer *ptw_trace_buffer(struct ptw_session *session, u64 offset)
{
	struct ptw_buffer *buffer = NULL;
	u64 cpu = offset >> 40;

	spin_lock(&session->trace_lock);
	if (session->trace && cpu < nr_cpu_ids && session->trace->cpu[cpu]) {
		buffer = buffer_at(session->trace->cpu[cpu], offset);
		if (buffer)
			ptw_buffer_get(buffer);
	}
	spin_unlock(&session->trace_lock);
	return buffer;
}

static bool cpu_readable(const struct ptw_cpu_trace *ct)
{
	unsigned int i;

	if (ct->trace->mode == PTWATCH_MODE_STREAM && ptw_stream_readable(ct))
		return true;
	if (READ_ONCE(ct->control->state) == PTWATCH_STATE_FROZEN)
		return true;
	for (i = 0; i < ct->nr_banks; i++)
		if (READ_ONCE(ct->control->banks[i].state) == PTWATCH_BANK_FROZEN)
			return true;
	return false;
}

bool ptw_trace_readable(struct ptw_session *session)
{
	bool readable = false;
	unsigned int cpu;

	spin_lock(&session->trace_lock);
	if (session->trace)
		for_each_cpu(cpu, &session->trace->cpus)
			readable |= cpu_readable(session->trace->cpu[cpu]);
	spin_unlock(&session->trace_lock);
	return readable;
}

/* ---- start, stop, thaw ---- */

static void stop_and_publish(struct ptw_cpu_trace *ct)
{
	ct->resume = false;
	if (cpu_online(ct->cpu))
		call_on(ct->cpu, ptw_engine_stop, ct);
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
		call_on(cpu, ptw_engine_start, ct);
		if (READ_ONCE(ct->state) == PTWATCH_STATE_ERROR)
			error = -EBUSY;
		else if (READ_ONCE(ct->state) == PTWATCH_STATE_STOPPED)
			error = -ENOBUFS;
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
		trace->cpu[cpu]->banks[0].freeze_seq = 0;
		publish(trace->cpu[cpu], 0);
	}
	return 0;
}

int ptw_trace_freeze_all(struct ptw_session *session)
{
	struct ptw_trace *trace = session->trace;
	unsigned int cpu;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return -EINVAL;
	for_each_cpu(cpu, &trace->cpus) {
		struct ptw_cpu_trace *ct = trace->cpu[cpu];

		if (!ct->owned)
			continue;
		call_on(cpu, ptw_engine_freeze, ct);
		publish(ct, 0);
	}
	wake_up_interruptible(&session->wait);
	return 0;
}

int ptw_trace_flush(struct ptw_session *session)
{
	struct ptw_trace *trace = session->trace;
	unsigned int cpu;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace)
		return -EINVAL;
	for_each_cpu(cpu, &trace->cpus) {
		struct ptw_cpu_trace *ct = trace->cpu[cpu];

		/* One that is not RUNNING may have failed since, in a pass that nobody saw. */
		if (!ct->owned || READ_ONCE(ct->state) != PTWATCH_STATE_RUNNING) {
			publish(ct, ct->control->freeze_seq);
			continue;
		}
		call_on(cpu, ptw_engine_flush, ct);
		publish_at(ct, 0, &ct->snap);
	}
	return 0;
}

int ptw_trace_advance(struct ptw_session *session, const struct ptwatch_advance *arg)
{
	struct ptw_trace *trace = session->trace;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace || trace->mode != PTWATCH_MODE_STREAM || arg->cpu >= nr_cpu_ids ||
	    !trace->cpu[arg->cpu])
		return -EINVAL;
	return ptw_stream_advance(trace->cpu[arg->cpu], arg->tail);
}

int ptw_trace_bank_free(struct ptw_session *session, const struct ptwatch_bank_free *arg)
{
	struct ptw_trace *trace = session->trace;
	struct ptw_cpu_trace *ct;
	struct ptw_bank *bank;

	lockdep_assert_held(&ptw_config_lock);
	if (!trace || trace->mode != PTWATCH_MODE_BANKS || arg->cpu >= nr_cpu_ids ||
	    !trace->cpu[arg->cpu])
		return -EINVAL;
	ct = trace->cpu[arg->cpu];
	if (arg->bank >= ct->nr_banks)
		return -EINVAL;
	bank = &ct->banks[arg->bank];
	if (smp_load_acquire(&bank->state) != PTWATCH_BANK_FROZEN)
		return -EINVAL;
	/* What the reader read, it has read; pairs with the acquire in free_bank(). */
	smp_store_release(&bank->state, PTWATCH_BANK_FREE);
	publish(ct, ct->control->freeze_seq);
	return 0;
}

/* ---- CPUs that come and go, and sleep ---- */

void ptw_trace_cpu_offline(unsigned int cpu)
{
	struct ptw_cpu_trace *ct;

	mutex_lock(&ptw_config_lock);
	ct = per_cpu(ptw_owner, cpu);
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
	struct ptwatch_trace why = {};
	struct ptw_cpu_trace *ct;
	int error;

	mutex_lock(&ptw_config_lock);
	ct = per_cpu(offline, cpu);
	if (ct) {
		per_cpu(offline, cpu) = NULL;
		if (ct->state == PTWATCH_STATE_OFFLINE)
			ct->state = PTWATCH_STATE_STOPPED;
		error = own_cpu(ct, &why);
		if (error) {
			ct->state = PTWATCH_STATE_ERROR;
			pr_warn("CPU %u is back online but not traced: %s (%d)\n", cpu,
				why.reason == PTWATCH_REASON_CPU_DIFFERS ?
					"it lacks what the others have" : "Intel PT is taken",
				error);
		} else if (ct->resume && !asleep) {
			call_on(cpu, ptw_engine_start, ct);
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
		if (per_cpu(ptw_owner, cpu))
			func(per_cpu(ptw_owner, cpu));
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
}

static void suspend_one(struct ptw_cpu_trace *ct)
{
	bool running = READ_ONCE(ct->state) == PTWATCH_STATE_RUNNING;

	call_on(ct->cpu, ptw_engine_stop, ct);
	ct->resume = running && READ_ONCE(ct->state) == PTWATCH_STATE_STOPPED;
	publish(ct, 0);
}

static void resume_one(struct ptw_cpu_trace *ct)
{
	if (!ct->resume)
		return;
	ct->resume = false;
	call_on(ct->cpu, ptw_engine_start, ct);
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
