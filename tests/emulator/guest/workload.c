/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "workload.h"

#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define PAGE 4096

static volatile unsigned int sink;

/* --- calls ----------------------------------------------------------------------------------- */

static NOINLINE unsigned int arithmetic(unsigned int n)
{
	unsigned int x = 1;

	for (unsigned int i = 0; i < n; i++) {
		x = x * 1103515245 + 12345;
		if (x & 0x10000)
			x ^= i;
		else if (x & 0x200)
			x += 7;
		if (!(i & 0xff))
			sink += x;
	}
	return x;
}

/* Deeper than any return stack. */
static NOINLINE unsigned int recurse(unsigned int depth)
{
	if (!depth)
		return sink;
	return recurse(depth - 1) + depth;
}

static NOINLINE unsigned int add(unsigned int x) { return x + 1; }
static NOINLINE unsigned int twist(unsigned int x) { return x ^ 0x55; }
static NOINLINE unsigned int scale(unsigned int x) { return x * 3; }

static unsigned int (*volatile const table[])(unsigned int) = { add, twist, scale };

static NOINLINE unsigned int choose(unsigned int x)
{
	switch (x % 9) {
	case 0: return x + 11;
	case 1: return x * 5;
	case 2: return x ^ 0x1234;
	case 3: return x - 3;
	case 4: return table[0](x);
	case 5: return table[1](x) + 2;
	case 6: return ~x;
	case 7: return x >> 1;
	}
	return x;
}

static NOINLINE void indirect(void)
{
	unsigned int x = 3;

	for (unsigned int i = 0; i < 300; i++)
		x = choose(table[i % 3](x));
	sink += x;
}

static sigjmp_buf back;

static NOINLINE void jump_out(unsigned int depth)
{
	if (!depth)
		siglongjmp(back, 1);
	jump_out(depth - 1);
	sink++;
}

static NOINLINE void long_jumps(void)
{
	for (volatile int i = 0; i < 5; i++)
		if (!sigsetjmp(back, 0))
			jump_out(20);
}

/* A call that never returns there, a return that was never called, a call to the next line. */
static NOINLINE void odd_returns(void)
{
	asm volatile("	call 1f\n"
		     "	ud2\n"
		     "1:	addq $8, %%rsp\n"
		     "	leaq 2f(%%rip), %%rax\n"
		     "	pushq %%rax\n"
		     "	ret\n"
		     "	ud2\n"
		     "2:	call 3f\n"
		     "3:	popq %%rax\n"
		     "	movl $5, %%ecx\n"
		     "4:	loop 4b\n"
		     "	jrcxz 5f\n"
		     "	ud2\n"
		     "5:\n"
		     ::: "rax", "rcx", "memory", "cc");
}

/* --- memory ---------------------------------------------------------------------------------- */

static NOINLINE void strings(void)
{
	char *p = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *di = p;
	unsigned long cx = 8 * PAGE;

	/* Faults at every page, in the middle of the instruction. */
	asm volatile("rep stosb" : "+D"(di), "+c"(cx) : "a"(0x5a) : "memory");
	di = p + PAGE;
	cx = PAGE / 8;
	void *si = p;
	asm volatile("rep movsq" : "+D"(di), "+S"(si), "+c"(cx) :: "memory");
	di = p;
	cx = 8 * PAGE;
	asm volatile("repne scasb" : "+D"(di), "+c"(cx) : "a"(0) : "memory", "cc");
	cx = 0;
	asm volatile("rep stosb" : "+D"(di), "+c"(cx) : "a"(0) : "memory");
	munmap(p, 8 * PAGE);
}

/*
 * Code with its data in the same page: QEMU leaves the block at each store, and does the store
 * again. At a fixed address, so that all processes and the decoder agree.
 */
#define MIXED_PAGE ((unsigned char *)0x10000000)

static const unsigned char mixed_code[] = {
	0xb9, 0x14, 0x00, 0x00, 0x00,			/* mov  $20, %ecx */
	0xff, 0x05, 0xf5, 0x01, 0x00, 0x00,		/* incl 0x1f5(%rip)  (at 0x200) */
	0x89, 0x0d, 0xf3, 0x01, 0x00, 0x00,		/* mov  %ecx, 0x1f3(%rip) */
	0xff, 0xc9,					/* dec  %ecx */
	0x75, 0xf0,					/* jne  5 */
	0xc3,						/* ret */
};

