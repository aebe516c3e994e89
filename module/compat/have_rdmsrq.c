// SPDX-License-Identifier: GPL-2.0
#include <linux/types.h>
#include <asm/msr.h>

u64 probe(void);
u64 probe(void)
{
	u64 value;

	rdmsrq(0x570, value);
	wrmsrq(0x570, value);
	return value;
}
