// SPDX-License-Identifier: GPL-2.0
/*
 * Who is traced: a process with its threads, its children perhaps, or a cgroup.
 *
 * Where one address space and one page table of it is enough, the CPU compares CR3 itself: context
 * switches then cost nothing, and exec, which brings a new address space, is followed by the probe
 * of sched_process_exec. Page table isolation gives a process two page tables, so user and kernel
 * code together can't be told that way. Then, and for children and cgroups, tracing is switched
 * with the task (switch.c), and processes are told by a bitmap of their ids: one look, no lock, no
 * memory to be had while a process forks. The probe of sched_process_fork sets the bit of each new
 * process before it first runs, so a number that is used again never stands for the process that
 * had it before.
 */
#include <linux/cgroup.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/rculist.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/threads.h>
#include <linux/tracepoint.h>
#include <asm/cpufeature.h>

#include "ptwatch.h"

/* Under PTI a process's user page table is the page behind its kernel page table. */
#define USER_PGD_BIT	BIT_ULL(PAGE_SHIFT)

/**
 * struct ptw_target - whom a trace is about
 * @link: of targets; added and removed under ptw_config_lock, walked by the probes under RCU
 * @trace: whose it is
 * @filter: PTWATCH_FILTER_*
 * @follow_fork: children belong to it
 * @user: user code is traced
 * @pid: the process; held, so its number does not come back as another's
 * @tgids: bit n: process n of the initial pid namespace; with FILTER_SWITCH
 * @cgroup: the cgroup, in place of @pid and @tgids
 * @lock: @mm and @cr3; raw, as the probe of exec has preemption off
 * @mm: the address space that @cr3 is of; held (mm_count), so that its page table is not another's
 * @cr3: IA32_RTIT_CR3_MATCH
 */
struct ptw_target {
	struct list_head link;
	struct ptw_trace *trace;
	u32 filter;
	bool follow_fork;
	bool user;
	struct pid *pid;
	unsigned long *tgids;
	struct cgroup *cgroup;
	raw_spinlock_t lock;
	struct mm_struct *mm;
	u64 cr3;
};

static LIST_HEAD(targets);

static void free_target(struct ptw_target *target)
{
	if (target->cgroup)
		cgroup_put(target->cgroup);
	if (target->mm)
		mmdrop(target->mm);
	put_pid(target->pid);
	kvfree(target->tgids);
	kfree(target);
}

static bool cr3_filter_will_do(const struct ptwatch_trace *arg)
{
	const u64 both = PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_USER;

	if (!ptw_cap(PTW_CAP_CR3_FILTERING) ||
	    arg->flags & (PTWATCH_TRACE_FOLLOW_FORK | PTWATCH_TRACE_NO_CR3))
		return false;
	return !boot_cpu_has(X86_FEATURE_PTI) || (arg->rtit_ctl & both) != both;
}

static int find_process(struct ptw_target *target, pid_t nr)
{
	struct task_struct *task;
	struct pid *pid = find_get_pid(nr);

	task = get_pid_task(pid, PIDTYPE_PID);
	put_pid(pid);
	if (!task)
		return -ESRCH;
	/* Of a thread, its process. */
	rcu_read_lock();
	target->pid = get_pid(task_tgid(task));
	rcu_read_unlock();
	put_task_struct(task);
	return target->pid ? 0 : -ESRCH;
}

struct ptw_target *ptw_target_get(const struct ptwatch_trace *arg, unsigned int *hooks)
{
	struct ptw_target *target;
	int error;

	*hooks = 0;
	if (arg->target_kind == PTWATCH_TARGET_ALL)
		return NULL;
	target = kzalloc(sizeof(*target), GFP_KERNEL);
	if (!target)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&target->link);
	raw_spin_lock_init(&target->lock);
	target->follow_fork = arg->flags & PTWATCH_TRACE_FOLLOW_FORK;
	target->user = arg->rtit_ctl & PTWATCH_RTIT_CTL_USER;
	target->filter = PTWATCH_FILTER_SWITCH;

	error = 0;
	if (arg->target_kind == PTWATCH_TARGET_CGROUP) {
		struct cgroup *cgroup = cgroup_get_from_fd(arg->target);

		if (IS_ERR(cgroup))
			error = -EBADF;
		else
			target->cgroup = cgroup;
		*hooks = PTW_HOOK_SWITCH;
	} else {
		error = find_process(target, arg->target);
		if (!error && cr3_filter_will_do(arg)) {
			target->filter = PTWATCH_FILTER_CR3;
			*hooks = PTW_HOOK_EXEC;
		} else if (!error) {
			target->tgids = kvcalloc(BITS_TO_LONGS(PID_MAX_LIMIT), sizeof(long),
						 GFP_KERNEL_ACCOUNT);
			if (!target->tgids)
				error = -ENOMEM;
			*hooks = PTW_HOOK_SWITCH | PTW_HOOK_FORK;
		}
	}
	if (error) {
		free_target(target);
		return ERR_PTR(error);
	}
	return target;
}

