/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The packet writer against recorded facts (vectors.tsv: bytes and what they mean) and against
 * libipt's packet decoder.
 */
#include <inttypes.h>
#include <intel-pt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packet.h"

/* Relative to the project's root, where the tests are run from; PTWATCH_SAMPLES overrides. */
#define DEFAULT_SAMPLES "../shared/samples"

struct sink {
	uint8_t data[1 << 16];
	size_t len;
};

static void gather(void *opaque, const uint8_t *data, size_t len)
{
	struct sink *s = opaque;

	assert_true(s->len + len <= sizeof(s->data));
	memcpy(s->data + s->len, data, len);
	s->len += len;
}

static struct sink sink;

static struct packet_writer *writer(void)
{
	static struct packet_writer w;

	memset(&w, 0, sizeof(w));
	sink.len = 0;
	w.output = gather;
	w.opaque = &sink;
	return &w;
}

/* --- vectors.tsv ----------------------------------------------------------------------------- */

struct vector {
	char type[32];
	uint8_t bytes[32];
	size_t len;
	unsigned long long count;
	uint64_t payload;
};

static bool starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* An IP of vector v, written so that the form that the vector has is the one that fits. */
static void write_ip(struct packet_writer *w, enum packet_ip type, const struct vector *v)
{
	uint64_t ip = v->payload;

	if (!v->count) {
		packet_ip_none(w, type);
		return;
	}
	/* What the form takes from the last IP: all above its bits. */
	w->ip_known = v->count != 3 && v->count != 6;
	w->last_ip = 0;
	if (v->count == 2)
		w->last_ip = 0xffff0000 & ~ip;
	if (v->count == 4) {
		/* Only an address that isn't sign-extended from 48 bits gets this form. */
		w->last_ip = 0x1234ULL << 48;
		ip |= w->last_ip;
	}
	packet_ip(w, type, ip);
}

/* Write what the vector means. False if the writer has no such packet. */
static bool write_vector(struct packet_writer *w, const struct vector *v)
{
	uint64_t p = v->payload;
	const char *t = v->type;

	if (!strcmp(t, "PAD")) {
		packet_pad(w);
	} else if (!strcmp(t, "TNT")) {
		/* Left-aligned, the oldest bit on top; the long form for more than its own 6. */
		w->long_tnt = v->len == 8;
		for (unsigned int i = 0; i < v->count; i++)
			packet_tnt(w, p >> (63 - i) & 1);
		packet_tnt_flush(w);
	} else if (!strcmp(t, "TIP")) {
		write_ip(w, PACKET_TIP, v);
	} else if (!strcmp(t, "TIP_PGE")) {
		write_ip(w, PACKET_TIP_PGE, v);
	} else if (!strcmp(t, "TIP_PGD")) {
		write_ip(w, PACKET_TIP_PGD, v);
	} else if (!strcmp(t, "FUP")) {
		write_ip(w, PACKET_FUP, v);
	} else if (!strcmp(t, "PIP")) {
		/* Payload: CR3 bits 51:5 above bit 0, which is NR. */
		packet_pip(w, p >> 1 << 5, p & 1);
	} else if (!strcmp(t, "MODE_EXEC")) {
		packet_mode_exec(w, v->count & 3, v->count >> 2 & 1);
	} else if (!strcmp(t, "MODE_TSX")) {
		packet_mode_tsx(w, p & 1, p >> 1 & 1);
	} else if (!strcmp(t, "TRACESTOP")) {
		packet_tracestop(w);
	} else if (!strcmp(t, "CBR")) {
		packet_cbr(w, p);
	} else if (!strcmp(t, "TSC")) {
		packet_tsc(w, p);
	} else if (!strcmp(t, "MTC")) {
		packet_mtc(w, p);
	} else if (!strcmp(t, "TMA")) {
		packet_tma(w, p, v->count);
	} else if (!strcmp(t, "CYC")) {
		packet_cyc(w, p);
	} else if (!strcmp(t, "VMCS")) {
		packet_vmcs(w, p << 12);
	} else if (!strcmp(t, "OVF")) {
		packet_ovf(w);
	} else if (!strcmp(t, "PSB")) {
		packet_psb(w);
	} else if (!strcmp(t, "PSBEND")) {
		packet_psbend(w);
	} else if (!strcmp(t, "MNT")) {
		packet_mnt(w, p);
	} else if (starts(t, "PTWRITE")) {
		packet_ptwrite(w, p, v->count ? 8 : 4, !strcmp(t, "PTWRITE_IP"));
	} else if (starts(t, "EXSTOP")) {
		packet_exstop(w, !strcmp(t, "EXSTOP_IP"));
	} else if (!strcmp(t, "MWAIT")) {
		packet_mwait(w, p, p >> 32);
	} else if (!strcmp(t, "PWRE")) {
		packet_pwre(w, p >> 12 & 0xf, p >> 8 & 0xf, p >> 7 & 1);
	} else if (!strcmp(t, "PWRX")) {
		packet_pwrx(w, p >> 4 & 0xf, p & 0xf, p >> 8);
	} else if (starts(t, "CFE")) {
		packet_cfe(w, v->count, p, !strcmp(t, "CFE_IP"));
	} else if (!strcmp(t, "EVD")) {
		packet_evd(w, v->count, p);
	} else {
		return false;
	}
	packet_flush(w);
	return true;
}

