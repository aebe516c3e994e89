// SPDX-License-Identifier: BSD-2-Clause
/*
 * What follows an overflow on CPUs with errata (SKD007, SKD010, APL11, APL12), decoded. A model of a CPU executes random code
 * and tells it by the emulator's packet writer, with overflows, as tests/emulator/branch.c does: it knows what was executed when.
 * Of that nothing may be missing but what overflows lost or a gap tells, and nothing else may be told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flow/stream.h"
#include "../emulator/packet.c"

#define CODE		0xffffffff81001000ULL
#define FUNCTIONS	12
#define FUNCTION	256	/* bytes from one to the next; the last handles interrupts */
#define HANDLER		(CODE + (FUNCTIONS - 1) * FUNCTION)
#define TRACE		65536
#define EXECUTED	400000
#define MARKS		4096
#define PSB_PERIOD	700
#define ROUNDS		40

enum kind { NOP, COND, CALL, CALL_REG, RET, JMP_REG, IRET, MOV_CR3 };

static const uint8_t sizes[] = {
	[NOP] = 1, [COND] = 2, [CALL] = 5, [CALL_REG] = 2, [RET] = 1, [JMP_REG] = 2, [IRET] = 2, [MOV_CR3] = 3,
};

/* What the model is to be like */
struct model {
	uint8_t cpu;		/* of family 6 */
	bool skd007, skd010, apl11, apl12;
	bool filter;		/* functions 2 to 4 */
	bool interrupts;
	bool stops;		/* TraceEn is cleared and set again */
	unsigned int overflow;	/* bytes */
};

struct mark {
	uint64_t offset;	/* in the trace */
	size_t index;		/* of what is executed next there */
	size_t lost_from;	/* overflows: what comes before has been told */
};

static struct sim {
	const struct model *model;
	uint8_t code[FUNCTIONS * FUNCTION];
	uint8_t kind[FUNCTIONS * FUNCTION];
	struct packet_writer w;
	uint8_t trace[TRACE + 4096];
	size_t size;
	uint32_t random;
	uint64_t ip;
	uint64_t stack[64];
	unsigned int depth;
	uint64_t compress[64];	/* calls whose RET may be told by a bit */
	unsigned int compressed;
	bool on, psb_cut;
	unsigned int lost_branches, handler;
	uint64_t executed[EXECUTED];
	size_t count;
	size_t pushed, told;	/* of these: up to the newest bit, and what packets have told */
	uint64_t bits, addresses;	/* bytes of such packets */
	struct mark ovf[MARKS], psb[MARKS];
	size_t ovfs, psbs;
} sim;

static unsigned int dice(unsigned int sides)
{
	sim.random = sim.random * 1103515245 + 12345;
	return (sim.random >> 16) % sides;
}

static void output(void *opaque, const uint8_t *data, size_t size)
{
	assert_true(sim.size + size <= sizeof(sim.trace));
	memcpy(sim.trace + sim.size, data, size);
	sim.size += size;
}

/* A CYC of one byte between a whole one and OVF could look like SKD007: nobody can tell them apart. */
static void count_cycles(void *opaque)
{
	packet_cyc(&sim.w, 1 + dice(3000) + (sim.w.in_ovf ? 32 : 0));
}

/* ---- code ---- */

static void add(unsigned int *at, enum kind kind, unsigned int operand)
{
	static const uint8_t bytes[][3] = {
		[NOP] = { 0x90 }, [COND] = { 0x74 }, [CALL] = { 0xe8 }, [CALL_REG] = { 0xff, 0xd0 }, [RET] = { 0xc3 },
		[JMP_REG] = { 0xff, 0xe0 }, [IRET] = { 0x48, 0xcf }, [MOV_CR3] = { 0x0f, 0x22, 0xdf },
	};
	int32_t distance = (int32_t)(operand - (*at + sizes[kind]));

	memcpy(sim.code + *at, bytes[kind], sizes[kind] < 3 ? sizes[kind] : 3);
	sim.kind[*at] = kind;
	if (kind == COND)
		sim.code[*at + 1] = (uint8_t)distance;
	else if (kind == CALL)
		memcpy(sim.code + *at + 1, &distance, 4);
	*at += sizes[kind];
}

