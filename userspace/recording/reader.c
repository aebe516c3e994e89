// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads recordings: our own, and perf.data files and directories of stock perf.
 *
 * The file is mapped and never trusted: every offset and length is checked against what is really there
 * before it is followed, and every error names the offset at fault.
 */
#include "recording/recording.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/unaligned.h"
#include "recording/alarm.h"
#include "recording/binary.h"
#include "recording/file.h"
#include "recording/perf_file.h"
#include "recording/room.h"
#include "recording/sideband.h"
#include "recording/spool.h"

#define WHAT_WE_READ "-i takes the directory that `ptwatch record -o` or `ptwatch watch --freeze -o` wrote, or a perf.data"

/* A file up to this size has its pieces of trace joined in memory, a larger one in another file. */
#define JOIN_IN_MEMORY	(64u << 20)
#define TRACE_LIMIT	65536		/* CPUs or threads */
#define CHUNK_LIMIT	(1U << 22)	/* AUXTRACE records */
/*
 * So many mappings become sections of the image, of each file the latest: for finding functions by their names, and for those
 * of whom nothing is known. What each process has is told by the records in their order (flow/code.c).
 */
#define MAP_LIMIT	(1U << 18)
#define MAPS_OF_FILE	64
#define NAMES_LIMIT	(4u << 20)	/* bytes of file names in plain memory */
#define BUILD_ID	20		/* bytes, at most */
/* perf_event_header.misc of an entry in the list of build ids, and of an mmap2 record that carries one */
#define BUILD_ID_HAS_SIZE	(1U << 15)
#define MMAP2_HAS_BUILD_ID	(1U << 14)

/* A piece of AUX data and the stream it belongs to */
struct chunk {
	int32_t cpu;
	int32_t tid;
	uint32_t stream;	/* index in ptw_recording.trace */
	uint64_t offset;	/* in the file */
	uint64_t size;
};

/* Executable code of a file, from an mmap record */
struct mapping {
	uint64_t addr;
	uint64_t size;
	uint64_t pgoff;
	uint64_t at;		/* offset of the record */
	const char *path;	/* among the names */
	uint8_t id[BUILD_ID];
	uint8_t id_size;	/* 0: the record has no build id */
};

/* Names of files, each once: the records are far apart, and who compares names needs no more of the file in memory. */
struct file_name {
	uint32_t mappings;	/* of the file, so far */
	uint32_t mapping[MAPS_OF_FILE];	/* where the latest ones are, in turn */
	char text[];
};

struct names {
	struct ptw_room room;
	struct file_name **slot;	/* a hash */
	size_t slots, count;
};

/* The id of an event, and what its records end with */
struct event_id {
	uint64_t id;
	struct ptw_sample_id_layout sample_id;
};

/* A file's build id from the header's list */
struct build_id {
	const char *path;	/* in the mapped file */
	const uint8_t *id;
	uint8_t size;
};

/* Where a mapped file was found */
struct binary {
	const char *name;	/* among the names */
	uint8_t id[BUILD_ID];	/* of the record */
	size_t id_size;		/* 0: it has none */
	char *path;		/* NULL: nowhere */
	char *gap, *advice;	/* … and what is said of that */
	bool advised;
};

struct reader {
	char *path;		/* of the perf.data file */
	char *dir;		/* the directory around it; NULL: a plain file */
	const uint8_t *map;
	uint64_t size;
	time_t time;		/* when it was last written */
	struct perf_file_head head;
	struct chunk *chunk;
	size_t chunks;
	struct mapping *mapping;
	size_t mappings;
	struct names names;
	struct build_id *build_id;	/* sorted by path */
	size_t build_ids;
	struct binary *binary;		/* sorted by name and id */
	size_t binaries;
	uint8_t **joined;	/* a copy for each stream of several chunks, else NULL */
	size_t *joined_size;	/* of those in a temporary file; else 0 */
	size_t joined_count;
	uint64_t kernel_text;	/* address of _text; 0: no record told */
	char release[128];
	const uint8_t *info;	/* the AUXTRACE_INFO record */
	size_t info_size;
	/* What records end with: of all events, or of the first, and what others' do is told by the ids, in their order */
	struct ptw_sample_id_layout sample_id;
	struct event_id *event_id;
	size_t event_ids;
	uint64_t pt_config;
	bool kernel_traced;
	bool unfinished;	/* nobody wrote how long it is: it goes on to the end of the file */
	uint64_t cut_at;	/* where records or features should be that the file ends before; 0: it has all */
	uint64_t cut_ids;	/* where event ids should be that the file ends before; 0: none */
	struct ptw_spool side;	/* events, where they are many */
	struct ptw_error *err;
};

static int out_of_memory(struct reader *r)
{
	return ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: out of memory", r->path);
}

static int damaged(struct reader *r, uint64_t offset, const char *what)
{
	return ptw_error_set(r->err, PTW_EXIT_FAILED,
			     "%s: offset 0x%llx: %s; the file is damaged or incomplete", r->path,
			     (unsigned long long)offset, what);
}

/* Whether @size bytes at @offset are in the file */
static bool inside(const struct reader *r, uint64_t offset, uint64_t size)
{
	return offset <= r->size && size <= r->size - offset;
}

/* Whether records may end before their time */
static bool is_cut(const struct reader *r)
{
	return r->cut_at || r->unfinished;
}

static void *grow(void *array, size_t count, size_t size)
{
	/* Doubling, without keeping a capacity: arrays are exactly full at powers of two. */
	if (count & (count - 1))
		return array;
	return reallocarray(array, count ? count * 2 : 1, size);
}

/* ---- features and attributes ---- */

/* A feature's string: its padded length, then the text */
static int feature_string(struct reader *r, const struct perf_file_range *range, char *text, size_t size)
{
	uint32_t length;

	if (range->size < 4)
		return damaged(r, range->offset, "a feature is too short");
	length = get32(r->map + range->offset);
	if (length > range->size - 4)
		return damaged(r, range->offset, "a string leaves its feature");
	snprintf(text, size, "%.*s", (int)strnlen((const char *)r->map + range->offset + 4, length),
		 (const char *)r->map + range->offset + 4);
	return 0;
}

static void take_cpuid(struct ptw_pt_params *p, const char *text)
{
	unsigned int family, model, stepping;

	if (sscanf(text, "GenuineIntel,%u,%u,%u", &family, &model, &stepping) != 3 || family > UINT16_MAX ||
	    model > UINT8_MAX || stepping > UINT8_MAX)
		return;		/* the CPU stays unknown */
	p->family = family;
	p->model = model;
	p->stepping = stepping;
}

static int compare_build_ids(const void *a, const void *b)
{
	return strcmp(((const struct build_id *)a)->path, ((const struct build_id *)b)->path);
}

/* Records of: header, process, 20 bytes of id and one that tells how many of them count, file name */
static int take_build_ids(struct reader *r, const struct perf_file_range *range)
{
	const size_t fixed = sizeof(struct perf_event_header) + 28;
	uint64_t at = range->offset, end = at + range->size;

	while (at < end) {
		const uint8_t *p = r->map + at;
		struct perf_event_header h;
		struct build_id *grown;
		const char *path;

		if (end - at < fixed)
			return damaged(r, at, "the list of build ids is cut off");
		memcpy(&h, p, sizeof(h));
		path = (const char *)p + fixed;
		if (h.size <= fixed || h.size > end - at || strnlen(path, h.size - fixed) == h.size - fixed)
			return damaged(r, at, "impossible size of a build id");
		grown = grow(r->build_id, r->build_ids, sizeof(*grown));
		if (!grown)
			return out_of_memory(r);
		r->build_id = grown;
		r->build_id[r->build_ids++] = (struct build_id){
			.path = path,
			.id = p + 12,
			.size = h.misc & BUILD_ID_HAS_SIZE && p[32] <= 20 ? p[32] : 20,
		};
		at += h.size;
	}
	if (r->build_ids)
		qsort(r->build_id, r->build_ids, sizeof(*r->build_id), compare_build_ids);
	return 0;
}

