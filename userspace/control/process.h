/* SPDX-License-Identifier: BSD-2-Clause */
/* A process: where its files are mapped, and which of their symbols are where. */
#ifndef PTWATCH_CONTROL_PROCESS_H
#define PTWATCH_CONTROL_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct ptw_process;

/**
 * ptw_process_open() - read a process's mappings
 * @pid: any of its threads
 * Return: to be closed; NULL: @err tells (it does not exist, or is someone else's).
 */
struct ptw_process *ptw_process_open(pid_t pid, struct ptw_error *err);
void ptw_process_close(struct ptw_process *process);

/** ptw_process_tgid() - the process that the thread given to ptw_process_open() belongs to */
pid_t ptw_process_tgid(const struct ptw_process *process);

/** ptw_thread_tgid() - the process of a thread, from /proc; -1: there is no such thread */
pid_t ptw_thread_tgid(pid_t tid);

/** struct ptw_user_symbol - a symbol where the process has it */
struct ptw_user_symbol {
	uint64_t address;
	uint64_t size;		/* 0: unknown */
	bool is_function;
};

/**
 * ptw_process_symbol() - find a function or variable
 * @binary: path, or file name alone, of a mapped file
 *
 * Fails with PTW_EXIT_FAILED: no such file is mapped (and which are), no such symbol (with near matches), a
 * file without symbols, a variable of which every thread has its own (TLS).
 */
int ptw_process_symbol(const struct ptw_process *process, const char *binary, const char *symbol,
		       struct ptw_user_symbol *found, struct ptw_error *err);

/** ptw_process_maps() - whether [address, address + size) is mapped */
bool ptw_process_maps(const struct ptw_process *process, uint64_t address, uint64_t size);

/**
 * ptw_process_file() - the file that all of [address, address + size) is mapped from
 * @offset: out: where @address is in it
 *
 * Return: its path, owned by @process; NULL: there is none, or not one for all.
 */
const char *ptw_process_file(const struct ptw_process *process, uint64_t address, uint64_t size, uint64_t *offset);

/**
 * ptw_process_format() - "func+0x1d [binary]", "0x… [binary]" without a name, "0x…" outside every file
 * Return: @buf.
 */
char *ptw_process_format(struct ptw_process *process, uint64_t address, char *buf, size_t size);

#endif /* PTWATCH_CONTROL_PROCESS_H */
