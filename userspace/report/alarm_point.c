// SPDX-License-Identifier: BSD-2-Clause
#include "report/alarm_point.h"

#include <linux/ptwatch.h>

#include "flow/stream.h"
#include "recording/recording.h"

#define MAX_INSN	15	/* bytes of an instruction */

struct search {
	const struct ptw_alarm *alarm;
	struct ptw_alarm_point by_branch;	/* an exception from alarm->ip came next */
	struct ptw_alarm_point by_size;		/* the instruction ends at alarm->ip */
	uint64_t insns;
	uint64_t gaps;
	uint64_t last_ip;			/* executed last */
};

static void set_point(struct ptw_alarm_point *point, uint64_t insns, uint64_t ip)
{
	point->found = insns > 0;
	point->insn_index = insns - 1;
	point->access_ip = ip;
}

/* Does one of the run's instructions end where the alarm found the CPU? */
static void look_at_run(struct search *search, const struct ptw_flow *run)
{
	const uint8_t *code = run->code;
	uint64_t ip = run->from, insns = run->insns - run->value;

	search->last_ip = run->to;
	if (search->alarm->access == PTWATCH_ACCESS_X || ip >= search->alarm->ip ||
	    (search->alarm->ip > run->to && search->alarm->ip - run->to > MAX_INSN))
		return;
	for (; insns < run->insns && ip < search->alarm->ip; insns++) {
		if (ip + *code == search->alarm->ip)
			set_point(&search->by_size, insns + 1, ip);
		ip += *code;
		code += 1 + *code;
	}
}

static void step(struct search *search, const struct ptw_flow *flow)
{
	if (flow->kind == PTW_FLOW_RUN)
		look_at_run(search, flow);
	else if (flow->kind == PTW_FLOW_GAP)
		search->gaps++;
	else if (flow->kind == PTW_FLOW_INTERRUPT && flow->from == search->alarm->ip)
		set_point(&search->by_branch, flow->insns, search->last_ip);
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
	size_t trace = 0;
	struct ptw_stream_options options = {
		.order = PTW_ORDER_TRACE, .flags = PTW_STREAM_INSNS, .trace = &trace, .traces = 1,
	};
	struct ptw_stream *stream;
	const struct ptw_flow *flow;
	bool failed;

	*out = (struct ptw_alarm_point){ 0 };
	if (find_trace(rec, alarm, &trace, err))
		return -1;
	stream = ptw_stream_open(rec, &options, err);
	if (!stream)
		return -1;
	while ((flow = ptw_stream_next(stream)))
		step(&search, flow);
	failed = ptw_stream_failed(stream, err);
	search.insns = ptw_stream_totals(stream, trace)->insns;
	ptw_stream_close(stream);
	if (failed)
		return -1;

	*out = search.by_branch.found ? search.by_branch : search.by_size;
	out->trace = trace;
	out->access_before = alarm->access == PTWATCH_ACCESS_X;
	out->insns_total = search.insns;
	out->insns_after = out->found ? search.insns - out->insn_index - 1 : 0;
	out->gaps = search.gaps;
	return 0;
}
