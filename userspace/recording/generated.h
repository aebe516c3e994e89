/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code that came to be during a recording, which no copy of the kernel and no file on disk has: BPF programs, and
 * what processes generate. Private to recording/.
 */
#ifndef PTWATCH_RECORDING_GENERATED_H
#define PTWATCH_RECORDING_GENERATED_H

#include <stddef.h>
#include <stdint.h>

#include "recording/record.h"

/** struct generated - zero-initialise, but for @proc; generated_free() */
struct generated {
	const char *proc;	/* "/proc"; another place in tests */
	char **file;		/* that processes write about what they generate */
	size_t files;
};

/**
 * generated_look() - look at records of the kernel, which may lie in two pieces, for code that came to be
 * @poke: called with a text-poke record for each new BPF program that is still there, without what ends a record
 * @like: the record of the kernel that told of it
 *
 * What can't be read is left out: that code can't be followed then, all else can.
 */
void generated_look(struct generated *generated, const void *first, size_t first_size, const void *second,
		    size_t second_size, void (*poke)(void *arg, struct record *record, const struct record *like),
		    void *arg);

/** generated_pokes() - the text-poke records among records of the kernel, which may lie in two pieces */
void generated_pokes(const void *first, size_t first_size, const void *second, size_t second_size,
		     void (*take)(void *arg, const struct record *record), void *arg);

/** generated_copy() - copy the files of processes that were seen to @dir */
void generated_copy(const struct generated *generated, const char *dir);
/** generated_copy_file() - a regular file, if it is there */
void generated_copy_file(const char *from, const char *to);
void generated_free(struct generated *generated);

#endif /* PTWATCH_RECORDING_GENERATED_H */
