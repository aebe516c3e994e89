// SPDX-License-Identifier: BSD-2-Clause
/*
 * Alarms as JSON, one object a line:
 *
 *	seq, watch, time, tsc, cpu, pid, tgid, cgroup, len, lost	numbers; time is that of CLOCK_MONOTONIC
 *	time_ns		number, where the kernel vouches for the TSC: that on perf's clock, which is the one of all reports
 *	label, comm, access ("w", "rw", "x")				strings
 *	address, ip, old, new						strings, "0x" and 16 digits
 *	ip_symbol, cgroup_path						strings, where they are known
 *	hit_address							string; of a watch of more than 8 bytes, the 8 that were hit
 *	actions	["log", "event", "freeze", …]
 *	stack	[{"ip": "0x…", "symbol": "health_tick+0x1d [demo]"}, …]
 *	user_stack	likewise, of the user code that made the system call
 *	regs	{"ax": "0x…", …}
 *	trace	{"state": "frozen", "bank": 0, "offset": 4096, "size": 65536}
 *
 * Addresses and values are strings because most readers of JSON keep numbers as doubles and would round them.
 */
#include "recording/alarm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include <linux/ptwatch.h>

#include "common/utf8.h"

#define LINE_LIMIT	(1 << 20)
#define ALARM_LIMIT	(1 << 20)

static const char *const access_name[] = {
	[PTWATCH_ACCESS_W] = "w",
	[PTWATCH_ACCESS_RW] = "rw",
	[PTWATCH_ACCESS_X] = "x",
};

static const char *const state_name[] = {
	[PTWATCH_STATE_STOPPED] = "stopped",
	[PTWATCH_STATE_RUNNING] = "running",
	[PTWATCH_STATE_FROZEN] = "frozen",
	[PTWATCH_STATE_ERROR] = "error",
	[PTWATCH_STATE_OFFLINE] = "offline",
};

/* By the bits of ptwatch_watch.actions. */
static const char *const action_name[] = { "log", "event", "freeze", "freeze_all", "start", "stop", "panic" };

static const char *const reg_name[PTWATCH_REG_COUNT] = {
	[PTWATCH_REG_AX] = "ax",   [PTWATCH_REG_BX] = "bx",   [PTWATCH_REG_CX] = "cx",
	[PTWATCH_REG_DX] = "dx",   [PTWATCH_REG_SI] = "si",   [PTWATCH_REG_DI] = "di",
	[PTWATCH_REG_BP] = "bp",   [PTWATCH_REG_SP] = "sp",   [PTWATCH_REG_R8] = "r8",
	[PTWATCH_REG_R9] = "r9",   [PTWATCH_REG_R10] = "r10", [PTWATCH_REG_R11] = "r11",
	[PTWATCH_REG_R12] = "r12", [PTWATCH_REG_R13] = "r13", [PTWATCH_REG_R14] = "r14",
	[PTWATCH_REG_R15] = "r15", [PTWATCH_REG_IP] = "ip",   [PTWATCH_REG_FLAGS] = "flags",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A thread may call itself anything; JSON is UTF-8. @size: of the field, which need not be terminated. */
static struct json_object *text_object(const char *text, size_t size)
{
	char copy[256];
	size_t n = strnlen(text, size), step;

	if (n >= sizeof(copy))
		n = sizeof(copy) - 1;
	memcpy(copy, text, n);
	copy[n] = 0;
	for (size_t i = 0; i < n; i += step) {
		step = ptw_utf8_size(copy + i);
		if (!step) {
			copy[i] = '?';
			step = 1;
		}
	}
	return json_object_new_string(copy);
}

static struct json_object *hex_object(uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%016llx", (unsigned long long)value);
	return json_object_new_string(text);
}

static int add(struct json_object *to, const char *key, struct json_object *value)
{
	if (!value)
		return -1;
	if (!json_object_object_add(to, key, value))
		return 0;
	json_object_put(value);
	return -1;
}

static struct json_object *symbol_object(const struct ptw_symbols *symbols, uint64_t addr)
{
	char name[512];

	return json_object_new_string(ptw_symbols_format(symbols, addr, name, sizeof(name)));
}

static int add_frame(struct json_object *stack, uint64_t ip, struct json_object *symbol)
{
	struct json_object *frame = json_object_new_object();

	if (!frame || json_object_array_add(stack, frame)) {
		json_object_put(frame);
		json_object_put(symbol);
		return -1;
	}
	if (add(frame, "ip", hex_object(ip))) {
		json_object_put(symbol);
		return -1;
	}
	return symbol ? add(frame, "symbol", symbol) : 0;
}

static int add_stack(struct json_object *to, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols)
{
	struct json_object *stack = json_object_new_array();
	uint32_t n = alarm->stack_count < PTW_ALARM_STACK_MAX ? alarm->stack_count : PTW_ALARM_STACK_MAX;

	if (add(to, "stack", stack))
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		bool known = ptw_symbols_at(symbols, alarm->stack[i]);

		if (add_frame(stack, alarm->stack[i], known ? symbol_object(symbols, alarm->stack[i]) : NULL))
			return -1;
	}
	return 0;
}

