// SPDX-License-Identifier: BSD-2-Clause
#include "decode/packets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/ipt.h"

struct ptw_packets {
	struct pt_packet_decoder *decoder;
	const uint8_t *data;
	size_t size;
	size_t skip;		/* bytes before the first PSB that are no packets; reported first */
	uint64_t offset;	/* of the next packet */
	uint64_t last_ip;	/* for IP compression */
	bool moved;		/* @offset is not where @decoder is */
	bool skd007;		/* the CPU has that erratum */
};

static void fill_payload(const struct pt_packet *in, const uint8_t *raw, struct ptw_packet *out)
{
	switch (in->type) {
	case ppt_tnt_8:
	case ppt_tnt_64:
		out->type = PTW_PACKET_TNT;
		out->value = in->payload.tnt.payload;
		out->count = in->payload.tnt.bit_size;
		break;
	case ppt_mode:
		if (in->payload.mode.leaf == pt_mol_exec) {
			static const uint8_t bits[] = {
				[ptem_unknown] = 0, [ptem_16bit] = 16, [ptem_32bit] = 32, [ptem_64bit] = 64,
			};

			out->type = PTW_PACKET_MODE_EXEC;
			out->value = bits[pt_get_exec_mode(&in->payload.mode.bits.exec)];
			out->count = ipt_mode_exec_if(in);
		} else {
			out->type = PTW_PACKET_MODE_TSX;
			out->value = in->payload.mode.bits.tsx.intx | in->payload.mode.bits.tsx.abrt << 1;
		}
		break;
	case ppt_pip:
		out->type = PTW_PACKET_PIP;
		out->value = in->payload.pip.cr3;
		out->count = in->payload.pip.nr;
		break;
	case ppt_vmcs:
		out->type = PTW_PACKET_VMCS;
		out->value = in->payload.vmcs.base;
		break;
	case ppt_mnt:
		out->type = PTW_PACKET_MNT;
		out->value = in->payload.mnt.payload;
		break;
	case ppt_ptw:
		out->type = PTW_PACKET_PTW;
		out->value = in->payload.ptw.payload;
		out->count = in->payload.ptw.plc ? 8 : 4;
		out->with_ip = in->payload.ptw.ip;
		break;
	default:
		if (!ipt_newer_packet(in, raw, out))
			out->type = PTW_PACKET_UNKNOWN;
	}
}

static bool fill_time(const struct pt_packet *in, struct ptw_packet *out)
{
	switch (in->type) {
	case ppt_cbr:
		out->type = PTW_PACKET_CBR;
		out->value = in->payload.cbr.ratio;
		return true;
	case ppt_tsc:
		out->type = PTW_PACKET_TSC;
		out->value = in->payload.tsc.tsc;
		return true;
	case ppt_tma:
		out->type = PTW_PACKET_TMA;
		out->value = in->payload.tma.ctc;
		out->count = in->payload.tma.fc;
		return true;
	case ppt_mtc:
		out->type = PTW_PACKET_MTC;
		out->value = in->payload.mtc.ctc;
		return true;
	case ppt_cyc:
		out->type = PTW_PACKET_CYC;
		out->value = in->payload.cyc.value;
		return true;
	default:
		return false;
	}
}

static bool fill_power(const struct pt_packet *in, const uint8_t *raw, struct ptw_packet *out)
{
	switch (in->type) {
	case ppt_exstop:
		out->type = PTW_PACKET_EXSTOP;
		out->with_ip = in->payload.exstop.ip;
		return true;
	case ppt_mwait:
		out->type = PTW_PACKET_MWAIT;
		out->value = (uint64_t)in->payload.mwait.ext << 32 | in->payload.mwait.hints;
		return true;
	case ppt_pwre:
		/* The SDM has HW in bit 7; libipt up to 2.2 takes it from bit 3, which is reserved. */
		out->type = PTW_PACKET_PWRE;
		out->value = (in->payload.pwre.state & 0xf) << 12 | (in->payload.pwre.sub_state & 0xf) << 8 |
			     (raw[2] & 0x80);
		return true;
	case ppt_pwrx:
		out->type = PTW_PACKET_PWRX;
		out->value = (in->payload.pwrx.last & 0xf) << 4 | (in->payload.pwrx.deepest & 0xf) |
			     in->payload.pwrx.interrupt << 8 | in->payload.pwrx.store << 10 |
			     in->payload.pwrx.autonomous << 11;
		return true;
	default:
		return false;
	}
}