/* The features in the bitmap @wanted, whose ranges are at @table */
static int take_features(struct reader *r, struct ptw_pt_params *p, const uint64_t *wanted, uint64_t table)
{
	for (unsigned int bit = 0; bit < PERF_FEATURES; bit++) {
		struct perf_file_range range;
		char text[128];

		if (!(wanted[bit / 64] >> bit % 64 & 1))
			continue;
		/* They come last: where the file ends before, all else is there. */
		if (!inside(r, table, sizeof(range))) {
			r->cut_at = table + sizeof(range);
			break;
		}
		memcpy(&range, r->map + table, sizeof(range));
		if (!inside(r, range.offset, range.size)) {
			r->cut_at = range.offset > r->size ? range.offset : r->size;
			break;
		}
		table += sizeof(range);
		switch (bit) {
		case PERF_FEATURE_OSRELEASE:
			if (feature_string(r, &range, r->release, sizeof(r->release)))
				return -1;
			break;
		case PERF_FEATURE_CPUID:
			if (feature_string(r, &range, text, sizeof(text)))
				return -1;
			take_cpuid(p, text);
			break;
		case PERF_FEATURE_BUILD_ID:
			if (take_build_ids(r, &range))
				return -1;
			break;
		case PERF_FEATURE_COMPRESSED:
			return ptw_error_set(r->err, PTW_EXIT_FAILED,
					     "%s: recorded with -z, and compressed records are not "
					     "read; record without -z",
					     r->path);
		}
	}
	return 0;
}

static int read_features(struct reader *r, struct ptw_pt_params *p)
{
	uint64_t early_at = r->head.attrs.offset + r->head.attrs.size, cut_at;
	struct perf_early_features early;

	/* The data section was checked with the header: it lies inside the file. */
	if (!is_cut(r) && take_features(r, p, r->head.features, r->head.data.offset + r->head.data.size))
		return -1;
	if (!is_cut(r) || !inside(r, early_at, sizeof(early)))
		return 0;
	memcpy(&early, r->map + early_at, sizeof(early));
	if (early.magic != PERF_EARLY_MAGIC)
		return 0;
	cut_at = r->cut_at;
	if (take_features(r, p, early.features, early_at + sizeof(early)))
		return -1;
	r->cut_at = cut_at;
	return 0;
}

static void get_attr(const struct reader *r, uint64_t i, struct perf_event_attr *attr, struct perf_file_range *ids)
{
	const uint8_t *p = r->map + r->head.attrs.offset + i * r->head.attr_size;
	size_t size = r->head.attr_size - sizeof(*ids);

	/* Older files hold shorter ones; what a newer one adds is of no interest here. */
	memset(attr, 0, sizeof(*attr));
	memcpy(attr, p, size < sizeof(*attr) ? size : sizeof(*attr));
	memcpy(ids, p + size, sizeof(*ids));
}

static struct ptw_sample_id_layout layout_by(const struct perf_event_attr *attr)
{
	return attr->sample_id_all ? ptw_side_layout(attr->sample_type) : (struct ptw_sample_id_layout){ 0 };
}

static int compare_ids(const void *a, const void *b)
{
	const struct event_id *ia = a, *ib = b;

	return ia->id < ib->id ? -1 : ia->id > ib->id;
}

static int read_event_ids(struct reader *r, uint64_t attrs)
{
	uint64_t total = 0, room = r->size / sizeof(uint64_t);
	struct perf_event_attr attr;
	struct perf_file_range ids;

	for (uint64_t i = 0; i < attrs; i++) {
		get_attr(r, i, &attr, &ids);
		if (inside(r, ids.offset, ids.size))
			total += ids.size / sizeof(uint64_t);
		if (total > room)
			return damaged(r, ids.offset, "more event ids than the file has room for");
	}
	r->event_id = reallocarray(NULL, total ? total : 1, sizeof(*r->event_id));
	if (!r->event_id)
		return out_of_memory(r);
	for (uint64_t i = 0; i < attrs; i++) {
		get_attr(r, i, &attr, &ids);
		for (uint64_t n = 0; inside(r, ids.offset, ids.size) && n < ids.size / sizeof(uint64_t); n++)
			r->event_id[r->event_ids++] = (struct event_id){ get64(r->map + ids.offset + n * sizeof(uint64_t)),
									 layout_by(&attr) };
	}
	qsort(r->event_id, r->event_ids, sizeof(*r->event_id), compare_ids);
	return 0;
}

/*
 * How Intel PT was set up: the attribute of the event of the PMU of type @pmu, which AUXTRACE_INFO
 * has named
 */
static int read_attrs(struct reader *r, uint32_t pmu)
{
	uint64_t count = r->head.attrs.size / r->head.attr_size;
	bool found = false, agree = true, known = true;

	for (uint64_t i = 0; i < count; i++) {
		struct ptw_sample_id_layout layout;
		struct perf_event_attr attr;
		struct perf_file_range ids;

		get_attr(r, i, &attr, &ids);
		if (attr.type == pmu && !found) {
			r->pt_config = attr.config;
			r->kernel_traced = !attr.exclude_kernel;
			found = true;
		}
		layout = layout_by(&attr);
		/* perf gives all its events the same one, but for the changes of code of --kcore. */
		if (i == 0)
			r->sample_id = layout;
		agree = agree && !memcmp(&r->sample_id, &layout, sizeof(layout));
		known = known && attr.sample_id_all && attr.sample_type & PERF_SAMPLE_IDENTIFIER;
		/* perf needs the ids; and they are the last that is written. */
		if (ids.size && !inside(r, ids.offset, ids.size) && !r->cut_ids)
			r->cut_ids = ids.offset > r->size ? ids.offset : r->size;
	}
	if (!found)
		return damaged(r, r->head.attrs.offset, "no attribute of the Intel PT event");
	if (!agree && known)
		return read_event_ids(r, count);
	if (!agree)
		r->sample_id = (struct ptw_sample_id_layout){ 0 };
	return 0;
}

/* What the @size bytes of a record end with; what perf makes itself has the id 0, and is as the first event's are. */
static const struct ptw_sample_id_layout *layout_of(const struct reader *r, const uint8_t *record, size_t size)
{
	const struct event_id *found = NULL;
	struct event_id key;

	if (r->event_ids && size >= sizeof(struct perf_event_header) + sizeof(key.id)) {
		key.id = get64(record + size - sizeof(key.id));
		found = bsearch(&key, r->event_id, r->event_ids, sizeof(key), compare_ids);
	}
	return found ? &found->sample_id : &r->sample_id;
}

static int read_header(struct reader *r)
{
	static const uint64_t swapped = 0x50455246494c4532ULL;
	const struct perf_file_head *h = &r->head;
	uint64_t magic;

	if (r->size < sizeof(magic))
		return ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: not a recording (%llu bytes); " WHAT_WE_READ, r->path,
				     (unsigned long long)r->size);
	magic = get64(r->map);
	if (magic == swapped)
		return ptw_error_set(r->err, PTW_EXIT_FAILED,
				     "%s: recorded on a big-endian machine, which has no Intel PT",
				     r->path);
	if (magic != PERF_FILE_MAGIC)
		return ptw_error_set(
			r->err, PTW_EXIT_FAILED,
			"%s: not a recording or perf.data; raw trace bytes are read with --raw", r->path);
	if (r->size < 16)
		return damaged(r, 8, "the header is cut off");
	if (get64(r->map + 8) == 16)
		return ptw_error_set(
			r->err, PTW_EXIT_FAILED,
			"%s: written to a pipe, which is not read; record with -o FILE", r->path);
	if (r->size < sizeof(*h))
		return damaged(r, r->size, "the header is cut off");
	memcpy(&r->head, r->map, sizeof(r->head));
	if (h->size < sizeof(*h))
		return damaged(r, offsetof(struct perf_file_head, size), "impossible size of the header");
	if (h->attr_size < PERF_ATTR_SIZE_VER0 + sizeof(struct perf_file_range) || h->attr_size > 65536)
		return damaged(r, offsetof(struct perf_file_head, attr_size),
			       "impossible size of an attribute");
	if (!inside(r, h->attrs.offset, h->attrs.size))
		return damaged(r, offsetof(struct perf_file_head, attrs),
			       "the attributes lie outside the file");
	if (h->data.offset >= r->size || h->data.offset + h->data.size < h->data.offset)
		return damaged(r, offsetof(struct perf_file_head, data),
			       "the data section lies outside the file");
	/* What is there of it can be read, but what perf writes behind it can't. */
	if (!inside(r, h->data.offset, h->data.size)) {
		r->cut_at = h->data.offset + h->data.size;
		r->head.data.size = r->size - h->data.offset;
	}
	if (!h->data.size) {
		r->unfinished = true;
		r->head.data.size = r->size - h->data.offset;
	}
	return 0;
}

