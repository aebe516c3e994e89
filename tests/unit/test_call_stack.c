// SPDX-License-Identifier: BSD-2-Clause
/* Calls and returns found again in flows written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/call_stack.h"

/*
 * Functions at round addresses: 0x1000 outer, 0x2000 f, 0x3000 g, 0x4000 h, 0x5000 __x86_indirect_thunk_rax,
 * 0x6000 handler, 0x2800 f.cold, 0x7000 entry; where probes have the instructions in whose place they are, 0x9000 and
 * 0xa000, and 0xb000 asm_exc_int3. User code: 0x501000 outer, 0x502000 f, 0x503000 its_own.
 */
static const char kallsyms[] =
	"ffffffff81001000 T outer\nffffffff81002000 T f\nffffffff81002800 t f.cold\nffffffff81003000 T g\n"
	"ffffffff81004000 T h\nffffffff81005000 T __x86_indirect_thunk_rax\nffffffff81006000 T handler\n"
	"ffffffff81007000 T entry\nffffffff81008000 T end\nffffffff81009000 t kprobe_insn_page\nffffffff8100a000 t kprobe_optinsn_page\n"
	"ffffffff8100b000 t asm_exc_int3\nffffffff8100c000 T end\n";

/* Of a program; they are told as 7f501000 and so on. */
static const struct ptw_symbol user[] = {
	{ .addr = 0x501000, .name = "outer" }, { .addr = 0x502000, .name = "f" }, { .addr = 0x503000, .name = "its_own" },
};

#define BASE	0xffffffff81000000ull
#define USER(x)	((x) - BASE)	/* for what adds it */

static char told[2048];

static const char *name(uint64_t addr)
{
	static char buf[4][32];
	static int i;

	i = (i + 1) % 4;
	snprintf(buf[i], sizeof(buf[i]), "%llx", (unsigned long long)(addr ? addr - BASE : 0));
	return buf[i];
}

static uint64_t on_step(void *context, const struct ptw_step *step)
{
	static const char *const kinds[] = { "begin",	"call",	 "tail",   "intr",
					     "syscall", "outer", "switch", "gap" };
	size_t used = strlen(told);
	static uint64_t number;

	snprintf(told + used, sizeof(told) - used, "%s%s@%d %s<%s", used ? "; " : "", kinds[step->kind],
		 (int)step->depth, name(step->ip), name(step->from));
	return number++;
}

static void on_return(void *context, uint64_t step)
{
	strncat(told, "; ret", sizeof(told) - strlen(told) - 1);
}

static struct ptw_call_stack stack;
static struct ptw_symbols *symbols;

enum insn_class {
	INSN_OTHER, INSN_CALL, INSN_RETURN, INSN_JUMP, INSN_COND_JUMP, INSN_FAR_CALL, INSN_FAR_RETURN, INSN_FAR_JUMP,
	INSN_PTWRITE,
};

/* What the stream makes of instructions: a branch is told once it is known where it went. */
static struct {
	uint64_t at, next;
	enum insn_class class;
	bool valid;
} branch;

static bool place(void *context, uint64_t addr, struct ptw_place *out)
{
	out->symbol = symbols ? ptw_symbols_at(symbols, addr) : NULL;
	if (addr >= user[0].addr && addr < user[0].addr + 0x3000)
		out->symbol = &user[(addr - user[0].addr) / 0x1000];
	out->start = out->symbol ? out->symbol->addr : 0;
	return out->symbol != NULL;
}

static void begin(void)
{
	told[0] = '\0';
	branch.valid = false;
	stack = (struct ptw_call_stack){ .place = place, .on_step = on_step, .on_return = on_return };
	ptw_call_stack_init(&stack);
}

static void take(enum ptw_flow_kind kind, uint64_t from, uint64_t to, uint64_t value)
{
	struct ptw_flow flow = { .kind = kind, .from = from, .to = to, .value = value };

	assert_int_equal(ptw_call_stack_take(&stack, &flow), 0);
}

