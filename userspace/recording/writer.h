/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PTWATCH_RECORDING_WRITER_H
#define PTWATCH_RECORDING_WRITER_H

#include "recording/recording.h"

/** ptw_recording_add_kernel_from() - ptw_recording_add_kernel() with another place than /proc, for tests */
int ptw_recording_add_kernel_from(struct ptw_recording_writer *writer, const char *proc,
				  struct ptw_error *err);

/** ptw_recording_add_processes_from() - the same for ptw_recording_add_processes() */
int ptw_recording_add_processes_from(struct ptw_recording_writer *writer, const char *proc, struct ptw_error *err);

/** ptw_recording_set_proc() - where code of the kernel is read that comes to be later; @proc must stay */
void ptw_recording_set_proc(struct ptw_recording_writer *writer, const char *proc);

#endif /* PTWATCH_RECORDING_WRITER_H */
