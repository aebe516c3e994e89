// SPDX-License-Identifier: BSD-2-Clause
/*
 * Makes a recording without the kernel's code from raw trace bytes, those of the samples skylake-*, as the
 * trace of CPU 1 on which alarm number SEQ hit in front of address IP: from_raw TO TRACE SEQ IP [PROC [through]]
 *
 * PROC takes the place of /proc, and process 12 there is what ran; "through": nothing turned the trace off.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/ptwatch.h>

#include "recording/file.h"
#include "recording/recording.h"
#include "recording/writer.h"

int main(int argc, char **argv)
{
	struct ptw_trace_config config = {
		.pt_pmu_type = 8,
		.params = { .family = 6, .model = 85, .stepping = 4, .mtc_freq = 3, .nom_freq = 37,
			    .cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 308 },
		.rtit_ctl = PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_TSCEN |
			    PTWATCH_RTIT_CTL_BRANCHEN | PTWATCH_RTIT_CTL_MTCEN | 3ULL << 14,
	};
	struct ptw_alarm alarm = {
		.watch = 1, .cpu = 1, .access = PTWATCH_ACCESS_W, .len = 8, .address = 0x1000,
		.label = "table", .have_trace = 1,
	};
	static const struct ptwatch_switch runs = {
		.tsc = 1, .prev_pid = 12, .prev_tid = 12, .next_pid = 12, .next_tid = 12, .cpu = 1, .flags = PTWATCH_SWITCH_START,
	};
	static const uint64_t id = 501;
	struct ptw_error err = { .status = PTW_EXIT_OK };
	struct ptw_recording_writer *w;
	size_t size = 0;
	char *trace;

	if (argc < 5 || argc > 7) {
		fprintf(stderr, "usage: from_raw TO TRACE SEQ IP [PROC [through]]\n");
		return PTW_EXIT_USAGE;
	}
	config.switches = argc > 5;
	config.params.through = argc > 6;
	alarm.seq = strtoull(argv[3], NULL, 10);
	alarm.ip = strtoull(argv[4], NULL, 16);
	trace = ptw_read_text(argv[2], &size, &err);
	w = trace ? ptw_recording_create(argv[1], &config, &err) : NULL;
	if (w && argc > 5 &&
	    (ptw_recording_set_sideband(w, &id, 1, &err) || ptw_recording_add_processes_from(w, argv[5], &err) ||
	     ptw_recording_add_switches(w, &runs, 1, id, &err))) {
		ptw_recording_abort(w);
		w = NULL;
	}
	if (w && (ptw_recording_add_trace(w, 1, trace, size, NULL, 0, &err) ||
		  ptw_recording_add_alarm(w, &alarm, &err)))
		ptw_recording_abort(w);
	else if (w)
		ptw_recording_finish(w, &err);
	free(trace);
	if (err.status)
		fprintf(stderr, "from_raw: %s\n", err.text);
	return err.status;
}
