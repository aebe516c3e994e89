/* SPDX-License-Identifier: BSD-2-Clause */
/* The code a trace ran through: parts of files and where they were mapped. */
#ifndef PTWATCH_DECODE_IMAGE_H
#define PTWATCH_DECODE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/** struct ptw_image_section - @size bytes at @offset of @path, mapped at @vaddr */
struct ptw_image_section {
	char *path;	/* owned */
	char *name;	/* owned: what people call the file, the last part of the path that it was mapped by */
	uint64_t offset;
	uint64_t size;
	uint64_t vaddr;
};

/** struct ptw_image - a list of sections; zero-initialise, then ptw_image_add(), at last ptw_image_free() */
struct ptw_image {
	struct ptw_image_section *section;
	size_t count;
};

/** ptw_image_add() - append a section; @path is copied. Where sections overlap, the later one wins. */
int ptw_image_add(struct ptw_image *image, const char *path, uint64_t offset, uint64_t size, uint64_t vaddr,
		  struct ptw_error *err);

/** ptw_image_add_as() - the same of a file that was mapped as @name, and has another name where it is kept */
int ptw_image_add_as(struct ptw_image *image, const char *path, const char *name, uint64_t offset, uint64_t size, uint64_t vaddr,
		     struct ptw_error *err);

/** ptw_image_parse() - append the section that "FILE,FILEOFF,SIZE,VADDR" names (numbers hex, 0x allowed) */
int ptw_image_parse(struct ptw_image *image, const char *text, struct ptw_error *err);

/** ptw_image_read_table() - append a section for each line of the tab-separated table (same four fields) */
int ptw_image_read_table(struct ptw_image *image, const char *path, struct ptw_error *err);

void ptw_image_free(struct ptw_image *image);

#endif /* PTWATCH_DECODE_IMAGE_H */
