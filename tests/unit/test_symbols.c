// SPDX-License-Identifier: BSD-2-Clause
/* Names of addresses and addresses of names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbols/symbols.h"

static const char *const kernel =
	"0000000000000000 A fixed_percpu_data\n"
	"0000000000021000 A cpu_tick\n"
	"ffffffff81000000 T _stext\n"
	"ffffffff81000000 T _text\n"
	"ffffffff81000000 T startup_64\n"
	"ffffffff81000040 t $x\n"
	"ffffffff81000050 t .Lloop\n"
	"ffffffff81000100 t c_start\n"
	"ffffffff81000200 T __memcpy\n"
	"ffffffff81000200 T memcpy\n"
	"ffffffff81000300 T kernel_clone\n"
	"ffffffff81000400 t c_start\n"
	"ffffffff81000500 W weak_hook\n"
	"ffffffff81000500 t static_alias\n"
	"ffffffff81000600 T vfs_read\n"
	"ffffffff81000700 T vfs_readv\n"
	"ffffffff81000800 t shared_name\n"
	"ffffffff81000900 T __lock_text_end\n"
	"ffffffff81000910 T schedule\n"
	"ffffffff81000a80 T _etext\n"
	"ffffffff81400000 D __start_rodata\n"
	"ffffffff81400000 D rodata_first\n"
	"ffffffff81400040 d table\n"
	"ffffffff81480000 D jiffies\n"
	"ffffffff81480080 B __bss_stop\n"
	"ffffffff81480080 B _end\n"
	"ffffffffc0201000 t health_tick\t[kvdemo]\n"
	"ffffffffc0201080 t cleanup_module\t[kvdemo]\n"
	"ffffffffc0201100 t shared_name\t[kvdemo]\n"
	"ffffffffc0203180 d kv_cache_meta\t[kvdemo]\n"
	"ffffffffc0300000 t shared_name\t[my_other]\n"
	"ffffffffc0300010 T exported_twice\t[my_other]\n"
	"ffffffffc0300400 t exported_twice\t[my_other]\n"
	"ffffffffc0400000 t bpf_prog_6deef7357e7b4530\t[bpf]\n";

static struct ptw_symbols *load(const char *text, struct ptw_error *err)
{
	char path[] = "/tmp/test_symbols.XXXXXX";
	struct ptw_symbols *s = ptw_symbols_new();
	int fd = mkstemp(path), ret;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	ret = ptw_symbols_load_kallsyms(s, path, err);
	unlink(path);
	if (ret) {
		ptw_symbols_free(s);
		return NULL;
	}
	return s;
}

static int setup(void **state)
{
	struct ptw_error err = { .status = 0 };

	*state = load(kernel, &err);
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	ptw_symbols_free(*state);
	return 0;
}

static void names_addresses(void **state)
{
	static const struct { uint64_t addr; const char *text; } want[] = {
		{ 0xffffffff81000000, "startup_64+0x0" },	/* not _text, not _stext */
		{ 0xffffffff81000060, "startup_64+0x60" },	/* assembler labels name nothing */
		{ 0xffffffff81000110, "c_start+0x10" },
		{ 0xffffffff81000200, "memcpy+0x0" },
		{ 0xffffffff810003ff, "kernel_clone+0xff" },
		{ 0xffffffff81000500, "weak_hook+0x0" },
		{ 0xffffffff81000905, "0xffffffff81000905" },	/* behind the end of a section of text */
		{ 0xffffffff81000911, "schedule+0x1" },
		{ 0xffffffff81000a80, "_etext+0x0" },
		{ 0xffffffff81000a81, "0xffffffff81000a81" },
		{ 0xffffffff81200000, "0xffffffff81200000" },
		{ 0xffffffff81400001, "rodata_first+0x1" },
		{ 0xffffffff81450000, "table+0x4ffc0" },	/* data may be large */
		{ 0xffffffff81480079, "jiffies+0x79" },
		{ 0xffffffff81500000, "0xffffffff81500000" },	/* behind the kernel */
		{ 0xffffffffc0201010, "health_tick+0x10 [kvdemo]" },
		{ 0xffffffffc0202000, "shared_name+0xf00 [kvdemo]" },
		{ 0xffffffffc0202100, "0xffffffffc0202100" },	/* a page behind the module's last function */
		{ 0xffffffffc0203188, "kv_cache_meta+0x8 [kvdemo]" },
		{ 0xffffffffc02fffff, "0xffffffffc02fffff" },	/* between two modules */
		{ 0xffffffffc0400020, "bpf_prog_6deef7357e7b4530+0x20 [bpf]" },
		{ 0xffffffffc0500000, "0xffffffffc0500000" },
		{ 0xffffffffffffffff, "0xffffffffffffffff" },
		{ 0x21000, "0x0000000000021000" },		/* per-CPU offsets are no addresses */
		{ 0x0, "0x0000000000000000" },
	};
	char buf[128];

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		assert_string_equal(ptw_symbols_format(*state, want[i].addr, buf, sizeof(buf)), want[i].text);
	assert_string_equal(ptw_symbols_format(NULL, 0x1234, buf, sizeof(buf)), "0x0000000000001234");
	/* A buffer that is too small is cut, not overrun. */
	assert_string_equal(ptw_symbols_format(*state, 0xffffffffc0203188, buf, 8), "kv_cach");
}

