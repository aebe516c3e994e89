/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Power events (SDM, "Power Event Tracing"). The only C-state there is under TCG is C1: HLT halts the CPU, and
 * MWAIT does if there is no other CPU, else it pauses.
 */
#include "vcpu.h"

/* Payloads count from C1 and sub-state 0; the hint of MWAIT(C1) is 0. */
#define C1 0
/* Wake reasons: an interrupt, a store to the address that MONITOR armed. */
#define WAKE_INTERRUPT 1
#define WAKE_STORE 4

static bool enabled(const struct vcpu *v)
{
	return v->tracing && v->rtit.ctl & CTL_PWREVTEN;
}

static void power_down(struct vcpu *v, const struct site *s)
{
	struct packet_writer *w = &v->writer;

	packet_pwre(w, C1, 0, false);
	packet_exstop(w, v->flow.packet_en);
	if (v->flow.packet_en)
		packet_ip(w, PACKET_FUP, s->vaddr + v->flow.delta);
	v->flow.power_down = true;
}

void power_on_halt(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);

	if (!enabled(v) || v->flow.cpl)
		return;
	branch_settle(v, opaque);
	if (v->tracing)
		power_down(v, opaque);
}

void power_on_mwait(unsigned int index, void *opaque)
{
	struct vcpu *v = vcpu_get(index);

	/* TCG knows no extension: #GP. */
	if (!enabled(v) || v->flow.cpl || (uint32_t)guest_reg(v, GUEST_RCX))
		return;
	branch_settle(v, opaque);
	if (!v->tracing)
		return;
	if (v->flow.context_en)
		packet_mwait(&v->writer, guest_reg(v, GUEST_RAX), guest_reg(v, GUEST_RCX));
	power_down(v, opaque);
}

void power_wake(struct vcpu *v, bool interrupt)
{
	v->flow.power_down = false;
	if (!enabled(v))
		return;
	packet_pwrx(&v->writer, C1, C1, interrupt ? WAKE_INTERRUPT : WAKE_STORE);
	/* The time went on. */
	clock_tsc_packets(v);
}
