// SPDX-License-Identifier: BSD-2-Clause
#include "decode/ipt.h"

#include <string.h>

static void config_filters(struct pt_config *config, const struct ptw_pt_params *params)
{
	uint64_t *range[PTW_ADDR_RANGES][2] = {
		{ &config->addr_filter.addr0_a, &config->addr_filter.addr0_b },
		{ &config->addr_filter.addr1_a, &config->addr_filter.addr1_b },
		{ &config->addr_filter.addr2_a, &config->addr_filter.addr2_b },
		{ &config->addr_filter.addr3_a, &config->addr_filter.addr3_b },
	};
	int i;

	for (i = 0; i < PTW_ADDR_RANGES; i++) {
		config->addr_filter.config.addr_cfg |= (uint64_t)(params->addr[i].cfg & 0xf) << (4 * i);
		*range[i][0] = params->addr[i].a;
		*range[i][1] = params->addr[i].b;
	}
}

/* CPUs that libipt 2.0 does not know: what 2.2 says of them. */
static void newer_errata(struct pt_errata *errata, const struct ptw_pt_params *params)
{
	if (params->family != 6)
		return;
	switch (params->model) {
	case 0xaa: case 0xac: case 0xb5:			/* Meteor Lake */
	case 0xb7: case 0xba: case 0xbf:			/* Raptor Lake */
	case 0xbd: case 0xc5: case 0xc6: case 0xcc: case 0xd5:	/* Lunar, Arrow, Panther, Wildcat Lake */
		errata->bdm70 = errata->skd022 = errata->apl11 = 1;
		break;
	case 0xad: case 0xae: case 0xcf:			/* Granite, Emerald Rapids */
		errata->bdm70 = errata->skd022 = errata->skz84 = 1;
		break;
	case 0xaf: case 0xb6: case 0xdd:			/* Sierra Forest, Grand Ridge, Clearwater Forest */
		errata->apl11 = 1;
		break;
	}
}

int ipt_config(struct pt_config *config, const struct ptw_pt_params *params, const uint8_t *data, size_t size,
	       struct ptw_error *err)
{
	int status;

	pt_config_init(config);
	config->begin = (uint8_t *)data;	/* only libipt's encoder writes */
	config->end = (uint8_t *)data + size;
	config->mtc_freq = params->mtc_freq;
	config->nom_freq = params->nom_freq;
	config->cpuid_0x15_eax = params->cpuid_0x15_eax;
	config->cpuid_0x15_ebx = params->cpuid_0x15_ebx;
	config_filters(config, params);

	if (!params->family)
		return 0;	/* the CPU isn't known: no errata */
	config->cpu = (struct pt_cpu){
		.vendor = pcv_intel,
		.family = params->family,
		.model = params->model,
		.stepping = params->stepping,
	};
	status = pt_cpu_errata(&config->errata, &config->cpu);
	/* A CPU newer than the library, and than us, has no errata that anyone knows. */
	if (status == -pte_bad_cpu)
		newer_errata(&config->errata, params);
	else if (status < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "libipt: errata of CPU %d/%d/%d: %s",
				     params->family, params->model, params->stepping,
				     pt_errstr(pt_errcode(status)));
	return 0;
}

size_t ipt_next_psb(const uint8_t *data, size_t size, size_t from)
{
	static const uint8_t psb[16] = {
		0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
		0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
	};
	const uint8_t *at;
	size_t offset;

	if (from >= size)
		return size;
	at = memmem(data + from, size - from, psb, sizeof(psb));
	if (!at)
		return size;

	/* The payload before it may end in the same two bytes: the PSB is the end of the run. */
	for (offset = at - data; offset + 18 <= size && !memcmp(data + offset + 16, psb, 2); )
		offset += 2;
	return offset;
}

#if LIBIPT_VERSION >= 0x201

void ipt_newer_flags(struct pt_config *config)
{
	/* An overflow is short against the time that calibration takes. */
	config->flags.variant.block.keep_tcal_on_ovf = 1;
}

uint32_t ipt_mode_exec_if(const struct pt_packet *packet)
{
	return packet->payload.mode.bits.exec.iflag;
}

