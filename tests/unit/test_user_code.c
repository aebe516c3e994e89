// SPDX-License-Identifier: BSD-2-Clause
/*
 * Code of processes in recordings: libraries that make room for others, programs that run others, 32-bit code, and files
 * that are found by their build id. The traces are written by hand, the recordings by the writer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/ptwatch.h>

#include "flow/stream.h"
#include "recording/perf_file.h"
#include "recording/recording.h"

#define CODE	0x7f0000001000ULL
#define PID	77

#define PSB	0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82
#define PSBEND	0x02, 0x23
#define MODE64	0x99, 0x01
#define MODE32	0x99, 0x02
#define TSC(t)	0x19, (t) & 0xff, (t) >> 8 & 0xff, 0, 0, 0, 0, 0
#define IP	0x00, 0x10, 0x00, 0x00, 0x00, 0x7f
#define START	PSB, TSC(20000), MODE64, 0x7d, IP, PSBEND
#define TIP	0x6d, IP
#define PAD8	0, 0, 0, 0, 0, 0, 0, 0

static char dir[] = "/tmp/ptwatch-user-code.XXXXXX";

static char *in_dir(const char *name)
{
	static char path[4][256];
	static int n;

	n = (n + 1) % 4;
	snprintf(path[n], sizeof(path[n]), "%s/%s", dir, name);
	return path[n];
}

static void put_file(const char *name, const void *bytes, size_t size)
{
	FILE *file = fopen(in_dir(name), "w");

	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	fclose(file);
}

/* ---- records of the kernel ---- */

static struct ptw_recording_writer *writer;
static struct ptw_error err;

static void begin(void)
{
	static const uint64_t ids[] = { 501 };
	/* TSC and nanoseconds are the same. */
	static const struct ptw_trace_config config = {
		.rtit_ctl = PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_BRANCHEN | PTWATCH_RTIT_CTL_TSCEN,
		.pt_pmu_type = 10, .stream = true, .switches = true,
		.params = { .family = 6, .model = 85, .stepping = 4, .have_time = true, .time_mult = 1 },
	};

	writer = ptw_recording_create(in_dir("recording"), &config, &err);
	if (!writer)
		fail_msg("%s", err.text);
	assert_int_equal(ptw_recording_set_sideband(writer, ids, 1, &err), 0);
}

static void add(void *record, size_t size, void *id, uint64_t time)
{
	const struct perf_sample_id sample = { .pid = PID, .tid = PID, .time = time, .id = 501 };

	memcpy(id, &sample, sizeof(sample));
	((struct perf_event_header *)record)->size = size;
	assert_int_equal(ptw_recording_add_records(writer, record, size, NULL, 0, &err), 0);
}

/* @id: 20 bytes; NULL: none */
static void maps(uint64_t time, uint64_t addr, const char *name, const uint8_t *id)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t addr, size, pgoff;
		uint8_t id[24];
		uint32_t prot, flags;
		char name[128];
		struct perf_sample_id sample;
	} r = {
		.header = { .type = PERF_RECORD_MMAP2, .misc = PERF_RECORD_MISC_USER | (id ? 1 << 14 : 0) },
		.pid = PID, .tid = PID, .addr = addr, .size = 0x1000, .prot = 5,
	};

	if (id) {
		r.id[0] = 20;
		memcpy(r.id + 4, id, 20);
	}
	snprintf(r.name, sizeof(r.name), "%s", name);
	add(&r, sizeof(r), &r.sample, time);
}

static void runs_other(uint64_t time)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		char name[16];
		struct perf_sample_id sample;
	} r = {
		.header = { .type = PERF_RECORD_COMM, .misc = PERF_RECORD_MISC_COMM_EXEC }, .pid = PID, .tid = PID,
		.name = "other",
	};

	add(&r, sizeof(r), &r.sample, time);
}

