// SPDX-License-Identifier: GPL-2.0
/*
 * Watches in the memory of one process: a perf event for each thread and debug register.
 *
 * The events are inherited (attr.inherit_thread): perf arms a new thread before it runs. What
 * remains is to arm those that there are, and that is repeated until a look finds no thread without
 * events: one that is not armed yet may create another meanwhile. perf disarms a thread that ends,
 * and all of them at exec (attr.remove_on_exec).
 */
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "ptwatch.h"

/* A thread that was there when the watch was added, or missed when perf armed new ones. */
struct user_thread {
	struct list_head link;
	struct task_struct *task;
	struct ptw_point point[PTW_MAX_SLOTS];
};

static bool event_is_for(struct perf_event *event, const struct task_struct *task)
{
	struct perf_event *child;
	bool found = false;

	mutex_lock(&event->child_mutex);
	list_for_each_entry(child, &event->child_list, child_list)
		if (child->hw.target == task)
			found = true;
	mutex_unlock(&event->child_mutex);
	return found;
}

static bool is_armed(struct ptw_watch *watch, const struct task_struct *task)
{
	struct user_thread *thread;

	list_for_each_entry(thread, &watch->threads, link)
		if (thread->task == task || event_is_for(thread->point[0].event, task))
			return true;
	return false;
}

static void free_thread(struct ptw_watch *watch, struct user_thread *thread)
{
	u32 i;

	for (i = 0; i < watch->nr_slots; i++)
		ptw_point_disarm(&thread->point[i]);
	put_task_struct(thread->task);
	kfree(thread);
}

static int arm_thread(struct ptw_watch *watch, struct task_struct *task)
{
	struct user_thread *thread = kzalloc(sizeof(*thread), GFP_KERNEL);
	u32 i;

	if (!thread)
		return -ENOMEM;
	get_task_struct(task);
	thread->task = task;
	for (i = 0; i < watch->nr_slots; i++) {
		struct ptw_point *point = &thread->point[i];
		struct perf_event_attr attr;
		struct perf_event *event;

		ptw_point_init(point, watch, i, watch->arg.address);
		ptw_point_attr(point, &attr);
		attr.inherit = 1;
		attr.inherit_thread = 1;
		attr.remove_on_exec = 1;
		event = perf_event_create_kernel_counter(&attr, -1, task, ptw_watch_hit, point);
		if (IS_ERR(event)) {
			free_thread(watch, thread);
			return PTR_ERR(event);
		}
		point->event = event;
	}
	list_add_tail(&thread->link, &watch->threads);
	return 0;
}

/* The next thread of @leader's process that is not armed, with a reference. */
static struct task_struct *next_unarmed(struct ptw_watch *watch, struct task_struct *leader)
{
	struct task_struct **tasks, *task, *found = NULL;
	unsigned int n = 0, max, i;

	/* The look at each takes a mutex, so the list is copied first. */
	max = get_nr_threads(leader) + 16;
	tasks = kvcalloc(max, sizeof(*tasks), GFP_KERNEL);
	if (!tasks)
		return ERR_PTR(-ENOMEM);
	rcu_read_lock();
	for_each_thread(leader, task)
		if (n < max && !(task->flags & PF_EXITING))
			tasks[n++] = get_task_struct(task);
	rcu_read_unlock();
	for (i = 0; i < n; i++) {
		if (!found && !is_armed(watch, tasks[i]))
			found = tasks[i];
		else
			put_task_struct(tasks[i]);
	}
	kvfree(tasks);
	return found;
}

static int explain(struct ptw_watch *watch, struct ptwatch_refusal *why, int error)
{
	why->reason = error == -ENOSPC ? PTWATCH_WHY_SLOTS :
		      error == -EINVAL ? PTWATCH_WHY_KERNEL :
		      error == -ESRCH  ? PTWATCH_WHY_NO_PROCESS :
					 PTWATCH_WHY_NONE;
	return error;
}

static int check_address(const struct ptwatch_watch *arg, struct ptwatch_refusal *why)
{
	u32 len = arg->access == PTWATCH_ACCESS_X ? 1 : arg->len;

	why->reason = PTWATCH_WHY_USER_RANGE;
	if (!arg->address || arg->address >= TASK_SIZE_MAX || len > TASK_SIZE_MAX - arg->address)
		return -EINVAL;
	why->reason = PTWATCH_WHY_ALIGN;
	if (arg->access != PTWATCH_ACCESS_X && arg->address % min(len, 8U))
		return -EINVAL;
	why->reason = PTWATCH_WHY_NONE;
	return 0;
}

void ptw_user_watch_seed(struct ptw_watch_request *request)
{
	const struct ptwatch_watch *arg = &request->arg;
	struct pid *pid = find_get_pid(arg->tgid);
	struct task_struct *task = get_pid_task(pid, PIDTYPE_TGID);

	put_pid(pid);
	if (!task)
		return;
	/* What is not in memory yet reads as zeros, as it will be. */
	if (arg->access != PTWATCH_ACCESS_X && arg->len <= sizeof(request->seed))
		access_process_vm(task, arg->address, request->seed, arg->len, 0);
	put_task_struct(task);
}

int ptw_user_watch_arm(struct ptw_watch *watch, struct ptwatch_refusal *why)
{
	struct task_struct *leader, *task;
	struct pid *pid;
	int error;

	lockdep_assert_held(&ptw_config_lock);
	error = check_address(&watch->arg, why);
	if (error)
		return error;
	pid = find_get_pid(watch->arg.tgid);
	leader = get_pid_task(pid, PIDTYPE_TGID);
	put_pid(pid);
	if (!leader || !leader->mm) {
		error = -ESRCH;
		goto out;
	}
	watch->address = watch->arg.address;
	while (!IS_ERR_OR_NULL(task = next_unarmed(watch, leader))) {
		error = arm_thread(watch, task);
		/* One that ended since is armed no more. */
		if (error == -ESRCH && (task->flags & PF_EXITING))
			error = 0;
		put_task_struct(task);
		if (error)
			break;
	}
	if (IS_ERR(task))
		error = PTR_ERR(task);
	if (!error && list_empty(&watch->threads))
		error = -ESRCH;
	if (error)
		ptw_user_watch_disarm(watch);
	else
		watch->state = PTWATCH_WATCH_ARMED;
out:
	if (leader)
		put_task_struct(leader);
	return error ? explain(watch, why, error) : 0;
}

void ptw_user_watch_disarm(struct ptw_watch *watch)
{
	struct user_thread *thread, *next;

	list_for_each_entry_safe(thread, next, &watch->threads, link) {
		list_del(&thread->link);
		free_thread(watch, thread);
	}
}

u32 ptw_user_watch_armed(struct ptw_watch *watch)
{
	struct user_thread *thread;
	u32 armed = 0;

	if (!(watch->arg.flags & PTWATCH_WATCH_USER))
		return 0;
	list_for_each_entry(thread, &watch->threads, link) {
		struct perf_event *event = thread->point[0].event, *child;

		armed += READ_ONCE(event->state) >= PERF_EVENT_STATE_INACTIVE;
		mutex_lock(&event->child_mutex);
		list_for_each_entry(child, &event->child_list, child_list)
			armed += READ_ONCE(child->state) >= PERF_EVENT_STATE_INACTIVE;
		mutex_unlock(&event->child_mutex);
	}
	/* perf let go of the last one: the process ended, or executed a program. */
	if (!armed && watch->state == PTWATCH_WATCH_ARMED)
		watch->state = PTWATCH_WATCH_GONE;
	return armed;
}
