// SPDX-License-Identifier: BSD-2-Clause
#include "decode/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "decode/ipt.h"

/*
 * A damaged trace can lead into code that loops without ever asking the trace (`jmp .`). A real stretch
 * between two packets is far shorter: a long TNT holds 47 branches.
 */
#define STRAY_INSNS	(4u << 20)

struct ptw_decoder {
	struct pt_insn_decoder *insn;	/* one of the two */
	struct pt_block_decoder *block;
	struct pt_image_section_cache *cache;
	struct pt_image *image;
	const uint8_t *data;
	size_t size;
	unsigned int flags;

	bool synced;
	bool ended;
	bool failed;			/* @error is to be reported next */
	int status;			/* pts_* of the last call into libipt */
	size_t next_sync;		/* where to look for a PSB when not @synced */
	uint64_t last_ip;		/* where the walk stood */

	uint64_t stray_offset;		/* trace offset when @stray_left was filled */
	uint32_t stray_left;

	struct pt_insn last_insn;	/* item.insn.raw points into it */
	uint64_t error_offset;
	struct ptw_decode_error error;
};

/* ---- the two kinds of libipt decoder, behind one face ---- */

static int sync_set(struct ptw_decoder *d, uint64_t offset)
{
	return d->block ? pt_blk_sync_set(d->block, offset) : pt_insn_sync_set(d->insn, offset);
}

static int next_event(struct ptw_decoder *d, struct pt_event *event)
{
	return d->block ? pt_blk_event(d->block, event, sizeof(*event))
			: pt_insn_event(d->insn, event, sizeof(*event));
}

static uint64_t trace_offset(const struct ptw_decoder *d)
{
	uint64_t offset;
	int status = d->block ? pt_blk_get_offset(d->block, &offset) : pt_insn_get_offset(d->insn, &offset);

	return status < 0 ? d->next_sync : offset;
}

/*
 * Asked before the instruction: libipt reads ahead to find the next one, and the time would be that of an
 * event that is still to come. This way times never run backwards between instructions and events.
 */
static void set_time(struct ptw_decoder *d, struct ptw_item *item)
{
	uint32_t lost_mtc, lost_cyc;	/* libipt 2.2 wants them, whatever its manual says */
	int status;

	if (d->flags & PTW_DECODE_NO_TIME)
		return;
	status = d->block ? pt_blk_time(d->block, &item->tsc, &lost_mtc, &lost_cyc) :
			    pt_insn_time(d->insn, &item->tsc, &lost_mtc, &lost_cyc);
	item->has_time = status >= 0;
	if (!item->has_time)
		item->tsc = 0;	/* without any TSC packet libipt counts from zero */
}

/* ---- setting up ---- */

static int add_section(struct ptw_decoder *d, const struct ptw_image_section *section, struct ptw_error *err)
{
	int isid, status;

	isid = pt_iscache_add_file(d->cache, section->path, section->offset, section->size, section->vaddr);
	if (isid < 0) {
		if (d->flags & PTW_DECODE_SKIP_UNREADABLE)
			return 0;
		return ptw_error_set(err, PTW_EXIT_FAILED, "image %s: 0x%llx bytes at file offset 0x%llx: %s",
				     section->path, (unsigned long long)section->size,
				     (unsigned long long)section->offset, pt_errstr(pt_errcode(isid)));
	}
	status = pt_image_add_cached(d->image, d->cache, isid, NULL);
	if (status < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "image %s: at 0x%llx: %s", section->path,
				     (unsigned long long)section->vaddr, pt_errstr(pt_errcode(status)));
	return 0;
}

static int add_image(struct ptw_decoder *d, const struct ptw_image *image, struct ptw_error *err)
{
	/*
	 * Each section costs its size and, when blocks are decoded, about five times that for libipt's block
	 * cache. Below the sum libipt maps and unmaps sections all the time, which is many times slower.
	 */
	uint64_t limit = 64u << 20;
	size_t i;

	d->cache = pt_iscache_alloc(NULL);
	d->image = pt_image_alloc(NULL);
	if (!d->cache || !d->image)
		return ptw_error_set(err, PTW_EXIT_FAILED, "image: out of memory");
	for (i = 0; i < image->count; i++)
		limit += image->section[i].size > (UINT64_MAX >> 8) / (image->count * 16)
				 ? 0
				 : image->section[i].size * 16;
	pt_iscache_set_limit(d->cache, limit);

	for (i = 0; i < image->count; i++)
		if (add_section(d, &image->section[i], err))
			return -1;
	return 0;
}