static int add_user_stack(struct json_object *to, const struct ptw_alarm *alarm, const char *const *names)
{
	struct json_object *stack = json_object_new_array();

	if (add(to, "user_stack", stack))
		return -1;
	for (uint32_t i = 0; i < alarm->user_count; i++) {
		const char *name = names ? names[i] : NULL;

		if (add_frame(stack, alarm->user_stack[i], name ? text_object(name, strlen(name)) : NULL))
			return -1;
	}
	return 0;
}

static int add_actions(struct json_object *to, uint32_t actions)
{
	struct json_object *list = json_object_new_array();

	if (add(to, "actions", list))
		return -1;
	for (size_t i = 0; i < COUNT(action_name); i++)
		if (actions & 1U << i && json_object_array_add(list, json_object_new_string(action_name[i])))
			return -1;
	return 0;
}

static int fill(struct json_object *o, const struct ptw_alarm *a, const struct ptw_symbols *symbols,
		const struct ptw_alarm_names *names)
{
	int bad = 0;

	bad |= add(o, "seq", json_object_new_uint64(a->seq));
	bad |= add(o, "watch", json_object_new_uint64(a->watch));
	if (a->label[0])
		bad |= add(o, "label", text_object(a->label, sizeof(a->label)));
	bad |= add(o, "time", json_object_new_uint64(a->time));
	if (names && names->clock && names->clock->have_time)
		bad |= add(o, "time_ns", json_object_new_uint64(ptw_tsc_to_ns(names->clock, a->tsc)));
	bad |= add(o, "tsc", json_object_new_uint64(a->tsc));
	bad |= add(o, "cpu", json_object_new_uint64(a->cpu));
	bad |= add(o, "pid", json_object_new_uint64(a->pid));
	bad |= add(o, "tgid", json_object_new_uint64(a->tgid));
	bad |= add(o, "comm", text_object(a->comm, sizeof(a->comm)));
	bad |= add(o, "cgroup", json_object_new_uint64(a->cgroup));
	if (names && names->cgroup)
		bad |= add(o, "cgroup_path", text_object(names->cgroup, strlen(names->cgroup)));
	if (a->access < COUNT(access_name) && access_name[a->access])
		bad |= add(o, "access", json_object_new_string(access_name[a->access]));
	bad |= add(o, "address", hex_object(a->address));
	if (a->hit_address)
		bad |= add(o, "hit_address", hex_object(a->hit_address));
	bad |= add(o, "len", json_object_new_uint64(a->len));
	bad |= add(o, "ip", hex_object(a->ip));
	if (ptw_symbols_at(symbols, a->ip))
		bad |= add(o, "ip_symbol", symbol_object(symbols, a->ip));
	if (a->have_values) {
		bad |= add(o, "old", hex_object(a->old_value));
		bad |= add(o, "new", hex_object(a->new_value));
	}
	bad |= add_stack(o, a, symbols);
	if (a->user_count)
		bad |= add_user_stack(o, a, names ? names->user : NULL);
	if (a->actions)
		bad |= add_actions(o, a->actions);
	if (a->have_regs) {
		struct json_object *regs = json_object_new_object();

		if (add(o, "regs", regs))
			return -1;
		for (int i = 0; i < PTWATCH_REG_COUNT; i++)
			bad |= add(regs, reg_name[i], hex_object(a->regs[i]));
	}
	if (a->have_trace) {
		struct json_object *trace = json_object_new_object();

		if (add(o, "trace", trace))
			return -1;
		if (a->trace_state < COUNT(state_name))
			bad |= add(trace, "state", json_object_new_string(state_name[a->trace_state]));
		bad |= add(trace, "bank", json_object_new_uint64(a->trace_bank));
		bad |= add(trace, "offset", json_object_new_uint64(a->trace_offset));
		bad |= add(trace, "size", json_object_new_uint64(a->trace_size));
	}
	bad |= add(o, "lost", json_object_new_uint64(a->lost));
	return bad;
}

