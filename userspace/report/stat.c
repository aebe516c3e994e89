// SPDX-License-Identifier: BSD-2-Clause
#include "report/stat.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/number.h"
#include "report/duration.h"
#include "report/thread_text.h"

int ptw_stat_packets(struct ptw_stat *stat, size_t index, const struct ptw_pt_params *params,
		     const struct ptw_recorded_trace *bytes,
		     void (*on_gap)(void *context, size_t index, const struct ptw_packet *packet), void *context,
		     struct ptw_error *err)
{
	struct ptw_stat_trace *trace = &stat->trace[index];
	struct ptw_packets *packets = ptw_packets_new(params, bytes->data, bytes->size, err);
	enum ptw_packets_status status;
	size_t dropped = 0;
	struct ptw_packet packet;

	if (!packets)
		return -1;
	trace->bytes = bytes->size;
	for (;;) {
		ptw_trace_read_to(bytes, &dropped, ptw_packets_count(packets, trace->packet, trace->packet_bytes));
		status = ptw_packets_next(packets, &packet);
		if (status == PTW_PACKETS_END)
			break;
		if (status != PTW_PACKETS_PACKET) {
			trace->unread += packet.size;
			if (status == PTW_PACKETS_SKIPPED)
				trace->skipped += packet.size;
			else
				on_gap(context, index, &packet);
			continue;
		}
		trace->packet[packet.type]++;
		trace->packet_bytes[packet.type] += packet.size;
	}
	for (size_t type = 0; type < PTW_STAT_PACKETS; type++)
		trace->packets += trace->packet[type];
	ptw_trace_drop(bytes, dropped, bytes->size);
	ptw_packets_free(packets);
	return 0;
}

static int make_room(void *array, size_t *count, size_t index, size_t size)
{
	void **base = array, *grown;
	size_t room = index + 1 > 2 * *count ? index + 1 : 2 * *count;

	if (index < *count)
		return 0;
	grown = reallocarray(*base, room, size);
	if (!grown)
		return -1;
	for (char *at = (char *)grown + *count * size; at < (char *)grown + room * size; at++)
		*at = 0;
	*base = grown;
	*count = room;
	return 0;
}

#define THREADS_LIMIT	(16u << 20)	/* bytes in plain memory */
#define DROP_THREADS	(1u << 20)	/* after so many records those not looked at need not stay in memory */

static int make_threads(struct ptw_stat *s, uint32_t index)
{
	if (!(++s->taken % DROP_THREADS))
		ptw_room_drop(&s->room);
	while (s->thread_count <= index) {
		struct ptw_stat_thread *grown;

		s->room.limit = THREADS_LIMIT;
		grown = ptw_room_grow(&s->room, s->thread, s->thread_count, sizeof(*grown));
		if (!grown)
			return -1;
		s->thread = grown;
		s->thread_count++;
	}
	return 0;
}

int ptw_stat_take(struct ptw_stat *s, const struct ptw_flow *flow)
{
	struct ptw_stat_thread *thread;
	struct ptw_stat_cpu *at;

	if (make_threads(s, flow->thread) ||
	    make_room(&s->at, &s->at_count, flow->trace, sizeof(*s->at)))
		return -1;
	at = &s->at[flow->trace];
	if (!at->used) {
		*at = (struct ptw_stat_cpu){ .used = true, .thread = flow->thread, .time = flow->time };
		s->thread[flow->thread].seen = true;
	}
	/* What happened up to a switch was the old thread's. */
	thread = &s->thread[at->thread];
	thread->insns += flow->insns - at->insns;
	if (flow->time > at->time)
		thread->time += at->time ? flow->time - at->time : 0;
	at->insns = flow->insns;
	at->time = flow->time;
	at->thread = flow->thread;
	thread = &s->thread[flow->thread];
	thread->index = flow->thread;
	thread->seen = true;
	switch (flow->kind) {
	case PTW_FLOW_SWITCH:
		thread->switches++;
		break;
	case PTW_FLOW_GAP:
		thread->gaps++;
		break;
	case PTW_FLOW_CALL:
	case PTW_FLOW_RETURN:
	case PTW_FLOW_JUMP:
	case PTW_FLOW_SYSCALL:
	case PTW_FLOW_FAR_RETURN:
	case PTW_FLOW_INTERRUPT:
		thread->branches++;
		break;
	default:
		break;
	}
	return 0;
}