static int alloc_decoder(struct ptw_decoder *d, struct pt_config *config, struct ptw_error *err)
{
	if (d->flags & PTW_DECODE_BLOCKS) {
		config->flags.variant.block.end_on_call = !!(d->flags & PTW_DECODE_SHORT_BLOCKS);
		config->flags.variant.block.end_on_jump = !!(d->flags & PTW_DECODE_SHORT_BLOCKS);
		ipt_newer_flags(config, true);
		d->block = pt_blk_alloc_decoder(config);
		if (d->block)
			pt_blk_set_image(d->block, d->image);
	} else {
		ipt_newer_flags(config, false);
		d->insn = pt_insn_alloc_decoder(config);
		if (d->insn)
			pt_insn_set_image(d->insn, d->image);
	}
	if (!d->block && !d->insn)
		return ptw_error_set(err, PTW_EXIT_FAILED, "libipt's decoder: out of memory");
	return 0;
}

struct ptw_decoder *ptw_decoder_new(const struct ptw_decoder_config *config, struct ptw_error *err)
{
	struct ptw_decoder *d = calloc(1, sizeof(*d));
	struct pt_config pt;

	if (!d) {
		ptw_error_set(err, PTW_EXIT_FAILED, "decoder: out of memory");
		return NULL;
	}
	d->data = config->data;
	d->size = config->size;
	d->flags = config->flags;
	d->ended = config->size == 0;
	if (ipt_config(&pt, config->params, config->data, config->size, err) ||
	    add_image(d, config->image, err))
		goto fail;
	if (!d->ended && alloc_decoder(d, &pt, err))
		goto fail;
	return d;
fail:
	ptw_decoder_free(d);
	return NULL;
}

void ptw_decoder_free(struct ptw_decoder *d)
{
	if (!d)
		return;
	pt_insn_free_decoder(d->insn);
	pt_blk_free_decoder(d->block);
	pt_image_free(d->image);
	pt_iscache_free(d->cache);
	free(d);
}

/* ---- errors and finding the way back ---- */

/* What is lost is only known from where decoding can go on: the next PSB after @offset. */
static void fail(struct ptw_decoder *d, uint64_t offset, int code, const char *text)
{
	/* A step beyond the last sync: otherwise the same PSB would fail for ever. */
	size_t from = offset < d->next_sync ? d->next_sync : offset;

	d->failed = true;
	d->synced = false;
	d->next_sync = ipt_next_psb(d->data, d->size, from);
	d->error_offset = offset;
	d->error = (struct ptw_decode_error){
		.code = code,
		.text = text,
		.ip = d->last_ip,
		.resume = d->next_sync,
		.lost = d->next_sync - offset,
	};
}

static void fail_status(struct ptw_decoder *d, int status)
{
	if (status == -pte_eos)
		d->ended = true;
	else
		fail(d, trace_offset(d), -status, pt_errstr(pt_errcode(status)));
}

static bool only_padding(const struct ptw_decoder *d)
{
	size_t i;

	for (i = 0; i < d->size; i++)
		if (d->data[i])
			return false;
	return true;
}

static void synchronise(struct ptw_decoder *d)
{
	size_t psb = ipt_next_psb(d->data, d->size, d->next_sync);

	if (psb >= d->size) {
		d->ended = true;
		if (d->next_sync == 0 && !only_padding(d))
			fail(d, 0, pte_nosync, "no PSB in the trace: nothing to start from");
		return;
	}
	d->next_sync = psb + 1;
	d->last_ip = 0;
	d->status = sync_set(d, psb);
	d->synced = d->status >= 0;
	if (d->synced) {
		d->stray_offset = psb;
		d->stray_left = STRAY_INSNS;
	} else if (d->status != -pte_eos) {
		fail(d, psb, -d->status, pt_errstr(pt_errcode(d->status)));
	} else {
		d->ended = true;
	}
}

static void check_stray(struct ptw_decoder *d, uint32_t count)
{
	uint64_t offset;

	if (d->stray_left > count) {
		d->stray_left -= count;
		return;
	}
	offset = trace_offset(d);
	if (offset == d->stray_offset && !d->failed)
		fail(d, offset, pte_bad_query, "endless loop in the code that asks for no packet");
	d->stray_offset = offset;
	d->stray_left = STRAY_INSNS;
}

/* ---- events ---- */

static void event_ip(const struct pt_event *in, struct ptw_event *out, enum ptw_event_type type, uint64_t ip)
{
	out->type = type;
	out->ip = ip;
	out->has_ip = !in->ip_suppressed;
}

