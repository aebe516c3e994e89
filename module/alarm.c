// SPDX-License-Identifier: GPL-2.0
/*
 * How a hit becomes an alarm: the #DB handler fills a record of its CPU's ring, an irq_work (the
 * only thing that may be kicked from there) queues the worker, and the worker, in process context,
 * writes the kernel log, multicasts, wakes poll and disarms what has had its last hit.
 *
 * Each ring has one producer, the CPU's #DB handler, which does not nest (DR7 is zero in it), and
 * one consumer, the worker, of which one runs at a time. The producer publishes a record by a
 * release of head, the consumer gives it back by a release of tail.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/irq_work.h>
#include <linux/kallsyms.h>
#include <linux/math64.h>
#include <linux/panic.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/stacktrace.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include "ptwatch.h"

DEFINE_PER_CPU(struct ptw_alarm_ring *, ptw_alarm_ring);
atomic64_t ptw_alarms_lost;
static DEFINE_PER_CPU(struct irq_work, kick);
static u64 last_seq;		/* worker only */
static u64 lost_told;		/* worker only: of those lost, what the log has told */

static void deliver_all(struct work_struct *work);
static DECLARE_WORK(worker, deliver_all);

/*
 * The session whose trace this CPU wants frozen on the others, to compare only. Written by its #DB
 * handler, taken by the irq_work.
 */
static DEFINE_PER_CPU(const struct ptw_session *, freeze_others);

/* Of the CPU to be frozen; busy while session is set. */
struct freeze_call {
	call_single_data_t csd;
	const struct ptw_session *session;
};

static DEFINE_PER_CPU(struct freeze_call, freeze_call);

static void freeze_here(void *info)
{
	struct freeze_call *call = info;

	ptw_trace_freeze(call->session, rdtsc());
	smp_store_release(&call->session, NULL);
}

/* In the interrupt that follows the #DB: no waiting. */
static void send_freezes(const struct ptw_session *session)
{
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		struct freeze_call *call = per_cpu_ptr(&freeze_call, cpu);

		if (cpu == smp_processor_id())
			continue;
		/*
		 * Busy: another CPU's hit has asked for the same a moment ago. If it was for
		 * another session, the worker does it for this one.
		 */
		if (cmpxchg(&call->session, NULL, session))
			continue;
		if (smp_call_function_single_async(cpu, &call->csd))
			WRITE_ONCE(call->session, NULL);
	}
}

static void queue_worker(struct irq_work *work)
{
	const struct ptw_session *session = this_cpu_xchg(freeze_others, NULL);

	if (session)
		send_freezes(session);
	/* Unbound: the CPU that hits may be kept from running its own workers by just that. */
	queue_work(system_unbound_wq, &worker);
}

/* ---- #DB context ---- */

void ptw_alarm_kick(void)
{
	irq_work_queue(this_cpu_ptr(&kick));
}

void ptw_alarm_freeze_others(const struct ptw_session *session)
{
	this_cpu_write(freeze_others, session);
}

/* ---- process context ---- */

static const char *access_name(u32 access)
{
	switch (access) {
	case PTWATCH_ACCESS_W:
		return "write";
	case PTWATCH_ACCESS_RW:
		return "access to";
	default:
		return "execution";
	}
}

static void log_alarm(const struct ptw_alarm *alarm)
{
	const struct ptwatch_watch *watch = &alarm->watch->arg;
	char where[KSYM_SYMBOL_LEN], part[32] = "";
	u32 len = min(watch->len, 8U);
	u32 i;

	if (watch->label[0])
		strscpy(where, watch->label, sizeof(where));
	else
		sprint_symbol(where, watch->address);

	/* Of several debug registers, the one that hit has a value. */
	if (watch->len > len)
		snprintf(part, sizeof(part), "+0x%x of the %u at ", 8 * alarm->slot, watch->len);
	if (alarm->have_values)
		pr_warn("ALARM #%llu: %s %u bytes at %s%s, old 0x%0*llx new 0x%0*llx\n", alarm->seq,
			access_name(watch->access), len, part, where, 2 * len, alarm->old_value,
			2 * len, alarm->new_value);
	else
		pr_warn("ALARM #%llu: %s of %s\n", alarm->seq, access_name(watch->access), where);
	pr_warn("CPU: %u PID: %u Comm: %s\n", alarm->cpu, alarm->pid, alarm->comm);
	pr_warn("Call Trace:\n");
	for (i = 0; i < alarm->stack.nr; i++)
		/*
		 * All but the first are return addresses: one less lies in the call, so the right
		 * function is named.
		 */
		if (i)
			pr_warn(" %pB\n", (void *)alarm->stack.addr[i]);
		else
			pr_warn(" %pS\n", (void *)alarm->stack.addr[i]);
	for (i = 0; i < alarm->nr_user_stack; i++)
		pr_warn("%s %lx\n", i ? "    " : "User:", alarm->user_stack[i]);
	pr_warn_once("no watch sees writes by NMI, #MC and #DB handlers, nor by devices (DMA)\n");
	if (alarm->frozen)
		pr_warn("trace: %llu bytes frozen on CPU %u\n", alarm->trace_size, alarm->cpu);
	if (alarm->lost > lost_told) {
		pr_warn("%llu alarms were lost: hits came faster than they could be delivered\n",
			alarm->lost - lost_told);
		lost_told = alarm->lost;
	}
}

