/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * features: what perf is to see of PTWRITE and event trace. Executes PTWRITE in all its forms and takes faults,
 * checks that flags, registers and faults are what they must be, and prints what a trace of it holds:
 * "ptwrite ADDRESS VALUE" and "fault VECTOR ADDRESS", in order. Prints "not ok - ..." for what isn't right.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define PAGE 4096UL

static void check(bool good, const char *what)
{
	if (!good)
		printf("not ok - %s\n", what);
}

/* Where the last fault was: the instruction, and the address that it accessed. */
static volatile uint64_t fault_ip, fault_addr;
static volatile int fault_signal;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	fault_ip = uc->uc_mcontext.gregs[REG_RIP];
	fault_addr = (uintptr_t)info->si_addr;
	fault_signal = sig;
	/* All that fault here continue at R11. */
	uc->uc_mcontext.gregs[REG_RIP] = uc->uc_mcontext.gregs[REG_R11];
}

static uint64_t words[4] = { 0x1111222233334444, 0x5555666677778888, 0x99990000aaaabbbb, 0xccccddddeeeeffff };

#define PTWRITE(label, insn, ...) do { \
	asm volatile(".globl " label "\n" label ": " insn :: __VA_ARGS__); \
} while (0)

#define EXPECT(label, value) do { \
	extern const char label[]; \
	printf("ptwrite %lx %lx\n", (unsigned long)(uintptr_t)label, (unsigned long)(value)); \
} while (0)

static void forms(void)
{
	PTWRITE("ptw_r32", "ptwrite %k0", "r"(0x123456789abcdef0));
	PTWRITE("ptw_r64", "ptwrite %q0", "r"(0x0fedcba987654321));
	PTWRITE("ptw_r15", "movq %0, %%r15\n\tptwrite %%r15", "r"(0x15L) : "r15");
	PTWRITE("ptw_m32", "ptwritel %0", "m"(words[0]));
	PTWRITE("ptw_m64", "ptwriteq %0", "m"(words[1]));
	PTWRITE("ptw_sib", "ptwriteq 8(%0,%1,8)", "r"(words), "r"(1L));
	PTWRITE("ptw_rip", "ptwriteq words(%%rip)", "r"(0));
	PTWRITE("ptw_fs", "ptwriteq %%fs:0", "r"(0));
}

/* Called after the above, so that no PTWRITE of theirs is in between. */
static void print_forms(void)
{
	extern const char ptw_r15[];
	uint64_t self;

	asm("movq %%fs:0, %0" : "=r"(self));
	EXPECT(ptw_r32, 0x9abcdef0);
	EXPECT(ptw_r64, 0x0fedcba987654321);
	printf("ptwrite %lx 15\n", (unsigned long)(uintptr_t)ptw_r15 + 3);
	EXPECT(ptw_m32, 0x33334444);
	EXPECT(ptw_m64, words[1]);
	EXPECT(ptw_sib, words[2]);
	EXPECT(ptw_rip, words[0]);
	EXPECT(ptw_fs, self);
}

/* Flags computed just before must survive. */
static void flags(void)
{
	bool good = true;

	for (int i = 0; i < 300; i++) {
		uint32_t x = i * 7, y = i % 3 ? 1000 : x;
		uint8_t z, c, s;

		asm volatile("cmpl %[y], %[x]\n"
			     "ptwrite %[x]\n"
			     "setz %[z]\n"
			     "setc %[c]\n"
			     "sets %[s]\n"
			     : [z] "=m"(z), [c] "=m"(c), [s] "=m"(s) : [x] "r"(x), [y] "r"(y) : "cc");
		good &= z == (x == y) && c == (x < y) && s == ((int32_t)(x - y) < 0);
	}
	check(good, "flags survive PTWRITE");
}

static void faults(void)
{
	extern const char bad_ptw[], bad_ptw_kernel[];
	char *hole = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t kernel = 0xffffffff81000000;

	asm volatile("leaq 1f(%%rip), %%r11\n"
		     ".globl bad_ptw\n"
		     "bad_ptw: ptwriteq (%0)\n"
		     "1:" :: "r"(hole) : "r11");
	check(fault_signal == SIGSEGV && fault_ip == (uintptr_t)bad_ptw, "PTWRITE from no memory faults");
	check(fault_addr == (uintptr_t)hole, "... with its address");
	asm volatile("leaq 1f(%%rip), %%r11\n"
		     ".globl bad_ptw_kernel\n"
		     "bad_ptw_kernel: ptwriteq (%0)\n"
		     "1:" :: "r"(kernel) : "r11");
	check(fault_ip == (uintptr_t)bad_ptw_kernel, "PTWRITE from the kernel's memory faults");
	fault_signal = 0;
	asm volatile("leaq 1f(%%rip), %%r11\n"
		     ".byte 0x66\n"
		     "ptwrite %%eax\n"
		     "1:" ::: "r11");
	check(fault_signal == SIGILL, "PTWRITE with prefix 66 is undefined");
	asm volatile("leaq 1f(%%rip), %%r11\n"
		     ".globl bad_load\n"
		     "bad_load: movq 0x123(%0), %%rax\n"
		     "1:" :: "r"(hole) : "rax", "r11");
	printf("fault 14 %lx\n", (unsigned long)(uintptr_t)hole + 0x123);
}

static uint64_t stops[16];
static volatile unsigned int n_stops;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)sig;
	(void)info;
	if (n_stops < 16)
		stops[n_stops++] = uc->uc_mcontext.gregs[REG_RIP];
}

/* RFLAGS.TF traps after PTWRITE as after any other instruction. */
static void single_steps(void)
{
	extern const char step_ptwrite[], step_after[], step_off[], step_end[];

	asm volatile("pushfq\n"
		     "orl $0x100, (%%rsp)\n"
		     "popfq\n"
		     "nop\n"
		     ".globl step_ptwrite, step_after, step_off, step_end\n"
		     "step_ptwrite: ptwrite %%eax\n"
		     "step_after: nop\n"
		     "step_off: pushfq\n"
		     "andl $~0x100, (%%rsp)\n"
		     "popfq\n"
		     "step_end:" ::: "memory", "cc");
	check(n_stops == 6, "a trap after each of six instructions");
	check(stops[0] == (uintptr_t)step_ptwrite && stops[1] == (uintptr_t)step_after &&
	      stops[2] == (uintptr_t)step_off && stops[5] == (uintptr_t)step_end, "... PTWRITE among them");
}

int main(void)
{
	struct sigaction trap = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
	forms();
	print_forms();
	faults();
	flags();
	sigaction(SIGTRAP, &trap, NULL);
	single_steps();
	printf("end\n");
	return 0;
}
