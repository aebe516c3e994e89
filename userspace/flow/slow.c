// SPDX-License-Identifier: BSD-2-Clause
#include "flow/slow.h"

#include <stdlib.h>
#include <string.h>

#include "decode/event.h"
#include "decode/ipt.h"
#include "flow/mend.h"

/* Blocks behind the last packet of a stretch in which the next PSB's address has to be */
#define TAIL_BLOCKS	8

struct slow_image {
	struct pt_image_section_cache *cache;
	struct pt_image *image;
	struct code_view *view;
	uint64_t missed;	/* where there was no code when it was read last */
	/* Those that run: */
	struct slow *slow;
	struct engine *engine;
	struct walk *walk;
};

struct slow {
	struct pt_block_decoder *block;
	struct mend mend;
	size_t start, end;	/* the stretch */
	size_t cut;		/* where a packet begins that the trace does not have all of; 0: none does */
	int status;
	bool synced, done;
	bool packets_over;	/* only the tail is left */
	bool tracing;
	unsigned int tail;
	uint64_t skip_insns;	/* told by the engine */
	uint32_t skip_events, skip_modes;
	bool have_pending;	/* the last instruction of @pending is a branch that went to the next block */
	bool pending_skipped;
	struct path pending;	/* a copy: paths may be gone by then */
	bool was_loop;		/* the last path was an endless one, and no event came since */
	bool unsettled;		/* kernel code may have run since user code did, or others have used the paths */
	bool at_cr3;		/* the last instruction is a MOV CR3 */
	bool paged;		/* and a PIP told what it wrote */
	struct ptw_clock clock;	/* its own: the sink's is ahead where this was told before */
	bool timed;
	uint64_t now;		/* ns */
	unsigned int bits;
	uint64_t last_ip;
	uint64_t next_ip;	/* behind @last_ip, where it is no branch */
};

/* ---- code ---- */

/* What is at @ip is to be read. Only user code tells that no switch is under way, so who runs is decided no sooner. */
static void settle(struct slow *slow, struct engine *e, struct walk *walk, uint64_t ip)
{
	if (!slow->unsettled || ip & CODE_KERNEL_HALF)
		return;
	engine_who_now(&e->who, walk, slow->timed, slow->now);
	slow->unsettled = false;
}

/* What no section has: the code of processes, and all that changes. */
static int read_code(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
	struct slow_image *image = context;
	size_t n;

	settle(image->slow, image->engine, image->walk, ip);
	n = code_read(image->view, ip, buffer, size);
	if (!n)
		image->missed = ip;
	return n ? (int)n : -pte_nomap;
}

struct slow_image *slow_image_new(const struct ptw_recording *rec, struct code_view *view)
{
	struct slow_image *image = calloc(1, sizeof(*image));
	uint64_t limit = 64u << 20;

	if (!image)
		return NULL;
	image->view = view;
	image->cache = pt_iscache_alloc(NULL);
	image->image = pt_image_alloc(NULL);
	if (!image->cache || !image->image) {
		slow_image_free(image);
		return NULL;
	}
	pt_image_set_callback(image->image, read_code, image);
	if (code_view_next_change(view) != CODE_ALWAYS)
		return image;
	/*
	 * Each section costs its size and about five times that for libipt's block cache. Below the sum libipt
	 * maps and unmaps sections all the time, which is many times slower.
	 */
	for (size_t i = 0; i < rec->image.count; i++)
		if (rec->image.section[i].size < 1u << 30)
			limit += rec->image.section[i].size * 16;
	pt_iscache_set_limit(image->cache, limit);
	for (size_t i = 0; i < rec->image.count; i++) {
		const struct ptw_image_section *section = &rec->image.section[i];
		int isid;

		if (!code_view_is_flat(view, section->vaddr))
			continue;
		isid = pt_iscache_add_file(image->cache, section->path, section->offset, section->size,
					   section->vaddr);
		if (isid > 0)
			pt_image_add_cached(image->image, image->cache, isid, NULL);
	}
	return image;
}

