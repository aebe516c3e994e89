/* SPDX-License-Identifier: BSD-2-Clause */
/* File and line of an address, from DWARF, by elfutils' libdw. */
#ifndef PTWATCH_REPORT_SOURCE_LINE_H
#define PTWATCH_REPORT_SOURCE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "decode/image.h"
#include "symbols/symbols.h"

struct ptw_source_lines;

/**
 * ptw_source_lines_new() - lines for code in the ELF files of @image (or their separate debug files)
 * @symbols: names for the addresses of kernel code, see ptw_source_lines_add(); may be NULL
 *
 * Both must stay. Files without DWARF are left out.
 */
struct ptw_source_lines *ptw_source_lines_new(const struct ptw_image *image,
					      const struct ptw_symbols *symbols, struct ptw_error *err);

/**
 * ptw_source_lines_add() - use the DWARF of @path, a vmlinux or a kernel module (.ko), for kernel code
 *
 * The kernel places itself and its modules where it likes, so an address is looked up by the name of its
 * symbol and the offset in it. A file without DWARF is an error.
 */
int ptw_source_lines_add(struct ptw_source_lines *lines, const char *path, struct ptw_error *err);

/**
 * ptw_source_lines_find() - "kernel/workqueue.c:2631" for @addr. Return: false, and "" in @buf: not known.
 */
bool ptw_source_lines_find(struct ptw_source_lines *lines, uint64_t addr, char *buf, size_t size);

/**
 * ptw_source_lines_find_in() - the same for @addr, as linked, in the ELF file @path, which must stay; it is opened
 * when first asked for
 */
bool ptw_source_lines_find_in(struct ptw_source_lines *lines, const char *path, uint64_t addr, char *buf, size_t size);

/** ptw_source_lines_found() - whether any line was found so far */
bool ptw_source_lines_found(const struct ptw_source_lines *lines);

void ptw_source_lines_free(struct ptw_source_lines *lines);

#endif /* PTWATCH_REPORT_SOURCE_LINE_H */
