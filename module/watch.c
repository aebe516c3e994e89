// SPDX-License-Identifier: GPL-2.0
/*
 * The list of watches, and hardware breakpoints in kernel memory: one perf event for each CPU and
 * debug register, because a wide breakpoint would silently miss CPUs that come online later, and
 * knows only one address for all.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/ctype.h>
#include <linux/hw_breakpoint.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/debugreg.h>
#include <asm/msr.h>

#include "ptwatch.h"

#define DEFAULT_MAX_RATE	100	/* alarms a second */
#define DEFAULT_MAX_STORM	200000	/* hits a second on one CPU */

#define TRACE_ACTIONS \
	(PTWATCH_ACTION_FREEZE | PTWATCH_ACTION_FREEZE_ALL | PTWATCH_ACTION_START | \
	 PTWATCH_ACTION_STOP)

LIST_HEAD(ptw_watches);
static u32 last_id;		/* under ptw_config_lock */

/* ---- what may be watched ---- */

static int refuse(struct ptwatch_refusal *why, u32 reason, int error)
{
	why->reason = reason;
	return error;
}

static bool canonical_kernel_range(u64 address, u32 len)
{
	unsigned int shift = 64 - boot_cpu_data.x86_virt_bits;
	u64 end = address + len - 1;

	/* The kernel accepts addresses that are not canonical; they never hit. */
	return end >= address && (u64)((s64)(address << shift) >> shift) == address &&
	       (u64)((s64)(end << shift) >> shift) == end && (s64)address < 0;
}

static bool printable(const char *text, size_t size)
{
	size_t i;

	for (i = 0; i < size && text[i]; i++)
		if (!isascii(text[i]) || !isprint(text[i]))
			return false;
	return i < size;
}

/* Hardware: 1, 2, 4 or 8 bytes a register; more by several registers of 8. */
static u32 slots_for(const struct ptwatch_watch *arg)
{
	u32 len = arg->len;

	if (arg->access == PTWATCH_ACCESS_X)
		return len == sizeof(long);
	if (len == 1 || len == 2 || len == 4 || len == 8)
		return 1;
	return len % 8 || len / 8 > PTW_MAX_SLOTS ? 0 : len / 8;
}

