/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The output engine: writes packet bytes to the guest's physical memory through a Table of Physical
 * Addresses or into a single range (SDM, "Trace Output"). No dependency on QEMU.
 */
#ifndef TOPA_H
#define TOPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Table entry bits. */
#define TOPA_ENTRY_END		(1ULL << 0)
#define TOPA_ENTRY_INT		(1ULL << 2)
#define TOPA_ENTRY_STOP		(1ULL << 4)
#define TOPA_ENTRY_SIZE_SHIFT	6	/* 4 bits: 4 KiB << n */

/*
 * With single-entry support a table is one region and an END entry that points back to the table. All else is an
 * operational error. The interrupt of the region comes this many bytes before it is full, so that software can
 * stop the trace before the region is written over.
 */
#define TOPA_EARLY_INT	256

/* What happened during topa_start() or topa_write(); may be combined. */
enum topa_event {
	TOPA_EVENT_INT = 1,	/* a region with INT filled up: raise the PMI */
	TOPA_EVENT_STOP = 2,	/* a region with STOP filled up: set STATUS.Stopped */
	TOPA_EVENT_ERROR = 4,	/* operational error: set STATUS.Error */
};

/* Access to the guest's physical memory; 0 is success. */
struct topa_memory {
	int (*read)(void *opaque, uint64_t pa, void *data, size_t len);
	int (*write)(void *opaque, uint64_t pa, const void *data, size_t len);
	void *opaque;
};

struct topa {
	/* IA32_RTIT_OUTPUT_BASE and IA32_RTIT_OUTPUT_MASK_PTRS, always up to date. */
	uint64_t base;
	uint64_t mask_ptrs;
	/* The state of a running trace. */
	bool single;		/* single range instead of a table */
	unsigned int phys_bits;	/* MAXPHYADDR */
	bool single_entry;	/* CPUID.14H.0:ECX[1] is 0 */
	uint64_t entry;		/* the current table entry: the CPU caches it, so do we */
	const struct topa_memory *mem;
};

/*
 * Begin (TraceEn 0 -> 1): check the registers and read the current entry.
 * Returns TOPA_EVENT_ERROR or 0.
 */
unsigned int topa_start(struct topa *t, bool single);

/*
 * Write len bytes. Returns the events. After STOP or ERROR the rest is lost; don't call again
 * before the next topa_start().
 */
unsigned int topa_write(struct topa *t, const void *data, size_t len);

#endif /* TOPA_H */