/* ---- records ---- */

static int take_chunk(struct reader *r, const struct perf_auxtrace *a, uint64_t at, uint64_t data)
{
	struct chunk *grown;

	if (!a->size)
		return 0;
	if (r->chunks == CHUNK_LIMIT)
		return damaged(r, at, "too many pieces of trace");
	grown = grow(r->chunk, r->chunks, sizeof(*grown));
	if (!grown)
		return out_of_memory(r);
	r->chunk = grown;
	/* A CPU's buffer also carries the thread it was opened for, which does not split the stream. */
	r->chunk[r->chunks++] = (struct chunk){
		.cpu = (int32_t)a->cpu, .tid = (int32_t)a->cpu == -1 ? (int32_t)a->tid : -1,
		.offset = data, .size = a->size,
	};
	return 0;
}

static uint32_t hash_name(const char *name)
{
	uint32_t h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return h ^ h >> 15;
}

static size_t name_slot(struct file_name *const *slot, size_t slots, const char *name)
{
	size_t h;

	for (h = hash_name(name) & (slots - 1); slot[h] && strcmp(slot[h]->text, name); h = (h + 1) & (slots - 1))
		;
	return h;
}

static struct file_name *keep_name(struct names *n, const char *name)
{
	size_t h, size = strlen(name) + 1;
	struct file_name *fresh;

	if (2 * n->count >= n->slots) {
		size_t slots = n->slots ? 2 * n->slots : 256;
		struct file_name **grown = ptw_room_alloc(&n->room, slots * sizeof(*grown));

		if (!grown)
			return NULL;
		for (size_t i = 0; i < n->slots; i++)
			if (n->slot[i])
				grown[name_slot(grown, slots, n->slot[i]->text)] = n->slot[i];
		ptw_room_give_back(&n->room, n->slot, n->slots * sizeof(*grown));
		n->slot = grown;
		n->slots = slots;
	}
	h = name_slot(n->slot, n->slots, name);
	if (n->slot[h])
		return n->slot[h];
	fresh = ptw_room_alloc(&n->room, sizeof(*fresh) + size);
	if (!fresh)
		return NULL;
	memcpy(fresh->text, name, size);
	n->count++;
	return n->slot[h] = fresh;
}

/* Where the next mapping of the file belongs: of many, in place of its oldest one */
static struct mapping *mapping_of(struct reader *r, struct file_name *file)
{
	uint32_t *at = &file->mapping[file->mappings % MAPS_OF_FILE];
	struct mapping *grown;

	if (file->mappings >= MAPS_OF_FILE) {
		file->mappings++;
		return &r->mapping[*at];
	}
	grown = grow(r->mapping, r->mappings, sizeof(*grown));
	if (!grown)
		return NULL;
	r->mapping = grown;
	*at = r->mappings++;
	file->mappings++;
	return &grown[*at];
}

/* mmap and mmap2 records; @fixed: bytes in front of the file name */
static int take_mapping(struct reader *r, const uint8_t *p, const struct perf_event_header *h,
			uint64_t at, size_t fixed)
{
	uint16_t mode = h->misc & PERF_RECORD_MISC_CPUMODE_MASK;
	struct mapping m, *place;
	struct file_name *file;
	const char *name;
	size_t room;

	if (h->size < fixed + 1)
		return damaged(r, at, "an mmap record is too short");
	name = (const char *)p + fixed;
	room = h->size - fixed;
	if (strnlen(name, room) == room)
		return damaged(r, at, "a file name does not end");
	m = (struct mapping){ .at = at, .addr = get64(p + 16), .size = get64(p + 24), .pgoff = get64(p + 32) };
	if (h->type == PERF_RECORD_MMAP2 && (h->misc & MMAP2_HAS_BUILD_ID) && p[40] <= BUILD_ID) {
		m.id_size = p[40];
		memcpy(m.id, p + 44, m.id_size);
	}
	if (mode == PERF_RECORD_MISC_KERNEL) {
		/* The record named after a symbol carries the symbol's address. */
		if (!strncmp(name, "[kernel.kallsyms]_", 18) && !r->kernel_text)
			r->kernel_text = m.pgoff;
		return 0;
	}
	name = ptw_binary_mapped(name, m.addr);
	if (mode != PERF_RECORD_MISC_USER || (h->misc & PERF_RECORD_MISC_MMAP_DATA) || !strncmp(name, "//", 2) ||
	    (name[0] != '/' && strcmp(name, PTW_VDSO)))
		return 0;
	if (h->type == PERF_RECORD_MMAP2 && !(get32(p + 64) & PROT_EXEC))
		return 0;
	if (!m.size || m.addr + m.size < m.addr || r->mappings == MAP_LIMIT)
		return 0;
	file = keep_name(&r->names, name);
	place = file ? mapping_of(r, file) : NULL;
	if (!place)
		return out_of_memory(r);
	m.path = file->text;
	*place = m;
	return 0;
}

static int compare_records(const void *pa, const void *pb)
{
	const struct mapping *a = pa, *b = pb;

	return a->at < b->at ? -1 : a->at > b->at;
}

/* This part of the file need not stay in memory. */
static void let_go(const struct reader *r, uint64_t from, uint64_t to)
{
	from &= ~4095ULL;
	madvise((void *)(r->map + from), to - from, MADV_DONTNEED);
}

/* Up to @at it was read; up to *@dropped it has been let go. */
static void read_to(const struct reader *r, uint64_t *dropped, uint64_t at)
{
	if (at - *dropped <= PTW_TRACE_AT_ONCE)
		return;
	let_go(r, *dropped, at);
	*dropped = at;
}

static int read_records(struct reader *r)
{
	uint64_t at = r->head.data.offset, end = at + r->head.data.size, dropped = at;

	while (at < end) {
		const uint8_t *p = r->map + at;
		struct perf_event_header h;
		struct perf_auxtrace a;

		if (end - at < sizeof(h) && is_cut(r))
			break;
		if (end - at < sizeof(h))
			return damaged(r, at, "a record is cut off");
		memcpy(&h, p, sizeof(h));
		/* Where power failed, a file may go on with zeros. */
		if (!h.size && r->unfinished)
			break;
		if (h.size < sizeof(h))
			return damaged(r, at, "impossible size of a record");
		if (h.size > end - at && is_cut(r))
			break;
		if (h.size > end - at)
			return damaged(r, at, "a record leaves the data section");
		switch (h.type) {
		case PERF_USER_AUXTRACE:
			if (h.size < sizeof(a))
				return damaged(r, at, "an AUXTRACE record is too short");
			memcpy(&a, p, sizeof(a));
			if (a.size > end - at - h.size && is_cut(r))
				a.size = end - at - h.size;
			if (a.size > end - at - h.size)
				return damaged(r, at, "trace data leaves the data section");
			if (take_chunk(r, &a, at, at + h.size))
				return -1;
			at += a.size;
			break;
		case PERF_USER_AUXTRACE_INFO:
			if (h.size < sizeof(struct perf_auxtrace_info))
				return damaged(r, at, "the AUXTRACE_INFO record is too short");
			if (!r->info) {
				r->info = p;
				r->info_size = h.size;
			}
			break;
		case PERF_USER_COMPRESSED:
		case PERF_USER_COMPRESSED2:
			return ptw_error_set(r->err, PTW_EXIT_FAILED,
					     "%s: recorded with -z, and compressed records are not "
					     "read; record without -z",
					     r->path);
		case PERF_RECORD_MMAP:
			if (take_mapping(r, p, &h, at, 40))
				return -1;
			break;
		case PERF_RECORD_MMAP2:
			if (take_mapping(r, p, &h, at, 72))
				return -1;
			break;
		}
		at += h.size;
		read_to(r, &dropped, at);
	}
	r->head.data.size = at - r->head.data.offset;
	if (r->mappings)
		qsort(r->mapping, r->mappings, sizeof(*r->mapping), compare_records);
	return 0;
}

