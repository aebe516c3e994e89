// SPDX-License-Identifier: BSD-2-Clause
/* What calls, flame, timeline and markers write, from one flow written by hand. */
#include "flow_script.h"

#include <stdio.h>
#include <stdlib.h>

#include "report/calls.h"
#include "report/flame.h"
#include "report/markers.h"
#include "report/stat.h"
#include "report/timeline.h"

static struct ptw_out out;
static char *text;
static size_t size;
static FILE *file;

/* A thread serves, is interrupted, sleeps while another runs, and goes on. */
static void play(int (*on_event)(void *context, const struct ptw_story_event *event), void *context)
{
	flow_begin(on_event, context);
	flow_in(1000, "main");
	flow_call(2000, "main", "serve");
	flow_marker(2500, "serve", 0xa0ull << 56 | 7);
	flow_call(3000, "serve", "matmul");
	flow_interrupt(3500, "matmul", "asm_sysvec_timer");
	flow_iret(4500, "asm_sysvec_timer");
	flow_return(5000, "matmul");
	flow_call(6000, "serve", "schedule");
	flow_switch(7000, 1, 0);
	flow_in(7000, "main");
	flow_call(7500, "main", "memcpy");
	flow_return(8000, "memcpy");
	flow_switch(9000, 0, 0);
	flow_return(9500, "schedule");
	flow_return(10000, "serve");
}

static void open_out(void)
{
	file = open_memstream(&text, &size);
	ptw_out_init(&out, file, false);
}

static void close_out(const char *expected)
{
	assert_int_equal(ptw_out_flush(&out), 0);
	fclose(file);
	assert_string_equal(text, expected);
	free(text);
}

static int on_calls(void *context, const struct ptw_story_event *event)
{
	assert_true(ptw_calls_take(context, event) >= 0);
	return 0;
}

static void report_calls(struct ptw_calls_options options, const char *expected, int count)
{
	struct ptw_calls_found found = { 0 };
	struct ptw_calls *calls;

	open_out();
	options.width = 120;
	calls = ptw_calls_new(&options, &out);
	assert_non_null(calls);
	play(on_calls, calls);
	assert_int_equal(ptw_calls_end(calls, &found), 0);
	assert_int_equal(found.calls, count);
	ptw_calls_free(calls);
	ptw_story_free(flow_story);
	close_out(expected);
}

/* Each thread has its own depth; self is without callees, interrupts and sleep. */
static void calls_tree(void **state)
{
	report_calls((struct ptw_calls_options){ .tid = -1 },
		     "     0.000001000                         0  --- thread 100 (t0) runs\n"
		     "     0.000001000                         0  --- begins in main+0x10\n"
		     "     0.000002000    8.000us    2.500us   0    serve+0x0 <- main+0x2a\n"
		     "     0.000002500                         0      *** marker 0xa000000000000007 at serve+0x30\n"
		     "     0.000003000    2.000us    1.000us   0      matmul+0x0 <- serve+0x3e\n"
		     "     0.000003500    1.000us    1.000us   0        === interrupt → asm_sysvec_timer+0x0 at matmul+0x800\n"
		     "     0.000006000    3.500us    1.500us   0      schedule+0x0 <- serve+0x43\n"
		     "     0.000007000                         0  --- thread 101 (t1) runs\n"
		     "     0.000007000                         0  --- begins in main+0x10\n"
		     "     0.000007500      500ns      500ns   0    memcpy+0x0 <- main+0x6b\n"
		     "     0.000009000                         0      --- thread 100 (t0) runs\n",
		     5);
}

