/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding the file that was mapped, by its build id, where it is kept. */
#ifndef PTWATCH_RECORDING_BINARY_H
#define PTWATCH_RECORDING_BINARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/**
 * ptw_binary_find() - a readable file with the code of what was mapped as @name
 * @id: its build id; NULL: not known
 * @recorded: without a build id, only a file that is not younger is taken for the same
 *
 * Looked for at @name itself, then in perf's cache (~/.debug, where the vDSO is, too) and debuginfod's
 * ($DEBUGINFOD_CACHE_PATH, $XDG_CACHE_HOME/debuginfod_client).
 *
 * Return: the path, to be freed; NULL: there is none.
 */
char *ptw_binary_find(const char *name, const uint8_t *id, size_t id_size, time_t recorded);

/**
 * ptw_binary_missing() - in words, why ptw_binary_find() found nothing
 * @gap: for each place where the code lacks: "no code of libx.so.1"; to be freed, NULL: out of memory
 * @advice: what is not here, and what to do; likewise
 */
void ptw_binary_missing(const char *name, const uint8_t *id, size_t id_size, char **gap, char **advice);

/** ptw_binary_is_vdso() - PTW_VDSO or PTW_VDSO_32 */
bool ptw_binary_is_vdso(const char *name);

/**
 * ptw_binary_mapped() - what was mapped as @name at @addr, by its own name
 *
 * The kernel calls both vDSOs PTW_VDSO; only a 32-bit program has it below 4 GiB.
 */
const char *ptw_binary_mapped(const char *name, uint64_t addr);

/** ptw_binary_known_as() - what people call a file that was mapped as @name, wherever its code is kept: the last part */
const char *ptw_binary_known_as(const char *name);

/** ptw_binary_generated() - whether @name is what the kernel calls executable memory that has no file */
bool ptw_binary_generated(const char *name);

/** ptw_binary_has_id() - whether the ELF file has that build id; a zero-padded one will do */
bool ptw_binary_has_id(const char *path, const uint8_t *id, size_t id_size);

#endif /* PTWATCH_RECORDING_BINARY_H */
