// SPDX-License-Identifier: BSD-2-Clause
#include "recording/kernel_copy.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recording/file.h"

#define PAGE		4096ULL
#define KERNEL_HALF	(1ULL << 63)
/* Generated code has no size in kallsyms: at most this much behind its last symbol is copied. */
#define GENERATED_TAIL	(64 * PAGE)
#define REGION_LIMIT	16384
/* As many modules that come later have a place in the core's program headers. */
#define LATE_MODULES	64
#define REGION_SIZE	(1ULL << 30)	/* more than the whole module area: /proc/modules is damaged */

struct region {
	uint64_t start;
	uint64_t end;
};

struct copy {
	const char *proc;
	struct ptw_kernel_layout *layout;
	uint64_t stext;
	struct region *region;
	size_t regions;
	Elf64_Phdr *segment;	/* of /proc/kcore */
	size_t segments;
};

void ptw_kernel_layout_free(struct ptw_kernel_layout *layout)
{
	free(layout->module);
	memset(layout, 0, sizeof(*layout));
}

static uint64_t page_down(uint64_t addr)
{
	return addr & ~(PAGE - 1);
}

static uint64_t page_up(uint64_t addr)
{
	return (addr + PAGE - 1) & ~(PAGE - 1);
}

static int add_region(struct copy *copy, uint64_t start, uint64_t end, struct ptw_error *err)
{
	struct region *grown;

	start = page_down(start);
	end = page_up(end);
	if (end <= start)
		return 0;
	if (end - start > REGION_SIZE || copy->regions >= REGION_LIMIT)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s: implausible code at 0x%llx (%llu bytes)", copy->proc,
				     (unsigned long long)start, (unsigned long long)(end - start));
	grown = reallocarray(copy->region, copy->regions + 1, sizeof(*grown));
	if (!grown)
		return ptw_error_set(err, PTW_EXIT_FAILED, "recording: out of memory");
	copy->region = grown;
	copy->region[copy->regions++] = (struct region){ start, end };
	return 0;
}

/* "name size references dependencies state 0xaddress", one module a line */
static int read_modules(struct copy *copy, char *text, struct ptw_error *err)
{
	struct ptw_kernel_layout *layout = copy->layout;
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct ptw_kernel_module module, *grown;
		unsigned long long size, addr;

		if (sscanf(line, "%63s %llu %*s %*s %*s 0x%llx", module.name, &size, &addr) != 3)
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "%s/modules: not understood: %.60s", copy->proc, line);
		/*
		 * A module that is being loaded or unloaded has no code worth copying; 0: addresses
		 * are hidden.
		 */
		if (addr < KERNEL_HALF || addr + size < addr)
			continue;
		module.addr = addr;
		module.size = size;
		grown = reallocarray(layout->module, layout->modules + 1, sizeof(*grown));
		if (!grown)
			return ptw_error_set(err, PTW_EXIT_FAILED, "recording: out of memory");
		layout->module = grown;
		layout->module[layout->modules++] = module;
		/*
		 * The size is that of all the module's parts. Where they are allocated apart, what follows
		 * the text is someone else's or nothing, until another module comes to lie there.
		 */
		if (add_region(copy, addr, addr + size, err))
			return -1;
	}
	return 0;
}

static bool is_loaded_module(const struct copy *copy, const char *name, size_t length)
{
	for (size_t i = 0; i < copy->layout->modules; i++) {
		const char *known = copy->layout->module[i].name;

		if (!strncmp(known, name, length) && !known[length])
			return true;
	}
	return false;
}

/*
 * The kernel's bounds, and the code that no module owns: "[bpf]", "[__builtin__ftrace]",
 * "[__builtin__kprobes]".
 */