static NOINLINE void mixed_page(void)
{
	((void (*)(void))MIXED_PAGE)();
}

/* --- code that comes and goes ---------------------------------------------------------------- */

/*
 * Compiled code: a region of functions, each written anew right before it is called. What is written to a
 * place is always the same, so one image serves. See jit_write for what it was in between.
 */
#define JIT ((unsigned char *)0x11000000)
#define JIT_FUNCTIONS 256
#define JIT_STRIDE 64

static void jit_write(unsigned int n)
{
	unsigned char *p = JIT + n * JIT_STRIDE;
	/* mov $n, %eax; mov $(n % 5 + 1), %ecx; 1: inc %eax; dec %ecx; jnz 1b; ret */
	unsigned char plain[] = { 0xb8, n, 0, 0, 0, 0xb9, n % 5 + 1, 0, 0, 0, 0xff, 0xc0, 0xff, 0xc9,
				  0x75, 0xfa, 0xc3 };
	/* mov $n, %ecx; test $8, %cl; jz 1f; call 2f; 1: lea 1(%rcx), %eax; ret; 2: ret */
	unsigned char calling[] = { 0xb9, n, 0, 0, 0, 0xf6, 0xc1, 0x08, 0x74, 0x05, 0xe8, 4, 0, 0, 0,
				    0x8d, 0x41, 0x01, 0xc3, 0xc3 };

	memset(p, 0xcc, JIT_STRIDE);
	if (n & 1)
		memcpy(p, calling, sizeof(calling));
	else
		memcpy(p, plain, sizeof(plain));
}

static NOINLINE void compiled(unsigned int round)
{
	for (unsigned int i = 0; i < 40; i++) {
		unsigned int n = (round * 40 + i) % JIT_FUNCTIONS;

		jit_write(n);
		sink += ((unsigned int (*)(void))(JIT + n * JIT_STRIDE))();
	}
}

/*
 * A function whose instructions change. Who decodes must know which version is there: it changes when
 * smc_commit is executed, to the next in a circle, and is the first when a trace begins.
 */
const unsigned char smc_versions[SMC_VERSIONS][SMC_SIZE] = {
	{ 0xb8, 1, 0, 0, 0, 0xc3 },				/* mov $1, %eax; ret */
	{ 0xeb, 2, 0xcc, 0xcc, 0x90, 0xb0, 2, 0xc3 },		/* jmp 1f; 1: nop; mov $2, %al; ret */
	{ 0x31, 0xc0, 0x74, 1, 0xcc, 0xff, 0xc0, 0xc3 },	/* xor %eax, %eax; jz 1f; 1: inc %eax; ret */
};

asm(".text\n	.globl smc_commit\n"
    "smc_commit: nop\n	nop\n	nop\n	ret\n");

/* Rewrites the operand of the instruction after the one that does it, each time round. */
static const unsigned char rewriting[] = {
	0xb9, 0x32, 0x00, 0x00, 0x00,			/* mov  $50, %ecx */
	0xff, 0x05, 0x01, 0x00, 0x00, 0x00,		/* incl 1(%rip) */
	0xb8, 0x00, 0x00, 0x00, 0x00,			/* mov  $0, %eax */
	0xff, 0xc9,					/* dec  %ecx */
	0x75, 0xf1,					/* jne  5 */
	0xc3,						/* ret */
};

static NOINLINE void changing(void)
{
	static unsigned int version;

	for (int i = 0; i < 4; i++) {
		sink += ((unsigned int (*)(void))SMC)();
		version = (version + 1) % SMC_VERSIONS;
		memcpy(SMC, smc_versions[version], SMC_SIZE);
		smc_commit();
		sink += ((unsigned int (*)(void))SMC)();
	}
	((void (*)(void))(SMC + SMC_SIZE))();
}

/* --- 32-bit code ----------------------------------------------------------------------------- */

/*
 * Through a far return into compatibility mode and back by a far jump. The stack must be below
 * 4 GiB; so is this program, which isn't position-independent. A syscall through INT 80h on the way.
 */
static unsigned char low_stack[4096] __attribute__((aligned(16)));

asm(".text\n"
    "far_32:\n"
    "	.code32\n"
    "	movl $6, %ecx\n"
    "1:	incl %eax\n"
    "	decl %ecx\n"
    "	jnz 1b\n"
    "	pushl %eax\n"
    "	call 2f\n"
    "	popl %eax\n"
    "	movl $64, %eax\n"		/* getppid */
    "	int $0x80\n"
    "	ljmp $0x33, $far_64\n"
    "2:	pushl %ebx\n"
    "	popl %ebx\n"
    "	ret\n"
    "	.code64\n");