/* ---- what the records mean ---- */

static int shift_of(uint64_t mask)
{
	return mask ? __builtin_ctzll(mask) : 0;
}

/* A user address filter is an offset in a file: where was that mapped? Return: false, not at all. */
static bool file_to_address(const struct reader *r, const char *file, uint64_t *addr)
{
	for (size_t i = 0; i < r->mappings; i++) {
		const struct mapping *m = &r->mapping[i];

		if (!strcmp(m->path, file) && *addr >= m->pgoff && *addr - m->pgoff < m->size) {
			*addr = m->addr + (*addr - m->pgoff);
			return true;
		}
	}
	return false;
}

/* One of "filter 0xa/0x10", "stop 0xb / 0x20@/bin/x". Return: false, it is none of these. */
static bool read_filter(const struct reader *r, char *text, struct ptw_addr_range *range)
{
	uint64_t start, size;
	char *end;

	text += strspn(text, " ");
	if (!strncmp(text, "filter ", 7))
		range->cfg = 1;
	else if (!strncmp(text, "stop ", 5))
		range->cfg = 2;
	else
		return false;
	text = strchr(text, ' ');
	errno = 0;
	start = strtoull(text, &end, 0);
	if (errno || end == text)
		return false;
	text = end + strspn(end, " ");
	if (*text++ != '/')
		return false;
	size = strtoull(text, &end, 0);
	if (errno || end == text || !size)
		return false;
	end += strspn(end, " ");
	if (*end == '@') {
		/* The code may never have been mapped; the range counts all the same. */
		if (!file_to_address(r, end + 1, &start)) {
			range->cfg = 0;
			return true;
		}
	} else if (*end) {
		return false;
	}
	range->a = start;
	range->b = start + size - 1;
	return range->b >= range->a;
}

/* perf programs the ranges in the order of its text; ours tell one of user code a second time, by its file, for perf. */
static int read_filters(struct reader *r, struct ptw_pt_params *p, const char *text)
{
	char copy[16384], *save = NULL, *item;
	uint64_t at = r->info - r->map;
	bool told = false, file;
	int n = 0;

	if (strlen(text) >= sizeof(copy))
		return damaged(r, at, "the address filters are too long");
	strcpy(copy, text);
	for (item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		file = strchr(item, '@');
		if (file && told) {
			told = false;
			continue;
		}
		if (n == PTW_ADDR_RANGES || !read_filter(r, item, &p->addr[n]))
			return damaged(r, at, "address filters that Intel PT does not have");
		told = !file && !(p->addr[n].a >> 63);
		n++;
	}
	return 0;
}

/* What perf does not write; 0: this is not ours, or older */
static uint64_t ours_of_info(const struct reader *r, uint64_t filters)
{
	uint64_t at = sizeof(struct perf_auxtrace_info) + PT_INFO_COUNT * sizeof(uint64_t), ours;

	if (filters >= r->info_size)
		return 0;
	at += filters ? (filters + 8) / 8 * 8 : 0;
	at += sizeof(uint64_t);
	if (at + sizeof(ours) > r->info_size)
		return 0;
	memcpy(&ours, r->info + at, sizeof(ours));
	return ours;
}

static int read_info(struct reader *r, struct ptw_pt_params *p)
{
	struct perf_auxtrace_info head;
	uint64_t priv[PT_INFO_COUNT] = { 0 }, at;
	size_t have;

	if (!r->info) {
		if (r->chunks)
			return damaged(r, r->head.data.offset, "trace data without an AUXTRACE_INFO record");
		if (is_cut(r))
			return damaged(r, r->size, "the file ends before it tells of any trace");
		return ptw_error_set(
			r->err, PTW_EXIT_FAILED,
			"%s: holds no Intel PT trace; record one with ptwatch, or with "
			"perf record -e intel_pt//",
			r->path);
	}
	at = r->info - r->map;
	memcpy(&head, r->info, sizeof(head));
	if (head.type != PERF_AUXTRACE_INTEL_PT)
		return ptw_error_set(r->err, PTW_EXIT_FAILED,
				     "%s: offset 0x%llx: its trace is of kind %u, not Intel PT; "
				     "record with -e intel_pt//",
				     r->path, (unsigned long long)at, head.type);
	have = (r->info_size - sizeof(head)) / sizeof(priv[0]);
	if (have <= PT_INFO_PER_CPU)
		return damaged(r, at, "the AUXTRACE_INFO record is too short");
	if (have > PT_INFO_COUNT)
		have = PT_INFO_COUNT;
	memcpy(priv, r->info + sizeof(head), have * sizeof(priv[0]));

	p->have_time = priv[PT_INFO_HAVE_TIME] && priv[PT_INFO_TIME_MULT];
	if (p->have_time) {
		if (priv[PT_INFO_TIME_SHIFT] > 63 || priv[PT_INFO_TIME_MULT] > UINT32_MAX)
			return damaged(r, at, "impossible time conversion");
		p->time_shift = priv[PT_INFO_TIME_SHIFT];
		p->time_mult = priv[PT_INFO_TIME_MULT];
		p->time_zero = priv[PT_INFO_TIME_ZERO];
	}
	if (priv[PT_INFO_TSC_CTC_N] > UINT32_MAX || priv[PT_INFO_TSC_CTC_D] > UINT32_MAX)
		return damaged(r, at, "impossible TSC to CTC ratio");
	p->cpuid_0x15_ebx = priv[PT_INFO_TSC_CTC_N];
	p->cpuid_0x15_eax = priv[PT_INFO_TSC_CTC_D];
	if (priv[PT_INFO_MAX_RATIO] <= UINT8_MAX)
		p->nom_freq = priv[PT_INFO_MAX_RATIO];
	if (priv[PT_INFO_PMU_TYPE] >= UINT32_MAX)
		return damaged(r, at, "impossible PMU type");
	if (read_attrs(r, priv[PT_INFO_PMU_TYPE]))
		return -1;
	if (r->pt_config & priv[PT_INFO_MTC_BIT])
		p->mtc_freq = (r->pt_config & priv[PT_INFO_MTC_FREQ_BITS]) >>
			      shift_of(priv[PT_INFO_MTC_FREQ_BITS]);
	p->through = ours_of_info(r, priv[PT_INFO_FILTER_LENGTH]) == (PT_INFO_OURS | PT_INFO_OURS_THROUGH);
	if (priv[PT_INFO_FILTER_LENGTH]) {
		const char *text = (const char *)r->info + sizeof(head) + sizeof(priv);
		size_t room = r->info_size - sizeof(head) - sizeof(priv);

		if (priv[PT_INFO_FILTER_LENGTH] >= room || text[priv[PT_INFO_FILTER_LENGTH]])
			return damaged(r, at, "the address filters leave their record");
		return read_filters(r, p, text);
	}
	return 0;
}

