// SPDX-License-Identifier: BSD-2-Clause
/* PLACE:LEN:MODE, as people write it rightly and wrongly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/watch_target.h"

static void accepts(void **state)
{
	static const struct {
		const char *text, *place;
		uint32_t len, access;
	} good[] = {
		{ "kv_cache_meta:8:w", "kv_cache_meta", 8, PTWATCH_ACCESS_W },
		{ "kv_cache_meta+0x10:1:rw", "kv_cache_meta+0x10", 1, PTWATCH_ACCESS_RW },
		{ "kvdemo:kv_cache_meta:4:w", "kvdemo:kv_cache_meta", 4, PTWATCH_ACCESS_W },
		{ "kvdemo:kv_cache_meta+8:2:w", "kvdemo:kv_cache_meta+8", 2, PTWATCH_ACCESS_W },
		{ "do_exit:x", "do_exit", 8, PTWATCH_ACCESS_X },
		{ "do_exit:8:x", "do_exit", 8, PTWATCH_ACCESS_X },
		{ "kvdemo:health_tick:x", "kvdemo:health_tick", 8, PTWATCH_ACCESS_X },
		{ "kvdemo:health_tick:8:x", "kvdemo:health_tick", 8, PTWATCH_ACCESS_X },
		{ "0xffffffffc0a01180:8:w", "0xffffffffc0a01180", 8, PTWATCH_ACCESS_W },
		{ "0xffffffffc0a01181:x", "0xffffffffc0a01181", 8, PTWATCH_ACCESS_X },
		{ "0xff11000000000000:8:w", "0xff11000000000000", 8, PTWATCH_ACCESS_W },
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct ptw_watch_target target;
		struct ptw_error err;

		if (ptw_watch_target_parse(good[i].text, &target, &err))
			fail_msg("%s: %s", good[i].text, err.text);
		assert_string_equal(target.place, good[i].place);
		assert_int_equal(target.len, good[i].len);
		assert_int_equal(target.access, good[i].access);
	}
}

static void refuses(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "no LEN and MODE" },
		{ "kv", "no LEN and MODE" },
		{ ":w", "no LEN and MODE" },
		{ "kv:8", "did you mean kv:8:w?" },
		{ "kv:w", "did you mean kv:8:w?" },
		{ "kv:8:", "is not a MODE" },
		{ "kv:8:r", "no read-only watch" },
		{ "kv:8:W", "is not a MODE" },
		{ "kv:8:wx", "is not a MODE" },
		{ "kv:0:w", "1, 2, 4 or 8 bytes" },
		{ "kv:3:w", "1, 2, 4 or 8 bytes" },
		{ "kv:16:w", "1, 2, 4 or 8 bytes" },
		{ "kv:0x8:w", "is not a LEN" },
		{ "kv:-8:w", "is not a LEN" },
		{ "kv::w", "is not a LEN" },
		{ "fn:4:x", "write fn:x" },
		{ ":8:w", "no SYMBOL" },
		{ "1234:8:w", "begins with 0x" },
		{ "0x:8:w", "not a 64-bit address" },
		{ "0x1ffffffffffffffff:8:w", "not a 64-bit address" },
		{ "0x7fff12345678:8:w", "not a kernel address" },
		{ "0xffffffffc0a01184:8:w", "not aligned to 8 bytes" },
		{ "0xffffffffc0a01184:8:w", "watch 4 bytes there" },
		{ "0xffffffffc0a01181:2:rw", "watch 1 byte there, or 0xffffffffc0a01180:2" },
	};
	struct ptw_watch_target target;
	char longest[1000];
	struct ptw_error err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memset(&err, 0, sizeof(err));
		if (!ptw_watch_target_parse(bad[i].text, &target, &err))
			fail_msg("%s was accepted", bad[i].text);
		assert_int_equal(err.status, PTW_EXIT_USAGE);
		if (!strstr(err.text, bad[i].says))
			fail_msg("%s: '%s' does not say '%s'", bad[i].text, err.text, bad[i].says);
	}
	memset(longest, 'a', sizeof(longest));
	strcpy(longest + sizeof(longest) - 5, ":8:w");
	assert_int_equal(ptw_watch_target_parse(longest, &target, &err), -1);
	assert_int_equal(err.status, PTW_EXIT_USAGE);
	/* No place may be cut to another one. */
	assert_int_equal(ptw_watch_target_parse(longest + sizeof(longest) - 5 - 270, &target, &err), -1);
	assert_int_equal(err.status, PTW_EXIT_USAGE);
}

static struct ptw_symbols *load(const char *text)
{
	char path[] = "/tmp/ptwatch-test-XXXXXX";
	struct ptw_symbols *symbols = ptw_symbols_new();
	int fd = mkstemp(path);
	struct ptw_error err;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	if (ptw_symbols_load_kallsyms(symbols, path, &err))
		fail_msg("%s", err.text);
	unlink(path);
	return symbols;
}

static void resolves(void **state)
{
	static const struct {
		const char *text;
		int status;		/* 0: resolves */
		uint64_t address;
		const char *says;	/* label, or part of the error */
	} cases[] = {
		{ "table:8:w", 0, 0xffffffff82000010, "table+0x0" },
		{ "table+0x8:8:w", 0, 0xffffffff82000018, "table+0x8" },
		{ "kvdemo:kv_cache_meta:8:w", 0, 0xffffffffc0a01180, "kv_cache_meta+0x0" },
		{ "0xffffffff82000014:4:w", 0, 0xffffffff82000014, "table+0x4" },
		{ "0xffff888012345678:8:w", 0, 0xffff888012345678, "" },
		{ "tick:x", 0, 0xffffffff81000100, "tick+0x0" },
		{ "tabel:8:w", 1, 0, "table" },
		{ "table+1:2:w", 1, 0, "not aligned to 2 bytes" },
		{ "table:x", 1, 0, "is data" },
		{ "runqueues:8:w", 1, 0, "per-CPU" },
	};
	struct ptw_symbols *symbols = load("0000000000020000 A runqueues\n"
					   "ffffffff81000100 T tick\n"
					   "ffffffff81000200 T tock\n"
					   "ffffffff82000010 D table\n"
					   "ffffffff82000100 D behind\n"
					   "ffffffffc0a01180 d kv_cache_meta\t[kvdemo]\n");

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptw_watch_target target;
		struct ptw_error err = { 0 };
		int ret;

		if (ptw_watch_target_parse(cases[i].text, &target, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		ret = ptw_watch_target_resolve(&target, symbols, &err);
		if (!!ret != !!cases[i].status)
			fail_msg("%s: returned %d, %s", cases[i].text, ret, err.text);
		if (ret) {
			assert_int_equal(err.status, cases[i].status);
			if (!strstr(err.text, cases[i].says))
				fail_msg("%s: '%s' does not say '%s'", cases[i].text, err.text, cases[i].says);
			continue;
		}
		assert_int_equal(target.address, cases[i].address);
		assert_string_equal(target.label, cases[i].says);
	}
	ptw_symbols_free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepts),
		cmocka_unit_test(refuses),
		cmocka_unit_test(resolves),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("watch_target", tests, NULL, NULL) != 0;
}
