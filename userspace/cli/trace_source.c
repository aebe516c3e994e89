// SPDX-License-Identifier: BSD-2-Clause
#include "cli/trace_source.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "cli/output.h"
#include "cli/verb.h"
#include "report/gap.h"

/* ---- raw bytes ---- */

static int map_raw(struct trace_source *source, struct ptw_error *err)
{
	const char *path = source->options->raw;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat stat;
	void *map;

	source->raw.cpu = source->raw.tid = -1;
	if (fd < 0 || fstat(fd, &stat)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "trace %s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (!S_ISREG(stat.st_mode)) {
		close(fd);
		return ptw_error_set(err, PTW_EXIT_FAILED, "trace %s: not a regular file", path);
	}
	if (stat.st_size == 0) {
		close(fd);
		return ptw_error_set(err, PTW_EXIT_FAILED, "trace %s: the file is empty", path);
	}
	map = mmap(NULL, stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return ptw_error_set(err, PTW_EXIT_FAILED, "trace %s: %s", path, strerror(errno));
	source->raw.data = map;
	source->raw.from_file = true;
	source->raw.size = stat.st_size;
	return 0;
}

static int stat_regular(const char *path, struct stat *st)
{
	return stat(path, st) || !S_ISREG(st->st_mode) ? -1 : 0;
}

/* What is mapped may end with the last page of the file, not beyond. */
static int check_images(const struct ptw_image *image, struct ptw_error *err)
{
	struct stat stat;
	uint64_t end;
	size_t i;

	for (i = 0; i < image->count; i++) {
		const struct ptw_image_section *s = &image->section[i];

		if (stat_regular(s->path, &stat))
			continue;	/* whoever needs it will say why not */
		end = ((uint64_t)stat.st_size + 4095) & ~4095ULL;
		if (s->offset >= (uint64_t)stat.st_size || s->size > end - s->offset)
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "image %s: 0x%" PRIx64 " bytes at file offset 0x%" PRIx64
					     ": the file has only 0x%" PRIx64 " bytes",
					     s->path, s->size, s->offset, (uint64_t)stat.st_size);
	}
	return 0;
}

/* The code that was named by hand has to be there. */
static int check_readable(const struct ptw_image *image, struct ptw_error *err)
{
	size_t i;

	for (i = 0; i < image->count; i++)
		if (access(image->section[i].path, R_OK))
			return ptw_error_set(err, PTW_EXIT_FAILED, "image %s: %s", image->section[i].path, strerror(errno));
	return 0;
}

/* Load address minus link address of the section; false: no ELF file that says where it is linked. */
static bool elf_bias(const struct ptw_image_section *section, uint64_t *bias)
{
	int fd = open(section->path, O_RDONLY | O_CLOEXEC);
	bool found = false;
	GElf_Phdr segment;
	size_t i, count;
	Elf *elf;

	if (fd < 0)
		return false;
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (elf && elf_kind(elf) == ELF_K_ELF && !elf_getphdrnum(elf, &count)) {
		for (i = 0; i < count && !found; i++) {
			if (!gelf_getphdr(elf, i, &segment) || segment.p_type != PT_LOAD ||
			    section->offset < segment.p_offset ||
			    section->offset - segment.p_offset >= segment.p_filesz)
				continue;
			*bias = section->vaddr - (segment.p_vaddr + section->offset - segment.p_offset);
			found = true;
		}
	}
	elf_end(elf);
	close(fd);
	return found;
}

/* Names for the code, if the images are ELF files: welcome, but nothing is wrong without. */
static void load_raw_symbols(struct trace_source *source)
{
	const struct ptw_image *image = &source->options->image;
	struct ptw_error err;
	bool any = false;
	uint64_t bias;
	size_t i, j;

	source->raw_symbols = ptw_symbols_new();
	if (!source->raw_symbols)
		return;
	elf_version(EV_CURRENT);
	for (i = 0; i < image->count; i++) {
		for (j = 0; j < i; j++)
			if (!strcmp(image->section[i].path, image->section[j].path))
				break;
		if (j == i && elf_bias(&image->section[i], &bias) &&
		    !ptw_symbols_load_elf(source->raw_symbols, image->section[i].path, bias, NULL, &err))
			any = true;
	}
	if (any)
		return;
	ptw_symbols_free(source->raw_symbols);
	source->raw_symbols = NULL;
}

struct ptw_recording *trace_source_recording(struct trace_source *source)
{
	if (source->recording)
		return source->recording;
	source->raw_recording = (struct ptw_recording){
		.params = source->options->params,
		.trace = &source->raw,
		.trace_count = 1,
		.image = source->options->image,
		.symbols = source->raw_symbols,
	};
	return &source->raw_recording;
}

/* ---- telling of gaps and progress ---- */

