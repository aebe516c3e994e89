// SPDX-License-Identifier: BSD-2-Clause
/*
 * Writes a recording that stock perf opens.
 *
 * DIR/data is written front to back: the header and the attributes, the AUXTRACE_INFO record, then the kernel's records
 * and pieces of trace as they are added. The ids follow behind the features, because how many CPUs there are is known
 * only then. At the end the header and the attributes are written again, with the sizes and places of everything; until
 * then, or for ever where the recorder is killed, the size of the data is 0: it goes on to the end of the file.
 *
 * What is added is written at once, from where it lies: a trace of any length needs no memory but 16 bytes for each
 * piece, and its bytes are not copied on their way to write(2).
 */
#include "recording/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <linux/ptwatch.h>

#include "recording/file.h"
#include "recording/generated.h"
#include "recording/live_code.h"
#include "recording/kernel_copy.h"
#include "recording/perf_file.h"
#include "recording/processes.h"
#include "recording/record.h"
#include "recording/vdso.h"
#include "recording/writer.h"

#define SAMPLE_ID_TYPE	(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER)
/* Ids of events that exist here only: far from those the kernel gives out, which count from 1. */
#define PT_ID		(1ULL << 62)
#define DUMMY_ID	(1ULL << 61)
/* The attribute as of Linux 4.1: every perf knows it. */
#define ATTR_SIZE	PERF_ATTR_SIZE_VER5

/* IA32_RTIT_CTL bits and fields that the intel_pt PMU's config has at the same place */
#define CONFIG_FROM_CTL                                                                    \
	(PTWATCH_RTIT_CTL_CYCEN | PTWATCH_RTIT_CTL_MTCEN | PTWATCH_RTIT_CTL_TSCEN |        \
	 PTWATCH_RTIT_CTL_DISRETC | PTWATCH_RTIT_CTL_BRANCHEN | PTWATCH_RTIT_CTL_MTCFREQ | \
	 PTWATCH_RTIT_CTL_CYCTHRESH | PTWATCH_RTIT_CTL_PSBFREQ | 1ULL << 4 | 1ULL << 5 |   \
	 1ULL << 12 | 1ULL << 31 | 1ULL << 55)

/* A piece of trace is padded to whole ones of these. */
#define TRACE_ALIGN	8
/* 02 82, eight times: there and nowhere else a decoder can begin. */
#define PSB_SIZE	16

enum { EVENT_PT, EVENT_DUMMY, EVENTS };

struct ptw_recording_writer {
	char *path;		/* where the recording will be */
	char *temp;		/* where it is until then */
	char *data_path;
	int fd;			/* temp/data */
	uint64_t offset;	/* bytes written to it */
	uint64_t start;		/* where its records begin */
	struct ptw_trace_config config;
	struct ptw_kernel_layout kernel;
	bool have_kernel;
	uint32_t *cpu;		/* that have a trace, in the order of their first piece */
	size_t traces;
	struct perf_file_range *piece;	/* where each AUXTRACE record is, and that record's size */
	size_t pieces;
	uint64_t *sideband_id;	/* of the events that the kernel's records come from */
	size_t sideband_ids;
	struct perf_sample_id told_as;	/* ends records of processes that are told again; time 0: for the first time */
	bool damaged;		/* the file could not be put right after an error */
	bool kernel_told;	/* the records about the kernel's text are written */
	char *reserve;		/* a file that keeps room for the end; NULL: none */
	struct generated generated;
	struct live_code live;
	struct ptw_alarm *alarm;
	size_t alarms;
};

static int out_of_memory(struct ptw_error *err)
{
	return ptw_error_set(err, PTW_EXIT_FAILED, "recording: out of memory");
}

/* ---- the file ---- */

static int put(struct ptw_recording_writer *w, const void *data, size_t size, struct ptw_error *err)
{
	if (ptw_write_all(w->fd, data, size, w->data_path, err))
		return -1;
	w->offset += size;
	return 0;
}

/* Ids and time of zero mark a record that was made up rather than sampled. */
static int record_put(struct ptw_recording_writer *w, struct record *r, const struct perf_sample_id *id,
		      struct ptw_error *err)
{
	static const struct perf_sample_id none;

	if (r->header.type < PERF_USER_RECORD)
		record_add(r, id ? id : &none, sizeof(none));
	r->header.size = r->size;
	return put(w, r->data, r->size, err);
}

/* Undo what was written since the file was @offset bytes long: half a record is worse than none. */
static void rewind_to(struct ptw_recording_writer *w, uint64_t offset)
{
	w->offset = offset;
	if (ftruncate(w->fd, offset) || lseek(w->fd, offset, SEEK_SET) < 0)
		w->damaged = true;
}

static size_t event_ids(const struct ptw_recording_writer *w, size_t event)
{
	return event == EVENT_DUMMY && w->sideband_ids ? w->sideband_ids : w->traces;
}

static uint64_t event_id(const struct ptw_recording_writer *w, size_t event, size_t i)
{
	if (event == EVENT_PT)
		return PT_ID + i;
	return w->sideband_ids ? w->sideband_id[i] : DUMMY_ID + i;
}

/* ---- the directory ---- */

