// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that a CPU writes its trace to or that tells about it, and how user space sees it:
 * read-only, page by page, refcounted. Nothing copies it: what is mapped is what the CPU writes.
 */
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/topology.h>
#include <linux/vmalloc.h>

#include "ptwatch.h"

/* The ToPA size field reaches 128 MiB (4 KiB << 15), more than the page allocator gives. */
#define MAX_REGION_ORDER min_t(unsigned int, MAX_PAGE_ORDER, 15)

/* The offsets of mmap leave that much for each bank. */
#define MAX_SIZE	(1ULL << 35)

u64 ptw_buffer_max_size(void)
{
	/*
	 * All CPUs together get at most half of the memory: a trace must not bring the machine
	 * down.
	 */
	u64 share = ((u64)totalram_pages() << PAGE_SHIFT) / 2 / num_possible_cpus();

	/* One entry, one region: no larger than the page allocator gives. */
	if (!ptw_cap(PTW_CAP_TOPA_MULTIPLE_ENTRIES))
		return min_t(u64, rounddown_pow_of_two(share), PAGE_SIZE << MAX_REGION_ORDER);
	return round_down(min_t(u64, share, MAX_SIZE), PAGE_SIZE);
}

static void free_pages_from(struct ptw_buffer *buffer)
{
	unsigned long i;

	/*
	 * Pages that a dying mapping still holds are freed by it: each has its own reference count.
	 */
	for (i = 0; i < buffer->nr_pages && buffer->pages[i]; i++)
		put_page(buffer->pages[i]);
}

static void buffer_free(struct kref *kref)
{
	struct ptw_buffer *buffer = container_of(kref, struct ptw_buffer, kref);

	ptw_topa_free(buffer->topa);
	vunmap(buffer->address);
	if (buffer->pages)
		free_pages_from(buffer);
	kvfree(buffer->regions);
	kvfree(buffer->pages);
	kfree(buffer);
}

void ptw_buffer_get(struct ptw_buffer *buffer)
{
	kref_get(&buffer->kref);
}

void ptw_buffer_put(struct ptw_buffer *buffer)
{
	if (buffer)
		kref_put(&buffer->kref, buffer_free);
}

/*
 * Largest regions first, smaller ones where memory is fragmented; pages are split so that mappings
 * can refcount them.
 */
static int fill_with_regions(struct ptw_buffer *buffer, unsigned int order, int node)
{
	/*
	 * This may be half of the memory, and mappings keep it after the trace is gone: charged to
	 * the cgroup of who asks, and ENOMEM instead of the OOM killer.
	 */
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	unsigned long done = 0;

	while (done < buffer->nr_pages) {
		struct ptw_region *region = &buffer->regions[buffer->nr_regions];
		struct page *page;
		unsigned long i;

		while (order && BIT(order) > buffer->nr_pages - done)
			order--;
		page = alloc_pages_node(node, gfp | (order ? __GFP_NORETRY : __GFP_RETRY_MAYFAIL),
					order);
		if (!page) {
			if (!order)
				return -ENOMEM;
			order--;
			continue;
		}
		if (order)
			split_page(page, order);
		region->base = page_to_phys(page);
		region->offset = (u64)done << PAGE_SHIFT;
		region->order = order;
		buffer->nr_regions++;
		for (i = 0; i < BIT(order); i++)
			buffer->pages[done++] = page + i;
	}
	return 0;
}

static struct ptw_buffer *alloc_pages_for(unsigned int cpu, u64 size, unsigned int order)
{
	int node = cpu_to_node(cpu);
	struct ptw_buffer *buffer;

	buffer = kzalloc_node(sizeof(*buffer), GFP_KERNEL, node);
	if (!buffer)
		return NULL;
	kref_init(&buffer->kref);
	buffer->size = size;
	buffer->nr_pages = size >> PAGE_SHIFT;
	buffer->pages = kvcalloc(buffer->nr_pages, sizeof(*buffer->pages), GFP_KERNEL_ACCOUNT);
	buffer->regions = kvcalloc(buffer->nr_pages, sizeof(*buffer->regions),
				   GFP_KERNEL_ACCOUNT);
	if (!buffer->pages || !buffer->regions || fill_with_regions(buffer, order, node)) {
		ptw_buffer_put(buffer);
		return NULL;
	}
	return buffer;
}

