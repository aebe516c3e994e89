// SPDX-License-Identifier: BSD-2-Clause
#include "flow/code.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flow/jit.h"
#include "recording/binary.h"
#include "recording/room.h"

#define PAGE		4096ULL
#define PAGES_LIMIT	65536	/* pages of changing code */
#define MAPS_LIMIT	32768	/* of a process; more is damage */
#define COPIES_LIMIT	(1u << 20)	/* of mappings that children have from their parents */
#define ROOM_LIMIT	(16u << 20)	/* bytes in memory of what is known of processes */
#define NOTES		64
#define BASES		8	/* generations that are looked through */

/* A part of a file that can be mapped as code, for symbols */
struct segment {
	uint64_t offset, size, vaddr;
};

struct code_file {
	char *path;
	const uint8_t *data;	/* NULL: can't be read */
	uint64_t size;
	struct segment *segment;	/* ELF: the loaded ones */
	size_t segments;
	bool symbols_tried;
	struct ptw_symbols *symbols;
};

enum map_kind {
	CODE_FILE,
	CODE_GENERATED,	/* memory of no file: what is in it only the process knows */
	CODE_JIT,	/* a function in such memory, that the process's jitdump tells of */
};

struct code_map {
	uint64_t start, end;
	uint64_t offset;
	struct code_file *file;	/* NULL: there is no copy of it */
	const char *name;	/* of the file, as it was mapped: a cache calls it otherwise */
	const char *missing;	/* what is said then */
	uint64_t since, until;
	uint64_t reach;		/* how far it and those before it in a sorted space go */
	const struct ptw_symbol *symbol;	/* of CODE_JIT */
	uint8_t kind;		/* enum map_kind */
};

/* From @time on a process has code that it did not have, or has not any more. */
struct change {
	uint64_t time;
	uint32_t version;	/* so many of them up to this one took something away */
};

/* A function that a process generated */
struct generated {
	int32_t pid;
	uint64_t time;
	struct code_file *file;
	uint64_t addr, size, offset;
	struct ptw_symbol symbol;
};

struct code_space {
	uint32_t number;	/* of its first version, see struct change; from 1 */
	int32_t pid;
	uint64_t since, until;
	bool began;		/* with the program that it runs: all that it maps is told */
	struct code_space *older;	/* of the same process, before it ran another program */
	struct code_space *skip;	/* one that is much older, so that of many the right one is soon found */
	size_t depth;			/* so many are older */
	struct code_space *next;	/* of all */
	/* What is not mapped here is as in the parent at the time of the fork: most children soon run another program. */
	const struct code_space *base;
	uint64_t base_time;
	unsigned int bases;
	struct code_map *map;	/* once all are known sorted by address */
	size_t maps;
	struct change *change;
	size_t changes;
	bool names_tried;
	struct ptw_symbols *names;	/* of generated code, from a perf map file */
	struct code_space *next_named;
};

/* Of a hash */
struct newest {
	struct code_space *space;	/* of a process, the newest one; NULL: free */
	int32_t pid;
};

struct poke {
	uint64_t time, addr;
	const uint8_t *old_bytes, *new_bytes;
	uint16_t old_size, new_size;
	size_t undo;		/* where views keep what it overwrites */
};

struct ptw_code {
	const struct ptw_recording *rec;
	pthread_mutex_t lock;	/* of the files' symbols, and of: */
	char *note[NOTES];
	struct code_file **file;
	size_t files;
	struct code_map *flat;	/* the recording's image; the later one wins */
	size_t flats;
	const char *unreadable;
	/*
	 * A recording may tell of millions of processes, of which few run at a time. All of this is found in @room: of
	 * what was not looked at lately nothing need stay in memory.
	 */
	struct ptw_room room;
	struct code_space *first, **last;
	size_t spaces;
	size_t copies;		/* of mappings, for children */
	bool left_out;		/* there were more mappings than are kept */
	struct newest *newest;
	size_t slots, processes;
	struct code_space *named;	/* those with names */
	struct poke *poke;	/* in @room, too */
	size_t pokes;
	size_t undo_size;
	struct code_space *kernel;	/* what it generates, for its names: BPF programs and trampolines */
	struct ksymbol *ksymbol;
	struct generated *generated;	/* by time */
	size_t generateds, generated_next;
};

/* Of generated code of the kernel */
struct ksymbol {
	struct ksymbol *next;
	struct ptw_symbol symbol;
};

struct patched_page {
	uint64_t page;
	uint8_t bytes[PAGE];
};

struct code_view {
	struct ptw_code *code;
	struct code_space *space;
	uint64_t time;
	size_t change;		/* of the space's changes so many have been seen */
	size_t poked;		/* so many pokes are done */
	struct patched_page **page;	/* sorted */
	size_t pages;
	uint8_t *undo;		/* what the pokes that are done have overwritten, see poke.undo */
};

