// SPDX-License-Identifier: BSD-2-Clause
#include "decode/image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_FIELDS	4

int ptw_image_add(struct ptw_image *image, const char *path, uint64_t offset, uint64_t size, uint64_t vaddr,
		  struct ptw_error *err)
{
	return ptw_image_add_as(image, path, path, offset, size, vaddr, err);
}

int ptw_image_add_as(struct ptw_image *image, const char *path, const char *name, uint64_t offset, uint64_t size, uint64_t vaddr,
		     struct ptw_error *err)
{
	struct ptw_image_section *grown;
	char *copy, *last;

	if (size == 0)
		return ptw_error_set(err, PTW_EXIT_USAGE, "image %s: size 0: there is no code in it", path);
	if (vaddr + (size - 1) < vaddr)
		return ptw_error_set(err, PTW_EXIT_USAGE,
				     "image %s: size 0x%llx at 0x%llx: beyond the last address", path,
				     (unsigned long long)size, (unsigned long long)vaddr);

	/* Doubling at the powers of two: a recording may bring thousands of sections. */
	if ((image->count & (image->count - 1)) == 0) {
		size_t room = image->count ? 2 * image->count : 1;

		grown = reallocarray(image->section, room, sizeof(*grown));
		if (!grown)
			return ptw_error_set(err, PTW_EXIT_FAILED, "image %s: out of memory", path);
		image->section = grown;
	}
	copy = strdup(path);
	last = strdup(strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
	if (!copy || !last) {
		free(copy);
		free(last);
		return ptw_error_set(err, PTW_EXIT_FAILED, "image %s: out of memory", path);
	}
	image->section[image->count++] = (struct ptw_image_section){
		.path = copy, .name = last, .offset = offset, .size = size, .vaddr = vaddr,
	};
	return 0;
}

static int parse_hex(const char *text, uint64_t *value)
{
	char *end;

	/* strtoull() would take a sign and blanks. */
	if (!strchr("0123456789abcdefABCDEF", *text) || !*text)
		return -1;
	errno = 0;
	*value = strtoull(text, &end, 16);
	return errno || *end ? -1 : 0;
}

/*
 * Splits @line in place at the last three @separator: what is before them is the path, which may hold one
 * itself.
 */
static int add_line(struct ptw_image *image, char *line, char separator, const char *where,
		    struct ptw_error *err)
{
	static const char *const names[IMAGE_FIELDS] = { "file", "file offset", "size", "address" };
	uint64_t number[IMAGE_FIELDS];
	int i;

	for (i = IMAGE_FIELDS - 1; i > 0; i--) {
		char *at = strrchr(line, separator);

		if (!at)
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s: '%s': not FILE, file offset, size and address", where,
					     line);
		if (parse_hex(at + 1, &number[i]))
			return ptw_error_set(err, PTW_EXIT_USAGE, "%s: %s '%s': not a hex number", where,
					     names[i], at + 1);
		*at = '\0';
	}
	if (!*line)
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: no file name", where);
	return ptw_image_add(image, line, number[1], number[2], number[3], err);
}

int ptw_image_parse(struct ptw_image *image, const char *text, struct ptw_error *err)
{
	char *line = strdup(text);
	int ret;

	if (!line)
		return ptw_error_set(err, PTW_EXIT_FAILED, "image %s: out of memory", text);
	ret = add_line(image, line, ',', "image", err);
	free(line);
	return ret;
}

int ptw_image_read_table(struct ptw_image *image, const char *path, struct ptw_error *err)
{
	char *line = NULL, where[512];
	size_t room = 0, number = 0;
	ssize_t length;
	int ret = 0;
	FILE *file;

	file = fopen(path, "re");
	if (!file)
		return ptw_error_set(err, PTW_EXIT_FAILED, "image table %s: %s", path, strerror(errno));

	while (ret == 0 && (length = getline(&line, &room, file)) >= 0) {
		number++;
		line[strcspn(line, "\r\n")] = '\0';
		if (!*line || *line == '#')
			continue;
		snprintf(where, sizeof(where), "image table %s: line %zu", path, number);
		ret = add_line(image, line, '\t', where, err);
	}
	if (ret == 0 && ferror(file))
		ret = ptw_error_set(err, PTW_EXIT_FAILED, "image table %s: %s", path, strerror(errno));
	free(line);
	fclose(file);
	return ret;
}

void ptw_image_free(struct ptw_image *image)
{
	size_t i;

	for (i = 0; i < image->count; i++) {
		free(image->section[i].path);
		free(image->section[i].name);
	}
	free(image->section);
	*image = (struct ptw_image){ 0 };
}