void slow_image_free(struct slow_image *image)
{
	if (!image)
		return;
	pt_image_free(image->image);
	pt_iscache_free(image->cache);
	free(image);
}

/* ---- beginning and end ---- */

/* The last packet of the trace, which begins in a stretch from @start on, if it is not all there; 0: it is */
static size_t find_cut(const struct engine *e, size_t start)
{
	struct pt_packet_decoder *packets;
	struct pt_packet packet;
	struct pt_config config;
	uint64_t at = start;
	int status;

	ipt_config(&config, e->params, e->data, e->size, NULL);
	packets = pt_pkt_alloc_decoder(&config);
	status = packets ? pt_pkt_sync_set(packets, start) : -pte_nomem;
	/* Of an OVF behind a CYC that it cut off (SKD007) libipt tells a size that is one byte short of what it passed. */
	while (status >= 0 && at < e->size) {
		status = pt_pkt_next(packets, &packet, sizeof(packet));
		if (status >= 0)
			pt_pkt_get_offset(packets, &at);
	}
	pt_pkt_free_decoder(packets);
	return status == -pte_eos && at < e->size ? at : 0;
}

struct slow *slow_new(struct engine *e, struct sink *s)
{
	struct slow *slow = calloc(1, sizeof(*slow));
	struct pt_config config;

	if (!slow)
		return NULL;
	slow->start = e->psb;
	slow->end = ipt_next_psb(e->data, e->end, e->psb + 16);
	slow->skip_insns = s->insns - e->psb_insns;
	slow->skip_events = s->event_insns == s->insns ? s->events : 0;
	slow->skip_modes = s->event_insns == s->insns ? s->modes : 0;
	slow->bits = e->params->bits ? e->params->bits : 64;
	/* libipt's block decoder ends there without a word, as where there are no more packets. */
	slow->cut = slow->end == e->size ? find_cut(e, slow->start) : 0;
	/* Errata are those of the CPU, known since the recording was opened. */
	if (!mend_stretch(&slow->mend, e, slow->start, slow->cut ? slow->cut : slow->end)) {
		slow_free(slow);
		return NULL;
	}
	if (slow->mend.copy)
		ipt_config(&config, e->params, slow->mend.copy, slow->mend.size, NULL);
	else
		ipt_config(&config, e->params, e->data, slow->mend.distrust ? slow->mend.distrust : slow->cut ? slow->cut : slow->end, NULL);
	ipt_newer_flags(&config);
	slow->block = pt_blk_alloc_decoder(&config);
	if (!slow->block) {
		slow_free(slow);
		return NULL;
	}
	s->insns = e->psb_insns;
	/* Back to who ran there, and to the code of that time. */
	slow->clock = s->clock;
	slow->clock.newest = 0;
	e->who.runs = e->psb_runs;
	return slow;
}

size_t slow_end(const struct slow *slow)
{
	return slow->end;
}

void slow_free(struct slow *slow)
{
	if (!slow)
		return;
	pt_blk_free_decoder(slow->block);
	free(slow->mend.copy);
	free(slow);
}

static uint64_t offset_of(const struct slow *slow)
{
	uint64_t offset;

	if (pt_blk_get_offset(slow->block, &offset) < 0)
		return slow->start;
	if (!slow->mend.copy)
		return offset;
	return slow->start + offset - (offset ? slow->mend.inserted : 0);
}

/*
 * libipt reads ahead, and may notice damage before it has used up what came before it: the engine then has
 * told more, which stays.
 */
static void keep_ahead(struct slow *slow, struct sink *s)
{
	s->insns += slow->skip_insns;
	slow->skip_insns = 0;
}