bool ipt_newer_packet(const struct pt_packet *packet, const uint8_t *raw, struct ptw_packet *out)
{
	switch (packet->type) {
	case ppt_cfe:
		out->type = PTW_PACKET_CFE;
		out->value = packet->payload.cfe.vector;
		out->count = packet->payload.cfe.type;
		out->with_ip = packet->payload.cfe.ip;
		return true;
	case ppt_evd:
		out->type = PTW_PACKET_EVD;
		out->value = packet->payload.evd.payload;
		out->count = raw[2] & 0x3f;	/* libipt drops bit 5 */
		return true;
#if LIBIPT_VERSION >= 0x202
	case ppt_trig:
		out->type = PTW_PACKET_TRIG;
		out->value = packet->payload.trig.trbv;
		out->count = packet->payload.trig.icntv ? packet->payload.trig.icnt : 0;
		out->with_ip = packet->payload.trig.ip;
		return true;
#endif
	default:
		return false;
	}
}

static void event_ip(const struct pt_event *event, struct ptw_event *out, enum ptw_event_type type,
		     uint64_t ip)
{
	out->type = type;
	out->ip = ip;
	out->has_ip = !event->ip_suppressed;
}

bool ipt_newer_event(const struct pt_event *event, struct ptw_event *out)
{
	switch (event->type) {
	case ptev_iflags:
		event_ip(event, out, PTW_EVENT_IFLAGS, event->variant.iflags.ip);
		out->value = event->variant.iflags.iflag;
		return true;
	case ptev_interrupt:
		event_ip(event, out, PTW_EVENT_INTERRUPT, event->variant.interrupt.ip);
		out->value = event->variant.interrupt.vector;
		return true;
	case ptev_iret:
		event_ip(event, out, PTW_EVENT_IRET, event->variant.iret.ip);
		return true;
	case ptev_smi:
		event_ip(event, out, PTW_EVENT_SMI, event->variant.smi.ip);
		return true;
	case ptev_rsm:
		event_ip(event, out, PTW_EVENT_RSM, event->variant.rsm.ip);
		return true;
	case ptev_sipi:
		out->type = PTW_EVENT_SIPI;
		out->value = event->variant.sipi.vector;
		return true;
	case ptev_init:
		event_ip(event, out, PTW_EVENT_INIT, event->variant.init.ip);
		return true;
	case ptev_vmentry:
		event_ip(event, out, PTW_EVENT_VMENTRY, event->variant.vmentry.ip);
		return true;
	case ptev_vmexit:
		event_ip(event, out, PTW_EVENT_VMEXIT, event->variant.vmexit.ip);
		out->value = event->variant.vmexit.has_vmxr ? event->variant.vmexit.vmxr : 0;
		return true;
	case ptev_shutdown:
		event_ip(event, out, PTW_EVENT_SHUTDOWN, event->variant.shutdown.ip);
		return true;
	case ptev_uintr:
		event_ip(event, out, PTW_EVENT_UINTR, event->variant.uintr.ip);
		out->value = event->variant.uintr.vector;
		return true;
	case ptev_uiret:
		event_ip(event, out, PTW_EVENT_UIRET, event->variant.uiret.ip);
		return true;
#if LIBIPT_VERSION >= 0x202
	case ptev_trig:
		event_ip(event, out, PTW_EVENT_TRIGGER, event->variant.trig.ip);
		out->value = event->variant.trig.trbv;
		return true;
	case ptev_swintr:
		event_ip(event, out, PTW_EVENT_SWINTR, event->variant.swintr.ip);
		out->value = event->variant.swintr.vector;
		return true;
	case ptev_syscall:
		event_ip(event, out, PTW_EVENT_SYSCALL, event->variant.syscall.ip);
		return true;
#endif
	default:
		return false;
	}
}

#else /* libipt 2.0: none of it */

void ipt_newer_flags(struct pt_config *config)
{
}

uint32_t ipt_mode_exec_if(const struct pt_packet *packet)
{
	return 0;
}

bool ipt_newer_packet(const struct pt_packet *packet, const uint8_t *raw, struct ptw_packet *out)
{
	return false;
}

bool ipt_newer_event(const struct pt_event *event, struct ptw_event *out)
{
	return false;
}

#endif
