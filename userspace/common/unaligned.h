/* SPDX-License-Identifier: BSD-2-Clause */
/* Little-endian numbers in files, wherever they lie: x86 has them so in memory. */
#ifndef PTWATCH_COMMON_UNALIGNED_H
#define PTWATCH_COMMON_UNALIGNED_H

#include <stdint.h>
#include <string.h>

static inline uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

#endif