/*
 * Rows whose bytes no writer would choose, as another form of the same is shorter or bits are set
 * that are reserved: how many of them there are is checked, too.
 */
static bool unusual(const struct vector *v)
{
	/* Long TNT with 6 bits or fewer. */
	if (!strcmp(v->type, "TNT") && v->len == 8 && v->count <= 6)
		return true;
	/* Reserved bits of PWRE and PWRX. */
	if (!strcmp(v->type, "PWRE") && v->payload & 0x7f)
		return true;
	if (!strcmp(v->type, "PWRX") && v->payload >> 12)
		return true;
	return false;
}

static void test_vectors(void **state)
{
	const char *samples = getenv("PTWATCH_SAMPLES");
	unsigned int same = 0, odd = 0, foreign = 0, rows = 0;
	char path[512], line[512];
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/packets/vectors.tsv", samples ? samples : DEFAULT_SAMPLES);
	f = fopen(path, "r");
	if (!f) {
		print_message("# SKIP: no %s (set PTWATCH_SAMPLES)\n", path);
		skip();
	}
	while (fgets(line, sizeof(line), f)) {
		struct packet_writer *w = writer();
		struct vector v = { 0 };
		char hex[128], *p;
		int n;

		if (sscanf(line, "%zu\t%127[^\t]\t%*[^\t]\t%31s\t%llu\t%" SCNx64, &v.len, hex, v.type,
			   &v.count, &v.payload) != 5)
			continue;
		rows++;
		p = hex;
		for (size_t i = 0; i < v.len; i++, p += n) {
			unsigned int byte;

			assert_int_equal(sscanf(p, "%x%n", &byte, &n), 1);
			v.bytes[i] = byte;
		}
		if (!write_vector(w, &v)) {
			foreign++;
			continue;
		}
		if (unusual(&v)) {
			odd++;
			continue;
		}
		if (sink.len != v.len || memcmp(sink.data, v.bytes, v.len)) {
			print_error("%s", line);
			for (size_t i = 0; i < sink.len; i++)
				print_error(" %02x", sink.data[i]);
			print_error("  is what the writer makes of it\n");
			fail();
		}
		same++;
	}
	fclose(f);
	print_message("# %u rows: %u written byte for byte, %u of unusual form, %u of other kinds\n",
		      rows, same, odd, foreign);
	assert_true(rows > 0);
	/* Only the PEBS blocks (BBP, BIP, BEP) are none of ours. */
	assert_true(foreign < rows / 5);
}

/* --- libipt ---------------------------------------------------------------------------------- */

static struct pt_packet_decoder *decoder(void)
{
	struct pt_packet_decoder *d;
	struct pt_config config;

	pt_config_init(&config);
	config.begin = sink.data;
	config.end = sink.data + sink.len;
	d = pt_pkt_alloc_decoder(&config);
	assert_non_null(d);
	assert_int_equal(pt_pkt_sync_set(d, 0), 0);
	return d;
}

