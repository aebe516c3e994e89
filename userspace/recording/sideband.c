// SPDX-License-Identifier: BSD-2-Clause
/* Records of the kernel, one at a time. What they say is checked against their size and nothing else. */
#include "recording/sideband.h"

#include <string.h>
#include <sys/mman.h>

#include "common/unaligned.h"
#include "recording/perf_file.h"

#define MMAP2_HAS_BUILD_ID	(1U << 14)

struct ptw_sample_id_layout ptw_side_layout(uint64_t sample_type)
{
	static const uint64_t order[] = {
		PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_CPU, PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_ID,
		PERF_SAMPLE_TIME, PERF_SAMPLE_TID,
	};
	struct ptw_sample_id_layout layout = { 0 };

	/* From the end of the record backwards; all are 8 bytes. */
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		if (!(sample_type & order[i]))
			continue;
		layout.size += 8;
		if (order[i] == PERF_SAMPLE_CPU)
			layout.cpu = layout.size;
		else if (order[i] == PERF_SAMPLE_TIME)
			layout.time = layout.size;
		else if (order[i] == PERF_SAMPLE_TID)
			layout.pid_tid = layout.size;
	}
	return layout;
}

/* A name at @at that ends within the @size bytes of the record */
static bool named(const uint8_t *record, size_t size, size_t at)
{
	return size > at && memchr(record + at, 0, size - at);
}

static bool take_mmap(struct ptw_side_event *e, const uint8_t *p, size_t size, uint16_t misc, bool second)
{
	size_t name = second ? 72 : 40;

	if ((misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_USER || !named(p, size, name) ||
	    misc & PERF_RECORD_MISC_MMAP_DATA || (second && !(get32(p + 64) & PROT_EXEC)))
		return false;
	e->type = PTW_SIDE_MMAP;
	e->pid = get32(p + 8);
	e->tid = get32(p + 12);
	/* What wraps around is no mapping. */
	return get64(p + 24) && get64(p + 16) + get64(p + 24) > get64(p + 16);
}

static bool take_poke(struct ptw_side_event *e, const uint8_t *p, size_t size)
{
	e->type = PTW_SIDE_TEXT_POKE;
	return size >= 20 && size - 20 >= (size_t)get16(p + 16) + get16(p + 18);
}

bool ptw_side_take(struct ptw_side_event *e, const uint8_t *p, size_t size,
		   const struct ptw_sample_id_layout *layout)
{
	struct perf_event_header h;
	size_t body;

	if (size < sizeof(h) + layout->size)
		return false;
	memcpy(&h, p, sizeof(h));
	body = size - layout->size;
	*e = (struct ptw_side_event){ .record = p, .cpu = -1, .pid = -1, .tid = -1 };
	if (layout->time)
		e->time = get64(p + size - layout->time);
	if (layout->cpu)
		e->cpu = get32(p + size - layout->cpu);
	if (layout->pid_tid) {
		e->pid = get32(p + size - layout->pid_tid);
		e->tid = get32(p + size - layout->pid_tid + 4);
	}

	switch (h.type) {
	case PERF_RECORD_MMAP:
		return take_mmap(e, p, body, h.misc, false);
	case PERF_RECORD_MMAP2:
		return take_mmap(e, p, body, h.misc, true);
	case PERF_RECORD_COMM:
		e->type = PTW_SIDE_COMM;
		if (body < 16)
			return false;
		e->pid = get32(p + 8);
		e->tid = get32(p + 12);
		e->exec = h.misc & PERF_RECORD_MISC_COMM_EXEC;
		return named(p, body, 16);
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		e->type = h.type == PERF_RECORD_FORK ? PTW_SIDE_FORK : PTW_SIDE_EXIT;
		if (body < 24)
			return false;
		e->pid = get32(p + 8);
		e->other_pid = get32(p + 12);
		e->tid = get32(p + 16);
		e->other_tid = get32(p + 20);
		e->exec = h.type == PERF_RECORD_FORK && h.misc & PERF_RECORD_MISC_FORK_EXEC;
		return true;
	case PERF_RECORD_ITRACE_START:
		e->type = PTW_SIDE_START;
		if (body < 16)
			return false;
		e->pid = get32(p + 8);
		e->tid = get32(p + 12);
		return true;
	case PERF_RECORD_SWITCH:
		/* Only of the thread that is traced: it leaves for one that isn't, or arrives. */
		e->type = PTW_SIDE_SWITCH;
		e->out = h.misc & PERF_RECORD_MISC_SWITCH_OUT;
		e->preempted = h.misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
		e->other_pid = e->out ? -1 : e->pid;
		e->other_tid = e->out ? -1 : e->tid;
		return true;
	case PERF_RECORD_SWITCH_CPU_WIDE:
		e->type = PTW_SIDE_SWITCH;
		e->out = h.misc & PERF_RECORD_MISC_SWITCH_OUT;
		e->preempted = h.misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
		if (body < 16)
			return false;
		/* Of an arrival the record tells who left, of a departure who comes. */
		e->other_pid = e->out ? (int32_t)get32(p + 8) : e->pid;
		e->other_tid = e->out ? (int32_t)get32(p + 12) : e->tid;
		if (!e->out) {
			e->pid = get32(p + 8);
			e->tid = get32(p + 12);
		}
		return true;
	case PERF_RECORD_KSYMBOL:
		e->type = PTW_SIDE_KSYMBOL;
		return named(p, body, 24);
	case PERF_RECORD_TEXT_POKE:
		return take_poke(e, p, body);
	case PERF_RECORD_AUX:
		e->type = PTW_SIDE_AUX_LOST;
		return body >= 32 && get64(p + 24) & PERF_AUX_FLAG_TRUNCATED;
	default:
		return false;
	}
}

void ptw_side_detail(const struct ptw_side_event *e, struct ptw_side_detail *d)
{
	const uint8_t *p = e->record;
	struct perf_event_header h;

	memcpy(&h, p, sizeof(h));
	*d = (struct ptw_side_detail){ .name = "" };
	switch (e->type) {
	case PTW_SIDE_COMM:
		d->name = (const char *)p + 16;
		break;
	case PTW_SIDE_MMAP:
		d->addr = get64(p + 16);
		d->size = get64(p + 24);
		d->pgoff = get64(p + 32);
		d->name = (const char *)p + (h.type == PERF_RECORD_MMAP2 ? 72 : 40);
		if (h.type == PERF_RECORD_MMAP2 && h.misc & MMAP2_HAS_BUILD_ID && p[40] <= 20) {
			d->id = p + 44;
			d->id_size = p[40];
		}
		break;
	case PTW_SIDE_KSYMBOL:
		d->addr = get64(p + 8);
		d->size = get32(p + 16);
		d->gone = get16(p + 22) & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER;
		d->name = (const char *)p + 24;
		break;
	case PTW_SIDE_TEXT_POKE:
		d->addr = get64(p + 8);
		d->old_size = get16(p + 16);
		d->new_size = get16(p + 18);
		d->old_bytes = p + 20;
		d->new_bytes = p + 20 + d->old_size;
		break;
	case PTW_SIDE_AUX_LOST:
		d->addr = get64(p + 8);
		d->size = get64(p + 16);
		break;
	default:
		break;
	}
}
