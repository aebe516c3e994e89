// SPDX-License-Identifier: BSD-2-Clause
/*
 * The symbol table: one array sorted by address, one hash over names. Both are brought up to date at the end
 * of every load, so look-ups never write and need no lock.
 */
#include "symbols/symbols.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <elf.h>
#include <gelf.h>
#include <libelf.h>

#include "common/near.h"

#define PAGE		4096ULL
#define KERNEL_HALF	(1ULL << 63)	/* kernel addresses of x86-64 have the top bit set */
#define NO_ENTRY	UINT32_MAX
#define CHOICES		4
/* How far ptw_symbols_at() looks back for an enclosing symbol past ones that end before the address. */
#define NESTING		16

struct entry {
	struct ptw_symbol pub;	/* first: a pointer to it is a pointer to the entry */
	uint64_t end;		/* first address behind the symbol */
	uint64_t limit;		/* end of its section; 0: unknown */
	bool by_addr;		/* takes part in address look-up */
	uint32_t next;		/* same hash bucket */
};

struct block {
	struct block *next;
	char data[];
};

struct ptw_symbols {
	struct entry *entry;	/* sorted by address, at equal addresses the preferred name last */
	size_t count;
	size_t capacity;
	size_t sorted;		/* entries that are in order; the others were added since */
	uint32_t *bucket;
	size_t buckets;		/* a power of two */
	struct block *block;	/* owns the names */
	const char **module;
	size_t modules;
	bool hidden;
};

struct ptw_symbols *ptw_symbols_new(void)
{
	return calloc(1, sizeof(struct ptw_symbols));
}

void ptw_symbols_free(struct ptw_symbols *symbols)
{
	struct block *block, *next;

	if (!symbols)
		return;
	for (block = symbols->block; block; block = next) {
		next = block->next;
		free(block);
	}
	free(symbols->entry);
	free(symbols->bucket);
	free(symbols->module);
	free(symbols);
}

static int out_of_memory(struct ptw_error *err)
{
	return ptw_error_set(err, PTW_EXIT_FAILED, "symbols: out of memory");
}

static char *take_block(struct ptw_symbols *symbols, size_t size)
{
	struct block *block = malloc(sizeof(*block) + size);

	if (!block)
		return NULL;
	block->next = symbols->block;
	symbols->block = block;
	return block->data;
}

/*
 * The one pointer that stands for the module @name; @name must live as long as the table. NULL: out
 * of memory.
 */