static void is_on_cpu(uint64_t time)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint32_t pid, tid;
		struct perf_sample_id sample;
	} r = { .header = { .type = PERF_RECORD_SWITCH_CPU_WIDE } };

	add(&r, sizeof(r), &r.sample, time);
}

static const char *file_name;	/* of the image's section, and what the stream says of code in it */

static void assert_names(const struct ptw_recording *rec, struct ptw_stream *stream, const struct ptw_flow *flow)
{
	struct ptw_place place;

	assert_int_equal(rec->image.count, 1);
	assert_string_equal(rec->image.section[0].name, file_name);
	ptw_stream_place(stream, flow, flow->from, &place);
	assert_string_equal(place.object ? place.object : "-", file_name);
}

/* "0x2 1 insns"…: of each jump where it is, and how many instructions there were up to it; "gap" */
static void assert_jumps(const uint8_t *trace, size_t size, const char *expected)
{
	struct ptw_stream_options options = { .flags = PTW_STREAM_ALL_JUMPS, .threads = 1 };
	struct ptw_recording *rec;
	const struct ptw_flow *f;
	struct ptw_stream *stream;
	char text[512] = "";
	size_t used = 0;

	assert_int_equal(ptw_recording_add_trace(writer, 0, trace, size, NULL, 0, &err), 0);
	if (ptw_recording_finish(writer, &err))
		fail_msg("%s", err.text);
	rec = ptw_recording_open(in_dir("recording"), &err);
	if (!rec)
		fail_msg("%s", err.text);
	stream = ptw_stream_open(rec, &options, &err);
	assert_non_null(stream);
	while ((f = ptw_stream_next(stream)) && used < sizeof(text) - 64) {
		if (f->kind == PTW_FLOW_JUMP)
			used += snprintf(text + used, sizeof(text) - used, "%s%x after %d", used ? "; " : "",
					 (int)(f->from - CODE), (int)f->insns);
		else if (f->kind == PTW_FLOW_GAP)
			used += snprintf(text + used, sizeof(text) - used, "%sgap", used ? "; " : "");
		if (f->kind == PTW_FLOW_JUMP && file_name)
			assert_names(rec, stream, f);
	}
	assert_string_equal(text, expected);
	ptw_stream_close(stream);
	ptw_recording_close(rec);
}

#define ASSERT_JUMPS(expected, ...)						\
	do {									\
		static const uint8_t trace_[] = { __VA_ARGS__, PAD8 };		\
		assert_jumps(trace_, sizeof(trace_) & ~7UL, expected);		\
	} while (0)

/* jmp *%rax after one, two, three nops */
static const char one[] = "\x90\xff\xe0", two[] = "\x90\x90\xff\xe0", three[] = "\x90\x90\x90\xff\xe0";

/* dlclose() and dlopen(): the same address, another library; told by its time */
static void libraries(void **state)
{
	put_file("one", one, sizeof(one));
	put_file("two", two, sizeof(two));
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("one"), NULL);
	maps(30000, CODE, in_dir("two"), NULL);
	ASSERT_JUMPS("1 after 2; 2 after 5; 2 after 8", START, TIP, TSC(40000), TIP, TIP);
}

/* What is mapped where nothing was needs no packet of its own to be seen. */
static void late_library(void **state)
{
	put_file("one", one, sizeof(one));
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("one"), NULL);
	maps(30000, CODE + 0x1000, in_dir("one"), NULL);
	ASSERT_JUMPS("1 after 2; 1 after 4; 1001 after 6; 1 after 8",
		     START, TIP, TSC(40000), 0x6d, 0x00, 0x20, 0, 0, 0, 0x7f, TIP, TIP);
}

