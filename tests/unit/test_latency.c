// SPDX-License-Identifier: BSD-2-Clause
/* Latencies and their culprits, from flows written by hand. */
#include "flow_script.h"

#include <stdio.h>
#include <stdlib.h>

#include "report/latency.h"

static struct ptw_latency *latency;

static int on_event(void *context, const struct ptw_story_event *event)
{
	assert_int_equal(ptw_latency_take(latency, event), 0);
	return 0;
}

static struct ptw_point entry(const char *name)
{
	struct ptw_point point = { .kind = PTW_POINT_ENTRY, .function = { .address = flow_address(name) } };

	snprintf(point.text, sizeof(point.text), "%s", name);
	return point;
}

static struct ptw_point marker(uint64_t type)
{
	struct ptw_point point = { .kind = PTW_POINT_MARKER, .value = type };

	snprintf(point.text, sizeof(point.text), "marker:0x%X", (unsigned int)type);
	return point;
}

static void begin(struct ptw_point from, struct ptw_point to, int by)
{
	struct ptw_latency_options options = { .from = from, .to = to, .by = by, .worst = 3 };
	struct ptw_error err;

	assert_int_equal(ptw_marker_format_parse(&options.format, PTW_MARKER_DEFAULT, &err), 0);
	assert_int_equal(ptw_marker_names_parse(&options.format, "0xA1=prefill,0xA2=decode", &err), 0);
	latency = ptw_latency_new(&options);
	assert_non_null(latency);
	flow_begin(on_event, NULL);
}

static void end(void)
{
	flow_end();
	assert_int_equal(ptw_latency_end(latency), 0);
}

static void expect_durations(const char *expected)
{
	const struct ptw_latency_pair **pair;
	size_t count = ptw_latency_worst(latency, &pair), i;
	uint64_t starts, ends;
	char text[256] = "";

	for (i = 0; i < count; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d+%d/t%d ", (int)pair[i]->start,
			 (int)pair[i]->duration, pair[i]->tid - 100);
	ptw_latency_unmatched(latency, &starts, &ends);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), "-%d-%d", (int)starts, (int)ends);
	assert_string_equal(text, expected);
}

static void call(uint64_t start, uint64_t end_time, const char *name)
{
	flow_call(start, "main", name);
	flow_return(end_time, name);
}

/* Functions that follow each other: a start without an end doesn't spoil the pairs after it. */
static void one_after_the_other(void **state)
{
	begin(entry("start_here"), entry("end_here"), -1);
	flow_in(0, "main");
	call(10, 12, "start_here");
	call(30, 31, "end_here");
	call(100, 102, "start_here");		/* lost */
	call(200, 202, "start_here");
	call(250, 252, "end_here");
	call(300, 301, "start_here");
	call(310, 311, "end_here");
	call(400, 401, "end_here");		/* of nothing */
	end();
	expect_durations("200+50/t0 10+20/t0 300+10/t0 -1-1");
	ptw_latency_free(latency);
}

/* serve() calls itself: the inner end belongs to the inner start. */
static void nested(void **state)
{
	struct ptw_point to = entry("serve");

	to.kind = PTW_POINT_RETURN;
	begin(entry("serve"), to, -1);
	flow_in(0, "main");
	flow_call(10, "main", "serve");
	flow_call(20, "serve", "serve");
	flow_return(50, "serve");
	flow_return(110, "serve");
	end();
	expect_durations("10+100/t0 20+30/t0 -0-0");
	ptw_latency_free(latency);
}

/* Two threads at the same time, on two CPUs. */
static void overlapping_threads(void **state)
{
	begin(entry("start_here"), entry("end_here"), -1);
	flow_in(0, "main");
	call(10, 11, "start_here");
	flow_also(1, 1);
	flow_in(15, "main");
	call(20, 21, "start_here");
	flow_also(0, 0);
	call(60, 61, "end_here");
	flow_also(1, 1);
	call(100, 101, "end_here");
	end();
	expect_durations("20+80/t1 10+50/t0 -0-0");
	ptw_latency_free(latency);
}

#define MARK(type, id)	((uint64_t)(type) << 56 | (id))

