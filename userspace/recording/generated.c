// SPDX-License-Identifier: BSD-2-Clause
#include "recording/generated.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recording/file.h"
#include "recording/kernel_copy.h"

#define FILES_LIMIT	4096
#define PIECE		32768	/* bytes of code in a record, which has to stay below 64 KiB */

/* Records one after the other, in two pieces */
struct records {
	const uint8_t *piece[2];
	size_t size[2];
};

static size_t copy_out(const struct records *r, size_t at, void *to, size_t size)
{
	size_t done = 0;

	for (int i = 0; i < 2; i++) {
		if (at < r->size[i] && done < size) {
			size_t n = r->size[i] - at < size - done ? r->size[i] - at : size - done;

			memcpy((uint8_t *)to + done, r->piece[i] + at, n);
			done += n;
			at += n;
		}
		at -= at < r->size[i] ? at : r->size[i];
	}
	return done;
}

/* The record at @at if it is of @type. Return: its size, whatever it is; 0: there is none. */
static size_t next_record(const struct records *r, size_t at, struct record *record, bool (*wanted)(uint32_t type))
{
	struct perf_event_header h;

	if (copy_out(r, at, &h, sizeof(h)) < sizeof(h) || h.size < sizeof(h))
		return 0;
	record->header.type = PERF_RECORD_MAX;
	if (wanted(h.type) && copy_out(r, at, record->data, h.size) == h.size)
		record->size = h.size;
	else
		record->header.type = PERF_RECORD_MAX;
	return h.size;
}

/* ---- BPF programs ---- */

/* PERF_RECORD_KSYMBOL up to its name */
struct ksymbol {
	struct perf_event_header header;
	uint64_t addr;
	uint32_t size;
	uint16_t type;
	uint16_t flags;
};

static bool is_ksymbol(uint32_t type)
{
	return type == PERF_RECORD_KSYMBOL;
}

static bool read_ksymbol(const struct record *record, struct ksymbol *k)
{
	if (record->header.type != PERF_RECORD_KSYMBOL || record->size < sizeof(*k))
		return false;
	memcpy(k, record->data, sizeof(*k));
	return k->type == PERF_RECORD_KSYMBOL_TYPE_BPF;
}

/* Its place may be another's by now. */
static bool is_dropped(const struct records *r, size_t at, uint64_t addr, struct record *record)
{
	struct ksymbol k;
	size_t size;

	for (; (size = next_record(r, at, record, is_ksymbol)); at += size)
		if (read_ksymbol(record, &k) && k.addr == addr && k.flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER)
			return true;
	return false;
}

static void poke_program(const struct generated *g, const struct ksymbol *k, const struct record *like,
			 struct record *record, void (*poke)(void *, struct record *, const struct record *), void *arg)
{
	static const uint16_t no_old_bytes;
	uint8_t code[PIECE];

	for (uint32_t done = 0, n; done < k->size; done += n) {
		uint16_t length;

		n = k->size - done < PIECE ? k->size - done : PIECE;
		length = n;
		if (ptw_kernel_read(g->proc, k->addr + done, code, n, NULL))
			return;
		record_begin(record, PERF_RECORD_TEXT_POKE, PERF_RECORD_MISC_KERNEL);
		record_u64(record, k->addr + done);
		record_add(record, &no_old_bytes, sizeof(no_old_bytes));
		record_add(record, &length, sizeof(length));
		record_add(record, code, n);
		while (record->size % 8)
			record->data[record->size++] = 0;
		poke(arg, record, like);
	}
}

/* ---- processes ---- */

static void note_file(struct generated *g, const char *path)
{
	char **grown;

	for (size_t i = g->files; i--; )
		if (!strcmp(g->file[i], path))
			return;
	grown = g->files < FILES_LIMIT ? reallocarray(g->file, g->files + 1, sizeof(*grown)) : NULL;
	if (!grown)
		return;
	g->file = grown;
	grown[g->files] = strdup(path);
	g->files += grown[g->files] != NULL;
}

static void look_at_mapping(struct generated *g, const struct record *record)
{
	const char *name = (const char *)record->data + 72;
	uint32_t pid, prot;
	char path[64], tail;
	int number;

	if (record->size <= 72 || !memchr(name, 0, record->size - 72))
		return;
	memcpy(&pid, record->data + 8, sizeof(pid));
	memcpy(&prot, record->data + 64, sizeof(prot));
	if (!(prot & PROT_EXEC))
		return;
	if (strrchr(name, '/') && sscanf(strrchr(name, '/'), "/jit-%d.dum%c", &number, &tail) == 2 && tail == 'p') {
		note_file(g, name);
	} else if (!strncmp(name, "//anon", 6) || !strncmp(name, "/memfd:", 7) || !strncmp(name, "[anon", 5)) {
		snprintf(path, sizeof(path), "/tmp/perf-%u.map", pid);
		note_file(g, path);
	}
}

static bool is_of_interest(uint32_t type)
{
	return type == PERF_RECORD_KSYMBOL || type == PERF_RECORD_MMAP2;
}

void generated_look(struct generated *g, const void *first, size_t first_size, const void *second, size_t second_size,
		    void (*poke)(void *arg, struct record *record, const struct record *like), void *arg)
{
	const struct records r = { { first, second }, { first_size, second_size } };
	struct record record, other;
	struct ksymbol k;
	size_t size;

	for (size_t at = 0; (size = next_record(&r, at, &record, is_of_interest)); at += size) {
		if (record.header.type == PERF_RECORD_MMAP2)
			look_at_mapping(g, &record);
		else if (read_ksymbol(&record, &k) && !(k.flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER) &&
			 !is_dropped(&r, at + size, k.addr, &other))
			poke_program(g, &k, &record, &other, poke, arg);
	}
}

static bool is_poke(uint32_t type)
{
	return type == PERF_RECORD_TEXT_POKE;
}

void generated_pokes(const void *first, size_t first_size, const void *second, size_t second_size,
		     void (*take)(void *arg, const struct record *record), void *arg)
{
	const struct records r = { { first, second }, { first_size, second_size } };
	struct record record;
	size_t size;

	for (size_t at = 0; (size = next_record(&r, at, &record, is_poke)); at += size)
		if (record.header.type == PERF_RECORD_TEXT_POKE)
			take(arg, &record);
}

void generated_copy_file(const char *from, const char *to)
{
	/* Whoever may write to /tmp has put it there. */
	int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), out = -1;
	char buffer[65536];
	struct stat st;
	ssize_t n;

	if (in >= 0 && !fstat(in, &st) && S_ISREG(st.st_mode))
		out = ptw_create_file(to, NULL);
	while (out >= 0 && (n = read(in, buffer, sizeof(buffer))) > 0)
		if (ptw_write_all(out, buffer, n, to, NULL))
			break;
	if (out >= 0)
		ptw_close_file(out, to, NULL);
	if (in >= 0)
		close(in);
}

void generated_copy(const struct generated *g, const char *dir)
{
	char to[PATH_MAX];

	for (size_t i = 0; i < g->files; i++)
		if (snprintf(to, sizeof(to), "%s%s", dir, strrchr(g->file[i], '/')) < (int)sizeof(to))
			generated_copy_file(g->file[i], to);
}

void generated_free(struct generated *g)
{
	for (size_t i = 0; i < g->files; i++)
		free(g->file[i]);
	free(g->file);
	*g = (struct generated){ 0 };
}
