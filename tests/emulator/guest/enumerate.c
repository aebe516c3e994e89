/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * enumerate: what the emulator's model shows of Intel PT to a kernel: CPUID, and which values of which MSRs it takes.
 * Prints a line of NAME=VALUE each. A CTL bit is listed if a write of it alone, TraceEn being 0, does not fault.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "msr.h"

#define VMX_MISC	0x485

static const char *taken(bool good)
{
	return good ? "taken" : "#GP";
}

/* Which n of a field at this bit of CTL are taken, as a mask. */
static unsigned int field(unsigned int shift)
{
	unsigned int mask = 0;

	for (unsigned int i = 0; i < 16; i++)
		mask |= wr(CTL, (uint64_t)i << shift) << i;
	return mask;
}

static bool start(uint64_t ctl)
{
	bool good = wr(STATUS, 0) && wr(OUTPUT_BASE, 0) && wr(OUTPUT_MASK, 0x7f) && wr(CTL, TRACEEN | ctl);

	wr(CTL, 0);
	return good;
}

int main(void)
{
	unsigned int a, b, c, d, n = 0;
	uint64_t bits = 0, value;

	msr_open();
	__cpuid_count(7, 0, a, b, c, d);
	printf("pt=%u", b >> 25 & 1);
	__cpuid_count(1, 0, a, b, c, d);
	printf(" vmx=%u", c >> 5 & 1);
	if (c >> 5 & 1 && try_rd(VMX_MISC, &value))
		printf("/%u", (unsigned int)(value >> 14 & 1));
	__cpuid_count(0x14, 0, a, b, c, d);
	printf(" leaf14=%x/%x/%x", a, b, c);
	__cpuid_count(0x14, 1, a, b, c, d);
	printf(" leaf14.1=%x/%x\n", a, b);

	for (int i = 1; i < 64; i++)
		if (wr(CTL, 1ULL << i))
			bits |= 1ULL << i;
	wr(CTL, 0);
	printf("ctl=%" PRIx64 " mtc=%x cyc=%x psb=%x", bits, field(14), field(19), field(24));
	wr(CTL, 0);
	printf(" topa=%s single=%s nobranch=%s\n", taken(start(TOPA | BRANCHEN)), taken(start(BRANCHEN)), taken(start(TOPA)));

	while (n < 4 && try_rd(ADDR0_A + 2 * n, &value))
		n++;
	printf("ranges=%u cr3=%s pend=%s bytes=%s\n", n, taken(wr(CR3_MATCH, 0x20)), taken(wr(STATUS, 3 << 6)),
	       taken(wr(STATUS, 1ULL << 32)));
	wr(STATUS, 0);
	return 0;
}
