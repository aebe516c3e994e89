/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * counts: sequences of instructions whose number is known, against the emulator's counters (count.c): what
 * QEMU executes twice must count once, and what faults not at all. Prints TAP.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "msr.h"

#define LEAF		0x4fff0000
#define SIGNATURE	0x54506d45
#define BEGIN		"movl $0x4fff0000, %%eax\n	movl $1, %%ecx\n	cpuid\n"
#define END		"movl $0x4fff0000, %%eax\n	movl $2, %%ecx\n	cpuid\n"
/* The two MOVs before the second mark. */
#define OVERHEAD	2
#define CLOBBERS	"rax", "rbx", "rcx", "rdx", "memory", "cc"
#define USER_BETWEEN	0x111
#define KERNEL_BETWEEN	0x110

static unsigned int checks;

static void result(bool good, const char *name)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++checks, name);
}

static void is(uint64_t got, uint64_t expected, const char *name)
{
	result(got == expected, name);
	if (got != expected)
		printf("# got %" PRIu64 ", expected %" PRIu64 "\n", got, expected);
}

static uint64_t count(uint32_t what)
{
	uint32_t a, b, c, d;

	__cpuid_count(LEAF, what, a, b, c, d);
	return b == SIGNATURE ? (uint64_t)d << 32 | a : UINT64_MAX;
}

/* What was executed in user mode between the marks, these two MOVs apart. */
static void user_is(uint64_t expected, const char *name)
{
	is(count(USER_BETWEEN) - OVERHEAD, expected, name);
}

/* --- nothing special ------------------------------------------------------------------------- */

static void test_plain(void)
{
	uint64_t kernel, n;

	/* Nobody has looked at a counter before, so nothing was counted. */
	asm volatile(BEGIN "nop\n jmp 1f\n 1: movl $100000, %%ecx\n 2: loop 2b\n" END ::: CLOBBERS);
	user_is(100003, "the first mark counts from there on");
	asm volatile(BEGIN END ::: CLOBBERS);
	user_is(0, "nothing");
	asm volatile(BEGIN "nop\n nop\n nop\n" END ::: CLOBBERS);
	user_is(3, "three NOPs");
	asm volatile(BEGIN "movl $100000, %%ecx\n 1: incq %%rax\n decl %%ecx\n jnz 1b\n" END ::: CLOBBERS);
	user_is(300001, "a loop, whatever interrupts it");
	asm volatile(BEGIN "movl $1000, %%ecx\n 1: loop 1b\n" END ::: CLOBBERS);
	user_is(1001, "jumps to themselves");
	asm volatile(BEGIN "movl $100, %%ebx\n"
		     "1: movl %0, %%eax\n syscall\n decl %%ebx\n jnz 1b\n" END
		     :: "i"(SYS_getppid) : "r11", CLOBBERS);
	user_is(401, "system calls");
	kernel = count(KERNEL_BETWEEN);
	result(kernel > 100 * 20 && kernel < 100 * 20000, "and the kernel's part of them");
	is(count(0x1000), 0, "a counter that isn't there is 0");

	/* Two reads, without marks. */
	asm volatile("movl $0x4fff0000, %%eax\n movl $0x11, %%ecx\n cpuid\n"
		     "movl %%eax, %%esi\n movl $0x4fff0000, %%eax\n movl $0x11, %%ecx\n cpuid\n"
		     "subl %%esi, %%eax\n movl %%eax, %%eax\n" : "=a"(n) :: "rbx", "rcx", "rdx", "rsi", "cc");
	is(n, 4, "two reads: up to and with the second");
}

/* --- what QEMU does twice -------------------------------------------------------------------- */

