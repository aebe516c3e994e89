// SPDX-License-Identifier: BSD-2-Clause
#include "cli/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/output.h"
#include "common/number.h"
#include "control/machine.h"

/* A PMU type no kernel gives out: recordings want one also where perf has no intel_pt. */
#define NO_PMU 1000
/* What completing a recording needs beside the records that are still in the rings. */
#define RESERVE (1UL << 20)
/* … and when no more records come, and no more pieces than there are CPUs */
#define END_ROOM (256UL << 10)

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

#define FLUSH_NS UINT64_C(1000000000)

/* How far a CPU's stream has been read */
struct capture_cpu {
	uint64_t tail;
	uint64_t losses;
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static int open_epoll(struct capture *capture, struct ptw_error *err)
{
	struct epoll_event event = { .events = EPOLLIN };

	capture->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (capture->epoll < 0 ||
	    epoll_ctl(capture->epoll, EPOLL_CTL_ADD, beside_fd(&capture->beside), &event) ||
	    (capture->request->trace.mode == PTWATCH_MODE_STREAM &&
	     epoll_ctl(capture->epoll, EPOLL_CTL_ADD, capture->device.fd, &event)))
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot wait for the trace: %s", strerror(errno));
	return 0;
}

int capture_prepare(struct capture *capture, const struct capture_request *request, struct ptw_error *err)
{
	struct ptw_trace_request trace = request->trace;
	struct ptw_trace_config config;
	struct ptw_device *device = &capture->device;
	uint64_t rings;
	size_t count;

	capture->request = request;
	capture->beside.verb = request->verb;
	if (beside_setup(&capture->beside, device, &trace, err) || open_epoll(capture, err))
		return -1;
	capture->cpu = calloc(device->trace_count + 1, sizeof(*capture->cpu));
	if (!capture->cpu)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	capture_config(&device->info, trace.rtit_ctl, &config);
	config.switches = true;
	/* Also where places start and stop it: some switches are in the trace, then. */
	config.switch_traced = trace.rtit_ctl & PTWATCH_RTIT_CTL_OS && trace.target_kind == PTWATCH_TARGET_ALL &&
			       !trace.nr_ranges;
	config.stream = trace.mode == PTWATCH_MODE_STREAM;
	for (uint32_t i = 0; i < trace.nr_ranges && i < PTW_ADDR_RANGES; i++) {
		config.params.addr[i] = (struct ptw_addr_range){
			.cfg = trace.ranges[i].kind, .a = trace.ranges[i].start, .b = trace.ranges[i].end,
		};
		config.range_file[i] = request->range_file[i];
	}
	config.params.through = !trace.nr_ranges && !request->start_at.label[0] && !request->stop_at.label[0];
	capture->params = config.params;
	capture->writer = ptw_recording_create(request->output, &config, err);
	if (!capture->writer)
		return -1;
	ptw_sideband_ids(capture->beside.sideband, &count);
	rings = count * PTW_SIDEBAND_RING;
	if (ptw_recording_reserve(capture->writer, RESERVE + rings, err) ||
	    (trace.rtit_ctl & PTWATCH_RTIT_CTL_OS && ptw_recording_add_kernel(capture->writer, err)))
		return -1;
	return beside_begin(&capture->beside, capture->writer, err);
}

/* An execute breakpoint whose hit starts or stops the trace of the CPU that came there, as often as it does. */
static int arm(struct capture *capture, const struct trace_place *place, uint32_t action, uint32_t *id,
	       struct ptw_error *err)
{
	struct ptwatch_watch watch = {
		.address = place->address,
		.len = sizeof(long),
		.access = PTWATCH_ACCESS_X,
		.actions = action,
		.max_rate = UINT32_MAX,
		.max_storm = UINT32_MAX,
	};

	if (!place->label[0])
		return 0;
	if (place->user) {
		if (!capture->request->watched)
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s is user code: say of which process, with -p PID or a command",
					     place->label);
		watch.flags |= PTWATCH_WATCH_USER;
		watch.tgid = capture->request->watched;
	}
	memcpy(watch.label, place->label, sizeof(watch.label));
	if (ptw_device_watch_add(&capture->device, &watch, place->label, err))
		return -1;
	*id = watch.id;
	return 0;
}

int capture_start(struct capture *capture, struct ptw_error *err)
{
	if (arm(capture, &capture->request->stop_at, PTWATCH_ACTION_STOP, &capture->watch[1], err) ||
	    arm(capture, &capture->request->start_at, PTWATCH_ACTION_START, &capture->watch[0], err))
		return -1;
	capture->flushed = now();
	return ptw_device_trace_start(&capture->device, err);
}

int capture_fd(const struct capture *capture)
{
	return capture->epoll;
}

/* ---- a stream ---- */

