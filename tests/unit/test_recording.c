// SPDX-License-Identifier: BSD-2-Clause
/*
 * Recordings: what is written is read back, perf's own file is read right, and damaged files are refused
 * without harm. With PTWATCH_FUZZ=N, N damaged files of each kind instead of a few hundred
 * (tests/recording/fuzz.t, with sanitizers).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include <linux/ptwatch.h>

#include "recording/alarm.h"
#include "recording/kernel_copy.h"
#include "recording/perf_file.h"
#include "recording/recording.h"
#include "recording/writer.h"

static char dir[64];	/* everything a test writes */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static int setup(void **state)
{
	strcpy(dir, "/tmp/test_recording.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of a file in the test's directory; eight can be in use. */
static char *in_dir(const char *name)
{
	static char path[8][256];
	static int next;

	next = (next + 1) % 8;
	snprintf(path[next], sizeof(path[next]), "%s/%s", dir, name);
	return path[next];
}

static void put_file(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
}

static uint8_t *get_file(const char *path, size_t *size)
{
	FILE *in = fopen(path, "r");
	uint8_t *data;

	assert_non_null(in);
	fseek(in, 0, SEEK_END);
	*size = ftell(in);
	rewind(in);
	data = malloc(*size + 1);
	assert_int_equal(fread(data, 1, *size, in), *size);
	fclose(in);
	return data;
}

/* Files in the test's directory, to see that nothing is left over. */
static int count_files(void)
{
	DIR *d = opendir(dir);
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static bool sample_path(char *path, size_t size, const char *name)
{
	const char *samples = getenv("PTWATCH_SAMPLES");

	if (samples)
		snprintf(path, size, "%s/%s", samples, name);
	else
		snprintf(path, size, "%.*s/../../../shared/samples/%s",
			 (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__, name);
	return !access(path, R_OK);
}

static const struct ptw_trace_config config = {
	.params = {
		.family = 6, .model = 85, .stepping = 4, .mtc_freq = 3, .nom_freq = 37,
		.cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 308,
		.addr = { { 1, 0xffffffff81000000, 0xffffffff810fffff },
			  { 2, 0xffffffff82000000, 0xffffffff82000000 } },
		.have_time = true, .time_shift = 31, .time_mult = 1024549122, .time_zero = 0xfffffff0a6c00000,
	},
	.rtit_ctl = PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_BRANCHEN | PTWATCH_RTIT_CTL_TSCEN |
		    PTWATCH_RTIT_CTL_MTCEN | 3ULL << 14 | 3ULL << 24,
	.pt_pmu_type = 8,
};

static struct ptw_alarm sample_alarm(void)
{
	struct ptw_alarm a = {
		.seq = 7,
		.time = 123456789012345,
		.tsc = 0x8000000000000001,
		.cgroup = 4242,
		.address = 0xffffffffc0a01180,
		.ip = 0xffffffffc020101d,
		.old_value = 0x5a5a000000000010,
		.new_value = 0x5a5a0000deadbeef,
		.trace_offset = 4096,
		.trace_size = 65536,
		.lost = 3,
		.watch = 2,
		.cpu = 1,
		.pid = 4242,
		.tgid = 4240,
		.access = PTWATCH_ACCESS_W,
		.len = 8,
		.trace_state = PTWATCH_STATE_FROZEN,
		.trace_bank = 1,
		.label = "kv_cache_meta+0x0",
		.comm = "health \"check\"",
		.have_values = 1,
		.have_trace = 1,
		.have_regs = 1,
		.stack_count = 3,
		.stack = { 0xffffffffc020101d, 0xffffffff81000305, 0x1234 },
		.hit_address = 0xffffffffc0a01188,
		.actions = PTWATCH_ACTION_EVENT | PTWATCH_ACTION_FREEZE,
		.user_count = 2,
		.user_stack = { 0x7f0000001014, 0x401151 },
	};

	for (int i = 0; i < PTWATCH_REG_COUNT; i++)
		a.regs[i] = 0xffff000000000000 + i;
	return a;
}

/* A directory that stands for /proc: kernel text at ..81000000, a module, an ftrace trampoline. */
static char *make_proc(void)
{
	static const char kallsyms[] =
		"ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000300 T kernel_clone\n"
		"ffffffff81001800 T _etext\nffffffffc0201000 t health_tick\t[kvdemo]\n"
		"ffffffffc0203000 t ftrace_trampoline\t[__builtin__ftrace]\n";
	static const char modules[] = "kvdemo 12288 0 - Live 0xffffffffc0201000 (OE)\n"
				      "loading 4096 0 - Loading 0x0000000000000000\n";
	static uint8_t core[0x8000];
	Elf64_Ehdr h = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_CORE, .e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_phoff = sizeof(h),
		.e_ehsize = sizeof(h), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 2,
	};
	Elf64_Phdr p[2] = {
		{ .p_type = PT_LOAD,
		  .p_flags = 7,
		  .p_offset = 0x1000,
		  .p_vaddr = 0xffffffff81000000,
		  .p_filesz = 0x2000 },
		{ .p_type = PT_LOAD,
		  .p_flags = 7,
		  .p_offset = 0x3000,
		  .p_vaddr = 0xffffffffc0200000,
		  .p_filesz = 0x4000 },
	};
	char *proc = in_dir("proc");

	mkdir(proc, 0700);
	for (size_t i = 0; i < sizeof(core); i++)
		core[i] = i * 7 + (i >> 8);
	memcpy(core, &h, sizeof(h));
	memcpy(core + sizeof(h), p, sizeof(p));
	put_file(in_dir("proc/kallsyms"), kallsyms, sizeof(kallsyms) - 1);
	put_file(in_dir("proc/modules"), modules, sizeof(modules) - 1);
	put_file(in_dir("proc/kcore"), core, sizeof(core));
	return proc;
}

static void write_recording(const char *path, size_t trace_size, bool kernel)
{
	struct ptw_alarm alarm = sample_alarm();
	struct ptw_error err = { .status = 0 };
	uint8_t *trace = malloc(trace_size + 1);
	struct ptw_recording_writer *w;

	for (size_t i = 0; i < trace_size; i++)
		trace[i] = i % 251;
	w = ptw_recording_create(path, &config, &err);
	if (!w)
		fail_msg("%s", err.text);
	/* CPU 3 as a ring that wrapped; CPU 1 not; CPU 0 recorded nothing. */
	if (ptw_recording_add_trace(w, 3, trace + 100, trace_size - 100, trace, 100, &err) ||
	    ptw_recording_add_trace(w, 1, trace, trace_size, NULL, 0, &err) ||
	    ptw_recording_add_trace(w, 0, NULL, 0, NULL, 0, &err) ||
	    (kernel && ptw_recording_add_kernel_from(w, make_proc(), &err)) ||
	    ptw_recording_add_alarm(w, &alarm, &err) || ptw_recording_finish(w, &err))
		fail_msg("%s", err.text);
	free(trace);
}

static void same_alarm(const struct ptw_alarm *a, const struct ptw_alarm *b)
{
	assert_memory_equal(a, b, sizeof(*a));
}

static void reads_what_it_wrote(void **state)
{
	struct ptw_alarm alarm = sample_alarm();
	struct ptw_error err = { .status = 0 };
	struct ptw_recording *r;
	struct stat st;
	char buf[64];

	write_recording(in_dir("crime"), 1003, true);
	r = ptw_recording_open(in_dir("crime/"), &err);
	if (!r)
		fail_msg("%s", err.text);
	assert_memory_equal(&r->params, &config.params, sizeof(config.params));

	assert_int_equal(r->trace_count, 2);
	assert_int_equal(r->trace[0].cpu, 3);
	assert_int_equal(r->trace[0].tid, -1);
	assert_int_equal(r->trace[1].cpu, 1);
	for (int k = 0; k < 2; k++) {
		/* Padded with PAD packets to a multiple of 8 */
		assert_int_equal(r->trace[k].size, 1008);
		for (size_t i = 0; i < 1008; i++) {
			size_t at = k ? i : i < 903 ? i + 100 : i - 903;

			assert_int_equal(r->trace[k].data[i], i < 1003 ? at % 251 : 0);
		}
	}

	/*
	 * Kernel text, the module, and the trampoline, which lies inside the module's claim: three
	 * disjoint parts.
	 */
	assert_int_equal(r->image.count, 3);
	assert_int_equal(r->image.section[0].vaddr, 0xffffffff81000000);
	assert_int_equal(r->image.section[0].size, 0x2000);
	assert_int_equal(r->image.section[1].vaddr, 0xffffffffc0201000);
	assert_int_equal(r->image.section[1].size, 0x2000);
	assert_int_equal(r->image.section[2].vaddr, 0xffffffffc0203000);
	assert_int_equal(r->image.section[2].size, 0x1000);
	for (size_t i = 0; i < r->image.count; i++) {
		const struct ptw_image_section *s = &r->image.section[i];
		uint64_t from = s->vaddr < 0xffffffffc0000000 ? s->vaddr - 0xffffffff81000000 + 0x1000 :
				s->vaddr - 0xffffffffc0200000 + 0x3000;
		size_t size, core_size;
		uint8_t *copy = get_file(s->path, &size), *core = get_file(in_dir("proc/kcore"), &core_size);

		assert_true(s->offset + s->size <= size);
		assert_memory_equal(copy + s->offset, core + from, s->size);
		free(copy);
		free(core);
	}
	assert_string_equal(ptw_symbols_format(r->symbols, 0xffffffffc020101d, buf, sizeof(buf)),
			    "health_tick+0x1d [kvdemo]");
	assert_int_equal(r->alarm_count, 1);
	same_alarm(&r->alarm[0], &alarm);
	ptw_recording_close(r);

	/* Kernel addresses are for the owner only. */
	assert_int_equal(stat(in_dir("crime"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(in_dir("crime/data"), &st), 0);
	assert_int_equal(st.st_mode & 077, 0);
	assert_int_equal(count_files(), 2);	/* crime, proc */
}

static void reads_without_kernel_and_time(void **state)
{
	struct ptw_trace_config plain = config;
	struct ptw_error err = { .status = 0 };
	struct ptw_recording_writer *w;
	struct ptw_recording *r;

	plain.params.have_time = false;
	plain.params.through = true;
	memset(plain.params.addr, 0, sizeof(plain.params.addr));
	plain.rtit_ctl = PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_BRANCHEN;
	w = ptw_recording_create(in_dir("plain"), &plain, &err);
	assert_non_null(w);
	assert_int_equal(ptw_recording_add_trace(w, 0, "\x02\x82", 2, NULL, 0, &err), 0);
	/* More of the same CPU follows what there is, which was padded to 8 bytes. */
	assert_int_equal(ptw_recording_add_trace(w, 0, "\x02\x82", 2, NULL, 0, &err), 0);
	assert_int_equal(ptw_recording_finish(w, &err), 0);
	r = ptw_recording_open(in_dir("plain"), &err);
	if (!r)
		fail_msg("%s", err.text);
	assert_false(r->params.have_time);
	assert_true(r->params.through);
	assert_int_equal(r->trace_count, 1);
	assert_int_equal(r->trace[0].size, 16);
	assert_memory_equal(r->trace[0].data, "\x02\x82\0\0\0\0\0\0\x02\x82\0\0\0\0\0\0", 16);
	assert_int_equal(r->params.mtc_freq, 0);
	assert_int_equal(r->params.addr[0].cfg, 0);
	assert_int_equal(r->image.count, 0);
	assert_int_equal(r->alarm_count, 0);
	assert_null(ptw_symbols_at(r->symbols, 0xffffffff81000000));
	ptw_recording_close(r);

	/* A file name works as well as the directory's. */
	r = ptw_recording_open(in_dir("plain/data"), &err);
	assert_non_null(r);
	ptw_recording_close(r);
	ptw_recording_close(NULL);
}

/* A range of user code is for perf where it is in its file, and for us where the CPU had it, whoever else mapped the file. */
static void tells_ranges_of_user_code(void **state)
{
	static const char told[] = "filter 0x401615/0x28,filter 0x1615/0x28@/bin/x,stop 0x7f0000001000/0x10,"
				   "filter 0xffffffff81000000/0x100,stop 0x55550000/0x1,stop 0x10/0x1@/bin/y";
	struct ptw_trace_config ranges = config;
	struct ptw_error err = { .status = 0 };
	struct ptw_recording_writer *w;
	struct ptw_recording *r;
	uint8_t *data;
	size_t size;

	ranges.params.through = true;	/* which ranges are not; but it stands behind them */
	ranges.params.addr[0] = (struct ptw_addr_range){ 1, 0x401615, 0x40163c };
	ranges.range_file[0] = (struct ptw_range_file){ "/bin/x", 0x1615 };
	/* perf takes a name up to a space. */
	ranges.params.addr[1] = (struct ptw_addr_range){ 2, 0x7f0000001000, 0x7f000000100f };
	ranges.range_file[1] = (struct ptw_range_file){ "/bin/x y", 0 };
	ranges.params.addr[2] = (struct ptw_addr_range){ 1, 0xffffffff81000000, 0xffffffff810000ff };
	ranges.params.addr[3] = (struct ptw_addr_range){ 2, 0x55550000, 0x55550000 };
	ranges.range_file[3] = (struct ptw_range_file){ "/bin/y", 0x10 };
	w = ptw_recording_create(in_dir("ranges"), &ranges, &err);
	assert_non_null(w);
	assert_int_equal(ptw_recording_add_trace(w, 0, "\x02\x82", 2, NULL, 0, &err), 0);
	assert_int_equal(ptw_recording_finish(w, &err), 0);
	data = get_file(in_dir("ranges/data"), &size);
	assert_non_null(memmem(data, size, told, sizeof(told)));
	free(data);
	r = ptw_recording_open(in_dir("ranges"), &err);
	if (!r)
		fail_msg("%s", err.text);
	for (int i = 0; i < PTW_ADDR_RANGES; i++) {
		assert_int_equal(r->params.addr[i].cfg, ranges.params.addr[i].cfg);
		assert_int_equal(r->params.addr[i].a, ranges.params.addr[i].a);
		assert_int_equal(r->params.addr[i].b, ranges.params.addr[i].b);
	}
	assert_true(r->params.through);
	ptw_recording_close(r);
}

static bool exists(const char *name)
{
	return !access(in_dir(name), F_OK);
}

static void moves_an_older_recording_aside(void **state)
{
	struct ptw_error err = { .status = 0 };
	struct ptw_recording *r;

	write_recording(in_dir("rec"), 1000, false);
	write_recording(in_dir("rec"), 2000, false);
	write_recording(in_dir("rec/"), 3000, false);
	r = ptw_recording_open(in_dir("rec"), &err);
	assert_int_equal(r->trace[0].size, 3000);
	ptw_recording_close(r);
	r = ptw_recording_open(in_dir("rec.old"), &err);
	assert_int_equal(r->trace[0].size, 2000);
	ptw_recording_close(r);
	assert_int_equal(count_files(), 2);
}

static void refuses_what_is_no_recording(void **state)
{
	struct ptw_error err = { .status = 0 };

	put_file(in_dir("file"), "precious", 8);
	assert_null(ptw_recording_create(in_dir("file"), &config, &err));
	assert_non_null(strstr(err.text, "is not a recording"));
	mkdir(in_dir("home"), 0700);
	put_file(in_dir("home/data"), "precious", 8);
	assert_null(ptw_recording_create(in_dir("home"), &config, &err));
	assert_non_null(strstr(err.text, "is not a recording"));
	assert_int_equal(symlink(in_dir("home"), in_dir("link")), 0);
	assert_null(ptw_recording_create(in_dir("link"), &config, &err));

	/* What lies in the way of the older one is as precious. */
	write_recording(in_dir("rec"), 1000, false);
	mkdir(in_dir("rec.old"), 0700);
	assert_null(ptw_recording_create(in_dir("rec"), &config, &err));
	assert_non_null(strstr(err.text, "rec.old: exists and is not a recording"));

	assert_null(ptw_recording_create(in_dir("no/such/place"), &config, &err));
	assert_non_null(strstr(err.text, "No such file or directory"));
	assert_null(ptw_recording_create("", &config, &err));
	assert_int_equal(err.status, PTW_EXIT_USAGE);
	assert_null(ptw_recording_create("/", &config, &err));
	assert_int_equal(count_files(), 5);
	assert_true(exists("home/data"));
}

static void leaves_nothing_when_it_fails(void **state)
{
	struct ptw_error err = { .status = 0 };
	struct ptw_recording_writer *w;
	struct rlimit limit, small;
	static uint8_t big[1 << 20];
	char *proc;

	w = ptw_recording_create(in_dir("rec"), &config, &err);
	assert_non_null(w);
	assert_int_equal(count_files(), 1);
	ptw_recording_abort(w);
	assert_int_equal(count_files(), 0);
	ptw_recording_abort(NULL);

	/* No more room: the limit on a file's size fails writes as a full disk does. */
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	w = ptw_recording_create(in_dir("rec"), &config, &err);
	small = (struct rlimit){ 65536, limit.rlim_max };
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(ptw_recording_add_trace(w, 0, big, sizeof(big), NULL, 0, &err), -1);
	assert_non_null(strstr(err.text, "File too large"));
	ptw_recording_abort(w);
	assert_int_equal(count_files(), 0);

	small.rlim_cur = 1000;
	setrlimit(RLIMIT_FSIZE, &limit);
	w = ptw_recording_create(in_dir("rec"), &config, &err);
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(ptw_recording_finish(w, &err), -1);
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_int_equal(count_files(), 0);

	/*
	 * A kernel that hides its addresses, and one that locks its code away: the rest can still
	 * be recorded.
	 */
	proc = make_proc();
	put_file(in_dir("proc/kallsyms"), "0000000000000000 T _text\n0000000000000000 T _etext\n", 50);
	w = ptw_recording_create(in_dir("rec"), &config, &err);
	assert_int_equal(ptw_recording_add_kernel_from(w, proc, &err), -1);
	assert_non_null(strstr(err.text, "kptr_restrict"));
	proc = make_proc();
	unlink(in_dir("proc/kcore"));
	assert_int_equal(ptw_recording_add_kernel_from(w, proc, &err), -1);
	assert_int_equal(err.status, PTW_EXIT_UNSUPPORTED);
	assert_non_null(strstr(err.text, "CONFIG_PROC_KCORE"));
	assert_int_equal(ptw_recording_finish(w, &err), 0);
	assert_false(exists("rec/kcore_dir"));
}

/* ---- a kernel that changes while it is recorded ---- */

#define TEXT	0xffffffff81000000
#define MODULE	0xffffffffc0201000

/* In make_proc()'s kcore */
static void put_code(uint64_t addr, uint8_t value)
{
	uint64_t offset = addr < MODULE - 0x1000 ? addr - TEXT + 0x1000 : addr - (MODULE - 0x1000) + 0x3000;
	int fd = open(in_dir("proc/kcore"), O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &value, 1, offset), 1);
	close(fd);
}

static uint8_t code(uint64_t addr)
{
	uint64_t i = addr < MODULE - 0x1000 ? addr - TEXT + 0x1000 : addr - (MODULE - 0x1000) + 0x3000;

	return i * 7 + (i >> 8);
}

static void change_heard(struct ptw_recording_writer *w, uint64_t addr, uint8_t from, uint8_t to)
{
	struct __attribute__((packed)) {
		struct perf_event_header header;
		uint64_t addr;
		uint16_t old_size, new_size;
		uint8_t from, to, pad[2];
		struct perf_sample_id id;
	} record = {
		.header = { PERF_RECORD_TEXT_POKE, PERF_RECORD_MISC_KERNEL, sizeof(record) },
		.addr = addr, .old_size = 1, .new_size = 1, .from = from, .to = to, .id = { .time = 1000, .id = 501 },
	};
	struct ptw_error err;

	assert_int_equal(ptw_recording_add_records(w, &record, 16, (const uint8_t *)&record + 16, sizeof(record) - 16, &err), 0);
	put_code(addr, to);
}

/* The next change of code that a recording tells, as "address old new" in hex */
static const char *next_poke(const struct ptw_recording *r, size_t *at)
{
	static char text[256];
	struct ptw_side_detail d;
	int n;

	for (; *at < r->side_count; ++*at) {
		if (r->side[*at].type != PTW_SIDE_TEXT_POKE)
			continue;
		ptw_side_detail(&r->side[(*at)++], &d);
		n = sprintf(text, "%" PRIx64 " ", d.addr);
		for (int i = 0; i < d.old_size && i < 32; i++)
			n += sprintf(text + n, "%02x", d.old_bytes[i]);
		n += sprintf(text + n, " ");
		for (int i = 0; i < d.new_size && i < 32; i++)
			n += sprintf(text + n, "%02x", d.new_bytes[i]);
		return text;
	}
	return "";
}

static const char *as_poke(uint64_t addr, const uint8_t *from, const uint8_t *to, int size)
{
	static char text[256];
	int n = sprintf(text, "%" PRIx64 " ", addr);

	for (int i = 0; i < size; i++)
		n += sprintf(text + n, "%02x", from[i]);
	n += sprintf(text + n, " ");
	for (int i = 0; i < size; i++)
		n += sprintf(text + n, "%02x", to[i]);
	return text;
}

/* What is not as it was told is told as it is: no more than that, and once. */
static void code_changed_unheard(void **state)
{
	static const uint64_t ids[] = { 501, 502 };
	struct ptw_error err = { .status = 0 };
	struct ptw_recording_writer *w = ptw_recording_create(in_dir("rec"), &config, &err);
	char *proc = strdup(make_proc());
	struct ptw_recording *r;
	uint8_t was[8], is[8];
	size_t at = 0;

	assert_non_null(w);
	ptw_recording_set_proc(w, proc);
	assert_int_equal(ptw_recording_set_sideband(w, ids, 2, &err), 0);
	assert_int_equal(ptw_recording_add_trace(w, 0, "\x02\x82", 2, NULL, 0, &err), 0);
	assert_int_equal(ptw_recording_add_kernel_from(w, proc, &err), 0);

	/* One that was heard and stays, one that was heard and went back unheard */
	change_heard(w, TEXT + 0x10, code(TEXT + 0x10), 0xa1);
	change_heard(w, TEXT + 0x1010, code(TEXT + 0x1010), 0xa2);
	put_code(TEXT + 0x1010, code(TEXT + 0x1010));
	/* In another page, and two that are one, beside one that was heard; the end of a page; a module */
	put_code(TEXT + 0x20, 0xb1);
	put_code(TEXT + 0x24, 0xb2);
	put_code(TEXT + 0xfff, 0xb3);
	put_code(MODULE + 0x10, 0xb4);
	/* The trampoline is nobody's. */
	put_code(MODULE + 0x3000, 0xb5);
	assert_int_equal(ptw_recording_add_unheard(w, 1, 502, &err), 0);
	assert_int_equal(ptw_recording_add_unheard(w, 1, 502, &err), 0);
	/* Again, from there */
	put_code(TEXT + 0x20, 0xc1);
	assert_int_equal(ptw_recording_add_unheard(w, 1, 502, &err), 0);
	/* A module that is gone has no code. */
	put_file(in_dir("proc/modules"), "", 0);
	put_code(MODULE + 0x11, 0xb6);
	assert_int_equal(ptw_recording_add_unheard(w, 1, 502, &err), 0);
	assert_int_equal(ptw_recording_finish(w, &err), 0);

	r = ptw_recording_open(in_dir("rec"), &err);
	if (!r)
		fail_msg("%s", err.text);
	assert_string_equal(next_poke(r, &at), as_poke(TEXT + 0x10, (uint8_t[]){ code(TEXT + 0x10) }, (uint8_t[]){ 0xa1 }, 1));
	assert_string_equal(next_poke(r, &at), as_poke(TEXT + 0x1010, (uint8_t[]){ code(TEXT + 0x1010) }, (uint8_t[]){ 0xa2 }, 1));
	for (int i = 0; i < 5; i++)
		was[i] = is[i] = code(TEXT + 0x20 + i);
	is[0] = 0xb1;
	is[4] = 0xb2;
	assert_string_equal(next_poke(r, &at), as_poke(TEXT + 0x20, was, is, 5));
	assert_string_equal(next_poke(r, &at), as_poke(TEXT + 0xfff, (uint8_t[]){ code(TEXT + 0xfff) }, (uint8_t[]){ 0xb3 }, 1));
	assert_string_equal(next_poke(r, &at), as_poke(TEXT + 0x1010, (uint8_t[]){ 0xa2 }, (uint8_t[]){ code(TEXT + 0x1010) }, 1));
	assert_string_equal(next_poke(r, &at), as_poke(MODULE + 0x10, (uint8_t[]){ code(MODULE + 0x10) }, (uint8_t[]){ 0xb4 }, 1));
	assert_string_equal(next_poke(r, &at), as_poke(TEXT + 0x20, (uint8_t[]){ 0xb1 }, (uint8_t[]){ 0xc1 }, 1));
	assert_string_equal(next_poke(r, &at), "");
	ptw_recording_close(r);
	free(proc);
}

/* Records of type LOST in a recording's data */
static unsigned int losses_in(const char *name)
{
	size_t size;
	uint8_t *data = get_file(in_dir(name), &size);
	struct perf_file_head head;
	unsigned int n = 0;

	memcpy(&head, data, sizeof(head));
	for (uint64_t at = head.data.offset; at < head.data.offset + head.data.size;) {
		struct perf_auxtrace r = { 0 };

		memcpy(&r, data + at, sizeof(r.header));
		if (r.header.type == PERF_USER_AUXTRACE)
			memcpy(&r, data + at, sizeof(r));
		n += r.header.type == PERF_RECORD_LOST;
		at += r.header.size + r.size;
	}
	free(data);
	return n;
}

/* The same where perf told of the loss: it is not told twice. */
static void code_changed_in_lost_records(void **state)
{
	static const uint64_t ids[] = { 501, 502 };

	for (int told = 0; told < 2; told++) {
		struct ptw_error err = { .status = 0 };
		struct ptw_recording_writer *w = ptw_recording_create(in_dir("rec"), &config, &err);
		char *proc = strdup(make_proc());
		struct ptw_recording *r;
		size_t at = 0;

		assert_non_null(w);
		ptw_recording_set_proc(w, proc);
		assert_int_equal(ptw_recording_set_sideband(w, ids, 2, &err), 0);
		assert_int_equal(ptw_recording_add_trace(w, 0, "\x02\x82", 2, NULL, 0, &err), 0);
		assert_int_equal(ptw_recording_add_kernel_from(w, proc, &err), 0);
		put_code(TEXT + 0x20, 0xb1);
		assert_int_equal((told ? ptw_recording_add_missed : ptw_recording_add_unheard)(w, 1, 502, &err), 0);
		assert_int_equal(ptw_recording_finish(w, &err), 0);
		assert_int_equal(losses_in("rec/data"), told ? 0 : 1);
		r = ptw_recording_open(in_dir("rec"), &err);
		if (!r)
			fail_msg("%s", err.text);
		assert_string_equal(next_poke(r, &at), as_poke(TEXT + 0x20, (uint8_t[]){ code(TEXT + 0x20) }, (uint8_t[]){ 0xb1 }, 1));
		assert_int_equal(r->side[at - 1].cpu, 1);
		assert_string_equal(next_poke(r, &at), "");
		ptw_recording_close(r);
		free(proc);
	}
}

/*
 * A module may come to lie where another one seemed to have code, as its size is that of all its parts, which may lie apart.
 * It is its own code that counts.
 */
static void module_in_a_hole(void **state)
{
	static const char modules[] = "kvdemo 12288 0 - Live 0xffffffffc0201000 (OE)\n"
				      "lodger 12288 0 - Live 0xffffffffc0200000 (OE)\n";
	struct ptw_kernel_layout layout, late;
	struct ptw_error err = { .status = 0 };
	char *proc = strdup(make_proc()), *copy = strdup(in_dir("copy"));
	uint8_t byte;

	mkdir(copy, 0700);
	if (ptw_kernel_copy(proc, copy, &layout, &err))
		fail_msg("%s", err.text);
	put_file(in_dir("proc/modules"), modules, sizeof(modules) - 1);
	for (int page = 0; page < 3; page++)
		put_code(MODULE - 0x1000 + page * 0x1000 + 5, 0xd0 + page);
	if (ptw_kernel_copy_late(proc, copy, &layout, &late, &err))
		fail_msg("%s", err.text);
	assert_int_equal(late.modules, 1);
	assert_string_equal(late.module[0].name, "lodger");
	for (int page = 0; page < 3; page++) {
		assert_int_equal(ptw_kernel_read(copy, MODULE - 0x1000 + page * 0x1000 + 5, &byte, 1, &err), 0);
		assert_int_equal(byte, 0xd0 + page);
	}
	/* What lies behind it is as it was. */
	assert_int_equal(ptw_kernel_read(copy, MODULE + 0x2005, &byte, 1, &err), 0);
	assert_int_equal(byte, code(MODULE + 0x2005));
	ptw_kernel_layout_free(&layout);
	ptw_kernel_layout_free(&late);
	free(proc);
	free(copy);
}

static void writes_alarms_as_json(void **state)
{
	struct ptw_alarm alarm = sample_alarm(), *got;
	struct ptw_error err = { .status = 0 };
	struct ptw_symbols *symbols = ptw_symbols_new();
	char *text = NULL;
	size_t size, count;
	FILE *out;

	make_proc();
	assert_int_equal(ptw_symbols_load_kallsyms(symbols, in_dir("proc/kallsyms"), &err), 0);
	out = open_memstream(&text, &size);
	assert_int_equal(ptw_alarm_write_json(out, &alarm, symbols), 0);
	fclose(out);
	ptw_symbols_free(symbols);
	assert_ptr_equal(strchr(text, '\n'), text + size - 1);
	for (const char *const *want =
		     (const char *const[]){
			     "\"seq\":7,", "\"address\":\"0xffffffffc0a01180\"",
			     "\"old\":\"0x5a5a000000000010\"", "\"new\":\"0x5a5a0000deadbeef\"",
			     "\"access\":\"w\"", "\"comm\":\"health \\\"check\\\"\"",
			     "\"ip_symbol\":\"health_tick+0x1d [kvdemo]\"",
			     "{\"ip\":\"0xffffffff81000305\",\"symbol\":\"kernel_clone+0x5\"}",
			     "{\"ip\":\"0x0000000000001234\"}",
			     "\"tsc\":9223372036854775809,", "\"state\":\"frozen\"",
			     "\"ax\":\"0xffff000000000000\"",
			     "\"user_stack\":[{\"ip\":\"0x00007f0000001014\"},{\"ip\":\"0x0000000000401151\"}]",
			     "\"hit_address\":\"0xffffffffc0a01188\"", "\"actions\":[\"event\",\"freeze\"]", NULL };
	     *want; want++) {
		if (!strstr(text, *want))
			fail_msg("%s lacks %s", text, *want);
	}
	free(text);

	/* Names a thread may give itself: not UTF-8, and not terminated */
	alarm = sample_alarm();
	alarm.have_values = alarm.have_trace = alarm.have_regs = 0;
	memcpy(alarm.comm, "\xff\xc3\xa4\xed\xa0\x80\"\\\n\x01/3456789", 16);
	out = fopen(in_dir("alarms.jsonl"), "w");
	assert_int_equal(ptw_alarm_write_json(out, &alarm, NULL), 0);
	fclose(out);
	if (ptw_alarms_read_json(in_dir("alarms.jsonl"), &got, &count, &err))
		fail_msg("%s", err.text);
	assert_int_equal(count, 1);
	assert_memory_equal(got->comm, "?\xc3\xa4???\"\\\n\x01/3456", 15);
	assert_false(got->have_values || got->have_trace || got->have_regs);
	free(got);

	for (const char *const *bad =
		     (const char *const[]){ "{\"seq\":", "[1]", "{\"seq\":\"1\"}", "{\"seq\":-1}",
					    "{\"cpu\":4294967296}", "{\"ip\":\"12\"}",
					    "{\"ip\":\"0x11112222333344445\"}", "{\"ip\":12}",
					    "{\"access\":\"y\"}", "{\"stack\":[1]}",
					    "{\"stack\":{}}", "{\"trace\":[]}", "{} {}", "nonsense",
					    "[[[[[[[[[[[[[[[[[[[[", NULL };
	     *bad; bad++) {
		put_file(in_dir("bad.jsonl"), *bad, strlen(*bad));
		if (!ptw_alarms_read_json(in_dir("bad.jsonl"), &got, &count, &err))
			fail_msg("accepted %s", *bad);
		assert_non_null(strstr(err.text, "line 1"));
		assert_null(got);
	}
}

static void reads_perf_data(void **state)
{
	struct ptw_error err = { .status = 0 };
	struct ptw_recording *r;
	char path[4096];

	if (!sample_path(path, sizeof(path), "perfdata-kernel/perf.data"))
		skip();
	r = ptw_recording_open(path, &err);
	if (!r)
		fail_msg("%s", err.text);
	assert_int_equal(r->params.family, 6);
	assert_int_equal(r->params.model, 78);
	assert_int_equal(r->params.stepping, 3);
	assert_int_equal(r->params.mtc_freq, 3);
	assert_int_equal(r->params.nom_freq, 12);
	assert_int_equal(r->params.cpuid_0x15_eax, 2);
	assert_int_equal(r->params.cpuid_0x15_ebx, 100);
	assert_true(r->params.have_time);
	assert_false(r->params.through);
	/*
	 * The first TSC packet of CPU 3, just after the kernel said at 641256844131 that tracing
	 * starts there
	 */
	assert_in_range(ptw_tsc_to_ns(&r->params, 0xbc4cbefc32), 641256844131, 641256847598);
	assert_int_equal(r->trace_count, 2);
	assert_int_equal(r->trace[0].cpu, 0);
	assert_int_equal(r->trace[0].size, 12240);
	assert_int_equal(r->trace[1].cpu, 3);
	assert_int_equal(r->trace[1].size, 137728);
	for (int i = 0; i < 2; i++)
		assert_memory_equal(
			r->trace[i].data,
			"\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82", 16);
	ptw_recording_close(r);
}

/* A perf.data by hand, for what no recording at hand has */
struct file {
	uint8_t data[65536];
	size_t size;
};

static void add_bytes(struct file *f, const void *data, size_t size)
{
	assert_true(f->size + size <= sizeof(f->data));
	memcpy(f->data + f->size, data, size);
	f->size += size;
}

static void add_record(struct file *f, uint32_t type, uint16_t misc, const void *data, size_t size)
{
	struct perf_event_header h = { .type = type, .misc = misc, .size = sizeof(h) + size };

	add_bytes(f, &h, sizeof(h));
	add_bytes(f, data, size);
}

static void begin_file(struct file *f, uint32_t auxtrace_type, const char *filters)
{
	struct {
		struct perf_event_attr attr;
		struct perf_file_range ids;
	} entry = { .attr = { .type = 8, .size = sizeof(entry.attr), .config = 0xe601 } };
	struct perf_file_head head = {
		.magic = PERF_FILE_MAGIC, .size = sizeof(head), .attr_size = sizeof(entry),
		.attrs = { sizeof(head), sizeof(entry) }, .data = { sizeof(head) + sizeof(entry), 0 },
	};
	struct {
		uint32_t type, reserved;
		uint64_t priv[PT_INFO_COUNT];
		char filter[256];
	} info = { .type = auxtrace_type };

	f->size = 0;
	add_bytes(f, &head, sizeof(head));
	add_bytes(f, &entry, sizeof(entry));
	info.priv[PT_INFO_PMU_TYPE] = 8;
	info.priv[PT_INFO_MTC_BIT] = 1 << 9;
	info.priv[PT_INFO_MTC_FREQ_BITS] = 0xf << 14;
	info.priv[PT_INFO_FILTER_LENGTH] = strlen(filters);
	strcpy(info.filter, filters);
	add_record(f, PERF_USER_AUXTRACE_INFO, 0, &info,
		   offsetof(typeof(info), filter) + (filters[0] ? (strlen(filters) + 8) / 8 * 8 : 0));
}

static void add_aux(struct file *f, uint32_t idx, int32_t cpu, int32_t tid, const char *text)
{
	struct perf_auxtrace a = { .size = strlen(text), .idx = idx, .cpu = cpu, .tid = tid };

	add_record(f, PERF_USER_AUXTRACE, 0, (uint8_t *)&a + sizeof(a.header), sizeof(a) - sizeof(a.header));
	add_bytes(f, text, strlen(text));
}

static void add_mmap2(struct file *f, uint64_t addr, uint64_t size, uint64_t pgoff, const char *path)
{
	uint8_t body[64 + 256] = { 0 };

	memcpy(body + 8, &addr, 8);
	memcpy(body + 16, &size, 8);
	memcpy(body + 24, &pgoff, 8);
	body[56] = 5;	/* PROT_READ | PROT_EXEC */
	strcpy((char *)body + 64, path);
	add_record(f, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER, body, 64 + (strlen(path) + 8) / 8 * 8);
}

static struct ptw_recording *open_file(struct file *f, struct ptw_error *err)
{
	struct perf_file_head *head = (void *)f->data;

	head->data.size = f->size - head->data.offset;
	put_file(in_dir("perf.data"), f->data, f->size);
	return ptw_recording_open(in_dir("perf.data"), err);
}

static void joins_pieces_and_maps_files(void **state)
{
	static struct file f;
	struct ptw_error err = { .status = 0 };
	struct ptw_recording *r;
	static uint8_t code[8192];

	put_file(in_dir("code"), code, sizeof(code));
	begin_file(&f, PERF_AUXTRACE_INTEL_PT, "filter 0xffffffff81000300/0x40");
	add_mmap2(&f, 0x401000, 0x1000, 0x1000, in_dir("code"));
	add_mmap2(&f, 0x401000, 0x1000, 0x1000, in_dir("code"));	/* again by another process */
	add_mmap2(&f, 0x501000, 0x10000, 0x1000, in_dir("code"));	/* longer than the file */
	add_mmap2(&f, 0x601000, 0x1000, 0x2000, in_dir("code"));	/* behind its end */
	add_mmap2(&f, 0x701000, 0x1000, 0, in_dir("gone"));
	add_mmap2(&f, 0x801000, 0x1000, 0, "//anon");
	add_mmap2(&f, 0x901000, 0x1000, 0, "[vdso]");
	add_aux(&f, 0, 5, 77, "first ");
	add_aux(&f, 1, 6, -1, "other");
	add_aux(&f, 0, 5, 77, "second ");
	add_aux(&f, 2, -1, 77, "thread 77");
	add_aux(&f, 3, -1, 78, "thread 78");
	add_aux(&f, 0, 5, 79, "third");
	r = open_file(&f, &err);
	if (!r)
		fail_msg("%s", err.text);
	assert_int_equal(r->trace_count, 4);
	assert_int_equal(r->trace[0].cpu, 5);
	assert_int_equal(r->trace[0].size, 18);
	assert_memory_equal(r->trace[0].data, "first second third", 18);
	assert_memory_equal(r->trace[1].data, "other", 5);
	assert_int_equal(r->trace[2].cpu, -1);
	assert_int_equal(r->trace[2].tid, 77);
	assert_int_equal(r->trace[3].tid, 78);
	assert_int_equal(r->image.count, 2);
	assert_int_equal(r->image.section[0].vaddr, 0x401000);
	assert_int_equal(r->image.section[1].size, 0x1000);
	assert_int_equal(r->params.addr[0].cfg, 1);
	assert_int_equal(r->params.addr[0].a, 0xffffffff81000300);
	assert_int_equal(r->params.addr[0].b, 0xffffffff8100033f);
	assert_int_equal(r->params.mtc_freq, 3);
	ptw_recording_close(r);

	/* A filter on a file counts where the file was mapped, and in its place among the ranges. */
	begin_file(&f, PERF_AUXTRACE_INTEL_PT, "filter 0x10/0x20@/gone,stop 0x1010 / 0x20@/bin/x");
	add_mmap2(&f, 0x7f0000001000, 0x1000, 0x1000, "/bin/x");
	add_aux(&f, 0, 0, -1, "trace");
	r = open_file(&f, &err);
	if (!r)
		fail_msg("%s", err.text);
	assert_int_equal(r->params.addr[0].cfg, 0);
	assert_int_equal(r->params.addr[1].cfg, 2);
	assert_int_equal(r->params.addr[1].a, 0x7f0000001010);
	assert_int_equal(r->params.addr[1].b, 0x7f000000102f);
	ptw_recording_close(r);
}

static void fails_with(struct file *f, const char *says)
{
	struct ptw_error err = { .status = 0 };

	assert_null(open_file(f, &err));
	assert_int_equal(err.status, PTW_EXIT_FAILED);
	if (!strstr(err.text, says))
		fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void explains_what_it_cannot_read(void **state)
{
	struct ptw_error err = { .status = 0 };
	static struct file f;
	struct perf_auxtrace *a;
	size_t at;

	begin_file(&f, 3, "");		/* CoreSight */
	add_aux(&f, 0, 0, -1, "trace");
	fails_with(&f, "not Intel PT");

	begin_file(&f, PERF_AUXTRACE_INTEL_PT, "");
	add_record(&f, PERF_USER_COMPRESSED, 0, "12345678", 8);
	fails_with(&f, "recorded with -z");

	begin_file(&f, PERF_AUXTRACE_INTEL_PT, "");
	fails_with(&f, "recorded nothing");

	begin_file(&f, PERF_AUXTRACE_INTEL_PT, "start 0x10/0x20");
	add_aux(&f, 0, 0, -1, "trace");
	fails_with(&f, "address filters");

	begin_file(&f, PERF_AUXTRACE_INTEL_PT, "");
	at = f.size;
	add_aux(&f, 0, 0, -1, "trace");
	a = (void *)(f.data + at);
	a->size = 6;
	fails_with(&f, "trace data leaves");
	a->size = UINT64_MAX;
	fails_with(&f, "trace data leaves");
	a->size = 5;
	a->header.size = 0;
	fails_with(&f, "offset 0x");
	a->header.size = 9;
	fails_with(&f, "too short");

	f.data[0] ^= 1;
	fails_with(&f, "not a recording or perf.data");
	f.size = 5;
	put_file(in_dir("short"), f.data, 5);
	assert_null(ptw_recording_open(in_dir("short"), &err));
	put_file(in_dir("empty"), "", 0);
	assert_null(ptw_recording_open(in_dir("empty"), &err));
	assert_null(ptw_recording_open(in_dir("absent"), &err));
	assert_non_null(strstr(err.text, "No such file"));
	assert_null(ptw_recording_open(dir, &err));
	assert_non_null(strstr(err.text, "not a recording"));
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	assert_null(ptw_recording_open(in_dir("fifo"), &err));
	assert_null(ptw_recording_open("/dev/zero", &err));
}

/* ---- damage ---- */

static unsigned int rounds(unsigned int some)
{
	const char *n = getenv("PTWATCH_FUZZ");

	return n ? (unsigned int)atoi(n) : some;
}

/* Open what should not be trusted; whatever opens must be readable to its last byte. */
static void open_damaged(const char *path)
{
	struct ptw_error err = { .status = 0 };
	struct ptw_recording *r = ptw_recording_open(path, &err);
	volatile uint8_t sum = 0;

	if (!r) {
		assert_true(err.text[0] && !strchr(err.text, '\n'));
		return;
	}
	for (size_t i = 0; i < r->trace_count; i++) {
		for (size_t k = 0; k < r->trace[i].size; k++)
			sum += r->trace[i].data[k];
	}
	ptw_recording_close(r);
}

static void damage(uint8_t *data, size_t size, size_t *cut)
{
	static const uint64_t odd[] = { 0,
					1,
					7,
					8,
					0x7f,
					0xff,
					0xffff,
					0x7fffffff,
					0xffffffff,
					0x7fffffffffffffff,
					0xffffffffffffffff,
					0xfffffffffffffff8 };
	int n = 1 + random() % 6;

	*cut = random() % 4 ? size : (size_t)random() % (size + 1);
	while (n--) {
		/* Half of the hits in the header and the first records, where the structure is */
		size_t at = random() % (random() % 2 || size < 1024 ? size : 1024);
		uint64_t v = odd[random() % (sizeof(odd) / sizeof(odd[0]))];
		size_t width = 1 << random() % 4;

		if (random() % 2)
			data[at] ^= 1 << random() % 8;
		else if (at + width <= size)
			memcpy(data + at, &v, width);
	}
}

static void survives_damage(void **state)
{
	static const char *const files[] = { "crime/data", "crime/kcore_dir/kcore",
					     "crime/kcore_dir/kallsyms", "crime/alarms.jsonl" };
	unsigned int n = rounds(100);

	srandom(20240502);
	write_recording(in_dir("crime"), 1003, true);
	for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
		size_t size, cut;
		uint8_t *good = get_file(in_dir(files[f]), &size), *bad = malloc(size);

		for (unsigned int i = 0; i < n; i++) {
			memcpy(bad, good, size);
			damage(bad, size, &cut);
			put_file(in_dir(files[f]), bad, cut);
			open_damaged(in_dir("crime"));
		}
		put_file(in_dir(files[f]), good, size);
		free(good);
		free(bad);
	}
	/* And whole again */
	struct ptw_recording *r = ptw_recording_open(in_dir("crime"), NULL);

	assert_non_null(r);
	ptw_recording_close(r);
}

static void survives_damage_of_perf_data(void **state)
{
	unsigned int n = rounds(100);
	struct ptw_recording *rec;
	uint8_t *good, *bad;
	size_t size, cut;
	char path[4096];

	if (!sample_path(path, sizeof(path), "perfdata-kernel/perf.data"))
		skip();
	srandom(20240503);
	good = get_file(path, &size);
	bad = malloc(size);
	for (unsigned int i = 0; i < n; i++) {
		memcpy(bad, good, size);
		damage(bad, size, &cut);
		put_file(in_dir("perf.data"), bad, cut);
		open_damaged(in_dir("perf.data"));
	}
	/* Cut at every length within the structure at the front */
	for (size_t k = 0; k < 1200; k++) {
		struct ptw_error err = { .status = 0 };

		put_file(in_dir("perf.data"), good, k);
		assert_null(ptw_recording_open(in_dir("perf.data"), &err));
		if (k > 8 && !strstr(err.text, "offset 0x"))
			fail_msg("cut at %zu: \"%s\" tells no offset", k, err.text);
	}
	/* Within a trace: what is there of it is read, and that it isn't all is told. */
	put_file(in_dir("perf.data"), good, 100000);
	rec = ptw_recording_open(in_dir("perf.data"), NULL);
	assert_non_null(rec);
	assert_int_equal(rec->trace_count, 2);
	assert_int_equal(rec->trace[0].size, 12240);
	assert_int_equal(rec->trace[1].size, 69352);
	assert_non_null(strstr(rec->incomplete, "there should be more at offset 0x293a8, but the file has only 0x186a0 bytes"));
	ptw_recording_close(rec);
	/* Behind the traces: nothing of them is missing. */
	put_file(in_dir("perf.data"), good, 169000);
	rec = ptw_recording_open(in_dir("perf.data"), NULL);
	assert_non_null(rec);
	assert_int_equal(rec->trace[1].size, 137728);
	assert_non_null(strstr(rec->incomplete, "but the file has only 0x29428 bytes"));
	ptw_recording_close(rec);
	free(good);
	free(bad);
}

/* What a recorder has written that was killed: the file that is there before the recording gets its name. */
static uint8_t *get_unfinished(size_t *size)
{
	struct dirent *entry;
	uint8_t *data = NULL;
	char name[64];
	DIR *d = opendir(dir);

	while ((entry = readdir(d))) {
		if (strncmp(entry->d_name, "killed.", 7))
			continue;
		snprintf(name, sizeof(name), "%.32s/data", entry->d_name);
		data = get_file(in_dir(name), size);
	}
	closedir(d);
	assert_non_null(data);
	return data;
}

enum { PIECES = 6, PIECE = 104 };

/* Pieces of two CPUs in turn, each with a switch behind it; @end: how long the file is after each */
static struct ptw_recording_writer *write_pieces(const char *name, size_t *end)
{
	static const uint64_t ids[] = { 501, 502 };
	struct ptw_error err = { .status = 0 };
	struct ptw_recording_writer *w = ptw_recording_create(in_dir(name), &config, &err);
	uint8_t piece[PIECE];

	assert_non_null(w);
	assert_int_equal(ptw_recording_set_sideband(w, ids, 2, &err), 0);
	for (int i = 0; i < PIECES; i++) {
		struct ptwatch_switch sw = { .tsc = 1000 + i, .cpu = i % 2, .prev_pid = i, .next_pid = i + 1 };

		memset(piece, i + 1, sizeof(piece));
		assert_int_equal(ptw_recording_add_trace(w, i % 2, piece, 50, piece + 50, PIECE - 50, &err), 0);
		assert_int_equal(ptw_recording_add_switches(w, &sw, 1, 501, &err), 0);
		end[i] = ptw_recording_size(w);
	}
	return w;
}

#define SWITCHES	(2 * 48)	/* bytes of a departure and an arrival */

/* Cut at @size, the file that write_pieces() made has all before it. */
static void assert_pieces(const uint8_t *data, size_t size, const size_t *end)
{
	size_t have[2] = { 0 }, events = 0;
	struct ptw_error err = { .status = 0 };
	struct ptw_recording *r;

	for (int i = 0; i < PIECES; i++) {
		size_t trace = end[i] - SWITCHES - PIECE;

		if (size > trace)
			have[i % 2] += size - trace < PIECE ? size - trace : PIECE;
		for (size_t n = 0; n < 2; n++)
			events += size >= end[i] - n * SWITCHES / 2;
	}
	put_file(in_dir("cut.data"), data, size);
	r = ptw_recording_open(in_dir("cut.data"), &err);
	if (!have[0]) {
		assert_null(r);
		assert_non_null(strstr(err.text, size < 8 ? "not a recording" : "offset 0x"));
		return;
	}
	if (!r)
		fail_msg("cut at %zu: %s", size, err.text);
	assert_int_equal(r->trace_count, have[1] ? 2 : 1);
	for (size_t cpu = 0; cpu < r->trace_count; cpu++) {
		assert_int_equal(r->trace[cpu].size, have[cpu]);
		for (size_t i = 0; i < have[cpu]; i++)
			assert_int_equal(r->trace[cpu].data[i], cpu + 1 + i / PIECE * 2);
	}
	assert_int_equal(r->side_count, events);
	/* The CPU is known, and so are its errata; and how its packets are to be read. */
	assert_int_equal(r->params.family << 16 | r->params.model << 8 | r->params.stepping, 0x65504);
	assert_int_equal(r->params.mtc_freq, config.params.mtc_freq);
	assert_non_null(r->incomplete);
	ptw_recording_close(r);
}

/* A killed recorder leaves a file without sizes, which goes on to its end; a full disk, or a copy that failed, less of it. */
static void reads_what_is_unfinished(void **state)
{
	static const uint8_t zeros[4096];
	size_t end[PIECES], size, finished;
	struct ptw_recording_writer *w = write_pieces("killed", end);
	struct ptw_error err = { .status = 0 };
	struct ptw_recording *r;
	uint8_t *data = get_unfinished(&size);

	assert_int_equal(size, end[PIECES - 1]);
	for (size_t cut = 0; cut <= size; cut++)
		assert_pieces(data, cut, end);
	assert_int_equal(ptw_recording_finish(w, &err), 0);

	/* Where power failed, zeros may follow. */
	data = realloc(data, size + sizeof(zeros));
	memcpy(data + size, zeros, sizeof(zeros));
	put_file(in_dir("cut.data"), data, size + sizeof(zeros));
	r = ptw_recording_open(in_dir("cut.data"), &err);
	assert_non_null(r);
	assert_int_equal(r->trace[0].size, PIECES / 2 * PIECE);
	assert_non_null(strstr(r->incomplete, "cut.data: the recording is incomplete"));
	ptw_recording_close(r);
	free(data);

	data = get_file(in_dir("killed/data"), &finished);
	for (size_t cut = 0; cut <= size; cut++)
		assert_pieces(data, cut, end);
	/* Behind the records no more is missing than perf's ids. */
	for (size_t cut = size + 1; cut < finished; cut++) {
		put_file(in_dir("cut.data"), data, cut);
		r = ptw_recording_open(in_dir("cut.data"), &err);
		assert_non_null(r);
		assert_int_equal(r->trace[0].size, PIECES / 2 * PIECE);
		assert_int_equal(r->params.family, 6);
		assert_non_null(strstr(r->incomplete, "cut.data: the recording is incomplete"));
		ptw_recording_close(r);
	}
	put_file(in_dir("cut.data"), data, finished);
	r = ptw_recording_open(in_dir("cut.data"), &err);
	assert_null(r->incomplete);
	ptw_recording_close(r);
	free(data);
}

/* More records than are sorted in memory, in no order at all: they come by time, at the same time as in the file. */
static void sorts_many_records(void **state)
{
	enum { COUNT = 600000, TIMES = 200000 };
	static const uint64_t ids[] = { 501 };
	struct ptw_error err = { .status = 0 };
	struct ptw_recording_writer *w = ptw_recording_create(in_dir("many"), &config, &err);
	struct ptw_recording *r;
	uint32_t random = 1, sum = 0;

	assert_non_null(w);
	assert_int_equal(ptw_recording_set_sideband(w, ids, 1, &err), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		struct ptwatch_switch sw = { .cpu = 3, .prev_pid = i, .flags = PTWATCH_SWITCH_START };

		random = random * 1103515245 + 12345;
		sw.tsc = 1000 + (random >> 8) % TIMES;
		assert_int_equal(ptw_recording_add_switches(w, &sw, 1, 501, &err), 0);
		sum += i;
	}
	assert_int_equal(ptw_recording_add_trace(w, 0, "\x02\x82", 2, NULL, 0, &err), 0);
	assert_int_equal(ptw_recording_finish(w, &err), 0);
	r = ptw_recording_open(in_dir("many"), &err);
	if (!r)
		fail_msg("%s", err.text);
	assert_true(r->side_count >= COUNT);
	for (size_t i = 0; i < r->side_count; i++) {
		const struct ptw_side_event *e = &r->side[i];

		ptw_recording_passed(r, i);
		assert_true(!i || e->time > e[-1].time || (e->time == e[-1].time && e->record > e[-1].record));
		if (e->type == PTW_SIDE_SWITCH)
			sum -= e->pid;
	}
	assert_int_equal(sum, 0);
	ptw_recording_close(r);

	/* Where there is no room for them, that is told. */
	setenv("TMPDIR", "/nonexistent", 1);
	assert_null(ptw_recording_open(in_dir("many"), &err));
	assert_non_null(strstr(err.text, "so many of them need room in $TMPDIR, or /var/tmp"));
	unsetenv("TMPDIR");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reads_what_it_wrote),
		TEST(tells_ranges_of_user_code),
		TEST(reads_without_kernel_and_time),
		TEST(moves_an_older_recording_aside),
		TEST(refuses_what_is_no_recording),
		TEST(leaves_nothing_when_it_fails),
		TEST(code_changed_unheard),
		TEST(code_changed_in_lost_records),
		TEST(module_in_a_hole),
		TEST(writes_alarms_as_json),
		TEST(reads_perf_data),
		TEST(joins_pieces_and_maps_files),
		TEST(explains_what_it_cannot_read),
		TEST(reads_what_is_unfinished),
		TEST(sorts_many_records),
		TEST(survives_damage),
		TEST(survives_damage_of_perf_data),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
