// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/ptwatch: open files and ioctls. Everything that touches user memory is here, outside
 * ptw_config_lock.
 */
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/fs.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/security.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "ptwatch.h"

/* ---- size-versioned structs ---- */

/*
 * Every struct begins with its size. copy_struct_from_user() does the rest: E2BIG for non-zero
 * bytes that we do not know, zeros for what the caller does not know.
 */
static int copy_arg_in(void *arg, size_t size, const void __user *from)
{
	u32 user_size;
	int error;

	if (get_user(user_size, (const u32 __user *)from))
		return -EFAULT;
	if (user_size < 2 * sizeof(u32))
		return -EINVAL;
	if (user_size > PAGE_SIZE)
		return -E2BIG;
	error = copy_struct_from_user(arg, size, from, user_size);
	/* Another thread may have changed it since: copy_arg_out() goes by what was checked. */
	*(u32 *)arg = user_size;
	return error;
}

/* The first member still holds the caller's size. */
static int copy_arg_out(void __user *to, const void *arg, size_t size)
{
	return copy_to_user(to, arg, min_t(size_t, *(const u32 *)arg, size)) ? -EFAULT : 0;
}

/* ---- ioctls ---- */

static long ioctl_info(struct ptw_session *session, void __user *uarg)
{
	struct ptwatch_info info;
	u32 size;
	int error;

	error = copy_arg_in(&info, sizeof(info), uarg);
	if (error)
		return error;
	size = info.size;
	memset(&info, 0, sizeof(info));
	info.size = size;
	ptw_caps_fill_info(&info);
	return copy_arg_out(uarg, &info, sizeof(info));
}

/* The CPUs @arg names, all of which are online; under cpus_read_lock(). */
static int check_cpus(const struct ptwatch_trace *arg, struct cpumask *cpus)
{
	if (!arg->cpus) {
		cpumask_copy(cpus, cpu_online_mask);
		return 0;
	}
	if (cpumask_empty(cpus) || !cpumask_subset(cpus, cpu_online_mask))
		return -EINVAL;
	return 0;
}

static int copy_cpus_in(u64 user_cpus, u32 size, struct cpumask *cpus)
{
	const u8 __user *from = u64_to_user_ptr(user_cpus);
	u32 i;

	cpumask_clear(cpus);
	if (!user_cpus)
		return size ? -EINVAL : 0;
	if (!size || size > PAGE_SIZE)
		return -EINVAL;
	for (i = 0; i < size; i++) {
		unsigned int bit;
		u8 byte;

		if (get_user(byte, from + i))
			return -EFAULT;
		for (bit = 0; bit < 8; bit++) {
			if (!(byte & BIT(bit)))
				continue;
			if (8 * i + bit >= nr_cpu_ids)
				return -EINVAL;
			cpumask_set_cpu(8 * i + bit, cpus);
		}
	}
	return 0;
}

static int check_trace_rights(u64 rtit_ctl)
{
	if (!(rtit_ctl & PTWATCH_RTIT_CTL_OS))
		return 0;
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return security_locked_down(LOCKDOWN_PERF);
}

static bool canonical(u64 address)
{
	unsigned int shift = 64 - boot_cpu_data.x86_virt_bits;

	return (u64)((s64)(address << shift) >> shift) == address;
}

static int check_ranges(const struct ptwatch_trace *arg)
{
	u32 i;

	for (i = 0; i < PTWATCH_MAX_RANGES; i++) {
		const struct ptwatch_range *range = &arg->ranges[i];

		if (i >= arg->nr_ranges) {
			if (range->start || range->end || range->kind || range->reserved)
				return -EINVAL;
			continue;
		}
		if (range->reserved || range->start > range->end || !canonical(range->start) ||
		    !canonical(range->end))
			return -EINVAL;
		if (range->kind != PTWATCH_RANGE_FILTER && range->kind != PTWATCH_RANGE_STOP)
			return -EINVAL;
	}
	return arg->nr_ranges > PTWATCH_MAX_RANGES ? -EINVAL : 0;
}

