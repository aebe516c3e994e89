// SPDX-License-Identifier: GPL-2.0
/*
 * Which hits count: the conditions of a watch. They are looked at in the #DB handler before
 * anything is noted down, the cheap ones first.
 */
#include <linux/cgroup.h>
#include <linux/ctype.h>
#include <linux/kprobes.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "ptwatch.h"

static int refuse(struct ptwatch_refusal *why, u32 reason, u32 detail)
{
	why->reason = reason;
	why->detail = detail;
	return -EINVAL;
}

static u64 bytes_mask(u32 size)
{
	return size >= 8 ? ~0ULL : BIT_ULL(8 * size) - 1;
}

static int init_value(struct ptw_condition *cond, const struct ptwatch_watch *arg,
		      struct ptwatch_refusal *why)
{
	u32 size = arg->value_size ?: min(arg->len, 8U);
	u64 all;

	if (arg->value_op > PTWATCH_VALUE_CHANGED || (arg->value_flags & ~PTWATCH_VALUE_SIGNED))
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	if (arg->value_op == PTWATCH_VALUE_ANY) {
		if (arg->value || arg->value_mask || arg->value_size || arg->value_flags)
			return refuse(why, PTWATCH_WHY_FIELD, 0);
		return 0;
	}
	/* Instructions have no value, and of several registers only the one that hit has one. */
	if (arg->access == PTWATCH_ACCESS_X ||
	    (arg->len > 8 && arg->value_op != PTWATCH_VALUE_CHANGED))
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	if (size > min(arg->len, 8U) || (size != 1 && size != 2 && size != 4 && size != 8))
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	if (arg->value_op == PTWATCH_VALUE_CHANGED && (arg->value || arg->value_flags))
		return refuse(why, PTWATCH_WHY_FIELD, 0);

	all = bytes_mask(size);
	if (arg->value_flags & PTWATCH_VALUE_SIGNED) {
		cond->value_signed = true;
		cond->sign_shift = 64 - 8 * size;
		if ((u64)((s64)(arg->value << cond->sign_shift) >> cond->sign_shift) != arg->value)
			return refuse(why, PTWATCH_WHY_FIELD, 0);
	} else if (arg->value & ~all) {
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	}
	if (arg->value_mask & ~all)
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	cond->value_op = arg->value_op;
	cond->value_mask = arg->value_mask ?: all;
	cond->value = arg->value & cond->value_mask;
	return 0;
}

static bool valid_filter(const struct ptwatch_who *filter)
{
	size_t len = strnlen(filter->comm, sizeof(filter->comm));

	if (filter->flags & ~PTWATCH_WHO_DENY)
		return false;
	switch (filter->kind) {
	case PTWATCH_WHO_PID:
	case PTWATCH_WHO_TGID:
		return filter->id <= INT_MAX && !memchr_inv(filter->comm, 0, sizeof(filter->comm));
	case PTWATCH_WHO_CGROUP:
		return filter->id && !memchr_inv(filter->comm, 0, sizeof(filter->comm));
	case PTWATCH_WHO_COMM:
		return !filter->id && len && len < sizeof(filter->comm);
	}
	return false;
}

int ptw_condition_init(struct ptw_condition *cond, const struct ptwatch_watch *arg,
		       const struct ptwatch_who *filters, struct ptwatch_refusal *why)
{
	u32 i;
	int error = init_value(cond, arg, why);

	if (error)
		return error;
	if (arg->stack_start > arg->stack_end || (!arg->stack_start && arg->stack_end))
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	for (i = 0; i < arg->nr_filters; i++) {
		if (!valid_filter(&filters[i]))
			return refuse(why, PTWATCH_WHY_FILTER, i);
		if (!(filters[i].flags & PTWATCH_WHO_DENY))
			cond->allow_kinds |= BIT(filters[i].kind);
	}
	cond->filters = filters;
	cond->nr_filters = arg->nr_filters;
	cond->stack_start = arg->stack_start;
	cond->stack_end = arg->stack_end;
	cond->skip = arg->skip;
	return 0;
}

/* ---- #DB context ---- */

static bool value_holds(const struct ptw_condition *cond, u64 old, u64 new)
{
	u64 value = cond->value;
	int order;

	new &= cond->value_mask;
	switch (cond->value_op) {
	case PTWATCH_VALUE_EQ:
		return new == value;
	case PTWATCH_VALUE_NE:
		return new != value;
	case PTWATCH_VALUE_CHANGED:
		return new != (old & cond->value_mask);
	}
	if (cond->value_signed) {
		/* The bytes' sign goes to bit 63. */
		s64 a = new << cond->sign_shift;
		s64 b = value << cond->sign_shift;

		order = (a > b) - (a < b);
	} else {
		order = (new > value) - (new < value);
	}
	switch (cond->value_op) {
	case PTWATCH_VALUE_LT:
		return order < 0;
	case PTWATCH_VALUE_LE:
		return order <= 0;
	case PTWATCH_VALUE_GT:
		return order > 0;
	default:
		return order >= 0;
	}
}

static bool comm_matches(const char *pattern, const char *comm)
{
	for (; *pattern; pattern++, comm++) {
		if (*pattern == '*' && !pattern[1])
			return true;
		if (*pattern != *comm)
			return false;
	}
	return !*comm;
}

static bool in_cgroup(u64 id)
{
	bool found = false;

#ifdef CONFIG_CGROUPS
	struct cgroup *cgroup;

	/* RCU, not a lock: in NMI-like context rcu_is_watching() holds, entry code saw to it. */
	rcu_read_lock();
	for (cgroup = task_dfl_cgroup(current); cgroup && !found; cgroup = cgroup_parent(cgroup))
		found = cgroup_id(cgroup) == id;
	rcu_read_unlock();
#endif
	return found;
}

static bool filter_matches(const struct ptwatch_who *filter)
{
	switch (filter->kind) {
	case PTWATCH_WHO_PID:
		return current->pid == filter->id;
	case PTWATCH_WHO_TGID:
		return current->tgid == filter->id;
	case PTWATCH_WHO_COMM:
		return comm_matches(filter->comm, current->comm);
	default:
		return in_cgroup(filter->id);
	}
}

static bool filters_hold(const struct ptw_condition *cond)
{
	u32 matched = 0;
	u32 i;

	for (i = 0; i < cond->nr_filters; i++) {
		const struct ptwatch_who *filter = &cond->filters[i];

		if (!filter_matches(filter))
			continue;
		if (filter->flags & PTWATCH_WHO_DENY)
			return false;
		matched |= BIT(filter->kind);
	}
	return matched == cond->allow_kinds;
}

bool ptw_condition_holds(struct ptw_condition *cond, u64 old, u64 new, struct pt_regs *regs)
{
	if (cond->value_op != PTWATCH_VALUE_ANY && !value_holds(cond, old, new))
		return false;
	if (cond->nr_filters && !filters_hold(cond))
		return false;
	if (cond->stack_end && !ptw_stack_contains(regs, cond->stack_start, cond->stack_end))
		return false;
	return !cond->skip || atomic64_inc_return(&cond->passed) > cond->skip;
}
NOKPROBE_SYMBOL(ptw_condition_holds);
