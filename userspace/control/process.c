// SPDX-License-Identifier: BSD-2-Clause
#include "control/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gelf.h>
#include <libelf.h>

#include "common/near.h"
#include "symbols/symbols.h"

struct mapping {
	uint64_t start, end, offset;
	bool executable;
	bool named;		/* its file's functions are in the table, or have none */
	char *path;		/* "": no file */
};

struct ptw_process {
	pid_t pid, tgid;
	struct mapping *mapping;
	size_t count;
	struct ptw_symbols *symbols;	/* functions of the files asked about */
};

pid_t ptw_thread_tgid(pid_t tid)
{
	char path[64], line[256];
	int tgid = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Tgid: %d", &tgid) == 1)
			break;
	if (file)
		fclose(file);
	return tgid;
}

/* "start-end perms offset dev inode path" */
static int add_mapping(struct ptw_process *process, char *line)
{
	struct mapping mapping = { 0 }, *grown;
	char perms[8];
	int behind = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n", &mapping.start, &mapping.end, perms,
		   &mapping.offset, &behind) != 4 || !behind)
		return 0;
	mapping.executable = perms[2] == 'x';
	mapping.path = strdup(line[behind] == '/' ? line + behind : "");
	grown = reallocarray(process->mapping, process->count + 1, sizeof(*grown));
	if (grown)
		process->mapping = grown;
	if (!grown || !mapping.path) {
		free(mapping.path);
		return -1;
	}
	process->mapping[process->count++] = mapping;
	return 0;
}

struct ptw_process *ptw_process_open(pid_t pid, struct ptw_error *err)
{
	struct ptw_process *process = calloc(1, sizeof(*process));
	char path[64], *line = NULL;
	FILE *maps = NULL;
	size_t size = 0;

	if (!process)
		goto no_memory;
	process->pid = pid;
	process->tgid = ptw_thread_tgid(pid);
	if (process->tgid < 0) {
		ptw_error_set(err, PTW_EXIT_FAILED, "there is no process %d", pid);
		goto fail;
	}
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", path, strerror(errno));
		goto fail;
	}
	while (getline(&line, &size, maps) > 0)
		if (add_mapping(process, line))
			goto no_memory;
	free(line);
	fclose(maps);
	return process;
no_memory:
	ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
fail:
	free(line);
	if (maps)
		fclose(maps);
	ptw_process_close(process);
	return NULL;
}

void ptw_process_close(struct ptw_process *process)
{
	if (!process)
		return;
	for (size_t i = 0; i < process->count; i++)
		free(process->mapping[i].path);
	free(process->mapping);
	ptw_symbols_free(process->symbols);
	free(process);
}

pid_t ptw_process_tgid(const struct ptw_process *process)
{
	return process->tgid;
}

bool ptw_process_maps(const struct ptw_process *process, uint64_t address, uint64_t size)
{
	/* In order of their addresses; neighbours may share a range. */
	for (size_t i = 0; i < process->count; i++) {
		const struct mapping *m = &process->mapping[i];

		if (address < m->start || address >= m->end)
			continue;
		if (size <= m->end - address)
			return true;
		size -= m->end - address;
		address = m->end;
	}
	return false;
}

const char *ptw_process_file(const struct ptw_process *process, uint64_t address, uint64_t size, uint64_t *offset)
{
	for (size_t i = 0; i < process->count; i++) {
		const struct mapping *m = &process->mapping[i];

		if (address < m->start || address >= m->end)
			continue;
		*offset = m->offset + (address - m->start);
		return size <= m->end - address && m->path[0] ? m->path : NULL;
	}
	return NULL;
}

/*
 * The file behind a mapping: through map_files, which also finds it when it was deleted or is in another
 * mount namespace, else by its path.
 */
