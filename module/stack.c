// SPDX-License-Identifier: GPL-2.0
/*
 * Where a hit came from: the kernel stack from the interrupted code outwards, without the #DB
 * handler's own frames, and the user stack of a system call.
 *
 * Unwinding by ORC costs some hundred instructions a frame, all of them in the #DB handler, where
 * nothing else runs on that CPU. So the handler copies the part of the task's stack that is in use
 * (one REP MOVS), and the worker unwinds the copy.
 */
#include <linux/kprobes.h>
#include <linux/sched.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/unwind.h>

#include "ptwatch.h"

static u32 unwind_now(unsigned long *to, u32 max, struct pt_regs *regs)
{
	struct unwind_state state;
	u32 n = 0;

	/* The unwinder begins with the caller of what regs describe. */
	to[n++] = regs->ip;
	for (unwind_start(&state, current, regs, NULL); !unwind_done(&state) && n < max;
	     unwind_next_frame(&state)) {
		unsigned long addr = unwind_get_return_address(&state);

		if (!addr)
			break;
		to[n++] = addr;
	}
	return n;
}

void ptw_stack_take(struct ptw_stack *stack, struct pt_regs *regs)
{
	unsigned long top = (unsigned long)task_stack_page(current) + THREAD_SIZE;
	unsigned long size = top - regs->sp;

	/* An access from user mode (never one of a syscall's copies) has no kernel stack. */
	if (user_mode(regs)) {
		stack->addr[0] = regs->ip;
		stack->nr = 1;
		return;
	}
	/*
	 * Another stack (of interrupts, say), or more than a record holds; without ORC the copy
	 * cannot be unwound.
	 */
	if (!IS_ENABLED(CONFIG_UNWINDER_ORC) || size > sizeof(stack->copy) || size % 8) {
		stack->nr = unwind_now(stack->addr, ARRAY_SIZE(stack->addr), regs);
		return;
	}
	stack->nr = 0;
	stack->base = regs->sp;
	stack->size = size;
	ptw_copy_words(stack->copy, (void *)regs->sp, size / 8);
}
NOKPROBE_SYMBOL(ptw_stack_take);

bool ptw_stack_contains(struct pt_regs *regs, u64 start, u64 end)
{
	struct unwind_state state;

	if (regs->ip >= start && regs->ip < end)
		return true;
	if (user_mode(regs))
		return false;
	for (unwind_start(&state, current, regs, NULL); !unwind_done(&state);
	     unwind_next_frame(&state)) {
		unsigned long addr = unwind_get_return_address(&state);

		if (!addr)
			break;
		if (addr >= start && addr < end)
			return true;
	}
	return false;
}
NOKPROBE_SYMBOL(ptw_stack_contains);

#ifdef CONFIG_UNWINDER_ORC
/* What pointed into the stack points into the copy. */
static unsigned long moved(const struct ptw_stack *stack, unsigned long address)
{
	unsigned long offset = address - stack->base;

	return offset <= stack->size ? (unsigned long)stack->copy + offset : address;
}

void ptw_stack_unwind(struct ptw_stack *stack, struct pt_regs *regs)
{
	struct pt_regs at = *regs;
	struct unwind_state state = {
		.stack_info = {
			.type = STACK_TYPE_TASK,
			.begin = (unsigned long *)stack->copy,
			.end = (unsigned long *)(stack->copy + stack->size),
		},
		.stack_mask = BIT(STACK_TYPE_TASK),
		/*
		 * Someone else than us: had the hit been in this very worker, what leads out of the
		 * copy would lead to its stack, which the unwinder believes to be on already.
		 */
		.task = &init_task,
		.signal = true,		/* ip is where it is, not behind a call */
		.full_regs = true,
		.regs = &at,
		.ip = regs->ip,
		.sp = moved(stack, regs->sp),
		.bp = moved(stack, regs->bp),
	};

	if (stack->nr)
		return;
	/* Registers that ORC may find a frame by; see asm/orc_types.h. */
	at.r10 = moved(stack, at.r10);
	at.r13 = moved(stack, at.r13);
	at.di = moved(stack, at.di);
	at.dx = moved(stack, at.dx);
	stack->addr[stack->nr++] = regs->ip;
	while (stack->nr < ARRAY_SIZE(stack->addr) && unwind_next_frame(&state)) {
		unsigned long addr = unwind_get_return_address(&state);

		if (!addr)
			break;
		stack->addr[stack->nr++] = addr;
		/*
		 * Of what a frame saved, the stack pointers are the original's. Should one lead
		 * elsewhere, the unwinder finds that it is on no stack of this task and ends.
		 */
		state.sp = moved(stack, state.sp);
		state.bp = moved(stack, state.bp);
	}
}
#else
void ptw_stack_unwind(struct ptw_stack *stack, struct pt_regs *regs)
{
}
#endif

/* ---- user code ---- */

u32 ptw_user_stack(unsigned long *to, u32 max, struct pt_regs *regs)
{
	struct {
		unsigned long next;
		unsigned long ret;
	} frame;
	unsigned long fp;
	u32 n = 0;

	if (!user_mode(regs)) {
		/*
		 * Interrupt code, which has a stack of its own, is not the thread's doing (and not
		 * in_hardirq(): so is each #DB, see __nmi_enter()). Kernel threads have no user.
		 */
		if ((current->flags & PF_KTHREAD) || !current->mm ||
		    regs->sp - (unsigned long)task_stack_page(current) >= THREAD_SIZE ||
		    in_serving_softirq())
			return 0;
		regs = task_pt_regs(current);
		if (!user_mode(regs))
			return 0;
	}
	to[n++] = regs->ip;
	if (!user_64bit_mode(regs))
		return n;
	for (fp = regs->bp; n < max; fp = frame.next) {
		if (!fp || fp % sizeof(long) ||
		    copy_from_user_nofault(&frame, (void __user *)fp, sizeof(frame)) || !frame.ret)
			break;
		to[n++] = frame.ret;
		/* Callers lie higher: anything else is a register used for something else. */
		if (frame.next <= fp)
			break;
	}
	return n;
}
NOKPROBE_SYMBOL(ptw_user_stack);
