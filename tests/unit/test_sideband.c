// SPDX-License-Identifier: BSD-2-Clause
/* Records beside the trace: processes from a made-up /proc, switches, losses, rounds; and a disk that is full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <elf.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#include <linux/ptwatch.h>

#include "control/sideband.h"
#include "recording/perf_file.h"
#include "recording/recording.h"
#include "recording/writer.h"

static char dir[] = "/tmp/ptwatch-sideband.XXXXXX";
static uint8_t data[1 << 20];
static size_t data_size;

static const struct ptw_trace_config config = {
	.rtit_ctl = PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_BRANCHEN | PTWATCH_RTIT_CTL_TSCEN,
	.pt_pmu_type = 10,
	.switches = true,
	.stream = true,
	/* one tick is two nanoseconds, and the clock began at 1000 */
	.params = { .family = 6, .model = 85, .have_time = true, .time_mult = 2, .time_zero = 1000 },
};

static char *in_dir(const char *name)
{
	static char path[4][256];
	static int n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "%s/%s", dir, name);
	return path[n];
}

static void put_file(const char *name, const char *text)
{
	FILE *file = fopen(in_dir(name), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void read_data(const char *name)
{
	FILE *file = fopen(in_dir(name), "r");

	assert_non_null(file);
	data_size = fread(data, 1, sizeof(data), file);
	fclose(file);
}

/* Record number @n of @type in the data section, with its trace skipped; NULL: there are fewer. */
static const uint8_t *find(uint32_t type, int n)
{
	const struct perf_file_head *head = (const void *)data;
	uint64_t at = head->data.offset, end = at + head->data.size;

	while (at < end) {
		const struct perf_event_header *h = (const void *)(data + at);
		const struct perf_auxtrace *a = (const void *)h;

		if (h->type == type && !n--)
			return data + at;
		at += h->size + (h->type == PERF_USER_AUXTRACE ? a->size : 0);
	}
	assert_int_equal(at, end);
	return NULL;
}

static uint32_t u32(const uint8_t *p, size_t at)
{
	uint32_t v;

	memcpy(&v, p + at, sizeof(v));
	return v;
}

static uint64_t u64(const uint8_t *p, size_t at)
{
	uint64_t v;

	memcpy(&v, p + at, sizeof(v));
	return v;
}

static struct ptw_recording_writer *begin(const char *name)
{
	static const uint64_t ids[] = { 501, 502 };
	struct ptw_error err = { .status = 0 };
	struct ptw_recording_writer *w = ptw_recording_create(in_dir(name), &config, &err);

	if (!w)
		fail_msg("%s", err.text);
	assert_int_equal(ptw_recording_set_sideband(w, ids, 2, &err), 0);
	return w;
}

static void finish(struct ptw_recording_writer *w)
{
	struct ptw_error err = { .status = 0 };

	if (ptw_recording_add_trace(w, 1, "\x02\x82\0\0\0\0\0\0", 8, NULL, 0, &err) || ptw_recording_finish(w, &err))
		fail_msg("%s", err.text);
}

static void describes_processes(void **state)
{
	struct ptw_recording_writer *w;
	struct ptw_error err;
	const uint8_t *r;

	mkdir(in_dir("proc"), 0700);
	mkdir(in_dir("proc/12"), 0700);
	mkdir(in_dir("proc/12/task"), 0700);
	mkdir(in_dir("proc/12/task/12"), 0700);
	mkdir(in_dir("proc/12/task/13"), 0700);
	mkdir(in_dir("proc/net"), 0700);
	put_file("proc/12/status", "Name:\ta\\040b\nTgid:\t12\nPPid:\t7\n");
	put_file("proc/12/comm", "a b\n");
	put_file("proc/12/task/13/status", "PPid:\t7\n");
	put_file("proc/12/task/13/comm", "worker\n");
	put_file("proc/12/maps",
		 "00400000-00401000 r--p 00000000 08:01 5                          /bin/a b\n"
		 "00401000-00403000 r-xp 00001000 08:01 5                          /bin/a b\n"
		 "7ff000-800000 rwxs 00000000 00:00 0 \n"
		 "nonsense\n"
		 "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n");
	w = begin("processes");
	assert_int_equal(ptw_recording_add_processes_from(w, in_dir("proc"), &err), 0);
	finish(w);
	read_data("processes/data");

	/* pid, parent, tid, parent's tid */
	r = find(PERF_RECORD_FORK, 0);
	assert_true(u32(r, 8) == 12 && u32(r, 12) == 7 && u32(r, 16) == 12 && u32(r, 20) == 7);
	r = find(PERF_RECORD_FORK, 1);
	assert_true(u32(r, 8) == 12 && u32(r, 12) == 12 && u32(r, 16) == 13 && u32(r, 20) == 12);
	assert_int_equal(((const struct perf_event_header *)r)->misc, PERF_RECORD_MISC_FORK_EXEC);
	assert_null(find(PERF_RECORD_FORK, 2));
	/* The first is the idle task's. */
	r = find(PERF_RECORD_COMM, 1);
	assert_true(u32(r, 8) == 12 && u32(r, 12) == 12);
	assert_string_equal((const char *)r + 16, "a b");
	r = find(PERF_RECORD_COMM, 2);
	assert_true(u32(r, 8) == 12 && u32(r, 12) == 13);
	assert_string_equal((const char *)r + 16, "worker");
	/* pid, tid, address, size, offset, four of the file, prot, flags, name: what is executable only */
	r = find(PERF_RECORD_MMAP2, 0);
	assert_true(u32(r, 8) == 12 && u64(r, 16) == 0x401000 && u64(r, 24) == 0x2000 && u64(r, 32) == 0x1000);
	assert_true(u32(r, 64) == 5 && u32(r, 68) == 2);
	assert_string_equal((const char *)r + 72, "/bin/a b");
	r = find(PERF_RECORD_MMAP2, 1);
	assert_true(u64(r, 16) == 0x7ff000 && u32(r, 64) == 7 && u32(r, 68) == 1);
	assert_string_equal((const char *)r + 72, "//anon");
	r = find(PERF_RECORD_MMAP2, 2);
	assert_string_equal((const char *)r + 72, "[vsyscall]");
	assert_null(find(PERF_RECORD_MMAP2, 3));
}

static void writes_switches(void **state)
{
	const struct ptwatch_switch list[] = {
		{ .tsc = 10, .prev_pid = 5, .prev_tid = 6, .next_pid = 5, .next_tid = 6, .cpu = 1,
		  .flags = PTWATCH_SWITCH_START },
		{ .tsc = 20, .prev_pid = 5, .prev_tid = 6, .next_pid = 8, .next_tid = 9, .cpu = 1,
		  .flags = PTWATCH_SWITCH_PREEMPT },
	};
	struct ptwatch_switch many[1000];
	struct ptw_recording_writer *w = begin("switches");
	const struct perf_event_header *h;
	struct ptw_error err;
	const uint8_t *r;

	assert_int_equal(ptw_recording_add_switches(w, list, 2, 502, &err), 0);
	for (size_t i = 0; i < 1000; i++)
		many[i] = (struct ptwatch_switch){ .tsc = 100 + i, .prev_tid = i, .next_tid = i + 1, .cpu = 1 };
	assert_int_equal(ptw_recording_add_switches(w, many, 1000, 502, &err), 0);
	assert_int_equal(ptw_recording_end_round(w, &err), 0);
	finish(w);
	read_data("switches/data");

	/* header, the other's pid and tid; then pid, tid, time, cpu, id of this one */
	r = find(PERF_RECORD_SWITCH_CPU_WIDE, 0);
	h = (const void *)r;
	assert_int_equal(h->misc, 0);
	assert_true(u32(r, 16) == 5 && u32(r, 20) == 6 && u64(r, 24) == 1020 && u32(r, 32) == 1 && u64(r, 40) == 502);
	r = find(PERF_RECORD_SWITCH_CPU_WIDE, 1);
	h = (const void *)r;
	assert_int_equal(h->misc, PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);
	assert_true(u32(r, 8) == 8 && u32(r, 12) == 9 && u32(r, 16) == 5 && u32(r, 20) == 6 && u64(r, 24) == 1040);
	r = find(PERF_RECORD_SWITCH_CPU_WIDE, 2);
	h = (const void *)r;
	assert_int_equal(h->misc, 0);
	assert_true(u32(r, 8) == 5 && u32(r, 12) == 6 && u32(r, 16) == 8 && u32(r, 20) == 9 && u64(r, 24) == 1040);
	/* Each of the others is two, in order. */
	r = find(PERF_RECORD_SWITCH_CPU_WIDE, 3 + 2 * 999 + 1);
	assert_true(u32(r, 12) == 999 && u32(r, 20) == 1000 && u64(r, 24) == 1000 + 2 * 1099);
	assert_null(find(PERF_RECORD_SWITCH_CPU_WIDE, 3 + 2000));
	assert_non_null(find(PERF_USER_FINISHED_ROUND, 0));
	/* Who ran is told by the switches. */
	assert_null(find(PERF_RECORD_ITRACE_START, 0));
	r = find(PERF_USER_AUXTRACE_INFO, 0);
	assert_int_equal(u64(r, 16 + 8 * PT_INFO_HAVE_SWITCH), PT_SWITCHES_CPU_WIDE);
	assert_int_equal(u64(r, 16 + 8 * PT_INFO_SNAPSHOT), 0);
}

/* With the switch in the trace, departures alone are told, but where tracing starts. */
static void tells_departures(void **state)
{
	const struct ptwatch_switch list[] = {
		{ .tsc = 10, .prev_tid = 6, .next_tid = 6, .cpu = 1, .flags = PTWATCH_SWITCH_START },
		{ .tsc = 20, .prev_tid = 6, .next_tid = 7, .cpu = 1 },
		{ .tsc = 30, .prev_tid = 7, .next_tid = 6, .cpu = 1 },
	};
	/* out?, tid, time */
	static const uint64_t expected[][3] = { { 0, 6, 1020 }, { 1, 6, 1040 }, { 1, 7, 1060 } };
	struct ptw_trace_config traced = config;
	struct ptw_recording_writer *w;
	struct ptw_error err;

	traced.switch_traced = true;
	w = ptw_recording_create(in_dir("departures"), &traced, &err);
	assert_non_null(w);
	assert_int_equal(ptw_recording_add_switches(w, list, 2, 502, &err), 0);
	assert_int_equal(ptw_recording_add_switches(w, list + 2, 1, 502, &err), 0);
	finish(w);
	read_data("departures/data");
	for (int i = 0; i < 3; i++) {
		const uint8_t *r = find(PERF_RECORD_SWITCH_CPU_WIDE, i);

		assert_non_null(r);
		assert_int_equal(!!(((const struct perf_event_header *)r)->misc & PERF_RECORD_MISC_SWITCH_OUT), expected[i][0]);
		assert_int_equal(u32(r, 20), expected[i][1]);
		assert_int_equal(u64(r, 24), expected[i][2]);
	}
	assert_null(find(PERF_RECORD_SWITCH_CPU_WIDE, 3));
}

/* ---- code that comes to be while it is recorded ---- */

#define BPF	0xffffffffc0001000ULL

struct __attribute__((packed)) ksymbol_record {
	struct perf_event_header header;
	uint64_t addr;
	uint32_t size;
	uint16_t type, flags;
	char name[16];
	struct perf_sample_id id;
};

static struct ksymbol_record ksymbol(uint64_t addr, uint16_t type, uint16_t flags, uint64_t time)
{
	return (struct ksymbol_record){
		.header = { .type = PERF_RECORD_KSYMBOL, .size = sizeof(struct ksymbol_record) },
		.addr = addr, .size = 0x9000, .type = type, .flags = flags, .name = "bpf_prog_1",
		.id = { .time = time, .cpu = 1, .id = 502 },
	};
}

/* A core with 0x10000 bytes at BPF, each the number of its page */
static void put_kcore(const char *name)
{
	Elf64_Ehdr head = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_CORE, .e_phoff = sizeof(head), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1,
	};
	Elf64_Phdr phdr = { .p_type = PT_LOAD, .p_offset = 4096, .p_vaddr = BPF, .p_filesz = 0x10000 };
	FILE *file = fopen(in_dir(name), "w");

	assert_non_null(file);
	fwrite(&head, sizeof(head), 1, file);
	fwrite(&phdr, sizeof(phdr), 1, file);
	fseek(file, 4096, SEEK_SET);
	for (int i = 0; i < 0x10000; i++)
		fputc(i >> 12, file);
	fclose(file);
}

/*
 * The bytes of a BPF program are told as a change of the code at the time it came, in records that are not too long;
 * not those of one that is gone, whose place may be another's.
 */
static void bpf_programs(void **state)
{
	const struct ksymbol_record records[] = {
		ksymbol(BPF, PERF_RECORD_KSYMBOL_TYPE_BPF, 0, 100),
		ksymbol(BPF + 0x9000, PERF_RECORD_KSYMBOL_TYPE_BPF, 0, 200),
		ksymbol(BPF, 2, 0, 300),
		ksymbol(BPF + 0x9000, PERF_RECORD_KSYMBOL_TYPE_BPF, PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER, 400),
	};
	const size_t cut = sizeof(records[0]) / 2;
	static char proc[256];
	struct ptw_recording_writer *w;
	struct ptw_error err;
	const uint8_t *r;

	mkdir(in_dir("bpf-proc"), 0700);
	put_kcore("bpf-proc/kcore");
	snprintf(proc, sizeof(proc), "%s", in_dir("bpf-proc"));
	w = begin("bpf");
	ptw_recording_set_proc(w, proc);
	/* A buffer that wraps around ends anywhere. */
	assert_int_equal(ptw_recording_add_records(w, records, cut, (const uint8_t *)records + cut, sizeof(records) - cut,
						   &err), 0);
	finish(w);
	read_data("bpf/data");
	for (int i = 0; i < 2; i++) {
		size_t size = i ? 0x1000 : 0x8000, padded = (20 + size + 7) & ~(size_t)7;

		r = find(PERF_RECORD_TEXT_POKE, i);
		assert_non_null(r);
		assert_true(u64(r, 8) == BPF + i * 0x8000);
		assert_int_equal(u32(r, 16), size << 16);
		assert_int_equal(r[20], i * 8);
		assert_int_equal(r[20 + size - 1], i ? 8 : 7);
		assert_int_equal(((const struct perf_event_header *)r)->size, padded + sizeof(struct perf_sample_id));
		assert_int_equal(u64(r, padded + 8), 100);
	}
	assert_null(find(PERF_RECORD_TEXT_POKE, 2));
}

/* What a process wrote down about the code that it generated comes along. */
static void files_of_generated_code(void **state)
{
	static struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t addr, size, pgoff, unused[3];
		uint32_t prot, flags;
		char name[128];
		struct perf_sample_id id;
	} r = {
		.header = { .type = PERF_RECORD_MMAP2, .misc = PERF_RECORD_MISC_USER, .size = sizeof(r) },
		.pid = 12, .tid = 12, .addr = 0x1000, .size = 0x1000, .prot = 4, .id = { .time = 10, .id = 502 },
	};
	struct ptw_recording_writer *w = begin("generated");
	struct ptw_recording *recording;
	struct ptw_error err;
	char *path;

	put_file("jit-12.dump", "the code");
	snprintf(r.name, sizeof(r.name), "%s/jit-12.dump", dir);
	assert_int_equal(ptw_recording_add_records(w, &r, sizeof(r), NULL, 0, &err), 0);
	snprintf(r.name, sizeof(r.name), "%s/jit-13.dump", dir);	/* gone */
	assert_int_equal(ptw_recording_add_records(w, &r, sizeof(r), NULL, 0, &err), 0);
	finish(w);
	unlink(in_dir("jit-12.dump"));
	recording = ptw_recording_open(in_dir("generated"), &err);
	if (!recording)
		fail_msg("%s", err.text);
	path = ptw_recording_beside(recording, in_dir("jit-12.dump"));
	assert_string_equal(path, in_dir("generated/jit-12.dump"));
	assert_null(ptw_recording_beside(recording, in_dir("jit-13.dump")));
	free(path);
	ptw_recording_close(recording);
}

