// SPDX-License-Identifier: BSD-2-Clause
/*
 * flow ROUNDS SEED RECORDING TRACE
 * flow ROUNDS SEED --raw TRACE FAMILY/MODEL/STEPPING IMAGE
 *
 * A trace as it is, then ROUNDS damaged copies of it: each decoded along kept paths by two threads, and by
 * libipt alone (but for what flow/slow.c adds behind a MOV CR3). Both must tell the same: every address, every
 * taken branch, every gap with its offset. What differs is reported with the seed that makes it again, and the exit
 * status is 1.
 *
 * Times are not compared: the two estimate them differently between timing packets.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/stream.h"

static struct ptw_recording *recording;
static size_t trace_index;

static void die(const char *text)
{
	fprintf(stderr, "flow: %s\n", text);
	exit(2);
}

/* ---- one way of telling, as bytes that can be compared ---- */

struct story {
	char *text;
	size_t used, room;
	uint64_t insns, errors;
};

static void add(struct story *s, const void *data, size_t size)
{
	if (!size)
		return;
	if (s->used + size > s->room) {
		s->room = 2 * (s->used + size);
		s->text = realloc(s->text, s->room);
		if (!s->text)
			die("out of memory");
	}
	memcpy(s->text + s->used, data, size);
	s->used += size;
}

static void add_flow(struct story *s, const struct ptw_flow *f)
{
	char line[256];
	int length;

	if (f->kind == PTW_FLOW_GAP)
		length = snprintf(line, sizeof(line), "gap %s at %" PRIx64 " lost %" PRIx64 "\n", f->text, f->offset,
				  f->value);
	else if (f->kind == PTW_FLOW_EVENT || f->kind == PTW_FLOW_SWITCH)
		return;	/* order among events of one address differs */
	else
		length = snprintf(line, sizeof(line), "%d %" PRIx64 " %" PRIx64 "\n", f->kind, f->from, f->to);
	add(s, line, length);
}

/* Addresses and, among them, gaps: a batch's records say how many instructions came before. */
static void add_ips(struct story *s, const char *text, size_t size, const struct ptw_flow *flow, size_t count)
{
	size_t done = 0;

	for (size_t i = 0; i < count; i++) {
		size_t upto;

		if (flow[i].kind != PTW_FLOW_GAP)
			continue;
		upto = (flow[i].insns - s->insns) * 17;
		add(s, text + done, upto - done);
		done = upto;
		add_flow(s, &flow[i]);
	}
	add(s, text + done, size - done);
	s->insns += size / 17;
}

static struct story tell(unsigned int flags, unsigned int threads)
{
	struct ptw_stream_options options = {
		.order = PTW_ORDER_TRACE, .flags = flags, .threads = threads,
		.trace = &trace_index, .traces = 1,
	};
	const struct ptw_trace_totals *totals;
	struct ptw_stream *stream;
	const struct ptw_flow *flow;
	struct story s = { 0 };
	struct ptw_error err;
	size_t size, count;
	const char *text;

	stream = ptw_stream_open(recording, &options, &err);
	if (!stream)
		die(err.text);
	if (flags & PTW_STREAM_IPS) {
		while (ptw_stream_ips(stream, &text, &size, &flow, &count))
			add_ips(&s, text, size, flow, count);
		if (s.insns != ptw_stream_totals(stream, trace_index)->insns)
			die("the total is not the number of addresses");
	} else {
		while ((flow = ptw_stream_next(stream)))
			add_flow(&s, flow);
	}
	if (ptw_stream_failed(stream, &err))
		die(err.text);
	totals = ptw_stream_totals(stream, trace_index);
	s.insns = totals->insns;
	s.errors = totals->errors;
	ptw_stream_close(stream);
	return s;
}

static size_t line_at(const struct story *s, size_t at)
{
	const char *end = at < s->used ? memchr(s->text + at, '\n', s->used - at) : NULL;

	return end ? end + 1 - (s->text + at) : s->used - at;
}

/*
 * libipt reads ahead and may stop at damage before it has used up the branches that came before it. So in
 * front of a gap, ours may tell more. Return: how often it does; -1: they differ.
 */
static long compare(const struct story *ours, const struct story *reference)
{
	size_t a = 0, b = 0;
	long more = 0;

	while (a < ours->used || b < reference->used) {
		size_t la = line_at(ours, a), lb = line_at(reference, b);

		if (la == lb && !memcmp(ours->text + a, reference->text + b, la)) {
			a += la;
			b += lb;
		} else if (b < reference->used && !memcmp(reference->text + b, "gap", 3) && a < ours->used &&
			   memcmp(ours->text + a, "gap", 3)) {
			a += la;
			more++;
		} else {
			printf("# along paths: %.*s\n", (int)la, ours->text + a);
			printf("# by libipt:   %.*s\n", (int)lb, reference->text + b);
			return -1;
		}
	}
	return more;
}