static const char *intern_module(struct ptw_symbols *symbols, const char *name)
{
	const char **grown;

	/* Symbols of a module follow each other: the newest is nearly always the one. */
	for (size_t i = symbols->modules; i--; ) {
		if (!strcmp(symbols->module[i], name))
			return symbols->module[i];
	}
	grown = reallocarray(symbols->module, symbols->modules + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	symbols->module = grown;
	symbols->module[symbols->modules++] = name;
	return name;
}

static struct entry *add_entry(struct ptw_symbols *symbols)
{
	if (symbols->count == symbols->capacity) {
		size_t capacity = symbols->capacity ? symbols->capacity * 2 : 4096;
		struct entry *grown;

		if (capacity >= NO_ENTRY)
			return NULL;
		grown = reallocarray(symbols->entry, capacity, sizeof(*grown));
		if (!grown)
			return NULL;
		symbols->entry = grown;
		symbols->capacity = capacity;
	}
	return memset(&symbols->entry[symbols->count++], 0, sizeof(struct entry));
}

static bool is_text(char type)
{
	return type == 't' || type == 'T' || type == 'w' || type == 'W' || type == 'i';
}

static bool starts_with(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

static bool ends_with(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && !strcmp(s + n - m, suffix);
}

static bool is_one_of(const char *name, const char *const *list)
{
	for (; *list; list++) {
		if (!strcmp(name, *list))
			return true;
	}
	return false;
}

/*
 * Labels of a linker script: they share their address with the thing a person means. All are global, and
 * functions have names of the same shape, so this is strict.
 */
static bool is_end_marker(const struct ptw_symbol *s)
{
	static const char *const names[] = { "_etext",
					     "_einittext",
					     "_einitdata",
					     "_edata",
					     "_end",
					     "__bss_stop",
					     "__init_end",
					     "__brk_limit",
					     "__end_rodata",
					     "__end_rodata_aligned",
					     "__end_rodata_hpage_align",
					     NULL };

	if (s->name[0] != '_' || !isupper((unsigned char)s->type))
		return false;
	if (starts_with(s->name, "__stop_"))
		return !is_text(s->type);
	return is_one_of(s->name, names) || (s->name[1] == '_' && ends_with(s->name, "_text_end"));
}

static bool is_marker(const struct ptw_symbol *s)
{
	static const char *const names[] = { "_text",	     "_stext",	   "_sinittext",
					     "_sinitdata",   "_sdata",	   "__bss_start",
					     "__init_begin", "__brk_base", NULL };

	if (s->name[0] != '_' || !isupper((unsigned char)s->type))
		return false;
	if (starts_with(s->name, "__start_"))
		return !is_text(s->type);
	return is_one_of(s->name, names) || (s->name[1] == '_' && ends_with(s->name, "_text_start")) ||
	       is_end_marker(s);
}

/* Which of two symbols at one address gives it its name: the greater. */
static int rank(const struct ptw_symbol *s)
{
	int r = 0;

	if (!is_marker(s))
		r += 8;
	if (is_text(s->type))
		r += 4;
	if (s->type == 'T' || s->type == 'D' || s->type == 'B' || s->type == 'R')
		r += 2;
	else if (isupper((unsigned char)s->type))
		r += 1;		/* weak, unique */
	return r;
}

static int compare_entries(const void *pa, const void *pb)
{
	const struct entry *a = pa, *b = pb;
	size_t au, bu;
	int ra, rb;

	if (a->pub.addr != b->pub.addr)
		return a->pub.addr < b->pub.addr ? -1 : 1;
	if (a->by_addr != b->by_addr)
		return a->by_addr ? 1 : -1;
	ra = rank(&a->pub);
	rb = rank(&b->pub);
	if (ra != rb)
		return ra - rb;
	/* memcpy rather than its alias __memcpy; else whatever gives the same answer on every run */
	au = strspn(a->pub.name, "_");
	bu = strspn(b->pub.name, "_");
	if (au != bu)
		return au < bu ? 1 : -1;
	return strcmp(b->pub.name, a->pub.name);
}

static uint32_t hash_name(const char *name)
{
	uint32_t h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h ^ h >> 15;
}

/* Sort what was added, merge it with what was there, and recompute ends and names. */
static int finish_load(struct ptw_symbols *symbols, struct ptw_error *err)
{
	size_t n = symbols->count, old = symbols->sorted, buckets = 1024;
	struct entry *e = symbols->entry;
	uint32_t *bucket;

	if (!n)
		return 0;
	qsort(e + old, n - old, sizeof(*e), compare_entries);
	if (old && compare_entries(&e[old - 1], &e[old]) > 0) {
		struct entry *merged = reallocarray(NULL, n, sizeof(*e));
		size_t i = 0, j = old, k = 0;

		if (!merged)
			return out_of_memory(err);
		while (i < old || j < n) {
			if (j == n || (i < old && compare_entries(&e[i], &e[j]) <= 0))
				merged[k++] = e[i++];
			else
				merged[k++] = e[j++];
		}
		free(e);
		symbols->entry = e = merged;
		symbols->capacity = n;
	}
	symbols->sorted = n;

	/* From the top, so that the next higher address with a name is at hand. */
	for (size_t i = n, next = n, group = n; i--; ) {
		uint64_t end;

		if (group == n || e[i].pub.addr != e[group].pub.addr) {
			next = group;
			group = i;
		}
		if (!e[i].by_addr)
			continue;
		if (e[i].pub.size) {
			end = e[i].pub.addr + e[i].pub.size;
		} else if (is_end_marker(&e[i].pub)) {
			end = e[i].pub.addr + 1;
		} else {
			bool same = next < n && e[next].pub.module == e[i].pub.module &&
				    is_text(e[next].pub.type) == is_text(e[i].pub.type);

			end = next < n ? e[next].pub.addr : UINT64_MAX;
			if (e[i].limit) {
				if (end > e[i].limit)
					end = e[i].limit;
			} else if (!same && end - e[i].pub.addr > PAGE) {
				/*
				 * The last symbol before another module or another kind of section: its size
				 * is unknown, and a wrong name is worse than none.
				 */
				end = e[i].pub.addr + PAGE;
			}
		}
		e[i].end = end > e[i].pub.addr ? end : UINT64_MAX;
	}

	while (buckets < n)
		buckets *= 2;
	bucket = reallocarray(NULL, buckets, sizeof(*bucket));
	if (!bucket)
		return out_of_memory(err);
	memset(bucket, 0xff, buckets * sizeof(*bucket));
	for (size_t i = n; i--; ) {
		uint32_t *head = &bucket[hash_name(e[i].pub.name) & (buckets - 1)];

		e[i].next = *head;
		*head = i;
	}
	free(symbols->bucket);
	symbols->bucket = bucket;
	symbols->buckets = buckets;
	return 0;
}

/* Undo a load that failed halfway: the table is as it was. */
static void drop_unsorted(struct ptw_symbols *symbols)
{
	symbols->count = symbols->sorted;
}

/* The whole file, NUL-terminated, owned by the table. Files in /proc tell no size. */
static char *read_file(struct ptw_symbols *symbols, const char *path, size_t *size, struct ptw_error *err)
{
	size_t capacity = 1 << 20, used = 0;
	struct block *block = NULL;
	struct stat st;
	ssize_t got;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
		return NULL;
	}
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
		capacity = st.st_size + 1;
	for (;;) {
		if (!block || capacity - used < 4096) {
			struct block *grown = realloc(
				block, sizeof(*block) + (capacity = capacity * 3 / 2 + 8192));

			if (!grown) {
				out_of_memory(err);
				goto fail;
			}
			block = grown;
		}
		got = read(fd, block->data + used, capacity - used - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
			goto fail;
		}
		if (!got)
			break;
		used += got;
	}
	close(fd);
	block->data[used] = 0;
	block->next = symbols->block;
	symbols->block = block;
	*size = used;
	return block->data;
fail:
	free(block);
	close(fd);
	return NULL;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * Per-CPU variables: the kernel's are between two labels, at 0 before 6.15; those of modules are behind it,
 * in the part that pcpu_alloc() reserves for them, and of type 'a' as they are in no section of the module.
 */
static void mark_percpu(struct ptw_symbols *symbols, size_t from)
{
	const uint64_t module_room = 64 << 10;
	uint64_t start = 0, end = 0;

	for (size_t i = from; i < symbols->count; i++) {
		const struct ptw_symbol *s = &symbols->entry[i].pub;

		if (s->module || s->name[0] != '_')
			continue;
		if (!strcmp(s->name, "__per_cpu_start"))
			start = s->addr;
		else if (!strcmp(s->name, "__per_cpu_end"))
			end = s->addr;
	}
	if (end <= start)
		return;
	for (size_t i = from; i < symbols->count; i++) {
		struct entry *e = &symbols->entry[i];

		if (e->pub.addr < start || is_text(e->pub.type) ||
		    e->pub.addr >= (e->pub.module && tolower((unsigned char)e->pub.type) == 'a' ? end + module_room : end))
			continue;
		e->pub.percpu = true;
		e->by_addr = false;
	}
}

int ptw_symbols_load_kallsyms(struct ptw_symbols *symbols, const char *path, struct ptw_error *err)
{
	const char *module = NULL;
	bool any_address = false;
	size_t size, line = 0;
	char *p, *end;

	p = read_file(symbols, path, &size, err);
	if (!p)
		return -1;
	/* Room for about as many as there are: lines are some 45 bytes long. */
	if (size / 40 > symbols->capacity - symbols->count && size / 40 < NO_ENTRY / 2) {
		struct entry *grown =
			reallocarray(symbols->entry, symbols->count + size / 40, sizeof(*grown));

		if (!grown)
			return out_of_memory(err);
		symbols->entry = grown;
		symbols->capacity = symbols->count + size / 40;
	}
	/*
	 * "ffffffff81000000 T name", and "\t[module]" behind it for a module's; the names stay
	 * where they are.
	 */
	for (end = p + size; p < end; ) {
		char *eol = memchr(p, '\n', end - p), *name, *tail;
		struct entry *e;
		uint64_t addr = 0;
		int digits = 0, d;
		char type;

		line++;
		if (!eol)
			eol = end;
		*eol = 0;
		for (; (d = hex_digit(*p)) >= 0; p++, digits++)
			addr = addr << 4 | d;
		/* nm's letters, and the '?' with which it gives up: __nosave_begin can be one. */
		if (!digits || digits > 16 || p[0] != ' ' ||
		    (!isalpha((unsigned char)p[1]) && p[1] != '?') || p[2] != ' ' || !p[3]) {
			drop_unsorted(symbols);
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "%s: line %zu is not in kallsyms format", path, line);
		}
		type = p[1];
		name = p + 3;
		p = eol + 1;
		tail = name + strcspn(name, "\t ");
		if (*tail) {
			*tail++ = 0;
			tail += strspn(tail, "\t ");
			if (*tail == '[') {
				tail[strcspn(tail, "]")] = 0;
				/* Symbols of a module come in one run. */
				if (!module || strcmp(module, tail + 1))
					module = intern_module(symbols, tail + 1);
				if (!module) {
					drop_unsorted(symbols);
					return out_of_memory(err);
				}
			} else {
				module = NULL;
			}
		} else {
			module = NULL;
		}
		any_address |= addr != 0;
		/* Assembler and mapping labels name nothing. */
		if (name[0] == '$' || (name[0] == '.' && name[1] == 'L'))
			continue;
		e = add_entry(symbols);
		if (!e) {
			drop_unsorted(symbols);
			return out_of_memory(err);
		}
		e->pub = (struct ptw_symbol){ .addr = addr, .name = name, .module = module, .type = type };
		/* A per-CPU variable's "address" is an offset, an absolute symbol's is a number. */
		e->by_addr = addr >= KERNEL_HALF && type != 'a' && type != 'A';
	}
	if (!any_address) {
		drop_unsorted(symbols);
		symbols->hidden = line;
		return ptw_error_set(
			err, PTW_EXIT_FAILED,
			"%s: %s; run as root (CAP_SYSLOG), or set /proc/sys/kernel/kptr_restrict to 0 or 1",
			path, line ? "all addresses are hidden (zero)" : "holds no symbols");
	}
	mark_percpu(symbols, symbols->sorted);
	return finish_load(symbols, err);
}

bool ptw_symbols_hidden(const struct ptw_symbols *symbols)
{
	return symbols->hidden;
}

int ptw_symbols_load_perf_map(struct ptw_symbols *symbols, const char *path, struct ptw_error *err)
{
	size_t size;
	char *p = read_file(symbols, path, &size, err), *line, *save = NULL;

	if (!p)
		return -1;
	for (line = strtok_r(p, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		uint64_t addr = strtoull(line, &line, 16), length = *line == ' ' ? strtoull(line, &line, 16) : 0;
		struct entry *e;

		if (*line != ' ' || !line[1] || !length || addr + length < addr)
			continue;
		e = add_entry(symbols);
		if (!e) {
			drop_unsorted(symbols);
			return out_of_memory(err);
		}
		e->pub = (struct ptw_symbol){ .addr = addr, .size = length, .name = line + 1, .type = 't' };
		e->limit = addr + length;
		e->by_addr = true;
	}
	return finish_load(symbols, err);
}

static int load_elf_symbols(struct ptw_symbols *symbols, Elf *elf, Elf_Scn *scn, const GElf_Shdr *shdr,
			    uint64_t bias, const char *module)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	size_t n;

	if (!data || !shdr->sh_entsize)
		return 0;
	n = data->d_size / shdr->sh_entsize;
	if (n > INT_MAX)
		n = INT_MAX;
	for (size_t i = 0; i < n; i++) {
		GElf_Shdr section;
		const char *name;
		struct entry *e;
		GElf_Sym sym;
		bool global;
		char *copy;
		int type;

		if (!gelf_getsym(data, i, &sym) || sym.st_shndx == SHN_UNDEF || sym.st_shndx >= SHN_LORESERVE)
			continue;
		type = GELF_ST_TYPE(sym.st_info);
		if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
			continue;
		if (!gelf_getshdr(elf_getscn(elf, sym.st_shndx), &section) ||
		    !(section.sh_flags & SHF_EXECINSTR))
			continue;
		name = elf_strptr(elf, shdr->sh_link, sym.st_name);
		if (!name || !name[0] || name[0] == '$' || (name[0] == '.' && name[1] == 'L'))
			continue;
		copy = take_block(symbols, strlen(name) + 1);
		e = copy ? add_entry(symbols) : NULL;
		if (!e)
			return -1;
		strcpy(copy, name);
		global = GELF_ST_BIND(sym.st_info) != STB_LOCAL;
		e->pub = (struct ptw_symbol){
			.addr = sym.st_value + bias,
			.size = sym.st_size,
			.name = copy,
			.module = module,
			.type = GELF_ST_BIND(sym.st_info) == STB_WEAK ? 'W' : global ? 'T' : 't',
		};
		/* A size that reaches behind the section is a damaged one. */
		if (sym.st_value - section.sh_addr > section.sh_size ||
		    sym.st_size > section.sh_size - (sym.st_value - section.sh_addr))
			e->pub.size = 0;
		e->limit = section.sh_addr + section.sh_size + bias;
		e->by_addr = true;
	}
	return 0;
}

int ptw_symbols_load_elf(struct ptw_symbols *symbols, const char *path, uint64_t bias, const char *module,
			 struct ptw_error *err)
{
	Elf_Scn *scn = NULL, *table = NULL;
	const char *interned;
	GElf_Shdr shdr, best;
	int fd, ret = -1;
	char *copy;
	Elf *elf;

	elf_version(EV_CURRENT);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: not an ELF file", path);
		goto out;
	}
	while ((scn = elf_nextscn(elf, scn))) {
		if (!gelf_getshdr(scn, &shdr))
			continue;
		if (shdr.sh_type == SHT_SYMTAB || (shdr.sh_type == SHT_DYNSYM && !table)) {
			table = scn;
			best = shdr;
			if (shdr.sh_type == SHT_SYMTAB)
				break;
		}
	}
	if (!table) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: has no symbol table", path);
		goto out;
	}
	if (!module)
		module = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	copy = take_block(symbols, strlen(module) + 1);
	interned = copy ? intern_module(symbols, strcpy(copy, module)) : NULL;
	if (!interned || load_elf_symbols(symbols, elf, table, &best, bias, interned)) {
		drop_unsorted(symbols);
		out_of_memory(err);
		goto out;
	}
	ret = finish_load(symbols, err);
