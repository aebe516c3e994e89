/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ptwatch: hardware watchpoints that freeze an Intel Processor Trace.
 *
 * How to talk to /dev/ptwatch
 * ===========================
 *
 * An open file is a session. A session may own one trace (buffers on a set of CPUs) and any number
 * of watches; everything it set up ends when the file's last reference, including every mapping
 * made through it, is gone.
 *
 *	fd = open("/dev/ptwatch", O_RDWR | O_CLOEXEC);
 *
 *	what this CPU can trace:
 *	ioctl(fd, PTWATCH_IOC_INFO, &info);
 *
 *	reserve Intel PT on the CPUs, allocate the buffers and map them, start:
 *	ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace);
 *	control = mmap(NULL, page_size, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_CONTROL(cpu));
 *	data = mmap(NULL, trace.buffer_size, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_DATA(cpu));
 *	ioctl(fd, PTWATCH_IOC_TRACE_START);
 *
 *	from here on a hit freezes the CPU that hit:
 *	ioctl(fd, PTWATCH_IOC_WATCH_ADD, &watch);
 *	poll(fd)
 *
 *	read data[] up to control->head:
 *	ioctl(fd, PTWATCH_IOC_TRACE_STOP);
 *	close(fd);
 *
 * That is mode RING: the newest bytes win, nothing interrupts. The two others:
 *
 *	STREAM, everything is read while it is written:
 *	for (;;) {
 *		poll(fd)		POLLIN: a region of the buffer is full; after a time-out:
 *		ioctl(fd, PTWATCH_IOC_TRACE_FLUSH);
 *		head = control->head	(atomic, acquire) bytes since SETUP, never wraps
 *		use data[tail % data_size] ... up to data[head % data_size]
 *		ioctl(fd, PTWATCH_IOC_TRACE_ADVANCE, { cpu, tail = head });
 *	}
 *	What the CPU writes while no region is free goes nowhere, but is counted: control->lost, and
 *	where in the stream, control->losses[].
 *
 *	BANKS, each freeze is a buffer, and tracing goes on in the next:
 *	poll(fd)			POLLIN: a bank is frozen
 *	bank = control->banks[n] whose state is PTWATCH_BANK_FROZEN
 *	data = mmap(..., PTWATCH_MMAP_BANK(cpu, n)), as a ring: bank->head, bank->flags
 *	ioctl(fd, PTWATCH_IOC_BANK_FREE, { cpu, n });
 *
 * poll() reports POLLPRI once for the alarms raised since it last did (also for those raised before
 * the first call; epoll's EPOLL_CTL_ADD is such a call and uses them up), POLLRDBAND as long as
 * read() has something to give, and POLLIN as long as a CPU's trace or a bank of it is frozen, or a
 * stream has a full region to be read.
 *
 * The alarms themselves travel over generic netlink: <linux/ptwatch_netlink.h>. Those of a
 * session's own watches that have PTWATCH_ACTION_EVENT can also be read from the file: each read(2)
 * gives one, as the very bytes of that netlink message (struct nlmsghdr, struct genlmsghdr,
 * attributes; nlmsg_type and nlmsg_seq are 0), and blocks until there is one unless O_NONBLOCK
 * (EAGAIN). EMSGSIZE: the buffer is too small, and the alarm is kept; 8192 bytes always do. At most
 * PTWATCH_READ_MAX alarms wait in a session; the oldest make room, which gaps in PTWATCH_A_SEQ and
 * PTWATCH_A_UNREAD tell.
 *
 * Rights: opening needs CAP_PERFMON or CAP_SYS_ADMIN. Kernel tracing (PTWATCH_RTIT_CTL_OS) and
 * kernel addresses in a watch need CAP_SYS_ADMIN and are refused (EPERM) under
 * lockdown=confidentiality.
 *
 * Versioning: every struct begins with its size as the caller knows it. A longer struct than the
 * kernel knows is accepted when the excess is zero (else E2BIG); a shorter one is extended with
 * zeros, and of an output only the caller's size is written. Reserved fields must be zero (EINVAL).
 *
 * Errors common to all calls: EFAULT (bad pointer), EINVAL (a field has no such value), E2BIG
 * (unknown trailing bytes are set), EPERM (a right is missing), EOPNOTSUPP (this CPU or kernel
 * lacks it), EBUSY (someone else holds it), ENOTTY (no such ioctl). A call that fails changes
 * nothing.
 */
#ifndef _UAPI_LINUX_PTWATCH_H
#define _UAPI_LINUX_PTWATCH_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PTWATCH_DEVICE		"/dev/ptwatch"
#define PTWATCH_ABI_VERSION	1

#define PTWATCH_READ_MAX	256	/* alarms that wait to be read, and that are kept */

/*
 * IA32_RTIT_CTL bits a session may ask for, at the places the SDM gives them (vol. 3C, "Intel
 * Processor Trace", IA32_RTIT_CTL). TraceEn and ToPA are the module's; every other bit is EINVAL.
 */
#define PTWATCH_RTIT_CTL_CYCEN		(1ULL << 1)
#define PTWATCH_RTIT_CTL_OS		(1ULL << 2)	/* trace CPL 0; CAP_SYS_ADMIN */
#define PTWATCH_RTIT_CTL_USER		(1ULL << 3)	/* trace CPL > 0 */
#define PTWATCH_RTIT_CTL_PWREVTEN	(1ULL << 4)	/* MWAIT, PWRE, PWRX, EXSTOP packets */
#define PTWATCH_RTIT_CTL_FUPONPTW	(1ULL << 5)	/* FUP after PTW; needs PTWEN */
#define PTWATCH_RTIT_CTL_MTCEN		(1ULL << 9)
#define PTWATCH_RTIT_CTL_TSCEN		(1ULL << 10)
#define PTWATCH_RTIT_CTL_DISRETC	(1ULL << 11)
#define PTWATCH_RTIT_CTL_PTWEN		(1ULL << 12)	/* PTWRITE */
#define PTWATCH_RTIT_CTL_BRANCHEN	(1ULL << 13)
#define PTWATCH_RTIT_CTL_MTCFREQ	(0xfULL << 14)	/* one of info.mtc_periods */
#define PTWATCH_RTIT_CTL_CYCTHRESH	(0xfULL << 19)	/* one of info.cyc_thresholds */
#define PTWATCH_RTIT_CTL_PSBFREQ	(0xfULL << 24)	/* of info.psb_periods: 2 KiB << n */
#define PTWATCH_RTIT_CTL_EVENTEN	(1ULL << 31)	/* event trace: CFE, EVD */
#define PTWATCH_RTIT_CTL_DISTNT		(1ULL << 55)	/* no TNT packets */

/* How the buffer of a CPU is used; ptwatch_trace.mode. */
#define PTWATCH_MODE_RING	0U	/* the newest bytes win, no interrupts */
#define PTWATCH_MODE_STREAM	1U	/* interrupts, a reader keeps up, loss is counted */
#define PTWATCH_MODE_BANKS	2U	/* several rings; a freeze goes on in the next one */

#define PTWATCH_MAX_BANKS	16
#define PTWATCH_MAX_RANGES	4

/**
 * struct ptwatch_info - PTWATCH_IOC_INFO: what the CPU and the module can do (_IOWR)
 * @size: in: sizeof(struct ptwatch_info) as the caller knows it
 * @abi: out: PTWATCH_ABI_VERSION of the module
 * @flags: out: PTWATCH_INFO_*
 * @family: out: CPU family, with the extended family added (what a decoder selects errata by)
 * @model: out: CPU model, with the extended model added
 * @stepping: out: CPU stepping
 * @cpuid_14_0: out: CPUID leaf 0x14 subleaf 0, EAX EBX ECX EDX; zeros without Intel PT
 * @cpuid_14_1: out: CPUID leaf 0x14 subleaf 1, EAX EBX ECX EDX; zeros without Intel PT
 * @cpuid_15: out: CPUID leaf 0x15, EAX EBX ECX EDX (TSC to core crystal clock ratio)
 * @address_ranges: out: number of IA32_RTIT_ADDRn pairs, 0 to 4
 * @mtc_periods: out: bit n set: MTCFreq n is valid
 * @cyc_thresholds: out: bit n set: CycThresh n is valid
 * @psb_periods: out: bit n set: PSBFreq n is valid
 * @max_nonturbo_ratio: out: MSR_PLATFORM_INFO[15:8], base frequency in units of 100 MHz; 0: unknown
 * @tsc_khz: out: TSC frequency in kHz as the kernel measured it
 * @rtit_ctl: out: IA32_RTIT_CTL bits and fields that TRACE_SETUP accepts on this CPU
 * @max_buffer_size: out: largest ptwatch_trace.buffer_size, bytes per CPU; with several banks, of
 *	all of them together. All CPUs together stay within half of the memory.
 * @breakpoint_slots: out: debug registers a CPU has (shared with perf, gdb and ptrace)
 * @modes: out: bit n set: ptwatch_trace.mode n works
 * @rtit_ctl_required: out: bits of @rtit_ctl that must be set (BranchEn on Broadwell: BDM106)
 *
 * Never fails for a CPU without Intel PT: PTWATCH_INFO_PT is then clear, and watches still work.
 */
struct ptwatch_info {
	__u32 size;
	__u32 abi;
	__u32 flags;
	__u32 family;
	__u32 model;
	__u32 stepping;
	__u32 cpuid_14_0[4];
	__u32 cpuid_14_1[4];
	__u32 cpuid_15[4];
	__u32 address_ranges;
	__u32 mtc_periods;
	__u32 cyc_thresholds;
	__u32 psb_periods;
	__u32 max_nonturbo_ratio;
	__u32 tsc_khz;
	__u64 rtit_ctl;
	__u64 max_buffer_size;
	__u32 breakpoint_slots;
	__u32 modes;
	__u64 rtit_ctl_required;
};

#define PTWATCH_INFO_PT			(1U << 0)	/* the CPU has Intel PT */
#define PTWATCH_INFO_TRACEABLE		(1U << 1)	/* multi-entry ToPA: TRACE_SETUP works */
#define PTWATCH_INFO_VMX_CONFLICT	(1U << 2)	/* not while VMX is on: VMX_MISC[14] = 0 */
#define PTWATCH_INFO_LOCKDOWN		(1U << 3)	/* lockdown=confidentiality */
#define PTWATCH_INFO_CR3_FILTER		(1U << 4)	/* the CPU can filter by address space */
#define PTWATCH_INFO_PTI		(1U << 5)	/* page table isolation is on */
#define PTWATCH_INFO_SINGLE_REGION	(1U << 6)	/* ToPA of one entry: rings of one region */

/**
 * struct ptwatch_range - instruction addresses, to trace these only or to stop at them
 * @start: in: first address; canonical
 * @end: in: last address, inclusive; canonical, not below @start
 * @kind: in: PTWATCH_RANGE_FILTER or PTWATCH_RANGE_STOP
 * @reserved: in: 0
 *
 * An IA32_RTIT_ADDRn pair (SDM, "Filtering by IP"). With any FILTER range, only what lies in one of
 * them is traced. When an instruction in a STOP range is reached, the CPU stops tracing
 * (PTWATCH_CONTROL_STOPPED) until it is stopped and started again.
 */
struct ptwatch_range {
	__u64 start;
	__u64 end;
	__u32 kind;
	__u32 reserved;
};

#define PTWATCH_RANGE_FILTER	1U
#define PTWATCH_RANGE_STOP	2U

/* Whom to trace on the CPUs of the trace; ptwatch_trace.target_kind. */
#define PTWATCH_TARGET_ALL	0U	/* everything that runs there */
#define PTWATCH_TARGET_PROCESS	1U	/* target: a process id; all its threads, also after exec */
#define PTWATCH_TARGET_CGROUP	2U	/* target: an open cgroup v2 directory; those below, too */

/* How that is brought about; ptwatch_trace.filter. */
#define PTWATCH_FILTER_NONE	0U	/* it is not needed */
#define PTWATCH_FILTER_CR3	1U	/* by the CPU: context switches cost nothing */
#define PTWATCH_FILTER_SWITCH	2U	/* tracing is switched with the task */

/* ptwatch_trace.flags */
#define PTWATCH_TRACE_FOLLOW_FORK	(1U << 0)	/* with TARGET_PROCESS: its children, too */
/*
 * START leaves each CPU paused until a watch's start action on that CPU; a stop action pauses it
 * again.
 */
#define PTWATCH_TRACE_PAUSED		(1U << 1)
/* Filter by task switch even where CR3 would do. */
#define PTWATCH_TRACE_NO_CR3		(1U << 2)
/*
 * What a freeze by a watch leaves in the trace behind the access depends on what stops it. The best
 * that can be had is chosen: a free address range on the #DB entry (which stops at everyone's #DBs,
 * for up to 10 ms at those that can't be told), code in front of the kernel's #DB handlers, the
 * watch's own handler. These leave out the first or the second.
 */
#define PTWATCH_TRACE_NO_TRACESTOP	(1U << 3)
#define PTWATCH_TRACE_NO_EARLY		(1U << 4)

/* Why TRACE_SETUP or TRACE_START failed, where errno is not enough; ptwatch_trace.reason. */
#define PTWATCH_REASON_NONE		0U
#define PTWATCH_REASON_NO_PT		1U	/* no Intel PT, or no ToPA output */
#define PTWATCH_REASON_RTIT_CTL		2U	/* the CPU lacks what @unsupported names */
#define PTWATCH_REASON_RANGES		3U	/* fewer address ranges: info.address_ranges */
#define PTWATCH_REASON_MODE		4U	/* not this mode or buffer: ToPA has one entry */
#define PTWATCH_REASON_NO_PMI		5U	/* no ToPA interrupt (no architectural PMU) */
#define PTWATCH_REASON_SESSION		6U	/* another session: @holder_pid, @holder_comm */
#define PTWATCH_REASON_PERF		7U	/* a perf event holds the intel_pt PMU */
#define PTWATCH_REASON_ENABLED		8U	/* TraceEn is set by someone else (firmware) */
#define PTWATCH_REASON_VMX		9U	/* VMX is on, on a CPU that can't trace then */
#define PTWATCH_REASON_CPU_DIFFERS	10U	/* that CPU lacks what the others have */

/**
 * struct ptwatch_trace - PTWATCH_IOC_TRACE_SETUP: reserve Intel PT and its buffers on CPUs (_IOWR)
 * @size: in: sizeof(struct ptwatch_trace)
 * @flags: in: PTWATCH_TRACE_*
 * @rtit_ctl: in: PTWATCH_RTIT_CTL_* bits; at least one of OS and USER
 * @buffer_size: in: bytes for each CPU (and each of its banks), a multiple of the page size, at
 *	most info.max_buffer_size; out: what was allocated (the same)
 * @cpus: in: user pointer to a bitmap of CPU numbers (bit n of byte n / 8, as
 *	sched_setaffinity(2)); 0: every online CPU. A CPU that is not online is EINVAL.
 * @cpus_size: in: bytes at @cpus
 * @pt_pmu_type: in: the number in /sys/bus/event_source/devices/intel_pt/type, through which perf
 *	is kept off these CPUs while the session lives; -1 when that file does not exist (with -1,
 *	only other sessions are kept off; EINVAL when the kernel does have that PMU)
 * @nr_cpus: in: 0; out: CPUs set up
 * @mode: in: PTWATCH_MODE_*
 * @region_size: in: largest piece of contiguous memory, a power of two from the page size on, which
 *	is also how often a stream interrupts; 0: as large as can be had (for a stream: an eighth of
 *	the buffer). STREAM needs four regions at least.
 * @banks: in: with BANKS, 2 to PTWATCH_MAX_BANKS, else 0
 * @switch_records: in: context switches each CPU remembers, a power of two from 128 to 2^20
 *	(struct ptwatch_switches); 0: none. CAP_SYS_ADMIN, as it tells of other people's tasks.
 * @target_kind: in: PTWATCH_TARGET_*
 * @target: in: the process id (as this process sees it) or cgroup descriptor; 0 with TARGET_ALL
 * @nr_ranges: in: ranges used, at most info.address_ranges
 * @filter: in: 0; out: PTWATCH_FILTER_*
 * @ranges: in: zeros beyond @nr_ranges
 * @unsupported: in: 0; out, with EOPNOTSUPP: bits and fields of @rtit_ctl that this CPU lacks
 * @reason: in: 0; out, also of a call that failed: PTWATCH_REASON_*
 * @reason_cpu: in: 0; out: the CPU that @reason is about
 * @holder_pid: in: 0; out, with REASON_SESSION: who set up the other session, as the initial pid
 *	namespace has it
 * @reserved: in: 0
 * @holder_comm: in: zeros; out, with REASON_SESSION: its name at that time
 *
 * The buffer's memory is zeroed. A CPU that goes offline keeps its buffer and resumes when it is
 * back online.
 *
 * Tracing one process: CR3 filtering serves user code alone, kernel code alone, and both where PTI
 * is off, for one process without FOLLOW_FORK; otherwise tracing is switched with the task. With
 * CR3 filtering, tasks that share the address space are traced with it: vfork() children up to
 * their exec and, with OS, kernel threads that borrow it.
 *
 * Errors: EBUSY (perf, another session, or firmware uses Intel PT on one of the CPUs, or this
 * session has a trace already), EOPNOTSUPP (no Intel PT, or what @reason and @unsupported tell),
 * ESRCH (no such process, or one without an address space), EBADF (no cgroup v2 directory), ENOMEM,
 * EINVAL, EPERM. A failed call writes nothing but @unsupported to @holder_comm.
 */
struct ptwatch_trace {
	__u32 size;
	__u32 flags;
	__u64 rtit_ctl;
	__u64 buffer_size;
	__u64 cpus;
	__u32 cpus_size;
	__s32 pt_pmu_type;
	__u32 nr_cpus;
	__u32 mode;
	__u64 region_size;
	__u32 banks;
	__u32 switch_records;
	__u32 target_kind;
	__s32 target;
	__u32 nr_ranges;
	__u32 filter;
	struct ptwatch_range ranges[PTWATCH_MAX_RANGES];
	__u64 unsupported;
	__u32 reason;
	__u32 reason_cpu;
	__s32 holder_pid;
	__u32 reserved;
	char holder_comm[16];
};

/**
 * struct ptwatch_advance - PTWATCH_IOC_TRACE_ADVANCE: what a stream's reader has done with (_IOW)
 * @size: in: sizeof(struct ptwatch_advance)
 * @cpu: in: a CPU of the trace
 * @tail: in: bytes of the stream that may be overwritten; not less than before, at most
 *	control->head
 *
 * A CPU that had no room goes on with what is free now. Errors: EINVAL (no stream on that CPU, or
 * @tail out of range).
 */
struct ptwatch_advance {
	__u32 size;
	__u32 cpu;
	__u64 tail;
};

/**
 * struct ptwatch_bank_free - PTWATCH_IOC_BANK_FREE: a frozen bank has been read (_IOW)
 * @size: in: sizeof(struct ptwatch_bank_free)
 * @cpu: in: a CPU of the trace
 * @bank: in: a bank whose state is PTWATCH_BANK_FROZEN; else EINVAL
 * @reserved: in: 0
 *
 * The bank is used again by a later freeze. A CPU that was frozen because no bank was free stays so
 * until THAW.
 */
struct ptwatch_bank_free {
	__u32 size;
	__u32 cpu;
	__u32 bank;
	__u32 reserved;
};

/* What a watch traps on; ptwatch_watch.access. The hardware has no read-only watch. */
#define PTWATCH_ACCESS_W	1U	/* data writes; the hit is reported after the write */
#define PTWATCH_ACCESS_RW	2U	/* data reads and writes; reported after the access */
#define PTWATCH_ACCESS_X	3U	/* instruction execution; reported before the instruction */

/*
 * What an alarm does; ptwatch_watch.actions, any combination of at least one. The trace actions
 * work on the session's own trace; START and STOP on the CPU that hit, and need no thaw.
 */
#define PTWATCH_ACTION_LOG	(1U << 0)	/* kernel log with stack */
/* Netlink message, read() and POLLPRI on the session */
#define PTWATCH_ACTION_EVENT	(1U << 1)
#define PTWATCH_ACTION_FREEZE	(1U << 2)	/* stop this session's trace on the CPU that hit */
/*
 * As FREEZE, and the other CPUs a moment later: no IPI may be sent from the #DB handler, so they
 * are told by the interrupt that follows it, when the CPU that hit takes interrupts again.
 */
#define PTWATCH_ACTION_FREEZE_ALL (1U << 3)
#define PTWATCH_ACTION_START	(1U << 4)	/* start this CPU's trace, if it is stopped */
#define PTWATCH_ACTION_STOP	(1U << 5)	/* stop it; a later START goes on behind it */
#define PTWATCH_ACTION_PANIC	(1U << 6)	/* panic, after everything else was done */

/* ptwatch_watch.flags */
#define PTWATCH_WATCH_PERCPU	(1U << 0)	/* @address is a per-CPU variable's */
#define PTWATCH_WATCH_USER	(1U << 1)	/* @address is one of process @tgid */
#define PTWATCH_WATCH_WAIT_MODULE (1U << 2)	/* @address is an offset from @symbol in @module */
#define PTWATCH_WATCH_PERSISTENT (1U << 3)	/* goes on when the session ends; see below */

/*
 * Condition on the value a data watch reads back; ptwatch_watch.value_op. Both sides are masked by
 * @value_mask first; the order (LT … GE) is that of unsigned integers unless SIGNED.
 */
#define PTWATCH_VALUE_ANY	0U
#define PTWATCH_VALUE_EQ	1U	/* new == value */
#define PTWATCH_VALUE_NE	2U	/* new != value; with value 0: a bit of the mask is set */
#define PTWATCH_VALUE_LT	3U
#define PTWATCH_VALUE_LE	4U
#define PTWATCH_VALUE_GT	5U
#define PTWATCH_VALUE_GE	6U
#define PTWATCH_VALUE_CHANGED	7U	/* new != old; @value must be 0 */

#define PTWATCH_VALUE_SIGNED	(1U << 0)	/* ptwatch_watch.value_flags */

/* ptwatch_who.kind */
#define PTWATCH_WHO_PID	1U	/* thread id in the initial pid namespace; 0: idle */
#define PTWATCH_WHO_TGID	2U	/* process id there */
/* The thread's name; a '*' at the end stands for any rest */
#define PTWATCH_WHO_COMM	3U
#define PTWATCH_WHO_CGROUP	4U	/* cgroup v2 id: the thread is in it or in one below */

#define PTWATCH_WHO_DENY	(1U << 0)	/* ptwatch_who.flags */

#define PTWATCH_MAX_WHO	64
#define PTWATCH_COMM_SIZE	16

/**
 * struct ptwatch_who - whose accesses count
 * @kind: PTWATCH_WHO_*
 * @flags: PTWATCH_WHO_DENY: all but these
 * @id: the pid, tgid or cgroup; 0 for COMM
 * @comm: NUL-terminated, for COMM; else zeros
 *
 * A hit passes when no DENY filter matches and, of each kind that has filters without DENY, one
 * does. An access of interrupt code is the interrupted thread's.
 */
struct ptwatch_who {
	__u32 kind;
	__u32 flags;
	__u64 id;
	char comm[PTWATCH_COMM_SIZE];
};

/* Why a watch was refused; ptwatch_refusal.reason */
#define PTWATCH_WHY_NONE	0U	/* nothing more is known than errno */
/* EINVAL: a field has no such value, or contradicts another */
#define PTWATCH_WHY_FIELD	1U
/* EINVAL: not a canonical address, or not in the kernel's half */
#define PTWATCH_WHY_CANONICAL	2U
#define PTWATCH_WHY_USER_RANGE	3U	/* EINVAL: not an address a process can have */
/* EINVAL: @address is not aligned to @len (8 from 8 bytes on) */
#define PTWATCH_WHY_ALIGN	4U
#define PTWATCH_WHY_LENGTH	5U	/* EINVAL: @len is none the hardware can cover */
#define PTWATCH_WHY_UNMAPPED	6U	/* EINVAL: there is no memory at the address */
/* EINVAL: the kernel allows no breakpoint there (entry code, GDT…) */
#define PTWATCH_WHY_KERNEL	7U
#define PTWATCH_WHY_SLOTS	8U	/* ENOSPC: too few debug registers on @cpu */
#define PTWATCH_WHY_NOT_PERCPU	9U	/* EINVAL: not a per-CPU variable's address */
#define PTWATCH_WHY_NO_PROCESS	10U	/* ESRCH: there is no process @tgid, or it ends */
#define PTWATCH_WHY_NO_TRACE	11U	/* EINVAL: a trace action without a trace */
#define PTWATCH_WHY_NO_SYMBOL	12U	/* ENOENT: @module is loaded and has no @symbol */
#define PTWATCH_WHY_RIGHTS	13U	/* EPERM: CAP_SYS_ADMIN is missing */
#define PTWATCH_WHY_LOCKDOWN	14U	/* EPERM: lockdown=confidentiality */
/* EINVAL: @label, @module or @symbol is not printable ASCII */
#define PTWATCH_WHY_LABEL	15U
#define PTWATCH_WHY_FILTER	16U	/* EINVAL: ptwatch_who number @detail makes no sense */
#define PTWATCH_WHY_CPUS	17U	/* EINVAL: @cpus names none, or one that cannot be */

/**
 * struct ptwatch_refusal - why WATCH_ADD failed; written only when it does
 * @size: in: sizeof(struct ptwatch_refusal)
 * @reason: out: PTWATCH_WHY_*
 * @cpu: out: with SLOTS: where
 * @slots: out: debug registers of a CPU
 * @slots_needed: out: how many the watch needs on each CPU
 * @slots_ours: out: with SLOTS: held on @cpu by watches of this device
 * @slots_others: out: with SLOTS: others in use on @cpu at this moment (perf, gdb, kgdb); per-task
 *	ones count against the limit also while their task does not run, so this may be 0
 * @detail: out: see @reason
 */
struct ptwatch_refusal {
	__u32 size;
	__u32 reason;
	__u32 cpu;
	__u32 slots;
	__u32 slots_needed;
	__u32 slots_ours;
	__u32 slots_others;
	__u32 detail;
};

#define PTWATCH_LABEL_SIZE	128
#define PTWATCH_MODULE_SIZE	64
#define PTWATCH_SYMBOL_SIZE	256

/**
 * struct ptwatch_watch - PTWATCH_IOC_WATCH_ADD: arm a hardware breakpoint (_IOWR)
 * @size: in: sizeof(struct ptwatch_watch)
 * @flags: in: PTWATCH_WATCH_*
 * @address: in: canonical kernel address; a data watch is aligned to @len, from 8 bytes on to 8.
 *	With PERCPU: the variable's address as the kernel's symbol table has it; each CPU watches
 *	its own. With USER: an address of process @tgid. With WAIT_MODULE: added to @symbol.
 * @len: in: 1, 2, 4 or 8 bytes, or 16, 24, 32 on two to four debug registers; 8 for
 *	PTWATCH_ACCESS_X
 * @access: in: PTWATCH_ACCESS_*
 * @actions: in: PTWATCH_ACTION_*; those on a trace need one that is set up
 * @max_hits: in: disarm after that many alarms; 1: one-shot; 0: never
 * @max_rate: in: alarms a second, the rest is counted only; 0: the module's default of 100
 * @id: out: number of the watch, unique while the module is loaded
 * @label: in: how people call the address ("kv_cache_meta+0x0"), NUL-terminated printable ASCII;
 *	may be empty
 * @tgid: in: with USER: a process in the caller's pid namespace; else 0
 * @nr_filters: in: entries at @filters, at most PTWATCH_MAX_WHO
 * @filters: in: user pointer to struct ptwatch_who[]
 * @cpus: in: user pointer to a bitmap of CPU numbers as in struct ptwatch_trace: only accesses of
 *	these count; 0: of all. CPUs may be offline.
 * @cpus_size: in: bytes at @cpus
 * @value_op: in: PTWATCH_VALUE_*; not for PTWATCH_ACCESS_X, and of a @len above 8 only CHANGED
 * @value: in: to compare with, zero-extended or (SIGNED) sign-extended from @value_size
 * @value_mask: in: 0: every bit counts
 * @value_size: in: bytes compared, from @address on: 1, 2, 4 or 8, at most @len; 0: @len
 * @value_flags: in: PTWATCH_VALUE_SIGNED
 * @skip: in: that many hits that fulfil every condition pass before the first alarm
 * @stack_start, @stack_end: in: only when a return address of the kernel stack, or ip, is in
 *	[start, end); both 0: whatever the stack
 * @max_storm: in: more hits than that in a second on one CPU disarm the watch; 0: the module's
 *	default of 200000; U32_MAX: never
 * @reserved: in: 0
 * @refusal: in: user pointer to a struct ptwatch_refusal, or 0
 * @module: in: with WAIT_MODULE: its name, as in /proc/modules; else zeros
 * @symbol: in: with WAIT_MODULE: a symbol in it, a function or a variable (PERCPU: a per-CPU one)
 *
 * Conditions are looked at in this order: value, filters, stack, @skip, @max_hits, @max_rate; the
 * CPUs and USER before all, by not arming elsewhere.
 *
 * A kernel watch is armed on every CPU (of @cpus) that is online and on each that comes online
 * while the watch lives. Disarmed when the module that @address is in is unloaded; with WAIT_MODULE
 * armed when it is loaded, before its init function runs, and again each time it comes back. A
 * watch of a process is armed in all its threads, present and to come, until it ends or executes a
 * program. Not seen, because the hardware or the kernel masks it: writes by NMI, #MC and #DB
 * handlers, and by devices (DMA). A value condition and OLD go by a shadow of the value at the last
 * hit, which such writes leave behind.
 *
 * A watch ends with its session. With PERSISTENT, which excludes the actions on a trace, it
 * lives until WATCH_REMOVE or until the module is unloaded; the newest of its alarms are kept for
 * whoever listens later (PTWATCH_IOC_LISTEN, PTWATCH_CMD_BACKLOG in <linux/ptwatch_netlink.h>).
 *
 * Errors: ENOSPC (too few free debug registers on some CPU; perf, gdb and ptrace use them too),
 * EINVAL, ENOENT, ESRCH, EPERM: ptwatch_refusal tells more.
 */
struct ptwatch_watch {
	__u32 size;
	__u32 flags;
	__u64 address;
	__u32 len;
	__u32 access;
	__u32 actions;
	__u32 max_hits;
	__u32 max_rate;
	__u32 id;
	char label[PTWATCH_LABEL_SIZE];
	__u32 tgid;
	__u32 nr_filters;
	__u64 filters;
	__u64 cpus;
	__u32 cpus_size;
	__u32 value_op;
	__u64 value;
	__u64 value_mask;
	__u32 value_size;
	__u32 value_flags;
	__u64 skip;
	__u64 stack_start;
	__u64 stack_end;
	__u32 max_storm;
	__u32 reserved;
	__u64 refusal;
	char module[PTWATCH_MODULE_SIZE];
	char symbol[PTWATCH_SYMBOL_SIZE];
};

/* ptwatch_watch_stat.state */
#define PTWATCH_WATCH_ARMED	1U
#define PTWATCH_WATCH_WAITING	2U	/* for its module */
#define PTWATCH_WATCH_DONE	3U	/* @max_hits was reached */
#define PTWATCH_WATCH_STORM	4U	/* @max_storm was exceeded */
#define PTWATCH_WATCH_GONE	5U	/* the module was unloaded, the process ended */

/**
 * struct ptwatch_watch_stat - PTWATCH_IOC_WATCH_STAT: what became of a watch's hits (_IOWR)
 * @size: in: sizeof(struct ptwatch_watch_stat)
 * @id: in: a watch of this session; else ENOENT
 * @armed_cpus: out: CPUs whose debug registers hold the watch; with USER: threads that have it
 * @flags: in: PTWATCH_STAT_ANY: @id may be another session's or a persistent watch (CAP_SYS_ADMIN)
 * @hits: out: times the hardware reported the watch
 * @alarms: out: hits that became an alarm and were delivered
 * @ignored: out: hits after @max_hits was reached or the storm was noticed, before every CPU was
 *	disarmed
 * @rate_limited: out: hits over @max_rate
 * @dropped: out: hits for which no record was free
 * @filtered: out: hits that a condition (value, filters, stack, @skip) let pass
 * @state: out: PTWATCH_WATCH_*
 * @reserved: out: 0
 * @missed: out: times a CPU or thread could not be armed since WATCH_ADD (no free debug register)
 *
 * hits = alarms + filtered + ignored + rate_limited + dropped, once no alarm is on its way to a
 * listener.
 */
struct ptwatch_watch_stat {
	__u32 size;
	__u32 id;
	__u32 armed_cpus;
	__u32 flags;
	__u64 hits;
	__u64 alarms;
	__u64 ignored;
	__u64 rate_limited;
	__u64 dropped;
	__u64 filtered;
	__u32 state;
	__u32 reserved;
	__u64 missed;
};

#define PTWATCH_STAT_ANY	(1U << 0)

/**
 * struct ptwatch_watch_entry - PTWATCH_IOC_WATCH_NEXT: the watches of everyone, one by one (_IOWR)
 * @size: in: sizeof(struct ptwatch_watch_entry)
 * @id: in: the lowest id of interest, 0 to begin; out: that of the first watch from there on
 * @flags: out: PTWATCH_WATCH_*
 * @owner_tgid: out: process that armed it, in the caller's pid namespace; 0: not there, or the
 *	module's watch= parameter
 * @owner_comm: out: its name at that time
 * @address: out: with WAIT_MODULE: where it is now, 0: nowhere
 * @len, @access, @actions, @max_hits, @max_rate, @tgid, @label, @module: out: see struct
 * 	ptwatch_watch
 *
 * CAP_SYS_ADMIN. ENOENT: no watch has an id that high. WATCH_STAT with ANY tells the counts.
 */
struct ptwatch_watch_entry {
	__u32 size;
	__u32 id;
	__u32 flags;
	__u32 owner_tgid;
	char owner_comm[PTWATCH_COMM_SIZE];
	__u64 address;
	__u32 len;
	__u32 access;
	__u32 actions;
	__u32 max_hits;
	__u32 max_rate;
	__u32 tgid;
	char label[PTWATCH_LABEL_SIZE];
	char module[PTWATCH_MODULE_SIZE];
};

#define PTWATCH_IOC_MAGIC	0xF7
#define PTWATCH_IOC_INFO	_IOWR(PTWATCH_IOC_MAGIC, 0x00, struct ptwatch_info)
#define PTWATCH_IOC_TRACE_SETUP	_IOWR(PTWATCH_IOC_MAGIC, 0x10, struct ptwatch_trace)
/*
 * Start (again) on every CPU of the trace that is not frozen. EINVAL without a trace; EBUSY when
 * VMX got in.
 */
#define PTWATCH_IOC_TRACE_START	_IO(PTWATCH_IOC_MAGIC, 0x11)
/*
 * Stop on every CPU and publish its head. Frozen CPUs stay frozen. Stopping what is stopped is no
 * error.
 */
#define PTWATCH_IOC_TRACE_STOP	_IO(PTWATCH_IOC_MAGIC, 0x12)
/* Stop, give the buffers back (their mappings stay readable) and let perf in again. */
#define PTWATCH_IOC_TRACE_RELEASE _IO(PTWATCH_IOC_MAGIC, 0x13)
/* Thaw: every frozen CPU becomes stopped and can be started again. */
#define PTWATCH_IOC_TRACE_THAW	_IO(PTWATCH_IOC_MAGIC, 0x14)
/*
 * A snapshot: freeze every CPU that runs, as a watch does. With BANKS each goes on in its next
 * bank, if one is free.
 */
#define PTWATCH_IOC_TRACE_FREEZE _IO(PTWATCH_IOC_MAGIC, 0x15)
/*
 * Publish head (and in RING, WRAPPED) of every CPU that runs; it goes on with a PSB+ there. For a
 * stream also what an interrupt that never came should have done.
 */
#define PTWATCH_IOC_TRACE_FLUSH	_IO(PTWATCH_IOC_MAGIC, 0x16)
#define PTWATCH_IOC_TRACE_ADVANCE _IOW(PTWATCH_IOC_MAGIC, 0x17, struct ptwatch_advance)
#define PTWATCH_IOC_BANK_FREE	_IOW(PTWATCH_IOC_MAGIC, 0x18, struct ptwatch_bank_free)
#define PTWATCH_IOC_WATCH_ADD	_IOWR(PTWATCH_IOC_MAGIC, 0x20, struct ptwatch_watch)
/*
 * Disarm; the argument is the number of a watch of this session (ENOENT otherwise), passed by
 * value.
 */
#define PTWATCH_IOC_WATCH_DEL	_IO(PTWATCH_IOC_MAGIC, 0x21)
#define PTWATCH_IOC_WATCH_STAT	_IOWR(PTWATCH_IOC_MAGIC, 0x22, struct ptwatch_watch_stat)
#define PTWATCH_IOC_WATCH_NEXT	_IOWR(PTWATCH_IOC_MAGIC, 0x23, struct ptwatch_watch_entry)
/* As WATCH_DEL, for a watch of anyone: CAP_SYS_ADMIN. */
#define PTWATCH_IOC_WATCH_REMOVE _IO(PTWATCH_IOC_MAGIC, 0x24)
/*
 * read(2) from now on gives the kept alarms of persistent watches and then those of every watch,
 * not only this session's: CAP_SYS_ADMIN, not under lockdown=confidentiality. No argument.
 */
#define PTWATCH_IOC_LISTEN	_IO(PTWATCH_IOC_MAGIC, 0x25)

/*
 * mmap(2) offsets, MAP_SHARED and PROT_READ only. A mapping holds a reference: it stays readable
 * after TRACE_RELEASE, and the session (with what it armed) lives until the last one is gone.
 */
#define PTWATCH_MMAP_CONTROL(cpu)	((__u64)(cpu) << 40)			/* one page */
#define PTWATCH_MMAP_DATA(cpu)		((__u64)(cpu) << 40 | 1ULL << 39)	/* <= buffer_size */
#define PTWATCH_MMAP_BANK(cpu, bank)	(PTWATCH_MMAP_DATA(cpu) | (__u64)(bank) << 35)
/* ptwatch_switches.data_offset + switch_records * sizeof(struct ptwatch_switch), in whole pages */
#define PTWATCH_MMAP_SWITCHES(cpu)	((__u64)(cpu) << 40 | 1ULL << 38)

/* ptwatch_control.state */
#define PTWATCH_STATE_STOPPED	0U
#define PTWATCH_STATE_RUNNING	1U
#define PTWATCH_STATE_FROZEN	2U	/* by a watch; THAW to go on */
#define PTWATCH_STATE_ERROR	3U	/* STATUS.Error, see @rtit_status */
#define PTWATCH_STATE_OFFLINE	4U	/* the CPU is offline; resumes by itself */

#define PTWATCH_CONTROL_WRAPPED	(1U << 0)	/* the ring is full: the oldest byte is at head */
#define PTWATCH_CONTROL_STOPPED	(1U << 1)	/* a STOP range was reached, tracing ended there */
#define PTWATCH_CONTROL_VMX	(1U << 2)	/* someone switched VMX on, which ended tracing */
/*
 * The CPU overran a stream's buffer before its interrupt came: packets were lost that nobody could
 * count. Their place is in losses[] with bytes = 0.
 */
#define PTWATCH_CONTROL_OVERRUN	(1U << 3)

/**
 * struct ptwatch_loss - where a stream has a gap
 * @position: in the stream (as control.head), of the byte behind the gap
 * @bytes: written by the CPU and lost
 * @start_tsc: when the CPU had no room any more
 * @end_tsc: when it had again
 */
struct ptwatch_loss {
	__u64 position;
	__u64 bytes;
	__u64 start_tsc;
	__u64 end_tsc;
};

#define PTWATCH_LOSSES		16

/**
 * struct ptwatch_bank - one ring of a CPU
 * @state: PTWATCH_BANK_*
 * @flags: PTWATCH_CONTROL_WRAPPED, once it is frozen
 * @head: as ptwatch_control.head, once it is frozen
 * @start_tsc: when tracing into it last started
 * @stop_tsc: when it was frozen
 * @freeze_seq: sequence number of the alarm that froze it; 0: TRACE_FREEZE did
 */
struct ptwatch_bank {
	__u32 state;
	__u32 flags;
	__u64 head;
	__u64 start_tsc;
	__u64 stop_tsc;
	__u64 freeze_seq;
};

#define PTWATCH_BANK_NONE	0U	/* there is no such bank */
#define PTWATCH_BANK_FREE	1U	/* not used yet, or again */
#define PTWATCH_BANK_ACTIVE	2U	/* the CPU writes it, or did last */
#define PTWATCH_BANK_FROZEN	3U	/* to be read, and freed with BANK_FREE */

/**
 * struct ptwatch_control - the control page of one CPU, read-only
 * @size: bytes of this struct that the module fills
 * @cpu: the CPU
 * @sequence: even while the page is at rest; read it before and after (with acquire ordering), and
 *	again when the two differ or are odd. Not changed by what is marked "live".
 * @state: PTWATCH_STATE_*
 * @flags: PTWATCH_CONTROL_*
 * @bank: number of the buffer the CPU writes; 0 while there is only one
 * @data_size: bytes of the data mapping
 * @head: RING and BANKS: offset in the data mapping (of @bank) behind the newest byte; as of the
 *	last STOP, freeze or FLUSH. With WRAPPED the trace is data[head .. data_size) followed by
 *	data[0 .. head), otherwise it is data[0 .. head).
 *	STREAM: bytes that can be read since SETUP; byte n is at data[n % data_size]. Live: load it
 *	with acquire ordering.
 * @tail: STREAM: bytes that ADVANCE gave back; else 0
 * @lost: STREAM: bytes written by the CPU that had no room; live. The CPU wrote @head + @lost bytes
 *	in all.
 * @start_tsc: TSC when tracing last started
 * @stop_tsc: TSC when it last stopped or froze
 * @rtit_ctl: IA32_RTIT_CTL while tracing
 * @rtit_status: IA32_RTIT_STATUS when it last stopped
 * @freeze_seq: sequence number of the alarm that froze it; 0: not frozen by a watch
 * @nr_losses: STREAM: gaps so far; live. Gap n is losses[n % PTWATCH_LOSSES]; a new one begins only
 *	after an ADVANCE that ended the one before, so who looks before each ADVANCE sees all.
 * @losses: STREAM: see @nr_losses
 * @banks: BANKS: each of them
 */
struct ptwatch_control {
	__u32 size;
	__u32 cpu;
	__u32 sequence;
	__u32 state;
	__u32 flags;
	__u32 bank;
	__u64 data_size;
	__u64 head;
	__u64 tail;
	__u64 lost;
	__u64 start_tsc;
	__u64 stop_tsc;
	__u64 rtit_ctl;
	__u64 rtit_status;
	__u64 freeze_seq;
	__u64 nr_losses;
	struct ptwatch_loss losses[PTWATCH_LOSSES];
	struct ptwatch_bank banks[PTWATCH_MAX_BANKS];
};

/**
 * struct ptwatch_switch - one context switch of a CPU
 * @tsc: when, while @prev still had the CPU
 * @prev_tid: thread that lost the CPU, as the initial pid namespace has it; 0: idle
 * @prev_pid: its process
 * @next_tid: thread that got it
 * @next_pid: its process
 * @cpu: the CPU
 * @flags: PTWATCH_SWITCH_*
 */
struct ptwatch_switch {
	__u64 tsc;
	__u32 prev_tid;
	__u32 prev_pid;
	__u32 next_tid;
	__u32 next_pid;
	__u32 cpu;
	__u32 flags;
};

#define PTWATCH_SWITCH_PREEMPT	(1U << 0)	/* prev would have gone on running */
/* No switch: who had the CPU when its tracing was started (prev and next are the same). */
#define PTWATCH_SWITCH_START	(1U << 1)

/**
 * struct ptwatch_switches - the first bytes of the PTWATCH_MMAP_SWITCHES() mapping, read-only
 * @size: bytes of this struct
 * @cpu: the CPU
 * @records: how many there is room for, a power of two
 * @data_offset: of the first record in the mapping
 * @head: records written since SETUP (load it with acquire ordering); record n is at index
 *	n % @records, if head - n < @records still holds after it was copied. What is older was
 *	overwritten: the reader that was too slow knows exactly how many it missed.
 *
 * Written from START on while the trace is RUNNING or FROZEN, whatever its target.
 */
struct ptwatch_switches {
	__u32 size;
	__u32 cpu;
	__u32 records;
	__u32 data_offset;
	__u64 head;
};

#endif /* _UAPI_LINUX_PTWATCH_H */
