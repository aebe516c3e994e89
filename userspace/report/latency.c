// SPDX-License-Identifier: BSD-2-Clause
#include "report/latency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "report/latency_private.h"

/* More events than this between a start and its end are not looked at; the time is right all the same. */
#define MAX_EVENTS	(2u << 20)
#define MAX_OPEN	(1u << 20)	/* starts: of more none will find its end */
#define DURATIONS_LIMIT	(16u << 20)	/* bytes in memory */

/* A start that waits for its end. */
struct latency_open {
	struct latency_thread *thread;
	const struct ptw_thread *info;
	uint64_t time;
	uint64_t first;		/* number of its first event in the thread's log */
	uint64_t serial;	/* ENTRY: of the frame */
	uint64_t id;
	uint64_t phase_marker;
	bool entry;
	bool paired_since;	/* a younger start has found its end */
	bool path_lost;		/* its first events were dropped */
	int32_t cpu;
};

struct latency_thread {
	const struct ptw_story_thread *story;	/* NULL: it has exited, and has starts that another thread may end */
	bool started;			/* it had a start: from then on its interrupts count */
	uint64_t first, last;		/* times of its events since then */
	uint64_t first_off_cpu, off_cpu;	/* … and how long it was switched out before */
	struct latency_open *open;	/* without @by; the oldest first */
	size_t open_count, open_room;
	bool paired_since;		/* one of these is */
	size_t by_id;			/* of latency->open that are its own */
	size_t trim_at;			/* no part of the log can go before it has so many events */
	struct ptw_path_event *log;	/* since the oldest open start */
	size_t log_count, log_room;
	uint64_t log_first;		/* number of log[0] */
	LIST_ENTRY(latency_thread) next;
};

struct ptw_latency *ptw_latency_new(const struct ptw_latency_options *options)
{
	struct ptw_latency *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->options = *options;
	l->random = 88172645463325252ull;
	l->durations = (struct ptw_spool){ .item = sizeof(*l->duration), .limit = DURATIONS_LIMIT };
	l->worst = calloc(options->worst ? options->worst : 1, sizeof(*l->worst));
	/* Number 0 is no name. */
	if (!l->worst || ptw_path_name(&l->names, "[switched out]") == UINT32_MAX) {
		ptw_latency_free(l);
		return NULL;
	}
	return l;
}

static void free_pair(struct ptw_latency_pair *pair)
{
	if (pair)
		ptw_path_free(&pair->path);
	free(pair);
}

static void free_thread(struct latency_thread *thread)
{
	LIST_REMOVE(thread, next);
	free(thread->open);
	free(thread->log);
	free(thread);
}

void ptw_latency_free(struct ptw_latency *l)
{
	struct latency_thread *thread;
	size_t i;

	if (!l)
		return;
	while ((thread = LIST_FIRST(&l->threads)))
		free_thread(thread);
	for (i = 0; i < l->worst_count; i++)
		free_pair(l->worst[i]);
	for (i = 0; i < l->sample_count; i++)
		ptw_path_free(&l->sample[i].path);
	ptw_path_free(&l->typical);
	ptw_path_free(&l->scratch);
	ptw_path_names_free(&l->names);
	free(l->worst);
	free(l->open);
	free(l->slot);
	ptw_spool_free(&l->durations);
	free(l);
}

/* Make room for one more; 0 or -1. */
static int grow(void *array, size_t *room, size_t count, size_t size)
{
	void **base = array, *grown;

	if (count < *room)
		return 0;
	grown = reallocarray(*base, *room ? 2 * *room : 64, size);
	if (!grown)
		return -1;
	*base = grown;
	*room = *room ? 2 * *room : 64;
	return 0;
}

/* A start of it has found its end, or will not. */
static void end_by_id(struct latency_thread *thread)
{
	if (!--thread->by_id && !thread->story)
		free_thread(thread);
}

