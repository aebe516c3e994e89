// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fields and tasks: paths through a BTF that is made here, and the walk over a kernel's task lists in an ELF
 * core that is made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/btf.h>

#include "control/kernel_memory.h"
#include "symbols/types.h"

/*
 *	struct list_head { struct list_head *next, *prev; };
 *	struct signal_struct { int live; struct list_head thread_head; };
 *	struct task_struct {
 *		unsigned int state;
 *		union { int slot; unsigned char kind; };
 *		struct list_head tasks;
 *		int pid, tgid;
 *		struct signal_struct *signal;
 *		struct list_head thread_node;
 *		char comm[16];
 *		unsigned int a : 3, b : 10;
 *		struct { struct { long deep; }; } wide[2];
 *		enum { … } state2 (signed)
 *	};
 *	typedef struct task_struct task_t;
 *	DEFINE_PER_CPU(int, depth), DEFINE_PER_CPU(struct list_head, queue)
 */
enum {
	TASKS = 8, PID = 24, TGID = 28, SIGNAL = 32, THREAD_NODE = 40, COMM = 56, BITS = 72, WIDE = 80, STATE2 = 96,
	TASK_SIZE = 104, THREAD_HEAD = 8,
};

static struct btf *make_btf(void)
{
	struct btf *btf = btf__new_empty();
	int u32, s32, s64, ch, u8, pointer, list, signal, signal_pointer, un, name, inner, outer, array, state, task;
	int const_s32;

	u32 = btf__add_int(btf, "unsigned int", 4, 0);
	s32 = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	s64 = btf__add_int(btf, "long", 8, BTF_INT_SIGNED);
	ch = btf__add_int(btf, "char", 1, BTF_INT_SIGNED);
	u8 = btf__add_int(btf, "unsigned char", 1, 0);
	pointer = btf__add_ptr(btf, 0);
	list = btf__add_struct(btf, "list_head", 16);
	btf__add_field(btf, "next", pointer, 0, 0);
	btf__add_field(btf, "prev", pointer, 64, 0);
	signal = btf__add_struct(btf, "signal_struct", 24);
	btf__add_field(btf, "live", s32, 0, 0);
	btf__add_field(btf, "thread_head", list, THREAD_HEAD * 8, 0);
	signal_pointer = btf__add_ptr(btf, signal);
	const_s32 = btf__add_const(btf, s32);
	un = btf__add_union(btf, "", 4);
	btf__add_field(btf, "slot", const_s32, 0, 0);
	btf__add_field(btf, "kind", u8, 0, 0);
	name = btf__add_array(btf, u32, ch, 16);
	inner = btf__add_struct(btf, "", 8);
	btf__add_field(btf, "deep", s64, 0, 0);
	outer = btf__add_struct(btf, "", 8);
	btf__add_field(btf, "", inner, 0, 0);
	array = btf__add_array(btf, u32, outer, 2);
	state = btf__add_enum64(btf, "state_t", 8, true);
	btf__add_enum64_value(btf, "BAD", -1);
	task = btf__add_struct(btf, "task_struct", TASK_SIZE);
	btf__add_field(btf, "state", u32, 0, 0);
	btf__add_field(btf, "", un, 32, 0);
	btf__add_field(btf, "tasks", list, TASKS * 8, 0);
	btf__add_field(btf, "pid", s32, PID * 8, 0);
	btf__add_field(btf, "tgid", s32, TGID * 8, 0);
	btf__add_field(btf, "signal", signal_pointer, SIGNAL * 8, 0);
	btf__add_field(btf, "thread_node", list, THREAD_NODE * 8, 0);
	btf__add_field(btf, "comm", name, COMM * 8, 0);
	btf__add_field(btf, "a", u32, BITS * 8, 3);
	btf__add_field(btf, "b", u32, BITS * 8 + 3, 10);
	btf__add_field(btf, "wide", array, WIDE * 8, 0);
	btf__add_field(btf, "state2", state, STATE2 * 8, 0);
	btf__add_typedef(btf, "task_t", task);
	btf__add_var(btf, "depth", BTF_VAR_GLOBAL_ALLOCATED, s32);
	btf__add_var(btf, "queue", BTF_VAR_STATIC, list);
	return btf;
}

static struct ptw_types *load_types(void)
{
	char path[] = "/tmp/ptwatch-btf-XXXXXX";
	struct btf *btf = make_btf();
	struct ptw_types *types;
	int fd = mkstemp(path);
	struct ptw_error err;
	const void *raw;
	uint32_t size;

