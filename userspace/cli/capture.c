// SPDX-License-Identifier: BSD-2-Clause
#include "cli/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
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

/* The larger rings, so that a reader that is late loses none: 2 MiB for each CPU */
#define SWITCH_RECORDS 65536
#define FLUSH_NS UINT64_C(1000000000)

/* How far a CPU's stream and switches have been read */
struct capture_cpu {
	uint64_t tail;
	uint64_t losses;
	uint64_t switches;
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static int setup(struct capture *capture, struct ptw_error *err)
{
	struct ptw_trace_request trace = capture->request->trace;

	/* A module that has modes remembers switches, too, for those who may see other people's tasks. */
	if (capture->device.info.modes) {
		trace.switch_records = SWITCH_RECORDS;
		capture->own_switches = true;
		if (!ptw_device_trace_setup(&capture->device, &trace, err))
			return 0;
		if (trace.rtit_ctl & PTWATCH_RTIT_CTL_OS || errno != EPERM)
			return -1;
		capture->own_switches = false;
		trace.switch_records = 0;
	}
	return ptw_device_trace_setup(&capture->device, &trace, err);
}

static int open_epoll(struct capture *capture, struct ptw_error *err)
{
	struct epoll_event event = { .events = EPOLLIN };

	capture->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (capture->epoll < 0 ||
	    epoll_ctl(capture->epoll, EPOLL_CTL_ADD, ptw_sideband_fd(capture->sideband), &event) ||
	    (capture->request->trace.mode == PTWATCH_MODE_STREAM &&
	     epoll_ctl(capture->epoll, EPOLL_CTL_ADD, capture->device.fd, &event)))
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot wait for the trace: %s", strerror(errno));
	return 0;
}

int capture_prepare(struct capture *capture, const struct capture_request *request, struct ptw_error *err)
{
	struct ptw_sideband_request sideband = {
		.cpus = request->trace.cpus,
		.cpus_size = request->trace.cpus_size,
		.ring_size = SIDEBAND_RING,
	};
	struct ptw_trace_config config;
	const uint64_t *ids;
	size_t count;

	capture->request = request;
	if (setup(capture, err))
		return -1;
	capture->cpu = calloc(capture->device.trace_count + 1, sizeof(*capture->cpu));
	if (!capture->cpu)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	sideband.switches = !capture->own_switches;
	/* Before the kernel's code is copied, which this may change. */
	capture->sideband = ptw_sideband_open(&sideband, err);
	if (!capture->sideband || open_epoll(capture, err))
		return -1;
	capture_config(&capture->device.info, request->trace.rtit_ctl, &config);
	config.switches = true;
	config.stream = request->trace.mode == PTWATCH_MODE_STREAM;
	for (uint32_t i = 0; i < request->trace.nr_ranges && i < PTW_ADDR_RANGES; i++)
		config.params.addr[i] = (struct ptw_addr_range){
			.cfg = request->trace.ranges[i].kind,
			.a = request->trace.ranges[i].start,
			.b = request->trace.ranges[i].end,
		};
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
	/* From here on perf's records tell who runs on each CPU; ours begin with who does. */
	if (!capture->own_switches)
		ptw_sideband_visit(capture->sideband);
	return 0;
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

/* ---- switches that the module remembered ---- */

static int add_switches(struct capture *capture, const struct ptwatch_switch *list, size_t count, uint32_t cpu)
{
	uint64_t id = ptw_sideband_id(capture->sideband, cpu);
	struct ptw_error err;

	if (!ptw_recording_add_switches(capture->writer, list, count, id, &err))
		return 0;
	if (capture->full)
		return 0;
	no_more(capture, &err);
	return ptw_recording_add_switches(capture->writer, list, count, id, NULL);
}

static void drain_switches(struct capture *capture, const struct ptw_cpu_trace *trace, struct capture_cpu *cpu)
{
	const struct ptwatch_switches *page = trace->switches;
	const struct ptwatch_switch *ring = (const void *)((const uint8_t *)page + page->data_offset);
	uint64_t mask = page->records - 1, head;
	struct ptwatch_switch copy[512];

	/* Records are written before head is moved. */
	while ((head = __atomic_load_n(&page->head, __ATOMIC_ACQUIRE)) != cpu->switches) {
		uint64_t first = cpu->switches, count, still;

		if (head - first > mask) {
			first = head - mask;
			capture->switches_lost += first - cpu->switches;
		}
		count = head - first < 512 ? head - first : 512;
		for (uint64_t i = 0; i < count; i++)
			copy[i] = ring[(first + i) & mask];
		/* What was written over while it was copied is no record. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		head = __atomic_load_n(&page->head, __ATOMIC_ACQUIRE);
		still = head > mask && head - mask > first ? head - mask - first : 0;
		if (still > count)
			still = count;
		capture->switches_lost += still;
		if (count > still)
			add_switches(capture, copy + still, count - still, trace->cpu);
		cpu->switches = first + count;
	}
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
	if (capture->full) {
		capture->lost += length;
		return;
	}
	if (ptw_recording_add_trace(capture->writer, trace->cpu, trace->data + start, first, trace->data, length - first,
				    &err)) {
		capture->lost += length;
		no_more(capture, &err);
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
		if (capture->own_switches)
			drain_switches(capture, &capture->device.trace[i], &capture->cpu[i]);
		if (capture->request->trace.mode == PTWATCH_MODE_STREAM &&
		    drain_stream(capture, &capture->device.trace[i], &capture->cpu[i], last, err))
			return -1;
	}
	return 0;
}

static int drain(struct capture *capture, bool last, struct ptw_error *err)
{
	if (ptw_sideband_drain(capture->sideband, take_records, capture, err) || drain_traces(capture, last, err))
		return -1;
	/* One that is left out costs a reader memory, no more. */
	ptw_recording_end_round(capture->writer, NULL);
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

static void add_ring(struct capture *capture, const struct ptw_cpu_trace *trace, const struct ptwatch_control *control)
{
	struct ptw_trace_pieces pieces = ptw_trace_pieces(control, trace->data);
	struct ptw_error err;

	if (!capture->full &&
	    !ptw_recording_add_trace(capture->writer, trace->cpu, pieces.first, pieces.first_size, pieces.second,
				     pieces.second_size, &err)) {
		capture->bytes += pieces.first_size + pieces.second_size;
		return;
	}
	capture->lost += pieces.first_size + pieces.second_size;
	if (!capture->full)
		no_more(capture, &err);
}

/* How the CPU's trace ended and, if it is a ring, what is in it */
static int take_state(struct capture *capture, const struct ptw_cpu_trace *trace, struct ptw_error *err)
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
	if (capture->request->trace.mode == PTWATCH_MODE_RING && control.state != PTWATCH_STATE_RUNNING)
		add_ring(capture, trace, &control);
	return 0;
}

int capture_stop(struct capture *capture, struct ptw_error *err)
{
	if (ptw_device_trace_stop(&capture->device, err) || drain(capture, true, err))
		return -1;
	for (size_t i = 0; i < capture->device.trace_count; i++)
		if (take_state(capture, &capture->device.trace[i], err))
			return -1;
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
	uint64_t records = ptw_sideband_lost(capture->sideband);
	char number[32], times[32];

	report_watch(capture, capture->watch[0], capture->request->start_at.label, verb);
	report_watch(capture, capture->watch[1], capture->request->stop_at.label, verb);

	if (capture->gaps)
		cli_progress(verb,
			     "%s bytes of trace were lost in %s gaps, because they were not written to disk in time; a larger --buffer helps, or --cpu, --filter",
			     ptw_commas(capture->lost, number, sizeof(number)),
			     ptw_commas(capture->gaps, times, sizeof(times)));
	else if (capture->lost)
		cli_progress(verb, "%s bytes of trace were lost", ptw_commas(capture->lost, number, sizeof(number)));
	if (records)
		cli_progress(verb, "%s records about processes were lost, so some code may be taken for another's",
			     ptw_commas(records, number, sizeof(number)));
	if (capture->switches_lost)
		cli_progress(verb, "%s context switches were lost, so some code may be taken for another's",
			     ptw_commas(capture->switches_lost, number, sizeof(number)));
	return capture->gaps || capture->lost || records || capture->switches_lost || capture->damaged;
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
	if (capture->epoll >= 0)
		close(capture->epoll);
	capture->epoll = -1;
	free(capture->cpu);
	capture->cpu = NULL;
}