/* The piece [cpu->tail, end) of a CPU's stream, straight from the mapped buffer into the file */
static void add_piece(struct capture *capture, const struct ptw_cpu_trace *trace, struct capture_cpu *cpu, uint64_t end)
{
	uint64_t size = trace->control->data_size, length = end - cpu->tail, start, first;
	struct ptw_error err;

	if (!length)
		return;
	start = cpu->tail % size;
	first = size - start < length ? size - start : length;
	cpu->tail = end;
	if (capture->beside.full) {
		capture->lost += length;
		return;
	}
	if (ptw_recording_add_trace(capture->writer, trace->cpu, trace->data + start, first, trace->data, length - first,
				    &err)) {
		capture->lost += length;
		beside_full(&capture->beside, &err);
		return;
	}
	capture->bytes += length;
}

static void add_gap(struct capture *capture, const struct ptw_cpu_trace *trace, const struct ptwatch_loss *loss)
{
	const struct ptw_pt_params *p = &capture->params;
	uint64_t time = p->have_time ? ptw_tsc_to_ns(p, loss->end_tsc) : loss->end_tsc;

	capture->lost += loss->bytes;
	capture->gaps++;
	ptw_recording_add_loss(capture->writer, trace->cpu, loss->bytes, time, NULL);
}

/* Heads lie where the CPU was stopped, so behind a whole packet: perf reads no packet across two pieces. */
static int drain_stream(struct capture *capture, const struct ptw_cpu_trace *trace, struct capture_cpu *cpu, bool last,
			struct ptw_error *err)
{
	const struct ptwatch_control *control = trace->control;
	/* The bytes are there before head is moved, and so are the gaps among them. */
	uint64_t head = __atomic_load_n(&control->head, __ATOMIC_ACQUIRE);
	uint64_t gaps = __atomic_load_n(&control->nr_losses, __ATOMIC_ACQUIRE), before = cpu->tail;

	while (cpu->losses != gaps) {
		const struct ptwatch_loss *loss = &control->losses[cpu->losses % PTWATCH_LOSSES];

		if (loss->position > head)
			break;
		add_piece(capture, trace, cpu, loss->position);
		add_gap(capture, trace, loss);
		cpu->losses++;
	}
	add_piece(capture, trace, cpu, head);
	if (cpu->tail == before || last)
		return 0;
	return ptw_device_trace_advance(&capture->device, trace->cpu, cpu->tail, err);
}

static int drain_traces(struct capture *capture, bool last, struct ptw_error *err)
{
	for (size_t i = 0; i < capture->device.trace_count; i++) {
		if (capture->request->trace.mode == PTWATCH_MODE_STREAM &&
		    drain_stream(capture, &capture->device.trace[i], &capture->cpu[i], last, err))
			return -1;
	}
	return 0;
}

/* Modules that were loaded since the kernel's code was copied: each is a directory of sysfs, which counts them. */
static void add_late_modules(struct capture *capture, bool last)
{
	struct ptw_error err;
	struct stat st;
	bool changed = !stat("/sys/module", &st) && st.st_nlink != capture->modules;

	if ((!changed && !last) || capture->beside.full)
		return;
	/* The first time is when the code has just been copied, or a moment later. */
	if (changed)
		capture->modules = st.st_nlink;
	if (ptw_recording_add_late_modules(capture->writer, &err) && !capture->modules_failed) {
		capture->modules_failed = true;
		cli_progress(capture->request->verb, "modules that were loaded meanwhile are not in the recording: %s", err.text);
	}
}

static int drain(struct capture *capture, bool last, struct ptw_error *err)
{
	if (drain_traces(capture, last, err))
		return -1;
	/* Before the round ends: readers must know a module before they decode what ran then. */
	add_late_modules(capture, last);
	beside_round(&capture->beside, last);
	return 0;
}

int capture_round(struct capture *capture, struct ptw_error *err)
{
	uint64_t time = now();

	/* What a slow CPU has gathered shall not be lost with the machine, nor an interrupt that never comes. */
	if (capture->request->trace.mode == PTWATCH_MODE_STREAM && time - capture->flushed >= FLUSH_NS) {
		capture->flushed = time;
		if (ptw_device_trace_flush(&capture->device, err))
			return -1;
	}
	return drain(capture, false, err);
}

/* All records are written, so what was kept for them is room for trace. */
static void add_rings(struct capture *capture, struct ptw_ring_trace *ring, size_t count)
{
	struct beside *beside = &capture->beside;
	struct ptw_error err;

	if ((ptw_recording_reserve(capture->writer, END_ROOM, &err) ||
	     ptw_recording_add_rings(capture->writer, ring, count, &err)) && !beside->full) {
		/* Not beside_full(): the end needs what is reserved now. */
		beside->full = true;
		beside->full_error = err;
	}
	for (size_t i = 0; i < count; i++) {
		capture->bytes += ring[i].written;
		capture->lost += ring[i].first_size + ring[i].second_size - ring[i].written;
	}
}

