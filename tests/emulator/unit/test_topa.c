/* SPDX-License-Identifier: BSD-2-Clause */
/* The output engine: regions, links, INT, STOP, and everything that is an operational error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topa.h"

#define PHYS_BITS 40
#define MEMORY (1u << 20)
/* Where the tests put their tables and regions. */
#define TABLE 0x1000ULL
#define TABLE2 0x2000ULL
#define REGION(n) (0x10000ULL + (n) * 0x4000ULL)
#define SIZE_4K (0ULL << TOPA_ENTRY_SIZE_SHIFT)
#define SIZE_8K (1ULL << TOPA_ENTRY_SIZE_SHIFT)
#define SIZE_16K (2ULL << TOPA_ENTRY_SIZE_SHIFT)

static uint8_t memory[MEMORY];
static unsigned int reads;

static int read_memory(void *opaque, uint64_t pa, void *data, size_t len)
{
	(void)opaque;
	reads++;
	if (pa + len > MEMORY)
		return -1;
	memcpy(data, memory + pa, len);
	return 0;
}

static int write_memory(void *opaque, uint64_t pa, const void *data, size_t len)
{
	(void)opaque;
	if (pa + len > MEMORY)
		return -1;
	memcpy(memory + pa, data, len);
	return 0;
}

static const struct topa_memory mem = { read_memory, write_memory, NULL };

static struct topa fresh(uint64_t base, uint64_t mask_ptrs)
{
	memset(memory, 0xee, sizeof(memory));
	return (struct topa){
		.base = base, .mask_ptrs = mask_ptrs, .phys_bits = PHYS_BITS, .mem = &mem,
	};
}

static void entry(uint64_t table, unsigned int i, uint64_t value)
{
	memcpy(memory + table + 8 * i, &value, 8);
}

/* Bytes that tell where in the stream they are. */
static uint8_t stream(size_t i)
{
	return i * 131 >> 3 ^ i;
}

static unsigned int write_stream(struct topa *t, size_t from, size_t len)
{
	uint8_t *data = malloc(len);
	unsigned int events;

	for (size_t i = 0; i < len; i++)
		data[i] = stream(from + i);
	events = topa_write(t, data, len);
	free(data);
	return events;
}

static void expect_stream(uint64_t pa, size_t from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		assert_int_equal(memory[pa + i], stream(from + i));
}

static uint64_t ptrs(uint64_t index, uint64_t offset)
{
	return offset << 32 | index << 7 | 0x7f;
}

static void test_regions_and_end(void **state)
{
	struct topa t = fresh(TABLE, 0x7f);

	(void)state;
	entry(TABLE, 0, REGION(0) | SIZE_4K);
	entry(TABLE, 1, REGION(2) | SIZE_8K);
	entry(TABLE, 2, TABLE2 | TOPA_ENTRY_END);
	entry(TABLE2, 0, REGION(1) | SIZE_4K);
	entry(TABLE2, 1, TABLE | TOPA_ENTRY_END);
	assert_int_equal(topa_start(&t, false), 0);
	/* In odd pieces, across all borders. */
	for (size_t at = 0; at < 0x4000 + 100; at += 77)
		assert_int_equal(write_stream(&t, at, 77), 0);
	/* 4 + 8 + 4 KiB, then the first region once more. */
	expect_stream(REGION(2), 0x1000, 0x2000);
	expect_stream(REGION(1), 0x3000, 0x1000);
	expect_stream(REGION(0), 0x4000, 100);
	expect_stream(REGION(0) + 200, 200, 0x1000 - 200);
	assert_int_equal(t.base, TABLE);
	assert_int_equal(t.mask_ptrs, ptrs(0, (0x4000 + 100 + 76) / 77 * 77 - 0x4000));
}

static void test_pointers_at_a_border(void **state)
{
	struct topa t = fresh(TABLE, 0x7f);

	(void)state;
	entry(TABLE, 0, REGION(0) | SIZE_4K);
	entry(TABLE, 1, REGION(1) | SIZE_4K);
	entry(TABLE, 2, TABLE2 | TOPA_ENTRY_END);
	entry(TABLE2, 0, REGION(2) | SIZE_4K);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(write_stream(&t, 0, 0x1000), 0);
	assert_int_equal(t.mask_ptrs, ptrs(1, 0));
	assert_int_equal(write_stream(&t, 0, 0x1000), 0);
	/* The END entry is followed at once. */
	assert_int_equal(t.base, TABLE2);
	assert_int_equal(t.mask_ptrs, ptrs(0, 0));
}

static void test_start_in_the_middle(void **state)
{
	struct topa t = fresh(TABLE, ptrs(1, 0xff0));

	(void)state;
	entry(TABLE, 0, REGION(0) | SIZE_4K);
	entry(TABLE, 1, REGION(1) | SIZE_4K);
	entry(TABLE, 2, REGION(2) | SIZE_4K);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(write_stream(&t, 0, 0x20), 0);
	expect_stream(REGION(1) + 0xff0, 0, 0x10);
	expect_stream(REGION(2), 0x10, 0x10);
	assert_int_equal(memory[REGION(0)], 0xee);
	assert_int_equal(t.mask_ptrs, ptrs(2, 0x10));
}

