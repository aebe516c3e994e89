// SPDX-License-Identifier: BSD-2-Clause
/* An alarm from the wire to the terminal: netlink attributes, whole and damaged, and the text people read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>
#include <netlink/genl/genl.h>
#include <netlink/msg.h>

#include <linux/ptwatch.h>

#include "control/alarm_listener.h"
#include "report/alarm_text.h"

/* A message with everything in it but @skip (0: nothing is left out). */
static struct nl_msg *message(int skip)
{
	static const uint64_t stack[] = { 0xffffffff81000110, 0xffffffff81000220, 0xffffffff81000330 };
	static const uint64_t user[] = { 0x7f0000001014, 0x401151 };
	uint64_t regs[PTWATCH_REG_COUNT];
	struct nl_msg *msg = nlmsg_alloc();

	for (size_t i = 0; i < PTWATCH_REG_COUNT; i++)
		regs[i] = 0x1000 + i;
	assert_non_null(msg);
	assert_non_null(genlmsg_put(msg, 0, 0, 30, 0, 0, PTWATCH_CMD_ALARM, PTWATCH_GENL_VERSION));
#define U64(a, v) do { if ((a) != skip) nla_put_u64(msg, a, v); } while (0)
#define U32(a, v) do { if ((a) != skip) nla_put_u32(msg, a, v); } while (0)
#define STR(a, v) do { if ((a) != skip) nla_put_string(msg, a, v); } while (0)
	U64(PTWATCH_A_SEQ, 7);
	U32(PTWATCH_A_WATCH, 3);
	STR(PTWATCH_A_LABEL, "kv_cache_meta+0x0");
	U64(PTWATCH_A_TIME, 123456789012ULL);
	U64(PTWATCH_A_TSC, 0x1122334455ULL);
	U32(PTWATCH_A_CPU, 1);
	U32(PTWATCH_A_PID, 4242);
	U32(PTWATCH_A_TGID, 4240);
	STR(PTWATCH_A_COMM, "health_check");
	U64(PTWATCH_A_CGROUP, 99);
	U32(PTWATCH_A_ACCESS, PTWATCH_ACCESS_W);
	U64(PTWATCH_A_ADDRESS, 0xffffffffc0a01180);
	U32(PTWATCH_A_LEN, 8);
	U64(PTWATCH_A_IP, 0xffffffff81000110);
	U64(PTWATCH_A_OLD, 0x5a5a000000000010);
	U64(PTWATCH_A_NEW, 0x5a5a0000deadbeef);
	if (skip != PTWATCH_A_STACK)
		nla_put(msg, PTWATCH_A_STACK, sizeof(stack), stack);
	if (skip != PTWATCH_A_REGS)
		nla_put(msg, PTWATCH_A_REGS, sizeof(regs), regs);
	U32(PTWATCH_A_TRACE_STATE, PTWATCH_STATE_FROZEN);
	U32(PTWATCH_A_TRACE_BANK, 0);
	U64(PTWATCH_A_TRACE_OFFSET, 4096);
	U64(PTWATCH_A_TRACE_SIZE, 2031616);
	U64(PTWATCH_A_LOST, 5);
	U64(PTWATCH_A_HIT_ADDRESS, 0xffffffffc0a01180);
	STR(PTWATCH_A_SYMBOL, "kv_note_result+0x31/0x40 [kvdemo]");
	if (skip != PTWATCH_A_USER_STACK)
		nla_put(msg, PTWATCH_A_USER_STACK, sizeof(user), user);
	U32(PTWATCH_A_FREEZE, PTWATCH_FREEZE_HARDWARE);
	U32(PTWATCH_A_ACTIONS, PTWATCH_ACTION_EVENT | PTWATCH_ACTION_FREEZE);
	U64(PTWATCH_A_UNREAD, 2);
	return msg;
}