out:
	if (elf)
		elf_end(elf);
	close(fd);
	return ret;
}

const struct ptw_symbol *ptw_symbols_at(const struct ptw_symbols *symbols, uint64_t addr)
{
	size_t low = 0, high;

	if (!symbols || !symbols->count)
		return NULL;
	high = symbols->count;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (symbols->entry[mid].pub.addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	for (int i = 0; i < NESTING && low--; i++) {
		const struct entry *e = &symbols->entry[low];

		if (e->by_addr && addr < e->end)
			return &e->pub;
		/* Sizes of kallsyms reach to the next symbol: nothing encloses another one. */
		if (e->by_addr && !e->pub.size && !e->limit)
			break;
	}
	return NULL;
}

uint64_t ptw_symbols_end(const struct ptw_symbols *symbols, const struct ptw_symbol *symbol)
{
	return ((const struct entry *)symbol)->end;
}

char *ptw_symbols_format(const struct ptw_symbols *symbols, uint64_t addr, char *buf, size_t size)
{
	const struct ptw_symbol *s = ptw_symbols_at(symbols, addr);

	if (!s)
		snprintf(buf, size, "0x%016llx", (unsigned long long)addr);
	else if (s->module)
		snprintf(buf, size, "%s+0x%llx [%s]", s->name, (unsigned long long)(addr - s->addr),
			 s->module);
	else
		snprintf(buf, size, "%s+0x%llx", s->name, (unsigned long long)(addr - s->addr));
	return buf;
}

/* A decimal or 0x-hexadecimal number that fills all of @text. */
static bool parse_number(const char *text, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*value = strtoull(text, &end, text[0] == '0' && (text[1] | 0x20) == 'x' ? 16 : 10);
	return !errno && end != text && !*end;
}

/* A text that grows inside a fixed buffer and is cut when it is full. */
struct text {
	char data[512];
	size_t used;
};

static void __attribute__((format(printf, 2, 3))) append(struct text *text, const char *format, ...)
{
	size_t room = sizeof(text->data) - text->used;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->data + text->used, room, format, args);
	va_end(args);
	if (n > 0)
		text->used += (size_t)n < room ? (size_t)n : room - 1;
}

