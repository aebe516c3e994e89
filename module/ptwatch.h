/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ptwatch.ko, internally. One section for each file; each function is documented here, where it is
 * declared.
 *
 * Locks, outermost first:
 *
 *	cpus_read_lock()
 *		keeps CPUs from coming and going; CPU hotplug callbacks hold it for writing
 *	ptw_config_lock
 *		mutex: which session owns which CPU's Intel PT, the list of watches, control pages
 *	session->trace_lock
 *		spinlock: the session's trace pointer, for mmap, which must not take the mutex:
 *		mmap runs under mmap_lock, and who holds the mutex may allocate memory
 *
 * No user memory is touched under ptw_config_lock. The #DB handler takes none of these; what it
 * shares with others is named at struct ptw_cpu_trace and struct ptw_watch.
 */
#ifndef PTWATCH_H
#define PTWATCH_H

#include <linux/cpumask.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include <linux/ptwatch.h>
#include <linux/ptwatch_netlink.h>

#include "compat.h"

extern struct mutex ptw_config_lock;

/**
 * struct ptw_session - an open file
 * @trace: its trace or NULL; changed under ptw_config_lock and @trace_lock both, so either suffices
 *	to read
 * @trace_lock: see above
 * @alarms: alarms raised by its watches and not yet seen by poll; under ptw_config_lock to add
 * @wait: poll
 */
struct ptw_session {
	struct ptw_trace *trace;
	spinlock_t trace_lock;
	atomic_t alarms;
	wait_queue_head_t wait;
};

/* ---- caps.c: what the CPU enumerates; SDM vol. 3C, "Intel PT enumeration", leaf 0x14 ---- */

enum ptw_cap {
	PTW_CAP_CR3_FILTERING,
	PTW_CAP_PSB_CYC,
	PTW_CAP_IP_FILTERING,
	PTW_CAP_MTC,
	PTW_CAP_TOPA_OUTPUT,
	PTW_CAP_TOPA_MULTIPLE_ENTRIES,
	PTW_CAP_NUM_ADDRESS_RANGES,
	PTW_CAP_MTC_PERIODS,
	PTW_CAP_CYCLE_THRESHOLDS,
	PTW_CAP_PSB_PERIODS,
};

/** ptw_caps_init() - read CPUID; called once, before anything else here */
void ptw_caps_init(void);
/** ptw_cap() - value of a capability, 0 without Intel PT; any context */
u32 ptw_cap(enum ptw_cap cap);
/** ptw_caps_fill_info() - all of @info but its size; any context that may log (lockdown) */
void ptw_caps_fill_info(struct ptwatch_info *info);
/**
 * ptw_caps_check_rtit_ctl() - can this CPU do what @ctl asks for?
 * Return: 0; -EINVAL: a bit or value that is none of a session's business or makes no sense;
 * -EOPNOTSUPP: the CPU lacks it.
 */
int ptw_caps_check_rtit_ctl(u64 ctl);
/** ptw_caps_ranges() - number of IA32_RTIT_ADDRn pairs, at most PTW_MAX_RANGES */
unsigned int ptw_caps_ranges(void);
/** ptw_caps_traceable() - Intel PT with multi-entry ToPA */
bool ptw_caps_traceable(void);
/**
 * ptw_caps_vmx_conflict() - does this CPU, now, have VMX on in a way that forbids TraceEn? On that
 * CPU, IRQs off.
 */
bool ptw_caps_vmx_conflict(void);

/* ---- rtit.c: the only file that touches IA32_RTIT_* MSRs ---- */

/**
 * struct ptw_rtit_output - where the CPU writes next: IA32_RTIT_OUTPUT_BASE and _MASK_PTRS; status
 * as read at stop
 */
struct ptw_rtit_output {
	u64 base;
	u64 mask_ptrs;
	u64 status;
};

/** struct ptw_rtit_regs - every RTIT MSR of a CPU, as found before first use */
struct ptw_rtit_regs {
	u64 ctl;
	struct ptw_rtit_output output;
	u64 cr3_match;
	u64 addr[8];
};

