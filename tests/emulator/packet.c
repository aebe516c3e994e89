/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet.h"

#include <string.h>

#define TNT_SHORT_BITS 6
#define TNT_LONG_BITS 47

void packet_reset(struct packet_writer *w)
{
	w->len = 0;
	w->tnt = 0;
	w->ntnt = 0;
	w->last_ip = 0;
	w->ip_known = false;
	w->lost = false;
	w->since_ovf = 0;
	w->mode = PACKET_EXEC_UNKNOWN;
	w->next_mode = PACKET_EXEC_UNKNOWN;
}

void packet_flush(struct packet_writer *w)
{
	size_t len = w->len;

	/* First, as the output may come back (an error stops the trace, which looks at us). */
	w->len = 0;
	if (len)
		w->output(w->opaque, w->buf, len);
}

static void put(struct packet_writer *w, enum packet_class class, const void *data, size_t len)
{
	if (w->lost)
		return;
	if (w->len + len > (w->limit ? w->limit : sizeof(w->buf)))
		packet_flush(w);
	memcpy(w->buf + w->len, data, len);
	w->len += len;
	w->since_psb += len;
	w->total += len;
	w->bytes[class] += len;
	/* A packet gets in as a whole or not at all, but its company may be lost. */
	w->since_ovf += len;
	if (w->overflow && w->since_ovf >= w->overflow)
		w->lost = true;
}

static void stamp(struct packet_writer *w)
{
	/* The cycle counter runs on meanwhile: the CYC of OVF tells how long it took. */
	if (w->stamp && !w->lost)
		w->stamp(w->opaque);
}

/* A packet of an opcode and up to 8 bytes of a little-endian payload. */
static void put_payload(struct packet_writer *w, enum packet_class class, const uint8_t *op,
			size_t oplen, uint64_t payload, size_t len)
{
	uint8_t p[12];

	memcpy(p, op, oplen);
	for (size_t i = 0; i < len; i++)
		p[oplen + i] = payload >> (8 * i);
	put(w, class, p, oplen + len);
}

static void put_ext(struct packet_writer *w, enum packet_class class, uint8_t ext,
		    uint64_t payload, size_t len)
{
	const uint8_t op[2] = { 0x02, ext };

	put_payload(w, class, op, 2, payload, len);
}

void packet_tnt_flush(struct packet_writer *w)
{
	uint64_t bits;
	uint8_t byte;

	if (!w->ntnt)
		return;
	/* A 1 stop bit above the oldest. */
	bits = 1ULL << w->ntnt | w->tnt;
	stamp(w);
	if (w->ntnt <= TNT_SHORT_BITS) {
		byte = bits << 1;
		put(w, PACKET_CLASS_TNT, &byte, 1);
	} else {
		put_ext(w, PACKET_CLASS_TNT, 0xa3, bits, 6);
	}
	w->ntnt = 0;
	w->tnt = 0;
}

void packet_tnt(struct packet_writer *w, bool taken)
{
	w->tnt = w->tnt << 1 | taken;
	if (++w->ntnt == (w->long_tnt ? TNT_LONG_BITS : TNT_SHORT_BITS))
		packet_tnt_flush(w);
}

static enum packet_class ip_class(enum packet_ip type)
{
	return type == PACKET_FUP ? PACKET_CLASS_FUP : PACKET_CLASS_TIP;
}

void packet_ip(struct packet_writer *w, enum packet_ip type, uint64_t ip)
{
	uint64_t diff = ip ^ w->last_ip;
	unsigned int code, len;
	uint8_t op;

	packet_tnt_flush(w);
	stamp(w);
	if (w->ip_known && !(diff >> 16)) {
		code = 1;
		len = 2;
	} else if (w->ip_known && !(diff >> 32)) {
		code = 2;
		len = 4;
	} else if ((uint64_t)((int64_t)(ip << 16) >> 16) == ip) {
		code = 3;	/* 48 bits, sign-extended */
		len = 6;
	} else if (w->ip_known && !(diff >> 48)) {
		code = 4;	/* 48 bits, the rest from the last IP */
		len = 6;
	} else {
		code = 6;
		len = 8;
	}
	w->last_ip = ip;
	w->ip_known = true;
	/* MODE.Exec binds to the IP: without that, decoders drop it. */
	if (!w->lost)
		w->mode = w->next_mode;
	op = type | code << 5;
	put_payload(w, ip_class(type), &op, 1, ip, len);
}

void packet_ip_none(struct packet_writer *w, enum packet_ip type)
{
	uint8_t op = type;

	packet_tnt_flush(w);
	stamp(w);
	put(w, ip_class(type), &op, 1);
}

void packet_pip(struct packet_writer *w, uint64_t cr3, bool nr)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_PIP, 0x43, ((cr3 >> 5) & 0x7fffffffffffULL) << 1 | nr, 6);
}

void packet_mode_exec(struct packet_writer *w, enum packet_exec mode, bool intr_flag)
{
	const uint8_t p[2] = { 0x99, mode | intr_flag << 2 };

	packet_tnt_flush(w);
	stamp(w);
	w->next_mode = mode;
	put(w, PACKET_CLASS_MODE, p, 2);
}

