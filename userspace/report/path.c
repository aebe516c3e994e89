// SPDX-License-Identifier: BSD-2-Clause
#include "report/path.h"

#include <stdlib.h>
#include <string.h>

/* A path with more contexts than this counts the rest to those that are there. */
#define MAX_NODES	(1u << 20)
#define MAX_STACK	1024

/* ---- names ---- */

static uint32_t hash_text(const char *text)
{
	uint32_t hash = 2166136261u;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

static int grow_names(struct ptw_path_names *names)
{
	uint32_t room = names->room ? 2 * names->room : 256, i, at;
	struct ptw_path_name *name = reallocarray(names->name, room, sizeof(*name));
	uint32_t *hash;

	if (!name)
		return -1;
	names->name = name;
	hash = calloc(2 * room, sizeof(*hash));
	if (!hash)
		return -1;
	for (i = 1; i < names->count; i++) {
		for (at = hash_text(name[i].text) & (2 * room - 1); hash[at]; at = (at + 1) & (2 * room - 1))
			;
		hash[at] = i;
	}
	free(names->hash);
	names->hash = hash;
	names->hash_size = 2 * room;
	names->room = room;
	if (!names->count)
		name[names->count++] = (struct ptw_path_name){ 0 };
	return 0;
}

uint32_t ptw_path_name(struct ptw_path_names *names, const char *text)
{
	uint32_t at;
	char *copy;

	if (names->count == names->room && grow_names(names))
		return UINT32_MAX;
	for (at = hash_text(text) & (names->hash_size - 1); names->hash[at]; at = (at + 1) & (names->hash_size - 1))
		if (!strcmp(names->name[names->hash[at]].text, text))
			return names->hash[at];
	copy = strdup(text);
	if (!copy)
		return UINT32_MAX;
	names->name[names->count] = (struct ptw_path_name){ .text = copy };
	return names->hash[at] = names->count++;
}

void ptw_path_names_free(struct ptw_path_names *names)
{
	uint32_t i;

	for (i = 1; i < names->count; i++)
		free((char *)names->name[i].text);
	free(names->name);
	free(names->hash);
	*names = (struct ptw_path_names){ 0 };
}

/* ---- trees ---- */

static int reserve(struct ptw_path *path)
{
	uint32_t room = path->room ? 2 * path->room : 64;
	struct ptw_path_node *grown;

	if (path->count < path->room)
		return 0;
	grown = reallocarray(path->node, room, sizeof(*grown));
	if (!grown)
		return -1;
	path->node = grown;
	path->room = room;
	return 0;
}

static int add_root(struct ptw_path *path)
{
	if (reserve(path))
		return -1;
	path->node[path->count++] = (struct ptw_path_node){ .kind = PTW_PATH_ROOT };
	return 0;
}

uint32_t ptw_path_find(const struct ptw_path *path, uint32_t parent, uint8_t kind, uint32_t name)
{
	uint32_t i;

	for (i = path->node[parent].child; i; i = path->node[i].next)
		if (path->node[i].name == name && path->node[i].kind == kind)
			return i;
	return 0;
}

/* The child, made if need be; @parent itself where there is no more room; UINT32_MAX: out of memory. */
static uint32_t child_of(struct ptw_path *path, uint32_t parent, uint8_t kind, uint32_t name)
{
	uint32_t i = ptw_path_find(path, parent, kind, name);

	if (i)
		return i;
	if (path->count >= MAX_NODES)
		return parent;
	if (reserve(path))
		return UINT32_MAX;
	i = path->count++;
	path->node[i] = (struct ptw_path_node){
		.name = name, .kind = kind, .parent = parent, .next = path->node[parent].child,
	};
	path->node[parent].child = i;
	return i;
}

/* Children come after their parents. */
static void sum_up(struct ptw_path *path)
{
	uint32_t i;

	for (i = 0; i < path->count; i++)
		path->node[i].total = path->node[i].self;
	for (i = path->count; --i > 0;)
		path->node[path->node[i].parent].total += path->node[i].total;
}

static int begin(struct ptw_path *path)
{
	path->count = 0;
	path->gap = false;
	path->on_cpu = path->interrupt = path->switched_out = 0;
	return add_root(path);
}

struct walk {
	struct ptw_path *path;
	/* Where the thread is: what it runs, and the nodes of that in the phase. */
	struct { uint32_t name; uint8_t kind; uint32_t node; } stack[MAX_STACK];
	size_t depth;
	size_t too_deep;	/* frames beyond the stack */
	size_t interrupts;	/* among the stack's */
	uint32_t base;		/* the root, or the phase */
	bool out;
};

static uint32_t top(const struct walk *w)
{
	return w->depth ? w->stack[w->depth - 1].node : w->base;
}

static void spend(struct walk *w, uint64_t time)
{
	w->path->node[top(w)].self += time;
	if (w->out)
		w->path->switched_out += time;
	else if (w->interrupts)
		w->path->interrupt += time;
	else
		w->path->on_cpu += time;
}

/* Interrupts hang below the phase: whatever function they interrupted has no part in them. */
static uint32_t parent_of(const struct walk *w, uint8_t kind, uint32_t inner)
{
	return kind == PTW_PATH_INTERRUPT ? w->base : inner;
}

static int push(struct walk *w, uint8_t kind, uint32_t name)
{
	uint32_t node;

	if (w->depth == MAX_STACK) {
		w->too_deep++;
		return 0;
	}
	node = child_of(w->path, parent_of(w, kind, top(w)), kind, name);
	if (node == UINT32_MAX)
		return -1;
	w->path->node[node].visits++;
	w->stack[w->depth].name = name;
	w->stack[w->depth].kind = kind;
	w->stack[w->depth++].node = node;
	w->interrupts += kind == PTW_PATH_INTERRUPT;
	return 0;
}

/* What the thread was in before the first moment may end, too: then it is in the root. */
static void pop(struct walk *w)
{
	if (w->too_deep)
		w->too_deep--;
	else if (w->depth)
		w->interrupts -= w->stack[--w->depth].kind == PTW_PATH_INTERRUPT;
}

/* The same functions, in another phase. */
static int change_phase(struct walk *w, uint32_t phase)
{
	uint32_t node;
	size_t i;

	node = child_of(w->path, 0, PTW_PATH_PHASE, phase);
	if (node == UINT32_MAX)
		return -1;
	w->path->node[node].visits++;
	w->base = node;
	for (i = 0; i < w->depth; i++) {
		node = child_of(w->path, parent_of(w, w->stack[i].kind, node), w->stack[i].kind, w->stack[i].name);
		if (node == UINT32_MAX)
			return -1;
		w->stack[i].node = node;
	}
	return 0;
}

static int take(struct walk *w, const struct ptw_path_event *event, bool phases, uint64_t id)
{
	switch (event->kind) {
	case PTW_STORY_ENTER:
		return push(w, event->frame == PTW_FRAME_INTERRUPT ? PTW_PATH_INTERRUPT : PTW_PATH_FUNCTION, event->name);
	case PTW_STORY_LEAVE:
		pop(w);
		return 0;
	case PTW_STORY_OUT:
		if (!w->out && push(w, PTW_PATH_OUT, 0))
			return -1;
		w->out = true;
		return 0;
	case PTW_STORY_IN:
		if (w->out)
			pop(w);
		w->out = false;
		return 0;
	case PTW_STORY_MARKER:
		return phases && event->id == id ? change_phase(w, event->name) : 0;
	case PTW_STORY_GAP:
		w->path->gap = true;
		return 0;
	default:
		return 0;
	}
}

int ptw_path_build(struct ptw_path *path, const struct ptw_path_event *event, size_t count, uint64_t start,
		   uint64_t end, uint32_t first_phase, uint64_t id)
{
	struct walk w = { .path = path };
	uint64_t now = start;
	size_t i;

	if (begin(path) || (first_phase && change_phase(&w, first_phase)))
		return -1;
	path->node[0].visits = 1;
	for (i = 0; i < count; i++) {
		/* CPUs' clocks may differ a little where a thread moves. */
		if (event[i].time > now && event[i].time <= end) {
			spend(&w, event[i].time - now);
			now = event[i].time;
		}
		if (take(&w, &event[i], first_phase != 0, id))
			return -1;
	}
	if (end > now)
		spend(&w, end - now);
	sum_up(path);
	return 0;
}

void ptw_path_free(struct ptw_path *path)
{
	free(path->node);
	*path = (struct ptw_path){ 0 };
}

int ptw_path_add(struct ptw_path *sum, const struct ptw_path *from)
{
	uint32_t *to, i;

	if (!sum->count && add_root(sum))
		return -1;
	to = calloc(from->count ? from->count : 1, sizeof(*to));
	if (!to)
		return -1;
	for (i = 0; i < from->count; i++) {
		if (i) {
			to[i] = child_of(sum, to[from->node[i].parent], from->node[i].kind, from->node[i].name);
			if (to[i] == UINT32_MAX) {
				free(to);
				return -1;
			}
		}
		sum->node[to[i]].self += from->node[i].self;
		sum->node[to[i]].visits += from->node[i].visits;
	}
	free(to);
	sum->on_cpu += from->on_cpu;
	sum->interrupt += from->interrupt;
	sum->switched_out += from->switched_out;
	sum_up(sum);
	return 0;
}

/* ---- blame ---- */

static uint64_t extra_time(uint64_t time, uint64_t typical_sum, uint64_t typical_count)
{
	uint64_t typical = typical_count ? typical_sum / typical_count : 0;

	return time > typical ? time - typical : 0;
}

/* Keep the children with the most of the extra time, in order. */
static void note_spread(struct ptw_culprit *out, uint32_t node, uint64_t extra)
{
	size_t at = out->spread_count, i;

	while (at && out->spread_extra[at - 1] < extra)
		at--;
	if (!extra || at == PTW_CULPRIT_SPREAD)
		return;
	if (out->spread_count < PTW_CULPRIT_SPREAD)
		out->spread_count++;
	for (i = out->spread_count - 1; i > at; i--) {
		out->spread[i] = out->spread[i - 1];
		out->spread_extra[i] = out->spread_extra[i - 1];
	}
	out->spread[at] = node;
	out->spread_extra[at] = extra;
}

uint64_t ptw_path_load(const struct ptw_path_load *load, const struct ptw_path *path, uint32_t name, uint64_t time)
{
	/* Both are times on a CPU. */
	uint64_t total = path->on_cpu + path->interrupt, elsewhere = load->names->name[name].interrupted, own = 0;
	uint32_t i;

	for (i = 1; i < path->count; i++)
		if (path->node[i].kind == PTW_PATH_INTERRUPT && path->node[i].name == name)
			own += path->node[i].total;
	if (load->time <= total || elsewhere <= own)
		return 0;
	if (time > total)
		time = total;
	return (uint64_t)((unsigned __int128)time * (elsewhere - own) / (load->time - total));
}

/* What is usual for the child @node, whose like in @typical is @like, if there is one. */
static uint64_t usual(const struct ptw_path *path, const struct ptw_path_node *node, const struct ptw_path_node *like,
		      uint64_t typical_count, const struct ptw_path_load *load)
{
	uint64_t time = like && typical_count ? like->total / typical_count : 0, expected;

	if (node->kind != PTW_PATH_INTERRUPT || !load)
		return time;
	expected = ptw_path_load(load, path, node->name, path->node[node->parent].total);
	return expected > time ? expected : time;
}

void ptw_path_blame(const struct ptw_path *path, const struct ptw_path *typical, uint64_t typical_count,
		    const struct ptw_path_load *load, struct ptw_culprit *out)
{
	uint32_t at = 0, same = 0;	/* the node, and its like in @typical */
	bool known = typical && typical->count;
	uint64_t extra = extra_time(path->node[0].total, known ? typical->node[0].total : 0, typical_count);

	*out = (struct ptw_culprit){ .kind = PTW_PATH_FUNCTION };
	while (out->depth < PTW_CULPRIT_DEPTH) {
		uint32_t i, best;

		out->spread_count = 0;
		for (i = path->node[at].child; i; i = path->node[i].next) {
			const struct ptw_path_node *node = &path->node[i];
			uint32_t like = known ? ptw_path_find(typical, same, node->kind, node->name) : 0;

			uint64_t time = usual(path, node, like ? &typical->node[like] : NULL, typical_count, load);

			note_spread(out, i, node->total > time ? node->total - time : 0);
		}
		/* Else it is the function itself, or its many callees. */
		if (!out->spread_count || out->spread_extra[0] * 5 <= extra * 2)
			break;
		best = out->spread[0];
		same = known ? ptw_path_find(typical, same, path->node[best].kind, path->node[best].name) : 0;
		known = known && same;
		at = best;
		extra = out->spread_extra[0];
		out->extra[out->depth] = extra;
		out->chain[out->depth++] = at;
		if (path->node[at].kind == PTW_PATH_PHASE) {
			out->phase = path->node[at].name;
			out->phase_extra = extra;
		} else if (path->node[at].kind == PTW_PATH_INTERRUPT || path->node[at].kind == PTW_PATH_OUT) {
			out->kind = path->node[at].kind;
		}
	}
}