/* ---- output ---- */

static const char *packet_name(int type)
{
	struct ptw_packet packet = { .type = type };

	return ptw_packet_name(&packet);
}

static void text_number(struct ptw_out *out, uint64_t number, int width)
{
	char text[32];

	ptw_out_printf(out, "%*s", width, ptw_commas(number, text, sizeof(text)));
}

static void text_traces(const struct ptw_stat *s, struct ptw_out *out)
{
	char time[PTW_DURATION];
	size_t i;

	ptw_out_text(out, "trace            bytes      packets     instructions       branches  errors  overflows       lost         time\n");
	for (i = 0; i < s->trace_count; i++) {
		const struct ptw_stat_trace *t = &s->trace[i];
		uint64_t span = t->totals.last_time - t->totals.first_time;

		if (t->cpu >= 0)
			ptw_out_printf(out, "cpu %-6d", t->cpu);
		else if (t->tid >= 0)
			ptw_out_printf(out, "tid %-6d", t->tid);
		else
			ptw_out_text(out, "raw       ");
		text_number(out, t->bytes, 12);
		text_number(out, t->packets, 13);
		if (!t->followed) {
			ptw_out_text(out, "  (without its code only the packets are known)\n");
			continue;
		}
		text_number(out, t->totals.insns, 17);
		text_number(out, t->totals.branches, 15);
		text_number(out, t->totals.errors, 8);
		text_number(out, t->totals.overflows, 11);
		text_number(out, t->totals.lost + t->skipped, 11);
		ptw_out_printf(out, " %12s\n", span ? ptw_duration(span, time) : "-");
	}
}

static void text_packets(const struct ptw_stat *s, struct ptw_out *out)
{
	uint64_t count, bytes, all = 0;
	size_t i;
	int type;

	for (i = 0; i < s->trace_count; i++)
		all += s->trace[i].bytes;
	ptw_out_text(out, "\npacket           count         bytes   share\n");
	for (type = 0; type < PTW_STAT_PACKETS; type++) {
		count = bytes = 0;
		for (i = 0; i < s->trace_count; i++) {
			count += s->trace[i].packet[type];
			bytes += s->trace[i].packet_bytes[type];
		}
		if (!count)
			continue;
		ptw_out_printf(out, "%-10s", packet_name(type));
		text_number(out, count, 12);
		text_number(out, bytes, 14);
		ptw_out_printf(out, "  %4.1f %%\n", all ? 100.0 * bytes / all : 0.0);
	}
}

static bool is_traced(const struct ptw_stat_thread *thread)
{
	return thread->insns || thread->gaps;
}

static int by_number(const void *a, const void *b)
{
	int32_t na = *(const int32_t *)a, nb = *(const int32_t *)b;

	return na < nb ? -1 : na > nb;
}

static int most_first(const void *a, const void *b)
{
	const struct ptw_stat_thread *ta = a, *tb = b;

	if (ta->insns != tb->insns)
		return ta->insns < tb->insns ? 1 : -1;
	return ta->index < tb->index ? -1 : ta->index > tb->index;
}

static void text_threads(const struct ptw_stat_thread *thread, size_t count,
			 const struct ptw_thread *(*get)(void *context, uint32_t index), void *context, struct ptw_out *out)
{
	char time[PTW_DURATION], name[48];
	size_t i;

	ptw_out_text(out, "\nthread                      instructions   switched in    gaps       on a CPU\n");
	for (i = 0; i < count; i++) {
		const struct ptw_thread *info = get(context, thread[i].index);

		if (info->tid < 0)
			snprintf(name, sizeof(name), info->cpu >= 0 ? "whatever ran on cpu %d" : "whatever ran", info->cpu);
		else if (!info->tid)
			snprintf(name, sizeof(name), "idle (cpu %d)", info->cpu);
		else
			ptw_thread_text(info->tid, info->comm, name);
		ptw_out_printf(out, "%-22s", name);
		text_number(out, thread[i].insns, 18);
		text_number(out, thread[i].switches, 14);
		text_number(out, thread[i].gaps, 8);
		ptw_out_printf(out, " %14s\n", ptw_duration(thread[i].time, time));
	}
}