static void arrive(uint64_t to)
{
	static const enum ptw_flow_kind kinds[] = {
		[INSN_CALL] = PTW_FLOW_CALL, [INSN_RETURN] = PTW_FLOW_RETURN, [INSN_JUMP] = PTW_FLOW_JUMP,
		[INSN_COND_JUMP] = PTW_FLOW_JUMP, [INSN_FAR_CALL] = PTW_FLOW_SYSCALL,
		[INSN_FAR_RETURN] = PTW_FLOW_FAR_RETURN, [INSN_FAR_JUMP] = PTW_FLOW_JUMP,
	};

	if (!branch.valid)
		return;
	branch.valid = false;
	if (to != branch.next || branch.class == INSN_CALL)
		take(kinds[branch.class], branch.at, to, branch.next);
}

static void insn(uint64_t at, enum insn_class class)
{
	arrive(BASE + at);
	/* Instructions that are no branches are runs. */
	take(PTW_FLOW_RUN, BASE + at, BASE + at, 1);
	branch.valid = class != INSN_OTHER && class != INSN_PTWRITE;
	branch.class = class;
	branch.at = BASE + at;
	branch.next = BASE + at + 5;
}

static void event(enum ptw_event_type type, uint64_t from, uint64_t to)
{
	uint64_t target = to ? BASE + to : 0;

	switch (type) {
	case PTW_EVENT_ENABLED:
		branch.valid = false;
		take(PTW_FLOW_BEGIN, 0, target, 0);
		break;
	case PTW_EVENT_DISABLED:
		arrive(target);
		take(PTW_FLOW_END, BASE + from, 0, 0);
		break;
	default:
		arrive(BASE + from);
		take(PTW_FLOW_INTERRUPT, BASE + from, target, 0);
		if (type == PTW_EVENT_ASYNC_DISABLED)
			take(PTW_FLOW_END, BASE + from, 0, 0);
	}
}

static void end(const char *expected)
{
	assert_string_equal(told, expected);
	ptw_call_stack_free(&stack);
}

