// SPDX-License-Identifier: BSD-2-Clause
#include "report/alarm_text.h"

#include <inttypes.h>
#include <string.h>

#include <linux/ptwatch.h>

#include "common/number.h"

#define INDENT "          "
#define STACK_INDENT INDENT "       "	/* behind "stack: " */

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

/* Threads name themselves: nothing of it may steer the terminal. */
static const char *printable(const char *text, char *buf, size_t size)
{
	snprintf(buf, size, "%s", text);
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return buf;
}

static void write_stack(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols,
			size_t width)
{
	size_t column = strlen(STACK_INDENT);
	char name[256];

	fputs(INDENT "stack: ", out);
	for (uint32_t i = 0; i < alarm->stack_count; i++) {
		size_t len;

		if (symbols)
			ptw_symbols_format(symbols, alarm->stack[i], name, sizeof(name));
		else
			snprintf(name, sizeof(name), "0x%016" PRIx64, alarm->stack[i]);
		len = strlen(name);
		if (i && column + 2 + len > width) {
			fputs("\n" STACK_INDENT, out);
			column = strlen(STACK_INDENT);
		} else if (i) {
			fputs("  ", out);
			column += 2;
		}
		fputs(name, out);
		column += len;
	}
	/* As long as the kernel's record: it goes on where nobody looked. */
	if (alarm->stack_count == PTW_ALARM_STACK_MAX)
		fputs(" …", out);
	fputc('\n', out);
}

void ptw_alarm_write_text(FILE *out, const struct ptw_alarm *alarm, const struct ptw_symbols *symbols,
			  const struct ptw_alarm_style *style)
{
	const char *alert = style->colour ? "\033[1;31m" : "", *strong = style->colour ? "\033[1m" : "";
	const char *plain = style->colour ? "\033[0m" : "";
	char text[sizeof(alarm->label)];
	int digits = 2 * (alarm->len && alarm->len <= 8 ? alarm->len : 8);

	fprintf(out, "%sALARM #%" PRIu64 "%s  %s ", alert, alarm->seq, plain, ptw_access_text(alarm->access));
	if (alarm->access != PTWATCH_ACCESS_X)
		fprintf(out, "%u byte%s at ", alarm->len, alarm->len == 1 ? "" : "s");
	if (alarm->label[0])
		fprintf(out, "%s%s%s (0x%016" PRIx64 ")", strong, printable(alarm->label, text, sizeof(text)), plain, alarm->address);
	else
		fprintf(out, "%s0x%016" PRIx64 "%s", strong, alarm->address, plain);
	fprintf(out, "  cpu %u  pid %u (%s)\n", alarm->cpu, alarm->pid,
		printable(alarm->comm, text, sizeof(text)));
	if (alarm->have_values)
		fprintf(out, INDENT "old 0x%0*" PRIx64 "  new 0x%0*" PRIx64 "\n", digits, alarm->old_value, digits,
			alarm->new_value);
	if (alarm->stack_count)
		write_stack(out, alarm, symbols, style->width > 0 ? style->width : 80);
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