#define PTW_MAX_RANGES	PTWATCH_MAX_RANGES

/**
 * struct ptw_rtit_config - what to trace
 * @ctl: IA32_RTIT_CTL but TraceEn and ToPA; ADDRn_CFG tells which of @addr are used
 * @cr3_match: IA32_RTIT_CR3_MATCH, if @ctl has CR3Filter
 * @addr: IA32_RTIT_ADDRn_A and _B of each range, n = 0 ...
 */
struct ptw_rtit_config {
	u64 ctl;
	u64 cr3_match;
	u64 addr[2 * PTW_MAX_RANGES];
};

/* IA32_RTIT_CTL.ADDRn_CFG: PTWATCH_RANGE_*, 0: not used */
static inline unsigned int ptw_rtit_range_kind(const struct ptw_rtit_config *config,
					       unsigned int range)
{
	return config->ctl >> (32 + 4 * range) & 0xf;
}

/*
 * All on the CPU concerned, IRQs off; ptw_rtit_stop() also in #DB and NMI context. None sleeps.
 */
/** ptw_rtit_save() - read every RTIT MSR; -EBUSY when the CPU is tracing already */
int ptw_rtit_save(struct ptw_rtit_regs *regs);
/** ptw_rtit_restore() - write back what ptw_rtit_save() read; tracing must be off */
void ptw_rtit_restore(const struct ptw_rtit_regs *regs);
/** ptw_rtit_start() - begin writing at @output with a PSB+; -EIO when the CPU refuses @config */
int ptw_rtit_start(const struct ptw_rtit_output *output, const struct ptw_rtit_config *config);
/** ptw_rtit_stop() - clear TraceEn, wait for the bytes to be visible, read back @output */
void ptw_rtit_stop(struct ptw_rtit_output *output);

/* ---- topa.c: Tables of Physical Addresses ---- */

/** struct ptw_region - physically contiguous, size-aligned output memory */
struct ptw_region {
	phys_addr_t base;
	u64 offset;		/* of its first byte in the buffer */
	unsigned int order;	/* size is PAGE_SIZE << order */
};

struct ptw_alarm;
struct ptw_topa;

/** ptw_topa_alloc() - tables that make @regions a ring; NULL: no memory. May sleep. */
struct ptw_topa *ptw_topa_alloc(const struct ptw_region *regions, unsigned int count, int node);
void ptw_topa_free(struct ptw_topa *topa);
/** ptw_topa_first() - output position at the first byte of the ring */
void ptw_topa_first(const struct ptw_topa *topa, struct ptw_rtit_output *output);
/** ptw_topa_offset() - buffer offset of an output position; any context */
u64 ptw_topa_offset(const struct ptw_topa *topa, const struct ptw_rtit_output *output);

/* ---- buffer.c: the memory of one CPU's trace, and its mappings ---- */

/**
 * struct ptw_buffer - one CPU's output memory and control page
 * @kref: one for the trace, one for each mapping
 * @control: page that user space reads; written under ptw_config_lock only
 * @pages: of the data, in order; refcounted each, because mappings hold them
 * @size: bytes of data
 * @topa: the tables that describe it to the CPU
 */
struct ptw_buffer {
	struct kref kref;
	struct ptwatch_control *control;
	struct page **pages;
	unsigned long nr_pages;
	u64 size;
	struct ptw_region *regions;
	unsigned int nr_regions;
	struct ptw_topa *topa;
};

/**
 * ptw_buffer_alloc() - @size bytes (a multiple of PAGE_SIZE), zeroed, on @cpu's node; NULL: no
 * memory. May sleep.
 */
struct ptw_buffer *ptw_buffer_alloc(unsigned int cpu, u64 size);
void ptw_buffer_get(struct ptw_buffer *buffer);
void ptw_buffer_put(struct ptw_buffer *buffer);
/**
 * ptw_buffer_written_at() - were bytes written at or behind @head, that is: has the ring wrapped?
 * May be slow.
 */