int ptw_alarm_write_json_named(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols,
			       const struct ptw_alarm_names *names)
{
	struct json_object *o = json_object_new_object();
	const char *text;
	int ret = -1;

	if (o && !fill(o, alarm, symbols, names)) {
		text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
								 JSON_C_TO_STRING_NOSLASHESCAPE);
		if (text && fprintf(out, "%s\n", text) > 0)
			ret = 0;
	}
	json_object_put(o);
	return ret;
}

int ptw_alarm_write_json(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols)
{
	return ptw_alarm_write_json_named(out, alarm, symbols, NULL);
}

/* Readers: 1 when the key is there and right, 0 when it is absent, -1 when it is of the wrong kind. */

static int get_number(struct json_object *o, const char *key, uint64_t *value)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_int) || json_object_get_int64(v) < 0)
		return -1;
	*value = json_object_get_uint64(v);
	return 1;
}

static int get_number32(struct json_object *o, const char *key, uint32_t *value)
{
	uint64_t wide;
	int got = get_number(o, key, &wide);

	if (got == 1) {
		if (wide > UINT32_MAX)
			return -1;
		*value = wide;
	}
	return got;
}

static int get_hex(struct json_object *o, const char *key, uint64_t *value)
{
	struct json_object *v;
	const char *text;
	char *end;

	if (!json_object_object_get_ex(o, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_string))
		return -1;
	text = json_object_get_string(v);
	if (text[0] != '0' || text[1] != 'x' || !text[2] || strlen(text) > 18)
		return -1;
	errno = 0;
	*value = strtoull(text, &end, 16);
	return errno || *end ? -1 : 1;
}

static int get_text(struct json_object *o, const char *key, char *text, size_t size)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_string))
		return -1;
	snprintf(text, size, "%s", json_object_get_string(v));
	return 1;
}

/* The index of a name in a list of names. */
static int get_name(struct json_object *o, const char *key, const char *const *names, size_t count,
		    uint32_t *value)
{
	char text[16];
	int got = get_text(o, key, text, sizeof(text));

	if (got != 1)
		return got;
	for (size_t i = 0; i < count; i++) {
		if (names[i] && !strcmp(names[i], text)) {
			*value = i;
			return 1;
		}
	}
	return -1;
}

/* An array of frames, of which the addresses are read. */
static int get_stack(struct json_object *o, const char *key, uint64_t *stack, uint32_t max, uint32_t *count)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_array) || json_object_array_length(v) > max)
		return -1;
	for (size_t i = 0; i < json_object_array_length(v); i++) {
		struct json_object *frame = json_object_array_get_idx(v, i);

		if (!json_object_is_type(frame, json_type_object) || get_hex(frame, "ip", &stack[i]) != 1)
			return -1;
		++*count;
	}
	return 1;
}

static int get_actions(struct json_object *o, uint32_t *actions)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, "actions", &v))
		return 0;
	if (!json_object_is_type(v, json_type_array))
		return -1;
	for (size_t i = 0; i < json_object_array_length(v); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(v, i));

		/* Those of a newer program are unknown here. */
		for (size_t k = 0; name && k < COUNT(action_name); k++)
			if (!strcmp(name, action_name[k]))
				*actions |= 1U << k;
	}
	return 1;
}

