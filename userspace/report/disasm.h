/* SPDX-License-Identifier: BSD-2-Clause */
/* Instructions as text, by Zydis. */
#ifndef PTWATCH_REPORT_DISASM_H
#define PTWATCH_REPORT_DISASM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptw_disasm;

/** ptw_disasm_new() - @intel: Intel's syntax, else AT&T's as kernel people have it; NULL: out of memory */
struct ptw_disasm *ptw_disasm_new(bool intel);
void ptw_disasm_free(struct ptw_disasm *disasm);

/**
 * ptw_disasm_format() - the instruction of @size bytes at @raw, executed at @ip in @bits-bit mode
 * @target: out: address that a direct branch goes to or a RIP-relative operand names; 0: there is none
 *
 * Bytes that are no instruction give "(bad)".
 */
void ptw_disasm_format(struct ptw_disasm *disasm, uint64_t ip, const uint8_t *raw, size_t size,
		       unsigned int bits, char *buf, size_t room, uint64_t *target);

#endif /* PTWATCH_REPORT_DISASM_H */