/* ---- files ---- */

static void read_segments(struct code_file *f)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)f->data;
	const Elf32_Ehdr *h32 = (const Elf32_Ehdr *)f->data;
	bool wide;
	size_t n, at, step;

	if (f->size < sizeof(*h) || memcmp(f->data, ELFMAG, SELFMAG))
		return;
	wide = h->e_ident[EI_CLASS] == ELFCLASS64;
	n = wide ? h->e_phnum : h32->e_phnum;
	at = wide ? h->e_phoff : h32->e_phoff;
	step = wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	if (at > f->size || n * step > f->size - at)
		return;
	f->segment = calloc(n ? n : 1, sizeof(*f->segment));
	for (size_t i = 0; f->segment && i < n; i++) {
		Elf64_Phdr p;
		Elf32_Phdr q;

		if (wide) {
			memcpy(&p, f->data + at + i * step, sizeof(p));
		} else {
			memcpy(&q, f->data + at + i * step, sizeof(q));
			p = (Elf64_Phdr){ .p_type = q.p_type, .p_offset = q.p_offset, .p_filesz = q.p_filesz,
					  .p_vaddr = q.p_vaddr };
		}
		if (p.p_type == PT_LOAD)
			f->segment[f->segments++] = (struct segment){ p.p_offset, p.p_filesz, p.p_vaddr };
	}
}

static void map_file(struct code_file *f)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	void *map;

	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size) {
		map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map != MAP_FAILED) {
			f->data = map;
			f->size = st.st_size;
			read_segments(f);
		}
	}
	close(fd);
}

static void *grow(void *array, size_t count, size_t size)
{
	if (count & (count - 1))
		return array;
	return reallocarray(array, count ? count * 2 : 1, size);
}

static struct code_file *file_of(struct ptw_code *code, const char *path)
{
	struct code_file **grown, *f;

	/* Processes map the same few files again and again, the newest most often. */
	for (size_t i = code->files; i--; )
		if (!strcmp(code->file[i]->path, path))
			return code->file[i];
	f = calloc(1, sizeof(*f));
	grown = grow(code->file, code->files, sizeof(*grown));
	if (grown)
		code->file = grown;
	if (!f || !grown || !(f->path = strdup(path))) {
		free(f);
		return NULL;
	}
	code->file[code->files++] = f;
	map_file(f);
	return f;
}

/* ---- processes ---- */

/* The place of @pid, or the free one where it belongs */
static struct newest *newest_of(struct newest *newest, size_t slots, int32_t pid)
{
	size_t h;

	for (h = (uint32_t)pid * 2654435761u & (slots - 1); newest[h].space && newest[h].pid != pid; h = (h + 1) & (slots - 1))
		;
	return &newest[h];
}

static int grow_slots(struct ptw_code *code)
{
	size_t slots = code->slots ? 2 * code->slots : 64;
	struct newest *fresh = ptw_room_alloc(&code->room, slots * sizeof(*fresh));

	if (!fresh)
		return -1;
	for (size_t i = 0; i < code->slots; i++)
		if (code->newest[i].space)
			*newest_of(fresh, slots, code->newest[i].pid) = code->newest[i];
	ptw_room_give_back(&code->room, code->newest, code->slots * sizeof(*fresh));
	code->newest = fresh;
	code->slots = slots;
	return 0;
}

/*
 * Distances grow so that any older one is reached in as many steps as the logarithm of how many there are (a skew-binary
 * list).
 */
static struct code_space *skip_from(struct code_space *older)
{
	const struct code_space *far = older->skip;

	if (far && far->skip && older->depth - far->depth == far->depth - far->skip->depth)
		return far->skip;
	return older;
}

static struct code_space *add_space(struct ptw_code *code, int32_t pid, uint64_t since)
{
	struct code_space *space;
	struct newest *slot;

	if (2 * code->processes >= code->slots && grow_slots(code))
		return NULL;
	space = ptw_room_alloc(&code->room, sizeof(*space));
	if (!space)
		return NULL;
	space->pid = pid;
	space->since = since;
	space->until = CODE_ALWAYS;
	slot = newest_of(code->newest, code->slots, pid);
	if (slot->space) {
		space->older = slot->space;
		space->older->until = since;
		space->skip = skip_from(space->older);
		space->depth = space->older->depth + 1;
	} else {
		code->processes++;
	}
	*slot = (struct newest){ space, pid };
	*code->last = space;
	code->last = &space->next;
	code->spaces++;
	return space;
}

static struct code_space *newest_space(const struct ptw_code *code, int32_t pid)
{
	return code->slots ? newest_of(code->newest, code->slots, pid)->space : NULL;
}