static struct latency_thread *thread_of(struct ptw_latency *l, struct ptw_story_thread *story)
{
	struct latency_thread *thread = story->user;

	if (thread)
		return thread;
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return NULL;
	thread->story = story;
	LIST_INSERT_HEAD(&l->threads, thread, next);
	return story->user = thread;
}

/* ---- the log of a thread that has open starts ---- */

static void forget_log(struct latency_thread *thread, uint64_t before)
{
	size_t gone = before - thread->log_first;

	/* In batches: what is left is moved. */
	if (gone < thread->log_count && gone < 4096)
		return;
	if (gone > thread->log_count)
		gone = thread->log_count;
	memmove(thread->log, thread->log + gone, (thread->log_count - gone) * sizeof(*thread->log));
	thread->log_count -= gone;
	thread->log_first += gone;
}

static uint64_t log_end(const struct latency_thread *thread)
{
	return thread->log_first + thread->log_count;
}

/* Drop what no open start needs. */
static void trim_log(struct ptw_latency *l, struct latency_thread *thread)
{
	uint64_t first = log_end(thread);
	size_t i;

	if (thread->log_count < thread->trim_at)
		return;
	if (l->options.by < 0) {
		for (i = 0; i < thread->open_count; i++)
			if (!thread->open[i].path_lost && thread->open[i].first < first)
				first = thread->open[i].first;
	} else {
		for (i = 0; i < l->open_count; i++)
			if (l->open[i].thread == thread && !l->open[i].path_lost && l->open[i].first < first)
				first = l->open[i].first;
	}
	if (first > thread->log_first)
		forget_log(thread, first);
	/* Of many starts without an end the oldest keeps it: it would be looked for in vain again and again. */
	thread->trim_at = 2 * thread->log_count;
}

static void drop_paths(struct ptw_latency *l, struct latency_thread *thread)
{
	size_t i;

	for (i = 0; i < thread->open_count; i++)
		thread->open[i].path_lost = true;
	for (i = 0; i < l->open_count; i++)
		if (l->open[i].thread == thread)
			l->open[i].path_lost = true;
	forget_log(thread, log_end(thread));
}

static uint32_t phase_name(struct ptw_latency *l, uint64_t value)
{
	char text[64], name[40];

	snprintf(text, sizeof(text), "%s", ptw_marker_type_name(&l->options.format,
		 ptw_marker_get(&l->options.format, 0, value), name, sizeof(name)));
	return ptw_path_name(&l->names, text);
}

static uint64_t id_of(const struct ptw_latency *l, const struct ptw_story_event *event)
{
	return ptw_marker_get(&l->options.format, l->options.by, event->value);
}

static int add_log(struct ptw_latency *l, struct latency_thread *thread, const struct ptw_story_event *event)
{
	struct ptw_path_event *entry;
	char buf[PTW_FRAME_NAME];

	/* Who exited does not come back to what it left: until another thread ends what it began, it is switched out there. */
	if (event->kind == PTW_STORY_POINT || (event->kind == PTW_STORY_LEAVE && event->cut && !event->thread->running))
		return 0;
	if (thread->log_count >= MAX_EVENTS)
		drop_paths(l, thread);
	if (grow(&thread->log, &thread->log_room, thread->log_count, sizeof(*thread->log)))
		return -1;
	entry = &thread->log[thread->log_count++];
	*entry = (struct ptw_path_event){ .time = event->time, .kind = event->kind };
	if (event->kind == PTW_STORY_ENTER) {
		entry->frame = event->frame->kind;
		entry->name = ptw_path_name(&l->names, ptw_frame_name(event->frame, buf, sizeof(buf)));
	} else if (event->kind == PTW_STORY_MARKER) {
		entry->name = phase_name(l, event->value);
		entry->id = l->options.by >= 0 ? id_of(l, event) : 0;
	}
	return entry->name == UINT32_MAX ? -1 : 0;
}

/* ---- pairs ---- */

