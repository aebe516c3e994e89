// SPDX-License-Identifier: BSD-2-Clause
/*
 * recording TO TRACE FILE,FILEOFF,SIZE,VADDR COPIES [SWITCHES [PROCESSES]]: a recording of the sample skylake-hello, COPIES times
 * over, as one that stock perf opens: its process, what that has mapped, and the trace of CPU 1; with so many switches away and
 * back; and with so many other processes that began, ran a program, and ended.
 */
#include <stdbool.h>
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
	const uint32_t pid = ((uint32_t *)record)[sizeof(struct perf_event_header) / sizeof(uint32_t)];
	const struct perf_sample_id id = { .pid = pid, .tid = pid, .time = time, .cpu = 1, .id = ID };

	((struct perf_event_header *)record)->size = size;
	memcpy((char *)record + size - sizeof(id), &id, sizeof(id));
	check(ptw_recording_add_records(writer, record, size, NULL, 0, &err));
}

static void add_comm(uint32_t pid, const char *name, bool exec, uint64_t time)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		char name[16];
		struct perf_sample_id id;
	} comm = {
		.header = { .type = PERF_RECORD_COMM, .misc = exec ? PERF_RECORD_MISC_COMM_EXEC : 0 }, .pid = pid, .tid = pid,
	};

	snprintf(comm.name, sizeof(comm.name), "%s", name);
	add(&comm, sizeof(comm), time);
}

static void add_map(uint32_t pid, uint64_t addr, uint64_t size, uint64_t offset, const char *name, uint64_t time)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t addr, size, pgoff, unused[3];
		uint32_t prot, flags;
	} map = {
		.header = { .type = PERF_RECORD_MMAP2, .misc = PERF_RECORD_MISC_USER }, .pid = pid, .tid = pid,
		.addr = addr, .size = size, .pgoff = offset, .prot = 5, .flags = 2,
	};
	uint8_t record[sizeof(map) + 1024 + sizeof(struct perf_sample_id)] = { 0 };

	memcpy(record, &map, sizeof(map));
	snprintf((char *)record + sizeof(map), 1024, "%s", name);
	add(record, sizeof(map) + (strlen(name) + 8) / 8 * 8 + sizeof(struct perf_sample_id), time);
}

static void add_process(const struct ptw_image_section *code)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		struct perf_sample_id id;
	} start = { .header = { .type = PERF_RECORD_SWITCH_CPU_WIDE }, .pid = PID };	/* from no other to PID */

	add_comm(PID, "hello", false, 0);
	add_map(PID, code->vaddr, code->size, code->offset, code->path, 0);
	add(&start, sizeof(start), 1);
}

/* @count children of the process that run a program with eight mappings, each elsewhere, and end, before the trace */
static void add_children(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		const uint32_t pid = 1000 + i % 4000000;
		const uint64_t time = 10 + 8 * i;
		struct __attribute__((packed)) {
			struct perf_event_header header;
			uint32_t pid, ppid, tid, ptid;
			uint64_t time;
			struct perf_sample_id id;
		} fork = {
			.header = { .type = PERF_RECORD_FORK }, .pid = pid, .ppid = PID, .tid = pid, .ptid = PID, .time = time,
		}, end = fork;

		add(&fork, sizeof(fork), time);
		add_comm(pid, "child", true, time + 1);
		for (unsigned int k = 0; k < 8; k++) {
			char name[64];

			snprintf(name, sizeof(name), "/usr/lib/x86_64-linux-gnu/lib%u.so.1", k);
			add_map(pid, 0x7f0000000000 + (i * 8 + k) * 0x20000, 0x10000, 0x1000, name, time + 2);
		}
		check(ptw_recording_add_switches(writer, (struct ptwatch_switch[]){
			{ .tsc = (time + 3) * 1024 / 277 + 1, .cpu = 1, .prev_pid = PID, .prev_tid = PID, .next_pid = pid, .next_tid = pid },
			{ .tsc = (time + 4) * 1024 / 277 + 1, .cpu = 1, .prev_pid = pid, .prev_tid = pid, .next_pid = PID, .next_tid = PID },
		}, 2, ID, &err));
		end.header.type = PERF_RECORD_EXIT;
		end.time = time + 5;
		add(&end, sizeof(end), time + 5);
		if (!(i % 256))
			check(ptw_recording_end_round(writer, &err));
	}
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

	if (argc < 5 || argc > 7) {
		fprintf(stderr, "usage: recording TO TRACE FILE,FILEOFF,SIZE,VADDR COPIES [SWITCHES [PROCESSES]]\n");
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
	add_children(argc > 6 ? strtoul(argv[6], NULL, 10) : 0);
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