/* Calls lead to later functions, conditional branches over one instruction or back to the function's start. */
static void make_code(void)
{
	memset(sim.code, 0xcc, sizeof(sim.code));
	for (unsigned int f = 0; f < FUNCTIONS; f++) {
		unsigned int start = f * FUNCTION, at = start, later = FUNCTIONS - 2 - f;
		bool handler = f == FUNCTIONS - 1;

		for (unsigned int i = 6 + dice(12); i; i--) {
			unsigned int what = dice(10), other = dice(3), to = later && later < FUNCTIONS ? dice(later) : 0;

			if (what < 4)
				add(&at, NOP, 0);
			else if (what < 7) {
				add(&at, COND, other ? at + 3 : start);
				add(&at, NOP, 0);
			} else if (what == 7 && !handler)
				add(&at, MOV_CR3, 0);
			else if (!handler && later && later < FUNCTIONS)
				add(&at, other ? CALL : CALL_REG, (f + 1 + to) * FUNCTION);
		}
		add(&at, handler ? IRET : f ? RET : JMP_REG, 0);
	}
}

/* ---- the CPU ---- */

/* Packets may have come: what they tell of what was executed. A FUP tells only with its TIP. */
static void note_told(void)
{
	uint64_t bits = sim.w.bytes[PACKET_CLASS_TNT], addresses = sim.w.bytes[PACKET_CLASS_TIP];

	if (bits != sim.bits)
		sim.told = sim.pushed;
	if (addresses != sim.addresses)
		sim.told = sim.count;
	sim.bits = bits;
	sim.addresses = addresses;
}

static void push_bit(bool taken)
{
	note_told();
	sim.pushed = sim.count;
	packet_tnt(&sim.w, taken);
	note_told();
}

static bool in_filter(uint64_t ip)
{
	return !sim.model->filter || (ip >= CODE + 2 * FUNCTION && ip < CODE + 5 * FUNCTION);
}

static void begin(uint64_t ip)
{
	sim.on = true;
	sim.compressed = 0;
	packet_mode_exec(&sim.w, PACKET_EXEC_64, false);
	packet_ip(&sim.w, PACKET_TIP_PGE, ip);
}

static void psb_plus(uint64_t ip)
{
	uint64_t offset;

	packet_tnt_flush(&sim.w);
	offset = sim.w.total;
	packet_psb(&sim.w);
	if (sim.psbs < MARKS && sim.w.total > offset)
		sim.psb[sim.psbs++] = (struct mark){ .offset = offset, .index = sim.count };
	sim.w.stamp = NULL;
	packet_tsc(&sim.w, 1000 + sim.count);
	if (sim.on) {
		packet_mode_exec(&sim.w, PACKET_EXEC_64, false);
		packet_ip(&sim.w, PACKET_FUP, ip);
	}
	packet_cbr(&sim.w, 30);
	packet_psbend(&sim.w);
	if (sim.model->skd007)
		sim.w.stamp = count_cycles;
	sim.psb_cut = sim.w.lost;
	sim.compressed = 0;
}

/* @ip: what is executed next; 0: TraceEn is cleared */
static void resolve(uint64_t ip)
{
	const struct model *m = sim.model;

	packet_tnt_flush(&sim.w);
	sim.ovf[sim.ovfs] = (struct mark){ .index = sim.count, .lost_from = sim.told };
	packet_ovf(&sim.w);
	sim.ovf[sim.ovfs++].offset = sim.w.total - 2;
	assert_true(sim.ovfs < MARKS);
	sim.lost_branches = 0;
	sim.compressed = 0;
	if (sim.on && sim.w.mode == PACKET_EXEC_UNKNOWN)
		begin(ip);
	else if (sim.on && !m->skd010)
		packet_ip(&sim.w, PACKET_FUP, ip);
	else if (!sim.on && ip && m->apl12)
		packet_ip(&sim.w, PACKET_FUP, ip);
	else if (!ip && m->apl11)
		packet_ip_none(&sim.w, PACKET_TIP_PGD);
}

/* The flow goes to @next. Return: that needs no other packet. */
static bool edge(uint64_t next)
{
	bool was = sim.on, now = in_filter(next);

	if (!was && now) {
		begin(next);
	} else if (was && !now) {
		sim.on = false;
		sim.compressed = 0;
		packet_ip(&sim.w, PACKET_TIP_PGD, next);
	}
	return was != now;
}

static void ret_to(uint64_t next)
{
	if (sim.compressed && sim.compress[(sim.compressed - 1) % 64] == next) {
		sim.compressed--;
		push_bit(true);
	} else {
		sim.compressed = 0;
		packet_ip(&sim.w, PACKET_TIP, next);
	}
}

static void called(uint64_t ret)
{
	sim.stack[sim.depth++ % 64] = ret;
	if (sim.on)
		sim.compress[sim.compressed++ % 64] = ret;
}