/* Requests that overlap in a thread, and one that ends in another. */
static void overlapping_ids(void **state)
{
	const struct ptw_latency_pair **pair;

	begin(marker(0xa0), marker(0xa4), 1);
	flow_in(0, "main");
	flow_marker(10, "main", MARK(0xa0, 7));
	flow_marker(20, "main", MARK(0xa0, 8));
	flow_marker(30, "main", MARK(0xa0, 9));
	flow_marker(50, "main", MARK(0xa4, 7));
	flow_marker(120, "main", MARK(0xa4, 8));
	flow_switch(130, 1, 0);
	flow_in(131, "main");
	flow_marker(140, "main", MARK(0xa4, 9));
	flow_marker(150, "main", MARK(0xa4, 10));
	end();
	expect_durations("30+110/t0 20+100/t0 10+40/t0 -0-1");
	ptw_latency_worst(latency, &pair);
	assert_int_equal(pair[0]->id, 9);
	assert_int_equal(pair[0]->end_tid, 101);
	ptw_latency_free(latency);
}

static void percentiles_and_buckets(void **state)
{
	struct ptw_latency_bucket bucket[40];
	uint64_t now = 0;
	size_t i, count;

	begin(entry("start_here"), entry("end_here"), -1);
	flow_in(0, "main");
	/* 1 … 1000 ns, in no order. */
	for (i = 0; i < 1000; i++) {
		uint64_t duration = i * 7 % 1000 + 1;

		call(now, now, "start_here");
		call(now + duration, now + duration, "end_here");
		now += 2000;
	}
	end();
	assert_int_equal(ptw_latency_count(latency), 1000);
	assert_int_equal(ptw_latency_percentile(latency, 0), 1);
	assert_int_equal(ptw_latency_percentile(latency, 5000), 500);
	assert_int_equal(ptw_latency_percentile(latency, 9000), 900);
	assert_int_equal(ptw_latency_percentile(latency, 9900), 990);
	assert_int_equal(ptw_latency_percentile(latency, 9990), 999);
	assert_int_equal(ptw_latency_percentile(latency, 10000), 1000);
	assert_int_equal(ptw_latency_mean(latency), 500);
	count = ptw_latency_buckets(latency, bucket, 40);
	assert_int_equal(count, 10);
	for (i = 0; i < 9; i++) {
		assert_int_equal(bucket[i].low, 1 << i);
		assert_int_equal(bucket[i].count, 1 << i);
	}
	assert_int_equal(bucket[9].count, 1000 - 511);
	ptw_latency_free(latency);
}

/* A request of 100 ns: 20 of prefill, 60 of decode, of which 40 in matmul. */
static uint64_t request(uint64_t now, uint64_t id, uint64_t interrupt, uint64_t recompute, uint64_t sleep)
{
	flow_call(now, "main", "serve");
	flow_marker(now, "serve", MARK(0xa0, id));
	flow_marker(now += 10, "serve", MARK(0xa1, id));
	flow_call(now, "serve", "prefill");
	if (recompute) {
		flow_call(now, "prefill", "recompute");
		flow_call(now, "recompute", "matmul");
		flow_return(now += recompute, "matmul");
		flow_return(now, "recompute");
	}
	flow_return(now += 20, "prefill");
	flow_marker(now, "serve", MARK(0xa2, id));
	flow_call(now, "serve", "decode");
	flow_call(now += 10, "decode", "matmul");
	if (interrupt) {
		flow_interrupt(now, "matmul", "asm_sysvec_timer");
		flow_call(now, "asm_sysvec_timer", "handle_softirqs");
		flow_call(now += 2, "handle_softirqs", "net_rx");
		flow_return(now += interrupt - 4, "net_rx");
		flow_return(now += 1, "handle_softirqs");
		flow_iret(now += 1, "asm_sysvec_timer");
	}
	flow_return(now += 40, "matmul");
	if (sleep) {
		flow_call(now, "decode", "schedule");
		flow_switch(now, 1, 0);
		flow_switch(now += sleep, 0, 0);
		flow_return(now, "schedule");
	}
	flow_return(now += 10, "decode");
	flow_marker(now += 10, "serve", MARK(0xa4, id));
	flow_return(now, "serve");
	return now + 50;
}

static void expect_pair(size_t rank, uint64_t id, const char *phase, uint64_t phase_extra, const char *culprit,
			enum ptw_path_kind kind, uint64_t extra)
{
	const struct ptw_path_names *names = ptw_latency_names(latency);
	const struct ptw_latency_pair **pair;
	const struct ptw_culprit *c;

	assert_true(ptw_latency_worst(latency, &pair) > rank);
	c = &pair[rank]->culprit;
	assert_int_equal(pair[rank]->id, id);
	assert_string_equal(names->name[c->phase].text, phase);
	assert_int_equal(c->phase_extra, phase_extra);
	assert_int_equal(c->kind, kind);
	assert_true(pair[rank]->named >= 0);
	assert_int_equal(c->extra[pair[rank]->named], extra);
	assert_string_equal(names->name[pair[rank]->path.node[c->chain[pair[rank]->named]].name].text, culprit);
}