static void calls_and_returns(void **state)
{
	begin();
	insn(0x1010, INSN_OTHER);
	insn(0x1015, INSN_CALL);
	insn(0x2000, INSN_CALL);
	insn(0x3000, INSN_RETURN);
	insn(0x2005, INSN_RETURN);
	insn(0x101a, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1015; call@2 3000<2000; ret; ret");
}

/* The trace begins deep inside: returns to functions that nobody saw being called. */
static void outer_frames(void **state)
{
	begin();
	insn(0x3010, INSN_RETURN);
	insn(0x2010, INSN_RETURN);
	insn(0x1010, INSN_CALL);
	insn(0x4000, INSN_OTHER);
	end("begin@0 3010<0; outer@-1 2010<3010; outer@-2 1010<2010; call@-1 4000<1010");
}

static void interrupts(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	event(PTW_EVENT_ASYNC_BRANCH, 0x2000, 0x6000);	/* before f's first instruction */
	insn(0x6000, INSN_CALL);
	insn(0x4000, INSN_RETURN);
	insn(0x6005, INSN_FAR_RETURN);
	insn(0x2000, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; intr@2 6000<2000; call@3 4000<6000; ret; ret; ret");
}

static void system_calls(void **state)
{
	begin();
	insn(0x1010, INSN_FAR_CALL);
	insn(0x7000, INSN_FAR_RETURN);
	insn(0x1015, INSN_OTHER);
	insn(0x101a, INSN_FAR_CALL);
	event(PTW_EVENT_DISABLED, 0, 0);		/* not traced */
	event(PTW_EVENT_ENABLED, 0, 0x101f);
	insn(0x101f, INSN_OTHER);
	end("begin@0 1010<0; syscall@1 7000<1010; ret; syscall@1 0<101a; ret");
}

static void tail_calls(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_JUMP);		/* to the function's own cold part and back */
	insn(0x2800, INSN_JUMP);
	insn(0x2020, INSN_COND_JUMP);	/* not taken */
	insn(0x2025, INSN_JUMP);
	insn(0x3000, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; ret; tail@1 3000<2025; ret");
}

/* call thunk; in it: call over a pause loop, overwrite the return address, ret to the target. */
static void retpoline(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x5000, INSN_CALL);
	insn(0x5010, INSN_RETURN);
	insn(0x4000, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 4000<1014; ret");
}

/* jmp thunk: what it leads to takes the place of what jumped there. */
static void retpoline_jump(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_JUMP);
	insn(0x5000, INSN_CALL);
	insn(0x500c, INSN_RETURN);
	insn(0x3000, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; ret; tail@1 3000<2000; ret");
}

/* The same thunks in place, as compilers build them: for a call, for a jump and for a return. */
static void retpoline_inline(void **state)
{
	begin();
	insn(USER(0x501010), INSN_CALL);	/* to f */
	insn(USER(0x502000), INSN_CALL);	/* to its own middle, from where it goes back behind */
	insn(USER(0x502040), INSN_CALL);
	insn(USER(0x502050), INSN_RETURN);	/* to its_own, whose address was written over */
	insn(USER(0x503000), INSN_RETURN);
	insn(USER(0x502005), INSN_CALL);	/* a jump to it: only one call */
	insn(USER(0x502060), INSN_RETURN);
	insn(USER(0x503000), INSN_CALL);	/* and a return: its address is dropped */
	insn(USER(0x503010), INSN_RETURN);
	insn(USER(0x501015), INSN_OTHER);
	end("begin@0 7f501010<0; call@1 7f502000<7f501010; call@2 7f503000<7f502004; ret; ret; tail@1 7f503000<7f502060; ret");
}

/* An interrupt between any two instructions of a thunk is one, and what it finds is no function that calls itself. */
static void retpoline_interrupted(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_CALL);		/* through the thunk */
	event(PTW_EVENT_ASYNC_BRANCH, 0x5000, 0x6000);
	insn(0x6000, INSN_FAR_RETURN);
	insn(0x5000, INSN_CALL);
	event(PTW_EVENT_ASYNC_BRANCH, 0x5010, 0x6000);
	insn(0x6000, INSN_FAR_RETURN);
	insn(0x5010, INSN_RETURN);
	insn(0x4000, INSN_RETURN);
	insn(0x2005, INSN_JUMP);		/* the same; the handler, too, ends in a thunk */
	insn(0x5000, INSN_CALL);
	event(PTW_EVENT_ASYNC_BRANCH, 0x5010, 0x6000);
	insn(0x6000, INSN_JUMP);
	insn(0x5000, INSN_CALL);
	insn(0x5010, INSN_RETURN);
	insn(0x7000, INSN_FAR_RETURN);
	insn(0x5010, INSN_RETURN);
	insn(0x3000, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; intr@2 6000<5000; ret; intr@2 6000<5010; ret; call@2 4000<2004; ret; "
	    "intr@2 6000<5010; tail@2 7000<6000; ret; ret; tail@1 3000<2005; ret");
}

/* As compilers build it: 0 call c; 5 pause; lfence; jmp 5; c mov %rax,(%rsp); 10 ret; 11 call 0, which is the call. */
static void thunk_in_place(uint64_t function, uint64_t interrupted, uint64_t target)
{
	static const struct { uint64_t at; enum insn_class class; } body[] = {
		{ 0x11, INSN_CALL }, { 0x0, INSN_CALL }, { 0xc, INSN_OTHER }, { 0x10, INSN_RETURN },
	};

	for (size_t i = 0; i < sizeof(body) / sizeof(body[0]); i++) {
		if (body[i].at == interrupted) {
			event(PTW_EVENT_ASYNC_BRANCH, function + 0x20 + interrupted, 0x6000);
			insn(0x6000, INSN_CALL);
			insn(0x4000, INSN_RETURN);
			insn(0x6005, INSN_FAR_RETURN);
		}
		insn(function + 0x20 + body[i].at, body[i].class);
	}
	insn(target, INSN_RETURN);
	insn(function + 0x20 + 0x16, INSN_OTHER);
}

static void retpoline_inline_interrupted(void **state)
{
	static const uint64_t places[] = { 0x11, 0x0, 0xc, 0x10 };
	static const struct { uint64_t outer, function, target; const char *prefix; } code[] = {
		{ USER(0x501000), USER(0x502000), USER(0x503000), "7f50" }, { 0x1000, 0x2000, 0x3000, "" },
	};

	for (size_t i = 0; i < 8; i++) {
		uint64_t place = places[i % 4];
		const char *p = code[i / 4].prefix;
		char expected[512];

		begin();
		insn(code[i / 4].outer + 0x10, INSN_CALL);
		insn(code[i / 4].function, INSN_OTHER);
		thunk_in_place(code[i / 4].function, UINT64_MAX, code[i / 4].target);
		thunk_in_place(code[i / 4].function, place, code[i / 4].target);
		insn(code[i / 4].function + 0x3b, INSN_RETURN);
		insn(code[i / 4].outer + 0x15, INSN_OTHER);
		snprintf(expected, sizeof(expected),
			 "begin@0 %s1010<0; call@1 %s2000<%s1010; call@2 %s3000<%s2035; ret; intr@2 6000<%s%x; call@3 4000<6000; ret; ret; "
			 "call@2 %s3000<%s2035; ret; ret", p, p, p, p, p, p, 0x2020 + (unsigned int)place, p, p);
		end(expected);
	}
}

/* What is no thunk is told before what interrupts it: where it is too far, or was interrupted too late, for one. */
static void inner_functions_interrupted(void **state)
{
	begin();
	insn(USER(0x501010), INSN_CALL);
	insn(USER(0x502000), INSN_CALL);
	insn(USER(0x502010), INSN_OTHER);
	event(PTW_EVENT_ASYNC_BRANCH, USER(0x502019), 0x6000);
	insn(0x6000, INSN_FAR_RETURN);
	insn(USER(0x502019), INSN_RETURN);
	insn(USER(0x502005), INSN_CALL);
	event(PTW_EVENT_ASYNC_BRANCH, USER(0x502040), 0x6000);
	insn(0x6000, INSN_FAR_RETURN);
	insn(USER(0x502040), INSN_CALL);
	insn(USER(0x503000), INSN_RETURN);
	insn(USER(0x502045), INSN_RETURN);
	insn(USER(0x50200a), INSN_OTHER);
	end("begin@0 7f501010<0; call@1 7f502000<7f501010; call@2 7f502010<7f502000; intr@3 6000<7f502019; ret; ret; "
	    "call@2 7f502040<7f502005; intr@3 6000<7f502040; ret; call@3 7f503000<7f502040; ret; ret");
	/* The function graph tracer's return trampoline, here entry: g returns to it, and it to where g was called from. */
	begin();
	insn(0x2000, INSN_CALL);
	insn(0x3000, INSN_RETURN);
	insn(0x7000, INSN_CALL);
	insn(0x4000, INSN_RETURN);
	insn(0x7005, INSN_CALL);
	insn(0x700b, INSN_RETURN);
	insn(0x2005, INSN_OTHER);
	end("begin@0 2000<0; call@1 3000<2000; ret; tail@1 7000<3000; call@2 4000<7000; ret; call@2 700b<7005; ret; ret");
	/* The kernel's is told at once: no thunk is so long. */
	begin();
	insn(0x2000, INSN_CALL);
	insn(0x2040, INSN_OTHER);
	assert_string_equal(told, "begin@0 2000<0; call@1 2040<2000");
	insn(0x2050, INSN_RETURN);
	insn(0x2005, INSN_OTHER);
	end("begin@0 2000<0; call@1 2040<2000; ret");
}

/* A function without a name in the middle of another one is one. */
static void inner_functions(void **state)
{
	begin();
	insn(USER(0x501010), INSN_CALL);
	insn(USER(0x502000), INSN_CALL);	/* returns at once */
	insn(USER(0x502040), INSN_RETURN);
	insn(USER(0x502005), INSN_CALL);	/* calls another, and itself */
	insn(USER(0x502040), INSN_CALL);
	insn(USER(0x502050), INSN_CALL);
	insn(USER(0x503000), INSN_RETURN);
	insn(USER(0x502055), INSN_RETURN);
	insn(USER(0x502045), INSN_RETURN);
	insn(USER(0x50200a), INSN_RETURN);
	insn(USER(0x501015), INSN_OTHER);
	end("begin@0 7f501010<0; call@1 7f502000<7f501010; call@2 7f502040<7f502000; ret; "
	    "call@2 7f502040<7f502005; call@3 7f502050<7f502040; call@4 7f503000<7f502050; ret; ret; ret; ret");
}

/* The kernel's thunks have names that programs may give their functions. */
static void no_thunk(void **state)
{
	begin();
	insn(USER(0x501010), INSN_CALL);
	insn(USER(0x503000), INSN_RETURN);
	insn(USER(0x501015), INSN_OTHER);
	end("begin@0 7f501010<0; call@1 7f503000<7f501010; ret");
}

/* A breakpoint in f: its handler goes on with a copy of the instruction, behind which is another one, and then back in f. */
static void probe_trap(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_OTHER);
	event(PTW_EVENT_ASYNC_BRANCH, 0x2005, 0xb000);
	insn(0xb000, INSN_CALL);
	insn(0x4000, INSN_RETURN);
	insn(0xb005, INSN_FAR_RETURN);
	insn(0x9000, INSN_OTHER);
	event(PTW_EVENT_ASYNC_BRANCH, 0x9003, 0xb000);
	insn(0xb000, INSN_FAR_RETURN);
	insn(0x2008, INSN_CALL);
	insn(0x3000, INSN_RETURN);
	insn(0x200d, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; intr@2 b000<2005; call@3 4000<b000; ret; ret; intr@2 b000<9003; ret; "
	    "call@2 3000<2008; ret; ret");
}

