/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A trace on its way into a recording: the device, what the kernel tells beside it, and the directory it is written
 * to. What `record` and `snapshot` have in common.
 */
#ifndef PTWATCH_CLI_CAPTURE_H
#define PTWATCH_CLI_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/beside.h"
#include "cli/capture_options.h"
#include "common/error.h"
#include "control/device.h"
#include "recording/recording.h"

/** struct capture_request - what to record, and where to */
struct capture_request {
	const char *verb;	/* for messages */
	const char *output;
	struct ptw_trace_request trace;
	struct ptw_range_file range_file[PTWATCH_MAX_RANGES];	/* of @trace.ranges; for capture_prepare() only */
	struct trace_place start_at, stop_at;	/* each CPU's trace; label "": not by place */
	pid_t watched;		/* the process that such a place in user code is in */
};

struct capture {
	const struct capture_request *request;
	struct ptw_device device;
	struct beside beside;
	struct ptw_recording_writer *writer;
	int epoll;
	struct ptw_pt_params params;
	struct capture_cpu *cpu;	/* one for each of device.trace; private */
	uint64_t flushed;	/* CLOCK_MONOTONIC, ns: when the heads of a stream were last published */
	uint64_t gaps;		/* in streams */
	nlink_t modules;	/* number of /sys/module's directories when modules were last looked at */
	bool modules_failed;
	uint32_t watch[2];	/* what starts and stops CPUs; 0: none */
	uint64_t bytes;		/* of trace, written */
	uint64_t lost;		/* of trace, that the CPUs wrote and nobody read */
	bool damaged;		/* a CPU ended its trace by itself */
};

/**
 * capture_prepare() - all that can fail before anything is traced
 *
 * The device must be open. Opens the sideband, sets the trace up, begins the recording with the kernel's code and
 * the processes that run. Whatever it returns, capture_close() is due.
 */
int capture_prepare(struct capture *capture, const struct capture_request *request, struct ptw_error *err);

int capture_start(struct capture *capture, struct ptw_error *err);

/**
 * capture_fd() - an epoll file that is readable when capture_round() is due
 *
 * It is due every quarter of a second, too.
 */
int capture_fd(const struct capture *capture);

/** capture_round() - write out what has come in; a full disk is no failure but sets beside.full */
int capture_round(struct capture *capture, struct ptw_error *err);

/** capture_stop() - stop tracing and write out the rest */
int capture_stop(struct capture *capture, struct ptw_error *err);

/** capture_finish() - complete the recording: from here on it is where it belongs */
int capture_finish(struct capture *capture, struct ptw_error *err);

/** capture_report() - tell of gaps and losses. Return: whether there were any. */
bool capture_report(struct capture *capture);

void capture_close(struct capture *capture);

/** capture_config() - what a recording is to know about a trace with @rtit_ctl on this machine */
void capture_config(const struct ptwatch_info *info, uint64_t rtit_ctl, struct ptw_trace_config *config);

#endif /* PTWATCH_CLI_CAPTURE_H */
