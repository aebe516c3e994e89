/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recording: a directory that stock `perf script -i DIR` opens (design.md section 5), or a perf.data that
 * perf recorded. Written by recording/writer.c, read by recording/reader.c.
 *
 *	DIR/data		perf.data: AUXTRACE, itrace start, mmap2, comm, fork, switch, ksymbol, text poke
 *	DIR/kcore_dir/kcore	ELF core of the kernel's and the modules' text, copied while the trace is open
 *	DIR/vdso, DIR/vdso32	the vDSO, which processes map and no file has: for 64-bit and for 32-bit programs
 *	DIR/kcore_dir/kallsyms, DIR/kcore_dir/modules
 *	DIR/alarms.jsonl	one alarm a line
 */
#ifndef PTWATCH_RECORDING_RECORDING_H
#define PTWATCH_RECORDING_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <linux/ptwatch.h>
#include <linux/ptwatch_netlink.h>

#include "common/error.h"
#include "decode/image.h"
#include "decode/pt_params.h"
#include "recording/sideband.h"
#include "symbols/symbols.h"

#define PTW_ALARM_STACK_MAX	64
#define PTW_ALARM_USER_MAX	64

/** struct ptw_alarm - one PTWATCH_CMD_ALARM message; fields as the attributes of <linux/ptwatch_netlink.h> */
struct ptw_alarm {
	uint64_t seq, time, tsc, cgroup, address, ip, old_value, new_value;
	uint64_t trace_offset, trace_size, lost;
	uint32_t watch, cpu, pid, tgid, access, len, trace_state, trace_bank;
	char label[128];
	char comm[16];
	uint32_t have_values;	/* old_value and new_value are valid */
	uint32_t have_trace;	/* the trace_* fields are valid */
	uint32_t have_regs;
	uint32_t stack_count;
	uint64_t stack[PTW_ALARM_STACK_MAX];
	uint64_t regs[PTWATCH_REG_COUNT];
	uint64_t hit_address;		/* of a watch of more than 8 bytes: which 8; 0: the only ones */
	uint32_t actions;		/* PTWATCH_ACTION_*; 0: not told */
	uint32_t user_count;
	uint64_t user_stack[PTW_ALARM_USER_MAX];
};

/** struct ptw_alarm_names - what only the machine of the alarm tells, as long as it knows */
struct ptw_alarm_names {
	const char *cgroup;		/* path of the thread's group; NULL: not known */
	const char *const *user;	/* names of user_stack[]; NULL: addresses only */
	const struct ptw_pt_params *clock;	/* TSC to the clock of the reports; NULL, or without have_time: not known */
};

/**
 * ptw_alarm_write_json() - @alarm as one line of JSON, addresses as hex strings, symbolised by
 * @symbols (may be NULL)
 */
int ptw_alarm_write_json(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols);

/** ptw_alarm_write_json_named() - likewise, with @names (may be NULL) */
int ptw_alarm_write_json_named(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols,
			       const struct ptw_alarm_names *names);

/* ---- reading ---- */

/** struct ptw_recorded_trace - all Intel PT bytes of one CPU (or one thread), oldest first */
struct ptw_recorded_trace {
	int32_t cpu;		/* -1: per-thread */
	int32_t tid;		/* -1: per-CPU */
	const uint8_t *data;	/* owned by the recording */
	size_t size;
	bool from_file;		/* @data is mapped: what was read may be dropped, and comes again when needed */
};

struct ptw_recording {
	struct ptw_pt_params params;
	struct ptw_recorded_trace *trace;
	size_t trace_count;
	struct ptw_image image;		/* kernel and module text, and what mmap records name */
	struct ptw_symbols *symbols;
	const struct ptw_side_event *side;	/* in order of time; who goes through all of it calls ptw_recording_passed() */
	size_t side_count;
	struct ptw_alarm *alarm;
	size_t alarm_count;
	char *missing_code;		/* why kernel code that was traced is not in @image; NULL: it is */
	char *incomplete;		/* what the file lacks that decoding does without; NULL: nothing */
	void *reader;			/* private */
};

