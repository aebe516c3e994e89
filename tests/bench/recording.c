// SPDX-License-Identifier: BSD-2-Clause
/*
 * recording TO TRACE FILE,FILEOFF,SIZE,VADDR COPIES [SWITCHES]: a recording of the sample skylake-hello, COPIES times over, as one
 * that stock perf opens: its process, what that has mapped, and the trace of CPU 1; with so many switches away and back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/perf_event.h>
#include <linux/ptwatch.h>

#include "recording/file.h"
#include "recording/perf_file.h"
#include "recording/recording.h"

#define PID	77
#define ID	501

static struct ptw_recording_writer *writer;
static struct ptw_error err;

static void check(int failed)
{
	if (!failed)
		return;
	fprintf(stderr, "recording: %s\n", err.text);
	exit(1);
}

static void add(void *record, size_t size, uint64_t time)
{
	const struct perf_sample_id id = { .pid = PID, .tid = PID, .time = time, .cpu = 1, .id = ID };

	((struct perf_event_header *)record)->size = size;
	memcpy((char *)record + size - sizeof(id), &id, sizeof(id));
	check(ptw_recording_add_records(writer, record, size, NULL, 0, &err));
}

static void add_process(const struct ptw_image_section *code)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		char name[16];
		struct perf_sample_id id;
	} comm = { .header = { .type = PERF_RECORD_COMM }, .pid = PID, .tid = PID, .name = "hello" };
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t addr, size, pgoff, unused[3];
		uint32_t prot, flags;
		char name[1024];
		struct perf_sample_id id;
	} map = {
		.header = { .type = PERF_RECORD_MMAP2, .misc = PERF_RECORD_MISC_USER }, .pid = PID, .tid = PID,
		.addr = code->vaddr, .size = code->size, .pgoff = code->offset, .prot = 5, .flags = 2,
	};
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		struct perf_sample_id id;
	} start = { .header = { .type = PERF_RECORD_SWITCH_CPU_WIDE } };	/* from no other to PID */

	snprintf(map.name, sizeof(map.name), "%s", code->path);
	add(&comm, sizeof(comm), 0);
	add(&map, sizeof(map), 0);
	add(&start, sizeof(start), 1);
}

/* @count times away from the process and back, long before the trace */
static void add_switches(unsigned long count)
{
	struct ptwatch_switch batch[512];

	for (unsigned long i = 0; i < count; i += 256) {
		unsigned int n = count - i < 256 ? count - i : 256;

		for (unsigned int k = 0; k < 2 * n; k++)
			batch[k] = (struct ptwatch_switch){
				.tsc = 16 * (2 * i + k + 1), .cpu = 1, .prev_pid = PID + k % 2, .prev_tid = PID + k % 2,
				.next_pid = PID + !(k % 2), .next_tid = PID + !(k % 2),
			};
		check(ptw_recording_add_switches(writer, batch, 2 * n, ID, &err));
	}
}

int main(int argc, char **argv)
{
	static const uint64_t ids[] = { ID };
	const struct ptw_trace_config config = {
		.pt_pmu_type = 8, .stream = true, .switches = true,
		.params = {
			.family = 6, .model = 85, .stepping = 4, .mtc_freq = 3, .nom_freq = 37, .cpuid_0x15_eax = 2,
			.cpuid_0x15_ebx = 308, .have_time = true, .time_shift = 10, .time_mult = 277,
		},
		.rtit_ctl = PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_TSCEN | PTWATCH_RTIT_CTL_BRANCHEN |
			    PTWATCH_RTIT_CTL_MTCEN | PTWATCH_RTIT_CTL_CYCEN | 3ULL << 14,
	};
	struct ptw_image image = { 0 };
	size_t size, room;
	char *trace, *many;
	unsigned long copies;

	if (argc < 5 || argc > 6) {
		fprintf(stderr, "usage: recording TO TRACE FILE,FILEOFF,SIZE,VADDR COPIES [SWITCHES]\n");
		return 2;
	}
	copies = strtoul(argv[4], NULL, 10);
	check(ptw_image_parse(&image, argv[3], &err));
	trace = ptw_read_text(argv[2], &size, &err);
	check(!trace);
	/* As records of a recording hold them: a megabyte or so each */
	room = (1 << 20) / size;
	many = malloc(room * size);
	if (!many)
		return 1;
	for (size_t i = 0; i < room; i++)
		memcpy(many + i * size, trace, size);
	writer = ptw_recording_create(argv[1], &config, &err);
	check(!writer);
	check(ptw_recording_set_sideband(writer, ids, 1, &err));
	add_process(&image.section[0]);
	add_switches(argc > 5 ? strtoul(argv[5], NULL, 10) : 0);
	while (copies) {
		size_t n = copies < room ? copies : room;

		check(ptw_recording_add_trace(writer, 1, many, n * size, NULL, 0, &err));
		copies -= n;
	}
	check(ptw_recording_finish(writer, &err));
	ptw_image_free(&image);
	free(many);
	free(trace);
	return 0;
}
