// SPDX-License-Identifier: GPL-2.0
/*
 * lodger - comes late, and has code that changes
 *
 *	echo COUNT >/sys/module/lodger/parameters/visit
 *	echo 0|1 >/sys/module/lodger/parameters/awake
 *
 * The first calls lodger_visit() COUNT times on this CPU. That has a static branch, which the
 * second turns; nothing else executes it. Nothing here is __init: what is freed after it ran can't
 * be recorded.
 */
#include <linux/jump_label.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

static DEFINE_STATIC_KEY_FALSE(is_awake);
static unsigned long asleep, awake;

void lodger_visit(void);
noinline void lodger_visit(void)
{
	if (static_branch_unlikely(&is_awake))
		WRITE_ONCE(awake, awake + 1);
	else
		WRITE_ONCE(asleep, asleep + 1);
}

static int set_visit(const char *value, const struct kernel_param *kp)
{
	unsigned int count, i;
	int error = kstrtouint(value, 0, &count);

	for (i = 0; !error && i < count; i++)
		lodger_visit();
	return error;
}

static int get_visit(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "asleep %lu awake %lu\n", asleep, awake);
}

static int set_awake(const char *value, const struct kernel_param *kp)
{
	bool on;
	int error = kstrtobool(value, &on);

	if (error)
		return error;
	if (on)
		static_branch_enable(&is_awake);
	else
		static_branch_disable(&is_awake);
	return 0;
}

static const struct kernel_param_ops visit_ops = { .set = set_visit, .get = get_visit };
static const struct kernel_param_ops awake_ops = { .set = set_awake };

module_param_cb(visit, &visit_ops, NULL, 0600);
module_param_cb(awake, &awake_ops, NULL, 0200);

static int lodger_init(void)
{
	return 0;
}
module_init(lodger_init);

static void __exit lodger_exit(void)
{
}
module_exit(lodger_exit);

MODULE_DESCRIPTION("A module that comes late and changes its code, for ptwatch's tests");
MODULE_LICENSE("GPL");
