/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as people write and read them. */
#ifndef PTWATCH_COMMON_NUMBER_H
#define PTWATCH_COMMON_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/** ptw_commas() - @value as "2,031,616"; a @buf of 32 bytes is enough. Return: @buf. */
char *ptw_commas(uint64_t value, char *buf, size_t size);

/** ptw_bytes() - @value as "64 KiB", "1.5 MiB"; a @buf of 32 bytes is enough. Return: @buf. */
char *ptw_bytes(uint64_t value, char *buf, size_t size);

/**
 * ptw_parse_uint() - a decimal number from @min to @max, nothing around it. Return: 0, or -1 when it is
 * none.
 */
int ptw_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/**
 * ptw_parse_size() - "65536", "64k", "4M", "1G" (binary units, KiB and KB mean the same). Return: 0 or -1.
 */
int ptw_parse_size(const char *text, uint64_t *bytes);

/** ptw_parse_duration() - "10" (seconds), "1.5s", "500ms", "40us", "100ns", "2m". Return: 0 or -1. */
int ptw_parse_duration(const char *text, uint64_t *ns);

/**
 * ptw_parse_cpus() - a list of CPU numbers, "0-3,8", as a bitmap (bit n of byte n / 8)
 * @bitmap: out: to be freed with free()
 * @size: out: bytes at @bitmap
 *
 * Return: how many CPUs, or -1 when @text is not a list (or is empty).
 */
int ptw_parse_cpus(const char *text, uint8_t **bitmap, size_t *size);

#endif /* PTWATCH_COMMON_NUMBER_H */
