/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the workload executes, as a 64-bit and as a 32-bit program: without a C library, static and at an
 * address of its own, so that images of it and of its parent can be used side by side.
 */
typedef void (*handler)(int);

static volatile unsigned int sink;

#ifdef __x86_64__
static long call(long n, long a, long b, long c, long d)
{
	register long r10 asm("r10") = d;
	long ret;

	asm volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
		     : "rcx", "r11", "memory");
	return ret;
}

enum { NR_EXIT = 60, NR_GETPID = 39, NR_GETPPID = 110, NR_KILL = 62, NR_SIGACTION = 13, NR_YIELD = 24 };
#else
static long call(long n, long a, long b, long c, long d)
{
	long ret;

	asm volatile("int $0x80" : "=a"(ret) : "a"(n), "b"(a), "c"(b), "d"(c), "S"(d) : "memory");
	return ret;
}

enum { NR_EXIT = 1, NR_GETPID = 20, NR_GETPPID = 64, NR_KILL = 37, NR_SIGACTION = 174, NR_YIELD = 158 };
#endif

void come_back(void);
void _start(void);

#ifdef __x86_64__
asm(".text\n	.globl come_back\ncome_back: movl $15, %eax\n	syscall\n");
#else
/* Of signal frames without SA_SIGINFO; rt_sigaction makes such, too. */
asm(".text\n	.globl come_back\ncome_back: popl %eax\n	movl $119, %eax\n	int $0x80\n");
#endif

static void on_signal(int sig)
{
	sink += sig;
}

static void signals(void)
{
	struct {
		handler handler;
		unsigned long flags;
		void (*restorer)(void);
		unsigned long long mask;
	} sa = { on_signal, 0x04000000, come_back, 0 };

	call(NR_SIGACTION, 10, (long)&sa, 0, 8);
	call(NR_SIGACTION, 11, (long)&sa, 0, 8);
	for (int i = 0; i < 3; i++)
		call(NR_KILL, call(NR_GETPID, 0, 0, 0, 0), 10, 0, 0);
}

static __attribute__((noinline)) unsigned int descend(unsigned int n)
{
	return n ? descend(n - 1) + n : sink;
}

static unsigned int twice(unsigned int x) { return x * 2; }
static unsigned int flip(unsigned int x) { return ~x; }
static unsigned int (*volatile const table[])(unsigned int) = { twice, flip };

void _start(void)
{
	for (unsigned int i = 0; i < 50; i++) {
		sink = table[i & 1](sink);
		if (sink & 4)
			sink += i;
	}
	sink += descend(80);
#ifndef __x86_64__
	/* Instructions that only 32-bit code has; but an INTO that does not trap: libipt and perf think all do. */
	asm volatile("pushal\n	incl %%eax\n	decl %%eax\n	popal\n"
		     "	pushl %%cs\n	pushl $1f\n	lretl\n	ud2\n1:\n" ::: "memory", "cc");
#endif
	for (int i = 0; i < 10; i++)
		call(NR_GETPPID, 0, 0, 0, 0);
	signals();
#ifndef __x86_64__
	/* #OF is SIGSEGV. */
	asm volatile("movl $0x7fffffff, %%eax\n	incl %%eax\n	into\n" ::: "eax", "memory", "cc");
#endif
	call(NR_YIELD, 0, 0, 0, 0);
	call(NR_EXIT, 0, 0, 0, 0);
	for (;;)
		;
}