static void next(struct pt_packet_decoder *d, struct pt_packet *p, enum pt_packet_type type)
{
	assert_true(pt_pkt_next(d, p, sizeof(*p)) > 0);
	assert_int_equal(p->type, type);
}

/* The last-IP rules of the SDM, as a decoder has them. */
static uint64_t unpack(const struct pt_packet_ip *p, uint64_t *last)
{
	switch (p->ipc) {
	case pt_ipc_update_16:
		*last = (*last & ~0xffffULL) | p->ip;
		break;
	case pt_ipc_update_32:
		*last = (*last & ~0xffffffffULL) | p->ip;
		break;
	case pt_ipc_update_48:
		*last = (*last & ~0xffffffffffffULL) | p->ip;
		break;
	case pt_ipc_sext_48:
		*last = (uint64_t)((int64_t)(p->ip << 16) >> 16);
		break;
	case pt_ipc_full:
		*last = p->ip;
		break;
	case pt_ipc_suppressed:
		fail();
	}
	return *last;
}

static void test_ip_compression(void **state)
{
	static const struct {
		uint64_t ip;
		enum pt_ip_compression ipc;
	} cases[] = {
		{ 0xffffffff81000123, pt_ipc_sext_48 },
		{ 0xffffffff81000456, pt_ipc_update_16 },
		{ 0xffffffff81000456, pt_ipc_update_16 },	/* the same again */
		{ 0xffffffff82000456, pt_ipc_update_32 },
		{ 0xffffffffc0000000, pt_ipc_update_32 },
		{ 0xffffc90000000000, pt_ipc_sext_48 },
		{ 0x00007fffffffe000, pt_ipc_sext_48 },
		{ 0x0000000000401000, pt_ipc_sext_48 },
		{ 0x0000000000401fff, pt_ipc_update_16 },
		{ 0x00ff800000000000, pt_ipc_full },		/* five-level paging */
		{ 0x00ff800012340000, pt_ipc_update_32 },
		{ 0x00ff900012340000, pt_ipc_update_48 },
		{ 0xff00000000000000, pt_ipc_full },
		{ 0x0000000000000000, pt_ipc_sext_48 },
		{ 0x0000000000001000, pt_ipc_update_16 },
	};
	static const enum pt_packet_type types[] = { ppt_tip, ppt_fup, ppt_tip_pge, ppt_tip_pgd };
	static const enum packet_ip ours[] = {
		PACKET_TIP, PACKET_FUP, PACKET_TIP_PGE, PACKET_TIP_PGD
	};
	const size_t n = sizeof(cases) / sizeof(cases[0]);
	struct packet_writer *w = writer();
	struct pt_packet_decoder *d;
	struct pt_packet p;
	uint64_t last = 0;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		/* A suppressed IP between any two must not matter. */
		packet_ip_none(w, PACKET_TIP_PGD);
		packet_ip(w, ours[i % 4], cases[i].ip);
	}
	packet_psb(w);
	packet_ip(w, PACKET_TIP, 0x1234);	/* PSB set the last IP to 0 */
	packet_ovf(w);
	packet_ip(w, PACKET_FUP, 0x1235);	/* in full after an overflow */
	packet_flush(w);
	d = decoder();
	for (size_t i = 0; i < n; i++) {
		next(d, &p, ppt_tip_pgd);
		assert_int_equal(p.payload.ip.ipc, pt_ipc_suppressed);
		next(d, &p, types[i % 4]);
		assert_int_equal(p.payload.ip.ipc, cases[i].ipc);
		assert_true(unpack(&p.payload.ip, &last) == cases[i].ip);
	}
	next(d, &p, ppt_psb);
	last = 0;
	next(d, &p, ppt_tip);
	assert_int_equal(p.payload.ip.ipc, pt_ipc_update_16);
	assert_true(unpack(&p.payload.ip, &last) == 0x1234);
	next(d, &p, ppt_ovf);
	next(d, &p, ppt_fup);
	assert_int_equal(p.payload.ip.ipc, pt_ipc_sext_48);
	assert_int_equal(pt_pkt_next(d, &p, sizeof(p)), -pte_eos);
	pt_pkt_free_decoder(d);
}

