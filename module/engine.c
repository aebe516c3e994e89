// SPDX-License-Identifier: GPL-2.0
/*
 * Tracing on one CPU, seen from that CPU: one place that turns it on and off.
 *
 * Four kinds of code want something of it, each able to interrupt those before it: the probe of
 * sched_switch and the IPIs of start, stop and the like (IRQs off); #DB handlers, for watches; the
 * NMI handler of the ToPA interrupt. None of them touches the hardware by itself. They note what
 * they want in struct ptw_cpu_trace and call ptw_engine_sync(), which runs passes: a pass compares
 * what is wanted with what is, stops, collects and starts. A sync that finds a pass under way has
 * interrupted it, on this CPU: it says "again" and returns, and the one it interrupted makes
 * another pass when it is done. So the MSRs are in the hands of one pass at a time, and none of the
 * others has to wait. Interrupts nest like brackets, so compiler barriers are enough.
 *
 * Other CPUs see @state and bank states, which are stored with release after what they stand for.
 */
#include <linux/bitops.h>
#include <linux/compiler.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <asm/barrier.h>
#include <asm/msr.h>

#include "ptwatch.h"

DEFINE_PER_CPU(struct ptw_cpu_trace *, ptw_owner);

/* The machine goes down, set once: nobody may start what ptw_trace_halt() stopped. */
static bool halted;

static bool should_run(const struct ptw_cpu_trace *ct)
{
	return READ_ONCE(ct->state) == PTWATCH_STATE_RUNNING && READ_ONCE(ct->on_task) &&
	       !READ_ONCE(ct->paused) && !ct->range_stop && !READ_ONCE(halted);
}

static void stopped_by_range(struct ptw_cpu_trace *ct, bool stopped)
{
	ct->range_stop = stopped;
	if (stopped)
		ct->flags |= PTWATCH_CONTROL_STOPPED;
	else
		ct->flags &= ~PTWATCH_CONTROL_STOPPED;
}

static void stop(struct ptw_cpu_trace *ct)
{
	if (!ptw_rtit_stop(&ct->output))
		ct->flags |= PTWATCH_CONTROL_VMX;
	WRITE_ONCE(ct->enabled, false);
	ct->parked = false;
	ct->stops++;
	if (ct->stream.sink)
		ptw_stream_collect(ct);
	if (unlikely(ct->output.status & (RTIT_STATUS_STOPPED | RTIT_STATUS_ERROR))) {
		if (ct->output.status & RTIT_STATUS_ERROR)
			smp_store_release(&ct->state, PTWATCH_STATE_ERROR);
		/* A stream that overran its buffer goes on: that is told elsewhere. */
		else if (!ct->stream.overrun)
			stopped_by_range(ct, true);
	}
}

/*
 * A trace that is switched with the task, or by watches, stops and starts often. Nobody looks at
 * @output meanwhile: who wants to know makes a request, or changes @state, and gets a stop().
 */
static void park(struct ptw_cpu_trace *ct)
{
	if (unlikely(ptw_caps_vmx_excludes()) || !ptw_rtit_pause()) {
		stop(ct);
		return;
	}
	WRITE_ONCE(ct->enabled, false);
	ct->parked = true;
}

static void start(struct ptw_cpu_trace *ct)
{
	int error;

	if (ct->parked) {
		error = ptw_rtit_resume(&ct->config);
		if (unlikely(error))
			stop(ct);
		ct->parked = false;
	} else {
		if (ct->stream.sink)
			ptw_stream_prepare(ct);
		error = ptw_caps_vmx_conflict() ||
			ptw_rtit_start(&ct->output, &ct->config, !ct->loaded);
	}
	if (unlikely(error)) {
		smp_store_release(&ct->state, PTWATCH_STATE_ERROR);
		return;
	}
	ct->loaded = true;
	WRITE_ONCE(ct->enabled, true);
}

static void take_config(struct ptw_cpu_trace *ct)
{
	/*
	 * ptw_config_lock is held by who changes it, until every CPU was here. Another CPU's exec
	 * may bring us here amid such a change: harmless, as addresses are written before they are
	 * switched on, and we will be here again.
	 */
	ct->config = ct->trace->config;
	if (ct->config.ctl & RTIT_CTL_CR3EN)
		ct->config.cr3_match = ptw_target_cr3(ct->trace->target);
	ct->loaded = false;
}

