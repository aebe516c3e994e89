// SPDX-License-Identifier: BSD-2-Clause
#include "report/evidence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <linux/ptwatch.h>

#include "common/utf8.h"
#include "report/alarm_text.h"
#include "report/duration.h"
#include "report/thread_text.h"

#define MAX_ROWS	(1u << 18)	/* of evidence; and of one system call a sixteenth of it */
#define MAX_PID		(1 << 22)	/* the kernel's PID_MAX_LIMIT */

enum row_event {
	ROW_ENTRY, ROW_EXIT, ROW_SYSCALL, ROW_COPY_IN, ROW_COPY_OUT, ROW_CREDS, ROW_EXEC, ROW_NEW_PROGRAM, ROW_FORK,
	ROW_MODULE_LOAD, ROW_MODULE, ROW_PROCESS, ROW_MEMORY, ROW_FAULT, ROW_CALL, ROW_GAP, ROW_ALARM,
};

static const char *const event_names[] = {
	[ROW_ENTRY] = "kernel entry",	[ROW_EXIT] = "kernel exit",	  [ROW_SYSCALL] = "system call",
	[ROW_COPY_IN] = "copy from user", [ROW_COPY_OUT] = "copy to user", [ROW_CREDS] = "credentials",
	[ROW_EXEC] = "exec",		[ROW_NEW_PROGRAM] = "new program", [ROW_FORK] = "fork",
	[ROW_MODULE_LOAD] = "module load", [ROW_MODULE] = "module code",  [ROW_PROCESS] = "other process",
	[ROW_MEMORY] = "memory",	[ROW_FAULT] = "fault",		  [ROW_CALL] = "call",
	[ROW_GAP] = "gap",		[ROW_ALARM] = "ALARM",
};

/* Functions that count, by the beginning of their names: compilers append .isra.0 and the like. */
static const struct rule {
	const char *name;
	enum row_event event;
	bool note;		/* a system call that does it is of note */
	const char *meaning;
} rules[] = {
	{ "commit_creds", ROW_CREDS, true, "the process gets other credentials" },
	{ "prepare_kernel_cred", ROW_CREDS, true, "credentials of the kernel itself (all rights) are made" },
	{ "prepare_creds", ROW_CREDS, false, "a copy of its credentials is made, to be changed" },
	{ "_copy_from_user", ROW_COPY_IN, false, "the kernel reads the caller's memory" },
	{ "__copy_from_user", ROW_COPY_IN, false, "the kernel reads the caller's memory" },
	{ "copy_user_generic", ROW_COPY_IN, false, "the kernel copies from or to the caller's memory" },
	{ "rep_movs_alternative", ROW_COPY_IN, false, "the kernel copies from or to the caller's memory" },
	{ "strncpy_from_user", ROW_COPY_IN, false, "the kernel reads a string of the caller" },
	{ "_copy_from_iter", ROW_COPY_IN, false, "the kernel reads the caller's memory" },
	{ "_copy_to_user", ROW_COPY_OUT, false, "the kernel writes to the caller's memory" },
	{ "_copy_to_iter", ROW_COPY_OUT, false, "the kernel writes to the caller's memory" },
	{ "do_execveat_common", ROW_EXEC, true, "another program is to run in this process" },
	{ "begin_new_exec", ROW_EXEC, true, "the old program is gone for good" },
	{ "kernel_clone", ROW_FORK, false, "a process or thread is made" },
	{ "load_module", ROW_MODULE_LOAD, true, "code is added to the kernel" },
	{ "do_init_module", ROW_MODULE_LOAD, true, "… and runs" },
	{ "ptrace_attach", ROW_PROCESS, true, "takes hold of another process" },
	{ "__access_remote_vm", ROW_PROCESS, true, "reads or writes another process's memory" },
	{ "do_send_specific", ROW_PROCESS, false, "sends a signal" },
	{ "mprotect_fixup", ROW_MEMORY, false, "changes what may be done with memory" },
	{ "call_usermodehelper_exec", ROW_EXEC, true, "the kernel starts a program" },
};