/* Of whoever runs while nothing is traced only the time is told, by what it leaves to others. */
static void calls_untraced(void **state)
{
	struct ptw_calls *calls = ptw_calls_new(&(struct ptw_calls_options){ .tid = -1, .width = 120 }, &out);
	struct ptw_calls_found found = { 0 };

	open_out();
	flow_begin(on_calls, calls);
	flow_in(1000, "main");
	flow_syscall(2000, "main", "entry_SYSCALL_64");
	flow_switch(3000, 1, 0);
	flow_switch(5000, 2, 0);
	flow_switch(8000, 0, 0);
	flow_switch(8500, 1, 0);
	flow_switch(9000, 0, 0);
	flow_iret(10000, "entry_SYSCALL_64");
	flow_switch(11000, 1, 0);
	assert_int_equal(ptw_calls_end(calls, &found), 0);
	ptw_calls_free(calls);
	ptw_story_free(flow_story);
	close_out("     0.000001000                         0  --- thread 100 (t0) runs\n"
		  "     0.000001000                         0  --- begins in main+0x10\n"
		  "     0.000002000    8.000us    2.500us   0    === system call → entry_SYSCALL_64+0x0 at main+0x800\n"
		  "     0.000009000                         0    --- thread 100 (t0) runs\n");
}

static void calls_of_a_thread(void **state)
{
	report_calls((struct ptw_calls_options){ .tid = 101, .no_time = true },
		     "  0  --- thread 101 (t1) runs\n  0  --- begins in main+0x10\n  0    memcpy+0x0 <- main+0x6b\n", 1);
}

/* What is near, and the calls that led there. */
static void calls_around(void **state)
{
	/* By its address, as the kernel's are, and by name. */
	const struct ptw_function schedule = { .address = flow_address("schedule") }, named = { .name = "schedule" };
	const struct ptw_function elsewhere = { .name = "schedule", .object = "other" };
	static const char expected[] =
		"  0  --- begins in main+0x10\n  0    serve+0x0 <- main+0x2a\n…\n"
		"  0        === interrupt → asm_sysvec_timer+0x0 at matmul+0x800\n"
		"  0      schedule+0x0 <- serve+0x43\n  0  --- thread 101 (t1) runs\n";

	report_calls((struct ptw_calls_options){ .tid = -1, .around = &schedule, .context = 1, .no_time = true }, expected, 3);
	report_calls((struct ptw_calls_options){ .tid = -1, .around = &named, .context = 1, .no_time = true }, expected, 3);
	report_calls((struct ptw_calls_options){ .tid = -1, .around = &elsewhere, .context = 1, .no_time = true }, "", 0);
}

/* The tree around a function: what led there, and so many levels below it, wherever in the stack it is. */
static void calls_around_depth(void **state)
{
	const struct ptw_function serve = { .name = "serve" }, schedule = { .name = "schedule" };
	static const char main_line[] = "  0  --- begins in main+0x10\n  0    serve+0x0 <- main+0x2a\n";
	char expected[1024];

	snprintf(expected, sizeof(expected),
		 "%s  0      *** marker 0xa000000000000007 at serve+0x30\n"
		 "  0      matmul+0x0 <- serve+0x3e\n…\n"
		 "  0      schedule+0x0 <- serve+0x43\n…\n"
		 "  0      --- thread 100 (t0) runs\n", main_line);
	report_calls((struct ptw_calls_options){ .tid = -1, .around = &serve, .depth = 1, .no_time = true }, expected, 3);
	snprintf(expected, sizeof(expected), "%s…\n  0      schedule+0x0 <- serve+0x43\n…\n  0      --- thread 100 (t0) runs\n",
		 main_line);
	report_calls((struct ptw_calls_options){ .tid = -1, .around = &schedule, .depth = 1, .no_time = true }, expected, 2);
	/* What ran before it is as near as ever. */
	snprintf(expected, sizeof(expected),
		 "%s…\n  0        === interrupt → asm_sysvec_timer+0x0 at matmul+0x800\n"
		 "  0      schedule+0x0 <- serve+0x43\n  0  --- thread 101 (t1) runs\n…\n  0      --- thread 100 (t0) runs\n", main_line);
	report_calls((struct ptw_calls_options){ .tid = -1, .around = &schedule, .depth = 1, .context = 1, .no_time = true }, expected, 3);
}