static void marks_losses(void **state)
{
	struct ptw_recording_writer *w = begin("losses");
	struct ptw_error err;
	const uint8_t *r;

	assert_int_equal(ptw_recording_add_loss(w, 1, 4711, 77, &err), 0);
	finish(w);
	read_data("losses/data");
	r = find(PERF_RECORD_AUX, 0);
	assert_true(u64(r, 8) == 0 && u64(r, 16) == 4711 && u64(r, 24) == PERF_AUX_FLAG_TRUNCATED);
	assert_true(u64(r, 40) == 77 && u32(r, 48) == 1);
}

/* ---- what the kernel loses ---- */

static int take_nothing(void *arg, const void *first, size_t first_size, const void *second, size_t second_size,
			struct ptw_error *err)
{
	return 0;
}

/* Records of one CPU for which a ring of a page has no room: this kernel's. It tells of a loss when it has room again. */
static void tells_whose_records_were_lost(void **state)
{
	const struct ptw_sideband_request request = { .ring_size = 4096 };
	struct ptw_error err = { .status = 0 };
	struct ptw_sideband *sideband = ptw_sideband_open(&request, &err);
	unsigned int here = sched_getcpu(), cpu;
	bool told[CPU_SETSIZE] = { false };
	cpu_set_t old, one;

	if (!sideband) {
		print_message("# %s\n", err.text);
		skip();
	}
	assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
	CPU_ZERO(&one);
	CPU_SET(here, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	/* A FORK and an EXIT of 56 bytes or more each time; what is lost is told of between the last two. */
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		if (i >= 98)
			assert_int_equal(ptw_sideband_drain(sideband, take_nothing, NULL, &err), 0);
	}
	sched_setaffinity(0, sizeof(old), &old);
	assert_true(ptw_sideband_lost(sideband) > 0);
	/* Whoever runs on other CPUs may lose some there. */
	while (ptw_sideband_missed(sideband, &cpu)) {
		assert_true(cpu < CPU_SETSIZE && !told[cpu]);
		told[cpu] = true;
	}
	assert_true(told[here]);
	assert_false(ptw_sideband_missed(sideband, &cpu));
	ptw_sideband_close(sideband);
}

