// SPDX-License-Identifier: BSD-2-Clause
/* What threads did, from flows written by hand. */
#include "flow_script.h"

#include <stdio.h>

static char told[4096];

static int on_event(void *context, const struct ptw_story_event *event)
{
	static const char *const kinds[] = { "enter", "leave", "out", "in", "marker", "gap", "over", "point" };
	static const char *const frames[] = { "begin", "stack", "call", "tail", "irq", "exc", "sys" };
	size_t used = strlen(told);
	char buf[32];

	/* Those of the record at hand, or of the last one */
	assert_true(event->has_time);
	assert_int_equal(event->insns, flow_insns);
	assert_int_equal(event->trace, 0);

	used += snprintf(told + used, sizeof(told) - used, "%s%d:%s", used ? "\n" : "", (int)event->time, kinds[event->kind]);
	if (event->thread->index)
		used += snprintf(told + used, sizeof(told) - used, "/t%d", (int)event->thread->index);
	if (event->kind == PTW_STORY_ENTER)
		snprintf(told + used, sizeof(told) - used, " %s %s", frames[event->frame->kind],
			 ptw_frame_name(event->frame, buf, sizeof(buf)));
	else if (event->kind == PTW_STORY_LEAVE)
		snprintf(told + used, sizeof(told) - used, "%s %s %d/%d/%d", event->cut ? " cut" : "",
			 ptw_frame_name(event->frame, buf, sizeof(buf)), (int)event->frame->total,
			 (int)event->frame->on_cpu, (int)event->frame->self);
	else if (event->kind == PTW_STORY_MARKER)
		snprintf(told + used, sizeof(told) - used, " %x", (int)event->value);
	return 0;
}

static void begin(void)
{
	told[0] = '\0';
	flow_begin(on_event, NULL);
}

static void end(const char *expected)
{
	flow_end();
	assert_string_equal(told, expected);
}

/* Total is from call to return; self is without what was called. */
static void totals_and_selves(void **state)
{
	begin();
	flow_in(0, "main");
	flow_call(10, "main", "serve");
	flow_call(30, "serve", "matmul");
	flow_return(70, "matmul");
	flow_return(100, "serve");
	end("0:in\n0:enter begin main\n10:enter call serve\n30:enter call matmul\n70:leave matmul 40/40/40\n"
	    "100:leave serve 90/90/50\n100:leave cut main 100/100/10");
}

/* The time of an interrupt is not the function's own; a fault is the thread's, but no time of the function itself. */
static void interrupts_and_faults(void **state)
{
	begin();
	flow_in(0, "main");
	flow_call(10, "main", "serve");
	flow_interrupt(20, "serve", "asm_sysvec_timer");
	flow_call(25, "asm_sysvec_timer", "handle_softirqs");
	flow_return(45, "handle_softirqs");
	flow_iret(50, "asm_sysvec_timer");
	flow_interrupt(60, "serve", "asm_exc_page_fault");
	flow_iret(65, "asm_exc_page_fault");
	flow_return(100, "serve");
	end("0:in\n0:enter begin main\n10:enter call serve\n20:enter irq asm_sysvec_timer\n25:enter call handle_softirqs\n"
	    "45:leave handle_softirqs 20/20/20\n50:leave asm_sysvec_timer 30/30/10\n60:enter exc asm_exc_page_fault\n"
	    "65:leave asm_exc_page_fault 5/5/5\n100:leave serve 90/90/55\n100:leave cut main 100/100/10");
}

/* A thread sleeps in schedule(), another runs meanwhile, and it goes on, on another CPU. */
static void sleeps_and_moves(void **state)
{
	begin();
	flow_in(0, "main");
	flow_call(10, "main", "serve");
	flow_call(20, "serve", "schedule");
	flow_switch(30, 1, 0);
	flow_call(40, "main", "matmul");
	flow_return(60, "matmul");
	flow_switch(230, 0, 1);
	flow_return(240, "schedule");
	flow_return(250, "serve");
	flow_end();
	assert_string_equal(told,
		"0:in\n0:enter begin main\n10:enter call serve\n20:enter call schedule\n30:out\n30:in/t1\n"
		"40:enter/t1 begin main\n40:enter/t1 call matmul\n60:leave/t1 matmul 20/20/20\n"
		"230:in\n240:leave schedule 220/20/20\n250:leave serve 240/40/20\n250:leave cut main 250/50/10\n"
		"250:leave/t1 cut main 210/210/190");
}

/* Of a stack that is not known any more nothing is said to have returned. */
static void gaps_cut(void **state)
{
	begin();
	flow_in(0, "main");
	flow_call(10, "main", "serve");
	flow_take(PTW_FLOW_GAP, 50, 0, 0x3010, 0);
	end("0:in\n0:enter begin main\n10:enter call serve\n50:leave cut serve 40/40/40\n50:leave cut main 50/50/10\n"
	    "50:enter begin prefill\n50:gap\n50:leave cut prefill 0/0/0");
}

