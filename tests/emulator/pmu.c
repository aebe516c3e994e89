/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The core PMU, as far as Linux needs it to bring up its driver, perf's counting and sampling, and
 * the PMI that Intel PT shares. Every event counts executed instructions, some scaled down to look
 * plausible; there are no cycles in TCG.
 */
#include "vcpu.h"

#define MSR_PLATFORM_INFO	0xce
#define MSR_PMC0		0xc1
#define MSR_EVTSEL0		0x186
#define MSR_OFFCORE_RSP0	0x1a6
#define MSR_OFFCORE_RSP1	0x1a7
#define MSR_DEBUGCTL		0x1d9
#define MSR_FIXED_CTR0		0x309
#define MSR_PERF_CAPABILITIES	0x345
#define MSR_FIXED_CTR_CTRL	0x38d
#define MSR_GLOBAL_STATUS	0x38e
#define MSR_GLOBAL_CTRL		0x38f
#define MSR_GLOBAL_OVF_CTRL	0x390
#define MSR_GLOBAL_STATUS_SET	0x391
#define MSR_PEBS_ENABLE		0x3f1
#define MSR_PEBS_LD_LAT		0x3f6
#define MSR_PEBS_FRONTEND	0x3f7

#define COUNTER_BITS		48
#define COUNTER_MASK		((1ULL << COUNTER_BITS) - 1)
#define GP_MASK			((1ULL << PMU_GP) - 1)
#define FIXED_SHIFT		32
#define FIXED_MASK		(((1ULL << PMU_FIXED) - 1) << FIXED_SHIFT)
#define STATUS_TOPA		(1ULL << 55)
/* What GLOBAL_OVF_CTRL may clear: counters, ToPA, LBR/CTR frozen, uncore, OvfBuffer, CondChgd. */
#define STATUS_CLEARABLE	(GP_MASK | FIXED_MASK | STATUS_TOPA | 0x1fULL << 58 | 1ULL << 63)
#define EVTSEL_RESERVED		(~0xffffffffULL)
#define FIXED_CTRL_RESERVED	(~0xfffULL)

#define EVTSEL_USER		(1ULL << 16)
#define EVTSEL_OS		(1ULL << 17)
#define EVTSEL_INT		(1ULL << 20)
#define EVTSEL_EN		(1ULL << 22)

/* A counter in one form, whatever its registers look like. */
struct counter {
	uint64_t *value;
	uint64_t status_bit;
	bool user, os, interrupt;
	unsigned int scale;	/* counts instructions >> scale */
};

static unsigned int event_scale(uint64_t evtsel)
{
	switch (evtsel & 0xff) {
	case 0xc4:		/* branches */
		return 2;
	case 0xc5:		/* mispredicted branches */
		return 6;
	case 0x2e:		/* last-level cache */
		return 8;
	}
	return 0;
}

/* Counter i, general ones first. False if it doesn't count. */
static bool counter(struct pmu *p, int i, struct counter *c)
{
	if (i < PMU_GP) {
		uint64_t sel = p->evtsel[i];

		c->value = &p->gp[i];
		c->status_bit = 1ULL << i;
		c->user = sel & EVTSEL_USER;
		c->os = sel & EVTSEL_OS;
		c->interrupt = sel & EVTSEL_INT;
		c->scale = event_scale(sel);
		if (!(sel & EVTSEL_EN))
			return false;
	} else {
		unsigned int ctrl = p->fixed_ctrl >> (4 * (i - PMU_GP)) & 0xf;

		c->value = &p->fixed[i - PMU_GP];
		c->status_bit = 1ULL << (FIXED_SHIFT + i - PMU_GP);
		c->os = ctrl & 1;
		c->user = ctrl & 2;
		c->interrupt = ctrl & 8;
		c->scale = 0;
	}
	return p->global_ctrl & c->status_bit && (c->user || c->os);
}

/* Work out at which number of executed instructions an overflow may interrupt next. */
static void arm(struct vcpu *v)
{
	uint64_t left = ALARM_MAX;
	bool counting = false;
	struct counter c;

	for (int i = 0; i < PMU_GP + PMU_FIXED; i++) {
		if (!counter(&v->pmu, i, &c))
			continue;
		counting = true;
		if (c.interrupt)
			left = MIN(left, ((1ULL << COUNTER_BITS) - *c.value) << c.scale);
	}
	v->pmu.counting = counting;
	v->pmu.deadline = executed(v) + left;
	v->pmu.armed = left != ALARM_MAX;
	instrument_update(v);
	/* While it rings, it is set when it is stopped. */
	if (v->hot->clock[0] <= CLOCK_ALARM)
		set_alarm(v, left);
}

