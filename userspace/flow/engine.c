// SPDX-License-Identifier: BSD-2-Clause
#include "flow/engine.h"

#include "decode/ipt.h"

/* Long and looping paths on the way to an address that a packet names */
#define MAX_HOPS	64

/* ---- processes ---- */

void engine_who_now(struct engine_who *who, struct walk *walk, bool timed, uint64_t time)
{
	if (timed)
		flow_runs_until(&who->runs, time, true);
	if (!timed)
		time = CODE_ALWAYS;
	walk_space(walk, code_space_at(who->code, who->runs.pid, time), time);
}

/* ---- paths ---- */

void engine_start(struct engine *e, size_t psb, size_t end)
{
	e->at = e->psb = psb;
	e->psb_runs = e->who.runs;
	e->end = end;
	e->path = NULL;
	e->bits = e->params->bits ? e->params->bits : 64;
	e->have_fup = e->have_ptw = e->have_cr3 = false;
	e->new_bits = 0;
	e->call_count = 0;
	e->filtered = false;
	for (int i = 0; i < PTW_ADDR_RANGES; i++)
		e->filtered |= e->params->addr[i].cfg != 0;
	e->have_tsc = e->have_ctc = e->have_mtc = e->cyc_running = false;
	e->tsc_per_cycle = 0;
}

static void note_switch(struct engine *e, struct sink *s)
{
	sink_time(s);
	flow_runs_switch(&e->who.runs, s->timed, s->time);
}

static struct path *path_at(struct engine *e, struct sink *s, uint64_t ip)
{
	struct path *path;

	if (!(ip & CODE_KERNEL_HALF) && (!e->path || e->path->ip & CODE_KERNEL_HALF)) {
		sink_time(s);
		engine_who_now(&e->who, s->walk, s->timed, s->time);
		e->next_change = walk_next_change(s->walk);
	} else if (ip == e->who.switch_to && ip) {
		note_switch(e, s);
	}
	path = walk_path(s->walk, ip, e->bits);
	if (!path)
		s->failed = true;
	return path;
}

static inline void push(struct engine *e, uint64_t ret)
{
	e->calls[e->call_top++ % ENGINE_CALLS] = ret;
	if (e->call_count < ENGINE_CALLS)
		e->call_count++;
}

/* Calls among instructions @from to @to - 1 */
static void __attribute__((noinline)) push_inner(struct engine *e, struct sink *s, const struct path *path,
						 unsigned int from, unsigned int to)
{
	for (unsigned int n = 0; n < path->inner; n++) {
		unsigned int i = path->branch[n];
		uint64_t target;

		if (i < from || i >= to)
			continue;
		if (path->insn[i].kind == INSN_CALL)
			push(e, path_ip(path, i) + path->insn[i].size);
		target = path_branch_target(path, i);
		if (target == e->who.switch_to && target)
			note_switch(e, s);
	}
}

static inline void execute(struct engine *e, struct sink *s, unsigned int to)
{
	if (e->path->calls)
		push_inner(e, s, e->path, e->pos, to);
	sink_path(s, e->path, e->pos, to);
	e->pos = to;
}

/* To the end of a path that asks for a packet. Return: whether there is one. */
static inline bool reach_end(struct engine *e, struct sink *s)
{
	unsigned int hops = 0;

	while (e->path && e->path->end == PATH_LONG && hops++ < MAX_HOPS) {
		execute(e, s, e->path->count);
		e->path = path_at(e, s, e->path->next);
		e->pos = 0;
	}
	return e->path && e->path->end < PATH_LONG;
}

/* A place on the way of the current path; found without executing anything. */
struct place {
	unsigned int hops;	/* whole paths before it */
	unsigned int index;	/* of an instruction in the path after these */
	uint64_t ip;
};

static bool find_place(struct engine *e, struct sink *s, struct place *place, uint64_t ip, int kind)
{
	struct path *path = e->path;
	unsigned int i = e->pos;

	for (place->hops = 0; path && place->hops < MAX_HOPS; place->hops++, i = 0) {
		for (; i < path->count; i++) {
			if (kind < 0 ? path_ip(path, i) == ip : path->insn[i].kind == kind) {
				place->index = i;
				place->ip = path_ip(path, i);
				return true;
			}
		}
		if (kind < 0 && path->end == PATH_NOWHERE && path->next == ip) {
			place->index = i;
			return true;
		}
		if (path->end != PATH_LONG && path->end != PATH_LOOP)
			return false;
		path = walk_path(s->walk, path->next, e->bits);
	}
	return false;
}