static bool fill_plain(const struct pt_packet *in, struct ptw_packet *out)
{
	switch (in->type) {
	case ppt_pad:
		out->type = PTW_PACKET_PAD;
		return true;
	case ppt_psb:
		out->type = PTW_PACKET_PSB;
		return true;
	case ppt_psbend:
		out->type = PTW_PACKET_PSBEND;
		return true;
	case ppt_stop:
		out->type = PTW_PACKET_TRACESTOP;
		return true;
	case ppt_ovf:
		out->type = PTW_PACKET_OVF;
		return true;
	default:
		return false;
	}
}

static bool fill_ip(const struct pt_packet *in, struct ptw_packet *out)
{
	switch (in->type) {
	case ppt_fup:
		out->type = PTW_PACKET_FUP;
		break;
	case ppt_tip:
		out->type = PTW_PACKET_TIP;
		break;
	case ppt_tip_pge:
		out->type = PTW_PACKET_TIP_PGE;
		break;
	case ppt_tip_pgd:
		out->type = PTW_PACKET_TIP_PGD;
		break;
	default:
		return false;
	}
	out->value = in->payload.ip.ip;
	out->count = in->payload.ip.ipc;
	return true;
}

/* The SDM's IP compression: what is not in the packet is as in the last IP packet, and 0 after a PSB. */
static uint64_t decompress_ip(uint64_t last, uint64_t payload, uint32_t compression)
{
	switch (compression) {
	case pt_ipc_update_16:
		return (last & ~0xffffull) | payload;
	case pt_ipc_update_32:
		return (last & ~0xffffffffull) | payload;
	case pt_ipc_update_48:
		return (last & ~0xffffffffffffull) | payload;
	case pt_ipc_sext_48:
		return (uint64_t)((int64_t)(payload << 16) >> 16);
	case pt_ipc_full:
		return payload;
	default:
		return last;	/* suppressed */
	}
}

static void fill_packet(struct ptw_packets *packets, const struct pt_packet *in, struct ptw_packet *out)
{
	const uint8_t *raw = packets->data + packets->offset;

	*out = (struct ptw_packet){ .offset = packets->offset, .size = in->size };

	if (fill_ip(in, out)) {
		packets->last_ip = decompress_ip(packets->last_ip, out->value, out->count);
		out->ip = packets->last_ip;
		return;
	}
	if (in->type == ppt_psb)
		packets->last_ip = 0;
	if (!fill_plain(in, out) && !fill_time(in, out) && !fill_power(in, raw, out))
		fill_payload(in, raw, out);
}

/* True when the bytes before @end, the first PSB, are whole packets: then the trace does begin at byte 0. */
static bool starts_with_packets(struct pt_packet_decoder *decoder, uint64_t end)
{
	struct pt_packet packet;
	uint64_t offset = 0;

	if (pt_pkt_sync_set(decoder, 0) < 0)
		return false;
	while (offset < end) {
		/* Its size is not what was passed where libipt sees SKD007. */
		if (pt_pkt_next(decoder, &packet, sizeof(packet)) < 0 || pt_pkt_get_offset(decoder, &offset) < 0)
			return false;
	}
	return offset == end;
}

struct ptw_packets *ptw_packets_new(const struct ptw_pt_params *params, const uint8_t *data, size_t size,
				    struct ptw_error *err)
{
	struct ptw_packets *packets = calloc(1, sizeof(*packets));
	struct pt_config config;
	size_t psb;

