// SPDX-License-Identifier: GPL-2.0
#include <linux/types.h>
#include <asm/cpuid/api.h>

u32 probe(void);
u32 probe(void)
{
	u32 eax, ebx, ecx, edx;

	cpuid_count(0x14, 0, &eax, &ebx, &ecx, &edx);
	return eax;
}