static void test_tnt(void **state)
{
	(void)state;
	for (int is_long = 0; is_long < 2; is_long++) {
		for (unsigned int n = 1; n <= 100; n++) {
			struct packet_writer *w = writer();
			struct pt_packet_decoder *d;
			unsigned int got = 0;
			struct pt_packet p;

			w->long_tnt = is_long;
			for (unsigned int i = 0; i < n; i++)
				packet_tnt(w, i * 7 % 5 < 2);
			/* Another packet writes out what is pending, before itself. */
			packet_ip(w, PACKET_TIP, 0x401000);
			packet_flush(w);
			d = decoder();
			while (pt_pkt_next(d, &p, sizeof(p)) > 0 && p.type != ppt_tip) {
				assert_true(p.type == ppt_tnt_8 || p.type == ppt_tnt_64);
				for (int b = p.payload.tnt.bit_size - 1; b >= 0; b--, got++)
					assert_int_equal(p.payload.tnt.payload >> b & 1,
							 got * 7 % 5 < 2);
			}
			assert_int_equal(got, n);
			assert_int_equal(p.type, ppt_tip);
			pt_pkt_free_decoder(d);
		}
	}
}

static void test_other_packets(void **state)
{
	struct packet_writer *w = writer();
	struct pt_packet_decoder *d;
	struct pt_packet p;

	(void)state;
	packet_pip(w, 0x000fedcba9876000, true);
	packet_mode_exec(w, PACKET_EXEC_64, false);
	packet_mode_exec(w, PACKET_EXEC_32, false);
	packet_mode_exec(w, PACKET_EXEC_16, false);
	packet_mode_tsx(w, true, false);
	packet_tracestop(w);
	packet_cbr(w, 21);
	packet_tsc(w, 0x00abcdef12345678);
	packet_tma(w, 0xbeef, 0x1ff);
	packet_mtc(w, 0x5a);
	packet_vmcs(w, 0x12345678000);
	packet_mnt(w, 0x1122334455667788);
	packet_ptwrite(w, 0xdeadbeef, 4, false);
	packet_ptwrite(w, 0x0123456789abcdef, 8, true);
	packet_exstop(w, true);
	packet_mwait(w, 0x20, 1);
	/* Without HW, bit 7 of the first byte, which libipt expects in bit 3. */
	packet_pwre(w, 6, 2, false);
	packet_pwrx(w, 6, 7, 1);
	packet_psbend(w);
	packet_flush(w);
	d = decoder();
	next(d, &p, ppt_pip);
	assert_true(p.payload.pip.cr3 == 0x000fedcba9876000);
	assert_int_equal(p.payload.pip.nr, 1);
	next(d, &p, ppt_mode);
	assert_int_equal(p.payload.mode.leaf, pt_mol_exec);
	assert_int_equal(p.payload.mode.bits.exec.csl, 1);
	assert_int_equal(p.payload.mode.bits.exec.csd, 0);
	next(d, &p, ppt_mode);
	assert_int_equal(p.payload.mode.bits.exec.csl, 0);
	assert_int_equal(p.payload.mode.bits.exec.csd, 1);
	next(d, &p, ppt_mode);
	assert_int_equal(p.payload.mode.bits.exec.csl, 0);
	assert_int_equal(p.payload.mode.bits.exec.csd, 0);
	next(d, &p, ppt_mode);
	assert_int_equal(p.payload.mode.leaf, pt_mol_tsx);
	assert_int_equal(p.payload.mode.bits.tsx.intx, 1);
	assert_int_equal(p.payload.mode.bits.tsx.abrt, 0);
	next(d, &p, ppt_stop);
	next(d, &p, ppt_cbr);
	assert_int_equal(p.payload.cbr.ratio, 21);
	next(d, &p, ppt_tsc);
	assert_true(p.payload.tsc.tsc == 0x00abcdef12345678);
	next(d, &p, ppt_tma);
	assert_int_equal(p.payload.tma.ctc, 0xbeef);
	assert_int_equal(p.payload.tma.fc, 0x1ff);
	next(d, &p, ppt_mtc);
	assert_int_equal(p.payload.mtc.ctc, 0x5a);
	next(d, &p, ppt_vmcs);
	assert_true(p.payload.vmcs.base == 0x12345678000);
	next(d, &p, ppt_mnt);
	assert_true(p.payload.mnt.payload == 0x1122334455667788);
	next(d, &p, ppt_ptw);
	assert_true(p.payload.ptw.payload == 0xdeadbeef);
	assert_int_equal(p.payload.ptw.ip, 0);
	next(d, &p, ppt_ptw);
	assert_true(p.payload.ptw.payload == 0x0123456789abcdef);
	assert_int_equal(p.payload.ptw.ip, 1);
	next(d, &p, ppt_exstop);
	assert_int_equal(p.payload.exstop.ip, 1);
	next(d, &p, ppt_mwait);
	assert_int_equal(p.payload.mwait.hints, 0x20);
	assert_int_equal(p.payload.mwait.ext, 1);
	next(d, &p, ppt_pwre);
	assert_int_equal(p.payload.pwre.state, 6);
	assert_int_equal(p.payload.pwre.sub_state, 2);
	next(d, &p, ppt_pwrx);
	assert_int_equal(p.payload.pwrx.last, 6);
	assert_int_equal(p.payload.pwrx.deepest, 7);
	next(d, &p, ppt_psbend);
	assert_int_equal(pt_pkt_next(d, &p, sizeof(p)), -pte_eos);
	pt_pkt_free_decoder(d);
}

