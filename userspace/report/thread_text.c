// SPDX-License-Identifier: BSD-2-Clause
#include "report/thread_text.h"

#include <stdio.h>

char *ptw_thread_text(int32_t tid, const char *comm, char *buf)
{
	snprintf(buf, PTW_THREAD_TEXT, *comm ? "%d (%s)" : "%d", tid, comm);
	return buf;
}
