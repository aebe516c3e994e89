// SPDX-License-Identifier: GPL-2.0
/*
 * The only file that touches IA32_RTIT_* MSRs. rdmsrq() and wrmsrq() pass the kernel's msr:read_msr
 * and msr:write_msr trace events, so every access can be watched with `trace-cmd record -e msr`.
 *
 * The order of the writes is the SDM's (vol. 3C, "Configuring and enabling Intel PT"): with TraceEn
 * set, a write to any other RTIT MSR faults, so TraceEn goes on last and off first.
 */
#include <linux/err.h>
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/preempt.h>
#include <asm/barrier.h>
#include <asm/debugreg.h>
#include <asm/msr-index.h>

#include "ptwatch.h"

/*
 * STATUS bits 2:0 (FilterEn, ContextEn, TriggerEn) ignore writes; the others read back what may be
 * written.
 */
#define STATUS_WRITABLE (~7ULL)

static unsigned int nr_addr_msrs(void)
{
	return 2 * ptw_caps_ranges();
}

/*
 * Where PT and VMX exclude each other (VMX_MISC[14] clear), a VMXON since we started cleared
 * TraceEn, and any write of CTL faults until VMXOFF (SDM vol. 3D, A.6): then there is nothing left
 * to stop.
 */
static void write_ctl_disabled(u64 ctl)
{
	wrmsrq_safe(MSR_IA32_RTIT_CTL, ctl);
}

int ptw_rtit_save(struct ptw_rtit_regs *regs)
{
	unsigned int i;

	rdmsrq(MSR_IA32_RTIT_CTL, regs->ctl);
	if (regs->ctl & RTIT_CTL_TRACEEN)
		return -EBUSY;
	rdmsrq(MSR_IA32_RTIT_OUTPUT_BASE, regs->output.base);
	rdmsrq(MSR_IA32_RTIT_OUTPUT_MASK, regs->output.mask_ptrs);
	rdmsrq(MSR_IA32_RTIT_STATUS, regs->output.status);
	if (ptw_cap(PTW_CAP_CR3_FILTERING))
		rdmsrq(MSR_IA32_RTIT_CR3_MATCH, regs->cr3_match);
	for (i = 0; i < nr_addr_msrs(); i++)
		rdmsrq(MSR_IA32_RTIT_ADDR0_A + i, regs->addr[i]);
	return 0;
}

void ptw_rtit_restore(const struct ptw_rtit_regs *regs)
{
	unsigned int i;

	/*
	 * perf's driver remembers OUTPUT_BASE, OUTPUT_MASK_PTRS and ADDRn and skips writes of equal
	 * values: if they came back different, its next session would trace into memory that is no
	 * longer ours.
	 */
	write_ctl_disabled(0);
	wrmsrq(MSR_IA32_RTIT_OUTPUT_BASE, regs->output.base);
	wrmsrq(MSR_IA32_RTIT_OUTPUT_MASK, regs->output.mask_ptrs);
	wrmsrq(MSR_IA32_RTIT_STATUS, regs->output.status & STATUS_WRITABLE);
	if (ptw_cap(PTW_CAP_CR3_FILTERING))
		wrmsrq(MSR_IA32_RTIT_CR3_MATCH, regs->cr3_match);
	for (i = 0; i < nr_addr_msrs(); i++)
		wrmsrq(MSR_IA32_RTIT_ADDR0_A + i, regs->addr[i]);
	/* TraceEn was clear when this was read, or ptw_rtit_save() had failed. */
	write_ctl_disabled(regs->ctl);
}

/* The addresses: they stay in the CPU from stop to start, and a task switch need not write them. */
static void load_config(const struct ptw_rtit_config *config)
{
	unsigned int i;

	for (i = 0; i < PTW_MAX_RANGES; i++) {
		if (!ptw_rtit_range_kind(config, i))
			continue;
		wrmsrq(MSR_IA32_RTIT_ADDR0_A + 2 * i, config->addr[2 * i]);
		wrmsrq(MSR_IA32_RTIT_ADDR0_B + 2 * i, config->addr[2 * i + 1]);
	}
	if (config->ctl & RTIT_CTL_CR3EN)
		wrmsrq(MSR_IA32_RTIT_CR3_MATCH, config->cr3_match);
}