static bool flow_event(const struct pt_event *in, struct ptw_event *out)
{
	switch (in->type) {
	case ptev_enabled:
		event_ip(in, out, PTW_EVENT_ENABLED, in->variant.enabled.ip);
		out->value = in->variant.enabled.resumed;
		return true;
	case ptev_disabled:
		event_ip(in, out, PTW_EVENT_DISABLED, in->variant.disabled.ip);
		return true;
	case ptev_async_disabled:
		event_ip(in, out, PTW_EVENT_ASYNC_DISABLED, in->variant.async_disabled.ip);
		out->from = in->variant.async_disabled.at;
		return true;
	case ptev_async_branch:
		event_ip(in, out, PTW_EVENT_ASYNC_BRANCH, in->variant.async_branch.to);
		out->from = in->variant.async_branch.from;
		return true;
	case ptev_overflow:
		event_ip(in, out, PTW_EVENT_OVERFLOW, in->variant.overflow.ip);
		return true;
	case ptev_stop:
		out->type = PTW_EVENT_STOP;
		return true;
	default:
		return false;
	}
}

static bool state_event(const struct pt_event *in, struct ptw_event *out)
{
	switch (in->type) {
	case ptev_paging:
		out->type = PTW_EVENT_PAGING;
		out->value = in->variant.paging.cr3;
		return true;
	case ptev_async_paging:
		event_ip(in, out, PTW_EVENT_PAGING, in->variant.async_paging.ip);
		out->value = in->variant.async_paging.cr3;
		return true;
	case ptev_exec_mode:
		event_ip(in, out, PTW_EVENT_EXEC_MODE, in->variant.exec_mode.ip);
		out->value = in->variant.exec_mode.mode == ptem_64bit ? 64 :
			     in->variant.exec_mode.mode == ptem_32bit ? 32 : 16;
		return true;
	case ptev_tsx:
		event_ip(in, out, PTW_EVENT_TSX, in->variant.tsx.ip);
		out->value = in->variant.tsx.speculative | in->variant.tsx.aborted << 1;
		return true;
	case ptev_vmcs:
		out->type = PTW_EVENT_VMCS;
		out->value = in->variant.vmcs.base;
		return true;
	case ptev_async_vmcs:
		event_ip(in, out, PTW_EVENT_VMCS, in->variant.async_vmcs.ip);
		out->value = in->variant.async_vmcs.base;
		return true;
	case ptev_cbr:
		out->type = PTW_EVENT_CBR;
		out->value = in->variant.cbr.ratio;
		return true;
	default:
		return false;
	}
}

static bool data_event(const struct pt_event *in, struct ptw_event *out)
{
	switch (in->type) {
	case ptev_exstop:
		event_ip(in, out, PTW_EVENT_EXSTOP, in->variant.exstop.ip);
		return true;
	case ptev_mwait:
		event_ip(in, out, PTW_EVENT_MWAIT, in->variant.mwait.ip);
		out->value = (uint64_t)in->variant.mwait.ext << 32 | in->variant.mwait.hints;
		return true;
	case ptev_pwre:
		out->type = PTW_EVENT_PWRE;
		out->value = in->variant.pwre.state << 4 | in->variant.pwre.sub_state;
		return true;
	case ptev_pwrx:
		out->type = PTW_EVENT_PWRX;
		out->value = in->variant.pwrx.deepest << 4 | in->variant.pwrx.last;
		return true;
	case ptev_ptwrite:
		event_ip(in, out, PTW_EVENT_PTWRITE, in->variant.ptwrite.ip);
		out->value = in->variant.ptwrite.payload;
		return true;
	case ptev_mnt:
		out->type = PTW_EVENT_MNT;
		out->value = in->variant.mnt.payload;
		return true;
	default:
		return false;
	}
}

void ipt_event(const struct pt_event *in, struct ptw_event *out)
{
	*out = (struct ptw_event){ .status_update = in->status_update };
	if (!flow_event(in, out) && !state_event(in, out) && !data_event(in, out) &&
	    !ipt_newer_event(in, out))
		out->type = PTW_EVENT_OTHER;
}

static void take_event(struct ptw_decoder *d, struct ptw_item *item)
{
	struct ptw_event *out = &item->event;
	struct pt_event in;

	d->status = next_event(d, &in);
	if (d->status < 0) {
		fail_status(d, d->status);
		return;
	}
	item->kind = PTW_ITEM_EVENT;
	item->has_time = in.has_tsc;
	item->tsc = in.has_tsc ? in.tsc : 0;
	item->offset = trace_offset(d);
	ipt_event(&in, out);
}

/* ---- instructions ---- */

static uint8_t mode_bits(enum pt_exec_mode mode)
{
	return mode == ptem_64bit ? 64 : mode == ptem_32bit ? 32 : mode == ptem_16bit ? 16 : 0;
}