void trace_source_gap(struct trace_source *source, const struct ptw_view *view, const char *kind,
		      const char *text)
{
	const char *advice = source->recording ? ptw_recording_advice(source->recording, kind) : NULL;
	size_t i = 0;

	if (advice)
		fprintf(stderr, "ptwatch %s: %s\n", source->options->verb, advice);
	source->gaps++;
	while (i < GAP_KINDS - 1 && source->gap[i].kind && strcmp(source->gap[i].kind, kind))
		i++;
	/* The last place is for all that came late. */
	source->gap[i].kind = i < GAP_KINDS - 1 ? kind : "other errors";
	if (++source->gap[i].count > GAP_LINES)
		return;
	if (view->trace->cpu >= 0)
		fprintf(stderr, "ptwatch %s: cpu %d: %s\n", source->options->verb, view->trace->cpu, text);
	else
		fprintf(stderr, "ptwatch %s: %s\n", source->options->verb, text);
}

void trace_source_nothing(struct trace_source *source, const char *format, ...)
{
	va_list args;

	if (source->nothing_told)
		return;
	source->nothing_told = true;
	fprintf(stderr, "ptwatch %s: ", source->options->verb);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static void on_gap(void *context, const struct ptw_view *view, const struct ptw_flow *gap)
{
	char text[256];

	trace_source_gap(context, view, ptw_flow_gap_kind(gap), ptw_flow_describe_gap(gap, text, sizeof(text)));
}

static void say_rest(const struct trace_source *source)
{
	size_t i;

	for (i = 0; i < GAP_KINDS && source->gap[i].kind; i++)
		if (source->gap[i].count > GAP_LINES)
			fprintf(stderr, "ptwatch %s: %s: %" PRIu64 " more of these\n", source->options->verb,
				source->gap[i].kind, source->gap[i].count - GAP_LINES);
}

size_t trace_source_alarms(struct trace_source *source)
{
	const struct ptw_recording *recording = trace_source_recording(source);

	if (recording->params.have_time || !recording->alarm_count)
		return recording->alarm_count;
	fprintf(stderr, "ptwatch %s: alarms (%zu) are left out: the recording does not tell how its TSC relates to time; `ptwatch calls` shows "
		"where they hit\n", source->options->verb, recording->alarm_count);
	return 0;
}

void trace_source_missing_code(const struct trace_source *source)
{
	if (source->recording && source->recording->missing_code)
		fprintf(stderr, "ptwatch %s: %s\n", source->options->verb, source->recording->missing_code);
}

/* Of functions whose memory was used again the trace can't tell one from the other then. */
static void say_unclocked_code(const struct trace_source *source)
{
	char *path = source->recording ? ptw_jitdump_unclocked(source->recording) : NULL;

	if (path)
		fprintf(stderr, "ptwatch %s: %s: its times are not the TSC's, so generated code counts as there from the start of the "
			"file on, the last at an address winning; have it written with the TSC (the flag ARCH_TIMESTAMP)\n",
			source->options->verb, path);
	free(path);
}

static void on_progress(void *context, const struct ptw_view *view, uint64_t offset)
{
	struct trace_source *source = context;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - source->progress < 1)
		return;
	source->progress = now.tv_sec;
	if (view->trace->cpu >= 0)
		cli_progress(source->options->verb, "cpu %d: %d %%", view->trace->cpu,
			     (int)(offset * 100.0 / view->trace->size));
	else
		cli_progress(source->options->verb, "%d %%", (int)(offset * 100.0 / view->trace->size));
}

static void start_progress(struct trace_source *source, struct ptw_view *view)
{
	struct timespec now;

	/* In a log it would only be noise. */
	if (!isatty(STDERR_FILENO))
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	source->progress = now.tv_sec;
	view->on_progress = on_progress;
}

/* ---- choosing traces ---- */

static bool cpu_chosen(const struct trace_options *options, int32_t cpu)
{
	return cpu >= 0 && (size_t)cpu / 8 < options->cpus_size && options->cpus[cpu / 8] >> (cpu % 8) & 1;
}

static bool alarm_froze(const struct ptw_recording *recording, const struct ptw_recorded_trace *trace)
{
	size_t i;

	for (i = 0; i < recording->alarm_count; i++)
		if (recording->alarm[i].have_trace && (int32_t)recording->alarm[i].cpu == trace->cpu)
			return true;
	return false;
}

static int by_cpu(const void *a, const void *b)
{
	const struct ptw_recorded_trace *ta = ((const struct ptw_view *)a)->trace;
	const struct ptw_recorded_trace *tb = ((const struct ptw_view *)b)->trace;

	if (ta->cpu != tb->cpu)
		return ta->cpu < tb->cpu ? -1 : 1;
	if (ta->tid != tb->tid)
		return ta->tid < tb->tid ? -1 : 1;
	/* qsort() isn't stable; one array, so order by place */
	return ta < tb ? -1 : ta > tb;
}