/* Packets of an instruction of @kind before @after, which went to @next */
static void tell(enum kind kind, uint64_t after, uint64_t next)
{
	bool call = kind == CALL || kind == CALL_REG;

	if (edge(next)) {
		if (call)
			sim.stack[sim.depth++ % 64] = after;
		return;
	}
	if (call)
		called(after);
	if (!sim.on)
		return;
	if (kind == COND)
		push_bit(next != after);
	else if (kind == RET)
		ret_to(next);
	else if (kind == CALL_REG || kind == JMP_REG || kind == IRET)
		packet_ip(&sim.w, PACKET_TIP, next);
}

static uint64_t target(enum kind kind, uint64_t ip, uint64_t after)
{
	unsigned int at = ip - CODE, f = at / FUNCTION;
	int32_t distance;

	switch (kind) {
	case COND:
		return dice(3) == 0 ? after + (int8_t)sim.code[at + 1] : after;
	case CALL:
		memcpy(&distance, sim.code + at + 1, 4);
		return after + distance;
	case CALL_REG:
		return CODE + (f + 1 + dice(FUNCTIONS - 2 - f)) * FUNCTION;
	case RET:
	case IRET:
		return sim.stack[--sim.depth % 64];
	case JMP_REG:
		return CODE;
	default:
		return after;
	}
}

static void interrupt(void)
{
	bool was = sim.on, now = in_filter(HANDLER);

	sim.stack[sim.depth++ % 64] = sim.ip;
	if (was)
		packet_ip(&sim.w, PACKET_FUP, sim.ip);
	sim.on = now;
	if (was && now)
		packet_ip(&sim.w, PACKET_TIP, HANDLER);
	else if (was)
		packet_ip(&sim.w, PACKET_TIP_PGD, HANDLER);
	sim.compressed = 0;
	sim.ip = HANDLER;
}


static void stop_and_start(void)
{
	if (sim.on) {
		packet_ip(&sim.w, PACKET_FUP, sim.ip);
		packet_ip_none(&sim.w, PACKET_TIP_PGD);
	}
	packet_tnt_flush(&sim.w);
	note_told();
	sim.on = false;
	if (sim.w.lost)
		resolve(0);
	psb_plus(sim.ip);
	if (in_filter(sim.ip))
		begin(sim.ip);
}

static void step(void)
{
	enum kind kind = sim.kind[sim.ip - CODE];
	uint64_t after = sim.ip + sizes[kind], next;

	if (sim.on)
		sim.executed[sim.count++] = sim.ip;
	assert_true(sim.count < EXECUTED);
	if (kind == MOV_CR3)
		packet_pip(&sim.w, 0x1000 * (1 + dice(8)), false);
	next = target(kind, sim.ip, after);
	tell(kind, after, next);
	sim.ip = next;
	note_told();
	if (sim.w.lost) {
		if (kind != NOP && ++sim.lost_branches >= 8) {
			resolve(next);
			if (sim.psb_cut)
				psb_plus(next);
		}
	} else if (sim.w.since_psb >= PSB_PERIOD) {
		psb_plus(next);
	} else if (!dice(16)) {
		packet_mtc(&sim.w, sim.count);
	}
	note_told();
	if (sim.model->interrupts && sim.ip < HANDLER && !dice(24))
		interrupt();
	if (sim.model->stops && !dice(150))
		stop_and_start();
	note_told();
}

static void execute(const struct model *model, uint32_t seed)
{
	memset(&sim, 0, sizeof(sim));
	sim.model = model;
	sim.random = seed * 2654435761u + 1;
	make_code();
	sim.w.output = output;
	packet_reset(&sim.w);
	sim.w.stamp = model->skd007 ? count_cycles : NULL;
	sim.w.cut_cyc = model->skd007;
	sim.w.overflow = model->overflow;
	sim.ip = CODE;
	psb_plus(sim.ip);
	if (in_filter(sim.ip))
		begin(sim.ip);
	while (sim.w.total < 12000 && sim.count < EXECUTED / 2)
		step();
	packet_tnt_flush(&sim.w);
	packet_flush(&sim.w);
}

/* ---- what is told of it ---- */

struct judge {
	size_t at;		/* of what was executed */
	size_t ovf;		/* the next one */
	unsigned int gaps;	/* that are not overflows alone */
	uint64_t lost;		/* bytes, with them */
	char wrong[256];
};

