// SPDX-License-Identifier: GPL-2.0
/*
 * kvdemo - a small key-value cache whose health check corrupts its own table
 *
 * The scene that ptwatch's demo plays and its tests use: kv_cache_meta is the
 * word to watch, a kernel thread named health_check is the culprit, and the way
 * to the culprit leads through several functions, conditional branches, a loop
 * and an indirect call.
 *
 * The bug: kv_cache_meta[0] identifies the table, the words behind it keep the
 * results of the latest checks. kv_note_result() picks the next of them, but
 * wraps at the length of the array instead of the number of results, so that
 * every fourth result lands on word 0. The index never leaves the array: neither
 * the compiler nor a bounds checker has anything to say.
 *
 * To be a reliable test the bug waits: results are noted only after "go" was
 * written to /proc/kvdemo, or @after seconds after loading. The fourth health
 * check from then on is the first to overwrite the word.
 * Reading /proc/kvdemo tells the word, the ticks and how often it was overwritten.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define KV_BUCKETS		16
#define KV_META_HEALTHY		0x5a5a000000000010ULL
#define KV_RESULT_OK		0x5a5a0000deadbeefULL

static unsigned int after;
module_param(after, uint, 0444);
MODULE_PARM_DESC(after, "seconds from loading until results are noted (0: only when told)");

static unsigned int interval_ms = 50;
module_param(interval_ms, uint, 0444);
MODULE_PARM_DESC(interval_ms, "milliseconds between two health checks");

/* Not static: a symbol that anyone can watch by name. */
extern u64 kv_cache_meta[4];
u64 kv_cache_meta[4] __aligned(8) = { KV_META_HEALTHY };

static u64 kv_buckets[KV_BUCKETS];
static struct task_struct *health_task;
static unsigned long ticks, notes, overwritten;
static unsigned long start_noting;	/* jiffies, when after != 0 */
static bool noting;

/* Each check has its own idea of a healthy bucket; all buckets are. */
static noinline __noclone bool check_parity(u64 bucket)
{
	return !(bucket & 1);
}

static noinline __noclone bool check_range(u64 bucket)
{
	return bucket < U32_MAX;
}

static noinline __noclone bool check_tag(u64 bucket)
{
	return bucket >> 8 == 0x5a;
}

static bool (*const kv_checks[])(u64 bucket) = { check_parity, check_range, check_tag };

static noinline __noclone unsigned int walk_buckets(bool (*check)(u64 bucket))
{
	unsigned int i, healthy = 0;

	for (i = 0; i < KV_BUCKETS; i++)
		if (check(READ_ONCE(kv_buckets[i])))
			healthy++;

	return healthy;
}

/* The bug: the modulus should leave out word 0, which is no result. */
static noinline __noclone void kv_note_result(u64 result)
{
	unsigned int slot = (1 + notes++) % ARRAY_SIZE(kv_cache_meta);

	WRITE_ONCE(kv_cache_meta[slot], result);
	if (!slot)
		overwritten++;
}

static noinline __noclone void finish_check(unsigned int healthy)
{
	if (healthy != KV_BUCKETS) {
		pr_warn_ratelimited("only %u of %u buckets are healthy\n", healthy, KV_BUCKETS);
		return;
	}

	if (after && time_after_eq(jiffies, start_noting))
		WRITE_ONCE(noting, true);
	if (READ_ONCE(noting))
		kv_note_result(KV_RESULT_OK);
}

static noinline __noclone void health_tick(void)
{
	finish_check(walk_buckets(kv_checks[ticks++ % ARRAY_SIZE(kv_checks)]));
}

static int health_thread(void *unused)
{
	while (!kthread_should_stop()) {
		health_tick();
		schedule_timeout_interruptible(msecs_to_jiffies(interval_ms));
	}

	return 0;
}

static int kvdemo_show(struct seq_file *m, void *v)
{
	seq_printf(m, "meta 0x%016llx\nticks %lu\nnotes %lu\noverwritten %lu\n",
		   READ_ONCE(kv_cache_meta[0]), READ_ONCE(ticks), READ_ONCE(notes),
		   READ_ONCE(overwritten));
	return 0;
}

static int kvdemo_open(struct inode *inode, struct file *file)
{
	return single_open(file, kvdemo_show, NULL);
}

static ssize_t kvdemo_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	char word[8] = "";

	if (len >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, buf, len))
		return -EFAULT;
	if (strcmp(strim(word), "go"))
		return -EINVAL;

	WRITE_ONCE(noting, true);
	return len;
}

static const struct proc_ops kvdemo_proc_ops = {
	.proc_open	= kvdemo_open,
	.proc_read	= seq_read,
	.proc_write	= kvdemo_write,
	.proc_lseek	= seq_lseek,
	.proc_release	= single_release,
};

static int __init kvdemo_init(void)
{
	unsigned int i;

	for (i = 0; i < KV_BUCKETS; i++)
		kv_buckets[i] = 0x5a00 + 2 * i;
	start_noting = jiffies + after * HZ;

	if (!proc_create("kvdemo", 0600, NULL, &kvdemo_proc_ops))
		return -ENOMEM;

	health_task = kthread_run(health_thread, NULL, "health_check");
	if (IS_ERR(health_task)) {
		remove_proc_entry("kvdemo", NULL);
		return PTR_ERR(health_task);
	}

	return 0;
}

static void __exit kvdemo_exit(void)
{
	remove_proc_entry("kvdemo", NULL);
	kthread_stop(health_task);
}

module_init(kvdemo_init);
module_exit(kvdemo_exit);

MODULE_DESCRIPTION("a cache that corrupts its own table, for ptwatch's demo and tests");
MODULE_LICENSE("GPL");
