// SPDX-License-Identifier: BSD-2-Clause
#include "cli/beside.h"

#include <errno.h>
#include <stdlib.h>

#include "cli/output.h"
#include "common/number.h"

/* So many that a reader who is late loses none: 2 MiB for each CPU */
#define SWITCH_RECORDS 65536

static int setup_trace(struct beside *beside, struct ptw_trace_request *request, struct ptw_error *err)
{
	struct ptw_error refused;

	/* A module that has modes remembers switches, too, for those who may see other people's tasks. */
	if (beside->device->info.modes) {
		request->switch_records = SWITCH_RECORDS;
		beside->own_switches = true;
		if (!ptw_device_trace_setup(beside->device, request, &refused))
			return 0;
		request->switch_records = 0;
		beside->own_switches = false;
	}
	return ptw_device_trace_setup(beside->device, request, err);
}

int beside_setup(struct beside *beside, struct ptw_device *device, struct ptw_trace_request *request,
		 struct ptw_error *err)
{
	struct ptw_sideband_request sideband = { .cpus = request->cpus, .cpus_size = request->cpus_size };

	beside->device = device;
	beside->ring = request->mode == PTWATCH_MODE_RING;
	beside->everywhere = !request->cpus;
	if (setup_trace(beside, request, err))
		return -1;
	beside->read = calloc(device->trace_count + 1, sizeof(*beside->read));
	beside->away = calloc(device->trace_count + 1, sizeof(*beside->away));
	if (!beside->read || !beside->away)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	sideband.switches = !beside->own_switches;
	beside->sideband = ptw_sideband_open(&sideband, err);
	return beside->sideband ? 0 : -1;
}

int beside_begin(struct beside *beside, struct ptw_recording_writer *writer, struct ptw_error *err)
{
	const uint64_t *ids;
	size_t count;

	beside->writer = writer;
	ids = ptw_sideband_ids(beside->sideband, &count);
	if (ptw_recording_set_sideband(writer, ids, count, err) || ptw_recording_add_processes(writer, err))
		return -1;
	/* From here on perf's records tell who runs on each CPU; ours begin with who does. */
	if (!beside->own_switches)
		ptw_sideband_visit(beside->sideband);
	return 0;
}

int beside_fd(const struct beside *beside)
{
	return ptw_sideband_fd(beside->sideband);
}

void beside_full(struct beside *beside, const struct ptw_error *why)
{
	if (!beside->full)
		beside->full_error = *why;
	beside->full = true;
	ptw_recording_release(beside->writer);
}

static int take_records(void *arg, const void *first, size_t first_size, const void *second, size_t second_size,
			struct ptw_error *err)
{
	struct beside *beside = arg;
	bool was_full = beside->full;
	struct ptw_error why;

	/* Whoever drains need not want to know. */
	if (!ptw_recording_add_records(beside->writer, first, first_size, second, second_size, &why))
		return 0;
	beside_full(beside, &why);
	/* Once more, with the room that was kept for this; what does not fit then is left out. */
	if (!was_full)
		ptw_recording_add_records(beside->writer, first, first_size, second, second_size, NULL);
	return 0;
}

/* ---- CPUs that come and go ---- */

static void tell_away(struct beside *beside, size_t i)
{
	const struct ptw_cpu_trace *trace = &beside->device->trace[i];

	if (trace->control->start_tsc)
		cli_progress(beside->verb, "CPU %u went offline: its trace pauses there, and goes on if it comes back", trace->cpu);
	else
		cli_progress(beside->verb, "CPU %u went offline before tracing began: it is traced if it comes back", trace->cpu);
	beside->away[i] = beside->left = true;
}

/* What the module tells of the trace: perf's events fall silent without a word. */
static bool is_offline(const struct ptw_cpu_trace *trace)
{
	return __atomic_load_n(&trace->control->state, __ATOMIC_RELAXED) == PTWATCH_STATE_OFFLINE;
}

static void look_for_away(struct beside *beside)
{
	for (size_t i = 0; i < beside->device->trace_count; i++)
		if (!beside->away[i] && is_offline(&beside->device->trace[i]))
			tell_away(beside, i);
}

static bool is_traced(const struct beside *beside, int cpu)
{
	for (size_t i = 0; i < beside->device->trace_count; i++)
		if (beside->device->trace[i].cpu == (uint32_t)cpu)
			return true;
	return false;
}

/* One that went and came between two rounds went all the same. */
static void is_back(struct beside *beside, int cpu)
{
	for (size_t i = 0; i < beside->device->trace_count; i++) {
		if (beside->device->trace[i].cpu != (uint32_t)cpu)
			continue;
		if (!beside->away[i])
			tell_away(beside, i);
		beside->away[i] = false;
	}
}

