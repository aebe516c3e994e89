// SPDX-License-Identifier: GPL-2.0
/*
 * Tables of Physical Addresses: the list of output regions, as the CPU reads it. SDM vol. 3C,
 * "Table of Physical Addresses". The CPU caches entries, so a table never changes once it was given
 * to the CPU.
 */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "ptwatch.h"

#define TOPA_END		BIT_ULL(0)
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
	unsigned int nr_tables;
	u64 *table[];
};

struct ptw_topa *ptw_topa_alloc(const struct ptw_region *regions, unsigned int count, int node)
{
	unsigned int nr_tables = DIV_ROUND_UP(count, REGIONS_PER_TABLE);
	struct ptw_topa *topa;
	unsigned int i;

	topa = kzalloc_node(struct_size(topa, table, nr_tables), GFP_KERNEL, node);
	if (!topa)
		return NULL;
	topa->regions = regions;
	topa->nr_regions = count;
	topa->nr_tables = nr_tables;
	for (i = 0; i < nr_tables; i++) {
		struct page *page = alloc_pages_node(node, GFP_KERNEL | __GFP_ZERO, 0);

		if (!page) {
			ptw_topa_free(topa);
			return NULL;
		}
		topa->table[i] = page_address(page);
	}

	for (i = 0; i < count; i++)
		topa->table[i / REGIONS_PER_TABLE][i % REGIONS_PER_TABLE] =
			regions[i].base | (u64)regions[i].order << TOPA_SIZE_SHIFT;
	for (i = 0; i < nr_tables; i++) {
		unsigned int used = min_t(unsigned int, REGIONS_PER_TABLE,
					  count - i * REGIONS_PER_TABLE);

		topa->table[i][used] = virt_to_phys(topa->table[(i + 1) % nr_tables]) | TOPA_END;
	}
	return topa;
}

void ptw_topa_free(struct ptw_topa *topa)
{
	unsigned int i;

	if (!topa)
		return;
	for (i = 0; i < topa->nr_tables; i++)
		free_page((unsigned long)topa->table[i]);
	kfree(topa);
}

void ptw_topa_first(const struct ptw_topa *topa, struct ptw_rtit_output *output)
{
	output->base = virt_to_phys(topa->table[0]);
	output->mask_ptrs = MASK_PTRS_LOW;
	output->status = 0;
}

u64 ptw_topa_offset(const struct ptw_topa *topa, const struct ptw_rtit_output *output)
{
	u64 entry = (output->mask_ptrs & MASK_PTRS_ENTRY_MASK) >> MASK_PTRS_ENTRY_SHIFT;
	u64 offset = output->mask_ptrs >> MASK_PTRS_OFFSET_SHIFT;
	unsigned int i;

	for (i = 0; i < topa->nr_tables; i++)
		if (virt_to_phys(topa->table[i]) == output->base)
			break;
	/*
	 * An END entry that is not followed yet, or (never seen) a table that is not ours, mean the
	 * ring's next place.
	 */
	entry += (u64)i * REGIONS_PER_TABLE;
	if (entry >= topa->nr_regions)
		return 0;
	return topa->regions[entry].offset + offset;
}