static int no_module(const struct ptw_symbols *symbols, const char *module, struct ptw_error *err)
{
	struct ptw_near near = { .wanted = module };
	char text[512];

	for (size_t i = 0; i < symbols->modules; i++)
		ptw_near_consider(&near, symbols->module[i]);
	return ptw_error_set(err, PTW_EXIT_FAILED,
			     "%s: no symbols of such a module (is it loaded?)%s", module,
			     ptw_near_text(&near, text, sizeof(text)));
}

static int no_symbol(const struct ptw_symbols *symbols, const char *name, const char *module,
		     bool kernel_only, struct ptw_error *err)
{
	struct ptw_near near = { .wanted = name };
	char text[512];

	for (size_t i = 0; i < symbols->count; i++) {
		const struct ptw_symbol *s = &symbols->entry[i].pub;

		/* Padding in front of a function is not what anyone watches. */
		if ((module && s->module != module) || (kernel_only && s->module) ||
		    starts_with(s->name, "__pfx_"))
			continue;
		ptw_near_consider_in(&near, s->module, s->name);
	}
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s: no such symbol%s%s%s", name, module ? " in " : "",
			     module ? module : "",
			     near.count ? ptw_near_text(&near, text, sizeof(text)) :
			     "; is its module loaded? /proc/kallsyms lists what there is");
}

