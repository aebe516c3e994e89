// SPDX-License-Identifier: GPL-2.0
/* Modules that come and go, and with them what is watched in them. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/printk.h>

#include "ptwatch.h"

/* Is what is watched in this module? A per-CPU variable of one lies in an area of its own. */
static bool watches_module(const struct ptw_watch *watch, const struct module *mod)
{
	if (watch->arg.flags & PTWATCH_WATCH_USER)
		return false;
	if (watch->arg.flags & PTWATCH_WATCH_PERCPU)
		return watch->address - (u64)(unsigned long)mod->percpu < mod->percpu_size;
	return within_module(watch->address, mod);
}

/* Their memory will be someone else's, whose accesses are not what was asked for. */
static void module_going(const struct module *mod)
{
	struct ptw_watch *watch;

	list_for_each_entry(watch, &ptw_watches, link) {
		if (watch->state != PTWATCH_WATCH_ARMED || !watches_module(watch, mod))
			continue;
		ptw_watch_disarm(watch, PTWATCH_WATCH_GONE);
		pr_warn("watch %u (%s) is disarmed: module %s is being unloaded\n", watch->arg.id,
			watch->arg.label, mod->name);
	}
}

static int on_module(struct notifier_block *nb, unsigned long state, void *data)
{
	if (state != MODULE_STATE_GOING)
		return NOTIFY_OK;
	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	module_going(data);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	return NOTIFY_OK;
}

static struct notifier_block module_nb = { .notifier_call = on_module };

int ptw_module_watch_init(void)
{
	return register_module_notifier(&module_nb);
}

void ptw_module_watch_exit(void)
{
	unregister_module_notifier(&module_nb);
}