static char *join(const char *a, const char *b)
{
	char *path;

	return asprintf(&path, "%s%s", a, b) < 0 ? NULL : path;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static int remove_tree(const char *path)
{
	return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static bool is_recording(const char *path)
{
	uint64_t magic = 0;
	bool good = false;
	struct stat st;
	char *data;
	int fd;

	if (lstat(path, &st) || !S_ISDIR(st.st_mode))
		return false;
	data = join(path, "/data");
	fd = data ? open(data, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd >= 0) {
		good = pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == PERF_FILE_MAGIC;
		close(fd);
	}
	free(data);
	return good;
}

/* Nothing but a recording may be moved aside or removed. */
static int check_replaceable(const char *path, struct ptw_error *err)
{
	struct stat st;

	if (lstat(path, &st)) {
		if (errno == ENOENT)
			return 0;
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
	}
	if (is_recording(path))
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED,
			     "%s: exists and is not a recording; remove it or choose another name",
			     path);
}

static int check_target(const char *path, struct ptw_error *err)
{
	char *old = join(path, ".old");
	int ret;

	if (!old)
		return out_of_memory(err);
	ret = check_replaceable(path, err);
	/* Only if there will be something to move. */
	if (!ret && is_recording(path))
		ret = check_replaceable(old, err);
	free(old);
	return ret;
}

static void writer_free(struct ptw_recording_writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	ptw_kernel_layout_free(&w->kernel);
	generated_free(&w->generated);
	live_code_free(&w->live);
	free(w->cpu);
	free(w->piece);
	free(w->sideband_id);
	free(w->reserve);
	free(w->alarm);
	free(w->path);
	free(w->temp);
	free(w->data_path);
	free(w);
}

void ptw_recording_abort(struct ptw_recording_writer *writer)
{
	if (!writer)
		return;
	if (writer->temp)
		remove_tree(writer->temp);
	writer_free(writer);
}

/* ---- records ---- */

#define FILTER_PATH	1024
#define FILTER_TEXT	(PTW_ADDR_RANGES * (FILTER_PATH + 128))

/*
 * "filter 0xa/0x10,stop 0xb/0x20" as perf writes it. perf finds a range of user code by its file ("stop 0xc/0x20@/bin/x"),
 * which does not tell where the CPU had it: both are written, and read_filters() in reader.c takes the first.
 * @text: FILTER_TEXT bytes
 */
static void filter_text(const struct ptw_trace_config *c, char *text, size_t size)
{
	size_t used = 0;

	text[0] = 0;
	for (int i = 0; i < PTW_ADDR_RANGES; i++) {
		const struct ptw_addr_range *r = &c->params.addr[i];
		const struct ptw_range_file *file = &c->range_file[i];
		const char *kind = r->cfg == 1 ? "filter" : "stop";
		unsigned long long length = r->b - r->a + 1;

		if (r->cfg != 1 && r->cfg != 2)
			continue;
		used += snprintf(text + used, size - used, "%s%s 0x%llx/0x%llx", used ? "," : "", kind,
				 (unsigned long long)r->a, length);
		/* A space or comma would end the name. */
		if (file->path && strlen(file->path) < FILTER_PATH && !strpbrk(file->path, " ,"))
			used += snprintf(text + used, size - used, ",%s 0x%llx/0x%llx@%s", kind,
					 (unsigned long long)file->offset, length, file->path);
	}
}

static int put_auxtrace_info(struct ptw_recording_writer *w, struct ptw_error *err)
{
	const struct ptw_trace_config *c = &w->config;
	const struct ptw_pt_params *p = &c->params;
	char filters[FILTER_TEXT];
	struct record r;

	filter_text(c, filters, sizeof(filters));
	uint64_t priv[PT_INFO_COUNT] = {
		[PT_INFO_PMU_TYPE] = c->pt_pmu_type,
		/* Without a conversion, time is counted in TSC ticks: perf divides by the multiplier. */
		[PT_INFO_TIME_SHIFT] = p->have_time ? p->time_shift : 0,
		[PT_INFO_TIME_MULT] = p->have_time ? p->time_mult : 1,
		[PT_INFO_TIME_ZERO] = p->have_time ? p->time_zero : 0,
		[PT_INFO_HAVE_TIME] = p->have_time,
		[PT_INFO_TSC_BIT] = PTWATCH_RTIT_CTL_TSCEN,
		[PT_INFO_NORETCOMP_BIT] = PTWATCH_RTIT_CTL_DISRETC,
		[PT_INFO_HAVE_SWITCH] = c->switches ? PT_SWITCHES_CPU_WIDE : 0,
		[PT_INFO_SNAPSHOT] = !c->stream,
		[PT_INFO_PER_CPU] = 1,
		[PT_INFO_MTC_BIT] = PTWATCH_RTIT_CTL_MTCEN,
		[PT_INFO_MTC_FREQ_BITS] = PTWATCH_RTIT_CTL_MTCFREQ,
		[PT_INFO_TSC_CTC_N] = p->cpuid_0x15_ebx,
		[PT_INFO_TSC_CTC_D] = p->cpuid_0x15_eax,
		[PT_INFO_CYC_BIT] = PTWATCH_RTIT_CTL_CYCEN,
		[PT_INFO_MAX_RATIO] = p->nom_freq,
		[PT_INFO_FILTER_LENGTH] = strlen(filters),
	};
	record_begin(&r, PERF_USER_AUXTRACE_INFO, 0);
	record_u32(&r, PERF_AUXTRACE_INTEL_PT);
	record_u32(&r, 0);
	record_add(&r, priv, sizeof(priv));
	if (filters[0])
		record_string(&r, filters);
	/* whether the CPU has event trace */
	record_u64(&r, c->cpuid_14_0[1] >> 7 & 1);
	record_u64(&r, PT_INFO_OURS | (p->through ? PT_INFO_OURS_THROUGH : 0));
	return record_put(w, &r, NULL, err);
}

static int put_mmap(struct ptw_recording_writer *w, uint64_t addr, uint64_t size, uint64_t pgoff,
		    const char *name, struct ptw_error *err)
{
	struct record r;

	record_begin(&r, PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL);
	record_u32(&r, PERF_KERNEL_PID);
	record_u32(&r, 0);
	record_u64(&r, addr);
	record_u64(&r, size);
	record_u64(&r, pgoff);
	record_string(&r, name);
	return record_put(w, &r, NULL, err);
}

static int put_modules(struct ptw_recording_writer *w, const struct ptw_kernel_layout *k, struct ptw_error *err)
{
	for (size_t i = 0; i < k->modules; i++) {
		const struct ptw_kernel_module *m = &k->module[i];
		char name[72];

		snprintf(name, sizeof(name), "[%s]", m->name);
		if (put_mmap(w, m->addr, m->size, 0, name, err))
			return -1;
	}
	return 0;
}

static int put_kernel(struct ptw_recording_writer *w, struct ptw_error *err)
{
	const struct ptw_kernel_layout *k = &w->kernel;

	if (!w->have_kernel || w->kernel_told)
		return 0;
	w->kernel_told = true;
	/* The offset of this record is by convention the address of the symbol in the name. */
	if (put_mmap(w, k->text, k->etext - k->text, k->text, "[kernel.kallsyms]_text", err))
		return -1;
	return put_modules(w, k, err);
}

static int put_comm(struct ptw_recording_writer *w, uint32_t pid, uint32_t tid, const char *comm,
		    struct ptw_error *err)
{
	char name[17];
	struct record r;

	snprintf(name, sizeof(name), "%.16s", comm);
	record_begin(&r, PERF_RECORD_COMM, 0);
	record_u32(&r, pid);
	record_u32(&r, tid);
	record_string(&r, name);
	return record_put(w, &r, NULL, err);
}

/* Nobody recorded which thread ran: better no name than a wrong one. */
static int put_itrace_start(struct ptw_recording_writer *w, uint32_t cpu, uint64_t id, struct ptw_error *err)
{
	struct perf_sample_id sample = { .pid = -1, .tid = -1, .cpu = cpu, .id = id };
	struct record r;

	record_begin(&r, PERF_RECORD_ITRACE_START, 0);
	record_u32(&r, -1);
	record_u32(&r, -1);
	return record_put(w, &r, &sample, err);
}

static int put_threads(struct ptw_recording_writer *w, struct ptw_error *err)
{
	if (put_comm(w, 0, 0, "swapper", err))
		return -1;
	for (size_t i = 0; i < w->alarms; i++) {
		const struct ptw_alarm *a = &w->alarm[i];
		char comm[sizeof(a->comm) + 1];

		if (!a->pid)
			continue;
		snprintf(comm, sizeof(comm), "%.*s", (int)sizeof(a->comm), a->comm);
		if (put_comm(w, a->tgid, a->pid, comm, err))
			return -1;
	}
	/* Where switches are told, their own time is the better one. */
	for (size_t i = 0; i < w->traces && !w->config.switches; i++)
		if (put_itrace_start(w, w->cpu[i], event_id(w, EVENT_PT, i), err))
			return -1;
	return 0;
}

/* ---- features and attributes ---- */

struct buffer {
	uint8_t *data;
	size_t size;
	bool failed;
};

static void buffer_add(struct buffer *b, const void *data, size_t size)
{
	uint8_t *grown;

	if (!size)
		return;
	grown = b->failed ? NULL : realloc(b->data, b->size + size + 1);
	if (!grown) {
		b->failed = true;
		return;
	}
	b->data = grown;
	memcpy(b->data + b->size, data, size);
	b->size += size;
}

static void buffer_u32(struct buffer *b, uint32_t value)
{
	buffer_add(b, &value, sizeof(value));
}

static void buffer_u64(struct buffer *b, uint64_t value)
{
	buffer_add(b, &value, sizeof(value));
}

static void __attribute__((format(printf, 2, 3))) buffer_string(struct buffer *b, const char *format, ...)
{
	char text[512] = { 0 };
	va_list args;
	size_t size;

	va_start(args, format);
	vsnprintf(text, sizeof(text) - PERF_STRING_ALIGN, format, args);
	va_end(args);
	size = (strlen(text) + PERF_STRING_ALIGN) / PERF_STRING_ALIGN * PERF_STRING_ALIGN;
	buffer_u32(b, size);
	buffer_add(b, text, size);
}

static void make_attr(const struct ptw_recording_writer *w, size_t event, struct perf_event_attr *attr)
{
	uint64_t ctl = w->config.rtit_ctl;

	*attr = (struct perf_event_attr){
		.size = ATTR_SIZE,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_IP | SAMPLE_ID_TYPE,
		.read_format = PERF_FORMAT_ID,
		.disabled = 1,
		.inherit = 1,
		.sample_id_all = 1,
	};
	if (event == EVENT_PT) {
		attr->type = w->config.pt_pmu_type;
		attr->config = (ctl & CONFIG_FROM_CTL) | PT_CONFIG_PASS_THROUGH;
		attr->exclude_kernel = !(ctl & PTWATCH_RTIT_CTL_OS);
		attr->exclude_user = !(ctl & PTWATCH_RTIT_CTL_USER);
		attr->exclude_hv = attr->exclude_kernel;
		attr->exclude_guest = 1;
	} else {
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_DUMMY;
		attr->exclude_kernel = 1;
		attr->exclude_hv = 1;
		attr->mmap = attr->mmap2 = 1;
		attr->comm = attr->comm_exec = 1;
		attr->task = 1;
		/* As control/sideband.c asks for them */
		attr->ksymbol = attr->text_poke = attr->build_id = !!w->sideband_ids;
		attr->context_switch = w->sideband_ids && w->config.switches;
	}
}

static void event_name(const struct ptw_recording_writer *w, size_t event, char *name, size_t size)
{
	uint64_t ctl = w->config.rtit_ctl;
	const char *kernel = ctl & PTWATCH_RTIT_CTL_OS ? "k" : "",
		   *user = ctl & PTWATCH_RTIT_CTL_USER ? "u" : "";

	if (event == EVENT_PT)
		snprintf(name, size, "intel_pt//%s%s", kernel, user);
	else
		snprintf(name, size, "dummy:u");
}

static void feature(const struct ptw_recording_writer *w, unsigned int bit, struct buffer *b)
{
	const struct ptw_pt_params *p = &w->config.params;
	struct perf_event_attr attr;
	struct utsname uts;
	char name[32];

	uname(&uts);
	switch (bit) {
	case PERF_FEATURE_OSRELEASE:
		buffer_string(b, "%s", uts.release);
		break;
	case PERF_FEATURE_ARCH:
		buffer_string(b, "%s", "x86_64");
		break;
	case PERF_FEATURE_NRCPUS:
		buffer_u32(b, sysconf(_SC_NPROCESSORS_CONF));
		buffer_u32(b, sysconf(_SC_NPROCESSORS_ONLN));
		break;
	case PERF_FEATURE_CPUID:
		buffer_string(b, "GenuineIntel,%u,%u,%u", p->family, p->model, p->stepping);
		break;
	case PERF_FEATURE_EVENT_DESC:
		buffer_u32(b, EVENTS);
		buffer_u32(b, ATTR_SIZE);
		for (size_t event = 0; event < EVENTS; event++) {
			make_attr(w, event, &attr);
			buffer_add(b, &attr, ATTR_SIZE);
			buffer_u32(b, event_ids(w, event));
			event_name(w, event, name, sizeof(name));
			buffer_string(b, "%s", name);
			for (size_t i = 0; i < event_ids(w, event); i++)
				buffer_u64(b, event_id(w, event, i));
		}
		break;
	case PERF_FEATURE_PMU_MAPPINGS:
		buffer_u32(b, 2);
		buffer_u32(b, PERF_TYPE_SOFTWARE);
		buffer_string(b, "software");
		buffer_u32(b, w->config.pt_pmu_type);
		buffer_string(b, "intel_pt");
		break;
	case PERF_FEATURE_AUXTRACE:
		buffer_u64(b, w->pieces);
		buffer_add(b, w->piece, w->pieces * sizeof(*w->piece));
		break;
	}
}

/* The features @bits to the buffer, which is at @base of the file: their ranges to @range, and that they are there to @features */
static void add_features(const struct ptw_recording_writer *w, const uint8_t *bits, size_t count, uint64_t base, struct buffer *b,
			 struct perf_file_range *range, uint64_t features[4])
{
	for (size_t i = 0; i < count; i++) {
		size_t before = b->size;

		feature(w, bits[i], b);
		range[i] = (struct perf_file_range){ base + before, b->size - before };
		features[bits[i] / 64] |= 1ULL << bits[i] % 64;
	}
	while (b->size % 8)
		buffer_add(b, "", 1);
}

/* What can't be told later when it is missing */
static int put_early_features(struct ptw_recording_writer *w, struct ptw_error *err)
{
	static const uint8_t bits[] = { PERF_FEATURE_OSRELEASE, PERF_FEATURE_CPUID };
	struct perf_early_features early = { .magic = PERF_EARLY_MAGIC };
	struct perf_file_range range[sizeof(bits)];
	struct buffer b = { .size = 0 };
	uint64_t base = w->offset + sizeof(early) + sizeof(range);
	int ret;

	add_features(w, bits, sizeof(bits), base, &b, range, early.features);
	if (b.failed)
		ret = out_of_memory(err);
	else
		ret = put(w, &early, sizeof(early), err) || put(w, range, sizeof(range), err) ||
		      put(w, b.data, b.size, err) ? -1 : 0;
	free(b.data);
	return ret;
}

/*
 * The header and the attributes, at the front.
 * @ids: where the ids are; 0: they are not written yet, nor is all else that the header tells of
 */
static int write_front(struct ptw_recording_writer *w, const uint64_t *features, uint64_t data_size, uint64_t ids,
		       struct ptw_error *err)
{
	struct perf_file_head head = {
		.magic = PERF_FILE_MAGIC,
		.size = sizeof(head),
		.attr_size = ATTR_SIZE + sizeof(struct perf_file_range),
		.data = { w->start, data_size },
	};
	struct buffer b = { .size = 0 };
	int ret;

	head.attrs = (struct perf_file_range){ sizeof(head), EVENTS * head.attr_size };
	if (features)
		memcpy(head.features, features, sizeof(head.features));
	buffer_add(&b, &head, sizeof(head));
	for (size_t event = 0; event < EVENTS; event++) {
		struct perf_file_range id_range = { ids, ids ? event_ids(w, event) * sizeof(uint64_t) : 0 };
		struct perf_event_attr attr;

		make_attr(w, event, &attr);
		buffer_add(&b, &attr, ATTR_SIZE);
		buffer_add(&b, &id_range, sizeof(id_range));
		ids += id_range.size;
	}
	if (b.failed)
		ret = out_of_memory(err);
	else if (lseek(w->fd, 0, SEEK_SET))
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", w->data_path, strerror(errno));
	else
		ret = ptw_write_all(w->fd, b.data, b.size, w->data_path, err);
	if (!ret && w->offset < b.size)
		w->offset = b.size;
	free(b.data);
	if (!ret && lseek(w->fd, w->offset, SEEK_SET) < 0)
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", w->data_path, strerror(errno));
	return ret;
}

/* Everything in front of the data section. The header comes again, because only then it is known where that begins. */
static int put_front(struct ptw_recording_writer *w, struct ptw_error *err)
{
	if (write_front(w, NULL, 0, 0, err) || put_early_features(w, err))
		return -1;
	w->start = w->offset;
	return write_front(w, NULL, 0, 0, err);
}

/* Everything behind the data section, and the header. */
static int put_tail(struct ptw_recording_writer *w, struct ptw_error *err)
{
	static const uint8_t bits[] = {
		PERF_FEATURE_OSRELEASE, PERF_FEATURE_ARCH, PERF_FEATURE_NRCPUS, PERF_FEATURE_CPUID,
		PERF_FEATURE_EVENT_DESC, PERF_FEATURE_PMU_MAPPINGS, PERF_FEATURE_AUXTRACE,
	};
	struct perf_file_range range[sizeof(bits)];
	struct buffer b = { .size = 0 };
	uint64_t base = w->offset + sizeof(range), size = w->offset - w->start, features[4] = { 0 }, ids;
	int ret;

	add_features(w, bits, sizeof(bits), base, &b, range, features);
	ids = base + b.size;
	for (size_t event = 0; event < EVENTS; event++) {
		for (size_t i = 0; i < event_ids(w, event); i++)
			buffer_u64(&b, event_id(w, event, i));
	}
	if (b.failed)
		ret = out_of_memory(err);
	else
		ret = put(w, range, sizeof(range), err) || put(w, b.data, b.size, err) ? -1 : 0;
	free(b.data);
	return ret ? ret : write_front(w, features, size, ids, err);
}

static int write_alarms(struct ptw_recording_writer *w, struct ptw_error *err)
{
	char *path = join(w->temp, "/alarms.jsonl"), *text = NULL, *kallsyms = NULL;
	const struct ptw_alarm_names names = { .clock = &w->config.params };
	struct ptw_symbols *symbols = NULL;
	size_t size = 0;
	int ret = -1;
	FILE *out = open_memstream(&text, &size);

	if (!path || !out) {
		out_of_memory(err);
		goto out;
	}
	if (w->have_kernel && w->alarms) {
		kallsyms = join(w->temp, "/kcore_dir/kallsyms");
		symbols = ptw_symbols_new();
		/* Names are a courtesy: alarms are complete without. */
		if (!kallsyms || !symbols || ptw_symbols_load_kallsyms(symbols, kallsyms, NULL)) {
			ptw_symbols_free(symbols);
			symbols = NULL;
		}
	}
	for (size_t i = 0; i < w->alarms; i++) {
		if (ptw_alarm_write_json_named(out, &w->alarm[i], symbols, &names)) {
			out_of_memory(err);
			goto out;
		}
	}
	ret = fclose(out) ? out_of_memory(err) : ptw_write_file(path, text, size, err);
	out = NULL;
out:
	if (out)
		fclose(out);
	ptw_symbols_free(symbols);
	free(kallsyms);
	free(text);
	free(path);
	return ret;
}

/* ---- the interface ---- */

struct ptw_recording_writer *ptw_recording_create(const char *path, const struct ptw_trace_config *config,
						  struct ptw_error *err)
{
	struct ptw_recording_writer *w = calloc(1, sizeof(*w));
	size_t length = strlen(path);

	if (!w) {
		out_of_memory(err);
		return NULL;
	}
	w->fd = -1;
	w->generated.proc = "/proc";
	w->config = *config;
	while (length > 1 && path[length - 1] == '/')
		length--;
	w->path = strndup(path, length);
	if (!w->path) {
		out_of_memory(err);
		goto fail;
	}
	if (!length || !strcmp(w->path, "/")) {
		ptw_error_set(err, PTW_EXIT_USAGE, "\"%s\": not a name for a recording", path);
		goto fail;
	}
	if (check_target(w->path, err))
		goto fail;
	w->temp = join(w->path, ".XXXXXX");
	if (!w->temp) {
		out_of_memory(err);
		goto fail;
	}
	/* Kernel addresses and code: for the owner only, as mkdtemp() makes it. */
	if (!mkdtemp(w->temp)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: can't create a recording here: %s",
			      w->path, strerror(errno));
		free(w->temp);
		w->temp = NULL;
		goto fail;
	}
	w->data_path = join(w->temp, "/data");
	if (!w->data_path) {
		out_of_memory(err);
		goto fail;
	}
	w->fd = ptw_create_file(w->data_path, err);
	if (w->fd < 0 || put_front(w, err) || put_auxtrace_info(w, err))
		goto fail;
	return w;
fail:
	ptw_recording_abort(w);
	return NULL;
}

