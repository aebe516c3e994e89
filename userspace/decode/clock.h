/* SPDX-License-Identifier: BSD-2-Clause */
/* Time in a trace: TSC values as nanoseconds, as far as the recording tells. */
#ifndef PTWATCH_DECODE_CLOCK_H
#define PTWATCH_DECODE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "decode/pt_params.h"

struct ptw_clock {
	const struct ptw_pt_params *params;
	bool started;
	uint64_t first;		/* TSC of the first instruction with a time */
	uint64_t newest;	/* what ptw_clock_ns() said last */
};

/**
 * ptw_clock_ns() - @tsc in nanoseconds
 *
 * Of perf's clock where the recording has its parameters. Else since the first time in the trace, the TSC
 * taken to run at the nominal frequency (100 MHz times the nominal ratio); without that, TSC ticks since
 * then.
 *
 * Times between TSC packets are estimates from CYC and MTC and may be a little ahead of the TSC packet that
 * follows; the clock then stands still instead of running backwards.
 */
uint64_t ptw_clock_ns(struct ptw_clock *clock, uint64_t tsc);

/** ptw_clock_known() - whether ptw_clock_ns() gives nanoseconds; else it gives ticks */
static inline bool ptw_clock_known(const struct ptw_pt_params *params)
{
	return (params->have_time && params->time_mult) || params->nom_freq;
}

#endif /* PTWATCH_DECODE_CLOCK_H */