/* A limit on the file stands in for a disk: write(2) fails in the middle of what is added. */
static void survives_a_full_disk(void **state)
{
	static uint8_t trace[1 << 16];
	struct ptw_recording_writer *w = begin("full");
	struct rlimit old, tight;
	struct ptw_recording *recording;
	struct ptw_error err;
	uint64_t before;

	memset(trace, 0, sizeof(trace));
	assert_int_equal(ptw_recording_reserve(w, 1 << 16, &err), 0);
	assert_int_equal(access(in_dir("full"), F_OK), -1);
	assert_int_equal(ptw_recording_add_trace(w, 1, trace, 4096, NULL, 0, &err), 0);
	before = ptw_recording_size(w);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	tight = old;
	tight.rlim_cur = before + 5000;
	setrlimit(RLIMIT_FSIZE, &tight);
	assert_int_equal(ptw_recording_add_trace(w, 1, trace, 4096, trace, 4096, &err), -1);
	assert_non_null(strstr(err.text, "File too large"));
	assert_int_equal(ptw_recording_size(w), before);
	assert_int_equal(ptw_recording_add_records(w, trace, 4096, trace, 4096, &err), -1);
	assert_int_equal(ptw_recording_size(w), before);
	setrlimit(RLIMIT_FSIZE, &old);
	ptw_recording_release(w);
	assert_int_equal(ptw_recording_finish(w, &err), 0);
	recording = ptw_recording_open(in_dir("full"), &err);
	if (!recording)
		fail_msg("%s", err.text);
	assert_int_equal(recording->trace_count, 1);
	assert_int_equal(recording->trace[0].size, 4096);
	ptw_recording_close(recording);
	assert_int_equal(access(in_dir("full/reserve"), F_OK), -1);
}

