// SPDX-License-Identifier: GPL-2.0
/*
 * Intel PT writes physical memory. It must be off before that memory belongs to another kernel
 * (reboot, kexec) and before the CPU sleeps and forgets its MSRs.
 */
#include <linux/kdebug.h>
#include <linux/notifier.h>
#include <linux/panic_notifier.h>
#include <linux/reboot.h>
#include <linux/suspend.h>

#include "ptwatch.h"

static int on_pm(struct notifier_block *nb, unsigned long event, void *unused)
{
	switch (event) {
	case PM_SUSPEND_PREPARE:
	case PM_HIBERNATION_PREPARE:
	case PM_RESTORE_PREPARE:	/* an image is to replace what is in memory */
		ptw_trace_suspend();
		break;
	case PM_POST_SUSPEND:
	case PM_POST_HIBERNATION:
	case PM_POST_RESTORE:
		ptw_trace_resume();
		break;
	}
	return NOTIFY_OK;
}

static int on_reboot(struct notifier_block *nb, unsigned long event, void *unused)
{
	/* Also the way to a kexec that was asked for: kernel_restart_prepare() calls this chain. */
	ptw_trace_halt(true);
	return NOTIFY_OK;
}

static int on_panic(struct notifier_block *nb, unsigned long event, void *unused)
{
	/*
	 * The other CPUs are stopped already or will be; an IPI is not allowed here.
	 *
	 * With kdump, the crash kernel starts before this chain unless crash_kexec_post_notifiers
	 * is set, and nothing that a module may hook comes earlier: the handler of the NMI that
	 * halts the other CPUs is registered after ours, so it comes before ours, and does not
	 * return; what it calls is perf's and KVM's alone. TraceEn then stays set on those CPUs,
	 * but a CPU that halts executes nothing, and so writes no more than the packets it holds;
	 * they go to our buffer, in memory that the crash kernel only reads.
	 */
	ptw_trace_emergency_stop(NULL);
	return NOTIFY_OK;
}

static int on_die(struct notifier_block *nb, unsigned long event, void *unused)
{
	/*
	 * An oops may go straight to the crash kernel, before any panic notifier; its trace is
	 * worth keeping, too.
	 */
	if (event == DIE_OOPS)
		ptw_trace_emergency_stop(NULL);
	return NOTIFY_DONE;
}

static struct notifier_block pm_nb = { .notifier_call = on_pm };
static struct notifier_block reboot_nb = { .notifier_call = on_reboot };
static struct notifier_block panic_nb = { .notifier_call = on_panic };
static struct notifier_block die_nb = { .notifier_call = on_die };

int ptw_emergency_init(void)
{
	int error;

	error = register_pm_notifier(&pm_nb);
	if (error)
		return error;
	error = register_reboot_notifier(&reboot_nb);
	if (error)
		goto fail_reboot;
	error = register_die_notifier(&die_nb);
	if (error)
		goto fail_die;
	error = atomic_notifier_chain_register(&panic_notifier_list, &panic_nb);
	if (error)
		goto fail_panic;
	return 0;

fail_panic:
	unregister_die_notifier(&die_nb);
fail_die:
	unregister_reboot_notifier(&reboot_nb);
fail_reboot:
	unregister_pm_notifier(&pm_nb);
	return error;
}

void ptw_emergency_exit(void)
{
	atomic_notifier_chain_unregister(&panic_notifier_list, &panic_nb);
	unregister_die_notifier(&die_nb);
	unregister_reboot_notifier(&reboot_nb);
	unregister_pm_notifier(&pm_nb);
}