bool ptw_buffer_written_at(const struct ptw_buffer *buffer, u64 head);
/** ptw_buffer_mmap() - map control page or data, read-only; the mapping takes its own reference */
int ptw_buffer_mmap(struct ptw_buffer *buffer, struct vm_area_struct *vma, bool data);
/** ptw_buffer_max_size() - largest ptw_buffer_alloc() this machine's memory allows per CPU */
u64 ptw_buffer_max_size(void);

/* ---- hold.c: keeping perf's intel_pt driver off a CPU ---- */

/**
 * ptw_hold_get() - own the exclusive intel_pt PMU on @cpu
 * @pmu_type: its perf type as user space read it from sysfs; negative: the kernel has no such PMU
 *
 * Under cpus_read_lock() or in a hotplug callback; may sleep. Return: the hold, NULL when there is
 * no PMU to hold, -EBUSY: perf traces there; -EINVAL: @pmu_type is another PMU's, or negative
 * though there is one.
 */
struct perf_event *ptw_hold_get(unsigned int cpu, int pmu_type);
void ptw_hold_put(struct perf_event *hold);

/* ---- trace.c: which CPUs are traced for which session ---- */

/**
 * struct ptw_cpu_trace - one CPU of a trace
 * @state: PTWATCH_STATE_*. Written on its own CPU with IRQs off, or under ptw_config_lock while
 *	that CPU is not RUNNING. The #DB handler may turn RUNNING into FROZEN between any two
 *	instructions of the CPU's other code, so that code goes from state to state with cmpxchg and
 *	looks again after it enabled tracing.
 * @output: where the CPU writes next; as @state. The #DB handler writes it before it sets FROZEN.
 * @enabled: TraceEn is set and the output MSRs are this trace's; written on its own CPU, later than
 *	@state on the way to RUNNING and on the way from there
 * @resume: to be started when the CPU is back online or the machine awake
 * @saved: the RTIT MSRs as perf left them
 */
struct ptw_cpu_trace {
	struct ptw_trace *trace;
	unsigned int cpu;
	unsigned int state;
	struct ptw_rtit_output output;
	u64 start_tsc;
	u64 stop_tsc;
	bool enabled;
	bool owned;
	bool resume;
	bool wrapped;
	struct perf_event *hold;
	struct ptw_rtit_regs saved;
	struct ptw_buffer *buffer;
};

/**
 * struct ptw_trace - one session's trace
 * @config: what its CPUs trace; under ptw_config_lock
 */
struct ptw_trace {
	struct ptw_session *session;
	struct ptw_rtit_config config;
	u64 buffer_size;
	int pmu_type;
	struct cpumask cpus;
	struct ptw_cpu_trace *cpu[];	/* indexed by CPU, NULL where not in @cpus */
};

/* Under cpus_read_lock() and ptw_config_lock; may sleep. */
int ptw_trace_setup(struct ptw_session *session, const struct ptwatch_trace *arg,
		    const struct cpumask *cpus);
int ptw_trace_start(struct ptw_session *session);
int ptw_trace_stop(struct ptw_session *session);
int ptw_trace_thaw(struct ptw_session *session);
void ptw_trace_release(struct ptw_session *session);
/**
 * ptw_trace_range_get() - take a free IA32_RTIT_ADDRn pair of @session's trace
 * @start, @end: first and last address, both canonical
 * @kind: PTWATCH_RANGE_*
 *
 * A CPU that runs goes by it from now on. Under cpus_read_lock() and ptw_config_lock; may sleep.
 * Return: the range's number, -ENOSPC: none is free; -EINVAL: there is no trace.
 */
int ptw_trace_range_get(struct ptw_session *session, u64 start, u64 end, unsigned int kind);
/** ptw_trace_range_put() - give a range back; as ptw_trace_range_get(); no error without a trace */
void ptw_trace_range_put(struct ptw_session *session, int range);
/** ptw_trace_any_frozen() - poll's POLLIN; any process context, no lock */
bool ptw_trace_any_frozen(struct ptw_session *session);
/**
 * ptw_trace_buffer() - a reference to the buffer of @cpu, NULL: none. Takes session->trace_lock.
 */