static void test_int(void **state)
{
	struct topa t = fresh(TABLE, 0x7f);

	(void)state;
	entry(TABLE, 0, REGION(0) | SIZE_4K | TOPA_ENTRY_INT);
	entry(TABLE, 1, REGION(1) | SIZE_4K);
	entry(TABLE, 2, TABLE | TOPA_ENTRY_END);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(write_stream(&t, 0, 0xfff), 0);
	assert_int_equal(write_stream(&t, 0xfff, 1), TOPA_EVENT_INT);
	/* Not again before the region is full again. */
	assert_int_equal(write_stream(&t, 0x1000, 0x1fff), 0);
	assert_int_equal(write_stream(&t, 0x2fff, 2), TOPA_EVENT_INT);
	/* All of what was written is there. */
	expect_stream(REGION(1), 0x3000, 1);
}

static void test_stop(void **state)
{
	struct topa t = fresh(TABLE, 0x7f);

	(void)state;
	entry(TABLE, 0, REGION(0) | SIZE_4K);
	entry(TABLE, 1, REGION(1) | SIZE_4K | TOPA_ENTRY_STOP | TOPA_ENTRY_INT);
	entry(TABLE, 2, REGION(2) | SIZE_4K);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(write_stream(&t, 0, 0x2100), TOPA_EVENT_STOP | TOPA_EVENT_INT);
	expect_stream(REGION(1), 0x1000, 0x1000);
	assert_int_equal(memory[REGION(2)], 0xee);
	/* The offset is the region's size, so starting again without moving on is an error. */
	assert_int_equal(t.mask_ptrs, ptrs(1, 0x1000));
	assert_int_equal(topa_start(&t, false), TOPA_EVENT_ERROR);
	t.mask_ptrs = ptrs(2, 0);
	assert_int_equal(topa_start(&t, false), 0);
}

static void test_single_entry(void **state)
{
	struct topa t = fresh(TABLE, 0x7f);

	(void)state;
	t.single_entry = true;
	entry(TABLE, 0, REGION(0) | SIZE_8K | TOPA_ENTRY_INT);
	entry(TABLE, 1, TABLE | TOPA_ENTRY_END);
	assert_int_equal(topa_start(&t, false), 0);
	/* The interrupt comes before the region is full, and once. */
	assert_int_equal(write_stream(&t, 0, 0x2000 - TOPA_EARLY_INT - 1), 0);
	assert_int_equal(write_stream(&t, 0x2000 - TOPA_EARLY_INT - 1, 1), TOPA_EVENT_INT);
	assert_int_equal(write_stream(&t, 0x2000 - TOPA_EARLY_INT, TOPA_EARLY_INT + 16), 0);
	expect_stream(REGION(0), 0x2000, 16);
	assert_int_equal(t.mask_ptrs, ptrs(0, 16));
	/* It starts at no other index. */
	t.mask_ptrs = ptrs(1, 0);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(t.mask_ptrs, ptrs(0, 0));

	/* A second region, or a link to another table. */
	t = fresh(TABLE, 0x7f);
	t.single_entry = true;
	entry(TABLE, 0, REGION(0) | SIZE_4K);
	entry(TABLE, 1, REGION(1) | SIZE_4K);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(write_stream(&t, 0, 0x1000), TOPA_EVENT_ERROR);
	t = fresh(TABLE, 0x7f);
	t.single_entry = true;
	entry(TABLE, 0, REGION(0) | SIZE_4K);
	entry(TABLE, 1, TABLE2 | TOPA_ENTRY_END);
	entry(TABLE2, 0, REGION(1) | SIZE_4K);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(write_stream(&t, 0, 0x1000), TOPA_EVENT_ERROR);
}

static void test_entry_is_cached(void **state)
{
	struct topa t = fresh(TABLE, 0x7f);
	unsigned int before;

	(void)state;
	entry(TABLE, 0, REGION(0) | SIZE_4K);
	entry(TABLE, 1, TABLE | TOPA_ENTRY_END);
	assert_int_equal(topa_start(&t, false), 0);
	before = reads;
	/* A change while the CPU has the entry goes unnoticed. */
	entry(TABLE, 0, REGION(1) | SIZE_4K);
	assert_int_equal(write_stream(&t, 0, 0x800), 0);
	assert_int_equal(write_stream(&t, 0x800, 0x700), 0);
	assert_int_equal(reads, before);
	expect_stream(REGION(0), 0, 0xf00);
}