/* Older first; at equal times as in the file, which the records' places tell. */
static int compare_side(const void *pa, const void *pb)
{
	const struct ptw_side_event *a = pa, *b = pb;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return a->record < b->record ? -1 : a->record > b->record;
}

/* ---- events in order ---- */

/* So many events are sorted in memory; of more, such runs are merged, each of which is sorted. */
#define RUN		(1u << 18)
#define SPOOL_LIMIT	(1u << 20)

struct sorting {
	struct ptw_side_event *event;	/* the run under way */
	size_t events;
	bool sorted;
	struct ptw_spool runs;		/* one after the other, all but the last of RUN events */
};

static int no_room_for_events(struct reader *r)
{
	return ptw_error_set(r->err, PTW_EXIT_FAILED,
			     "%s: sorting its records: %s; so many of them need room in $TMPDIR, or /var/tmp", r->path,
			     strerror(errno));
}

static void sort_run(struct sorting *s)
{
	if (!s->sorted)
		qsort(s->event, s->events, sizeof(*s->event), compare_side);
	s->sorted = true;
}

static int end_run(struct reader *r, struct sorting *s)
{
	sort_run(s);
	for (size_t i = 0; i < s->events; i++)
		if (ptw_spool_add(&s->runs, &s->event[i]))
			return no_room_for_events(r);
	s->events = 0;
	return 0;
}

/* The runs are a heap by their next events: what is at the top is the oldest. */
struct run {
	const struct ptw_side_event *next, *end;
};

static void sift(struct run *run, size_t count, size_t at)
{
	for (;;) {
		size_t least = at;

		for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
			if (compare_side(run[child].next, run[least].next) < 0)
				least = child;
		if (least == at)
			return;
		struct run held = run[at];

		run[at] = run[least];
		run[least] = held;
		at = least;
	}
}

static int merge_runs(struct reader *r, struct sorting *s)
{
	const struct ptw_side_event *all = ptw_spool_end(&s->runs);
	size_t total = s->runs.count, count = (total + RUN - 1) / RUN;
	struct run *run = all ? reallocarray(NULL, count, sizeof(*run)) : NULL;

	if (!run)
		return all ? out_of_memory(r) : no_room_for_events(r);
	for (size_t i = 0; i < count; i++)
		run[i] = (struct run){ all + i * RUN, all + (i + 1 < count ? (i + 1) * RUN : total) };
	for (size_t i = count / 2; i--; )
		sift(run, count, i);
	while (count) {
		if (ptw_spool_add(&r->side, run[0].next++)) {
			free(run);
			return no_room_for_events(r);
		}
		if (run[0].next == run[0].end)
			run[0] = run[--count];
		sift(run, count, 0);
		if (!(r->side.count & (RUN / 4 - 1)))
			ptw_spool_drop(&s->runs);
	}
	free(run);
	return 0;
}

static int end_sorting(struct reader *r, struct ptw_recording *rec, struct sorting *s)
{
	if (!s->runs.count) {
		sort_run(s);
		rec->side = s->event;
		rec->side_count = s->events;
		s->event = NULL;
		return 0;
	}
	if (end_run(r, s) || merge_runs(r, s))
		return -1;
	rec->side = ptw_spool_end(&r->side);
	rec->side_count = r->side.count;
	return rec->side ? 0 : no_room_for_events(r);
}

static int take_event(struct reader *r, struct sorting *s, const uint8_t *record, size_t size)
{
	struct ptw_side_event *grown;

	if (s->events == RUN && end_run(r, s))
		return -1;
	grown = s->runs.count ? s->event : grow(s->event, s->events, sizeof(*grown));
	if (!grown)
		return out_of_memory(r);
	s->event = grown;
	if (!ptw_side_take(&grown[s->events], record, size, layout_of(r, record, size)))
		return 0;
	if (s->events && compare_side(&grown[s->events - 1], &grown[s->events]) > 0)
		s->sorted = false;
	s->events++;
	return 0;
}

/* A second pass over the records, which are known to be sound: only now the attributes are known. */
static int read_sideband(struct reader *r, struct ptw_recording *rec)
{
	uint64_t at = r->head.data.offset, end = at + r->head.data.size, dropped = at;
	struct sorting sorting = { .sorted = true, .runs = { .item = sizeof(*rec->side), .limit = SPOOL_LIMIT } };
	int ret = 0;

	r->side = sorting.runs;
	while (at < end && !ret) {
		const uint8_t *p = r->map + at;
		struct perf_event_header h;
		struct perf_auxtrace a;

		read_to(r, &dropped, at);
		memcpy(&h, p, sizeof(h));
		at += h.size;
		if (h.type == PERF_USER_AUXTRACE) {
			memcpy(&a, p, sizeof(a));
			at += a.size;
		}
		if (h.type < PERF_USER_RECORD && h.type != PERF_RECORD_SAMPLE)
			ret = take_event(r, &sorting, p, h.size);
	}
	let_go(r, dropped, end);
	if (!ret)
		ret = end_sorting(r, rec, &sorting);
	free(sorting.event);
	ptw_spool_free(&sorting.runs);
	return ret;
}

void ptw_recording_side_drop(const struct ptw_recording *recording)
{
	const struct reader *r = recording->reader;

	if (r)
		ptw_spool_drop(&r->side);
}

void ptw_recording_records_drop(const struct ptw_recording *recording)
{
	const struct reader *r = recording->reader;

	if (r)
		let_go(r, r->head.data.offset, r->head.data.offset + r->head.data.size);
}

/* Give every chunk its stream: that of its CPU or thread. A hash, because a hostile file has many of both. */
static int sort_chunks(struct reader *r, struct ptw_recording *rec)
{
	uint32_t *slot = calloc(2 * TRACE_LIMIT, sizeof(*slot));	/* stream + 1 */
	struct ptw_recorded_trace *t;

	if (!slot)
		return out_of_memory(r);
	for (size_t i = 0; i < r->chunks; i++) {
		struct chunk *c = &r->chunk[i];
		uint32_t h = ((uint32_t)c->cpu * 31 + (uint32_t)c->tid) * 2654435761u >> 15;

		for (;; h++) {
			h %= 2 * TRACE_LIMIT;
			if (!slot[h])
				break;
			t = &rec->trace[slot[h] - 1];
			if (t->cpu == c->cpu && t->tid == c->tid)
				break;
		}
		if (!slot[h]) {
			t = rec->trace_count < TRACE_LIMIT ?
				    grow(rec->trace, rec->trace_count, sizeof(*t)) :
				    NULL;
			if (!t) {
				free(slot);
				return damaged(r, c->offset, "too many CPUs and threads");
			}
			rec->trace = t;
			t[rec->trace_count++] = (struct ptw_recorded_trace){
				.cpu = c->cpu, .tid = c->tid, .data = r->map + c->offset,
			};
			slot[h] = rec->trace_count;
		}
		c->stream = slot[h] - 1;
		/* Chunks are disjoint parts of the file: the sum can't overflow. */
		rec->trace[c->stream].size += c->size;
	}
	free(slot);
	return 0;
}

static int copy_chunk(int out, uint64_t at, int in, const struct chunk *c)
{
	off64_t from = c->offset, to = at;
	uint64_t left = c->size;

	while (left) {
		ssize_t n = copy_file_range(in, &from, out, &to, left, 0);

		if (n <= 0) {
			/* Not between these file systems */
			char buffer[65536];

			n = pread(in, buffer, left < sizeof(buffer) ? left : sizeof(buffer), from);
			if (n <= 0 || pwrite(out, buffer, n, to) != n)
				return -1;
			from += n;
			to += n;
		}
		left -= n;
	}
	return 0;
}

/*
 * The same for a large recording: next to each other in a temporary file that is mapped, so that memory does
 * not grow with the recording.
 */