void pmu_sync(struct vcpu *v)
{
	struct pmu *p = &v->pmu;
	uint64_t now[2] = { executed_at(v, 0), executed_at(v, 1) };
	bool interrupt = false;
	struct counter c;

	for (int i = 0; i < PMU_GP + PMU_FIXED; i++) {
		uint64_t sum;

		if (!counter(p, i, &c))
			continue;
		sum = *c.value;
		if (c.user)
			sum += (now[0] >> c.scale) - (p->seen[0] >> c.scale);
		if (c.os)
			sum += (now[1] >> c.scale) - (p->seen[1] >> c.scale);
		if (sum >> COUNTER_BITS) {
			p->global_status |= c.status_bit;
			interrupt |= c.interrupt;
		}
		*c.value = sum & COUNTER_MASK;
	}
	p->seen[0] = now[0];
	p->seen[1] = now[1];
	arm(v);
	if (interrupt)
		pmi_raise(v);
}

bool pmu_rdpmc(struct vcpu *v, uint32_t ecx, uint64_t *value)
{
	bool fixed = ecx >> 30 & 1;
	uint32_t i = ecx & ~(1u << 30);

	if (!model_has_pt(opts.model) || i >= (fixed ? PMU_FIXED : PMU_GP))
		return false;
	pmu_sync(v);
	*value = fixed ? v->pmu.fixed[i] : v->pmu.gp[i];
	return true;
}

/* MSRs that keep what is written and do nothing. */
static uint64_t *plain(struct pmu *p, uint32_t msr)
{
	switch (msr) {
	case MSR_OFFCORE_RSP0:
		return &p->plain[0];
	case MSR_OFFCORE_RSP1:
		return &p->plain[1];
	case MSR_DEBUGCTL:
		return &p->plain[2];
	case MSR_PERF_CAPABILITIES:
		return &p->plain[3];
	case MSR_PEBS_ENABLE:
		return &p->plain[4];
	case MSR_PEBS_LD_LAT:
		return &p->plain[5];
	case MSR_PEBS_FRONTEND:
		return &p->plain[6];
	}
	return NULL;
}

/* The storage of an MSR that can be read and, with its #GP rules, written. */
static uint64_t *storage(struct pmu *p, uint32_t msr, uint64_t *reserved)
{
	*reserved = 0;
	if (msr >= MSR_PMC0 && msr < MSR_PMC0 + PMU_GP)
		return &p->gp[msr - MSR_PMC0];
	if (msr >= MSR_EVTSEL0 && msr < MSR_EVTSEL0 + PMU_GP) {
		*reserved = EVTSEL_RESERVED;
		return &p->evtsel[msr - MSR_EVTSEL0];
	}
	if (msr >= MSR_FIXED_CTR0 && msr < MSR_FIXED_CTR0 + PMU_FIXED) {
		*reserved = ~COUNTER_MASK;
		return &p->fixed[msr - MSR_FIXED_CTR0];
	}
	if (msr == MSR_FIXED_CTR_CTRL) {
		*reserved = FIXED_CTRL_RESERVED;
		return &p->fixed_ctrl;
	}
	if (msr == MSR_GLOBAL_CTRL) {
		*reserved = ~(GP_MASK | FIXED_MASK);
		return &p->global_ctrl;
	}
	return plain(p, msr);
}

enum msr_result pmu_read(struct vcpu *v, uint32_t msr, uint64_t *value)
{
	uint64_t reserved, *reg;

	if (!model_has_pt(opts.model))
		return MSR_OTHER;
	if (msr == MSR_PLATFORM_INFO) {
		*value = (uint64_t)opts.model->base_ratio << 8;
		return MSR_OK;
	}
	if (msr == MSR_GLOBAL_STATUS) {
		pmu_sync(v);
		*value = v->pmu.global_status;
		return MSR_OK;
	}
	if (msr == MSR_GLOBAL_OVF_CTRL) {
		*value = 0;
		return MSR_OK;
	}
	reg = storage(&v->pmu, msr, &reserved);
	if (!reg)
		return MSR_OTHER;
	pmu_sync(v);
	*value = *reg;
	return MSR_OK;
}

enum msr_result pmu_write(struct vcpu *v, uint32_t msr, uint64_t value)
{
	struct pmu *p = &v->pmu;
	uint64_t reserved, *reg;

	if (!model_has_pt(opts.model))
		return MSR_OTHER;
	switch (msr) {
	case MSR_GLOBAL_STATUS:
	case MSR_PLATFORM_INFO:
		return MSR_GP;
	case MSR_GLOBAL_OVF_CTRL:
		if (value & ~STATUS_CLEARABLE)
			return MSR_GP;
		pmu_sync(v);
		p->global_status &= ~value;
		return MSR_OK;
	case MSR_GLOBAL_STATUS_SET:
		if (value & ~STATUS_CLEARABLE)
			return MSR_GP;
		p->global_status |= value;
		return MSR_OK;
	}
	reg = storage(p, msr, &reserved);
	if (!reg)
		return MSR_OTHER;
	if (value & reserved)
		return MSR_GP;
	pmu_sync(v);
	/* Without full-width writes a general counter takes 32 bits, sign-extended. */
	if (msr >= MSR_PMC0 && msr < MSR_PMC0 + PMU_GP)
		value = (uint64_t)(int64_t)(int32_t)value & COUNTER_MASK;
	*reg = value;
	arm(v);
	return MSR_OK;
}