static bool longer(const struct ptw_latency_pair *a, const struct ptw_latency_pair *b)
{
	/* Of equal ones the first. */
	return a->duration != b->duration ? a->duration > b->duration : a->start < b->start;
}

static void sift_down(struct ptw_latency *l, size_t i)
{
	size_t child;

	while ((child = 2 * i + 1) < l->worst_count) {
		struct ptw_latency_pair *moved;

		if (child + 1 < l->worst_count && longer(l->worst[child], l->worst[child + 1]))
			child++;
		if (!longer(l->worst[i], l->worst[child]))
			return;
		moved = l->worst[i];
		l->worst[i] = l->worst[child];
		l->worst[child] = moved;
		i = child;
	}
}

static void sift_up(struct ptw_latency *l, size_t i)
{
	while (i && longer(l->worst[(i - 1) / 2], l->worst[i])) {
		struct ptw_latency_pair *moved = l->worst[i];

		l->worst[i] = l->worst[(i - 1) / 2];
		l->worst[(i - 1) / 2] = moved;
		i = (i - 1) / 2;
	}
}

static int keep_worst(struct ptw_latency *l, const struct ptw_latency_pair *pair)
{
	struct ptw_latency_pair *copy;

	if (!l->options.worst || (l->worst_count == l->options.worst && !longer(pair, l->worst[0])))
		return 0;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -1;
	*copy = *pair;
	copy->path = (struct ptw_path){ 0 };
	if (ptw_path_add(&copy->path, &pair->path)) {
		free_pair(copy);
		return -1;
	}
	copy->path.gap = pair->path.gap;
	if (l->worst_count < l->options.worst) {
		l->worst[l->worst_count++] = copy;
		sift_up(l, l->worst_count - 1);
		return 0;
	}
	free_pair(l->worst[0]);
	l->worst[0] = copy;
	sift_down(l, 0);
	return 0;
}

/* Every pair so far is in the sample with the same chance. The same trace gives the same sample. */
static int keep_sample(struct ptw_latency *l, const struct ptw_latency_pair *pair)
{
	size_t at = l->sample_count;

	if (at == PTW_LATENCY_SAMPLE) {
		l->random ^= l->random << 13;
		l->random ^= l->random >> 7;
		l->random ^= l->random << 17;
		at = l->random % l->count;
		if (at >= PTW_LATENCY_SAMPLE)
			return 0;
		ptw_path_free(&l->sample[at].path);
	} else {
		l->sample_count++;
	}
	l->sample[at].duration = pair->duration;
	l->sample[at].path = (struct ptw_path){ 0 };
	return ptw_path_add(&l->sample[at].path, &pair->path);
}

static void count_visits(struct ptw_latency *l, const struct ptw_path *path)
{
	uint32_t i;

	for (i = 1; i < path->count; i++) {
		struct ptw_path_name *name = &l->names.name[path->node[i].name];

		if (path->node[i].name && name->last_path != l->count) {
			name->last_path = l->count;
			name->pairs++;
		}
	}
}

/* Phases are those that markers between start and end begin; of the same id, when pairs have one. */
static uint32_t first_phase(struct ptw_latency *l, const struct latency_open *open, const struct ptw_path_event *event,
			    size_t count)
{
	uint32_t name;
	size_t i;

	for (i = 0; i < count && (event[i].kind != PTW_STORY_MARKER || event[i].id != open->id); i++)
		;
	if (i == count)
		return 0;
	if (l->options.from.kind == PTW_POINT_MARKER)
		name = phase_name(l, open->phase_marker);
	else
		name = ptw_path_name(&l->names, l->options.from.text);
	return name == UINT32_MAX ? 0 : name;
}

