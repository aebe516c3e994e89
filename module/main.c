// SPDX-License-Identifier: GPL-2.0
/* ptwatch.ko: loading, unloading, CPU hotplug. */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/module.h>

#include "ptwatch.h"

DEFINE_MUTEX(ptw_config_lock);

static enum cpuhp_state hotplug_state;

/* Both run on the CPU concerned, in process context, with the hotplug lock held for writing. */
static int cpu_online_callback(unsigned int cpu)
{
	ptw_trace_cpu_online(cpu);
	ptw_watch_cpu_online(cpu);
	return 0;
}

static int cpu_offline_callback(unsigned int cpu)
{
	ptw_watch_cpu_offline(cpu);
	ptw_trace_cpu_offline(cpu);
	return 0;
}

static int __init ptwatch_init(void)
{
	int error;

	ptw_caps_init();
	ptw_readers_init();

	error = ptw_netlink_init();
	if (error)
		return error;
	error = ptw_alarm_init();
	if (error)
		goto fail_alarm;
	error = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "ptwatch:online", cpu_online_callback,
				  cpu_offline_callback);
	if (error < 0)
		goto fail_hotplug;
	hotplug_state = error;
	ptw_hooks_init();
	error = ptw_pmi_init();
	if (error)
		goto fail_pmi;
	error = ptw_module_watch_init();
	if (error)
		goto fail_watch;
	error = ptw_emergency_init();
	if (error)
		goto fail_emergency;
	error = ptw_freeze_init();
	if (error)
		goto fail_freeze;
	error = ptw_boot_watch_init();
	if (error)
		goto fail_boot_watch;
	/* Last: from here on others use us. */
	error = ptw_device_init();
	if (error)
		goto fail_boot_watch;
	return 0;

fail_boot_watch:
	ptw_freeze_exit();
fail_freeze:
	ptw_emergency_exit();
fail_emergency:
	ptw_module_watch_exit();
	ptw_watch_exit();
fail_watch:
	ptw_pmi_exit();
fail_pmi:
	cpuhp_remove_state(hotplug_state);
fail_hotplug:
	ptw_alarm_exit();
fail_alarm:
	ptw_netlink_exit();
	ptw_readers_exit();
	return error;
}

static void __exit ptwatch_exit(void)
{
	/*
	 * No file is open (each holds the module), so no session or trace exists; persistent
	 * watches do, and alarms may be on their way.
	 */
	ptw_device_exit();
	ptw_freeze_exit();
	ptw_emergency_exit();
	ptw_module_watch_exit();
	ptw_watch_exit();
	ptw_pmi_exit();
	cpuhp_remove_state(hotplug_state);
	ptw_alarm_exit();
	ptw_netlink_exit();
	ptw_readers_exit();
}

module_init(ptwatch_init);
module_exit(ptwatch_exit);

MODULE_DESCRIPTION("Hardware watchpoints that freeze an Intel Processor Trace");
MODULE_AUTHOR("The ptwatch developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