static int read_kallsyms(struct copy *copy, char *text, struct ptw_error *err)
{
	uint64_t generated_start = 0, generated_end = 0;
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *end, *name, *bracket;
		uint64_t addr;

		addr = strtoull(line, &end, 16);
		if (end[0] != ' ' || !end[1] || end[2] != ' ')
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "%s/kallsyms: not understood: %.60s", copy->proc,
					     line);
		name = end + 3;
		bracket = strchr(name, '[');
		if (!bracket) {
			if (!strcmp(name, "_text"))
				copy->layout->text = addr;
			else if (!strcmp(name, "_stext"))
				copy->stext = addr;
			else if (!strcmp(name, "_etext"))
				copy->layout->etext = addr;
			continue;
		}
		bracket++;
		if (tolower((unsigned char)end[1]) != 't' || addr < KERNEL_HALF ||
		    is_loaded_module(copy, bracket, strcspn(bracket, "]")))
			continue;
		if (addr >= generated_start && addr <= generated_end) {
			generated_end = page_up(addr + GENERATED_TAIL);
			continue;
		}
		if (add_region(copy, generated_start, generated_end, err))
			return -1;
		generated_start = page_down(addr);
		generated_end = page_up(addr + GENERATED_TAIL);
	}
	if (add_region(copy, generated_start, generated_end, err))
		return -1;
	if (!copy->layout->text || !copy->layout->etext || copy->layout->etext <= copy->layout->text)
		return ptw_error_set(
			err, PTW_EXIT_FAILED,
			"%s/kallsyms: the kernel's addresses are hidden; run as root (CAP_SYSLOG), or set "
			"/proc/sys/kernel/kptr_restrict to 0 or 1",
			copy->proc);
	if (!copy->stext || copy->stext > copy->layout->text)
		copy->stext = copy->layout->text;
	return add_region(copy, copy->stext, copy->layout->etext, err);
}

static int compare_regions(const void *pa, const void *pb)
{
	const struct region *a = pa, *b = pb;

	return a->start < b->start ? -1 : a->start > b->start;
}

/*
 * Sorted and disjoint: what begins earlier ends where the next begins, so that every module keeps
 * its start.
 */
static void settle_regions(struct copy *copy)
{
	struct region *r = copy->region;
	size_t n = 0;

	qsort(r, copy->regions, sizeof(*r), compare_regions);
	for (size_t i = 0; i < copy->regions; i++) {
		if (n && r[i].start == r[n - 1].start) {
			if (r[i].end > r[n - 1].end)
				r[n - 1].end = r[i].end;
			continue;
		}
		if (n && r[n - 1].end > r[i].start) {
			if (r[i].end < r[n - 1].end)
				r[i].end = r[n - 1].end;
			r[n - 1].end = r[i].start;
		}
		r[n++] = r[i];
	}
	copy->regions = n;
}

static int read_segments(struct copy *copy, int fd, const char *path, struct ptw_error *err)
{
	Elf64_Ehdr head;
	size_t size;

	if (ptw_read_at(fd, &head, sizeof(head), 0, path, err))
		return -1;
	if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof(Elf64_Phdr) || !head.e_phnum)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: not a 64-bit ELF core", path);
	size = head.e_phnum * sizeof(Elf64_Phdr);
	copy->segment = malloc(size);
	if (!copy->segment)
		return ptw_error_set(err, PTW_EXIT_FAILED, "recording: out of memory");
	copy->segments = head.e_phnum;
	return ptw_read_at(fd, copy->segment, size, head.e_phoff, path, err);
}

/* The segment of /proc/kcore that holds @addr */
static const Elf64_Phdr *find_segment(const struct copy *copy, uint64_t addr)
{
	for (size_t i = 0; i < copy->segments; i++) {
		const Elf64_Phdr *s = &copy->segment[i];

		if (s->p_type == PT_LOAD && addr >= s->p_vaddr && addr - s->p_vaddr < s->p_filesz)
			return s;
	}
	return NULL;
}

/* Cut the regions to what kcore holds; what it lacks altogether (a module just unloaded) is left out. */
static void clip_regions(struct copy *copy)
{
	size_t n = 0;

	for (size_t i = 0; i < copy->regions; i++) {
		struct region r = copy->region[i];
		const Elf64_Phdr *s = find_segment(copy, r.start);

		if (!s)
			continue;
		if (r.end - s->p_vaddr > s->p_filesz)
			r.end = s->p_vaddr + s->p_filesz;
		copy->region[n++] = r;
	}
	copy->regions = n;
}