/* System calls whose work it is to change credentials. */
static const char *const rightful[] = {
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups",
	"setuid16", "setgid16", "execve", "execveat", "capset", "keyctl", "unshare", "setns", "prctl", "clone", "clone3",
	"fork", "vfork", "exit", "exit_group", "landlock_restrict_self", "seccomp",
};

struct row {
	uint64_t time;
	uint64_t serial;	/* of the frame; PTW_NO_STEP: none */
	uint64_t order;		/* among rows of the same time */
	uint64_t ip;
	struct ptw_place place;
	char *text;		/* owned; NULL: @meaning */
	const char *meaning;
	int32_t cpu, pid, tid;
	uint32_t times;		/* one after the other */
	char comm[16];
	uint8_t event;		/* enum row_event */
	bool wrong;		/* a change of rights in a system call whose work that is not */
};

struct rows {
	struct row *row;
	size_t count, room;
};

/* A thread, from its entry to the kernel on. */
struct thread_state {
	struct rows rows;
	uint64_t last_serial;	/* of the frame that was entered last */
	uint64_t entry;		/* serial of the SYSCALL frame; PTW_NO_STEP: not in one */
	const char *syscall;	/* "ioctl"; NULL: not known yet */
	const char *module;	/* whose code ran last */
	bool note;
	LIST_ENTRY(thread_state) next;
};

struct ptw_evidence {
	struct ptw_evidence_options options;
	struct rows rows;	/* the evidence */
	LIST_HEAD(, thread_state) threads;
	bool wrong;		/* a row is */
	/* Known once the story is over: what belongs to the evidence that is not asked for by alarm or time. */
	uint64_t since;
	bool anyone;		/* who did it is unknown */
	uint64_t family[MAX_PID / 64];	/* processes: who did it first, and whom that made since */
	bool alarm_told;
	bool dropped;		/* more rows than there is room for */
};

struct ptw_evidence *ptw_evidence_new(const struct ptw_evidence_options *options)
{
	struct ptw_evidence *e = calloc(1, sizeof(*e));

	if (e)
		e->options = *options;
	return e;
}

static void free_rows(struct rows *rows)
{
	size_t i;

	for (i = 0; i < rows->count; i++)
		free(rows->row[i].text);
	free(rows->row);
	*rows = (struct rows){ 0 };
}

static void free_state(struct thread_state *state)
{
	LIST_REMOVE(state, next);
	free_rows(&state->rows);
	free(state);
}

void ptw_evidence_free(struct ptw_evidence *e)
{
	struct thread_state *state;

	if (!e)
		return;
	while ((state = LIST_FIRST(&e->threads)))
		free_state(state);
	free_rows(&e->rows);
	free(e);
}

static struct thread_state *state_of(struct ptw_evidence *e, struct ptw_story_thread *thread)
{
	struct thread_state *state = thread->user;

	if (state)
		return state;
	state = calloc(1, sizeof(*state));
	if (!state)
		return NULL;
	state->entry = PTW_NO_STEP;
	LIST_INSERT_HEAD(&e->threads, state, next);
	return thread->user = state;
}

static struct row *push(struct rows *rows)
{
	struct row *grown;

	if (rows->count == rows->room) {
		grown = reallocarray(rows->row, rows->room ? 2 * rows->room : 16, sizeof(*grown));
		if (!grown)
			return NULL;
		rows->row = grown;
		rows->room = rows->room ? 2 * rows->room : 16;
	}
	return &rows->row[rows->count++];
}

static void drop_oldest(struct rows *rows, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		free(rows->row[i].text);
	rows->count -= count;
	memmove(rows->row, rows->row + count, rows->count * sizeof(*rows->row));
}

static struct row *add_row(struct ptw_evidence *e, struct rows *rows, const struct ptw_story_event *event,
			   enum row_event kind, const char *meaning)
{
	const struct ptw_thread *info = event->thread->info;
	struct row *row;

