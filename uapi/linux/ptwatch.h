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
 * poll() reports POLLPRI once for the alarms raised since it last did (also for those raised before
 * the first call; epoll's EPOLL_CTL_ADD is such a call and uses them up), and POLLIN as long as a
 * CPU's trace is frozen.
 *
 * The alarms themselves travel over generic netlink: <linux/ptwatch_netlink.h>.
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

/*
 * IA32_RTIT_CTL bits a session may ask for, at the places the SDM gives them (vol. 3C, "Intel
 * Processor Trace", IA32_RTIT_CTL). TraceEn and ToPA are the module's; every other bit is EINVAL.
 */
#define PTWATCH_RTIT_CTL_CYCEN		(1ULL << 1)
#define PTWATCH_RTIT_CTL_OS		(1ULL << 2)	/* trace CPL 0; CAP_SYS_ADMIN */
#define PTWATCH_RTIT_CTL_USER		(1ULL << 3)	/* trace CPL > 0 */
#define PTWATCH_RTIT_CTL_MTCEN		(1ULL << 9)
#define PTWATCH_RTIT_CTL_TSCEN		(1ULL << 10)
#define PTWATCH_RTIT_CTL_DISRETC	(1ULL << 11)
#define PTWATCH_RTIT_CTL_BRANCHEN	(1ULL << 13)
#define PTWATCH_RTIT_CTL_MTCFREQ	(0xfULL << 14)	/* one of info.mtc_periods */
#define PTWATCH_RTIT_CTL_CYCTHRESH	(0xfULL << 19)	/* one of info.cyc_thresholds */
#define PTWATCH_RTIT_CTL_PSBFREQ	(0xfULL << 24)	/* of info.psb_periods: 2 KiB << n */

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
 * @max_buffer_size: out: largest ptwatch_trace.buffer_size, bytes per CPU
 * @breakpoint_slots: out: debug registers a CPU has (shared with perf, gdb and ptrace)
 * @reserved: out: 0
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
	__u32 reserved;
};

#define PTWATCH_INFO_PT			(1U << 0)	/* the CPU has Intel PT */
#define PTWATCH_INFO_TRACEABLE		(1U << 1)	/* multi-entry ToPA: TRACE_SETUP works */
#define PTWATCH_INFO_VMX_CONFLICT	(1U << 2)	/* not while VMX is on: VMX_MISC[14] = 0 */
#define PTWATCH_INFO_LOCKDOWN		(1U << 3)	/* lockdown=confidentiality */

/**
 * struct ptwatch_trace - PTWATCH_IOC_TRACE_SETUP: reserve Intel PT and its buffers on CPUs (_IOWR)
 * @size: in: sizeof(struct ptwatch_trace)
 * @flags: in: 0
 * @rtit_ctl: in: PTWATCH_RTIT_CTL_* bits; at least one of OS and USER
 * @buffer_size: in: bytes for each CPU, a multiple of the page size, at most info.max_buffer_size;
 *	out: what was allocated (the same)
 * @cpus: in: user pointer to a bitmap of CPU numbers (bit n of byte n / 8, as
 *	sched_setaffinity(2)); 0: every online CPU. A CPU that is not online is EINVAL.
 * @cpus_size: in: bytes at @cpus
 * @pt_pmu_type: in: the number in /sys/bus/event_source/devices/intel_pt/type, through which perf
 *	is kept off these CPUs while the session lives; -1 when that file does not exist (with -1,
 *	only other sessions are kept off; EINVAL when the kernel does have that PMU)
 * @nr_cpus: out: CPUs set up
 * @reserved: in: 0
 *
 * The buffer is a ring: the newest bytes win and nothing interrupts. Its memory is zeroed. A CPU
 * that goes offline keeps its buffer and resumes when it is back online.
 *
 * Errors: EBUSY (perf, another session, or firmware uses Intel PT on one of the CPUs, or this
 * session has a trace already), EOPNOTSUPP (no Intel PT, or a bit of @rtit_ctl this CPU lacks),
 * ENOMEM, EINVAL, EPERM.
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
	__u32 reserved;
};

/* What a watch traps on; ptwatch_watch.access. The hardware has no read-only watch. */
#define PTWATCH_ACCESS_W	1U	/* data writes; the hit is reported after the write */
#define PTWATCH_ACCESS_RW	2U	/* data reads and writes; reported after the access */
#define PTWATCH_ACCESS_X	3U	/* instruction execution; reported before the instruction */

/* What a hit does; ptwatch_watch.actions, any combination of at least one. */
#define PTWATCH_ACTION_LOG	(1U << 0)	/* kernel log with stack */
#define PTWATCH_ACTION_EVENT	(1U << 1)	/* netlink message, POLLPRI on the session */
#define PTWATCH_ACTION_FREEZE	(1U << 2)	/* stop this session's trace on the CPU that hit */

#define PTWATCH_LABEL_SIZE	128

