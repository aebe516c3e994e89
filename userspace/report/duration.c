// SPDX-License-Identifier: BSD-2-Clause
#include "report/duration.h"

#include <inttypes.h>
#include <stdio.h>

char *ptw_duration(uint64_t ns, char *buf)
{
	if (ns < 1000)
		snprintf(buf, PTW_DURATION, "%" PRIu64 "ns", ns);
	else if (ns < 1000000)
		snprintf(buf, PTW_DURATION, "%" PRIu64 ".%03" PRIu64 "us", ns / 1000, ns % 1000);
	else if (ns < 1000000000)
		snprintf(buf, PTW_DURATION, "%" PRIu64 ".%03" PRIu64 "ms", ns / 1000000, ns / 1000 % 1000);
	else
		snprintf(buf, PTW_DURATION, "%" PRIu64 ".%03" PRIu64 "s", ns / 1000000000, ns / 1000000 % 1000);
	return buf;
}

char *ptw_time(uint64_t ns, char *buf)
{
	snprintf(buf, PTW_DURATION, "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
	return buf;
}