static int add_pair(struct ptw_latency *l, const struct latency_open *open, const struct ptw_story_event *end)
{
	struct latency_thread *thread = open->thread;
	struct ptw_latency_pair pair = {
		.start = open->time, .duration = end->time > open->time ? end->time - open->time : 0,
		.cpu = open->cpu, .end_cpu = end->cpu, .pid = open->info->pid, .tid = open->info->tid,
		.end_tid = end->thread->info->tid, .has_id = l->options.by >= 0, .id = open->id,
	};
	const struct ptw_path_event *event = NULL;
	size_t count = 0;
	int ret;

	snprintf(pair.comm, sizeof(pair.comm), "%s", open->info->comm);
	if (ptw_spool_add(&l->durations, &pair.duration))
		return -1;
	l->count++;
	l->sum += pair.duration;
	if (!open->path_lost) {
		event = thread->log + (open->first - thread->log_first);
		count = log_end(thread) - open->first;
	}
	if (ptw_path_build(&l->scratch, event, count, pair.start, pair.start + pair.duration,
			   first_phase(l, open, event, count), open->id))
		return -1;
	pair.path = l->scratch;
	count_visits(l, &pair.path);
	ret = keep_worst(l, &pair) || keep_sample(l, &pair) ? -1 : 0;
	return ret;
}

static void remove_open(struct latency_open *open, size_t *count, size_t at)
{
	memmove(open + at, open + at + 1, (*count - at - 1) * sizeof(*open));
	--*count;
}

/* ---- starts by their ids ---- */

/* Where @id is, or the free slot where it belongs */
static size_t slot_of(const struct ptw_latency *l, uint64_t id)
{
	size_t h;

	for (h = id * 0x9e3779b97f4a7c15ULL >> 32 & (l->slots - 1); l->slot[h] && l->open[l->slot[h] - 1].id != id; )
		h = (h + 1) & (l->slots - 1);
	return h;
}

/* The start of that @id; NULL: there is none */
static const struct latency_open *find_open(const struct ptw_latency *l, uint64_t id)
{
	uint32_t at = l->open_count ? l->slot[slot_of(l, id)] : 0;

	return at ? &l->open[at - 1] : NULL;
}

/* The last start goes into its place, and in the hash those behind it that would not be found any more are put in again. */
static void remove_by_id(struct ptw_latency *l, uint64_t id)
{
	size_t h = slot_of(l, id), at = l->slot[h] - 1, last = --l->open_count;

	if (at != last) {
		l->slot[slot_of(l, l->open[last].id)] = at + 1;
		l->open[at] = l->open[last];
	}
	l->slot[h] = 0;
	for (h = (h + 1) & (l->slots - 1); l->slot[h]; h = (h + 1) & (l->slots - 1)) {
		uint32_t moved = l->slot[h];

		l->slot[h] = 0;
		l->slot[slot_of(l, l->open[moved - 1].id)] = moved;
	}
}

static void give_up_all(struct ptw_latency *l)
{
	size_t i;

	l->open_starts += l->open_count;
	for (i = 0; i < l->open_count; i++)
		end_by_id(l->open[i].thread);
	l->open_count = 0;
	memset(l->slot, 0, l->slots * sizeof(*l->slot));
}

static int add_by_id(struct ptw_latency *l, const struct latency_open *open)
{
	size_t i;

	if (l->open_count == MAX_OPEN)
		give_up_all(l);
	if (2 * l->open_count >= l->slots) {
		size_t slots = l->slots ? 2 * l->slots : 256;
		uint32_t *grown = calloc(slots, sizeof(*grown));

		if (!grown)
			return -1;
		free(l->slot);
		l->slot = grown;
		l->slots = slots;
		for (i = 0; i < l->open_count; i++)
			l->slot[slot_of(l, l->open[i].id)] = i + 1;
	}
	if (grow(&l->open, &l->open_room, l->open_count, sizeof(*l->open)))
		return -1;
	i = slot_of(l, open->id);
	l->open[l->open_count++] = *open;
	l->slot[i] = l->open_count;
	return 0;
}

static bool frame_runs(const struct ptw_story_thread *thread, uint64_t serial)
{
	size_t i;

	for (i = thread->frame_count; i-- > 0;)
		if (thread->frame[i].serial <= serial)
			return thread->frame[i].serial == serial;
	return false;
}