static void parses_every_attribute(void **state)
{
	struct nl_msg *msg = message(0);
	struct ptw_alarm alarm;
	struct ptw_error err;

	if (ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err))
		fail_msg("%s", err.text);
	assert_int_equal(alarm.seq, 7);
	assert_int_equal(alarm.watch, 3);
	assert_string_equal(alarm.label, "kv_cache_meta+0x0");
	assert_int_equal(alarm.time, 123456789012ULL);
	assert_int_equal(alarm.tsc, 0x1122334455ULL);
	assert_int_equal(alarm.cpu, 1);
	assert_int_equal(alarm.pid, 4242);
	assert_int_equal(alarm.tgid, 4240);
	assert_string_equal(alarm.comm, "health_check");
	assert_int_equal(alarm.cgroup, 99);
	assert_int_equal(alarm.access, PTWATCH_ACCESS_W);
	assert_int_equal(alarm.address, 0xffffffffc0a01180);
	assert_int_equal(alarm.len, 8);
	assert_int_equal(alarm.ip, 0xffffffff81000110);
	assert_int_equal(alarm.have_values, 1);
	assert_int_equal(alarm.old_value, 0x5a5a000000000010);
	assert_int_equal(alarm.new_value, 0x5a5a0000deadbeef);
	assert_int_equal(alarm.stack_count, 3);
	assert_int_equal(alarm.stack[2], 0xffffffff81000330);
	assert_int_equal(alarm.have_regs, 1);
	assert_int_equal(alarm.regs[PTWATCH_REG_FLAGS], 0x1000 + PTWATCH_REG_FLAGS);
	assert_int_equal(alarm.have_trace, 1);
	assert_int_equal(alarm.trace_state, PTWATCH_STATE_FROZEN);
	assert_int_equal(alarm.trace_offset, 4096);
	assert_int_equal(alarm.trace_size, 2031616);
	assert_int_equal(alarm.lost, 5);
	assert_int_equal(alarm.hit_address, 0xffffffffc0a01180);
	assert_int_equal(alarm.user_count, 2);
	assert_int_equal(alarm.user_stack[1], 0x401151);
	assert_int_equal(alarm.actions, PTWATCH_ACTION_EVENT | PTWATCH_ACTION_FREEZE);
	nlmsg_free(msg);
}

static void optional_and_mandatory(void **state)
{
	static const int optional[] = {
		PTWATCH_A_LABEL, PTWATCH_A_OLD, PTWATCH_A_NEW, PTWATCH_A_STACK, PTWATCH_A_REGS,
		PTWATCH_A_TRACE_STATE, PTWATCH_A_TRACE_BANK, PTWATCH_A_TRACE_OFFSET, PTWATCH_A_TRACE_SIZE,
		PTWATCH_A_HIT_ADDRESS, PTWATCH_A_SYMBOL, PTWATCH_A_USER_STACK, PTWATCH_A_FREEZE, PTWATCH_A_ACTIONS,
		PTWATCH_A_UNREAD,
	};

	for (int skip = PTWATCH_A_SEQ; skip <= PTWATCH_A_MAX; skip++) {
		struct nl_msg *msg = message(skip);
		struct ptw_alarm alarm;
		struct ptw_error err;
		bool may = false;

		for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
			may |= optional[i] == skip;
		assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), may ? 0 : -1);
		nlmsg_free(msg);
	}
}

