// SPDX-License-Identifier: GPL-2.0
/*
 * A call from the kernel's way to its #DB handlers, so that a freeze stops the trace before them
 * (see freeze.c). By ftrace's direct calls: not built where the kernel has none.
 */
#include <linux/ftrace.h>
#include <linux/kernel.h>
#include <linux/mutex.h>
#include <linux/string.h>

#include "ptwatch.h"

static struct ftrace_ops early_ops;
static DEFINE_MUTEX(early_lock);	/* taken with no other lock of ours held */
static bool early_registered;

/*
 * notifier_call_chain() comes first, where notify_die() calls it; where it is inlined, perf's
 * notifier does. Both have the event and struct die_args as second and third argument.
 */
static int early_register(void)
{
	static const char *const names[] = { "notifier_call_chain",
					     "hw_breakpoint_exceptions_notify" };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		ftrace_set_filter(&early_ops, (unsigned char *)names[i], strlen(names[i]), !i);
	return register_ftrace_direct(&early_ops, (unsigned long)ptw_rtit_early_stop);
}

bool ptw_freeze_early_get(void)
{
	bool got;

	mutex_lock(&early_lock);
	if (!early_registered)
		early_registered = !early_register();
	got = early_registered;
	mutex_unlock(&early_lock);
	return got;
}

void ptw_freeze_early_exit(void)
{
	if (early_registered)
		unregister_ftrace_direct(&early_ops, (unsigned long)ptw_rtit_early_stop, true);
}