static bool go(struct engine *e, struct sink *s, const struct place *place, unsigned int more)
{
	for (unsigned int i = 0; i < place->hops; i++) {
		execute(e, s, e->path->count);
		e->path = path_at(e, s, e->path->next);
		e->pos = 0;
		if (!e->path)
			return false;
	}
	execute(e, s, place->index + more);
	return true;
}

/* Execute what comes before the instruction at @ip. Return: false: the path doesn't lead there. */
static bool reach_ip(struct engine *e, struct sink *s, uint64_t ip)
{
	struct place place;

	return find_place(e, s, &place, ip, -1) && go(e, s, &place, 0);
}

/* Execute up to and with the first instruction of @kind. Return: false: there is none on the path. */
static bool reach_kind(struct engine *e, struct sink *s, enum path_insn_kind kind, uint64_t *ip)
{
	struct place place;

	if (!find_place(e, s, &place, 0, kind))
		return false;
	*ip = place.ip;
	return go(e, s, &place, 1);
}

static inline bool take_tnt(struct engine *e, struct sink *s, uint64_t bits, unsigned int count)
{
	while (count) {
		struct path *path = e->path, *next;
		bool taken;

		if (path->end == PATH_COND) {
			taken = bits >> --count & 1;
			execute(e, s, path->count);
			if (taken) {
				next = path->taken;
				if (!next)
					next = path->taken = path_at(e, s, path->target);
				if (!next)
					return false;
				if (path->target != path->next)
					sink_end(s, path, path->target, next);
			} else {
				next = path->fall;
				if (!next)
					next = path->fall = path_at(e, s, path->next);
				if (!next)
					return false;
			}
			/* A path to nowhere is not kept: what is missing may come. */
			if (__builtin_expect(next->end == PATH_NOWHERE, 0))
				path->taken = path->fall = NULL;
		} else if (path->end == PATH_RETURN) {
			uint64_t ip;

			if (!(bits >> --count & 1) || !e->call_count)
				return false;
			execute(e, s, path->count);
			ip = e->calls[--e->call_top % ENGINE_CALLS];
			e->call_count--;
			/* Most functions return to where they returned last. */
			next = path->taken;
			if (!next || next->ip != ip || next->bits != e->bits)
				next = path->taken = path_at(e, s, ip);
			if (!next)
				return false;
			if (__builtin_expect(next->end == PATH_NOWHERE, 0))
				path->taken = NULL;
			sink_end(s, path, ip, next);
		} else if (path->end == PATH_LONG && reach_end(e, s)) {
			continue;
		} else {
			return false;
		}
		e->path = next;
		e->pos = 0;
	}
	return true;
}

/* ---- events ---- */

static struct ptw_flow *put_event(struct engine *e, struct sink *s, enum ptw_event_type type, uint64_t ip,
				  uint64_t value)
{
	static __thread struct ptw_flow nowhere;
	struct ptw_flow *f;

	sink_event_count(s, type == PTW_EVENT_EXEC_MODE);
	if (s->mode <= SINK_IPS)
		return &nowhere;
	f = sink_put(s, type == PTW_EVENT_PTWRITE ? PTW_FLOW_MARKER : PTW_FLOW_EVENT, s->insns);
	f->event = type;
	f->bits = e->bits;
	f->from = ip;
	f->value = value;
	f->offset = e->at;
	return f;
}

/* What was to come with the TIP that goes to @ip, by an interrupt at @from (0: by none). */
static void settle(struct engine *e, struct sink *s, uint64_t from, uint64_t ip)
{
	if (e->have_cr3) {
		put_event(e, s, PTW_EVENT_PAGING, from, e->cr3);
		e->have_cr3 = false;
	}
	if (e->new_bits) {
		e->bits = e->new_bits;
		e->new_bits = 0;
		put_event(e, s, PTW_EVENT_EXEC_MODE, ip, e->bits);
	}
}