/* Of what a program had mapped nothing is left in the one that it runs. */
static void programs(void **state)
{
	put_file("one", one, sizeof(one));
	put_file("three", three, sizeof(three));
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("one"), NULL);
	runs_other(30000);
	maps(30001, CODE, in_dir("three"), NULL);
	/* execve(): tracing of user code ends in the old program, and goes on in the new one. */
	ASSERT_JUMPS("1 after 2; 3 after 6; 3 after 10", START, TIP, 0x7d, IP, 0x01, TSC(40000), 0x71, IP, TIP, TIP);
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("one"), NULL);
	runs_other(30000);
	ASSERT_JUMPS("1 after 2; gap", START, TIP, 0x7d, IP, 0x01, TSC(40000), 0x71, IP, TIP, TIP);
}

/* 0x40 is an instruction of its own in 32-bit mode, and a prefix in 64-bit mode. */
static void mode_32(void **state)
{
	static const char code[] = "\x40\xff\xe0";

	put_file("code", code, sizeof(code));
	begin();
	is_on_cpu(10);
	maps(100, 0x8049000, in_dir("code"), NULL);
	ASSERT_JUMPS("8048001 after 2; 8048001 after 4", PSB, TSC(20000), MODE32, 0x5d, 0x00, 0x90, 0x04, 0x08, PSBEND,
		     0x4d, 0x00, 0x90, 0x04, 0x08, 0x4d, 0x00, 0x90, 0x04, 0x08);
}

/* ---- build ids ---- */

static const uint8_t id_of_one[20] = { 0xab, 1 }, id_of_two[20] = { 0xab, 2 };

/* An ELF file with that build id, of which byte 0x200 on is @code */
static void put_elf(const char *name, const uint8_t *id, const char *code, size_t code_size)
{
	struct __attribute__((packed)) {
		Elf64_Ehdr head;
		Elf64_Phdr load, note;
		Elf64_Nhdr note_head;
		char owner[4];
		uint8_t id[20];
		uint8_t pad[0x1000 - 64 - 2 * 56 - 12 - 24];
	} elf = {
		.head = {
			.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_phoff = 64, .e_ehsize = 64,
			.e_phentsize = 56, .e_phnum = 2,
		},
		.load = { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = sizeof(elf), .p_memsz = sizeof(elf) },
		.note = { .p_type = PT_NOTE, .p_offset = 176, .p_filesz = 36, .p_align = 4 },
		.note_head = { .n_namesz = 4, .n_descsz = 20, .n_type = NT_GNU_BUILD_ID }, .owner = "GNU",
	};

	memcpy(elf.id, id, 20);
	memcpy((char *)&elf + 0x200, code, code_size);
	put_file(name, &elf, sizeof(elf));
}

#define AT_200	PSB, TSC(20000), MODE64, 0x7d, 0x00, 0x12, 0, 0, 0, 0x7f, PSBEND, 0x6d, 0x00, 0x12, 0, 0, 0, 0x7f

/*
 * A file of that name but of another build is not the code that ran; what has the build id is, wherever it is
 * kept; and its name is the one that it was mapped by.
 */
static void build_ids(void **state)
{
	file_name = "lib";
	put_elf("lib", id_of_one, one, sizeof(one));
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("lib"), id_of_one);
	ASSERT_JUMPS("201 after 2", AT_200);

	setenv("DEBUGINFOD_CACHE_PATH", in_dir("cache"), 1);
	setenv("HOME", in_dir("home"), 1);
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("lib"), id_of_two);
	ASSERT_JUMPS("gap", AT_200);

	mkdir(in_dir("cache"), 0700);
	mkdir(in_dir("cache/ab02000000000000000000000000000000000000"), 0700);
	put_elf("cache/ab02000000000000000000000000000000000000/executable", id_of_two, two, sizeof(two));
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("lib"), id_of_two);
	ASSERT_JUMPS("202 after 3", AT_200);

	/* perf's own cache */
	mkdir(in_dir("home"), 0700);
	mkdir(in_dir("home/.debug"), 0700);
	mkdir(in_dir("home/.debug/.build-id"), 0700);
	mkdir(in_dir("home/.debug/.build-id/ab"), 0700);
	mkdir(in_dir("home/.debug/.build-id/ab/02000000000000000000000000000000000000"), 0700);
	put_elf("home/.debug/.build-id/ab/02000000000000000000000000000000000000/elf", id_of_two, three, sizeof(three));
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("lib"), id_of_two);
	ASSERT_JUMPS("203 after 4", AT_200);
	file_name = NULL;
}

