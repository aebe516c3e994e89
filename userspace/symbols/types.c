// SPDX-License-Identifier: BSD-2-Clause
#include "symbols/types.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "common/near.h"

#define PATH_LIMIT	256
#define NESTING		16	/* anonymous members inside each other; C code has two or three */

struct ptw_types {
	struct btf *kernel;
	struct btf *module;	/* on top of @kernel; NULL: none */
};

/* libbpf would tell on stderr what we tell in one line. */
static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

struct ptw_types *ptw_types_load(const char *path, struct ptw_error *err)
{
	struct ptw_types *types = calloc(1, sizeof(*types));
	libbpf_print_fn_t old;

	if (!types) {
		ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
		return NULL;
	}
	old = libbpf_set_print(silent);
	types->kernel = path ? btf__parse(path, NULL) : btf__load_vmlinux_btf();
	libbpf_set_print(old);
	if (types->kernel)
		return types;
	if (path)
		ptw_error_set(err, PTW_EXIT_FAILED, "%s: no type information (BTF): %s", path, strerror(errno));
	else
		ptw_error_set(err, PTW_EXIT_UNSUPPORTED,
			      "this kernel's type information (/sys/kernel/btf/vmlinux) can't be read: %s; fields need CONFIG_DEBUG_INFO_BTF, addresses (0x…) don't",
			      strerror(errno));
	free(types);
	return NULL;
}

void ptw_types_add_module(struct ptw_types *types, const char *module)
{
	libbpf_print_fn_t old;

	if (types->module)
		btf__free(types->module);
	old = libbpf_set_print(silent);
	types->module = btf__load_module_btf(module, types->kernel);
	libbpf_set_print(old);
}

void ptw_types_free(struct ptw_types *types)
{
	if (!types)
		return;
	btf__free(types->module);
	btf__free(types->kernel);
	free(types);
}

/* The table that is asked: a module's includes the kernel's. */
static const struct btf *table(const struct ptw_types *types)
{
	return types->module ? types->module : types->kernel;
}

/* Without names of no consequence: typedef, const, volatile, restrict, tags. */
static const struct btf_type *strip(const struct btf *btf, uint32_t id)
{
	const struct btf_type *type = btf__type_by_id(btf, id);

	for (int i = 0; type && i < 64; i++) {
		if (!btf_is_mod(type) && !btf_is_typedef(type) && !btf_is_type_tag(type))
			return type;
		type = btf__type_by_id(btf, type->type);
	}
	return NULL;
}

static bool is_signed(const struct btf_type *type)
{
	if (btf_is_int(type))
		return btf_int_encoding(type) & BTF_INT_SIGNED;
	/* The flag of an enum is its sign. */
	return btf_is_any_enum(type) && btf_kflag(type);
}

/* A struct or union that people call @name; 0: none. */
static uint32_t find_composite(const struct btf *btf, const char *name)
{
	static const int kinds[] = { BTF_KIND_STRUCT, BTF_KIND_UNION, BTF_KIND_TYPEDEF };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		int id = btf__find_by_name_kind(btf, name, kinds[i]);
		const struct btf_type *type = id > 0 ? strip(btf, id) : NULL;

		if (type && btf_is_composite(type))
			return id;
	}
	return 0;
}

static int no_type(const struct btf *btf, const char *name, const char *path, struct ptw_error *err)
{
	struct ptw_near near = { .wanted = name };
	char text[512];

	for (uint32_t id = 1; id < btf__type_cnt(btf); id++) {
		const struct btf_type *type = btf__type_by_id(btf, id);

		if (btf_is_composite(type))
			ptw_near_consider(&near, btf__name_by_offset(btf, type->name_off));
	}
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s: the kernel has no struct or union '%s'%s", path, name,
			     ptw_near_text(&near, text, sizeof(text)));
}

struct place {
	const struct btf_type *type;	/* stripped */
	uint64_t bits;			/* from the beginning */
	uint32_t bitfield;		/* bits of a bitfield; 0: it is none */
};

/* @name among the members of @type and of its anonymous members. */
static bool find_member(const struct btf *btf, const struct btf_type *type, const char *name, int depth,
			struct place *place)
{
	const struct btf_member *member = btf_members(type);

	for (uint32_t i = 0; i < btf_vlen(type); i++, member++) {
		const char *known = btf__name_by_offset(btf, member->name_off);
		const struct btf_type *inner = strip(btf, member->type);
		struct place at = *place;

		if (!inner)
			continue;
		at.bits += btf_member_bit_offset(type, i);
		at.type = inner;
		at.bitfield = btf_member_bitfield_size(type, i);
		if (known && *known) {
			if (strcmp(known, name))
				continue;
			*place = at;
			return true;
		}
		if (btf_is_composite(inner) && depth < NESTING && find_member(btf, inner, name, depth + 1, &at)) {
			*place = at;
			return true;
		}
	}
	return false;
}

static void consider_members(const struct btf *btf, const struct btf_type *type, int depth, struct ptw_near *near)
{
	const struct btf_member *member = btf_members(type);

	for (uint32_t i = 0; i < btf_vlen(type); i++, member++) {
		const char *known = btf__name_by_offset(btf, member->name_off);
		const struct btf_type *inner = strip(btf, member->type);

		if (known && *known)
			ptw_near_consider(near, known);
		else if (inner && btf_is_composite(inner) && depth < NESTING)
			consider_members(btf, inner, depth + 1, near);
	}
}

