// SPDX-License-Identifier: BSD-2-Clause
#include "control/watch_target.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With 5-level paging the kernel's half begins here; with 4 levels higher, which the kernel checks itself. */
#define KERNEL_HALF 0xff00000000000000ULL

#define FORM "the form is SYMBOL[+OFFSET]:LEN:MODE, e.g. jiffies_64:8:w"

static int parse_mode(const char *mode, uint32_t *access)
{
	if (!strcmp(mode, "w"))
		*access = PTWATCH_ACCESS_W;
	else if (!strcmp(mode, "rw") || !strcmp(mode, "wr"))
		*access = PTWATCH_ACCESS_RW;
	else if (!strcmp(mode, "x"))
		*access = PTWATCH_ACCESS_X;
	else
		return -1;
	return 0;
}

static bool is_number(const char *text)
{
	return *text && text[strspn(text, "0123456789")] == '\0';
}

/* A misaligned watch would be refused by the debug registers, which compare whole aligned words. */
static int check_alignment(const struct ptw_watch_target *target, const char *text, enum ptw_exit status,
			   struct ptw_error *err)
{
	unsigned int fits = 1;

	if (target->access == PTWATCH_ACCESS_X || target->address % target->len == 0)
		return 0;
	while (fits < 8 && target->address % (fits * 2) == 0)
		fits *= 2;
	return ptw_error_set(err, status,
			     "%s: 0x%llx is not aligned to %u bytes, as a debug register wants it; watch %u byte%s there, or 0x%llx:%u",
			     text, (unsigned long long)target->address, target->len, fits, fits == 1 ? "" : "s",
			     (unsigned long long)(target->address & -(uint64_t)target->len), target->len);
}

static int parse_address(const char *text, struct ptw_watch_target *target, struct ptw_error *err)
{
	char *end;

	target->is_address = true;
	errno = 0;
	target->address = strtoull(target->place, &end, 16);
	if (errno || *end || end == target->place + 2)
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is not a 64-bit address; " FORM, text,
				     target->place);
	if (target->address < KERNEL_HALF)
		return ptw_error_set(err, PTW_EXIT_USAGE,
				     "%s: 0x%llx is not a kernel address (those begin with 0xff); take one from /proc/kallsyms",
				     text, (unsigned long long)target->address);
	return check_alignment(target, text, PTW_EXIT_USAGE, err);
}

int ptw_watch_target_parse(const char *text, struct ptw_watch_target *target, struct ptw_error *err)
{
	char copy[sizeof(target->place) + 32];
	char *mode, *len;

	memset(target, 0, sizeof(*target));
	if (strlen(text) >= sizeof(copy))
		return ptw_error_set(err, PTW_EXIT_USAGE, "the target is too long; " FORM);
	strcpy(copy, text);
	/* From the right, because a place may hold a colon of its own: module:sym:8:w. */
	mode = strrchr(copy, ':');
	if (!mode || mode == copy)
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: no LEN and MODE; " FORM, text);
	*mode++ = '\0';
	if (parse_mode(mode, &target->access)) {
		if (!strcmp(mode, "r"))
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s: the hardware has no read-only watch; use rw, for reads and writes", text);
		if (is_number(mode))
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: no MODE; did you mean %s:w?", text, text);
		return ptw_error_set(err, PTW_EXIT_USAGE,
				     "%s: '%s' is not a MODE; it is w (write), rw (read or write) or x (execute)", text, mode);
	}
	len = strrchr(copy, ':');
	if (len && (is_number(len + 1) || target->access != PTWATCH_ACCESS_X)) {
		*len++ = '\0';
		if (!is_number(len))
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is not a LEN; it is 1, 2, 4 or 8", text, len);
		if (strcmp(len, "1") && strcmp(len, "2") && strcmp(len, "4") && strcmp(len, "8"))
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s: a debug register watches 1, 2, 4 or 8 bytes, not %s; give several targets", text, len);
		target->len = len[0] - '0';
		if (target->access == PTWATCH_ACCESS_X && target->len != 8)
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s: an execute watch has no length; write %s:x", text, copy);
	} else if (target->access != PTWATCH_ACCESS_X) {
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: no LEN; did you mean %s:8:%s?", text, copy, mode);
	}
	if (target->access == PTWATCH_ACCESS_X)
		target->len = 8;
	if (!copy[0] || strlen(copy) >= sizeof(target->place))
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: no SYMBOL; " FORM, text);
	strcpy(target->place, copy);
	if (target->place[0] == '0' && (target->place[1] | 0x20) == 'x')
		return parse_address(text, target, err);
	if (isdigit((unsigned char)target->place[0]))
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: an address begins with 0x", text);
	return 0;
}

int ptw_watch_target_resolve(struct ptw_watch_target *target, const struct ptw_symbols *symbols,
			     struct ptw_error *err)
{
	const struct ptw_symbol *symbol = NULL;

	if (target->is_address) {
		if (symbols)
			symbol = ptw_symbols_at(symbols, target->address);
		/*
		 * The nearest symbol below says nothing about an address far from it, such as one of the
		 * heap.
		 */
		if (symbol && target->address - symbol->addr >= (symbol->size ? symbol->size : 4096))
			symbol = NULL;
	} else if (ptw_symbols_resolve(symbols, target->place, &target->address, &symbol, err)) {
		return -1;
	}
	if (symbol && target->address < KERNEL_HALF)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s: 0x%llx is not a kernel address: a per-CPU variable's symbol is an offset; give the address of one CPU's copy as 0xADDR",
				     target->place, (unsigned long long)target->address);
	if (symbol)
		snprintf(target->label, sizeof(target->label), "%.100s+0x%llx", symbol->name,
			 (unsigned long long)(target->address - symbol->addr));
	if (target->access == PTWATCH_ACCESS_X && symbol && !strchr("tTwWiIuU", symbol->type))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s is data, nothing executes it; watch writes with %s:8:w", target->place, target->place);
	return check_alignment(target, target->place, PTW_EXIT_FAILED, err);
}