/**
 * ptw_recording_open() - read a recording or a perf.data
 * @path: directory, or perf.data file
 * Return: the recording, to be freed with ptw_recording_close(); NULL: @err tells.
 *
 * A damaged or truncated file is an error that names the offset; missing images and symbols are none, and
 * what can be done without is told in the recording.
 */
struct ptw_recording *ptw_recording_open(const char *path, struct ptw_error *err);
void ptw_recording_close(struct ptw_recording *recording);

/*
 * Records call the one and the other "[vdso]"; perf's list of build ids and its cache tell them apart by these names, and
 * so does ptw_recording_binary().
 */
#define PTW_VDSO	"[vdso]"
#define PTW_VDSO_32	"[vdso32]"

/**
 * ptw_recording_binary() - the file with the code of what was mapped as @name
 * @id: build id that the record of the mapping told; NULL: the list in the header may know it
 *
 * Return: its path, owned by the recording; NULL: it is not here, or not the same. Not for two threads at
 * once.
 */
const char *ptw_recording_binary(const struct ptw_recording *recording, const char *name, const uint8_t *id,
				 size_t id_size);

/**
 * ptw_recording_missing() - what is said of code of a file for which ptw_recording_binary() found none
 * Return: "no code of libx.so.1", owned by the recording; NULL: it was found, or never looked for.
 */
const char *ptw_recording_missing(const struct ptw_recording *recording, const char *name, const uint8_t *id,
				  size_t id_size);

/** ptw_recording_missing_at() - the same of what any process had mapped at @addr, the latest one winning */
const char *ptw_recording_missing_at(const struct ptw_recording *recording, uint64_t addr);

/**
 * ptw_recording_advice() - what to do about code that is missing, once for each file
 * @gap: what ptw_recording_missing() returned
 * Return: a sentence, owned by the recording; NULL: @gap is another one's, or this was told. For one thread only.
 */
const char *ptw_recording_advice(const struct ptw_recording *recording, const char *gap);

/** ptw_trace_drop() - what is up to @end of @trace, from @start on, is not needed soon and need not stay in memory */
void ptw_trace_drop(const struct ptw_recorded_trace *trace, size_t start, size_t end);

#define PTW_TRACE_AT_ONCE	(2u << 20)

/** ptw_trace_read_to() - the same for who reads it all: up to @at it was read, and dropped up to *@dropped, from 0 on */
static inline void ptw_trace_read_to(const struct ptw_recorded_trace *trace, size_t *dropped, size_t at)
{
	if (at < *dropped || at - *dropped <= PTW_TRACE_AT_ONCE)
		return;
	ptw_trace_drop(trace, *dropped, at);
	*dropped = at;
}

/**
 * ptw_recording_side_drop() - nothing of recording->side need stay in memory for now
 * ptw_recording_records_drop() - nor of what is in the file: names, and traces that are in one piece
 */
void ptw_recording_side_drop(const struct ptw_recording *recording);
void ptw_recording_records_drop(const struct ptw_recording *recording);

/** ptw_recording_passed() - who goes through all of recording->side has come to @i */
static inline void ptw_recording_passed(const struct ptw_recording *recording, size_t i)
{
	if (i & 0xffff || !i)
		return;
	ptw_recording_side_drop(recording);
	ptw_recording_records_drop(recording);
}

/**
 * ptw_recording_beside() - a file that processes wrote for others, such as /tmp/perf-PID.map: the recording's copy
 * of it, which has the same name, or the file itself if it is still there
 *
 * Return: its path, to be freed; NULL: there is none.
 */
char *ptw_recording_beside(const struct ptw_recording *recording, const char *path);

/**
 * ptw_recording_side_record() - the record that told of @event, as it is in the file but without what perf appends to all
 * records (thread, time, CPU)
 *
 * Return: @size bytes, owned by the recording.
 */
