/* SPDX-License-Identifier: BSD-2-Clause */
/* An alarm as a person reads it. */
#ifndef PTWATCH_REPORT_ALARM_TEXT_H
#define PTWATCH_REPORT_ALARM_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "recording/recording.h"
#include "symbols/symbols.h"

/** struct ptw_alarm_style - how ptw_alarm_write_text() looks */
struct ptw_alarm_style {
	int width;	/* columns to wrap the stack at */
	bool colour;
	struct ptw_alarm_names names;
};

/**
 * ptw_alarm_write_text() - what happened, the values and the stack; the number is the module's, as in the kernel log
 * @symbols: for the stack; NULL: addresses
 *
 *	ALARM #1  write 8 bytes at kv_cache_meta+0x0 (0xffffffffc0a01180)  cpu 1  pid 4242 (health_check)
 *	          old 0x5a5a000000000010  new 0x5a5a0000deadbeef
 *	          stack: health_tick+0x1d [kvdemo]  process_one_work+0x18e  worker_thread+0x4a
 *
 *	          user: write+0x14 [libc.so.6]  main+0x51 [prog]
 *	          cgroup: /system.slice/prog.service
 *
 * The line of values is absent where the alarm has none, and the stacks too; that of the group where it is
 * the root, as of kernel threads.
 */
void ptw_alarm_write_text(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols,
			  const struct ptw_alarm_style *style);

/**
 * ptw_alarm_write_trace_text() - the line about the frozen trace; nothing when the alarm froze none
 * @insns_after: instructions between the access and the freeze; negative: not known
 *
 *	          trace: 2,031,616 bytes frozen on cpu 1, 312 instructions after the write
 */
void ptw_alarm_write_trace_text(FILE *out, const struct ptw_alarm *alarm, int64_t insns_after);

/** ptw_access_text() - "write", "access" or "execute" */
const char *ptw_access_text(uint32_t access);

#endif /* PTWATCH_REPORT_ALARM_TEXT_H */
