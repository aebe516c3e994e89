/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where what was decoded goes: made into records, into lines of addresses, or only counted. Inline, because
 * it is run for every path that the CPU took. Private to flow/.
 */
#ifndef PTWATCH_FLOW_SINK_H
#define PTWATCH_FLOW_SINK_H

#include <stdlib.h>
#include <string.h>

#include "decode/clock.h"
#include "flow/stream.h"
#include "flow/walk.h"

enum sink_mode {
	SINK_TOTALS,	/* gaps, beginnings and ends; branches are only counted */
	SINK_IPS,	/* the same, and a line with the address of each instruction */
	SINK_FLOW,	/* records of what leaves or enters functions */
	SINK_ALL,	/* records of all taken branches */
	SINK_RUNS,	/* the same, with what lies between them */
	SINK_INSNS,	/* the same, with its code */
};

struct sink {
	enum sink_mode mode;
	struct walk *walk;
	struct ptw_clock clock;
	int32_t cpu;
	uint32_t trace;

	bool timed;
	uint64_t tsc;		/* now */
	uint64_t noted;		/* the TSC that @time was made from */
	uint64_t time;
	uint64_t insns;		/* in this job */
	uint64_t branches, errors, overflows, lost;
	uint64_t first_time, last_time;
	uint64_t event_insns;	/* @insns at the last event */
	uint32_t events;	/* so many since then, */
	uint32_t modes;		/* but for those of MODE.Exec: libipt from 2.1 on has none where the mode stays */
	bool speculative;	/* in a transaction */

	bool failed;		/* out of memory */
	struct ptw_flow *flow;
	size_t count, room;
	char *text;		/* SINK_IPS: lines; SINK_INSNS: code, for which ptw_flow.offset is the place in it */
	size_t text_used, text_room;
};

static inline void sink_time(struct sink *s)
{
	if (s->timed && (s->noted != s->tsc || !s->noted)) {
		s->noted = s->tsc;
		s->time = ptw_clock_ns(&s->clock, s->tsc);
		if (!s->first_time)
			s->first_time = s->time;
		s->last_time = s->time;
	}
}

static inline struct ptw_flow *sink_put(struct sink *s, enum ptw_flow_kind kind, uint64_t insns)
{
	static __thread struct ptw_flow nowhere;
	struct ptw_flow *f;

	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 1024;
		struct ptw_flow *grown = reallocarray(s->flow, room, sizeof(*grown));

		if (!grown) {
			s->failed = true;
			return &nowhere;
		}
		s->flow = grown;
		s->room = room;
	}
	sink_time(s);
	f = &s->flow[s->count++];
	f->kind = kind;
	f->flags = (s->timed ? PTW_FLOW_TIMED : 0) | (s->speculative ? PTW_FLOW_SPECULATIVE : 0);
	f->event = 0;
	f->bits = 64;
	f->cpu = s->cpu;
	f->thread = 0;
	f->trace = s->trace;
	f->time = s->time;
	f->insns = insns;
	f->from = f->to = f->value = 0;
	f->text = NULL;
	f->offset = 0;
	f->tsc = s->timed ? s->tsc : 0;
	return f;
}

static inline void sink_branch(struct sink *s, enum ptw_flow_kind kind, const struct path *path, uint64_t insns,
			       uint64_t from, uint64_t to, uint64_t value)
{
	struct ptw_flow *f = sink_put(s, kind, insns);

	f->bits = path->bits;
	f->from = from;
	f->to = to;
	f->value = value;
}

/* Room for @size more bytes of text; NULL: out of memory */
static inline char *sink_room(struct sink *s, size_t size)
{
	if (s->text_used + size > s->text_room) {
		size_t room = s->text_room ? 2 * s->text_room : 1 << 18;
		char *grown = realloc(s->text, room);

		if (!grown) {
			s->failed = true;
			return NULL;
		}
		s->text = grown;
		s->text_room = room;
	}
	s->text_used += size;
	return s->text + s->text_used - size;
}

static void sink_code(struct sink *s, struct path *path, unsigned int from, unsigned int to)
{
	const uint8_t *code = path_code(s->walk, path), *end;
	unsigned int i;
	char *room;

	if (!code) {
		s->failed = true;
		return;
	}
	end = code + path->code_size;
	for (i = 0; i < from; i++)
		code += 1 + *code;
	if (to < path->count)
		for (end = code; i < to; i++)
			end += 1 + *end;
	s->flow[s->count - 1].offset = s->text_used;
	room = sink_room(s, end - code);
	if (room)
		memcpy(room, code, end - code);
}

