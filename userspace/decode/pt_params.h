/* SPDX-License-Identifier: BSD-2-Clause */
/* What a decoder must know about the CPU that recorded a trace, and how it was told to record. */
#ifndef PTWATCH_DECODE_PT_PARAMS_H
#define PTWATCH_DECODE_PT_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#define PTW_ADDR_RANGES	4

/** struct ptw_addr_range - one IA32_RTIT_ADDRn pair and its ADDRn_CFG */
struct ptw_addr_range {
	uint8_t cfg;	/* ADDRn_CFG: 0 unused, 1 FilterEn range, 2 TraceStop range */
	uint64_t a;	/* first address, inclusive */
	uint64_t b;	/* last address, inclusive */
};

struct ptw_pt_params {
	uint16_t family;	/* with extended family, as libipt's pt_cpu */
	uint8_t model;
	uint8_t stepping;
	uint8_t bits;		/* mode at the start where the trace does not tell: 64 or 32; 0: 64 */
	uint8_t mtc_freq;	/* IA32_RTIT_CTL.MTCFreq */
	uint8_t nom_freq;	/* MSR_PLATFORM_INFO[15:8]; 0: unknown */
	uint32_t cpuid_0x15_eax;	/* TSC / core crystal clock ratio is EBX / EAX; 0: unknown */
	uint32_t cpuid_0x15_ebx;
	struct ptw_addr_range addr[PTW_ADDR_RANGES];
	/* Neither a range nor a breakpoint ever turned the trace off: what is traced of whom is in it throughout. False: not known. */
	bool through;
	/*
	 * TSC to CLOCK_MONOTONIC-like nanoseconds as in perf_event_mmap_page:
	 * ns = time_zero + ((tsc >> shift) * mult) + (((tsc & ((1 << shift) - 1)) * mult) >> shift)
	 */
	bool have_time;
	uint16_t time_shift;
	uint32_t time_mult;
	uint64_t time_zero;
};

/** ptw_tsc_to_ns() - nanoseconds of perf's clock at @tsc; @p->have_time must be set */
static inline uint64_t ptw_tsc_to_ns(const struct ptw_pt_params *p, uint64_t tsc)
{
	uint64_t quot = tsc >> p->time_shift;
	uint64_t rem = tsc & (((uint64_t)1 << p->time_shift) - 1);

	return p->time_zero + quot * p->time_mult + ((rem * p->time_mult) >> p->time_shift);
}

#endif /* PTWATCH_DECODE_PT_PARAMS_H */