/* … or it does what the call there does. */
static void probe_on_call(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_OTHER);
	event(PTW_EVENT_ASYNC_BRANCH, 0x2005, 0xb000);
	insn(0xb000, INSN_FAR_RETURN);
	insn(0x3000, INSN_RETURN);
	insn(0x200a, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; intr@2 b000<2005; ret; call@2 3000<2005; ret; ret");
}

/* A jump in place of the breakpoint, to code that calls the handler, has the copy, and jumps back. */
static void probe_jump(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_OTHER);
	insn(0x2005, INSN_JUMP);
	insn(0xa000, INSN_CALL);
	insn(0x4000, INSN_RETURN);
	insn(0xa005, INSN_JUMP);
	insn(0x200a, INSN_CALL);
	insn(0x3000, INSN_RETURN);
	insn(0x200f, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; call@2 4000<a000; ret; call@2 3000<200a; ret; ret");
}

static void stack_switch(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_RETURN);
	insn(0x4010, INSN_RETURN);
	insn(0x3010, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; switch@0 4010<2000; outer@-1 3010<4010");
}

/*
 * An exception is thrown in h: the unwinder, g here, returns to a landing pad of f, to which it was never called from. f's
 * other landing pad is in its cold part, at the very start of that.
 */
static void exceptions(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_CALL);
	insn(0x4000, INSN_CALL);
	insn(0x3000, INSN_RETURN);
	insn(0x2080, INSN_CALL);
	insn(0x4000, INSN_CALL);
	insn(0x3000, INSN_RETURN);
	insn(0x2800, INSN_JUMP);
	insn(0x2090, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; call@2 4000<2000; call@3 3000<4000; ret; ret; "
	    "call@2 4000<2080; call@3 3000<4000; ret; ret; ret");
}