/*
 * The handler notes the TSC only, as asking the kernel for the time costs more than all else that
 * it notes about who it was. From now back to the hit it is a matter of microseconds, or
 * milliseconds in a storm, in which the clock's adjustment by NTP does not show.
 */
static u64 time_at(u64 tsc)
{
	u64 now, now_tsc;

	preempt_disable();
	now = ktime_get_mono_fast_ns();
	now_tsc = rdtsc_ordered();
	preempt_enable();
	if (now_tsc <= tsc || !tsc_khz)
		return now;
	return now - mul_u64_u64_div_u64(now_tsc - tsc, NSEC_PER_MSEC, tsc_khz);
}

static void deliver(struct ptw_alarm *alarm)
{
	struct ptw_watch *watch = alarm->watch;
	struct ptw_message *message = NULL;

	alarm->seq = ++last_seq;
	alarm->time = time_at(alarm->tsc);
	ptw_stack_unwind(&alarm->stack, &alarm->regs);

	/* Hotplug lock before our own, as everywhere: disarming needs both. */
	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	if (alarm->frozen)
		alarm->frozen = ptw_trace_publish_freeze(watch->session, alarm,
							 &alarm->trace_bank,
							 &alarm->trace_head, &alarm->trace_size);
	if (watch->session && (watch->arg.actions & PTWATCH_ACTION_FREEZE_ALL))
		ptw_trace_freeze_all(watch->session);
	if (alarm->last)
		ptw_watch_disarm(watch, PTWATCH_WATCH_DONE);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();

	if (watch->arg.actions & PTWATCH_ACTION_LOG)
		log_alarm(alarm);
	if (watch->arg.actions & PTWATCH_ACTION_EVENT)
		message = ptw_netlink_send(alarm);

	/*
	 * Last, so that who is woken finds everything else done. The lock keeps the session from
	 * going away.
	 */
	mutex_lock(&ptw_config_lock);
	atomic64_inc(&watch->alarms);
	if (message)
		ptw_readers_deliver(watch, message);
	if (watch->session) {
		atomic_inc(&watch->session->alarms);
		wake_up_interruptible(&watch->session->wait);
	}
	mutex_unlock(&ptw_config_lock);
	if (watch->arg.actions & PTWATCH_ACTION_PANIC) {
		/*
		 * While IPIs may be sent: panic() halts the other CPUs with what they trace. They
		 * take this one first, its vector is the higher one. Not waiting, as a CPU that
		 * hangs with IRQs off must not keep the machine from its panic.
		 */
		ptw_trace_halt(false);
		panic("ptwatch: ALARM #%llu of watch %u (%s)", alarm->seq, watch->arg.id,
		      watch->arg.label);
	}
	ptw_watch_put(watch);
	alarm->watch = NULL;
}

static void deliver_all(struct work_struct *work)
{
	unsigned int cpu;

	ptw_watch_disarm_storms();
	for_each_possible_cpu(cpu) {
		struct ptw_alarm_ring *r = per_cpu(ptw_alarm_ring, cpu);
		/*
		 * No further, or a CPU that hits as fast as we deliver keeps us from the others'
		 * alarms. What comes later queues us again: its irq_work runs after its release.
		 */
		unsigned int head = smp_load_acquire(&r->head);

		while (r->tail != head) {
			deliver(&r->record[r->tail % PTW_RING_RECORDS]);
			smp_store_release(&r->tail, r->tail + 1);
			cond_resched();
		}
	}
}

static void nothing(void *unused)
{
}

static void free_rings(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		kvfree(per_cpu(ptw_alarm_ring, cpu));
		per_cpu(ptw_alarm_ring, cpu) = NULL;
	}
}

int ptw_alarm_init(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		struct ptw_alarm_ring *r = kvzalloc_node(sizeof(*r), GFP_KERNEL, cpu_to_node(cpu));

		if (!r) {
			free_rings();
			return -ENOMEM;
		}
		per_cpu(ptw_alarm_ring, cpu) = r;
		init_irq_work(per_cpu_ptr(&kick, cpu), queue_worker);
		INIT_CSD(&per_cpu_ptr(&freeze_call, cpu)->csd, freeze_here,
			 per_cpu_ptr(&freeze_call, cpu));
	}
	return 0;
}

void ptw_alarm_exit(void)
{
	unsigned int cpu;

	/*
	 * Nothing is armed any more. First the kicks, which could queue the worker again, then the
	 * worker.
	 */
	for_each_possible_cpu(cpu)
		irq_work_sync(per_cpu_ptr(&kick, cpu));
	/* Their IPIs: a call that waits comes behind them. */
	for_each_online_cpu(cpu)
		smp_call_function_single(cpu, nothing, NULL, true);
	cancel_work_sync(&worker);
	/* What was cancelled before it ran still holds references to watches. */
	deliver_all(NULL);
	free_rings();
}