int ptw_recording_add_kernel_from(struct ptw_recording_writer *writer, const char *proc,
				  struct ptw_error *err)
{
	char *dir = join(writer->temp, "/kcore_dir");
	int ret;

	if (!dir)
		return out_of_memory(err);
	if (writer->have_kernel)
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "recording: the kernel's code was added already");
	else if (mkdir(dir, 0700))
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", dir, strerror(errno));
	else
		ret = ptw_kernel_copy(proc, dir, &writer->kernel, err);
	if (!ret)
		writer->have_kernel = true;
	if (!ret)
		ret = put_kernel(writer, err);
	else if (!writer->have_kernel)
		remove_tree(dir);	/* half of a kernel would mislead perf */
	free(dir);
	return ret;
}

void ptw_recording_set_proc(struct ptw_recording_writer *writer, const char *proc)
{
	writer->generated.proc = proc;
}

int ptw_recording_add_kernel(struct ptw_recording_writer *writer, struct ptw_error *err)
{
	return ptw_recording_add_kernel_from(writer, "/proc", err);
}

int ptw_recording_add_late_modules(struct ptw_recording_writer *writer, struct ptw_error *err)
{
	struct ptw_kernel_layout late;
	char *dir;
	int ret;

	if (!writer->have_kernel)
		return 0;
	dir = join(writer->temp, "/kcore_dir");
	if (!dir)
		return out_of_memory(err);
	ret = ptw_kernel_copy_late("/proc", dir, &writer->kernel, &late, err);
	free(dir);
	if (ret)
		return -1;
	ret = put_modules(writer, &late, err);
	/* What is known now need not be added again. */
	if (late.modules) {
		struct ptw_kernel_layout *known = &writer->kernel;
		struct ptw_kernel_module *grown =
			reallocarray(known->module, known->modules + late.modules, sizeof(*grown));

		if (grown) {
			memcpy(grown + known->modules, late.module, late.modules * sizeof(*grown));
			known->module = grown;
			known->modules += late.modules;
		} else if (!ret) {
			ret = out_of_memory(err);
		}
	}
	ptw_kernel_layout_free(&late);
	return ret;
}

