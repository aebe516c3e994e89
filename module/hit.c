// SPDX-License-Identifier: GPL-2.0
/*
 * What happens at a hit. It runs in the #DB handler: IRQs off, in_nmi() true (but for hits of user
 * code), possibly with any lock of the kernel held. It takes no lock, allocates nothing and prints
 * nothing. DR7 is zero meanwhile, so it cannot hit itself, and writes made by it (or by NMI and #MC
 * handlers) are not seen.
 */
#include <linux/cgroup.h>
#include <linux/kprobes.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include "ptwatch.h"

static u64 read_kernel(u64 address, u32 len)
{
	const void *from = (const void *)(unsigned long)address;
	u64 value;

	/*
	 * Inline, without copy_from_kernel_nofault()'s checks: they were made when the watch was
	 * armed. Little-endian: the low bytes of value are the watched ones.
	 */
	switch (len) {
	case 1:
		__get_kernel_nofault(&value, from, u8, fault);
		return *(u8 *)&value;
	case 2:
		__get_kernel_nofault(&value, from, u16, fault);
		return *(u16 *)&value;
	case 4:
		__get_kernel_nofault(&value, from, u32, fault);
		return *(u32 *)&value;
	default:
		__get_kernel_nofault(&value, from, u64, fault);
		return value;
	}
fault:
	return 0;
}

u64 ptw_point_read(const struct ptw_point *point)
{
	u64 value = 0;

	if (!(point->watch->arg.flags & PTWATCH_WATCH_USER))
		return read_kernel(point->address, point->len);
	if (copy_from_user_nofault(&value, (void __user *)(unsigned long)point->address,
				   point->len))
		return 0;
	return value;
}
NOKPROBE_SYMBOL(ptw_point_read);

/* In TSC ticks, not nanoseconds: reading the clock is most of what a limited hit would cost. */
static bool within_rate(struct ptw_watch *watch, u64 tsc)
{
	u64 start = atomic64_read(&watch->window);

	/*
	 * Of CPUs that find the second over at once, one starts the next; the others count into it
	 * a moment later.
	 */
	if (tsc - start >= 1000ULL * tsc_khz &&
	    atomic64_cmpxchg(&watch->window, start, tsc) == start)
		atomic_set(&watch->window_alarms, 0);
	return atomic_inc_return(&watch->window_alarms) <= watch->arg.max_rate;
}

/*
 * More than max_storm hits within a second? The clock is only looked at once in max_storm hits, so
 * a storm is noticed after one to two times as many.
 */
static bool is_storm(struct ptw_point *point)
{
	u64 start = point->window_start;
	u64 now;

	if (++point->window_hits <= point->watch->arg.max_storm)
		return false;
	now = rdtsc();
	point->window_start = now;
	point->window_hits = 0;
	return now - start < 1000ULL * tsc_khz;
}

static u64 current_cgroup_id(void)
{
	u64 id = 0;

#ifdef CONFIG_CGROUPS
	/* RCU, not a lock: in NMI-like context rcu_is_watching() holds, entry code saw to it. */
	rcu_read_lock();
	id = cgroup_id(task_dfl_cgroup(current));
	rcu_read_unlock();
#endif
	return id;
}

static void note(struct ptw_alarm *alarm, struct ptw_point *point, struct pt_regs *regs)
{
	struct ptw_watch *watch = point->watch;

	kref_get(&watch->kref);
	alarm->watch = watch;
	alarm->time = ktime_get_mono_fast_ns();
	alarm->tsc = rdtsc();
	alarm->address = point->address;
	alarm->slot = point->slot;
	alarm->cpu = raw_smp_processor_id();
	alarm->pid = current->pid;
	alarm->tgid = current->tgid;
	alarm->cgroup = current_cgroup_id();
	memcpy(alarm->comm, current->comm, sizeof(alarm->comm));
	alarm->comm[sizeof(alarm->comm) - 1] = '\0';
	alarm->regs = *regs;
	alarm->nr_user_stack =
		ptw_user_stack(alarm->user_stack, ARRAY_SIZE(alarm->user_stack), regs);
	ptw_stack_take(&alarm->stack, regs);
}

static void count(atomic64_t *counter)
{
	atomic64_inc(counter);
	ptw_freeze_undo();
}

/* What an alarm does to the trace: first of all, as each instruction until then is in it. */
static void act_on_trace(struct ptw_alarm *alarm, const struct ptw_watch *watch)
{
	u32 actions = watch->arg.actions;

	alarm->frozen = false;
	if (actions & (PTWATCH_ACTION_FREEZE | PTWATCH_ACTION_FREEZE_ALL)) {
		alarm->frozen = ptw_trace_freeze(watch->owner);
		alarm->freeze = ptw_freeze_how();
	}
	if (actions & PTWATCH_ACTION_FREEZE_ALL)
		ptw_alarm_freeze_others(watch->owner);
	if (actions & PTWATCH_ACTION_STOP)
		ptw_trace_stop_here(watch->owner);
	if (actions & PTWATCH_ACTION_START)
		ptw_trace_start_here(watch->owner);
	if (!alarm->frozen)
		ptw_freeze_undo();
}

void ptw_watch_hit(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs)
{
	struct ptw_point *point = event->overflow_handler_context;
	struct ptw_watch *watch = point->watch;
	bool is_data = watch->arg.access != PTWATCH_ACCESS_X;
	u32 max_hits = watch->arg.max_hits;
	struct ptw_alarm *alarm;
	u64 old = 0, new = 0;
	bool last = false;

	atomic64_inc(&watch->hits);
	if (unlikely(READ_ONCE(watch->over)))
		return count(&watch->ignored);
	if (unlikely(is_storm(point))) {
		WRITE_ONCE(watch->over, PTWATCH_WATCH_STORM);
		ptw_alarm_kick();
		return count(&watch->ignored);
	}
	if (is_data) {
		/* Whether it becomes an alarm or not: its value is the next one's old value. */
		new = ptw_point_read(point);
		old = xchg(point->shadow, new);
	}
	if (!ptw_condition_holds(&watch->cond, old, new, regs))
		return count(&watch->filtered);
	if (!within_rate(watch, rdtsc()))
		return count(&watch->rate_limited);
	/*
	 * Before the claim: a claim that finds no record would be an alarm that nobody delivers,
	 * and a watch never disarmed.
	 */
	alarm = ptw_alarm_reserve();
	if (!alarm)
		return count(&watch->dropped);
	if (max_hits) {
		u32 mine = atomic_inc_return(&watch->claimed);

		/* Two CPUs may have passed the first look at once. */
		if (mine > max_hits)
			return count(&watch->ignored);
		last = mine == max_hits;
		if (last)
			WRITE_ONCE(watch->over, PTWATCH_WATCH_DONE);
	}
	act_on_trace(alarm, watch);
	alarm->last = last;
	alarm->have_values = is_data;
	alarm->old_value = old;
	alarm->new_value = new;
	note(alarm, point, regs);
	ptw_alarm_commit();
}
/* A kprobe inside would raise #BP in the #DB handler. */
NOKPROBE_SYMBOL(ptw_watch_hit);