	if (rows->count >= (rows == &e->rows ? MAX_ROWS : MAX_ROWS / 16)) {
		/* Of a thread that never leaves the kernel the newest count. */
		e->dropped = true;
		drop_oldest(rows, rows->count / 16);
	}
	row = push(rows);
	if (!row)
		return NULL;
	*row = (struct row){
		.time = event->time, .serial = event->frame ? event->frame->serial : PTW_NO_STEP, .ip = event->ip,
		.meaning = meaning, .cpu = event->cpu, .pid = info->pid, .tid = info->tid, .event = kind, .times = 1,
	};
	snprintf(row->comm, sizeof(row->comm), "%s", info->comm);
	if (event->frame)
		row->place = event->frame->place;
	/* What is no function comes behind the last one that was entered. */
	row->order = event->frame ? 2 * event->frame->serial
				  : 2 * ((struct thread_state *)event->thread->user)->last_serial + 1;
	return row;
}

/* ---- what counts ---- */

static const struct rule *find_rule(const char *name)
{
	size_t i, length;

	for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		length = strlen(rules[i].name);
		if (!strncmp(name, rules[i].name, length) && (!name[length] || name[length] == '.' || name[length] == '_'))
			return &rules[i];
	}
	return NULL;
}

static bool is_copy(const struct rule *rule)
{
	return rule && (rule->event == ROW_COPY_IN || rule->event == ROW_COPY_OUT);
}

static bool starts_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

/* "ioctl" of "__x64_sys_ioctl"; NULL: no system call. */
static const char *syscall_name(const char *symbol)
{
	if (starts_with(symbol, "__x64_sys_") || starts_with(symbol, "__ia32_sys_"))
		return strstr(symbol, "_sys_") + 5;
	return NULL;
}

static bool is_rightful(const char *syscall)
{
	size_t i;

	for (i = 0; i < sizeof(rightful) / sizeof(rightful[0]); i++)
		if (!strcmp(syscall, rightful[i]))
			return true;
	return false;
}

static bool in_interrupt(const struct ptw_story_thread *thread)
{
	size_t i;

	for (i = thread->frame_count; i-- > 0;)
		if (thread->frame[i].kind == PTW_FRAME_INTERRUPT)
			return true;
	return false;
}

static bool has_serial(const struct rows *rows, uint64_t serial)
{
	size_t i;

	for (i = rows->count; i-- > 0;)
		if (rows->row[i].serial == serial)
			return true;
	return false;
}

static int by_time(const void *a, const void *b)
{
	const struct row *ra = a, *rb = b;

	if (ra->time != rb->time)
		return ra->time < rb->time ? -1 : 1;
	return ra->order < rb->order ? -1 : ra->order > rb->order;
}

/* How it got there: the functions that run, from the entry on. */
static int add_path(struct ptw_evidence *e, struct thread_state *state, const struct ptw_story_event *event)
{
	const struct ptw_story_thread *thread = event->thread;
	struct ptw_story_event call = *event;
	size_t i = 0, count = thread->frame_count;

	/* What comes with this event is not on the way to the alarm, but the trap behind it. */
	if (e->alarm_told && event->kind == PTW_STORY_ENTER)
		count--;

	while (state->entry != PTW_NO_STEP && i < count && thread->frame[i].serial != state->entry)
		i++;
	for (; i < count; i++) {
		struct ptw_frame *frame = &thread->frame[i];

		if (!frame->place.symbol || frame->kind == PTW_FRAME_BEGIN || frame->kind == PTW_FRAME_SWITCH ||
		    has_serial(&state->rows, frame->serial))
			continue;
		call.frame = frame;
		call.ip = frame->ip;
		call.time = frame->entered;
		if (!add_row(e, &state->rows, &call, ROW_CALL, ""))
			return -1;
	}
	/* Equal times are in the order of their frames. */
	qsort(state->rows.row, state->rows.count, sizeof(*state->rows.row), by_time);
	return 0;
}

