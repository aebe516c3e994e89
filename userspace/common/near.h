/* SPDX-License-Identifier: BSD-2-Clause */
/* "did you mean …?": the words nearest to one that was mistyped. */
#ifndef PTWATCH_COMMON_NEAR_H
#define PTWATCH_COMMON_NEAR_H

#include <stddef.h>

#define PTW_NEAR_MAX 3

/** struct ptw_near - the nearest so far; begin with { .wanted = … } */
struct ptw_near {
	const char *wanted;
	const char *word[PTW_NEAR_MAX];		/* nearest first */
	const char *prefix[PTW_NEAR_MAX];	/* "module" of "module:word"; NULL: none */
	unsigned int distance[PTW_NEAR_MAX];
	size_t count;
};

/** ptw_near_consider() - take @word in if it is near; it must live as long as @near */
void ptw_near_consider(struct ptw_near *near, const char *word);

/** ptw_near_consider_in() - likewise, for a word that is told as "prefix:word" when @prefix is not NULL */
void ptw_near_consider_in(struct ptw_near *near, const char *prefix, const char *word);

/** ptw_near_text() - "; did you mean a, b?", "" when nothing is near. Return: @buf. */
char *ptw_near_text(const struct ptw_near *near, char *buf, size_t size);

#endif /* PTWATCH_COMMON_NEAR_H */