/* The last lines of those that are wanted, however many others come after them. */
static void calls_tail_of_some(void **state)
{
	const struct ptw_function matmul = { .name = "matmul" };

	report_calls((struct ptw_calls_options){ .tid = -1, .around = &matmul, .tail = 2, .no_time = true },
		     "  0    serve+0x0 <- main+0x2a\n…\n  0      matmul+0x0 <- serve+0x3e\n", 2);
	report_calls((struct ptw_calls_options){ .tid = 100, .depth = 3, .tail = 3, .no_time = true },
		     "  0      matmul+0x0 <- serve+0x3e\n  0      schedule+0x0 <- serve+0x43\n  0      --- thread 100 (t0) runs\n", 2);
}

#define MANY	70000	/* more lines than wait to be written */

/* Who called it is told, however long ago. */
static void calls_around_after_many(void **state)
{
	const struct ptw_function matmul = { .name = "matmul" };
	struct ptw_calls_options options = { .tid = -1, .around = &matmul, .depth = 1, .no_time = true };
	struct ptw_calls_found found = { 0 };
	struct ptw_calls *calls;
	uint64_t time = 2000;

	open_out();
	calls = ptw_calls_new(&options, &out);
	assert_non_null(calls);
	flow_begin(on_calls, calls);
	flow_switch(1000, 0, 0);
	flow_in(1000, "main");
	flow_call(time, "main", "serve");
	for (int i = 0; i < MANY; i++) {
		flow_call(++time, "serve", "memcpy");
		flow_return(++time, "memcpy");
	}
	/* The second time they are known. */
	for (int i = 0; i < 2; i++) {
		flow_call(++time, "serve", "matmul");
		flow_return(++time, "matmul");
	}
	flow_return(++time, "serve");
	assert_int_equal(ptw_calls_end(calls, &found), 0);
	assert_int_equal(found.lines, 4);
	assert_int_equal(found.entries, 2);
	ptw_calls_free(calls);
	ptw_story_free(flow_story);
	close_out("  0  --- begins in main+0x10\n  0    serve+0x0 <- main+0x2a\n  0      matmul+0x0 <- serve+0x3e\n"
		  "  0      matmul+0x0 <- serve+0x3e\n");
}

/* A call, alone, on a terminal of that width. */
static void calls_line(const char *callee, const char *caller, int width, const char *expected)
{
	struct ptw_calls_options options = { .tid = -1, .tail = 1, .no_time = true, .width = width };
	struct ptw_calls_found found = { 0 };
	struct ptw_calls *calls;

	open_out();
	calls = ptw_calls_new(&options, &out);
	assert_non_null(calls);
	flow_begin(on_calls, calls);
	flow_in(1000, caller);
	flow_call(2000, caller, callee);
	assert_int_equal(ptw_calls_end(calls, &found), 0);
	ptw_calls_free(calls);
	ptw_story_free(flow_story);
	close_out(expected);
}

/* Where a line would be too long, the middle of names is left out, of the longer one first, and never the end. */
static void calls_narrow(void **state)
{
	static const char name[] = "a_name_that_is_much_too_long_for_any_terminal_of_this_world";

	calls_line(name, "main", 0, "  0    a_name_that_is_much_too_long_for_any_terminal_of_this_world+0x0 <- main+0x98\n");
	calls_line(name, "main", 60, "  0    a_name_that_is_muc…nal_of_this_world+0x0 <- main+0x98\n");
	calls_line("main", name, 60, "  0    main+0x0 <- a_name_that_is_muc…nal_of_this_world+0x25\n");
	calls_line(name, name, 64, "  0    a_name_that…this_world+0x0 <- a_name_that…this_world+0x98\n");
	/* Enough is left to know it by. */
	calls_line(name, name, 40, "  0    a_name_t…s_world+0x0 <- a_name_t…s_world+0x98\n");
}

static void calls_depth_and_json(void **state)
{
	report_calls((struct ptw_calls_options){ .tid = 100, .depth = 2, .format = PTW_FORMAT_JSON },
		     "{\"type\":\"switch\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":1000,\"depth\":0}\n"
		     "{\"type\":\"begin\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":1000,\"depth\":0,"
		     "\"ip\":\"0x0000000000001010\",\"symbol\":\"main+0x10\"}\n"
		     "{\"type\":\"call\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":2000,\"duration_ns\":8000,"
		     "\"self_ns\":2500,\"depth\":1,\"ip\":\"0x0000000000002000\",\"symbol\":\"serve+0x0\",\"from\":\"0x000000000000102a\","
		     "\"caller\":\"main+0x2a\"}\n"
		     "{\"type\":\"switch\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":9000,\"depth\":2}\n",
		     1);
}