/* Where only the kernel is traced, tracing begins at its entry. */
static void kernel_only(void **state)
{
	begin();
	flow_take(PTW_FLOW_BEGIN, 0, 0, flow_address("entry_SYSCALL_64"), 0);
	flow_call(10, "entry_SYSCALL_64", "serve");
	flow_return(20, "serve");
	flow_take(PTW_FLOW_FAR_RETURN, 30, flow_address("entry_SYSCALL_64") + 0x100, 0, 0);
	flow_take(PTW_FLOW_BEGIN, 90, 0, flow_address("asm_sysvec_timer"), 0);
	end("0:in\n0:enter sys entry_SYSCALL_64\n10:enter call serve\n20:leave serve 10/10/10\n"
	    "30:leave entry_SYSCALL_64 30/30/20\n90:enter irq asm_sysvec_timer\n90:leave cut asm_sysvec_timer 0/0/0");
}

static void markers(void **state)
{
	begin();
	flow_in(0, "main");
	flow_marker(5, "main", 0xa0);
	end("0:in\n0:enter begin main\n5:marker a0\n5:leave cut main 5/5/5");
}

/*
 * A breakpoint at a function stops tracing, one at another begins it again: what was done meanwhile is nobody's, and the
 * other function is entered. What is left is at the end cut off where tracing ended.
 */
static void begins_anew(void **state)
{
	begin();
	for (uint64_t time = 0; time < 200; time += 100) {
		flow_take(PTW_FLOW_BEGIN, time, 0, flow_address("start_here"), 0);
		flow_take(PTW_FLOW_RETURN, time + 10, flow_address("start_here") + 8, flow_address("main") + 0x25, 0);
		flow_call(time + 20, "main", "end_here");
		flow_take(PTW_FLOW_INTERRUPT, time + 25, flow_address("end_here"), 0, 0);
		flow_take(PTW_FLOW_END, time + 25, flow_address("end_here"), 0, 1);
		flow_switch(time + 40, 1, 0);
		flow_switch(time + 60, 0, 0);
	}
	end("0:in\n0:enter begin start_here\n10:leave start_here 10/10/10\n10:enter begin main\n20:enter call end_here\n"
	    "25:enter irq [not traced]\n40:out\n40:in/t1\n60:out/t1\n60:in\n"
	    "100:leave cut [not traced] 0/0/0\n100:leave cut end_here 5/5/5\n100:leave cut main 15/15/10\n"
	    "100:enter begin start_here\n110:leave start_here 10/10/10\n110:enter begin main\n120:enter call end_here\n"
	    "125:enter irq [not traced]\n140:out\n140:in/t1\n160:out/t1\n160:in\n"
	    "160:leave cut [not traced] 0/0/0\n160:leave cut end_here 5/5/5\n160:leave cut main 15/15/10");
}

/* A thread that exits leaves all its functions, when it ran last, and is forgotten: one that has its number later is another. */
static void exits(void **state)
{
	begin();
	flow_in(0, "main");
	flow_call(10, "main", "serve");
	flow_switch(20, 1, 0);
	flow_in(20, "prefill");
	flow_call(25, "prefill", "matmul");
	flow_exit(40, 0);
	assert_null(ptw_story_thread(flow_story, 1));
	flow_return(50, "serve");
	flow_switch(60, 1, 0);
	flow_in(60, "decode");
	end("0:in\n0:enter begin main\n10:enter call serve\n20:out\n20:in/t1\n20:enter/t1 begin prefill\n25:enter/t1 call matmul\n"
	    "40:out/t1\n40:leave/t1 cut matmul 15/15/15\n40:leave/t1 cut prefill 20/20/5\n40:over/t1\n40:in\n"
	    "50:leave serve 40/20/20\n60:out\n60:in/t1\n60:enter/t1 begin decode\n"
	    "60:leave cut main 60/40/20\n60:leave/t1 cut decode 0/0/0");
}

static size_t frames;

static int count_frames(void *context, const struct ptw_story_event *event)
{
	if (event->thread->frame_count > frames)
		frames = event->thread->frame_count;
	return 0;
}

/* Calls without end are no stack: what is outside of so many is left. */
static void endless_calls(void **state)
{
	frames = 0;
	flow_begin(count_frames, NULL);
	flow_in(0, "main");
	for (uint64_t i = 0; i < 400000; i++) {
		uint64_t at = flow_address("serve") + 0x20;

		flow_take(PTW_FLOW_CALL, i, at, flow_address("serve"), at + 5);
	}
	assert_int_equal(frames, 1 << 17);
	flow_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(totals_and_selves), cmocka_unit_test(interrupts_and_faults),
		cmocka_unit_test(sleeps_and_moves),  cmocka_unit_test(gaps_cut),
		cmocka_unit_test(kernel_only),	     cmocka_unit_test(markers),
		cmocka_unit_test(begins_anew),	     cmocka_unit_test(exits),
		cmocka_unit_test(endless_calls),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