static void take_run(struct judge *j, const struct ptw_flow *run)
{
	const uint8_t *code = run->code;
	uint64_t ip = run->from;
	size_t end = j->ovf < sim.ovfs ? sim.ovf[j->ovf].index : sim.count;

	for (uint64_t i = 0; i < run->value && !j->wrong[0]; i++) {
		if (j->at >= end)
			snprintf(j->wrong, sizeof(j->wrong), "%lx is made up: nothing was executed after %zu, before overflow %zu at %lx",
				 (long)(ip - CODE), j->at, j->ovf, (long)sim.ovf[j->ovf].offset);
		else if (sim.executed[j->at] != ip)
			snprintf(j->wrong, sizeof(j->wrong), "%zu: executed %lx, told %lx (before overflow %zu at %lx)", j->at,
				 (long)(sim.executed[j->at] - CODE), (long)(ip - CODE), j->ovf, (long)sim.ovf[j->ovf].offset);
		j->at++;
		ip += *code;
		code += 1 + *code;
	}
}

/* All that had been told before was decoded. */
static void before_overflow(struct judge *j)
{
	if (j->at < sim.ovf[j->ovf].lost_from || j->at > sim.ovf[j->ovf].index)
		snprintf(j->wrong, sizeof(j->wrong), "decoded %zu before overflow %zu at %lx, of %zu", j->at, j->ovf,
			 (long)sim.ovf[j->ovf].offset, sim.ovf[j->ovf].lost_from);
}

static void take_gap(struct judge *j, const struct ptw_flow *gap)
{
	size_t i, end = gap->offset + gap->value;

	if (gap->event == PTW_EVENT_OVERFLOW && !gap->value) {
		if (j->ovf == sim.ovfs) {
			snprintf(j->wrong, sizeof(j->wrong), "an overflow that was not at %lx", (long)gap->offset);
			return;
		}
		before_overflow(j);
		j->at = sim.ovf[j->ovf++].index;
		return;
	}
	j->gaps++;
	j->lost += gap->value;
	if (sim.model->cpu != 0x5e || j->ovf == sim.ovfs || gap->offset != sim.ovf[j->ovf].offset) {
		snprintf(j->wrong, sizeof(j->wrong), "at %lx: %s; %lx lost; overflow %zu is at %lx", (long)gap->offset, gap->text,
			 (long)gap->value, j->ovf, (long)sim.ovf[j->ovf].offset);
		return;
	}
	before_overflow(j);
	while (j->ovf < sim.ovfs && sim.ovf[j->ovf].offset < end)
		j->ovf++;
	for (i = 0; i < sim.psbs && sim.psb[i].offset != end; i++)
		;
	if (i < sim.psbs)
		j->at = sim.psb[i].index;
	else if (end == sim.size)
		j->at = sim.count;
	else
		snprintf(j->wrong, sizeof(j->wrong), "gap at %lx ends at no PSB", (long)gap->offset);
}

static void judge(struct judge *j, const char *path, unsigned int way)
{
	struct ptw_recorded_trace trace = { .cpu = 0, .tid = -1, .data = sim.trace, .size = sim.size };
	struct ptw_recording rec = {
		.params = { .family = 6, .model = sim.model->cpu, .stepping = 4, .have_time = true, .time_mult = 1 },
		.trace = &trace, .trace_count = 1,
	};
	struct ptw_stream_options options = { .order = PTW_ORDER_TRACE, .flags = PTW_STREAM_INSNS | way, .threads = 1 };
	const struct ptw_flow *flow;
	struct ptw_stream *stream;

	*j = (struct judge){ 0 };
	if (sim.model->filter) {
		rec.params.addr[0].cfg = 1;
		rec.params.addr[0].a = CODE + 2 * FUNCTION;
		rec.params.addr[0].b = CODE + 5 * FUNCTION - 1;
	}
	assert_int_equal(ptw_image_add(&rec.image, path, 0, sizeof(sim.code), CODE, NULL), 0);
	stream = ptw_stream_open(&rec, &options, NULL);
	assert_non_null(stream);
	while (!j->wrong[0] && (flow = ptw_stream_next(stream))) {
		if (flow->kind == PTW_FLOW_RUN)
			take_run(j, flow);
		else if (flow->kind == PTW_FLOW_GAP)
			take_gap(j, flow);
	}
	if (!j->wrong[0] && j->ovf < sim.ovfs)
		snprintf(j->wrong, sizeof(j->wrong), "overflow %zu at %lx of %zu is not told", j->ovf, (long)sim.ovf[j->ovf].offset,
			 sim.ovfs);
	if (!j->wrong[0] && !sim.w.lost && j->at + 64 < sim.count)
		snprintf(j->wrong, sizeof(j->wrong), "%zu decoded of %zu", j->at, sim.count);
	ptw_stream_close(stream);
	ptw_image_free(&rec.image);
}

