/* SPDX-License-Identifier: BSD-2-Clause */
/* A function as a person spells it: of the kernel or of a program. */
#ifndef PTWATCH_REPORT_FUNCTION_H
#define PTWATCH_REPORT_FUNCTION_H

#include "common/error.h"
#include "decode/image.h"
#include "report/story.h"

struct ptw_function {
	uint64_t address;	/* of the kernel's code; 0: of a program, which may lie anywhere */
	char name[128];		/* … and is known by this */
	char object[64];	/* … in this file, known by the last part of its path; "": in any */
};

/**
 * ptw_function_find() - the function that @spelling names
 * @spelling: as ptw_symbols_resolve(), or with "module!sym"; "binary!sym" for a program's, or "sym" where the kernel has none
 *	such
 * @symbols: of the kernel; NULL: none are known
 * @image: names the files whose code was mapped
 */
int ptw_function_find(struct ptw_function *function, const char *spelling, const struct ptw_symbols *symbols,
		      const struct ptw_image *image, struct ptw_error *err);

/** ptw_function_is() - whether the function of @frame is that one, entered where it begins */
bool ptw_function_is(const struct ptw_function *function, const struct ptw_frame *frame);

bool ptw_function_equal(const struct ptw_function *a, const struct ptw_function *b);

#endif /* PTWATCH_REPORT_FUNCTION_H */