	if (!packets) {
		ptw_error_set(err, PTW_EXIT_FAILED, "packet decoder: out of memory");
		return NULL;
	}
	packets->data = data;
	packets->size = size;
	if (size == 0)
		return packets;		/* libipt refuses an empty trace; it just has no packets */

	if (ipt_config(&config, params, data, size, err))
		goto fail;
	packets->skd007 = config.errata.skd007;
	packets->decoder = pt_pkt_alloc_decoder(&config);
	if (!packets->decoder) {
		ptw_error_set(err, PTW_EXIT_FAILED, "libipt's packet decoder: out of memory");
		goto fail;
	}

	/* A ring that wrapped begins anywhere in a packet. */
	psb = ipt_next_psb(data, size, 0);
	if (psb > 0 && psb < size && !starts_with_packets(packets->decoder, psb))
		packets->skip = psb;
	pt_pkt_sync_set(packets->decoder, packets->skip);
	packets->offset = packets->skip;
	return packets;
fail:
	free(packets);
	return NULL;
}

static enum ptw_packets_status gap(struct ptw_packets *packets, struct ptw_packet *packet, int status)
{
	size_t next = ipt_next_psb(packets->data, packets->size, packets->offset + 1);

	*packet = (struct ptw_packet){
		.type = PTW_PACKET_UNKNOWN,
		.offset = packets->offset,
		.size = next - packets->offset,
		.error = status == -pte_eos ? "incomplete packet" : pt_errstr(pt_errcode(status)),
	};
	packets->offset = next;
	pt_pkt_sync_set(packets->decoder, next);
	return PTW_PACKETS_GAP;
}

static bool at_cut_cyc(const struct ptw_packets *packets)
{
	return packets->skd007 && ipt_cut_cyc(packets->data + packets->offset, packets->size - packets->offset);
}

enum ptw_packets_status ptw_packets_next(struct ptw_packets *packets, struct ptw_packet *packet)
{
	struct pt_packet in;
	int size;

	if (packets->skip) {
		*packet = (struct ptw_packet){ .type = PTW_PACKET_UNKNOWN, .size = packets->skip };
		packets->skip = 0;
		return PTW_PACKETS_SKIPPED;
	}
	if (packets->offset >= packets->size)
		return PTW_PACKETS_END;

	/* libipt 2.0 takes it for what it looks like, later ones pass over it without a word. */
	if (at_cut_cyc(packets)) {
		*packet = (struct ptw_packet){
			.type = PTW_PACKET_UNKNOWN, .offset = packets->offset++, .size = 1, .error = "CYC cut off by the OVF behind it",
		};
		packets->moved = true;
		return PTW_PACKETS_GAP;
	}
	if (packets->moved)
		pt_pkt_sync_set(packets->decoder, packets->offset);
	packets->moved = false;
	size = pt_pkt_next(packets->decoder, &in, sizeof(in));
	if (size <= 0)
		return gap(packets, packet, size);

	fill_packet(packets, &in, packet);
	packets->offset += size;
	return PTW_PACKETS_PACKET;
}

/* Size of the plain packet at @p, and its @type; 0: it is not plain, or is cut off. */
static size_t plain_size(const uint8_t *p, size_t left, enum ptw_packet_type *type)
{
	static const uint8_t ip_size[8] = { 1, 3, 5, 7, 7, 0, 9, 0 };	/* by IPBytes, with the head */
	size_t size;

	if (p[0] == 0x02)
		return 0;
	if (!(p[0] & 1)) {
		*type = p[0] ? PTW_PACKET_TNT : PTW_PACKET_PAD;
		return 1;
	}
	if ((p[0] & 3) == 3) {
		*type = PTW_PACKET_CYC;
		if (!(p[0] & 4))
			return 1;
		/* Longer ones are rare, and may be too long. */
		for (size = 2; size <= 4 && size <= left; size++)
			if (!(p[size - 1] & 1))
				return size;
		return 0;
	}
	switch (p[0] & 0x1f) {
	case 0x01:
		*type = PTW_PACKET_TIP_PGD;
		break;
	case 0x0d:
		*type = PTW_PACKET_TIP;
		break;
	case 0x11:
		*type = PTW_PACKET_TIP_PGE;
		break;
	case 0x1d:
		*type = PTW_PACKET_FUP;
		break;
	default:
		if (p[0] != 0x59 || left < 2)
			return 0;
		*type = PTW_PACKET_MTC;
		return 2;
	}
	size = ip_size[p[0] >> 5];
	return size <= left ? size : 0;
}

