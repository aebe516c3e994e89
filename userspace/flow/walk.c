// SPDX-License-Identifier: BSD-2-Clause
#include "flow/walk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <Zydis/Zydis.h>

#define MAX_INSNS	192
#define MAX_BYTES	15
#define ARENA		(1u << 20)
#define PATHS_LIMIT	(24u << 20)	/* bytes, with texts */

#define PAGE_SHIFT	12

struct arena {
	struct arena *next;
	size_t used;
	char data[ARENA];
};

struct walk {
	struct code_view *view;
	struct code_space *current;
	uint32_t space;		/* its number */
	struct path **slot;	/* a hash by address and space */
	size_t slots, count;
	struct arena *arena;
	size_t bytes;
	uint64_t *page;		/* a hash of the pages that paths lead through, of all spaces; page + 1 */
	size_t page_slots, pages;
	ZydisDecoder decoder16, decoder32, decoder64;
};

struct walk *walk_new(struct code_view *view)
{
	struct walk *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->view = view;
	w->slots = w->page_slots = 4096;
	w->slot = calloc(w->slots, sizeof(struct path *));
	w->page = calloc(w->page_slots, sizeof(*w->page));
	if (!w->slot || !w->page) {
		walk_free(w);
		return NULL;
	}
	/* These only fail for arguments that don't go together. */
	ZydisDecoderInit(&w->decoder16, ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16);
	ZydisDecoderInit(&w->decoder32, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
	ZydisDecoderInit(&w->decoder64, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	return w;
}

static void forget(struct walk *w)
{
	struct arena *arena, *next;

	for (arena = w->arena; arena; arena = next) {
		next = arena->next;
		free(arena);
	}
	w->arena = NULL;
	w->bytes = 0;
	w->count = w->pages = 0;
	memset(w->slot, 0, w->slots * sizeof(struct path *));
	memset(w->page, 0, w->page_slots * sizeof(*w->page));
}

void walk_free(struct walk *w)
{
	if (!w)
		return;
	if (w->slot && w->page)
		forget(w);
	free(w->slot);
	free(w->page);
	free(w);
}

static void *take(struct walk *w, size_t size)
{
	void *p;

	size = (size + 7) & ~(size_t)7;
	if (!w->arena || w->arena->used + size > ARENA) {
		struct arena *arena = malloc(sizeof(*arena));

		if (!arena)
			return NULL;
		arena->next = w->arena;
		arena->used = 0;
		w->arena = arena;
	}
	p = w->arena->data + w->arena->used;
	w->arena->used += size;
	w->bytes += size;
	return p;
}

static uint64_t mix(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15ULL;
	return x ^ x >> 29;
}

/* ---- pages ---- */

static bool page_known(void *context, uint64_t page)
{
	const struct walk *w = context;
	size_t h;

	for (h = mix(page) & (w->page_slots - 1); w->page[h]; h = (h + 1) & (w->page_slots - 1))
		if (w->page[h] == page + 1)
			return true;
	return false;
}

static int note_page(struct walk *w, uint64_t page)
{
	size_t h;

	if (page_known(w, page))
		return 0;
	if (2 * w->pages >= w->page_slots) {
		uint64_t *old = w->page, *grown = calloc(2 * w->page_slots, sizeof(*grown));

		if (!grown)
			return -1;
		w->page = grown;
		w->page_slots *= 2;
		for (size_t i = 0; i < w->page_slots / 2; i++) {
			if (!old[i])
				continue;
			for (h = mix(old[i] - 1) & (w->page_slots - 1); grown[h]; )
				h = (h + 1) & (w->page_slots - 1);
			grown[h] = old[i];
		}
		free(old);
	}
	for (h = mix(page) & (w->page_slots - 1); w->page[h]; )
		h = (h + 1) & (w->page_slots - 1);
	w->page[h] = page + 1;
	w->pages++;
	return 0;
}

/* ---- where and when ---- */

void walk_space(struct walk *w, struct code_space *space, uint64_t time)
{
	w->current = space;
	w->space = code_view_space(w->view, space, time);
}

bool walk_time(struct walk *w, uint64_t time)
{
	bool stale = code_view_time(w->view, time, page_known, w);
	uint32_t space = w->space;

	w->space = code_view_space(w->view, w->current, time);
	if (stale)
		forget(w);
	return stale || w->space != space;
}

uint64_t walk_next_change(const struct walk *w)
{
	return code_view_next_change(w->view);
}

bool walk_trim(struct walk *w)
{
	if (w->bytes < PATHS_LIMIT)
		return false;
	forget(w);
	return true;
}

/* ---- walking ---- */

struct step {
	uint8_t size;
	bool ends;
	enum path_end end;
	enum path_insn_kind kind;
	uint64_t target;	/* of direct branches */
};

static uint64_t wrap(uint64_t ip, unsigned int bits)
{
	return bits == 64 ? ip : bits == 32 ? (uint32_t)ip : ip & 0xffff;
}

static void ends(struct step *step, enum path_end end)
{
	step->ends = true;
	step->end = end;
	step->kind = INSN_END;
}

static bool is_relative(const ZydisDecodedInstruction *insn)
{
	return insn->attributes & ZYDIS_ATTRIB_IS_RELATIVE && insn->raw.imm[0].is_relative;
}

/* The instruction at @ip as far as the flow goes. Return: false: there is none. */
static bool look(struct walk *w, uint64_t ip, unsigned int bits, struct step *step)
{
	const ZydisDecoder *decoder = bits == 64 ? &w->decoder64 : bits == 32 ? &w->decoder32 : &w->decoder16;
	ZydisDecodedInstruction insn;
	ZydisDecoderContext context;
	uint8_t bytes[MAX_BYTES];
	size_t size = code_read(w->view, ip, bytes, sizeof(bytes));
	bool relative;

	if (!size || !ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(decoder, &context, bytes, size, &insn)))
		return false;
	*step = (struct step){ .size = insn.length };
	relative = is_relative(&insn);
	if (relative)
		step->target = wrap(ip + insn.length + insn.raw.imm[0].value.s, bits);

	switch (insn.mnemonic) {
	case ZYDIS_MNEMONIC_CALL:
		if (insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
			ends(step, PATH_FAR_CALL);
		else if (!relative)
			ends(step, PATH_CALL);
		else
			step->kind = insn.raw.imm[0].value.s ? INSN_CALL : INSN_CALL_NEXT;
		return true;
	case ZYDIS_MNEMONIC_JMP:
		if (insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
			ends(step, PATH_FAR_JUMP);
		else if (!relative)
			ends(step, PATH_JUMP);
		else
			step->kind = INSN_JUMP;
		return true;
	case ZYDIS_MNEMONIC_RET:
		ends(step, insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR || insn.opcode == 0xcb ||
			   insn.opcode == 0xca ? PATH_FAR_RETURN : PATH_RETURN);
		return true;
	case ZYDIS_MNEMONIC_IRET:
	case ZYDIS_MNEMONIC_IRETD:
	case ZYDIS_MNEMONIC_IRETQ:
	case ZYDIS_MNEMONIC_SYSRET:
	case ZYDIS_MNEMONIC_SYSEXIT:
	case ZYDIS_MNEMONIC_UIRET:
	case ZYDIS_MNEMONIC_RSM:
	case ZYDIS_MNEMONIC_VMLAUNCH:
	case ZYDIS_MNEMONIC_VMRESUME:
		ends(step, PATH_FAR_RETURN);
		return true;
	case ZYDIS_MNEMONIC_SYSCALL:
	case ZYDIS_MNEMONIC_SYSENTER:
	case ZYDIS_MNEMONIC_INT:
	case ZYDIS_MNEMONIC_INT1:
	case ZYDIS_MNEMONIC_INT3:
	case ZYDIS_MNEMONIC_INTO:
	case ZYDIS_MNEMONIC_VMCALL:
		ends(step, PATH_FAR_CALL);
		return true;
	case ZYDIS_MNEMONIC_XBEGIN:
		/* What it names is where an abort goes, which is told as such. */
		return true;
	case ZYDIS_MNEMONIC_PTWRITE:
		step->kind = INSN_PTWRITE;
		return true;
	case ZYDIS_MNEMONIC_MOV:
		if (insn.opcode_map == ZYDIS_OPCODE_MAP_0F && insn.opcode == 0x22 &&
		    insn.raw.modrm.reg == 3 && !insn.raw.rex.R)
			step->kind = INSN_CR3;
		return true;
	default:
		if (insn.meta.category == ZYDIS_CATEGORY_COND_BR && relative)
			ends(step, PATH_COND);
		return true;
	}
}

static bool was_here(const struct path_insn *insns, unsigned int count, int32_t at)
{
	for (unsigned int i = 0; i < count; i++)
		if (insns[i].at == at)
			return true;
	return false;
}

static struct path *build(struct walk *w, uint64_t ip, unsigned int bits)
{
	struct path_insn insns[MAX_INSNS];
	uint16_t branches[MAX_INSNS];
	uint64_t here = ip, last = ip;
	struct path p = { .ip = ip, .end = PATH_LONG, .bits = bits };
	const struct ptw_symbol *symbol;
	uint64_t page = 0;
	struct path *path;
	struct step step;

	/* User code is a process's own, and where it is not known whose it is, of all. */
	p.space = ip & CODE_KERNEL_HALF ? 0 : w->space;
	p.symbol = symbol = code_view_symbol(w->view, ip);
	while (p.count < MAX_INSNS) {
		struct path_insn *insn = &insns[p.count];

		if ((int64_t)(here - ip) != (int32_t)(here - ip))
			break;
		if (p.inner && was_here(insns, p.count, here - ip)) {
			p.end = PATH_LOOP;
			break;
		}
		if (!look(w, here, bits, &step)) {
			p.end = PATH_NOWHERE;
			break;
		}
		if (here >> PAGE_SHIFT != page || (here + step.size - 1) >> PAGE_SHIFT != page) {
			page = (here + step.size - 1) >> PAGE_SHIFT;
			if (note_page(w, here >> PAGE_SHIFT) || note_page(w, page))
				return NULL;
		}
		*insn = (struct path_insn){ .at = here - ip, .size = step.size, .kind = step.kind };
		p.count++;
		last = here;
		here = wrap(here + step.size, bits);
		if (step.ends) {
			p.end = step.end;
			p.target = step.target;
			break;
		}
		if (step.kind == INSN_PLAIN || step.kind == INSN_PTWRITE || step.kind == INSN_CR3)
			continue;
		branches[p.inner++] = p.count - 1;
		here = step.target;
		if (step.kind == INSN_JUMP) {
			const struct ptw_symbol *to = code_view_symbol(w->view, here);

			if (to != symbol)
				insn->kind = INSN_JUMP_OUT;
			symbol = to;
		} else if (step.kind == INSN_CALL) {
			symbol = code_view_symbol(w->view, here);
		}
		p.calls |= insn->kind != INSN_JUMP;
	}
	p.last = last;
	p.next = here;
	p.last_symbol = symbol;
	p.taken_out = p.end == PATH_COND && code_view_symbol(w->view, p.target) != symbol;

	path = take(w, sizeof(*path) + p.count * sizeof(*insns) + p.inner * sizeof(*branches));
	if (!path)
		return NULL;
	*path = p;
	memcpy(path->insn, insns, p.count * sizeof(*insns));
	path->branch = (uint16_t *)&path->insn[p.count];
	memcpy(path->branch, branches, p.inner * sizeof(*branches));
	return path;
}

static int grow(struct walk *w)
{
	size_t slots = 2 * w->slots;
	struct path **slot = calloc(slots, sizeof(*slot));

	if (!slot)
		return -1;
	for (size_t i = 0; i < w->slots; i++) {
		size_t h;

		if (!w->slot[i])
			continue;
		for (h = mix(w->slot[i]->ip + w->slot[i]->space) & (slots - 1); slot[h]; )
			h = (h + 1) & (slots - 1);
		slot[h] = w->slot[i];
	}
	free(w->slot);
	w->slot = slot;
	w->slots = slots;
	return 0;
}

struct path *walk_path(struct walk *w, uint64_t ip, unsigned int bits)
{
	uint32_t space = ip & CODE_KERNEL_HALF ? 0 : w->space;
	struct path *path;
	size_t h;

	for (h = mix(ip + space) & (w->slots - 1); (path = w->slot[h]); h = (h + 1) & (w->slots - 1))
		if (path->ip == ip && path->space == space && path->bits == bits)
			return path;
	path = build(w, ip, bits);
	/* What is not there now may be mapped later. */
	if (!path || path->end == PATH_NOWHERE)
		return path;
	w->slot[h] = path;
	if (2 * ++w->count > w->slots && grow(w))
		return NULL;
	return path;
}

const char *walk_doubt(struct walk *w, uint64_t ip, bool branch)
{
	uint8_t bytes[MAX_BYTES];
	size_t size = code_read(w->view, ip, bytes, sizeof(bytes));
	char text[160];
	int used;

	if (!size)
		return "code that libipt has read is not there any more";
	used = snprintf(text, sizeof(text), "%s (bytes", branch ? PTW_GAP_OTHER_CODE : PTW_GAP_NO_CODE);
	for (size_t i = 0; i < size; i++)
		used += snprintf(text + used, sizeof(text) - used, " %02x", bytes[i]);
	snprintf(text + used, sizeof(text) - used, ") at 0x%016" PRIx64, ip);
	return code_note(w->view, text);
}

const char *path_text(struct walk *w, struct path *path)
{
	static const char digit[] = "0123456789abcdef";
	char *at;

	if (path->text)
		return path->text;
	at = path->text = take(w, (size_t)path->count * 17);
	for (unsigned int i = 0; at && i < path->count; i++) {
		uint64_t ip = path_ip(path, i);

		for (int shift = 60; shift >= 0; shift -= 4)
			*at++ = digit[ip >> shift & 15];
		*at++ = '\n';
	}
	return path->text;
}

const uint8_t *path_code(struct walk *w, struct path *path)
{
	size_t size = path->count;
	uint8_t *at;

	if (path->code)
		return path->code;
	for (unsigned int i = 0; i < path->count; i++)
		size += path->insn[i].size;
	path->code_size = size;
	at = path->code = take(w, size);
	for (unsigned int i = 0; at && i < path->count; i++) {
		size = path->insn[i].size;
		*at++ = size;
		/* It was all there when the path was built, and what has changed since has no paths any more. */
		memset(at, 0, size);
		code_read(w->view, path_ip(path, i), at, size);
		at += size;
	}
	return path->code;
}
