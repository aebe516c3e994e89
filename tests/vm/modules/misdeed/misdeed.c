// SPDX-License-Identifier: GPL-2.0
/*
 * misdeed - does what no module may, so that a test can see the debug kernel report it
 *
 *	echo KIND >/proc/misdeed
 *
 * commits one of
 *
 *	rcu		dereference a pointer under RCU's protection without it
 *	sleep		allocate with a spinlock held, in a way that may sleep
 *	cpu		ask for the CPU's number where it may change
 *	shift		shift a word by more than it has bits
 *	index		read beyond an array
 *	timer		free a timer that is running
 *	list		add an entry twice to a list
 *	leak		forget memory
 *	locks		take two locks in one order, then in the other
 *	freed		read memory that was freed
 *
 * The kernel survives them. After "locks" lockdep has nothing more to say, after "freed" neither:
 * they come last.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/uaccess.h>

/* Where results go, so that the compiler cannot leave the misdeeds out. */
static unsigned long sink;

static int __rcu *protected;
static DEFINE_SPINLOCK(spin);
static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

/* Functions of their own, so that reports name them. */

static noinline void no_rcu(void)
{
	WRITE_ONCE(sink, (unsigned long)rcu_dereference(protected));
}

static noinline void no_sleep(void)
{
	void *memory;

	spin_lock(&spin);
	memory = kmalloc(64, GFP_KERNEL);
	spin_unlock(&spin);
	kfree(memory);
}

static noinline void no_cpu(void)
{
	WRITE_ONCE(sink, smp_processor_id());
}

static noinline void no_shift(void)
{
	int bits = 40;

	OPTIMIZER_HIDE_VAR(bits);
	WRITE_ONCE(sink, 1 << bits);
}

static noinline void no_index(void)
{
	/* What is behind the array is ours, so that UBSAN is the one to complain. */
	static struct {
		int array[4];
		int behind[4];
	} both;
	int i = 4;

	OPTIMIZER_HIDE_VAR(i);
	WRITE_ONCE(sink, both.array[i]);
}

static void expired(struct timer_list *timer)
{
}

static noinline void no_timer(void)
{
	struct timer_list *timer = kzalloc(sizeof(*timer), GFP_KERNEL);

	if (!timer)
		return;
	timer_setup(timer, expired, 0);
	mod_timer(timer, jiffies + 1000 * HZ);
	kfree(timer);
}

static noinline void no_list(void)
{
	LIST_HEAD(list);
	struct list_head entry;

	list_add(&entry, &list);
	list_add(&entry, &list);
}

static noinline void no_leak(void)
{
	void *memory = kmalloc(1000, GFP_KERNEL);

	/* Whether there is any is all that is kept. Registers and stack forget the rest soon. */
	WRITE_ONCE(sink, !memory);
}

static noinline void no_locks(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);

	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static noinline void no_freed(void)
{
	unsigned long *memory = kmalloc(64, GFP_KERNEL);

	if (!memory)
		return;
	kfree(memory);
	OPTIMIZER_HIDE_VAR(memory);
	WRITE_ONCE(sink, READ_ONCE(*memory));
}

static const struct {
	const char *name;
	void (*commit)(void);
} misdeeds[] = {
	{ "rcu", no_rcu },
	{ "sleep", no_sleep },
	{ "cpu", no_cpu },
	{ "shift", no_shift },
	{ "index", no_index },
	{ "timer", no_timer },
	{ "list", no_list },
	{ "leak", no_leak },
	{ "locks", no_locks },
	{ "freed", no_freed },
};

static ssize_t misdeed_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	char kind[16] = "";
	unsigned int i;

	if (len >= sizeof(kind))
		return -EINVAL;
	if (copy_from_user(kind, buf, len))
		return -EFAULT;
	for (i = 0; i < ARRAY_SIZE(misdeeds); i++) {
		if (strcmp(strim(kind), misdeeds[i].name))
			continue;
		pr_info("%s\n", misdeeds[i].name);
		misdeeds[i].commit();
		return len;
	}
	return -EINVAL;
}

static const struct proc_ops misdeed_proc_ops = {
	.proc_write	= misdeed_write,
};

static int __init misdeed_init(void)
{
	return proc_create("misdeed", 0600, NULL, &misdeed_proc_ops) ? 0 : -ENOMEM;
}

static void __exit misdeed_exit(void)
{
	remove_proc_entry("misdeed", NULL);
}

module_init(misdeed_init);
module_exit(misdeed_exit);

MODULE_DESCRIPTION("faults on demand, for the tests of ptwatch's tests");
MODULE_LICENSE("GPL");
