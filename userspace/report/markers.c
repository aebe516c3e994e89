// SPDX-License-Identifier: BSD-2-Clause
#include "report/markers.h"

#include <inttypes.h>
#include <stdio.h>

#include "report/duration.h"
#include "report/thread_text.h"

static void format_place(const struct ptw_story_event *event, char *buf, size_t size)
{
	struct ptw_place place = { 0 };

	if (!event->ip) {
		snprintf(buf, size, "?");
		return;
	}
	ptw_story_place(event->thread, event->ip, &place);
	ptw_place_text(&place, event->ip, buf, size);
}

static void text_marker(const struct ptw_markers *m, const struct ptw_story_event *event)
{
	const struct ptw_thread *thread = event->thread->info;
	char time[PTW_DURATION] = "-", place[256], type[40], who[PTW_THREAD_TEXT] = "";
	size_t i;

	if (event->has_time)
		ptw_time(event->time, time);
	if (thread->tid >= 0)
		ptw_thread_text(thread->tid, thread->comm, who);
	format_place(event, place, sizeof(place));
	ptw_out_printf(m->out, "%16s %3d  %-22s %016" PRIx64 "  ", time, event->cpu, who, event->value);
	for (i = 0; i < m->format->count; i++) {
		uint64_t value = ptw_marker_get(m->format, i, event->value);

		if (i)
			ptw_out_printf(m->out, " %s 0x%" PRIx64, m->format->field[i].name, value);
		else
			ptw_out_printf(m->out, "%s %-8s", m->format->field[0].name,
				       ptw_marker_type_name(m->format, value, type, sizeof(type)));
	}
	ptw_out_printf(m->out, "  %s\n", place);
}

static void json_marker(const struct ptw_markers *m, const struct ptw_story_event *event)
{
	const struct ptw_thread *thread = event->thread->info;
	uint64_t value = ptw_marker_get(m->format, 0, event->value);
	char place[256], type[40];
	size_t i;

	ptw_out_text(m->out, "{\"type\":\"marker\"");
	if (event->has_time)
		ptw_out_printf(m->out, ",\"time_ns\":%" PRIu64, event->time);
	if (event->cpu >= 0)
		ptw_out_printf(m->out, ",\"cpu\":%d", event->cpu);
	if (thread->tid >= 0) {
		ptw_out_printf(m->out, ",\"pid\":%d,\"tid\":%d,\"comm\":", thread->pid, thread->tid);
		ptw_out_json_string(m->out, thread->comm);
	}
	ptw_out_printf(m->out, ",\"value\":\"0x%016" PRIx64 "\",\"name\":", event->value);
	ptw_out_json_string(m->out, ptw_marker_type_name(m->format, value, type, sizeof(type)));
	ptw_out_text(m->out, ",\"fields\":{");
	for (i = 0; i < m->format->count; i++) {
		if (i)
			ptw_out_text(m->out, ",");
		ptw_out_json_string(m->out, m->format->field[i].name);
		ptw_out_printf(m->out, ":\"0x%" PRIx64 "\"", ptw_marker_get(m->format, i, event->value));
	}
	ptw_out_text(m->out, "}");
	if (event->ip) {
		format_place(event, place, sizeof(place));
		ptw_out_printf(m->out, ",\"ip\":\"0x%016" PRIx64 "\",\"symbol\":", event->ip);
		ptw_out_json_string(m->out, place);
	}
	ptw_out_text(m->out, "}\n");
}

int ptw_markers_take(struct ptw_markers *m, const struct ptw_story_event *event)
{
	if (event->kind != PTW_STORY_MARKER)
		return 0;
	if (m->has_type && ptw_marker_get(m->format, 0, event->value) != m->type) {
		m->others++;
		return 0;
	}
	m->count++;
	if (m->count_only)
		return 0;
	(m->json ? json_marker : text_marker)(m, event);
	return m->out->error ? 1 : 0;
}
