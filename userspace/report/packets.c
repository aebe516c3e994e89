// SPDX-License-Identifier: BSD-2-Clause
#include "report/packets.h"

#include <inttypes.h>

#include "decode/clock.h"
#include "decode/packet_clock.h"
#include "report/ring.h"

/* A packet, kept until it is known whether it is within the last N or the last microseconds. */
struct entry {
	struct ptw_packet packet;
	enum ptw_packets_status status;
	bool has_time;
	uint64_t ns, tsc;
};

struct report {
	const struct ptw_view *view;
	const struct ptw_packets_options *options;
	struct ptw_out *out;
	struct ptw_packet_clock clock;
	struct ptw_clock ns;
	struct ptw_ring kept;	/* struct entry */
	uint64_t kept_packets;
};

/* Behind the rest, so that lines with and without a time begin alike. */
static void text_time(const struct report *r, const struct entry *e, int column)
{
	if (e->has_time && !r->options->no_time) {
		ptw_out_printf(r->out, "%*s", column < 46 ? 46 - column : 2, "");
		if (ptw_clock_known(r->view->params))
			ptw_out_printf(r->out, "%6" PRIu64 ".%09" PRIu64, e->ns / 1000000000, e->ns % 1000000000);
		else
			ptw_out_printf(r->out, "%16" PRIu64, e->ns);
	}
	ptw_out_text(r->out, "\n");
}

static void text_cpu(const struct report *r)
{
	if (r->view->trace->cpu >= 0)
		ptw_out_printf(r->out, "%3d ", r->view->trace->cpu);
}

static void text_packet(const struct report *r, const struct entry *e)
{
	const struct ptw_packet *packet = &e->packet;
	char payload[128], line[192];
	int length;

	text_cpu(r);
	ptw_packet_payload(packet, payload, sizeof(payload));
	if (payload[0])
		length = snprintf(line, sizeof(line), "%08" PRIx64 "  %-9s  %s", packet->offset, ptw_packet_name(packet), payload);
	else
		length = snprintf(line, sizeof(line), "%08" PRIx64 "  %s", packet->offset, ptw_packet_name(packet));
	ptw_out_text(r->out, line);
	text_time(r, e, length);
}

/* Fields that only some packets have, as numbers, for programs. */
static void json_details(const struct ptw_packet *packet, struct ptw_out *out)
{
	switch (packet->type) {
	case PTW_PACKET_FUP:
	case PTW_PACKET_TIP:
	case PTW_PACKET_TIP_PGE:
	case PTW_PACKET_TIP_PGD:
		ptw_out_printf(out, ",\"ipbytes\":%" PRIu32 ",\"value\":\"0x%" PRIx64 "\"", packet->count,
			       packet->value);
		break;
	case PTW_PACKET_TNT:
		ptw_out_printf(out, ",\"bits\":%" PRIu32 ",\"value\":\"0x%" PRIx64 "\"", packet->count,
			       packet->value);
		break;
	case PTW_PACKET_PAD:
	case PTW_PACKET_PSB:
	case PTW_PACKET_PSBEND:
	case PTW_PACKET_OVF:
	case PTW_PACKET_TRACESTOP:
		break;
	default:
		ptw_out_printf(out, ",\"value\":\"0x%" PRIx64 "\",\"count\":%" PRIu32, packet->value,
			       packet->count);
	}
	if (packet->with_ip)
		ptw_out_text(out, ",\"ip_follows\":true");
}

static void json_time(const struct report *r, const struct entry *e)
{
	if (!e->has_time)
		return;
	ptw_out_printf(r->out, ",\"tsc\":%" PRIu64, e->tsc);
	if (ptw_clock_known(r->view->params))
		ptw_out_printf(r->out, ",\"time_ns\":%" PRIu64, e->ns);
}

static void json_packet(const struct report *r, const struct entry *e)
{
	const struct ptw_packet *packet = &e->packet;
	struct ptw_out *out = r->out;
	char payload[128];

	ptw_out_text(out, "{");
	if (r->view->trace->cpu >= 0)
		ptw_out_printf(out, "\"cpu\":%d,", r->view->trace->cpu);
	ptw_out_printf(out, "\"offset\":\"0x%" PRIx64 "\",\"type\":\"%s\",\"size\":%" PRIu32 ",\"payload\":",
		       packet->offset, ptw_packet_name(packet), packet->size);
	ptw_out_json_string(out, ptw_packet_payload(packet, payload, sizeof(payload)));
	json_details(packet, out);
	json_time(r, e);
	ptw_out_text(out, "}\n");
}

static const char *gap_text(const struct ptw_packet *packet)
{
	return packet->error ? packet->error : "inside a packet: the ring wrapped";
}