static void put_gap(struct slow *slow, struct engine *e, struct sink *s, const char *text, uint64_t offset)
{
	struct ptw_flow *f;
	uint64_t ip = 0;

	keep_ahead(slow, s);
	f = sink_put(s, PTW_FLOW_GAP, s->insns);

	f->event = PTW_EVENT_OTHER;
	f->bits = slow->bits;
	f->from = slow->last_ip;
	engine_psb_ip(e->data, e->size, slow->end, &ip);
	f->to = ip;
	f->text = text;
	f->offset = offset;
	f->value = slow->end > offset ? slow->end - offset : 0;
	s->errors++;
	s->lost += f->value;
	slow->have_pending = false;
	slow->done = true;
	/* Told with it */
	slow->mend.distrust = 0;
	slow->cut = 0;
}

/* ---- paths ---- */

static void arrive(struct slow *slow, struct sink *s, uint64_t ip)
{
	const struct path *path = &slow->pending;
	bool told = slow->have_pending && !slow->pending_skipped;

	slow->have_pending = false;
	if (!told)
		return;
	if (path->end == PATH_COND && ip == path->next)
		return;
	sink_end(s, path, ip, ip ? walk_path(s->walk, ip, slow->bits) : NULL);
}

/* The same where no block came: libipt may not have got away from the branch, and then tells its address. */
static void arrive_at_end(struct slow *slow, struct sink *s, uint64_t ip)
{
	if (slow->have_pending && ip && ip != slow->pending.last)
		arrive(slow, s, ip);
	slow->have_pending = false;
}

/*
 * Instructions up to @to - 1, as far as they were not told before
 * @cut: libipt's block ends there, with no branch: what it has read before decides where
 */
static void deliver(struct slow *slow, struct engine *e, struct sink *s, struct path *path, unsigned int to, bool cut)
{
	unsigned int from = 0;

	if (slow->skip_insns) {
		from = slow->skip_insns < to ? slow->skip_insns : to;
		slow->skip_insns -= from;
		s->insns += from;
	}
	if (from < to) {
		slow->skip_events = slow->skip_modes = 0;
		sink_path(s, path, from, to);
		if (cut)
			sink_goes_on(s);
	}
	if (to == path->count && path->end < PATH_LONG) {
		slow->have_pending = true;
		slow->pending = *path;
		slow->pending_skipped = from == to;
		slow->unsettled |= path->end >= PATH_FAR_CALL;
	}
	if (to) {
		slow->last_ip = path_ip(path, to - 1);
		slow->next_ip = to < path->count ? path_ip(path, to) : path->next;
		slow->at_cr3 = path->insn[to - 1].kind == INSN_CR3;
		slow->paged = false;
	}
}

/*
 * The first @count instructions of @path: do they enter __switch_to_asm, at the beginning or by a direct call? Where the
 * call is the last of them, the next path begins there: it would be counted twice.
 */
static void switch_stack(const struct slow *slow, struct engine *e, const struct path *path, unsigned int count)
{
	uint64_t switch_to = e->who.switch_to;
	bool enters = path->ip == switch_to;

	for (unsigned int n = 0; n < path->inner && path->branch[n] + 1u < count; n++)
		enters |= path_branch_target(path, path->branch[n]) == switch_to;
	if (switch_to && enters)
		flow_runs_switch(&e->who.runs, slow->timed, slow->now);
}

/*
 * @count instructions from @ip. With @until they end before that address. Return: false: something is wrong
 * with them, or, with @until, it does not come.
 */