static struct code_space *current_space(struct ptw_code *code, int32_t pid)
{
	struct code_space *space = newest_space(code, pid);

	return space ? space : add_space(code, pid, 0);
}

struct code_space *code_space_at(struct ptw_code *code, int32_t pid, uint64_t time)
{
	struct code_space *space = newest_space(code, pid);

	while (space && space->since > time && space->older)
		space = space->skip->since > time ? space->skip : space->older;
	return space;
}

void code_space_span(const struct code_space *space, uint64_t *since, uint64_t *until)
{
	*since = space->older ? space->since : 0;
	*until = space->until;
}

static int put_map(struct ptw_code *code, struct code_space *space, const struct code_map *map)
{
	struct code_map *grown;

	if (space->maps >= MAPS_LIMIT) {
		code->left_out = true;
		return 0;
	}
	grown = ptw_room_grow(&code->room, space->map, space->maps, sizeof(*grown));
	if (!grown)
		return -1;
	space->map = grown;
	space->map[space->maps++] = *map;
	return 0;
}

/*
 * Code in generated memory is what its jitdump says. The kernel tells of such memory again when its protection
 * changes, which many a generator does for each function.
 */
static bool replaces(const struct code_map *old, enum map_kind kind)
{
	return !(kind == CODE_JIT && old->kind == CODE_GENERATED) && !(kind == CODE_GENERATED && old->kind == CODE_JIT);
}

/* What was mapped there before is gone; of what sticks out the rest stays. */
static int replace(struct ptw_code *code, struct code_space *space, uint64_t start, uint64_t end, uint64_t time,
		   enum map_kind kind)
{
	struct change *grown;

	size_t count = space->maps;
	bool changed = false;

	for (size_t i = 0; i < count; i++) {
		struct code_map old = space->map[i];

		if (old.until != CODE_ALWAYS || old.end <= start || old.start >= end || !replaces(&old, kind))
			continue;
		space->map[i].until = time;
		changed = true;
		if (old.start < start) {
			struct code_map rest = old;

			rest.end = start;
			rest.since = time;
			if (put_map(code, space, &rest))
				return -1;
		}
		if (old.end > end) {
			struct code_map rest = old;

			rest.start = end;
			rest.offset += end - old.start;
			rest.since = time;
			if (put_map(code, space, &rest))
				return -1;
		}
	}
	grown = ptw_room_grow(&code->room, space->change, space->changes, sizeof(*grown));
	if (!grown)
		return -1;
	space->change = grown;
	grown[space->changes] = (struct change){
		.time = time, .version = (space->changes ? grown[space->changes - 1].version : 0) + changed,
	};
	space->changes++;
	return 0;
}

static int take_mmap(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct code_space *space = current_space(code, e->pid);
	struct ptw_side_detail d;
	struct code_map map;
	const char *path;

	if (!space)
		return -1;
	ptw_side_detail(e, &d);
	d.name = ptw_binary_mapped(d.name, d.addr);
	path = ptw_recording_binary(code->rec, d.name, d.id, d.id_size);
	map = (struct code_map){
		.start = d.addr, .end = d.addr + d.size, .offset = d.pgoff, .since = e->time, .until = CODE_ALWAYS,
		.kind = !path && ptw_binary_generated(d.name) ? CODE_GENERATED : CODE_FILE,
		.name = ptw_binary_known_as(d.name),
	};
	/* A marker for those who look for generated code; nothing runs in it. */
	if (jit_is_dump(d.name))
		return 0;
	if (replace(code, space, map.start, map.end, e->time, map.kind))
		return -1;
	/* A file that is not here any more: its place is known to be taken, at least. */
	if (path) {
		map.file = file_of(code, path);
		if (!map.file)
			return -1;
	} else {
		map.missing = ptw_recording_missing(code->rec, d.name, d.id, d.id_size);
	}
	return put_map(code, space, &map);
}

/* What @from and those behind it have at @time, the oldest first, as @to's own */
static int copy_maps(struct ptw_code *code, struct code_space *to, const struct code_space *from, uint64_t time)
{
	if (from->base && copy_maps(code, to, from->base, from->base_time))
		return -1;
	for (size_t i = 0; i < from->maps; i++) {
		struct code_map map = from->map[i];

		if (map.since > time || map.until <= time)
			continue;
		/* Each record brings a mapping or two, but a fork may bring as many as there are. */
		if (code->copies == COPIES_LIMIT) {
			code->left_out = true;
			return 0;
		}
		code->copies++;
		map.since = to->since;
		map.until = CODE_ALWAYS;
		if (replace(code, to, map.start, map.end, to->since, map.kind) || put_map(code, to, &map))
			return -1;
	}
	return 0;
}

