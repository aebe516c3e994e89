// SPDX-License-Identifier: BSD-2-Clause
#include "control/watch_target.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/near.h"
#include "common/number.h"
#include "control/machine.h"
#include "control/process.h"

/* With 5-level paging the kernel's half begins here; with 4 levels higher, which the kernel checks itself. */
#define KERNEL_HALF 0xff00000000000000ULL
/* Likewise the end of a process's half. */
#define USER_END (1ULL << 56)

#define FORM "the form is SYMBOL[+OFFSET]:LEN:MODE, e.g. jiffies_64:8:w"
#define LENGTHS "debug registers watch 1, 2, 4 or 8 bytes"

/* ---- reading ---- */

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

static bool begins_with_0x(const char *text)
{
	return text[0] == '0' && (text[1] | 0x20) == 'x';
}

/* Whether one watch can have it. */
static bool is_length(uint64_t len)
{
	return len == 1 || len == 2 || len == 4 || (len && len % 8 == 0 && len <= PTW_WATCH_MAX_LEN);
}

static uint32_t alignment_of(uint32_t len)
{
	return len < 8 ? len : 8;
}

/* A misaligned watch would be refused by the debug registers, which compare whole aligned words. */
static int check_alignment(const struct ptw_watch_target *target, enum ptw_exit status, struct ptw_error *err)
{
	uint32_t alignment = alignment_of(target->len);
	unsigned int fits = 1;

	if (target->access == PTWATCH_ACCESS_X || !target->len || target->address % alignment == 0)
		return 0;
	while (fits < 8 && target->address % (fits * 2) == 0)
		fits *= 2;
	return ptw_error_set(err, status,
			     "%s: 0x%llx is not aligned to %u bytes, as a debug register wants it; watch %u byte%s there, or 0x%llx:%u",
			     target->text, (unsigned long long)target->address, alignment, fits, fits == 1 ? "" : "s",
			     (unsigned long long)(target->address & -(uint64_t)alignment), target->len);
}

static int parse_address(struct ptw_watch_target *target, struct ptw_error *err)
{
	char *end;

	errno = 0;
	target->address = strtoull(target->place, &end, 16);
	if (errno || *end || end == target->place + 2)
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is not a 64-bit address; " FORM, target->text,
				     target->place);
	if (target->address >= KERNEL_HALF) {
		if (target->pid)
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: 0x%llx is the kernel's, not one of process %d", target->text,
					     (unsigned long long)target->address, target->pid);
		target->kind = PTW_PLACE_ADDRESS;
	} else if (target->address < USER_END) {
		target->kind = PTW_PLACE_USER_ADDRESS;
	} else {
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: 0x%llx is neither a kernel address (those begin with 0xff) nor a process's",
				     target->text, (unsigned long long)target->address);
	}
	return check_alignment(target, PTW_EXIT_USAGE, err);
}

/* Cut "@PID" or "@0xADDR" off @place. */
static int parse_owner(struct ptw_watch_target *target, char *place, struct ptw_error *err)
{
	char *at = strrchr(place, '@'), *end;
	uint64_t number;

	if (!at)
		return 0;
	*at++ = '\0';
	if (begins_with_0x(at)) {
		errno = 0;
		target->owner = strtoull(at, &end, 16);
		if (errno || *end || target->owner < KERNEL_HALF)
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is not a kernel address (those begin with 0xff)",
					     target->text, at);
		return 0;
	}
	if (ptw_parse_uint(at, 1, INT_MAX, &number))
		return ptw_error_set(err, PTW_EXIT_USAGE,
				     "%s: '%s' is neither the number of a process nor an address; write TYPE.FIELD@PID, TYPE.FIELD@0xADDR or BINARY!SYMBOL@PID",
				     target->text, at);
	target->pid = (pid_t)number;
	return 0;
}

