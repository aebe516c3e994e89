// SPDX-License-Identifier: GPL-2.0
/*
 * perf's intel_pt PMU is exclusive: one owner for each CPU. A disabled counter of it, held as long
 * as we trace, makes perf's own opens fail with EBUSY, and makes ours fail while perf has one.
 */
#include <linux/cpu.h>
#include <linux/device.h>
#include <linux/err.h>
#include <linux/kobject.h>
#include <linux/string.h>

#include "ptwatch.h"

/*
 * By its device: perf's list of PMUs is not exported. Neither is the set of all devices, but each
 * of them, such as a CPU, points to it.
 */
static bool kernel_has_intel_pt(unsigned int cpu)
{
	struct device *dev = get_cpu_device(cpu);
	struct kobject *pmu = dev ? kset_find_obj(dev->kobj.kset, "intel_pt") : NULL;

	kobject_put(pmu);
	return pmu;
}

struct perf_event *ptw_hold_get(unsigned int cpu, int pmu_type)
{
	struct perf_event_attr attr = {
		.type = pmu_type,
		.size = sizeof(attr),
		.disabled = 1,
	};
	struct perf_event *event;

	/*
	 * Without a hold, perf would start between our save and our restore of its MSRs, and later
	 * trace into memory it had before: not to be left to what user space says.
	 */
	if (pmu_type < 0)
		return kernel_has_intel_pt(cpu) ? ERR_PTR(-EINVAL) : NULL;
	event = perf_event_create_kernel_counter(&attr, cpu, NULL, NULL, NULL);
	/* No PMU has that number: the caller's information is wrong, nobody is in the way. */
	if (IS_ERR(event))
		return PTR_ERR(event) == -ENOENT ? ERR_PTR(-EINVAL) : event;
	/* On older kernels (6.1) the PMUs of the software clocks have no name. */
	if (!event->pmu->name || strcmp(event->pmu->name, "intel_pt")) {
		perf_event_release_kernel(event);
		return ERR_PTR(-EINVAL);
	}
	return event;
}

void ptw_hold_put(struct perf_event *hold)
{
	if (hold)
		perf_event_release_kernel(hold);
}