static int check_buffer(const struct ptwatch_trace *arg)
{
	if (arg->mode > PTWATCH_MODE_BANKS)
		return -EINVAL;
	if (arg->mode == PTWATCH_MODE_BANKS ? arg->banks < 2 || arg->banks > PTWATCH_MAX_BANKS :
					      arg->banks)
		return -EINVAL;
	if (!arg->buffer_size || !PAGE_ALIGNED(arg->buffer_size) ||
	    arg->buffer_size > ptw_buffer_max_size() / (arg->banks ?: 1))
		return -EINVAL;
	if (arg->region_size && (arg->region_size < PAGE_SIZE || !is_power_of_2(arg->region_size)))
		return -EINVAL;
	if (arg->mode == PTWATCH_MODE_STREAM && arg->buffer_size < 4 * PAGE_SIZE)
		return -EINVAL;
	if (arg->switch_records && (arg->switch_records < 128 || arg->switch_records > SZ_1M ||
				    !is_power_of_2(arg->switch_records)))
		return -EINVAL;
	return 0;
}

static int check_target(const struct ptwatch_trace *arg)
{
	if (arg->target_kind > PTWATCH_TARGET_CGROUP)
		return -EINVAL;
	if (arg->target_kind == PTWATCH_TARGET_ALL && arg->target)
		return -EINVAL;
	if (arg->target_kind != PTWATCH_TARGET_PROCESS && arg->flags & PTWATCH_TRACE_FOLLOW_FORK)
		return -EINVAL;
	return 0;
}

/* Does the CPU have what @arg asks for? Why not, is in @arg then. */
static int check_caps(struct ptwatch_trace *arg)
{
	int error;

	if (!ptw_caps_traceable()) {
		arg->reason = PTWATCH_REASON_NO_PT;
		return -EOPNOTSUPP;
	}
	error = ptw_caps_check_rtit_ctl(arg->rtit_ctl, &arg->unsupported);
	if (error == -EOPNOTSUPP)
		arg->reason = PTWATCH_REASON_RTIT_CTL;
	if (error)
		return error;
	if (arg->nr_ranges > ptw_caps_ranges()) {
		arg->reason = PTWATCH_REASON_RANGES;
		return -EOPNOTSUPP;
	}
	if (!(ptw_caps_modes() & BIT(arg->mode))) {
		arg->reason = arg->mode == PTWATCH_MODE_STREAM && !ptw_pmi_available() ?
				      PTWATCH_REASON_NO_PMI : PTWATCH_REASON_MODE;
		return -EOPNOTSUPP;
	}
	/* One entry: one region, whose size is a power of two. */
	if (!ptw_cap(PTW_CAP_TOPA_MULTIPLE_ENTRIES) && !is_power_of_2(arg->buffer_size)) {
		arg->reason = PTWATCH_REASON_MODE;
		return -EOPNOTSUPP;
	}
	return 0;
}

static int check_trace(struct ptwatch_trace *arg)
{
	const u32 flags = PTWATCH_TRACE_FOLLOW_FORK | PTWATCH_TRACE_PAUSED | PTWATCH_TRACE_NO_CR3 |
			  PTWATCH_TRACE_NO_TRACESTOP | PTWATCH_TRACE_NO_EARLY;
	int error;

	if (arg->flags & ~flags || arg->reserved || arg->nr_cpus || arg->filter ||
	    arg->unsupported || arg->reason || arg->reason_cpu || arg->holder_pid ||
	    memchr_inv(arg->holder_comm, 0, sizeof(arg->holder_comm)))
		return -EINVAL;
	error = check_buffer(arg);
	error = error ?: check_target(arg);
	error = error ?: check_ranges(arg);
	error = error ?: check_caps(arg);
	error = error ?: check_trace_rights(arg->rtit_ctl);
	/* Who runs when tells of others. */
	if (!error && arg->switch_records && !capable(CAP_SYS_ADMIN))
		error = -EPERM;
	return error;
}

