// SPDX-License-Identifier: BSD-2-Clause
#include "report/gap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *ptw_gap_describe(const char *text, uint64_t offset, uint64_t lost, uint64_t ip, char *buf, size_t size)
{
	static const char here[] = " at this address";
	size_t length = strlen(text);
	char at[40] = "";

	if (!lost) {
		if (ip)
			snprintf(at, sizeof(at), ", goes on at 0x%016" PRIx64, ip);
		snprintf(buf, size, "trace offset 0x%" PRIx64 ": %s%s", offset, text, at);
		return buf;
	}
	if (ip) {
		snprintf(at, sizeof(at), " at 0x%016" PRIx64, ip);
		/* libipt's "no memory mapped at this address" */
		if (length > strlen(here) && !strcmp(text + length - strlen(here), here))
			length -= strlen(here);
	}
	snprintf(buf, size, "trace offset 0x%" PRIx64 ": %.*s%s; %" PRIu64 " bytes lost", offset, (int)length, text, at, lost);
	/* Behind what is cut off there is nothing. */
	if (strcmp(text, PTW_GAP_CUT))
		snprintf(buf + strlen(buf), size - strlen(buf), ", goes on at offset 0x%" PRIx64, offset + lost);
	return buf;
}

char *ptw_flow_describe_gap(const struct ptw_flow *gap, char *buf, size_t size)
{
	/* An overflow is known by where tracing goes on, an error by where it was. */
	return ptw_gap_describe(gap->text, gap->offset, gap->value,
				gap->event == PTW_EVENT_OVERFLOW ? gap->to : gap->from, buf, size);
}

const char *ptw_flow_gap_kind(const struct ptw_flow *gap)
{
	static const char *const kinds[] = { PTW_GAP_NO_CODE, PTW_GAP_OTHER_CODE };

	if (gap->event == PTW_EVENT_OVERFLOW)
		return "overflow";
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strncmp(gap->text, kinds[i], strlen(kinds[i])))
			return kinds[i];
	return gap->text;
}