static void damaged(void **state)
{
	struct ptw_alarm alarm;
	struct ptw_error err;
	struct nl_msg *msg;
	uint64_t many[PTW_ALARM_STACK_MAX + 8] = { 1 };

	/* Short integers, cut arrays, strings without an end. */
	msg = message(PTWATCH_A_SEQ);
	nla_put_u32(msg, PTWATCH_A_SEQ, 1);
	assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), -1);
	nlmsg_free(msg);
	msg = message(PTWATCH_A_STACK);
	nla_put(msg, PTWATCH_A_STACK, 12, many);
	assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), -1);
	nlmsg_free(msg);
	msg = message(PTWATCH_A_COMM);
	nla_put(msg, PTWATCH_A_COMM, 4, "abcd");
	assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), -1);
	nlmsg_free(msg);
	msg = message(PTWATCH_A_USER_STACK);
	nla_put(msg, PTWATCH_A_USER_STACK, 20, many);
	assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), -1);
	nlmsg_free(msg);
	/* A deeper stack than we keep, and an attribute of the future. */
	msg = message(PTWATCH_A_STACK);
	nla_put(msg, PTWATCH_A_STACK, sizeof(many), many);
	nla_put_u32(msg, PTWATCH_A_MAX + 1, 1);
	assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), 0);
	assert_int_equal(alarm.stack_count, PTW_ALARM_STACK_MAX);
	nlmsg_free(msg);
	/* Every length of the message, down to none. */
	msg = message(0);
	for (uint32_t len = nlmsg_hdr(msg)->nlmsg_len; len-- > 0;) {
		nlmsg_hdr(msg)->nlmsg_len = len;
		ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err);
	}
	nlmsg_free(msg);
}

static char *text_of(const struct ptw_alarm *alarm, int width, bool colour, int64_t after)
{
	struct ptw_alarm_style style = { .width = width, .colour = colour };
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ptw_alarm_write_text(out, alarm, NULL, &style);
	ptw_alarm_write_trace_text(out, alarm, after);
	fclose(out);
	return text;
}

static void prints(void **state)
{
	struct nl_msg *msg = message(0);
	struct ptw_alarm alarm;
	struct ptw_error err;
	char *text;

	assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), 0);
	nlmsg_free(msg);
	alarm.user_count = 0;
	text = text_of(&alarm, 60, false, 312);
	assert_string_equal(text,
		"ALARM #7  write 8 bytes at kv_cache_meta+0x0 (0xffffffffc0a01180)  cpu 1  pid 4242 (health_check)\n"
		"          old 0x5a5a000000000010  new 0x5a5a0000deadbeef\n"
		"          stack: 0xffffffff81000110  0xffffffff81000220\n"
		"                 0xffffffff81000330\n"
		"          trace: 2,031,616 bytes frozen on cpu 1, 312 instructions after the write\n");
	free(text);

	alarm.len = 2;
	alarm.old_value = 0x10;
	alarm.new_value = 0xbeef;
	alarm.access = PTWATCH_ACCESS_RW;
	alarm.label[0] = '\0';
	strcpy(alarm.comm, "a\033[31mb");
	alarm.stack_count = 1;
	text = text_of(&alarm, 80, false, 1);
	assert_string_equal(text,
		"ALARM #7  access 2 bytes at 0xffffffffc0a01180  cpu 1  pid 4242 (a?[31mb)\n"
		"          old 0x0010  new 0xbeef\n"
		"          stack: 0xffffffff81000110\n"
		"          trace: 2,031,616 bytes frozen on cpu 1, 1 instruction after the access\n");
	free(text);

	alarm.access = PTWATCH_ACCESS_X;
	strcpy(alarm.label, "health_tick+0x0");
	strcpy(alarm.comm, "kworker/0:1");
	alarm.have_values = 0;
	alarm.stack_count = 0;
	text = text_of(&alarm, 80, false, -1);
	assert_string_equal(text,
		"ALARM #7  execute health_tick+0x0 (0xffffffffc0a01180)  cpu 1  pid 4242 (kworker/0:1)\n"
		"          trace: 2,031,616 bytes frozen on cpu 1\n");
	free(text);

	alarm.have_trace = 0;
	text = text_of(&alarm, 80, true, 5);
	assert_non_null(strstr(text, "\033["));
	assert_null(strstr(text, "trace:"));
	free(text);
}