/* Of a failed SETUP, the reason alone. */
static void copy_reason_out(struct ptwatch_trace __user *uarg, const struct ptwatch_trace *arg)
{
	const size_t from = offsetof(struct ptwatch_trace, unsupported);

	if (!arg->reason || arg->size < sizeof(*arg))
		return;
	/* If it can't be told, the call fails all the same. */
	if (copy_to_user((char __user *)uarg + from, (const char *)arg + from, sizeof(*arg) - from))
		return;
}

static void release_trace(struct ptw_session *session)
{
	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	ptw_freeze_trace_released(session);
	ptw_trace_release(session);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	session->early = false;
	/* After the last CPU that looks at what the probes note; with no lock but the session's. */
	ptw_hooks_put(session->hooks);
	session->hooks = 0;
}

/* Unless the hardware stops still earlier, should a watch freeze this trace. */
static bool wants_early_freezes(const struct ptwatch_trace *arg)
{
	if (!(arg->rtit_ctl & PTWATCH_RTIT_CTL_OS) || (arg->flags & PTWATCH_TRACE_NO_EARLY) ||
	    ptw_caps_vmx_excludes())
		return false;
	return (arg->flags & PTWATCH_TRACE_NO_TRACESTOP) || !ptw_freeze_hardware_possible() ||
	       arg->nr_ranges >= ptw_caps_ranges();
}

/* Under setup_lock, so that a result that can't be written takes back this trace and no other. */
static int setup_locked(struct ptw_session *session, struct ptwatch_trace *arg,
			struct cpumask *cpus, void __user *uarg)
{
	struct ptw_target *target;
	unsigned int hooks;
	int error;

	if (session->trace)
		return -EBUSY;
	target = ptw_target_get(arg, &hooks);
	if (IS_ERR(target))
		return PTR_ERR(target);
	if (arg->switch_records)
		hooks |= PTW_HOOK_SWITCH;
	/* Before the target is looked at for the first time, or its exec in between is missed. */
	error = ptw_hooks_get(hooks);
	if (error) {
		ptw_target_put(target);
		return error;
	}

	/* Also changes kernel text, and can do so before tracing starts only. */
	session->early = wants_early_freezes(arg) && ptw_freeze_early_get();

	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	error = check_cpus(arg, cpus);
	if (error)
		ptw_target_put(target);
	else
		error = ptw_trace_setup(session, arg, cpus, target);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	session->hooks = hooks;
	if (!error) {
		arg->nr_cpus = cpumask_weight(cpus);
		error = copy_arg_out(uarg, arg, sizeof(*arg));
	}
	if (error)
		release_trace(session);
	return error;
}

static long ioctl_trace_setup(struct ptw_session *session, void __user *uarg)
{
	struct ptwatch_trace arg;
	cpumask_var_t cpus;
	int error;

	error = copy_arg_in(&arg, sizeof(arg), uarg);
	if (error)
		return error;
	error = check_trace(&arg);
	if (error)
		goto out_reason;
	/* A stream in as large regions as can be had would hardly ever tell of one. */
	if (arg.mode == PTWATCH_MODE_STREAM) {
		u64 most = rounddown_pow_of_two(max_t(u64, arg.buffer_size / 8, PAGE_SIZE));

		if (!arg.region_size)
			arg.region_size = most;
		arg.region_size = min(arg.region_size, rounddown_pow_of_two(arg.buffer_size / 4));
	}
	if (!alloc_cpumask_var(&cpus, GFP_KERNEL))
		return -ENOMEM;
	error = copy_cpus_in(arg.cpus, arg.cpus_size, cpus);
	if (!error) {
		mutex_lock(&session->setup_lock);
		error = setup_locked(session, &arg, cpus, uarg);
		mutex_unlock(&session->setup_lock);
	}
	free_cpumask_var(cpus);
out_reason:
	if (error)
		copy_reason_out(uarg, &arg);
	return error;
}

