/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The running kernel's data through /proc/kcore, and what is found by walking it. The kernel goes on
 * meanwhile, so what was read may be stale: callers check what they found by another way.
 */
#ifndef PTWATCH_CONTROL_KERNEL_MEMORY_H
#define PTWATCH_CONTROL_KERNEL_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "symbols/symbols.h"
#include "symbols/types.h"

struct ptw_kernel_memory;

/**
 * ptw_kernel_memory_open() - for reading
 * @path: NULL: /proc/kcore; another ELF core in tests
 * Return: to be closed; NULL: @err tells (PTW_EXIT_UNSUPPORTED: this kernel lets nobody read it).
 */
struct ptw_kernel_memory *ptw_kernel_memory_open(const char *path, struct ptw_error *err);
void ptw_kernel_memory_close(struct ptw_kernel_memory *memory);

/** ptw_kernel_memory_read() - @size bytes at @address. Return: 0, or -1: not mapped. */
int ptw_kernel_memory_read(const struct ptw_kernel_memory *memory, uint64_t address, void *buf, size_t size);

/**
 * ptw_kernel_task() - the task_struct of a thread
 * @tid: thread id in the initial pid namespace
 * @tgid: its process
 *
 * Walks the kernel's list of processes from init_task, and the process's list of threads, with the offsets
 * BTF gives. A list that changes under the walk is walked again.
 */
int ptw_kernel_task(const struct ptw_kernel_memory *memory, const struct ptw_symbols *symbols,
		    const struct ptw_types *types, pid_t tid, pid_t tgid, uint64_t *address,
		    struct ptw_error *err);

#endif /* PTWATCH_CONTROL_KERNEL_MEMORY_H */
