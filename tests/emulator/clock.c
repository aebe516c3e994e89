/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time. The TSC is QEMU's own, so that packets and the guest's RDTSC agree. The crystal clock (CTC)
 * is the TSC divided by what CPUID.15H says. Cycles are executed instructions.
 */
#include "vcpu.h"

/* Blocks between two looks at the clock while MTC is on: a look costs as much as a small block. */
#define STRIDE 16
/* Periods without MTC after which the 8 bits of an MTC become doubtful: a TSC is sent instead. */
#define MAX_MTC_GAP 100

uint64_t clock_tsc(void)
{
	return internal_ticks();
}

static uint64_t crystal(uint64_t tsc)
{
	const struct model *m = opts.model;

	return (unsigned __int128)tsc * m->tsc_denominator / m->tsc_numerator;
}

static bool mtc_on(const struct vcpu *v)
{
	return v->rtit.ctl & CTL_MTCEN && opts.model->tsc_numerator;
}

void clock_start(struct vcpu *v)
{
	v->clock.cyc_base = executed(v);
	v->clock.stride = 0;
	v->clock.last_mtc = 0;
	if (mtc_on(v))
		v->clock.last_mtc = crystal(clock_tsc()) >> CTL_MTCFREQ(v->rtit.ctl);
}

void clock_tsc_packets(struct vcpu *v)
{
	const struct model *m = opts.model;
	uint64_t tsc, ctc;

	if (!(v->rtit.ctl & CTL_TSCEN))
		return;
	tsc = clock_tsc();
	packet_tsc(&v->writer, tsc);
	if (!mtc_on(v))
		return;
	ctc = crystal(tsc);
	/* The fast counter: TSC ticks since the crystal's last tick. */
	packet_tma(&v->writer, ctc, tsc - ctc * m->tsc_numerator / m->tsc_denominator);
	v->clock.last_mtc = ctc >> CTL_MTCFREQ(v->rtit.ctl);
}

void clock_drop_cyc(struct vcpu *v)
{
	v->clock.cyc_base = executed(v);
}

void clock_tick(struct vcpu *v)
{
	uint64_t now;

	if (!mtc_on(v) || v->clock.stride++ % STRIDE)
		return;
	now = crystal(clock_tsc()) >> CTL_MTCFREQ(v->rtit.ctl);
	if (now == v->clock.last_mtc)
		return;
	if (now - v->clock.last_mtc > MAX_MTC_GAP && v->rtit.ctl & CTL_TSCEN) {
		clock_tsc_packets(v);
		return;
	}
	v->clock.last_mtc = now;
	packet_mtc(&v->writer, now);
}

void clock_stamp(void *opaque)
{
	struct vcpu *v = opaque;
	unsigned int threshold = CTL_CYCTHRESH(v->rtit.ctl);
	uint64_t cycles;

	if (!(v->rtit.ctl & CTL_CYCEN))
		return;
	cycles = executed(v) - v->clock.cyc_base;
	if (threshold && cycles < 1ULL << (threshold - 1))
		return;
	v->clock.cyc_base += cycles;
	packet_cyc(&v->writer, cycles);
}