struct ptw_buffer *ptw_trace_buffer(struct ptw_session *session, unsigned int cpu);

/**
 * ptw_trace_freeze() - freeze this CPU's trace if @session owns it and it runs. #DB context, IRQs
 * off.
 */
bool ptw_trace_freeze(const struct ptw_session *session);
/**
 * ptw_trace_publish_freeze() - make the freeze that @alarm tells of visible on the control page,
 * under ptw_config_lock
 * @head, @size: out: where the frozen trace ends, and its bytes
 * Return: false when @session's trace of that CPU is not frozen by this alarm (any more).
 */
bool ptw_trace_publish_freeze(const struct ptw_session *session, const struct ptw_alarm *alarm,
			      u64 *head, u64 *size);

/* CPU hotplug and sleep, from main.c and emergency.c; they take ptw_config_lock themselves */
void ptw_trace_cpu_online(unsigned int cpu);
void ptw_trace_cpu_offline(unsigned int cpu);
void ptw_trace_suspend(void);
void ptw_trace_resume(void);
/**
 * ptw_trace_emergency_stop() - clear TraceEn on this CPU if it is ours; any context, also NMI and
 * panic
 */
void ptw_trace_emergency_stop(void *unused);
/** ptw_trace_halt() - stop every CPU, and let none start again: the machine goes down; may sleep */
void ptw_trace_halt(void);

/* ---- condition.c: which hits count ---- */

/**
 * struct ptw_condition - a watch's condition, prepared for the #DB handler
 * @value_op: PTWATCH_VALUE_*
 * @value_mask: bits that are compared; none beyond the bytes that are
 * @value: masked
 * @value_signed, @sign_shift: the order is of signed numbers, whose sign is that far from bit 63
 * @allow_kinds: bit for each kind of filter without DENY
 * @passed: hits that fulfilled everything, to compare with @skip
 */
struct ptw_condition {
	u32 value_op;
	bool value_signed;
	u8 sign_shift;
	u64 value_mask;
	u64 value;
	u32 allow_kinds;
	u32 nr_filters;
	const struct ptwatch_who *filters;
	u64 stack_start;
	u64 stack_end;
	u64 skip;
	atomic64_t passed;
};

/**
 * ptw_condition_init() - check and prepare
 * @filters: of @arg, kept
 * Return: 0 or -EINVAL with @why
 */
int ptw_condition_init(struct ptw_condition *cond, const struct ptwatch_watch *arg,
		       const struct ptwatch_who *filters, struct ptwatch_refusal *why);
/** ptw_condition_holds() - does a hit count? #DB context; @old and @new: as read back */
bool ptw_condition_holds(struct ptw_condition *cond, u64 old, u64 new, struct pt_regs *regs);

/* ---- watch.c: hardware breakpoints ---- */

#define PTW_MAX_SLOTS	4

/**
 * struct ptw_point - what one debug register holds, for one CPU or thread
 * @watch: whose part it is
 * @address, @len: what the register watches
 * @slot: which part of the watch that is
 * @shadow: where the value at the last hit is kept: &@own_shadow for a per-CPU variable, else one
 *	that all CPUs share; the #DB handlers exchange it
 * @window_hits, @window_start: hits since that TSC, for max_storm
 * @event: NULL: not armed
 */
struct ptw_point {
	struct ptw_watch *watch;
	u64 address;
	u32 len;
	u32 slot;
	u32 window_hits;
	u64 window_start;
	u64 *shadow;
	u64 own_shadow;
	struct perf_event *event;
};

