/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs mean by the numbers they write with PTWRITE: named fields of bits, from the top.
 *
 * "type:8 id:56": the top byte is the type of the event (0xA0: start, …), the other 56 bits say of what.
 */
#ifndef PTWATCH_REPORT_MARKER_H
#define PTWATCH_REPORT_MARKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define PTW_MARKER_FIELDS	16
#define PTW_MARKER_NAMES	64
#define PTW_MARKER_DEFAULT	"type:8 id:56"

struct ptw_marker_format {
	struct {
		char name[32];
		uint8_t bits, shift;
	} field[PTW_MARKER_FIELDS];
	size_t count;
	struct {
		uint64_t type;
		char name[32];
	} name[PTW_MARKER_NAMES];	/* of values of the first field */
	size_t name_count;
};

/** ptw_marker_format_parse() - fields from "NAME:BITS NAME:BITS…", spaces or commas between; names are kept */
int ptw_marker_format_parse(struct ptw_marker_format *format, const char *text, struct ptw_error *err);

/** ptw_marker_names_parse() - names for types, from "0xA0=start,0xA4=done"; added to those already there */
int ptw_marker_names_parse(struct ptw_marker_format *format, const char *text, struct ptw_error *err);

/** ptw_marker_field() - index of the field named @name; -1: none */
int ptw_marker_field(const struct ptw_marker_format *format, const char *name);

/** ptw_marker_get() - field number @field of @value */
static inline uint64_t ptw_marker_get(const struct ptw_marker_format *format, size_t field, uint64_t value)
{
	uint8_t bits = format->field[field].bits;

	return value >> format->field[field].shift & (bits < 64 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX);
}

/** ptw_marker_type_name() - "start" where --names has one, else "0xA0". Return: @buf, or the name. */
const char *ptw_marker_type_name(const struct ptw_marker_format *format, uint64_t type, char *buf, size_t size);

#endif /* PTWATCH_REPORT_MARKER_H */