static char *written(bool json)
{
	static struct ptw_out out;
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	ptw_out_init(&out, file, false);
	(json ? ptw_latency_write_json : ptw_latency_write_text)(latency, &out);
	assert_int_equal(ptw_out_flush(&out), 0);
	fclose(file);
	return text;
}

/* Of 400 requests three are slow, each for another reason: phase and culprit are named. */
static void culprits(void **state)
{
	uint64_t now = 1000, i;
	char *text;

	begin(marker(0xa0), marker(0xa4), 1);
	flow_thread[1].tid = 7;
	flow_in(0, "main");
	for (i = 0; i < 400; i++)
		now = request(now, i, i == 100 ? 3000 : 0, i == 200 ? 2000 : 0, i == 300 ? 1000 : 0);
	end();
	assert_int_equal(ptw_latency_count(latency), 400);
	assert_int_equal(ptw_latency_percentile(latency, 5000), 100);
	assert_int_equal(ptw_latency_percentile(latency, 9900), 100);
	assert_int_equal(ptw_latency_percentile(latency, 10000), 3100);
	expect_pair(0, 100, "decode", 3000, "net_rx", PTW_PATH_INTERRUPT, 2996);
	expect_pair(1, 200, "prefill", 2000, "recompute", PTW_PATH_FUNCTION, 2000);
	expect_pair(2, 300, "decode", 1000, "decode", PTW_PATH_OUT, 1000);

	text = written(false);
	assert_non_null(strstr(text, "marker:0xA0 → marker:0xA4 by id: 400 pairs\n"));
	assert_non_null(strstr(text, "  P50 100ns  P90 100ns  P99 100ns  P99.9 3.100us  max 3.100us  (mean 115ns, min 100ns)\n"));
	assert_non_null(strstr(text, "      +3.000us  +3.000us in phase decode  +2.996us interrupt, softirq: net_rx\n"
				     "      by way of   asm_sysvec_timer → handle_softirqs → net_rx\n"
				     "      only here   asm_sysvec_timer 3.000us, handle_softirqs 2.999us, net_rx 2.996us\n"));
	assert_non_null(strstr(text, "      +2.000us  +2.000us in phase prefill  +2.000us on CPU: recompute\n"
				     "      by way of   prefill → recompute → matmul\n"
				     "      only here   recompute 2.000us\n"));
	assert_non_null(strstr(text, "      +1.000us  +1.000us in phase decode  +1.000us switched out: decode\n"));
	assert_non_null(strstr(text, "on CPU 100ns (100ns), interrupts 3.000us (0ns), switched out 0ns (0ns); (usual)\n"));
	free(text);
	text = written(true);
	assert_non_null(strstr(text, "{\"type\":\"summary\",\"from\":\"marker:0xA0\",\"to\":\"marker:0xA4\",\"by\":\"id\",\"count\":400,"
				     "\"starts_without_end\":0,\"ends_without_start\":0,\"p50_ns\":100,\"p90_ns\":100,\"p99_ns\":100,"
				     "\"p999_ns\":3100,\"max_ns\":3100,\"min_ns\":100,\"mean_ns\":115,"));
	assert_non_null(strstr(text, "\"interrupt_usual_ns\":0,\"interrupt_usual_scaled\":false,"));
	assert_non_null(strstr(text, "\"cause\":\"on CPU\",\"culprit\":\"recompute\",\"culprit_extra_ns\":2000,\"phase\":\"prefill\","
				     "\"phase_extra_ns\":2000,\"spread\":[],\"path\":[\"prefill\",\"prefill\",\"recompute\",\"matmul\"],"
				     "\"only_here\":[{\"function\":\"recompute\",\"total_ns\":2000}]}\n"));
	free(text);
	ptw_latency_free(latency);
}

/*
 * A tick in every 200 ns takes 100 ns. A request that takes long has many of them, but for another reason, even
 * though they take more of its time than what it does; and one in which the tick works for long is slow by the tick.
 */
