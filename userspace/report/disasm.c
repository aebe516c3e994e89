// SPDX-License-Identifier: BSD-2-Clause
#include "report/disasm.h"

#include <stdio.h>
#include <stdlib.h>

#include <Zydis/Zydis.h>

struct ptw_disasm {
	ZydisDecoder decoder16, decoder32, decoder64;
	ZydisFormatter formatter;
};

struct ptw_disasm *ptw_disasm_new(bool intel)
{
	struct ptw_disasm *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	/* These only fail for arguments that don't go together. */
	ZydisDecoderInit(&d->decoder16, ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16);
	ZydisDecoderInit(&d->decoder32, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
	ZydisDecoderInit(&d->decoder64, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisFormatterInit(&d->formatter, intel ? ZYDIS_FORMATTER_STYLE_INTEL : ZYDIS_FORMATTER_STYLE_ATT);
	ZydisFormatterSetProperty(&d->formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE);
	ZydisFormatterSetProperty(&d->formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE,
				  ZYDIS_PADDING_DISABLED);
	ZydisFormatterSetProperty(&d->formatter, ZYDIS_FORMATTER_PROP_DISP_PADDING, ZYDIS_PADDING_DISABLED);
	ZydisFormatterSetProperty(&d->formatter, ZYDIS_FORMATTER_PROP_IMM_PADDING, ZYDIS_PADDING_DISABLED);
	return d;
}

void ptw_disasm_free(struct ptw_disasm *disasm)
{
	free(disasm);
}

static uint64_t find_target(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
			    uint64_t ip)
{
	ZyanU64 address;
	int i;

	for (i = 0; i < insn->operand_count_visible; i++) {
		const ZydisDecodedOperand *op = &operands[i];
		bool relative = (op->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && op->imm.is_relative) ||
				(op->type == ZYDIS_OPERAND_TYPE_MEMORY &&
				 (op->mem.base == ZYDIS_REGISTER_RIP || op->mem.base == ZYDIS_REGISTER_EIP));

		if (relative && ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, op, ip, &address)))
			return address;
	}
	return 0;
}

void ptw_disasm_format(struct ptw_disasm *d, uint64_t ip, const uint8_t *raw, size_t size, unsigned int bits,
		       char *buf, size_t room, uint64_t *target)
{
	const ZydisDecoder *decoder = bits == 16 ? &d->decoder16 : bits == 32 ? &d->decoder32 : &d->decoder64;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;

	*target = 0;
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder, raw, size, &insn, operands)) ||
	    !ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&d->formatter, &insn, operands,
							  insn.operand_count_visible, buf, room, ip, NULL))) {
		snprintf(buf, room, "(bad)");
		return;
	}
	*target = find_target(&insn, operands, ip);
}