static void write_gap(const struct report *r, const struct entry *e)
{
	const struct ptw_packet *packet = &e->packet;
	struct ptw_out *out = r->out;

	if (r->options->format != PTW_FORMAT_JSON) {
		text_cpu(r);
		ptw_out_printf(out, "%08" PRIx64 "  %-9s  %s, %" PRIu32 " bytes passed over\n", packet->offset, "---",
			       gap_text(packet), packet->size);
		return;
	}
	ptw_out_text(out, "{");
	if (r->view->trace->cpu >= 0)
		ptw_out_printf(out, "\"cpu\":%d,", r->view->trace->cpu);
	ptw_out_printf(out, "\"offset\":\"0x%" PRIx64 "\",\"type\":\"gap\",\"size\":%" PRIu32 ",\"error\":",
		       packet->offset, packet->size);
	ptw_out_json_string(out, gap_text(packet));
	json_time(r, e);
	ptw_out_text(out, "}\n");
}

static bool has_address(const struct ptw_packet *packet)
{
	switch (packet->type) {
	case PTW_PACKET_FUP:
	case PTW_PACKET_TIP:
	case PTW_PACKET_TIP_PGE:
	case PTW_PACKET_TIP_PGD:
		return packet->count;
	default:
		return false;
	}
}

/* Is it one of those that are to be told, or counted? */
static bool is_wanted(const struct report *r, const struct entry *e)
{
	return e->status == PTW_PACKETS_PACKET && (r->options->format != PTW_FORMAT_IP || has_address(&e->packet));
}

static void write_entry(const struct report *r, const struct entry *e)
{
	if (r->options->count_only)
		return;
	if (r->options->format == PTW_FORMAT_IP) {
		if (is_wanted(r, e))
			ptw_out_ip_line(r->out, e->packet.ip);
		return;
	}
	if (e->status != PTW_PACKETS_PACKET)
		write_gap(r, e);
	else
		(r->options->format == PTW_FORMAT_JSON ? json_packet : text_packet)(r, e);
}

/* What is wrong with the trace is told whether its line is wanted or not. */
static void tell_gap(const struct report *r, const struct entry *e)
{
	const struct ptw_packet *packet = &e->packet;
	char text[160];

	if (!r->options->on_gap)
		return;
	if (e->status != PTW_PACKETS_PACKET && packet->error) {
		snprintf(text, sizeof(text), "trace offset 0x%" PRIx64 ": %s; %" PRIu32 " bytes lost", packet->offset,
			 packet->error, packet->size);
		r->options->on_gap(r->options->context, r->view, packet->error, text);
	} else if (e->status == PTW_PACKETS_PACKET && packet->type == PTW_PACKET_OVF) {
		snprintf(text, sizeof(text), "trace offset 0x%" PRIx64 ": overflow: the CPU dropped packets", packet->offset);
		r->options->on_gap(r->options->context, r->view, "overflow", text);
	}
}

static void drop_first(struct report *r)
{
	struct entry *e = ptw_ring_first(&r->kept);

	r->kept_packets -= is_wanted(r, e);
	ptw_ring_pop(&r->kept);
}

static int keep(struct report *r, const struct entry *entry)
{
	struct entry *e;

	if (r->options->format != PTW_FORMAT_IP || is_wanted(r, entry)) {
		e = ptw_ring_push(&r->kept);
		if (!e)
			return -1;
		*e = *entry;
		r->kept_packets += is_wanted(r, e);
	}
	while (r->options->tail && r->kept_packets > r->options->tail)
		drop_first(r);
	if (r->options->last_ns)
		while ((e = ptw_ring_first(&r->kept)) && e->ns + r->options->last_ns < entry->ns)
			drop_first(r);
	return 0;
}

static int take(struct report *r, struct entry *e, uint64_t *count)
{
	if (e->status == PTW_PACKETS_PACKET)
		ptw_packet_clock_take(&r->clock, &e->packet);
	e->has_time = r->clock.known;
	e->tsc = r->clock.tsc;
	e->ns = e->has_time ? ptw_clock_ns(&r->ns, e->tsc) : 0;
	tell_gap(r, e);
	if (r->options->tail || r->options->last_ns)
		return keep(r, e);
	*count += is_wanted(r, e);
	write_entry(r, e);
	return 0;
}

int ptw_report_packets(const struct ptw_view *view, const struct ptw_packets_options *options,
		       struct ptw_out *out, uint64_t *count, struct ptw_error *err)
{
	struct report r = {
		.view = view, .options = options, .out = out, .clock = { .params = view->params },
		.ns = { .params = view->params }, .kept = { .element = sizeof(struct entry) },
	};
	struct ptw_packets *packets;
	size_t dropped = 0;
	struct entry e;
	int ret = 0;

	*count = 0;
	packets = ptw_packets_new(view->params, view->trace->data, view->trace->size, err);
	if (!packets)
		return -1;
	while (!ret && !out->error && (e.status = ptw_packets_next(packets, &e.packet)) != PTW_PACKETS_END) {
		ptw_trace_read_to(view->trace, &dropped, e.packet.offset);
		ret = take(&r, &e, count);
	}
	ptw_packets_free(packets);
	for (*count += r.kept_packets; !ret && r.kept.count; drop_first(&r))
		write_entry(&r, ptw_ring_first(&r.kept));
	ptw_ring_free(&r.kept);
	if (ret)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory; ask for less with --tail or --last");
	return 0;
}