static void put_interrupt(struct engine *e, struct sink *s, uint64_t ip)
{
	s->branches++;
	if (s->mode > SINK_IPS)
		sink_branch(s, PTW_FLOW_INTERRUPT, e->path, s->insns, e->fup, ip, 0);
}

static bool take_tip(struct engine *e, struct sink *s, bool suppressed)
{
	struct path *path = e->path, *next;
	uint64_t ip = e->last_ip;

	if (!path || suppressed)
		return false;
	if (e->have_fup) {
		e->have_fup = false;
		if (!reach_ip(e, s, e->fup))
			return false;
		sink_event_count(s, false);
		put_interrupt(e, s, ip);
		settle(e, s, e->fup, ip);
		e->path = path_at(e, s, ip);
		e->pos = 0;
		return e->path;
	}
	if (!reach_end(e, s) || e->path->end == PATH_COND)
		return false;
	path = e->path;
	execute(e, s, path->count);
	if (path->end == PATH_CALL)
		push(e, path->next);
	settle(e, s, 0, ip);
	next = path->taken;
	if (!next || next->ip != ip || next->bits != e->bits || path->end > PATH_JUMP) {
		next = path_at(e, s, ip);
		if (!next)
			return false;
		path->taken = next->end == PATH_NOWHERE ? NULL : next;
	}
	sink_end(s, path, ip, next);
	e->path = next;
	e->pos = 0;
	return true;
}

static bool take_pge(struct engine *e, struct sink *s, bool suppressed)
{
	struct ptw_flow *f;

	if (e->path || suppressed || e->have_fup)
		return false;
	sink_event_count(s, false);
	f = sink_put(s, PTW_FLOW_BEGIN, s->insns);
	f->bits = e->new_bits ? e->new_bits : e->bits;
	f->to = e->last_ip;
	f->offset = e->at;
	settle(e, s, 0, e->last_ip);
	e->who.runs.begun = true;
	e->path = path_at(e, s, e->last_ip);
	e->pos = 0;
	return e->path;
}

static bool take_pgd(struct engine *e, struct sink *s, bool suppressed)
{
	uint64_t ip = suppressed ? 0 : e->last_ip, from;
	bool async = e->have_fup;
	struct ptw_flow *f;

	if (!e->path)
		return false;
	if (async) {
		e->have_fup = false;
		if (!reach_ip(e, s, e->fup))
			return false;
		put_interrupt(e, s, ip);
		from = e->fup;
	} else if (suppressed && !e->filtered && reach_kind(e, s, INSN_CR3, &from)) {
		/*
		 * The CR3 filter: a MOV CR3 to a context that is traced is told by a PIP, one to another context by
		 * TIP.PGD alone (SDM, "Packet Generation under Different Enable Conditions", 5c and 5d). A PIP would
		 * have led behind it.
		 */
	} else {
		/* With address ranges it may have been any direct branch of the path. */
		if (e->filtered || !reach_end(e, s) || e->path->end == PATH_COND)
			return false;
		execute(e, s, e->path->count);
		sink_end(s, e->path, ip, NULL);
		from = e->path->last;
	}
	settle(e, s, async ? from : 0, ip);
	sink_event_count(s, false);
	f = sink_put(s, PTW_FLOW_END, s->insns);
	f->bits = e->bits;
	f->from = from;
	f->to = ip;
	f->value = async;
	f->offset = e->at;
	e->path = NULL;
	return true;
}

static bool take_fup(struct engine *e, struct sink *s, bool suppressed)
{
	if (suppressed || !e->path || e->have_fup)
		return false;
	if (e->have_ptw) {
		uint64_t ip;

		e->have_ptw = false;
		if (!reach_kind(e, s, INSN_PTWRITE, &ip) || ip != e->last_ip)
			return false;
		put_event(e, s, PTW_EVENT_PTWRITE, ip, e->ptw);
		return true;
	}
	e->fup = e->last_ip;
	e->have_fup = true;
	return true;
}

static bool take_ptw(struct engine *e, struct sink *s, uint64_t value, bool with_ip)
{
	uint64_t ip;

	if (!e->path || e->have_fup)
		return false;
	if (with_ip) {
		e->have_ptw = true;
		e->ptw = value;
		return true;
	}
	if (!reach_kind(e, s, INSN_PTWRITE, &ip))
		return false;
	put_event(e, s, PTW_EVENT_PTWRITE, ip, value);
	return true;
}