int ptw_recording_set_sideband(struct ptw_recording_writer *writer, const uint64_t *ids, size_t count,
			       struct ptw_error *err)
{
	uint64_t *copy = reallocarray(writer->sideband_id, count + 1, sizeof(*ids));

	if (!copy)
		return out_of_memory(err);
	memcpy(copy, ids, count * sizeof(*ids));
	writer->sideband_id = copy;
	writer->sideband_ids = count;
	/* What the attributes say of these events */
	return write_front(writer, NULL, 0, 0, err);
}

/* With the time at which the kernel told of the code */
static void put_poke(void *arg, struct record *record, const struct record *like)
{
	struct ptw_recording_writer *w = arg;
	uint64_t start = w->offset;
	struct perf_sample_id id;

	if (like->size < sizeof(id))
		return;
	memcpy(&id, like->data + like->size - sizeof(id), sizeof(id));
	if (record_put(w, record, &id, NULL))
		rewind_to(w, start);
}

static int put_process_record(void *arg, struct record *record, struct ptw_error *err)
{
	struct ptw_recording_writer *w = arg;

	if (record_put(w, record, w->told_as.time ? &w->told_as : NULL, err))
		return -1;
	generated_look(&w->generated, record->data, record->size, NULL, 0, put_poke, w);
	return 0;
}