/* From h, deep inside, a jump to behind outer's call of setjmp; and one within f, which is none. */
static void long_jump(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_JUMP);
	insn(0x2050, INSN_CALL);
	insn(0x3000, INSN_CALL);
	insn(0x4000, INSN_JUMP);
	insn(0x1005, INSN_CALL);
	insn(0x3000, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; call@2 3000<2050; call@3 4000<3000; ret; ret; ret; call@1 3000<1005");
}

/* While another process was at work that is not traced, this one was left for good reasons, by a call nobody saw. */
static void call_not_traced(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_CALL);
	insn(0x3000, INSN_OTHER);
	event(PTW_EVENT_DISABLED, 0x3000, 0);
	take(PTW_FLOW_BEGIN, 0, BASE + 0x4000, 1);
	insn(0x4000, INSN_RETURN);
	insn(0x2020, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; call@2 3000<2000; ret; ret");
}

/* A jump in a function that was called unseen takes nobody's place: g is h's tail call, not f's. */
static void tail_call_not_traced(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_OTHER);
	branch.valid = false;
	take(PTW_FLOW_JUMP, BASE + 0x4010, BASE + 0x3000, 0);
	take(PTW_FLOW_RETURN, BASE + 0x3010, BASE + 0x2030, 0);
	take(PTW_FLOW_RETURN, BASE + 0x2040, BASE + 0x1015, 0);
	end("begin@0 1010<0; call@1 2000<1010; ret");
}