static uint64_t plain_ip(uint64_t last, const uint8_t *p, size_t size)
{
	uint64_t payload = 0;

	memcpy(&payload, p + 1, size - 1);
	return decompress_ip(last, payload, p[0] >> 5);
}

uint64_t ptw_packets_count(struct ptw_packets *packets, uint64_t *count, uint64_t *bytes)
{
	enum ptw_packet_type type;
	size_t size;

	if (packets->skip)
		return packets->offset;
	while (packets->offset < packets->size) {
		const uint8_t *p = packets->data + packets->offset;

		size = plain_size(p, packets->size - packets->offset, &type);
		if (!size || (type == PTW_PACKET_CYC && at_cut_cyc(packets)))
			break;
		count[type]++;
		bytes[type] += size;
		if (type >= PTW_PACKET_FUP && type <= PTW_PACKET_TIP_PGD)
			packets->last_ip = plain_ip(packets->last_ip, p, size);
		packets->offset += size;
		packets->moved = true;
	}
	return packets->offset;
}

void ptw_packets_free(struct ptw_packets *packets)
{
	if (!packets)
		return;
	pt_pkt_free_decoder(packets->decoder);
	free(packets);
}

static const char *const packet_names[] = {
	[PTW_PACKET_PAD] = "PAD",
	[PTW_PACKET_PSB] = "PSB",
	[PTW_PACKET_PSBEND] = "PSBEND",
	[PTW_PACKET_FUP] = "FUP",
	[PTW_PACKET_TIP] = "TIP",
	[PTW_PACKET_TIP_PGE] = "TIP.PGE",
	[PTW_PACKET_TIP_PGD] = "TIP.PGD",
	[PTW_PACKET_TNT] = "TNT",
	[PTW_PACKET_MODE_EXEC] = "MODE.Exec",
	[PTW_PACKET_MODE_TSX] = "MODE.TSX",
	[PTW_PACKET_PIP] = "PIP",
	[PTW_PACKET_VMCS] = "VMCS",
	[PTW_PACKET_CBR] = "CBR",
	[PTW_PACKET_TSC] = "TSC",
	[PTW_PACKET_TMA] = "TMA",
	[PTW_PACKET_MTC] = "MTC",
	[PTW_PACKET_CYC] = "CYC",
	[PTW_PACKET_TRACESTOP] = "TraceStop",
	[PTW_PACKET_OVF] = "OVF",
	[PTW_PACKET_MNT] = "MNT",
	[PTW_PACKET_EXSTOP] = "EXSTOP",
	[PTW_PACKET_MWAIT] = "MWAIT",
	[PTW_PACKET_PWRE] = "PWRE",
	[PTW_PACKET_PWRX] = "PWRX",
	[PTW_PACKET_PTW] = "PTW",
	[PTW_PACKET_CFE] = "CFE",
	[PTW_PACKET_EVD] = "EVD",
	[PTW_PACKET_TRIG] = "TRIG",
	[PTW_PACKET_UNKNOWN] = "unknown",
};

const char *ptw_packet_name(const struct ptw_packet *packet)
{
	return packet_names[packet->type];
}

static void print_tnt(const struct ptw_packet *packet, char *buf, size_t size)
{
	char bits[65];
	uint32_t i, count = packet->count < 64 ? packet->count : 64;

	for (i = 0; i < count; i++)
		bits[i] = packet->value >> (count - 1 - i) & 1 ? 'T' : 'N';
	bits[count] = '\0';
	snprintf(buf, size, "%s (%" PRIu32 ")", bits, count);
}

