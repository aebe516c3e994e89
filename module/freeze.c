// SPDX-License-Identifier: GPL-2.0
/*
 * How early a hit stops the trace: what is recorded between the access and the end is the skid.
 *
 *	PTWATCH_FREEZE_HARDWARE	A TraceStop range on the kernel's #DB entry: the CPU stops when
 *		it takes the exception, and nothing of it is recorded. It does so for every #DB, so
 *		those that freeze nothing are undone: by ptw_watch_hit(); by a die notifier for
 *		those of others; and by a timer, because that notifier is not called for other
 *		people's kernel breakpoints (perf's own comes first, and ends the chain).
 *	PTWATCH_FREEZE_EARLY	ptw_rtit_early_stop(), called by ftrace from the first traceable
 *		function behind the #DB entry, when a debug register of a freezing watch has hit.
 *		It knows no conditions: ptw_watch_hit() undoes it when they do not hold.
 *	PTWATCH_FREEZE_HANDLER	ptw_watch_hit() itself.
 */
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/timer.h>
#include <asm/desc.h>
#include <asm/trapnr.h>

#include "ptwatch.h"

/* How long another one's #DB may stop a trace; see above. */
#define CHECK_PERIOD	msecs_to_jiffies(10)

DEFINE_PER_CPU(struct ptw_early, ptw_early);

/* ---- what ptw_rtit_early_stop() looks for ---- */

void ptw_freeze_point_armed(unsigned int cpu, u64 address)
{
	struct ptw_early *early = per_cpu_ptr(&ptw_early, cpu);
	unsigned int i;

	lockdep_assert_held(&ptw_config_lock);
	for (i = 0; i < ARRAY_SIZE(early->address); i++) {
		if (early->address[i])
			continue;
		WRITE_ONCE(early->address[i], address);
		WRITE_ONCE(early->armed, early->armed + 1);
		return;
	}
}

void ptw_freeze_point_disarmed(unsigned int cpu, u64 address)
{
	struct ptw_early *early = per_cpu_ptr(&ptw_early, cpu);
	unsigned int i;

	lockdep_assert_held(&ptw_config_lock);
	for (i = 0; i < ARRAY_SIZE(early->address); i++) {
		if (early->address[i] != address)
			continue;
		WRITE_ONCE(early->address[i], 0);
		WRITE_ONCE(early->armed, early->armed - 1);
		return;
	}
}

/* ---- a TraceStop range on the #DB entry ---- */

static DEFINE_PER_CPU(struct timer_list, check_timer);
static unsigned int hardware_users;	/* sessions; under ptw_config_lock */

static u64 db_entry(void)
{
	struct desc_ptr idt;

	store_idt(&idt);
	return gate_offset((gate_desc *)idt.address + X86_TRAP_DB);
}

bool ptw_freeze_hardware_possible(void)
{
	/* With FRED, all exceptions have one entry. */
	return ptw_caps_ranges() && !ptw_uses_fred();
}

/* On the CPU concerned, IRQs off; any context. */
static void resume_if_stopped(void)
{
	struct ptw_cpu_trace *ct = this_cpu_read(ptw_owner);

	if (!ct || READ_ONCE(ct->state) != PTWATCH_STATE_RUNNING || !READ_ONCE(ct->enabled))
		return;
	if (ptw_rtit_stopped())
		ptw_engine_request(ct, PTW_REQUEST_RESUME);
}

static void on_check(struct timer_list *timer)
{
	/* As only this CPU's trace can be looked at, it is this CPU's timer that matters. */
	unsigned int cpu = raw_smp_processor_id(), home;
	unsigned long flags;

	local_irq_save(flags);
	if (this_cpu_read(ptw_early.hardware))
		resume_if_stopped();
	local_irq_restore(flags);
	if (!READ_ONCE(hardware_users))
		return;
	for_each_possible_cpu(home)
		if (per_cpu_ptr(&check_timer, home) == timer)
			break;
	timer->expires = jiffies + CHECK_PERIOD;
	/* A CPU that goes offline hands its timers on, and gets this one back. */
	add_timer_on(timer, cpu_online(home) ? home : cpu);
}

static int on_die(struct notifier_block *nb, unsigned long event, void *data)
{
	if (event == DIE_DEBUG && this_cpu_read(ptw_early.hardware))
		resume_if_stopped();
	return NOTIFY_DONE;
}
NOKPROBE_SYMBOL(on_die);

/* Behind perf's and everyone else's. */
static struct notifier_block die_nb = { .notifier_call = on_die, .priority = INT_MIN };

void ptw_freeze_watch_added(struct ptw_session *session)
{
	struct ptw_trace *trace = session->trace;
	unsigned int cpu;

	lockdep_assert_held(&ptw_config_lock);
	if (session->freezing++ || !trace || session->early ||
	    (trace->flags & PTWATCH_TRACE_NO_TRACESTOP) ||
	    !(trace->config.ctl & PTWATCH_RTIT_CTL_OS) || !ptw_freeze_hardware_possible())
		return;
	/* First those who undo, then what is to be undone. */
	for_each_cpu(cpu, &trace->cpus)
		per_cpu(ptw_early, cpu).hardware = true;
	session->stop_range =
		ptw_trace_range_get(session, db_entry(), db_entry(), PTWATCH_RANGE_STOP);
	if (session->stop_range < 0) {
		for_each_cpu(cpu, &trace->cpus)
			per_cpu(ptw_early, cpu).hardware = false;
		return;
	}
	if (hardware_users++)
		return;
	for_each_possible_cpu(cpu) {
		struct timer_list *timer = per_cpu_ptr(&check_timer, cpu);

		timer->expires = jiffies + CHECK_PERIOD;
		add_timer_on(timer, cpu_online(cpu) ? cpu : raw_smp_processor_id());
	}
}

static void give_range_back(struct ptw_session *session)
{
	unsigned int cpu;

	if (session->stop_range < 0)
		return;
	ptw_trace_range_put(session, session->stop_range);
	session->stop_range = -1;
	for_each_cpu(cpu, &session->trace->cpus)
		per_cpu(ptw_early, cpu).hardware = false;
	WRITE_ONCE(hardware_users, hardware_users - 1);
	if (hardware_users)
		return;
	for_each_possible_cpu(cpu)
		timer_delete_sync(per_cpu_ptr(&check_timer, cpu));
}

void ptw_freeze_watch_removed(struct ptw_session *session)
{
	lockdep_assert_held(&ptw_config_lock);
	if (!--session->freezing)
		give_range_back(session);
}

void ptw_freeze_trace_released(struct ptw_session *session)
{
	lockdep_assert_held(&ptw_config_lock);
	give_range_back(session);
}

/* ---- at a hit ---- */

void __ptw_freeze_undo(void)
{
	struct ptw_early *early = this_cpu_ptr(&ptw_early);
	struct ptw_cpu_trace *ct = this_cpu_read(ptw_owner);

	if (early->hardware)
		resume_if_stopped();
	if (!early->stopped)
		return;
	early->stopped = false;
	if (ct)
		ptw_engine_request(ct, PTW_REQUEST_RESTART);
}
NOKPROBE_SYMBOL(__ptw_freeze_undo);

int ptw_freeze_init(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		timer_setup(per_cpu_ptr(&check_timer, cpu), on_check, TIMER_PINNED);
	return register_die_notifier(&die_nb);
}

void ptw_freeze_exit(void)
{
	unsigned int cpu;

	unregister_die_notifier(&die_nb);
	ptw_freeze_early_exit();
	for_each_possible_cpu(cpu)
		timer_shutdown_sync(per_cpu_ptr(&check_timer, cpu));
}
