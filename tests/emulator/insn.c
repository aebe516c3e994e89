/* SPDX-License-Identifier: BSD-2-Clause */
#include "insn.h"

#include <string.h>

static bool is_prefix(uint8_t c)
{
	switch (c) {
	case 0x66: case 0x67: case 0xf0: case 0xf2: case 0xf3:
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65:
		return true;
	}
	/*
	 * REX. In 32-bit code these are one-byte instructions (INC, DEC), which the length tells:
	 * nothing follows them.
	 */
	return (c & 0xf0) == 0x40;
}

static int64_t displacement(const uint8_t *p, size_t n)
{
	int8_t d8;
	int16_t d16;
	int32_t d32;

	switch (n) {
	case 1:
		memcpy(&d8, p, 1);
		return d8;
	case 2:
		memcpy(&d16, p, 2);
		return d16;
	case 4:
		memcpy(&d32, p, 4);
		return d32;
	}
	return 0;
}

/* INS, OUTS, MOVS, CMPS, STOS, LODS, SCAS */
static bool is_string(uint8_t op)
{
	return (op >= 0x6c && op <= 0x6f) || (op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf);
}

/* One-byte opcodes with registers as the only operands. When in doubt: false. */
static bool plain_one_byte(uint8_t op, uint8_t modrm, bool has_modrm)
{
	bool regs = has_modrm && modrm >= 0xc0;
	unsigned int ext = (modrm >> 3) & 7;

	if (op < 0x40) {
		switch (op & 7) {
		case 0: case 1: case 2: case 3:
			return regs;
		case 4: case 5:
			return true;
		}
		return false;
	}
	switch (op) {
	case 0x63: case 0x69: case 0x6b:
	case 0x80: case 0x81: case 0x83: case 0x84: case 0x85: case 0x86: case 0x87:
	case 0x88: case 0x89: case 0x8a: case 0x8b:
	case 0xc0: case 0xc1: case 0xd0: case 0xd1: case 0xd2: case 0xd3:
		return regs;
	case 0x8d:
	case 0x90: case 0x91: case 0x92: case 0x93: case 0x94: case 0x95: case 0x96: case 0x97:
	case 0x98: case 0x99: case 0xa8: case 0xa9:
		return true;
	case 0xc6: case 0xc7:
		return regs && ext == 0;
	case 0xf6: case 0xf7:
		return regs && ext < 6;
	case 0xfe: case 0xff:
		return regs && ext < 2;
	}
	return op >= 0xb0 && op <= 0xbf;
}

static bool plain_two_byte(uint8_t op, uint8_t modrm, bool has_modrm)
{
	bool regs = has_modrm && modrm >= 0xc0;

	if ((op & 0xf0) == 0x40 || (op & 0xf0) == 0x90)
		return regs;
	if (op >= 0xc8 && op <= 0xcf)
		return true;
	switch (op) {
	case 0x1e: case 0x1f:
		return true;
	case 0xa3: case 0xab: case 0xb3: case 0xba: case 0xbb: case 0xa4: case 0xa5: case 0xac:
	case 0xad: case 0xaf: case 0xb6: case 0xb7: case 0xbc: case 0xbd: case 0xbe: case 0xbf:
		return regs;
	}
	return false;
}

static void decode_two_byte(const uint8_t *p, size_t left, uint8_t rex, bool f3, struct insn *out)
{
	uint8_t op = p[1];
	bool has_modrm = left > 2;
	uint8_t modrm = has_modrm ? p[2] : 0;

	if (op >= 0x80 && op <= 0x8f) {
		out->kind = INSN_COND;
		out->disp = displacement(p + 2, left - 2);
		return;
	}
	switch (op) {
	case 0x01:
		if (has_modrm && modrm < 0xc0 && ((modrm >> 3) & 7) == 2)
			out->kind = INSN_LGDT;
		else if (has_modrm && modrm < 0xc0 && ((modrm >> 3) & 7) == 3)
			out->kind = INSN_LIDT;
		else if (has_modrm && modrm == 0xc9)
			out->kind = INSN_MWAIT;
		return;
	case 0x05: case 0x07: case 0x34: case 0x35:
		out->kind = INSN_FAR;
		return;
	case 0x22:
		if (((modrm >> 3) & 7) == 3) {
			out->kind = INSN_MOV_TO_CR3;
			out->reg = (modrm & 7) | (rex & 1) << 3;
		}
		return;
	case 0x30:
		out->kind = INSN_WRMSR;
		return;
	case 0x32:
		out->kind = INSN_RDMSR;
		return;
	case 0x33:
		out->kind = INSN_RDPMC;
		return;
	case 0xa2:
		out->kind = INSN_CPUID;
		return;
	case 0xae:
		if (f3 && has_modrm && ((modrm >> 3) & 7) == 4)
			out->kind = INSN_PTWRITE;
		return;
	}
	out->plain = plain_two_byte(op, modrm, has_modrm);
}

