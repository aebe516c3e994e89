// SPDX-License-Identifier: BSD-2-Clause
/*
 * Calls and leaves functions in every way there is, so often: by return, by a tail call, through pointers (which retpolines
 * turn into returns, where they are built in), by longjmp out of three functions, by an
 * exception (the unwinder's, which C knows as forced unwinding with cleanups), by longjmp out of a signal's handler,
 * and through a handler that returns. No story: it is to be seen that none of this breaks a call stack.
 *
 *	unwinder TIMES
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define NOINLINE	__attribute__((noinline, noclone))

static jmp_buf again;
static sigjmp_buf after_signal;
static volatile unsigned long sink;
static volatile int jump_out;

NOINLINE void leaf(void)
{
	sink++;
}

/* leaf returns for it, to whoever called it. */
__attribute__((optimize("optimize-sibling-calls")))
NOINLINE void ends_in_call(void)
{
	sink += 2;
	leaf();
}

static void (*volatile to_leaf)(void) = leaf;

NOINLINE void calls_pointer(void)
{
	to_leaf();
	sink++;
}

__attribute__((optimize("optimize-sibling-calls")))
NOINLINE void ends_in_pointer(void)
{
	sink += 2;
	to_leaf();
}

NOINLINE void jumps(void)
{
	leaf();
	longjmp(again, 1);
}

NOINLINE void calls_jumps(void)
{
	jumps();
	sink++;
}

NOINLINE void long_jump(void)
{
	if (!setjmp(again)) {
		calls_jumps();
		sink++;
	}
	leaf();
}

static struct _Unwind_Exception exception;

static void cleaned(int *what)
{
	sink += *what;
}

NOINLINE void throws(void);

/* Its landing pad runs while the stack is unwound. */
NOINLINE void cleans_up(void)
{
	int what __attribute__((cleanup(cleaned))) = 3;

	throws();
	sink += what;
}

/* Where the unwinding ends: like a handler of the exception, by longjmp. */
static _Unwind_Reason_Code stop(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
				struct _Unwind_Exception *object, struct _Unwind_Context *context, void *until)
{
	if (_Unwind_GetCFA(context) > (_Unwind_Word)until)
		longjmp(again, 2);
	return _URC_NO_REASON;
}

static void *volatile until;

NOINLINE void throws(void)
{
	memset(&exception, 0, sizeof(exception));
	_Unwind_ForcedUnwind(&exception, stop, until);
	abort();
}

NOINLINE void catches(void)
{
	until = __builtin_frame_address(0);
	if (!setjmp(again))
		cleans_up();
	leaf();
}

NOINLINE void handler(int signal)
{
	leaf();
	if (jump_out)
		siglongjmp(after_signal, 1);
}

NOINLINE void gets_signal(int out)
{
	jump_out = out;
	if (!sigsetjmp(after_signal, 1))
		kill(getpid(), SIGUSR1);
	leaf();
}

NOINLINE void all_ways(void)
{
	ends_in_call();
	calls_pointer();
	ends_in_pointer();
	long_jump();
	catches();
	gets_signal(0);
	gets_signal(1);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = handler };
	unsigned long i, times = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;

	sigaction(SIGUSR1, &action, NULL);
	for (i = 0; i < times; i++)
		all_ways();
	return 0;
}
