// SPDX-License-Identifier: BSD-2-Clause
#include "flow/mend.h"

#include <stdlib.h>
#include <string.h>

#include "decode/ipt.h"
#include "flow/code.h"

#define PSB_SIZE	16
#define MODE_SIZE	2

/* What matters here of a packet */
enum kind {
	UNKNOWN,	/* what follows it can't be read */
	ASIDE,		/* time and the like: says nothing of the flow */
	CONTEXT,	/* nothing of where the flow is either, but never stands between OVF and its FUP */
	BOUND,		/* belongs to a FUP that follows */
	BITS, TIP, PGE, PGD, FUP, OVF, STOP, PSB,
};

struct packet {
	enum kind kind;
	size_t at, size;
	bool has_ip, whole;	/* @whole: nothing of the address was compressed away */
	uint64_t ip;
};

struct reader {
	const uint8_t *data;
	size_t at, end;
	uint64_t last_ip;
	bool cut_cyc;		/* SKD007 */
};

static void read_ip(struct reader *r, struct packet *p, enum kind kind)
{
	unsigned int compression = r->data[p->at] >> 5;

	p->kind = kind;
	p->size = engine_ip_size(compression);
	p->has_ip = p->size > 1;
	p->whole = compression == 3 || compression == 6;
	if (!p->size || p->size > r->end - p->at) {
		p->kind = UNKNOWN;
		return;
	}
	r->last_ip = p->ip = engine_ip(r->last_ip, compression, r->data + p->at + 1);
}

static void read_long(struct reader *r, struct packet *p)
{
	p->size = engine_long_size(r->data + p->at, r->end - p->at);
	if (!p->size || p->size > r->end - p->at)
		return;
	switch (r->data[p->at + 1]) {
	case 0x82:
		p->kind = PSB;
		r->last_ip = 0;
		break;
	case 0xf3:
		p->kind = OVF;
		r->last_ip = 0;
		break;
	case 0x83:
		p->kind = STOP;
		break;
	case 0xa3:
		p->kind = BITS;
		break;
	case 0x43: case 0xc8: case 0x62: case 0x22: case 0xa2: case 0x12: case 0x32:
		p->kind = CONTEXT;
		break;
	case 0xe2: case 0xc2: case 0x92: case 0xb2:
		p->kind = BOUND;
		break;
	default:
		p->kind = ASIDE;
	}
}

/* Return: false: the end, or what can't be read. */
static bool next(struct reader *r, struct packet *p)
{
	size_t left = r->end - r->at;
	const uint8_t *data = r->data + r->at;
	uint64_t cycles;

	*p = (struct packet){ .at = r->at, .kind = UNKNOWN };
	if (r->at >= r->end)
		return false;
	if (r->cut_cyc && ipt_cut_cyc(data, left)) {
		p->kind = ASIDE;
		p->size = 1;
	} else if (data[0] == 0x02) {
		read_long(r, p);
	} else if (!(data[0] & 1)) {
		p->kind = data[0] ? BITS : ASIDE;
		p->size = 1;
	} else if ((data[0] & 3) == 3) {
		p->kind = ASIDE;
		p->size = engine_cyc_size(data, left, &cycles);
	} else if ((data[0] & 0x1f) == 0x0d) {
		read_ip(r, p, TIP);
	} else if ((data[0] & 0x1f) == 0x11) {
		read_ip(r, p, PGE);
	} else if ((data[0] & 0x1f) == 0x01) {
		read_ip(r, p, PGD);
	} else if ((data[0] & 0x1f) == 0x1d) {
		read_ip(r, p, FUP);
	} else if (data[0] == 0x19 || data[0] == 0x59 || data[0] == 0x99) {
		p->kind = data[0] == 0x99 ? CONTEXT : ASIDE;
		p->size = data[0] == 0x19 ? 8 : 2;
	}
	if (p->kind == UNKNOWN || !p->size || p->size > left) {
		p->kind = UNKNOWN;
		return false;
	}
	r->at += p->size;
	return true;
}

