// SPDX-License-Identifier: BSD-2-Clause
#include "report/alarm_point.h"

#include <linux/ptwatch.h>

#include "decode/decoder.h"
#include "recording/recording.h"
#include "report/view.h"

struct search {
	const struct ptw_alarm *alarm;
	struct ptw_alarm_point by_branch;	/* an exception from alarm->ip came next */
	struct ptw_alarm_point by_size;		/* the instruction ends at alarm->ip */
	uint64_t insns;
	uint64_t gaps;
	uint64_t last_ip;
};

static void set_point(struct ptw_alarm_point *point, const struct search *search)
{
	point->found = search->insns > 0;
	point->insn_index = search->insns - 1;
	point->access_ip = search->last_ip;
}

static void step(struct search *search, const struct ptw_item *item)
{
	const struct ptw_insn *insn = &item->insn;

	if (item->kind == PTW_ITEM_INSN) {
		search->insns++;
		search->last_ip = insn->ip;
		if (insn->ip + insn->size == search->alarm->ip && search->alarm->access != PTWATCH_ACCESS_X)
			set_point(&search->by_size, search);
		return;
	}
	if (ptw_item_is_gap(item)) {
		search->gaps++;
		return;
	}
	if (item->kind == PTW_ITEM_EVENT && item->event.from == search->alarm->ip &&
	    (item->event.type == PTW_EVENT_ASYNC_BRANCH || item->event.type == PTW_EVENT_ASYNC_DISABLED))
		set_point(&search->by_branch, search);
}

static int find_trace(const struct ptw_recording *rec, const struct ptw_alarm *alarm, size_t *index,
		      struct ptw_error *err)
{
	size_t i;

	for (i = 0; i < rec->trace_count; i++) {
		if (rec->trace[i].cpu == (int32_t)alarm->cpu) {
			*index = i;
			return 0;
		}
	}
	return ptw_error_set(err, PTW_EXIT_FAILED,
			     "the recording has no trace of cpu %u, which the alarm hit", alarm->cpu);
}

int ptw_alarm_point_find(const struct ptw_recording *rec, const struct ptw_alarm *alarm,
			 struct ptw_alarm_point *out, struct ptw_error *err)
{
	struct search search = { .alarm = alarm };
	struct ptw_decoder_config config;
	struct ptw_decoder *decoder;
	struct ptw_item item;
	size_t trace = 0;

	*out = (struct ptw_alarm_point){ 0 };
	if (find_trace(rec, alarm, &trace, err))
		return -1;
	config = (struct ptw_decoder_config){
		.params = &rec->params,
		.image = &rec->image,
		.data = rec->trace[trace].data,
		.size = rec->trace[trace].size,
		.flags = PTW_DECODE_NO_TIME | PTW_DECODE_SKIP_UNREADABLE,
	};
	decoder = ptw_decoder_new(&config, err);
	if (!decoder)
		return -1;
	while (ptw_decoder_next(decoder, &item) != PTW_ITEM_END)
		step(&search, &item);
	ptw_decoder_free(decoder);

	*out = search.by_branch.found ? search.by_branch : search.by_size;
	out->trace = trace;
	out->access_before = alarm->access == PTWATCH_ACCESS_X;
	out->insns_total = search.insns;
	out->insns_after = out->found ? search.insns - out->insn_index - 1 : 0;
	out->gaps = search.gaps;
	return 0;
}