static unsigned long more_lines;

static bool same(const char *name, unsigned int flags)
{
	struct story ours = tell(flags, 2), reference = tell(flags | PTW_STREAM_REFERENCE, 1);
	long more = compare(&ours, &reference);

	if (more < 0)
		printf("# %s: %" PRIu64 " instructions and %" PRIu64 " errors, libipt: %" PRIu64 " and %" PRIu64 "\n",
		       name, ours.insns, ours.errors, reference.insns, reference.errors);
	else
		more_lines += more;
	free(ours.text);
	free(reference.text);
	return more >= 0;
}

/* ---- damage ---- */

static uint64_t state;

static uint32_t rnd(uint32_t limit)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(state >> 33) % limit;
}

static size_t damage(uint8_t *data, size_t size)
{
	uint32_t n = 1 + rnd(4), kind = rnd(4), at, length;

	switch (kind) {
	case 0:		/* bits */
		while (n--) {
			at = rnd(size);
			data[at] ^= 1 << rnd(8);
		}
		return size;
	case 1:		/* bytes */
		while (n--) {
			at = rnd(size);
			data[at] = rnd(256);
		}
		return size;
	case 2:		/* a stretch is gone */
		at = rnd(size);
		length = rnd(256);
		if (length > size - at)
			length = size - at;
		memmove(data + at, data + at + length, size - at - length);
		return size - length;
	default:	/* the end is gone */
		return 1 + rnd(size);
	}
}

static int run(unsigned long rounds, uint64_t seed)
{
	struct ptw_recorded_trace *trace = &recording->trace[trace_index], pristine = *trace;
	uint8_t *copy = malloc(pristine.size);
	unsigned long bad = 0;

	if (!copy)
		die("out of memory");
	/* Without damage there is nothing to be ahead of. */
	if (!same("undamaged, addresses", PTW_STREAM_IPS) || !same("undamaged, branches", PTW_STREAM_ALL_JUMPS) ||
	    !same("undamaged, flow", 0) || more_lines)
		bad++;
	for (unsigned long i = 0; i < rounds; i++) {
		state = seed + i;
		rnd(2);
		memcpy(copy, pristine.data, pristine.size);
		trace->data = copy;
		trace->size = damage(copy, pristine.size);
		if (!same("addresses", PTW_STREAM_IPS) || !same("branches", PTW_STREAM_ALL_JUMPS)) {
			printf("# damaged with seed %" PRIu64 "\n", seed + i);
			bad++;
		}
	}
	*trace = pristine;
	free(copy);
	printf("%lu rounds, %lu differ\n", rounds, bad);
	return bad ? 1 : 0;
}

static void open_raw(char **argv)
{
	static struct ptw_recorded_trace trace;
	static struct ptw_recording raw;
	static uint8_t data[1 << 20];
	unsigned int family, model, stepping;
	FILE *file = fopen(argv[0], "re");
	struct ptw_error err;

	if (!file)
		die("cannot open the trace");
	trace.size = fread(data, 1, sizeof(data), file);
	fclose(file);
	trace.data = data;
	trace.cpu = trace.tid = -1;
	if (!trace.size || sscanf(argv[1], "%u/%u/%u", &family, &model, &stepping) != 3)
		die("no trace, or CPU not FAMILY/MODEL/STEPPING");
	raw.params = (struct ptw_pt_params){
		.family = family, .model = model, .stepping = stepping,
		.mtc_freq = 3, .nom_freq = 37, .cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 308,
	};
	if (ptw_image_parse(&raw.image, argv[2], &err))
		die(err.text);
	raw.trace = &trace;
	raw.trace_count = 1;
	recording = &raw;
}

int main(int argc, char **argv)
{
	struct ptw_error err;
	bool raw = argc == 7 && !strcmp(argv[3], "--raw");
	int status;

	if (raw) {
		open_raw(argv + 4);
	} else if (argc == 5) {
		recording = ptw_recording_open(argv[3], &err);
		if (!recording)
			die(err.text);
		trace_index = strtoul(argv[4], NULL, 10);
		if (trace_index >= recording->trace_count)
			die("no such trace");
	} else {
		die("flow ROUNDS SEED RECORDING TRACE, or ROUNDS SEED --raw TRACE F/M/S IMAGE");
	}
	status = run(strtoul(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
	if (raw)
		ptw_image_free(&recording->image);
	else
		ptw_recording_close(recording);
	return status;
}