/* Pairs with the release in ptw_trace_bank_free(): what was read from it, was read. */
static struct ptw_bank *free_bank(struct ptw_cpu_trace *ct)
{
	unsigned int i;

	for (i = 1; i < ct->nr_banks; i++) {
		struct ptw_bank *bank = &ct->banks[(ct->bank + i) % ct->nr_banks];

		if (smp_load_acquire(&bank->state) == PTWATCH_BANK_FREE)
			return bank;
	}
	return NULL;
}

static void use_bank(struct ptw_cpu_trace *ct, struct ptw_bank *bank)
{
	ptw_topa_seek(bank->buffer->topa, 0, 0, &ct->output);
	bank->start_tsc = rdtsc();
	bank->freeze_seq = 0;
	stopped_by_range(ct, false);
	WRITE_ONCE(bank->state, PTWATCH_BANK_ACTIVE);
	WRITE_ONCE(ct->bank, bank - ct->banks);
}

static void freeze(struct ptw_cpu_trace *ct)
{
	struct ptw_bank *bank = &ct->banks[ct->bank];
	struct ptw_bank *next = free_bank(ct);

	/* The range on the #DB entry is how we freeze, and no end of the trace by itself. */
	if (this_cpu_read(ptw_early.hardware)) {
		stopped_by_range(ct, false);
		ct->output.status &= ~RTIT_STATUS_STOPPED;
	}
	bank->output = ct->output;
	bank->stop_tsc = ct->freeze_tsc;
	ct->stop_tsc = ct->freeze_tsc;
	/*
	 * After output: whoever sees FROZEN on another CPU finds it complete. Both pair with the
	 * acquires in trace.c, before it publishes.
	 */
	if (ct->nr_banks > 1)
		smp_store_release(&bank->state, PTWATCH_BANK_FROZEN);
	if (next)
		use_bank(ct, next);
	else
		smp_store_release(&ct->state, PTWATCH_STATE_FROZEN);
}

static void pass(struct ptw_cpu_trace *ct)
{
	unsigned long requests = xchg(&ct->requests, 0);

	if (unlikely(requests) || READ_ONCE(ct->state) != PTWATCH_STATE_RUNNING) {
		if (ct->enabled || ct->parked)
			stop(ct);
	} else if (ct->enabled && !should_run(ct)) {
		park(ct);
	}
	if (unlikely(requests)) {
		if (requests & BIT(PTW_REQUEST_CONFIG))
			take_config(ct);
		if (requests & BIT(PTW_REQUEST_RESUME))
			stopped_by_range(ct, false);
		if (requests & BIT(PTW_REQUEST_FREEZE) &&
		    READ_ONCE(ct->state) == PTWATCH_STATE_RUNNING)
			freeze(ct);
	}
	if (!ct->enabled && should_run(ct))
		start(ct);
}

void ptw_engine_sync(struct ptw_cpu_trace *ct)
{
	do {
		if (READ_ONCE(ct->busy)) {
			WRITE_ONCE(ct->again, true);
			return;
		}
		WRITE_ONCE(ct->busy, true);
		WRITE_ONCE(ct->again, false);
		/* What an interrupter noted before it said "again" is looked at after that. */
		barrier();
		pass(ct);
		barrier();
		WRITE_ONCE(ct->busy, false);
		/*
		 * Who interrupts from here on finds nobody busy and makes the pass itself; its own
		 * "again" is then false.
		 */
		barrier();
	} while (READ_ONCE(ct->again));
}

void ptw_engine_request(struct ptw_cpu_trace *ct, unsigned int request)
{
	set_bit(request, &ct->requests);
	ptw_engine_sync(ct);
}

/* ---- IPIs ---- */

void ptw_engine_start(void *info)
{
	struct ptw_cpu_trace *ct = info;
	struct ptw_trace *trace = ct->trace;

	if (READ_ONCE(ct->state) != PTWATCH_STATE_STOPPED)
		return;
	/* Only a BANK_FREE makes one free again; START looked that there is one. */
	if (ct->banks[ct->bank].state == PTWATCH_BANK_FROZEN) {
		struct ptw_bank *bank = free_bank(ct);

		if (!bank)
			return;
		use_bank(ct, bank);
	}
	if (READ_ONCE(halted) || ptw_caps_vmx_conflict()) {
		smp_store_release(&ct->state, PTWATCH_STATE_ERROR);
		return;
	}
	ct->start_tsc = rdtsc();
	ct->flags &= ~PTWATCH_CONTROL_VMX;
	stopped_by_range(ct, false);
	WRITE_ONCE(ct->paused, trace->flags & PTWATCH_TRACE_PAUSED);
	WRITE_ONCE(ct->on_task, trace->filter != PTWATCH_FILTER_SWITCH ||
				ptw_target_has(trace->target, current));
	if (ct->switches)
		ptw_switches_note(ct->switches, current, current, PTWATCH_SWITCH_START);
	WRITE_ONCE(ct->state, PTWATCH_STATE_RUNNING);
	ptw_engine_request(ct, PTW_REQUEST_CONFIG);
}

