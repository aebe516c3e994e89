// SPDX-License-Identifier: BSD-2-Clause
#include "common/near.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/*
 * Edits (insert, delete, replace, swap neighbours) that turn @a into @b; anything over @most is @most + 1.
 * Names longer than the buffers are never near.
 */
static unsigned int edit_distance(const char *a, size_t n, const char *b, size_t m, unsigned int most)
{
	unsigned int rows[3][129], *before = rows[0], *above = rows[1], *row = rows[2];

	if (n > 128 || m > 128 || (n > m ? n - m : m - n) > most)
		return most + 1;
	for (size_t j = 0; j <= m; j++)
		above[j] = j;
	for (size_t i = 1; i <= n; i++) {
		unsigned int least, *spare;

		least = row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			unsigned int d = above[j - 1] + (a[i - 1] != b[j - 1]);

			if (above[j] + 1 < d)
				d = above[j] + 1;
			if (row[j - 1] + 1 < d)
				d = row[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1 < d)
				d = before[j - 2] + 1;
			row[j] = d;
			if (d < least)
				least = d;
		}
		if (least > most)
			return most + 1;
		spare = before;
		before = above;
		above = row;
		row = spare;
	}
	return above[m];
}

static unsigned int most_edits(size_t length)
{
	return length < 4 ? 1 : length < 9 ? 2 : 3;
}

/* A name people shortened is near as well, behind the mistyped ones. */
static unsigned int distance_of(const char *wanted, size_t length, const char *name)
{
	unsigned int most = most_edits(length), d = edit_distance(wanted, length, name, strlen(name), most);

	if (d <= most)
		return d;
	return length >= 4 && strstr(name, wanted) ? 8 + strlen(name) - length : UINT_MAX;
}

static const char *text_of(const char *prefix)
{
	return prefix ? prefix : "";
}

void ptw_near_consider_in(struct ptw_near *near, const char *prefix, const char *word)
{
	unsigned int distance = distance_of(near->wanted, strlen(near->wanted), word);
	size_t i;

	if (distance == UINT_MAX)
		return;
	for (i = 0; i < near->count; i++)
		if (!strcmp(near->word[i], word) && !strcmp(text_of(near->prefix[i]), text_of(prefix)))
			return;
	if (near->count < PTW_NEAR_MAX)
		near->count++;
	else if (distance >= near->distance[PTW_NEAR_MAX - 1])
		return;
	for (i = near->count - 1; i > 0 && near->distance[i - 1] > distance; i--) {
		near->word[i] = near->word[i - 1];
		near->prefix[i] = near->prefix[i - 1];
		near->distance[i] = near->distance[i - 1];
	}
	near->word[i] = word;
	near->prefix[i] = prefix;
	near->distance[i] = distance;
}

void ptw_near_consider(struct ptw_near *near, const char *word)
{
	ptw_near_consider_in(near, NULL, word);
}

char *ptw_near_text(const struct ptw_near *near, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < near->count && used < size; i++)
		used += snprintf(buf + used, size - used, "%s%s%s%s%s", i ? ", " : "; did you mean ",
				 text_of(near->prefix[i]), near->prefix[i] ? ":" : "", near->word[i],
				 i + 1 == near->count ? "?" : "");
	return buf;
}
