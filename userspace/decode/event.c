// SPDX-License-Identifier: BSD-2-Clause
#include "decode/event.h"

#include "decode/ipt.h"

static void event_ip(const struct pt_event *in, struct ptw_event *out, enum ptw_event_type type, uint64_t ip)
{
	out->type = type;
	out->ip = ip;
	out->has_ip = !in->ip_suppressed;
}

static bool flow_event(const struct pt_event *in, struct ptw_event *out)
{
	switch (in->type) {
	case ptev_enabled:
		event_ip(in, out, PTW_EVENT_ENABLED, in->variant.enabled.ip);
		out->value = in->variant.enabled.resumed;
		return true;
	case ptev_disabled:
		event_ip(in, out, PTW_EVENT_DISABLED, in->variant.disabled.ip);
		return true;
	case ptev_async_disabled:
		event_ip(in, out, PTW_EVENT_ASYNC_DISABLED, in->variant.async_disabled.ip);
		out->from = in->variant.async_disabled.at;
		return true;
	case ptev_async_branch:
		event_ip(in, out, PTW_EVENT_ASYNC_BRANCH, in->variant.async_branch.to);
		out->from = in->variant.async_branch.from;
		return true;
	case ptev_overflow:
		event_ip(in, out, PTW_EVENT_OVERFLOW, in->variant.overflow.ip);
		return true;
	case ptev_stop:
		out->type = PTW_EVENT_STOP;
		return true;
	default:
		return false;
	}
}

static bool state_event(const struct pt_event *in, struct ptw_event *out)
{
	switch (in->type) {
	case ptev_paging:
		out->type = PTW_EVENT_PAGING;
		out->value = in->variant.paging.cr3;
		return true;
	case ptev_async_paging:
		event_ip(in, out, PTW_EVENT_PAGING, in->variant.async_paging.ip);
		out->value = in->variant.async_paging.cr3;
		return true;
	case ptev_exec_mode:
		event_ip(in, out, PTW_EVENT_EXEC_MODE, in->variant.exec_mode.ip);
		out->value = in->variant.exec_mode.mode == ptem_64bit ? 64 :
			     in->variant.exec_mode.mode == ptem_32bit ? 32 : 16;
		return true;
	case ptev_tsx:
		event_ip(in, out, PTW_EVENT_TSX, in->variant.tsx.ip);
		out->value = in->variant.tsx.speculative | in->variant.tsx.aborted << 1;
		return true;
	case ptev_vmcs:
		out->type = PTW_EVENT_VMCS;
		out->value = in->variant.vmcs.base;
		return true;
	case ptev_async_vmcs:
		event_ip(in, out, PTW_EVENT_VMCS, in->variant.async_vmcs.ip);
		out->value = in->variant.async_vmcs.base;
		return true;
	case ptev_cbr:
		out->type = PTW_EVENT_CBR;
		out->value = in->variant.cbr.ratio;
		return true;
	default:
		return false;
	}
}

static bool data_event(const struct pt_event *in, struct ptw_event *out)
{
	switch (in->type) {
	case ptev_exstop:
		event_ip(in, out, PTW_EVENT_EXSTOP, in->variant.exstop.ip);
		return true;
	case ptev_mwait:
		event_ip(in, out, PTW_EVENT_MWAIT, in->variant.mwait.ip);
		out->value = (uint64_t)in->variant.mwait.ext << 32 | in->variant.mwait.hints;
		return true;
	case ptev_pwre:
		out->type = PTW_EVENT_PWRE;
		out->value = in->variant.pwre.state << 4 | in->variant.pwre.sub_state;
		return true;
	case ptev_pwrx:
		out->type = PTW_EVENT_PWRX;
		out->value = in->variant.pwrx.deepest << 4 | in->variant.pwrx.last;
		return true;
	case ptev_ptwrite:
		event_ip(in, out, PTW_EVENT_PTWRITE, in->variant.ptwrite.ip);
		out->value = in->variant.ptwrite.payload;
		return true;
	case ptev_mnt:
		out->type = PTW_EVENT_MNT;
		out->value = in->variant.mnt.payload;
		return true;
	default:
		return false;
	}
}

void ipt_event(const struct pt_event *in, struct ptw_event *out)
{
	*out = (struct ptw_event){ .status_update = in->status_update };
	if (!flow_event(in, out) && !state_event(in, out) && !data_event(in, out) &&
	    !ipt_newer_event(in, out))
		out->type = PTW_EVENT_OTHER;
}

const char *ptw_event_name(enum ptw_event_type type)
{
	static const char *const names[] = {
		[PTW_EVENT_ENABLED] = "enabled", [PTW_EVENT_DISABLED] = "disabled",
		[PTW_EVENT_ASYNC_DISABLED] = "async-disabled", [PTW_EVENT_ASYNC_BRANCH] = "interrupt",
		[PTW_EVENT_PAGING] = "paging", [PTW_EVENT_OVERFLOW] = "overflow",
		[PTW_EVENT_EXEC_MODE] = "exec-mode", [PTW_EVENT_TSX] = "tsx", [PTW_EVENT_STOP] = "stop",
		[PTW_EVENT_VMCS] = "vmcs", [PTW_EVENT_EXSTOP] = "exstop", [PTW_EVENT_MWAIT] = "mwait",
		[PTW_EVENT_PWRE] = "pwre", [PTW_EVENT_PWRX] = "pwrx", [PTW_EVENT_PTWRITE] = "ptwrite",
		[PTW_EVENT_CBR] = "cbr", [PTW_EVENT_MNT] = "mnt", [PTW_EVENT_INTERRUPT] = "vector",
		[PTW_EVENT_IRET] = "iret", [PTW_EVENT_SMI] = "smi", [PTW_EVENT_RSM] = "rsm",
		[PTW_EVENT_SIPI] = "sipi", [PTW_EVENT_INIT] = "init", [PTW_EVENT_VMENTRY] = "vmentry",
		[PTW_EVENT_VMEXIT] = "vmexit", [PTW_EVENT_SHUTDOWN] = "shutdown", [PTW_EVENT_UINTR] = "uintr",
		[PTW_EVENT_UIRET] = "uiret", [PTW_EVENT_IFLAGS] = "iflags", [PTW_EVENT_SWINTR] = "swintr",
		[PTW_EVENT_SYSCALL] = "syscall", [PTW_EVENT_TRIGGER] = "trigger", [PTW_EVENT_OTHER] = "other",
	};

	return names[type];
}