static inline void sink_run(struct sink *s, struct path *path, unsigned int from, unsigned int to, uint64_t insns)
{
	sink_branch(s, PTW_FLOW_RUN, path, insns, path_ip(path, from), path_ip(path, to - 1), to - from);
	if (s->mode == SINK_INSNS && !s->failed)
		sink_code(s, path, from, to);
}

/* The last run is only a piece of one: neither a branch nor an event ended it. */
static inline void sink_goes_on(struct sink *s)
{
	if (s->count && s->flow[s->count - 1].kind == PTW_FLOW_RUN)
		s->flow[s->count - 1].flags |= PTW_FLOW_GOES_ON;
}

/* The direct branches among instructions @from to @to - 1. */
static void __attribute__((noinline)) sink_inner(struct sink *s, struct path *path, unsigned int from, unsigned int to)
{
	uint64_t base = s->insns - from;
	unsigned int begun = from;

	for (unsigned int n = 0; n < path->inner; n++) {
		unsigned int i = path->branch[n];
		uint64_t ip, target;

		if (i < from)
			continue;
		if (i >= to)
			break;
		s->branches++;
		if (s->mode <= SINK_IPS ||
		    (s->mode == SINK_FLOW && path->insn[i].kind == INSN_JUMP))
			continue;
		ip = path_ip(path, i);
		target = path_branch_target(path, i);
		if (s->mode >= SINK_RUNS) {
			sink_run(s, path, begun, i + 1, base + i + 1);
			begun = i + 1;
		}
		if (path->insn[i].kind == INSN_CALL || path->insn[i].kind == INSN_CALL_NEXT)
			sink_branch(s, PTW_FLOW_CALL, path, base + i + 1, ip, target, ip + path->insn[i].size);
		else
			sink_branch(s, PTW_FLOW_JUMP, path, base + i + 1, ip, target, 0);
	}
	if (s->mode >= SINK_RUNS && begun < to) {
		sink_run(s, path, begun, to, base + to);
		if (to == path->count && path->end >= PATH_LONG)
			sink_goes_on(s);
	}
}

static void __attribute__((noinline)) sink_text(struct sink *s, struct path *path, unsigned int from,
						unsigned int to)
{
	size_t size = (size_t)(to - from) * 17;
	const char *text = path_text(s->walk, path);
	char *room = sink_room(s, size);

	if (!text)
		s->failed = true;
	if (text && room)
		memcpy(room, text + (size_t)from * 17, size);
}

/* Instructions @from to @to - 1 of @path were executed. */
static inline void sink_path(struct sink *s, struct path *path, unsigned int from, unsigned int to)
{
	if (from == to)
		return;
	if (s->mode == SINK_IPS)
		sink_text(s, path, from, to);
	if (path->inner || s->mode >= SINK_RUNS) {
		if (s->mode == SINK_FLOW && !path->calls && !from && to == path->count)
			s->branches += path->inner;
		else
			sink_inner(s, path, from, to);
	}
	s->insns += to - from;
}

/* The branch at the end of @path, which was executed, went to @next (0: unknown), whose path is @to (or NULL). */
static inline void sink_end(struct sink *s, const struct path *path, uint64_t ip, const struct path *to)
{
	static const uint8_t kinds[] = {
		[PATH_COND] = PTW_FLOW_JUMP,	       [PATH_RETURN] = PTW_FLOW_RETURN,
		[PATH_CALL] = PTW_FLOW_CALL,	       [PATH_JUMP] = PTW_FLOW_JUMP,
		[PATH_FAR_CALL] = PTW_FLOW_SYSCALL,    [PATH_FAR_RETURN] = PTW_FLOW_FAR_RETURN,
		[PATH_FAR_JUMP] = PTW_FLOW_JUMP,
	};

	s->branches++;
	if (s->mode <= SINK_IPS)
		return;
	if (s->mode == SINK_FLOW && ((path->end == PATH_COND && !path->taken_out) ||
				     (path->end == PATH_JUMP && to && to->symbol == path->last_symbol)))
		return;
	sink_branch(s, kinds[path->end], path, s->insns, path->last, ip,
		    path->end == PATH_CALL || path->end == PATH_FAR_CALL ? path->next : 0);
}

/* Counts what libipt has as an event, too: so both agree on where they are. @mode: that of a MODE.Exec */
static inline void sink_event_count(struct sink *s, bool mode)
{
	if (s->event_insns != s->insns) {
		s->event_insns = s->insns;
		s->events = s->modes = 0;
	}
	if (mode)
		s->modes++;
	else
		s->events++;
}

#endif /* PTWATCH_FLOW_SINK_H */