int ptw_recording_add_processes_from(struct ptw_recording_writer *writer, const char *proc, struct ptw_error *err)
{
	uint64_t start = writer->offset;

	if (!put_comm(writer, 0, 0, "swapper", err) &&
	    !ptw_processes_describe(proc, put_process_record, writer, err))
		return 0;
	rewind_to(writer, start);
	return -1;
}

int ptw_recording_add_processes(struct ptw_recording_writer *writer, struct ptw_error *err)
{
	vdso_copy(writer->temp);
	return ptw_recording_add_processes_from(writer, "/proc", err);
}

static void take_poke(void *arg, const struct record *record)
{
	struct ptw_recording_writer *w = arg;
	char *dir = join(w->temp, "/kcore_dir");

	if (dir)
		live_code_take(&w->live, dir, record);
	free(dir);
}

static int put_unheard_poke(void *arg, struct record *record, struct ptw_error *err)
{
	struct ptw_recording_writer *w = arg;

	return record_put(w, record, &w->told_as, err);
}

static int add_unheard_code(struct ptw_recording_writer *w, struct ptw_error *err)
{
	char *dir = join(w->temp, "/kcore_dir");
	int ret = dir ? live_code_compare(&w->live, w->generated.proc, dir, &w->kernel, put_unheard_poke, w, err) :
			out_of_memory(err);

	free(dir);
	return ret;
}

