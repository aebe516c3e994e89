/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session with /dev/ptwatch (<linux/ptwatch.h>): its calls with errors that name the remedy, and its
 * mappings. Everything ends with ptw_device_close(), or with the process.
 */
#ifndef PTWATCH_CONTROL_DEVICE_H
#define PTWATCH_CONTROL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <linux/ptwatch.h>

#include "common/error.h"

/** struct ptw_cpu_trace - the mappings of one CPU */
struct ptw_cpu_trace {
	uint32_t cpu;
	const struct ptwatch_control *control;
	const uint8_t *data;
	const struct ptwatch_switches *switches;	/* NULL: none were asked for */
	size_t switches_size;
};

struct ptw_device {
	int fd;				/* -1: closed. Pollable: POLLPRI an alarm, POLLIN a frozen trace */
	struct ptwatch_info info;
	struct ptw_cpu_trace *trace;	/* after ptw_device_trace_setup() */
	size_t trace_count;
	size_t buffer_size;
	uint32_t filter;		/* PTWATCH_FILTER_*: how the target of the trace is told from others */
};

/**
 * ptw_device_open() - open the device and ask it what it can do
 * @device: to be closed with ptw_device_close() also after a failure
 *
 * Fails with PTW_EXIT_UNSUPPORTED when the module is not loaded or speaks another ABI, with PTW_EXIT_FAILED
 * for missing rights.
 */
int ptw_device_open(struct ptw_device *device, struct ptw_error *err);

/** ptw_device_close() - unmap and close, which disarms and frees everything */
void ptw_device_close(struct ptw_device *device);

/** struct ptw_trace_request - what ptw_device_trace_setup() should trace */
struct ptw_trace_request {
	uint64_t rtit_ctl;		/* PTWATCH_RTIT_CTL_* */
	uint64_t buffer_size;		/* bytes per CPU */
	const uint8_t *cpus;		/* bitmap; NULL: every online CPU */
	size_t cpus_size;
	/* As in struct ptwatch_trace; a module that does not know them takes zeros only. */
	uint32_t mode;
	uint32_t flags;
	uint32_t switch_records;
	uint32_t target_kind;
	int32_t target;
	uint32_t nr_ranges;
	struct ptwatch_range ranges[PTWATCH_MAX_RANGES];
};

/**
 * ptw_trace_default_rtit_ctl() - good bits for a ring that will be frozen, of those the CPU has
 * @where: PTWATCH_RTIT_CTL_OS and/or PTWATCH_RTIT_CTL_USER
 *
 * Branches, TSC, MTC every 8 crystal clocks (2^3) or as near as the CPU allows, and a PSB every 2 KiB: the
 * oldest bytes of a wrapped ring are unreadable up to the next PSB, and after an error the decoder goes on
 * from there.
 */
uint64_t ptw_trace_default_rtit_ctl(const struct ptwatch_info *info, uint64_t where);

/** ptw_device_trace_setup() - reserve Intel PT, allocate and map the buffers; nothing is traced yet */
int ptw_device_trace_setup(struct ptw_device *device, const struct ptw_trace_request *request,
			   struct ptw_error *err);
int ptw_device_trace_start(struct ptw_device *device, struct ptw_error *err);
int ptw_device_trace_stop(struct ptw_device *device, struct ptw_error *err);

/** ptw_device_trace_flush() - publish the heads of CPUs that run */
int ptw_device_trace_flush(struct ptw_device *device, struct ptw_error *err);

/** ptw_device_trace_advance() - the stream of @cpu has been read up to @tail */
int ptw_device_trace_advance(struct ptw_device *device, uint32_t cpu, uint64_t tail, struct ptw_error *err);

/** ptw_device_watch_add() - arm @watch, whose size and refusal this fills in; @name is how the person called it */
int ptw_device_watch_add(struct ptw_device *device, struct ptwatch_watch *watch, const char *name,
			 struct ptw_error *err);
int ptw_device_watch_stat(struct ptw_device *device, uint32_t id, struct ptwatch_watch_stat *stat,
			  struct ptw_error *err);

/** ptw_watch_place() - what @entry watches, as a person would write it. Return: @buf */
const char *ptw_watch_place(const struct ptwatch_watch_entry *entry, char *buf, size_t size);
/**
 * ptw_device_watch_next() - the watches of everyone, one by one
 * @from: the lowest number of interest
 * Return: 1 with @entry and @stat, 0 behind the last one, -1 for a failure.
 */
int ptw_device_watch_next(struct ptw_device *device, uint32_t from, struct ptwatch_watch_entry *entry,
			  struct ptwatch_watch_stat *stat, struct ptw_error *err);

/** ptw_device_watch_remove() - end a watch of anyone */
int ptw_device_watch_remove(struct ptw_device *device, uint32_t id, struct ptw_error *err);

/**
 * ptw_control_read() - a consistent copy of a control page that the kernel may be writing
 * Return: 0, or -1 when the page does not come to rest.
 */
int ptw_control_read(const struct ptwatch_control *page, struct ptwatch_control *copy);

/** struct ptw_trace_pieces - the bytes of a ring, oldest first, where they lie */
struct ptw_trace_pieces {
	const uint8_t *first, *second;
	size_t first_size, second_size;
};

/** ptw_trace_pieces() - find the bytes that @control, which must not be RUNNING, says are in @data */
struct ptw_trace_pieces ptw_trace_pieces(const struct ptwatch_control *control, const uint8_t *data);

#endif /* PTWATCH_CONTROL_DEVICE_H */
