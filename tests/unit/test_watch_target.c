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
		enum ptw_place kind;
		const char *binary;
		pid_t pid;
		uint64_t owner;
	} good[] = {
		{ "kv_cache_meta:8:w", "kv_cache_meta", 8, .access = PTWATCH_ACCESS_W },
		{ "kv_cache_meta+0x10:1:rw", "kv_cache_meta+0x10", 1, .access = PTWATCH_ACCESS_RW },
		{ "kvdemo:kv_cache_meta:4:w", "kvdemo:kv_cache_meta", 4, .access = PTWATCH_ACCESS_W },
		{ "kvdemo:kv_cache_meta+8:2:w", "kvdemo:kv_cache_meta+8", 2, .access = PTWATCH_ACCESS_W },
		{ "kv_cache_meta:24:w", "kv_cache_meta", 24, .access = PTWATCH_ACCESS_W },
		{ "kv_cache_meta:32:rw", "kv_cache_meta", 32, .access = PTWATCH_ACCESS_RW },
		{ "do_exit:x", "do_exit", 8, .access = PTWATCH_ACCESS_X },
		{ "kvdemo:health_tick:x", "kvdemo:health_tick", 8, .access = PTWATCH_ACCESS_X },
		{ "static_call.isra.0:x", "static_call.isra.0", 8, .access = PTWATCH_ACCESS_X },
		{ "0xffffffffc0a01180:8:w", "0xffffffffc0a01180", 8, .access = PTWATCH_ACCESS_W, PTW_PLACE_ADDRESS },
		{ "0xffffffffc0a01188:16:w", "0xffffffffc0a01188", 16, .access = PTWATCH_ACCESS_W, PTW_PLACE_ADDRESS },
		{ "0xffffffffc0a01181:x", "0xffffffffc0a01181", 8, .access = PTWATCH_ACCESS_X, PTW_PLACE_ADDRESS },
		{ "0xff11000000000000:8:w", "0xff11000000000000", 8, .access = PTWATCH_ACCESS_W, PTW_PLACE_ADDRESS },
		{ "0x7fff12345678:8:w", "0x7fff12345678", 8, .access = PTWATCH_ACCESS_W, PTW_PLACE_USER_ADDRESS },
		{ "0x7fff12345678@77:8:w", "0x7fff12345678", 8, .access = PTWATCH_ACCESS_W, PTW_PLACE_USER_ADDRESS, NULL, 77 },
		{ "task_struct.cred@1234", "task_struct.cred", 0, .access = 0, PTW_PLACE_FIELD, NULL, 1234 },
		{ "task_struct.cred@1234:rw", "task_struct.cred", 0, .access = PTWATCH_ACCESS_RW, PTW_PLACE_FIELD, NULL, 1234 },
		{ "task_struct.comm[8]@1:8:w", "task_struct.comm[8]", 8, .access = PTWATCH_ACCESS_W, PTW_PLACE_FIELD, NULL, 1 },
		{ "task_struct.comm@1:4", "task_struct.comm", 4, .access = 0, PTW_PLACE_FIELD, NULL, 1 },
		{ "inode.i_size@0xffff888012345678", "inode.i_size", 0, .access = 0, PTW_PLACE_FIELD, NULL, 0, 0xffff888012345678 },
		{ "kvdemo:kv.x@0xffff888012345678:w", "kvdemo:kv.x", 0, PTWATCH_ACCESS_W, PTW_PLACE_FIELD, NULL, 0,
		  0xffff888012345678 },
		{ "./prog!counter", "counter", 0, .access = 0, PTW_PLACE_USER_SYMBOL, "./prog" },
		{ "libc.so.6!malloc:x", "malloc", 8, .access = PTWATCH_ACCESS_X, PTW_PLACE_USER_SYMBOL, "libc.so.6" },
		{ "prog!table+0x10@77:8:w", "table+0x10", 8, .access = PTWATCH_ACCESS_W, PTW_PLACE_USER_SYMBOL, "prog", 77 },
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct ptw_watch_target target;
		struct ptw_error err;

		if (ptw_watch_target_parse(good[i].text, &target, &err))
			fail_msg("%s: %s", good[i].text, err.text);
		assert_string_equal(target.text, good[i].text);
		assert_string_equal(target.place, good[i].place);
		assert_int_equal(target.len, good[i].len);
		assert_int_equal(target.access, good[i].access);
		assert_int_equal(target.kind, good[i].kind);
		assert_string_equal(target.binary, good[i].binary ? good[i].binary : "");
		assert_int_equal(target.pid, good[i].pid);
		assert_int_equal(target.owner, good[i].owner);
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
		{ "kv:3:w", "1, 2, 4 or 8 bytes, not 3; several together 16, 24 or 32" },
		{ "kv:12:w", "1, 2, 4 or 8 bytes, not 12" },
		{ "kv:40:w", "40 bytes need 5 debug registers, and a CPU has 4; watch at most 32 bytes" },
		{ "kv:0x8:w", "is not a LEN" },
		{ "kv:-8:w", "is not a LEN" },
		{ "kv::w", "is not a LEN" },
		{ "fn:4:x", "write fn:x" },
		{ "fn:8:x", "an execute watch has no length; write fn:x" },
		{ ":8:w", "no SYMBOL" },
		{ "1234:8:w", "begins with 0x" },
		{ "0x:8:w", "not a 64-bit address" },
		{ "0x1ffffffffffffffff:8:w", "not a 64-bit address" },
		{ "0x8000000000000000:8:w", "neither a kernel address" },
		{ "0xffffffffc0a01184:8:w", "not aligned to 8 bytes" },
		{ "0xffffffffc0a01184:8:w", "watch 4 bytes there" },
		{ "0xffffffffc0a01184:16:w", "not aligned to 8 bytes" },
		{ "0xffffffffc0a01181:2:rw", "watch 1 byte there, or 0xffffffffc0a01180:2" },
		{ "0xffffffffc0a01180@77:8:w", "the kernel's, not one of process 77" },
		{ "0x1234@0xffffffffc0a01180:8:w", "an address belongs to a process" },
		{ "task_struct.cred@me", "'me' is neither the number of a process nor an address" },
		{ "task_struct.cred@0", "'0' is neither" },
		{ "task_struct.cred@0x1234", "'0x1234' is not a kernel address" },
		{ "task_struct.cred@12:z", "'z' is neither LEN nor MODE" },
		{ "task_struct.cred@12:3", "not 3" },
		{ "task_struct@12", "is a field or user code" },
		{ "jiffies@12:8:w", "is a field or user code" },
		{ "prog!:8:w", "BINARY!SYMBOL[+OFFSET][@PID]" },
		{ "!sym:8:w", "BINARY!SYMBOL[+OFFSET][@PID]" },
		{ "prog!sym@0xffffffffc0a01180", "BINARY!SYMBOL[+OFFSET][@PID]" },
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
		{ "runqueues:8:w", 0, 0x20000, "runqueues+0x0" },
		{ "kvdemo:kv_counter+0x8:8:w", 0, 0x35028, "kv_counter+0x8" },
		{ "kvdemo:kv_cache_meat:8:w", 1, 0, "did you mean kvdemo:kv_cache_meta" },
		{ "kvdmo:kv_cache_meta:8:w", 1, 0, "did you mean kvdemo?; --wait-module waits for it" },
		{ "task.cred:8:w", 1, 0, "a field is somebody's: task.cred@PID or @0xADDR" },
	};
	struct ptw_symbols *symbols = load("0000000000000000 A __per_cpu_start\n"
					   "0000000000020000 A runqueues\n"
					   "0000000000035000 A __per_cpu_end\n"
					   "ffffffff81000100 T tick\n"
					   "ffffffff81000200 T tock\n"
					   "ffffffff82000010 D table\n"
					   "ffffffff82000100 D behind\n"
					   "0000000000035020 a kv_counter\t[kvdemo]\n"
					   "ffffffffc0a01180 d kv_cache_meta\t[kvdemo]\n");
	struct ptw_target_context context = { .symbols = symbols };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptw_watch_target target;
		struct ptw_error err = { 0 };
		int ret;

		if (ptw_watch_target_parse(cases[i].text, &target, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		ret = ptw_watch_target_resolve(&target, &context, &err);
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
		assert_int_equal(target.flags, target.address < 1 << 20 ? PTWATCH_WATCH_PERCPU : 0);
	}
	ptw_target_context_release(&context);
	ptw_symbols_free(symbols);
}