/**
 * struct ptw_watch - a watch
 * @session: owner, NULL: none (any more); under ptw_config_lock
 * @owner: the same, never cleared, for the #DB handler to compare only; never dereferenced
 * @owner_pid, @owner_comm: who armed it
 * @kref: one for the list, one for each alarm record on its way
 * @state: PTWATCH_WATCH_*, under ptw_config_lock
 * @address: where it is armed: arg.address, or what a module's symbol came to; 0: nowhere
 * @nr_slots: debug registers it takes on a CPU
 * @shadow: values at the last hit or at arming, one for each slot
 * @over: PTWATCH_WATCH_DONE or _STORM once the #DB handler said so; hits are ignored then
 * @claimed: alarms claimed by hits, to compare with max_hits
 * @window, @window_alarms: TSC at the start of the current second and hits in
 *	it, for max_rate
 * @cpus: where accesses count
 * @point: of a kernel watch: nr_slots for each CPU
 * @threads: of a process's watch: one struct ptw_thread for each thread there was
 */
struct ptw_watch {
	struct list_head link;
	struct ptw_session *session;
	const struct ptw_session *owner;
	struct pid *owner_pid;
	char owner_comm[TASK_COMM_LEN];
	struct kref kref;
	struct ptwatch_watch arg;
	u32 state;
	u64 address;
	u32 nr_slots;
	u64 shadow[PTW_MAX_SLOTS];
	struct ptw_condition cond;
	int over;
	atomic_t claimed;
	atomic64_t window;
	atomic_t window_alarms;
	atomic64_t hits;
	atomic64_t alarms;
	atomic64_t filtered;
	atomic64_t ignored;
	atomic64_t rate_limited;
	atomic64_t dropped;
	atomic64_t missed;
	cpumask_var_t cpus;
	struct list_head threads;
	struct ptw_point *point;
};

/**
 * struct ptw_watch_request - WATCH_ADD, with everything it points to
 * @filters: arg.nr_filters of them, kmalloc()ed; a watch that is added takes them (and leaves NULL)
 * @cpus: where accesses count; a watch that is added copies them
 * @why: out
 */
struct ptw_watch_request {
	struct ptwatch_watch arg;
	struct ptwatch_who *filters;
	cpumask_var_t cpus;
	struct ptwatch_refusal why;
};

extern struct list_head ptw_watches;	/* in the order of their ids; under ptw_config_lock */

/** ptw_watch_exit() - remove what is left, persistent watches; no session is there any more */
void ptw_watch_exit(void);
/*
 * Under cpus_read_lock() and ptw_config_lock (for _stat and _next the latter is enough); may sleep.
 * @session NULL: whoever's.
 */
int ptw_watch_add(struct ptw_session *session, struct ptw_watch_request *request);
int ptw_watch_del(struct ptw_session *session, u32 id);
/** ptw_watch_del_all() - what ends with @session; persistent watches lose it */
void ptw_watch_del_all(struct ptw_session *session);
int ptw_watch_stat(struct ptw_session *session, struct ptwatch_watch_stat *stat);
int ptw_watch_next(struct ptwatch_watch_entry *entry);
/**
 * ptw_watch_arm() - on every CPU, at @address, which is checked first
 * Return: 0; else a negative error with @why, and nothing is armed
 */
int ptw_watch_arm(struct ptw_watch *watch, u64 address, struct ptwatch_refusal *why);
/** ptw_watch_disarm() - let go of the debug registers; the watch stays listed. Idempotent. */
void ptw_watch_disarm(struct ptw_watch *watch, u32 state);
/** ptw_watch_disarm_storms() - what the #DB handler found to be a storm */
void ptw_watch_disarm_storms(void);
void ptw_watch_put(struct ptw_watch *watch);
void ptw_watch_cpu_online(unsigned int cpu);
void ptw_watch_cpu_offline(unsigned int cpu);

/** ptw_point_init() - part @slot of a watch that begins at @address */
void ptw_point_init(struct ptw_point *point, struct ptw_watch *watch, u32 slot, u64 address);
/** ptw_point_attr() - what to ask perf for */
void ptw_point_attr(const struct ptw_point *point, struct perf_event_attr *attr);
void ptw_point_disarm(struct ptw_point *point);

/* ---- module_watch.c: modules that come and go; may sleep ---- */

int ptw_module_watch_init(void);
void ptw_module_watch_exit(void);

