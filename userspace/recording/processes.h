/* SPDX-License-Identifier: BSD-2-Clause */
/* The processes that run already when a recording begins, as records: what the kernel told when they began. */
#ifndef PTWATCH_RECORDING_PROCESSES_H
#define PTWATCH_RECORDING_PROCESSES_H

#include "common/error.h"
#include "recording/record.h"

/**
 * ptw_processes_describe() - a fork and a comm record for each thread, an mmap2 record for each executable mapping
 * @proc: "/proc"; another place in tests
 * @put: takes each record, without what ends it (the sample id); -1 ends it all
 *
 * What ends meanwhile is left out. A process is told before its threads, the names before the mappings.
 */
int ptw_processes_describe(const char *proc, int (*put)(void *arg, struct record *record, struct ptw_error *err),
			   void *arg, struct ptw_error *err);

#endif /* PTWATCH_RECORDING_PROCESSES_H */