static NOINLINE void compat(void)
{
	asm volatile("	movq %%rsp, %%r15\n"
		     "	leaq %0, %%rsp\n"
		     "	pushq $0x23\n"
		     "	leaq far_32(%%rip), %%rax\n"
		     "	pushq %%rax\n"
		     "	lretq\n"
		     "	.globl far_64\n"
		     "far_64:	movq %%r15, %%rsp\n"
		     :: "m"(low_stack[sizeof(low_stack) - 64])
		     : "rax", "rcx", "r8", "r9", "r10", "r11", "r15", "memory", "cc");
}

/* --- signals and faults ---------------------------------------------------------------------- */

static volatile sig_atomic_t ticks;

static void on_tick(int sig)
{
	(void)sig;
	ticks++;
}

/* Step over the two bytes of what faulted. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)info;
	if (sig != SIGTRAP)
		uc->uc_mcontext.gregs[REG_RIP] += 2;
	sink++;
}

static void handle(int sig)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	sigaction(sig, &sa, NULL);
}

static NOINLINE void faults(void)
{
	unsigned long ax = 0;

	handle(SIGSEGV);
	handle(SIGFPE);
	handle(SIGILL);
	handle(SIGTRAP);
	asm volatile("movb (%%rax), %%cl" : "+a"(ax) :: "rcx", "memory");
	asm volatile("xorl %%edx, %%edx\n	xorl %%ecx, %%ecx\n	divl %%ecx"
		     : "+a"(ax) :: "rcx", "rdx", "cc");
	asm volatile("ud2");
	asm volatile("int3");
	/* A gate that users may not call: #GP at the instruction itself. */
	asm volatile("int $0x20");
	/* A jump through memory that isn't there. */
	ax = 0;
	asm volatile("jmp *(%%rax)" : "+a"(ax));
	kill(getpid(), SIGTRAP);
}

/* An x87 exception is reported by the next instruction that waits for the FPU. */
static NOINLINE void fpu_faults(void)
{
	static const unsigned short unmasked = 0x37b;

	asm volatile("fninit\n	fldcw %0\n	fldz\n	fld1\n	fdivp\n	fwait\n	nop\n	fninit" :: "m"(unmasked));
}

/* Traps from debug registers, from TF, from INT1; and the fault of an instruction breakpoint. */
static int breakpoint(const void *addr, unsigned int type)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr), .type = PERF_TYPE_BREAKPOINT, .bp_type = type, .sample_period = 1,
		.bp_addr = (uintptr_t)addr, .bp_len = sizeof(long), .exclude_hv = 1,
	};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static unsigned long watched[2];

static NOINLINE void debug_traps(void)
{
	int fds[] = { breakpoint(&watched[0], HW_BREAKPOINT_W), breakpoint((const void *)add, HW_BREAKPOINT_X) };
	void *di = watched;
	unsigned long cx = 2;

	handle(SIGTRAP);
	for (int i = 0; i < 5; i++) {
		*(volatile unsigned long *)&watched[0] = i;
		sink += add(i);
	}
	asm volatile("rep stosq" : "+D"(di), "+c"(cx) : "a"(7UL) : "memory");
	asm volatile("movq %%rsp, %%rbx\n	leaq %0, %%rsp\n	call 1f\n1:	movq %%rbx, %%rsp"
		     :: "m"(watched[1]) : "rbx", "memory");
	asm volatile(".byte 0xf1");
	asm volatile("pushfq\n	orl $0x100, (%%rsp)\n	popfq\n	nop\n	movl $3, %%ecx\n1:	loop 1b\n"
		     "	pushfq\n	andl $~0x100, (%%rsp)\n	popfq" ::: "rcx", "memory", "cc");
	for (int i = 0; i < 2; i++)
		close(fds[i]);
}

/* NMIs of a counter that overflows every so many instructions. */
static NOINLINE void interrupted_by_nmis(void)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr), .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_INSTRUCTIONS,
		.sample_period = 7001, .exclude_hv = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

	sink += arithmetic(15000);
	for (int i = 0; i < 20; i++)
		syscall(SYS_getppid);
	close(fd);
}