static void take_insn(struct ptw_decoder *d, struct ptw_item *item)
{
	struct pt_insn *in = &d->last_insn;

	set_time(d, item);
	in->iclass = PTW_PTIC_UNKNOWN;
	d->status = pt_insn_next(d->insn, in, sizeof(*in));
	d->last_ip = in->ip;
	if (d->status < 0)
		fail_status(d, d->status);
	/* With an error, this instruction may still have been executed: then the error came after it. */
	if (in->iclass == PTW_PTIC_UNKNOWN)
		return;

	check_stray(d, 1);
	item->kind = PTW_ITEM_INSN;
	/* Field by field: this is run for every instruction, and a literal would clear the struct first. */
	item->insn.ip = item->insn.last_ip = in->ip;
	item->insn.count = 1;
	item->insn.class = ipt_insn_class(in->iclass, in->raw, in->size);
	item->insn.bits = mode_bits(in->mode);
	item->insn.speculative = in->speculative;
	item->insn.size = in->size;
	item->insn.raw = in->raw;
}

static void take_block(struct ptw_decoder *d, struct ptw_item *item)
{
	struct pt_block in;

	set_time(d, item);
	in.ninsn = 0;
	in.ip = in.end_ip = d->last_ip;
	d->status = pt_blk_next(d->block, &in, sizeof(in));
	d->last_ip = in.ninsn ? in.end_ip : in.ip;
	if (d->status < 0)
		fail_status(d, d->status);
	if (!in.ninsn)
		return;

	check_stray(d, in.ninsn);
	item->kind = PTW_ITEM_INSN;
	item->insn = (struct ptw_insn){
		.ip = in.ip,
		.last_ip = in.end_ip,
		.count = in.ninsn,
		.class = ipt_insn_class(in.iclass, NULL, 0),
		.bits = mode_bits(in.mode),
		.speculative = in.speculative,
	};
}

enum ptw_item_kind ptw_decoder_next(struct ptw_decoder *d, struct ptw_item *item)
{
	item->kind = PTW_ITEM_END;
	item->has_time = false;
	item->tsc = 0;
	item->offset = 0;

	/* Nearly always: */
	if (d->insn && d->synced && !d->failed && !d->ended && !(d->status & (pts_event_pending | pts_eos))) {
		take_insn(d, item);
		if (item->kind == PTW_ITEM_INSN)
			return PTW_ITEM_INSN;
	}

	/* Each round takes a step: it yields an item, ends the stream or moves to a later PSB. */
	while (item->kind == PTW_ITEM_END) {
		if (d->failed) {
			d->failed = false;
			item->kind = PTW_ITEM_ERROR;
			item->offset = d->error_offset;
			item->error = d->error;
		} else if (d->ended) {
			break;
		} else if (!d->synced) {
			synchronise(d);
		} else if (d->status & pts_event_pending) {
			take_event(d, item);
		} else if (d->status & pts_eos) {
			d->ended = true;
		} else if (d->block) {
			take_block(d, item);
		} else {
			take_insn(d, item);
		}
	}
	return item->kind;
}

uint64_t ptw_decoder_offset(const struct ptw_decoder *d)
{
	return d->ended ? d->size : trace_offset(d);
}

const char *ptw_event_name(enum ptw_event_type type)
{
	static const char *const names[] = {
		[PTW_EVENT_ENABLED] = "enabled", [PTW_EVENT_DISABLED] = "disabled",
		[PTW_EVENT_ASYNC_DISABLED] = "async-disabled", [PTW_EVENT_ASYNC_BRANCH] = "interrupt",
		[PTW_EVENT_PAGING] = "paging", [PTW_EVENT_OVERFLOW] = "overflow",
		[PTW_EVENT_EXEC_MODE] = "exec-mode", [PTW_EVENT_TSX] = "tsx", [PTW_EVENT_STOP] = "stop",
		[PTW_EVENT_VMCS] = "vmcs", [PTW_EVENT_EXSTOP] = "exstop", [PTW_EVENT_MWAIT] = "mwait",
		[PTW_EVENT_PWRE] = "pwre", [PTW_EVENT_PWRX] = "pwrx", [PTW_EVENT_PTWRITE] = "ptwrite",
		[PTW_EVENT_CBR] = "cbr", [PTW_EVENT_MNT] = "mnt", [PTW_EVENT_INTERRUPT] = "vector",
		[PTW_EVENT_IRET] = "iret", [PTW_EVENT_SMI] = "smi", [PTW_EVENT_RSM] = "rsm",
		[PTW_EVENT_SIPI] = "sipi", [PTW_EVENT_INIT] = "init", [PTW_EVENT_VMENTRY] = "vmentry",
		[PTW_EVENT_VMEXIT] = "vmexit", [PTW_EVENT_SHUTDOWN] = "shutdown", [PTW_EVENT_UINTR] = "uintr",
		[PTW_EVENT_UIRET] = "uiret", [PTW_EVENT_IFLAGS] = "iflags", [PTW_EVENT_SWINTR] = "swintr",
		[PTW_EVENT_SYSCALL] = "syscall", [PTW_EVENT_TRIGGER] = "trigger", [PTW_EVENT_OTHER] = "other",
	};

	return names[type];
}
