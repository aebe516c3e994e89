// SPDX-License-Identifier: BSD-2-Clause
#include "report/marker.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_separator(char c)
{
	return c == ' ' || c == ',' || c == '\t';
}

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* The name at @text up to @stop. Return: what is behind @stop; NULL: no such name. */
static const char *take_name(const char *text, char stop, char *name, size_t size)
{
	size_t length = 0;

	while (is_name(text[length]))
		length++;
	if (!length || length >= size || text[length] != stop)
		return NULL;
	memcpy(name, text, length);
	name[length] = '\0';
	return text + length + 1;
}

int ptw_marker_format_parse(struct ptw_marker_format *format, const char *text, struct ptw_error *err)
{
	unsigned int used = 0;
	const char *at = text;

	format->count = 0;
	while (is_separator(*at))
		at++;
	while (*at) {
		unsigned long bits;
		char *end;

		if (format->count == PTW_MARKER_FIELDS)
			return ptw_error_set(err, PTW_EXIT_USAGE, "--format '%s': more than %d fields", text, PTW_MARKER_FIELDS);
		at = take_name(at, ':', format->field[format->count].name, sizeof(format->field[0].name));
		if (!at || !isdigit((unsigned char)*at))
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "--format '%s': must be fields NAME:BITS from the top, such as '" PTW_MARKER_DEFAULT "'", text);
		bits = strtoul(at, &end, 10);
		if ((*end && !is_separator(*end)) || bits < 1 || bits > 64 || used + bits > 64)
			return ptw_error_set(err, PTW_EXIT_USAGE, "--format '%s': field %s: a marker has 64 bits, %u are left",
					     text, format->field[format->count].name, 64 - used);
		used += bits;
		format->field[format->count].bits = bits;
		format->field[format->count].shift = 64 - used;
		format->count++;
		for (at = end; is_separator(*at); at++)
			;
	}
	if (!format->count)
		return ptw_error_set(err, PTW_EXIT_USAGE, "--format '%s': no field in it", text);
	return 0;
}

int ptw_marker_names_parse(struct ptw_marker_format *format, const char *text, struct ptw_error *err)
{
	const char *at = text;
	size_t length;
	char *end;

	while (*at) {
		if (format->name_count == PTW_MARKER_NAMES)
			return ptw_error_set(err, PTW_EXIT_USAGE, "--names '%s': more than %d names", text, PTW_MARKER_NAMES);
		errno = 0;
		format->name[format->name_count].type = strtoull(at, &end, 0);
		for (length = 0; *end == '=' && is_name(end[1 + length]);)
			length++;
		if (errno || end == at || !length || length >= sizeof(format->name[0].name) ||
		    (end[1 + length] && !is_separator(end[1 + length])))
			return ptw_error_set(err, PTW_EXIT_USAGE, "--names '%s': must be TYPE=NAME,…, such as 0xA0=start,0xA4=done",
					     text);
		memcpy(format->name[format->name_count].name, end + 1, length);
		format->name[format->name_count++].name[length] = '\0';
		for (at = end + 1 + length; is_separator(*at); at++)
			;
	}
	return 0;
}

int ptw_marker_field(const struct ptw_marker_format *format, const char *name)
{
	size_t i;

	for (i = 0; i < format->count; i++)
		if (!strcmp(format->field[i].name, name))
			return (int)i;
	return -1;
}

const char *ptw_marker_type_name(const struct ptw_marker_format *format, uint64_t type, char *buf, size_t size)
{
	size_t i;

	for (i = 0; i < format->name_count; i++)
		if (format->name[i].type == type)
			return format->name[i].name;
	snprintf(buf, size, "0x%" PRIX64, type);
	return buf;
}
