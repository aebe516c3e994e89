// SPDX-License-Identifier: GPL-2.0
/*
 * Which hits count: the conditions of a watch. They are looked at in the #DB handler before
 * anything is noted down, the cheap ones first and inline (see ptwatch.h). Here they are prepared
 * for that.
 */
#include <linux/cgroup.h>
#include <linux/kprobes.h>
#include <linux/sched.h>
#include <linux/slab.h>
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
	unsigned int sign_shift = 64 - 8 * size;
	u64 all, value;

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
		cond->flip = BIT_ULL(8 * size - 1);
		if ((u64)((s64)(arg->value << sign_shift) >> sign_shift) != arg->value)
			return refuse(why, PTWATCH_WHY_FIELD, 0);
	} else if (arg->value & ~all) {
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	}
	if (arg->value_mask & ~all)
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	cond->mask = arg->value_mask ?: all;
	value = (arg->value ^ cond->flip) & cond->mask;

	/* The range for the operator; what is not in it fulfils the opposite one. */
	switch (arg->value_op) {
	case PTWATCH_VALUE_NE:
		cond->inverted = true;
		fallthrough;
	case PTWATCH_VALUE_EQ:
		cond->low = value;
		break;
	case PTWATCH_VALUE_CHANGED:
		cond->changed = true;
		cond->inverted = true;
		break;
	case PTWATCH_VALUE_GT:
		cond->inverted = true;
		fallthrough;
	case PTWATCH_VALUE_LE:
		cond->span = value;
		break;
	case PTWATCH_VALUE_LT:
		cond->inverted = true;
		fallthrough;
	default: /* GE */
		cond->low = value;
		cond->span = ~0ULL - value;
		break;
	}
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

/* See ptw_filters_hold() for what it is compared with. */
static void prepare_filter(struct ptw_filter *to, const struct ptwatch_who *from)
{
	size_t len = strlen(from->comm);

	to->deny = from->flags & PTWATCH_WHO_DENY;
	to->kind = BIT(from->kind);
	switch (from->kind) {
	case PTWATCH_WHO_PID:
		to->want[0] = from->id;
		to->mask[0] = U32_MAX;
		break;
	case PTWATCH_WHO_TGID:
		to->want[0] = from->id << 32;
		to->mask[0] = (u64)U32_MAX << 32;
		break;
	default:
		to->comm = true;
		/* With the NUL, but for a '*' at the end, which stands for the rest. */
		len = len && from->comm[len - 1] == '*' ? len - 1 : len + 1;
		BUILD_BUG_ON(sizeof(to->want) != sizeof(from->comm));
		memcpy(to->want, from->comm, sizeof(to->want));
		memset(to->mask, 0xff, min(len, sizeof(to->mask)));
		break;
	}
}

static int init_filters(struct ptw_condition *cond, const struct ptwatch_who *filters, u32 n,
			struct ptwatch_refusal *why)
{
	struct ptw_filter *next;
	u32 i;

	for (i = 0; i < n; i++)
		if (!valid_filter(&filters[i]))
			return refuse(why, PTWATCH_WHY_FILTER, i);
	if (!n)
		return 0;
	next = kcalloc(n, sizeof(*cond->filters), GFP_KERNEL);
	cond->filters = next;
	cond->cgroups = kcalloc(n, sizeof(*cond->cgroups), GFP_KERNEL);
	if (!cond->filters || !cond->cgroups)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		bool deny = filters[i].flags & PTWATCH_WHO_DENY;

		if (filters[i].kind == PTWATCH_WHO_CGROUP) {
			cond->cgroups[cond->nr_cgroups++] = filters[i];
			cond->allow_cgroup |= !deny;
			continue;
		}
		if (!deny)
			cond->allow_kinds |= BIT(filters[i].kind);
		prepare_filter(next++, &filters[i]);
	}
	cond->filters_end = next;
	return 0;
}

int ptw_condition_init(struct ptw_condition *cond, const struct ptwatch_watch *arg,
		       const struct ptwatch_who *filters, struct ptwatch_refusal *why)
{
	int error = init_value(cond, arg, why);

	if (error)
		return error;
	if (arg->stack_start > arg->stack_end || (!arg->stack_start && arg->stack_end))
		return refuse(why, PTWATCH_WHY_FIELD, 0);
	error = init_filters(cond, filters, arg->nr_filters, why);
	if (error)
		return error;
	cond->stack_start = arg->stack_start;
	cond->stack_end = arg->stack_end;
	cond->skip = arg->skip;
	cond->slow = cond->nr_cgroups || cond->stack_end || cond->skip;
	cond->more = cond->slow || arg->nr_filters;
	return 0;
}

void ptw_condition_free(struct ptw_condition *cond)
{
	kfree(cond->filters);
	kfree(cond->cgroups);
}

/* ---- #DB context ---- */

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

static bool cgroups_hold(const struct ptw_condition *cond)
{
	bool missing = cond->allow_cgroup;
	u32 i;

	for (i = 0; i < cond->nr_cgroups; i++) {
		if (!in_cgroup(cond->cgroups[i].id))
			continue;
		if (cond->cgroups[i].flags & PTWATCH_WHO_DENY)
			return false;
		missing = false;
	}
	return !missing;
}

bool ptw_slow_conditions_hold(struct ptw_condition *cond, struct pt_regs *regs)
{
	if (!cgroups_hold(cond))
		return false;
	if (cond->stack_end && !ptw_stack_contains(regs, cond->stack_start, cond->stack_end))
		return false;
	return !cond->skip || atomic64_inc_return(&cond->passed) > cond->skip;
}
NOKPROBE_SYMBOL(ptw_slow_conditions_hold);
