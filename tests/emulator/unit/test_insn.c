/* SPDX-License-Identifier: BSD-2-Clause */
/* Classification of instructions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "insn.h"

static struct insn decode(const char *hex)
{
	uint8_t bytes[16];
	struct insn d;
	size_t n = 0;
	char *end;

	for (const char *p = hex; *p; p = end) {
		bytes[n++] = strtoul(p, &end, 16);
		while (*end == ' ')
			end++;
	}
	insn_decode(bytes, n, &d);
	return d;
}

static void test_branches(void **state)
{
	static const struct {
		const char *hex;
		enum insn_kind kind;
		int64_t disp;
	} cases[] = {
		{ "74 10", INSN_COND, 0x10 },
		{ "3e 75 fe", INSN_COND, -2 },
		{ "0f 84 00 01 00 00", INSN_COND, 0x100 },
		{ "e2 f0", INSN_COND, -16 },
		{ "67 e3 05", INSN_COND, 5 },
		{ "eb fe", INSN_JUMP, -2 },
		{ "e9 fb ff ff ff", INSN_JUMP, -5 },
		{ "66 e9 00 01", INSN_JUMP, 0x100 },		/* 16 bits in 32-bit code */
		{ "e8 00 00 00 00", INSN_CALL, 0 },
		{ "2e e8 10 00 00 00", INSN_CALL, 0x10 },
		{ "ff d0", INSN_INDIRECT_CALL, 0 },
		{ "41 ff d3", INSN_INDIRECT_CALL, 0 },
		{ "ff 15 00 00 00 00", INSN_INDIRECT_CALL, 0 },
		{ "3e ff e0", INSN_INDIRECT_JUMP, 0 },
		{ "ff 24 c5 00 00 00 00", INSN_INDIRECT_JUMP, 0 },
		{ "c3", INSN_RET, 0 },
		{ "f3 c3", INSN_RET, 0 },
		{ "c2 08 00", INSN_RET, 0 },
		{ "48 cb", INSN_FAR, 0 },
		{ "48 cf", INSN_FAR, 0 },
		{ "cf", INSN_FAR, 0 },
		{ "0f 05", INSN_FAR, 0 },
		{ "48 0f 07", INSN_FAR, 0 },
		{ "0f 34", INSN_FAR, 0 },
		{ "0f 35", INSN_FAR, 0 },
		{ "ea 00 00 40 00 33 00", INSN_FAR, 0 },
		{ "48 ff 2c 24", INSN_FAR, 0 },
		{ "ff 1c 24", INSN_FAR, 0 },
		{ "cc", INSN_SOFT_INT, 0 },
		{ "cd 80", INSN_SOFT_INT, 0 },
		{ "f1", INSN_INT1, 0 },
		{ "0f a2", INSN_CPUID, 0 },
		{ "0f 30", INSN_WRMSR, 0 },
		{ "0f 32", INSN_RDMSR, 0 },
		{ "0f 33", INSN_RDPMC, 0 },
		{ "f3 48 0f ae e0", INSN_PTWRITE, 0 },
		{ "0f 01 10", INSN_LGDT, 0 },
		/* Look-alikes. */
		{ "ff 00", INSN_OTHER, 0 },			/* inc */
		{ "ff 30", INSN_OTHER, 0 },			/* push */
		{ "0f 22 c0", INSN_OTHER, 0 },			/* mov to cr0 */
		{ "0f ae 20", INSN_OTHER, 0 },			/* xsave */
		{ "0f 01 d0", INSN_OTHER, 0 },			/* xgetbv */
		{ "40", INSN_OTHER, 0 },			/* inc eax in 32-bit code */
		{ "c4 e2 f9 f7 c3", INSN_OTHER, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct insn d = decode(cases[i].hex);

		if (d.kind != cases[i].kind || d.disp != cases[i].disp) {
			print_error("%s: kind %d, displacement %d\n", cases[i].hex, d.kind,
				    (int)d.disp);
			fail();
		}
	}
	assert_int_equal(decode("0f 22 d8").kind, INSN_MOV_TO_CR3);
	assert_int_equal(decode("0f 22 df").reg, 7);
	assert_int_equal(decode("41 0f 22 dc").reg, 12);
}

