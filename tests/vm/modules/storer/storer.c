// SPDX-License-Identifier: GPL-2.0
/*
 * storer - what it costs that a store is watched, in executed instructions
 *
 *	echo "WATCH COUNT" >/proc/storer
 *
 * stores to storer_word COUNT times, and measures how many kernel instructions each takes by the
 * counters of the emulator (tests/emulator/README.md). WATCH is what is armed meanwhile, on all
 * CPUs:
 *
 *	none	nothing (someone else may watch storer_word)
 *	empty	a breakpoint whose handler only counts
 *	dump	one whose handler logs a line and a stack
 *
 * Reading /proc/storer tells "hits N total N best N arm N disarm N": hits of the handler,
 * instructions of all stores together, of the cheapest batch of BATCH, and of all CPUs while the
 * breakpoint was armed and disarmed.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hw_breakpoint.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/preempt.h>
#include <linux/proc_fs.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#define BATCH 20

#define COUNT_LEAF 0x4fff0000
#define COUNT_SIGNATURE 0x54506d45
#define COUNT_KERNEL 0x10
#define COUNT_ALL_KERNEL 0x12

/* Not static: symbols that anyone can watch by name. */
extern u64 storer_word;
u64 storer_word __aligned(64);
void storer_store(u64 value);

static unsigned long hits;
static char result[160];

static u64 count(u32 what)
{
	u32 a = COUNT_LEAF, b, c = what, d;

	asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d)::"memory");
	return b == COUNT_SIGNATURE ? a | (u64)d << 32 : 0;
}

noinline void storer_store(u64 value)
{
	WRITE_ONCE(storer_word, value);
}

static noinline void store_batch(void)
{
	unsigned int i;

	for (i = 0; i < BATCH; i++)
		storer_store(i);
}

static void on_hit_empty(struct perf_event *event, struct perf_sample_data *data,
			 struct pt_regs *regs)
{
	hits++;
}

static void on_hit_dump(struct perf_event *event, struct perf_sample_data *data,
			struct pt_regs *regs)
{
	hits++;
	pr_warn("storer_word is %llx now\n", storer_word);
	dump_stack();
}

static ssize_t storer_write(struct file *file, const char __user *user, size_t len, loff_t *pos)
{
	struct perf_event *__percpu *watch = NULL;
	u64 total, best = U64_MAX, arm = 0, disarm = 0, before;
	struct perf_event_attr attr;
	char line[32] = "", what[8];
	unsigned long error;
	unsigned int n, i;

	if (len >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, user, len))
		return -EFAULT;
	if (sscanf(line, "%7s %u", what, &n) != 2 || n < BATCH)
		return -EINVAL;
	hits = 0;
	if (strcmp(what, "none")) {
		hw_breakpoint_init(&attr);
		attr.bp_addr = (unsigned long)&storer_word;
		attr.bp_len = HW_BREAKPOINT_LEN_8;
		attr.bp_type = HW_BREAKPOINT_W;
		before = count(COUNT_ALL_KERNEL);
		watch = register_wide_hw_breakpoint(
			&attr, strcmp(what, "dump") ? on_hit_empty : on_hit_dump, NULL);
		arm = count(COUNT_ALL_KERNEL) - before;
		error = (__force unsigned long)watch;
		if (IS_ERR_VALUE(error))
			return error;
	}
	/* Interrupts may come: the cheapest batch is one without. */
	preempt_disable();
	total = count(COUNT_KERNEL);
	for (i = 0; i < n / BATCH; i++) {
		before = count(COUNT_KERNEL);
		store_batch();
		best = min(best, count(COUNT_KERNEL) - before);
	}
	total = count(COUNT_KERNEL) - total;
	preempt_enable();
	if (watch) {
		before = count(COUNT_ALL_KERNEL);
		unregister_wide_hw_breakpoint(watch);
		disarm = count(COUNT_ALL_KERNEL) - before;
	}
	snprintf(result, sizeof(result), "hits %lu total %llu best %llu arm %llu disarm %llu\n",
		 hits, total, best, arm, disarm);
	return len;
}

static ssize_t storer_read(struct file *file, char __user *user, size_t len, loff_t *pos)
{
	return simple_read_from_buffer(user, len, pos, result, strlen(result));
}

static const struct proc_ops storer_ops = {
	.proc_read = storer_read,
	.proc_write = storer_write,
	.proc_lseek = default_llseek,
};

static int __init storer_init(void)
{
	if (!count(COUNT_ALL_KERNEL)) {
		pr_err("this CPU is not an emulated one that counts instructions\n");
		return -ENODEV;
	}
	return proc_create("storer", 0600, NULL, &storer_ops) ? 0 : -ENOMEM;
}

static void __exit storer_exit(void)
{
	remove_proc_entry("storer", NULL);
}

module_init(storer_init);
module_exit(storer_exit);
MODULE_DESCRIPTION("What it costs that a store is watched");
MODULE_LICENSE("GPL");
