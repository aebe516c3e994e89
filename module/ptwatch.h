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
 *	target->lock
 *		raw spinlock: the address space of a traced process; also taken by the probe of exec
 *
 * ptw_hooks_lock (mutex, in hooks.c) is taken with none of them held and none is taken under it:
 * registering a probe takes cpus_read_lock() itself.
 *
 * No user memory is touched under ptw_config_lock. The #DB handler, the PMI's NMI handler and the
 * probe of sched_switch take none of these; what they share with others is named at struct
 * ptw_cpu_trace and struct ptw_watch.
 */
#ifndef PTWATCH_H
#define PTWATCH_H

#include <linux/cpumask.h>
#include <linux/irq_work.h>
#include <linux/kdebug.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netlink.h>
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

/** struct ptw_message - an alarm as a netlink message */
struct ptw_message {
	struct kref kref;
	u64 seq;
	u32 len;
	u8 data[] __aligned(8);
};

/**
 * struct ptw_queue - alarms that wait to be read; the oldest make room
 * @lock: innermost; process context only
 * @head, @tail: counts of messages ever put in and taken out
 * @unread: pushed out before they were read
 */
struct ptw_queue {
	spinlock_t lock;
	unsigned int head;
	unsigned int tail;
	u64 unread;
	struct ptw_message *message[PTWATCH_READ_MAX];
};

/**
 * struct ptw_session - an open file
 * @trace: its trace or NULL; changed under ptw_config_lock and @trace_lock both, so either suffices
 *	to read
 * @trace_lock: see above
 * @hooks: PTW_HOOK_* that its trace needs; under @setup_lock
 * @setup_lock: outermost of all: one TRACE_SETUP or TRACE_RELEASE at a time
 * @queue: alarms for read(2)
 * @listener: in the list of those who get everyone's alarms, or empty; under ptw_config_lock
 * @early: it has ptw_freeze_early_get()
 * @freezing: its watches that freeze
 * @stop_range: range that stops at #DBs, negative: none; all three under ptw_config_lock
 * @alarms: alarms raised by its watches and not yet seen by poll; under ptw_config_lock to add
 * @wait: poll
 */
struct ptw_session {
	struct ptw_queue queue;
	struct list_head listener;
	struct ptw_trace *trace;
	spinlock_t trace_lock;
	struct mutex setup_lock;
	unsigned int hooks;
	bool early;
	unsigned int freezing;
	int stop_range;
	atomic_t alarms;
	wait_queue_head_t wait;
};

/* ---- caps.c: what the CPU enumerates; SDM vol. 3C, "Intel PT enumeration", leaf 0x14 ---- */

