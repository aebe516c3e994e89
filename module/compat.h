/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place that knows how kernels differ. compat-config.h is written at build time by
 * compat/probe.sh, which compiles one small file for each difference: version numbers lie, because
 * distribution kernels backport.
 */
#ifndef PTWATCH_COMPAT_H
#define PTWATCH_COMPAT_H

#include <linux/mm.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>

#include "compat-config.h"

#ifdef HAVE_ASM_CPUID_API_H
#include <asm/cpuid/api.h>
#else
#include <asm/processor.h>
#endif

/* rdmsrl() and its family became rdmsrq() in 6.16, without the old names. */
#ifndef HAVE_RDMSRQ
#define rdmsrq(msr, val)	rdmsrl(msr, val)
#define wrmsrq(msr, val)	wrmsrl(msr, val)
#define rdmsrq_safe(msr, val)	rdmsrl_safe(msr, val)
#define wrmsrq_safe(msr, val)	wrmsrl_safe(msr, val)
#endif

/*
 * vma->vm_flags became read-only in 6.3; before, mmap handlers changed it under the write-locked
 * mmap lock.
 */
#ifndef HAVE_VM_FLAGS_MOD
static inline void vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}
#endif

/*
 * MAX_ORDER was exclusive up to 6.3; MAX_PAGE_ORDER (6.8) is inclusive. In between the smaller of
 * both is right.
 */
#ifndef HAVE_MAX_PAGE_ORDER
#define MAX_PAGE_ORDER (MAX_ORDER - 1)
#endif

/*
 * Direct calls of several functions were register_ftrace_direct_multi() before 6.3, and forgot no
 * filters.
 */
#ifndef HAVE_FTRACE_DIRECT_OPS
#define register_ftrace_direct(ops, addr)		register_ftrace_direct_multi(ops, addr)
#define unregister_ftrace_direct(ops, addr, free)	unregister_ftrace_direct_multi(ops, addr)
#endif

/* FRED: one entry for all events, no IDT; from 6.9 */
static inline bool ptw_uses_fred(void)
{
#ifdef X86_FEATURE_FRED
	return cpu_feature_enabled(X86_FEATURE_FRED);
#else
	return false;
#endif
}

#endif /* PTWATCH_COMPAT_H */
