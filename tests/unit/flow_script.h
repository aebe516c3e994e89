/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flows written by hand, for tests of what is made from them. Functions are at round addresses: the function of a
 * name is at its place in flow_names, times 0x1000. Times are nanoseconds.
 */
#ifndef PTWATCH_TEST_FLOW_SCRIPT_H
#define PTWATCH_TEST_FLOW_SCRIPT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "report/story.h"

#define FLOW_THREADS	8
#define FLOW_UNNAMED	0x7f0000000000ULL	/* from there on is code of libx.so, which has no symbols */

static const char *const flow_names[] = {
	"", "main", "serve", "prefill", "decode", "recompute", "matmul", "schedule", "asm_sysvec_timer", "handle_softirqs",
	"net_rx", "asm_exc_page_fault", "entry_SYSCALL_64", "start_here", "end_here", "memcpy", "commit_creds",
	"_copy_from_user", "demo_ioctl", "do_execveat_common", "prepare_creds", "__x64_sys_ioctl", "__x64_sys_execve",
	"__x64_sys_setuid", "a_name_that_is_much_too_long_for_any_terminal_of_this_world",
};

#define FLOW_NAMES	(sizeof(flow_names) / sizeof(flow_names[0]))

static struct ptw_symbol flow_symbol[FLOW_NAMES];
static struct ptw_thread flow_thread[FLOW_THREADS];
static struct ptw_story *flow_story;
static uint32_t flow_current;
static uint64_t flow_insns;
static int32_t flow_cpu[FLOW_THREADS];
/* Where calls return to, thread by thread. */
static struct { uint64_t ret[64]; int depth; } flow_stack[FLOW_THREADS];

static inline uint64_t flow_address(const char *name)
{
	size_t i;

	for (i = 1; i < FLOW_NAMES; i++)
		if (!strcmp(flow_names[i], name))
			return i * 0x1000;
	fail_msg("no function %s", name);
	return 0;
}

static inline bool flow_place(void *source, const struct ptw_flow *flow, uint64_t addr, struct ptw_place *place)
{
	size_t i = addr / 0x1000;

	*place = (struct ptw_place){ .object = addr >= FLOW_UNNAMED ? "libx.so" : NULL };
	if (i < 1 || i >= FLOW_NAMES)
		return false;
	flow_symbol[i] = (struct ptw_symbol){ .addr = i * 0x1000, .size = 0x1000, .name = flow_names[i], .type = 't' };
	*place = (struct ptw_place){ .symbol = &flow_symbol[i], .start = i * 0x1000 };
	return true;
}

static inline const struct ptw_thread *flow_get_thread(void *source, uint32_t index)
{
	return &flow_thread[index];
}

/* Threads 0 … are 100 "t0", 101 "t1", … of process 100, each on the CPU that it was switched to last. */
static inline void flow_begin(int (*on_event)(void *context, const struct ptw_story_event *event), void *context)
{
	struct ptw_story_config config = {
		.place = flow_place, .thread = flow_get_thread, .on_event = on_event, .context = context,
	};
	int i;

	for (i = 0; i < FLOW_THREADS; i++) {
		flow_thread[i] = (struct ptw_thread){ .pid = 100, .tid = 100 + i, .cpu = -1 };
		flow_thread[i].comm[0] = 't';
		flow_thread[i].comm[1] = (char)('0' + i);
		flow_stack[i].depth = 0;
		flow_cpu[i] = 0;
	}
	flow_current = 0;
	flow_insns = 0;
	flow_story = ptw_story_new(&config);
	assert_non_null(flow_story);
}

static inline void flow_take_with(unsigned int flags, enum ptw_flow_kind kind, uint64_t time, uint64_t from, uint64_t to,
				  uint64_t value)
{
	struct ptw_flow flow = {
		.kind = kind, .flags = PTW_FLOW_TIMED | flags, .thread = flow_current, .cpu = flow_cpu[flow_current], .time = time,
		.from = from, .to = to, .value = value, .insns = ++flow_insns,
		.text = kind == PTW_FLOW_GAP ? "overflow: the CPU dropped packets" : NULL,
	};

	assert_int_equal(ptw_story_take(flow_story, &flow), 0);
	/* The stream's records are gone when the next ones come, or the end. */
	memset(&flow, 0xff, sizeof(flow));
	__asm__ volatile("" : : "r"(&flow) : "memory");
}