/* The next packet that is none of time. @context: nor one that tells nothing of where the flow is. */
static enum kind look_ahead(struct reader *r, struct packet *p, bool context)
{
	while (next(r, p) && (p->kind == ASIDE || (context && p->kind == CONTEXT)))
		;
	return p->kind;
}

/* A stretch as the CPU wrote it is not copied before something in it has to change. */
static bool touch(struct mend *mend, const struct engine *e, size_t start, size_t end)
{
	if (mend->copy)
		return true;
	mend->size = end - start;
	mend->copy = malloc(mend->size + MODE_SIZE);
	if (mend->copy)
		memcpy(mend->copy, e->data + start, mend->size);
	return mend->copy;
}

static bool in_ranges(const struct ptw_pt_params *params, uint64_t ip)
{
	for (int i = 0; i < PTW_ADDR_RANGES; i++)
		if (params->addr[i].cfg == 1 && ip >= params->addr[i].a && ip <= params->addr[i].b)
			return true;
	return false;
}

static bool has_ranges(const struct ptw_pt_params *params)
{
	for (int i = 0; i < PTW_ADDR_RANGES; i++)
		if (params->addr[i].cfg == 1)
			return true;
	return false;
}

/*
 * APL12: @fup is outside of the filter, so tracing is off. libipt passes over it, if it sees soon enough that tracing is off, and
 * forgets its address, though the next one may be told as a difference from that. So it goes, and the next is put in full into its
 * place. Return: false: what follows is not what it is then.
 */
static bool drop_fup(uint8_t *copy, const struct ptw_pt_params *params, struct reader r, const struct packet *fup, size_t start)
{
	uint8_t *from = copy + (fup->at - start);
	bool sign_extended;
	struct packet pge;
	size_t size, between;

	look_ahead(&r, &pge, true);
	if (pge.kind != PGE) {
		memset(from, 0, fup->size);
		return pge.kind == PSB || pge.kind == OVF || pge.kind == STOP || pge.kind == UNKNOWN;
	}
	if (!pge.has_ip || !in_ranges(params, pge.ip))
		return false;
	if (pge.whole) {
		memset(from, 0, fup->size);
		return true;
	}
	sign_extended = (uint64_t)((int64_t)(pge.ip << 16) >> 16) == pge.ip;
	size = sign_extended ? 7 : 9;
	if (size > fup->size + pge.size)
		return false;
	between = pge.at - (fup->at + fup->size);
	memmove(from, from + fup->size, between);
	memset(from + between, 0, fup->size + pge.size - size);
	from += between + fup->size + pge.size - size;
	*from = 0x11 | (sign_extended ? 3 : 6) << 5;
	memcpy(from + 1, &pge.ip, size - 1);
	return true;
}

/*
 * SKD010: the FUP behind @r, which is at OVF's end, may be missing. libipt goes on at the next address, with the calls of before
 * the overflow for the RETs that follow; and it takes the FUP of an interrupt for the missing one.
 * Return: whether the packets tell where the CPU went on.
 */
static bool tells_where(const struct engine *e, struct reader r)
{
	struct packet p;
	uint64_t ip;

	if (look_ahead(&r, &p, false) == FUP) {
		look_ahead(&r, &p, true);
		/* No interrupt leads to user code. */
		return p.kind == TIP ? p.has_ip && !(p.ip & CODE_KERNEL_HALF) : p.kind != PGD;
	}
	if (p.kind == CONTEXT)
		look_ahead(&r, &p, true);
	switch (p.kind) {
	case BITS: case TIP: case FUP: case PGD: case BOUND:
		return false;
	case UNKNOWN:
		/* Tracing goes on at a PSB: it did before. */
		return p.at != r.end || !engine_psb_ip(e->data, e->size, r.end, &ip);
	default:
		return true;
	}
}