int ptw_rtit_start(const struct ptw_rtit_output *output, const struct ptw_rtit_config *config,
		   bool load)
{
	/*
	 * PacketByteCnt 0 makes the CPU begin with a PSB+, without which the trace has no place to
	 * start decoding. Error and Stopped would keep it from tracing.
	 */
	wrmsrq(MSR_IA32_RTIT_STATUS, 0);
	if (load)
		load_config(config);
	wrmsrq(MSR_IA32_RTIT_OUTPUT_BASE, output->base);
	wrmsrq(MSR_IA32_RTIT_OUTPUT_MASK, output->mask_ptrs);
	/*
	 * Everything was validated; _safe all the same, because a hypervisor may refuse what CPUID
	 * promised. ToPA also where there is one region: the single-range scheme is broken above
	 * 4 KiB on some CPUs (TGL052, ADL037, RPL017).
	 */
	return wrmsrq_safe(MSR_IA32_RTIT_CTL, config->ctl | RTIT_CTL_TOPA | RTIT_CTL_TRACEEN) ?
		       -EIO : 0;
}

bool ptw_rtit_stopped(void)
{
	u64 status;

	rdmsrq(MSR_IA32_RTIT_STATUS, status);
	return status & RTIT_STATUS_STOPPED;
}

static __always_inline bool freezes(const struct ptw_early *early, unsigned long address)
{
	return address && (address == early->address[0] || address == early->address[1] ||
			   address == early->address[2] || address == early->address[3]);
}

notrace noinline void ptw_rtit_early_stop(void *unused, unsigned long event,
					  const struct die_args *args)
{
	struct ptw_early *early;
	struct ptw_cpu_trace *ct;
	unsigned long dr6;

	/* Other chains have the same signature. */
	if (event != DIE_DEBUG)
		return;
	/* Stopped already: by hardware, or by the call from the function in front of this one. */
	if (this_cpu_read(ptw_early.either) || !this_cpu_read(ptw_early.armed))
		return;
	early = this_cpu_ptr(&ptw_early);
	/* Hits of user code come here, too. */
	if (!in_nmi())
		return;
	dr6 = *(unsigned long *)ERR_PTR(args->err);
	if (!((dr6 & DR_TRAP0) && freezes(early, native_get_debugreg(0))) &&
	    !((dr6 & DR_TRAP1) && freezes(early, native_get_debugreg(1))) &&
	    !((dr6 & DR_TRAP2) && freezes(early, native_get_debugreg(2))) &&
	    !((dr6 & DR_TRAP3) && freezes(early, native_get_debugreg(3))))
		return;
	ct = this_cpu_read(ptw_owner);
	/* Inside a pass the MSRs are not ours. */
	if (!ct || !READ_ONCE(ct->enabled) || READ_ONCE(ct->busy))
		return;
	/*
	 * Inline, and so without the kernel's trace event: a call would be recorded. It can't
	 * fault, as this is not used where VMX forbids Intel PT.
	 */
	asm volatile("wrmsr" : : "c" (MSR_IA32_RTIT_CTL), "a" (0), "d" (0) : "memory");
	early->stopped = true;
}
NOKPROBE_SYMBOL(ptw_rtit_early_stop);

void ptw_rtit_disable(void)
{
	write_ctl_disabled(0);
}

bool ptw_rtit_pause(void)
{
	u64 status;

	write_ctl_disabled(0);
	rdmsrq(MSR_IA32_RTIT_STATUS, status);
	return !(status & (RTIT_STATUS_STOPPED | RTIT_STATUS_ERROR));
}

int ptw_rtit_resume(const struct ptw_rtit_config *config)
{
	/* For a PSB+, as in ptw_rtit_start(): each stretch can be decoded by itself. */
	wrmsrq(MSR_IA32_RTIT_STATUS, 0);
	return wrmsrq_safe(MSR_IA32_RTIT_CTL, config->ctl | RTIT_CTL_TOPA | RTIT_CTL_TRACEEN) ?
		       -EIO : 0;
}

bool ptw_rtit_stop(struct ptw_rtit_output *output)
{
	bool running = true;
	u64 ctl;

	/* Cheap to ask where the answer is known; elsewhere stopping is one write, see below. */
	if (unlikely(ptw_caps_vmx_excludes())) {
		rdmsrq(MSR_IA32_RTIT_CTL, ctl);
		running = ctl & RTIT_CTL_TRACEEN;
	}
	/* Stopping is one write: everything else can be read afterwards, untraced. */
	write_ctl_disabled(0);
	/*
	 * Clearing TraceEn flushes the packets out of the CPU; the barrier orders them before
	 * whatever tells others that they are there (the control page's head and state). SDM,
	 * "Tracing and memory ordering".
	 */
	wmb();
	rdmsrq(MSR_IA32_RTIT_OUTPUT_BASE, output->base);
	rdmsrq(MSR_IA32_RTIT_OUTPUT_MASK, output->mask_ptrs);
	rdmsrq(MSR_IA32_RTIT_STATUS, output->status);
	return running;
}
