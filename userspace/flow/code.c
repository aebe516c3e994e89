// SPDX-License-Identifier: BSD-2-Clause
#include "flow/code.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE		4096ULL
#define PAGES_LIMIT	65536	/* pages of changing code */
#define MAPS_LIMIT	16384	/* of a process; more is damage */
#define ALL_MAPS_LIMIT	(1u << 20)

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
	const char *name;	/* last part of the path */
};

struct code_map {
	uint64_t start, end;
	uint64_t offset;
	struct code_file *file;
	uint64_t since, until;
};

struct code_space {
	uint32_t number;	/* from 1 */
	int32_t pid;
	uint64_t since;
	struct code_space *older;	/* of the same process, before it ran another program */
	struct code_map *map;
	size_t maps;
	uint64_t *change;	/* times at which code was replaced */
	size_t changes;
};

struct poke {
	uint64_t time, addr;
	const uint8_t *old_bytes, *new_bytes;
	uint16_t old_size, new_size;
};

struct ptw_code {
	const struct ptw_recording *rec;
	pthread_mutex_t lock;	/* of the files' symbols */
	struct code_file **file;
	size_t files;
	struct code_map *flat;	/* the recording's image; the later one wins */
	size_t flats;
	const char *unreadable;
	struct code_space **space;
	size_t spaces;
	size_t maps;		/* of all spaces */
	uint32_t *newest;	/* a hash: newest space of a process, + 1 */
	size_t slots;
	struct poke *poke;
	size_t pokes;
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

/* @name: how it was mapped; a cache calls it otherwise */
static struct code_file *file_of(struct ptw_code *code, const char *path, const char *name)
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
	f->name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	map_file(f);
	return f;
}

/* ---- processes ---- */

static struct code_space **newest(const struct ptw_code *code, int32_t pid)
{
	size_t h;

	for (h = (uint32_t)pid * 2654435761u & (code->slots - 1); code->newest[h]; h = (h + 1) & (code->slots - 1))
		if (code->space[code->newest[h] - 1]->pid == pid)
			return &code->space[code->newest[h] - 1];
	return NULL;
}

static int grow_slots(struct ptw_code *code)
{
	size_t slots = code->slots ? 2 * code->slots : 64;
	uint32_t *old = code->newest, *fresh = calloc(slots, sizeof(*fresh));

	if (!fresh)
		return -1;
	for (size_t i = 0; i < code->slots; i++) {
		size_t h;

		if (!old[i])
			continue;
		for (h = (uint32_t)code->space[old[i] - 1]->pid * 2654435761u & (slots - 1); fresh[h]; )
			h = (h + 1) & (slots - 1);
		fresh[h] = old[i];
	}
	free(old);
	code->newest = fresh;
	code->slots = slots;
	return 0;
}

static struct code_space *add_space(struct ptw_code *code, int32_t pid, uint64_t since)
{
	struct code_space **grown, *space;
	size_t h;

	if (2 * code->spaces >= code->slots && grow_slots(code))
		return NULL;
	grown = grow(code->space, code->spaces, sizeof(*grown));
	if (!grown)
		return NULL;
	code->space = grown;
	space = calloc(1, sizeof(*space));
	if (!space)
		return NULL;
	space->number = code->spaces + 1;
	space->pid = pid;
	space->since = since;
	for (h = (uint32_t)pid * 2654435761u & (code->slots - 1); code->newest[h]; h = (h + 1) & (code->slots - 1)) {
		if (code->space[code->newest[h] - 1]->pid == pid) {
			space->older = code->space[code->newest[h] - 1];
			break;
		}
	}
	code->space[code->spaces++] = space;
	code->newest[h] = code->spaces;
	return space;
}

static struct code_space *current_space(struct ptw_code *code, int32_t pid, uint64_t time)
{
	struct code_space **space = code->slots ? newest(code, pid) : NULL;

	return space ? *space : add_space(code, pid, 0);
}

struct code_space *code_space_at(struct ptw_code *code, int32_t pid, uint64_t time)
{
	struct code_space **found = code->slots ? newest(code, pid) : NULL, *space = found ? *found : NULL;

	while (space && space->since > time && space->older)
		space = space->older;
	return space;
}

static int put_map(struct ptw_code *code, struct code_space *space, const struct code_map *map)
{
	struct code_map *grown;

	if (space->maps >= MAPS_LIMIT || code->maps >= ALL_MAPS_LIMIT)
		return 0;
	code->maps++;
	grown = grow(space->map, space->maps, sizeof(*grown));
	if (!grown)
		return -1;
	space->map = grown;
	space->map[space->maps++] = *map;
	return 0;
}

