/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffered output of reports: a trace may give billions of lines, so a line costs no call into stdio. */
#ifndef PTWATCH_REPORT_OUT_H
#define PTWATCH_REPORT_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ptw_out {
	FILE *file;
	int error;	/* errno of the first write that failed, 0: none; nothing more is written then */
	bool colour;	/* escape sequences are wanted */
	size_t used;
	uint64_t written;	/* bytes, without those in @buf */
	char buf[1 << 16];
};

enum ptw_colour { PTW_PLAIN, PTW_BOLD, PTW_DIM, PTW_RED, PTW_YELLOW, PTW_CYAN };

void ptw_out_init(struct ptw_out *out, FILE *file, bool colour);
void ptw_out_write(struct ptw_out *out, const char *text, size_t length);
void ptw_out_text(struct ptw_out *out, const char *text);
void ptw_out_printf(struct ptw_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** ptw_out_ip_line() - @ip as 16 lower-case hex digits and a newline */
void ptw_out_ip_line(struct ptw_out *out, uint64_t ip);

/** ptw_out_json_string() - @text with quotes around it, what JSON doesn't allow in it escaped */
void ptw_out_json_string(struct ptw_out *out, const char *text);

/** ptw_out_colour() - switch to @colour where colours are wanted; PTW_PLAIN ends it */
void ptw_out_colour(struct ptw_out *out, enum ptw_colour colour);

/** ptw_out_any() - whether there is any output so far */
static inline bool ptw_out_any(const struct ptw_out *out)
{
	return out->used || out->written;
}

/** ptw_out_flush() - write out what is buffered. Return: 0, or -1 when this or an earlier write failed. */
int ptw_out_flush(struct ptw_out *out);

#endif /* PTWATCH_REPORT_OUT_H */