static void usual_interrupts(void **state)
{
	uint64_t now = 1000, i, tick;
	char *text;

	begin(marker(0xa0), marker(0xa4), 1);
	flow_in(0, "main");
	for (i = 0; i < 400; i++) {
		now = request(now, i, i == 300 ? 4000 : 0, 0, 0);
		flow_interrupt(now, "main", "asm_sysvec_timer");
		flow_iret(now += 150, "asm_sysvec_timer");
	}
	flow_marker(now, "main", MARK(0xa0, 400));
	flow_marker(now, "main", MARK(0xa1, 400));
	flow_call(now, "main", "recompute");
	for (tick = 0; tick < 20; tick++) {
		flow_interrupt(now += 100, "recompute", "asm_sysvec_timer");
		flow_iret(now += 110, "asm_sysvec_timer");
	}
	flow_return(now, "recompute");
	flow_marker(now, "main", MARK(0xa4, 400));
	end();
	expect_pair(0, 400, "prefill", 4180, "recompute", PTW_PATH_FUNCTION, 2000);
	expect_pair(1, 300, "decode", 4000, "net_rx", PTW_PATH_INTERRUPT, 3996);
	text = written(false);
	assert_non_null(strstr(text, "on CPU 2.000us (100ns), interrupts 2.200us (2.167us), switched out 0ns (0ns); (usual; interrupts: in as long a time)\n"));
	free(text);
	text = written(true);
	assert_non_null(strstr(text, "\"interrupt_usual_ns\":2167,\"interrupt_usual_scaled\":true,"));
	free(text);
	ptw_latency_free(latency);
}

/*
 * Who began it has exited, and another thread ends it: until then it is switched out where it was. And no more time is known
 * of it than it had.
 */
static void ended_by_another(void **state)
{
	uint64_t now = 0;
	char *text;

	begin(marker(0xa0), marker(0xa4), 1);
	flow_in(0, "main");
	for (uint64_t i = 0; i < 100; i++, now += 100) {
		flow_marker(now, "main", MARK(0xa0, i));
		flow_marker(now + 50, "main", MARK(0xa4, i));
	}
	flow_interrupt(now, "main", "asm_sysvec_timer");
	flow_iret(now += 150, "asm_sysvec_timer");
	flow_switch(now, 1, 0);
	flow_in(now, "main");
	flow_marker(now, "main", MARK(0xa0, 100));
	flow_call(now + 5, "main", "serve");
	flow_interrupt(now + 6, "serve", "asm_sysvec_timer");
	flow_iret(now + 8, "asm_sysvec_timer");
	flow_call(now + 10, "serve", "schedule");
	flow_exit(now + 20, 0);
	flow_marker(now + 10020, "main", MARK(0xa4, 100));
	end();
	text = written(false);
	/* 150 ns of interrupts in the 20,150 that are on a CPU elsewhere are none in 20 */
	assert_non_null(strstr(text, "on CPU 18ns (50ns), interrupts 2ns (0ns), switched out 10.000us (0ns); (usual)"));
	assert_non_null(strstr(text, "      +9.970us  +10.013us switched out: serve\n"
				     "      by way of   serve → schedule → [switched out]\n"));
	free(text);
	ptw_latency_free(latency);
}

/*
 * Many starts that never end, by ids in no order. (They were looked through for each start, which took most of a minute
 * here.)
 */
static void many_starts(void **state)
{
	enum { COUNT = 1 << 18, STEP = 10007, ENDS = (COUNT + STEP - 1) / STEP };
	uint64_t starts, ends, now = 0, i;

	for (int by = -1; by < 2; by += 2) {
		begin(marker(0xa0), marker(0xa4), by < 0 ? -1 : 1);
		flow_in(0, "main");
		for (i = 0; i < COUNT; i++)
			flow_marker(++now, "main", MARK(0xa0, i * 2654435761u % COUNT));
		/* By ids some end, one of them twice, and one begins anew; else the last one does. */
		for (i = 0; by > 0 && i < COUNT; i += STEP)
			flow_marker(++now, "main", MARK(0xa4, i));
		flow_marker(++now, "main", MARK(0xa4, 0));
		flow_marker(++now, "main", MARK(0xa0, 1));
		end();
		ptw_latency_unmatched(latency, &starts, &ends);
		assert_int_equal(ptw_latency_count(latency), by < 0 ? 1 : ENDS);
		assert_int_equal(starts, by < 0 ? COUNT : COUNT - ENDS + 1);
		assert_int_equal(ends, by < 0 ? 0 : 1);
		ptw_latency_free(latency);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_after_the_other), cmocka_unit_test(nested),
		cmocka_unit_test(overlapping_threads), cmocka_unit_test(overlapping_ids),
		cmocka_unit_test(ended_by_another), cmocka_unit_test(many_starts), cmocka_unit_test(percentiles_and_buckets), cmocka_unit_test(culprits), cmocka_unit_test(usual_interrupts),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