static uint8_t *map(int prot, size_t pages)
{
	void *p = mmap(NULL, pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

static void test_rep(void)
{
	uint8_t *p = map(PROT_READ | PROT_WRITE, 256);

	asm volatile(BEGIN "movq %0, %%rdi\n movl $1048576, %%ecx\n rep stosb\n" END
		     :: "r"(p) : "rdi", CLOBBERS);
	user_is(3, "REP STOSB over pages that aren't there yet");
	asm volatile(BEGIN "movq %0, %%rdi\n movl $1048576, %%ecx\n rep stosb\n" END
		     :: "r"(p) : "rdi", CLOBBERS);
	user_is(3, "REP STOSB over a MiB");
	asm volatile(BEGIN "movq %0, %%rsi\n leaq 524288(%%rsi), %%rdi\n movl $65536, %%ecx\n rep movsq\n" END
		     :: "r"(p) : "rsi", "rdi", CLOBBERS);
	user_is(4, "REP MOVSQ");
	asm volatile(BEGIN "movq %0, %%rdi\n movl $1048576, %%ecx\n movb $9, %%al\n repne scasb\n" END
		     :: "r"(p) : "rdi", CLOBBERS);
	user_is(4, "REPNE SCASB");
	asm volatile(BEGIN "xorl %%ecx, %%ecx\n rep stosb\n" END :: "D"(p) : CLOBBERS);
	user_is(2, "REP STOSB of nothing");
	munmap(p, 256 * PAGE);
}

static int breakpoint(const void *addr, unsigned int type, unsigned int len)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr), .type = PERF_TYPE_BREAKPOINT, .bp_type = type,
		.bp_addr = (uintptr_t)addr, .bp_len = len, .exclude_kernel = 1, .exclude_hv = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

	if (fd < 0) {
		perror("perf_event_open: breakpoint");
		exit(1);
	}
	return fd;
}

static uint64_t hits(int fd)
{
	uint64_t n = 0;

	if (read(fd, &n, 8) != 8)
		perror("read");
	close(fd);
	return n;
}

static uint64_t watched[8] __attribute__((aligned(64)));

void counts_target(void);
asm(".text\n	.p2align 4\n"
    "counts_target: incq %rax\n	ret\n");

static void test_watch(void)
{
	int fd = breakpoint(&watched[0], HW_BREAKPOINT_W, HW_BREAKPOINT_LEN_8);

	asm volatile(BEGIN "movl $1000, %%ecx\n 1: movq %%rcx, %0\n decl %%ecx\n jnz 1b\n" END
		     : "=m"(watched[0]) :: CLOBBERS);
	user_is(3001, "stores that hit a watchpoint");
	is(hits(fd), 1000, "each did");

	fd = breakpoint(&watched[0], HW_BREAKPOINT_RW, HW_BREAKPOINT_LEN_8);
	asm volatile(BEGIN "movl $1000, %%ecx\n 1: incq %0\n movq %0, %%rbx\n decl %%ecx\n jnz 1b\n" END
		     : "+m"(watched[0]) :: CLOBBERS);
	user_is(4001, "loads that do");
	result(hits(fd) >= 2000, "each did");

	fd = breakpoint(&watched[1], HW_BREAKPOINT_W, HW_BREAKPOINT_LEN_8);
	asm volatile(BEGIN "movq %%rsp, %%rbx\n leaq %0, %%rsp\n movl $500, %%ecx\n"
		     "1: call counts_target\n decl %%ecx\n jnz 1b\n movq %%rbx, %%rsp\n" END
		     :: "m"(watched[2]) : CLOBBERS);
	user_is(4 + 500 * 5, "calls that push into one");
	is(hits(fd), 500, "each did");

	fd = breakpoint(&watched[3], HW_BREAKPOINT_W, HW_BREAKPOINT_LEN_8);
	asm volatile(BEGIN "leaq %0, %%rdi\n movl $8, %%ecx\n rep stosq\n" END :: "m"(watched[0]) : "rdi", CLOBBERS);
	user_is(3, "a REP STOSQ across one");
	is(hits(fd), 1, "it did");

	fd = breakpoint(counts_target, HW_BREAKPOINT_X, sizeof(long));
	asm volatile(BEGIN "movl $500, %%ebx\n 1: call counts_target\n decl %%ebx\n jnz 1b\n" END ::: CLOBBERS);
	user_is(2501, "calls of what has a breakpoint");
	is(hits(fd), 500, "each did");
}

