// SPDX-License-Identifier: BSD-2-Clause
#include "decode/clock.h"

/* A larger step back is no error of an estimate: the trace is damaged or begins anew. */
#define SLACK_NS	1000000

static uint64_t convert(struct ptw_clock *clock, uint64_t tsc)
{
	const struct ptw_pt_params *params = clock->params;

	if (params->have_time && params->time_mult)
		return ptw_tsc_to_ns(params, tsc);
	if (!clock->started) {
		clock->started = true;
		clock->first = tsc;
	}
	tsc = tsc > clock->first ? tsc - clock->first : 0;
	return params->nom_freq ? (uint64_t)((unsigned __int128)tsc * 10 / params->nom_freq) : tsc;
}

uint64_t ptw_clock_ns(struct ptw_clock *clock, uint64_t tsc)
{
	uint64_t ns = convert(clock, tsc);

	if (ns < clock->newest && clock->newest - ns < SLACK_NS)
		return clock->newest;
	clock->newest = ns;
	return ns;
}
