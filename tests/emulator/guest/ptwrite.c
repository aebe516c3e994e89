/* SPDX-License-Identifier: BSD-2-Clause */
/* ptwrite N: execute PTWRITE N times, from registers and memory, 4 and 8 bytes wide. */
#include <stdint.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t value = i * 0x0123456789abcdefULL;

		switch (i % 4) {
		case 0:
			asm volatile("ptwriteq %0" :: "r"(value));
			break;
		case 1:
			asm volatile("ptwriteq %0" :: "m"(value));
			break;
		case 2:
			asm volatile("ptwritel %k0" :: "r"(value));
			break;
		case 3:
			asm volatile("ptwritel %0" :: "m"(value));
			break;
		}
	}
	return 0;
}