static int join_in_file(struct reader *r, struct ptw_recording *rec)
{
	uint64_t *at = calloc(rec->trace_count, sizeof(*at)), end = 0;
	int in = open(r->path, O_RDONLY | O_CLOEXEC), out = -1, ret = -1;
	char path[PATH_MAX] = "";

	out = ptw_temporary_file(path, sizeof(path));
	if (!at || in < 0 || out < 0)
		goto failed;
	for (size_t i = 0; i < rec->trace_count; i++) {
		at[i] = end;
		end += (rec->trace[i].size + 4095) & ~4095ULL;
	}
	for (size_t i = 0; i < r->chunks; i++) {
		const struct chunk *c = &r->chunk[i];

		rec->trace[c->stream].from_file = true;
		if (c->size == rec->trace[c->stream].size)
			continue;
		r->joined_size[c->stream] += c->size;
		if (copy_chunk(out, at[c->stream] + r->joined_size[c->stream] - c->size, in, c))
			goto failed;
	}
	for (size_t i = 0; i < rec->trace_count; i++) {
		void *map;

		if (!r->joined_size[i])
			continue;
		map = mmap(NULL, r->joined_size[i], PROT_READ, MAP_PRIVATE, out, at[i]);
		if (map == MAP_FAILED) {
			r->joined_size[i] = 0;
			goto failed;
		}
		r->joined[i] = map;
		rec->trace[i].data = map;
	}
	ret = 0;
failed:
	if (ret)
		ptw_error_set(r->err, PTW_EXIT_FAILED,
			      "%s: %s: %s; a recording of this size needs as much room in $TMPDIR, or /var/tmp",
			      r->path, path, strerror(errno));
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	free(at);
	return ret;
}

/* Join the chunks of each stream, in the order of the file */
static int join_traces(struct reader *r, struct ptw_recording *rec)
{
	struct ptw_recorded_trace *t;
	size_t *filled = NULL;

	if (!r->chunks && is_cut(r))
		return damaged(r, r->size, "the file ends before any trace");
	if (!r->chunks)
		return ptw_error_set(
			r->err, PTW_EXIT_FAILED,
			"%s: the Intel PT event recorded nothing (or was recorded with "
			"--aux-sample, which is not read)",
			r->path);
	if (sort_chunks(r, rec))
		return -1;
	r->joined = calloc(rec->trace_count, sizeof(*r->joined));
	r->joined_size = calloc(rec->trace_count, sizeof(*r->joined_size));
	filled = calloc(rec->trace_count, sizeof(*filled));
	if (!r->joined || !r->joined_size || !filled) {
		free(filled);
		return out_of_memory(r);
	}
	r->joined_count = rec->trace_count;
	if (r->size > JOIN_IN_MEMORY) {
		free(filled);
		return join_in_file(r, rec);
	}
	for (size_t i = 0; i < r->chunks; i++) {
		const struct chunk *c = &r->chunk[i];

		t = &rec->trace[c->stream];
		if (c->size == t->size) {
			t->from_file = true;	/* the only one: it stays in the mapped file */
			continue;
		}
		if (!r->joined[c->stream]) {
			r->joined[c->stream] = malloc(t->size);
			if (!r->joined[c->stream]) {
				free(filled);
				return out_of_memory(r);
			}
			t->data = r->joined[c->stream];
		}
		memcpy(r->joined[c->stream] + filled[c->stream], r->map + c->offset, c->size);
		filled[c->stream] += c->size;
	}
	free(filled);
	return 0;
}

/* ---- code and names ---- */

/* Something of the recording is not there, without which the rest is told all the same: one line, with all that is lacking */
static int __attribute__((format(printf, 3, 4))) note_lack(struct reader *r, struct ptw_recording *rec, const char *format, ...)
{
	char *before = rec->incomplete, *text;
	va_list args;
	int ret;

	va_start(args, format);
	ret = vasprintf(&text, format, args);
	va_end(args);
	if (ret < 0)
		return out_of_memory(r);
	rec->incomplete = text;
	if (before && asprintf(&rec->incomplete, "%s; %s", before, text) < 0) {
		rec->incomplete = before;
		free(text);
		return out_of_memory(r);
	}
	if (before) {
		free(before);
		free(text);
	}
	return 0;
}

/* Every loadable, executable part of kcore_dir/kcore, as far as it is in the file */
static int add_kcore(struct reader *r, struct ptw_recording *rec, const char *path)
{
	Elf64_Phdr *phdr = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = -1;
	uint64_t cut_at = 0;
	struct stat st;
	Elf64_Ehdr h;
	size_t size;

	if (fd < 0)
		return errno == ENOENT ? 0 :
					 ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: %s", path,
						       strerror(errno));
	if (fstat(fd, &st) || ptw_read_at(fd, &h, sizeof(h), 0, path, r->err)) {
		ret = note_lack(r, rec, "%s: empty or cut off: kernel code cannot be followed; copy it again", path);
		goto out;
	}
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
	    h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_phentsize != sizeof(*phdr)) {
		ret = note_lack(r, rec, "%s: offset 0x0: not a 64-bit ELF core: kernel code cannot be followed; copy it again", path);
		goto out;
	}
	size = h.e_phnum * sizeof(*phdr);
	phdr = malloc(size + 1);
	if (!phdr) {
		out_of_memory(r);
		goto out;
	}
	if (ptw_read_at(fd, phdr, size, h.e_phoff, path, r->err)) {
		ret = note_lack(r, rec, "%s: cut off in its headers: kernel code cannot be followed; copy it again", path);
		goto out;
	}
	for (size_t i = 0; i < h.e_phnum; i++) {
		Elf64_Phdr *s = &phdr[i];

		if (s->p_type != PT_LOAD || !(s->p_flags & PF_X) || !s->p_filesz)
			continue;
		if (s->p_offset > (uint64_t)st.st_size || s->p_filesz > st.st_size - s->p_offset ||
		    s->p_vaddr + (s->p_filesz - 1) < s->p_vaddr) {
			if (!cut_at)
				cut_at = h.e_phoff + i * sizeof(*phdr);
			if (s->p_offset >= (uint64_t)st.st_size || s->p_vaddr + (s->p_filesz - 1) < s->p_vaddr)
				continue;
			s->p_filesz = st.st_size - s->p_offset;
		}
		if (ptw_image_add(&rec->image, path, s->p_offset, s->p_filesz, s->p_vaddr, r->err))
			goto out;
	}
	ret = 0;
	if (cut_at)
		ret = note_lack(r, rec, "%s: offset 0x%llx: a segment leaves the file, which is damaged or incomplete: kernel code is "
				"followed as far as it is there; copy it again", path, (unsigned long long)cut_at);
out:
	free(phdr);
	close(fd);
	return ret;
}

static int compare_mappings(const void *pa, const void *pb)
{
	const struct mapping *a = *(const struct mapping *const *)pa, *b = *(const struct mapping *const *)pb;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	if (a->size != b->size)
		return a->size < b->size ? -1 : 1;
	if (a->pgoff != b->pgoff)
		return a->pgoff < b->pgoff ? -1 : 1;
	if (strcmp(a->path, b->path))
		return strcmp(a->path, b->path);
	return a < b ? -1 : a > b;	/* the older one first */
}

static bool same_mapping(const struct mapping *a, const struct mapping *b)
{
	return a->addr == b->addr && a->size == b->size && a->pgoff == b->pgoff && !strcmp(a->path, b->path);
}

static int compare_binaries(const void *pa, const void *pb)
{
	const struct binary *a = pa, *b = pb;
	int order = strcmp(a->name, b->name);

	if (order)
		return order;
	if (a->id_size != b->id_size)
		return a->id_size < b->id_size ? -1 : 1;
	return memcmp(a->id, b->id, a->id_size);
}

/*
 * The place of @want among the binaries; *@found: it is there. Looking for a file costs; a process tree maps the same few
 * again and again.
 */