#define RING	60000
#define PERIOD	2048	/* from one PSB to the next */

static const uint8_t psb[] = { 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82 };

/* A ring whose oldest byte is at @wrap, with PSBs up to @last: the bytes in their order to @bytes, as they lie to @memory */
static struct ptw_ring_trace make_ring(uint32_t cpu, uint8_t *bytes, uint8_t *memory, size_t size, size_t wrap, size_t last)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = 0x10 + (i * 7 + i / 256 + cpu) % 100;
	for (size_t i = 0; i <= last; i += PERIOD)
		memcpy(bytes + i, psb, sizeof(psb));
	memcpy(memory + wrap, bytes, size - wrap);
	memcpy(memory, bytes + size - wrap, wrap);
	return (struct ptw_ring_trace){ .cpu = cpu, .first = memory + wrap, .first_size = size - wrap, .second = memory,
					.second_size = wrap, .written = 4711 };
}

/* Three rings and what a disk has room for: all three there whole, or the newest of each, from a PSB on. */
static void newest_of_rings(void **state)
{
	/* AUXTRACE records of 48 bytes, and up to 8 that fill up, come with each ring. */
	enum { NEEDS = 2 * RING + 3000 + 3 * 56 };
	static const struct { size_t room, last, written[3]; } cases[] = {
		{ NEEDS, RING - 1, { RING, 3000, RING } },
		/* What the small one leaves is for the others: (40000 - 168 - 3000) / 2 = 18416, and PSB 21 is at 43008. */
		{ 40000, RING - 1, { RING - 21 * PERIOD, 3000, RING - 21 * PERIOD } },
		/* To the byte: from PSB 21 on each */
		{ 3000 + 168 + 2 * (RING - 21 * PERIOD), RING - 1, { RING - 21 * PERIOD, 3000, RING - 21 * PERIOD } },
		{ 3000 + 168 + 2 * (RING - 21 * PERIOD) - 2, RING - 1, { RING - 22 * PERIOD, 3000, RING - 22 * PERIOD } },
		/* Nobody can begin to decode the newest of the third. */
		{ 40000, 20 * PERIOD, { RING - 21 * PERIOD, 3000, 0 } },
		/* (5000 - 168) / 3 = 1610: PSB 29 of the first at 59392, PSB 1 of the second at 2048 */
		{ 5000, RING - 1, { RING - 29 * PERIOD, 3000 - PERIOD, RING - 29 * PERIOD } },
		{ 100, RING - 1, { 0, 0, 0 } },
	};
	static uint8_t bytes[3][RING], memory[3][RING];
	struct rlimit old, tight;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ptw_recording_writer *w = begin("rings");
		/* The second PSB of the first and the 23rd of the third are in two pieces: 8 bytes there, 8 here. */
		struct ptw_ring_trace ring[] = {
			make_ring(4, bytes[0], memory[0], RING, RING - PERIOD - 8, RING - 1),
			make_ring(5, bytes[1], memory[1], 3000, 0, PERIOD),
			make_ring(6, bytes[2], memory[2], RING, RING - 22 * PERIOD - 8, cases[i].last),
		};
		struct ptw_recording *recording;
		struct ptw_error err = { .status = 0 };
		size_t found = 0;
		int ret;

		tight = old;
		tight.rlim_cur = ptw_recording_size(w) + cases[i].room;
		setrlimit(RLIMIT_FSIZE, &tight);
		ret = ptw_recording_add_rings(w, ring, 3, &err);
		setrlimit(RLIMIT_FSIZE, &old);
		assert_int_equal(ret, i ? -1 : 0);
		if (i)
			assert_non_null(strstr(err.text, "File too large"));
		if (ptw_recording_finish(w, &err))
			fail_msg("%s", err.text);
		recording = ptw_recording_open(in_dir("rings"), &err);
		if (!recording && cases[i].written[0])
			fail_msg("%s", err.text);
		for (int cpu = 0; cpu < 3; cpu++) {
			size_t written = cases[i].written[cpu], size = cpu == 1 ? 3000 : RING;
			const struct ptw_recorded_trace *t;

			assert_int_equal(ring[cpu].written, written);
			if (!written)
				continue;
			assert_true(found < recording->trace_count);
			t = &recording->trace[found++];
			assert_int_equal(t->cpu, 4 + cpu);
			assert_int_equal(t->size, (written + 7) & ~(size_t)7);
			assert_memory_equal(t->data, bytes[cpu] + size - written, written);
			assert_memory_equal(t->data, psb, sizeof(psb));
		}
		if (recording)
			assert_int_equal(recording->trace_count, found);
		else
			assert_non_null(strstr(err.text, "recorded nothing"));
		ptw_recording_close(recording);
	}
}