static void test_cyc(void **state)
{
	(void)state;
	/* libipt takes payloads of up to 57 bits or so. */
	for (unsigned int bit = 0; bit < 54; bit++) {
		for (int below = 0; below < 2; below++) {
			struct packet_writer *w = writer();
			uint64_t value = (1ULL << bit) - below;
			struct pt_packet_decoder *d;
			struct pt_packet p;

			packet_cyc(w, value);
			packet_flush(w);
			d = decoder();
			next(d, &p, ppt_cyc);
			assert_true(p.payload.cyc.value == value);
			pt_pkt_free_decoder(d);
		}
	}
}

static void count_stamps(void *opaque)
{
	struct sink *s = opaque;

	(void)s;
	function_called();
}

static void test_counts(void **state)
{
	struct packet_writer *w = writer();
	uint64_t sum = 0;

	(void)state;
	w->stamp = count_stamps;
	expect_function_calls(count_stamps, 2);	/* the TNT's and the TIP's */
	packet_tnt(w, true);
	packet_ip(w, PACKET_TIP, 0x401000);
	w->stamp = NULL;
	packet_psb(w);
	/* The packet itself counts. */
	assert_int_equal(w->since_psb, 16);
	for (int i = 0; i < 1000; i++)
		packet_mtc(w, i);
	assert_int_equal(w->since_psb, 16 + 2000);
	packet_flush(w);
	assert_int_equal(w->total, sink.len);
	for (int i = 0; i < PACKET_CLASSES; i++)
		sum += w->bytes[i];
	assert_int_equal(sum, sink.len);
}

/* --- overflow of the internal buffer ---------------------------------------------------------- */

static unsigned int stamps;

static void add_stamp(void *opaque)
{
	(void)opaque;
	stamps++;
}