static bool take_pip(struct engine *e, struct sink *s, uint64_t cr3)
{
	uint64_t ip;

	/* Where tracing is off, it is about what was executed elsewhere; where a context begins, TIP.PGE follows. */
	if (!e->path) {
		put_event(e, s, PTW_EVENT_PAGING, 0, cr3);
		return true;
	}
	if (!e->have_fup && reach_kind(e, s, INSN_CR3, &ip)) {
		put_event(e, s, PTW_EVENT_PAGING, 0, cr3);
		return true;
	}
	if (!e->have_fup && (!e->path || e->path->end < PATH_FAR_CALL || e->path->end > PATH_FAR_JUMP))
		return false;
	e->have_cr3 = true;
	e->cr3 = cr3;
	return true;
}

/* ---- time ---- */

static bool __attribute__((noinline)) code_changes(struct engine *e, struct sink *s)
{
	struct path *path = e->path;
	uint64_t ip = 0;

	sink_time(s);
	if (s->time < e->next_change)
		return true;
	if (path)
		ip = e->pos < path->count ? path_ip(path, e->pos) : path->next;
	if (walk_time(s->walk, s->time) && path) {
		e->path = walk_path(s->walk, ip, e->bits);
		e->pos = 0;
	}
	e->next_change = walk_next_change(s->walk);
	return !path || e->path;
}

static inline bool set_time(struct engine *e, struct sink *s, uint64_t tsc)
{
	/* Between packets that tell it, time is an estimate, which must not run backwards. */
	if (!s->timed || tsc > s->tsc || s->tsc - tsc > 1u << 20)
		s->tsc = tsc;
	s->timed = true;
	return e->next_change == CODE_ALWAYS || code_changes(e, s);
}

static bool take_tsc(struct engine *e, struct sink *s, uint64_t tsc)
{
	e->base = tsc;
	e->cycles = 0;
	e->have_tsc = true;
	e->have_ctc = e->have_mtc = false;
	return set_time(e, s, tsc);
}

static void take_tma(struct engine *e, uint32_t ctc, uint32_t fast)
{
	if (!e->have_tsc)
		return;
	e->have_ctc = true;
	e->ctc_base = e->base - fast;
	e->ctc = ctc;
	e->ctc_ticks = 0;
	e->mtc = ctc >> e->params->mtc_freq;
}

static bool take_mtc(struct engine *e, struct sink *s, uint8_t mtc)
{
	const struct ptw_pt_params *p = e->params;
	uint64_t base;

	if (!e->have_ctc || !p->cpuid_0x15_eax || !p->cpuid_0x15_ebx || mtc == e->mtc)
		return true;
	if (!e->ctc_ticks)
		e->ctc_ticks = ((uint64_t)(uint8_t)(mtc - e->mtc) << p->mtc_freq) -
			       (e->ctc & ((1u << p->mtc_freq) - 1));
	else
		e->ctc_ticks += (uint64_t)(uint8_t)(mtc - e->mtc) << p->mtc_freq;
	e->mtc = mtc;
	base = e->ctc_base + (uint64_t)((unsigned __int128)e->ctc_ticks * p->cpuid_0x15_ebx / p->cpuid_0x15_eax);
	/* Between two of them cycles and TSC are both known: that is how long a cycle takes. */
	if (e->have_mtc && e->cycles && base > e->base)
		e->tsc_per_cycle = (double)(base - e->base) / e->cycles;
	e->have_mtc = true;
	e->base = base;
	e->cycles = 0;
	return set_time(e, s, base);
}

static inline bool take_cyc(struct engine *e, struct sink *s, uint64_t cycles)
{
	e->cycles += cycles;
	if (!e->have_tsc || e->tsc_per_cycle == 0)
		return true;
	return set_time(e, s, e->base + (uint64_t)(e->cycles * e->tsc_per_cycle));
}

/* ---- packets ---- */

static inline uint64_t load(const uint8_t *p, unsigned int bytes)
{
	uint64_t v = 0;

	memcpy(&v, p, bytes);
	return v;
}

/* Bytes of address behind the head of a packet, by its IPBytes; 0xff: reserved */
static const uint8_t ip_bytes[8] = { 0, 2, 4, 6, 6, 0xff, 8, 0xff };