static void test_start_errors(void **state)
{
	static const struct {
		uint64_t base, ptrs, entry0;
		unsigned int expected;
	} cases[] = {
		{ TABLE, 0x7f, REGION(0) | SIZE_4K, 0 },
		{ TABLE, 0x7f, REGION(0) | SIZE_16K, 0 },
		/* Base not aligned to a page; a region not aligned to its size. */
		{ TABLE | 0x80, 0x7f, REGION(0) | SIZE_4K, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, (REGION(0) + 0x1000) | SIZE_8K, TOPA_EVENT_ERROR },
		/* Offset at or beyond the size. */
		{ TABLE, 0x7f | 0xfffULL << 32, REGION(0) | SIZE_4K, 0 },
		{ TABLE, 0x7f | 0x1000ULL << 32, REGION(0) | SIZE_4K, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f | 0xffffffffULL << 32, REGION(0) | SIZE_4K, TOPA_EVENT_ERROR },
		/* Reserved bits: 1, 3, 5, 10, 11, and beyond MAXPHYADDR. */
		{ TABLE, 0x7f, REGION(0) | 1ULL << 1, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, REGION(0) | 1ULL << 3, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, REGION(0) | 1ULL << 5, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, REGION(0) | 1ULL << 10, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, REGION(0) | 1ULL << 11, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, REGION(0) | 1ULL << PHYS_BITS, TOPA_EVENT_ERROR },
		/* END as the first entry, with and without INT and STOP. */
		{ TABLE, 0x7f, TABLE2 | TOPA_ENTRY_END, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, TABLE2 | TOPA_ENTRY_END | TOPA_ENTRY_INT, TOPA_EVENT_ERROR },
		{ TABLE, 0x7f, TABLE2 | TOPA_ENTRY_END | TOPA_ENTRY_STOP, TOPA_EVENT_ERROR },
		/* A table where there is no memory. */
		{ MEMORY, 0x7f, 0, TOPA_EVENT_ERROR },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct topa t = fresh(cases[i].base, cases[i].ptrs);

		entry(TABLE, 0, cases[i].entry0);
		entry(TABLE2, 0, REGION(0) | SIZE_4K);
		assert_int_equal(topa_start(&t, false), cases[i].expected);
	}
}

static void test_later_errors(void **state)
{
	static const uint64_t second[] = {
		TABLE2 | TOPA_ENTRY_END | TOPA_ENTRY_INT,
		TABLE2 | TOPA_ENTRY_END | TOPA_ENTRY_STOP,
		(REGION(1) + 0x1000) | SIZE_8K,
		REGION(1) | 1ULL << 3,
		TABLE2 | TOPA_ENTRY_END,	/* the table there begins with END */
	};
	struct topa t;

	(void)state;
	for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++) {
		t = fresh(TABLE, 0x7f);
		entry(TABLE, 0, REGION(0) | SIZE_4K);
		entry(TABLE, 1, second[i]);
		entry(TABLE2, 0, TABLE | TOPA_ENTRY_END);
		assert_int_equal(topa_start(&t, false), 0);
		assert_int_equal(write_stream(&t, 0, 0x1001), TOPA_EVENT_ERROR);
		expect_stream(REGION(0), 0, 0x1000);
	}
	/* A region without memory behind it. */
	t = fresh(TABLE, 0x7f);
	entry(TABLE, 0, (uint64_t)MEMORY | SIZE_4K);
	assert_int_equal(topa_start(&t, false), 0);
	assert_int_equal(write_stream(&t, 0, 1), TOPA_EVENT_ERROR);
}

static void test_single_range(void **state)
{
	struct topa t = fresh(REGION(0), 0x1fff | 0x1ff0ULL << 32);

	(void)state;
	assert_int_equal(topa_start(&t, true), 0);
	assert_int_equal(write_stream(&t, 0, 0x20), 0);
	expect_stream(REGION(0) + 0x1ff0, 0, 0x10);
	expect_stream(REGION(0), 0x10, 0x10);	/* it wraps, without an event */
	assert_int_equal(t.mask_ptrs, 0x1fff | 0x10ULL << 32);
	assert_int_equal(t.base, REGION(0));

	/* The smallest: 128 bytes. */
	t = fresh(REGION(0) + 0x80, 0x7f);
	assert_int_equal(topa_start(&t, true), 0);
	assert_int_equal(write_stream(&t, 0, 0x81), 0);
	expect_stream(REGION(0) + 0x80, 0x80, 1);
	assert_int_equal(memory[REGION(0) + 0x100], 0xee);

	/* Base not aligned to the size; holes in the mask; offset beyond it. */
	t = fresh(REGION(0) + 0x1000, 0x1fff);
	assert_int_equal(topa_start(&t, true), TOPA_EVENT_ERROR);
	t = fresh(REGION(0), 0x17ff);
	assert_int_equal(topa_start(&t, true), TOPA_EVENT_ERROR);
	t = fresh(REGION(0), 0x1fff | 0x2000ULL << 32);
	assert_int_equal(topa_start(&t, true), TOPA_EVENT_ERROR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_regions_and_end),
		cmocka_unit_test(test_pointers_at_a_border),
		cmocka_unit_test(test_start_in_the_middle),
		cmocka_unit_test(test_int),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_single_entry),
		cmocka_unit_test(test_entry_is_cached),
		cmocka_unit_test(test_start_errors),
		cmocka_unit_test(test_later_errors),
		cmocka_unit_test(test_single_range),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("topa", tests, NULL, NULL);
}