/* What is kept for the end becomes less when the end is near, and is gone behind it. */
static void reserve_shrinks(void **state)
{
	struct ptw_recording_writer *w = begin("reserved");
	struct ptw_error err;
	struct stat st;
	glob_t found;

	assert_int_equal(ptw_recording_reserve(w, 1 << 20, &err), 0);
	assert_int_equal(glob(in_dir("reserved.*/reserve"), 0, NULL, &found), 0);
	assert_int_equal(stat(found.gl_pathv[0], &st), 0);
	assert_true(st.st_size == 1 << 20 && st.st_blocks * 512 >= 1 << 20);
	assert_int_equal(ptw_recording_reserve(w, 1 << 16, &err), 0);
	assert_int_equal(stat(found.gl_pathv[0], &st), 0);
	assert_true(st.st_size == 1 << 16 && st.st_blocks * 512 >= 1 << 16 && st.st_blocks * 512 < 1 << 20);
	ptw_recording_release(w);
	assert_int_equal(stat(found.gl_pathv[0], &st), -1);
	/* As after a full disk */
	assert_int_equal(ptw_recording_reserve(w, 1 << 16, &err), 0);
	assert_int_equal(stat(found.gl_pathv[0], &st), 0);
	finish(w);
	assert_int_equal(access(in_dir("reserved/reserve"), F_OK), -1);
	globfree(&found);
}

static int setup(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(describes_processes),
		cmocka_unit_test(writes_switches),
		cmocka_unit_test(tells_departures),
		cmocka_unit_test(bpf_programs),
		cmocka_unit_test(files_of_generated_code),
		cmocka_unit_test(marks_losses),
		cmocka_unit_test(tells_whose_records_were_lost),
		cmocka_unit_test(survives_a_full_disk),
		cmocka_unit_test(newest_of_rings),
		cmocka_unit_test(reserve_shrinks),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
