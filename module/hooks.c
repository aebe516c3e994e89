// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's tracepoints that tell who runs where. Their own registration functions link against
 * symbols that are not exported; they are found by name instead, and registered while a session
 * needs them.
 */
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "ptwatch.h"

static struct hook {
	const char *name;
	void *probe;
	struct tracepoint *tp;
	unsigned int users;	/* under ptw_hooks_lock */
} hooks[] = {
	/* PTW_HOOK_*, in the order of their bits */
	{ "sched_switch", ptw_switch_on_switch },
	{ "sched_process_exec", ptw_target_on_exec },
	{ "sched_process_fork", ptw_target_on_fork },
};

static DEFINE_MUTEX(ptw_hooks_lock);

static void note_tracepoint(struct tracepoint *tp, void *unused)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!strcmp(tp->name, hooks[i].name))
			hooks[i].tp = tp;
}

void ptw_hooks_init(void)
{
	for_each_kernel_tracepoint(note_tracepoint, NULL);
}

static void put_locked(unsigned int mask)
{
	bool unregistered = false;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (!(mask & BIT(i)) || --hooks[i].users)
			continue;
		tracepoint_probe_unregister(hooks[i].tp, hooks[i].probe, NULL);
		unregistered = true;
	}
	/* No probe runs any more: this module may be unloaded. */
	if (unregistered)
		tracepoint_synchronize_unregister();
}

int ptw_hooks_get(unsigned int mask)
{
	unsigned int i, got = 0;
	int error = 0;

	mutex_lock(&ptw_hooks_lock);
	for (i = 0; i < ARRAY_SIZE(hooks) && !error; i++) {
		if (!(mask & BIT(i)))
			continue;
		if (!hooks[i].tp)
			error = -EOPNOTSUPP;
		else if (!hooks[i].users)
			error = tracepoint_probe_register(hooks[i].tp, hooks[i].probe, NULL);
		if (error)
			break;
		hooks[i].users++;
		got |= BIT(i);
	}
	if (error)
		put_locked(got);
	mutex_unlock(&ptw_hooks_lock);
	return error;
}

void ptw_hooks_put(unsigned int mask)
{
	mutex_lock(&ptw_hooks_lock);
	put_locked(mask);
	mutex_unlock(&ptw_hooks_lock);
}