/* Tracing stops in h and begins again in g; both were called by f, which is on the stack, h by way of handler. */
static void stop_and_start(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_CALL);
	insn(0x4000, INSN_OTHER);
	event(PTW_EVENT_DISABLED, 0x4000, 0);
	event(PTW_EVENT_ENABLED, 0, 0x3000);
	insn(0x3000, INSN_RETURN);
	insn(0x6010, INSN_CALL);
	insn(0x4000, INSN_RETURN);
	insn(0x6015, INSN_RETURN);
	insn(0x2020, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; call@2 4000<2000; begin@3 3000<0; ret; outer@3 6010<3000; call@4 4000<6010; ret; "
	    "ret; ret; ret");
}

/* A fault in the kernel's copy goes on at the fixup, in the same function. */
static void fixed_up_fault(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_OTHER);
	event(PTW_EVENT_ASYNC_BRANCH, 0x2010, 0x6000);
	insn(0x6000, INSN_FAR_RETURN);
	insn(0x2070, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; intr@2 6000<2010; ret; ret");
}

/* A handler runs in between; from it, rt_sigreturn leads back to what the signal found. */
static void signals(void **state)
{
	const uint64_t user = 0x401000;

	begin();
	take(PTW_FLOW_CALL, user, user + 0x100, user + 5);
	take(PTW_FLOW_INTERRUPT, user + 0x108, BASE + 0x6000, 0);
	take(PTW_FLOW_CALL, BASE + 0x6000, BASE + 0x4000, BASE + 0x6005);
	take(PTW_FLOW_FAR_RETURN, BASE + 0x4000, user + 0x200, 0);
	take(PTW_FLOW_CALL, user + 0x210, user + 0x300, user + 0x215);
	take(PTW_FLOW_RETURN, user + 0x300, user + 0x215, 0);
	take(PTW_FLOW_SYSCALL, user + 0x220, BASE + 0x7000, user + 0x222);
	take(PTW_FLOW_FAR_RETURN, BASE + 0x7000, user + 0x108, 0);
	take(PTW_FLOW_RETURN, user + 0x110, user + 5, 0);
	assert_string_equal(told, "begin@0 7f401000<0; call@1 7f401100<7f401000; intr@2 6000<7f401108; call@3 4000<6000; ret; ret; "
				  "call@2 7f401200<7f401108; call@3 7f401300<7f401210; ret; syscall@3 7000<7f401220; ret; ret; ret");
	ptw_call_stack_free(&stack);
}

/* Out of several functions at once. */
static void return_over_frames(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_CALL);
	insn(0x3000, INSN_CALL);
	insn(0x4000, INSN_RETURN);
	insn(0x1015, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; call@2 3000<2000; call@3 4000<3000; ret; ret; ret");
}

static void gaps(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x2000, INSN_CALL);
	branch.valid = false;
	take(PTW_FLOW_GAP, 0, 0, 0);
	insn(0x3000, INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; gap@0 0<0; begin@0 3000<0");
}

/* Addresses that only push: call to the next instruction; iret to the next instruction. */
static void not_really_branches(void **state)
{
	begin();
	insn(0x1010, INSN_CALL);
	insn(0x1015, INSN_FAR_RETURN);
	insn(0x101a, INSN_OTHER);
	end("begin@0 1010<0");
}

static void endless_recursion(void **state)
{
	int i;

	begin();
	stack.on_return = NULL;
	for (i = 0; i < 100000; i++)
		insn(0x2000, INSN_CALL);
	assert_true(ptw_call_stack_depth(&stack) > 99000);
	ptw_call_stack_free(&stack);
}

static int setup(void **state)
{
	char path[] = "/tmp/ptwatch-test-XXXXXX";
	int fd = mkstemp(path);
	struct ptw_error err;
	int ret;

	if (fd < 0 || write(fd, kallsyms, sizeof(kallsyms) - 1) != sizeof(kallsyms) - 1)
		return -1;
	close(fd);
	symbols = ptw_symbols_new();
	ret = ptw_symbols_load_kallsyms(symbols, path, &err);
	unlink(path);
	return ret;
}

