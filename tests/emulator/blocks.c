/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of what the instrumentation of translated blocks needs: it goes when QEMU throws all translations away,
 * which it does when its buffer is full, and for us when tracing begins or has ended.
 */
#include "vcpu.h"

#include <string.h>

static struct {
	GMutex lock;		/* CPUs translate in parallel */
	GPtrArray *all;
} memory;

void *block_alloc(size_t size)
{
	void *p = g_malloc0(size);

	g_mutex_lock(&memory.lock);
	g_ptr_array_add(memory.all, p);
	g_mutex_unlock(&memory.lock);
	return p;
}

static struct block *keep(const struct block *b)
{
	size_t size = b->n * sizeof(b->off[0]);
	struct block *copy = block_alloc(sizeof(*b) + size);

	memcpy(copy, b, sizeof(*b) + size);
	if (b->counted) {
		copy->counted = block_alloc(size);
		memcpy(copy->counted, b->counted, size);
	}
	return copy;
}

/* No CPU is executing. What they have begun last is still looked at, at their next block or discontinuity. */
static void on_flush(void *opaque)
{
	GPtrArray *old = memory.all;

	(void)opaque;
	instrument_flushed();
	memory.all = g_ptr_array_new_with_free_func(g_free);
	for (unsigned int i = 0; i < vcpu_count(); i++) {
		struct vcpu *v = vcpu_get(i);
		const struct block *begun = (struct block *)(uintptr_t)v->hot->begun, *traced = v->flow.block;
		bool branched = v->hot->branched;

		if (begun)
			v->hot->begun = (uintptr_t)keep(begun);
		if (traced)
			v->flow.block = traced == begun ? (struct block *)(uintptr_t)v->hot->begun : keep(traced);
		/* Nobody asks about the branch of another block. */
		if (branched)
			v->hot->branched = v->hot->branched == (uintptr_t)traced ? (uintptr_t)v->flow.block : 0;
	}
	g_ptr_array_free(old, TRUE);
}

void blocks_init(qemu_plugin_id_t id)
{
	memory.all = g_ptr_array_new_with_free_func(g_free);
	qemu_plugin_register_flush_cb(id, on_flush, NULL);
}