/* A start whose function is over, while a younger one found its end, got none. */
static void give_up(struct ptw_latency *l, struct latency_thread *thread)
{
	size_t i;

	if (!thread->paired_since && thread->open_count < MAX_OPEN)
		return;
	thread->paired_since = false;
	if (thread->open_count == MAX_OPEN) {
		l->open_starts += thread->open_count;
		thread->open_count = 0;
	}
	for (i = thread->open_count; i-- > 0;) {
		struct latency_open *open = &thread->open[i];

		thread->paired_since |= open->paired_since;
		if (open->paired_since && !(open->entry && frame_runs(thread->story, open->serial))) {
			l->open_starts++;
			remove_open(thread->open, &thread->open_count, i);
		}
	}
}

static int take_start(struct ptw_latency *l, struct latency_thread *thread, const struct ptw_story_event *event)
{
	struct latency_open open = {
		.thread = thread, .info = event->thread->info, .time = event->time, .first = log_end(thread), .cpu = event->cpu,
		.phase_marker = event->value,
	};

	if (!thread->started) {
		thread->started = true;
		thread->first = event->time;
		thread->first_off_cpu = event->thread->off_cpu;
	}
	if (l->options.by >= 0) {
		const struct latency_open *old;

		open.id = id_of(l, event);
		thread->by_id++;
		old = find_open(l, open.id);
		/* The same id begins anew: the old one never ended. */
		if (old) {
			l->open_starts++;
			end_by_id(old->thread);
			remove_by_id(l, open.id);
		}
		return add_by_id(l, &open);
	}
	give_up(l, thread);
	if (event->kind == PTW_STORY_ENTER) {
		open.entry = true;
		open.serial = event->frame->serial;
	}
	if (grow(&thread->open, &thread->open_room, thread->open_count, sizeof(*thread->open)))
		return -1;
	thread->open[thread->open_count++] = open;
	return 0;
}

static int take_end_by_id(struct ptw_latency *l, const struct ptw_story_event *event)
{
	uint64_t id = id_of(l, event);
	const struct latency_open *open = find_open(l, id);
	struct latency_thread *thread;

	if (!open) {
		l->lone_ends++;
		return 0;
	}
	if (add_pair(l, open, event))
		return -1;
	thread = open->thread;
	remove_by_id(l, id);
	trim_log(l, thread);
	end_by_id(thread);
	return 0;
}

static int take_end(struct ptw_latency *l, struct latency_thread *thread, const struct ptw_story_event *event)
{
	size_t i, newest;

	if (l->options.by >= 0)
		return take_end_by_id(l, event);
	if (!thread->open_count) {
		l->lone_ends++;
		return 0;
	}
	newest = thread->open_count - 1;
	/* The return of a function ends the start that its own entry was. */
	if (event->kind == PTW_STORY_LEAVE && l->options.from.kind == PTW_POINT_ENTRY &&
	    ptw_function_equal(&l->options.from.function, &l->options.to.function)) {
		while (newest && thread->open[newest].serial != event->frame->serial)
			newest--;
		if (thread->open[newest].serial != event->frame->serial) {
			l->lone_ends++;
			return 0;
		}
	}
	if (add_pair(l, &thread->open[newest], event))
		return -1;
	remove_open(thread->open, &thread->open_count, newest);
	for (i = 0; i < newest; i++)
		thread->open[i].paired_since = true;
	thread->paired_since |= newest > 0;
	trim_log(l, thread);
	return 0;
}

