/* SPDX-License-Identifier: BSD-2-Clause */
/* Names are bytes: threads and files may be called anything, and the kernel cuts a thread's name amid a character. */
#ifndef PTWATCH_COMMON_UTF8_H
#define PTWATCH_COMMON_UTF8_H

#include <stddef.h>

/** ptw_utf8_size() - bytes of the character at @text, which ends with NUL. Return: 0: there is none (RFC 3629). */
size_t ptw_utf8_size(const char *text);

/**
 * ptw_printable() - @text with '?' in place of control characters, and of each byte that belongs to no character: nothing of
 * it steers a terminal
 *
 * Return: @buf.
 */
char *ptw_printable(const char *text, char *buf, size_t size);

#endif /* PTWATCH_COMMON_UTF8_H */
