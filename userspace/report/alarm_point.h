/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in a frozen trace the access is that raised an alarm. */
#ifndef PTWATCH_REPORT_ALARM_POINT_H
#define PTWATCH_REPORT_ALARM_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct ptw_alarm;
struct ptw_recording;

struct ptw_alarm_point {
	bool found;
	size_t trace;			/* index in recording->trace */
	uint64_t insns_total;		/* instructions in the whole trace */
	uint64_t insn_index; /* of the access, from 0 (execute watch: of the last instruction before it) */
	uint64_t insns_after;		/* executed after it, on the way to the freeze */
	uint64_t access_ip;		/* address of the instruction at @insn_index */
	bool access_before; /* execute watch: the instruction at alarm->ip comes after @insn_index */
	uint64_t gaps;			/* errors and overflows in the trace */
};

/**
 * ptw_alarm_point_find() - find the access of @alarm in the trace of the CPU that it hit
 *
 * A data watch traps after the access, so alarm->ip is the instruction after it and the trace goes on from
 * there into the debug exception. The access is the last instruction executed before such a branch from
 * alarm->ip. Where the trace has none (the kernel isn't traced, or the trace ended early) it is the last one
 * that ends at alarm->ip. A watch for execution traps before the instruction: then the point is the last one
 * before the branch.
 *
 * Decodes the whole trace once. Nothing found is no failure: @out->found is false, the totals are valid.
 *
 * Return: 0, or -1: @err tells why (no trace of that CPU, the code can't be read).
 */
int ptw_alarm_point_find(const struct ptw_recording *rec, const struct ptw_alarm *alarm,
			 struct ptw_alarm_point *out, struct ptw_error *err);

#endif /* PTWATCH_REPORT_ALARM_POINT_H */