struct ptw_buffer *ptw_buffer_alloc(unsigned int cpu, u64 size)
{
	struct ptw_buffer *buffer = alloc_pages_for(cpu, size, 0);

	if (!buffer)
		return NULL;
	buffer->address = vmap(buffer->pages, buffer->nr_pages, VM_MAP, PAGE_KERNEL);
	if (!buffer->address) {
		ptw_buffer_put(buffer);
		return NULL;
	}
	return buffer;
}

struct ptw_buffer *ptw_buffer_alloc_output(unsigned int cpu, u64 size, u64 region_size,
					   enum ptw_topa_kind kind)
{
	unsigned int order = MAX_REGION_ORDER;
	struct ptw_buffer *buffer;

	if (region_size)
		order = min_t(unsigned int, order, ilog2(region_size) - PAGE_SHIFT);
	buffer = alloc_pages_for(cpu, size, order);
	if (!buffer)
		return NULL;
	/* Memory is too fragmented for a CPU that takes one region only. */
	if (buffer->nr_regions > 1 && !ptw_cap(PTW_CAP_TOPA_MULTIPLE_ENTRIES))
		goto fail;
	buffer->topa = ptw_topa_alloc(buffer->regions, buffer->nr_regions, kind, cpu_to_node(cpu));
	if (!buffer->topa)
		goto fail;
	return buffer;

fail:
	ptw_buffer_put(buffer);
	return NULL;
}

unsigned int ptw_buffer_region(const struct ptw_buffer *buffer, u64 offset)
{
	unsigned int low = 0, high = buffer->nr_regions - 1;

	/* The last region that does not begin behind offset. */
	while (low < high) {
		unsigned int middle = (low + high + 1) / 2;

		if (buffer->regions[middle].offset <= offset)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

bool ptw_buffer_written_at(const struct ptw_buffer *buffer, u64 head)
{
	/*
	 * The CPU does not tell whether it has been round the ring. The memory does: it was zero,
	 * and a page that was written cannot be all zero, because no packet but PAD is, and PAD
	 * does not fill pages. Looking at one page's worth of bytes from head on (or to the end:
	 * then what is overlooked is less than a page of zeros) is enough.
	 */
	u64 end = min(head + PAGE_SIZE, buffer->size);

	while (head < end) {
		const char *page = page_address(buffer->pages[head >> PAGE_SHIFT]);
		u64 in_page = offset_in_page(head);
		u64 len = min(end - head, PAGE_SIZE - in_page);

		if (memchr_inv(page + in_page, 0, len))
			return true;
		head += len;
	}
	return false;
}

static vm_fault_t mapping_fault(struct vm_fault *vmf)
{
	struct ptw_buffer *buffer = vmf->vma->vm_private_data;
	unsigned long page = (vmf->address - vmf->vma->vm_start) >> PAGE_SHIFT;

	if (page >= buffer->nr_pages)
		return VM_FAULT_SIGBUS;
	vmf->page = buffer->pages[page];
	get_page(vmf->page);
	return 0;
}

static void mapping_open(struct vm_area_struct *vma)
{
	ptw_buffer_get(vma->vm_private_data);
}

static void mapping_close(struct vm_area_struct *vma)
{
	ptw_buffer_put(vma->vm_private_data);
}

/* Splitting would shift the part behind the cut to the buffer's start. */
static int mapping_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return -EINVAL;
}

static const struct vm_operations_struct mapping_vm_ops = {
	.open = mapping_open,
	.close = mapping_close,
	.may_split = mapping_may_split,
	.fault = mapping_fault,
};

int ptw_buffer_mmap(struct ptw_buffer *buffer, struct vm_area_struct *vma)
{
	unsigned long size = vma->vm_end - vma->vm_start;

	/* Not VM_SHARED, which a shared mapping of a file opened for reading only does not have. */
	if (!(vma->vm_flags & VM_MAYSHARE) || size > buffer->size)
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE | VM_MAYEXEC);
	ptw_buffer_get(buffer);
	vma->vm_private_data = buffer;
	vma->vm_ops = &mapping_vm_ops;
	return 0;
}
