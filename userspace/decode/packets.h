/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The packets of a trace, one by one, as the hardware wrote them.
 *
 *	struct ptw_packets *packets = ptw_packets_new(&params, data, size, &err);
 *	struct ptw_packet packet;
 *
 *	while (ptw_packets_next(packets, &packet) != PTW_PACKETS_END)
 *		…
 *	ptw_packets_free(packets);
 */
#ifndef PTWATCH_DECODE_PACKETS_H
#define PTWATCH_DECODE_PACKETS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "decode/pt_params.h"

/* Named as in the SDM. TNT is both the short and the long form; the size tells them apart. */
enum ptw_packet_type {
	PTW_PACKET_PAD, PTW_PACKET_PSB, PTW_PACKET_PSBEND, PTW_PACKET_FUP, PTW_PACKET_TIP, PTW_PACKET_TIP_PGE,
	PTW_PACKET_TIP_PGD, PTW_PACKET_TNT, PTW_PACKET_MODE_EXEC, PTW_PACKET_MODE_TSX, PTW_PACKET_PIP,
	PTW_PACKET_VMCS, PTW_PACKET_CBR, PTW_PACKET_TSC, PTW_PACKET_TMA, PTW_PACKET_MTC, PTW_PACKET_CYC,
	PTW_PACKET_TRACESTOP, PTW_PACKET_OVF, PTW_PACKET_MNT, PTW_PACKET_EXSTOP, PTW_PACKET_MWAIT,
	PTW_PACKET_PWRE, PTW_PACKET_PWRX, PTW_PACKET_PTW, PTW_PACKET_CFE, PTW_PACKET_EVD, PTW_PACKET_TRIG,
	PTW_PACKET_UNKNOWN,
};

/**
 * struct ptw_packet - one packet, or a stretch that holds none
 *
 * What @value and @count are, by type; the others have no payload:
 *
 * TNT			the bits, the youngest is bit 0		how many
 * TIP*, FUP		the bytes in the packet			IPBytes, the compression (0: suppressed)
 * MODE.Exec		address size: 16, 32 or 64; 0: reserved	IF (event trace; from libipt 2.1 on)
 * MODE.TSX		bit 0 InTX, bit 1 TXAbort		-
 * PIP			CR3					NR
 * VMCS			base address				-
 * CBR, TSC, MTC, CYC	the value				-
 * TMA			CTC					FastCounter
 * MNT			payload					-
 * MWAIT		EXT << 32 | hints			-
 * PWRE			HW 7, sub C-state 11:8, C-state 15:12	-
 * PWRX			deepest 3:0, last 7:4, wake reason 11:8	-
 * PTW			payload					its size, 4 or 8
 * CFE			vector					event type
 * EVD			payload					event data type
 * TRIG			trigger bit vector			instruction count
 */
struct ptw_packet {
	enum ptw_packet_type type;
	uint64_t offset;	/* in the trace */
	uint64_t value;
	uint64_t ip;		/* TIP*, FUP: the address with what was compressed away put back */
	uint32_t count;
	uint32_t size;		/* bytes in the trace */
	uint8_t with_ip;	/* the IP bit: a FUP belongs to it (EXSTOP, PTW, CFE, TRIG) */
	const char *error;	/* PTW_PACKETS_GAP: what was wrong at @offset; @size bytes were passed over */
};

enum ptw_packets_status {
	PTW_PACKETS_PACKET, /* here is a packet */
	PTW_PACKETS_GAP, /* bytes that are no packet up to the next PSB, or the end; of SKD007 the first byte of a CYC */
	PTW_PACKETS_SKIPPED, /* the trace begins inside a packet: no error, @size bytes before the first PSB
			      */
	PTW_PACKETS_END,
};

struct ptw_packets;

/**
 * ptw_packets_new() - packets of @size bytes at @data, which must stay; a trace without any PSB is read from
 * byte 0
 */
struct ptw_packets *ptw_packets_new(const struct ptw_pt_params *params, const uint8_t *data, size_t size,
				    struct ptw_error *err);
enum ptw_packets_status ptw_packets_next(struct ptw_packets *packets, struct ptw_packet *packet);

/**
 * ptw_packets_count() - pass over plain packets, which are nearly all, up to the next one for ptw_packets_next()
 * @count, @bytes: by type; what was passed is added
 *
 * Return: the offset reached.
 */
uint64_t ptw_packets_count(struct ptw_packets *packets, uint64_t *count, uint64_t *bytes);
void ptw_packets_free(struct ptw_packets *packets);

/** ptw_packet_name() - "TIP.PGE", "MODE.Exec", "PSB" … */
const char *ptw_packet_name(const struct ptw_packet *packet);

/**
 * ptw_packet_payload() - the payload for people; "" where there is none. Return: @buf. 128 bytes are enough.
 */
char *ptw_packet_payload(const struct ptw_packet *packet, char *buf, size_t size);

#endif /* PTWATCH_DECODE_PACKETS_H */