/* How the CPU's trace ended and, if it is a ring, what is in it */
static int take_state(struct capture *capture, const struct ptw_cpu_trace *trace, struct ptw_ring_trace *ring,
		      struct ptw_error *err)
{
	const char *verb = capture->request->verb;
	struct ptwatch_control control;

	if (ptw_control_read(trace->control, &control))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "the control page of CPU %u does not come to rest; `dmesg | tail` may tell more", trace->cpu);
	if (control.state == PTWATCH_STATE_ERROR || control.flags & PTWATCH_CONTROL_VMX) {
		capture->damaged = true;
		if (control.flags & PTWATCH_CONTROL_VMX)
			cli_progress(verb, "CPU %u ended its trace because a virtual machine was started; what it wrote before is kept",
				     trace->cpu);
		else
			cli_progress(verb, "CPU %u ended its trace with an error (status 0x%" PRIx64 "); what it wrote before is kept",
				     trace->cpu, (uint64_t)control.rtit_status);
	}
	if (control.flags & PTWATCH_CONTROL_OVERRUN) {
		capture->damaged = true;
		cli_progress(verb, "CPU %u overran its buffer before it was interrupted: packets were lost that nobody could count",
			     trace->cpu);
	}
	*ring = (struct ptw_ring_trace){ .cpu = trace->cpu };
	if (capture->request->trace.mode == PTWATCH_MODE_RING && control.state != PTWATCH_STATE_RUNNING) {
		struct ptw_trace_pieces pieces = ptw_trace_pieces(&control, trace->data);

		ring->first = pieces.first;
		ring->first_size = pieces.first_size;
		ring->second = pieces.second;
		ring->second_size = pieces.second_size;
	}
	return 0;
}

int capture_stop(struct capture *capture, struct ptw_error *err)
{
	size_t count = capture->device.trace_count;
	struct ptw_ring_trace *ring;

	if (ptw_device_trace_stop(&capture->device, err) || drain(capture, true, err))
		return -1;
	ring = calloc(count + 1, sizeof(*ring));
	if (!ring)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	for (size_t i = 0; i < count; i++) {
		if (take_state(capture, &capture->device.trace[i], &ring[i], err)) {
			free(ring);
			return -1;
		}
	}
	if (capture->request->trace.mode == PTWATCH_MODE_RING)
		add_rings(capture, ring, count);
	free(ring);
	return 0;
}

int capture_finish(struct capture *capture, struct ptw_error *err)
{
	struct ptw_recording_writer *writer = capture->writer;

	capture->writer = NULL;	/* finish frees it, however it ends */
	return ptw_recording_finish(writer, err);
}

/* A place that nothing came to is most often a mistake. */
static void report_watch(struct capture *capture, uint32_t id, const char *label, const char *verb)
{
	struct ptwatch_watch_stat stat;
	char number[32];

	if (!id || ptw_device_watch_stat(&capture->device, id, &stat, NULL))
		return;
	if (!stat.hits)
		cli_progress(verb, "nothing came to %s", label);
	else if (stat.dropped || stat.rate_limited)
		cli_progress(verb, "%s: %s hits did nothing, because they came too fast", label,
			     ptw_commas(stat.dropped + stat.rate_limited, number, sizeof(number)));
}

bool capture_report(struct capture *capture)
{
	const char *verb = capture->request->verb;
	char number[32], times[32];

	report_watch(capture, capture->watch[0], capture->request->start_at.label, verb);
	report_watch(capture, capture->watch[1], capture->request->stop_at.label, verb);

	if (capture->gaps)
		cli_progress(verb,
			     "%s bytes of trace were lost in %s gaps, because they were not written to disk in time; a larger --buffer helps, or --cpu, --filter",
			     ptw_commas(capture->lost, number, sizeof(number)),
			     ptw_commas(capture->gaps, times, sizeof(times)));
	else if (capture->lost && capture->request->trace.mode == PTWATCH_MODE_STREAM)
		cli_progress(verb, "%s bytes of trace were lost", ptw_commas(capture->lost, number, sizeof(number)));
	return beside_report(&capture->beside) || capture->gaps || capture->lost || capture->damaged;
}

void capture_close(struct capture *capture)
{
	if (capture->writer)
		ptw_recording_abort(capture->writer);
	capture->writer = NULL;
	/* The trace ends first: closing the events changes the kernel's code. */
	ptw_device_close(&capture->device);
	beside_close(&capture->beside);
	if (capture->epoll >= 0)
		close(capture->epoll);
	capture->epoll = -1;
	free(capture->cpu);
	capture->cpu = NULL;
}