/* CPUs that went offline and came back: what was told there meanwhile is read from /proc, as far as it can be. */
static void renew(struct beside *beside)
{
	const char *verb = beside->verb;
	struct ptw_error err;
	const uint64_t *ids;
	size_t count;
	int cpu, ret;

	while ((ret = ptw_sideband_renew(beside->sideband, take_records, beside, &cpu, &err))) {
		beside->unheard = true;
		is_back(beside, cpu);
		if (ret < 0) {
			cli_progress(verb, "CPU %d came online, and what processes do there is not recorded: %s", cpu, err.text);
			continue;
		}
		cli_progress(verb, "CPU %d came online: its processes, and code that was changed there, are recorded as they are now%s",
			     cpu, beside->everywhere && !is_traced(beside, cpu) ? "; it is not traced, as it was offline at the start" : "");
		ids = ptw_sideband_ids(beside->sideband, &count);
		if (ptw_recording_set_sideband(beside->writer, ids, count, &err) ||
		    ptw_recording_add_unheard(beside->writer, cpu, ids[count - 1], &err))
			beside_full(beside, &err);
	}
}

/*
 * Records that a ring had no room for may have told of processes and of changed code: both are told as they are now. Not
 * in each of several rounds with losses, as what it takes would make the next one likelier.
 */
static void make_up(struct beside *beside, bool last)
{
	bool more = false, before = beside->missing;
	struct ptw_error err;
	uint32_t cpu;

	while (ptw_sideband_missed(beside->sideband, &cpu)) {
		beside->missed_cpu = cpu;
		more = beside->missed = true;
	}
	beside->missing = more;
	if (!beside->missed || beside->full || (more && before && !last))
		return;
	beside->missed = false;
	cpu = beside->missed_cpu;
	if (ptw_recording_add_missed(beside->writer, cpu, ptw_sideband_id(beside->sideband, cpu), &err))
		beside_full(beside, &err);
}

/* ---- switches that the module remembered ---- */

static int add_switches(struct beside *beside, const struct ptwatch_switch *list, size_t count, uint32_t cpu)
{
	uint64_t id = ptw_sideband_id(beside->sideband, cpu);
	struct ptw_error err;

	if (!ptw_recording_add_switches(beside->writer, list, count, id, &err))
		return 0;
	if (beside->full)
		return 0;
	beside_full(beside, &err);
	return ptw_recording_add_switches(beside->writer, list, count, id, NULL);
}

static void drain_switches(struct beside *beside, const struct ptw_cpu_trace *trace, uint64_t *read)
{
	const struct ptwatch_switches *page = trace->switches;
	const struct ptwatch_switch *ring = (const void *)((const uint8_t *)page + page->data_offset);
	uint64_t mask = page->records - 1, head;
	struct ptwatch_switch copy[512];

	/* Records are written before head is moved. */
	while ((head = __atomic_load_n(&page->head, __ATOMIC_ACQUIRE)) != *read) {
		uint64_t first = *read, count, still;

		if (head - first > mask) {
			first = head - mask;
			if (!beside->ring)
				beside->switches_lost += first - *read;
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
		beside->switches_lost += still;
		if (count > still)
			add_switches(beside, copy + still, count - still, trace->cpu);
		*read = first + count;
	}
}

void beside_round(struct beside *beside, bool last)
{
	ptw_sideband_drain(beside->sideband, take_records, beside, NULL);
	look_for_away(beside);
	renew(beside);
	make_up(beside, last);
	if (beside->own_switches && (last || !beside->ring))
		for (size_t i = 0; i < beside->device->trace_count; i++)
			drain_switches(beside, &beside->device->trace[i], &beside->read[i]);
	/*
	 * One that is left out costs a reader memory, no more. Where switches wait for the end, what is told
	 * before them is no round.
	 */
	if (last || !beside->ring || !beside->own_switches)
		ptw_recording_end_round(beside->writer, NULL);
}

bool beside_report(const struct beside *beside)
{
	const char *verb = beside->verb;
	uint64_t records = ptw_sideband_lost(beside->sideband);
	char number[32];

	if (records)
		cli_progress(verb, "%s records about processes were lost, so some code may be taken for another's",
			     ptw_commas(records, number, sizeof(number)));
	if (beside->switches_lost)
		cli_progress(verb, "%s context switches were lost, so some code may be taken for another's",
			     ptw_commas(beside->switches_lost, number, sizeof(number)));
	for (size_t i = 0; i < beside->device->trace_count; i++)
		if (beside->away[i] && is_offline(&beside->device->trace[i]))
			cli_progress(verb, "CPU %u did not come back online", beside->device->trace[i].cpu);
	return records || beside->switches_lost || beside->unheard || beside->left;
}

void beside_close(struct beside *beside)
{
	ptw_sideband_close(beside->sideband);
	beside->sideband = NULL;
	free(beside->read);
	free(beside->away);
	beside->read = NULL;
	beside->away = NULL;
}