static void resolves_spellings(void **state)
{
	static const struct { const char *text; uint64_t addr; const char *name; } want[] = {
		{ "kv_cache_meta", 0xffffffffc0203180, "kv_cache_meta" },
		{ "kv_cache_meta+0x10", 0xffffffffc0203190, "kv_cache_meta" },
		{ "kv_cache_meta+16", 0xffffffffc0203190, "kv_cache_meta" },
		{ "kvdemo:kv_cache_meta", 0xffffffffc0203180, "kv_cache_meta" },
		{ "kvdemo:kv_cache_meta+0x8", 0xffffffffc0203188, "kv_cache_meta" },
		{ "my-other:shared_name", 0xffffffffc0300000, "shared_name" },
		{ "vmlinux:shared_name", 0xffffffff81000800, "shared_name" },
		{ "exported_twice", 0xffffffffc0300010, "exported_twice" },	/* the global one */
		{ "_text", 0xffffffff81000000, "_text" },
		{ "0xffffffff81000911", 0xffffffff81000911, NULL },
		{ "0x10", 0x10, NULL },
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct ptw_symbol *symbol = (void *)1;
		struct ptw_error err = { .status = 0 };
		uint64_t addr = 1;

		if (ptw_symbols_resolve(*state, want[i].text, &addr, &symbol, &err))
			fail_msg("%s: %s", want[i].text, err.text);
		assert_int_equal(addr, want[i].addr);
		if (want[i].name)
			assert_string_equal(symbol->name, want[i].name);
		else
			assert_null(symbol);
	}
}

