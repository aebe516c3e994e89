/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time of each packet: TSC packets tell it, MTC and CYC packets carry it on. Between them it stands still.
 *
 * As the SDM has it: TMA ties the crystal clock (CTC) to the TSC packet before it, MTC tells eight bits of the CTC, CYC
 * the core's cycles since the last one, which CBR and the nominal ratio make ticks of the TSC.
 */
#ifndef PTWATCH_DECODE_PACKET_CLOCK_H
#define PTWATCH_DECODE_PACKET_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "decode/packets.h"

/** struct ptw_packet_clock - zero-initialise but for @params */
struct ptw_packet_clock {
	const struct ptw_pt_params *params;
	bool known;		/* @tsc is */
	uint64_t tsc;

	bool have_ctc;		/* the rest is private */
	uint64_t base, ctc_base, ctc;
	uint64_t anchor, cycles;
	uint8_t mtc, cbr;
};

/** ptw_packet_clock_take() - @packet is the next one: then @clock->tsc is its time */
void ptw_packet_clock_take(struct ptw_packet_clock *clock, const struct ptw_packet *packet);

#endif /* PTWATCH_DECODE_PACKET_CLOCK_H */