void ptw_engine_stop(void *info)
{
	struct ptw_cpu_trace *ct = info;

	/* A #DB may freeze it before the cmpxchg: then it stays so. */
	if (cmpxchg(&ct->state, PTWATCH_STATE_RUNNING, PTWATCH_STATE_STOPPED) !=
	    PTWATCH_STATE_RUNNING)
		return;
	ptw_engine_sync(ct);
	ct->stop_tsc = rdtsc();
	if (ct->stream.sink)
		ptw_stream_end(ct);
}

void ptw_engine_flush(void *info)
{
	struct ptw_cpu_trace *ct = info;
	unsigned int stops;

	ptw_engine_request(ct, PTW_REQUEST_RESTART);
	/* A #DB or NMI may stop it again while we copy. */
	do {
		stops = READ_ONCE(ct->stops);
		barrier();
		ct->snap = ct->output;
		barrier();
	} while (stops != READ_ONCE(ct->stops));
}

void ptw_engine_freeze(void *info)
{
	struct ptw_cpu_trace *ct = info;

	if (READ_ONCE(ct->state) != PTWATCH_STATE_RUNNING)
		return;
	ct->freeze_tsc = rdtsc();
	ptw_engine_request(ct, PTW_REQUEST_FREEZE);
}

void ptw_engine_reload(void *info)
{
	struct ptw_cpu_trace *ct = this_cpu_read(ptw_owner);

	if (ct && ct->trace == info)
		ptw_engine_request(ct, PTW_REQUEST_CONFIG);
}

void ptw_engine_halt(void)
{
	WRITE_ONCE(halted, true);
}

/* ---- #DB context ---- */

static struct ptw_cpu_trace *running_here(const struct ptw_session *session)
{
	struct ptw_cpu_trace *ct = this_cpu_read(ptw_owner);

	if (!ct || ct->trace->session != session || READ_ONCE(ct->state) != PTWATCH_STATE_RUNNING)
		return NULL;
	return ct;
}

bool ptw_trace_freeze(const struct ptw_session *session, u64 tsc)
{
	struct ptw_cpu_trace *ct = running_here(session);

	if (!ct)
		return false;
	/*
	 * Each instruction from the hit to here is one of ours in the trace, so this comes first;
	 * the pass does it once more, which changes nothing. Inside another pass the MSRs are not
	 * ours. What stopped by itself, or early, needs neither; and where VMX excludes Intel PT,
	 * the pass would take it for VMX's doing.
	 */
	if (!this_cpu_read(ptw_early.either) && READ_ONCE(ct->enabled) && !READ_ONCE(ct->busy) &&
	    !ptw_caps_vmx_excludes())
		ptw_rtit_disable();
	ct->freeze_tsc = tsc;
	ptw_engine_request(ct, PTW_REQUEST_FREEZE);
	return true;
}

bool ptw_trace_start_here(const struct ptw_session *session)
{
	struct ptw_cpu_trace *ct = running_here(session);

	if (!ct)
		return false;
	WRITE_ONCE(ct->paused, false);
	ptw_engine_sync(ct);
	return true;
}

bool ptw_trace_stop_here(const struct ptw_session *session)
{
	struct ptw_cpu_trace *ct = running_here(session);

	if (!ct)
		return false;
	WRITE_ONCE(ct->paused, true);
	ptw_engine_sync(ct);
	return true;
}

void ptw_trace_emergency_stop(void *unused)
{
	struct ptw_cpu_trace *ct = this_cpu_read(ptw_owner);

	if (!ct)
		return;
	ptw_engine_stop(ct);
	/* The pass that we interrupted may never get to it. */
	if (READ_ONCE(ct->busy))
		ptw_rtit_disable();
}