static void print_power(const struct ptw_packet *packet, char *buf, size_t size)
{
	uint64_t v = packet->value;

	if (packet->type == PTW_PACKET_MWAIT)
		snprintf(buf, size, "hints 0x%" PRIx64 " ext 0x%" PRIx64, v & 0xffffffff, v >> 32);
	else if (packet->type == PTW_PACKET_PWRE)
		snprintf(buf, size, "state %d sub %d%s", (int)(v >> 12 & 0xf), (int)(v >> 8 & 0xf),
			 v & 0x80 ? " HW" : "");
	else
		snprintf(buf, size, "last %d deepest %d%s%s%s", (int)(v >> 4 & 0xf), (int)(v & 0xf),
			 v & 0x100 ? " interrupt" : "", v & 0x400 ? " store" : "",
			 v & 0x800 ? " autonomous" : "");
}

static void print_event(const struct ptw_packet *packet, char *buf, size_t size)
{
	const char *ip = packet->with_ip ? " IP" : "";

	if (packet->type == PTW_PACKET_CFE)
		snprintf(buf, size, "type %" PRIu32 " vector %" PRIu64 "%s", packet->count, packet->value,
			 ip);
	else if (packet->type == PTW_PACKET_EVD)
		snprintf(buf, size, "type %" PRIu32 " 0x%" PRIx64, packet->count, packet->value);
	else
		snprintf(buf, size, "triggers 0x%" PRIx64 " count %" PRIu32 "%s", packet->value,
			 packet->count, ip);
}

char *ptw_packet_payload(const struct ptw_packet *packet, char *buf, size_t size)
{
	buf[0] = '\0';
	switch (packet->type) {
	case PTW_PACKET_TNT:
		print_tnt(packet, buf, size);
		break;
	case PTW_PACKET_TIP:
	case PTW_PACKET_TIP_PGE:
	case PTW_PACKET_TIP_PGD:
	case PTW_PACKET_FUP:
		if (packet->count == pt_ipc_suppressed)
			snprintf(buf, size, "-");
		else
			snprintf(buf, size, "0x%" PRIx64, packet->ip);
		break;
	case PTW_PACKET_MODE_EXEC:
		snprintf(buf, size, "%" PRIu64 "-bit%s", packet->value, packet->count ? " IF" : "");
		break;
	case PTW_PACKET_MODE_TSX:
		snprintf(buf, size, "InTX %d TXAbort %d", (int)packet->value & 1,
			 (int)packet->value >> 1 & 1);
		break;
	case PTW_PACKET_PIP:
		snprintf(buf, size, "CR3 0x%" PRIx64 " NR %" PRIu32, packet->value, packet->count);
		break;
	case PTW_PACKET_TMA:
		snprintf(buf, size, "CTC 0x%" PRIx64 " FC 0x%" PRIx32, packet->value, packet->count);
		break;
	case PTW_PACKET_VMCS:
	case PTW_PACKET_CBR:
	case PTW_PACKET_TSC:
	case PTW_PACKET_MTC:
	case PTW_PACKET_CYC:
	case PTW_PACKET_MNT:
		snprintf(buf, size, "0x%" PRIx64, packet->value);
		break;
	case PTW_PACKET_PTW:
		snprintf(buf, size, "0x%0*" PRIx64 "%s", 2 * (int)packet->count, packet->value,
			 packet->with_ip ? " IP" : "");
		break;
	case PTW_PACKET_EXSTOP:
		snprintf(buf, size, "%s", packet->with_ip ? "IP" : "");
		break;
	case PTW_PACKET_MWAIT:
	case PTW_PACKET_PWRE:
	case PTW_PACKET_PWRX:
		print_power(packet, buf, size);
		break;
	case PTW_PACKET_CFE:
	case PTW_PACKET_EVD:
	case PTW_PACKET_TRIG:
		print_event(packet, buf, size);
		break;
	default:
		break;
	}
	return buf;
}
