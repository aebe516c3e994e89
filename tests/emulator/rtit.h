/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RTIT MSRs as registers: which values they take and which raise #GP (SDM, "Trace
 * Configuration MSRs"). What a change does is msr.c's business. No dependency on QEMU.
 */
#ifndef RTIT_H
#define RTIT_H

#include <stdbool.h>
#include <stdint.h>

#include "model.h"

#define MSR_RTIT_OUTPUT_BASE	0x560
#define MSR_RTIT_OUTPUT_MASK	0x561
#define MSR_RTIT_CTL		0x570
#define MSR_RTIT_STATUS		0x571
#define MSR_RTIT_CR3_MATCH	0x572
#define MSR_RTIT_ADDR0_A	0x580
#define MSR_RTIT_ADDR3_B	0x587
#define RTIT_MAX_RANGES		4

#define CTL_TRACEEN		(1ULL << 0)
#define CTL_CYCEN		(1ULL << 1)
#define CTL_OS			(1ULL << 2)
#define CTL_USER		(1ULL << 3)
#define CTL_PWREVTEN		(1ULL << 4)
#define CTL_FUPONPTW		(1ULL << 5)
#define CTL_FABRICEN		(1ULL << 6)
#define CTL_CR3FILTER		(1ULL << 7)
#define CTL_TOPA		(1ULL << 8)
#define CTL_MTCEN		(1ULL << 9)
#define CTL_TSCEN		(1ULL << 10)
#define CTL_DISRETC		(1ULL << 11)
#define CTL_PTWEN		(1ULL << 12)
#define CTL_BRANCHEN		(1ULL << 13)
#define CTL_MTCFREQ(ctl)	((unsigned int)((ctl) >> 14) & 0xf)
#define CTL_CYCTHRESH(ctl)	((unsigned int)((ctl) >> 19) & 0xf)
#define CTL_PSBFREQ(ctl)	((unsigned int)((ctl) >> 24) & 0xf)
#define CTL_EVENTEN		(1ULL << 31)
#define CTL_DISTNT		(1ULL << 55)
#define CTL_INJECTPSBPMI	(1ULL << 56)
#define CTL_ADDR_CFG(ctl, n)	((unsigned int)((ctl) >> (32 + 4 * (n))) & 0xf)
#define ADDR_CFG_FILTER		1
#define ADDR_CFG_STOP		2

#define STATUS_FILTEREN		(1ULL << 0)
#define STATUS_CONTEXTEN	(1ULL << 1)
#define STATUS_TRIGGEREN	(1ULL << 2)
#define STATUS_ERROR		(1ULL << 4)
#define STATUS_STOPPED		(1ULL << 5)
#define STATUS_PENDPSB		(1ULL << 6)
#define STATUS_PENDTOPAPMI	(1ULL << 7)
#define STATUS_BYTECNT_SHIFT	32
#define STATUS_BYTECNT_MASK	0x1ffffULL

enum msr_result {
	MSR_OTHER,	/* none of ours: leave it to QEMU */
	MSR_OK,
	MSR_GP,
};

struct rtit {
	uint64_t output_base;
	uint64_t output_mask;		/* OUTPUT_MASK_PTRS */
	uint64_t ctl;
	uint64_t status;		/* Error, Stopped, PendPSB, PendToPAPMI; the rest is computed */
	uint64_t packet_byte_cnt;	/* bytes since the last PSB */
	uint64_t cr3_match;
	uint64_t addr[2 * RTIT_MAX_RANGES];	/* A, B of each range */
};

/* Check the write of value and do it, as far as the registers go. */
enum msr_result rtit_write(struct rtit *r, const struct model *m, uint32_t msr, uint64_t value);
/*
 * Read. live: FilterEn, ContextEn and TriggerEn of the moment (STATUS bits 2:0). The fields must be
 * up to date.
 */
enum msr_result rtit_read(const struct rtit *r, const struct model *m, uint32_t msr, uint64_t live,
			  uint64_t *value);

/* Whether ip is in range n. */
static inline bool rtit_in_range(const struct rtit *r, unsigned int n, uint64_t ip)
{
	return ip >= r->addr[2 * n] && ip <= r->addr[2 * n + 1];
}

#endif /* RTIT_H */