/* ---- tests ---- */

/* @gaps: as many are told, of all rounds: none, or at least some where SKD010 leaves nothing else */
static void assert_decoded(const struct model *model, bool gaps)
{
	static const unsigned int ways[] = { 0, PTW_STREAM_REFERENCE };
	size_t overflows = 0, told = 0;

	for (unsigned int seed = 0; seed < ROUNDS; seed++) {
		char path[] = "/tmp/ptwatch-test-XXXXXX";
		int fd = mkstemp(path);
		struct judge j;

		assert_true(fd >= 0);
		execute(model, seed);
		assert_int_equal(write(fd, sim.code, sizeof(sim.code)), sizeof(sim.code));
		close(fd);
		for (int i = 0; i < 2; i++) {
			judge(&j, path, ways[i]);
			if (j.wrong[0])
				fail_msg("seed %u, way %d: %s", seed, i, j.wrong);
			told += j.gaps;
		}
		unlink(path);
		overflows += sim.ovfs;
	}
	assert_true(overflows > 30 * ROUNDS);
	assert_int_equal(told > 0, gaps);
}

/* Of a CPU that is not known to have it, it does not decode. */
static void assert_needs_cpu(struct model model)
{
	unsigned int wrong = 0;

	for (unsigned int seed = 0; seed < ROUNDS; seed++) {
		char path[] = "/tmp/ptwatch-test-XXXXXX";
		int fd = mkstemp(path);
		struct model other = model;
		struct judge j;

		assert_true(fd >= 0);
		execute(&model, seed);
		other.cpu = 85;
		sim.model = &other;
		assert_int_equal(write(fd, sim.code, sizeof(sim.code)), sizeof(sim.code));
		close(fd);
		judge(&j, path, 0);
		wrong += j.wrong[0] != '\0';
		unlink(path);
	}
	assert_true(wrong > ROUNDS / 4);
}

static void no_erratum(void **state)
{
	assert_decoded(&(struct model){ .cpu = 85, .interrupts = true, .stops = true, .overflow = 160 }, false);
	assert_decoded(&(struct model){ .cpu = 85, .filter = true, .interrupts = true, .stops = true, .overflow = 160 }, false);
}

static void skd007(void **state)
{
	/* Its CPUs have SKD010 as well: what could be by that is not trusted. */
	assert_decoded(&(struct model){ .cpu = 0x5e, .skd007 = true, .interrupts = true, .overflow = 160 }, true);
	assert_decoded(&(struct model){ .cpu = 0x5e, .skd007 = true, .filter = true, .interrupts = true, .overflow = 160 }, true);
	assert_needs_cpu((struct model){ .skd007 = true, .interrupts = true, .overflow = 160 });
}

static void skd010(void **state)
{
	assert_decoded(&(struct model){ .cpu = 0x5e, .skd010 = true, .overflow = 160 }, true);
	assert_decoded(&(struct model){ .cpu = 0x5e, .skd010 = true, .interrupts = true, .overflow = 160 }, true);
	assert_decoded(&(struct model){ .cpu = 0x5e, .skd010 = true, .filter = true, .interrupts = true, .overflow = 160 }, true);
	assert_decoded(&(struct model){ .cpu = 0x5e, .skd007 = true, .skd010 = true, .filter = true, .interrupts = true,
					.overflow = 160 }, true);
	assert_needs_cpu((struct model){ .skd010 = true, .interrupts = true, .overflow = 160 });
}

static void apl11(void **state)
{
	assert_decoded(&(struct model){ .cpu = 0x5c, .apl11 = true, .interrupts = true, .stops = true, .overflow = 160 }, false);
	assert_decoded(&(struct model){ .cpu = 0x5c, .apl11 = true, .filter = true, .stops = true, .overflow = 160 }, false);
	assert_needs_cpu((struct model){ .apl11 = true, .interrupts = true, .stops = true, .overflow = 160 });
}

static void apl12(void **state)
{
	assert_decoded(&(struct model){ .cpu = 0x5c, .apl12 = true, .filter = true, .interrupts = true, .overflow = 160 }, false);
	assert_decoded(&(struct model){ .cpu = 0x5c, .apl11 = true, .apl12 = true, .filter = true, .interrupts = true, .stops = true,
					.overflow = 160 }, false);
	assert_needs_cpu((struct model){ .apl12 = true, .filter = true, .interrupts = true, .overflow = 160 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_erratum),
		cmocka_unit_test(skd007),
		cmocka_unit_test(skd010),
		cmocka_unit_test(apl11),
		cmocka_unit_test(apl12),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