static inline void flow_take(enum ptw_flow_kind kind, uint64_t time, uint64_t from, uint64_t to, uint64_t value)
{
	flow_take_with(0, kind, time, from, to, value);
}

static inline void flow_push(uint64_t ret)
{
	assert_true(flow_stack[flow_current].depth < 64);
	flow_stack[flow_current].ret[flow_stack[flow_current].depth++] = ret;
}

/* The function of that name runs: tracing begins in it. */
static inline void flow_in(uint64_t time, const char *name)
{
	flow_take(PTW_FLOW_BEGIN, time, 0, flow_address(name) + 0x10, 0);
}

static inline void flow_call(uint64_t time, const char *from, const char *to)
{
	uint64_t at = flow_address(from) + 0x20 + 5 * (flow_address(to) >> 12);

	flow_take(PTW_FLOW_CALL, time, at, flow_address(to), at + 5);
	flow_push(at + 5);
}

static inline void flow_enter(enum ptw_flow_kind kind, uint64_t time, const char *from, const char *to)
{
	uint64_t at = flow_address(from) + 0x800;
	uint64_t ret = kind == PTW_FLOW_SYSCALL ? at + 2 : at;

	flow_take(kind, time, at, flow_address(to), kind == PTW_FLOW_SYSCALL ? ret : 0);
	flow_push(ret);
}

static inline void flow_interrupt(uint64_t time, const char *from, const char *to)
{
	flow_enter(PTW_FLOW_INTERRUPT, time, from, to);
}

static inline void flow_syscall(uint64_t time, const char *from, const char *to)
{
	flow_enter(PTW_FLOW_SYSCALL, time, from, to);
}

static inline void flow_leave(enum ptw_flow_kind kind, uint64_t time, const char *from)
{
	assert_true(flow_stack[flow_current].depth > 0);
	flow_take(kind, time, flow_address(from) + 0x900, flow_stack[flow_current].ret[--flow_stack[flow_current].depth], 0);
}

static inline void flow_return(uint64_t time, const char *from)
{
	flow_leave(PTW_FLOW_RETURN, time, from);
}

static inline void flow_iret(uint64_t time, const char *from)
{
	flow_leave(PTW_FLOW_FAR_RETURN, time, from);
}

static inline void flow_marker(uint64_t time, const char *at, uint64_t value)
{
	flow_take(PTW_FLOW_MARKER, time, flow_address(at) + 0x30, 0, value);
}

/* From now on @thread's flow follows, on @cpu; on its own CPU it takes the place of the one that ran. */
static inline void flow_switch(uint64_t time, uint32_t thread, int32_t cpu)
{
	uint32_t old = flow_current;

	flow_current = thread;
	flow_cpu[thread] = cpu;
	flow_take(PTW_FLOW_SWITCH, time, 0, 0, flow_cpu[old] == cpu ? old : FLOW_THREADS);
}

/* The thread has exited, and @thread goes on on its CPU. */
static inline void flow_exit(uint64_t time, uint32_t thread)
{
	uint32_t old = flow_current;

	flow_cpu[thread] = flow_cpu[old];
	flow_current = thread;
	flow_take_with(PTW_FLOW_EXITED, PTW_FLOW_SWITCH, time, 0, 0, old);
	flow_stack[old].depth = 0;
}

/* The next records are of @thread, which runs on another CPU at the same time. */
static inline void flow_also(uint32_t thread, int32_t cpu)
{
	flow_current = thread;
	flow_cpu[thread] = cpu;
}

static inline void flow_end(void)
{
	assert_int_equal(ptw_story_end(flow_story), 0);
	ptw_story_free(flow_story);
}

#endif /* PTWATCH_TEST_FLOW_SCRIPT_H */