static bool take_block(struct slow *slow, struct engine *e, struct sink *s, uint64_t ip, unsigned int count,
		       const uint64_t *until, bool speculative)
{
	/* The branch that led here is of the block before. */
	arrive(slow, s, ip);
	s->speculative = speculative;
	settle(slow, e, s->walk, ip);
	while (count) {
		struct path *path = walk_path(s->walk, ip, slow->bits);
		unsigned int n;

		if (!path) {
			s->failed = true;
			return false;
		}
		if (!path->count) {
			put_gap(slow, e, s, walk_doubt(s->walk, ip, false), offset_of(slow));
			return false;
		}
		n = count < path->count ? count : path->count;
		switch_stack(slow, e, path, n);
		for (unsigned int i = 0; until && i < n; i++) {
			if (path_ip(path, i) == *until) {
				deliver(slow, e, s, path, i, false);
				slow->have_pending = false;
				slow->done = true;
				return true;
			}
		}
		if (path->end == PATH_LOOP && slow->was_loop) {
			put_gap(slow, e, s, "endless loop in the code that asks for no packet", offset_of(slow));
			return false;
		}
		deliver(slow, e, s, path, n, n < path->count);
		slow->was_loop = path->end == PATH_LOOP && n == path->count;
		count -= n;
		ip = path->next;
		if (count && path->end < PATH_LONG) {
			put_gap(slow, e, s, walk_doubt(s->walk, path->last, true), offset_of(slow));
			return false;
		}
	}
	return true;
}

/*
 * libipt has tracing end at the MOV CR3 before a TIP.PGD without an address. One that leads to a context that is not
 * traced does that (the CR3 filter), but tells no PIP (see take_pgd() in engine.c). With a PIP, it is on the way from the
 * kernel, which alone is traced, to user code under page table isolation: tracing ends with the far branch.
 */
static void leave_kernel(struct slow *slow, struct engine *e, struct sink *s)
{
	struct path *path = walk_path(s->walk, slow->next_ip, slow->bits);

	if (!path)
		s->failed = true;
	else if (path->end >= PATH_FAR_CALL && path->end <= PATH_FAR_JUMP)
		deliver(slow, e, s, path, path->count, false);
}

/* ---- events ---- */

static void put_event(struct slow *slow, struct sink *s, const struct ptw_event *event)
{
	bool off = event->type == PTW_EVENT_DISABLED || event->type == PTW_EVENT_ASYNC_DISABLED;
	bool async = event->type == PTW_EVENT_ASYNC_DISABLED || event->type == PTW_EVENT_ASYNC_BRANCH;
	bool totals = s->mode <= SINK_IPS;
	struct ptw_flow *f;

	if (async) {
		s->branches++;
		if (!totals) {
			f = sink_put(s, PTW_FLOW_INTERRUPT, s->insns);
			f->bits = slow->bits;
			f->from = event->from;
			f->to = event->has_ip ? event->ip : 0;
		}
		if (!off)
			return;
	}
	if (event->type == PTW_EVENT_ENABLED) {
		f = sink_put(s, PTW_FLOW_BEGIN, s->insns);
		f->to = event->ip;
		f->value = event->value;
	} else if (off) {
		f = sink_put(s, PTW_FLOW_END, s->insns);
		f->from = async ? event->from : slow->last_ip;
		f->to = event->has_ip ? event->ip : 0;
		f->value = async;
	} else if (event->type == PTW_EVENT_OVERFLOW) {
		f = sink_put(s, PTW_FLOW_GAP, s->insns);
		f->event = PTW_EVENT_OVERFLOW;
		f->text = "overflow: the CPU dropped packets";
		f->to = event->has_ip ? event->ip : 0;
		s->overflows++;
	} else if (!totals) {
		f = sink_put(s, event->type == PTW_EVENT_PTWRITE ? PTW_FLOW_MARKER : PTW_FLOW_EVENT, s->insns);
		f->event = event->type;
		f->from = event->has_ip ? event->ip : 0;
		f->value = event->value;
	} else {
		return;
	}
	f->bits = slow->bits;
	f->offset = offset_of(slow);
}