static inline uint64_t ip_of(uint64_t last, unsigned int kind, const uint8_t *p)
{
	switch (kind) {
	case 1:
		return (last & ~0xffffULL) | load(p, 2);
	case 2:
		return (last & ~0xffffffffULL) | load(p, 4);
	case 3:
		return (uint64_t)((int64_t)(load(p, 6) << 16) >> 16);
	case 4:
		return (last & ~0xffffffffffffULL) | load(p, 6);
	case 6:
		return load(p, 8);
	}
	return last;
}

static unsigned int mode_exec_bits(uint8_t mode)
{
	return mode & 1 ? 64 : mode & 2 ? 32 : 16;
}

/* Size of the CYC packet at @p and its @value; 0: it is too long or cut off, or hides an OVF. */
static inline size_t cyc_size(const uint8_t *p, size_t left, uint64_t *value)
{
	size_t n = 1;
	unsigned int shift = 5;

	*value = p[0] >> 3;
	if (!(p[0] & 4))
		return 1;
	if (ipt_cut_cyc(p, left))
		return 0;
	do {
		if (n == left || n == 9)
			return 0;
		*value |= (uint64_t)(p[n] >> 1) << shift;
		shift += 7;
	} while (p[n++] & 1);
	return n;
}

static size_t long_size(const uint8_t *p, size_t left)
{
	if (left < 2)
		return 0;
	switch (p[1]) {
	case 0x82:
		return 16;
	case 0x23: case 0xf3: case 0x83: case 0x62: case 0xe2:
		return 2;
	case 0xa3: case 0x43:
		return 8;
	case 0x03: case 0x22:
		return 4;
	case 0x73: case 0xc8: case 0xa2:
		return 7;
	case 0xc3:
		return 11;
	case 0xc2:
		return 10;
	case 0x12: case 0x92:
		return 6;
	case 0x32: case 0xb2:
		return 10;
	}
	return 0;
}

size_t engine_cyc_size(const uint8_t *p, size_t left, uint64_t *value)
{
	return cyc_size(p, left, value);
}

size_t engine_long_size(const uint8_t *p, size_t left)
{
	return long_size(p, left);
}

size_t engine_ip_size(unsigned int compression)
{
	return ip_bytes[compression] == 0xff ? 0 : 1 + ip_bytes[compression];
}

uint64_t engine_ip(uint64_t last, unsigned int compression, const uint8_t *p)
{
	return ip_of(last, compression, p);
}

struct psb_plus {
	bool odd;	/* there is something in it that is not plain */
	bool have_fup, have_tsc, have_cbr, have_tma;
	uint64_t ip, tsc;
	uint32_t ctc, fast;
	uint8_t cbr;
	unsigned int bits;
	size_t end;	/* behind PSBEND */
};

/* Return: false: it is cut off, or damaged. */
static bool read_psb_plus(const uint8_t *data, size_t size, size_t at, struct psb_plus *psb)
{
	uint64_t last = 0, cycles;

	*psb = (struct psb_plus){ 0 };
	at += 16;
	while (at < size) {
		const uint8_t *p = data + at;
		size_t left = size - at, n;
		uint8_t head = p[0];

		if (head == 0) {
			n = 1;
		} else if (head == 0x02) {
			n = long_size(p, left);
			if (!n || n > left)
				return false;
			if (p[1] == 0x23) {
				psb->end = at + 2;
				return true;
			}
			if (p[1] == 0x03) {
				psb->have_cbr = true;
				psb->cbr = p[2];
			} else if (p[1] == 0x73) {
				psb->have_tma = true;
				psb->ctc = load(p + 2, 2);
				psb->fast = load(p + 5, 2) & 0x1ff;
			} else if (p[1] != 0x43 && p[1] != 0xc8) {
				return false;
			}
		} else if ((head & 3) == 3) {
			n = cyc_size(p, left, &cycles);
		} else if (head == 0x19) {
			n = 8;
			if (left >= n) {
				psb->have_tsc = true;
				psb->tsc = load(p + 1, 7);
			}
		} else if (head == 0x59) {
			n = 2;
		} else if (head == 0x99) {
			n = 2;
			if (left >= n && p[1] >> 5 == 0)
				psb->bits = mode_exec_bits(p[1]);
			else if (left >= n && p[1] != 0x20)	/* in a transaction */
				psb->odd = true;
		} else if ((head & 0x1f) == 0x1d) {
			if (ip_bytes[head >> 5] == 0xff)
				return false;
			n = 1 + ip_bytes[head >> 5];
			if (left >= n && n > 1) {
				psb->have_fup = true;
				psb->ip = last = ip_of(last, head >> 5, p + 1);
			}
		} else {
			return false;
		}
		if (!n || n > left)
			return false;
		at += n;
	}
	return false;
}

