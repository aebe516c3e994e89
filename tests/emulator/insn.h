/* SPDX-License-Identifier: BSD-2-Clause */
/* What kind of x86 instruction some bytes are, as far as tracing cares. No dependency on QEMU. */
#ifndef INSN_H
#define INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum insn_kind {
	INSN_OTHER,
	/* Branches (SDM, "Change of Flow Instruction Tracing"). */
	INSN_COND,		/* Jcc, LOOPcc, JrCXZ */
	INSN_JUMP,		/* direct JMP */
	INSN_CALL,		/* direct near CALL */
	INSN_INDIRECT_JUMP,
	INSN_INDIRECT_CALL,
	INSN_RET,		/* near RET */
	INSN_FAR,		/* far JMP, CALL, RET, IRET, SYSCALL, SYSRET, SYSENTER, SYSEXIT */
	INSN_SOFT_INT,		/* INT n, INT3, INT1, INTO: far transfers too, but QEMU reports them
				 * as discontinuities */
	/* Instructions that the emulator intercepts. */
	INSN_CPUID,
	INSN_RDMSR,
	INSN_WRMSR,
	INSN_RDPMC,
	INSN_MOV_TO_CR3,
	INSN_LGDT,
	INSN_PTWRITE,
};

struct insn {
	enum insn_kind kind;
	uint8_t len;
	uint8_t reg;		/* source register of MOV to CR3, 0..15 */
	uint8_t modrm_at;	/* PTWRITE: offset of ModRM; REX and size are in the bytes before */
	bool plain;		/* can neither fault nor leave the block: registers and flags only */
	int64_t disp;		/* direct branches: target - address of the next instruction */
};

/* Classify the instruction that is exactly len bytes long. */
void insn_decode(const uint8_t *bytes, size_t len, struct insn *out);

static inline bool insn_is_branch(enum insn_kind kind)
{
	return kind >= INSN_COND && kind <= INSN_FAR;
}

#endif /* INSN_H */
