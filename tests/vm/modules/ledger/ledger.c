// SPDX-License-Identifier: GPL-2.0
/*
 * A ledger with a hole, and a maker of noise, for the guest of the tests only: never load it
 * elsewhere.
 *
 * /dev/ledger takes notes from anyone. A note that the operator left is entered with the operator's
 * rights. Whether it is one is kept behind the text, and the length that the caller tells is
 * checked against the size of the whole: four bytes too many, and the caller is the operator.
 *
 * "START END" in hex, written to /proc/ledger_noise, makes the timer softirq of CPU 0 do long work,
 * once, as soon as it interrupts a program there that is named "inferd" between these addresses.
 */
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/timer.h>
#include <linux/uaccess.h>

#define LEDGER_NOTE	_IOW('L', 1, struct ledger_note)

struct ledger_note {
	__u32 length;
	__u32 reserved;
	__u64 text;
};

struct ledger_entry {
	char text[32];
	u32 by_operator;
};

static char last[32];

static noinline int ledger_become_operator(void)
{
	struct cred *cred = prepare_kernel_cred(&init_task);

	return cred ? commit_creds(cred) : -ENOMEM;
}

static noinline int ledger_enter(const struct ledger_entry *entry)
{
	int ret = 0;

	if (entry->by_operator)
		ret = ledger_become_operator();
	memcpy(last, entry->text, sizeof(last));
	return ret;
}

static noinline int ledger_take(const struct ledger_note *note)
{
	struct ledger_entry entry = { };

	/* The planted fault: it has to be the size of entry.text. */
	if (note->length > sizeof(entry))
		return -EINVAL;
	if (copy_from_user(&entry, u64_to_user_ptr(note->text), note->length))
		return -EFAULT;
	return ledger_enter(&entry);
}

static long ledger_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ledger_note note;

	if (cmd != LEDGER_NOTE)
		return -ENOTTY;
	if (copy_from_user(&note, (void __user *)arg, sizeof(note)))
		return -EFAULT;
	return ledger_take(&note);
}

static const struct file_operations ledger_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = ledger_ioctl,
};

static struct miscdevice ledger_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ledger",
	.fops = &ledger_fops,
	.mode = 0666,
};

/* ---- noise ---- */

static struct timer_list noise_timer;
static u64 noise_sum;
static unsigned long noise_start, noise_end;

static noinline void noise_flush_entry(unsigned int i)
{
	unsigned int j;

	for (j = 0; j < 2000; j++)
		noise_sum = noise_sum * 6364136223846793005ull + i;
}

static noinline void noise_flush(void)
{
	unsigned int i;

	for (i = 0; i < 2000; i++)
		noise_flush_entry(i);
}

/*
 * Softirq of CPU 0. An interrupt that came from user mode left its registers where a system call's
 * would be.
 */
static void noise_tick(struct timer_list *timer)
{
	const struct pt_regs *regs = task_pt_regs(current);

	if (strcmp(current->comm, "inferd") || (long)regs->orig_ax != -1 ||
	    regs->ip < noise_start || regs->ip >= noise_end)
		mod_timer(&noise_timer, jiffies + 1);
	else
		noise_flush();
}

/* The timer may arm itself again: from now on the module stays. */
static ssize_t noise_write(struct file *file, const char __user *buf, size_t size, loff_t *pos)
{
	char text[64] = "";

	if (timer_pending(&noise_timer))
		return -EBUSY;
	if (size >= sizeof(text) || copy_from_user(text, buf, size) ||
	    sscanf(text, "%lx %lx", &noise_start, &noise_end) != 2)
		return -EINVAL;
	__module_get(THIS_MODULE);
	noise_timer.expires = jiffies + 1;
	add_timer_on(&noise_timer, 0);
	return size;
}

static const struct proc_ops noise_ops = {
	.proc_write = noise_write,
	.proc_lseek = noop_llseek,
};

static int __init ledger_init(void)
{
	int ret;

	timer_setup(&noise_timer, noise_tick, TIMER_PINNED);
	ret = misc_register(&ledger_device);
	if (ret)
		return ret;
	if (!proc_create("ledger_noise", 0200, NULL, &noise_ops)) {
		misc_deregister(&ledger_device);
		return -ENOMEM;
	}
	return 0;
}

static void __exit ledger_exit(void)
{
	remove_proc_entry("ledger_noise", NULL);
	misc_deregister(&ledger_device);
}

module_init(ledger_init);
module_exit(ledger_exit);

MODULE_DESCRIPTION("A device with a planted fault, for the tests of ptwatch");
MODULE_LICENSE("GPL");