bool engine_psb_ip(const uint8_t *data, size_t size, size_t psb, uint64_t *ip)
{
	struct psb_plus plus;

	if (psb >= size || !read_psb_plus(data, size, psb, &plus) || !plus.have_fup)
		return false;
	*ip = plus.ip;
	return true;
}

bool engine_psb_tsc(const uint8_t *data, size_t size, size_t psb, uint64_t *tsc)
{
	struct psb_plus plus;

	if (!read_psb_plus(data, size, psb, &plus) || !plus.have_tsc)
		return false;
	*tsc = plus.tsc;
	return true;
}

static bool psb_time(struct engine *e, struct sink *s, const struct psb_plus *psb)
{
	if (psb->have_cbr && psb->cbr && e->params->nom_freq && !e->tsc_per_cycle)
		e->tsc_per_cycle = (double)e->params->nom_freq / psb->cbr;
	if (psb->have_tsc && !take_tsc(e, s, psb->tsc))
		return false;
	if (psb->have_tma)
		take_tma(e, psb->ctc, psb->fast);
	return true;
}

static bool take_psb(struct engine *e, struct sink *s, size_t at)
{
	bool first = at == e->psb && !e->path;
	struct psb_plus psb;

	if (!read_psb_plus(e->data, e->size, at, &psb) || psb.odd)
		return false;
	if (!first && (psb.have_fup != !!e->path || e->have_fup || e->have_ptw))
		return false;
	if (!first && psb.have_fup && !reach_ip(e, s, psb.ip))
		return false;
	e->last_ip = psb.ip;
	e->call_count = 0;
	if (psb.bits)
		e->bits = psb.bits;
	e->psb = at;
	e->psb_insns = s->insns;
	e->psb_runs = e->who.runs;
	s->event_insns = s->insns;
	s->events = s->modes = 0;
	if (!psb_time(e, s, &psb))
		return false;
	e->at = psb.end;
	if (!psb.have_fup)
		return true;
	e->path = path_at(e, s, psb.ip);
	e->pos = 0;
	if (first && e->begins && e->path) {
		struct ptw_flow *f = sink_put(s, PTW_FLOW_BEGIN, s->insns);

		f->bits = e->bits;
		f->to = psb.ip;
		e->who.runs.begun = true;
	}
	e->begins = false;
	return e->path;
}

/* Packets with two bytes of head, at @p with @left bytes. Return: false: doubt. */
static bool take_long(struct engine *e, struct sink *s, const uint8_t *p, size_t left)
{
	size_t size = long_size(p, left);
	uint64_t v;

	if (!size || size > left)
		return false;
	switch (p[1]) {
	case 0x82:
		return take_psb(e, s, e->at);
	case 0xa3:
		v = load(p + 2, 6);
		if (!v || !e->path || e->have_fup)
			return false;
		if (!take_tnt(e, s, v, 63 - __builtin_clzll(v)))
			return false;
		break;
	case 0x43:
		if (!take_pip(e, s, load(p + 2, 6) >> 1 << 5))
			return false;
		break;
	case 0x03:
		if (p[2] && e->params->nom_freq)
			e->tsc_per_cycle = (double)e->params->nom_freq / p[2];
		break;
	case 0x73:
		take_tma(e, load(p + 2, 2), load(p + 5, 2) & 0x1ff);
		break;
	case 0x12: case 0x92:
		if (!take_ptw(e, s, load(p + 2, 4), p[1] & 0x80))
			return false;
		break;
	case 0x32: case 0xb2:
		if (!take_ptw(e, s, load(p + 2, 8), p[1] & 0x80))
			return false;
		break;
	default:	/* rare, or an overflow */
		return false;
	}
	e->at += size;
	return true;
}