/* Code, data and stack in one page. */
static void test_code_page(void)
{
	static const uint8_t code[] = {
		0xb9, 0xe8, 0x03, 0x00, 0x00,			/* mov  $1000, %ecx */
		0xff, 0x05, 0xf5, 0x01, 0x00, 0x00,		/* incl 0x1f5(%rip)  (at 0x200) */
		0x89, 0x0d, 0xf3, 0x01, 0x00, 0x00,		/* mov  %ecx, 0x1f3(%rip) */
		0xff, 0xc9,					/* dec  %ecx */
		0x75, 0xf0,					/* jne  5 */
		0xc3,						/* ret */
	};
	/* Each round rewrites the operand of the instruction after the one that does it. */
	static const uint8_t rewriting[] = {
		0xb9, 0xe8, 0x03, 0x00, 0x00,			/* mov  $1000, %ecx */
		0xff, 0x05, 0x01, 0x00, 0x00, 0x00,		/* incl 1(%rip) */
		0xb8, 0x00, 0x00, 0x00, 0x00,			/* mov  $0, %eax */
		0xff, 0xc9,					/* dec  %ecx */
		0x75, 0xf1,					/* jne  5 */
		0xc3,						/* ret */
	};
	uint8_t *p = map(PROT_READ | PROT_WRITE | PROT_EXEC, 1);

	memcpy(p + 0x400, rewriting, sizeof(rewriting));
	asm volatile(BEGIN "call *%0\n" END :: "r"(p + 0x400) : CLOBBERS);
	user_is(1 + 1 + 4000 + 1, "stores that rewrite the next instruction");
	is(*(uint32_t *)(p + 0x40c), 1000, "each did");
	memcpy(p, code, sizeof(code));
	/* A function that returns at once, called with the stack in this page. */
	p[0x100] = 0xc3;
	asm volatile(BEGIN "call *%0\n" END :: "r"(p) : CLOBBERS);
	user_is(1 + 1 + 4000 + 1, "stores into the page they are in");
	asm volatile(BEGIN "movq %%rsp, %%rdi\n leaq 0x800(%0), %%rsp\n leaq 0x100(%0), %%rsi\n"
		     "movl $300, %%ecx\n 1: pushq %%rax\n popq %%rax\n call *%%rsi\n decl %%ecx\n jnz 1b\n"
		     "movq %%rdi, %%rsp\n" END
		     :: "r"(p) : "rsi", "rdi", CLOBBERS);
	user_is(5 + 300 * 6, "calls whose stack is in a page with code");
	munmap(p, PAGE);
}

static void test_atomic(void)
{
	uint8_t *p = map(PROT_READ | PROT_WRITE, 2) + PAGE - 3;

	asm volatile(BEGIN "movl $300, %%ecx\n 1: lock incq (%0)\n decl %%ecx\n jnz 1b\n" END
		     :: "r"(p) : CLOBBERS);
	user_is(901, "atomic accesses across a page");
	is(*(volatile uint64_t *)p, 300, "each was made once");
}

/* --- faults and traps ------------------------------------------------------------------------ */

/*
 * Handlers of known length: one that skips the two bytes of what faulted, and one that does nothing;
 * each returns to two instructions that return from the signal. 168: RIP in struct ucontext.
 */
void skip_two(void), do_nothing(void), come_back(void);
asm(".text\n"
    "skip_two: addq $2, 168(%rdx)\n	ret\n"
    "do_nothing: nop\n	ret\n"
    "come_back: movl $15, %eax\n	syscall\n");
#define HANDLER 4

static void handle(int sig, void (*handler)(void))
{
	struct {
		void (*handler)(void);
		unsigned long flags;
		void (*restorer)(void);
		unsigned long mask;
	} sa = { handler, SA_SIGINFO | 0x04000000, come_back, 0 };

	if (syscall(SYS_rt_sigaction, sig, &sa, NULL, 8))
		perror("sigaction");
}

