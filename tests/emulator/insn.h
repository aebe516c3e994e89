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
	INSN_SOFT_INT,		/* INT n, INT3, INTO: discontinuities to QEMU */
	INSN_INT1,		/* likewise, but it says that they come from the next instruction */
	/* Instructions that the emulator intercepts. */
	INSN_CPUID,
	INSN_RDMSR,
	INSN_WRMSR,
	INSN_RDPMC,
	INSN_MOV_TO_CR3,
	INSN_LGDT,
	INSN_PTWRITE,
	INSN_LIDT,
	INSN_CLI,
	INSN_STI,		/* or POPF: what may change RFLAGS.IF and ends a block */
	INSN_HLT,
	INSN_MWAIT,
};

struct insn {
	enum insn_kind kind;
	uint8_t len;
	uint8_t reg;		/* source register of MOV to CR3, 0..15 */
	bool iret;		/* INSN_FAR: IRET */
	bool rep;		/* a string instruction with REP */
	bool plain;		/* can neither fault nor leave the block: registers and flags only */
	int64_t disp;		/* direct branches: target - address of the next instruction */
};

/* Classify the instruction that is exactly len bytes long. */
void insn_decode(const uint8_t *bytes, size_t len, struct insn *out);

/* An operand that a ModRM byte selects, in 32-bit or 64-bit code. */
struct operand {
	uint8_t insn_len;	/* of the whole instruction, without immediates */
	uint8_t bytes;		/* 4, or 8 with REX.W */
	bool is_reg;
	uint8_t reg;		/* the register, 0..15 */
	/* Else memory: base + index * scale + disp, each 0..15 or -1 for none. */
	int8_t base, index;
	uint8_t scale;
	bool rip;		/* relative to the next instruction */
	bool addr32;		/* the sum is cut to 32 bits */
	char segment;		/* 'f', 'g', or 0 for one whose base is 0 */
	int32_t disp;
};

/*
 * Take PTWRITE apart, of which avail bytes can be read. False if it isn't one (a prefix that makes it #UD),
 * if it is cut off, or has 16-bit addressing.
 */
bool insn_ptwrite(const uint8_t *bytes, size_t avail, bool code64, struct operand *out);

static inline bool insn_is_branch(enum insn_kind kind)
{
	return kind >= INSN_COND && kind <= INSN_FAR;
}

#endif /* INSN_H */
