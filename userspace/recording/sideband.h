/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel told beside the trace: who ran when, what was mapped where, how code changed. In order of
 * time; equal times in the order of the file.
 */
#ifndef PTWATCH_RECORDING_SIDEBAND_H
#define PTWATCH_RECORDING_SIDEBAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptw_side_type {
	PTW_SIDE_SWITCH,	/* @cpu goes from a thread to another: @other is the one that runs now */
	PTW_SIDE_COMM,		/* @pid/@tid is called name; @exec: because it runs another program */
	PTW_SIDE_FORK,		/* @pid/@tid was made by process @other_pid */
	PTW_SIDE_EXIT,
	PTW_SIDE_MMAP,		/* @pid maps a file, executable */
	PTW_SIDE_KSYMBOL,	/* the kernel generates code (or drops it): a BPF program, a trampoline */
	PTW_SIDE_TEXT_POKE,	/* the kernel changes its code */
	PTW_SIDE_START,		/* tracing begins with @pid/@tid on @cpu */
	PTW_SIDE_AUX_LOST,	/* trace data of @cpu was dropped: nobody fetched it in time */
};

/** struct ptw_side_event - kept small, there may be millions; ptw_side_detail() tells the rest */
struct ptw_side_event {
	uint64_t time;		/* of perf's clock, ns; 0: before the recording */
	const uint8_t *record;	/* private */
	int32_t cpu;		/* -1: unknown */
	int32_t pid, tid;	/* -1: unknown */
	int32_t other_pid, other_tid;
	uint8_t type;		/* enum ptw_side_type */
	bool preempted;		/* SWITCH: the old thread wanted to run on */
	bool out;		/* SWITCH: told when the old thread left; else when the new one arrived */
	bool exec;		/* COMM; FORK: of a process that ran already, whose mappings follow */
};

struct ptw_side_detail {
	uint64_t addr, size, pgoff;
	const char *name;	/* as long as the recording */
	const uint8_t *id;	/* build id of what is mapped; NULL: not told */
	uint8_t id_size;
	bool gone;		/* KSYMBOL: the code is dropped */
	const uint8_t *old_bytes, *new_bytes;
	uint16_t old_size, new_size;	/* TEXT_POKE */
};

/** ptw_side_detail() - of COMM (name), MMAP, KSYMBOL, TEXT_POKE, AUX_LOST (addr, size: what was kept) */
void ptw_side_detail(const struct ptw_side_event *event, struct ptw_side_detail *detail);

/* ---- private to recording/ ---- */

struct perf_event_attr;

/* What ends a record: offsets counted from its end; 0: it is not there. */
struct ptw_sample_id_layout {
	uint16_t size, pid_tid, time, cpu;
};

/** ptw_side_layout() - the layout that @sample_type of an attribute with sample_id_all asks for */
struct ptw_sample_id_layout ptw_side_layout(uint64_t sample_type);

/**
 * ptw_side_take() - understand the @size bytes of a record. Return: false: it is of no interest, or damaged
 * (then nothing is lost but what it would have told).
 */
bool ptw_side_take(struct ptw_side_event *event, const uint8_t *record, size_t size,
		   const struct ptw_sample_id_layout *layout);

#endif /* PTWATCH_RECORDING_SIDEBAND_H */