static void test_faults(void)
{
	uint8_t *p = map(PROT_READ | PROT_WRITE, 64);

	handle(SIGILL, skip_two);
	handle(SIGFPE, skip_two);
	handle(SIGSEGV, skip_two);
	handle(SIGTRAP, do_nothing);
	asm volatile(BEGIN "movl $100, %%ecx\n 1: ud2\n decl %%ecx\n jnz 1b\n" END ::: CLOBBERS);
	user_is(1 + 100 * (2 + HANDLER), "UD2 is not executed");
	asm volatile(BEGIN "movl $100, %%ecx\n xorl %%ebx, %%ebx\n 1: divl %%ebx\n decl %%ecx\n jnz 1b\n" END
		     ::: CLOBBERS);
	user_is(2 + 100 * (2 + HANDLER), "nor a division by zero");
	asm volatile(BEGIN "movl $100, %%ecx\n xorl %%ebx, %%ebx\n 1: movl (%%rbx), %%eax\n decl %%ecx\n jnz 1b\n" END
		     ::: CLOBBERS);
	user_is(2 + 100 * (2 + HANDLER), "nor a load from nowhere");
	asm volatile(BEGIN "movl $100, %%ecx\n xorl %%ebx, %%ebx\n"
		     "1: jmp 2f\n 2: jmp *(%%rbx)\n decl %%ecx\n jnz 1b\n" END ::: CLOBBERS);
	user_is(2 + 100 * (3 + HANDLER), "nor a jump through nowhere");
	asm volatile(BEGIN "movl $100, %%ecx\n 1: int $0x20\n decl %%ecx\n jnz 1b\n" END ::: CLOBBERS);
	user_is(1 + 100 * (2 + HANDLER), "nor an INT that is not allowed");
	asm volatile(BEGIN "movl $100, %%ecx\n 1: hlt\n nop\n decl %%ecx\n jnz 1b\n" END ::: CLOBBERS);
	user_is(1 + 100 * (2 + HANDLER), "nor a privileged instruction");
	asm volatile(BEGIN "movl $100, %%ecx\n 1: int3\n decl %%ecx\n jnz 1b\n" END ::: CLOBBERS);
	user_is(1 + 100 * (3 + HANDLER), "INT3 is");
	asm volatile(BEGIN "movl $64, %%ecx\n movq %0, %%rdi\n"
		     "1: movb %%cl, (%%rdi)\n addq $4096, %%rdi\n decl %%ecx\n jnz 1b\n" END
		     :: "r"(p) : "rdi", CLOBBERS);
	user_is(2 + 64 * 4, "stores that the kernel pages in for count once");
	asm volatile(BEGIN "pushfq\n orl $0x100, (%%rsp)\n popfq\n"
		     "nop\n nop\n nop\n pushfq\n andl $~0x100, (%%rsp)\n popfq\n" END ::: CLOBBERS);
	/* There is a trap after each from the NOPs to the last POPF. */
	user_is(9 + 6 * HANDLER, "single steps");
	signal(SIGILL, SIG_DFL);
	signal(SIGFPE, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGTRAP, SIG_DFL);
	munmap(p, 64 * PAGE);
}

/* A timer that ticks in the middle of it all, with a handler of known length. */
static void test_timer(void)
{
	struct itimerval tick = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };
	uint8_t *p = map(PROT_READ | PROT_WRITE, 256);
	uint64_t user;

	handle(SIGALRM, do_nothing);
	setitimer(ITIMER_REAL, &tick, NULL);
	asm volatile(BEGIN "movl $200, %%edx\n"
		     "1: movq %0, %%rdi\n movl $1048576, %%ecx\n rep stosb\n"
		     "movl $1000, %%ecx\n 2: loop 2b\n decl %%edx\n jnz 1b\n" END
		     :: "r"(p) : "rdi", CLOBBERS);
	setitimer(ITIMER_REAL, &none, NULL);
	user = count(USER_BETWEEN) - OVERHEAD - (1 + 200 * (4 + 1000 + 2));
	printf("# %" PRIu64 " signals\n", user / HANDLER);
	is(user % HANDLER, 0, "REP and loops under a timer: the rest is handlers");
	result(user / HANDLER > 10, "which were called");
	munmap(p, 256 * PAGE);
}

static void test_msrs(void)
{
	uint64_t one, all, between, by_cpuid;

	asm volatile(BEGIN "movl $1000, %%ecx\n 1: loop 1b\n" END ::: CLOBBERS);
	by_cpuid = count(USER_BETWEEN);
	if (!try_rd(EMU_USER, &one) || !try_rd(EMU_ALL_USER, &all) || !try_rd(EMU_USER | EMU_BETWEEN, &between)) {
		result(false, "counters by RDMSR");
		return;
	}
	is(between, by_cpuid, "RDMSR and CPUID tell the same");
	result(one < all, "all CPUs execute more than one");
	result(wr(EMU_MARK_BEGIN, 0), "a mark by WRMSR: taken");
	is(rd(EMU_USER | EMU_BETWEEN), 0, "0 before the second");
	result(wr(EMU_MARK_END, 0), "the second: taken");
	between = rd(EMU_USER | EMU_BETWEEN);
	result(between > 5 && between < 5000, "what is between");
	result(!wr(EMU_USER, 0), "WRMSR of a counter: #GP");
	result(!try_rd(0x4fff0004, &one), "RDMSR of one that isn't there: #GP");
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	msr_open();
	test_plain();
	test_rep();
	test_watch();
	test_code_page();
	test_atomic();
	test_faults();
	test_timer();
	test_msrs();
	printf("1..%u\n", checks);
	return 0;
}