/* From 6.15 on per-CPU variables have addresses like all others. */
static void resolves_percpu_of_new_kernels(void **state)
{
	struct ptw_symbols *symbols = load("ffffffff81000000 T _text\n"
					   "ffffffff83f35000 D __per_cpu_start\n"
					   "ffffffff83f67780 D runqueues\n"
					   "ffffffff83f6b000 D __per_cpu_end\n"
					   "ffffffff83f6b000 D behind\n"
					   "ffffffff83f6b020 a ring\t[ptwatch]\n"
					   "ffffffffc0a01180 a other\t[ptwatch]\n");
	static const struct { const char *text; uint32_t flags; } cases[] = {
		{ "runqueues:8:w", PTWATCH_WATCH_PERCPU },
		{ "ptwatch:ring:8:w", PTWATCH_WATCH_PERCPU },
		{ "behind:8:w", 0 },
	};
	struct ptw_target_context context = { .symbols = symbols };
	const struct ptw_symbol *symbol;
	struct ptw_error err;
	uint64_t address;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptw_watch_target target;

		assert_int_equal(ptw_watch_target_parse(cases[i].text, &target, &err), 0);
		if (ptw_watch_target_resolve(&target, &context, &err))
			fail_msg("%s: %s", cases[i].text, err.text);
		assert_int_equal(target.flags, cases[i].flags);
	}
	/* Nobody else takes them for addresses. */
	assert_int_equal(ptw_symbols_resolve(symbols, "runqueues", &address, &symbol, &err), -1);
	assert_null(ptw_symbols_at(symbols, 0xffffffff83f67780));
	assert_true(ptw_symbols_has_module(symbols, "ptwatch"));
	assert_false(ptw_symbols_has_module(symbols, "ptwatc"));
	ptw_target_context_release(&context);
	ptw_symbols_free(symbols);
}