static bool is_global(const struct entry *e)
{
	return isupper((unsigned char)e->pub.type);
}

/* Find @name; of several addresses the only global one wins, else the person has to choose. */
static const struct entry *find_name(const struct ptw_symbols *symbols, const char *name, const char *module,
				     bool kernel_only, struct ptw_error *err)
{
	const struct entry *found[CHOICES], *global = NULL;
	size_t count = 0, globals = 0;
	struct text text = { .used = 0 };
	uint32_t i;

	if (!symbols->count) {
		ptw_error_set(err, PTW_EXIT_FAILED,
			      "%s: no symbols are known; give an address (0x…)", name);
		return NULL;
	}
	for (i = symbols->bucket[hash_name(name) & (symbols->buckets - 1)]; i != NO_ENTRY;
	     i = symbols->entry[i].next) {
		const struct entry *e = &symbols->entry[i];
		bool known = false;

		if (strcmp(e->pub.name, name) || (module && e->pub.module != module) ||
		    (kernel_only && e->pub.module))
			continue;
		for (size_t k = 0; k < count && k < CHOICES; k++)
			known |= found[k]->pub.addr == e->pub.addr;
		if (known)
			continue;
		if (count < CHOICES)
			found[count] = e;
		count++;
		if (is_global(e)) {
			global = e;
			globals++;
		}
	}
	if (!count) {
		no_symbol(symbols, name, module, kernel_only, err);
		return NULL;
	}
	if (count == 1)
		return found[0];
	if (globals == 1)
		return global;
	for (size_t k = 0; k < count && k < CHOICES; k++) {
		const char *from = found[k]->pub.module;
		size_t same = 0;

		/* "module:sym" is a choice only where it names one. */
		for (size_t j = 0; j < count && j < CHOICES; j++)
			same += found[j]->pub.module == from;
		append(&text, "%s0x%llx", k ? ", " : "", (unsigned long long)found[k]->pub.addr);
		if (same == 1 && count <= CHOICES)
			append(&text, " (%s:%s)", from ? from : "vmlinux", name);
		else if (from)
			append(&text, " [%s]", from);
	}
	ptw_error_set(err, PTW_EXIT_FAILED, "%s: %zu symbols have this name; choose one: %s%s",
		      name, count, text.data, count > CHOICES ? ", …" : "");
	return NULL;
}

