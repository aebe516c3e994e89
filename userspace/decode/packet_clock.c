// SPDX-License-Identifier: BSD-2-Clause
#include "decode/packet_clock.h"

static void move_to(struct ptw_packet_clock *clock, uint64_t tsc)
{
	clock->anchor = tsc;
	clock->cycles = 0;
	/* What cycles estimated may be a little ahead. */
	if (tsc > clock->tsc || clock->tsc - tsc > 1u << 20)
		clock->tsc = tsc;
}

static void take_mtc(struct ptw_packet_clock *clock, uint8_t mtc)
{
	const struct ptw_pt_params *params = clock->params;
	uint64_t elapsed;

	if (!clock->have_ctc || !params->cpuid_0x15_eax)
		return;
	clock->ctc += (uint64_t)(uint8_t)(mtc - clock->mtc) << params->mtc_freq;
	clock->mtc = mtc;
	elapsed = clock->ctc - clock->ctc_base;
	move_to(clock, clock->base + (uint64_t)((unsigned __int128)elapsed * params->cpuid_0x15_ebx / params->cpuid_0x15_eax));
}

static void take_tma(struct ptw_packet_clock *clock, uint16_t ctc, uint32_t fast)
{
	uint8_t freq = clock->params->mtc_freq;

	clock->have_ctc = clock->known;
	clock->base = clock->anchor - fast;
	clock->ctc_base = ctc;
	/* MTC packets come when the bits above mtc_freq change. */
	clock->ctc = (uint64_t)ctc >> freq << freq;
	clock->mtc = (uint8_t)(ctc >> freq);
}

void ptw_packet_clock_take(struct ptw_packet_clock *clock, const struct ptw_packet *packet)
{
	switch (packet->type) {
	case PTW_PACKET_TSC:
		clock->known = true;
		move_to(clock, packet->value);
		break;
	case PTW_PACKET_TMA:
		take_tma(clock, (uint16_t)packet->value, packet->count);
		break;
	case PTW_PACKET_MTC:
		take_mtc(clock, (uint8_t)packet->value);
		break;
	case PTW_PACKET_CBR:
		clock->cbr = (uint8_t)packet->value;
		break;
	case PTW_PACKET_CYC:
		clock->cycles += packet->value;
		if (clock->known && clock->cbr && clock->params->nom_freq)
			clock->tsc = clock->anchor + clock->cycles * clock->params->nom_freq / clock->cbr;
		break;
	case PTW_PACKET_OVF:
		/* Cycles and crystal ticks were lost with the rest: the next TSC packet tells. */
		clock->have_ctc = false;
		break;
	default:
		break;
	}
}
