// SPDX-License-Identifier: BSD-2-Clause
#include "report/function.h"

#include <stdio.h>
#include <string.h>

/* Does the program at @path have a function of that name? */
static bool has(const char *path, const char *name)
{
	struct ptw_symbols *symbols = ptw_symbols_new();
	const struct ptw_symbol *symbol;
	uint64_t address;
	bool found;

	found = symbols && !ptw_symbols_load_elf(symbols, path, 0, NULL, NULL) &&
		!ptw_symbols_resolve(symbols, name, &address, &symbol, NULL);
	ptw_symbols_free(symbols);
	return found;
}

static int find_in_programs(const struct ptw_function *function, const char *spelling, const struct ptw_image *image,
			    struct ptw_error *err)
{
	bool any = false;

	for (size_t i = 0; i < image->count; i++) {
		const char *path = image->section[i].path, *name = image->section[i].name;
		size_t before = 0;

		if (function->object[0] && strcmp(name, function->object))
			continue;
		/* A file has several sections; each is looked at once. */
		while (before < i && (strcmp(image->section[before].path, path) || strcmp(image->section[before].name, name)))
			before++;
		if (before < i)
			continue;
		any = true;
		if (has(path, function->name))
			return 0;
	}
	if (function->object[0] && !any)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: no file %s was mapped in the trace, or it is not here any more", spelling,
				     function->object);
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s: %s has no such function", spelling,
			     function->object[0] ? function->object : "no program in the trace");
}

/* "kvdemo!kv_note": a module of the kernel, or what was given as an image of raw bytes */
static bool find_in_module(struct ptw_function *function, const struct ptw_symbols *symbols, const char *name)
{
	char text[sizeof(function->object) + sizeof(function->name)];

	if (!symbols || !function->object[0] || !ptw_symbols_has_module(symbols, function->object))
		return false;
	snprintf(text, sizeof(text), "%s:%s", function->object, name);
	return !ptw_symbols_resolve(symbols, text, &function->address, NULL, NULL);
}

/* Generated code has names only as long as it is there. */
static bool is_generated(const char *object)
{
	size_t length = strlen(object);

	return !strcmp(object, "JIT") || (!strncmp(object, "jit-", 4) && length > 5 && !strcmp(object + length - 5, ".dump"));
}

int ptw_function_find(struct ptw_function *function, const char *spelling, const struct ptw_symbols *symbols,
		      const struct ptw_image *image, struct ptw_error *err)
{
	const char *mark = strchr(spelling, '!'), *name = mark ? mark + 1 : spelling;
	struct ptw_error ours;

	*function = (struct ptw_function){ 0 };
	if (!mark && symbols && !ptw_symbols_resolve(symbols, spelling, &function->address, NULL, err))
		return 0;
	/* What the kernel does not know may be a program's, if it is a name at all. */
	if (!mark && (!image->count || spelling[strcspn(spelling, "+:")] || !strncmp(spelling, "0x", 2))) {
		if (!symbols)
			ptw_error_set(err, PTW_EXIT_FAILED, "%s: the trace comes without symbols", spelling);
		return -1;
	}
	if (mark) {
		const char *file = mark;

		while (file > spelling && file[-1] != '/')
			file--;
		snprintf(function->object, sizeof(function->object), "%.*s", (int)(mark - file), file);
		if (find_in_module(function, symbols, name))
			return 0;
	}
	if (!*name || name[strcspn(name, "+")])
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: of programs, only whole functions are known: binary!function", spelling);
	snprintf(function->name, sizeof(function->name), "%s", name);
	if (is_generated(function->object))
		return 0;
	if (!find_in_programs(function, spelling, image, mark || !symbols ? err : &ours))
		return 0;
	/* The kernel's answer may name what is spelled nearly so. */
	if (mark || !symbols || !err || strstr(err->text, "did you mean"))
		return -1;
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s: no such symbol, neither in the kernel nor in a program of the trace", spelling);
}

bool ptw_function_is(const struct ptw_function *function, const struct ptw_frame *frame)
{
	const struct ptw_place *place = &frame->place;

	if (function->address)
		return frame->ip == function->address;
	return function->name[0] && place->symbol && frame->ip == place->start && !(frame->ip >> 63) &&
	       !strcmp(place->symbol->name, function->name) &&
	       (!function->object[0] || (place->object && !strcmp(place->object, function->object)));
}

bool ptw_function_equal(const struct ptw_function *a, const struct ptw_function *b)
{
	return a->address == b->address && !strcmp(a->name, b->name) && !strcmp(a->object, b->object);
}