/* The user's side of a system call, and the part of a watch on several registers that was hit. */
static void prints_users(void **state)
{
	static const char *const user[] = { "write+0x14 [libc.so.6]", "main+0x51 [\033prog]" };
	struct ptw_alarm_style style = { .width = 60, .names = { .cgroup = "/system.slice/prog.service" } };
	struct nl_msg *msg = message(0);
	struct json_object *line, *v;
	struct ptw_alarm alarm;
	struct ptw_error err;
	char *text = NULL;
	size_t size;
	FILE *out;

	assert_int_equal(ptw_alarm_parse(nlmsg_hdr(msg), &alarm, &err), 0);
	nlmsg_free(msg);
	alarm.len = 32;
	alarm.hit_address += 0x18;
	alarm.stack_count = 1;
	out = open_memstream(&text, &size);
	ptw_alarm_write_text(out, &alarm, NULL, &style);
	style.names = (struct ptw_alarm_names){ .cgroup = "/", .user = user };
	ptw_alarm_write_text(out, &alarm, NULL, &style);
	fclose(out);
	assert_string_equal(text,
		"ALARM #7  write 8 bytes at kv_cache_meta+0x18 (0xffffffffc0a01198)  cpu 1  pid 4242 (health_check)\n"
		"          old 0x5a5a000000000010  new 0x5a5a0000deadbeef\n"
		"          stack: 0xffffffff81000110\n"
		"          user: 0x7f0000001014  0x401151\n"
		"          cgroup: /system.slice/prog.service\n"
		"ALARM #7  write 8 bytes at kv_cache_meta+0x18 (0xffffffffc0a01198)  cpu 1  pid 4242 (health_check)\n"
		"          old 0x5a5a000000000010  new 0x5a5a0000deadbeef\n"
		"          stack: 0xffffffff81000110\n"
		"          user: write+0x14 [libc.so.6]  main+0x51 [?prog]\n");
	free(text);
	text = NULL;
	out = open_memstream(&text, &size);
	style.names.cgroup = "/a";
	ptw_alarm_write_json_named(out, &alarm, NULL, &style.names);
	fclose(out);
	line = json_tokener_parse(text);
	assert_true(json_object_object_get_ex(line, "cgroup_path", &v));
	assert_string_equal(json_object_get_string(v), "/a");
	assert_true(json_object_object_get_ex(line, "hit_address", &v));
	assert_string_equal(json_object_get_string(v), "0xffffffffc0a01198");
	assert_true(json_object_object_get_ex(line, "actions", &v));
	assert_string_equal(json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN), "[\"event\",\"freeze\"]");
	assert_true(json_object_object_get_ex(line, "user_stack", &v));
	assert_string_equal(json_object_to_json_string_ext(json_object_array_get_idx(v, 0), JSON_C_TO_STRING_PLAIN),
			    "{\"ip\":\"0x00007f0000001014\",\"symbol\":\"write+0x14 [libc.so.6]\"}");
	assert_false(json_object_object_get_ex(line, "time_ns", &v));
	json_object_put(line);
	free(text);
}

/* The time of the reports follows from the TSC, where the kernel vouches for that; the other clock's stays as it is. */
static void two_clocks(void **state)
{
	const struct ptw_pt_params clock = { .have_time = true, .time_mult = 3, .time_shift = 1, .time_zero = 1000 };
	const struct ptw_pt_params unknown = { .time_mult = 3, .time_shift = 1 };
	struct ptw_alarm alarm = { .seq = 1, .time = 77, .tsc = 4000 };
	struct ptw_alarm_names names = { .clock = &clock };
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ptw_alarm_write_json_named(out, &alarm, NULL, &names);
	names.clock = &unknown;
	ptw_alarm_write_json_named(out, &alarm, NULL, &names);
	fclose(out);
	assert_non_null(strstr(text, "\"time\":77,\"time_ns\":7000,\"tsc\":4000,"));
	assert_non_null(strstr(strchr(text, '\n'), "\"time\":77,\"tsc\":4000,"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_every_attribute),
		cmocka_unit_test(optional_and_mandatory),
		cmocka_unit_test(damaged),
		cmocka_unit_test(prints),
		cmocka_unit_test(prints_users),
		cmocka_unit_test(two_clocks),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("watch_alarm", tests, NULL, NULL) != 0;
}