static void explains_failures(void **state)
{
	static const struct { const char *text; enum ptw_exit status; const char *says; } want[] = {
		{ "kernel_clon", PTW_EXIT_FAILED, "did you mean kernel_clone?" },
		{ "vfs_raed", PTW_EXIT_FAILED, "did you mean vfs_read, vfs_readv?" },
		{ "kv_cache", PTW_EXIT_FAILED, "did you mean kvdemo:kv_cache_meta?" },
		{ "kvdemo:helth_tick", PTW_EXIT_FAILED, "did you mean kvdemo:health_tick?" },
		{ "zzzzzzzzzzzz", PTW_EXIT_FAILED, "no such symbol; is its module loaded?" },
		{ "kvdem:kv_cache_meta", PTW_EXIT_FAILED, "kvdem: no symbols of such a module" },
		{ "kvdem:kv_cache_meta", PTW_EXIT_FAILED, "did you mean kvdemo?" },
		{ "c_start", PTW_EXIT_FAILED, "2 symbols have this name; choose one: 0xffffffff81000" },
		{ "shared_name", PTW_EXIT_FAILED, "0xffffffffc0300000 (my_other:shared_name)" },
		{ "shared_name", PTW_EXIT_FAILED, "0xffffffff81000800 (vmlinux:shared_name)" },
		{ "cpu_tick", PTW_EXIT_FAILED, "per-CPU" },
		{ "fixed_percpu_data", PTW_EXIT_FAILED, "per-CPU" },
		{ "", PTW_EXIT_USAGE, "not a symbol" },
		{ "+0x10", PTW_EXIT_USAGE, "not a symbol" },
		{ "schedule+", PTW_EXIT_USAGE, "not a symbol" },
		{ "schedule+0x", PTW_EXIT_USAGE, "not a symbol" },
		{ "schedule+10h", PTW_EXIT_USAGE, "not a symbol" },
		{ "schedule+0xffffffffffffffff", PTW_EXIT_USAGE, "not a symbol" },
		{ "schedule+0x1ffffffffffffffff", PTW_EXIT_USAGE, "not a symbol" },
		{ ":schedule", PTW_EXIT_USAGE, "not a symbol" },
		{ "kvdemo:", PTW_EXIT_USAGE, "not a symbol" },
		{ "a:b:c", PTW_EXIT_USAGE, "not a symbol" },
		{ "two words", PTW_EXIT_USAGE, "not a symbol" },
		{ "0xfoo", PTW_EXIT_USAGE, "not a symbol" },
		{ "0x", PTW_EXIT_USAGE, "not a symbol" },
		{ "0x11112222333344445", PTW_EXIT_USAGE, "not a symbol" },
		{ "123", PTW_EXIT_USAGE, "not a symbol" },
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct ptw_error err = { .status = 0 };
		uint64_t addr;

		assert_int_equal(ptw_symbols_resolve(*state, want[i].text, &addr, NULL, &err), -1);
		assert_int_equal(err.status, want[i].status);
		if (!strstr(err.text, want[i].says))
			fail_msg("%s: \"%s\" does not say \"%s\"", want[i].text, err.text, want[i].says);
		assert_null(strchr(err.text, '\n'));
	}
}

static void refuses_bad_files(void **state)
{
	static const struct { const char *text, *says; } want[] = {
		{ "0000000000000000 T _text\n0000000000000000 T schedule\n", "kptr_restrict" },
		{ "0000000000000000 T _text\n0000000000000000 T schedule\n", "CAP_SYSLOG" },
		{ "", "holds no symbols" },
		{ "ffffffff81000000 T _text\nrubbish\n", "line 2" },
		{ "ffffffff81000000\n", "line 1" },
		{ "ffffffff81000000 T \n", "line 1" },
		{ "fffffffff81000000 T x\n", "line 1" },
		{ "ffffffff81000000 T x\n\nffffffff81000000 T y\n", "line 2" },
	};
	struct ptw_symbols *s;

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct ptw_error err = { .status = 0 };

		assert_null(load(want[i].text, &err));
		assert_int_equal(err.status, PTW_EXIT_FAILED);
		if (!strstr(err.text, want[i].says))
			fail_msg("\"%s\" does not say \"%s\"", err.text, want[i].says);
	}
	s = ptw_symbols_new();
	assert_int_equal(ptw_symbols_load_kallsyms(s, "/nonexistent/kallsyms", NULL), -1);
	assert_int_equal(ptw_symbols_load_elf(s, "/nonexistent/elf", 0, NULL, NULL), -1);
	assert_int_equal(ptw_symbols_load_elf(s, "/etc/passwd", 0, NULL, NULL), -1);
	/* An empty table answers, too. */
	assert_null(ptw_symbols_at(s, 0x1000));
	assert_int_equal(ptw_symbols_resolve(s, "schedule", &(uint64_t){ 0 }, NULL, NULL), -1);
	ptw_symbols_free(s);
	ptw_symbols_free(NULL);
	/* What nm could not classify is a symbol like others. */
	s = load("ffffffff81000000 ? __nosave_begin\nffffffff81001000 B __bss_start\n", NULL);
	assert_non_null(s);
	assert_string_equal(ptw_symbols_at(s, 0xffffffff81000010)->name, "__nosave_begin");
	ptw_symbols_free(s);
	/* A last line without its newline counts. */
	s = load("ffffffff81000000 T last", NULL);
	assert_non_null(s);
	assert_string_equal(ptw_symbols_at(s, 0xffffffff81000000)->name, "last");
	ptw_symbols_free(s);
}

