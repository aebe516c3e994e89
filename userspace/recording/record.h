/* SPDX-License-Identifier: BSD-2-Clause */
/* A record of perf.data under construction. */
#ifndef PTWATCH_RECORDING_RECORD_H
#define PTWATCH_RECORDING_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <linux/perf_event.h>

#define RECORD_MAX	UINT16_MAX

struct record {
	union {
		struct perf_event_header header;
		uint8_t data[RECORD_MAX];
	};
	size_t size;
};

static inline void record_begin(struct record *r, uint32_t type, uint16_t misc)
{
	r->header = (struct perf_event_header){ .type = type, .misc = misc };
	r->size = sizeof(r->header);
}

static inline void record_add(struct record *r, const void *data, size_t size)
{
	memcpy(r->data + r->size, data, size);
	r->size += size;
}

static inline void record_u64(struct record *r, uint64_t value)
{
	record_add(r, &value, sizeof(value));
}

static inline void record_u32(struct record *r, uint32_t value)
{
	record_add(r, &value, sizeof(value));
}

/* With its terminator, zero-padded to 8 bytes; @text must be far shorter than a record */
static inline void record_string(struct record *r, const char *text)
{
	record_add(r, text, strlen(text) + 1);
	while (r->size % 8)
		r->data[r->size++] = 0;
}

#endif /* PTWATCH_RECORDING_RECORD_H */
