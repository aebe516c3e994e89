/* SPDX-License-Identifier: BSD-2-Clause */
#include "rtit.h"

static bool canonical(const struct model *m, uint64_t addr)
{
	unsigned int shift = 64 - m->virt_bits;

	return (uint64_t)((int64_t)(addr << shift) >> shift) == addr;
}

/* The bits of CTL that the model enumerates. */
static uint64_t ctl_known(const struct model *m)
{
	uint64_t known = CTL_TRACEEN | CTL_OS | CTL_USER | CTL_TSCEN | CTL_DISRETC | CTL_BRANCHEN;

	if (m->pt_ebx & PT_CAP_CR3_FILTER)
		known |= CTL_CR3FILTER;
	if (m->pt_ebx & PT_CAP_PSB_CYC)
		known |= CTL_CYCEN | 0xfULL << 19 | 0xfULL << 24;
	if (m->pt_ebx & PT_CAP_MTC)
		known |= CTL_MTCEN | 0xfULL << 14;
	if (m->pt_ebx & PT_CAP_PTWRITE)
		known |= CTL_PTWEN | CTL_FUPONPTW;
	if (m->pt_ebx & PT_CAP_POWER)
		known |= CTL_PWREVTEN;
	if (m->pt_ebx & PT_CAP_PRESERVE)
		known |= CTL_INJECTPSBPMI;
	if (m->pt_ebx & PT_CAP_EVENT)
		known |= CTL_EVENTEN;
	if (m->pt_ebx & PT_CAP_NO_TNT)
		known |= CTL_DISTNT;
	if (m->pt_ecx & PT_CAP_TOPA)
		known |= CTL_TOPA;
	if (m->pt_ebx & PT_CAP_IP_FILTER)
		for (unsigned int i = 0; i < m->num_ranges; i++)
			known |= 0xfULL << (32 + 4 * i);
	return known;
}

static bool ctl_valid(const struct model *m, uint64_t ctl)
{
	if (ctl & ~ctl_known(m))
		return false;
	/* Encodings that CPUID.14H.1 doesn't list. */
	if (m->pt_ebx & PT_CAP_MTC && !(m->mtc_periods >> CTL_MTCFREQ(ctl) & 1))
		return false;
	if (m->pt_ebx & PT_CAP_PSB_CYC && (!(m->cyc_thresholds >> CTL_CYCTHRESH(ctl) & 1) ||
					   !(m->psb_freqs >> CTL_PSBFREQ(ctl) & 1)))
		return false;
	for (unsigned int i = 0; i < m->num_ranges; i++)
		if (CTL_ADDR_CFG(ctl, i) > ADDR_CFG_STOP)
			return false;
	if (!(ctl & CTL_TRACEEN))
		return true;
	if (!(ctl & CTL_TOPA) && !(m->pt_ecx & PT_CAP_SINGLE_RANGE))
		return false;
	return ctl & CTL_BRANCHEN || !m->branch_always;
}

static enum msr_result write_ctl(struct rtit *r, const struct model *m, uint64_t value)
{
	/* While tracing, a write may leave everything as it is or clear TraceEn. */
	if (r->ctl & CTL_TRACEEN && value & CTL_TRACEEN && value != r->ctl)
		return MSR_GP;
	if (!ctl_valid(m, value))
		return MSR_GP;
	r->ctl = value;
	return MSR_OK;
}

static bool has_addr(const struct model *m, uint32_t msr)
{
	return m->pt_ebx & PT_CAP_IP_FILTER && (msr - MSR_RTIT_ADDR0_A) / 2 < m->num_ranges;
}

enum msr_result rtit_write(struct rtit *r, const struct model *m, uint32_t msr, uint64_t value)
{
	uint64_t kept = STATUS_ERROR | STATUS_STOPPED;
	uint64_t status = STATUS_FILTEREN | STATUS_CONTEXTEN | STATUS_TRIGGEREN | STATUS_ERROR |
			  STATUS_STOPPED;

	if (!model_has_pt(m))
		return MSR_OTHER;
	if (msr == MSR_RTIT_CTL)
		return write_ctl(r, m, value);
	if (msr != MSR_RTIT_OUTPUT_BASE && msr != MSR_RTIT_OUTPUT_MASK && msr != MSR_RTIT_STATUS &&
	    msr != MSR_RTIT_CR3_MATCH && (msr < MSR_RTIT_ADDR0_A || msr > MSR_RTIT_ADDR3_B))
		return MSR_OTHER;
	if (r->ctl & CTL_TRACEEN)
		return MSR_GP;
	switch (msr) {
	case MSR_RTIT_OUTPUT_BASE:
		if (value & 0x7f || value >> m->phys_bits)
			return MSR_GP;
		r->output_base = value;
		return MSR_OK;
	case MSR_RTIT_OUTPUT_MASK:
		/* The low bits read as ones whatever is written. */
		r->output_mask = value | 0x7f;
		return MSR_OK;
	case MSR_RTIT_STATUS:
		if (m->pt_ebx & PT_CAP_PSB_CYC)
			status |= STATUS_BYTECNT_MASK << STATUS_BYTECNT_SHIFT;
		if (m->pt_ebx & PT_CAP_PRESERVE)
			kept |= STATUS_PENDPSB | STATUS_PENDTOPAPMI;
		if (value & ~(status | kept))
			return MSR_GP;
		/* FilterEn, ContextEn and TriggerEn are read-only; writes to them are ignored. */
		r->status = value & kept;
		r->packet_byte_cnt = value >> STATUS_BYTECNT_SHIFT & STATUS_BYTECNT_MASK;
		return MSR_OK;
	case MSR_RTIT_CR3_MATCH:
		if (!(m->pt_ebx & PT_CAP_CR3_FILTER) || value & 0x1f)
			return MSR_GP;
		r->cr3_match = value;
		return MSR_OK;
	default:
		if (!has_addr(m, msr) || !canonical(m, value))
			return MSR_GP;
		r->addr[msr - MSR_RTIT_ADDR0_A] = value;
		return MSR_OK;
	}
}

enum msr_result rtit_read(const struct rtit *r, const struct model *m, uint32_t msr, uint64_t live,
			  uint64_t *value)
{
	if (!model_has_pt(m))
		return MSR_OTHER;
	switch (msr) {
	case MSR_RTIT_OUTPUT_BASE:
		*value = r->output_base;
		return MSR_OK;
	case MSR_RTIT_OUTPUT_MASK:
		*value = r->output_mask | 0x7f;
		return MSR_OK;
	case MSR_RTIT_CTL:
		*value = r->ctl;
		return MSR_OK;
	case MSR_RTIT_STATUS:
		*value = r->status | live;
		if (m->pt_ebx & PT_CAP_PSB_CYC)
			*value |= (r->packet_byte_cnt & STATUS_BYTECNT_MASK) << STATUS_BYTECNT_SHIFT;
		return MSR_OK;
	case MSR_RTIT_CR3_MATCH:
		if (!(m->pt_ebx & PT_CAP_CR3_FILTER))
			return MSR_GP;
		*value = r->cr3_match;
		return MSR_OK;
	}
	if (msr < MSR_RTIT_ADDR0_A || msr > MSR_RTIT_ADDR3_B)
		return MSR_OTHER;
	if (!has_addr(m, msr))
		return MSR_GP;
	*value = r->addr[msr - MSR_RTIT_ADDR0_A];
	return MSR_OK;
}
