/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whole reads and writes of files, with errors that name the file. All return 0 or -1 (fd or
 * pointer where said).
 */
#ifndef PTWATCH_RECORDING_FILE_H
#define PTWATCH_RECORDING_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/** ptw_create_file() - a new file only the owner can read. Return: fd or -1. */
int ptw_create_file(const char *path, struct ptw_error *err);

int ptw_write_all(int fd, const void *data, size_t size, const char *path, struct ptw_error *err);

/** ptw_close_file() - close, and report what a write-behind file system kept to itself until now */
int ptw_close_file(int fd, const char *path, struct ptw_error *err);

/** ptw_write_file() - create @path with these bytes */
int ptw_write_file(const char *path, const void *data, size_t size, struct ptw_error *err);

/** ptw_read_at() - exactly @size bytes from @offset */
int ptw_read_at(int fd, void *data, size_t size, uint64_t offset, const char *path, struct ptw_error *err);

/**
 * ptw_read_text() - all of a file, also of one in /proc; NUL-terminated, to be freed. Return: NULL
 * on failure.
 */
char *ptw_read_text(const char *path, size_t *size, struct ptw_error *err);

#endif /* PTWATCH_RECORDING_FILE_H */
