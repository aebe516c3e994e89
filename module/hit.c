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
#include <linux/uaccess.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include "ptwatch.h"

/*
 * Inline, without copy_from_kernel_nofault()'s checks: they were made when the watch was armed.
 * Little-endian: the low bytes of the value are the watched ones.
 */
static __always_inline u64 read_kernel(u64 address, u32 len)
{
	const void *from = (const void *)(unsigned long)address;
	union {
		u8 b;
		u16 w;
		u32 l;
		u64 q;
	} value;

	/* The most frequent first. */
	if (likely(len == 8)) {
		__get_kernel_nofault(&value.q, from, u64, fault);
		return value.q;
	}
	if (len == 4) {
		__get_kernel_nofault(&value.l, from, u32, fault);
		return value.l;
	}
	if (len == 1) {
		__get_kernel_nofault(&value.b, from, u8, fault);
		return value.b;
	}
	__get_kernel_nofault(&value.w, from, u16, fault);
	return value.w;
fault:
	return 0;
}

u64 ptw_point_read(const struct ptw_point *point)
{
	u64 value = 0;

	if (point->read == PTW_READ_NONE)
		return 0;
	if (point->read != PTW_READ_USER)
		return read_kernel(point->address, point->read);
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
	u64 now = rdtsc();

	point->window_start = now;
	point->window_left = point->watch->arg.max_storm;
	return now - start < 1000ULL * tsc_khz;
}

static u64 current_cgroup_id(void)
{
#ifdef CONFIG_CGROUPS
	/* No rcu_read_lock(): IRQs are off, which is a read-side critical section as well. */
	return cgroup_id(rcu_dereference_raw(current->cgroups)->dfl_cgrp);
#else
	return 0;
#endif
}

static __always_inline void note(struct ptw_alarm *alarm, struct ptw_point *point,
				 struct pt_regs *regs)
{
	struct ptw_watch *watch = point->watch;

	kref_get(&watch->kref);
	alarm->watch = watch;
	alarm->address = point->address;
	alarm->slot = point->slot;
	alarm->cpu = raw_smp_processor_id();
	alarm->pid = current->pid;
	alarm->tgid = current->tgid;
	alarm->cgroup = current_cgroup_id();
	memcpy(alarm->comm, current->comm, sizeof(alarm->comm));
	alarm->comm[sizeof(alarm->comm) - 1] = '\0';
	ptw_copy_words(&alarm->regs, regs, sizeof(*regs) / sizeof(long));
	alarm->nr_user_stack =
		ptw_user_stack(alarm->user_stack, ARRAY_SIZE(alarm->user_stack), regs);
	ptw_stack_take(&alarm->stack, regs);
}

static __always_inline void count(atomic64_t *counter)
{
	atomic64_inc(counter);
	ptw_freeze_undo();
}

/* Looked up for each, which is quicker than to keep them over the calls. */
static __always_inline bool acts(const struct ptw_watch *watch, u32 actions)
{
	return READ_ONCE(watch->arg.actions) & actions;
}

/* What an alarm does to the trace: first of all, as each instruction until then is in it. */
static __always_inline void act_on_trace(struct ptw_alarm *alarm, const struct ptw_watch *watch)
{
	alarm->frozen = false;
	if (acts(watch, PTWATCH_ACTION_FREEZE | PTWATCH_ACTION_FREEZE_ALL)) {
		alarm->frozen = ptw_trace_freeze(watch->owner, alarm->tsc);
		alarm->freeze = ptw_freeze_how();
	}
	if (acts(watch, PTWATCH_ACTION_FREEZE_ALL))
		ptw_alarm_freeze_others(watch->owner);
	if (acts(watch, PTWATCH_ACTION_STOP))
		ptw_trace_stop_here(watch->owner);
	if (acts(watch, PTWATCH_ACTION_START))
		ptw_trace_start_here(watch->owner);
	if (!alarm->frozen)
		ptw_freeze_undo();
}