/* The time of interrupts, to know what is usual where pairs are. */
static int count_load(struct ptw_latency *l, struct latency_thread *thread, const struct ptw_story_event *event)
{
	const struct ptw_frame *frame = event->frame;
	uint32_t name;
	char buf[PTW_FRAME_NAME];

	thread->last = event->time;
	thread->off_cpu = event->thread->off_cpu;
	if (event->kind != PTW_STORY_LEAVE || frame->kind != PTW_FRAME_INTERRUPT || event->cut || !thread->started)
		return 0;
	name = ptw_path_name(&l->names, ptw_frame_name(frame, buf, sizeof(buf)));
	if (name == UINT32_MAX)
		return -1;
	l->names.name[name].interrupted += frame->on_cpu;
	return 0;
}

static void sum_up(struct ptw_latency *l, const struct latency_thread *thread)
{
	uint64_t time = thread->last > thread->first ? thread->last - thread->first : 0;

	l->open_starts += thread->open_count;
	if (thread->started && time > thread->off_cpu - thread->first_off_cpu)
		l->load.time += time - (thread->off_cpu - thread->first_off_cpu);
}

/* The thread has exited. Another one may still end what it started. */
static void forget(struct ptw_latency *l, struct latency_thread *thread)
{
	sum_up(l, thread);
	thread->started = false;
	thread->open_count = 0;
	thread->story = NULL;
	if (!thread->by_id)
		free_thread(thread);
}

int ptw_latency_take(struct ptw_latency *l, const struct ptw_story_event *event)
{
	struct latency_thread *thread = thread_of(l, event->thread);
	bool logged = false;

	if (thread && event->kind == PTW_STORY_OVER) {
		forget(l, thread);
		return 0;
	}
	if (!thread || count_load(l, thread, event))
		return -1;
	/* A function that is left goes on until then; the end comes before what follows it. */
	if (ptw_point_matches(&l->options.to, &l->options.format, event)) {
		if (take_end(l, thread, event))
			return -1;
	}
	if (ptw_point_matches(&l->options.from, &l->options.format, event)) {
		if (take_start(l, thread, event))
			return -1;
		/* The marker itself begins the first phase, and is none. */
		logged = event->kind == PTW_STORY_MARKER;
	}
	if (!thread->open_count && !thread->by_id) {
		thread->log_first += thread->log_count;
		thread->log_count = thread->trim_at = 0;
		return 0;
	}
	return logged ? 0 : add_log(l, thread, event);
}

/* ---- the end ---- */

static int worst_first(const void *a, const void *b)
{
	const struct ptw_latency_pair *pa = *(struct ptw_latency_pair *const *)a, *pb = *(struct ptw_latency_pair *const *)b;

	return longer(pa, pb) ? -1 : longer(pb, pa);
}

static int find_typical(struct ptw_latency *l)
{
	uint64_t median = ptw_latency_percentile(l, 5000);
	size_t i;

	for (i = 0; i < l->sample_count; i++) {
		if (l->sample[i].duration > median)
			continue;
		if (ptw_path_add(&l->typical, &l->sample[i].path))
			return -1;
		l->typical_count++;
	}
	return 0;
}

bool ptw_latency_rare(const struct ptw_latency *l, uint32_t name)
{
	uint64_t limit = l->count / 100 > 1 ? l->count / 100 : 1;

	return l->count > 1 && l->names.name[name].pairs <= limit;
}

/* Whoever sleeps does it in the scheduler: that says nothing. */
static bool is_scheduler(const char *name)
{
	return strstr(name, "schedule") || strstr(name, "__switch_to");
}

static int choose_named(const struct ptw_latency *l, const struct ptw_latency_pair *pair)
{
	const struct ptw_culprit *culprit = &pair->culprit;
	int i, last = -1;

	for (i = 0; i < (int)culprit->depth; i++) {
		const struct ptw_path_node *node = &pair->path.node[culprit->chain[i]];

		if (node->kind == PTW_PATH_PHASE || node->kind == PTW_PATH_OUT ||
		    (culprit->kind == PTW_PATH_OUT && is_scheduler(l->names.name[node->name].text)))
			continue;
		if (ptw_latency_rare(l, node->name) || last < 0 ||
		    !ptw_latency_rare(l, pair->path.node[culprit->chain[last]].name))
			last = i;
	}
	return last;
}

