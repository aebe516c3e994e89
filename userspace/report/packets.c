// SPDX-License-Identifier: BSD-2-Clause
#include "report/packets.h"

#include <inttypes.h>

#include "decode/packets.h"

static void text_packet(const struct ptw_view *view, const struct ptw_packet *packet, struct ptw_out *out)
{
	char payload[128];

	if (view->trace->cpu >= 0)
		ptw_out_printf(out, "%3d ", view->trace->cpu);
	ptw_packet_payload(packet, payload, sizeof(payload));
	if (payload[0])
		ptw_out_printf(out, "%08" PRIx64 "  %-9s  %s\n", packet->offset, ptw_packet_name(packet),
			       payload);
	else
		ptw_out_printf(out, "%08" PRIx64 "  %s\n", packet->offset, ptw_packet_name(packet));
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

static void json_packet(const struct ptw_view *view, const struct ptw_packet *packet, struct ptw_out *out)
{
	char payload[128];

	ptw_out_text(out, "{");
	if (view->trace->cpu >= 0)
		ptw_out_printf(out, "\"cpu\":%d,", view->trace->cpu);
	ptw_out_printf(out, "\"offset\":\"0x%" PRIx64 "\",\"type\":\"%s\",\"size\":%" PRIu32 ",\"payload\":",
		       packet->offset, ptw_packet_name(packet), packet->size);
	ptw_out_json_string(out, ptw_packet_payload(packet, payload, sizeof(payload)));
	json_details(packet, out);
	ptw_out_text(out, "}\n");
}

static void write_gap(const struct ptw_view *view, const struct ptw_packets_options *options,
		      const struct ptw_packet *packet, struct ptw_out *out)
{
	const char *what = packet->error ? packet->error : "inside a packet: the ring wrapped";
	char text[160];

	if (packet->error && options->on_gap) {
		snprintf(text, sizeof(text), "trace offset 0x%" PRIx64 ": %s; %" PRIu32 " bytes lost",
			 packet->offset, what, packet->size);
		options->on_gap(options->context, view, packet->error, text);
	}
	if (options->count_only)
		return;
	if (options->format != PTW_FORMAT_JSON) {
		if (view->trace->cpu >= 0)
			ptw_out_printf(out, "%3d ", view->trace->cpu);
		ptw_out_printf(out, "%08" PRIx64 "  %-9s  %s, %" PRIu32 " bytes passed over\n",
			       packet->offset, "---", what, packet->size);
		return;
	}
	ptw_out_text(out, "{");
	if (view->trace->cpu >= 0)
		ptw_out_printf(out, "\"cpu\":%d,", view->trace->cpu);
	ptw_out_printf(out, "\"offset\":\"0x%" PRIx64 "\",\"type\":\"gap\",\"size\":%" PRIu32 ",\"error\":",
		       packet->offset, packet->size);
	ptw_out_json_string(out, what);
	ptw_out_text(out, "}\n");
}

static void write_packet(const struct ptw_view *view, const struct ptw_packets_options *options,
			 const struct ptw_packet *packet, struct ptw_out *out)
{
	char text[64];

	if (packet->type == PTW_PACKET_OVF && options->on_gap) {
		snprintf(text, sizeof(text), "trace offset 0x%" PRIx64 ": overflow: the CPU dropped packets",
			 packet->offset);
		options->on_gap(options->context, view, "overflow", text);
	}
	if (options->count_only)
		return;
	(options->format == PTW_FORMAT_JSON ? json_packet : text_packet)(view, packet, out);
}

int ptw_report_packets(const struct ptw_view *view, const struct ptw_packets_options *options,
		       struct ptw_out *out, uint64_t *count, struct ptw_error *err)
{
	enum ptw_packets_status status;
	struct ptw_packets *packets;
	struct ptw_packet packet;

	*count = 0;
	packets = ptw_packets_new(view->params, view->trace->data, view->trace->size, err);
	if (!packets)
		return -1;
	while (!out->error && (status = ptw_packets_next(packets, &packet)) != PTW_PACKETS_END) {
		if (status != PTW_PACKETS_PACKET) {
			write_gap(view, options, &packet, out);
			continue;
		}
		++*count;
		write_packet(view, options, &packet, out);
	}
	ptw_packets_free(packets);
	return 0;
}