/* The records of an event are read as that event has them, where another one has less in its own. */
static void other_layout(void **state)
{
	static const uint8_t trace[] = { AT_200, PAD8 };
	struct ptw_recording *rec;
	uint64_t head[5], type, ids[2] = { 0 };
	size_t size;
	int seen = 0;
	FILE *file;

	put_elf("lib", id_of_one, one, sizeof(one));
	begin();
	is_on_cpu(10);
	maps(100, CODE, in_dir("lib"), id_of_one);
	assert_int_equal(ptw_recording_add_trace(writer, 0, trace, sizeof(trace) & ~7UL, NULL, 0, &err), 0);
	assert_int_equal(ptw_recording_finish(writer, &err), 0);
	/* The event of the trace, which is the first, does without the CPU. */
	file = fopen(in_dir("recording/data"), "r+");
	assert_non_null(file);
	assert_int_equal(fread(head, sizeof(head), 1, file), 1);
	assert_int_equal(fseek(file, head[3] + 24, SEEK_SET), 0);
	assert_int_equal(fread(&type, sizeof(type), 1, file), 1);
	assert_true(type & PERF_SAMPLE_CPU);
	type &= ~(uint64_t)PERF_SAMPLE_CPU;
	assert_int_equal(fseek(file, head[3] + 24, SEEK_SET), 0);
	assert_int_equal(fwrite(&type, sizeof(type), 1, file), 1);
	fclose(file);
	rec = ptw_recording_open(in_dir("recording"), &err);
	if (!rec)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < rec->side_count; i++) {
		const struct ptw_side_event *e = &rec->side[i];

		if (e->time != 10 && e->time != 100)
			continue;
		assert_int_equal(e->type == PTW_SIDE_SWITCH ? e->other_pid : e->pid, PID);
		assert_int_equal(e->cpu, 0);
		ptw_recording_side_record(rec, e, &size);
		assert_int_equal(size, ((const struct perf_event_header *)e->record)->size - sizeof(struct perf_sample_id));
		seen++;
	}
	assert_int_equal(seen, 2);
	ptw_recording_close(rec);

	/* Each event claims the whole file for its ids: what a record ends with is looked up for each of them. */
	file = fopen(in_dir("recording/data"), "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	ids[1] = ftell(file);
	for (size_t i = 1; i * head[2] <= head[4]; i++) {
		assert_int_equal(fseek(file, head[3] + i * head[2] - sizeof(ids), SEEK_SET), 0);
		assert_int_equal(fwrite(ids, sizeof(ids), 1, file), 1);
	}
	fclose(file);
	assert_null(ptw_recording_open(in_dir("recording"), &err));
	assert_non_null(strstr(err.text, "more event ids than the file has room for"));
}

/* ---- files that are not here ---- */