int ptw_latency_end(struct ptw_latency *l)
{
	struct latency_thread *thread;
	size_t i;

	l->duration = ptw_spool_end(&l->durations);
	if (!l->duration && l->count)
		return -1;
	if (l->worst_count)
		qsort(l->worst, l->worst_count, sizeof(struct ptw_latency_pair *), worst_first);
	LIST_FOREACH(thread, &l->threads, next)
		sum_up(l, thread);
	l->open_starts += l->open_count;
	l->load.names = &l->names;
	if (find_typical(l))
		return -1;
	for (i = 0; i < l->worst_count; i++) {
		ptw_path_blame(&l->worst[i]->path, &l->typical, l->typical_count, &l->load, &l->worst[i]->culprit);
		l->worst[i]->named = choose_named(l, l->worst[i]);
	}
	return 0;
}

uint64_t ptw_latency_count(const struct ptw_latency *l)
{
	return l->count;
}

void ptw_latency_unmatched(const struct ptw_latency *l, uint64_t *starts, uint64_t *ends)
{
	*starts = l->open_starts;
	*ends = l->lone_ends;
}

#define DROP_DURATIONS	(1u << 18)	/* after so many what was read need not stay in memory */

/* In turn, from the first on */
static uint64_t duration_at(const struct ptw_latency *l, size_t i)
{
	if (!(i % DROP_DURATIONS))
		ptw_spool_drop(&l->durations);
	return l->duration[i];
}

/*
 * Of so many that they are in a file none is moved: one byte after the other, from the highest, it is counted how many of
 * those that begin with the bytes so far have which one.
 */
uint64_t ptw_latency_percentile(const struct ptw_latency *l, unsigned int permyriad)
{
	uint64_t rank = ((uint64_t)l->count * permyriad + 9999) / 10000, value = 0;
	size_t i;
	int shift;

	if (!l->count)
		return 0;
	rank -= rank > 0;
	for (shift = 56; shift >= 0; shift -= 8) {
		uint64_t count[256] = { 0 }, known = shift < 56 ? ~0ULL << (shift + 8) : 0;
		unsigned int byte;

		for (i = 0; i < l->count; i++) {
			uint64_t duration = duration_at(l, i);

			if ((duration & known) == value)
				count[duration >> shift & 0xff]++;
		}
		for (byte = 0; rank >= count[byte]; byte++)
			rank -= count[byte];
		value |= (uint64_t)byte << shift;
	}
	return value;
}

uint64_t ptw_latency_mean(const struct ptw_latency *l)
{
	return l->count ? l->sum / l->count : 0;
}

static unsigned int bits_of(uint64_t value)
{
	return value ? 64 - __builtin_clzll(value) : 0;
}

size_t ptw_latency_buckets(const struct ptw_latency *l, struct ptw_latency_bucket *bucket, size_t max)
{
	unsigned int first, last, bits;
	size_t i, count;

	if (!l->count)
		return 0;
	first = bits_of(ptw_latency_percentile(l, 0));
	last = bits_of(ptw_latency_percentile(l, 10000));
	if (last - first >= max)
		last = first + max - 1;
	count = last - first + 1;
	for (bits = first; bits <= last; bits++)
		bucket[bits - first] = (struct ptw_latency_bucket){
			.low = bits ? 1ull << (bits - 1) : 0, .high = bits < 64 ? 1ull << bits : UINT64_MAX,
		};
	for (i = 0; i < l->count; i++) {
		bits = bits_of(duration_at(l, i));
		bucket[(bits > last ? last : bits) - first].count++;
	}
	return count;
}

size_t ptw_latency_worst(const struct ptw_latency *l, const struct ptw_latency_pair ***pair)
{
	*pair = (const struct ptw_latency_pair **)l->worst;
	return l->worst_count;
}

const struct ptw_path_names *ptw_latency_names(const struct ptw_latency *l)
{
	return &l->names;
}
