/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of addresses: kernel and module symbols in kallsyms format, and symbols of ELF files.
 * A table is built once and then only read; it has no global state and needs no lock to read.
 */
#ifndef PTWATCH_SYMBOLS_SYMBOLS_H
#define PTWATCH_SYMBOLS_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct ptw_symbol {
	uint64_t addr;
	uint64_t size;		/* 0: unknown, then up to the next symbol */
	const char *name;	/* owned by the table */
	const char *module;	/* kernel module or file the symbol is from; NULL: the kernel itself */
	char type;		/* as in kallsyms: t/T text, d/D data, b/B bss, … */
	bool percpu;		/* a per-CPU variable: @addr is what __per_cpu_offset of a CPU is added to */
};

struct ptw_symbols;

struct ptw_symbols *ptw_symbols_new(void);
void ptw_symbols_free(struct ptw_symbols *symbols);

/**
 * ptw_symbols_load_kallsyms() - add the symbols of a kallsyms file
 * @path: "/proc/kallsyms" or a copy of it
 *
 * Fails with PTW_EXIT_FAILED when the file can't be read, and with a line that names kptr_restrict and
 * CAP_SYSLOG when all addresses in it are zero.
 */
int ptw_symbols_load_kallsyms(struct ptw_symbols *symbols, const char *path, struct ptw_error *err);

/** ptw_symbols_hidden() - whether that failed because the addresses are zero: the file is as it was when it was copied */
bool ptw_symbols_hidden(const struct ptw_symbols *symbols);

/**
 * ptw_symbols_load_elf() - add the function symbols (.symtab, else .dynsym) of an ELF file
 * @bias: load address minus link address (0 for a static non-PIE executable)
 * @module: name to give as ptw_symbol.module; NULL: the file's base name
 */
int ptw_symbols_load_elf(struct ptw_symbols *symbols, const char *path, uint64_t bias, const char *module,
			 struct ptw_error *err);

/** ptw_symbols_load_perf_map() - add the lines "ADDR SIZE NAME" of a perf map file; others are passed over */
int ptw_symbols_load_perf_map(struct ptw_symbols *symbols, const char *path, struct ptw_error *err);

/** ptw_symbols_at() - the symbol that covers @addr, function symbols first; NULL: none. O(log n) */
const struct ptw_symbol *ptw_symbols_at(const struct ptw_symbols *symbols, uint64_t addr);

/** ptw_symbols_end() - the first address behind @symbol, a pointer that this table gave */
uint64_t ptw_symbols_end(const struct ptw_symbols *symbols, const struct ptw_symbol *symbol);

/**
 * ptw_symbols_resolve() - the address a person's spelling means
 * @spelling: "sym", "sym+0x10", "module:sym", "module:sym+0x10" or "0xaddr"
 * @addr: out: the address
 * @symbol: out: the symbol, NULL for a plain address; may be NULL
 *
 * Unknown names fail (PTW_EXIT_FAILED) with up to three near matches ("did you mean …"), ambiguous names
 * (several static symbols of one name) with the modules or addresses to choose from, malformed spellings with
 * PTW_EXIT_USAGE.
 */
int ptw_symbols_resolve(const struct ptw_symbols *symbols, const char *spelling, uint64_t *addr,
			const struct ptw_symbol **symbol, struct ptw_error *err);

/** ptw_symbols_resolve_percpu() - likewise, also for a per-CPU variable: look at @symbol, which is not NULL */
int ptw_symbols_resolve_percpu(const struct ptw_symbols *symbols, const char *spelling, uint64_t *addr,
			       const struct ptw_symbol **symbol, struct ptw_error *err);

/** ptw_symbols_has_module() - whether there are symbols of the module @name ('-' and '_' are one) */
bool ptw_symbols_has_module(const struct ptw_symbols *symbols, const char *name);

/**
 * ptw_symbols_format() - "sym+0x1d" or "sym+0x1d [module]", else "0x…" (16 digits), for @addr
 * Return: @buf.
 */
char *ptw_symbols_format(const struct ptw_symbols *symbols, uint64_t addr, char *buf, size_t size);

#endif /* PTWATCH_SYMBOLS_SYMBOLS_H */
