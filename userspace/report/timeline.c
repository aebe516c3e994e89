// SPDX-License-Identifier: BSD-2-Clause
#include "report/timeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "report/alarm_text.h"

/* Beyond the largest process id of Linux: the process that stands for the CPUs. */
#define CPUS_PID	(1 << 23)

struct track {
	uint64_t last;		/* time of its newest event, plus one */
	uint64_t in_at;		/* since when it runs */
	int32_t pid, tid;
	int32_t cpu;
	bool running;
	char name[40];
	LIST_ENTRY(track) next;
};

struct ptw_timeline {
	struct ptw_timeline_options options;
	struct ptw_out *out;
	LIST_HEAD(, track) tracks;
	uint64_t cpus_named[16];	/* bitmap */
	bool any;
};

struct ptw_timeline *ptw_timeline_new(const struct ptw_timeline_options *options, struct ptw_out *out)
{
	struct ptw_timeline *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->options = *options;
	t->out = out;
	ptw_out_text(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
	return t;
}

static void forget(struct track *track)
{
	LIST_REMOVE(track, next);
	free(track);
}

void ptw_timeline_free(struct ptw_timeline *t)
{
	struct track *track;

	if (!t)
		return;
	while ((track = LIST_FIRST(&t->tracks)))
		forget(track);
	free(t);
}

/* "{" and what every event has. Times are microseconds. */
static void begin_event(struct ptw_timeline *t, char phase, int32_t pid, int32_t tid, uint64_t time)
{
	ptw_out_printf(t->out, "%s{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRIu64 ".%03" PRIu64, t->any ? ",\n" : "", phase,
		       pid, tid, time / 1000, time % 1000);
	t->any = true;
}

static void add_name(struct ptw_timeline *t, const char *name)
{
	ptw_out_text(t->out, ",\"name\":");
	ptw_out_json_string(t->out, name);
}

static void name_track(struct ptw_timeline *t, const char *what, int32_t pid, int32_t tid, const char *name)
{
	begin_event(t, 'M', pid, tid, 0);
	add_name(t, what);
	ptw_out_text(t->out, ",\"args\":{\"name\":");
	ptw_out_json_string(t->out, name);
	ptw_out_text(t->out, "}}");
}

static struct track *track_of(struct ptw_timeline *t, struct ptw_story_thread *thread)
{
	const struct ptw_thread *info = thread->info;
	struct track *track = thread->user;