static void add_view(struct trace_source *source, const struct ptw_recorded_trace *trace)
{
	const struct ptw_recording *recording = source->recording;
	struct ptw_view *view = &source->view[source->count++];

	*view = (struct ptw_view){
		.recording = recording,
		.trace = trace,
		.params = recording ? &recording->params : &source->options->params,
		.image = recording ? &recording->image : &source->options->image,
		.symbols = recording ? recording->symbols : source->raw_symbols,
		/* What a recording can't find it decodes without; what was named by hand has to be there. */
		.all_code = !recording,
		.beyond_alarm = source->options->all,
		.threads = source->options->jobs,
		.on_gap = on_gap,
		.context = source,
	};
	start_progress(source, view);
}

static void say_which(const struct trace_source *source)
{
	size_t i;

	fprintf(stderr, "ptwatch %s: only what the alarm froze, cpu", source->options->verb);
	for (i = 0; i < source->count; i++)
		fprintf(stderr, "%s %d", i ? "," : "", source->view[i].trace->cpu);
	fprintf(stderr, "; -C chooses others\n");
}

static int nothing_chosen(const struct trace_source *source, struct ptw_error *err)
{
	const struct ptw_recording *recording = source->recording;
	const struct trace_options *options = source->options;
	char cpus[512] = "";
	size_t i, used = 0;

	for (i = 0; i < recording->trace_count && used < sizeof(cpus) - 16; i++)
		if (recording->trace[i].cpu >= 0)
			used += snprintf(cpus + used, sizeof(cpus) - used, "%s%d", used ? "," : "",
					 recording->trace[i].cpu);
	if (!options->cpus)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: no Intel PT trace in it", options->input);
	if (!used)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s: -C %s: its traces are of threads, not of CPUs", options->input,
				     options->cpus_text);
	return ptw_error_set(err, PTW_EXIT_FAILED,
			     "%s: -C %s: no Intel PT trace of that in it; there are those of CPU %s%s",
			     options->input, options->cpus_text, cpus,
			     i < recording->trace_count ? ",…" : "");
}

/* All of the recording; those of -C; or, where alarms froze traces, these. */
static int choose_traces(struct trace_source *source, struct ptw_error *err)
{
	const struct ptw_recording *recording = source->recording;
	const struct trace_options *options = source->options;
	bool frozen = false;
	size_t i;

	for (i = 0; i < recording->trace_count && !options->cpus; i++)
		frozen = frozen || alarm_froze(recording, &recording->trace[i]);

	for (i = 0; i < recording->trace_count; i++) {
		const struct ptw_recorded_trace *trace = &recording->trace[i];

		if (options->cpus ? cpu_chosen(options, trace->cpu)
				  : !frozen || alarm_froze(recording, trace))
			add_view(source, trace);
	}
	if (!source->count)
		return nothing_chosen(source, err);
	qsort(source->view, source->count, sizeof(*source->view), by_cpu);
	if (frozen && source->count < recording->trace_count)
		say_which(source);
	return 0;
}

/* Find the point in each selected trace at which its last alarm hit. */
static int find_alarms(struct trace_source *source)
{
	const struct ptw_recording *recording = source->recording;
	struct ptw_error err;
	size_t i, j;

	for (i = 0; recording && i < source->count; i++) {
		struct ptw_view *view = &source->view[i];

		for (j = recording->alarm_count; j-- > 0 && !view->alarm; ) {
			if (!recording->alarm[j].have_trace ||
			    (int32_t)recording->alarm[j].cpu != view->trace->cpu)
				continue;
			view->alarm = &recording->alarm[j];
			/* The module's number, as in the kernel's log; where there is none, its place. */
			view->alarm_number = view->alarm->seq ? view->alarm->seq : j + 1;
		}
		if (!view->alarm)
			continue;
		if (ptw_alarm_point_find(recording, view->alarm, &view->point, &err))
			return cli_error(source->options->verb, &err);
		if (!view->point.found)
			fprintf(stderr,
				"ptwatch %s: cpu %d: the access of alarm #%" PRIu64 " is not in the trace\n",
				source->options->verb, view->trace->cpu, view->alarm_number);
	}
	return PTW_EXIT_OK;
}

static void close_source(struct trace_source *source)
{
	free(source->view);
	ptw_symbols_free(source->raw_symbols);
	if (source->recording)
		ptw_recording_close(source->recording);
	if (source->raw.data)
		munmap((void *)source->raw.data, source->raw.size);
}

