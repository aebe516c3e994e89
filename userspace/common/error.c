// SPDX-License-Identifier: BSD-2-Clause
#include "common/error.h"

#include <stdio.h>

int ptw_error_set(struct ptw_error *err, enum ptw_exit status, const char *format, ...)
{
	va_list args;

	if (!err)
		return -1;
	err->status = status;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return -1;
}