/*
 * A hit goes through these functions one after the other, each calling the next as its last act,
 * so that none has anything to save for the case that it goes on.
 */

/* 4. All conditions hold. */
static noinline void raise_alarm(struct ptw_point *point, struct pt_regs *regs, u64 old, u64 new)
{
	struct ptw_watch *watch = point->watch;
	u32 max_hits = watch->arg.max_hits;
	struct ptw_alarm *alarm;
	u64 tsc = rdtsc();
	bool last = false;

	if (!within_rate(watch, tsc))
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
	/* What is known is noted before the calls, so that it need not be kept over them. */
	alarm->tsc = tsc;
	alarm->last = last;
	alarm->old_value = old;
	alarm->new_value = new;
	act_on_trace(alarm, watch);
	alarm->have_values = point->read != PTW_READ_NONE;
	note(alarm, point, regs);
	ptw_alarm_commit();
}
NOKPROBE_SYMBOL(raise_alarm);

/* 3. Conditions that take longer. */
static noinline void look_at_slow(struct ptw_point *point, struct pt_regs *regs, u64 old, u64 new)
{
	if (!ptw_slow_conditions_hold(&point->watch->cond, regs))
		return count(&point->watch->filtered);
	raise_alarm(point, regs, old, new);
}
NOKPROBE_SYMBOL(look_at_slow);

/* 2. Who is it? */
static noinline void look_at_writer(struct ptw_point *point, struct pt_regs *regs, u64 old,
				    u64 new)
{
	struct ptw_watch *watch = point->watch;

	if (!ptw_filters_hold(&watch->cond))
		return count(&watch->filtered);
	if (watch->cond.slow)
		look_at_slow(point, regs, old, new);
	else
		raise_alarm(point, regs, old, new);
}
NOKPROBE_SYMBOL(look_at_writer);

/* 1. The value. */
static __always_inline void look_at_value(struct ptw_point *point, struct pt_regs *regs, u64 new)
{
	struct ptw_watch *watch = point->watch;
	/* Whether it becomes an alarm or not: its value is the next one's old value. */
	u64 old = xchg(point->shadow, new);

	if (!ptw_value_holds(&watch->cond, old, new))
		return count(&watch->filtered);
	if (watch->cond.more)
		look_at_writer(point, regs, old, new);
	else
		raise_alarm(point, regs, old, new);
}

static noinline void hit_elsewhere(struct ptw_point *point, struct pt_regs *regs)
{
	if (point->read == PTW_READ_USER)
		return look_at_value(point, regs, ptw_point_read(point));
	/* Instructions have no value. */
	if (point->watch->cond.more)
		look_at_writer(point, regs, 0, 0);
	else
		raise_alarm(point, regs, 0, 0);
}
NOKPROBE_SYMBOL(hit_elsewhere);

static noinline void hit_of_over(struct ptw_watch *watch)
{
	count(&watch->ignored);
}
NOKPROBE_SYMBOL(hit_of_over);

static noinline void storm(struct ptw_watch *watch)
{
	WRITE_ONCE(watch->over, PTWATCH_WATCH_STORM);
	ptw_alarm_kick();
	count(&watch->ignored);
}
NOKPROBE_SYMBOL(storm);

void ptw_watch_hit(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs)
{
	struct ptw_point *point = event->overflow_handler_context;
	struct ptw_watch *watch = point->watch;

	atomic64_inc(&watch->hits);
	if (unlikely(READ_ONCE(watch->over)))
		return hit_of_over(watch);
	if (unlikely(--point->window_left < 0) && is_storm(point))
		return storm(watch);
	if (unlikely(point->read == PTW_READ_NONE || point->read == PTW_READ_USER))
		return hit_elsewhere(point, regs);
	look_at_value(point, regs, read_kernel(point->address, point->read));
}
/* A kprobe inside would raise #BP in the #DB handler. */
NOKPROBE_SYMBOL(ptw_watch_hit);