	if (track)
		return track;
	track = calloc(1, sizeof(*track));
	if (!track)
		return NULL;
	/* Idle threads, and CPUs whose threads nobody recorded, are told apart by their CPU. */
	track->pid = info->tid > 0 ? info->pid : 0;
	track->tid = info->tid > 0 ? info->tid : info->cpu >= 0 ? CPUS_PID + 1 + info->cpu : 0;
	if (info->tid > 0)
		snprintf(track->name, sizeof(track->name), "%s", info->comm[0] ? info->comm : "thread");
	else if (info->tid == 0)
		snprintf(track->name, sizeof(track->name), "idle, cpu %d", info->cpu);
	else
		snprintf(track->name, sizeof(track->name), info->cpu >= 0 ? "cpu %d" : "trace", info->cpu);
	LIST_INSERT_HEAD(&t->tracks, track, next);
	name_track(t, "thread_name", track->pid, track->tid, track->name);
	return thread->user = track;
}

static uint64_t next_time(struct track *track, uint64_t time)
{
	if (time < track->last)
		time = track->last;
	track->last = time + 1;
	return time;
}

static bool is_shown(const struct ptw_timeline *t, const struct ptw_story_event *event)
{
	return !t->options.depth || event->thread->frame_count <= t->options.depth;
}

static void take_enter(struct ptw_timeline *t, struct track *track, const struct ptw_story_event *event)
{
	static const char *const categories[] = {
		[PTW_FRAME_BEGIN] = "running", [PTW_FRAME_SWITCH] = "running",	 [PTW_FRAME_CALL] = "call",
		[PTW_FRAME_TAIL_CALL] = "call", [PTW_FRAME_INTERRUPT] = "interrupt", [PTW_FRAME_EXCEPTION] = "exception",
		[PTW_FRAME_SYSCALL] = "syscall",
	};
	char buf[PTW_FRAME_NAME];

	if (!is_shown(t, event))
		return;
	begin_event(t, 'B', track->pid, track->tid, next_time(track, event->time));
	add_name(t, ptw_frame_name(event->frame, buf, sizeof(buf)));
	ptw_out_printf(t->out, ",\"cat\":\"%s\"}", categories[event->frame->kind]);
}

static void take_leave(struct ptw_timeline *t, struct track *track, const struct ptw_story_event *event)
{
	char buf[PTW_FRAME_NAME];

	if (!is_shown(t, event))
		return;
	begin_event(t, 'E', track->pid, track->tid, next_time(track, event->frame->entered + event->frame->total));
	add_name(t, ptw_frame_name(event->frame, buf, sizeof(buf)));
	ptw_out_text(t->out, "}");
}

static void instant(struct ptw_timeline *t, int32_t pid, int32_t tid, uint64_t time, const char *name, const char *category)
{
	begin_event(t, 'i', pid, tid, time);
	add_name(t, name);
	ptw_out_printf(t->out, ",\"cat\":\"%s\",\"s\":\"t\"", category);
}

static void take_marker(struct ptw_timeline *t, struct track *track, const struct ptw_story_event *event)
{
	const struct ptw_marker_format *format = t->options.format;
	char name[64], type[40];

	snprintf(name, sizeof(name), "marker %s",
		 ptw_marker_type_name(format, ptw_marker_get(format, 0, event->value), type, sizeof(type)));
	instant(t, track->pid, track->tid, next_time(track, event->time), name, "marker");
	ptw_out_printf(t->out, ",\"args\":{\"value\":\"0x%016" PRIx64 "\"}}", event->value);
}

/* A stretch of a thread on a CPU, in the track of the CPU. */
static void end_run(struct ptw_timeline *t, struct track *track, uint64_t time)
{
	if (!track->running)
		return;
	track->running = false;
	if (track->cpu < 0)
		return;
	if (track->cpu < 1024 && !(t->cpus_named[track->cpu / 64] >> (track->cpu % 64) & 1)) {
		char name[24];

		t->cpus_named[track->cpu / 64] |= 1ull << (track->cpu % 64);
		snprintf(name, sizeof(name), "CPU %d", track->cpu);
		name_track(t, "process_name", CPUS_PID, track->cpu + 1, "CPUs");
		name_track(t, "thread_name", CPUS_PID, track->cpu + 1, name);
	}
	begin_event(t, 'X', CPUS_PID, track->cpu + 1, track->in_at);
	ptw_out_printf(t->out, ",\"dur\":%" PRIu64 ".%03" PRIu64, (time - track->in_at) / 1000, (time - track->in_at) % 1000);
	add_name(t, track->name);
	ptw_out_text(t->out, ",\"cat\":\"thread\"}");
}

int ptw_timeline_take(struct ptw_timeline *t, const struct ptw_story_event *event)
{
	struct track *track;

	if (t->options.tid >= 0 && event->thread->info->tid != t->options.tid)
		return 0;
	if (event->kind == PTW_STORY_OVER) {
		if (event->thread->user)
			forget(event->thread->user);
		return 0;
	}
	track = track_of(t, event->thread);
	if (!track)
		return -1;
	switch (event->kind) {
	case PTW_STORY_ENTER:
		take_enter(t, track, event);
		break;
	case PTW_STORY_LEAVE:
		take_leave(t, track, event);
		break;
	case PTW_STORY_IN:
		track->running = true;
		track->in_at = event->time;
		track->cpu = event->cpu;
		break;
	case PTW_STORY_OUT:
		end_run(t, track, event->time);
		break;
	case PTW_STORY_MARKER:
		take_marker(t, track, event);
		break;
	case PTW_STORY_GAP:
		instant(t, track->pid, track->tid, next_time(track, event->time), "gap", "gap");
		ptw_out_printf(t->out, ",\"args\":{\"offset\":\"0x%" PRIx64 "\",\"lost\":%" PRIu64 ",\"error\":", event->offset, event->value);
		ptw_out_json_string(t->out, event->text);
		ptw_out_text(t->out, "}}");
		break;
	default:
		break;
	}
	return t->out->error ? 1 : 0;
}

void ptw_timeline_alarm(struct ptw_timeline *t, const struct ptw_alarm *alarm, uint64_t time)
{
	char name[192];

	snprintf(name, sizeof(name), "ALARM #%" PRIu64 " %s %s", alarm->seq, ptw_access_text(alarm->access), alarm->label);
	instant(t, alarm->pid ? (int32_t)alarm->tgid : 0, alarm->pid ? (int32_t)alarm->pid : CPUS_PID + 1 + (int32_t)alarm->cpu, time, name,
		"alarm");
	ptw_out_printf(t->out, ",\"args\":{\"cpu\":%u,\"address\":\"0x%016" PRIx64 "\",\"ip\":\"0x%016" PRIx64 "\"}}", alarm->cpu,
		       alarm->address, alarm->ip);
}

bool ptw_timeline_end(struct ptw_timeline *t)
{
	struct track *track;

	LIST_FOREACH(track, &t->tracks, next)
		end_run(t, track, track->last > track->in_at ? track->last : track->in_at);
	ptw_out_text(t->out, "\n]}\n");
	return t->any;
}