/* Every address of a large random table, against the plain definition: the nearest symbol at or below. */
static void agrees_with_a_plain_search(void **state)
{
	enum { N = 200000 };
	uint64_t *addr = calloc(N + 1, sizeof(*addr)), at = 0xffffffff81000000;
	struct ptw_symbols *s = ptw_symbols_new();
	char path[] = "/tmp/test_symbols.XXXXXX";
	FILE *out = fdopen(mkstemp(path), "w");

	srandom(20240501);
	for (int i = 0; i < N; i++) {
		addr[i] = at;
		at += 1 + random() % 200;
	}
	addr[N] = at;
	/* The second half first: order in the file doesn't matter. */
	for (int i = 0; i < N; i++) {
		int k = (i + N / 2) % N;

		fprintf(out, "%016llx %c f%d\n", (unsigned long long)addr[k], "tT"[k & 1], k);
	}
	fclose(out);
	assert_int_equal(ptw_symbols_load_kallsyms(s, path, NULL), 0);
	unlink(path);
	for (int i = 0; i < N; i++) {
		uint64_t probe = addr[i] + random() % (addr[i + 1] - addr[i]);
		const struct ptw_symbol *found = ptw_symbols_at(s, probe);

		assert_non_null(found);
		assert_int_equal(found->addr, addr[i]);
		assert_int_equal(atoi(found->name + 1), i);
	}
	for (int i = 0; i < 1000; i++) {
		int k = random() % N;
		char name[16];
		uint64_t got;

		snprintf(name, sizeof(name), "f%d", k);
		assert_int_equal(ptw_symbols_resolve(s, name, &got, NULL, NULL), 0);
		assert_int_equal(got, addr[k]);
	}
	ptw_symbols_free(s);
	free(addr);
}

void a_function_of_this_program(void);

__attribute__((noinline)) void a_function_of_this_program(void)
{
	__asm__ volatile("nop; nop; nop");
}

static void reads_elf(void **state)
{
	uint64_t here = (uintptr_t)a_function_of_this_program, got;
	struct ptw_error err = { .status = 0 };
	const struct ptw_symbol *symbol;
	struct ptw_symbols *s;
	char buf[128];
	Dl_info info;

	assert_true(dladdr(a_function_of_this_program, &info));
	/* Together with a kernel: the two don't disturb each other. */
	s = load(kernel, &err);
	if (ptw_symbols_load_elf(s, "/proc/self/exe", (uintptr_t)info.dli_fbase, "me", &err))
		fail_msg("%s", err.text);
	assert_string_equal(ptw_symbols_format(s, here + 1, buf, sizeof(buf)),
			    "a_function_of_this_program+0x1 [me]");
	assert_int_equal(ptw_symbols_resolve(s, "me:a_function_of_this_program", &got, &symbol, &err), 0);
	assert_int_equal(got, here);
	assert_true(symbol->size > 0);
	assert_null(ptw_symbols_at(s, here + 0x10000000));
	assert_string_equal(ptw_symbols_format(s, 0xffffffff81000911, buf, sizeof(buf)), "schedule+0x1");
	ptw_symbols_free(s);
}

static void reads_sample(void **state)
{
	const char *samples = getenv("PTWATCH_SAMPLES");
	struct ptw_symbols *s = ptw_symbols_new();
	struct ptw_error err = { .status = 0 };
	char path[4096], buf[128];
	uint64_t addr;

	if (samples)
		snprintf(path, sizeof(path), "%s/skylake-hello/hello", samples);
	else
		snprintf(path, sizeof(path), "%.*s/../../../shared/samples/skylake-hello/hello",
			 (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__);
	if (access(path, R_OK)) {
		ptw_symbols_free(s);
		skip();
	}
	assert_int_equal(ptw_symbols_load_elf(s, path, 0, NULL, &err), 0);
	assert_int_equal(ptw_symbols_resolve(s, "main", &addr, NULL, &err), 0);
	assert_string_equal(ptw_symbols_format(s, addr + 4, buf, sizeof(buf)), "main+0x4 [hello]");
	ptw_symbols_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(names_addresses, setup, teardown),
		cmocka_unit_test_setup_teardown(resolves_spellings, setup, teardown),
		cmocka_unit_test_setup_teardown(explains_failures, setup, teardown),
		cmocka_unit_test(refuses_bad_files),
		cmocka_unit_test(agrees_with_a_plain_search),
		cmocka_unit_test(reads_elf),
		cmocka_unit_test(reads_sample),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