static void tell_event(struct slow *slow, struct engine *e, struct sink *s, const struct pt_event *in)
{
	struct ptw_event event;
	uint32_t *told;
	bool async;

	ipt_event(in, &event);
	if (in->has_tsc) {
		s->tsc = !s->timed || in->tsc > s->tsc || s->tsc - in->tsc > 1u << 20 ? in->tsc : s->tsc;
		s->timed = true;
	}
	if (event.type == PTW_EVENT_ENABLED || event.type == PTW_EVENT_OVERFLOW) {
		slow->tracing = event.type == PTW_EVENT_ENABLED || event.has_ip;
		e->who.runs.begun = true;
	}
	if (event.type == PTW_EVENT_DISABLED || event.type == PTW_EVENT_ASYNC_DISABLED)
		slow->tracing = false;
	if (event.type == PTW_EVENT_EXEC_MODE)
		slow->bits = event.value;
	if (event.status_update)
		return;
	slow->was_loop = false;
	slow->unsettled = true;
	async = event.type == PTW_EVENT_ASYNC_DISABLED || event.type == PTW_EVENT_ASYNC_BRANCH;
	if (event.type == PTW_EVENT_PAGING)
		slow->paged = slow->at_cr3;
	else if (event.type == PTW_EVENT_DISABLED && !event.has_ip && slow->at_cr3 && slow->paged)
		leave_kernel(slow, e, s);
	if (async || event.type == PTW_EVENT_DISABLED)
		arrive(slow, s, async ? event.from : event.has_ip ? event.ip : 0);
	else if (event.type == PTW_EVENT_ENABLED || event.type == PTW_EVENT_OVERFLOW)
		slow->have_pending = false;
	if (event.type == PTW_EVENT_CBR || event.type == PTW_EVENT_OTHER)
		return;
	/* The engine stops there. */
	if (event.type == PTW_EVENT_OVERFLOW) {
		keep_ahead(slow, s);
		slow->skip_events = slow->skip_modes = 0;
	}
	told = event.type == PTW_EVENT_EXEC_MODE ? &slow->skip_modes : &slow->skip_events;
	if (slow->skip_insns)
		return;
	if (*told) {
		--*told;
		return;
	}
	sink_event_count(s, event.type == PTW_EVENT_EXEC_MODE);
	put_event(slow, s, &event);
}

static void take_event(struct slow *slow, struct engine *e, struct sink *s)
{
	struct pt_event in;

	memset(&in, 0xff, sizeof(in));
	slow->status = pt_blk_event(slow->block, &in, sizeof(in));
	/* The status may be of what comes behind it. */
	if (slow->status >= 0 || (int)in.type != -1)
		tell_event(slow, e, s, &in);
	if (slow->status >= 0)
		return;
	if (slow->status != -pte_eos)
		put_gap(slow, e, s, pt_errstr(pt_errcode(slow->status)), offset_of(slow));
	slow->done = true;
}

/* ---- the stretch ---- */

static void set_time(struct slow *slow, struct engine *e, struct sink *s)
{
	uint32_t lost_mtc, lost_cyc;
	uint64_t tsc;

	if (pt_blk_time(slow->block, &tsc, &lost_mtc, &lost_cyc) >= 0) {
		s->tsc = !s->timed || tsc > s->tsc || s->tsc - tsc > 1u << 20 ? tsc : s->tsc;
		s->timed = true;
		slow->now = ptw_clock_ns(&slow->clock, tsc);
		slow->timed = true;
	}
	sink_time(s);
	if (e->next_change <= slow->now && slow->timed) {
		walk_time(s->walk, slow->now);
		e->next_change = walk_next_change(s->walk);
	}
}

/* The block decoder can't go on; where a file is missing, that is what is said. */
static void put_error(struct slow *slow, struct engine *e, struct sink *s, const struct slow_image *image)
{
	const char *text = slow->status == -pte_nomap ? code_missing(image->view, image->missed) : NULL;

	if (text)
		slow->last_ip = image->missed;
	put_gap(slow, e, s, text ? text : pt_errstr(pt_errcode(slow->status)), offset_of(slow));
}