/* A symbol of a module, loaded or not, is left to the kernel to find. */
static void waits(void **state)
{
	struct ptw_symbols *symbols = load("ffffffff81000000 T _text\nffffffffc0a01180 d kv_cache_meta\t[kv_demo]\n");
	struct ptw_target_context context = { .symbols = symbols, .wait_module = true };
	struct ptw_watch_target target;
	struct ptw_error err;

	assert_int_equal(ptw_watch_target_parse("kv-demo:kv_cache_meta+0x8:8:w", &target, &err), 0);
	assert_int_equal(ptw_watch_target_resolve(&target, &context, &err), 0);
	assert_int_equal(target.flags, PTWATCH_WATCH_WAIT_MODULE);
	assert_string_equal(target.module, "kv_demo");
	assert_string_equal(target.symbol, "kv_cache_meta");
	assert_int_equal(target.address, 8);
	assert_string_equal(target.label, "kv_cache_meta+0x8");
	assert_int_equal(ptw_watch_target_parse("kv_demo:kv_cache_mate:8:w", &target, &err), 0);
	assert_int_equal(ptw_watch_target_resolve(&target, &context, &err), -1);
	assert_non_null(strstr(err.text, "did you mean kv_demo:kv_cache_meta"));
	assert_int_equal(ptw_watch_target_parse("absent:thing+4:8:w", &target, &err), 0);
	assert_int_equal(ptw_watch_target_resolve(&target, &context, &err), -1);
	assert_non_null(strstr(err.text, "not aligned"));
	assert_int_equal(ptw_watch_target_parse("absent:thing:8:w", &target, &err), 0);
	assert_int_equal(ptw_watch_target_resolve(&target, &context, &err), 0);
	assert_string_equal(target.module, "absent");
	ptw_target_context_release(&context);
	ptw_symbols_free(symbols);
}