static int parse_place(struct ptw_watch_target *target, char *place, struct ptw_error *err)
{
	char *bang;

	if (parse_owner(target, place, err))
		return -1;
	bang = strrchr(place, '!');
	if (bang) {
		*bang++ = '\0';
		if (!*place || !*bang || target->owner || strlen(place) >= sizeof(target->binary))
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: a place in a process is BINARY!SYMBOL[+OFFSET][@PID]",
					     target->text);
		strcpy(target->binary, place);
		target->kind = PTW_PLACE_USER_SYMBOL;
		place = bang;
	} else if (begins_with_0x(place)) {
		if (target->owner)
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: an address belongs to a process, as 0xADDR@PID", target->text);
	} else if (target->pid || target->owner) {
		if (!strchr(place, '.'))
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s: what belongs to a process or an address is a field or user code; write TYPE.FIELD@PID, TYPE.FIELD@0xADDR or BINARY!SYMBOL@PID",
					     target->text);
		target->kind = PTW_PLACE_FIELD;
	}
	if (!*place || strlen(place) >= sizeof(target->place))
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: no SYMBOL; " FORM, target->text);
	strcpy(target->place, place);
	if (begins_with_0x(place) && !bang)
		return parse_address(target, err);
	if (isdigit((unsigned char)*place))
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: an address begins with 0x", target->text);
	return 0;
}

static int parse_length(struct ptw_watch_target *target, const char *len, struct ptw_error *err)
{
	uint64_t number;

	if (!is_number(len))
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is not a LEN; it is 1, 2, 4, 8, 16, 24 or 32", target->text,
				     len);
	if (ptw_parse_uint(len, 1, UINT32_MAX, &number) || !is_length(number)) {
		if (!ptw_parse_uint(len, PTW_WATCH_MAX_LEN + 1, UINT32_MAX, &number))
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s: %s bytes need %llu debug registers, and a CPU has 4; watch at most %d bytes",
					     target->text, len, (unsigned long long)(number + 7) / 8, PTW_WATCH_MAX_LEN);
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: " LENGTHS ", not %s; several together 16, 24 or 32", target->text,
				     len);
	}
	target->len = number;
	return 0;
}

/* Whether a size comes with the place, so that LEN and MODE may be left out. */
static bool has_size(const char *text)
{
	return strchr(text, '!') || (strchr(text, '@') && !begins_with_0x(text));
}

int ptw_watch_target_parse(const char *text, struct ptw_watch_target *target, struct ptw_error *err)
{
	char copy[sizeof(target->text)];
	char *mode, *len;

	memset(target, 0, sizeof(*target));
	if (strlen(text) >= sizeof(copy))
		return ptw_error_set(err, PTW_EXIT_USAGE, "the target is too long; " FORM);
	strcpy(copy, text);
	strcpy(target->text, text);
	/* From the right, because a place may hold a colon of its own: module:sym:8:w. */
	mode = strrchr(copy, ':');
	if (has_size(text)) {
		if (mode && !parse_mode(mode + 1, &target->access)) {
			*mode = '\0';
			mode = strrchr(copy, ':');
		}
		if (mode && is_number(mode + 1)) {
			*mode = '\0';
			if (parse_length(target, mode + 1, err))
				return -1;
		} else if (mode && !target->access) {
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s: '%s' is neither LEN nor MODE; the form is PLACE[:LEN][:MODE], MODE is w, rw or x", text,
					     mode + 1);
		}
	} else {
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
			if (parse_length(target, len, err))
				return -1;
		} else if (target->access != PTWATCH_ACCESS_X) {
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: no LEN; did you mean %s:8:%s?", text, copy, mode);
		}
	}
	if (target->access == PTWATCH_ACCESS_X) {
		if (target->len)
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: an execute watch has no length; write %s:x", text, copy);
		target->len = 8;
	}
	return parse_place(target, copy, err);
}

/* ---- resolving ---- */