/* Return: NULL, or the key that is wrong. */
static const char *parse(struct json_object *o, struct ptw_alarm *a)
{
	const struct { const char *key; uint64_t *value; } number[] = {
		{ "seq", &a->seq }, { "time", &a->time }, { "tsc", &a->tsc }, { "cgroup", &a->cgroup },
		{ "lost", &a->lost },
	};
	const struct { const char *key; uint32_t *value; } number32[] = {
		{ "watch", &a->watch }, { "cpu", &a->cpu }, { "pid", &a->pid }, { "tgid", &a->tgid },
		{ "len", &a->len },
	};
	struct json_object *v;
	int got;

	if (!json_object_is_type(o, json_type_object))
		return "object";
	for (size_t i = 0; i < COUNT(number); i++) {
		if (get_number(o, number[i].key, number[i].value) < 0)
			return number[i].key;
	}
	for (size_t i = 0; i < COUNT(number32); i++) {
		if (get_number32(o, number32[i].key, number32[i].value) < 0)
			return number32[i].key;
	}
	if (get_text(o, "label", a->label, sizeof(a->label)) < 0)
		return "label";
	if (get_text(o, "comm", a->comm, sizeof(a->comm)) < 0)
		return "comm";
	if (get_name(o, "access", access_name, COUNT(access_name), &a->access) < 0)
		return "access";
	if (get_hex(o, "address", &a->address) < 0)
		return "address";
	if (get_hex(o, "ip", &a->ip) < 0)
		return "ip";
	got = get_hex(o, "old", &a->old_value);
	if (got < 0)
		return "old";
	a->have_values = got;
	got = get_hex(o, "new", &a->new_value);
	if (got < 0)
		return "new";
	a->have_values &= got;
	if (get_stack(o, "stack", a->stack, PTW_ALARM_STACK_MAX, &a->stack_count) < 0)
		return "stack";
	if (get_stack(o, "user_stack", a->user_stack, PTW_ALARM_USER_MAX, &a->user_count) < 0)
		return "user_stack";
	if (get_hex(o, "hit_address", &a->hit_address) < 0)
		return "hit_address";
	if (get_actions(o, &a->actions) < 0)
		return "actions";
	if (json_object_object_get_ex(o, "regs", &v)) {
		if (!json_object_is_type(v, json_type_object))
			return "regs";
		for (int i = 0; i < PTWATCH_REG_COUNT; i++) {
			if (get_hex(v, reg_name[i], &a->regs[i]) < 0)
				return "regs";
		}
		a->have_regs = 1;
	}
	if (json_object_object_get_ex(o, "trace", &v)) {
		if (!json_object_is_type(v, json_type_object) ||
		    get_name(v, "state", state_name, COUNT(state_name), &a->trace_state) < 0 ||
		    get_number32(v, "bank", &a->trace_bank) < 0 ||
		    get_number(v, "offset", &a->trace_offset) < 0 ||
		    get_number(v, "size", &a->trace_size) < 0)
			return "trace";
		a->have_trace = 1;
	}
	return NULL;
}

int ptw_alarms_read_json(const char *path, struct ptw_alarm **alarm, size_t *count, struct ptw_error *err)
{
	struct json_tokener *tokener = json_tokener_new_ex(8);
	size_t capacity = 0, size = 0, line = 0;
	FILE *in = fopen(path, "re");
	struct ptw_alarm *grown;
	char *text = NULL;
	ssize_t n;

	*alarm = NULL;
	*count = 0;
	if (!in) {
		json_tokener_free(tokener);
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
	}
	if (!tokener) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: out of memory", path);
		goto fail;
	}
	while ((n = getline(&text, &size, in)) > 0) {
		struct json_object *o;
		const char *bad;
		size_t rest;

		line++;
		if (text[n - 1] == '\n')
			text[--n] = 0;
		if (!n)
			continue;
		if (n > LINE_LIMIT || *count == ALARM_LIMIT) {
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: line %zu: too long", path, line);
			goto fail;
		}
		json_tokener_reset(tokener);
		/* With its terminator, so that a number at the end is complete. */
		o = json_tokener_parse_ex(tokener, text, n + 1);
		rest = json_tokener_get_parse_end(tokener);
		if (rest > (size_t)n)
			rest = n;
		rest += strspn(text + rest, " \t\r");
		if (!o || json_tokener_get_error(tokener) != json_tokener_success || rest != (size_t)n) {
			json_object_put(o);
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: line %zu: not a line of JSON", path, line);
			goto fail;
		}
		if (*count == capacity) {
			capacity = capacity ? 2 * capacity : 16;
			grown = reallocarray(*alarm, capacity, sizeof(*grown));
			if (!grown) {
				json_object_put(o);
				ptw_error_set(err, PTW_EXIT_FAILED, "%s: out of memory", path);
				goto fail;
			}
			*alarm = grown;
		}
		bad = parse(o, memset(*alarm + *count, 0, sizeof(**alarm)));
		json_object_put(o);
		if (bad) {
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: line %zu: bad \"%s\"", path, line, bad);
			goto fail;
		}
		++*count;
	}
	if (ferror(in)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
		goto fail;
	}
	free(text);
	fclose(in);
	json_tokener_free(tokener);
	return 0;
fail:
	free(text);
	fclose(in);
	if (tokener)
		json_tokener_free(tokener);
	if (!*count) {
		free(*alarm);
		*alarm = NULL;
	}
	return -1;
}