static void test_plain(void **state)
{
	static const char *const plain[] = {
		"89 c3", "48 8d 04 25 00 00 00 00", "01 c0", "83 c0 01", "90", "0f 1f 00", "31 c0",
		"b8 00 00 00 00", "0f 44 c1", "0f b6 c0", "48 98", "f3 0f 1e fa", "40",
	};
	static const char *const faulting[] = {
		"8b 03", "48 89 04 24", "50", "58", "f7 f1", "f7 31", "f3 a4", "aa", "0f 0b", "f4",
		"f0 ff 00", "0f 20 c0", "fb", "8e d8", "6c", "0f 10 00", "c5 f8 77", "0f b6 00",
		"a1 00 00 00 00 00 00 00 00", "0f 1b c0", "ff 30", "9d",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		assert_true(decode(plain[i]).plain);
	for (size_t i = 0; i < sizeof(faulting) / sizeof(faulting[0]); i++)
		assert_false(decode(faulting[i]).plain);
}

static void test_ptwrite(void **state)
{
	static const struct {
		const char *hex;
		bool code64, good;
		struct operand o;
	} cases[] = {
		{ "f3 0f ae e0", true, true, { .insn_len = 4, .bytes = 4, .is_reg = true, .base = -1, .index = -1 } },
		{ "f3 49 0f ae e7", true, true,
		  { .insn_len = 5, .bytes = 8, .is_reg = true, .reg = 15, .base = -1, .index = -1 } },
		{ "f3 48 0f ae 23", true, true, { .insn_len = 5, .bytes = 8, .base = 3, .index = -1 } },
		{ "f3 0f ae 64 24 08", true, true,
		  { .insn_len = 6, .bytes = 4, .base = 4, .index = -1, .scale = 1, .disp = 8 } },
		{ "f3 4b 0f ae a4 ee 00 01 00 00", true, true,
		  { .insn_len = 10, .bytes = 8, .base = 14, .index = 13, .scale = 8, .disp = 256 } },
		{ "f3 48 0f ae 25 f0 ff ff ff", true, true,
		  { .insn_len = 9, .bytes = 8, .base = -1, .index = -1, .rip = true, .disp = -16 } },
		{ "f3 48 0f ae 24 25 00 10 00 00", true, true,
		  { .insn_len = 10, .bytes = 8, .base = -1, .index = -1, .scale = 1, .disp = 0x1000 } },
		{ "64 f3 48 0f ae 24 25 00 00 00 00", true, true,
		  { .insn_len = 11, .bytes = 8, .base = -1, .index = -1, .scale = 1, .segment = 'f' } },
		{ "67 f3 0f ae 21", true, true,
		  { .insn_len = 5, .bytes = 4, .base = 1, .index = -1, .addr32 = true } },
		{ "f3 0f ae 25 00 10 00 00", false, true,
		  { .insn_len = 8, .bytes = 4, .base = -1, .index = -1, .addr32 = true, .disp = 0x1000 } },
		/* REX counts only right before the opcode, and not in 32-bit code. */
		{ "48 f3 0f ae e0", true, true, { .insn_len = 5, .bytes = 4, .is_reg = true, .base = -1, .index = -1 } },
		{ "48 f3 0f ae e0", false, false, { 0 } },
		{ "0f ae e0", true, false, { 0 } },		/* without F3 */
		{ "66 f3 0f ae e0", true, false, { 0 } },
		{ "f0 f3 0f ae e0", true, false, { 0 } },
		{ "f3 0f ae e8", true, false, { 0 } },		/* /5: INCSSP */
		{ "f3 0f ae", true, false, { 0 } },
		{ "f3 0f ae a4 ee 00 01 00", true, false, { 0 } },
		{ "67 f3 0f ae 21", false, false, { 0 } },	/* 16-bit addressing */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t bytes[16];
		struct operand o;
		size_t n = 0;
		char *end;

		for (const char *p = cases[i].hex; *p; p = end) {
			bytes[n++] = strtoul(p, &end, 16);
			while (*end == ' ')
				end++;
		}
		if (insn_ptwrite(bytes, n, cases[i].code64, &o) != cases[i].good ||
		    (cases[i].good && (o.insn_len != cases[i].o.insn_len || o.bytes != cases[i].o.bytes ||
				       o.is_reg != cases[i].o.is_reg || o.reg != cases[i].o.reg ||
				       o.base != cases[i].o.base || o.index != cases[i].o.index ||
				       (o.index >= 0 && o.scale != cases[i].o.scale) || o.rip != cases[i].o.rip ||
				       o.addr32 != cases[i].o.addr32 || o.segment != cases[i].o.segment ||
				       o.disp != cases[i].o.disp))) {
			print_error("%s\n", cases[i].hex);
			fail();
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ptwrite),
		cmocka_unit_test(test_branches),
		cmocka_unit_test(test_plain),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("insn", tests, NULL, NULL);
}
