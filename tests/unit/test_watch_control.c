// SPDX-License-Identifier: BSD-2-Clause
/* Control pages, rings, the bits to trace with, and numbers as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "control/device.h"

static void reads_a_page_at_rest(void **state)
{
	struct ptwatch_control page = { .size = sizeof(page), .cpu = 3, .head = 5, .freeze_seq = 9 }, copy;

	assert_int_equal(ptw_control_read(&page, &copy), 0);
	assert_memory_equal(&page, &copy, sizeof(page));
	/* A module that fills less. */
	page.size = offsetof(struct ptwatch_control, freeze_seq);
	assert_int_equal(ptw_control_read(&page, &copy), 0);
	assert_int_equal(copy.head, 5);
	assert_int_equal(copy.freeze_seq, 0);
	/* One that never comes to rest. */
	page.sequence = 1;
	assert_int_equal(ptw_control_read(&page, &copy), -1);
}

static struct ptwatch_control shared = { .size = sizeof(shared) };
static atomic_bool stop;

static void *writer(void *arg)
{
	volatile struct ptwatch_control *page = &shared;

	for (uint64_t i = 0; !atomic_load(&stop); i++) {
		page->sequence++;
		atomic_thread_fence(memory_order_seq_cst);
		page->head = i;
		page->stop_tsc = i * 3;
		page->freeze_seq = i * 7;
		atomic_thread_fence(memory_order_seq_cst);
		page->sequence++;
	}
	return NULL;
}

static void reads_consistently(void **state)
{
	struct ptwatch_control copy;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, writer, NULL), 0);
	for (int i = 0; i < 20000; i++) {
		if (ptw_control_read(&shared, &copy))
			continue;
		assert_int_equal(copy.stop_tsc, copy.head * 3);
		assert_int_equal(copy.freeze_seq, copy.head * 7);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
}

static void finds_the_pieces(void **state)
{
	uint8_t data[16] = { 0 };
	struct ptwatch_control control = { .data_size = sizeof(data) };
	struct ptw_trace_pieces pieces;

	pieces = ptw_trace_pieces(&control, data);
	assert_int_equal(pieces.first_size + pieces.second_size, 0);
	control.head = 5;
	pieces = ptw_trace_pieces(&control, data);
	assert_ptr_equal(pieces.first, data);
	assert_int_equal(pieces.first_size, 5);
	assert_int_equal(pieces.second_size, 0);
	control.flags = PTWATCH_CONTROL_WRAPPED;
	pieces = ptw_trace_pieces(&control, data);
	assert_ptr_equal(pieces.first, data + 5);
	assert_int_equal(pieces.first_size, 11);
	assert_ptr_equal(pieces.second, data);
	assert_int_equal(pieces.second_size, 5);
	control.head = 0;
	pieces = ptw_trace_pieces(&control, data);
	assert_int_equal(pieces.first_size, 16);
	assert_int_equal(pieces.second_size, 0);
	/* Full to the last byte, and a head that can't be. */
	control.head = 16;
	pieces = ptw_trace_pieces(&control, data);
	assert_int_equal(pieces.first_size + pieces.second_size, 16);
	control.head = 99;
	pieces = ptw_trace_pieces(&control, data);
	assert_int_equal(pieces.first_size + pieces.second_size, 16);
}

static void chooses_bits(void **state)
{
	const uint64_t base = PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_BRANCHEN | PTWATCH_RTIT_CTL_TSCEN;
	struct ptwatch_info info = { .rtit_ctl = base };

	assert_int_equal(ptw_trace_default_rtit_ctl(&info, PTWATCH_RTIT_CTL_OS), base);
	info.rtit_ctl |= PTWATCH_RTIT_CTL_MTCEN | PTWATCH_RTIT_CTL_MTCFREQ | PTWATCH_RTIT_CTL_PSBFREQ;
	info.mtc_periods = 0x249;	/* 0, 3, 6, 9 */
	info.psb_periods = 0x3f;
	assert_int_equal(ptw_trace_default_rtit_ctl(&info, PTWATCH_RTIT_CTL_OS),
			 base | PTWATCH_RTIT_CTL_MTCEN | 3ULL << 14);
	info.mtc_periods = 0x240;	/* 6, 9 */
	info.psb_periods = 0x3c;	/* from 2 */
	assert_int_equal(ptw_trace_default_rtit_ctl(&info, PTWATCH_RTIT_CTL_OS),
			 base | PTWATCH_RTIT_CTL_MTCEN | 6ULL << 14 | 2ULL << 24);
}

static void reads_numbers(void **state)
{
	static const char *const bad_size[] = { "", "-1", "4x", "4 M", "k", "99999999999999999999", "17179869184G", "4MM" };
	static const char *const bad_time[] = { "", "-1", "x", "5 s", "0x5", "inf", "nan", "1e30", "1e3", "1e-3s", "5ss", "1.5.5" };
	static const char *const bad_cpus[] = { "", "a", "1-", "3-1", "1,,2", "99999", "1,", "-1" };
	uint64_t value;
	uint8_t *map;
	size_t size;
	char text[32];

	assert_int_equal(ptw_parse_size("4M", &value), 0);
	assert_int_equal(value, 4 << 20);
	assert_int_equal(ptw_parse_size("64KiB", &value), 0);
	assert_int_equal(value, 64 << 10);
	assert_int_equal(ptw_parse_size("65536", &value), 0);
	assert_int_equal(value, 65536);
	for (size_t i = 0; i < sizeof(bad_size) / sizeof(bad_size[0]); i++)
		assert_int_equal(ptw_parse_size(bad_size[i], &value), -1);

	assert_int_equal(ptw_parse_duration("1.5s", &value), 0);
	assert_int_equal(value, 1500000000);
	assert_int_equal(ptw_parse_duration("10", &value), 0);
	assert_int_equal(value, 10000000000);
	assert_int_equal(ptw_parse_duration("500ms", &value), 0);
	assert_int_equal(value, 500000000);
	for (size_t i = 0; i < sizeof(bad_time) / sizeof(bad_time[0]); i++)
		assert_int_equal(ptw_parse_duration(bad_time[i], &value), -1);

	assert_int_equal(ptw_parse_cpus("0-2,9,1\n", &map, &size), 4);
	assert_int_equal(size, 2);
	assert_int_equal(map[0], 7);
	assert_int_equal(map[1], 2);
	free(map);
	for (size_t i = 0; i < sizeof(bad_cpus) / sizeof(bad_cpus[0]); i++)
		assert_int_equal(ptw_parse_cpus(bad_cpus[i], &map, &size), -1);

	assert_string_equal(ptw_commas(0, text, sizeof(text)), "0");
	assert_string_equal(ptw_commas(999, text, sizeof(text)), "999");
	assert_string_equal(ptw_commas(2031616, text, sizeof(text)), "2,031,616");
	assert_string_equal(ptw_commas(UINT64_MAX, text, sizeof(text)), "18,446,744,073,709,551,615");
	assert_string_equal(ptw_bytes(2048, text, sizeof(text)), "2 KiB");
	assert_string_equal(ptw_bytes(1536 << 10, text, sizeof(text)), "1.5 MiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_a_page_at_rest),
		cmocka_unit_test(reads_consistently),
		cmocka_unit_test(finds_the_pieces),
		cmocka_unit_test(chooses_bits),
		cmocka_unit_test(reads_numbers),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("watch_control", tests, NULL, NULL) != 0;
}