/* The module takes printable ASCII only; files may be called anything. */
static void __attribute__((format(printf, 2, 3))) set_label(struct ptw_watch_target *target, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(target->label, sizeof(target->label), format, args);
	va_end(args);
	for (char *c = target->label; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}

static struct ptw_types *types_of(struct ptw_target_context *context, struct ptw_error *err)
{
	if (!context->types)
		context->types = ptw_types_load(NULL, err);
	return context->types;
}

/* The size the place has itself, where it was not said how much of it. */
static int take_size(struct ptw_watch_target *target, uint64_t size, struct ptw_error *err)
{
	if (!target->access)
		target->access = PTWATCH_ACCESS_W;
	if (target->len && target->access != PTWATCH_ACCESS_X && size && target->len > size)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s has %llu byte%s, not %u", target->text, (unsigned long long)size,
				     size == 1 ? "" : "s", target->len);
	if (target->len)
		return 0;
	if (!size)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: its size is not known; say it: %s:8:w", target->text,
				     target->text);
	if (size > PTW_WATCH_MAX_LEN)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s has %llu bytes, which need %llu debug registers, and a CPU has 4; say which of them: a field, or %s:8:w for the first",
				     target->text, (unsigned long long)size, (unsigned long long)(size + 7) / 8, target->text);
	if (!is_length(size))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s has %llu bytes, and " LENGTHS "; say how many of them: %s:%u:w", target->text,
				     (unsigned long long)size, target->text, size < 4 ? 2 : size < 8 ? 4 : 8);
	target->len = size;
	return 0;
}

/* Numbers in /proc are those of its pid namespace, numbers in the kernel's structs those of the first one. */
static bool in_first_pid_namespace(void)
{
	char name[64];
	ssize_t length = readlink("/proc/self/ns/pid", name, sizeof(name) - 1);

	if (length < 0)
		return true;
	name[length] = '\0';
	return !strcmp(name, "pid:[4026531836]");	/* PROC_PID_INIT_INO */
}

static int find_task(struct ptw_watch_target *target, struct ptw_target_context *context, struct ptw_error *err)
{
	pid_t tgid = ptw_thread_tgid(target->pid);

	if (tgid < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: there is no process %d", target->text, target->pid);
	if (!in_first_pid_namespace())
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s: numbers of processes are others inside this container; watch from outside, or give the address: TYPE.FIELD@0xADDR",
				     target->text);
	if (!context->memory)
		context->memory = ptw_kernel_memory_open(NULL, err);
	if (!context->memory)
		return -1;
	return ptw_kernel_task(context->memory, context->symbols, context->types, target->pid, tgid, &target->owner, err);
}

static int resolve_field(struct ptw_watch_target *target, struct ptw_target_context *context, struct ptw_error *err)
{
	const char *path = target->place, *colon = strchr(path, ':'), *dot;
	struct ptw_types *types = types_of(context, err);
	char module[PTWATCH_MODULE_SIZE];
	struct ptw_field field;

	if (!types)
		return -1;
	if (colon) {
		snprintf(module, sizeof(module), "%.*s", (int)(colon - path), path);
		ptw_types_add_module(types, module);
		path = colon + 1;
	}
	if (ptw_types_field(types, path, &field, err))
		return -1;
	if (target->pid) {
		dot = strchr(path, '.');
		if (strncmp(path, "task_struct.", dot + 1 - path))
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "%s: a process has a task_struct; where a %.*s is only its address tells: %.*s.%s@0xADDR", target->text,
					     (int)(dot - path), path, (int)(dot - path), path, dot + 1);
		if (find_task(target, context, err))
			return -1;
	}
	if (target->access == PTWATCH_ACCESS_X)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s is data, nothing executes it; watch writes with %s@…:w", target->text,
				     target->place);
	target->address = target->owner + field.offset;
	target->is_signed = field.is_signed && (!target->len || target->len == field.size);
	if (target->pid)
		set_label(target, "%.90s@%d", path, target->pid);
	else
		set_label(target, "%.90s@0x%llx", path, (unsigned long long)target->owner);
	return take_size(target, field.size, err);
}