static long ioctl_trace_release(struct ptw_session *session)
{
	long error = -EINVAL;

	mutex_lock(&session->setup_lock);
	if (session->trace) {
		release_trace(session);
		error = 0;
	}
	mutex_unlock(&session->setup_lock);
	return error;
}

static long ioctl_trace_advance(struct ptw_session *session, void __user *uarg)
{
	struct ptwatch_advance arg;
	int error;

	error = copy_arg_in(&arg, sizeof(arg), uarg);
	if (error)
		return error;
	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	error = ptw_trace_advance(session, &arg);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	return error;
}

static long ioctl_bank_free(struct ptw_session *session, void __user *uarg)
{
	struct ptwatch_bank_free arg;
	int error;

	error = copy_arg_in(&arg, sizeof(arg), uarg);
	if (error)
		return error;
	if (arg.reserved)
		return -EINVAL;
	mutex_lock(&ptw_config_lock);
	error = ptw_trace_bank_free(session, &arg);
	mutex_unlock(&ptw_config_lock);
	return error;
}

/* What a WATCH_ADD points to. */
static int copy_request_in(struct ptw_watch_request *request)
{
	const struct ptwatch_watch *arg = &request->arg;
	const u32 __user *size = u64_to_user_ptr(arg->refusal);
	int error;

	if (size && get_user(request->why.size, size))
		return -EFAULT;
	if (size && (request->why.size < 2 * sizeof(u32) || request->why.size > PAGE_SIZE))
		return -EINVAL;
	error = copy_cpus_in(arg->cpus, arg->cpus_size, request->cpus);
	if (error)
		return error;
	if (!arg->cpus)
		cpumask_copy(request->cpus, cpu_possible_mask);
	if (!cpumask_intersects(request->cpus, cpu_possible_mask) ||
	    !cpumask_subset(request->cpus, cpu_possible_mask)) {
		request->why.reason = PTWATCH_WHY_CPUS;
		return -EINVAL;
	}
	if (arg->nr_filters > PTWATCH_MAX_WHO || !arg->nr_filters != !arg->filters) {
		request->why.reason = PTWATCH_WHY_FIELD;
		return -EINVAL;
	}
	if (arg->nr_filters) {
		request->filters = memdup_user(u64_to_user_ptr(arg->filters),
					       arg->nr_filters * sizeof(*request->filters));
		if (IS_ERR(request->filters)) {
			error = PTR_ERR(request->filters);
			request->filters = NULL;
		}
	}
	return error;
}

/* A refusal that can't be told is one all the same. */
static void copy_refusal_out(const struct ptw_watch_request *request)
{
	if (request->arg.refusal)
		(void)!copy_arg_out(u64_to_user_ptr(request->arg.refusal), &request->why,
				    sizeof(request->why));
}

static long ioctl_watch_add(struct ptw_session *session, void __user *uarg)
{
	struct ptw_watch_request *request = kzalloc(sizeof(*request), GFP_KERNEL);
	int error;

	if (!request)
		return -ENOMEM;
	if (!zalloc_cpumask_var(&request->cpus, GFP_KERNEL)) {
		kfree(request);
		return -ENOMEM;
	}
	error = copy_arg_in(&request->arg, sizeof(request->arg), uarg);
	if (error)
		goto out;
	error = copy_request_in(request);
	if (!error) {
		if (request->arg.flags & PTWATCH_WATCH_USER)
			ptw_user_watch_seed(request);
		cpus_read_lock();
		mutex_lock(&ptw_config_lock);
		error = ptw_watch_add(session, request);
		mutex_unlock(&ptw_config_lock);
		cpus_read_unlock();
	}
	if (error) {
		copy_refusal_out(request);
		goto out;
	}

	error = copy_arg_out(uarg, &request->arg, sizeof(request->arg));
	if (error) {
		cpus_read_lock();
		mutex_lock(&ptw_config_lock);
		ptw_watch_del(session, request->arg.id);
		mutex_unlock(&ptw_config_lock);
		cpus_read_unlock();
	}
out:
	kfree(request->filters);
	free_cpumask_var(request->cpus);
	kfree(request);
	return error;
}

