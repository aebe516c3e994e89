/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code that a process generated, as it wrote it down for others: its jitdump file (perf's format), which has the
 * bytes and names of all functions. Private to flow/.
 */
#ifndef PTWATCH_FLOW_JIT_H
#define PTWATCH_FLOW_JIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/pt_params.h"

/** struct jit_load - code that came to be at @addr */
struct jit_load {
	uint64_t time;		/* ns of perf's clock; JIT_TIME_UNKNOWN: the file was written by another clock */
	uint64_t addr, size;
	uint64_t offset;	/* of the bytes in the file */
	uint64_t index;		/* the generator's number for it */
	const char *name;	/* in the file */
};

#define JIT_TIME_UNKNOWN	UINT64_MAX

/** jit_is_dump() - whether a file that was mapped as @name is one: jit-PID.dump */
bool jit_is_dump(const char *name);

/**
 * jit_read() - the loads that the @size bytes of a jitdump tell, in their order; as far as it is whole
 * @load: out: to be freed
 *
 * Return: their number; -1: out of memory.
 */
long jit_read(const uint8_t *data, uint64_t size, const struct ptw_pt_params *params, struct jit_load **load);

#endif /* PTWATCH_FLOW_JIT_H */