static size_t find_binary(const struct reader *r, const struct binary *want, bool *found)
{
	size_t low = 0, high = r->binaries;

	*found = false;
	while (low < high) {
		size_t mid = (low + high) / 2;
		int order = compare_binaries(want, &r->binary[mid]);

		if (!order) {
			*found = true;
			return mid;
		}
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static struct binary wanted(const char *name, const uint8_t *id, size_t id_size)
{
	struct binary want = { .name = name };

	if (id && id_size <= sizeof(want.id)) {
		want.id_size = id_size;
		memcpy(want.id, id, id_size);
	}
	return want;
}

static const char *binary_path(struct reader *r, const char *name, const uint8_t *id, size_t id_size)
{
	const struct build_id key = { .path = name }, *listed;
	struct binary want = wanted(name, id, id_size), *grown;
	struct file_name *file;
	bool found;
	size_t low = find_binary(r, &want, &found);

	if (found)
		return r->binary[low].path;
	file = keep_name(&r->names, name);
	if (!file)
		return NULL;
	want.name = file->text;
	grown = grow(r->binary, r->binaries, sizeof(*grown));
	if (!grown)
		return NULL;
	r->binary = grown;
	memmove(grown + low + 1, grown + low, (r->binaries - low) * sizeof(*grown));
	r->binaries++;
	if (!want.id_size && r->build_ids) {
		listed = bsearch(&key, r->build_id, r->build_ids, sizeof(key), compare_build_ids);
		if (listed) {
			id = listed->id;
			id_size = listed->size;
		}
	}
	/* The vDSO is no file; a recording of ours brings both along. */
	if (ptw_binary_is_vdso(name) && r->dir && asprintf(&want.path, "%s/%s", r->dir, ptw_binary_known_as(name)) < 0)
		want.path = NULL;
	if (want.path && access(want.path, R_OK)) {
		free(want.path);
		want.path = NULL;
	}
	if (!want.path)
		want.path = ptw_binary_find(name, id, id_size, r->time);
	if (!want.path)
		ptw_binary_missing(name, id, id_size, &want.gap, &want.advice);
	grown[low] = want;
	return want.path;
}

const char *ptw_recording_binary(const struct ptw_recording *recording, const char *name, const uint8_t *id,
				 size_t id_size)
{
	return recording->reader ? binary_path(recording->reader, name, id, id_size) : NULL;
}

const char *ptw_recording_missing(const struct ptw_recording *recording, const char *name, const uint8_t *id,
				  size_t id_size)
{
	const struct reader *r = recording->reader;
	const struct binary want = wanted(name, id, id_size);
	bool found = false;
	size_t at = r ? find_binary(r, &want, &found) : 0;

	return found && !r->binary[at].path ? r->binary[at].gap : NULL;
}

const char *ptw_recording_missing_at(const struct ptw_recording *recording, uint64_t addr)
{
	const struct reader *r = recording->reader;

	for (size_t i = r ? r->mappings : 0; i--; ) {
		const struct mapping *m = &r->mapping[i];

		if (addr >= m->addr && addr - m->addr < m->size)
			return ptw_recording_missing(recording, m->path, m->id, m->id_size);
	}
	return NULL;
}

const char *ptw_recording_advice(const struct ptw_recording *recording, const char *gap)
{
	struct reader *r = recording->reader;

	for (size_t i = 0; r && i < r->binaries; i++) {
		struct binary *binary = &r->binary[i];

		if (binary->gap != gap || binary->advised)
			continue;
		binary->advised = true;
		return binary->advice;
	}
	return NULL;
}

#define DROP_AGAIN	(256u << 10)

void ptw_trace_drop(const struct ptw_recorded_trace *trace, size_t start, size_t end)
{
	/* What comes before is not needed either, and faults nearby may have mapped it again. */
	uintptr_t from = ((uintptr_t)trace->data + (start > DROP_AGAIN ? start - DROP_AGAIN : 0)) & ~(uintptr_t)4095;
	uintptr_t to = ((uintptr_t)trace->data + end) & ~(uintptr_t)4095;

	/* Others may look at it at the same time: it comes again from the file. */
	if (trace->from_file && to > from)
		madvise((void *)from, to - from, MADV_DONTNEED);
}

const void *ptw_recording_side_record(const struct ptw_recording *recording, const struct ptw_side_event *event,
				      size_t *size)
{
	const struct reader *r = recording->reader;
	struct perf_event_header header;

	/* Its size was checked when it was read. */
	memcpy(&header, event->record, sizeof(header));
	*size = header.size - layout_of(r, event->record, header.size)->size;
	return event->record;
}

char *ptw_recording_beside(const struct ptw_recording *recording, const char *path)
{
	const struct reader *r = recording->reader;
	const char *base = strrchr(path, '/');
	char *copy = NULL;
	struct stat st;

	if (r && r->dir && asprintf(&copy, "%s/%s", r->dir, base ? base + 1 : path) >= 0) {
		if (!stat(copy, &st) && S_ISREG(st.st_mode))
			return copy;
		free(copy);
	}
	return !stat(path, &st) && S_ISREG(st.st_mode) ? strdup(path) : NULL;
}

/* Files of user code that still exist, in the order they were mapped; a mapping that recurs counts once. */
static int add_files(struct reader *r, struct ptw_recording *rec)
{
	const struct mapping **sorted;
	bool *repeated;
	int ret = -1;

	if (!r->mappings)
		return 0;
	sorted = reallocarray(NULL, r->mappings, sizeof(*sorted));
	repeated = calloc(r->mappings, sizeof(*repeated));
	if (!sorted || !repeated) {
		out_of_memory(r);
		goto out;
	}
	for (size_t i = 0; i < r->mappings; i++)
		sorted[i] = &r->mapping[i];
	qsort(sorted, r->mappings, sizeof(*sorted), compare_mappings);
	for (size_t i = 0; i + 1 < r->mappings; i++) {
		if (same_mapping(sorted[i], sorted[i + 1]))
			repeated[sorted[i] - r->mapping] = true;
	}
	for (size_t i = 0; i < r->mappings; i++) {
		const struct mapping *m = &r->mapping[i];
		uint64_t size = m->size;
		const char *path = repeated[i] ? NULL : binary_path(r, m->path, m->id, m->id_size);
		struct stat st;

		if (!path || stat(path, &st) || m->pgoff >= (uint64_t)st.st_size)
			continue;
		if (size > st.st_size - m->pgoff)
			size = st.st_size - m->pgoff;
		if (ptw_image_add_as(&rec->image, path, ptw_binary_known_as(m->path), m->pgoff, size, m->addr, r->err))
			goto out;
	}
	ret = 0;
out:
	free(sorted);
	free(repeated);
	return ret;
}

/* The running kernel is the recorded one if it is of that release and lies at that (randomised) address. */
static void add_live_symbols(const struct reader *r, struct ptw_recording *rec)
{
	struct ptw_symbols *live;
	struct utsname uts;
	uint64_t text;

	if (!r->kernel_text || uname(&uts) || strcmp(uts.release, r->release))
		return;
	live = ptw_symbols_new();
	if (live && !ptw_symbols_load_kallsyms(live, "/proc/kallsyms", NULL) &&
	    !ptw_symbols_resolve(live, "_text", &text, NULL, NULL) && text == r->kernel_text) {
		ptw_symbols_free(rec->symbols);
		rec->symbols = live;
	} else {
		ptw_symbols_free(live);
	}
}

/* "data" beside a copy of the kernel: the directory is the recording. */
static bool is_inside_recording(const char *path, size_t *dir_length)
{
	const char *base = strrchr(path, '/');
	char copy[PATH_MAX];

	base = base ? base + 1 : path;
	*dir_length = base - path;
	if (strcmp(base, "data"))
		return false;
	snprintf(copy, sizeof(copy), "%.*skcore_dir", (int)*dir_length, path);
	return !access(copy, F_OK);
}

/* @dir: the directory of the kernel's copy; NULL: a plain file */
static int say_missing_code(struct reader *r, struct ptw_recording *rec, const char *dir)
{
	size_t length;
	int ret;

	if (!r->kernel_traced)
		return 0;
	if (dir)
		ret = asprintf(&rec->missing_code,
			       "%s%s is missing: kernel code cannot be followed; copy the whole "
			       "directory %s from where it was recorded",
			       dir, access(dir, F_OK) ? "" : "/kcore", r->dir);
	else if (is_inside_recording(r->path, &length))
		ret = asprintf(&rec->missing_code,
			       "%s is a part of a recording: kernel code cannot be followed; pass the "
			       "directory: -i %.*s",
			       r->path, length > 1 ? (int)length - 1 : 1, length ? r->path : ".");
	else
		ret = asprintf(&rec->missing_code,
			       "%s holds no copy of the kernel: kernel code cannot be followed; pass the "
			       "directory of a recording, or record with perf record --kcore",
			       r->path);
	if (ret >= 0)
		return 0;
	rec->missing_code = NULL;
	return out_of_memory(r);
}

/* Who has the kernel's code and not its names would find nothing of what it did. */
static int add_names(struct reader *r, struct ptw_recording *rec, const char *path)
{
	struct ptw_error err;

	if (access(path, F_OK)) {
		if (!r->kernel_traced || !rec->image.count || rec->missing_code)
			return 0;
		return note_lack(r, rec, "%s is missing: kernel code has no names; copy the whole directory %s from where it was recorded",
				 path, r->dir);
	}
	/* A recording by someone who could not see addresses has all zeros here: no names, but no damage. */
	if (!ptw_symbols_load_kallsyms(rec->symbols, path, &err) || ptw_symbols_hidden(rec->symbols))
		return 0;
	return note_lack(r, rec, "%s: kernel code has no names; copy it again", err.text);
}

static int read_beside(struct reader *r, struct ptw_recording *rec)
{
	struct ptw_error err;
	char path[PATH_MAX];

	rec->symbols = ptw_symbols_new();
	if (!rec->symbols)
		return out_of_memory(r);
	if (!r->dir) {
		add_live_symbols(r, rec);
		return say_missing_code(r, rec, NULL);
	}
	snprintf(path, sizeof(path), "%s/kcore_dir/kcore", r->dir);
	if (access(path, F_OK)) {
		snprintf(path, sizeof(path), "%s/kcore_dir", r->dir);
		if (say_missing_code(r, rec, path))
			return -1;
	} else if (add_kcore(r, rec, path))
		return -1;
	snprintf(path, sizeof(path), "%s/kcore_dir/kallsyms", r->dir);
	if (add_names(r, rec, path))
		return -1;
	snprintf(path, sizeof(path), "%s/alarms.jsonl", r->dir);
	if (access(path, F_OK) || !ptw_alarms_read_json(path, &rec->alarm, &rec->alarm_count, &err))
		return 0;
	return note_lack(r, rec, "%s: of the alarms only the %zu before that are known; copy it again", err.text, rec->alarm_count);
}

/* ---- the interface ---- */

/* errno tells why. */
static int cannot_open(struct reader *r, const char *path)
{
	return ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: %s; %s", path, strerror(errno),
			     errno == EACCES ? "read it as root, or as who recorded it" : WHAT_WE_READ);
}

static int map_file(struct reader *r, const char *path)
{
	struct stat st;
	void *map;
	int fd;

	if (stat(path, &st))
		return cannot_open(r, path);
	if (S_ISDIR(st.st_mode)) {
		r->dir = strdup(path);
		if (!r->dir || asprintf(&r->path, "%s/data", path) < 0) {
			r->path = NULL;
			return ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: out of memory", path);
		}
	} else {
		r->path = strdup(path);
		if (!r->path)
			return ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: out of memory", path);
	}
	/* Not to wait for a writer where someone names a fifo */
	fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		if (r->dir && errno == ENOENT)
			return ptw_error_set(r->err, PTW_EXIT_FAILED,
					     "%s: not a recording (it has no file \"data\"); " WHAT_WE_READ, path);
		return cannot_open(r, r->path);
	}
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: not a regular file; " WHAT_WE_READ, r->path);
	}
	r->size = st.st_size;
	r->time = st.st_mtime;
	if (r->size) {
		map = mmap(NULL, r->size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map == MAP_FAILED) {
			ptw_error_set(r->err, PTW_EXIT_FAILED, "%s: %s", r->path, strerror(errno));
			close(fd);
			return -1;
		}
		r->map = map;
	}
	close(fd);
	return 0;
}