static u64 distance(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

/*
 * The distance between two CPUs' copies of a variable is at least the size of the area that holds
 * them all, wherever that begins.
 */
static u64 percpu_area_size(void)
{
	unsigned int a, b;
	u64 size = PMD_SIZE;

	for_each_possible_cpu(a)
		for_each_possible_cpu(b)
			if (a != b)
				size = min(size, distance(per_cpu_offset(a), per_cpu_offset(b)));
	return size;
}

static bool is_percpu(u64 address)
{
	/*
	 * The area's bounds are not exported. But it holds this variable of the kernel, and lies
	 * within its size of it on either side.
	 */
	u64 inside = (u64)(unsigned long)&cpu_dr7;

	return distance(address, inside) < percpu_area_size();
}

static bool mapped(u64 address, u32 len)
{
	u8 probe[8 * PTW_MAX_SLOTS];

	return !copy_from_kernel_nofault(probe, (const void *)(unsigned long)address, len);
}

static int check_kernel_address(struct ptw_watch *watch, u64 address, struct ptwatch_refusal *why)
{
	u32 len = watch->arg.access == PTWATCH_ACCESS_X ? 1 : watch->arg.len;
	unsigned int cpu;

	if (watch->arg.access != PTWATCH_ACCESS_X && address % min(len, 8U))
		return refuse(why, PTWATCH_WHY_ALIGN, -EINVAL);
	if (!(watch->arg.flags & PTWATCH_WATCH_PERCPU)) {
		if (!canonical_kernel_range(address, len))
			return refuse(why, PTWATCH_WHY_CANONICAL, -EINVAL);
		return mapped(address, len) ? 0 : refuse(why, PTWATCH_WHY_UNMAPPED, -EINVAL);
	}
	if (!is_percpu(address))
		return refuse(why, PTWATCH_WHY_NOT_PERCPU, -EINVAL);
	for_each_possible_cpu(cpu)
		if (!canonical_kernel_range(address + per_cpu_offset(cpu), len) ||
		    !mapped(address + per_cpu_offset(cpu), len))
			return refuse(why, PTWATCH_WHY_NOT_PERCPU, -EINVAL);
	return 0;
}

static bool flags_make_sense(const struct ptwatch_watch *arg)
{
	const u32 targets = PTWATCH_WATCH_PERCPU | PTWATCH_WATCH_USER | PTWATCH_WATCH_WAIT_MODULE;
	u32 target = arg->flags & targets;

	if (arg->flags & ~(targets | PTWATCH_WATCH_PERSISTENT))
		return false;
	if ((target & PTWATCH_WATCH_USER) && target != PTWATCH_WATCH_USER)
		return false;
	if ((target & PTWATCH_WATCH_PERCPU) && arg->access == PTWATCH_ACCESS_X)
		return false;
	if (!(target & PTWATCH_WATCH_USER) != !arg->tgid)
		return false;
	if (!(target & PTWATCH_WATCH_WAIT_MODULE) == (arg->module[0] && arg->symbol[0]))
		return false;
	if ((arg->flags & PTWATCH_WATCH_PERSISTENT) && (arg->actions & TRACE_ACTIONS))
		return false;
	return true;
}

static int check_arg(const struct ptw_session *session, const struct ptwatch_watch *arg,
		     struct ptwatch_refusal *why)
{
	const u32 actions = PTWATCH_ACTION_LOG | PTWATCH_ACTION_EVENT | TRACE_ACTIONS |
			    PTWATCH_ACTION_PANIC;

	if (arg->id || arg->reserved || !arg->actions || (arg->actions & ~actions))
		return refuse(why, PTWATCH_WHY_FIELD, -EINVAL);
	if (arg->access < PTWATCH_ACCESS_W || arg->access > PTWATCH_ACCESS_X)
		return refuse(why, PTWATCH_WHY_FIELD, -EINVAL);
	why->slots_needed = slots_for(arg);
	if (!why->slots_needed)
		return refuse(why, PTWATCH_WHY_LENGTH, -EINVAL);
	if (!printable(arg->label, sizeof(arg->label)) ||
	    !printable(arg->module, sizeof(arg->module)) ||
	    !printable(arg->symbol, sizeof(arg->symbol)))
		return refuse(why, PTWATCH_WHY_LABEL, -EINVAL);
	if (!flags_make_sense(arg))
		return refuse(why, PTWATCH_WHY_FIELD, -EINVAL);
	if ((arg->actions & TRACE_ACTIONS) && !(session && session->trace))
		return refuse(why, PTWATCH_WHY_NO_TRACE, -EINVAL);
	if (!capable(CAP_SYS_ADMIN))
		return refuse(why, PTWATCH_WHY_RIGHTS, -EPERM);
	if (security_locked_down(LOCKDOWN_PERF))
		return refuse(why, PTWATCH_WHY_LOCKDOWN, -EPERM);
	return 0;
}

/* ---- arming ---- */

void ptw_point_attr(const struct ptw_point *point, struct perf_event_attr *attr)
{
	hw_breakpoint_init(attr);
	attr->bp_addr = point->address;
	attr->bp_len = point->len;
	switch (point->watch->arg.access) {
	case PTWATCH_ACCESS_W:
		attr->bp_type = HW_BREAKPOINT_W;
		break;
	case PTWATCH_ACCESS_RW:
		attr->bp_type = HW_BREAKPOINT_RW;
		break;
	default:
		attr->bp_type = HW_BREAKPOINT_X;
		break;
	}
}

void ptw_point_init(struct ptw_point *point, struct ptw_watch *watch, u32 slot, u64 address)
{
	point->watch = watch;
	point->address = address + 8 * slot;
	point->len = min(watch->arg.len, 8U);
	point->slot = slot;
	point->shadow = &watch->shadow[slot];
	point->window_start = rdtsc();
	point->window_left = watch->arg.max_storm;
	if (watch->arg.access == PTWATCH_ACCESS_X)
		point->read = PTW_READ_NONE;
	else if (watch->arg.flags & PTWATCH_WATCH_USER)
		point->read = PTW_READ_USER;
	else
		point->read = point->len;
}

void ptw_point_disarm(struct ptw_point *point)
{
	if (!point->event)
		return;
	/*
	 * Waits until the CPU let go of the debug register: no handler runs or starts for it
	 * afterwards.
	 */
	perf_event_release_kernel(point->event);
	point->event = NULL;
}

static struct ptw_point *points_of(struct ptw_watch *watch, unsigned int cpu)
{
	return &watch->point[cpu * watch->nr_slots];
}

static bool freezes(const struct ptw_watch *watch)
{
	return watch->arg.actions & (PTWATCH_ACTION_FREEZE | PTWATCH_ACTION_FREEZE_ALL);
}

static void disarm_on(struct ptw_watch *watch, unsigned int cpu)
{
	u32 i;

	for (i = 0; i < watch->nr_slots; i++) {
		struct ptw_point *point = &points_of(watch, cpu)[i];

		if (point->event && freezes(watch))
			ptw_freeze_point_disarmed(cpu, point->address);
		ptw_point_disarm(point);
	}
}

static int arm_on(struct ptw_watch *watch, unsigned int cpu)
{
	bool percpu = watch->arg.flags & PTWATCH_WATCH_PERCPU;
	u64 address = watch->address + (percpu ? per_cpu_offset(cpu) : 0);
	u32 i;

	for (i = 0; i < watch->nr_slots; i++) {
		struct ptw_point *point = &points_of(watch, cpu)[i];
		struct perf_event_attr attr;
		struct perf_event *event;

		ptw_point_init(point, watch, i, address);
		if (percpu) {
			point->shadow = &point->own_shadow;
			point->own_shadow = ptw_point_read(point);
		}
		ptw_point_attr(point, &attr);
		if (freezes(watch))
			ptw_freeze_point_armed(cpu, point->address);
		event = perf_event_create_kernel_counter(&attr, cpu, NULL, ptw_watch_hit, point);
		if (IS_ERR(event)) {
			if (freezes(watch))
				ptw_freeze_point_disarmed(cpu, point->address);
			disarm_on(watch, cpu);
			return PTR_ERR(event);
		}
		point->event = event;
	}
	return 0;
}

static bool armed_on(struct ptw_watch *watch, unsigned int cpu)
{
	return points_of(watch, cpu)->event != NULL;
}

/* Who has the debug registers of a CPU, as far as can be known. */
static void explain_slots(struct ptwatch_refusal *why, unsigned int cpu)
{
	unsigned long dr7 = READ_ONCE(per_cpu(cpu_dr7, cpu));
	struct ptw_watch *watch;
	u32 i, used = 0;

	why->cpu = cpu;
	why->slots_ours = 0;
	list_for_each_entry(watch, &ptw_watches, link)
		if (watch->point && armed_on(watch, cpu))
			why->slots_ours += watch->nr_slots;
	for (i = 0; i < HBP_NUM; i++)
		used += !!(dr7 & (DR_LOCAL_ENABLE | DR_GLOBAL_ENABLE) << (i * DR_ENABLE_SIZE));
	why->slots_others = used > why->slots_ours ? used - why->slots_ours : 0;
}

static void explain(struct ptwatch_refusal *why, int error, unsigned int cpu)
{
	if (error == -ENOSPC) {
		why->reason = PTWATCH_WHY_SLOTS;
		explain_slots(why, cpu);
	} else if (error == -EINVAL) {
		why->reason = PTWATCH_WHY_KERNEL;
	}
}

static void disarm_cpus(struct ptw_watch *watch)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		disarm_on(watch, cpu);
}

