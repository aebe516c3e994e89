/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the time between two moments of a thread went, as a tree of calling contexts; and how such a tree differs
 * from the typical one.
 *
 * The root is the function that ran at the first moment (or the caller of the function that was entered then). Below
 * it are, when markers cut the time into phases, a node for each phase; below that, interrupts and functions as they
 * called each other; and where the thread was switched out, "[switched out]".
 */
#ifndef PTWATCH_REPORT_PATH_H
#define PTWATCH_REPORT_PATH_H

#include "report/story.h"

enum ptw_path_kind { PTW_PATH_ROOT, PTW_PATH_PHASE, PTW_PATH_FUNCTION, PTW_PATH_INTERRUPT, PTW_PATH_OUT };

/* One event of a thread, as short as can be: there are very many. */
struct ptw_path_event {
	uint64_t time;
	uint64_t id;		/* MARKER: 0, or of what it is */
	uint32_t name;		/* ENTER: of the function, see struct ptw_path_names; MARKER: of the phase that begins */
	uint8_t kind;		/* enum ptw_story_kind */
	uint8_t frame;		/* ENTER: enum ptw_frame_kind */
};

struct ptw_path_node {
	uint64_t self;		/* time in it, not in its children */
	uint64_t total;		/* with its children; ptw_path_sum() fills it in */
	uint32_t name;
	uint32_t visits;
	uint32_t parent, child, next;	/* 0: none; the root is node 0 */
	uint8_t kind;		/* enum ptw_path_kind */
};

struct ptw_path {
	struct ptw_path_node *node;
	uint32_t count, room;
	bool gap;		/* trace is missing in it */
	uint64_t on_cpu, interrupt, switched_out;
};

/** struct ptw_path_names - numbers for names of functions and phases, 0 is the root's */
struct ptw_path_names {
	struct ptw_path_name {
		const char *text;	/* owned */
		uint64_t pairs;		/* how many paths visited it */
		uint64_t last_path;	/* number of the last one that did */
		uint64_t interrupted;	/* of an interrupt: time that it took from threads, in the whole trace */
	} *name;
	uint32_t count, room;
	uint32_t *hash;
	uint32_t hash_size;
};

/** ptw_path_name() - the number of @text, a new one if need be; UINT32_MAX: out of memory */
uint32_t ptw_path_name(struct ptw_path_names *names, const char *text);
void ptw_path_names_free(struct ptw_path_names *names);

/**
 * ptw_path_build() - the tree of @count events from @start on, up to the time @end
 * @first_phase: the phase in which it begins; 0: there are no phases
 * @id: only markers with this id begin phases
 */
int ptw_path_build(struct ptw_path *path, const struct ptw_path_event *event, size_t count, uint64_t start,
		   uint64_t end, uint32_t first_phase, uint64_t id);
void ptw_path_free(struct ptw_path *path);

/** ptw_path_add() - add the times and visits of @from to @sum, context by context */
int ptw_path_add(struct ptw_path *sum, const struct ptw_path *from);

/** ptw_path_find() - the child of @parent in @path with this kind and name; 0: none */
uint32_t ptw_path_find(const struct ptw_path *path, uint32_t parent, uint8_t kind, uint32_t name);

/**
 * struct ptw_path_load - what interrupts take of any time, be it long or short
 *
 * Whatever takes long has more of them: that is no reason why it took long. A tick is one only where it is longer, or
 * more frequent, than elsewhere.
 */
struct ptw_path_load {
	const struct ptw_path_names *names;
	uint64_t time;		/* that threads were on a CPU */
};

/**
 * ptw_path_load() - what interrupts of this @name may be expected to take in @time of @path, as far as it is on a CPU, by what
 * they take elsewhere
 */
uint64_t ptw_path_load(const struct ptw_path_load *load, const struct ptw_path *path, uint32_t name, uint64_t time);

#define PTW_CULPRIT_DEPTH	64
#define PTW_CULPRIT_SPREAD	3

/** struct ptw_culprit - where the time that @path took longer than the typical one went */
struct ptw_culprit {
	uint32_t phase;		/* name; 0: in no phase */
	uint64_t phase_extra;	/* time that went there beyond the typical */
	uint32_t chain[PTW_CULPRIT_DEPTH];	/* nodes of the path, from outside in */
	uint64_t extra[PTW_CULPRIT_DEPTH];	/* … and what each took beyond the typical */
	size_t depth;
	/* Where it was not followed any further: the children with the most of it. */
	uint32_t spread[PTW_CULPRIT_SPREAD];
	uint64_t spread_extra[PTW_CULPRIT_SPREAD];
	size_t spread_count;
	enum ptw_path_kind kind;	/* OUT: switched out; INTERRUPT: within one; FUNCTION: on the CPU */
};

/**
 * ptw_path_blame() - follow the extra time down the tree, as long as one child has more than two fifths of it
 * @typical: sum of @typical_count paths
 * @load: NULL: interrupts are compared with @typical only
 */
void ptw_path_blame(const struct ptw_path *path, const struct ptw_path *typical, uint64_t typical_count,
		    const struct ptw_path_load *load, struct ptw_culprit *out);

#endif /* PTWATCH_REPORT_PATH_H */