static int take_rule(struct ptw_evidence *e, struct thread_state *state, const struct ptw_story_event *event,
		     const struct rule *rule)
{
	struct row *row, *last;
	char text[160];

	if (is_copy(rule) && event->thread->frame_count > 1 && event->frame[-1].place.symbol &&
	    is_copy(find_rule(event->frame[-1].place.symbol->name)))
		return 0;	/* the one does it with the other */
	last = state->rows.count ? &state->rows.row[state->rows.count - 1] : NULL;
	if (last && last->event == rule->event && last->ip == event->ip && !rule->note) {
		last->times++;
		return 0;
	}
	row = add_row(e, &state->rows, event, rule->event, rule->meaning);
	if (!row)
		return -1;
	state->note |= rule->note;
	if (rule->event == ROW_CREDS && rule->note && state->syscall && !is_rightful(state->syscall)) {
		row->wrong = e->wrong = true;
		snprintf(text, sizeof(text), "%s, in %s, whose work that is not", rule->meaning, state->syscall);
		row->text = strdup(text);
		if (!row->text || add_path(e, state, event))
			return -1;
	}
	return 0;
}

static int take_call(struct ptw_evidence *e, struct thread_state *state, const struct ptw_story_event *event)
{
	const struct ptw_place *place = &event->frame->place;
	const char *name = place->symbol ? place->symbol->name : NULL;
	const struct rule *rule;
	struct row *row;
	char text[160];

	if (!name || in_interrupt(event->thread))
		return 0;
	if (syscall_name(name)) {
		state->syscall = syscall_name(name);
		row = add_row(e, &state->rows, event, ROW_SYSCALL, NULL);
		if (!row)
			return -1;
		snprintf(text, sizeof(text), "the caller asks for %s()", state->syscall);
		return (row->text = strdup(text)) ? 0 : -1;
	}
	rule = find_rule(name);
	if (rule)
		return take_rule(e, state, event, rule);
	/* The kernel's addresses are the negative ones. Our own module looks on at switches. */
	if (place->object && strcmp(place->object, "ptwatch") && (int64_t)event->ip < 0 && place->object != state->module) {
		state->module = place->object;
		row = add_row(e, &state->rows, event, ROW_MODULE, NULL);
		if (!row)
			return -1;
		snprintf(text, sizeof(text), "code of the module %s", place->object);
		return (row->text = strdup(text)) ? 0 : -1;
	}
	return 0;
}

/* ---- from entry to exit ---- */

static void forget(struct thread_state *state)
{
	size_t i;

	for (i = 0; i < state->rows.count; i++)
		free(state->rows.row[i].text);
	state->rows.count = 0;
	state->entry = PTW_NO_STEP;
	state->syscall = NULL;
	state->module = NULL;
	state->note = false;
}

/* Whether only that is evidence which follows a change of rights that is no one's right. */
static bool only_after_wrong(const struct ptw_evidence *e)
{
	return !e->options.all && !e->options.window && !e->options.alarm;
}

static int keep(struct ptw_evidence *e, struct thread_state *state)
{
	struct row *row;
	size_t i;

	/* What was done long before something wrong is none of its story. */
	if (only_after_wrong(e) && !e->wrong && e->rows.count >= MAX_ROWS - MAX_ROWS / 16) {
		e->dropped = true;
		drop_oldest(&e->rows, MAX_ROWS / 8);
	}
	for (i = 0; i < state->rows.count; i++) {
		if (e->options.window && (state->rows.row[i].time < e->options.from ||
					  (e->options.to && state->rows.row[i].time > e->options.to)))
			continue;
		if (e->rows.count >= MAX_ROWS) {
			e->dropped = true;
			break;
		}
		row = push(&e->rows);
		if (!row)
			return -1;
		*row = state->rows.row[i];
		state->rows.row[i].text = NULL;
	}
	return 0;
}

