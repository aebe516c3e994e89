/* SPDX-License-Identifier: BSD-2-Clause */
/* The jitdump format, as far as perf's own test writes it. */
#ifndef JITDUMP_H
#define JITDUMP_H

#include <stdint.h>

#define JITHEADER_MAGIC 0x4a695444
#define JITHEADER_VERSION 1

enum { JITDUMP_FLAGS_ARCH_TIMESTAMP = 1 };
enum { JIT_CODE_LOAD = 0 };

struct jitheader {
	uint32_t magic, version, total_size, elf_mach, pad1, pid;
	uint64_t timestamp, flags;
};

struct jr_prefix {
	uint32_t id, total_size;
	uint64_t timestamp;
};

struct jr_code_load {
	struct jr_prefix p;
	uint32_t pid, tid;
	uint64_t vma, code_addr, code_size, code_index;
};

#endif
