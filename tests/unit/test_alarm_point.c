// SPDX-License-Identifier: BSD-2-Clause
/* The access that raised an alarm, found in traces written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/ptwatch.h>

#include "recording/recording.h"
#include "report/alarm_point.h"
#include "report/call_stack.h"
#include "report/calls.h"
#include "report/insns.h"

#define CODE	0x401000
#define STORE	(CODE + 1)
#define HANDLER	(CODE + 8)

/* nop; mov %eax,(%rbx); nop; nop; ret; nop; nop; handler: nop; nop; ret */
static const uint8_t code[] = { 0x90, 0x89, 0x03, 0x90, 0x90, 0xc3, 0x90, 0x90, 0x90, 0x90, 0xc3 };

#define PSB	0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82
#define MODE64	0x99, 0x01
#define PSBEND	0x02, 0x23
#define PGE	0x71, 0x00, 0x10, 0x40, 0, 0, 0
#define FUP(o)	0x3d, (o), 0x10
#define TIP(o)	0x2d, (o), 0x10
#define PGD	0x01

/* The store runs twice; the second time the exception comes after it, and the freeze on the handler's return. */
static const uint8_t trapped[] = {
	PSB, MODE64, PSBEND, PGE, TIP(0x00), FUP(0x03), TIP(0x08), PGD,
};

/* The same with a kernel that isn't traced: the trace ends at the exception. */
static const uint8_t untraced[] = { PSB, MODE64, PSBEND, PGE, TIP(0x00), FUP(0x03), PGD };

static struct ptw_recorded_trace traces[2] = { { .cpu = 0, .tid = -1 }, { .cpu = 3, .tid = -1 } };
static struct ptw_recording recording;

static void use(const uint8_t *data, size_t size)
{
	traces[1].data = data;
	traces[1].size = size;
	recording.trace = traces;
	recording.trace_count = 2;
}

static void find(uint32_t access, uint64_t ip, struct ptw_alarm_point *point)
{
	struct ptw_alarm alarm = { .cpu = 3, .ip = ip, .access = access };
	struct ptw_error err;

	if (ptw_alarm_point_find(&recording, &alarm, point, &err))
		fail_msg("%s", err.text);
}

static void write_is_found(void **state)
{
	struct ptw_alarm_point point;

	use(trapped, sizeof(trapped));
	find(PTWATCH_ACCESS_W, STORE + 2, &point);
	assert_true(point.found);
	assert_int_equal(point.trace, 1);
	assert_int_equal(point.access_ip, STORE);
	assert_int_equal(point.insn_index, 6);	/* five of the first round, then nop and the store */
	assert_int_equal(point.insns_total, 10);
	assert_int_equal(point.insns_after, 3);
	assert_int_equal(point.gaps, 0);

	use(untraced, sizeof(untraced));
	find(PTWATCH_ACCESS_RW, STORE + 2, &point);
	assert_true(point.found);
	assert_int_equal(point.insn_index, 6);
	assert_int_equal(point.insns_after, 0);
}

/* A watch for execution traps before the instruction. */
static void execution_is_found(void **state)
{
	struct ptw_alarm_point point;

	use(trapped, sizeof(trapped));
	find(PTWATCH_ACCESS_X, STORE + 2, &point);
	assert_true(point.found);
	assert_true(point.access_before);
	assert_int_equal(point.access_ip, STORE);
	assert_int_equal(point.insns_after, 3);
}

static void nothing_is_found(void **state)
{
	struct ptw_alarm alarm = { .cpu = 7, .ip = STORE };
	struct ptw_alarm_point point;
	struct ptw_error err;

	use(trapped, sizeof(trapped));
	find(PTWATCH_ACCESS_W, 0x500000, &point);
	assert_false(point.found);
	assert_int_equal(point.insns_total, 10);
	assert_int_equal(ptw_alarm_point_find(&recording, &alarm, &point, &err), -1);
	assert_non_null(strstr(err.text, "cpu 7"));
}

