/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event trace: CFE and EVD packets (SDM, "Event Trace"). Where flow packets are generated the FUP or TIP of
 * the branch tells the address; else CFE has its IP bit set and a FUP of its own. MODE.Exec with the
 * interrupt flag is branch.c's.
 */
#include "vcpu.h"

#define CFE_INTR 1
#define CFE_IRET 2
#define EVD_PFA 0
#define VECTOR_PF 14

static bool enabled(const struct vcpu *v)
{
	return v->rtit.ctl & CTL_EVENTEN && v->flow.context_en;
}

static void cfe(struct vcpu *v, uint8_t type, uint8_t vector, uint64_t ip)
{
	bool fup = v->flow.packet_en && !(v->rtit.ctl & CTL_BRANCHEN);

	packet_cfe(&v->writer, type, vector, fup);
	if (fup)
		packet_ip(&v->writer, PACKET_FUP, ip);
}

void event_interrupt(struct vcpu *v, uint64_t from, uint64_t to)
{
	int vector;

	if (!enabled(v))
		return;
	vector = guest_vector(v, to);
	if (vector == VECTOR_PF)
		packet_evd(&v->writer, EVD_PFA, guest_reg(v, GUEST_CR2));
	cfe(v, CFE_INTR, vector < 0 ? 0 : vector, from);
}

void event_iret(struct vcpu *v, uint64_t ip)
{
	if (enabled(v))
		cfe(v, CFE_IRET, 0, ip);
}