static int finish(struct ptw_evidence *e, struct thread_state *state)
{
	int ret = 0;

	if (e->options.window || (state->note && !e->options.alarm))
		ret = keep(e, state);
	forget(state);
	return ret;
}

static int take_enter(struct ptw_evidence *e, struct thread_state *state, const struct ptw_story_event *event)
{
	switch (event->frame->kind) {
	case PTW_FRAME_SYSCALL:
		if (finish(e, state))
			return -1;
		state->entry = event->frame->serial;
		return add_row(e, &state->rows, event, ROW_ENTRY, "the caller enters the kernel") ? 0 : -1;
	case PTW_FRAME_EXCEPTION:
		return add_row(e, &state->rows, event, ROW_FAULT, "the thread faults or traps") ? 0 : -1;
	case PTW_FRAME_CALL:
	case PTW_FRAME_TAIL_CALL:
		return take_call(e, state, event);
	default:
		return 0;
	}
}

static int take_leave(struct ptw_evidence *e, struct thread_state *state, const struct ptw_story_event *event)
{
	struct ptw_story_event exit = *event;

	if (event->frame->serial != state->entry)
		return 0;
	/* It went out of sight: a gap, or the CPU went to another thread and nobody recorded it. */
	if (event->cut)
		return finish(e, state);
	exit.frame = NULL;
	/* Where it goes on: behind the instruction that entered. */
	exit.ip = event->frame->from;
	if (!add_row(e, &state->rows, &exit, ROW_EXIT, "back to the caller"))
		return -1;
	return finish(e, state);
}

/* A kernel thread's story begins with the outermost function that still runs, not with the rounds before. */
static void only_this_round(struct thread_state *state)
{
	size_t first;

	for (first = 0; first < state->rows.count && state->rows.row[first].event != ROW_CALL; first++)
		;
	if (state->entry != PTW_NO_STEP || first == state->rows.count)
		return;
	drop_oldest(&state->rows, first);
}

static int take_alarm(struct ptw_evidence *e, struct thread_state *state, const struct ptw_story_event *event)
{
	const struct ptw_alarm *alarm = e->options.alarm;
	struct ptw_story_event hit = *event;
	struct ptw_place place;
	struct row *row;
	char text[256];

	e->alarm_told = true;
	if (add_path(e, state, event))
		return -1;
	only_this_round(state);
	hit.frame = NULL;
	hit.ip = alarm->access == PTWATCH_ACCESS_X ? alarm->ip : e->options.point.access_ip;
	row = add_row(e, &state->rows, &hit, ROW_ALARM, NULL);
	if (!row)
		return -1;
	if (ptw_story_place(event->thread, hit.ip, &place))
		row->place = place;
	snprintf(text, sizeof(text), "#%" PRIu64 " %s %s", e->options.alarm_number, ptw_access_text(alarm->access), alarm->label);
	if (alarm->have_values)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ", 0x%" PRIx64 " → 0x%" PRIx64, alarm->old_value,
			 alarm->new_value);
	row->text = strdup(text);
	if (!row->text || keep(e, state))
		return -1;
	forget(state);
	return 1;
}

static bool behind_alarm(const struct ptw_evidence *e, const struct ptw_story_event *event)
{
	uint64_t insns = e->options.point.insn_index + 1;

	if (!e->options.alarm || !e->options.point.found || e->alarm_told || event->trace != e->options.point.trace)
		return false;
	return event->insns > insns || (event->insns == insns && event->kind == PTW_STORY_ENTER &&
					(event->frame->kind == PTW_FRAME_INTERRUPT || event->frame->kind == PTW_FRAME_EXCEPTION));
}

/* The thread has exited. */
static int end_thread(struct ptw_evidence *e, struct thread_state *state)
{
	int ret = state ? finish(e, state) : 0;

	if (state)
		free_state(state);
	return ret;
}

