// SPDX-License-Identifier: BSD-2-Clause
/* Memory that is partly a file: what was written is there, wherever it is kept, and no room is an error. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "recording/room.h"

/* Sizes around those that have lists of their own, and larger than what is mapped at once */
static const size_t sizes[] = { 0, 1, 15, 16, 17, 88, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1, 5 << 20 };

#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))
#define ROUNDS	20

static void fill_and_look(size_t limit)
{
	struct ptw_room room = { .limit = limit };
	uint8_t *at[ROUNDS][SIZES];

	for (size_t r = 0; r < ROUNDS; r++) {
		for (size_t i = 0; i < SIZES; i++) {
			at[r][i] = ptw_room_alloc(&room, sizes[i]);
			assert_non_null(at[r][i]);
			assert_int_equal((uintptr_t)at[r][i] % 16, 0);
			for (size_t k = 0; k < sizes[i]; k++)
				if (at[r][i][k])
					fail_msg("byte %zu of %zu is not 0", k, sizes[i]);
			memset(at[r][i], (int)(r * SIZES + i + 1), sizes[i]);
		}
		ptw_room_drop(&room);
		/* Every third round is given back, and what comes then is zeros again. */
		for (size_t i = 0; r % 3 == 2 && i < SIZES; i++)
			ptw_room_give_back(&room, at[r][i], sizes[i]);
	}
	for (size_t r = 0; r < ROUNDS; r++)
		for (size_t i = 0; r % 3 != 2 && i < SIZES; i++)
			for (size_t k = 0; k < sizes[i]; k++)
				if (at[r][i][k] != (uint8_t)(r * SIZES + i + 1))
					fail_msg("round %zu: byte %zu of %zu is %d", r, k, sizes[i], at[r][i][k]);
	ptw_room_free(&room);
	assert_int_equal(room.total, 0);
}

static void in_memory(void **state)
{
	fill_and_look(SIZE_MAX);
}

static void in_a_file(void **state)
{
	fill_and_look(0);
}

static void in_both(void **state)
{
	fill_and_look(8 << 20);
}

/* Two arrays that grow in turn, as those of processes do */
static void arrays(void **state)
{
	struct ptw_room room = { 0 };
	uint64_t *odd = NULL, *even = NULL;

	for (size_t i = 0; i < 100000; i++) {
		odd = ptw_room_grow(&room, odd, i, sizeof(*odd));
		even = ptw_room_grow(&room, even, i, sizeof(*even));
		assert_non_null(odd);
		assert_non_null(even);
		odd[i] = 2 * i + 1;
		even[i] = 2 * i;
		if (!(i % 1000))
			ptw_room_drop(&room);
	}
	for (size_t i = 0; i < 100000; i++) {
		assert_int_equal(odd[i], 2 * i + 1);
		assert_int_equal(even[i], 2 * i);
	}
	ptw_room_free(&room);
}

/* No directory for the file, no room on its disk, more than there can be: what is there stays as it is. */
static void no_room(void **state)
{
	struct ptw_room room = { .limit = 1 << 20 };
	const struct rlimit small = { 4 << 20, RLIM_INFINITY };
	struct rlimit before;
	uint8_t *first = ptw_room_alloc(&room, 1000), *more = NULL;
	int count = 0;

	assert_non_null(first);
	memset(first, 7, 1000);
	setenv("TMPDIR", "/nonexistent", 1);
	assert_null(ptw_room_alloc(&room, 2 << 20));
	assert_int_equal(errno, ENOENT);
	unsetenv("TMPDIR");
	assert_null(ptw_room_alloc(&room, SIZE_MAX - 8));
	assert_int_equal(errno, ENOMEM);

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (; count < 100 && (more = ptw_room_alloc(&room, 1 << 20)); count++)
		memset(more, 8, 1 << 20);
	assert_null(more);
	assert_int_equal(errno, EFBIG);
	assert_int_equal(count, 4);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_non_null(ptw_room_alloc(&room, 1 << 20));
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(first[i], 7);
	ptw_room_free(&room);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_memory), cmocka_unit_test(in_a_file), cmocka_unit_test(in_both), cmocka_unit_test(arrays),
		cmocka_unit_test(no_room),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
