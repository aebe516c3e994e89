// SPDX-License-Identifier: BSD-2-Clause
#include "report/source_line.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that ptw_source_lines_add() named; the offline Dwfl gives them addresses of its own. */
struct named_file {
	Dwfl *dwfl;
	Dwfl_Module *module;
	char name[64];		/* of the kernel module; "" for vmlinux */
};

/* Files that processes had mapped, each at the addresses that it was linked for */
struct linked_file {
	Dwfl *dwfl;		/* NULL: it can't be read */
	const char *path;
};

struct ptw_source_lines {
	struct linked_file *linked;
	size_t linked_count;
	Dwfl *mapped;		/* the image's ELF files, at their addresses in the trace */
	struct named_file *file;
	size_t file_count;
	const struct ptw_symbols *symbols;
	bool found;		/* at least one line */
};

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
};

/* Load address minus link address of the section's file; false: no ELF file, or one that is not linked. */
static bool find_bias(int fd, const struct ptw_image_section *section, uint64_t *bias)
{
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	bool found = false;
	GElf_Ehdr header;
	GElf_Phdr segment;
	size_t i, count;

	if (elf && gelf_getehdr(elf, &header) && (header.e_type == ET_EXEC || header.e_type == ET_DYN) &&
	    !elf_getphdrnum(elf, &count)) {
		for (i = 0; i < count && !found; i++) {
			if (!gelf_getphdr(elf, i, &segment) || segment.p_type != PT_LOAD ||
			    section->offset < segment.p_offset ||
			    section->offset >= segment.p_offset + segment.p_filesz)
				continue;
			*bias = section->vaddr - (segment.p_vaddr + section->offset - segment.p_offset);
			found = true;
		}
	}
	elf_end(elf);
	return found;
}

static void report_section(Dwfl *dwfl, const struct ptw_image_section *section)
{
	int fd = open(section->path, O_RDONLY | O_CLOEXEC);
	uint64_t bias;

	if (fd < 0)
		return;
	/*
	 * On success libdwfl owns the descriptor. A file mapped in several parts is refused the second time:
	 * fine.
	 */
	if (!find_bias(fd, section, &bias) ||
	    !dwfl_report_elf(dwfl, section->path, section->path, fd, bias, true))
		close(fd);
}

struct ptw_source_lines *ptw_source_lines_new(const struct ptw_image *image,
					      const struct ptw_symbols *symbols, struct ptw_error *err)
{
	struct ptw_source_lines *lines = calloc(1, sizeof(*lines));
	size_t i;

	elf_version(EV_CURRENT);
	if (lines)
		lines->mapped = dwfl_begin(&callbacks);
	if (!lines || !lines->mapped) {
		ptw_error_set(err, PTW_EXIT_FAILED, "source lines: out of memory");
		free(lines);
		return NULL;
	}
	lines->symbols = symbols;
	dwfl_report_begin(lines->mapped);
	for (i = 0; i < image->count; i++)
		report_section(lines->mapped, &image->section[i]);
	dwfl_report_end(lines->mapped, NULL, NULL);
	return lines;
}

/* "kv_demo.ko" is the module kv_demo; dashes become underscores as in the kernel. */
static void name_module(struct named_file *file, const char *path)
{
	const char *base = strrchr(path, '/');
	const char *suffix;
	char *at;

	base = base ? base + 1 : path;
	suffix = strstr(base, ".ko");
	if (!suffix)
		return;
	snprintf(file->name, sizeof(file->name), "%.*s", (int)(suffix - base), base);
	for (at = file->name; *at; at++)
		if (*at == '-')
			*at = '_';
}

int ptw_source_lines_add(struct ptw_source_lines *lines, const char *path, struct ptw_error *err)
{
	struct named_file *grown, file = { 0 };
	Dwarf_Addr bias;
	struct stat st;

	grown = reallocarray(lines->file, lines->file_count + 1, sizeof(*grown));
	if (!grown)
		return ptw_error_set(err, PTW_EXIT_FAILED, "debug file %s: out of memory", path);
	lines->file = grown;

	name_module(&file, path);
	file.dwfl = dwfl_begin(&callbacks);
	if (!file.dwfl)
		return ptw_error_set(err, PTW_EXIT_FAILED, "debug file %s: out of memory", path);
	file.module = dwfl_report_offline(file.dwfl, path, path, -1);
	dwfl_report_end(file.dwfl, NULL, NULL);
	if (!file.module || !dwfl_module_getdwarf(file.module, &bias)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "debug file %s: %s", path,
			      stat(path, &st) || access(path, R_OK) ? strerror(errno) :
			      !S_ISREG(st.st_mode) ? "not a regular file" :
			      file.module ? "no DWARF in it" : dwfl_errmsg(-1));
		dwfl_end(file.dwfl);
		return -1;
	}
	lines->file[lines->file_count++] = file;
	return 0;
}