static int resolve_user(struct ptw_watch_target *target, struct ptw_target_context *context, struct ptw_error *err)
{
	pid_t pid = target->pid ? target->pid : context->pid;
	struct ptw_user_symbol symbol = { 0 };
	char name[sizeof(target->place)], *plus;
	struct ptw_process *process;
	uint64_t offset = 0;
	const char *file;
	int ret = -1;

	process = ptw_process_open(pid, err);
	if (!process)
		return -1;
	target->flags |= PTWATCH_WATCH_USER;
	target->tgid = ptw_process_tgid(process);
	if (target->kind == PTW_PLACE_USER_SYMBOL) {
		strcpy(name, target->place);
		plus = strrchr(name, '+');
		if (plus) {
			char *end;

			*plus++ = '\0';
			errno = 0;
			offset = strtoull(plus, &end, 0);
			if (!isdigit((unsigned char)*plus) || errno || *end) {
				ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is not an offset", target->text, plus);
				goto out;
			}
		}
		if (ptw_process_symbol(process, target->binary, name, &symbol, err))
			goto out;
		target->address = symbol.address + offset;
		if (!target->access && symbol.is_function) {
			target->access = PTWATCH_ACCESS_X;
			target->len = 8;
		}
		if (target->access == PTWATCH_ACCESS_X && !symbol.is_function && symbol.size) {
			ptw_error_set(err, PTW_EXIT_FAILED, "%s is data, nothing executes it; watch writes with %s!%s:w", target->text,
				      target->binary, target->place);
			goto out;
		}
		target->is_code = symbol.is_function && target->access != PTWATCH_ACCESS_X;
		target->inside_code = target->access == PTWATCH_ACCESS_X && offset;
		file = strrchr(target->binary, '/') ? strrchr(target->binary, '/') + 1 : target->binary;
		set_label(target, "%.40s!%.60s+0x%llx", file, name, (unsigned long long)offset);
	}
	if (take_size(target, symbol.size > offset && !offset ? symbol.size : 0, err))
		goto out;
	if (!ptw_process_maps(process, target->address, target->access == PTWATCH_ACCESS_X ? 1 : target->len)) {
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: 0x%llx is not mapped in process %d; /proc/%d/maps tells what is",
			      target->text, (unsigned long long)target->address, target->tgid, target->tgid);
		goto out;
	}
	ret = check_alignment(target, PTW_EXIT_FAILED, err);
out:
	ptw_process_close(process);
	return ret;
}

/* Modules of this kernel that may be loaded one day: "kernel/net/ipv4/tcp_diag.ko.xz: …" */
static bool is_known_module(const char *module, char *near, size_t size)
{
	struct ptw_near words = { .wanted = module };
	char path[320], release[128], *line = NULL, **names = NULL;
	size_t room = 0, count = 0;
	bool known = false;
	FILE *file;

	near[0] = '\0';
	if (ptw_read_line("/proc/sys/kernel/osrelease", release, sizeof(release)))
		return true;
	snprintf(path, sizeof(path), "/lib/modules/%s/modules.dep", release);
	file = fopen(path, "re");
	if (!file)
		return true;
	while (!known && getline(&line, &room, file) > 0) {
		char *name, **grown;

		line[strcspn(line, ":")] = '\0';
		name = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
		name[strcspn(name, ".")] = '\0';
		for (char *c = name; *c; c++)
			*c = *c == '-' ? '_' : *c;
		known = !strcmp(name, module);
		grown = reallocarray(names, count + 1, sizeof(*grown));
		if (!grown)
			break;
		names = grown;
		names[count] = strdup(name);
		if (!names[count])
			break;
		ptw_near_consider(&words, names[count++]);
	}
	if (!known)
		ptw_near_text(&words, near, size);
	while (count)
		free(names[--count]);
	free(names);
	free(line);
	fclose(file);
	return known;
}

/* "module:sym+0x10", whether or not it is loaded now. */
static int resolve_module(struct ptw_watch_target *target, const struct ptw_target_context *context,
			  struct ptw_error *err)
{
	char copy[sizeof(target->place)], near[256], *symbol, *plus, *end;
	const struct ptw_symbol *found = NULL;
	uint64_t address;

	strcpy(copy, target->place);
	symbol = strchr(copy, ':');
	*symbol++ = '\0';
	for (char *c = copy; *c; c++)
		*c = *c == '-' ? '_' : *c;
	plus = strrchr(symbol, '+');
	if (plus) {
		*plus++ = '\0';
		errno = 0;
		target->address = strtoull(plus, &end, 0);
		if (!isdigit((unsigned char)*plus) || errno || *end)
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is not an offset", target->text, plus);
	}
	if (!*copy || !*symbol || strlen(copy) >= sizeof(target->module) || strlen(symbol) >= sizeof(target->symbol))
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: a symbol of a module is MODULE:SYMBOL[+OFFSET]", target->text);
	if (ptw_symbols_has_module(context->symbols, copy)) {
		if (ptw_symbols_resolve_percpu(context->symbols, target->place, &address, &found, err))
			return -1;
		if (found && found->percpu)
			target->flags |= PTWATCH_WATCH_PERCPU;
	} else if (!is_known_module(copy, near, sizeof(near))) {
		snprintf(target->note, sizeof(target->note), "/lib/modules has no module '%s'%s; waiting for it all the same", copy,
			 near);
	}
	target->flags |= PTWATCH_WATCH_WAIT_MODULE;
	strcpy(target->module, copy);
	strcpy(target->symbol, symbol);
	set_label(target, "%.100s+0x%llx", symbol, (unsigned long long)target->address);
	/* Symbols of a module begin aligned if their type is; the offset is the rest. */
	return check_alignment(target, PTW_EXIT_FAILED, err);
}

