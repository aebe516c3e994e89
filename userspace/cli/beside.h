/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is recorded beside a trace: what the kernel tells of processes and of its own code, and which task ran where,
 * as the module remembers it or else as perf tells it.
 */
#ifndef PTWATCH_CLI_BESIDE_H
#define PTWATCH_CLI_BESIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "control/device.h"
#include "control/sideband.h"
#include "recording/recording.h"

struct beside {
	struct ptw_device *device;
	struct ptw_sideband *sideband;
	struct ptw_recording_writer *writer;
	bool own_switches;	/* the module remembers switches, so perf need not */
	bool ring;		/* the trace is one: old switches are of no interest */
	uint64_t *read;		/* switches read, for each of device->trace */
	uint64_t switches_lost;
	const char *verb;	/* whose messages ours are */
	bool everywhere;	/* every CPU that was online at the start is traced */
	bool unheard;		/* a CPU came online amid the recording */
	bool *away;		/* offline, which was told; for each of device->trace */
	bool left;		/* a traced CPU went offline amid the recording */
	bool missed;		/* records were lost: what they told is still to be made up for; of that CPU, for one */
	uint32_t missed_cpu;
	bool missing;		/* … in the last round, too */
	bool full;		/* the disk is, or the recording can't grow for another reason */
	struct ptw_error full_error;
};

/**
 * beside_setup() - set the trace up, with switches remembered, and listen; before the kernel's code is copied
 * @request: its switch_records is filled in
 */
int beside_setup(struct beside *beside, struct ptw_device *device, struct ptw_trace_request *request,
		 struct ptw_error *err);

/** beside_begin() - write what there is already to @writer, whose config.switches is true; before the trace starts */
int beside_begin(struct beside *beside, struct ptw_recording_writer *writer, struct ptw_error *err);

/** beside_fd() - readable (poll) when beside_round() is due; it is due every quarter of a second, too */
int beside_fd(const struct beside *beside);

/**
 * beside_round() - write out what has come in; a full disk is no failure but sets @full
 * @last: nothing more will come
 *
 * Beside a ring, the switches stay in a ring, too, until the last call: a recording of days is no larger for them.
 */
void beside_round(struct beside *beside, bool last);

/** beside_full() - the recording can't grow any more, because of @why; what there is can still be completed */
void beside_full(struct beside *beside, const struct ptw_error *why);

/** beside_report() - tell of losses. Return: whether there were any. */
bool beside_report(const struct beside *beside);

/** beside_close() - after the trace has ended: this changes the kernel's code */
void beside_close(struct beside *beside);

#endif /* PTWATCH_CLI_BESIDE_H */
