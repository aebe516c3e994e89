// SPDX-License-Identifier: GPL-2.0
/*
 * insmod ptwatch.ko watch=SYM[+OFFSET]:LEN:MODE[,…]: watches without user space, which write to the
 * kernel log. SYM may be module:SYM (armed when that module is loaded), or an address. Every
 * alarm is logged, at most ten a second.
 *
 * No look-up of symbols is exported. An exported symbol can be had by its name, a function by a
 * kprobe, everything by /proc/kallsyms, if there is one already.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "ptwatch.h"

#define MAX_RATE	10	/* alarms a second: each is a page of kernel log */

static char *watch;
module_param(watch, charp, 0444);
MODULE_PARM_DESC(watch,
		 "watch from load time: SYM[+OFFSET]:LEN:w|rw|x[,...] (or module:SYM, 0xADDRESS)");

struct lookup {
	const char *name;
	u64 address;
	unsigned int found;
	u64 percpu_start, percpu_end;	/* where the kernel's per-CPU variables have addresses */
};

/* "ADDRESS TYPE NAME"; those of modules have more behind that, and are not looked for. */
static void take_line(struct lookup *lookup, char *line)
{
	unsigned long long address;
	char *name;

	if (sscanf(line, "%llx", &address) != 1)
		return;
	name = strchr(line, ' ');
	name = name ? strchr(name + 1, ' ') : NULL;
	if (!name++)
		return;
	if (!strcmp(name, "__per_cpu_start"))
		lookup->percpu_start = address;
	else if (!strcmp(name, "__per_cpu_end"))
		lookup->percpu_end = address;
	if (strcmp(name, lookup->name))
		return;
	lookup->address = address;
	lookup->found++;
}

/*
 * One read(2) of /proc/kallsyms. Its file can only be read to user memory (kernel_read() refuses
 * it), so there has to be a page of that: insmod's, as module parameters come with a process.
 */
static ssize_t read_kallsyms(struct file *file, char *to, size_t size, unsigned long page)
{
	ssize_t n;

	if (!file->f_op->read)
		return kernel_read(file, to, size, &file->f_pos);
	n = file->f_op->read(file, (char __user *)page, size, &file->f_pos);
	if (n > 0 && copy_from_user(to, (char __user *)page, n))
		return -EFAULT;
	return n;
}