/* The bytes of @phdr, from /proc/kcore (@in) to where @phdr says in @out */
static int write_segment(const struct copy *copy, int in, const char *in_path, const Elf64_Phdr *phdr, int out,
			 const char *path, struct ptw_error *err)
{
	const Elf64_Phdr *s = find_segment(copy, phdr->p_vaddr);
	uint64_t from = s->p_offset + (phdr->p_vaddr - s->p_vaddr), done = 0;
	size_t chunk = 1 << 20;
	char *buffer = malloc(chunk);
	int ret = -1;

	if (!buffer)
		return ptw_error_set(err, PTW_EXIT_FAILED, "recording: out of memory");
	if (lseek(out, phdr->p_offset, SEEK_SET) < 0) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
		goto out;
	}
	while (done < phdr->p_filesz) {
		size_t n = phdr->p_filesz - done < chunk ? phdr->p_filesz - done : chunk;

		if (ptw_read_at(in, buffer, n, from + done, in_path, err) || ptw_write_all(out, buffer, n, path, err))
			goto out;
		done += n;
	}
	ret = 0;
out:
	free(buffer);
	return ret;
}

static int write_kcore(struct copy *copy, int in, const char *in_path, const char *path,
		       struct ptw_error *err)
{
	size_t table = copy->regions * sizeof(Elf64_Phdr);
	Elf64_Ehdr head = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_CORE,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(head),
		.e_ehsize = sizeof(head),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = copy->regions,
	};
	uint64_t offset = page_up(sizeof(head) + table + LATE_MODULES * sizeof(Elf64_Phdr));
	Elf64_Phdr *phdr = calloc(copy->regions, sizeof(*phdr));
	int out = -1, ret = -1;

	if (!phdr) {
		ptw_error_set(err, PTW_EXIT_FAILED, "recording: out of memory");
		goto out;
	}
	for (size_t i = 0; i < copy->regions; i++) {
		uint64_t size = copy->region[i].end - copy->region[i].start;

		phdr[i] = (Elf64_Phdr){
			.p_type = PT_LOAD, .p_flags = PF_R | PF_W | PF_X, .p_offset = offset,
			.p_vaddr = copy->region[i].start, .p_filesz = size, .p_memsz = size, .p_align = PAGE,
		};
		offset += page_up(size);
	}
	out = ptw_create_file(path, err);
	if (out < 0 || ptw_write_all(out, &head, sizeof(head), path, err) ||
	    ptw_write_all(out, phdr, table, path, err))
		goto out;
	for (size_t i = 0; i < copy->regions; i++)
		if (write_segment(copy, in, in_path, &phdr[i], out, path, err))
			goto out;
	ret = 0;
out:
	if (out >= 0 && ptw_close_file(out, path, ret ? NULL : err))
		ret = -1;
	free(phdr);
	return ret;
}

/* Copy a text file of /proc and return it, NUL-terminated. */
static char *copy_text(struct copy *copy, const char *dir, const char *name, struct ptw_error *err)
{
	char from[4096], to[4096];
	size_t size;
	char *text;

	snprintf(from, sizeof(from), "%s/%s", copy->proc, name);
	snprintf(to, sizeof(to), "%s/%s", dir, name);
	text = ptw_read_text(from, &size, err);
	if (text && ptw_write_file(to, text, size, err)) {
		free(text);
		return NULL;
	}
	return text;
}

int ptw_kernel_copy(const char *proc, const char *dir, struct ptw_kernel_layout *layout,
		    struct ptw_error *err)
{
	struct copy copy = { .proc = proc, .layout = layout };
	char from[4096], to[4096], *text;
	int fd = -1, ret = -1;

	memset(layout, 0, sizeof(*layout));
	snprintf(from, sizeof(from), "%s/kcore", proc);
	snprintf(to, sizeof(to), "%s/kcore", dir);

