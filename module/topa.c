// SPDX-License-Identifier: GPL-2.0
/*
 * Tables of Physical Addresses: the list of output regions, as the CPU reads it. SDM vol. 3C,
 * "Table of Physical Addresses". The CPU caches entries, so a table changes only while the CPU does
 * not trace.
 *
 * A ring has its tables twice: the first set leads into the second, and the second into itself. So
 * the table that the CPU writes through tells whether it has been round. Where a table may have one
 * entry only, which must lead back to itself, it can't.
 */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "ptwatch.h"

#define TOPA_END		BIT_ULL(0)
#define TOPA_INT		BIT_ULL(2)
#define TOPA_STOP		BIT_ULL(4)
#define TOPA_SIZE_SHIFT		6	/* 0: 4 KiB, 1: 8 KiB, … */

#define ENTRIES_PER_TABLE	(PAGE_SIZE / sizeof(u64))
#define REGIONS_PER_TABLE	(ENTRIES_PER_TABLE - 1)	/* the last entry links */

/*
 * IA32_RTIT_OUTPUT_MASK_PTRS with ToPA: bits 6:0 read as ones, entry number in 31:7, offset in the
 * region in 63:32
 */
#define MASK_PTRS_LOW		0x7fULL
#define MASK_PTRS_ENTRY_SHIFT	7
#define MASK_PTRS_ENTRY_MASK	GENMASK_ULL(31, 7)
#define MASK_PTRS_OFFSET_SHIFT	32

struct ptw_topa {
	const struct ptw_region *regions;	/* the buffer's */
	unsigned int nr_regions;
	unsigned int nr_tables;			/* of one set */
	unsigned int nr_sets;
	u64 *table[];
};

struct ptw_topa *ptw_topa_alloc(const struct ptw_region *regions, unsigned int count,
				enum ptw_topa_kind kind, int node)
{
	unsigned int nr_sets = kind == PTW_TOPA_RING && ptw_cap(PTW_CAP_TOPA_MULTIPLE_ENTRIES) ?
				       2 : 1;
	unsigned int nr_tables = DIV_ROUND_UP(count, REGIONS_PER_TABLE);
	struct ptw_topa *topa;
	unsigned int i, set;

	topa = kvzalloc_node(struct_size(topa, table, nr_sets * nr_tables), GFP_KERNEL, node);
	if (!topa)
		return NULL;
	topa->regions = regions;
	topa->nr_regions = count;
	topa->nr_tables = nr_tables;
	topa->nr_sets = nr_sets;
	for (i = 0; i < nr_sets * nr_tables; i++) {
		struct page *page = alloc_pages_node(node, GFP_KERNEL | __GFP_ZERO, 0);

		if (!page) {
			ptw_topa_free(topa);
			return NULL;
		}
		topa->table[i] = page_address(page);
	}

	for (set = 0; set < nr_sets; set++) {
		u64 **table = topa->table + set * nr_tables;

		for (i = 0; i < count; i++)
			table[i / REGIONS_PER_TABLE][i % REGIONS_PER_TABLE] =
				regions[i].base | (u64)regions[i].order << TOPA_SIZE_SHIFT |
				(kind == PTW_TOPA_RING ? 0 : TOPA_INT);
		for (i = 0; i < nr_tables; i++) {
			unsigned int used = min_t(unsigned int, REGIONS_PER_TABLE,
						  count - i * REGIONS_PER_TABLE);
			/* The last table leads to the beginning of the last set. */
			u64 *next = i + 1 < nr_tables ? table[i + 1] :
							topa->table[(nr_sets - 1) * nr_tables];

			table[i][used] = virt_to_phys(next) | TOPA_END;
		}
	}
	if (kind == PTW_TOPA_SINK)
		ptw_topa_set_stop(topa, count - 1, true);
	return topa;
}

void ptw_topa_free(struct ptw_topa *topa)
{
	unsigned int i;

	if (!topa)
		return;
	for (i = 0; i < topa->nr_sets * topa->nr_tables; i++)
		free_page((unsigned long)topa->table[i]);
	kvfree(topa);
}

void ptw_topa_seek(const struct ptw_topa *topa, unsigned int region, u64 offset,
		   struct ptw_rtit_output *output)
{
	output->base = virt_to_phys(topa->table[region / REGIONS_PER_TABLE]);
	output->mask_ptrs = MASK_PTRS_LOW |
			    (u64)(region % REGIONS_PER_TABLE) << MASK_PTRS_ENTRY_SHIFT |
			    offset << MASK_PTRS_OFFSET_SHIFT;
	output->status = 0;
}

u64 ptw_topa_offset(const struct ptw_topa *topa, const struct ptw_rtit_output *output,
		    bool *wrapped)
{
	u64 entry = (output->mask_ptrs & MASK_PTRS_ENTRY_MASK) >> MASK_PTRS_ENTRY_SHIFT;
	u64 offset = output->mask_ptrs >> MASK_PTRS_OFFSET_SHIFT;
	unsigned int i;

	for (i = 0; i < topa->nr_sets * topa->nr_tables; i++)
		if (virt_to_phys(topa->table[i]) == output->base)
			break;
	if (wrapped)
		*wrapped = i >= topa->nr_tables;
	entry += (u64)(i % topa->nr_tables) * REGIONS_PER_TABLE;
	/*
	 * An END entry that is not followed yet, or (never seen) a table that is not ours, mean the
	 * next place: behind the last region that is the ring's beginning, once more.
	 */
	if (entry >= topa->nr_regions) {
		if (wrapped)
			*wrapped = true;
		return 0;
	}
	return topa->regions[entry].offset + offset;
}

void ptw_topa_set_stop(struct ptw_topa *topa, unsigned int region, bool stop)
{
	u64 *entry = &topa->table[region / REGIONS_PER_TABLE][region % REGIONS_PER_TABLE];

	if (stop)
		*entry |= TOPA_STOP;
	else
		*entry &= ~TOPA_STOP;
}
