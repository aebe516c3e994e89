// SPDX-License-Identifier: GPL-2.0
/*
 * Hardware breakpoints, one perf event for each CPU: a wide breakpoint would silently miss CPUs
 * that come online later.
 *
 * What happens at a hit runs in the #DB handler: IRQs off, in_nmi() true, possibly with any lock of
 * the kernel held. It takes no lock, allocates nothing and prints nothing. DR7 is zero meanwhile,
 * so it cannot hit itself, and writes made by it (or by NMI and #MC handlers) are not seen.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cgroup.h>
#include <linux/ctype.h>
#include <linux/hw_breakpoint.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <asm/msr.h>
#include <asm/tsc.h>
#include <asm/unwind.h>

#include "ptwatch.h"

#define DEFAULT_MAX_RATE	100	/* alarms a second */

static LIST_HEAD(watches);	/* under ptw_config_lock */
static u32 last_id;		/* likewise */

/* ---- the hit ---- */

static u64 read_watched(const struct ptw_watch *watch)
{
	u64 value = 0;

	/* Little-endian: the low bytes of value are the watched ones. */
	if (copy_from_kernel_nofault(&value, (const void *)(unsigned long)watch->arg.address,
				     watch->arg.len))
		return 0;
	return value;
}

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

static void note_regs(u64 *to, const struct pt_regs *regs)
{
	to[PTWATCH_REG_AX] = regs->ax;
	to[PTWATCH_REG_BX] = regs->bx;
	to[PTWATCH_REG_CX] = regs->cx;
	to[PTWATCH_REG_DX] = regs->dx;
	to[PTWATCH_REG_SI] = regs->si;
	to[PTWATCH_REG_DI] = regs->di;
	to[PTWATCH_REG_BP] = regs->bp;
	to[PTWATCH_REG_SP] = regs->sp;
	to[PTWATCH_REG_R8] = regs->r8;
	to[PTWATCH_REG_R9] = regs->r9;
	to[PTWATCH_REG_R10] = regs->r10;
	to[PTWATCH_REG_R11] = regs->r11;
	to[PTWATCH_REG_R12] = regs->r12;
	to[PTWATCH_REG_R13] = regs->r13;
	to[PTWATCH_REG_R14] = regs->r14;
	to[PTWATCH_REG_R15] = regs->r15;
	to[PTWATCH_REG_IP] = regs->ip;
	to[PTWATCH_REG_FLAGS] = regs->flags;
}