static int open_file(const struct ptw_process *process, const struct mapping *mapping, char *path, size_t size)
{
	int fd;

	snprintf(path, size, "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, process->pid, mapping->start, mapping->end);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	snprintf(path, size, "/proc/%d/root%s", process->pid, mapping->path);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* What to add to an address of the file to have the process's. */
static int bias_of(Elf *elf, const struct mapping *mapping, uint64_t *bias)
{
	size_t count;
	GElf_Phdr ph;

	if (elf_getphdrnum(elf, &count))
		return -1;
	for (size_t i = 0; i < count; i++) {
		/* Mapped from the page that the segment begins in. */
		if (!gelf_getphdr(elf, i, &ph) || ph.p_type != PT_LOAD || mapping->offset < (ph.p_offset & -4096ULL) ||
		    mapping->offset >= ph.p_offset + ph.p_filesz)
			continue;
		*bias = mapping->start - (ph.p_vaddr + (mapping->offset - ph.p_offset));
		return 0;
	}
	return -1;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The first mapping of the file that people call @binary. */
static const struct mapping *find_binary(const struct ptw_process *process, const char *binary)
{
	const struct mapping *by_name = NULL;
	char *real = strchr(binary, '/') ? realpath(binary, NULL) : NULL;
	const char *path = real ? real : binary;

	for (size_t i = 0; i < process->count; i++) {
		const struct mapping *m = &process->mapping[i];
		size_t length = strlen(m->path);
		const char *deleted = " (deleted)";

		if (length > strlen(deleted) && !strcmp(m->path + length - strlen(deleted), deleted))
			length -= strlen(deleted);
		if (strchr(binary, '/')) {
			if (!strncmp(m->path, path, length) && !path[length] && length) {
				by_name = m;
				break;
			}
		} else if (length) {
			const char *name = base_name(m->path);

			length -= name - m->path;
			if (!strncmp(name, binary, length) && !binary[length]) {
				by_name = m;
				break;
			}
		}
	}
	free(real);
	return by_name;
}

static int no_binary(const struct ptw_process *process, const char *binary, struct ptw_error *err)
{
	struct ptw_near near = { .wanted = base_name(binary) };
	const char *program = "";
	char text[512];

	for (size_t i = 0; i < process->count; i++) {
		const char *path = process->mapping[i].path;

		if (!*path)
			continue;
		if (!*program)
			program = path;
		ptw_near_consider(&near, base_name(path));
	}
	if (near.count)
		ptw_near_text(&near, text, sizeof(text));
	else
		snprintf(text, sizeof(text), "; its program is %.200s, /proc/%d/maps lists the rest", program, process->pid);
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s is not mapped in process %d%s", binary, process->pid, text);
}

/* Functions and variables that are defined in the file. */
static bool is_wanted(const GElf_Sym *sym)
{
	int type = GELF_ST_TYPE(sym->st_info);

	return sym->st_shndx != SHN_UNDEF &&
	       (type == STT_FUNC || type == STT_OBJECT || type == STT_TLS || type == STT_NOTYPE || type == STT_COMMON);
}

struct search {
	const char *name;
	struct ptw_near near;
	GElf_Sym found;
	size_t count;		/* places that have the name */
	bool global;
};

static void search_table(Elf *elf, Elf_Scn *scn, const GElf_Shdr *shdr, struct search *search)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	size_t n = data && shdr->sh_entsize ? data->d_size / shdr->sh_entsize : 0;

	for (size_t i = 0; i < n; i++) {
		const char *name;
		bool global;
		GElf_Sym sym;

		if (!gelf_getsym(data, i, &sym) || !is_wanted(&sym))
			continue;
		name = elf_strptr(elf, shdr->sh_link, sym.st_name);
		if (!name || !*name)
			continue;
		if (strcmp(name, search->name)) {
			if (!search->count)
				ptw_near_consider(&search->near, name);
			continue;
		}
		global = GELF_ST_BIND(sym.st_info) != STB_LOCAL;
		if (search->count && sym.st_value == search->found.st_value)
			continue;
		/* The one other files would get is the one that is meant. */
		if (!search->count || (global && !search->global)) {
			search->found = sym;
			search->global = global;
			search->count = 1;
		} else if (global == search->global) {
			search->count++;
		}
	}
}

static int find_symbol(Elf *elf, const char *path, const char *name, GElf_Sym *sym, struct ptw_error *err)
{
	struct search search = { .name = name, .near.wanted = name };
	Elf_Scn *scn = NULL, *table = NULL;
	GElf_Shdr shdr, best;
	char text[512];

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
	if (!table)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s has no symbol table (stripped); give an address: 0xADDR@PID", path);
	search_table(elf, table, &best, &search);
	if (!search.count)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s has no symbol '%s'%s", path, name,
				     ptw_near_text(&search.near, text, sizeof(text)));
	if (search.count > 1)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s has %zu symbols '%s'; take the address of the one you mean from `nm %s`, and say 0xADDR@PID", path,
				     search.count, name, path);
	if (GELF_ST_TYPE(search.found.st_info) == STT_TLS)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s: every thread has a '%s' of its own (TLS); take its address from gdb (`p &%s`), and say 0xADDR@PID", path,
				     name, name);
	*sym = search.found;
	return 0;
}