static int on_flame(void *context, const struct ptw_story_event *event)
{
	return ptw_flame_take(context, event);
}

static void flame_folded(void **state)
{
	struct ptw_flame *flame = ptw_flame_new(false, -1);

	open_out();
	play(on_flame, flame);
	flow_end();
	ptw_flame_write_folded(flame, &out);
	ptw_flame_free(flame);
	close_out("t0-100;main 1000\nt0-100;main;serve 2500\nt0-100;main;serve;matmul 1000\n"
		  "t0-100;main;serve;matmul;asm_sysvec_timer 1000\nt0-100;main;serve;schedule 1500\n"
		  "t1-101;main 1500\nt1-101;main;memcpy 500\n");
}

/* Code of a file without symbols is an address and the file. */
static void play_unnamed(int (*on_event)(void *context, const struct ptw_story_event *event), void *context)
{
	flow_begin(on_event, context);
	flow_in(1000, "main");
	flow_take(PTW_FLOW_CALL, 2000, 0x1020, FLOW_UNNAMED + 0x40, 0x1025);
	flow_take(PTW_FLOW_CALL, 3000, FLOW_UNNAMED + 0x50, 0x2000, FLOW_UNNAMED + 0x55);
	flow_take(PTW_FLOW_RETURN, 4000, 0x2010, FLOW_UNNAMED + 0x55, 0);
	flow_take(PTW_FLOW_MARKER, 4000, FLOW_UNNAMED + 0x60, 0, 1);
	flow_take(PTW_FLOW_RETURN, 5000, FLOW_UNNAMED + 0x70, 0x1025, 0);
}

static void calls_unnamed(enum ptw_format format, const char *expected)
{
	struct ptw_calls_options options = { .tid = -1, .no_time = true, .format = format };
	struct ptw_calls_found found = { 0 };
	struct ptw_calls *calls;

	open_out();
	calls = ptw_calls_new(&options, &out);
	assert_non_null(calls);
	play_unnamed(on_calls, calls);
	assert_int_equal(ptw_calls_end(calls, &found), 0);
	ptw_calls_free(calls);
	ptw_story_free(flow_story);
	close_out(expected);
}

static int on_timeline(void *context, const struct ptw_story_event *event)
{
	return ptw_timeline_take(context, event);
}

static void timeline_of_a_thread(void **state)
{
	struct ptw_marker_format format = { .count = 0 };
	struct ptw_timeline_options options = { .tid = 101, .format = &format };
	struct ptw_timeline *timeline;
	struct ptw_error err;

	assert_int_equal(ptw_marker_format_parse(&format, PTW_MARKER_DEFAULT, &err), 0);
	open_out();
	timeline = ptw_timeline_new(&options, &out);
	play(on_timeline, timeline);
	flow_end();
	ptw_timeline_end(timeline);
	ptw_timeline_free(timeline);
	close_out("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
		  "{\"ph\":\"M\",\"pid\":100,\"tid\":101,\"ts\":0.000,\"name\":\"thread_name\",\"args\":{\"name\":\"t1\"}},\n"
		  "{\"ph\":\"B\",\"pid\":100,\"tid\":101,\"ts\":7.000,\"name\":\"main\",\"cat\":\"running\"},\n"
		  "{\"ph\":\"B\",\"pid\":100,\"tid\":101,\"ts\":7.500,\"name\":\"memcpy\",\"cat\":\"call\"},\n"
		  "{\"ph\":\"E\",\"pid\":100,\"tid\":101,\"ts\":8.000,\"name\":\"memcpy\"},\n"
		  "{\"ph\":\"M\",\"pid\":8388608,\"tid\":1,\"ts\":0.000,\"name\":\"process_name\",\"args\":{\"name\":\"CPUs\"}},\n"
		  "{\"ph\":\"M\",\"pid\":8388608,\"tid\":1,\"ts\":0.000,\"name\":\"thread_name\",\"args\":{\"name\":\"CPU 0\"}},\n"
		  "{\"ph\":\"X\",\"pid\":8388608,\"tid\":1,\"ts\":7.000,\"dur\":2.000,\"name\":\"t1\",\"cat\":\"thread\"},\n"
		  "{\"ph\":\"E\",\"pid\":100,\"tid\":101,\"ts\":9.000,\"name\":\"main\"}\n]}\n");
}

