// SPDX-License-Identifier: BSD-2-Clause
#include "cli/capture.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli/output.h"
#include "common/number.h"
#include "control/machine.h"

/* A PMU type no kernel gives out: recordings want one also where perf has no intel_pt. */
#define NO_PMU 1000
/* What completing a recording needs beside the records that are still in the rings. */
#define RESERVE (1UL << 20)
#define SIDEBAND_RING (512UL << 10)

void capture_config(const struct ptwatch_info *info, uint64_t rtit_ctl, struct ptw_trace_config *config)
{
	int pmu = ptw_pt_pmu_type();

	*config = (struct ptw_trace_config){
		.rtit_ctl = rtit_ctl,
		.pt_pmu_type = pmu < 0 ? NO_PMU : pmu,
		.params = {
			.family = info->family,
			.model = info->model,
			.stepping = info->stepping,
			.bits = 64,
			.mtc_freq = rtit_ctl >> 14 & 0xf,
			.nom_freq = info->max_nonturbo_ratio,
			.cpuid_0x15_eax = info->cpuid_15[0],
			.cpuid_0x15_ebx = info->cpuid_15[1],
		},
	};
	ptw_perf_time(&config->params);
	memcpy(config->cpuid_14_0, info->cpuid_14_0, sizeof(config->cpuid_14_0));
	memcpy(config->cpuid_14_1, info->cpuid_14_1, sizeof(config->cpuid_14_1));
}

int capture_prepare(struct capture *capture, const struct capture_request *request, struct ptw_error *err)
{
	struct ptw_sideband_request sideband = {
		.cpus = request->trace.cpus,
		.cpus_size = request->trace.cpus_size,
		.switches = true,
		.ring_size = SIDEBAND_RING,
	};
	struct ptw_trace_config config;
	const uint64_t *ids;
	size_t count;

	capture->request = request;
	if (ptw_device_trace_setup(&capture->device, &request->trace, err))
		return -1;
	/* Before the kernel's code is copied, which this may change. */
	capture->sideband = ptw_sideband_open(&sideband, err);
	if (!capture->sideband)
		return -1;
	capture_config(&capture->device.info, request->trace.rtit_ctl, &config);
	config.switches = true;
	capture->params = config.params;
	capture->writer = ptw_recording_create(request->output, &config, err);
	if (!capture->writer)
		return -1;
	ids = ptw_sideband_ids(capture->sideband, &count);
	if (ptw_recording_reserve(capture->writer, RESERVE + count * SIDEBAND_RING, err) ||
	    ptw_recording_set_sideband(capture->writer, ids, count, err) ||
	    (request->trace.rtit_ctl & PTWATCH_RTIT_CTL_OS && ptw_recording_add_kernel(capture->writer, err)) ||
	    ptw_recording_add_processes(capture->writer, err))
		return -1;
	/* From here on the records tell who runs on each CPU. */
	ptw_sideband_visit(capture->sideband);
	return 0;
}

int capture_start(struct capture *capture, struct ptw_error *err)
{
	return ptw_device_trace_start(&capture->device, err);
}

int capture_fd(const struct capture *capture)
{
	return ptw_sideband_fd(capture->sideband);
}

/* The recording can't grow any more; what there is can still be completed. */
static void no_more(struct capture *capture, const struct ptw_error *why)
{
	if (!capture->full)
		capture->full_error = *why;
	capture->full = true;
	ptw_recording_release(capture->writer);
}

static int take_records(void *arg, const void *first, size_t first_size, const void *second, size_t second_size,
			struct ptw_error *err)
{
	struct capture *capture = arg;
	bool was_full = capture->full;

	if (!ptw_recording_add_records(capture->writer, first, first_size, second, second_size, err))
		return 0;
	no_more(capture, err);
	/* Once more, with the room that was kept for this; what does not fit then is left out. */
	if (!was_full)
		ptw_recording_add_records(capture->writer, first, first_size, second, second_size, NULL);
	return 0;
}

static int drain_sideband(struct capture *capture, struct ptw_error *err)
{
	if (ptw_sideband_drain(capture->sideband, take_records, capture, err))
		return -1;
	/* One that is left out costs a reader memory, no more. */
	ptw_recording_end_round(capture->writer, NULL);
	return 0;
}

int capture_round(struct capture *capture, struct ptw_error *err)
{
	return drain_sideband(capture, err);
}

static int add_ring(struct capture *capture, const struct ptw_cpu_trace *trace, struct ptw_error *err)
{
	struct ptw_trace_pieces pieces;
	struct ptwatch_control control;

	if (ptw_control_read(trace->control, &control))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "the control page of CPU %u does not come to rest; `dmesg | tail` may tell more", trace->cpu);
	if (control.state == PTWATCH_STATE_RUNNING)
		return 0;
	if (control.state == PTWATCH_STATE_ERROR) {
		capture->damaged = true;
		cli_progress(capture->request->verb,
			     "CPU %u ended its trace with an error (status 0x%" PRIx64 "); what it wrote before is kept",
			     trace->cpu, (uint64_t)control.rtit_status);
	}
	pieces = ptw_trace_pieces(&control, trace->data);
	if (capture->full ||
	    ptw_recording_add_trace(capture->writer, trace->cpu, pieces.first, pieces.first_size, pieces.second,
				    pieces.second_size, err)) {
		capture->lost += pieces.first_size + pieces.second_size;
		if (!capture->full)
			no_more(capture, err);
		return 0;
	}
	capture->bytes += pieces.first_size + pieces.second_size;
	return 0;
}

int capture_stop(struct capture *capture, struct ptw_error *err)
{
	if (ptw_device_trace_stop(&capture->device, err) || drain_sideband(capture, err))
		return -1;
	for (size_t i = 0; i < capture->device.trace_count; i++)
		if (add_ring(capture, &capture->device.trace[i], err))
			return -1;
	return 0;
}

int capture_finish(struct capture *capture, struct ptw_error *err)
{
	struct ptw_recording_writer *writer = capture->writer;

	capture->writer = NULL;	/* finish frees it, however it ends */
	return ptw_recording_finish(writer, err);
}

bool capture_report(const struct capture *capture)
{
	const char *verb = capture->request->verb;
	uint64_t records = ptw_sideband_lost(capture->sideband);
	char number[32];

	if (capture->lost)
		cli_progress(verb, "%s bytes of trace were lost", ptw_commas(capture->lost, number, sizeof(number)));
	if (records)
		cli_progress(verb, "%s records about processes and switches were lost, so some code may be taken for another's",
			     ptw_commas(records, number, sizeof(number)));
	return capture->lost || records || capture->damaged;
}

void capture_close(struct capture *capture)
{
	if (capture->writer)
		ptw_recording_abort(capture->writer);
	capture->writer = NULL;
	/* The trace ends first: closing the events changes the kernel's code. */
	ptw_device_close(&capture->device);
	ptw_sideband_close(capture->sideband);
	capture->sideband = NULL;
}