static struct ptw_stream *stream;

static const struct ptw_thread *get_thread(void *source, uint32_t index)
{
	return ptw_stream_thread(stream, index);
}

static int on_event(void *context, const struct ptw_story_event *event)
{
	return ptw_calls_take(context, event);
}

static void report_calls(const struct ptw_view *view, struct ptw_out *out)
{
	struct ptw_calls_options options = {
		.no_time = true, .tid = -1, .alarm = view->alarm, .point = view->point,
		.alarm_mark = "ALARM #1 write table+0x0", .alarm_number = 1,
	};
	size_t trace = 1;
	struct ptw_stream_options stream_options = { .order = PTW_ORDER_TRACE, .trace = &trace, .traces = 1 };
	struct ptw_story_config config = { .thread = get_thread, .on_event = on_event };
	struct ptw_calls_found found = { 0 };
	const struct ptw_flow *flow;
	struct ptw_story *story;
	struct ptw_error err;
	int ret = 0;

	config.context = ptw_calls_new(&options, out);
	stream = ptw_stream_open(&recording, &stream_options, &err);
	story = ptw_story_new(&config);
	assert_true(config.context && stream && story);
	while (!ret && (flow = ptw_stream_next(stream)))
		ret = ptw_story_take(story, flow);
	assert_int_equal(ret, 1);	/* the alarm ends it */
	assert_int_equal(ptw_calls_end(config.context, &found), 0);
	ptw_calls_free(config.context);
	ptw_story_free(story);
	ptw_stream_close(stream);
}

/* What a report writes for the alarm. */
static char *report(bool calls, bool beyond)
{
	static struct ptw_out out;
	struct ptw_alarm alarm = { .cpu = 3, .ip = STORE + 2, .access = PTWATCH_ACCESS_W, .label = "table+0x0" };
	struct ptw_insns_options insns = { .no_time = true };
	struct ptw_view view = {
		.trace = &traces[1], .params = &recording.params, .image = &recording.image,
		.alarm = &alarm, .alarm_number = 1, .beyond_alarm = beyond,
	};
	struct ptw_error err;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	use(trapped, sizeof(trapped));
	find(alarm.access, alarm.ip, &view.point);
	ptw_out_init(&out, file, false);
	if (calls)
		report_calls(&view, &out);
	else
		assert_int_equal(ptw_report_insns(&view, &insns, &out, &err), 0);
	assert_int_equal(ptw_out_flush(&out), 0);
	fclose(file);
	return text;
}

static void reports_end_at_the_access(void **state)
{
	char *text = report(false, false);
	const char *last = strstr(text, "<-- ALARM #1 write table+0x0\n");

	assert_non_null(last);
	assert_string_equal(strchr(last, '\n'), "\n");
	free(text);

	text = report(false, true);
	last = strstr(text, "<-- ALARM #1 write table+0x0\n");
	assert_non_null(last);
	assert_non_null(strstr(last, "0000000000401008"));
	free(text);

	text = report(true, false);
	last = strstr(text, "<-- ALARM #1 write table+0x0\n");
	assert_non_null(last);
	assert_string_equal(strchr(last, '\n'), "\n");
	free(text);
}

static int setup(void **state)
{
	char path[] = "/tmp/ptwatch-test-XXXXXX";
	int fd = mkstemp(path);
	struct ptw_error err;

	if (fd < 0 || write(fd, code, sizeof(code)) != sizeof(code))
		return -1;
	close(fd);
	*state = strdup(path);
	return ptw_image_add(&recording.image, path, 0, sizeof(code), CODE, &err);
}

static int teardown(void **state)
{
	unlink(*state);
	free(*state);
	ptw_image_free(&recording.image);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_is_found),
		cmocka_unit_test(execution_is_found),
		cmocka_unit_test(nothing_is_found),
		cmocka_unit_test(reports_end_at_the_access),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
