// SPDX-License-Identifier: BSD-2-Clause
#include "common/number.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_CPU 8191	/* the largest NR_CPUS of x86 */

char *ptw_commas(uint64_t value, char *buf, size_t size)
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
	size_t out = 0;

	for (int i = 0; i < len && out + 2 < size; i++) {
		if (i && (len - i) % 3 == 0)
			buf[out++] = ',';
		buf[out++] = digits[i];
	}
	buf[out] = '\0';
	return buf;
}

char *ptw_bytes(uint64_t value, char *buf, size_t size)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	uint64_t whole = value, part = 0;
	size_t i = 0;

	while (whole >= 1024 && i + 1 < sizeof(unit) / sizeof(unit[0])) {
		part = whole % 1024;
		whole /= 1024;
		i++;
	}
	if (part)
		snprintf(buf, size, "%llu.%llu %s", (unsigned long long)whole,
			 (unsigned long long)(part * 10 / 1024), unit[i]);
	else
		snprintf(buf, size, "%llu %s", (unsigned long long)whole, unit[i]);
	return buf;
}

int ptw_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	unsigned long long number;
	char *end;

	/* strtoull() would take a sign and blanks. */
	if (!isdigit((unsigned char)*text))
		return -1;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || number < min || number > max)
		return -1;
	*value = number;
	return 0;
}

int ptw_parse_size(const char *text, uint64_t *bytes)
{
	unsigned long long number;
	unsigned int shift = 0;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -1;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return -1;
	switch (*end) {
	case 'k': case 'K':
		shift = 10;
		break;
	case 'm': case 'M':
		shift = 20;
		break;
	case 'g': case 'G':
		shift = 30;
		break;
	case '\0': case 'b': case 'B':
		break;
	default:
		return -1;
	}
	if (shift) {
		end++;
		if (*end == 'i' && (end[1] == 'B' || end[1] == 'b'))
			end++;
	}
	if (*end == 'B' || *end == 'b')
		end++;
	if (*end || number > (UINT64_MAX >> shift))
		return -1;
	*bytes = number << shift;
	return 0;
}

int ptw_parse_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} unit[] = {
		{ "", 1e9 }, { "s", 1e9 }, { "ms", 1e6 }, { "us", 1e3 }, { "ns", 1 }, { "m", 60e9 }, { "h", 3600e9 },
	};
	double number;
	char *end;

	/* strtod() would take "inf", "0x10", blanks and signs. */
	if (!isdigit((unsigned char)*text) || (text[0] == '0' && (text[1] | 0x20) == 'x'))
		return -1;
	number = strtod(text, &end);
	/* Nor is "1e3" a thousand: "1e" might have been meant for a unit. */
	if ((size_t)(end - text) != strspn(text, "0123456789."))
		return -1;
	for (size_t i = 0; i < sizeof(unit) / sizeof(unit[0]); i++) {
		if (strcmp(end, unit[i].name))
			continue;
		if (number * unit[i].ns > 9e18)
			return -1;
		*ns = (uint64_t)(number * unit[i].ns);
		return 0;
	}
	return -1;
}

int ptw_parse_cpus(const char *text, uint8_t **bitmap, size_t *size)
{
	uint8_t *map = calloc(1, MAX_CPU / 8 + 1);
	unsigned long last = 0;
	int count = 0;

	if (!map)
		return -1;
	for (;;) {
		unsigned long from, to;
		char *end;

		if (!isdigit((unsigned char)*text))
			goto bad;
		from = to = strtoul(text, &end, 10);
		if (*end == '-') {
			if (!isdigit((unsigned char)end[1]))
				goto bad;
			to = strtoul(end + 1, &end, 10);
		}
		if (from > to || to > MAX_CPU)
			goto bad;
		for (; from <= to; from++) {
			if (!(map[from / 8] & 1U << from % 8))
				count++;
			map[from / 8] |= 1U << from % 8;
		}
		if (to > last)
			last = to;
		if (*end == '\0' || *end == '\n')
			break;
		if (*end != ',')
			goto bad;
		text = end + 1;
	}
	*bitmap = map;
	*size = last / 8 + 1;
	return count;
bad:
	free(map);
	return -1;
}
