// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reads a recording and writes it again: rewrite FROM TO [PROC]. With PROC, its kallsyms, modules
 * and kcore are copied.
 */
#include <stdio.h>
#include <stdlib.h>

#include <linux/ptwatch.h>

#include "recording/recording.h"
#include "recording/writer.h"

static int fail(const struct ptw_error *err)
{
	fprintf(stderr, "rewrite: %s\n", err->text);
	return err->status;
}

int main(int argc, char **argv)
{
	struct ptw_error err = { .status = PTW_EXIT_OK };
	struct ptw_recording_writer *w;
	struct ptw_recording *r;
	struct ptw_trace_config config = { .pt_pmu_type = 8 };

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: rewrite FROM TO [PROC]\n");
		return PTW_EXIT_USAGE;
	}
	r = ptw_recording_open(argv[1], &err);
	if (!r)
		return fail(&err);
	config.params = r->params;
	config.rtit_ctl = PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_TSCEN | PTWATCH_RTIT_CTL_BRANCHEN |
			  (uint64_t)r->params.mtc_freq << 14 |
			  (r->params.mtc_freq ? PTWATCH_RTIT_CTL_MTCEN : 0);
	w = ptw_recording_create(argv[2], &config, &err);
	if (!w)
		return fail(&err);
	if (argc == 4 && ptw_recording_add_kernel_from(w, argv[3], &err))
		goto fail;
	for (size_t i = 0; i < r->trace_count; i++) {
		const struct ptw_recorded_trace *t = &r->trace[i];
		size_t half = t->size / 2;

		/* In two pieces, as a ring that wrapped is */
		if (ptw_recording_add_trace(w, t->cpu, t->data, half, t->data + half, t->size - half, &err))
			goto fail;
	}
	for (size_t i = 0; i < r->alarm_count; i++) {
		if (ptw_recording_add_alarm(w, &r->alarm[i], &err))
			goto fail;
	}
	if (ptw_recording_finish(w, &err)) {
		w = NULL;
		goto fail;
	}
	ptw_recording_close(r);
	return 0;
fail:
	ptw_recording_abort(w);
	ptw_recording_close(r);
	return fail(&err);
}