int ptw_evidence_take(struct ptw_evidence *e, const struct ptw_story_event *event)
{
	struct thread_state *state;

	if (event->kind == PTW_STORY_OVER)
		return end_thread(e, event->thread->user);
	state = state_of(e, event->thread);
	if (!state)
		return -1;
	if (e->options.tid >= 0 && event->thread->info->tid != e->options.tid)
		return 0;
	if (behind_alarm(e, event))
		return take_alarm(e, state, event);
	switch (event->kind) {
	case PTW_STORY_ENTER:
		state->last_serial = event->frame->serial;
		return take_enter(e, state, event);
	case PTW_STORY_LEAVE:
		return take_leave(e, state, event);
	case PTW_STORY_GAP:
		return add_row(e, &state->rows, event, ROW_GAP, event->text) ? 0 : -1;
	default:
		return 0;
	}
}

/* ---- the kernel's records of processes ---- */

static bool in_family(const struct ptw_evidence *e, int32_t pid)
{
	return e->anyone || (pid >= 0 && pid < MAX_PID && e->family[pid / 64] >> pid % 64 & 1);
}

static void set_family(struct ptw_evidence *e, int32_t pid, bool is)
{
	if (pid < 0 || pid >= MAX_PID)
		return;
	e->family[pid / 64] = (e->family[pid / 64] & ~(1ULL << pid % 64)) | (uint64_t)is << pid % 64;
}

/* Who did the first thing that is wrong, and when it began */
static void find_wrong(struct ptw_evidence *e)
{
	size_t first, start;

	for (first = 0; first < e->rows.count && !e->rows.row[first].wrong; first++)
		;
	/* Then all is told that is of note. */
	e->anyone = first == e->rows.count;
	if (e->anyone)
		return;
	for (start = first; start > 0; start--)
		if (e->rows.row[start].tid == e->rows.row[first].tid && e->rows.row[start].event == ROW_ENTRY)
			break;
	/* What is of the same time, and came before it, is not its doing. */
	drop_oldest(&e->rows, start);
	e->since = e->rows.row[0].time;
	e->anyone = e->rows.row[first - start].pid < 0;
	set_family(e, e->rows.row[first - start].pid, true);
}

int ptw_evidence_settle(struct ptw_evidence *e)
{
	struct thread_state *state;

	LIST_FOREACH(state, &e->threads, next)
		if (finish(e, state))
			return -1;
	if (e->rows.count)
		qsort(e->rows.row, e->rows.count, sizeof(*e->rows.row), by_time);
	if (only_after_wrong(e))
		find_wrong(e);
	return 0;
}

int ptw_evidence_exec(struct ptw_evidence *e, uint64_t time, int32_t cpu, int32_t pid, int32_t tid, const char *name)
{
	struct row *row;
	char text[64];

	if (e->options.alarm || (e->options.window && (time < e->options.from || (e->options.to && time > e->options.to))))
		return 0;
	if (only_after_wrong(e) && (time < e->since || !in_family(e, pid)))
		return 0;
	if (e->rows.count >= MAX_ROWS) {
		e->dropped = true;
		return 0;
	}
	row = push(&e->rows);
	if (!row)
		return -1;
	*row = (struct row){ .time = time, .serial = PTW_NO_STEP, .order = UINT64_MAX, .cpu = cpu, .pid = pid, .tid = tid, .event = ROW_NEW_PROGRAM, .times = 1 };
	ptw_printable(name, row->comm, sizeof(row->comm));
	snprintf(text, sizeof(text), "the process is now '%s'", row->comm);
	return (row->text = strdup(text)) ? 0 : -1;
}

void ptw_evidence_fork(struct ptw_evidence *e, uint64_t time, int32_t pid, int32_t parent)
{
	if (time >= e->since)
		set_family(e, pid, in_family(e, parent));
}

/* ---- the end ---- */