/* @lost: records that the kernel did not tell to be lost */
static int add_unheard(struct ptw_recording_writer *w, uint32_t cpu, uint64_t id, uint64_t lost, struct ptw_error *err)
{
	const struct ptw_pt_params *p = &w->config.params;
	struct perf_sample_id told_as = {
		.pid = -1, .tid = -1, .cpu = cpu, .id = id,
		.time = p->have_time ? ptw_tsc_to_ns(p, __builtin_ia32_rdtsc()) : 0,
	};
	uint64_t start = w->offset;
	struct record r;
	int ret = 0;

	record_begin(&r, PERF_RECORD_LOST, 0);
	record_u64(&r, id);
	record_u64(&r, lost);
	w->told_as = told_as;
	if (lost)
		ret = record_put(w, &r, &told_as, err);
	if (!ret)
		ret = ptw_processes_describe("/proc", put_process_record, w, err);
	if (!ret && w->have_kernel)
		ret = add_unheard_code(w, err);
	w->told_as = (struct perf_sample_id){ 0 };
	if (ret)
		rewind_to(w, start);
	return ret;
}

int ptw_recording_add_unheard(struct ptw_recording_writer *writer, uint32_t cpu, uint64_t id, struct ptw_error *err)
{
	/* One, at least; nobody counted them. */
	return add_unheard(writer, cpu, id, 1, err);
}

int ptw_recording_add_missed(struct ptw_recording_writer *writer, uint32_t cpu, uint64_t id, struct ptw_error *err)
{
	return add_unheard(writer, cpu, id, 0, err);
}

int ptw_recording_add_records(struct ptw_recording_writer *writer, const void *first, size_t first_size,
			      const void *second, size_t second_size, struct ptw_error *err)
{
	uint64_t start = writer->offset;

	if (!put(writer, first, first_size, err) && !put(writer, second, second_size, err)) {
		generated_look(&writer->generated, first, first_size, second, second_size, put_poke, writer);
		if (writer->have_kernel)
			generated_pokes(first, first_size, second, second_size, take_poke, writer);
		return 0;
	}
	rewind_to(writer, start);
	return -1;
}

int ptw_recording_add_side(struct ptw_recording_writer *writer, const struct ptw_side_event *event, const void *record,
			   size_t size, struct ptw_error *err)
{
	/* Who arrives tells of it. */
	bool arrival = event->type == PTW_SIDE_SWITCH && !event->out;
	struct perf_sample_id id = {
		.pid = arrival ? event->other_pid : event->pid, .tid = arrival ? event->other_tid : event->tid,
		.time = event->time, .cpu = event->cpu, .id = writer->sideband_ids ? writer->sideband_id[0] : 0,
	};
	struct record r;

	if (size + sizeof(id) > RECORD_MAX)
		return 0;
	memcpy(r.data, record, size);
	r.size = size;
	return record_put(writer, &r, &id, err);
}

void ptw_recording_add_copy(struct ptw_recording_writer *writer, const char *path)
{
	const char *name = strrchr(path, '/');
	char *to = name ? join(writer->temp, name) : NULL;

	if (to)
		generated_copy_file(path, to);
	free(to);
}

/* One half of a switch, as the kernel writes it */
struct switch_record {
	struct perf_event_header header;
	uint32_t other_pid;
	uint32_t other_tid;
	struct perf_sample_id id;
};

static void make_switch(struct switch_record *r, const struct ptwatch_switch *s, uint64_t time, uint64_t id, bool out)
{
	*r = (struct switch_record){
		.header = { .type = PERF_RECORD_SWITCH_CPU_WIDE, .size = sizeof(*r) },
		.other_pid = out ? s->next_pid : s->prev_pid,
		.other_tid = out ? s->next_tid : s->prev_tid,
		.id = {
			.pid = out ? s->prev_pid : s->next_pid,
			.tid = out ? s->prev_tid : s->next_tid,
			.time = time,
			.cpu = s->cpu,
			.id = id,
		},
	};
	if (out)
		r->header.misc |= PERF_RECORD_MISC_SWITCH_OUT;
	if (out && s->flags & PTWATCH_SWITCH_PREEMPT)
		r->header.misc |= PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
}