int ptw_watch_arm(struct ptw_watch *watch, u64 address, struct ptwatch_refusal *why)
{
	unsigned int cpu;
	int error;
	u32 i;

	lockdep_assert_held(&ptw_config_lock);
	error = check_kernel_address(watch, address, why);
	if (error)
		return error;
	watch->address = address;
	for (i = 0; i < watch->nr_slots; i++) {
		struct ptw_point point = {};

		ptw_point_init(&point, watch, i, address);
		if (!(watch->arg.flags & PTWATCH_WATCH_PERCPU))
			watch->shadow[i] = ptw_point_read(&point);
	}
	for_each_cpu_and(cpu, cpu_online_mask, watch->cpus) {
		error = arm_on(watch, cpu);
		if (error) {
			disarm_cpus(watch);
			watch->address = 0;
			explain(why, error, cpu);
			return error;
		}
	}
	watch->state = PTWATCH_WATCH_ARMED;
	return 0;
}

void ptw_watch_disarm(struct ptw_watch *watch, u32 state)
{
	lockdep_assert_held(&ptw_config_lock);
	watch->state = state;
	ptw_user_watch_disarm(watch);
	disarm_cpus(watch);
}

/* ---- adding and removing ---- */

static void watch_free(struct kref *kref)
{
	struct ptw_watch *watch = container_of(kref, struct ptw_watch, kref);

	put_pid(watch->owner_pid);
	free_cpumask_var(watch->cpus);
	ptw_condition_free(&watch->cond);
	kvfree(watch->point);
	kfree(watch);
}