static void test_overflow(void **state)
{
	struct packet_writer *w = writer();
	struct pt_packet_decoder *d;
	struct pt_packet p;

	(void)state;
	stamps = 0;
	w->stamp = add_stamp;
	w->overflow = 20;
	packet_ip(w, PACKET_TIP, 0x401000);		/* 7 bytes, 9 with the mode */
	packet_mode_exec(w, PACKET_EXEC_64, false);
	packet_ip(w, PACKET_TIP, 0x402000);		/* 12 */
	assert_int_equal(w->mode, PACKET_EXEC_64);
	packet_ip(w, PACKET_FUP, 0x555555554000);	/* 19 */
	assert_false(w->lost);
	/* It fills the buffer and gets in; the branch after it doesn't. */
	packet_mode_exec(w, PACKET_EXEC_32, false);
	assert_true(w->lost);
	assert_int_equal(stamps, 5);
	assert_int_equal(w->since_psb, 21);
	packet_ip(w, PACKET_TIP, 0x555555554010);
	packet_tnt(w, true);
	packet_mtc(w, 1);
	packet_psb(w);
	for (int i = 0; i < 10; i++)
		packet_tnt(w, true);
	/* PacketByteCnt stands still, and so does PSB's period; the cycle counter isn't asked. */
	assert_int_equal(w->since_psb, 21);
	assert_int_equal(w->total, 21);
	assert_int_equal(stamps, 5);
	/* The mode had no IP to bind to. */
	assert_int_equal(w->mode, PACKET_EXEC_64);

	packet_ovf(w);
	assert_int_equal(stamps, 6);
	assert_int_equal(w->ntnt, 0);
	packet_ip(w, PACKET_FUP, 0x555555554020);
	assert_int_equal(w->mode, PACKET_EXEC_64);
	packet_tnt(w, false);
	packet_tnt_flush(w);
	packet_ip(w, PACKET_TIP, 0x555555554030);
	assert_false(w->lost);				/* 13 */
	packet_ip(w, PACKET_TIP, 0x401000);		/* the next 20 are full */
	assert_true(w->lost);
	packet_ip(w, PACKET_TIP, 0x401000);
	packet_flush(w);
	/* A new trace begins with an empty buffer. */
	packet_reset(w);
	assert_false(w->lost);
	packet_ip(w, PACKET_TIP_PGE, 0x401000);
	assert_false(w->lost);
	packet_flush(w);

	d = decoder();
	next(d, &p, ppt_tip);
	next(d, &p, ppt_mode);
	next(d, &p, ppt_tip);
	next(d, &p, ppt_fup);
	next(d, &p, ppt_mode);
	next(d, &p, ppt_ovf);
	next(d, &p, ppt_fup);
	/* Not compressed against what was lost. */
	assert_int_equal(p.payload.ip.ipc, pt_ipc_sext_48);
	assert_true(p.payload.ip.ip == 0x555555554020);
	next(d, &p, ppt_tnt_8);
	assert_int_equal(p.payload.tnt.bit_size, 1);
	assert_int_equal(p.payload.tnt.payload, 0);
	next(d, &p, ppt_tip);
	assert_int_equal(p.payload.ip.ipc, pt_ipc_update_16);
	next(d, &p, ppt_tip);
	next(d, &p, ppt_tip_pge);
	assert_int_equal(pt_pkt_next(d, &p, sizeof(p)), -pte_eos);
	pt_pkt_free_decoder(d);
}

static struct packet_writer *stamped;

static void big_stamp(void *opaque)
{
	(void)opaque;
	packet_cyc(stamped, 1000);
}

/* Erratum SKD007: of a CYC of two bytes before OVF only the first is there. */
static void test_cut_cyc(void **state)
{
	struct packet_writer *w = writer();

	(void)state;
	stamped = w;
	w->stamp = big_stamp;
	w->cut_cyc = true;
	packet_mtc(w, 7);
	packet_ovf(w);
	packet_mtc(w, 8);
	packet_flush(w);
	/* CYC(1000) MTC; CYC cut off, OVF; CYC(1000) MTC */
	static const uint8_t expected[] = {
		0x47, 0x3e, 0x59, 7, 0x47, 0x02, 0xf3, 0x47, 0x3e, 0x59, 8,
	};
	assert_int_equal(sink.len, sizeof(expected));
	assert_memory_equal(sink.data, expected, sizeof(expected));
}

/* Where an interrupt must come in time, what is gathered is handed on in small pieces. */
static void test_limit(void **state)
{
	struct packet_writer *w = writer();

	(void)state;
	w->limit = 32;
	for (int i = 0; i < 16; i++)
		packet_mtc(w, i);
	assert_int_equal(sink.len, 0);
	packet_mtc(w, 16);
	assert_int_equal(sink.len, 32);
	packet_psb(w);
	assert_int_equal(sink.len, 32);
	packet_psb(w);
	assert_int_equal(sink.len, 32 + 2 + 16);
}

static void test_no_overflow(void **state)
{
	struct packet_writer *w = writer();

	(void)state;
	for (int i = 0; i < 20000; i++)
		packet_mtc(w, i);
	packet_flush(w);
	assert_false(w->lost);
	assert_int_equal(sink.len, 40000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_ip_compression),
		cmocka_unit_test(test_tnt),
		cmocka_unit_test(test_other_packets),
		cmocka_unit_test(test_cyc),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_cut_cyc),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_no_overflow),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}