static int64_t size_of(const struct btf *btf, const struct btf_type *type)
{
	const struct btf_array *array;
	const struct btf_type *element;
	int64_t size;

	if (btf_is_ptr(type))
		return 8;
	if (!btf_is_array(type))
		return btf_is_composite(type) || btf_is_int(type) || btf_is_any_enum(type) || btf_is_float(type) ?
			       (int64_t)type->size : -1;
	array = btf_array(type);
	element = strip(btf, array->type);
	size = element ? size_of(btf, element) : -1;
	return size < 0 ? -1 : size * (int64_t)array->nelems;
}

/* "[8]" behind a name. */
static int index_into(const struct btf *btf, const char *path, const char *name, const char *text,
		      struct place *place, struct ptw_error *err)
{
	const struct btf_array *array;
	unsigned long index;
	int64_t size;
	char *end;

	while (*text) {
		if (*text != '[' || !isdigit((unsigned char)text[1]))
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is no index; write name[8]", path, text);
		errno = 0;
		index = strtoul(text + 1, &end, 0);
		if (errno || *end != ']')
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: '%s' is no index; write name[8]", path, text);
		if (!btf_is_array(place->type))
			return ptw_error_set(err, PTW_EXIT_FAILED, "%s: '%s' is no array", path, name);
		array = btf_array(place->type);
		if (index >= array->nelems)
			return ptw_error_set(err, PTW_EXIT_FAILED, "%s: '%s' has %u elements, so the last is [%d]", path, name,
					     array->nelems, (int)array->nelems - 1);
		place->type = strip(btf, array->type);
		size = place->type ? size_of(btf, place->type) : -1;
		if (size < 0)
			return ptw_error_set(err, PTW_EXIT_FAILED, "%s: the elements of '%s' have no size", path, name);
		place->bits += index * size * 8;
		text = end + 1;
	}
	return 0;
}

static int step(const struct btf *btf, const char *path, const char *owner, char *name, struct place *place,
		struct ptw_error *err)
{
	struct ptw_near near = { .wanted = name };
	char text[512], index[PATH_LIMIT] = "";
	size_t length = strcspn(name, "[");

	strcpy(index, name + length);
	name[length] = '\0';
	if (!name[0])
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: a field has no name; write TYPE.FIELD, as task_struct.cred", path);
	if (btf_is_ptr(place->type))
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "%s: '%s' is a pointer, and what it points to is elsewhere; watch the pointer, or say TYPE.%s@0xADDR with the type and address it points to",
				     path, owner, name);
	if (btf_is_array(place->type))
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: '%s' is an array; say which element: %s[0].%s", path, owner, owner,
				     name);
	if (!btf_is_composite(place->type))
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: '%s' has no fields", path, owner);
	if (find_member(btf, place->type, name, 0, place))
		return index_into(btf, path, name, index, place, err);
	consider_members(btf, place->type, 0, &near);
	return ptw_error_set(err, PTW_EXIT_FAILED, "%s: '%s' has no field '%s'%s", path, owner, name,
			     ptw_near_text(&near, text, sizeof(text)));
}

int ptw_types_field(const struct ptw_types *types, const char *path, struct ptw_field *field,
		    struct ptw_error *err)
{
	const struct btf *btf = table(types);
	char copy[PATH_LIMIT], *save, *owner, *name;
	struct place place = { 0 };
	uint64_t first, last;
	uint32_t id;
	int64_t size;

	if (strlen(path) >= sizeof(copy))
		return ptw_error_set(err, PTW_EXIT_USAGE, "the path of a field is too long: %.40s…", path);
	strcpy(copy, path);
	save = strchr(copy, '.');
	if (!save || save == copy || !save[1] || save[strlen(save) - 1] == '.' || strstr(copy, ".."))
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: not a field; write TYPE.FIELD, as task_struct.cred", path);
	*save++ = '\0';
	owner = copy;
	id = find_composite(btf, owner);
	if (!id)
		return no_type(btf, owner, path, err);
	place.type = strip(btf, id);
	while ((name = strsep(&save, "."))) {
		if (step(btf, path, owner, name, &place, err))
			return -1;
		owner = name;
	}
	if (place.bitfield) {
		/* A debug register watches bytes: those that the bits lie in. */
		first = place.bits / 8;
		last = (place.bits + place.bitfield - 1) / 8;
		*field = (struct ptw_field){ .offset = first, .size = last - first + 1, .is_bitfield = true };
		return 0;
	}
	size = size_of(btf, place.type);
	if (size <= 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s: '%s' has no size", path, owner);
	*field = (struct ptw_field){ .offset = place.bits / 8, .size = size, .is_signed = is_signed(place.type) };
	return 0;
}

int ptw_types_percpu(const struct ptw_types *types, const char *name, struct ptw_field *field)
{
	const struct btf *btf = table(types);
	const struct btf_type *type;
	int64_t size;
	int id;

	/* Of the kernel's variables BTF holds those in the section .data..percpu only. */
	id = btf__find_by_name_kind(btf, name, BTF_KIND_VAR);
	if (id <= 0)
		return -1;
	type = strip(btf, btf__type_by_id(btf, id)->type);
	size = type ? size_of(btf, type) : -1;
	if (size <= 0)
		return -1;
	*field = (struct ptw_field){ .size = size, .is_signed = is_signed(type) };
	return 0;
}
