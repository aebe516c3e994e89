// SPDX-License-Identifier: BSD-2-Clause
#include "report/alarm_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <linux/ptwatch.h>

#include "common/number.h"
#include "common/utf8.h"

#define INDENT "          "

const char *ptw_access_text(uint32_t access)
{
	switch (access) {
	case PTWATCH_ACCESS_W:
		return "write";
	case PTWATCH_ACCESS_RW:
		return "access";
	case PTWATCH_ACCESS_X:
		return "execute";
	default:
		return "touch";
	}
}

/* Names behind a heading, wrapped at @width below the first of them. */
struct line {
	FILE *out;
	size_t column, indent, width;
	bool begun;
};

static void begin_line(struct line *line, FILE *out, const char *heading, size_t width)
{
	*line = (struct line){ .out = out, .width = width, .indent = strlen(INDENT) + strlen(heading) };
	line->column = line->indent;
	fprintf(out, INDENT "%s", heading);
}

static void add_name(struct line *line, const char *name)
{
	size_t length = strlen(name);

	if (line->begun && line->column + 2 + length > line->width) {
		fprintf(line->out, "\n%*s", (int)line->indent, "");
		line->column = line->indent;
	} else if (line->begun) {
		fputs("  ", line->out);
		line->column += 2;
	}
	fputs(name, line->out);
	line->column += length;
	line->begun = true;
}

static void write_stack(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols,
			size_t width)
{
	struct line line;
	char name[256];

	begin_line(&line, out, "stack: ", width);
	for (uint32_t i = 0; i < alarm->stack_count; i++) {
		if (symbols)
			ptw_symbols_format(symbols, alarm->stack[i], name, sizeof(name));
		else
			snprintf(name, sizeof(name), "0x%016" PRIx64, alarm->stack[i]);
		add_name(&line, name);
	}
	/* As long as the kernel's record: it goes on where nobody looked. */
	if (alarm->stack_count == PTW_ALARM_STACK_MAX)
		fputs(" …", out);
	fputc('\n', out);
}

static void write_user_stack(FILE *out, const struct ptw_alarm *alarm, const struct ptw_alarm_style *style,
			     size_t width)
{
	struct line line;
	char name[256];

	begin_line(&line, out, "user: ", width);
	for (uint32_t i = 0; i < alarm->user_count; i++) {
		if (style->names.user && style->names.user[i])
			ptw_printable(style->names.user[i], name, sizeof(name));
		else
			snprintf(name, sizeof(name), "0x%" PRIx64, alarm->user_stack[i]);
		add_name(&line, name);
	}
	fputc('\n', out);
}

/* The label of the 8 bytes that were hit: "struct+0x0" is that of the first. */
static const char *label_of_hit(const struct ptw_alarm *alarm, char *buf, size_t size)
{
	uint64_t distance = alarm->hit_address ? alarm->hit_address - alarm->address : 0;
	const char *plus = strrchr(alarm->label, '+');
	char *end;
	uint64_t offset;

	if (!distance)
		return ptw_printable(alarm->label, buf, size);
	offset = plus ? strtoull(plus + 1, &end, 16) : 0;
	if (plus && !*end)
		snprintf(buf, size, "%.*s+0x%" PRIx64, (int)(plus - alarm->label), alarm->label, offset + distance);
	else
		snprintf(buf, size, "%s+0x%" PRIx64, alarm->label, distance);
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return buf;
}

void ptw_alarm_write_text(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols,
			  const struct ptw_alarm_style *style)
{
	const char *alert = style->colour ? "\033[1;31m" : "", *strong = style->colour ? "\033[1m" : "";
	const char *plain = style->colour ? "\033[0m" : "";
	uint64_t address = alarm->hit_address ? alarm->hit_address : alarm->address;
	uint32_t len = alarm->len > 8 && alarm->hit_address ? 8 : alarm->len;
	size_t width = style->width > 0 ? style->width : 80;
	char text[sizeof(alarm->label) + 32];
	int digits = 2 * (len && len <= 8 ? len : 8);

	fprintf(out, "%sALARM #%" PRIu64 "%s  %s ", alert, alarm->seq, plain, ptw_access_text(alarm->access));
	if (alarm->access != PTWATCH_ACCESS_X)
		fprintf(out, "%u byte%s at ", len, len == 1 ? "" : "s");
	if (alarm->label[0])
		fprintf(out, "%s%s%s (0x%016" PRIx64 ")", strong, label_of_hit(alarm, text, sizeof(text)), plain, address);
	else
		fprintf(out, "%s0x%016" PRIx64 "%s", strong, address, plain);
	fprintf(out, "  cpu %u  pid %u (%s)\n", alarm->cpu, alarm->pid,
		ptw_printable(alarm->comm, text, sizeof(text)));
	if (alarm->have_values)
		fprintf(out, INDENT "old 0x%0*" PRIx64 "  new 0x%0*" PRIx64 "\n", digits, alarm->old_value, digits,
			alarm->new_value);
	if (alarm->stack_count)
		write_stack(out, alarm, symbols, width);
	if (alarm->user_count)
		write_user_stack(out, alarm, style, width);
	if (style->names.cgroup && strcmp(style->names.cgroup, "/"))
		fprintf(out, INDENT "cgroup: %s\n", style->names.cgroup);
}

void ptw_alarm_write_trace_text(FILE *out, const struct ptw_alarm *alarm, int64_t insns_after)
{
	static const char *const noun[] = {
		[PTWATCH_ACCESS_W] = "write", [PTWATCH_ACCESS_RW] = "access", [PTWATCH_ACCESS_X] = "breakpoint",
	};
	char bytes[32], insns[32];

	if (!alarm->have_trace || alarm->trace_state != PTWATCH_STATE_FROZEN)
		return;
	fprintf(out, INDENT "trace: %s bytes frozen on cpu %u", ptw_commas(alarm->trace_size, bytes, sizeof(bytes)),
		alarm->cpu);
	if (insns_after >= 0)
		fprintf(out, ", %s instruction%s after the %s", ptw_commas(insns_after, insns, sizeof(insns)),
			insns_after == 1 ? "" : "s", alarm->access <= PTWATCH_ACCESS_X && alarm->access ?
			noun[alarm->access] : "access");
	fputc('\n', out);
}