static int on_marker(void *context, const struct ptw_story_event *event)
{
	return ptw_markers_take(context, event);
}

static void markers_fields(void **state)
{
	struct ptw_marker_format format = { .count = 0 };
	struct ptw_markers markers = { .format = &format, .out = &out };
	struct ptw_error err;

	assert_int_equal(ptw_marker_format_parse(&format, "type:8 cpu:8, id:48", &err), 0);
	assert_int_equal(ptw_marker_names_parse(&format, "0xA0=start", &err), 0);
	open_out();
	play(on_marker, &markers);
	flow_end();
	close_out("     0.000002500   0  100 (t0)               a000000000000007  type start    cpu 0x0 id 0x7  serve+0x30\n");
	assert_int_equal(markers.count, 1);
	open_out();
	markers.json = true;
	play(on_marker, &markers);
	flow_end();
	close_out("{\"type\":\"marker\",\"time_ns\":2500,\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"value\":\"0xa000000000000007\","
		  "\"name\":\"start\",\"fields\":{\"type\":\"0xa0\",\"cpu\":\"0x0\",\"id\":\"0x7\"},\"ip\":\"0x0000000000002030\","
		  "\"symbol\":\"serve+0x30\"}\n");
}

static void unnamed_code(void **state)
{
	struct ptw_marker_format format = { .count = 0 };
	struct ptw_timeline_options timeline_options = { .tid = -1, .format = &format };
	struct ptw_markers markers = { .format = &format, .out = &out };
	struct ptw_flame *flame = ptw_flame_new(false, -1);
	struct ptw_timeline *timeline;
	struct ptw_error err;

	calls_unnamed(PTW_FORMAT_TEXT,
		      "  0  --- thread 100 (t0) runs\n"
		      "  0  --- begins in main+0x10\n"
		      "  0    0x00007f0000000040 [libx.so] <- main+0x20\n"
		      "  0      serve+0x0 <- 0x00007f0000000050 [libx.so]\n"
		      "  0      *** marker 0x1 at 0x00007f0000000060 [libx.so]\n");
	calls_unnamed(PTW_FORMAT_JSON,
		      "{\"type\":\"switch\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":1000,\"depth\":0}\n"
		      "{\"type\":\"begin\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":1000,\"depth\":0,"
		      "\"ip\":\"0x0000000000001010\",\"symbol\":\"main+0x10\"}\n"
		      "{\"type\":\"call\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":2000,\"duration_ns\":3000,"
		      "\"self_ns\":2000,\"depth\":1,\"ip\":\"0x00007f0000000040\",\"module\":\"libx.so\","
		      "\"from\":\"0x0000000000001020\",\"caller\":\"main+0x20\"}\n"
		      "{\"type\":\"call\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":3000,\"duration_ns\":1000,"
		      "\"self_ns\":1000,\"depth\":2,\"ip\":\"0x0000000000002000\",\"symbol\":\"serve+0x0\","
		      "\"from\":\"0x00007f0000000050\",\"caller_module\":\"libx.so\"}\n"
		      "{\"type\":\"marker\",\"cpu\":0,\"pid\":100,\"tid\":100,\"comm\":\"t0\",\"time_ns\":4000,\"depth\":2,"
		      "\"ip\":\"0x00007f0000000060\",\"module\":\"libx.so\",\"value\":\"0x0000000000000001\"}\n");
	open_out();
	play_unnamed(on_flame, flame);
	flow_end();
	ptw_flame_write_folded(flame, &out);
	ptw_flame_free(flame);
	close_out("t0-100;main 1000\nt0-100;main;0x7f0000000040 [libx.so] 2000\nt0-100;main;0x7f0000000040 [libx.so];serve 1000\n");

	assert_int_equal(ptw_marker_format_parse(&format, "type:64", &err), 0);
	open_out();
	timeline = ptw_timeline_new(&timeline_options, &out);
	play_unnamed(on_timeline, timeline);
	flow_end();
	ptw_timeline_end(timeline);
	ptw_timeline_free(timeline);
	assert_int_equal(ptw_out_flush(&out), 0);
	fclose(file);
	assert_non_null(strstr(text, "\"ts\":2.000,\"name\":\"0x7f0000000040 [libx.so]\",\"cat\":\"call\"}"));
	free(text);

	open_out();
	play_unnamed(on_marker, &markers);
	flow_end();
	assert_int_equal(ptw_out_flush(&out), 0);
	fclose(file);
	assert_non_null(strstr(text, "  0x00007f0000000060 [libx.so]\n"));
	free(text);
}