/**
 * struct ptwatch_watch - PTWATCH_IOC_WATCH_ADD: arm a hardware breakpoint on every CPU (_IOWR)
 * @size: in: sizeof(struct ptwatch_watch)
 * @flags: in: 0
 * @address: in: canonical kernel address; a data watch is aligned to @len
 * @len: in: 1, 2, 4 or 8 bytes; 8 for PTWATCH_ACCESS_X
 * @access: in: PTWATCH_ACCESS_*
 * @actions: in: PTWATCH_ACTION_*; FREEZE needs a trace that is set up
 * @max_hits: in: disarm after that many alarms; 1: one-shot; 0: never
 * @max_rate: in: alarms a second, the rest is counted only; 0: the module's default of 100
 * @id: out: number of the watch, unique while the module is loaded
 * @label: in: how people call the address ("kv_cache_meta+0x0"), NUL-terminated printable ASCII;
 *	may be empty
 *
 * Armed on every online CPU and on each that comes online while the watch lives. Disarmed when the
 * module that @address is in is unloaded (struct ptwatch_watch_stat tells). Not seen, because
 * the hardware or the kernel masks it: writes by NMI, #MC and #DB handlers, and by devices (DMA).
 *
 * Errors: ENOSPC (no free debug register on some CPU; perf, gdb and ptrace use them too), EINVAL
 * (alignment, length, an address that is not canonical or that the kernel refuses, such as entry
 * code), EPERM.
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
};

/**
 * struct ptwatch_watch_stat - PTWATCH_IOC_WATCH_STAT: what became of a watch's hits (_IOWR)
 * @size: in: sizeof(struct ptwatch_watch_stat)
 * @id: in: a watch of this session; else ENOENT
 * @armed_cpus: out: CPUs whose debug registers hold the watch
 * @reserved: out: 0
 * @hits: out: times the hardware reported the watch
 * @alarms: out: hits that became an alarm and were delivered
 * @ignored: out: hits after @max_hits was reached, before every CPU was disarmed
 * @rate_limited: out: hits over @max_rate
 * @dropped: out: hits for which no record was free
 *
 * hits = alarms + ignored + rate_limited + dropped, once no alarm is on its way to a listener.
 */
struct ptwatch_watch_stat {
	__u32 size;
	__u32 id;
	__u32 armed_cpus;
	__u32 reserved;
	__u64 hits;
	__u64 alarms;
	__u64 ignored;
	__u64 rate_limited;
	__u64 dropped;
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
#define PTWATCH_IOC_WATCH_ADD	_IOWR(PTWATCH_IOC_MAGIC, 0x20, struct ptwatch_watch)
/*
 * Disarm; the argument is the number of a watch of this session (ENOENT otherwise), passed by
 * value.
 */
#define PTWATCH_IOC_WATCH_DEL	_IO(PTWATCH_IOC_MAGIC, 0x21)
#define PTWATCH_IOC_WATCH_STAT	_IOWR(PTWATCH_IOC_MAGIC, 0x22, struct ptwatch_watch_stat)

/*
 * mmap(2) offsets, MAP_SHARED and PROT_READ only. A mapping holds a reference: it stays readable
 * after TRACE_RELEASE, and the session (with what it armed) lives until the last one is gone.
 */
#define PTWATCH_MMAP_CONTROL(cpu)	((__u64)(cpu) << 40)			/* one page */
#define PTWATCH_MMAP_DATA(cpu)		((__u64)(cpu) << 40 | 1ULL << 39)	/* <= buffer_size */

/* ptwatch_control.state */
#define PTWATCH_STATE_STOPPED	0U
#define PTWATCH_STATE_RUNNING	1U
#define PTWATCH_STATE_FROZEN	2U	/* by a watch; THAW to go on */
#define PTWATCH_STATE_ERROR	3U	/* STATUS.Error, see @rtit_status */
#define PTWATCH_STATE_OFFLINE	4U	/* the CPU is offline; resumes by itself */

#define PTWATCH_CONTROL_WRAPPED	(1U << 0)	/* the ring is full: the oldest byte is at head */

/**
 * struct ptwatch_control - the control page of one CPU, read-only
 * @size: bytes of this struct that the module fills
 * @cpu: the CPU
 * @sequence: even while the page is at rest; read it before and after (with acquire ordering), and
 *	again when the two differ or are odd
 * @state: PTWATCH_STATE_*
 * @flags: PTWATCH_CONTROL_*
 * @bank: number of the buffer the CPU writes; 0 while there is only one
 * @data_size: bytes of the data mapping
 * @head: offset in the data mapping behind the newest byte; valid unless RUNNING. With WRAPPED the
 *	trace is data[head .. data_size) followed by data[0 .. head), otherwise it is data[0 ..
 *	head).
 * @tail: 0 (what a reader consumed; for buffers that stream)
 * @lost: 0 (bytes lost; for buffers that stream)
 * @start_tsc: TSC when tracing last started
 * @stop_tsc: TSC when it last stopped or froze
 * @rtit_ctl: IA32_RTIT_CTL while tracing
 * @rtit_status: IA32_RTIT_STATUS when it last stopped
 * @freeze_seq: sequence number of the alarm that froze it; 0: not frozen by a watch
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
};

#endif /* _UAPI_LINUX_PTWATCH_H */
