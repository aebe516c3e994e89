/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel's own type information (BTF, read with libbpf) tells: where a field is in its struct, and
 * how large a per-CPU variable is. A table is read once and needs no lock afterwards.
 */
#ifndef PTWATCH_SYMBOLS_TYPES_H
#define PTWATCH_SYMBOLS_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct ptw_types;

/** struct ptw_field - a place inside a struct, or a variable */
struct ptw_field {
	uint64_t offset;	/* bytes from the beginning of the struct; of a bitfield: of the bytes that hold it */
	uint64_t size;		/* bytes */
	bool is_signed;
	bool is_bitfield;
};

/**
 * ptw_types_load() - the types of a kernel
 * @path: a file of BTF, raw or as section of an ELF file; NULL: the running kernel's
 * Return: the table, to be freed; NULL: @err tells (PTW_EXIT_UNSUPPORTED: this kernel has none).
 */
struct ptw_types *ptw_types_load(const char *path, struct ptw_error *err);

/** ptw_types_add_module() - the types and variables of a loaded module, too; none is no error */
void ptw_types_add_module(struct ptw_types *types, const char *module);
void ptw_types_free(struct ptw_types *types);

/**
 * ptw_types_field() - find a field
 * @path: "task_struct.cred", "task_struct.se.vruntime", "task_struct.comm[8]"; of structs, unions and typedefs
 *	of them. Anonymous members are looked through.
 *
 * Unknown types and fields fail (PTW_EXIT_FAILED) with up to three near matches, a path through a pointer
 * and an index that does not exist with the reason, what is no path with PTW_EXIT_USAGE.
 */
int ptw_types_field(const struct ptw_types *types, const char *path, struct ptw_field *field,
		    struct ptw_error *err);

/**
 * ptw_types_percpu() - the per-CPU variable @name
 * @field: out: its size; offset is 0
 * Return: 0, or -1: BTF knows none of that name.
 */
int ptw_types_percpu(const struct ptw_types *types, const char *name, struct ptw_field *field);

#endif /* PTWATCH_SYMBOLS_TYPES_H */