void ptw_watch_put(struct ptw_watch *watch)
{
	kref_put(&watch->kref, watch_free);
}

static struct ptw_watch *watch_alloc(struct ptw_session *session,
				     const struct ptw_watch_request *request)
{
	struct ptw_watch *watch = kzalloc(sizeof(*watch), GFP_KERNEL);

	if (!watch)
		return NULL;
	kref_init(&watch->kref);
	watch->session = session;
	watch->owner = session;
	watch->owner_pid = get_task_pid(current, PIDTYPE_TGID);
	get_task_comm(watch->owner_comm, current);
	watch->arg = request->arg;
	watch->arg.max_rate = watch->arg.max_rate ?: DEFAULT_MAX_RATE;
	watch->arg.max_storm = watch->arg.max_storm ?: DEFAULT_MAX_STORM;
	watch->nr_slots = request->why.slots_needed;
	INIT_LIST_HEAD(&watch->link);
	INIT_LIST_HEAD(&watch->threads);
	memcpy(watch->shadow, request->seed, sizeof(watch->shadow));
	watch->point = kvcalloc(nr_cpu_ids * watch->nr_slots, sizeof(*watch->point), GFP_KERNEL);
	if (!zalloc_cpumask_var(&watch->cpus, GFP_KERNEL) || !watch->point) {
		ptw_watch_put(watch);
		return NULL;
	}
	cpumask_copy(watch->cpus, request->cpus);
	return watch;
}

int ptw_watch_add(struct ptw_session *session, struct ptw_watch_request *request)
{
	struct ptwatch_watch *arg = &request->arg;
	struct ptw_condition cond = {};
	struct ptw_watch *watch;
	int error;

	lockdep_assert_held(&ptw_config_lock);
	request->why.slots = HBP_NUM;
	error = check_arg(session, arg, &request->why);
	error = error ?: ptw_condition_init(&cond, arg, request->filters, &request->why);
	watch = error ? NULL : watch_alloc(session, request);
	if (!watch) {
		ptw_condition_free(&cond);
		return error ?: -ENOMEM;
	}
	watch->cond = cond;
	/*
	 * Used up even if arming fails below: a CPU that was armed may have been hit meanwhile, and
	 * that alarm carries the number.
	 */
	watch->arg.id = ++last_id;
	if (arg->flags & PTWATCH_WATCH_USER)
		error = ptw_user_watch_arm(watch, &request->why);
	else if (arg->flags & PTWATCH_WATCH_WAIT_MODULE)
		error = ptw_module_watch_arm(watch, &request->why);
	else
		error = ptw_watch_arm(watch, arg->address, &request->why);
	if (error) {
		/* An alarm on its way keeps the watch, but not the session. */
		watch->session = NULL;
		ptw_watch_put(watch);
		return error;
	}
	if (freezes(watch))
		ptw_freeze_watch_added(session);
	list_add_tail(&watch->link, &ptw_watches);
	arg->id = watch->arg.id;
	arg->max_rate = watch->arg.max_rate;
	return 0;
}

static void watch_del(struct ptw_watch *watch)
{
	ptw_watch_disarm(watch, PTWATCH_WATCH_GONE);
	if (freezes(watch))
		ptw_freeze_watch_removed(watch->session);
	list_del(&watch->link);
	watch->session = NULL;
	ptw_watch_put(watch);
}

static struct ptw_watch *find(struct ptw_session *session, u32 id)
{
	struct ptw_watch *watch;