static int resolve_kernel(struct ptw_watch_target *target, struct ptw_target_context *context, struct ptw_error *err)
{
	const char *colon = strchr(target->place, ':');
	const struct ptw_symbol *symbol = NULL;
	uint64_t etext = UINT64_MAX;

	if (target->kind == PTW_PLACE_ADDRESS) {
		if (context->symbols)
			symbol = ptw_symbols_at(context->symbols, target->address);
		/*
		 * The nearest symbol below says nothing about an address far from it, such as one of the
		 * heap.
		 */
		if (symbol && target->address - symbol->addr >= (symbol->size ? symbol->size : 4096))
			symbol = NULL;
	} else if (context->wait_module && colon && strncmp(target->place, "vmlinux:", 8)) {
		return resolve_module(target, context, err);
	} else if (ptw_symbols_resolve_percpu(context->symbols, target->place, &target->address, &symbol, err)) {
		size_t used = strlen(err->text);

		if (colon && err->status == PTW_EXIT_FAILED && strstr(err->text, "is it loaded?"))
			snprintf(err->text + used, sizeof(err->text) - used, "; --wait-module waits for it");
		else if (strchr(target->place, '.') && err->status == PTW_EXIT_FAILED)
			snprintf(err->text + used, sizeof(err->text) - used, "; a field is somebody's: %s@PID or @0xADDR",
				 target->place);
		return -1;
	}
	if (symbol)
		set_label(target, "%.100s+0x%llx", symbol->name, (unsigned long long)(target->address - symbol->addr));
	if (symbol && symbol->percpu) {
		struct ptw_field field;
		struct ptw_types *types = types_of(context, NULL);

		target->flags |= PTWATCH_WATCH_PERCPU;
		if (types && !ptw_types_percpu(types, symbol->name, &field) && field.size == target->len)
			target->is_signed = field.is_signed;
	}
	if (target->access == PTWATCH_ACCESS_X && symbol && !strchr("tTwWiIuU", symbol->type))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s is data, nothing executes it; watch writes with %s:8:w", target->place, target->place);
	if (symbol && !symbol->module)
		ptw_symbols_resolve(context->symbols, "vmlinux:_etext", &etext, NULL, NULL);
	target->is_code = target->access != PTWATCH_ACCESS_X && symbol && strchr("tTwW", symbol->type) &&
			  target->address < etext;
	target->inside_code = target->access == PTWATCH_ACCESS_X && symbol && target->address != symbol->addr;
	return check_alignment(target, PTW_EXIT_FAILED, err);
}

int ptw_watch_target_resolve(struct ptw_watch_target *target, struct ptw_target_context *context,
			     struct ptw_error *err)
{
	switch (target->kind) {
	case PTW_PLACE_FIELD:
		if (resolve_field(target, context, err))
			return -1;
		return check_alignment(target, PTW_EXIT_FAILED, err);
	case PTW_PLACE_USER_SYMBOL:
	case PTW_PLACE_USER_ADDRESS:
		return resolve_user(target, context, err);
	default:
		return resolve_kernel(target, context, err);
	}
}

void ptw_target_context_release(struct ptw_target_context *context)
{
	ptw_types_free(context->types);
	ptw_kernel_memory_close(context->memory);
	context->types = NULL;
	context->memory = NULL;
}

unsigned int ptw_watch_target_slots(const struct ptw_watch_target *target)
{
	return target->access == PTWATCH_ACCESS_X || target->len <= 8 ? 1 : target->len / 8;
}