void ptw_evidence_end(struct ptw_evidence *e)
{
	size_t i, kept = 0;

	for (i = 0; i < e->rows.count; i++) {
		struct row *row = &e->rows.row[i];

		if (!only_after_wrong(e) || in_family(e, row->pid))
			e->rows.row[kept++] = *row;
		else
			free(row->text);
	}
	e->rows.count = kept;
	if (kept)
		qsort(e->rows.row, kept, sizeof(*e->rows.row), by_time);
}

static void format_symbol(const struct row *row, char *buf, size_t size)
{
	buf[0] = '\0';
	if (row->place.symbol)
		ptw_place_text(&row->place, row->ip, buf, size);
}

static void text_row(const struct row *row, uint64_t start, struct ptw_out *out)
{
	char time[PTW_DURATION + 1] = "+", symbol[256], address[20] = "";

	ptw_duration(row->time - start, time + 1);
	format_symbol(row, symbol, sizeof(symbol));
	if (row->ip)
		snprintf(address, sizeof(address), "%016" PRIx64, row->ip);
	if (row->event == ROW_ALARM || row->wrong)
		ptw_out_colour(out, PTW_RED);
	ptw_out_printf(out, "%12s  %-16s  %-14s  %-36s  %s", time, address, event_names[row->event], symbol,
		       row->text ? row->text : row->meaning);
	if (row->times > 1)
		ptw_out_printf(out, ", %" PRIu32 " times", row->times);
	if (row->event == ROW_ALARM || row->wrong)
		ptw_out_colour(out, PTW_PLAIN);
	ptw_out_text(out, "\n");
}

static void json_row(const struct row *row, uint64_t start, struct ptw_out *out)
{
	char symbol[256];

	ptw_out_printf(out, "{\"since_t0_ns\":%" PRIu64 ",\"time_ns\":%" PRIu64, row->time - start, row->time);
	if (row->cpu >= 0)
		ptw_out_printf(out, ",\"cpu\":%d", row->cpu);
	if (row->tid >= 0) {
		ptw_out_printf(out, ",\"pid\":%d,\"tid\":%d,\"comm\":", row->pid, row->tid);
		ptw_out_json_string(out, row->comm);
	}
	if (row->ip)
		ptw_out_printf(out, ",\"address\":\"0x%016" PRIx64 "\"", row->ip);
	ptw_out_printf(out, ",\"event\":\"%s\"", event_names[row->event]);
	format_symbol(row, symbol, sizeof(symbol));
	if (symbol[0]) {
		ptw_out_text(out, ",\"symbol\":");
		ptw_out_json_string(out, symbol);
	}
	ptw_out_text(out, ",\"meaning\":");
	ptw_out_json_string(out, row->text ? row->text : row->meaning);
	if (row->times > 1)
		ptw_out_printf(out, ",\"times\":%" PRIu32, row->times);
	if (row->wrong)
		ptw_out_text(out, ",\"suspicious\":true");
	ptw_out_text(out, "}\n");
}

size_t ptw_evidence_write(const struct ptw_evidence *e, struct ptw_out *out, bool json)
{
	uint64_t start = e->rows.count ? e->rows.row[0].time : 0;
	int32_t tid = -2;
	char time[PTW_DURATION], name[PTW_THREAD_TEXT];
	size_t i;

	if (!json && e->rows.count) {
		ptw_out_printf(out, "T0 = %s\n\n", ptw_time(start, time));
		ptw_out_printf(out, "%12s  %-16s  %-14s  %-36s  %s\n", "since T0", "address", "event", "symbol", "meaning");
	}
	for (i = 0; i < e->rows.count; i++) {
		const struct row *row = &e->rows.row[i];

		if (json) {
			json_row(row, start, out);
			continue;
		}
		if (row->tid != tid && row->tid >= 0)
			ptw_out_printf(out, "--- thread %d of process %s, cpu %d\n", row->tid, ptw_thread_text(row->pid, row->comm, name),
				       row->cpu);
		tid = row->tid;
		text_row(row, start, out);
	}
	if (!json && e->dropped)
		ptw_out_text(out, "(there was more than could be kept)\n");
	return e->rows.count;
}