	/* Modules first: kallsyms tells modules from other code by what is in it. */
	text = copy_text(&copy, dir, "modules", err);
	ret = text ? read_modules(&copy, text, err) : -1;
	free(text);
	if (ret)
		goto out;
	text = copy_text(&copy, dir, "kallsyms", err);
	ret = text ? read_kallsyms(&copy, text, err) : -1;
	free(text);
	if (ret)
		goto out;
	ret = -1;
	fd = open(from, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		if (errno == EPERM)
			ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				      "%s: not permitted (lockdown, or no CAP_SYS_RAWIO); boot "
				      "without lockdown=confidentiality and run as root",
				      from);
		else if (errno == ENOENT)
			ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
				      "%s: this kernel has none; it needs CONFIG_PROC_KCORE", from);
		else
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", from, strerror(errno));
		goto out;
	}
	if (read_segments(&copy, fd, from, err))
		goto out;
	settle_regions(&copy);
	clip_regions(&copy);
	if (!find_segment(&copy, layout->text)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: does not hold the kernel's text (0x%llx)", from,
			      (unsigned long long)layout->text);
		goto out;
	}
	ret = write_kcore(&copy, fd, from, to, err);
out:
	if (fd >= 0)
		close(fd);
	free(copy.region);
	free(copy.segment);
	if (ret)
		ptw_kernel_layout_free(layout);
	return ret;
}

int ptw_kernel_read(const char *proc, uint64_t addr, void *data, size_t size, struct ptw_error *err)
{
	struct copy copy = { .proc = proc };
	const Elf64_Phdr *s = NULL;
	char path[4096];
	int fd, ret = -1;

	snprintf(path, sizeof(path), "%s/kcore", proc);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
	if (!read_segments(&copy, fd, path, err)) {
		s = find_segment(&copy, addr);
		if (s && size <= s->p_filesz - (addr - s->p_vaddr))
			ret = ptw_read_at(fd, data, size, s->p_offset + (addr - s->p_vaddr), path, err);
		else
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: does not hold 0x%llx", path, (unsigned long long)addr);
	}
	close(fd);
	free(copy.segment);
	return ret;
}

/* ---- modules that came later ---- */

/* The lines of /proc/@name that are about one of @late, behind what @dir's copy has */
static int append_lines(const struct copy *copy, const struct ptw_kernel_layout *late, const char *dir, const char *name,
			struct ptw_error *err)
{
	char from[4096], to[4096], *text, *save = NULL;
	FILE *out;
	size_t size;
	int error;

	snprintf(from, sizeof(from), "%s/%s", copy->proc, name);
	snprintf(to, sizeof(to), "%s/%s", dir, name);
	text = ptw_read_text(from, &size, err);
	if (!text)
		return -1;
	out = fopen(to, "ae");
	for (char *line = strtok_r(text, "\n", &save); out && line; line = strtok_r(NULL, "\n", &save)) {
		/* kallsyms has the module's name in brackets, modules begins with it. */
		const char *bracket = strchr(line, '['), *module = bracket ? bracket + 1 : line;
		size_t length = strcspn(module, bracket ? "]" : " ");

		for (size_t i = 0; i < late->modules; i++)
			if (!strncmp(late->module[i].name, module, length) && !late->module[i].name[length])
				fprintf(out, "%s\n", line);
	}
	error = !out || ferror(out);
	if (out && fclose(out))
		error = 1;
	free(text);
	return error ? ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", to, strerror(errno)) : 0;
}

/* Where the first segment behind @addr begins, at most @end */
static uint64_t next_segment(const struct copy *copy, uint64_t addr, uint64_t end)
{
	for (size_t i = 0; i < copy->segments; i++)
		if (copy->segment[i].p_vaddr > addr && copy->segment[i].p_vaddr < end)
			end = copy->segment[i].p_vaddr;
	return end;
}

/*
 * The code of @late: behind what the copy at @path has, or where it is already what seemed to be another module's, but was
 * a hole between that one's parts (see read_modules()).
 */