/* What concerns the watches of others: they hold kernel addresses. */
static int check_watch_rights(void)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return security_locked_down(LOCKDOWN_PERF);
}

static long ioctl_watch_stat(struct ptw_session *session, void __user *uarg)
{
	struct ptwatch_watch_stat stat;
	bool any;
	int error;

	error = copy_arg_in(&stat, sizeof(stat), uarg);
	if (error)
		return error;
	if ((stat.flags & ~PTWATCH_STAT_ANY) || stat.reserved)
		return -EINVAL;
	any = stat.flags & PTWATCH_STAT_ANY;
	error = any ? check_watch_rights() : 0;
	if (error)
		return error;
	mutex_lock(&ptw_config_lock);
	error = ptw_watch_stat(any ? NULL : session, &stat);
	mutex_unlock(&ptw_config_lock);
	return error ?: copy_arg_out(uarg, &stat, sizeof(stat));
}

static long ioctl_watch_next(struct ptw_session *session, void __user *uarg)
{
	struct ptwatch_watch_entry entry;
	int error;

	error = copy_arg_in(&entry, sizeof(entry), uarg);
	error = error ?: check_watch_rights();
	if (error)
		return error;
	mutex_lock(&ptw_config_lock);
	error = ptw_watch_next(&entry);
	mutex_unlock(&ptw_config_lock);
	return error ?: copy_arg_out(uarg, &entry, sizeof(entry));
}

/*
 * Calls without a struct. But for WATCH_DEL and WATCH_REMOVE, callers pass no third argument, so
 * @arg is whatever the register held.
 */
static long ioctl_plain(struct ptw_session *session, unsigned int nr, unsigned long arg)
{
	long error = 0;

	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	switch (nr) {
	case _IOC_NR(PTWATCH_IOC_TRACE_START):
		error = session->trace ? check_trace_rights(session->trace->config.ctl) : 0;
		error = error ?: ptw_trace_start(session);
		break;
	case _IOC_NR(PTWATCH_IOC_TRACE_STOP):
		error = ptw_trace_stop(session);
		break;
	case _IOC_NR(PTWATCH_IOC_TRACE_THAW):
		error = ptw_trace_thaw(session);
		break;
	case _IOC_NR(PTWATCH_IOC_TRACE_FREEZE):
		error = ptw_trace_freeze_all(session);
		break;
	case _IOC_NR(PTWATCH_IOC_TRACE_FLUSH):
		error = ptw_trace_flush(session);
		break;
	case _IOC_NR(PTWATCH_IOC_WATCH_DEL):
		error = arg > U32_MAX ? -ENOENT : ptw_watch_del(session, arg);
		break;
	case _IOC_NR(PTWATCH_IOC_LISTEN):
		error = check_watch_rights();
		if (!error)
			ptw_readers_listen(session);
		break;
	case _IOC_NR(PTWATCH_IOC_WATCH_REMOVE):
		error = check_watch_rights();
		error = error ?: arg > U32_MAX ? -ENOENT : ptw_watch_del(NULL, arg);
		break;
	}
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	return error;
}

