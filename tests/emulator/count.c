/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters for measurements inside the guest: executed instructions by CPU and privilege, packet bytes, PMIs.
 * The guest reads them by RDMSR of COUNT_MSR + n, and user programs, too, by CPUID of leaf COUNT_LEAF with n
 * in ECX, in EDX:EAX. n is below; n | COUNT_BETWEEN is what was counted between the marks last set, by
 * WRMSR of any value to COUNT_MSR + COUNT_BEGIN and COUNT_END, or by CPUID. The marks themselves are not
 * counted, so what reading and printing costs is in no result. A read without marks includes the instruction
 * that reads: of two reads, the difference is what came after the first, up to and with the second.
 *
 * Counting begins with the first of all these: instructions before it are in no count.
 *
 * There is one pair of marks for all CPUs. What other CPUs than the marking one count there is what they
 * had executed at that moment, to a translated block.
 */
#include "vcpu.h"

#include <string.h>

struct counts {
	uint64_t insns[2];
	uint64_t bytes, pmis;
	uint64_t classes[PACKET_CLASSES];
};

static struct {
	GMutex lock;
	bool begun;
	struct counts from[MAX_VCPUS], between[MAX_VCPUS];
} marks;

static void collect(const struct vcpu *v, struct counts *c)
{
	for (int kernel = 0; kernel < 2; kernel++)
		c->insns[kernel] = executed_by(v, kernel);
	c->bytes = v->writer.total;
	c->pmis = v->n_pmi;
	memcpy(c->classes, v->writer.bytes, sizeof(c->classes));
}

static void subtract(struct counts *to, const struct counts *from)
{
	for (int kernel = 0; kernel < 2; kernel++)
		to->insns[kernel] -= from->insns[kernel];
	to->bytes -= from->bytes;
	to->pmis -= from->pmis;
	for (int i = 0; i < PACKET_CLASSES; i++)
		to->classes[i] -= from->classes[i];
}

static void mark(struct vcpu *v, bool kernel, bool end)
{
	g_mutex_lock(&marks.lock);
	for (unsigned int i = 0; i < vcpu_count(); i++) {
		struct counts *c = end ? &marks.between[i] : &marks.from[i];

		collect(vcpu_get(i), c);
		if (end && i == v->index)
			c->insns[kernel]--;
		if (end)
			subtract(c, &marks.from[i]);
		else
			memset(&marks.between[i], 0, sizeof(marks.between[i]));
	}
	marks.begun = !end;
	g_mutex_unlock(&marks.lock);
}

bool count_mark(struct vcpu *v, bool kernel, uint32_t what)
{
	if (what != COUNT_BEGIN && what != COUNT_END)
		return false;
	instrument_count(v);
	if (what == COUNT_BEGIN || marks.begun)
		mark(v, kernel, what == COUNT_END);
	return true;
}

static uint64_t select_count(const struct counts *c, uint32_t what)
{
	switch (what) {
	case COUNT_PMIS:
		return c->pmis;
	case COUNT_KERNEL: case COUNT_ALL_KERNEL:
		return c->insns[1];
	case COUNT_USER: case COUNT_ALL_USER:
		return c->insns[0];
	case COUNT_BYTES: case COUNT_ALL_BYTES:
		return c->bytes;
	}
	return c->classes[what - COUNT_CLASS0];
}

static bool exists(uint32_t what)
{
	return what == COUNT_PMIS || (what >= COUNT_KERNEL && what <= COUNT_ALL_BYTES) ||
	       (what >= COUNT_CLASS0 && what < COUNT_CLASS0 + PACKET_CLASSES);
}

/* Of this CPU alone. */
static bool is_own(uint32_t what)
{
	return what == COUNT_PMIS || what == COUNT_KERNEL || what == COUNT_USER || what == COUNT_BYTES;
}

bool count_read(struct vcpu *v, uint32_t what, uint64_t *value)
{
	bool between = what & COUNT_BETWEEN;
	struct counts c;

	what &= ~COUNT_BETWEEN;
	if (!exists(what))
		return false;
	*value = 0;
	instrument_count(v);
	g_mutex_lock(&marks.lock);
	for (unsigned int i = 0; i < vcpu_count(); i++) {
		if (is_own(what) && i != v->index)
			continue;
		if (between)
			c = marks.between[i];
		else
			collect(vcpu_get(i), &c);
		*value += select_count(&c, what);
	}
	g_mutex_unlock(&marks.lock);
	return true;
}