	list_for_each_entry(watch, &ptw_watches, link)
		if (watch->arg.id == id && (!session || watch->session == session))
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

	list_for_each_entry_safe(watch, next, &ptw_watches, link) {
		if (watch->session != session)
			continue;
		if (watch->arg.flags & PTWATCH_WATCH_PERSISTENT)
			watch->session = NULL;
		else
			watch_del(watch);
	}
}

/* ---- telling about them ---- */

int ptw_watch_stat(struct ptw_session *session, struct ptwatch_watch_stat *stat)
{
	struct ptw_watch *watch = find(session, stat->id);
	unsigned int cpu;

	if (!watch)
		return -ENOENT;
	stat->armed_cpus = ptw_user_watch_armed(watch);
	for_each_possible_cpu(cpu)
		stat->armed_cpus += armed_on(watch, cpu);
	stat->state = watch->state;
	stat->hits = atomic64_read(&watch->hits);
	stat->alarms = atomic64_read(&watch->alarms);
	stat->filtered = atomic64_read(&watch->filtered);
	stat->ignored = atomic64_read(&watch->ignored);
	stat->rate_limited = atomic64_read(&watch->rate_limited);
	stat->dropped = atomic64_read(&watch->dropped);
	stat->missed = atomic64_read(&watch->missed);
	return 0;
}

int ptw_watch_next(struct ptwatch_watch_entry *entry)
{
	const struct ptwatch_watch *arg;
	struct ptw_watch *watch;

	/* The list is in the order of ids. */
	list_for_each_entry(watch, &ptw_watches, link)
		if (watch->arg.id >= entry->id)
			goto found;
	return -ENOENT;
found:
	arg = &watch->arg;
	entry->id = arg->id;
	entry->flags = arg->flags;
	entry->owner_tgid = pid_vnr(watch->owner_pid);
	strscpy(entry->owner_comm, watch->owner_comm, sizeof(entry->owner_comm));
	entry->address = watch->address;
	entry->len = arg->len;
	entry->access = arg->access;
	entry->actions = arg->actions;
	entry->max_hits = arg->max_hits;
	entry->max_rate = arg->max_rate;
	entry->tgid = arg->tgid;
	strscpy(entry->label, arg->label, sizeof(entry->label));
	strscpy(entry->module, arg->module, sizeof(entry->module));
	return 0;
}

/* ---- storms ---- */

void ptw_watch_disarm_storms(void)
{
	struct ptw_watch *watch;

	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	list_for_each_entry(watch, &ptw_watches, link) {
		if (READ_ONCE(watch->over) != PTWATCH_WATCH_STORM ||
		    watch->state != PTWATCH_WATCH_ARMED)
			continue;
		ptw_watch_disarm(watch, PTWATCH_WATCH_STORM);
		pr_warn("watch %u (%s) is disarmed: more than %u hits a second on a CPU\n",
			watch->arg.id, watch->arg.label, watch->arg.max_storm);
		pr_warn("of %llu hits: %llu alarms, %llu filtered, %llu limited, %llu lost\n",
			atomic64_read(&watch->hits), atomic64_read(&watch->alarms),
			atomic64_read(&watch->filtered), atomic64_read(&watch->rate_limited),
			atomic64_read(&watch->dropped) + atomic64_read(&watch->ignored));
	}
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
}

/* ---- CPUs that come and go ---- */

void ptw_watch_cpu_online(unsigned int cpu)
{
	struct ptw_watch *watch;
	int error;

	mutex_lock(&ptw_config_lock);
	list_for_each_entry(watch, &ptw_watches, link) {
		if (watch->state != PTWATCH_WATCH_ARMED || armed_on(watch, cpu) ||
		    (watch->arg.flags & PTWATCH_WATCH_USER) ||
		    !cpumask_test_cpu(cpu, watch->cpus))
			continue;
		error = arm_on(watch, cpu);
		if (!error)
			continue;
		atomic64_inc(&watch->missed);
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
	list_for_each_entry(watch, &ptw_watches, link)
		disarm_on(watch, cpu);
	mutex_unlock(&ptw_config_lock);
}

void ptw_watch_exit(void)
{
	struct ptw_watch *watch, *next;

	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	list_for_each_entry_safe(watch, next, &ptw_watches, link)
		watch_del(watch);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
}