void insn_decode(const uint8_t *bytes, size_t len, struct insn *out)
{
	size_t i = 0, left;
	uint8_t rex = 0, op, modrm = 0;
	bool f2 = false, f3 = false, lock = false;

	memset(out, 0, sizeof(*out));
	out->len = len;
	while (i < len && is_prefix(bytes[i])) {
		rex = (bytes[i] & 0xf0) == 0x40 ? bytes[i] : 0;
		f2 |= bytes[i] == 0xf2;
		f3 |= bytes[i] == 0xf3;
		lock |= bytes[i] == 0xf0;
		i++;
	}
	left = len - i;
	if (!left) {
		out->plain = true;	/* INC or DEC of 32-bit code */
		return;
	}
	op = bytes[i];
	if (left > 1)
		modrm = bytes[i + 1];
	if (op == 0x0f && left > 1) {
		decode_two_byte(bytes + i, left, rex, f3, out);
		if (lock)
			out->plain = false;
		return;
	}
	if ((op >= 0x70 && op <= 0x7f) || (op >= 0xe0 && op <= 0xe3)) {
		out->kind = INSN_COND;
		out->disp = displacement(bytes + i + 1, 1);
		return;
	}
	switch (op) {
	case 0xeb:
	case 0xe9:
		out->kind = INSN_JUMP;
		out->disp = displacement(bytes + i + 1, left - 1);
		return;
	case 0xe8:
		out->kind = INSN_CALL;
		out->disp = displacement(bytes + i + 1, left - 1);
		return;
	case 0xc2: case 0xc3:
		out->kind = INSN_RET;
		return;
	case 0xcf:
		out->iret = true;
		/* fall through */
	case 0x9a: case 0xca: case 0xcb: case 0xea:
		out->kind = INSN_FAR;
		return;
	case 0xfa:
		out->kind = INSN_CLI;
		return;
	case 0xfb: case 0x9d:
		out->kind = INSN_STI;
		return;
	case 0xf4:
		out->kind = INSN_HLT;
		return;
	case 0xcc: case 0xcd: case 0xce:
		out->kind = INSN_SOFT_INT;
		return;
	case 0xf1:
		out->kind = INSN_INT1;
		return;
	case 0xff:
		switch ((modrm >> 3) & 7) {
		case 2:
			out->kind = INSN_INDIRECT_CALL;
			return;
		case 4:
			out->kind = INSN_INDIRECT_JUMP;
			return;
		case 3: case 5:
			out->kind = INSN_FAR;
			return;
		}
		break;
	}
	out->rep = (f2 || f3) && is_string(op);
	out->plain = !lock && plain_one_byte(op, modrm, left > 1);
}

/* The memory form: ModRM at *p, then perhaps SIB and displacement. Returns where it ends, NULL if cut off. */
static const uint8_t *decode_memory(const uint8_t *p, const uint8_t *end, uint8_t rex, bool code64,
				    struct operand *out)
{
	uint8_t mod = *p >> 6, rm = *p & 7, sib;
	size_t disp = mod == 1 ? 1 : mod == 2 ? 4 : 0;

	p++;
	out->base = rm | (rex & 1) << 3;
	if (rm == 4) {
		if (p >= end)
			return NULL;
		sib = *p++;
		out->scale = 1 << (sib >> 6);
		out->index = (sib >> 3 & 7) | (rex & 2) << 2;
		if (out->index == 4)
			out->index = -1;
		out->base = (sib & 7) | (rex & 1) << 3;
		if ((sib & 7) == 5 && mod == 0) {
			out->base = -1;
			disp = 4;
		}
	} else if (rm == 5 && mod == 0) {
		out->base = -1;
		out->rip = code64;
		disp = 4;
	}
	if ((size_t)(end - p) < disp)
		return NULL;
	out->disp = displacement(p, disp);
	return p + disp;
}

bool insn_ptwrite(const uint8_t *bytes, size_t avail, bool code64, struct operand *out)
{
	const uint8_t *p = bytes, *end = bytes + (avail < 15 ? avail : 15);
	bool f3 = false, a67 = false;
	uint8_t rex = 0;

	memset(out, 0, sizeof(*out));
	out->index = -1;
	out->base = -1;
	for (; p < end; p++) {
		if (code64 && (*p & 0xf0) == 0x40) {
			rex = *p;
			continue;
		}
		if (*p == 0x0f)
			break;
		rex = 0;
		if (*p == 0xf3)
			f3 = true;
		else if (*p == 0x67)
			a67 = true;
		else if (*p == 0x64 || *p == 0x65)
			out->segment = *p == 0x64 ? 'f' : 'g';
		else if (*p == 0x66 || *p == 0xf0 || *p == 0xf2 || (*p & 0xf0) == 0x40 || !is_prefix(*p))
			return false;
	}
	if (end - p < 3 || p[1] != 0xae || (p[2] >> 3 & 7) != 4 || !f3)
		return false;
	p += 2;
	out->bytes = rex & 8 ? 8 : 4;
	if (*p >= 0xc0) {
		out->is_reg = true;
		out->reg = (*p & 7) | (rex & 1) << 3;
		p++;
	} else {
		if (!code64 && a67)
			return false;
		out->addr32 = a67 || !code64;
		p = decode_memory(p, end, rex, code64, out);
		if (!p)
			return false;
	}
	out->insn_len = p - bytes;
	return true;
}