static const char *own_name(void)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	assert_true(n > 0);
	return strrchr(path, '/') + 1;
}

uint64_t a_variable_of_this_program = 5;
static uint8_t bytes_of_this_program[12];

void a_function_of_this_program(void);
__attribute__((noinline)) void a_function_of_this_program(void)
{
	bytes_of_this_program[0]++;
}

/* This process watches itself, as far as finding out where goes. */
static void resolves_user(void **state)
{
	const struct {
		const char *symbol;
		int status;
		uint64_t address;
		uint32_t len, access;
		const char *says;
	} cases[] = {
		{ "a_variable_of_this_program", 0, (uintptr_t)&a_variable_of_this_program, 8, .access = PTWATCH_ACCESS_W },
		{ "a_variable_of_this_program:4:rw", 0, (uintptr_t)&a_variable_of_this_program, 4, .access = PTWATCH_ACCESS_RW },
		{ "a_variable_of_this_program+0x4:4:w", 0, (uintptr_t)&a_variable_of_this_program + 4, 4, .access = PTWATCH_ACCESS_W },
		{ "a_function_of_this_program", 0, (uintptr_t)a_function_of_this_program, 8, .access = PTWATCH_ACCESS_X },
		{ "a_variable_of_this_program:16:w", 1, 0, 0, 0, "has 8 bytes, not 16" },
		{ "a_variable_of_this_program:x", 1, 0, 0, 0, "is data, nothing executes it" },
		{ "a_variable_of_this_program+4:8:w", 1, 0, 0, 0, "not aligned to 8 bytes" },
		{ "bytes_of_this_program", 1, 0, 0, 0, "has 12 bytes, and debug registers watch 1, 2, 4 or 8 bytes; say how many" },
		{ "a_variable_of_this_progarm", 1, 0, 0, 0, "did you mean a_variable_of_this_program" },
	};
	struct ptw_target_context context = { .pid = getpid() };
	struct ptw_watch_target target;
	struct ptw_error err;
	char text[256];

	a_function_of_this_program();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), "%s!%s", own_name(), cases[i].symbol);
		if (ptw_watch_target_parse(text, &target, &err))
			fail_msg("%s: %s", text, err.text);
		if (!!ptw_watch_target_resolve(&target, &context, &err) != !!cases[i].status)
			fail_msg("%s: %s", text, cases[i].status ? "was accepted" : err.text);
		if (cases[i].status) {
			if (!strstr(err.text, cases[i].says))
				fail_msg("%s: '%s' does not say '%s'", text, err.text, cases[i].says);
			continue;
		}
		assert_int_equal(target.address, cases[i].address);
		assert_int_equal(target.len, cases[i].len);
		assert_int_equal(target.access, cases[i].access);
		assert_int_equal(target.flags, PTWATCH_WATCH_USER);
		assert_int_equal(target.tgid, getpid());
	}
	assert_int_equal(ptw_watch_target_parse("nosuchfile!main", &target, &err), 0);
	assert_int_equal(ptw_watch_target_resolve(&target, &context, &err), -1);
	assert_non_null(strstr(err.text, "nosuchfile is not mapped in process"));
	snprintf(text, sizeof(text), "0x%llx@%d:8:w", (unsigned long long)(uintptr_t)&a_variable_of_this_program, getpid());
	assert_int_equal(ptw_watch_target_parse(text, &target, &err), 0);
	assert_int_equal(ptw_watch_target_resolve(&target, &context, &err), 0);
	assert_string_equal(target.label, "");
	assert_int_equal(ptw_watch_target_parse("0x10000:8:w", &target, &err), 0);
	assert_int_equal(ptw_watch_target_resolve(&target, &context, &err), -1);
	assert_non_null(strstr(err.text, "0x10000 is not mapped in process"));
	ptw_target_context_release(&context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepts),
		cmocka_unit_test(refuses),
		cmocka_unit_test(resolves),
		cmocka_unit_test(resolves_percpu_of_new_kernels),
		cmocka_unit_test(waits),
		cmocka_unit_test(resolves_user),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("watch_target", tests, NULL, NULL) != 0;
}
