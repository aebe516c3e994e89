// SPDX-License-Identifier: BSD-2-Clause
/*
 * recording TO TRACE FILE,FILEOFF,SIZE,VADDR COPIES [SWITCHES [CHILDREN [TRACED]]]: a recording of the sample skylake-hello,
 * COPIES times over, as one that stock perf opens: its process, what that has mapped, and the trace of CPU 1; with so many
 * switches away and back; with so many children that began, ran a program, and ended before; and behind that with so many
 * children of which each executes the sample.
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
#define FIRST_CHILD	1000
#define CHILD_PIDS	4000000
#define TIME_SHIFT	10
#define TIME_MULT	277
#define CTC_RATIO	154	/* TSC to CTC: CPUID 0x15 EBX / EAX */

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

static uint64_t to_tsc(uint64_t ns)
{
	return (ns << TIME_SHIFT) / TIME_MULT + 1;
}

static uint64_t to_ns(uint64_t tsc)
{
	return (tsc >> TIME_SHIFT) * TIME_MULT + ((tsc & ((1 << TIME_SHIFT) - 1)) * TIME_MULT >> TIME_SHIFT);
}

static void add_switch(uint32_t from, uint32_t to, uint64_t tsc)
{
	const struct ptwatch_switch s = { .tsc = tsc, .cpu = 1, .prev_pid = from, .prev_tid = from, .next_pid = to, .next_tid = to };

	check(ptw_recording_add_switches(writer, &s, 1, ID, &err));
}

struct task_record {
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time;
	struct perf_sample_id id;
};

static void add_task(uint32_t type, uint32_t pid, uint64_t time)
{
	struct task_record task = { .header.type = type, .pid = pid, .ppid = PID, .tid = pid, .ptid = PID, .time = time };

	add(&task, sizeof(task), time);
}

/* A child of the process that runs a program with eight mappings, which every child has elsewhere */
static void begin_child(uint32_t pid, uint64_t time, unsigned long number)
{
	char name[64];

	add_task(PERF_RECORD_FORK, pid, time);
	add_comm(pid, "child", true, time + 1);
	for (unsigned int k = 0; k < 8; k++) {
		snprintf(name, sizeof(name), "/usr/lib/x86_64-linux-gnu/lib%u.so.1", k);
		add_map(pid, 0x7f0000000000 + (number * 8 + k) * 0x20000, 0x10000, 0x1000, name, time + 2);
	}
}

/* Who sorts by time may let go what is older. */
static void end_round(unsigned long number)
{
	if (!(number % 256))
		check(ptw_recording_end_round(writer, &err));
}

/* Children that are over before the trace begins */
static void add_children(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		const uint32_t pid = FIRST_CHILD + i % CHILD_PIDS;
		const uint64_t time = 10 + 8 * i;

		begin_child(pid, time, i);
		add_switch(PID, pid, to_tsc(time + 3));
		add_task(PERF_RECORD_EXIT, pid, time + 4);
		add_switch(pid, PID, to_tsc(time + 5));
		end_round(i);
	}
}

/* One after the other they execute what is traced. */
static void add_traced(unsigned long count, char *trace, size_t size, const struct ptw_image_section *code)
{
	char *at = memmem(trace, size, "\x02\x82\x02\x82\x02\x82\x02\x82", 8);
	uint64_t tsc = 0;

	/* Behind PSB, which is twice as long */
	at = at ? memchr(at + 16, 0x19, trace + size - at - 16) : NULL;
	if (!at || trace + size - at < 8) {
		fprintf(stderr, "recording: no TSC behind PSB in the sample\n");
		exit(1);
	}
	memcpy(&tsc, at + 1, 7);
	for (unsigned long i = 0; i < count; i++) {
		const uint32_t pid = FIRST_CHILD + i % CHILD_PIDS;

		/* CTC is the same again after so long: TMA and MTC need not be changed. */
		tsc += 65536ULL * CTC_RATIO;
		memcpy(at + 1, &tsc, 7);
		begin_child(pid, to_ns(tsc) - 2000, i);
		add_map(pid, code->vaddr, code->size, code->offset, code->path, to_ns(tsc) - 1990);
		add_switch(PID, pid, tsc - 1000);
		check(ptw_recording_add_trace(writer, 1, trace, size, NULL, 0, &err));
		/* It takes half a millisecond. */
		add_task(PERF_RECORD_EXIT, pid, to_ns(tsc) + 1000000);
		add_switch(pid, PID, tsc + to_tsc(1001000));
		end_round(i);
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
			.cpuid_0x15_ebx = 2 * CTC_RATIO, .have_time = true, .time_shift = TIME_SHIFT, .time_mult = TIME_MULT,
		},
		.rtit_ctl = PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_TSCEN | PTWATCH_RTIT_CTL_BRANCHEN |
			    PTWATCH_RTIT_CTL_MTCEN | PTWATCH_RTIT_CTL_CYCEN | 3ULL << 14,
	};
	struct ptw_image image = { 0 };
	size_t size, room;
	char *trace, *many;
	unsigned long copies;

	if (argc < 5 || argc > 8) {
		fprintf(stderr, "usage: recording TO TRACE FILE,FILEOFF,SIZE,VADDR COPIES [SWITCHES [CHILDREN [TRACED]]]\n");
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
	if (argc > 7)
		add_traced(strtoul(argv[7], NULL, 10), trace, size, &image.section[0]);
	check(ptw_recording_finish(writer, &err));
	ptw_image_free(&image);
	free(many);
	free(trace);
	return 0;
}
