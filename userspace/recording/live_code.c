// SPDX-License-Identifier: BSD-2-Clause
#include "recording/live_code.h"

#include <stdlib.h>
#include <string.h>

#define PAGE	4096ULL
#define RUN_GAP	16	/* equal bytes between two changes that are told as one */

struct live_page {
	uint64_t addr;
	uint8_t bytes[PAGE];
};

/* Where the page at @addr is, or would be */
static size_t find_page(const struct live_code *live, uint64_t addr)
{
	size_t low = 0, high = live->pages;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (live->page[mid]->addr < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct live_page *known_page(const struct live_code *live, uint64_t addr)
{
	size_t i = find_page(live, addr);

	return i < live->pages && live->page[i]->addr == addr ? live->page[i] : NULL;
}

/* A page whose bytes the caller fills */
static struct live_page *new_page(struct live_code *live, uint64_t addr)
{
	struct live_page **grown = reallocarray(live->page, live->pages + 1, sizeof(*grown));
	struct live_page *page = grown ? malloc(sizeof(*page)) : NULL;
	size_t i;

	if (grown)
		live->page = grown;
	if (!page)
		return NULL;
	page->addr = addr;
	i = find_page(live, addr);
	memmove(live->page + i + 1, live->page + i, (live->pages - i) * sizeof(*live->page));
	live->page[i] = page;
	live->pages++;
	return page;
}

void live_code_take(struct live_code *live, const char *dir, const struct record *record)
{
	uint16_t old_size, new_size;
	const uint8_t *bytes;
	uint64_t addr;

	/* struct { header; u64 addr; u16 old_len; u16 new_len; u8 bytes[]; } */
	if (record->size < 20)
		return;
	memcpy(&addr, record->data + 8, sizeof(addr));
	memcpy(&old_size, record->data + 16, sizeof(old_size));
	memcpy(&new_size, record->data + 18, sizeof(new_size));
	if (record->size < 20UL + old_size + new_size)
		return;
	bytes = record->data + 20 + old_size;
	for (size_t done = 0, n; done < new_size; done += n) {
		uint64_t at = addr + done, start = at & ~(PAGE - 1);
		struct live_page *page = known_page(live, start);
		uint8_t copy[PAGE];

		n = start + PAGE - at < new_size - done ? start + PAGE - at : new_size - done;
		if (!page) {
			if (ptw_kernel_read(dir, start, copy, PAGE, NULL))
				continue;
			page = new_page(live, start);
			if (!page)
				return;
			memcpy(page->bytes, copy, PAGE);
		}
		memcpy(page->bytes + (at - start), bytes + done, n);
	}
}

/* ---- comparing ---- */

struct comparison {
	struct live_code *live;
	int (*poke)(void *arg, struct record *record, struct ptw_error *err);
	void *arg;
	struct record record;
};

static int tell_run(struct comparison *c, uint64_t addr, const uint8_t *was, const uint8_t *is, uint16_t size,
		    struct ptw_error *err)
{
	struct record *r = &c->record;

	record_begin(r, PERF_RECORD_TEXT_POKE, PERF_RECORD_MISC_KERNEL);
	record_u64(r, addr);
	record_add(r, &size, sizeof(size));
	record_add(r, &size, sizeof(size));
	record_add(r, was, size);
	record_add(r, is, size);
	while (r->size % 8)
		r->data[r->size++] = 0;
	return c->poke(c->arg, r, err);
}

static int compare_page(void *arg, uint64_t addr, const uint8_t *copy, const uint8_t *is, struct ptw_error *err)
{
	struct comparison *c = arg;
	struct live_page *page = known_page(c->live, addr);
	const uint8_t *was = page ? page->bytes : copy;

	if (!memcmp(was, is, PAGE))
		return 0;
	for (size_t i = 0, end; i < PAGE; i = end) {
		end = i + 1;
		if (was[i] == is[i])
			continue;
		for (size_t j = end; j < PAGE && j - end < RUN_GAP; j++)
			if (was[j] != is[j])
				end = j + 1;
		if (tell_run(c, addr + i, was + i, is + i, end - i, err))
			return -1;
	}
	if (!page)
		page = new_page(c->live, addr);
	if (page)
		memcpy(page->bytes, is, PAGE);
	return 0;
}

int live_code_compare(struct live_code *live, const char *proc, const char *dir, const struct ptw_kernel_layout *layout,
		      int (*poke)(void *arg, struct record *record, struct ptw_error *err), void *arg, struct ptw_error *err)
{
	struct comparison c = { .live = live, .poke = poke, .arg = arg };

	return ptw_kernel_compare(proc, dir, layout, compare_page, &c, err);
}

void live_code_free(struct live_code *live)
{
	for (size_t i = 0; i < live->pages; i++)
		free(live->page[i]);
	free(live->page);
	*live = (struct live_code){ 0 };
}