/* From the interrupted code outwards: starting at regs leaves the #DB handler's own frames out. */
static u32 note_stack(unsigned long *to, u32 max, struct pt_regs *regs)
{
	struct unwind_state state;
	u32 n = 0;

	/* The unwinder begins with the caller of what regs describe. */
	to[n++] = regs->ip;
	/* An access from user mode (never one of a syscall's copies) has no kernel stack. */
	if (user_mode(regs))
		return n;
	for (unwind_start(&state, current, regs, NULL); !unwind_done(&state) && n < max;
	     unwind_next_frame(&state)) {
		unsigned long addr = unwind_get_return_address(&state);

		if (!addr)
			break;
		to[n++] = addr;
	}
	return n;
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

/* A hit that becomes no alarm, though a later one may: its value is that one's old value. */
static void pass_over(struct ptw_watch *watch, atomic64_t *counter)
{
	WRITE_ONCE(watch->shadow, read_watched(watch));
	atomic64_inc(counter);
}

static void watch_hit(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs)
{
	struct ptw_watch *watch = event->overflow_handler_context;
	u32 max_hits = watch->arg.max_hits;
	struct ptw_alarm *alarm;
	bool frozen = false;
	bool last = false;

	atomic64_inc(&watch->hits);
	if (max_hits && atomic_read(&watch->claimed) >= max_hits) {
		atomic64_inc(&watch->ignored);
		return;
	}
	if (!within_rate(watch, rdtsc())) {
		pass_over(watch, &watch->rate_limited);
		return;
	}
	/*
	 * Before the claim: a claim that finds no record would be an alarm that nobody delivers,
	 * and a watch never disarmed.
	 */
	alarm = ptw_alarm_reserve();
	if (!alarm) {
		pass_over(watch, &watch->dropped);
		return;
	}
	if (max_hits) {
		u32 mine = atomic_inc_return(&watch->claimed);

		/* Two CPUs may have passed the first look at once. */
		if (mine > max_hits) {
			atomic64_inc(&watch->ignored);
			return;
		}
		last = mine == max_hits;
	}

	/*
	 * Before anything else is done about the hit: each instruction from here to there is one of
	 * ours in the trace.
	 */
	if (watch->arg.actions & PTWATCH_ACTION_FREEZE)
		frozen = ptw_trace_freeze(watch->owner);

	kref_get(&watch->kref);
	alarm->watch = watch;
	alarm->time = ktime_get_mono_fast_ns();
	alarm->tsc = rdtsc();
	alarm->ip = regs->ip;
	alarm->cpu = raw_smp_processor_id();
	alarm->pid = current->pid;
	alarm->tgid = current->tgid;
	alarm->cgroup = current_cgroup_id();
	alarm->frozen = frozen;
	alarm->last = last;
	memcpy(alarm->comm, current->comm, sizeof(alarm->comm));
	alarm->comm[sizeof(alarm->comm) - 1] = '\0';
	alarm->have_values = watch->arg.access != PTWATCH_ACCESS_X;
	if (alarm->have_values) {
		alarm->new_value = read_watched(watch);
		alarm->old_value = xchg(&watch->shadow, alarm->new_value);
	}
	alarm->nr_stack = note_stack(alarm->stack, ARRAY_SIZE(alarm->stack), regs);
	note_regs(alarm->regs, regs);
	ptw_alarm_commit();
}
/* A kprobe inside would raise #BP in the #DB handler. */
NOKPROBE_SYMBOL(watch_hit);

/* ---- arming ---- */

static bool canonical_kernel_range(u64 address, u32 len)
{
	unsigned int shift = 64 - boot_cpu_data.x86_virt_bits;
	u64 end = address + len - 1;

	/* The kernel accepts addresses that are not canonical; they never hit. */
	return end >= address && (u64)((s64)(address << shift) >> shift) == address &&
	       (u64)((s64)(end << shift) >> shift) == end && (s64)address < 0;
}

static bool valid_label(const char *label)
{
	size_t i;

	for (i = 0; i < PTWATCH_LABEL_SIZE && label[i]; i++)
		if (!isascii(label[i]) || !isprint(label[i]))
			return false;
	return i < PTWATCH_LABEL_SIZE;
}

static int check_arg(const struct ptw_session *session, const struct ptwatch_watch *arg)
{
	const u32 actions = PTWATCH_ACTION_LOG | PTWATCH_ACTION_EVENT | PTWATCH_ACTION_FREEZE;
	u64 probe;

	if (arg->flags || arg->id || !arg->actions || (arg->actions & ~actions) ||
	    !valid_label(arg->label))
		return -EINVAL;
	switch (arg->access) {
	case PTWATCH_ACCESS_X:
		if (arg->len != sizeof(long))
			return -EINVAL;
		break;
	case PTWATCH_ACCESS_W:
	case PTWATCH_ACCESS_RW:
		if (arg->len != 1 && arg->len != 2 && arg->len != 4 && arg->len != 8)
			return -EINVAL;
		if (arg->address & (arg->len - 1))
			return -EINVAL;
		break;
	default:
		return -EINVAL;
	}
	if (!canonical_kernel_range(arg->address, arg->access == PTWATCH_ACCESS_X ? 1 : arg->len))
		return -EINVAL;
	if ((arg->actions & PTWATCH_ACTION_FREEZE) && !session->trace)
		return -EINVAL;
	if (!capable(CAP_SYS_ADMIN) || security_locked_down(LOCKDOWN_PERF))
		return -EPERM;
	if (copy_from_kernel_nofault(&probe, (const void *)(unsigned long)arg->address,
				     arg->access == PTWATCH_ACCESS_X ? 1 : arg->len))
		return -EINVAL;
	return 0;
}

static int arm_on(struct ptw_watch *watch, unsigned int cpu)
{
	struct perf_event_attr attr;
	struct perf_event *event;

	hw_breakpoint_init(&attr);
	attr.bp_addr = watch->arg.address;
	attr.bp_len = watch->arg.len;
	switch (watch->arg.access) {
	case PTWATCH_ACCESS_W:
		attr.bp_type = HW_BREAKPOINT_W;
		break;
	case PTWATCH_ACCESS_RW:
		attr.bp_type = HW_BREAKPOINT_RW;
		break;
	default:
		attr.bp_type = HW_BREAKPOINT_X;
		break;
	}
	event = perf_event_create_kernel_counter(&attr, cpu, NULL, watch_hit, watch);
	if (IS_ERR(event))
		return PTR_ERR(event);
	watch->event[cpu] = event;
	return 0;
}

void ptw_watch_disarm(struct ptw_watch *watch)
{
	unsigned int cpu;

	lockdep_assert_held(&ptw_config_lock);
	watch->disarmed = true;
	for_each_possible_cpu(cpu) {
		if (!watch->event[cpu])
			continue;
		/*
		 * Waits until the CPU let go of the debug register: no handler runs or starts for
		 * it afterwards.
		 */
		perf_event_release_kernel(watch->event[cpu]);
		watch->event[cpu] = NULL;
	}
}

static void watch_free(struct kref *kref)
{
	kfree(container_of(kref, struct ptw_watch, kref));
}

void ptw_watch_put(struct ptw_watch *watch)
{
	kref_put(&watch->kref, watch_free);
}

int ptw_watch_add(struct ptw_session *session, struct ptwatch_watch *arg)
{
	struct ptw_watch *watch;
	unsigned int cpu;
	int error;

	lockdep_assert_held(&ptw_config_lock);
	error = check_arg(session, arg);
	if (error)
		return error;

	watch = kzalloc(struct_size(watch, event, nr_cpu_ids), GFP_KERNEL);
	if (!watch)
		return -ENOMEM;
	kref_init(&watch->kref);
	watch->session = session;
	watch->owner = session;
	watch->arg = *arg;
	if (!watch->arg.max_rate)
		watch->arg.max_rate = DEFAULT_MAX_RATE;
	/*
	 * Used up even if arming fails below: a CPU that was armed may have been hit meanwhile, and
	 * that alarm carries the number.
	 */
	watch->arg.id = ++last_id;
	watch->shadow = read_watched(watch);

	for_each_online_cpu(cpu) {
		error = arm_on(watch, cpu);
		if (error) {
			ptw_watch_disarm(watch);
			/* An alarm on its way keeps the watch, but not the session. */
			watch->session = NULL;
			ptw_watch_put(watch);
			return error;
		}
	}
	list_add_tail(&watch->link, &watches);
	arg->id = watch->arg.id;
	arg->max_rate = watch->arg.max_rate;
	return 0;
}

static void watch_del(struct ptw_watch *watch)
{
	ptw_watch_disarm(watch);
	list_del(&watch->link);
	watch->session = NULL;
	ptw_watch_put(watch);
}

static struct ptw_watch *find(struct ptw_session *session, u32 id)
{
	struct ptw_watch *watch;

	list_for_each_entry(watch, &watches, link)
		if (watch->session == session && watch->arg.id == id)
			return watch;
	return NULL;
}

int ptw_watch_del(struct ptw_session *session, u32 id)
{
	struct ptw_watch *watch = find(session, id);

	if (!watch)
		return -ENOENT;
	watch_del(watch);
	return 0;
}

void ptw_watch_del_all(struct ptw_session *session)
{
	struct ptw_watch *watch, *next;

	list_for_each_entry_safe(watch, next, &watches, link)
		if (watch->session == session)
			watch_del(watch);
}

int ptw_watch_stat(struct ptw_session *session, struct ptwatch_watch_stat *stat)
{
	struct ptw_watch *watch = find(session, stat->id);
	unsigned int cpu;

	if (!watch)
		return -ENOENT;
	stat->armed_cpus = 0;
	for_each_possible_cpu(cpu)
		stat->armed_cpus += !!watch->event[cpu];
	stat->hits = atomic64_read(&watch->hits);
	stat->alarms = atomic64_read(&watch->alarms);
	stat->ignored = atomic64_read(&watch->ignored);
	stat->rate_limited = atomic64_read(&watch->rate_limited);
	stat->dropped = atomic64_read(&watch->dropped);
	return 0;
}

/* ---- CPUs that come and go ---- */

void ptw_watch_cpu_online(unsigned int cpu)
{
	struct ptw_watch *watch;
	int error;

	mutex_lock(&ptw_config_lock);
	list_for_each_entry(watch, &watches, link) {
		if (watch->disarmed || watch->event[cpu])
			continue;
		error = arm_on(watch, cpu);
		if (error)
			pr_warn("watch %u (%s) is not armed on CPU %u that came online: %s (%d)\n",
				watch->arg.id, watch->arg.label, cpu,
				error == -ENOSPC ? "no free debug register" : "refused", error);
	}
	mutex_unlock(&ptw_config_lock);
}

void ptw_watch_cpu_offline(unsigned int cpu)
{
	struct ptw_watch *watch;

	mutex_lock(&ptw_config_lock);
	list_for_each_entry(watch, &watches, link) {
		if (!watch->event[cpu])
			continue;
		perf_event_release_kernel(watch->event[cpu]);
		watch->event[cpu] = NULL;
	}
	mutex_unlock(&ptw_config_lock);
}

/* ---- modules that go ---- */

/* Their memory will be someone else's, whose accesses are not what was asked for. */
static int on_module(struct notifier_block *nb, unsigned long state, void *data)
{
	const struct module *mod = data;
	struct ptw_watch *watch;

	if (state != MODULE_STATE_GOING)
		return NOTIFY_OK;
	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	list_for_each_entry(watch, &watches, link) {
		if (watch->disarmed || !within_module(watch->arg.address, mod))
			continue;
		ptw_watch_disarm(watch);
		pr_warn("watch %u (%s) is disarmed: module %s is being unloaded\n", watch->arg.id,
			watch->arg.label, mod->name);
	}
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	return NOTIFY_OK;
}

static struct notifier_block module_nb = { .notifier_call = on_module };

int ptw_watch_init(void)
{
	return register_module_notifier(&module_nb);
}

void ptw_watch_exit(void)
{
	unregister_module_notifier(&module_nb);
}