/* Open what @options name and choose the traces. */
static int open_source(struct trace_source *source, const struct trace_options *options)
{
	struct ptw_error err;
	size_t count = 1;
	int ret;

	*source = (struct trace_source){ .options = options };
	if (options->raw) {
		ret = check_images(&options->image, &err) || map_raw(source, &err) ? -1 : 0;
		if (!ret)
			load_raw_symbols(source);
	} else {
		source->recording = ptw_recording_open(options->input, &err);
		ret = source->recording ? 0 : -1;
		count = source->recording ? source->recording->trace_count : 0;
	}
	if (!ret) {
		source->view = calloc(count ? count : 1, sizeof(*source->view));
		if (!source->view)
			ret = ptw_error_set(&err, PTW_EXIT_FAILED, "out of memory");
	}
	if (!ret && options->raw)
		add_view(source, &source->raw);
	else if (!ret)
		ret = choose_traces(source, &err);
	if (ret) {
		close_source(source);
		return cli_error(options->verb, &err);
	}
	if (source->recording && source->recording->incomplete) {
		fprintf(stderr, "ptwatch %s: %s\n", options->verb, source->recording->incomplete);
		source->gaps++;
	}
	return PTW_EXIT_OK;
}

/* Flush @out. Return: the exit status of the verb; with @failed the report failed with @err. */
static int finish(struct trace_source *source, struct ptw_out *out, bool failed, const struct ptw_error *err)
{
	struct ptw_error write_error;

	say_rest(source);
	if (ptw_out_flush(out)) {
		/* Whoever read it has seen enough; other tools die of SIGPIPE then, without a word. */
		if (out->error == EPIPE)
			return PTW_EXIT_FAILED;
		ptw_error_set(&write_error, PTW_EXIT_FAILED, "writing the output: %s", strerror(out->error));
		return cli_error(source->options->verb, &write_error);
	}
	if (failed)
		return cli_error(source->options->verb, err);
	return source->gaps ? PTW_EXIT_GAPS : PTW_EXIT_OK;
}

/* ---- where to ---- */

static ssize_t gz_write(void *cookie, const char *data, size_t size)
{
	int written = gzwrite(cookie, data, size > 1 << 20 ? 1 << 20 : size);

	return written > 0 ? written : 0;
}

static int gz_close(void *cookie)
{
	return gzclose(cookie) == Z_OK ? 0 : EOF;
}

/* The file of -o, compressed where its name asks for it; stdout without. */
static FILE *open_output(const struct trace_options *options, struct ptw_error *err)
{
	const cookie_io_functions_t functions = { .write = gz_write, .close = gz_close };
	size_t length = options->output ? strlen(options->output) : 0;
	FILE *file;
	gzFile gz;

	if (!options->output)
		return stdout;
	if (length > 3 && !strcmp(options->output + length - 3, ".gz")) {
		gz = gzopen(options->output, "wb6");
		file = gz ? fopencookie(gz, "w", functions) : NULL;
	} else {
		file = fopen(options->output, "we");
	}
	if (!file)
		ptw_error_set(err, PTW_EXIT_FAILED, "output %s: %s", options->output, strerror(errno));
	return file;
}

/* Half of a picture, or of JSON, is of no use to anyone. A device stays. */
static void remove_output(const char *path)
{
	struct stat st;

	if (!lstat(path, &st) && S_ISREG(st.st_mode))
		unlink(path);
}

static int run_opened(const struct trace_verb *verb, struct trace_source *source)
{
	static struct ptw_out out;
	FILE *file;
	struct ptw_error err;
	bool failed;
	int status;

	if (verb->follows_code) {
		if (!source->recording && check_readable(&source->options->image, &err))
			return cli_error(verb->name, &err);
		trace_source_missing_code(source);
		say_unclocked_code(source);
		status = find_alarms(source);
		if (status)
			return status;
	}
	file = verb->accept & ACCEPT_OUTPUT ? open_output(source->options, &err) : stdout;
	if (!file)
		return cli_error(verb->name, &err);
	ptw_out_init(&out, file, file == stdout && source->options->format == PTW_FORMAT_TEXT && cli_colour(stdout));
	failed = verb->report(source, &out, &err);
	status = finish(source, &out, failed, &err);
	if (file != stdout && fclose(file) && status != PTW_EXIT_FAILED) {
		ptw_error_set(&err, PTW_EXIT_FAILED, "output %s: %s", source->options->output, strerror(errno ? errno : EIO));
		status = cli_error(verb->name, &err);
	}
	if (file != stdout && status == PTW_EXIT_FAILED)
		remove_output(source->options->output);
	return status;
}

int trace_verb_run(const struct trace_verb *verb, int argc, char **argv)
{
	struct trace_options options;
	struct trace_source source;
	int status;

	status = trace_options_parse(&options, verb, argc, argv);
	if (!status && options.help) {
		verb->help();
		status = cli_flush(verb->name);
	} else if (!status) {
		status = open_source(&source, &options);
		if (!status) {
			status = run_opened(verb, &source);
			close_source(&source);
		}
	}
	trace_options_free(&options);
	return status;
}
