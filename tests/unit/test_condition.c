// SPDX-License-Identifier: BSD-2-Clause
/* Conditions on the value: what people write, what fits the bytes watched, and when it holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "control/condition.h"

static void holds(void **state)
{
	static const struct {
		const char *text;
		uint32_t len;
		bool type_signed;
		uint64_t old_value, new_value;
		bool holds;
	} cases[] = {
		{ "changed", 8, false, 5, 6, true },
		{ "changed", 8, false, 5, 5, false },
		{ "changed", 1, false, 0x105, 0x205, false },
		{ "new == 0x10", 8, false, 0, 0x10, true },
		{ "new == 0x10", 8, false, 0, 0x1000000010, false },
		{ "new==16", 4, false, 0, 0x10, true },
		{ "new = 16", 4, false, 0, 0x10, true },
		{ "new == -1", 4, false, 0, 0xffffffff, true },
		{ "new == 0xffffffff", 4, true, 0, 0xffffffff, true },
		{ "new == -1", 8, false, 0, 0xffffffff, false },
		{ "new != 0", 2, false, 0, 0, false },
		{ "new != 0", 2, false, 0, 1, true },
		{ "new & 0xff", 8, false, 0, 0x100, false },
		{ "new & 0xff", 8, false, 0, 0x180, true },
		{ "(new & 0xf0) == 0x20", 1, false, 0, 0x2f, true },
		{ "(new & 0xf0) == 0x20", 1, false, 0, 0x3f, false },
		{ "new & 0xf0 != 0x20", 1, false, 0, 0x3f, true },
		{ "new < 5", 4, false, 0, 4, true },
		{ "new < 5", 4, false, 0, 5, false },
		{ "new < 5", 4, false, 0, 0xffffffff, false },
		{ "new < 5", 4, true, 0, 0xffffffff, true },
		{ "new < +5", 4, false, 0, 0xffffffff, true },
		{ "new < -1", 4, false, 0, 0xfffffffe, true },
		{ "new < -1", 4, false, 0, 0xffffffff, false },
		{ "new < -1", 4, false, 0, 7, false },
		{ "new <= -1", 8, false, 0, UINT64_MAX, true },
		{ "new > -1", 2, false, 0, 0, true },
		{ "new > -1", 2, false, 0, 0x8000, false },
		{ "new >= 0x8000000000000000", 8, false, 0, 1ULL << 63, true },
		{ "new >= 0x8000000000000000", 8, false, 0, INT64_MAX, false },
		{ "new > 0x7fffffff", 4, false, 0, 0x80000000, true },
		{ "  new   >   3  ", 4, false, 0, 4, true },
		{ "new == 0xffffffffffffffff", 8, false, 0, UINT64_MAX, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptw_value_condition c;
		struct ptw_error err;

		if (ptw_value_condition_parse(cases[i].text, &c, &err) ||
		    ptw_value_condition_fit(&c, cases[i].len, cases[i].type_signed, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		if (ptw_value_condition_holds(&c, cases[i].len, cases[i].old_value, cases[i].new_value) != cases[i].holds)
			fail_msg("%s: old 0x%llx new 0x%llx: not %d", cases[i].text, (unsigned long long)cases[i].old_value,
				 (unsigned long long)cases[i].new_value, cases[i].holds);
	}
}

static void refuses(void **state)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "", "'new' or 'changed' expected at its end" },
		{ "new", "==, !=, <, <=, >, >= or & expected at its end" },
		{ "neu == 1", "'new' or 'changed' expected at 'neu == 1'" },
		{ "newer == 1", "expected at 'newer == 1'" },
		{ "old == 1", "only the new value can be compared" },
		{ "new == ", "a number expected at its end" },
		{ "new == five", "a number expected at 'five'" },
		{ "new == 5x", "a number expected at '5x'" },
		{ "new == 0x", "a number expected" },
		{ "new <> 5", "a number expected at '> 5'" },
		{ "new == 0x1ffffffffffffffff", "no room in 64 bits" },
		{ "new < -9223372036854775809", "no room in 64 bits" },
		{ "new < +9223372036854775808", "no room in 64 bits" },
		{ "new & 0", "a mask of 0" },
		{ "(new & 0xf", "')' expected at its end" },
		{ "new & 0xf == 0x10", "0x10 has bits that the mask 0xf leaves out" },
		{ "new & 0xf == -1", "masked bits have no sign" },
		{ "new == 1 && new == 2", "one condition on the value, not two" },
		{ "new == 1 || changed", "one condition on the value, not two" },
		{ "new == 1 2", "the end expected at '2'" },
	};
	static const struct { const char *text; uint32_t len; bool type_signed; const char *says; } misfits[] = {
		{ "new == 256", 1, false, "1 byte hold 0 to 0xff" },
		{ "new < 0x10000", 2, false, "2 bytes hold 0 to 0xffff" },
		{ "new & 0x100", 1, false, "the mask has bits beyond the 1 byte watched" },
		{ "new == -129", 1, false, "1 byte hold -128 to 127" },
		{ "new < +128", 1, false, "1 byte hold -128 to 127" },
		{ "new < 0x80000000", 4, true, "4 bytes hold -2147483648 to 2147483647" },
	};
	struct ptw_value_condition c;
	struct ptw_error err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (!ptw_value_condition_parse(bad[i].text, &c, &err))
			fail_msg("%s was accepted", bad[i].text);
		assert_int_equal(err.status, PTW_EXIT_USAGE);
		if (!strstr(err.text, bad[i].says))
			fail_msg("%s: '%s' does not say '%s'", bad[i].text, err.text, bad[i].says);
	}
	for (size_t i = 0; i < sizeof(misfits) / sizeof(misfits[0]); i++) {
		if (ptw_value_condition_parse(misfits[i].text, &c, &err))
			fail_msg("%s: %s", misfits[i].text, err.text);
		if (!ptw_value_condition_fit(&c, misfits[i].len, misfits[i].type_signed, &err))
			fail_msg("%s was accepted for %u bytes", misfits[i].text, misfits[i].len);
		assert_int_equal(err.status, PTW_EXIT_USAGE);
		if (!strstr(err.text, misfits[i].says))
			fail_msg("%s: '%s' does not say '%s'", misfits[i].text, err.text, misfits[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holds),
		cmocka_unit_test(refuses),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("condition", tests, NULL, NULL) != 0;
}