static bool find_symbol(Dwfl_Module *module, const char *name, GElf_Addr *addr)
{
	int i, count = dwfl_module_getsymtab(module);
	GElf_Sym symbol;

	for (i = 1; i < count; i++) {
		const char *have = dwfl_module_getsym_info(module, i, &symbol, addr, NULL, NULL, NULL);

		if (have && GELF_ST_TYPE(symbol.st_info) != STT_SECTION && !strcmp(have, name))
			return true;
	}
	return false;
}

static Dwfl_Line *find_by_name(struct ptw_source_lines *lines, uint64_t addr)
{
	const struct ptw_symbol *symbol = lines->symbols ? ptw_symbols_at(lines->symbols, addr) : NULL;
	GElf_Addr start;
	size_t i;

	for (i = 0; symbol && i < lines->file_count; i++) {
		struct named_file *file = &lines->file[i];

		if (strcmp(symbol->module ? symbol->module : "", file->name))
			continue;
		if (find_symbol(file->module, symbol->name, &start))
			return dwfl_module_getsrc(file->module, start + (addr - symbol->addr));
	}
	return NULL;
}

static bool format_line(struct ptw_source_lines *lines, Dwfl_Line *line, char *buf, size_t size)
{
	const char *file = NULL;
	int number = 0;

	buf[0] = '\0';
	if (line)
		file = dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL);
	if (!file || !number)
		return false;
	while (!strncmp(file, "./", 2))
		file += 2;
	snprintf(buf, size, "%s:%d", file, number);
	lines->found = true;
	return true;
}

bool ptw_source_lines_find(struct ptw_source_lines *lines, uint64_t addr, char *buf, size_t size)
{
	Dwfl_Module *module = dwfl_addrmodule(lines->mapped, addr);
	Dwfl_Line *line = module ? dwfl_module_getsrc(module, addr) : NULL;

	return format_line(lines, line ? line : find_by_name(lines, addr), buf, size);
}

static struct linked_file *linked_file(struct ptw_source_lines *lines, const char *path)
{
	struct linked_file *grown, *file;
	size_t i;

	for (i = lines->linked_count; i--; )
		if (lines->linked[i].path == path)
			return &lines->linked[i];
	grown = reallocarray(lines->linked, lines->linked_count + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	lines->linked = grown;
	file = &grown[lines->linked_count++];
	*file = (struct linked_file){ .path = path, .dwfl = dwfl_begin(&callbacks) };
	if (!file->dwfl)
		return file;
	dwfl_report_begin(file->dwfl);
	if (!dwfl_report_elf(file->dwfl, path, path, -1, 0, true)) {
		dwfl_end(file->dwfl);
		file->dwfl = NULL;
		return file;
	}
	dwfl_report_end(file->dwfl, NULL, NULL);
	return file;
}

bool ptw_source_lines_find_in(struct ptw_source_lines *lines, const char *path, uint64_t addr, char *buf, size_t size)
{
	struct linked_file *file = linked_file(lines, path);
	Dwfl_Module *module = file && file->dwfl ? dwfl_addrmodule(file->dwfl, addr) : NULL;

	return format_line(lines, module ? dwfl_module_getsrc(module, addr) : NULL, buf, size);
}

bool ptw_source_lines_found(const struct ptw_source_lines *lines)
{
	return lines->found;
}

void ptw_source_lines_free(struct ptw_source_lines *lines)
{
	size_t i;

	if (!lines)
		return;
	for (i = 0; i < lines->file_count; i++)
		dwfl_end(lines->file[i].dwfl);
	for (i = 0; i < lines->linked_count; i++)
		dwfl_end(lines->linked[i].dwfl);
	dwfl_end(lines->mapped);
	free(lines->linked);
	free(lines->file);
	free(lines);
}