int ptw_recording_add_switches(struct ptw_recording_writer *writer, const struct ptwatch_switch *switches,
			       size_t count, uint64_t id, struct ptw_error *err)
{
	const struct ptw_pt_params *p = &writer->config.params;
	uint64_t start = writer->offset;
	struct switch_record batch[256];
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		const struct ptwatch_switch *s = &switches[i];
		/* As what AUXTRACE_INFO says without a conversion: time is counted in ticks. */
		uint64_t time = p->have_time ? ptw_tsc_to_ns(p, s->tsc) : s->tsc;

		/*
		 * The module tells of a switch once, when it begins; where tracing starts, nobody leaves. When it is
		 * over is not known. Where the switch is in the trace, perf takes the thread's change from there, and
		 * waits there for the departure's record; an arrival's record that comes while it waits would make it
		 * wait for ever (intel_pt_context_switch_in()). So none is written.
		 */
		if (!(s->flags & PTWATCH_SWITCH_START))
			make_switch(&batch[used++], s, time, id, true);
		if (!writer->config.switch_traced || s->flags & PTWATCH_SWITCH_START)
			make_switch(&batch[used++], s, time, id, false);
		if (used + 2 <= sizeof(batch) / sizeof(batch[0]) && i + 1 < count)
			continue;
		if (put(writer, batch, used * sizeof(batch[0]), err)) {
			rewind_to(writer, start);
			return -1;
		}
		used = 0;
	}
	return 0;
}

int ptw_recording_end_round(struct ptw_recording_writer *writer, struct ptw_error *err)
{
	struct perf_event_header header = { .type = PERF_USER_FINISHED_ROUND, .size = sizeof(header) };
	uint64_t start = writer->offset;

	if (!put(writer, &header, sizeof(header), err))
		return 0;
	rewind_to(writer, start);
	return -1;
}

/* Return: the number of the CPU's trace; -1: no memory. */
static ssize_t find_trace(struct ptw_recording_writer *w, uint32_t cpu, struct ptw_error *err)
{
	uint32_t *grown;

	for (size_t i = 0; i < w->traces; i++)
		if (w->cpu[i] == cpu)
			return i;
	grown = reallocarray(w->cpu, w->traces + 1, sizeof(*grown));
	if (!grown)
		return out_of_memory(err);
	w->cpu = grown;
	w->cpu[w->traces] = cpu;
	return w->traces++;
}

/* After an error the file ends with as much of it as there was room for. */
static int put_trace(struct ptw_recording_writer *writer, uint32_t cpu, const void *first, size_t first_size,
		     const void *second, size_t second_size, struct ptw_error *err)
{
	static const uint8_t pad[TRACE_ALIGN];
	size_t size = first_size + second_size, padding = -size % sizeof(pad);
	uint64_t start = writer->offset;
	struct perf_auxtrace record = {
		.header = { .type = PERF_USER_AUXTRACE, .size = sizeof(record) },
		.size = size + padding,		/* zero bytes are PAD packets */
		.reference = writer->pieces + 1,
		.tid = -1,
		.cpu = cpu,
	};
	struct perf_file_range *grown = writer->piece;
	ssize_t trace;

	if (!size)
		return 0;
	trace = find_trace(writer, cpu, err);
	if (trace < 0)
		return -1;
	record.idx = trace;
	/* Doubling, without keeping a capacity: the array is exactly full at powers of two. */
	if (!(writer->pieces & (writer->pieces - 1)))
		grown = reallocarray(grown, writer->pieces ? writer->pieces * 2 : 1, sizeof(*grown));
	if (!grown)
		return out_of_memory(err);
	writer->piece = grown;
	if (put(writer, &record, sizeof(record), err) || put(writer, first, first_size, err) ||
	    put(writer, second, second_size, err) || put(writer, pad, padding, err))
		return -1;
	grown[writer->pieces++] = (struct perf_file_range){ start, sizeof(record) };
	return 0;
}

int ptw_recording_add_trace(struct ptw_recording_writer *writer, uint32_t cpu, const void *first,
			    size_t first_size, const void *second, size_t second_size,
			    struct ptw_error *err)
{
	uint64_t start = writer->offset;

	if (!put_trace(writer, cpu, first, first_size, second, second_size, err))
		return 0;
	rewind_to(writer, start);
	return -1;
}

/* ---- rings, of which the newest counts ---- */

static size_t ring_size(const struct ptw_ring_trace *ring)
{
	return ring->first_size + ring->second_size;
}

static uint8_t ring_byte(const struct ptw_ring_trace *ring, size_t at)
{
	return at < ring->first_size ? ring->first[at] : ring->second[at - ring->first_size];
}

static bool psb_at(const struct ptw_ring_trace *ring, size_t at)
{
	for (size_t i = 0; i < PSB_SIZE; i++)
		if (ring_byte(ring, at + i) != (i % 2 ? 0x82 : 0x02))
			return false;
	return true;
}

/* How many of the ring's newest bytes to keep, no more than @limit: the whole ring, or from a PSB on, or none. */
static size_t newest(const struct ptw_ring_trace *ring, size_t limit)
{
	size_t size = ring_size(ring);

	if (size <= limit)
		return size;
	for (size_t at = size - limit; at + PSB_SIZE <= size; at++)
		if (psb_at(ring, at))
			return size - at;
	return 0;
}

static int put_ring(struct ptw_recording_writer *w, struct ptw_ring_trace *ring, size_t limit, struct ptw_error *err)
{
	size_t kept = newest(ring, limit), cut = ring_size(ring) - kept;
	int ret;

	if (cut < ring->first_size)
		ret = put_trace(w, ring->cpu, ring->first + cut, ring->first_size - cut, ring->second, ring->second_size, err);
	else
		ret = put_trace(w, ring->cpu, ring->second + (cut - ring->first_size), kept, NULL, 0, err);
	if (!ret)
		ring->written = kept;
	return ret;
}