static int append_segments(struct copy *copy, const struct ptw_kernel_layout *late, int in, const char *in_path,
			   const char *path, struct ptw_error *err)
{
	struct copy old = { 0 };
	Elf64_Ehdr head;
	uint64_t room;
	int out = open(path, O_RDWR | O_CLOEXEC), ret = -1;
	off_t file_end;

	if (out < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
	if (ptw_read_at(out, &head, sizeof(head), 0, path, err) || read_segments(&old, out, path, err))
		goto out;
	room = old.segment[0].p_offset;
	for (size_t i = 0; i < late->modules; i++) {
		uint64_t at = late->module[i].addr, end = at + page_up(late->module[i].size);
		const Elf64_Phdr *s = find_segment(copy, at);

		if (!s)
			continue;
		if (end > s->p_vaddr + s->p_filesz)
			end = s->p_vaddr + s->p_filesz;
		for (Elf64_Phdr phdr; at < end; at += phdr.p_filesz) {
			const Elf64_Phdr *there = find_segment(&old, at);

			phdr = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_W | PF_X, .p_align = PAGE, .p_vaddr = at };
			if (there) {
				phdr.p_filesz = there->p_vaddr + there->p_filesz < end ?
							there->p_vaddr + there->p_filesz - at : end - at;
				phdr.p_offset = there->p_offset + (at - there->p_vaddr);
				if (write_segment(copy, in, in_path, &phdr, out, path, err))
					goto out;
				continue;
			}
			phdr.p_filesz = phdr.p_memsz = next_segment(&old, at, end) - at;
			/* The table ends where the first segment begins. */
			if ((head.e_phnum + 1) * sizeof(phdr) + sizeof(head) > room)
				continue;
			file_end = lseek(out, 0, SEEK_END);
			if (file_end < 0)
				goto failed;
			phdr.p_offset = page_up(file_end);
			if (write_segment(copy, in, in_path, &phdr, out, path, err))
				goto out;
			if (pwrite(out, &phdr, sizeof(phdr), sizeof(head) + head.e_phnum * sizeof(phdr)) != sizeof(phdr))
				goto failed;
			head.e_phnum++;
		}
	}
	if (pwrite(out, &head, sizeof(head), 0) != sizeof(head))
		goto failed;
	ret = 0;
	goto out;
failed:
	ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
out:
	if (ptw_close_file(out, path, ret ? NULL : err))
		ret = -1;
	free(old.segment);
	return ret;
}

static int loaded_modules(struct copy *copy, struct ptw_error *err)
{
	char path[4096], *text;
	size_t size;
	int ret;

	snprintf(path, sizeof(path), "%s/modules", copy->proc);
	text = ptw_read_text(path, &size, err);
	ret = text ? read_modules(copy, text, err) : -1;
	free(text);
	return ret;
}

static bool has_module(const struct ptw_kernel_layout *layout, const struct ptw_kernel_module *module)
{
	for (size_t i = 0; i < layout->modules; i++)
		if (layout->module[i].addr == module->addr && !strcmp(layout->module[i].name, module->name))
			return true;
	return false;
}

int ptw_kernel_copy_late(const char *proc, const char *dir, const struct ptw_kernel_layout *known,
			 struct ptw_kernel_layout *late, struct ptw_error *err)
{
	struct copy copy = { .proc = proc, .layout = late };
	char from[4096], to[4096];
	int fd = -1, ret;
	size_t n = 0;