static int search_kallsyms(struct lookup *lookup)
{
	struct file *file = filp_open("/proc/kallsyms", O_RDONLY, 0);
	unsigned long page;
	size_t used = 0;
	ssize_t n;
	char *buf;

	if (IS_ERR(file))
		return PTR_ERR(file);
	n = -ENOMEM;
	buf = kmalloc(PAGE_SIZE, GFP_KERNEL);
	if (!buf)
		goto out_file;
	if (!current->mm)
		goto out_buf;
	page = vm_mmap(NULL, 0, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	if (IS_ERR_VALUE(page)) {
		n = page;
		goto out_buf;
	}
	while ((n = read_kallsyms(file, buf + used, PAGE_SIZE - 1 - used, page)) > 0) {
		char *line = buf, *end;

		used += n;
		buf[used] = '\0';
		while ((end = strchr(line, '\n'))) {
			*end = '\0';
			take_line(lookup, line);
			line = end + 1;
		}
		used -= line - buf;
		memmove(buf, line, used);
		/* No symbol is that long. */
		if (used >= PAGE_SIZE - 1)
			used = 0;
	}
	vm_munmap(page, PAGE_SIZE);
out_buf:
	kfree(buf);
out_file:
	filp_close(file, NULL);
	return n;
}

static int search_kprobe(struct lookup *lookup)
{
	struct kprobe probe = { .symbol_name = lookup->name };
	int error = register_kprobe(&probe);

	if (error)
		return error;
	lookup->address = (unsigned long)probe.addr;
	lookup->found = 1;
	unregister_kprobe(&probe);
	return 0;
}

static int search_exports(struct lookup *lookup)
{
	void *address = __symbol_get(lookup->name);

	if (!address)
		return -ENOENT;
	lookup->address = (unsigned long)address;
	lookup->found = 1;
	__symbol_put(lookup->name);
	return 0;
}

static int find_symbol(const char *name, struct ptwatch_watch *arg)
{
	struct lookup lookup = { .name = name };
	int error = search_kallsyms(&lookup);
	bool percpu;

	if (error < 0 && search_exports(&lookup) &&
	    (arg->access != PTWATCH_ACCESS_X || search_kprobe(&lookup))) {
		pr_err("watch=: without /proc/kallsyms (error %d) %s is not found; mount /proc\n",
		       error, name);
		return -ENOENT;
	}
	if (lookup.found != 1) {
		pr_err("watch=: there are %u symbols called %s; try 0xADDRESS or module:SYM\n",
		       lookup.found, name);
		return -ENOENT;
	}
	percpu = lookup.address >= lookup.percpu_start && lookup.address < lookup.percpu_end;
	if (!lookup.address && !percpu) {
		pr_err("watch=: the kernel hides addresses from this process (CAP_SYSLOG)\n");
		return -EPERM;
	}
	arg->address += lookup.address;
	if (percpu)
		arg->flags |= PTWATCH_WATCH_PERCPU;
	return 0;
}

/* SYM[+OFFSET], module:SYM[+OFFSET] or 0xADDRESS. */
static int parse_target(char *target, struct ptwatch_watch *arg)
{
	char *plus = strchr(target, '+'), *colon;

	strscpy(arg->label, target, sizeof(arg->label));
	if (!kstrtou64(target, 16, &arg->address) && !strncmp(target, "0x", 2))
		return 0;
	arg->address = 0;
	if (plus) {
		*plus = '\0';
		if (kstrtou64(plus + 1, 0, &arg->address))
			return -EINVAL;
	}
	colon = strchr(target, ':');
	if (!colon)
		return find_symbol(target, arg);
	*colon = '\0';
	arg->flags |= PTWATCH_WATCH_WAIT_MODULE;
	if (strscpy(arg->module, target, sizeof(arg->module)) < 0 ||
	    strscpy(arg->symbol, colon + 1, sizeof(arg->symbol)) < 0)
		return -EINVAL;
	return 0;
}

/* TARGET:LEN:MODE, from its end, as a target may have colons. */
static int parse(char *text, struct ptwatch_watch *arg)
{
	char *mode = strrchr(text, ':'), *len;

	if (!mode)
		return -EINVAL;
	*mode++ = '\0';
	len = strrchr(text, ':');
	if (!len)
		return -EINVAL;
	*len++ = '\0';
	if (!strcmp(mode, "w"))
		arg->access = PTWATCH_ACCESS_W;
	else if (!strcmp(mode, "rw"))
		arg->access = PTWATCH_ACCESS_RW;
	else if (!strcmp(mode, "x"))
		arg->access = PTWATCH_ACCESS_X;
	else
		return -EINVAL;
	if (kstrtou32(len, 0, &arg->len))
		return -EINVAL;
	if (arg->access == PTWATCH_ACCESS_X)
		arg->len = sizeof(long);
	return parse_target(text, arg);
}

static int add(const char *spelled, char *text)
{
	struct ptw_watch_request *request = kzalloc(sizeof(*request), GFP_KERNEL);
	int error = -ENOMEM;

	if (!request || !zalloc_cpumask_var(&request->cpus, GFP_KERNEL))
		goto out;
	cpumask_copy(request->cpus, cpu_possible_mask);
	request->arg.actions = PTWATCH_ACTION_LOG | PTWATCH_ACTION_EVENT;
	request->arg.flags = PTWATCH_WATCH_PERSISTENT;
	request->arg.max_rate = MAX_RATE;
	error = parse(text, &request->arg);
	if (error == -EINVAL)
		pr_err("watch=%s: it is SYM[+OFFSET]:LEN:MODE, MODE one of w, rw, x\n", spelled);
	if (error)
		goto out_cpus;
	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	error = ptw_watch_add(NULL, request);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	if (error)
		pr_err("watch=%s: refused (error %d, PTWATCH_WHY_* %u of linux/ptwatch.h)\n",
		       spelled, error, request->why.reason);
	else
		pr_info("watch %u is armed: %s\n", request->arg.id, spelled);
out_cpus:
	free_cpumask_var(request->cpus);
out:
	kfree(request);
	return error;
}

int ptw_boot_watch_init(void)
{
	char *all, *next, *text, *copy;
	int error = 0;

	if (!watch)
		return 0;
	all = kstrdup(watch, GFP_KERNEL);
	if (!all)
		return -ENOMEM;
	for (next = all; !error && (text = strsep(&next, ","));) {
		copy = kstrdup(text, GFP_KERNEL);
		error = copy ? add(text, copy) : -ENOMEM;
		kfree(copy);
	}
	kfree(all);
	return error;
}