/* The mode of code that is told last before the PSB at @start */
static uint8_t mode_before(const struct engine *e, size_t start)
{
	uint8_t mode = e->params->bits == 32 ? 2 : e->params->bits == 16 ? 0 : 1;
	struct reader r = { .data = e->data, .end = start };
	struct packet p;
	size_t psb = start, from = start;

	/* From the PSB before it on, in which it is told if tracing was on there */
	while (psb >= start && from > 0) {
		from = from > 4096 ? from - 4096 : 0;
		psb = ipt_next_psb(e->data, start, from);
	}
	for (r.at = psb; next(&r, &p); )
		if (e->data[p.at] == 0x99 && !(e->data[p.at + 1] >> 5))
			mode = e->data[p.at + 1];
	return mode;
}

/* Does the PSB+ at @start end without a mode? */
static bool lacks_mode(const struct engine *e, size_t start, size_t end)
{
	struct reader r = { .data = e->data, .at = start + PSB_SIZE, .end = end };
	struct packet p;

	while (next(&r, &p) && p.kind != OVF && (e->data[p.at] != 0x02 || e->data[p.at + 1] != 0x23))
		if (e->data[p.at] == 0x99 && !(e->data[p.at + 1] >> 5))
			return false;
	return true;
}

/* Where a PSB+ tells no mode and an overflow takes the next, libipt knows none. It is what it was before. */
static void insert_mode(struct mend *mend, const struct engine *e, size_t start)
{
	memmove(mend->copy + PSB_SIZE + MODE_SIZE, mend->copy + PSB_SIZE, mend->size - PSB_SIZE);
	mend->copy[PSB_SIZE] = 0x99;
	mend->copy[PSB_SIZE + 1] = mode_before(e, start);
	mend->size += MODE_SIZE;
	mend->inserted = MODE_SIZE;
}

/* Return: false: out of memory */
static bool take_overflow(struct mend *mend, const struct engine *e, const struct pt_errata *errata, const struct reader *r, size_t at,
			  size_t start)
{
	struct reader ahead = *r;
	struct packet fup;

	if (errata->apl12 && has_ranges(e->params) && look_ahead(&ahead, &fup, false) == FUP && fup.whole && !in_ranges(e->params, fup.ip)) {
		if (!touch(mend, e, start, r->end))
			return false;
		if (!drop_fup(mend->copy, e->params, ahead, &fup, start))
			mend->distrust = at;
	}
	if (errata->skd010 && !tells_where(e, *r))
		mend->distrust = at;
	return true;
}

bool mend_stretch(struct mend *mend, const struct engine *e, size_t start, size_t end)
{
	static const uint8_t ovf[2] = { 0x02, 0xf3 };
	struct reader r = { .data = e->data, .at = start + PSB_SIZE, .end = end };
	struct pt_config config;
	struct packet p;

	*mend = (struct mend){ 0 };
	if (end - start <= PSB_SIZE || !memmem(e->data + start, end - start, ovf, sizeof(ovf)))
		return true;
	ipt_config(&config, e->params, e->data, e->size, NULL);
	r.cut_cyc = config.errata.skd007;
	while (!mend->distrust && next(&r, &p)) {
		if (r.cut_cyc && ipt_cut_cyc(e->data + p.at, end - p.at)) {
			/* libipt 2.0 does not see it in a PSB+, nor when it looks ahead. */
			if (!touch(mend, e, start, end))
				return false;
			mend->copy[p.at - start] = 0;
		} else if (p.kind == OVF && !take_overflow(mend, e, &config.errata, &r, p.at, start)) {
			return false;
		}
	}
	if (lacks_mode(e, start, end)) {
		if (!touch(mend, e, start, end))
			return false;
		insert_mode(mend, e, start);
	}
	if (mend->copy && mend->distrust)
		mend->size = mend->distrust - start + mend->inserted;
	return true;
}