/* The caller's reference to mm becomes the target's. */
static void set_mm(struct ptw_target *target, struct mm_struct *mm)
{
	u64 cr3 = __pa(mm->pgd);
	struct mm_struct *old;
	unsigned long flags;

	if (boot_cpu_has(X86_FEATURE_PTI) && target->user)
		cr3 |= USER_PGD_BIT;
	raw_spin_lock_irqsave(&target->lock, flags);
	old = target->mm;
	target->mm = mm;
	WRITE_ONCE(target->cr3, cr3);
	raw_spin_unlock_irqrestore(&target->lock, flags);
	/* As the scheduler does with preemption off when it lets go of a lazy one. */
	if (old)
		mmdrop(old);
}

static int take_mm(struct ptw_target *target)
{
	struct task_struct *task = get_pid_task(target->pid, PIDTYPE_TGID);
	struct mm_struct *mm;
	bool same;

	if (!task)
		return -ESRCH;
	/*
	 * The process may exec between our look and set_mm(), and its probe come before us: look
	 * again. An exec after that comes after us.
	 */
	do {
		mm = get_task_mm(task);
		if (!mm) {
			put_task_struct(task);
			return -ESRCH;
		}
		mmgrab(mm);
		mmput(mm);
		set_mm(target, mm);
		task_lock(task);
		same = task->mm == mm;
		task_unlock(task);
	} while (!same && !(task->flags & PF_EXITING));
	put_task_struct(task);
	return 0;
}

int ptw_target_arm(struct ptw_target *target, struct ptw_trace *trace)
{
	lockdep_assert_held(&ptw_config_lock);
	target->trace = trace;
	if (target->tgids)
		set_bit(pid_nr(target->pid), target->tgids);
	list_add_rcu(&target->link, &targets);
	return target->filter == PTWATCH_FILTER_CR3 ? take_mm(target) : 0;
}

void ptw_target_put(struct ptw_target *target)
{
	if (!target)
		return;
	if (!list_empty(&target->link)) {
		list_del_rcu(&target->link);
		/* The probes of exec and fork may look at it on any CPU. */
		tracepoint_synchronize_unregister();
	}
	free_target(target);
}

u32 ptw_target_filter(const struct ptw_target *target)
{
	return target ? target->filter : PTWATCH_FILTER_NONE;
}

u64 ptw_target_cr3(const struct ptw_target *target)
{
	return READ_ONCE(target->cr3);
}

bool ptw_target_has(const struct ptw_target *target, struct task_struct *task)
{
	bool has;

	if (target->tgids)
		return test_bit(task->tgid, target->tgids);
	rcu_read_lock();
	has = cgroup_is_descendant(task_dfl_cgroup(task), target->cgroup);
	rcu_read_unlock();
	return has;
}

/* ---- probes ---- */

void ptw_target_on_exec(void *data, struct task_struct *task, pid_t old_pid,
			struct linux_binprm *bprm)
{
	struct ptw_target *target;

	rcu_read_lock();
	list_for_each_entry_rcu(target, &targets, link) {
		if (target->filter != PTWATCH_FILTER_CR3 || task_tgid(task) != target->pid)
			continue;
		mmgrab(task->mm);
		set_mm(target, task->mm);
		/*
		 * Before the first instruction of the new program: its only thread is here, and
		 * can't be on another CPU before that CPU knows. IRQs are on.
		 */
		on_each_cpu_mask(&target->trace->cpus, ptw_engine_reload, target->trace, true);
	}
	rcu_read_unlock();
}

void ptw_target_on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	struct ptw_target *target;

	/* A thread is told by its process. */
	if (child->pid != child->tgid)
		return;
	rcu_read_lock();
	list_for_each_entry_rcu(target, &targets, link)
		if (target->tgids)
			assign_bit(child->tgid, target->tgids,
				   target->follow_fork && test_bit(parent->tgid, target->tgids));
	rcu_read_unlock();
}