static int say_incomplete(struct reader *r, struct ptw_recording *rec)
{
	uint64_t more = r->cut_at ? r->cut_at : r->cut_ids;
	char why[160] = "it was not finished: the recorder was killed, or the machine went down";

	if (!more && !r->unfinished)
		return 0;
	if (more)
		snprintf(why, sizeof(why), "there should be more at offset 0x%llx, but the file has only 0x%llx bytes; copy it again",
			 (unsigned long long)more, (unsigned long long)r->size);
	if (asprintf(&rec->incomplete, "%s: the recording is incomplete, and this is what it has: %s", r->path, why) >= 0)
		return 0;
	rec->incomplete = NULL;
	return out_of_memory(r);
}

static int read_all(struct reader *r, struct ptw_recording *rec, const char *path)
{
	if (map_file(r, path) || read_header(r) || read_features(r, &rec->params) || read_records(r) ||
	    read_info(r, &rec->params) || read_sideband(r, rec) || join_traces(r, rec) || say_incomplete(r, rec))
		return -1;
	return add_files(r, rec) || read_beside(r, rec) ? -1 : 0;
}

void ptw_recording_close(struct ptw_recording *recording)
{
	struct reader *r;

	if (!recording)
		return;
	r = recording->reader;
	if (r) {
		for (size_t i = 0; i < r->joined_count; i++) {
			if (r->joined_size[i] && r->joined[i])
				munmap(r->joined[i], r->joined_size[i]);
			else if (!r->joined_size[i])
				free(r->joined[i]);
		}
		free(r->joined);
		free(r->joined_size);
		if (r->map)
			munmap((void *)r->map, r->size);
		free(r->chunk);
		free(r->mapping);
		free(r->build_id);
		free(r->event_id);
		ptw_room_free(&r->names.room);
		if (!r->side.count)
			free((void *)recording->side);
		ptw_spool_free(&r->side);
		for (size_t i = 0; i < r->binaries; i++) {
			free(r->binary[i].path);
			free(r->binary[i].gap);
			free(r->binary[i].advice);
		}
		free(r->binary);
		free(r->path);
		free(r->dir);
		free(r);
	}
	ptw_image_free(&recording->image);
	ptw_symbols_free(recording->symbols);
	free(recording->trace);
	free(recording->alarm);
	free(recording->missing_code);
	free(recording->incomplete);
	free(recording);
}

/* Of what was mapped, the rest is in the image. */
static void keep_missing(struct reader *r, const struct ptw_recording *rec)
{
	size_t kept = 0;

	for (size_t i = 0; i < r->mappings; i++)
		if (ptw_recording_missing(rec, r->mapping[i].path, r->mapping[i].id, r->mapping[i].id_size))
			r->mapping[kept++] = r->mapping[i];
	r->mappings = kept;
	if (!kept) {
		free(r->mapping);
		r->mapping = NULL;
	}
}

struct ptw_recording *ptw_recording_open(const char *path, struct ptw_error *err)
{
	struct ptw_recording *rec = calloc(1, sizeof(*rec));
	struct reader *r = calloc(1, sizeof(*r));

	if (!rec || !r) {
		free(rec);
		free(r);
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: out of memory", path);
		return NULL;
	}
	rec->reader = r;
	r->err = err;
	r->names.room.limit = NAMES_LIMIT;
	if (read_all(r, rec, path)) {
		ptw_recording_close(rec);
		return NULL;
	}
	r->err = NULL;	/* the caller's, who may not keep it */
	/* Only reading needed these. */
	free(r->chunk);
	r->chunk = NULL;
	keep_missing(r, rec);
	return rec;
}