/* What is said of the gap at the first instruction, and what to do. */
static void assert_missing(const char *name, const uint8_t *id, const char *gap, const char *advice)
{
	static const uint8_t trace[] = { AT_200, PAD8 };
	struct ptw_stream_options options = { .threads = 1 };
	struct ptw_recording *rec;
	const struct ptw_flow *f;
	struct ptw_stream *stream;
	const char *text = NULL;

	begin();
	is_on_cpu(10);
	maps(100, CODE, name, id);
	assert_int_equal(ptw_recording_add_trace(writer, 0, trace, sizeof(trace) & ~7UL, NULL, 0, &err), 0);
	assert_int_equal(ptw_recording_finish(writer, &err), 0);
	rec = ptw_recording_open(in_dir("recording"), &err);
	stream = rec ? ptw_stream_open(rec, &options, &err) : NULL;
	assert_non_null(stream);
	while (!text && (f = ptw_stream_next(stream)))
		if (f->kind == PTW_FLOW_GAP) {
			text = f->text;
			assert_int_equal(f->from, CODE + 0x200);
		}
	assert_non_null(text);
	assert_string_equal(text, gap);
	ptw_stream_close(stream);
	/* Once */
	assert_string_equal(ptw_recording_advice(rec, text), advice);
	assert_null(ptw_recording_advice(rec, text));
	assert_null(ptw_recording_advice(rec, "no code of lib"));
	/* For those who don't know which process ran, and only of files and the vDSO */
	text = ptw_recording_missing_at(rec, CODE + 0xfff);
	assert_string_equal(text ? text : "", (name[0] == '/' && name[1] != '/') || !strcmp(name, "[vdso]") ? gap : "");
	assert_null(ptw_recording_missing_at(rec, CODE + 0x1000));
	ptw_recording_close(rec);
}

static void missing_files(void **state)
{
	static const uint8_t id[20] = { 0xab, 0xcd, [19] = 0x90 }, padded[20] = { 0xab, 0xcd, [15] = 0x70 };
	struct timespec late[2] = { { .tv_sec = time(NULL) + 1000 }, { .tv_sec = time(NULL) + 1000 } };
	char advice[1024];

	assert_missing("/nowhere/libx.so.1", id, "no code of libx.so.1",
		       "/nowhere/libx.so.1 with the build id abcd000000000000000000000000000000000090 ran, but is not here: copy it here "
		       "from where it ran, or as ~/.debug/.build-id/ab/cd000000000000000000000000000000000090/elf (perf's cache; "
		       "`perf archive` there collects all of them)");
	assert_missing("/nowhere/libx.so.1", NULL, "no code of libx.so.1",
		       "/nowhere/libx.so.1 ran, but is not here: copy it here from where it ran, with its time (cp -p)");
	put_elf("lib", id_of_one, one, sizeof(one));
	snprintf(advice, sizeof(advice),
		 "%s is not the file here that ran, which had the build id abcd000000000000000000000000000000000090: put that one here as "
		 "~/.debug/.build-id/ab/cd000000000000000000000000000000000090/elf (perf's cache; `perf archive` where it ran collects "
		 "all of them)", in_dir("lib"));
	assert_missing(in_dir("lib"), id, "no code of lib", advice);
	assert_int_equal(utimensat(AT_FDCWD, in_dir("lib"), late, 0), 0);
	snprintf(advice, sizeof(advice),
		 "%s ran, but the file here is newer than the recording, which tells no build id: put here the one that ran, with its "
		 "time, or record again (perf: with --buildid-mmap)", in_dir("lib"));
	assert_missing(in_dir("lib"), NULL, "no code of lib", advice);
	assert_missing("[vdso]", padded, "no code of [vdso]",
		       "[vdso] with the build id abcd0000000000000000000000000070 ran, but is not here: copy it from where it ran to "
		       "~/.debug/.build-id/ab/cd0000000000000000000000000070/vdso (perf's cache)");
	assert_missing("[uprobes]", NULL, "no code of [uprobes]",
		       "[uprobes]: a probe in a program (uprobe) has copies of instructions run, which are nowhere else: record while "
		       "there is none, or the kernel alone (-k)");
	assert_missing("//anon", NULL, "no code of memory without a file",
		       "code ran that a program generated in memory: have it write what it generates as a jitdump file (jit-PID.dump) "
		       "while it is recorded, as perf asks for, too");
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
		cmocka_unit_test(libraries),
		cmocka_unit_test(late_library),
		cmocka_unit_test(programs),
		cmocka_unit_test(mode_32),
		cmocka_unit_test(build_ids),
		cmocka_unit_test(other_layout),
		cmocka_unit_test(missing_files),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
