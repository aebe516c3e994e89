// SPDX-License-Identifier: BSD-2-Clause
/* The stream of branches: code that changes, threads that switch, gaps; along kept paths and by libipt alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/perf_event.h>

#include "flow/stream.h"

#define CODE	0xffffffff81001000ULL

#define PSB	0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82
#define PSBEND	0x02, 0x23
#define MODE64	0x99, 0x01
#define TSC(t)	0x19, (t) & 0xff, (t) >> 8 & 0xff, 0, 0, 0, 0, 0
#define IP(at)	(0x1000 + (at)) & 0xff, (0x1000 + (at)) >> 8 & 0xff, 0x00, 0x81, 0xff, 0xff
#define FUP(at)	0x7d, IP(at)
#define TIP(at)	0x6d, IP(at)
#define BAD	0x02, 0x0b

/* From the start of the code, at TSC 1000 */
#define START	PSB, TSC(1000), MODE64, FUP(0), PSBEND

struct scene {
	struct ptw_recording rec;
	struct ptw_recorded_trace trace;
	struct ptw_side_event side[8];
	char path[32];
};

/* A page of code that is mapped at CODE; TSC and nanoseconds are the same. */
static void set_scene(struct scene *s, const void *code, size_t code_size, const uint8_t *data, size_t size)
{
	uint8_t page[4096];
	int fd;

	memset(s, 0, sizeof(*s));
	memset(page, 0xcc, sizeof(page));
	memcpy(page, code, code_size);
	strcpy(s->path, "/tmp/ptwatch-test-XXXXXX");
	fd = mkstemp(s->path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	close(fd);
	assert_int_equal(ptw_image_add(&s->rec.image, s->path, 0, sizeof(page), CODE, NULL), 0);
	s->trace = (struct ptw_recorded_trace){ .cpu = 0, .tid = -1, .data = data, .size = size };
	s->rec.params = (struct ptw_pt_params){
		.family = 6, .model = 85, .stepping = 4, .have_time = true, .time_mult = 1,
	};
	s->rec.trace = &s->trace;
	s->rec.trace_count = 1;
	s->rec.side = s->side;
}

static void end_scene(struct scene *s)
{
	unlink(s->path);
	ptw_image_free(&s->rec.image);
}

/* "BEGIN 0; t10 2>0; …": kind or thread, from and to as offsets in the page */
static void tell(struct scene *s, unsigned int flags, char *text, size_t room)
{
	struct ptw_stream_options options = { .flags = flags, .threads = 1 };
	const struct ptw_flow *f;
	struct ptw_stream *stream;
	struct ptw_error err;
	size_t used = 0;

	stream = ptw_stream_open(&s->rec, &options, &err);
	if (!stream)
		fail_msg("%s", err.text);
	text[0] = '\0';
	while ((f = ptw_stream_next(stream)) && used < room - 80) {
		const char *sep = used ? "; " : "";
		int tid = ptw_stream_thread(stream, f->thread)->tid;

		if (f->kind == PTW_FLOW_GAP)
			used += snprintf(text + used, room - used, "%sgap at %d lost %d", sep, (int)f->offset,
					 (int)f->value);
		else if (f->kind == PTW_FLOW_SWITCH)
			used += snprintf(text + used, room - used, "%sswitch to t%d", sep, tid);
		else if (f->kind == PTW_FLOW_BEGIN)
			used += snprintf(text + used, room - used, "%sbegin %x", sep, (int)(f->to - CODE));
		else if (f->kind != PTW_FLOW_EVENT)
			used += snprintf(text + used, room - used, "%st%d %x>%x", sep, tid, (int)(f->from - CODE),
					 (int)(f->to - CODE));
	}
	used += snprintf(text + used, room - used, "; %d", (int)ptw_stream_totals(stream, 0)->insns);
	ptw_stream_close(stream);
}

static void assert_told(struct scene *s, unsigned int flags, const char *expected)
{
	char text[1024];

	tell(s, flags, text, sizeof(text));
	assert_string_equal(text, expected);
	tell(s, flags | PTW_STREAM_REFERENCE, text, sizeof(text));
	assert_string_equal(text, expected);
}

/* libipt tells the time of a branch only with the next one, and so is one branch late. */
static void assert_poked(struct scene *s)
{
	char text[256];

	tell(s, PTW_STREAM_ALL_JUMPS, text, sizeof(text));
	assert_string_equal(text, "begin 0; t-1 2>0; t-1 2>0; t-1 0>4; t-1 5>0; t-1 0>4; t-1 5>0; 10");
	tell(s, PTW_STREAM_ALL_JUMPS | PTW_STREAM_REFERENCE, text, sizeof(text));
	assert_string_equal(text, "begin 0; t-1 2>0; t-1 2>0; t-1 2>0; t-1 0>4; t-1 5>0; 9");
}

static void text_poke(void **state)
{
	/* 0: 2 bytes of nop; 2: jmp *%rax; 4: nop; jmp *%rax. The nop becomes a jump to 4 at 2000. */
	static const uint8_t code[] = { 0x66, 0x90, 0xff, 0xe0, 0x90, 0xff, 0xe0 };
	static const uint8_t trace[] = { START, TIP(0), TIP(0), TSC(3000), TIP(0), TIP(0), TSC(4000) };
	static const struct __attribute__((packed)) {
		struct perf_event_header header;
		uint64_t addr;
		uint16_t old_size, new_size;
		uint8_t bytes[4];
	} poke = {
		.header = { .type = PERF_RECORD_TEXT_POKE, .size = sizeof(poke) },
		.addr = CODE, .old_size = 2, .new_size = 2, .bytes = { 0x66, 0x90, 0xeb, 0x02 },
	};
	static const struct ptw_sample_id_layout none;
	struct scene s;

	set_scene(&s, code, sizeof(code), trace, sizeof(trace));
	assert_true(ptw_side_take(&s.side[0], (const uint8_t *)&poke, sizeof(poke), &none));
	s.side[0].time = 2000;
	s.rec.side_count = 1;
	assert_poked(&s);
	end_scene(&s);

	/* A copy of the kernel that was made afterwards says the same. */
	set_scene(&s, "\xeb\x02\xff\xe0\x90\xff\xe0", sizeof(code), trace, sizeof(trace));
	assert_true(ptw_side_take(&s.side[0], (const uint8_t *)&poke, sizeof(poke), &none));
	s.side[0].time = 2000;
	s.rec.side_count = 1;
	assert_poked(&s);
	end_scene(&s);
}

static void threads_switch(void **state)
{
	static const uint8_t code[] = { 0x90, 0xff, 0xe0 };
	static const uint8_t trace[] = { START, TIP(0), TSC(5000), TIP(0), TIP(0) };
	struct scene s;

	set_scene(&s, code, sizeof(code), trace, sizeof(trace));
	s.side[0] = (struct ptw_side_event){
		.type = PTW_SIDE_SWITCH, .time = 2000, .cpu = 0, .pid = 10, .tid = 10, .out = true,
		.other_pid = 20, .other_tid = 21,
	};
	s.rec.side_count = 1;
	assert_told(&s, PTW_STREAM_ALL_JUMPS, "begin 0; t10 1>0; switch to t21; t21 1>0; t21 1>0; 6");
	end_scene(&s);
}

static void gaps(void **state)
{
	static const uint8_t code[] = { 0x90, 0xff, 0xe0, 0xeb, 0xfe };
	static const uint8_t damaged[] = { START, TIP(0), BAD, 0x00, 0x00, 0x00, START, TIP(0) };
	static const uint8_t loop[] = { START, TIP(3), 0x06, 0x06, START, TIP(0) };
	struct scene s;
	char text[256];

	set_scene(&s, code, sizeof(code), damaged, sizeof(damaged));
	tell(&s, PTW_STREAM_ALL_JUMPS, text, sizeof(text));
	assert_string_equal(text, "begin 0; t-1 1>0; gap at 42 lost 5; t-1 1>0; 4");
	end_scene(&s);

	/* jmp to itself asks for no packet; it is noticed at once, not after millions of rounds. */
	set_scene(&s, code, sizeof(code), loop, sizeof(loop));
	tell(&s, PTW_STREAM_ALL_JUMPS, text, sizeof(text));
	assert_non_null(strstr(text, "gap at"));
	assert_true(atoi(strrchr(text, ';') + 1) < 10);
	end_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_poke),
		cmocka_unit_test(threads_switch),
		cmocka_unit_test(gaps),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