const void *ptw_recording_side_record(const struct ptw_recording *recording, const struct ptw_side_event *event,
				      size_t *size);

/* ---- writing ---- */

struct ptw_recording_writer;

/** struct ptw_range_file - where an address range of user code is from */
struct ptw_range_file {
	const char *path;		/* NULL: unknown, or the kernel's */
	uint64_t offset;		/* of the range's first byte in that file */
};

/** struct ptw_trace_config - how the trace was recorded: what perf's AUXTRACE_INFO and attributes want */
struct ptw_trace_config {
	struct ptw_pt_params params;
	uint64_t rtit_ctl;		/* IA32_RTIT_CTL while tracing */
	/* the number in /sys/bus/event_source/devices/intel_pt/type; without that file any unused one */
	uint32_t pt_pmu_type;
	uint32_t cpuid_14_0[4];
	uint32_t cpuid_14_1[4];
	struct ptw_range_file range_file[PTW_ADDR_RANGES];	/* of params.addr; for ptw_recording_create() only */
	bool switches;			/* PERF_RECORD_SWITCH_CPU_WIDE records will tell who runs */
	/*
	 * The code that switches tasks is in the trace: readers follow a switch there, and only departures are
	 * told. False also where a target or a filter leaves that code out.
	 */
	bool switch_traced;
	bool stream;			/* all was recorded; false: what was left in rings */
};

/**
 * ptw_recording_create() - make the directory @path
 *
 * An existing recording at @path is moved aside to @path.old as perf does (an older .old is removed);
 * anything else that exists there is refused. Everything is written to a temporary sibling and renamed by
 * ptw_recording_finish(), so a recording that exists is complete. The sibling of a recorder that was killed can be read
 * as it is.
 */
struct ptw_recording_writer *ptw_recording_create(const char *path, const struct ptw_trace_config *config,
						  struct ptw_error *err);
/**
 * ptw_recording_add_kernel() - copy kernel and module text from /proc/kcore, with /proc/kallsyms and
 * /proc/modules
 *
 * To be called while the trace is open (stopped is fine): later, patched static keys make the text differ
 * from what ran.
 */
int ptw_recording_add_kernel(struct ptw_recording_writer *writer, struct ptw_error *err);
/**
 * ptw_recording_add_late_modules() - add those that were loaded since and are still there
 *
 * Nothing to do without the kernel's code.
 */
int ptw_recording_add_late_modules(struct ptw_recording_writer *writer, struct ptw_error *err);

/**
 * ptw_recording_set_sideband() - the kernel's records follow, of perf events with these ids (control/sideband.h)
 *
 * With or without, what is added keeps its order in the file. Processes that run already come first of all.
 * Another call replaces the ids: all that there ever were must be among them.
 */
int ptw_recording_set_sideband(struct ptw_recording_writer *writer, const uint64_t *ids, size_t count,
			       struct ptw_error *err);

/** ptw_recording_add_processes() - the processes that run now, with what they have mapped */
int ptw_recording_add_processes(struct ptw_recording_writer *writer, struct ptw_error *err);

/**
 * ptw_recording_add_unheard() - of @cpu nothing was heard for a while: a record of the loss, then all processes, and what
 * of the kernel's code is another than was told
 * @id: of the event that hears it again
 *
 * They are told as of the time of this call. When the kernel's code was changed unheard stays unknown.
 */
int ptw_recording_add_unheard(struct ptw_recording_writer *writer, uint32_t cpu, uint64_t id, struct ptw_error *err);

/** ptw_recording_add_missed() - the same where the kernel itself told of the loss, in a record of @cpu */
int ptw_recording_add_missed(struct ptw_recording_writer *writer, uint32_t cpu, uint64_t id, struct ptw_error *err);

