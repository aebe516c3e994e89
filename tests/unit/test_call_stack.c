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
 * 0x6000 handler, 0x2800 f.cold, 0x7000 entry.
 */
static const char kallsyms[] =
	"ffffffff81001000 T outer\nffffffff81002000 T f\nffffffff81002800 t f.cold\nffffffff81003000 T g\n"
	"ffffffff81004000 T h\nffffffff81005000 T __x86_indirect_thunk_rax\nffffffff81006000 T handler\n"
	"ffffffff81007000 T entry\nffffffff81008000 T end\n";

#define BASE	0xffffffff81000000ull

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

/* What the stream makes of instructions: a branch is told once it is known where it went. */
static struct {
	uint64_t at, next;
	enum ptw_insn_class class;
	bool valid;
} branch;

static bool place(void *context, uint64_t addr, struct ptw_place *out)
{
	out->symbol = symbols ? ptw_symbols_at(symbols, addr) : NULL;
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
		[PTW_INSN_CALL] = PTW_FLOW_CALL, [PTW_INSN_RETURN] = PTW_FLOW_RETURN, [PTW_INSN_JUMP] = PTW_FLOW_JUMP,
		[PTW_INSN_COND_JUMP] = PTW_FLOW_JUMP, [PTW_INSN_FAR_CALL] = PTW_FLOW_SYSCALL,
		[PTW_INSN_FAR_RETURN] = PTW_FLOW_FAR_RETURN, [PTW_INSN_FAR_JUMP] = PTW_FLOW_JUMP,
	};

	if (!branch.valid)
		return;
	branch.valid = false;
	if (to != branch.next || branch.class == PTW_INSN_CALL)
		take(kinds[branch.class], branch.at, to, branch.next);
}

static void insn(uint64_t at, enum ptw_insn_class class)
{
	arrive(BASE + at);
	/* Instructions that are no branches are runs. */
	take(PTW_FLOW_RUN, BASE + at, BASE + at, 1);
	branch.valid = class != PTW_INSN_OTHER && class != PTW_INSN_PTWRITE;
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
	insn(0x1010, PTW_INSN_OTHER);
	insn(0x1015, PTW_INSN_CALL);
	insn(0x2000, PTW_INSN_CALL);
	insn(0x3000, PTW_INSN_RETURN);
	insn(0x2005, PTW_INSN_RETURN);
	insn(0x101a, PTW_INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1015; call@2 3000<2000; ret; ret");
}

/* The trace begins deep inside: returns to functions that nobody saw being called. */
static void outer_frames(void **state)
{
	begin();
	insn(0x3010, PTW_INSN_RETURN);
	insn(0x2010, PTW_INSN_RETURN);
	insn(0x1010, PTW_INSN_CALL);
	insn(0x4000, PTW_INSN_OTHER);
	end("begin@0 3010<0; outer@-1 2010<3010; outer@-2 1010<2010; call@-1 4000<1010");
}

static void interrupts(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_CALL);
	event(PTW_EVENT_ASYNC_BRANCH, 0x2000, 0x6000);	/* before f's first instruction */
	insn(0x6000, PTW_INSN_CALL);
	insn(0x4000, PTW_INSN_RETURN);
	insn(0x6005, PTW_INSN_FAR_RETURN);
	insn(0x2000, PTW_INSN_RETURN);
	insn(0x1015, PTW_INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; intr@2 6000<2000; call@3 4000<6000; ret; ret; ret");
}

static void system_calls(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_FAR_CALL);
	insn(0x7000, PTW_INSN_FAR_RETURN);
	insn(0x1015, PTW_INSN_OTHER);
	insn(0x101a, PTW_INSN_FAR_CALL);
	event(PTW_EVENT_DISABLED, 0, 0);		/* not traced */
	event(PTW_EVENT_ENABLED, 0, 0x101f);
	insn(0x101f, PTW_INSN_OTHER);
	end("begin@0 1010<0; syscall@1 7000<1010; ret; syscall@1 0<101a; ret");
}

static void tail_calls(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_CALL);
	insn(0x2000, PTW_INSN_JUMP);		/* to the function's own cold part and back */
	insn(0x2800, PTW_INSN_JUMP);
	insn(0x2020, PTW_INSN_COND_JUMP);	/* not taken */
	insn(0x2025, PTW_INSN_JUMP);
	insn(0x3000, PTW_INSN_RETURN);
	insn(0x1015, PTW_INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; ret; tail@1 3000<2025; ret");
}

/* call thunk; in it: call over a pause loop, overwrite the return address, ret to the target. */
static void retpoline(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_CALL);
	insn(0x5000, PTW_INSN_CALL);
	insn(0x5010, PTW_INSN_RETURN);
	insn(0x4000, PTW_INSN_RETURN);
	insn(0x1015, PTW_INSN_OTHER);
	end("begin@0 1010<0; call@1 4000<1014; ret");
}

static void stack_switch(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_CALL);
	insn(0x2000, PTW_INSN_RETURN);
	insn(0x4010, PTW_INSN_RETURN);
	insn(0x3010, PTW_INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; switch@0 4010<2000; outer@-1 3010<4010");
}

/* longjmp and the like: out of several functions at once. */
static void return_over_frames(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_CALL);
	insn(0x2000, PTW_INSN_CALL);
	insn(0x3000, PTW_INSN_CALL);
	insn(0x4000, PTW_INSN_RETURN);
	insn(0x1015, PTW_INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; call@2 3000<2000; call@3 4000<3000; ret; ret; ret");
}

static void gaps(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_CALL);
	insn(0x2000, PTW_INSN_CALL);
	branch.valid = false;
	take(PTW_FLOW_GAP, 0, 0, 0);
	insn(0x3000, PTW_INSN_OTHER);
	end("begin@0 1010<0; call@1 2000<1010; gap@0 0<0; begin@0 3000<0");
}

/* Addresses that only push: call to the next instruction; iret to the next instruction. */
static void not_really_branches(void **state)
{
	begin();
	insn(0x1010, PTW_INSN_CALL);
	insn(0x1015, PTW_INSN_FAR_RETURN);
	insn(0x101a, PTW_INSN_OTHER);
	end("begin@0 1010<0");
}

static void endless_recursion(void **state)
{
	int i;

	begin();
	stack.on_return = NULL;
	for (i = 0; i < 100000; i++)
		insn(0x2000, PTW_INSN_CALL);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_and_returns),
		cmocka_unit_test(outer_frames),
		cmocka_unit_test(interrupts),
		cmocka_unit_test(system_calls),
		cmocka_unit_test(tail_calls),
		cmocka_unit_test(retpoline),
		cmocka_unit_test(stack_switch),
		cmocka_unit_test(return_over_frames),
		cmocka_unit_test(gaps),
		cmocka_unit_test(not_really_branches),
		cmocka_unit_test(endless_recursion),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