/* How large each ring may be for all to have room in @room */
static size_t share(const struct ptw_ring_trace *ring, size_t count, uint64_t room)
{
	size_t low = 0, high = 0;

	for (size_t i = 0; i < count; i++)
		if (ring_size(&ring[i]) > high)
			high = ring_size(&ring[i]);
	while (low < high) {
		size_t mid = low + (high - low + 1) / 2;
		uint64_t sum = 0;

		for (size_t i = 0; i < count; i++)
			sum += (ring_size(&ring[i]) < mid ? ring_size(&ring[i]) : mid) + sizeof(struct perf_auxtrace) + TRACE_ALIGN;
		if (sum <= room)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

static int put_rings(struct ptw_recording_writer *w, struct ptw_ring_trace *ring, size_t count, size_t limit,
		     struct ptw_error *err)
{
	for (size_t i = 0; i < count; i++)
		ring[i].written = 0;
	for (size_t i = 0; i < count; i++)
		if (put_ring(w, &ring[i], limit, err))
			return -1;
	return 0;
}

int ptw_recording_add_rings(struct ptw_recording_writer *writer, struct ptw_ring_trace *ring, size_t count,
			    struct ptw_error *err)
{
	uint64_t start = writer->offset;
	size_t pieces = writer->pieces, traces = writer->traces, limit = SIZE_MAX, less;
	struct ptw_error again;

	if (!put_rings(writer, ring, count, limit, err))
		return 0;
	/* How far it came is how much room there is; who else writes to the disk may take of it before the next attempt. */
	do {
		off_t end = lseek(writer->fd, 0, SEEK_CUR);

		rewind_to(writer, start);
		writer->pieces = pieces;
		writer->traces = traces;
		less = end > (off_t)start ? share(ring, count, end - start) : 0;
		limit = less < limit ? less : limit / 2;
	} while (limit >= PSB_SIZE && put_rings(writer, ring, count, limit, &again));
	if (limit < PSB_SIZE)
		for (size_t i = 0; i < count; i++)
			ring[i].written = 0;
	return -1;
}

int ptw_recording_add_loss(struct ptw_recording_writer *writer, uint32_t cpu, uint64_t bytes, uint64_t time,
			   struct ptw_error *err)
{
	struct perf_sample_id id = { .pid = -1, .tid = -1, .time = time, .cpu = cpu };
	ssize_t trace = find_trace(writer, cpu, err);
	uint64_t start = writer->offset;
	struct record r;

	if (trace < 0)
		return -1;
	id.id = event_id(writer, EVENT_PT, trace);
	record_begin(&r, PERF_RECORD_AUX, 0);
	record_u64(&r, 0);
	record_u64(&r, bytes);
	record_u64(&r, PERF_AUX_FLAG_TRUNCATED);
	if (!record_put(writer, &r, &id, err))
		return 0;
	rewind_to(writer, start);
	return -1;
}

int ptw_recording_reserve(struct ptw_recording_writer *writer, size_t size, struct ptw_error *err)
{
	char *path = writer->reserve ? writer->reserve : join(writer->temp, "/reserve");
	int fd, error;

	if (!path)
		return out_of_memory(err);
	/* One that is there becomes another size: nobody shall take the room in between. */
	fd = writer->reserve ? open(path, O_RDWR | O_CLOEXEC) : ptw_create_file(path, err);
	if (fd < 0 && writer->reserve)
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
	writer->reserve = path;
	if (fd < 0) {
		ptw_recording_release(writer);
		return -1;
	}
	error = ftruncate(fd, size) ? errno : posix_fallocate(fd, 0, size);
	close(fd);
	if (!error)
		return 0;
	ptw_recording_release(writer);
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s: no room for a recording: %s; free some space or record elsewhere",
			     writer->path, strerror(error));
}

void ptw_recording_release(struct ptw_recording_writer *writer)
{
	if (writer->reserve)
		unlink(writer->reserve);
	free(writer->reserve);
	writer->reserve = NULL;
}

uint64_t ptw_recording_size(const struct ptw_recording_writer *writer)
{
	return writer->offset;
}

int ptw_recording_add_alarm(struct ptw_recording_writer *writer, const struct ptw_alarm *alarm,
			    struct ptw_error *err)
{
	struct ptw_alarm *grown = reallocarray(writer->alarm, writer->alarms + 1, sizeof(*grown));

	if (!grown)
		return out_of_memory(err);
	writer->alarm = grown;
	writer->alarm[writer->alarms++] = *alarm;
	return 0;
}

static int finish_data(struct ptw_recording_writer *w, struct ptw_error *err)
{
	int fd;

	if (w->damaged)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: can't be put right after an error; nothing was kept",
				     w->data_path);
	ptw_recording_release(w);
	if (put_kernel(w, err) || put_threads(w, err) || put_tail(w, err) || write_alarms(w, err))
		return -1;
	fd = w->fd;
	w->fd = -1;
	return ptw_close_file(fd, w->data_path, err);
}

static int move_into_place(struct ptw_recording_writer *w, struct ptw_error *err)
{
	char *old = join(w->path, ".old");
	bool moved = false;
	int ret = -1;

	if (!old)
		return out_of_memory(err);
	/* Things may have changed since it was created. */
	if (check_target(w->path, err))
		goto out;
	if (is_recording(w->path)) {
		if (is_recording(old) && remove_tree(old)) {
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: can't remove: %s", old, strerror(errno));
			goto out;
		}
		if (rename(w->path, old)) {
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: can't move to %s: %s", w->path,
				      old, strerror(errno));
			goto out;
		}
		moved = true;
	}
	ret = rename(w->temp, w->path);
	if (ret) {
		int error = errno;
		bool stuck = moved && rename(old, w->path);

		ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s%s%s", w->path, strerror(error),
			      stuck ? "; the previous recording is now " : "", stuck ? old : "");
	}
out:
	free(old);
	return ret;
}

int ptw_recording_finish(struct ptw_recording_writer *writer, struct ptw_error *err)
{
	generated_copy(&writer->generated, writer->temp);
	if (finish_data(writer, err) || move_into_place(writer, err)) {
		ptw_recording_abort(writer);
		return -1;
	}
	writer_free(writer);
	return 0;
}