/* The path at the end of a job that isn't followed by a PSB. */
static bool finish(struct engine *e, struct sink *s)
{
	uint64_t ip;

	if (e->have_fup || e->have_ptw)
		return false;
	if (e->end < e->size) {
		if (!engine_psb_ip(e->data, e->size, e->end, &ip))
			return !e->path;
		return e->path && reach_ip(e, s, ip);
	}
	/* What follows the last packet may not have been executed any more. */
	return true;
}

/* Between two runs other jobs use the paths, or another thread with its own takes over. */
static void park(struct engine *e)
{
	e->resumes = e->path;
	if (e->path)
		e->resume_ip = e->pos < e->path->count ? path_ip(e->path, e->pos) : e->path->next;
	e->path = NULL;
}

static void unpark(struct engine *e, struct sink *s)
{
	sink_time(s);
	walk_time(s->walk, s->timed ? s->time : 0);
	walk_trim(s->walk);
	walk_space(s->walk, code_space_at(e->who.code, e->who.runs.pid, s->timed ? s->time : CODE_ALWAYS),
		   s->timed ? s->time : CODE_ALWAYS);
	e->next_change = walk_next_change(s->walk);
	if (e->resumes) {
		e->path = walk_path(s->walk, e->resume_ip, e->bits);
		e->pos = 0;
		s->failed |= !e->path;
	}
	e->resumes = false;
}

static enum engine_status run(struct engine *e, struct sink *s, size_t room)
{
	while (e->at < e->end) {
		const uint8_t *p = e->data + e->at;
		size_t left = e->end - e->at, size;
		uint8_t head = p[0];
		uint64_t cycles;

		if (s->failed)
			return ENGINE_END;
		if (s->count >= room || s->text_used >= room * sizeof(struct ptw_flow))
			return ENGINE_MORE;
		if (head == 0x02) {
			if (!take_long(e, s, p, left))
				return ENGINE_DOUBT;
			continue;
		}
		if (!(head & 1)) {
			if (head) {
				unsigned int n = 30 - __builtin_clz(head);

				if (!e->path || e->have_fup || !take_tnt(e, s, head >> 1, n))
					return ENGINE_DOUBT;
			}
			e->at++;
			continue;
		}
		if ((head & 3) == 3) {
			size = cyc_size(p, left, &cycles);
			if (!size || !take_cyc(e, s, cycles))
				return ENGINE_DOUBT;
			e->at += size;
			continue;
		}
		switch (head & 0x1f) {
		case 0x0d: case 0x11: case 0x01: case 0x1d:
			if (ip_bytes[head >> 5] == 0xff || 1u + ip_bytes[head >> 5] > left)
				return ENGINE_DOUBT;
			e->last_ip = ip_of(e->last_ip, head >> 5, p + 1);
			e->at += 1 + ip_bytes[head >> 5];
			if (!((head & 0x1f) == 0x0d   ? take_tip(e, s, head < 0x20) :
			      (head & 0x1f) == 0x11 ? take_pge(e, s, head < 0x20) :
			      (head & 0x1f) == 0x01 ? take_pgd(e, s, head < 0x20) :
						      take_fup(e, s, head < 0x20)))
				return ENGINE_DOUBT;
			continue;
		}
		switch (head) {
		case 0x19:
			if (left < 8 || !take_tsc(e, s, load(p + 1, 7)))
				return ENGINE_DOUBT;
			e->at += 8;
			continue;
		case 0x59:
			if (left < 2 || !take_mtc(e, s, p[1]))
				return ENGINE_DOUBT;
			e->at += 2;
			continue;
		case 0x99:
			if (left < 2 || p[1] >> 5)
				return ENGINE_DOUBT;
			/* Tells of the TIP that follows; of the same mode it tells nothing. */
			e->new_bits = mode_exec_bits(p[1]);
			e->at += 2;
			continue;
		}
		return ENGINE_DOUBT;
	}
	return finish(e, s) ? ENGINE_END : ENGINE_DOUBT;
}

enum engine_status engine_run(struct engine *e, struct sink *s, size_t room)
{
	enum engine_status status;

	unpark(e, s);
	status = run(e, s, room);
	if (status == ENGINE_MORE)
		park(e);
	else
		e->path = NULL;
	return status;
}