	raw = btf__raw_data(btf, &size);
	assert_int_equal(write(fd, raw, size), size);
	close(fd);
	btf__free(btf);
	types = ptw_types_load(path, &err);
	unlink(path);
	if (!types)
		fail_msg("%s", err.text);
	return types;
}

static void finds_fields(void **state)
{
	static const struct {
		const char *path;
		uint64_t offset, size;
		bool is_signed, is_bitfield;
	} cases[] = {
		{ "task_struct.state", 0, 4, false, false },
		{ "task_struct.slot", 4, 4, true, false },
		{ "task_struct.kind", 4, 1, false, false },
		{ "task_struct.tasks.prev", TASKS + 8, 8, false, false },
		{ "task_struct.tasks", TASKS, 16, false, false },
		{ "task_t.pid", PID, 4, true, false },
		{ "task_struct.signal", SIGNAL, 8, false, false },
		{ "task_struct.comm", COMM, 16, false, false },
		{ "task_struct.comm[8]", COMM + 8, 1, true, false },
		{ "task_struct.a", BITS, 1, false, true },
		{ "task_struct.b", BITS, 2, false, true },
		{ "task_struct.wide[1].deep", WIDE + 8, 8, true, false },
		{ "task_struct.wide", WIDE, 16, false, false },
		{ "task_struct.state2", STATE2, 8, true, false },
		{ "signal_struct.live", 0, 4, true, false },
	};
	struct ptw_types *types = load_types();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptw_field field;
		struct ptw_error err;

		if (ptw_types_field(types, cases[i].path, &field, &err))
			fail_msg("%s: %s", cases[i].path, err.text);
		assert_int_equal(field.offset, cases[i].offset);
		assert_int_equal(field.size, cases[i].size);
		assert_int_equal(field.is_signed, cases[i].is_signed);
		assert_int_equal(field.is_bitfield, cases[i].is_bitfield);
	}
	ptw_types_free(types);
}

static void refuses_fields(void **state)
{
	static const struct { const char *path; int status; const char *says; } bad[] = {
		{ "task_strukt.pid", 1, "no struct or union 'task_strukt'; did you mean task_struct?" },
		{ "task_struct.pdi", 1, "'task_struct' has no field 'pdi'; did you mean pid" },
		{ "task_struct.signal.live", 1, "'signal' is a pointer" },
		{ "task_struct.pid.x", 1, "'pid' has no fields" },
		{ "task_struct.wide.deep", 1, "'wide' is an array; say which element: wide[0].deep" },
		{ "task_struct.comm[16]", 1, "'comm' has 16 elements, so the last is [15]" },
		{ "task_struct.pid[0]", 1, "'pid' is no array" },
		{ "task_struct.comm[x]", 2, "'[x]' is no index" },
		{ "task_struct.comm[1", 2, "'[1' is no index" },
		{ "task_struct", 2, "not a field" },
		{ "task_struct.", 2, "not a field" },
		{ ".pid", 2, "not a field" },
		{ "task_struct..pid", 2, "not a field" },
		{ "int.x", 1, "no struct or union 'int'" },
	};
	struct ptw_types *types = load_types();
	struct ptw_field field;
	struct ptw_error err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (!ptw_types_field(types, bad[i].path, &field, &err))
			fail_msg("%s was found", bad[i].path);
		if ((int)err.status != bad[i].status || !strstr(err.text, bad[i].says))
			fail_msg("%s: status %d, '%s' does not say '%s'", bad[i].path, err.status, err.text, bad[i].says);
	}
	assert_int_equal(ptw_types_percpu(types, "depth", &field), 0);
	assert_int_equal(field.size, 4);
	assert_true(field.is_signed);
	assert_int_equal(ptw_types_percpu(types, "queue", &field), 0);
	assert_int_equal(field.size, 16);
	assert_int_equal(ptw_types_percpu(types, "task_struct", &field), -1);
	ptw_types_free(types);
	assert_null(ptw_types_load("/dev/null", &err));
	assert_int_equal(err.status, PTW_EXIT_FAILED);
}

/* ---- tasks ---- */

#define BASE	0xffff888000000000ULL
#define TASK(n)	(BASE + 0x1000 * (n))
#define SIGNALS	0x10000		/* signal_struct of task n, at SIGNALS + 0x100 * n */
#define CORE	0x20000

static uint8_t core[CORE];