	memset(late, 0, sizeof(*late));
	ret = loaded_modules(&copy, err);
	for (size_t i = 0; i < late->modules; i++)
		if (!has_module(known, &late->module[i]))
			late->module[n++] = late->module[i];
	late->modules = n;
	if (ret || !n)
		goto out;
	snprintf(from, sizeof(from), "%s/kcore", proc);
	snprintf(to, sizeof(to), "%s/kcore", dir);
	fd = open(from, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", from, strerror(errno));
	else if (read_segments(&copy, fd, from, err) || append_segments(&copy, late, fd, from, to, err) ||
		 append_lines(&copy, late, dir, "modules", err) || append_lines(&copy, late, dir, "kallsyms", err))
		ret = -1;
out:
	if (fd >= 0)
		close(fd);
	free(copy.region);
	free(copy.segment);
	if (ret)
		ptw_kernel_layout_free(late);
	return ret;
}

/* ---- what is another than in the copy ---- */

/* Two cores: the copy's and the kernel's */
struct comparison {
	struct copy core[2];
	int fd[2];
	char path[2][4096];
	int (*page)(void *arg, uint64_t addr, const uint8_t *copy, const uint8_t *is, struct ptw_error *err);
	void *arg;
};

/*
 * Where a module's code ends: where the first of its sections begins that holds none. Data is not to be compared: it is
 * another each time, and nobody executes it.
 */
static uint64_t module_text_end(const struct ptw_kernel_module *module)
{
	uint64_t end = module->addr + module->size, addr;
	char dir[256], path[600], *text;
	struct dirent *entry;
	size_t size;
	DIR *d;

	snprintf(dir, sizeof(dir), "/sys/module/%s/sections", module->name);
	d = opendir(dir);
	while (d && (entry = readdir(d))) {
		if (entry->d_name[0] == '.' && (!entry->d_name[1] || strstr(entry->d_name, "text")))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		text = ptw_read_text(path, &size, NULL);
		addr = text ? strtoull(text, NULL, 16) : 0;
		free(text);
		if (addr > module->addr && addr < end)
			end = addr;
	}
	if (d)
		closedir(d);
	return page_up(end);
}

static int compare_range(struct comparison *c, uint64_t at, uint64_t end, struct ptw_error *err)
{
	enum { CHUNK = 64 * 4096 };
	uint8_t *buffer = malloc(2 * CHUNK);
	int ret = 0;

	if (!buffer)
		return ptw_error_set(err, PTW_EXIT_FAILED, "recording: out of memory");
	while (!ret && at < end) {
		uint64_t size = end - at < CHUNK ? end - at : CHUNK;

		for (int i = 0; i < 2; i++) {
			const Elf64_Phdr *s = find_segment(&c->core[i], at);
			uint64_t there = s ? s->p_vaddr + s->p_filesz - at : 0;

			if (size > there)
				size = there;
		}
		size = page_down(size);
		if (!size)
			break;
		for (int i = 0; i < 2 && !ret; i++) {
			const Elf64_Phdr *s = find_segment(&c->core[i], at);

			ret = ptw_read_at(c->fd[i], buffer + i * CHUNK, size, s->p_offset + (at - s->p_vaddr), c->path[i], err);
		}
		for (uint64_t done = 0; done < size && !ret; done += PAGE)
			ret = c->page(c->arg, at + done, buffer + done, buffer + CHUNK + done, err);
		at += size;
	}
	free(buffer);
	return ret;
}

int ptw_kernel_compare(const char *proc, const char *dir, const struct ptw_kernel_layout *known,
		       int (*page)(void *arg, uint64_t addr, const uint8_t *copy, const uint8_t *is, struct ptw_error *err),
		       void *arg, struct ptw_error *err)
{
	struct ptw_kernel_layout loaded = { 0 };
	struct copy modules = { .proc = proc, .layout = &loaded };
	struct comparison c = { .fd = { -1, -1 }, .page = page, .arg = arg };
	int ret;

	snprintf(c.path[0], sizeof(c.path[0]), "%s/kcore", dir);
	snprintf(c.path[1], sizeof(c.path[1]), "%s/kcore", proc);
	ret = loaded_modules(&modules, err);
	for (int i = 0; i < 2 && !ret; i++) {
		c.fd[i] = open(c.path[i], O_RDONLY | O_CLOEXEC);
		if (c.fd[i] < 0)
			ret = ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", c.path[i], strerror(errno));
		else
			ret = read_segments(&c.core[i], c.fd[i], c.path[i], err);
	}
	if (!ret)
		ret = compare_range(&c, page_down(known->text), page_up(known->etext), err);
	for (size_t i = 0; i < known->modules && !ret; i++)
		if (has_module(&loaded, &known->module[i]))
			ret = compare_range(&c, page_down(known->module[i].addr), module_text_end(&known->module[i]), err);
	for (int i = 0; i < 2; i++) {
		if (c.fd[i] >= 0)
			close(c.fd[i]);
		free(c.core[i].segment);
	}
	free(modules.region);
	ptw_kernel_layout_free(&loaded);
	return ret;
}