int ptw_process_symbol(const struct ptw_process *process, const char *binary, const char *symbol,
		       struct ptw_user_symbol *found, struct ptw_error *err)
{
	const struct mapping *mapping = find_binary(process, binary);
	char path[4200];
	Elf *elf = NULL;
	GElf_Sym sym = { 0 };
	uint64_t bias;
	int fd, ret = -1;

	if (!mapping)
		return no_binary(process, binary, err);
	fd = open_file(process, mapping, path, sizeof(path));
	if (fd < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s", mapping->path, strerror(errno));
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF || bias_of(elf, mapping, &bias))
		ptw_error_set(err, PTW_EXIT_FAILED, "%s is not a program or library", mapping->path);
	else
		ret = find_symbol(elf, mapping->path, symbol, &sym, err);
	if (!ret)
		*found = (struct ptw_user_symbol){
			.address = sym.st_value + bias,
			.size = sym.st_size,
			.is_function = GELF_ST_TYPE(sym.st_info) == STT_FUNC || GELF_ST_TYPE(sym.st_info) == STT_GNU_IFUNC,
		};
	elf_end(elf);
	close(fd);
	return ret;
}

/* The functions of the file behind @mapping, once. */
static void name_mapping(struct ptw_process *process, struct mapping *mapping)
{
	char path[4200];
	uint64_t bias = 0;
	bool known = false;
	Elf *elf;
	int fd;

	mapping->named = true;
	if (!process->symbols)
		process->symbols = ptw_symbols_new();
	fd = process->symbols && *mapping->path ? open_file(process, mapping, path, sizeof(path)) : -1;
	if (fd < 0)
		return;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	known = elf && elf_kind(elf) == ELF_K_ELF && !bias_of(elf, mapping, &bias);
	elf_end(elf);
	close(fd);
	if (known)
		ptw_symbols_load_elf(process->symbols, path, bias, base_name(mapping->path), NULL);
}

char *ptw_process_format(struct ptw_process *process, uint64_t address, char *buf, size_t size)
{
	for (size_t i = 0; i < process->count; i++) {
		struct mapping *m = &process->mapping[i];

		if (address < m->start || address >= m->end)
			continue;
		if (!m->named)
			name_mapping(process, m);
		if (process->symbols && ptw_symbols_at(process->symbols, address))
			return ptw_symbols_format(process->symbols, address, buf, size);
		if (*m->path) {
			snprintf(buf, size, "0x%" PRIx64 " [%s]", address, base_name(m->path));
			return buf;
		}
		break;
	}
	snprintf(buf, size, "0x%" PRIx64, address);
	return buf;
}