enum ptw_cap {
	PTW_CAP_CR3_FILTERING,
	PTW_CAP_PSB_CYC,
	PTW_CAP_IP_FILTERING,
	PTW_CAP_MTC,
	PTW_CAP_PTWRITE,
	PTW_CAP_POWER_EVENTS,
	PTW_CAP_EVENT_TRACE,
	PTW_CAP_TNT_DISABLE,
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
 * @unsupported: out: the bits and fields it lacks
 * Return: 0; -EINVAL: a bit or value that is none of a session's business or makes no sense;
 * -EOPNOTSUPP: the CPU lacks it.
 */
int ptw_caps_check_rtit_ctl(u64 ctl, u64 *unsupported);
/** ptw_caps_ranges() - number of IA32_RTIT_ADDRn pairs, at most PTW_MAX_RANGES */
unsigned int ptw_caps_ranges(void);
/** ptw_caps_traceable() - Intel PT with ToPA */
bool ptw_caps_traceable(void);
/** ptw_caps_modes() - bit n: PTWATCH_MODE_ n works */
u32 ptw_caps_modes(void);
/**
 * ptw_caps_cpu_ok() - has this CPU all that ptw_caps_init() found? One that came online later, of
 * another kind, may not. On that CPU; any context.
 */
bool ptw_caps_cpu_ok(void);
extern bool ptw_vmx_excludes;	/* for ptw_caps_vmx_excludes() only */
/** ptw_caps_vmx_excludes() - is Intel PT off while VMX is on (VMX_MISC[14] clear)? Any context. */
static __always_inline bool ptw_caps_vmx_excludes(void)
{
	return ptw_vmx_excludes;
}
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
/**
 * ptw_rtit_start() - begin writing at @output with a PSB+
 * @load: the CPU does not have @config's addresses yet
 * Return: 0, -EIO when the CPU refuses @config.
 */
int ptw_rtit_start(const struct ptw_rtit_output *output, const struct ptw_rtit_config *config,
		   bool load);
/**
 * ptw_rtit_stop() - clear TraceEn, wait for the bytes to be visible, read back @output
 * Return: false when VMX had ended the trace meanwhile.
 */
bool ptw_rtit_stop(struct ptw_rtit_output *output);
/**
 * ptw_rtit_pause() - clear TraceEn for a while: what else the CPU has, it keeps
 *
 * Not where VMX excludes Intel PT, as it would not be told. ptw_rtit_stop() may follow, or
 * ptw_rtit_resume().
 * Return: false when a STOP or an error had ended the trace meanwhile; ptw_rtit_stop() tells how.
 */
bool ptw_rtit_pause(void);
/** ptw_rtit_resume() - go on after ptw_rtit_pause(), with a PSB+; 0 or -EIO */
int ptw_rtit_resume(const struct ptw_rtit_config *config);
/** ptw_rtit_stopped() - has a TraceStop range, or a STOP entry of the ToPA, stopped tracing? */
bool ptw_rtit_stopped(void);
/**
 * ptw_rtit_early_stop() - clear TraceEn when a debug register of struct ptw_early hits
 *
 * Called by ftrace, directly, where functions of the notifiers' signature begin. It must leave
 * every register as it is, and calls nothing.
 */
void ptw_rtit_early_stop(void *unused, unsigned long event, const struct die_args *args)
	__attribute__((no_caller_saved_registers));
/** ptw_rtit_disable() - clear TraceEn and nothing else; any context, also panic */
void ptw_rtit_disable(void);

/* ---- topa.c: Tables of Physical Addresses ---- */

/** struct ptw_region - physically contiguous, size-aligned output memory */
struct ptw_region {
	phys_addr_t base;
	u64 offset;		/* of its first byte in the buffer */
	unsigned int order;	/* size is PAGE_SIZE << order */
};

struct ptw_alarm;
struct ptw_topa;

enum ptw_topa_kind {
	PTW_TOPA_RING,		/* round and round, and the tables tell whether it has been */
	PTW_TOPA_STREAM,	/* round and round, INT after each region */
	PTW_TOPA_SINK,		/* INT after each region, STOP after the last */
};

/** ptw_topa_alloc() - tables that describe @regions; NULL: no memory. May sleep. */
struct ptw_topa *ptw_topa_alloc(const struct ptw_region *regions, unsigned int count,
				enum ptw_topa_kind kind, int node);
void ptw_topa_free(struct ptw_topa *topa);
/** ptw_topa_seek() - output position @offset bytes into a region */
void ptw_topa_seek(const struct ptw_topa *topa, unsigned int region, u64 offset,
		   struct ptw_rtit_output *output);
/**
 * ptw_topa_offset() - buffer offset of an output position; any context
 * @wrapped: out: with PTW_TOPA_RING, whether the ring has been round; may be NULL
 *
 * After a STOP the offset is that of the region's end, even if that is the buffer's.
 */
u64 ptw_topa_offset(const struct ptw_topa *topa, const struct ptw_rtit_output *output,
		    bool *wrapped);
/**
 * ptw_topa_set_stop() - have the CPU stop after a region, or not. The CPU must not be tracing: it
 * caches entries.
 */
void ptw_topa_set_stop(struct ptw_topa *topa, unsigned int region, bool stop);

/* ---- buffer.c: memory that the CPU writes or user space reads ---- */

/**
 * struct ptw_buffer - pages that user space may map
 * @kref: one for the trace, one for each mapping
 * @pages: in order; refcounted each, because mappings hold them
 * @size: bytes
 * @address: of the pages, one after the other; NULL unless asked for
 * @regions: the contiguous pieces
 * @topa: the tables that describe them to the CPU; NULL: not for the CPU
 */
struct ptw_buffer {
	struct kref kref;
	struct page **pages;
	unsigned long nr_pages;
	u64 size;
	void *address;
	struct ptw_region *regions;
	unsigned int nr_regions;
	struct ptw_topa *topa;
};

/**
 * ptw_buffer_alloc() - @size bytes (a multiple of PAGE_SIZE), zeroed, on @cpu's node, that the
 * module can reach at buffer->address; NULL: no memory. May sleep.
 */
struct ptw_buffer *ptw_buffer_alloc(unsigned int cpu, u64 size);
/**
 * ptw_buffer_alloc_output() - the same for a CPU to write, without buffer->address
 * @region_size: largest region, a power of two; 0: as large as can be had
 */
struct ptw_buffer *ptw_buffer_alloc_output(unsigned int cpu, u64 size, u64 region_size,
					   enum ptw_topa_kind kind);
void ptw_buffer_get(struct ptw_buffer *buffer);
void ptw_buffer_put(struct ptw_buffer *buffer);
/** ptw_buffer_region() - the region that holds byte @offset; any context */
unsigned int ptw_buffer_region(const struct ptw_buffer *buffer, u64 offset);
/**
 * ptw_buffer_written_at() - were bytes written at or behind @head, that is: has the ring wrapped?
 * For CPUs whose tables can't tell. May be slow.
 */
bool ptw_buffer_written_at(const struct ptw_buffer *buffer, u64 head);
/** ptw_buffer_mmap() - map it from the start, read-only; the mapping takes its own reference */
int ptw_buffer_mmap(struct ptw_buffer *buffer, struct vm_area_struct *vma);
/** ptw_buffer_max_size() - most bytes of buffer this machine's memory allows per CPU */
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

/* ---- hooks.c: the tracepoints we listen to ---- */

#define PTW_HOOK_SWITCH	BIT(0)	/* sched_switch */
#define PTW_HOOK_EXEC	BIT(1)	/* sched_process_exec */
#define PTW_HOOK_FORK	BIT(2)	/* sched_process_fork */

/** ptw_hooks_init() - find them; may sleep */
void ptw_hooks_init(void);
/** ptw_hooks_get() - have the probes of @hooks called; may sleep; with no lock of ours held */
int ptw_hooks_get(unsigned int hooks);
void ptw_hooks_put(unsigned int hooks);

/* ---- target.c: who is traced ---- */

struct ptw_target;

/**
 * ptw_target_get() - whom @arg means, by this process's eyes
 * @hooks: out: what must be hooked before ptw_target_arm()
 * May sleep. Return: NULL: everybody.
 */
struct ptw_target *ptw_target_get(const struct ptwatch_trace *arg, unsigned int *hooks);
/** ptw_target_arm() - follow it from now on, for @trace; under ptw_config_lock; may sleep */
int ptw_target_arm(struct ptw_target *target, struct ptw_trace *trace);
/** ptw_target_put() - nobody looks at it any more but the probes of exec and fork; may sleep */
void ptw_target_put(struct ptw_target *target);
/** ptw_target_filter() - PTWATCH_FILTER_* */
u32 ptw_target_filter(const struct ptw_target *target);
/** ptw_target_cr3() - IA32_RTIT_CR3_MATCH with PTWATCH_FILTER_CR3; any context */
u64 ptw_target_cr3(const struct ptw_target *target);
/** ptw_target_has() - is @task one of them? Preemption off. With PTWATCH_FILTER_SWITCH. */
bool ptw_target_has(const struct ptw_target *target, struct task_struct *task);
/* The probes; preemption off. */
void ptw_target_on_exec(void *data, struct task_struct *task, pid_t old_pid,
			struct linux_binprm *bprm);
void ptw_target_on_fork(void *data, struct task_struct *parent, struct task_struct *child);

/* ---- switch.c: context switches ---- */

/** ptw_switches_alloc() - room for @records switches of @cpu; NULL: no memory. May sleep. */
struct ptw_buffer *ptw_switches_alloc(unsigned int cpu, u32 records);
/** ptw_switches_note() - one record. On the buffer's CPU, IRQs off, not in #DB or NMI context. */
void ptw_switches_note(struct ptw_buffer *switches, struct task_struct *prev,
		       struct task_struct *next, u32 flags);
/* The probe of sched_switch: the CPU's runqueue lock is held, IRQs are off. */
void ptw_switch_on_switch(void *data, bool preempt, struct task_struct *prev,
			  struct task_struct *next, unsigned int prev_state);

/* ---- engine.c: tracing, on the CPU itself ---- */

/**
 * struct ptw_bank - one output buffer of a CPU
 * @state: PTWATCH_BANK_*. FREE to ACTIVE to FROZEN on its own CPU in a pass, FROZEN to FREE under
 *	ptw_config_lock. What is written to the bank is complete before it becomes FROZEN.
 * @output: where it was left
 * @freeze_seq: of the alarm; under ptw_config_lock
 */
struct ptw_bank {
	struct ptw_buffer *buffer;
	unsigned int state;
	struct ptw_rtit_output output;
	u64 start_tsc;
	u64 stop_tsc;
	u64 freeze_seq;
};

/**
 * struct ptw_stream - how far a stream has got
 * @head: bytes the reader may read; written in passes, on its own CPU
 * @tail_region: region that holds the reader's tail; written under ptw_config_lock
 * @stop_region: whose entry has STOP
 * @sinking: the CPU writes the sink, because no region is free
 * @overrun: it reached the STOP before it was looked after
 * @lost: bytes that went there
 * @gap_bytes, @gap_tsc: of the gap that lasts
 */
struct ptw_stream {
	struct ptw_buffer *sink;
	u64 head;
	unsigned int tail_region;
	unsigned int stop_region;
	bool sinking;
	bool overrun;
	u64 lost;
	u64 gap_bytes;
	u64 gap_tsc;
};

/**
 * struct ptw_cpu_trace - one CPU of a trace
 * @state: PTWATCH_STATE_*. Written on its own CPU, or under ptw_config_lock while that CPU is not
 *	RUNNING. The #DB and NMI handlers may change RUNNING between any two instructions of the
 *	CPU's other code.
 * @requests: PTW_REQUEST_* for the next pass
 * @busy, @again: a pass is under way, and another one is due; own CPU only
 * @enabled: TraceEn is set; written in passes
 * @parked: it is not, but the CPU has all else, and the place where it writes next; likewise
 * @loaded: the CPU has the addresses of @config; likewise
 * @paused: wait for ptw_trace_start_here(); own CPU, or under ptw_config_lock while not RUNNING
 * @on_task: the CPU runs a task of the target; likewise, by the probe of sched_switch
 * @range_stop: a STOP range ended tracing; written in passes
 * @config: what to trace, this CPU's copy; written in passes
 * @output: where the CPU writes next, as of the last stop that was no parking; written in passes
 * @freeze_tsc: when the freeze was asked for that the next pass does
 * @flags: PTWATCH_CONTROL_* that a pass found
 * @stops: passes that stopped tracing, so that a copy of @output can be checked
 * @snap: copy of @output for FLUSH
 * @resume: to be started when the CPU is back online or the machine awake
 * @lvtpc: we unmasked the local APIC's performance interrupt, which was nobody's
 * @saved: the RTIT MSRs as perf left them
 * @wake: wakes poll
 */
struct ptw_cpu_trace {
	struct ptw_trace *trace;
	unsigned int cpu;
	unsigned int state;
	unsigned long requests;
	bool busy;
	bool again;
	bool enabled;
	bool parked;
	bool loaded;
	bool paused;
	bool on_task;
	bool range_stop;
	unsigned int flags;
	unsigned int stops;
	struct ptw_rtit_config config;
	struct ptw_rtit_output output;
	struct ptw_rtit_output snap;
	u64 start_tsc;
	u64 stop_tsc;
	u64 freeze_tsc;
	struct ptw_stream stream;
	struct ptw_buffer *switches;
	bool owned;
	bool resume;
	bool lvtpc;
	struct perf_event *hold;
	struct ptw_rtit_regs saved;
	struct irq_work wake;
	struct ptw_buffer *control_page;
	struct ptwatch_control *control;
	unsigned int bank;		/* the active one */
	unsigned int nr_banks;
	struct ptw_bank banks[];
};

/**
 * struct ptw_trace - one session's trace
 * @id: no other trace has had it
 * @config: what its CPUs trace, but for the target's CR3; under ptw_config_lock
 * @target: whom, NULL: everybody
 * @owner_pid, @owner_comm: who set it up
 */
struct ptw_trace {
	struct ptw_session *session;
	u64 id;
	struct ptw_rtit_config config;
	u32 mode;
	u32 flags;
	u32 filter;
	u32 switch_records;
	unsigned int nr_banks;
	u64 buffer_size;
	u64 region_size;
	int pmu_type;
	struct ptw_target *target;
	pid_t owner_pid;
	char owner_comm[TASK_COMM_LEN];
	struct cpumask cpus;
	struct ptw_cpu_trace *cpu[];	/* indexed by CPU, NULL where not in @cpus */
};

enum {
	PTW_REQUEST_RESTART,	/* stop, look how far it got, go on */
	PTW_REQUEST_CONFIG,	/* take over trace->config and the target's CR3 */
	PTW_REQUEST_FREEZE,
	PTW_REQUEST_RESUME,	/* go on although a STOP range was reached */
};

/*
 * The trace that owns Intel PT on a CPU. Set and cleared on that CPU with IRQs off, so its #DB and
 * NMI handlers and its probe of sched_switch see the old or the new value, and memory that it
 * points to is freed only after it was cleared.
 */
DECLARE_PER_CPU(struct ptw_cpu_trace *, ptw_owner);

/* On the CPU concerned, IRQs off; any context, unless said otherwise. None sleeps. */
/** ptw_engine_sync() - make the CPU do what @ct says; returns at once inside another one's pass */
void ptw_engine_sync(struct ptw_cpu_trace *ct);
/** ptw_engine_request() - set a PTW_REQUEST_* and sync */
void ptw_engine_request(struct ptw_cpu_trace *ct, unsigned int request);
/* IPIs; @info is the struct ptw_cpu_trace. */
/** ptw_engine_start() - STOPPED to RUNNING; ERROR if it can't. Not in #DB or NMI context. */
void ptw_engine_start(void *info);
/** ptw_engine_stop() - RUNNING to STOPPED */
void ptw_engine_stop(void *info);
/** ptw_engine_flush() - copy to @snap how far it has got */
void ptw_engine_flush(void *info);
/** ptw_engine_freeze() - as a watch does; at the TSC now */
void ptw_engine_freeze(void *info);
/** ptw_engine_reload() - take over trace->config; @info is the struct ptw_trace, on any CPU */
void ptw_engine_reload(void *info);
/** ptw_engine_halt() - from now on nothing starts on any CPU: the machine goes down */
void ptw_engine_halt(void);

/* ---- stream.c: positions, room and loss of a stream; in passes, or the CPU at rest ---- */

int ptw_stream_init(struct ptw_cpu_trace *ct);
void ptw_stream_free(struct ptw_cpu_trace *ct);
/** ptw_stream_collect() - tracing was stopped: what did the CPU write? */
void ptw_stream_collect(struct ptw_cpu_trace *ct);
/** ptw_stream_prepare() - tracing is about to start: where to? */
void ptw_stream_prepare(struct ptw_cpu_trace *ct);
/** ptw_stream_end() - tracing was stopped for good: a gap that lasts ends */
void ptw_stream_end(struct ptw_cpu_trace *ct);
/** ptw_stream_advance() - the reader has read up to @tail; under ptw_config_lock */
int ptw_stream_advance(struct ptw_cpu_trace *ct, u64 tail);
/** ptw_stream_readable() - a region or more waits; any context */
bool ptw_stream_readable(const struct ptw_cpu_trace *ct);

/* ---- pmi.c: the ToPA interrupt ---- */

int ptw_pmi_init(void);
void ptw_pmi_exit(void);
/** ptw_pmi_available() - does the CPU tell of the interrupt? */
bool ptw_pmi_available(void);
/** ptw_pmi_arm() - see to it that the local APIC delivers it. On the CPU concerned, IRQs off. */
void ptw_pmi_arm(struct ptw_cpu_trace *ct);
/** ptw_pmi_disarm() - undo that; tracing is off */
void ptw_pmi_disarm(struct ptw_cpu_trace *ct);

/* ---- trace.c: which CPUs are traced for which session ---- */

/*
 * Under cpus_read_lock() and ptw_config_lock; may sleep. Setup takes over @target, also when it
 * fails, and tells in @arg why.
 */
int ptw_trace_setup(struct ptw_session *session, struct ptwatch_trace *arg,
		    const struct cpumask *cpus, struct ptw_target *target);
int ptw_trace_start(struct ptw_session *session);
int ptw_trace_stop(struct ptw_session *session);
int ptw_trace_thaw(struct ptw_session *session);
/** ptw_trace_freeze_all() - freeze every CPU of it that runs, as a watch does */
int ptw_trace_freeze_all(struct ptw_session *session);
int ptw_trace_flush(struct ptw_session *session);
int ptw_trace_advance(struct ptw_session *session, const struct ptwatch_advance *arg);
int ptw_trace_bank_free(struct ptw_session *session, const struct ptwatch_bank_free *arg);
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
/** ptw_trace_readable() - poll's POLLIN; any process context, no lock */
bool ptw_trace_readable(struct ptw_session *session);
/**
 * ptw_trace_buffer() - a reference to what PTWATCH_MMAP_*() @offset means, NULL: nothing. Takes
 * session->trace_lock.
 */
struct ptw_buffer *ptw_trace_buffer(struct ptw_session *session, u64 offset);

/*
 * #DB context, IRQs off, on behalf of a watch of @session; false when it has no trace that runs on
 * this CPU.
 */
/** ptw_trace_freeze() - freeze this CPU's trace; with banks, go on in the next. @tsc: about now */
bool ptw_trace_freeze(const struct ptw_session *session, u64 tsc);
/** ptw_trace_start_here() - end the pause of PTWATCH_TRACE_PAUSED on this CPU */
bool ptw_trace_start_here(const struct ptw_session *session);
/** ptw_trace_stop_here() - pause this CPU's trace */
bool ptw_trace_stop_here(const struct ptw_session *session);

/**
 * ptw_trace_publish_freeze() - make the freeze that @alarm tells of visible on the control page,
 * under ptw_config_lock
 * @bank, @head, @size: out: where the frozen trace is, where it ends, and its bytes
 * Return: false when @session's trace of that CPU is not frozen by this alarm (any more).
 */
bool ptw_trace_publish_freeze(const struct ptw_session *session, const struct ptw_alarm *alarm,
			      u32 *bank, u64 *head, u64 *size);

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
/**
 * ptw_trace_halt() - stop every CPU, and let none start again: the machine goes down; may sleep
 * @wait: return when all have stopped; else they are only told to
 */
void ptw_trace_halt(bool wait);

/* ---- condition.c: which hits count ---- */

/**
 * struct ptw_filter - a struct ptwatch_who of any kind but cgroup, prepared for the #DB handler:
 * it matches when what the task has, name or ids, equals @want in the bits of @mask
 * @kind: bit of the kind; 0: deny
 * @comm: what is compared is the name, not pid and tgid
 */
struct ptw_filter {
	u32 kind;
	bool deny;
	bool comm;
	u64 want[2];
	u64 mask[2];
};

/**
 * struct ptw_condition - a watch's condition, prepared for the #DB handler
 *
 * Each condition on the value is one unsigned comparison, of ((new ^ @flip) & @mask) - @low with
 * @span: EQ is a range of one number, LE and GE are ranges with an end of the numbers as one of
 * theirs, NE, GT and LT their opposites. A sign bit that is flipped makes the order of signed
 * numbers that of unsigned ones. No condition is an empty mask, in the range from 0 to 0.
 * @changed: @flip is the old value: what is left are the bits that differ
 * @inverted: holds outside of the range
 * @more: there is something else than the value to look at
 * @slow: something of @cgroups, @stack_end and @skip is set
 * @allow_kinds: bit for each kind of @filters without DENY
 * @filters, @filters_end: all but cgroups
 * @cgroups, @nr_cgroups: the others; @allow_cgroup: at least one without DENY
 * @passed: hits that fulfilled everything, to compare with @skip
 */
struct ptw_condition {
	u64 mask;
	u64 flip;
	u64 low;
	u64 span;
	bool changed;
	bool inverted;
	bool more;
	bool slow;
	bool allow_cgroup;
	u32 allow_kinds;
	u32 nr_cgroups;
	struct ptw_filter *filters;
	const struct ptw_filter *filters_end;
	struct ptwatch_who *cgroups;
	u64 stack_start;
	u64 stack_end;
	u64 skip;
	atomic64_t passed;
};

/**
 * ptw_condition_init() - check and prepare; may sleep
 * @filters: of @arg
 * Return: 0; -EINVAL with @why; -ENOMEM
 */
int ptw_condition_init(struct ptw_condition *cond, const struct ptwatch_watch *arg,
		       const struct ptwatch_who *filters, struct ptwatch_refusal *why);
/** ptw_condition_free() - what _init() allocated; also after it failed */
void ptw_condition_free(struct ptw_condition *cond);

/*
 * Does a hit count? In #DB context, in this order. The first two are inline: a hit that does not
 * count is to cost little more than an empty handler.
 */
/** ptw_value_holds() - @old and @new: as read back */
static __always_inline bool ptw_value_holds(const struct ptw_condition *cond, u64 old, u64 new)
{
	u64 flip = cond->changed ? old : cond->flip;

	return (((new ^ flip) & cond->mask) - cond->low <= cond->span) != cond->inverted;
}

static __always_inline bool ptw_filters_hold(const struct ptw_condition *cond)
{
	/* By words, without a copy on a stack that the compiler would then guard. */
	const struct {
		u64 first;
		u64 second;
	} __packed *name = (const void *)current->comm;
	u32 missing = cond->allow_kinds;
	const struct ptw_filter *filter;

	BUILD_BUG_ON(sizeof(*name) != sizeof(current->comm));

	for (filter = cond->filters; filter != cond->filters_end; filter++) {
		u64 first = (u32)current->pid | (u64)current->tgid << 32, second = 0;

		if (filter->comm) {
			first = name->first;
			second = name->second;
		}
		if (((first ^ filter->want[0]) & filter->mask[0]) |
		    ((second ^ filter->want[1]) & filter->mask[1]))
			continue;
		if (filter->deny)
			return false;
		missing &= ~filter->kind;
	}
	return !missing;
}

/** ptw_slow_conditions_hold() - if cond->slow */
bool ptw_slow_conditions_hold(struct ptw_condition *cond, struct pt_regs *regs);

/* ---- watch.c: hardware breakpoints ---- */

#define PTW_MAX_SLOTS	4

/* struct ptw_point.read, beside 1, 2, 4 and 8 */
#define PTW_READ_NONE	0	/* instructions have no value */
#define PTW_READ_USER	16	/* @len bytes of the process */

/**
 * struct ptw_point - what one debug register holds, for one CPU or thread
 * @watch: whose part it is
 * @address, @len: what the register watches
 * @slot: which part of the watch that is
 * @read: how its value is read: its length, or PTW_READ_*
 * @shadow: where the value at the last hit is kept: &@own_shadow for a per-CPU variable, else one
 *	that all CPUs share; the #DB handlers exchange it
 * @window_left, @window_start: hits since that TSC that are no storm yet, for max_storm
 * @event: NULL: not armed
 */
struct ptw_point {
	struct ptw_watch *watch;
	u64 address;
	u32 len;
	u32 slot;
	u32 read;
	s64 window_left;
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
 * @threads: of a process's watch: see user_watch.c
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
 * @filters: arg.nr_filters of them, kmalloc()ed
 * @cpus: where accesses count; a watch that is added copies them
 * @seed: with PTWATCH_WATCH_USER, the value before the first hit
 * @why: out
 */
struct ptw_watch_request {
	struct ptwatch_watch arg;
	struct ptwatch_who *filters;
	cpumask_var_t cpus;
	u64 seed[PTW_MAX_SLOTS];
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
/**
 * ptw_module_watch_arm() - PTWATCH_WATCH_WAIT_MODULE: arm @watch if its module is loaded, else let
 * it wait. As ptw_watch_arm().
 */
int ptw_module_watch_arm(struct ptw_watch *watch, struct ptwatch_refusal *why);

/* ---- user_watch.c: watches in a process; under ptw_config_lock, may sleep ---- */

/** ptw_user_watch_seed() - read what is there now, for the first old value; without locks */
void ptw_user_watch_seed(struct ptw_watch_request *request);
/** ptw_user_watch_arm() - in all threads, present and to come; as ptw_watch_arm() */
int ptw_user_watch_arm(struct ptw_watch *watch, struct ptwatch_refusal *why);
void ptw_user_watch_disarm(struct ptw_watch *watch);
/** ptw_user_watch_armed() - number of threads; notices when the last one is gone */
u32 ptw_user_watch_armed(struct ptw_watch *watch);

/* ---- boot_watch.c: the module's parameter watch= ---- */

/** ptw_boot_watch_init() - arm what it says; may sleep. Return: 0 or why not, which was logged */
int ptw_boot_watch_init(void);

/* ---- freeze.c: how early a hit stops the trace ---- */

/**
 * struct ptw_early - what stops this CPU's trace before a watch's handler runs
 * @armed: number of @address that are set
 * @stopped: ptw_rtit_early_stop() cleared TraceEn at this hit; own CPU
 * @hardware: the CPU stops by itself at each #DB
 * @either: both at once, to look at
 * @address: debug registers of freezing watches on this CPU, 0: unused
 * All but @stopped under ptw_config_lock, from any CPU.
 */
struct ptw_early {
	unsigned int armed;
	union {
		struct {
			bool stopped;
			bool hardware;
		};
		u16 either;
	};
	u64 address[PTW_MAX_SLOTS];
};

DECLARE_PER_CPU(struct ptw_early, ptw_early);

int ptw_freeze_init(void);
void ptw_freeze_exit(void);
/** ptw_freeze_hardware_possible() - could a TraceStop range stop at #DBs? */
bool ptw_freeze_hardware_possible(void);
/* Under cpus_read_lock() and ptw_config_lock; may sleep. */
/** ptw_freeze_watch_added() - @session has a freezing watch more */
void ptw_freeze_watch_added(struct ptw_session *session);
void ptw_freeze_watch_removed(struct ptw_session *session);
/** ptw_freeze_trace_released() - @session's trace is about to be gone */
void ptw_freeze_trace_released(struct ptw_session *session);
/** ptw_freeze_point_armed() - @address is about to be in a debug register of @cpu, to freeze */
void ptw_freeze_point_armed(unsigned int cpu, u64 address);
void ptw_freeze_point_disarmed(unsigned int cpu, u64 address);
/* #DB context */
/** ptw_freeze_how() - PTWATCH_FREEZE_*, right after a freeze */
static __always_inline u32 ptw_freeze_how(void)
{
	if (this_cpu_read(ptw_early.hardware))
		return PTWATCH_FREEZE_HARDWARE;
	if (!this_cpu_read(ptw_early.stopped))
		return PTWATCH_FREEZE_HANDLER;
	this_cpu_write(ptw_early.stopped, false);
	return PTWATCH_FREEZE_EARLY;
}

void __ptw_freeze_undo(void);
/** ptw_freeze_undo() - this hit freezes nothing: go on, if something has stopped the trace */
static __always_inline void ptw_freeze_undo(void)
{
	if (unlikely(this_cpu_read(ptw_early.either)))
		__ptw_freeze_undo();
}

/* ---- early.c: a call in front of the #DB handlers; not where ftrace has no direct calls ---- */

#ifdef CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS
/**
 * ptw_freeze_early_get() - have ptw_rtit_early_stop() called; with no lock of ours held; may sleep
 *
 * It changes kernel text, so it comes before tracing starts: a decoder knows one text only. It
 * stays until the module goes, as taking it back waits for seconds, until every task has been
 * elsewhere.
 * Return: false: this kernel can't.
 */
bool ptw_freeze_early_get(void);
void ptw_freeze_early_exit(void);
#else
static inline bool ptw_freeze_early_get(void)
{
	return false;
}

static inline void ptw_freeze_early_exit(void)
{
}
#endif

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
/** ptw_copy_words() - one instruction, and not memcpy(): KASAN would look at stacks' red zones */
static __always_inline void ptw_copy_words(void *to, const void *from, unsigned long n)
{
	asm volatile("rep movsq" : "+D" (to), "+S" (from), "+c" (n) : : "memory");
}

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
	u32 freeze;			/* PTWATCH_FREEZE_*, if frozen */
	bool last;			/* disarm the watch after this one */
	char comm[TASK_COMM_LEN];
	struct pt_regs regs;
	u32 nr_user_stack;
	unsigned long user_stack[PTW_USER_STACK_MAX];
	struct ptw_stack stack;
	/* filled in by the worker */
	u64 seq;
	u64 time;
	u32 trace_bank;
	u64 trace_head;
	u64 trace_size;
};

int ptw_alarm_init(void);
/** ptw_alarm_exit() - after the last watch is gone: waits for irq_work and worker */
void ptw_alarm_exit(void);
/** ptw_alarm_kick() - have the worker look for records, and for storms. #DB context. */
void ptw_alarm_kick(void);

#define PTW_RING_RECORDS	32	/* a power of two; about 5 KiB each */

/**
 * struct ptw_alarm_ring - the records of a CPU
 * @head: next to be filled; written by the CPU's #DB handler
 * @tail: next to be delivered; written by the worker
 */
struct ptw_alarm_ring {
	unsigned int head;
	unsigned int tail;
	struct ptw_alarm record[PTW_RING_RECORDS];
};

DECLARE_PER_CPU(struct ptw_alarm_ring *, ptw_alarm_ring);
extern atomic64_t ptw_alarms_lost;	/* records that no ring had room for */

/**
 * ptw_alarm_reserve() - a record of this CPU's ring to fill in, NULL: none free, counted as lost.
 * #DB context.
 */
static __always_inline struct ptw_alarm *ptw_alarm_reserve(void)
{
	struct ptw_alarm_ring *r = this_cpu_read(ptw_alarm_ring);
	struct ptw_alarm *alarm;

	/* Pairs with the worker's release: what it read from the record, it has read. */
	if (r->head - smp_load_acquire(&r->tail) >= PTW_RING_RECORDS) {
		atomic64_inc(&ptw_alarms_lost);
		return NULL;
	}
	alarm = &r->record[r->head % PTW_RING_RECORDS];
	alarm->lost = atomic64_read(&ptw_alarms_lost);
	/* A pointer: the compiler would find the record anew at each use. */
	OPTIMIZER_HIDE_VAR(alarm);
	return alarm;
}

/** ptw_alarm_commit() - hand the reserved record to the worker. #DB context. */
static __always_inline void ptw_alarm_commit(void)
{
	struct ptw_alarm_ring *r = this_cpu_read(ptw_alarm_ring);

	/* Pairs with the worker's acquire: it sees a record only when it is complete. */
	smp_store_release(&r->head, r->head + 1);
	ptw_alarm_kick();
}

/**
 * ptw_alarm_freeze_others() - freeze @session's trace on the other CPUs as soon as an IPI may be
 * sent. #DB context; an alarm or kick must follow.
 */
void ptw_alarm_freeze_others(const struct ptw_session *session);

/* ---- readers.c: alarms that wait to be read ---- */

/** ptw_message_alloc() - a copy, with one reference; NULL: no memory */
struct ptw_message *ptw_message_alloc(const struct nlmsghdr *nlh, u64 seq);
void ptw_message_put(struct ptw_message *message);
void ptw_queue_init(struct ptw_queue *queue);
bool ptw_queue_empty(struct ptw_queue *queue);
/** ptw_queue_read() - the oldest, to user memory. Return: its bytes, 0: there is none, -EMSGSIZE */
ssize_t ptw_queue_read(struct ptw_queue *queue, char __user *to, size_t size);
/** ptw_queue_clear() - nobody else uses it any more */
void ptw_queue_clear(struct ptw_queue *queue);
/* Under ptw_config_lock */
/** ptw_readers_deliver() - to those who should get it; takes over the reference */
void ptw_readers_deliver(struct ptw_watch *watch, struct ptw_message *message);
/** ptw_readers_listen() - @session gets what was kept, and everyone's alarms from now on */
void ptw_readers_listen(struct ptw_session *session);
/** ptw_readers_leave() - @session ends */
void ptw_readers_leave(struct ptw_session *session);
/** ptw_readers_kept() - the first one kept from @seq on, with a reference; no lock */
struct ptw_message *ptw_readers_kept(u64 seq);
void ptw_readers_init(void);
void ptw_readers_exit(void);

/* ---- netlink.c ---- */

int ptw_netlink_init(void);
void ptw_netlink_exit(void);
/**
 * ptw_netlink_send() - multicast to privileged listeners; may sleep
 * Return: a copy, with a reference; NULL: no memory
 */
struct ptw_message *ptw_netlink_send(struct ptw_alarm *alarm);

/* ---- device.c: /dev/ptwatch ---- */

int ptw_device_init(void);
void ptw_device_exit(void);

/* ---- emergency.c: nothing stays traced over sleep, reboot and panic ---- */

int ptw_emergency_init(void);
void ptw_emergency_exit(void);

#endif /* PTWATCH_H */
