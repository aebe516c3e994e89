// SPDX-License-Identifier: BSD-2-Clause
#include "report/out.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "common/utf8.h"

void ptw_out_init(struct ptw_out *out, FILE *file, bool colour)
{
	out->file = file;
	out->error = 0;
	out->colour = colour;
	out->used = 0;
	out->written = 0;
}

static void write_out(struct ptw_out *out)
{
	if (out->used && !out->error && fwrite(out->buf, 1, out->used, out->file) != out->used)
		out->error = errno ? errno : EIO;
	out->written += out->used;
	out->used = 0;
}

/* Room for @length more bytes; longer ones never are asked for. */
static char *reserve(struct ptw_out *out, size_t length)
{
	if (out->used + length > sizeof(out->buf))
		write_out(out);
	return out->buf + out->used;
}

void ptw_out_write(struct ptw_out *out, const char *text, size_t length)
{
	while (length) {
		size_t part = length < sizeof(out->buf) ? length : sizeof(out->buf);

		memcpy(reserve(out, part), text, part);
		out->used += part;
		text += part;
		length -= part;
	}
}

void ptw_out_text(struct ptw_out *out, const char *text)
{
	ptw_out_write(out, text, strlen(text));
}

void ptw_out_printf(struct ptw_out *out, const char *format, ...)
{
	const size_t room = 4096;
	char *at = reserve(out, room);
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(at, room, format, args);
	va_end(args);
	if (length > 0)
		out->used += (size_t)length < room ? (size_t)length : room - 1;
}

/* Eight hex digits of @value at once: a nibble to each byte, then '0' or 'a' - 10 added to each. */
static uint64_t hex_digits(uint32_t value)
{
	uint64_t x = __builtin_bswap32(value), letters;

	x = (x | x << 16) & 0x0000ffff0000ffff;
	x = (x | x << 8) & 0x00ff00ff00ff00ff;
	x = (x >> 4 & 0x000f000f000f000f) | (x << 8 & 0x0f000f000f000f00);
	letters = (x + 0x0606060606060606) >> 4 & 0x0101010101010101;
	return x + 0x3030303030303030 + letters * ('a' - '0' - 10);
}

void ptw_out_ip_line(struct ptw_out *out, uint64_t ip)
{
	char *at = reserve(out, 17);
	uint64_t high = htole64(hex_digits(ip >> 32)), low = htole64(hex_digits(ip));

	memcpy(at, &high, 8);
	memcpy(at + 8, &low, 8);
	at[16] = '\n';
	out->used += 17;
}

void ptw_out_json_string(struct ptw_out *out, const char *text)
{
	ptw_out_text(out, "\"");
	for (size_t n; *text; text += n ? n : 1) {
		unsigned char c = *text;

		n = ptw_utf8_size(text);
		if (!n)
			ptw_out_text(out, "?");
		else if (c == '"' || c == '\\')
			ptw_out_printf(out, "\\%c", c);
		else if (c < 0x20)
			ptw_out_printf(out, "\\u%04x", c);
		else
			ptw_out_write(out, text, n);
	}
	ptw_out_text(out, "\"");
}

void ptw_out_colour(struct ptw_out *out, enum ptw_colour colour)
{
	static const char *const codes[] = {
		[PTW_PLAIN] = "\033[0m",  [PTW_BOLD] = "\033[1m",    [PTW_DIM] = "\033[2m",
		[PTW_RED] = "\033[1;31m", [PTW_YELLOW] = "\033[33m", [PTW_CYAN] = "\033[36m",
	};

	if (out->colour)
		ptw_out_text(out, codes[colour]);
}

int ptw_out_flush(struct ptw_out *out)
{
	write_out(out);
	if (!out->error && fflush(out->file))
		out->error = errno;
	return out->error ? -1 : 0;
}