static void next_block(struct slow *slow, struct engine *e, struct sink *s, const struct slow_image *image)
{
	struct pt_block in = { .ninsn = 0 };
	const uint64_t *until = NULL;
	uint64_t ip;

	set_time(slow, e, s);
	if (slow->packets_over &&
	    (slow->end == e->size || slow->mend.distrust || (slow->tracing && !engine_psb_ip(e->data, e->size, slow->end, &ip)))) {
		/* What would come may not have been executed any more; but that is where the last branch went. */
		slow->status = pt_blk_next(slow->block, &in, sizeof(in));
		arrive_at_end(slow, s, in.ip);
		slow->done = true;
		return;
	}
	if (slow->packets_over) {
		if (!slow->tracing) {
			slow->done = true;
			return;
		}
		until = &ip;
	}
	slow->status = pt_blk_next(slow->block, &in, sizeof(in));
	if (in.ninsn) {
		if (in.mode != ptem_unknown)
			slow->bits = in.mode == ptem_64bit ? 64 : in.mode == ptem_32bit ? 32 : 16;
		take_block(slow, e, s, in.ip, in.ninsn, until, in.speculative);
	} else if (until && in.ip == ip) {
		slow->done = true;
	}
	if (slow->done)
		return;
	if (slow->status >= 0) {
		if (until && ++slow->tail == TAIL_BLOCKS)
			put_gap(slow, e, s, "the flow does not lead to where the next PSB is", slow->end);
		return;
	}
	if (slow->status == -pte_eos || (until && slow->status == -pte_nomap)) {
		if (until)
			put_gap(slow, e, s, "the flow does not lead to where the next PSB is", slow->end);
		slow->packets_over = true;
		slow->done |= slow->end == e->size || slow->mend.distrust;
		return;
	}
	if (!in.ninsn)
		arrive_at_end(slow, s, in.ip);
	slow->last_ip = in.ninsn ? in.end_ip : in.ip ? in.ip : slow->last_ip;
	put_error(slow, e, s, image);
}

enum engine_status slow_run(struct slow *slow, struct engine *e, struct sink *s, struct slow_image *image,
			    size_t room)
{
	uint64_t ip;

	sink_time(s);
	walk_time(s->walk, slow->timed ? slow->now : s->timed ? s->time : 0);
	e->next_change = slow->timed ? walk_next_change(s->walk) : 0;
	slow->unsettled = true;
	image->slow = slow;
	image->engine = e;
	image->walk = s->walk;
	pt_blk_set_image(slow->block, image->image);
	if (!slow->synced) {
		slow->synced = true;
		slow->tracing = engine_psb_ip(e->data, e->size, slow->start, &ip);
		if (slow->tracing && e->begins) {
			struct ptw_flow *f;

			/* libipt doesn't tell it before the first branch. */
			if (!s->timed && engine_psb_tsc(e->data, e->size, slow->start, &s->tsc))
				s->timed = true;
			f = sink_put(s, PTW_FLOW_BEGIN, s->insns);
			f->bits = slow->bits;
			f->to = ip;
			e->who.runs.begun = true;
		}
		e->begins = false;
		slow->status = pt_blk_sync_set(slow->block, slow->mend.copy ? 0 : slow->start);
		if (slow->status < 0 && slow->status != -pte_eos)
			put_gap(slow, e, s, pt_errstr(pt_errcode(slow->status)), slow->start);
		slow->done |= slow->status < 0;
	}
	while (!slow->done && !s->failed) {
		if (s->count >= room || s->text_used >= room * sizeof(struct ptw_flow))
			return ENGINE_MORE;
		if (slow->status & pts_event_pending)
			take_event(slow, e, s);
		else if (slow->status & pts_eos && !slow->packets_over) {
			slow->packets_over = true;
		} else
			next_block(slow, e, s, image);
	}
	keep_ahead(slow, s);
	if (slow->mend.distrust && !s->failed) {
		s->overflows++;
		put_gap(slow, e, s, "overflow: the CPU dropped packets, among them where it went on", slow->mend.distrust);
	}
	if (slow->cut && !s->failed)
		put_gap(slow, e, s, PTW_GAP_CUT, slow->cut);
	s->speculative = false;
	return ENGINE_END;
}