static NOINLINE void single_steps(void)
{
	int status, n = 0;
	pid_t pid = fork();

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (volatile int i = 0; i < 10; i++)
			sink += add(i);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	while (!WIFEXITED(status) && n++ < 150) {
		ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
		waitpid(pid, &status, 0);
	}
	if (!WIFEXITED(status)) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
}

/* --- the kernel ------------------------------------------------------------------------------ */

static NOINLINE void system_calls(void)
{
	char buf[512];
	struct timespec ts;
	int fd = open("/proc/self/stat", O_RDONLY);

	for (int i = 0; i < 40; i++) {
		syscall(SYS_getppid);
		clock_gettime(CLOCK_MONOTONIC, &ts);
		if (pread(fd, buf, sizeof(buf), 0) < 0)
			sink++;
	}
	close(fd);
	ts.tv_sec = 0;
	ts.tv_nsec = 100000;
	nanosleep(&ts, NULL);
	/* One that doesn't exist, and one with a bad pointer: a fault inside the kernel. */
	syscall(100000);
	syscall(SYS_uname, 8);
}

static NOINLINE void page_faults(void)
{
	unsigned char *p = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 32; i++)
		p[i * PAGE] = i;
	mprotect(p, 16 * PAGE, PROT_READ);
	madvise(p, 32 * PAGE, MADV_DONTNEED);
	for (int i = 0; i < 32; i++)
		sink += p[i * PAGE];
	munmap(p, 32 * PAGE);
}

static NOINLINE void processes(void)
{
	int there[2], here[2];
	char c = 0;
	pid_t pid;

	if (pipe(there) || pipe(here))
		abort();
	pid = fork();
	if (!pid) {
		for (int i = 0; i < 20; i++)
			if (read(there[0], &c, 1) != 1 || write(here[1], &c, 1) != 1)
				_exit(1);
		sink++;		/* copy on write */
		_exit(0);
	}
	for (int i = 0; i < 20; i++)
		if (write(there[1], &c, 1) != 1 || read(here[0], &c, 1) != 1)
			abort();
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(here[i]);
	}
}

static const char *programs[WORKLOAD_PROGRAMS];

/* Processes by the dozen: each executes another program, 64-bit or 32-bit. */
static NOINLINE void executions(void)
{
	for (volatile int i = 0; i < 6; i++) {
		const char *program = programs[i % WORKLOAD_PROGRAMS];
		pid_t pid;

		if (!program)
			continue;
		pid = i & 4 ? vfork() : fork();
		if (!pid) {
			execl(program, program, (char *)NULL);
			_exit(1);
		}
		waitpid(pid, NULL, 0);
	}
}

/* --------------------------------------------------------------------------------------------- */

static void map_code(unsigned char *at, size_t size)
{
	if (mmap(at, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) != at)
		abort();
}

void workload_setup(const char *const *execute)
{
	for (int i = 0; i < WORKLOAD_PROGRAMS; i++)
		programs[i] = execute[i];
	map_code(MIXED_PAGE, PAGE);
	memcpy(MIXED_PAGE, mixed_code, sizeof(mixed_code));
	map_code(JIT, JIT_FUNCTIONS * JIT_STRIDE);
	for (int i = 0; i < JIT_FUNCTIONS; i++)
		jit_write(i);
	map_code(SMC, PAGE);
	memcpy(SMC, smc_versions[0], SMC_SIZE);
	memcpy(SMC + SMC_SIZE, rewriting, sizeof(rewriting));
	/*
	 * The kernel patches itself when the first event of a task opens and when the last one closes:
	 * one is there all the time.
	 */
	if (breakpoint(&watched[1], HW_BREAKPOINT_W) < 0)
		abort();
}

void workload_run(unsigned int rounds, bool all)
{
	struct itimerval tick = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };

	signal(SIGALRM, on_tick);
	for (unsigned int i = 0; i < rounds; i++) {
		sink += arithmetic(3000);
		sink += recurse(150);
		indirect();
		long_jumps();
		odd_returns();
		strings();
		faults();
		fpu_faults();
		debug_traps();
		if (all) {
			compat();
			mixed_page();
			compiled(i);
			changing();
		}
		interrupted_by_nmis();
		setitimer(ITIMER_REAL, &tick, NULL);
		sink += arithmetic(20000);
		setitimer(ITIMER_REAL, &none, NULL);
		if (!(i & 7))
			single_steps();
		system_calls();
		page_faults();
		processes();
		executions();
	}
}