static int usage(const char *spelling, struct ptw_error *err)
{
	return ptw_error_set(
		err, PTW_EXIT_USAGE,
		"%s: not a symbol; write sym, sym+0x10, module:sym, module:sym+0x10 or 0xaddr",
		*spelling ? spelling : "''");
}

static const char *find_module(const struct ptw_symbols *symbols, const char *name)
{
	for (size_t i = 0; symbols && i < symbols->modules; i++) {
		const char *known = symbols->module[i];
		size_t k;

		/* Files are called my-driver.ko and their modules my_driver. */
		for (k = 0; known[k] && (known[k] == name[k] || (known[k] == '_' && name[k] == '-')); k++)
			;
		if (!known[k] && !name[k])
			return known;
	}
	return NULL;
}

bool ptw_symbols_has_module(const struct ptw_symbols *symbols, const char *name)
{
	return find_module(symbols, name);
}

static int resolve(const struct ptw_symbols *symbols, const char *spelling, bool percpu, uint64_t *addr,
		   const struct ptw_symbol **symbol, struct ptw_error *err)
{
	const char *module = NULL;
	const struct entry *e;
	char text[512], *name, *plus, *colon;
	bool kernel_only = false;
	uint64_t offset = 0;

	if (symbol)
		*symbol = NULL;
	if (!spelling[0] || strlen(spelling) >= sizeof(text) || strpbrk(spelling, " \t\n"))
		return usage(spelling, err);
	if (isdigit((unsigned char)spelling[0])) {
		/* A name can't begin with a digit; a bare decimal is more likely a slip than an address. */
		if (spelling[0] != '0' || (spelling[1] | 0x20) != 'x' || !parse_number(spelling, addr))
			return usage(spelling, err);
		return 0;
	}
	strcpy(text, spelling);
	name = text;
	plus = strrchr(text, '+');
	if (plus) {
		*plus++ = 0;
		if (!parse_number(plus, &offset))
			return usage(spelling, err);
	}
	colon = strchr(text, ':');
	if (colon) {
		*colon = 0;
		name = colon + 1;
		if (!text[0])
			return usage(spelling, err);
	}
	if (!name[0] || strchr(name, ':'))
		return usage(spelling, err);
	if (colon && !strcmp(text, "vmlinux")) {
		kernel_only = true;
	} else if (colon) {
		module = find_module(symbols, text);
		if (!module)
			return no_module(symbols, text, err);
	}
	e = find_name(symbols, name, module, kernel_only, err);
	if (!e)
		return -1;
	if (!e->by_addr && !(percpu && e->pub.percpu))
		return ptw_error_set(
			err, PTW_EXIT_FAILED, "%s: %s; give the address of the copy you mean (0x…)",
			name,
			e->pub.addr ?
				"a per-CPU variable (every CPU has its own copy) or absolute symbol" :
				"has no address of its own (per-CPU or absolute)");
	if (e->pub.addr + offset < offset)
		return usage(spelling, err);
	*addr = e->pub.addr + offset;
	if (symbol)
		*symbol = &e->pub;
	return 0;
}

int ptw_symbols_resolve(const struct ptw_symbols *symbols, const char *spelling, uint64_t *addr,
			const struct ptw_symbol **symbol, struct ptw_error *err)
{
	return resolve(symbols, spelling, false, addr, symbol, err);
}

int ptw_symbols_resolve_percpu(const struct ptw_symbols *symbols, const char *spelling, uint64_t *addr,
			       const struct ptw_symbol **symbol, struct ptw_error *err)
{
	return resolve(symbols, spelling, true, addr, symbol, err);
}