/* ---- hit.c: the #DB handler ---- */

/** ptw_watch_hit() - perf's overflow handler; its context is a struct ptw_point */
void ptw_watch_hit(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs);
/** ptw_point_read() - the watched bytes, zero-extended; any context, 0 when they can't be read */
u64 ptw_point_read(const struct ptw_point *point);

/* ---- stack.c: kernel and user stacks of a hit ---- */

#define PTW_STACK_MAX		64
#define PTW_USER_STACK_MAX	32
#define PTW_STACK_BYTES		4096

/**
 * struct ptw_stack - the kernel stack of a hit
 * @nr: addresses in @addr, from the hit outwards; 0: still to be found in @copy
 * @base: address of the first byte of @copy
 * @size: bytes of @copy that are used
 */
struct ptw_stack {
	u32 nr;
	u32 size;
	unsigned long base;
	unsigned long addr[PTW_STACK_MAX];
	u8 copy[PTW_STACK_BYTES] __aligned(8);
};

/**
 * ptw_stack_take() - note the kernel stack that led to @regs. #DB context.
 *
 * Unwinding costs some hundred instructions a frame, so what fits is only copied.
 */
void ptw_stack_take(struct ptw_stack *stack, struct pt_regs *regs);
/** ptw_stack_unwind() - fill in addr and nr, where _take() left that; any context */
void ptw_stack_unwind(struct ptw_stack *stack, struct pt_regs *regs);
/** ptw_stack_contains() - is ip or a return address in [@start, @end)? #DB context */
bool ptw_stack_contains(struct pt_regs *regs, u64 start, u64 end);
/**
 * ptw_user_stack() - of the user code that @regs interrupted, or that made the system call which
 * they did; by frame pointers, without faulting. #DB context. Return: addresses in @to, 0: none.
 */
u32 ptw_user_stack(unsigned long *to, u32 max, struct pt_regs *regs);

/* ---- alarm.c: from the #DB handler to log, netlink and poll ---- */

/** struct ptw_alarm - what the #DB handler notes down */
struct ptw_alarm {
	struct ptw_watch *watch;	/* holds a reference */
	u64 time;
	u64 tsc;
	u64 cgroup;
	u64 address;			/* of the debug register that hit */
	u64 old_value;
	u64 new_value;
	u64 lost;
	u32 cpu;
	u32 pid;
	u32 tgid;
	u32 slot;
	bool have_values;
	bool frozen;
	bool last;			/* disarm the watch after this one */
	char comm[TASK_COMM_LEN];
	struct pt_regs regs;
	u32 nr_user_stack;
	unsigned long user_stack[PTW_USER_STACK_MAX];
	struct ptw_stack stack;
	/* filled in by the worker */
	u64 seq;
	u64 trace_head;
	u64 trace_size;
};

int ptw_alarm_init(void);
/** ptw_alarm_exit() - after the last watch is gone: waits for irq_work and worker */
void ptw_alarm_exit(void);
/**
 * ptw_alarm_reserve() - a record of this CPU's ring to fill in, NULL: none free, counted as lost.
 * #DB context.
 */
struct ptw_alarm *ptw_alarm_reserve(void);
/** ptw_alarm_commit() - hand the reserved record to the worker. #DB context. */
void ptw_alarm_commit(void);
/** ptw_alarm_kick() - have the worker look for storms. #DB context. */
void ptw_alarm_kick(void);

/* ---- netlink.c ---- */

int ptw_netlink_init(void);
void ptw_netlink_exit(void);
/**
 * ptw_netlink_send() - multicast to privileged listeners; may sleep. Nobody listening is no error.
 */
int ptw_netlink_send(const struct ptw_alarm *alarm);

/* ---- device.c: /dev/ptwatch ---- */

int ptw_device_init(void);
void ptw_device_exit(void);

/* ---- emergency.c: nothing stays traced over sleep, reboot and panic ---- */

int ptw_emergency_init(void);
void ptw_emergency_exit(void);

#endif /* PTWATCH_H */