/* A child begins with the code of its parent. */
static int take_fork(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct code_space *parent, *child;

	if (e->pid == e->other_pid)
		return 0;	/* a thread */
	parent = code_space_at(code, e->other_pid, CODE_ALWAYS);
	child = add_space(code, e->pid, e->time);
	if (!child)
		return -1;
	/* Of a process that ran already its own mappings follow. */
	if (!parent || e->exec)
		return 0;
	if (parent->bases == BASES)
		return copy_maps(code, child, parent, e->time);
	child->base = parent;
	child->base_time = e->time;
	child->bases = parent->bases + 1;
	return 0;
}

static int take_exec(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct code_space *space = add_space(code, e->pid, e->time);

	if (!space)
		return -1;
	space->began = true;
	return 0;
}

/* Code that the kernel generates, or drops; its bytes are told by changes of the code. */
static int take_ksymbol(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct ptw_side_detail d;
	struct ksymbol *k;
	struct code_map map;

	ptw_side_detail(e, &d);
	if (!d.size || d.addr + d.size < d.addr)
		return 0;
	if (!code->kernel)
		code->kernel = ptw_room_alloc(&code->room, sizeof(*code->kernel));
	if (!code->kernel || replace(code, code->kernel, d.addr, d.addr + d.size, e->time, CODE_FILE))
		return -1;
	if (d.gone)
		return 0;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -1;
	/* The module that kallsyms gives them */
	k->symbol = (struct ptw_symbol){
		.addr = d.addr, .size = d.size, .name = d.name, .type = 't',
		.module = !strncmp(d.name, "bpf_", 4) ? "bpf" : NULL,
	};
	k->next = code->ksymbol;
	code->ksymbol = k;
	map = (struct code_map){
		.start = d.addr, .end = d.addr + d.size, .since = e->time, .until = CODE_ALWAYS, .symbol = &k->symbol,
	};
	return put_map(code, code->kernel, &map);
}

static int take_poke(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct poke *grown = ptw_room_grow(&code->room, code->poke, code->pokes, sizeof(*grown));
	struct ptw_side_detail d;

	if (!grown)
		return -1;
	code->poke = grown;
	ptw_side_detail(e, &d);
	if (d.addr + (d.new_size > d.old_size ? d.new_size : d.old_size) < d.addr)
		return 0;
	grown[code->pokes++] = (struct poke){
		.time = e->time, .addr = d.addr, .old_bytes = d.old_bytes, .old_size = d.old_size,
		.new_bytes = d.new_bytes, .new_size = d.new_size, .undo = code->undo_size,
	};
	code->undo_size += d.new_size;
	return 0;
}

/* ---- generated code ---- */