static const struct ptw_thread *nameless(void *context, uint32_t index)
{
	static const struct ptw_thread thread = { .pid = 174, .tid = 174, .cpu = -1 }, named = { .pid = 7, .tid = 8, .cpu = -1, .comm = "t" };

	return index ? &named : &thread;
}

/* Of a thread whose name nobody told there is the number. */
static void no_name(void **state)
{
	struct ptw_calls_options options = { .tid = -1, .no_time = true };
	struct ptw_stat_thread threads[] = { { .index = 0, .insns = 2, .seen = true }, { .index = 1, .insns = 1, .seen = true } };
	struct ptw_stat stat = { .thread = threads, .thread_count = 2 };
	struct ptw_marker_format format = { 0 };
	struct ptw_markers markers = { .format = &format, .out = &out };
	struct ptw_calls_found found = { 0 };
	struct ptw_flame *flame = ptw_flame_new(false, -1);
	struct ptw_calls *calls;
	struct ptw_error err;

	open_out();
	ptw_stat_write(&stat, nameless, NULL, false, &out);
	assert_int_equal(ptw_out_flush(&out), 0);
	fclose(file);
	assert_non_null(strstr(text, "\n174                                    2 "));
	assert_non_null(strstr(text, "\n8 (t)                                  1 "));
	free(text);

	open_out();
	calls = ptw_calls_new(&options, &out);
	flow_begin(on_calls, calls);
	flow_thread[1].comm[0] = '\0';
	flow_switch(1000, 1, 0);
	flow_in(1000, "main");
	assert_int_equal(ptw_calls_end(calls, &found), 0);
	ptw_calls_free(calls);
	ptw_story_free(flow_story);
	close_out("  0  --- thread 101 runs\n  0  --- begins in main+0x10\n");

	assert_int_equal(ptw_marker_format_parse(&format, "type:64", &err), 0);
	open_out();
	flow_begin(on_marker, &markers);
	flow_thread[0].comm[0] = '\0';
	flow_marker(2500, "serve", 7);
	flow_end();
	close_out("     0.000002500   0  100                    0000000000000007  type 0x7       serve+0x30\n");

	open_out();
	flow_begin(on_flame, flame);
	flow_thread[0].comm[0] = '\0';
	flow_in(1000, "main");
	flow_marker(2000, "main", 7);
	flow_end();
	ptw_flame_write_folded(flame, &out);
	ptw_flame_free(flame);
	close_out("100;main 1000\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_tree),	 cmocka_unit_test(calls_untraced),
		cmocka_unit_test(calls_of_a_thread),	 cmocka_unit_test(calls_around),
		cmocka_unit_test(calls_around_depth), cmocka_unit_test(calls_tail_of_some), cmocka_unit_test(calls_around_after_many),
		cmocka_unit_test(calls_narrow), cmocka_unit_test(calls_depth_and_json), cmocka_unit_test(flame_folded), cmocka_unit_test(timeline_of_a_thread),
		cmocka_unit_test(markers_fields), cmocka_unit_test(no_name), cmocka_unit_test(unnamed_code),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
