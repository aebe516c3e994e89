/* SPDX-License-Identifier: BSD-2-Clause */
#include "topa.h"

#define PAGE_MASK 0xfffULL
/* Bits 1, 3, 5, 10 and 11 of an entry are reserved. */
#define ENTRY_RESERVED 0xc2aULL
/* IA32_RTIT_OUTPUT_MASK_PTRS: bits 6:0 read as ones, 31:7 table index, 63:32 offset. */
#define PTRS_LOW 0x7fULL

static uint64_t table_index(const struct topa *t)
{
	return (t->mask_ptrs & 0xffffffff) >> 7;
}

static uint64_t offset(const struct topa *t)
{
	return t->mask_ptrs >> 32;
}

static void set_ptrs(struct topa *t, uint64_t index, uint64_t off)
{
	t->mask_ptrs = off << 32 | index << 7 | PTRS_LOW;
}

static uint64_t entry_address(const struct topa *t)
{
	return t->entry & ~PAGE_MASK;
}

static uint64_t entry_size(const struct topa *t)
{
	return 4096ULL << ((t->entry >> TOPA_ENTRY_SIZE_SHIFT) & 0xf);
}

/* Read the entry that base and index point to, following END to the next table. */
static unsigned int load_entry(struct topa *t)
{
	for (;;) {
		uint64_t index = table_index(t);

		if (t->mem->read(t->mem->opaque, (t->base & ~PAGE_MASK) + index * 8, &t->entry, 8))
			return TOPA_EVENT_ERROR;
		if (t->entry & ENTRY_RESERVED || t->entry >> t->phys_bits)
			return TOPA_EVENT_ERROR;
		if (!(t->entry & TOPA_ENTRY_END))
			break;
		/* INT and STOP with END, and a table that begins with END, are errors. */
		if (t->entry & (TOPA_ENTRY_INT | TOPA_ENTRY_STOP) || !index)
			return TOPA_EVENT_ERROR;
		if (t->single_entry && (index != 1 || entry_address(t) != (t->base & ~PAGE_MASK)))
			return TOPA_EVENT_ERROR;
		t->base = entry_address(t);
		set_ptrs(t, 0, offset(t));
	}
	if (t->single_entry && table_index(t))
		return TOPA_EVENT_ERROR;
	return entry_address(t) & (entry_size(t) - 1) ? TOPA_EVENT_ERROR : 0;
}

unsigned int topa_start(struct topa *t, bool single)
{
	uint64_t mask = t->mask_ptrs & 0xffffffff;
	unsigned int events;

	t->single = single;
	if (single) {
		/* The mask must be ones from the bottom, the base aligned to it. */
		if (mask & (mask + 1) || t->base & mask || offset(t) > mask)
			return TOPA_EVENT_ERROR;
		return 0;
	}
	if (t->base & PAGE_MASK)
		return TOPA_EVENT_ERROR;
	events = load_entry(t);
	if (!events && offset(t) >= entry_size(t))
		events = TOPA_EVENT_ERROR;
	return events;
}

static unsigned int write_single(struct topa *t, const uint8_t *data, size_t len)
{
	uint64_t size = (t->mask_ptrs & 0xffffffff) + 1;

	while (len) {
		uint64_t off = offset(t);
		size_t n = len < size - off ? len : size - off;

		if (t->mem->write(t->mem->opaque, t->base + off, data, n))
			return TOPA_EVENT_ERROR;
		off = (off + n) % size;
		t->mask_ptrs = off << 32 | (size - 1);
		data += n;
		len -= n;
	}
	return 0;
}

/* Whether n bytes from off on reach the offset to. */
static bool reaches(uint64_t off, size_t n, uint64_t to)
{
	return off < to && off + n >= to;
}

unsigned int topa_write(struct topa *t, const void *bytes, size_t len)
{
	const uint8_t *data = bytes;
	unsigned int events = 0;

	if (t->single)
		return write_single(t, data, len);
	while (len) {
		uint64_t off = offset(t), size = entry_size(t);
		size_t n = len < size - off ? len : size - off;

		if (t->mem->write(t->mem->opaque, entry_address(t) + off, data, n))
			return events | TOPA_EVENT_ERROR;
		data += n;
		len -= n;
		if (t->entry & TOPA_ENTRY_INT && reaches(off, n, t->single_entry ? size - TOPA_EARLY_INT : size))
			events |= TOPA_EVENT_INT;
		off += n;
		if (off < size) {
			set_ptrs(t, table_index(t), off);
			continue;
		}
		if (t->entry & TOPA_ENTRY_STOP) {
			/* The pointers stay at the region's end: software must advance them. */
			set_ptrs(t, table_index(t), size);
			return events | TOPA_EVENT_STOP;
		}
		set_ptrs(t, table_index(t) + 1, 0);
		if (load_entry(t))
			return events | TOPA_EVENT_ERROR;
	}
	return events;
}