/**
 * ptw_recording_add_side() - a record of another recording (ptw_recording_side_record())
 *
 * Needs ptw_recording_set_sideband(). After an error the recording can't be finished.
 */
int ptw_recording_add_side(struct ptw_recording_writer *writer, const struct ptw_side_event *event, const void *record,
			   size_t size, struct ptw_error *err);

/** ptw_recording_add_copy() - a file beside the recording, with code of processes: [vdso], of a JIT; if it is there */
void ptw_recording_add_copy(struct ptw_recording_writer *writer, const char *path);

/**
 * ptw_recording_add_records() - whole records of the kernel as they are, in up to two pieces
 *
 * After an error the recording is what it was before the call, and can be finished.
 */
int ptw_recording_add_records(struct ptw_recording_writer *writer, const void *first, size_t first_size,
			      const void *second, size_t second_size, struct ptw_error *err);

/**
 * ptw_recording_add_switches() - context switches of one CPU that the module remembered, oldest first
 * @id: the id that the kernel's own records of that CPU carry
 */
int ptw_recording_add_switches(struct ptw_recording_writer *writer, const struct ptwatch_switch *switches,
			       size_t count, uint64_t id, struct ptw_error *err);

/**
 * ptw_recording_end_round() - all sources of records were emptied once
 *
 * A reader that sorts by time may let go what is not newer than the newest of the round before this one.
 */
int ptw_recording_end_round(struct ptw_recording_writer *writer, struct ptw_error *err);

/**
 * ptw_recording_add_trace() - bytes of one CPU as up to two pieces (a wrapped ring), oldest first
 *
 * A CPU's bytes may come in several calls, each of whole packets: perf reads none across two of them. After an
 * error the recording is what it was before the call, and can be finished.
 */
int ptw_recording_add_trace(struct ptw_recording_writer *writer, uint32_t cpu, const void *first,
			    size_t first_size, const void *second, size_t second_size,
			    struct ptw_error *err);

/** struct ptw_ring_trace - what is in a CPU's ring, oldest first */
struct ptw_ring_trace {
	uint32_t cpu;
	const uint8_t *first, *second;
	size_t first_size, second_size;
	size_t written;		/* by ptw_recording_add_rings(): so many of the newest bytes */
};

/**
 * ptw_recording_add_rings() - all of the rings, or as much of each as a full disk has room for: its newest bytes
 *
 * What is kept of a ring begins with a PSB, and no ring that is cut is smaller than another by more than what lies
 * between two of those. Return: 0, or -1 and @err when not all was written; the recording can be finished.
 */
int ptw_recording_add_rings(struct ptw_recording_writer *writer, struct ptw_ring_trace *ring, size_t count,
			    struct ptw_error *err);

/** ptw_recording_add_loss() - @bytes of the CPU's trace were lost at @time (perf's clock, ns) */
int ptw_recording_add_loss(struct ptw_recording_writer *writer, uint32_t cpu, uint64_t bytes, uint64_t time,
			   struct ptw_error *err);

/**
 * ptw_recording_reserve() - keep @size bytes of the disk, so that the recording can be finished when it is full
 *
 * In place of what was kept before. After an error nothing is.
 */
int ptw_recording_reserve(struct ptw_recording_writer *writer, size_t size, struct ptw_error *err);

/** ptw_recording_release() - give that room free: to be called when the disk is full, for what is to come */
void ptw_recording_release(struct ptw_recording_writer *writer);

/** ptw_recording_size() - bytes of DIR/data so far */
uint64_t ptw_recording_size(const struct ptw_recording_writer *writer);

int ptw_recording_add_alarm(struct ptw_recording_writer *writer, const struct ptw_alarm *alarm,
			    struct ptw_error *err);
int ptw_recording_finish(struct ptw_recording_writer *writer, struct ptw_error *err);	/* frees @writer */
void ptw_recording_abort(struct ptw_recording_writer *writer); /* removes what was written */

#endif /* PTWATCH_RECORDING_RECORDING_H */
