/* SPDX-License-Identifier: BSD-2-Clause */
/* The report of `ptwatch flame`: on which stacks the time was spent, as folded stacks or as a picture. */
#ifndef PTWATCH_REPORT_FLAME_H
#define PTWATCH_REPORT_FLAME_H

#include "report/out.h"
#include "report/story.h"

struct ptw_flame;

/** ptw_flame_new() - @idle: with the idle threads, too; @tid: only this thread, -1: all */
struct ptw_flame *ptw_flame_new(bool idle, int32_t tid);

/** ptw_flame_take() - an event of the story. Return: 0; -1: out of memory. */
int ptw_flame_take(struct ptw_flame *flame, const struct ptw_story_event *event);

/** ptw_flame_empty() - whether no time was spent on any stack */
bool ptw_flame_empty(const struct ptw_flame *flame);

/** ptw_flame_write_folded() - a line for each stack: "thread;outer;inner 1234", the number being nanoseconds on the CPU */
void ptw_flame_write_folded(const struct ptw_flame *flame, struct ptw_out *out);

/** ptw_flame_write_json() - the same, one object a line */
void ptw_flame_write_json(const struct ptw_flame *flame, struct ptw_out *out);

/** ptw_flame_write_svg() - a picture that needs nothing else; a click on a function makes it as wide as the picture */
void ptw_flame_write_svg(struct ptw_flame *flame, const char *title, struct ptw_out *out);
void ptw_flame_free(struct ptw_flame *flame);

#endif /* PTWATCH_REPORT_FLAME_H */