static int compare_generated(const void *pa, const void *pb)
{
	const struct generated *a = pa, *b = pb;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	/* In the order of the file */
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int read_dump(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct ptw_side_detail d;
	struct generated *grown;
	struct jit_load *load;
	struct code_file *file;
	char *path;
	long count;

	ptw_side_detail(e, &d);
	path = jit_is_dump(d.name) ? ptw_recording_beside(code->rec, d.name) : NULL;
	if (!path)
		return 0;
	file = file_of(code, path);
	free(path);
	for (size_t i = 0; file && i < code->generateds; i++)
		if (code->generated[i].file == file && code->generated[i].pid == e->pid)
			return 0;
	count = file && file->data ? jit_read(file->data, file->size, &code->rec->params, &load) : 0;
	if (!file || count < 0)
		return -1;
	grown = count ? reallocarray(code->generated, code->generateds + count, sizeof(*grown)) : NULL;
	for (long i = 0; grown && i < count; i++)
		grown[code->generateds++] = (struct generated){
			.pid = e->pid, .time = load[i].time == JIT_TIME_UNKNOWN ? e->time : load[i].time,
			.file = file, .addr = load[i].addr, .size = load[i].size, .offset = load[i].offset,
			.symbol = {
				.addr = load[i].addr, .size = load[i].size, .name = load[i].name,
				.module = ptw_binary_known_as(d.name), .type = 't',
			},
		};
	if (grown)
		code->generated = grown;
	if (count)
		free(load);
	return count && !grown ? -1 : 0;
}

static int read_dumps(struct ptw_code *code)
{
	for (size_t i = 0; i < code->rec->side_count; i++) {
		ptw_recording_passed(code->rec, i);
		if (code->rec->side[i].type == PTW_SIDE_MMAP && read_dump(code, &code->rec->side[i]))
			return -1;
	}
	if (code->generateds)
		qsort(code->generated, code->generateds, sizeof(*code->generated), compare_generated);
	return 0;
}

/* What was generated up to @time */
static int take_generated(struct ptw_code *code, uint64_t time)
{
	for (; code->generated_next < code->generateds; code->generated_next++) {
		const struct generated *g = &code->generated[code->generated_next];
		struct code_map map = {
			.start = g->addr, .end = g->addr + g->size, .offset = g->offset, .file = g->file,
			.since = g->time, .until = CODE_ALWAYS, .symbol = &g->symbol, .kind = CODE_JIT,
		};
		struct code_space *space;

		if (g->time > time)
			return 0;
		space = current_space(code, g->pid);
		if (!space || replace(code, space, map.start, map.end, g->time, CODE_JIT) || put_map(code, space, &map))
			return -1;
	}
	return 0;
}

static int compare_maps(const void *pa, const void *pb)
{
	const struct code_map *a = pa, *b = pb;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->since < b->since ? -1 : a->since > b->since;
}

static void settle_space(struct code_space *space)
{
	uint64_t reach = 0;

	if (space->maps)
		qsort(space->map, space->maps, sizeof(*space->map), compare_maps);
	for (size_t i = 0; i < space->maps; i++) {
		if (space->map[i].end > reach)
			reach = space->map[i].end;
		space->map[i].reach = reach;
	}
}

/* So many processes are gone through before what was touched is let go. */
#define AT_ONCE		4096

/* All that will be known of processes is known. */
static void settle_spaces(struct ptw_code *code)
{
	uint32_t number = 1;
	size_t passed = 0;

	for (struct code_space *space = code->first; space; space = space->next) {
		space->number = number;
		number += 1 + (space->changes ? space->change[space->changes - 1].version : 0);
		settle_space(space);
		if (!(++passed % AT_ONCE))
			ptw_room_drop(&code->room);
	}
	if (code->kernel)
		settle_space(code->kernel);
}

static int take_sideband(struct ptw_code *code)
{
	if (read_dumps(code))
		return -1;
	for (size_t i = 0; i < code->rec->side_count; i++) {
		const struct ptw_side_event *e = &code->rec->side[i];
		int ret = 0;

		ptw_recording_passed(code->rec, i);
		if (!(i % (8 * AT_ONCE)))
			ptw_room_drop(&code->room);
		if (take_generated(code, e->time))
			return -1;
		if (e->type == PTW_SIDE_MMAP)
			ret = take_mmap(code, e);
		else if (e->type == PTW_SIDE_FORK)
			ret = take_fork(code, e);
		else if (e->type == PTW_SIDE_COMM && e->exec)
			ret = take_exec(code, e);
		else if (e->type == PTW_SIDE_KSYMBOL)
			ret = take_ksymbol(code, e);
		else if (e->type == PTW_SIDE_TEXT_POKE)
			ret = take_poke(code, e);
		if (ret)
			return -1;
	}
	if (take_generated(code, CODE_ALWAYS))
		return -1;
	settle_spaces(code);
	return 0;
}

static int take_image(struct ptw_code *code)
{
	const struct ptw_image *image = &code->rec->image;

	code->flat = calloc(image->count ? image->count : 1, sizeof(*code->flat));
	if (!code->flat)
		return -1;
	for (size_t i = 0; i < image->count; i++) {
		const struct ptw_image_section *s = &image->section[i];
		struct code_file *f = file_of(code, s->path);

		if (!f)
			return -1;
		if (!f->data && !code->unreadable)
			code->unreadable = f->path;
		code->flat[code->flats++] = (struct code_map){
			.start = s->vaddr, .end = s->vaddr + s->size, .offset = s->offset, .file = f,
			.name = s->name, .until = CODE_ALWAYS,
		};
	}
	return 0;
}

struct ptw_code *code_new(const struct ptw_recording *rec)
{
	struct ptw_code *code = calloc(1, sizeof(*code));

	if (!code)
		return NULL;
	code->rec = rec;
	code->room.limit = ROOM_LIMIT;
	code->last = &code->first;
	pthread_mutex_init(&code->lock, NULL);
	if (take_image(code) || take_sideband(code)) {
		int why = errno;

		code_free(code);
		errno = why;
		return NULL;
	}
	ptw_room_drop(&code->room);
	return code;
}

void code_free(struct ptw_code *code)
{
	if (!code)
		return;
	for (struct code_space *space = code->named; space; space = space->next_named)
		ptw_symbols_free(space->names);
	ptw_room_free(&code->room);
	while (code->ksymbol) {
		struct ksymbol *next = code->ksymbol->next;

		free(code->ksymbol);
		code->ksymbol = next;
	}
	for (size_t i = 0; i < code->files; i++) {
		struct code_file *f = code->file[i];

		if (f->data)
			munmap((void *)f->data, f->size);
		ptw_symbols_free(f->symbols);
		free(f->segment);
		free(f->path);
		free(f);
	}
	for (size_t i = 0; i < NOTES; i++)
		free(code->note[i]);
	free(code->file);
	free(code->flat);
	free(code->generated);
	pthread_mutex_destroy(&code->lock);
	free(code);
}

void code_drop(const struct ptw_code *code)
{
	ptw_room_drop(&code->room);
}

const char *code_unreadable(const struct ptw_code *code)
{
	return code->unreadable;
}

/* ---- looking things up ---- */

/* What is mapped at @addr by the process itself: a generated function rather than the memory that it is in */
static const struct code_map *own_map_at(const struct code_space *space, uint64_t time, uint64_t addr)
{
	const struct code_map *found = NULL;
	size_t low = 0, high = space->maps;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (space->map[mid].start <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	for (size_t i = low; i-- && space->map[i].reach > addr; ) {
		const struct code_map *m = &space->map[i];

		if (addr >= m->end || time < m->since || time >= m->until)
			continue;
		if (m->kind != CODE_GENERATED)
			return m;
		found = m;
	}
	return found;
}

/* The same by it or by those that it comes from. What was mapped once stays covered, by what replaced it if by nothing else. */
static const struct code_map *space_map_at(const struct code_space *space, uint64_t time, uint64_t addr)
{
	const struct code_map *found = NULL;

	for (; space; time = space->base_time, space = space->base) {
		const struct code_map *m = own_map_at(space, time, addr);

		if (!found || (m && m->kind == CODE_JIT))
			found = m;
		if (found && found->kind != CODE_GENERATED)
			break;
	}
	return found;
}

/* Of a known process everything is known. */
static bool is_known(const struct code_space *space)
{
	for (; space; space = space->base)
		if (space->maps || space->began)
			return true;
	return false;
}

/* What is mapped at @addr, be its code here or not */
static const struct code_map *told_map_at(const struct ptw_code *code, const struct code_space *space, uint64_t time,
					  uint64_t addr)
{
	const struct code_map *m = space && !(addr & CODE_KERNEL_HALF) ? space_map_at(space, time, addr) : NULL;

	if (m)
		return m;
	if (!(addr & CODE_KERNEL_HALF) && is_known(space))
		return NULL;
	for (size_t i = code->flats; i--; )
		if (addr >= code->flat[i].start && addr < code->flat[i].end)
			return &code->flat[i];
	return NULL;
}

static const struct code_map *map_at(const struct ptw_code *code, const struct code_space *space, uint64_t time,
				     uint64_t addr)
{
	const struct code_map *m = told_map_at(code, space, time, addr);

	return m && m->file ? m : NULL;
}

static const struct ptw_symbols *symbols_of(struct ptw_code *code, struct code_file *f)
{
	pthread_mutex_lock(&code->lock);
	if (!f->symbols_tried) {
		f->symbols_tried = true;
		f->symbols = ptw_symbols_new();
		if (f->symbols && ptw_symbols_load_elf(f->symbols, f->path, 0, NULL, NULL)) {
			ptw_symbols_free(f->symbols);
			f->symbols = NULL;
		}
	}
	pthread_mutex_unlock(&code->lock);
	return f->symbols;
}

/* Names of generated code, which some write down without the code. */
static const struct ptw_symbols *names_of(struct ptw_code *code, struct code_space *space)
{
	char name[32], *path;

	pthread_mutex_lock(&code->lock);
	if (!space->names_tried) {
		space->names_tried = true;
		snprintf(name, sizeof(name), "/tmp/perf-%d.map", space->pid);
		path = ptw_recording_beside(code->rec, name);
		space->names = path ? ptw_symbols_new() : NULL;
		if (space->names && ptw_symbols_load_perf_map(space->names, path, NULL)) {
			ptw_symbols_free(space->names);
			space->names = NULL;
		}
		if (space->names) {
			space->next_named = code->named;
			code->named = space;
		}
		free(path);
	}
	pthread_mutex_unlock(&code->lock);
	return space->names;
}

static void generated_place(struct ptw_code *code, struct code_space *space, uint64_t time, uint64_t addr,
			    struct ptw_place *place)
{
	const struct code_map *m = space ? space_map_at(space, time, addr) : NULL;
	const struct ptw_symbols *names;

	if (!m || m->kind == CODE_FILE)
		return;
	place->symbol = m->symbol;
	place->object = m->symbol ? m->symbol->module : "JIT";
	names = m->symbol ? NULL : names_of(code, space);
	if (names)
		place->symbol = ptw_symbols_at(names, addr);
	if (place->symbol)
		place->start = place->symbol->addr;
}

void code_place(struct ptw_code *code, struct code_space *space, uint64_t time, uint64_t addr,
		struct ptw_place *place)
{
	const struct ptw_symbol *symbol = code->rec->symbols ? ptw_symbols_at(code->rec->symbols, addr) : NULL;
	const struct code_map *m = code->kernel && addr & CODE_KERNEL_HALF ? space_map_at(code->kernel, time, addr) : NULL;
	uint64_t offset;

	if (m) {
		*place = (struct ptw_place){ .symbol = m->symbol, .start = m->symbol->addr, .object = m->symbol->module };
		return;
	}
	*place = (struct ptw_place){ .symbol = symbol };
	if (symbol || addr & CODE_KERNEL_HALF) {
		place->start = symbol ? symbol->addr : 0;
		place->object = symbol ? symbol->module : NULL;
		return;
	}
	m = told_map_at(code, space, time, addr);
	if (!m || m->kind != CODE_FILE) {
		generated_place(code, space, time, addr, place);
		return;
	}
	place->object = m->name;
	if (!m->file || !symbols_of(code, m->file))
		return;
	place->path = m->file->path;
	offset = addr - m->start + m->offset;
	for (size_t i = 0; i < m->file->segments; i++) {
		const struct segment *s = &m->file->segment[i];

		if (offset < s->offset || offset - s->offset >= s->size)
			continue;
		place->file_addr = offset - s->offset + s->vaddr;
		place->symbol = ptw_symbols_at(m->file->symbols, place->file_addr);
		if (place->symbol)
			place->start = addr - (place->file_addr - place->symbol->addr);
		return;
	}
}

/* ---- a view ---- */

/* Where there is no copy, code that is generated later may be told by the changes alone. */
static void read_base_page(const struct ptw_code *code, uint64_t page, uint8_t *bytes)
{
	uint64_t start = page * PAGE, end = start + PAGE - 1;

	/* No instruction begins so. */
	memset(bytes, 0x06, PAGE);
	for (size_t i = 0; i < code->flats; i++) {
		const struct code_map *m = &code->flat[i];
		uint64_t from = m->start > start ? m->start : start, to = m->end - 1 < end ? m->end - 1 : end, offset, size;

		if (from > to || !m->file->data)
			continue;
		offset = from - m->start + m->offset;
		size = to - from + 1;
		if (offset >= m->file->size)
			continue;
		if (size > m->file->size - offset)
			size = m->file->size - offset;
		memcpy(bytes + (from - start), m->file->data + offset, size);
	}
}

static struct patched_page *page_at(const struct code_view *view, uint64_t page)
{
	size_t low = 0, high = view->pages;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (view->page[mid]->page == page)
			return view->page[mid];
		if (view->page[mid]->page < page)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

static int compare_pages(const void *pa, const void *pb)
{
	uint64_t a = (*(struct patched_page *const *)pa)->page, b = (*(struct patched_page *const *)pb)->page;

	return a < b ? -1 : a > b;
}

static int add_page(struct code_view *view, uint64_t page)
{
	struct patched_page **grown, *p;

	if (view->pages && view->page[view->pages - 1]->page == page)
		return 0;
	for (size_t i = view->pages; i--; )
		if (view->page[i]->page == page)
			return 0;
	if (view->pages == PAGES_LIMIT)
		return 0;
	grown = grow(view->page, view->pages, sizeof(*grown));
	if (!grown)
		return -1;
	view->page = grown;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -1;
	p->page = page;
	read_base_page(view->code, page, p->bytes);
	view->page[view->pages++] = p;
	return 0;
}

/* @undo, if any, is given what was there. */
static bool write_bytes(struct code_view *view, uint64_t addr, const uint8_t *bytes, size_t size, uint8_t *undo,
			bool (*touched)(void *, uint64_t), void *context)
{
	uint64_t asked = UINT64_MAX;
	bool known = false;

	for (size_t i = 0; i < size; i++) {
		struct patched_page *p = page_at(view, (addr + i) / PAGE);

		if (!p)
			continue;
		if (undo)
			undo[i] = p->bytes[(addr + i) % PAGE];
		p->bytes[(addr + i) % PAGE] = bytes[i];
		if (touched && p->page != asked) {
			known |= touched(context, p->page);
			asked = p->page;
		}
	}
	return known;
}

struct code_view *code_view_new(struct ptw_code *code)
{
	struct code_view *view = calloc(1, sizeof(*view));

	if (!view)
		return NULL;
	view->code = code;
	for (size_t i = 0; i < code->pokes; i++) {
		const struct poke *p = &code->poke[i];
		size_t size = p->new_size > p->old_size ? p->new_size : p->old_size;

		if (size && (add_page(view, p->addr / PAGE) || add_page(view, (p->addr + size - 1) / PAGE))) {
			code_view_free(view);
			return NULL;
		}
	}
	if (view->pages)
		qsort(view->page, view->pages, sizeof(*view->page), compare_pages);
	/* The copy of the kernel may be of any time: back to the beginning. */
	for (size_t i = code->pokes; i--; )
		write_bytes(view, code->poke[i].addr, code->poke[i].old_bytes, code->poke[i].old_size, NULL, NULL, NULL);
	view->undo = calloc(1, code->undo_size ? code->undo_size : 1);
	if (!view->undo) {
		code_view_free(view);
		return NULL;
	}
	return view;
}

void code_view_free(struct code_view *view)
{
	if (!view)
		return;
	for (size_t i = 0; i < view->pages; i++)
		free(view->page[i]);
	free(view->page);
	free(view->undo);
	free(view);
}

static size_t changes_at(const struct code_space *space, uint64_t time)
{
	size_t low = 0, high = space ? space->changes : 0;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (space->change[mid].time <= time)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

uint64_t code_state(const struct ptw_code *code, const struct code_space *space, uint64_t time)
{
	return (uint64_t)changes_at(space, time) << 32 | changes_at(code->kernel, time);
}

uint32_t code_view_space(struct code_view *view, struct code_space *space, uint64_t time)
{
	view->space = space;
	view->time = time;
	view->change = changes_at(space, time);
	if (!space)
		return 0;
	return space->number + (view->change ? space->change[view->change - 1].version : 0);
}

bool code_view_time(struct code_view *view, uint64_t time, bool (*touched)(void *, uint64_t), void *context)
{
	const struct ptw_code *code = view->code;
	bool stale = false;

	while (view->poked < code->pokes && code->poke[view->poked].time <= time) {
		const struct poke *p = &code->poke[view->poked++];

		stale |= write_bytes(view, p->addr, p->new_bytes, p->new_size, view->undo + p->undo, touched, context);
	}
	/* Not to what the record says was there: where one was lost, it is not what the one before it had made. */
	while (view->poked && code->poke[view->poked - 1].time > time) {
		const struct poke *p = &code->poke[--view->poked];

		stale |= write_bytes(view, p->addr, view->undo + p->undo, p->new_size, NULL, touched, context);
	}
	return stale;
}

uint64_t code_view_next_change(const struct code_view *view)
{
	uint64_t next = view->poked < view->code->pokes ? view->code->poke[view->poked].time : CODE_ALWAYS;

	if (view->space && view->change < view->space->changes && view->space->change[view->change].time < next)
		next = view->space->change[view->change].time;
	return next;
}

const char *code_missing(const struct code_view *view, uint64_t addr)
{
	const struct code_space *space = view->space;
	const struct code_map *m;

	if (addr & CODE_KERNEL_HALF)
		return NULL;
	if (!is_known(space))
		return ptw_recording_missing_at(view->code->rec, addr);
	m = space_map_at(space, view->time, addr);
	if (!m && view->code->left_out)
		return "no code: more mappings are told than are kept (32768 of a process, and of its parents' a million in all)";
	return m && !m->file ? m->missing : NULL;
}

bool code_view_is_flat(const struct code_view *view, uint64_t addr)
{
	return addr & CODE_KERNEL_HALF ? !view->code->pokes : !view->code->spaces;
}

size_t code_read(const struct code_view *view, uint64_t addr, uint8_t *bytes, size_t size)
{
	size_t done = 0;

	while (done < size) {
		uint64_t at = addr + done, offset;
		const struct patched_page *p = view->pages ? page_at(view, at / PAGE) : NULL;
		const struct code_map *m;
		size_t n = size - done;

		if (at < addr)
			break;
		if (p) {
			if (n > PAGE - at % PAGE)
				n = PAGE - at % PAGE;
			memcpy(bytes + done, p->bytes + at % PAGE, n);
			done += n;
			continue;
		}
		m = map_at(view->code, view->space, view->time, at);
		if (!m || !m->file->data)
			break;
		offset = at - m->start + m->offset;
		if (offset >= m->file->size)
			break;
		if (n > m->end - at)
			n = m->end - at;
		if (n > m->file->size - offset)
			n = m->file->size - offset;
		/* No further than the page: the next one may have changed, or be the process's own. */
		if ((view->pages || (view->space && view->space->base)) && n > PAGE - at % PAGE)
			n = PAGE - at % PAGE;
		memcpy(bytes + done, m->file->data + offset, n);
		done += n;
	}
	return done;
}

const char *code_note(struct code_view *view, const char *text)
{
	struct ptw_code *code = view->code;
	const char *note = NULL;

	pthread_mutex_lock(&code->lock);
	for (size_t i = 0; i < NOTES && !note; i++) {
		if (!code->note[i])
			code->note[i] = strdup(text);
		if (code->note[i] && !strcmp(code->note[i], text))
			note = code->note[i];
	}
	pthread_mutex_unlock(&code->lock);
	return note ? note : "code that Zydis and libipt don't agree about";
}

const struct ptw_symbol *code_view_symbol(const struct code_view *view, uint64_t addr)
{
	struct ptw_place place;

	code_place(view->code, view->space, view->time, addr, &place);
	return place.symbol;
}