static void json_trace(const struct ptw_stat_trace *t, struct ptw_out *out)
{
	bool first = true;
	int type;

	ptw_out_text(out, "{\"type\":\"trace\"");
	if (t->cpu >= 0)
		ptw_out_printf(out, ",\"cpu\":%d", t->cpu);
	if (t->tid >= 0)
		ptw_out_printf(out, ",\"tid\":%d", t->tid);
	ptw_out_printf(out, ",\"bytes\":%" PRIu64 ",\"packets\":%" PRIu64 ",\"unread\":%" PRIu64, t->bytes, t->packets, t->unread);
	if (t->followed)
		ptw_out_printf(out,
			       ",\"instructions\":%" PRIu64 ",\"branches\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"overflows\":%" PRIu64
			       ",\"lost\":%" PRIu64 ",\"first_time_ns\":%" PRIu64 ",\"last_time_ns\":%" PRIu64,
			       t->totals.insns, t->totals.branches, t->totals.errors, t->totals.overflows, t->totals.lost,
			       t->totals.first_time, t->totals.last_time);
	ptw_out_text(out, ",\"by_type\":{");
	for (type = 0; type < PTW_STAT_PACKETS; type++) {
		if (!t->packet[type])
			continue;
		ptw_out_printf(out, "%s\"%s\":%" PRIu64, first ? "" : ",", packet_name(type), t->packet[type]);
		first = false;
	}
	ptw_out_text(out, "}}\n");
}

static void json_thread(const struct ptw_stat_thread *t, const struct ptw_thread *info, struct ptw_out *out)
{
	ptw_out_text(out, "{\"type\":\"thread\"");
	if (info->tid <= 0 && info->cpu >= 0)
		ptw_out_printf(out, ",\"cpu\":%d", info->cpu);
	if (info->tid >= 0) {
		ptw_out_printf(out, ",\"pid\":%d,\"tid\":%d,\"comm\":", info->pid, info->tid);
		ptw_out_json_string(out, info->tid ? info->comm : "idle");
	}
	ptw_out_printf(out,
		       ",\"instructions\":%" PRIu64 ",\"switched_in\":%" PRIu64 ",\"gaps\":%" PRIu64 ",\"on_cpu_ns\":%" PRIu64 "}\n",
		       t->insns, t->switches, t->gaps, t->time);
}

/* Who goes through all threads has come to this one. */
static void pass_thread(const struct ptw_stat *s, size_t i)
{
	if (!(i & 0xffff))
		ptw_room_drop(&s->room);
}

void ptw_stat_write(const struct ptw_stat *s, const struct ptw_thread *(*get)(void *context, uint32_t index), void *context,
		    bool json, struct ptw_out *out)
{
	size_t room = s->thread_count ? s->thread_count : 1, count = 0, pids = 0, i;
	struct ptw_stat_thread *thread = calloc(room, sizeof(*thread));
	int32_t *pid = calloc(room, sizeof(*pid));	/* of processes that are traced */

	for (i = 0; pid && i < s->thread_count; i++) {
		pass_thread(s, i);
		pid[pids] = is_traced(&s->thread[i]) ? get(context, s->thread[i].index)->pid : -1;
		pids += pid[pids] > 0;
	}
	if (pids)
		qsort(pid, pids, sizeof(*pid), by_number);
	/* Switches are recorded of all that runs; of interest is what is traced, and what belongs to it. */
	for (i = 0; thread && i < s->thread_count; i++) {
		pass_thread(s, i);
		if (s->thread[i].seen && (is_traced(&s->thread[i]) || (pids && bsearch(&get(context, s->thread[i].index)->pid, pid, pids,
											 sizeof(*pid), by_number))))
			thread[count++] = s->thread[i];
	}
	free(pid);
	if (count)
		qsort(thread, count, sizeof(*thread), most_first);
	if (json) {
		for (i = 0; i < s->trace_count; i++)
			json_trace(&s->trace[i], out);
		for (i = 0; i < count; i++)
			json_thread(&thread[i], get(context, thread[i].index), out);
	} else {
		text_traces(s, out);
		text_packets(s, out);
		if (count)
			text_threads(thread, count, get, context, out);
	}
	free(thread);
}

void ptw_stat_free(struct ptw_stat *s)
{
	free(s->trace);
	ptw_room_free(&s->room);
	free(s->at);
	*s = (struct ptw_stat){ 0 };
}
