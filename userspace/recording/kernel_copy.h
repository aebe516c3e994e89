/* SPDX-License-Identifier: BSD-2-Clause */
/* A copy of the running kernel's code: what DIR/kcore_dir holds. */
#ifndef PTWATCH_RECORDING_KERNEL_COPY_H
#define PTWATCH_RECORDING_KERNEL_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/** struct ptw_kernel_module - a line of /proc/modules */
struct ptw_kernel_module {
	char name[64];
	uint64_t addr;
	uint64_t size;
};

/** struct ptw_kernel_layout - where the kernel and its modules are; ptw_kernel_layout_free() */
struct ptw_kernel_layout {
	uint64_t text;		/* _text */
	uint64_t etext;		/* _etext */
	struct ptw_kernel_module *module;
	size_t modules;
};

/**
 * ptw_kernel_copy() - write kallsyms, modules and kcore into the directory @dir
 * @proc: "/proc"; another place in tests
 * @dir: an existing directory
 * @layout: out
 *
 * kcore is an ELF core with one PT_LOAD for the kernel's text, one for each module, and one for each run of
 * pages with generated code that kallsyms knows (BPF, ftrace and kprobe trampolines). PTW_EXIT_UNSUPPORTED
 * with the reason when this kernel does not let its code be read.
 */
int ptw_kernel_copy(const char *proc, const char *dir, struct ptw_kernel_layout *layout,
		    struct ptw_error *err);

/** ptw_kernel_read() - @size bytes of the kernel's memory at @addr, from @proc/kcore */
int ptw_kernel_read(const char *proc, uint64_t addr, void *data, size_t size, struct ptw_error *err);
/**
 * ptw_kernel_copy_late() - add to a copy in @dir what was loaded since
 * @known: what the copy has
 * @late: out: modules only, whose code, symbols and lines are in the copy now: of 64 altogether the code
 */
int ptw_kernel_copy_late(const char *proc, const char *dir, const struct ptw_kernel_layout *known,
			 struct ptw_kernel_layout *late, struct ptw_error *err);

/**
 * ptw_kernel_compare() - the code that a copy has beside the running kernel's, page by page
 * @known: what the copy in @dir has; of a module that is not loaded any more nothing is shown
 * @page: @copy and @is are 4096 bytes each; other than 0 ends it
 */
int ptw_kernel_compare(const char *proc, const char *dir, const struct ptw_kernel_layout *known,
		       int (*page)(void *arg, uint64_t addr, const uint8_t *copy, const uint8_t *is, struct ptw_error *err),
		       void *arg, struct ptw_error *err);

void ptw_kernel_layout_free(struct ptw_kernel_layout *layout);

#endif /* PTWATCH_RECORDING_KERNEL_COPY_H */