static int teardown(void **state)
{
	ptw_symbols_free(symbols);
	return 0;
}

/* Breakpoints before the first instructions of functions: the one ends tracing, the other begins it. */
static void begins_anew(void **state)
{
	static const struct { uint64_t at, ip; const char *expected; } interrupted[] = {
		{ 0x502000, 0x501000, "intr@2 0<7f502000; begin@0 7f501000<0" },
		/* A signal is handled. */
		{ 0x502004, 0x501000, "intr@2 0<7f502004; ret; call@2 7f501000<7f502004" },
		/* In the function that lies before f, which nobody called */
		{ 0x502000, 0x501010, "intr@2 0<7f502000; begin@0 7f501010<0" },
	};
	char expected[128];

	for (size_t i = 0; i < sizeof(interrupted) / sizeof(interrupted[0]); i++) {
		begin();
		take(PTW_FLOW_BEGIN, 0, 0x503010, 0);
		take(PTW_FLOW_CALL, 0x503020, 0x502000, 0x503025);
		take(PTW_FLOW_INTERRUPT, interrupted[i].at, 0, 0);
		take(PTW_FLOW_END, interrupted[i].at, 0, 1);
		take(PTW_FLOW_BEGIN, 0, interrupted[i].ip, 0);
		ptw_call_stack_free(&stack);
		snprintf(expected, sizeof(expected), "begin@0 7f503010<0; call@1 7f502000<7f503020; %s", interrupted[i].expected);
		assert_string_equal(told, expected);
	}
}

/* Where nothing turns the trace off, what begins when a function's first instruction was interrupted handles a signal. */
static void signal_at_entry(void **state)
{
	begin();
	stack.through = true;
	take(PTW_FLOW_BEGIN, 0, 0x503010, 0);
	take(PTW_FLOW_CALL, 0x503020, 0x502000, 0x503025);
	take(PTW_FLOW_INTERRUPT, 0x502000, 0, 0);
	take(PTW_FLOW_END, 0x502000, 0, 1);
	take(PTW_FLOW_BEGIN, 0, 0x501000, 0);
	take(PTW_FLOW_SYSCALL, 0x501020, 0, 0x501022);
	take(PTW_FLOW_END, 0x501020, 0, 0);
	take(PTW_FLOW_BEGIN, 0, 0x502000, 0);
	take(PTW_FLOW_RETURN, 0x502010, 0x503025, 0);
	ptw_call_stack_free(&stack);
	assert_string_equal(told, "begin@0 7f503010<0; call@1 7f502000<7f503020; intr@2 0<7f502000; ret; call@2 7f501000<7f502000; "
				  "syscall@3 0<7f501020; ret; ret; ret");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_and_returns),
		cmocka_unit_test(outer_frames),
		cmocka_unit_test(interrupts),
		cmocka_unit_test(system_calls),
		cmocka_unit_test(tail_calls),
		cmocka_unit_test(retpoline),
		cmocka_unit_test(retpoline_jump),
		cmocka_unit_test(retpoline_inline),
		cmocka_unit_test(retpoline_interrupted),
		cmocka_unit_test(retpoline_inline_interrupted),
		cmocka_unit_test(inner_functions_interrupted),
		cmocka_unit_test(inner_functions),
		cmocka_unit_test(no_thunk),
		cmocka_unit_test(probe_trap),
		cmocka_unit_test(probe_on_call),
		cmocka_unit_test(probe_jump),
		cmocka_unit_test(stack_switch),
		cmocka_unit_test(exceptions),
		cmocka_unit_test(long_jump),
		cmocka_unit_test(call_not_traced),
		cmocka_unit_test(tail_call_not_traced),
		cmocka_unit_test(stop_and_start),
		cmocka_unit_test(fixed_up_fault),
		cmocka_unit_test(signals),
		cmocka_unit_test(return_over_frames),
		cmocka_unit_test(gaps),
		cmocka_unit_test(begins_anew),
		cmocka_unit_test(signal_at_entry),
		cmocka_unit_test(not_really_branches),
		cmocka_unit_test(endless_recursion),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