static void put64(uint64_t address, uint64_t value) { memcpy(core + (address - BASE), &value, 8); }
static void put32(uint64_t address, uint32_t value) { memcpy(core + (address - BASE), &value, 4); }

static void make_task(int n, int pid, int tgid, int signal)
{
	put32(TASK(n) + PID, pid);
	put32(TASK(n) + TGID, tgid);
	put64(TASK(n) + SIGNAL, BASE + SIGNALS + 0x100 * signal);
}

/* A ring of list_heads. */
static void ring(const uint64_t *address, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put64(address[i], address[(i + 1) % count]);
}

static struct ptw_kernel_memory *open_core(struct ptw_error *err)
{
	Elf64_Ehdr header = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64 },
		.e_phoff = sizeof(header), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1,
	};
	Elf64_Phdr segment = { .p_type = PT_LOAD, .p_vaddr = BASE, .p_offset = 4096, .p_memsz = CORE, .p_filesz = CORE };
	char path[] = "/tmp/ptwatch-core-XXXXXX";
	struct ptw_kernel_memory *memory;
	int fd = mkstemp(path);

	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(pwrite(fd, &segment, sizeof(segment), sizeof(header)), sizeof(segment));
	assert_int_equal(pwrite(fd, core, CORE, 4096), CORE);
	close(fd);
	memory = ptw_kernel_memory_open(path, err);
	unlink(path);
	return memory;
}

static struct ptw_symbols *load_symbols(void)
{
	char path[] = "/tmp/ptwatch-kallsyms-XXXXXX";
	struct ptw_symbols *symbols = ptw_symbols_new();
	int fd = mkstemp(path);
	struct ptw_error err;

	assert_true(dprintf(fd, "%llx D init_task\n", TASK(0)) > 0);
	close(fd);
	assert_int_equal(ptw_symbols_load_kallsyms(symbols, path, &err), 0);
	unlink(path);
	return symbols;
}

static void finds_tasks(void **state)
{
	const uint64_t processes[] = { TASK(0) + TASKS, TASK(1) + TASKS, TASK(2) + TASKS };
	const uint64_t threads[] = {
		BASE + SIGNALS + 0x200 + THREAD_HEAD, TASK(2) + THREAD_NODE, TASK(3) + THREAD_NODE, TASK(4) + THREAD_NODE,
	};
	struct ptw_symbols *symbols = load_symbols();
	struct ptw_types *types = load_types();
	struct ptw_kernel_memory *memory;
	struct ptw_error err;
	uint64_t address;

	memset(core, 0, sizeof(core));
	make_task(0, 0, 0, 0);
	make_task(1, 1, 1, 1);
	make_task(2, 500, 500, 2);
	make_task(3, 501, 500, 2);
	make_task(4, 502, 500, 2);
	ring(processes, 3);
	ring(threads, 4);
	memory = open_core(&err);
	assert_non_null(memory);
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 1, 1, &address, &err), 0);
	assert_int_equal(address, TASK(1));
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 500, 500, &address, &err), 0);
	assert_int_equal(address, TASK(2));
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 502, 500, &address, &err), 0);
	assert_int_equal(address, TASK(4));
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 503, 500, &address, &err), -1);
	assert_non_null(strstr(err.text, "thread 503 is not to be found; has it ended?"));
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 7, 7, &address, &err), -1);
	ptw_kernel_memory_close(memory);

	/* An entry that is just being removed (LIST_POISON1), and a ring that never comes back. */
	put64(TASK(1) + TASKS, 0xdead000000000100ULL);
	memory = open_core(&err);
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 500, 500, &address, &err), -1);
	assert_non_null(strstr(err.text, "changed too fast"));
	ptw_kernel_memory_close(memory);
	put64(TASK(1) + TASKS, 0x100);
	memory = open_core(&err);
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 500, 500, &address, &err), -1);
	ptw_kernel_memory_close(memory);

	/* A thread whose process is another one. */
	ring(processes, 3);
	put32(TASK(4) + TGID, 9);
	memory = open_core(&err);
	assert_int_equal(ptw_kernel_task(memory, symbols, types, 502, 500, &address, &err), -1);
	ptw_kernel_memory_close(memory);
	assert_null(ptw_kernel_memory_open("/dev/null", &err));
	ptw_types_free(types);
	ptw_symbols_free(symbols);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_fields),
		cmocka_unit_test(refuses_fields),
		cmocka_unit_test(finds_tasks),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("types", tests, NULL, NULL) != 0;
}
