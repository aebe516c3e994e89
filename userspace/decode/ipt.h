/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libipt, whatever its version. Private to decode/ and flow/.
 *
 * All that depends on LIBIPT_VERSION is here and in ipt.c: 2.0 knows no event trace, 2.1 brings CFE and EVD
 * packets and their events, 2.2 triggers and two more events. The rest of the room is written against 2.0.
 */
#ifndef PTWATCH_DECODE_IPT_H
#define PTWATCH_DECODE_IPT_H

#include <stdbool.h>
#include <stddef.h>

#include <intel-pt.h>

#include "common/error.h"
#include "decode/event.h"
#include "decode/packets.h"
#include "decode/pt_params.h"

/** ipt_config() - libipt's configuration for @size bytes of @data recorded as @params says */
int ipt_config(struct pt_config *config, const struct ptw_pt_params *params, const uint8_t *data, size_t size,
	       struct ptw_error *err);

/** ipt_newer_flags() - flags of the block decoder that 2.0 does not have */
void ipt_newer_flags(struct pt_config *config);

/** ipt_mode_exec_if() - the IF bit of a MODE.Exec packet; 0 where the library doesn't know it */
uint32_t ipt_mode_exec_if(const struct pt_packet *packet);

/**
 * ipt_newer_packet() - fill @out from a packet type that 2.0 doesn't have, whose bytes are at @raw; false:
 * no such packet
 */
bool ipt_newer_packet(const struct pt_packet *packet, const uint8_t *raw, struct ptw_packet *out);

/** ipt_newer_event() - fill @out from an event type that 2.0 doesn't have; false: no such event */
bool ipt_newer_event(const struct pt_event *event, struct ptw_event *out);

/** ipt_event() - our event for any of libipt's */
void ipt_event(const struct pt_event *in, struct ptw_event *out);

/**
 * ipt_cut_cyc() - erratum SKD007: is at @p the first byte of a CYC that OVF came instead of the rest of? It looks like a CYC
 * of two bytes and another, which no CPU sends in a row.
 */
static inline bool ipt_cut_cyc(const uint8_t *p, size_t left)
{
	return left >= 3 && (p[0] & 7) == 7 && p[1] == 0x02 && p[2] == 0xf3;
}

/** ipt_next_psb() - offset of the first PSB at or after @from; @size: there is none */
size_t ipt_next_psb(const uint8_t *data, size_t size, size_t from);

#endif /* PTWATCH_DECODE_IPT_H */