static long device_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ptw_session *session = file->private_data;

	/*
	 * The size in the command is the caller's idea of the struct, which also stands in its
	 * first member.
	 */
	switch (cmd & ~IOCSIZE_MASK) {
	case PTWATCH_IOC_INFO & ~IOCSIZE_MASK:
		return ioctl_info(session, (void __user *)arg);
	case PTWATCH_IOC_TRACE_SETUP & ~IOCSIZE_MASK:
		return ioctl_trace_setup(session, (void __user *)arg);
	case PTWATCH_IOC_TRACE_ADVANCE & ~IOCSIZE_MASK:
		return ioctl_trace_advance(session, (void __user *)arg);
	case PTWATCH_IOC_BANK_FREE & ~IOCSIZE_MASK:
		return ioctl_bank_free(session, (void __user *)arg);
	case PTWATCH_IOC_WATCH_ADD & ~IOCSIZE_MASK:
		return ioctl_watch_add(session, (void __user *)arg);
	case PTWATCH_IOC_WATCH_NEXT & ~IOCSIZE_MASK:
		return ioctl_watch_next(session, (void __user *)arg);
	case PTWATCH_IOC_WATCH_STAT & ~IOCSIZE_MASK:
		return ioctl_watch_stat(session, (void __user *)arg);
	}
	switch (cmd) {
	case PTWATCH_IOC_TRACE_START:
	case PTWATCH_IOC_TRACE_STOP:
	case PTWATCH_IOC_TRACE_THAW:
	case PTWATCH_IOC_TRACE_FREEZE:
	case PTWATCH_IOC_TRACE_FLUSH:
	case PTWATCH_IOC_WATCH_DEL:
	case PTWATCH_IOC_WATCH_REMOVE:
	case PTWATCH_IOC_LISTEN:
		return ioctl_plain(session, _IOC_NR(cmd), arg);
	case PTWATCH_IOC_TRACE_RELEASE:
		return ioctl_trace_release(session);
	}
	return -ENOTTY;
}

/* ---- the file ---- */

static int device_open(struct inode *inode, struct file *file)
{
	struct ptw_session *session;

	if (!perfmon_capable())
		return -EPERM;
	session = kzalloc(sizeof(*session), GFP_KERNEL);
	if (!session)
		return -ENOMEM;
	spin_lock_init(&session->trace_lock);
	mutex_init(&session->setup_lock);
	ptw_queue_init(&session->queue);
	INIT_LIST_HEAD(&session->listener);
	session->stop_range = -1;
	init_waitqueue_head(&session->wait);
	file->private_data = session;
	return nonseekable_open(inode, file);
}

static int device_release(struct inode *inode, struct file *file)
{
	struct ptw_session *session = file->private_data;

	cpus_read_lock();
	mutex_lock(&ptw_config_lock);
	/* Watches first: they freeze the trace. */
	ptw_watch_del_all(session);
	ptw_readers_leave(session);
	mutex_unlock(&ptw_config_lock);
	cpus_read_unlock();
	release_trace(session);
	kfree(session);
	return 0;
}

static int device_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ptw_session *session = file->private_data;
	struct ptw_buffer *buffer;
	int error;

	buffer = ptw_trace_buffer(session, (u64)vma->vm_pgoff << PAGE_SHIFT);
	if (!buffer)
		return -EINVAL;
	error = ptw_buffer_mmap(buffer, vma);
	ptw_buffer_put(buffer);
	return error;
}

static ssize_t device_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	struct ptw_session *session = file->private_data;
	ssize_t n;

	for (;;) {
		n = ptw_queue_read(&session->queue, to, size);
		if (n)
			return n;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(session->wait, !ptw_queue_empty(&session->queue)))
			return -ERESTARTSYS;
	}
}

static __poll_t device_poll(struct file *file, struct poll_table_struct *wait)
{
	struct ptw_session *session = file->private_data;
	__poll_t events = 0;

	poll_wait(file, &session->wait, wait);
	/* Who does not ask for alarms must not take them from who does. */
	if ((poll_requested_events(wait) & EPOLLPRI) && atomic_xchg(&session->alarms, 0))
		events |= EPOLLPRI;
	if (!ptw_queue_empty(&session->queue))
		events |= EPOLLRDBAND;
	if (ptw_trace_readable(session))
		events |= EPOLLIN | EPOLLRDNORM;
	return events;
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = device_mmap,
	.poll = device_poll,
	.read = device_read,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ptwatch",
	.fops = &device_fops,
	/* device_open() asks for capabilities, which need not come with root's file access. */
	.mode = 0666,
};

int ptw_device_init(void)
{
	return misc_register(&device);
}

void ptw_device_exit(void)
{
	misc_deregister(&device);
}