/* What was mapped there before is gone; of what sticks out the rest stays. */
static int replace(struct ptw_code *code, struct code_space *space, uint64_t start, uint64_t end, uint64_t time)
{
	size_t count = space->maps;
	bool changed = false;

	for (size_t i = 0; i < count; i++) {
		struct code_map old = space->map[i];

		if (old.until != CODE_ALWAYS || old.end <= start || old.start >= end)
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
	if (changed) {
		uint64_t *grown = grow(space->change, space->changes, sizeof(*grown));

		if (!grown)
			return -1;
		space->change = grown;
		space->change[space->changes++] = time;
	}
	return 0;
}

static int take_mmap(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct code_space *space = current_space(code, e->pid, e->time);
	struct ptw_side_detail d;
	struct code_map map;
	const char *path;

	if (!space)
		return -1;
	ptw_side_detail(e, &d);
	path = ptw_recording_binary(code->rec, d.name, d.id, d.id_size);
	map = (struct code_map){
		.start = d.addr, .end = d.addr + d.size, .offset = d.pgoff, .since = e->time, .until = CODE_ALWAYS,
	};
	if (replace(code, space, map.start, map.end, e->time))
		return -1;
	/* A file that is not here any more: its place is known to be taken, at least. */
	if (path) {
		map.file = file_of(code, path, d.name);
		if (!map.file)
			return -1;
	}
	return put_map(code, space, &map);
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
	for (size_t i = 0; parent && i < parent->maps; i++)
		if (parent->map[i].until == CODE_ALWAYS && put_map(code, child, &parent->map[i]))
			return -1;
	return 0;
}

static int take_poke(struct ptw_code *code, const struct ptw_side_event *e)
{
	struct poke *grown = grow(code->poke, code->pokes, sizeof(*grown));
	struct ptw_side_detail d;

	if (!grown)
		return -1;
	code->poke = grown;
	ptw_side_detail(e, &d);
	if (d.addr + (d.new_size > d.old_size ? d.new_size : d.old_size) < d.addr)
		return 0;
	grown[code->pokes++] = (struct poke){
		.time = e->time, .addr = d.addr, .old_bytes = d.old_bytes, .old_size = d.old_size,
		.new_bytes = d.new_bytes, .new_size = d.new_size,
	};
	return 0;
}

static int take_sideband(struct ptw_code *code)
{
	for (size_t i = 0; i < code->rec->side_count; i++) {
		const struct ptw_side_event *e = &code->rec->side[i];
		int ret = 0;

		if (e->type == PTW_SIDE_MMAP)
			ret = take_mmap(code, e);
		else if (e->type == PTW_SIDE_FORK)
			ret = take_fork(code, e);
		else if (e->type == PTW_SIDE_COMM && e->exec)
			ret = add_space(code, e->pid, e->time) ? 0 : -1;
		else if (e->type == PTW_SIDE_TEXT_POKE)
			ret = take_poke(code, e);
		if (ret)
			return -1;
	}
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
		struct code_file *f = file_of(code, s->path, s->path);

		if (!f)
			return -1;
		if (!f->data && !code->unreadable)
			code->unreadable = f->path;
		code->flat[code->flats++] = (struct code_map){
			.start = s->vaddr, .end = s->vaddr + s->size, .offset = s->offset, .file = f,
			.until = CODE_ALWAYS,
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
	pthread_mutex_init(&code->lock, NULL);
	if (take_image(code) || take_sideband(code)) {
		code_free(code);
		return NULL;
	}
	return code;
}

void code_free(struct ptw_code *code)
{
	if (!code)
		return;
	for (size_t i = 0; i < code->spaces; i++) {
		free(code->space[i]->map);
		free(code->space[i]->change);
		free(code->space[i]);
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
	free(code->space);
	free(code->newest);
	free(code->file);
	free(code->flat);
	free(code->poke);
	pthread_mutex_destroy(&code->lock);
	free(code);
}

const char *code_unreadable(const struct ptw_code *code)
{
	return code->unreadable;
}

/* ---- looking things up ---- */

static const struct code_map *map_at(const struct ptw_code *code, const struct code_space *space, uint64_t time,
				     uint64_t addr)
{
	for (size_t i = space && !(addr & CODE_KERNEL_HALF) ? space->maps : 0; i--; ) {
		const struct code_map *m = &space->map[i];

		if (addr >= m->start && addr < m->end && m->since <= time && time < m->until)
			return m->file ? m : NULL;
	}
	/* Of a known process everything is known. */
	if (space && space->maps && !(addr & CODE_KERNEL_HALF))
		return NULL;
	for (size_t i = code->flats; i--; )
		if (addr >= code->flat[i].start && addr < code->flat[i].end)
			return &code->flat[i];
	return NULL;
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

const struct ptw_symbol *code_symbol(struct ptw_code *code, const struct code_space *space, uint64_t time,
				     uint64_t addr, uint64_t *start, const char **object)
{
	const struct ptw_symbol *symbol = code->rec->symbols ? ptw_symbols_at(code->rec->symbols, addr) : NULL;
	const struct code_map *m;
	uint64_t offset;

	if (symbol || addr & CODE_KERNEL_HALF) {
		*start = symbol ? symbol->addr : 0;
		*object = symbol ? symbol->module : NULL;
		return symbol;
	}
	*object = NULL;
	m = map_at(code, space, time, addr);
	if (!m || !symbols_of(code, m->file))
		return NULL;
	*object = m->file->name;
	offset = addr - m->start + m->offset;
	for (size_t i = 0; i < m->file->segments; i++) {
		const struct segment *s = &m->file->segment[i];

		if (offset < s->offset || offset - s->offset >= s->size)
			continue;
		offset = offset - s->offset + s->vaddr;
		symbol = ptw_symbols_at(m->file->symbols, offset);
		if (symbol)
			*start = addr - (offset - symbol->addr);
		return symbol;
	}
	return NULL;
}

/* ---- a view ---- */

static const uint8_t *base_page(const struct ptw_code *code, uint64_t page)
{
	const struct code_map *m = map_at(code, NULL, 0, page * PAGE);
	uint64_t offset;

	if (!m || !m->file->data)
		return NULL;
	offset = page * PAGE - m->start + m->offset;
	return offset < m->file->size && m->file->size - offset >= PAGE && m->end - page * PAGE >= PAGE ?
		       m->file->data + offset : NULL;
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
	const uint8_t *base;
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
	base = base_page(view->code, page);
	/* Where there is no copy, code that is generated later may be told by the changes alone. */
	if (base)
		memcpy(p->bytes, base, PAGE);
	view->page[view->pages++] = p;
	return 0;
}

static bool write_bytes(struct code_view *view, uint64_t addr, const uint8_t *bytes, size_t size,
			bool (*touched)(void *, uint64_t), void *context)
{
	uint64_t asked = UINT64_MAX;
	bool known = false;

	for (size_t i = 0; i < size; i++) {
		struct patched_page *p = page_at(view, (addr + i) / PAGE);

		if (!p)
			continue;
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
		write_bytes(view, code->poke[i].addr, code->poke[i].old_bytes, code->poke[i].old_size, NULL, NULL);
	return view;
}

void code_view_free(struct code_view *view)
{
	if (!view)
		return;
	for (size_t i = 0; i < view->pages; i++)
		free(view->page[i]);
	free(view->page);
	free(view);
}

static size_t changes_at(const struct code_space *space, uint64_t time)
{
	size_t low = 0, high = space ? space->changes : 0;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (space->change[mid] <= time)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

uint32_t code_view_space(struct code_view *view, struct code_space *space)
{
	if (view->space != space) {
		view->space = space;
		view->change = changes_at(space, view->time);
	}
	/* The low bits tell the versions of one process's code apart. */
	return space ? space->number << 8 | (view->change & 0xff) : 0;
}

bool code_view_time(struct code_view *view, uint64_t time, bool (*touched)(void *, uint64_t), void *context)
{
	const struct ptw_code *code = view->code;
	bool stale = false;
	size_t change;

	view->time = time;
	change = changes_at(view->space, time);
	stale = change != view->change;
	view->change = change;
	while (view->poked < code->pokes && code->poke[view->poked].time <= time) {
		const struct poke *p = &code->poke[view->poked++];

		stale |= write_bytes(view, p->addr, p->new_bytes, p->new_size, touched, context);
	}
	while (view->poked && code->poke[view->poked - 1].time > time) {
		const struct poke *p = &code->poke[--view->poked];

		stale |= write_bytes(view, p->addr, p->old_bytes, p->old_size, touched, context);
	}
	return stale;
}

uint64_t code_view_next_change(const struct code_view *view)
{
	uint64_t next = view->poked < view->code->pokes ? view->code->poke[view->poked].time : CODE_ALWAYS;

	if (view->space && view->change < view->space->changes && view->space->change[view->change] < next)
		next = view->space->change[view->change];
	return next;
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
		/* No further than the page: the next one may have changed. */
		if (view->pages && n > PAGE - at % PAGE)
			n = PAGE - at % PAGE;
		memcpy(bytes + done, m->file->data + offset, n);
		done += n;
	}
	return done;
}

const struct ptw_symbol *code_view_symbol(const struct code_view *view, uint64_t addr)
{
	const char *object;
	uint64_t start;

	return code_symbol(view->code, view->space, view->time, addr, &start, &object);
}