void packet_mode_tsx(struct packet_writer *w, bool in_tx, bool aborted)
{
	const uint8_t p[2] = { 0x99, 0x20 | in_tx | aborted << 1 };

	packet_tnt_flush(w);
	stamp(w);
	put(w, PACKET_CLASS_MODE, p, 2);
}

void packet_tracestop(struct packet_writer *w)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_OTHER, 0x83, 0, 0);
}

void packet_cbr(struct packet_writer *w, uint8_t ratio)
{
	packet_tnt_flush(w);
	put_ext(w, PACKET_CLASS_PSB, 0x03, ratio, 2);
}

void packet_tsc(struct packet_writer *w, uint64_t tsc)
{
	const uint8_t op = 0x19;

	packet_tnt_flush(w);
	put_payload(w, PACKET_CLASS_PSB, &op, 1, tsc, 7);
}

void packet_tma(struct packet_writer *w, uint16_t ctc, uint16_t fast)
{
	packet_tnt_flush(w);
	put_ext(w, PACKET_CLASS_PSB, 0x73, ctc | (uint64_t)(fast & 0x1ff) << 24, 5);
}

void packet_mtc(struct packet_writer *w, uint8_t ctc)
{
	const uint8_t p[2] = { 0x59, ctc };

	packet_tnt_flush(w);
	stamp(w);
	put(w, PACKET_CLASS_MTC, p, 2);
}

void packet_cyc(struct packet_writer *w, uint64_t cycles)
{
	uint8_t p[12];
	size_t n = 0;
	uint64_t rest = cycles >> 5;

	/* Bit 2 of the first byte and bit 0 of the others say that another byte follows. */
	p[n++] = 3 | (cycles & 0x1f) << 3 | (rest ? 4 : 0);
	while (rest) {
		p[n] = (rest & 0x7f) << 1;
		rest >>= 7;
		p[n++] |= !!rest;
	}
	put(w, PACKET_CLASS_CYC, p, w->cut_cyc && w->in_ovf ? 1 : n);
}

void packet_vmcs(struct packet_writer *w, uint64_t base)
{
	packet_tnt_flush(w);
	put_ext(w, PACKET_CLASS_OTHER, 0xc8, base >> 12, 5);
}

void packet_ovf(struct packet_writer *w)
{
	w->tnt = 0;
	w->ntnt = 0;
	w->lost = false;
	w->since_ovf = 0;
	w->in_ovf = true;
	stamp(w);
	w->in_ovf = false;
	put_ext(w, PACKET_CLASS_OTHER, 0xf3, 0, 0);
	/* What was lost may have held IPs, and a mode. */
	w->ip_known = false;
	w->next_mode = w->mode;
}

void packet_psb(struct packet_writer *w)
{
	uint8_t p[16];

	packet_tnt_flush(w);
	/* It stays due. */
	if (w->lost)
		return;
	for (size_t i = 0; i < sizeof(p); i += 2) {
		p[i] = 0x02;
		p[i + 1] = 0x82;
	}
	w->since_psb = 0;
	put(w, PACKET_CLASS_PSB, p, sizeof(p));
	/* The decoder takes the last IP to be 0, and so may the next IP. */
	w->last_ip = 0;
	w->ip_known = true;
}

void packet_psbend(struct packet_writer *w)
{
	put_ext(w, PACKET_CLASS_PSB, 0x23, 0, 0);
}

void packet_mnt(struct packet_writer *w, uint64_t payload)
{
	const uint8_t op[3] = { 0x02, 0xc3, 0x88 };

	packet_tnt_flush(w);
	put_payload(w, PACKET_CLASS_OTHER, op, 3, payload, 8);
}

void packet_ptwrite(struct packet_writer *w, uint64_t value, unsigned int bytes, bool fup)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_OTHER, 0x12 | (bytes == 8) << 5 | fup << 7, value, bytes);
}

void packet_exstop(struct packet_writer *w, bool fup)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_OTHER, 0x62 | fup << 7, 0, 0);
}

void packet_mwait(struct packet_writer *w, uint32_t hints, uint32_t ext)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_OTHER, 0xc2, (uint64_t)ext << 32 | hints, 8);
}

void packet_pwre(struct packet_writer *w, uint8_t state, uint8_t sub, bool hw)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_OTHER, 0x22,
		(unsigned int)hw << 7 | (sub & 0xf) << 8 | (state & 0xf) << 12, 2);
}

void packet_pwrx(struct packet_writer *w, uint8_t last, uint8_t deepest, uint8_t wake)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_OTHER, 0xa2, (last & 0xf) << 4 | (deepest & 0xf) | wake << 8, 5);
}

void packet_cfe(struct packet_writer *w, uint8_t type, uint8_t vector, bool fup)
{
	packet_tnt_flush(w);
	stamp(w);
	put_ext(w, PACKET_CLASS_OTHER, 0x13, (type & 0x1f) | fup << 7 | vector << 8, 2);
}

void packet_evd(struct packet_writer *w, uint8_t type, uint64_t payload)
{
	const uint8_t op[3] = { 0x02, 0x53, type & 0x3f };

	packet_tnt_flush(w);
	stamp(w);
	put_payload(w, PACKET_CLASS_OTHER, op, 3, payload, 8);
}

void packet_pad(struct packet_writer *w)
{
	const uint8_t p = 0;

	put(w, PACKET_CLASS_OTHER, &p, 1);
}
