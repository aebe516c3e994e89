// SPDX-License-Identifier: BSD-2-Clause
/*
 * decode RECORDING TRACE [COPIES]
 * decode --raw TRACE FAMILY/MODEL/STEPPING IMAGE COPIES
 *
 * Rates of decoding one trace, decoded COPIES times in a row: libipt's two decoders as they come, with a section cache, and
 * ours. The best of several runs. Lines of "NAME BY-PROCESSOR-TIME BY-WALL-TIME INSTRUCTIONS", rates in millions of
 * instructions a second: by processor time a busy machine doesn't count, but the use of a second core doesn't show either.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "decode/ipt.h"
#include "flow/stream.h"

#define RUNS	7

/* 2.1 gave the value a better name. */
#if LIBIPT_VERSION >= 0x201
#define UNKNOWN		ptic_unknown
#else
#define UNKNOWN		ptic_error
#endif

static struct ptw_recording *recording;
static size_t trace_index;

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void die(const char *text)
{
	fprintf(stderr, "decode: %s\n", text);
	exit(1);
}

/* ---- libipt alone ---- */

static struct pt_image_section_cache *cache;
static struct pt_image *image;

static void load_image(void)
{
	cache = pt_iscache_alloc(NULL);
	image = pt_image_alloc(NULL);
	pt_iscache_set_limit(cache, 1ull << 32);
	for (size_t i = 0; i < recording->image.count; i++) {
		const struct ptw_image_section *s = &recording->image.section[i];
		int isid = pt_iscache_add_file(cache, s->path, s->offset, s->size, s->vaddr);

		if (isid > 0)
			pt_image_add_cached(image, cache, isid, NULL);
	}
}

static void configure(struct pt_config *config)
{
	const struct ptw_recorded_trace *t = &recording->trace[trace_index];

	if (ipt_config(config, &recording->params, t->data, t->size, NULL))
		die("libipt's configuration");
}

static uint64_t raw_insns(void)
{
	struct pt_insn_decoder *decoder;
	struct pt_config config;
	struct pt_event event;
	struct pt_insn insn;
	uint64_t count = 0;
	int status;

	configure(&config);
	decoder = pt_insn_alloc_decoder(&config);
	pt_insn_set_image(decoder, image);
	while ((status = pt_insn_sync_forward(decoder)) >= 0) {
		for (;;) {
			while (status >= 0 && status & pts_event_pending)
				status = pt_insn_event(decoder, &event, sizeof(event));
			if (status < 0 || status & pts_eos)
				break;
			insn.iclass = UNKNOWN;
			status = pt_insn_next(decoder, &insn, sizeof(insn));
			count += insn.iclass != UNKNOWN;
		}
		if (status >= 0)
			break;
	}
	pt_insn_free_decoder(decoder);
	return count;
}

static uint64_t raw_blocks(void)
{
	struct pt_block_decoder *decoder;
	struct pt_config config;
	struct pt_event event;
	struct pt_block block;
	uint64_t count = 0;
	int status;

	configure(&config);
	decoder = pt_blk_alloc_decoder(&config);
	pt_blk_set_image(decoder, image);
	while ((status = pt_blk_sync_forward(decoder)) >= 0) {
		for (;;) {
			while (status >= 0 && status & pts_event_pending)
				status = pt_blk_event(decoder, &event, sizeof(event));
			if (status < 0 || status & pts_eos)
				break;
			block.ninsn = 0;
			status = pt_blk_next(decoder, &block, sizeof(block));
			count += block.ninsn;
		}
		if (status >= 0)
			break;
	}
	pt_blk_free_decoder(decoder);
	return count;
}

/* ---- ours ---- */

static struct ptw_stream *open_stream(unsigned int flags, unsigned int threads)
{
	struct ptw_stream_options options = {
		.order = PTW_ORDER_TRACE, .flags = flags, .threads = threads,
		.trace = &trace_index, .traces = 1,
	};
	struct ptw_stream *stream;
	struct ptw_error err;

	stream = ptw_stream_open(recording, &options, &err);
	if (!stream)
		die(err.text);
	return stream;
}

static uint64_t close_stream(struct ptw_stream *stream)
{
	uint64_t insns = ptw_stream_totals(stream, trace_index)->insns;

	ptw_stream_close(stream);
	return insns;
}

static uint64_t ours(unsigned int flags, unsigned int threads)
{
	struct ptw_stream *stream = open_stream(flags, threads);

	while (ptw_stream_next(stream))
		;
	return close_stream(stream);
}

/* The listing of addresses, up to the text of each line. */
static uint64_t our_insns(void)
{
	struct ptw_stream *stream = open_stream(PTW_STREAM_IPS, 1);
	const struct ptw_flow *flow;
	size_t size, count;
	const char *text;
	uint64_t lines = 0;

	while (ptw_stream_ips(stream, &text, &size, &flow, &count))
		lines += size / 17;
	close_stream(stream);
	return lines;
}

static uint64_t our_flow(void)
{
	return ours(0, 1);
}

static uint64_t our_totals(void)
{
	return ours(PTW_STREAM_TOTALS, 1);
}

static uint64_t our_flow_2(void)
{
	return ours(0, 2);
}

static uint64_t our_totals_2(void)
{
	return ours(PTW_STREAM_TOTALS, 2);
}

/* ---- measuring ---- */

static const struct {
	const char *name;
	uint64_t (*run)(void);
} decoders[] = {
	{ "libipt-insn", raw_insns },
	{ "libipt-block", raw_blocks },
	{ "insns", our_insns },
	{ "flow", our_flow },
	{ "totals", our_totals },
	{ "flow-2", our_flow_2 },
	{ "totals-2", our_totals_2 },
};

enum { DECODERS = sizeof(decoders) / sizeof(decoders[0]) };

struct best {
	uint64_t insns;
	double processor, wall;		/* seconds */
};

static void measure_one(int i, struct best *best)
{
	double processor = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
	uint64_t insns = decoders[i].run();

	processor = seconds(CLOCK_PROCESS_CPUTIME_ID) - processor;
	wall = seconds(CLOCK_MONOTONIC) - wall;
	if (best->insns && best->insns != insns)
		die("not the same instructions each time");
	best->insns = insns;
	if (best->processor == 0 || processor < best->processor)
		best->processor = processor;
	if (best->wall == 0 || wall < best->wall)
		best->wall = wall;
}

static void measure(void)
{
	struct best best[DECODERS] = { 0 };

	/* Taking turns: whatever disturbs the machine disturbs all of them. */
	for (int run = 0; run < RUNS; run++)
		for (int i = 0; i < DECODERS; i++)
			measure_one(i, &best[i]);
	for (int i = 0; i < DECODERS; i++)
		printf("%s %.1f %.1f %" PRIu64 "\n", decoders[i].name, best[i].insns / best[i].processor / 1e6,
		       best[i].insns / best[i].wall / 1e6, best[i].insns);
}

/* ---- the trace ---- */

static struct ptw_recorded_trace copied;

static void copy_trace(const uint8_t *data, size_t size, size_t copies)
{
	uint8_t *all = malloc(size * copies);

	if (!all || !size)
		die("out of memory, or no trace");
	for (size_t i = 0; i < copies; i++)
		memcpy(all + i * size, data, size);
	copied.data = all;
	copied.size = size * copies;
}

static void open_raw(char **argv)
{
	static struct ptw_recording raw;
	static uint8_t data[64 << 20];
	unsigned int family, model, stepping;
	FILE *file = fopen(argv[0], "re");
	struct ptw_error err;
	size_t size;

	if (!file)
		die("cannot open the trace");
	size = fread(data, 1, sizeof(data), file);
	fclose(file);
	copy_trace(data, size, strtoul(argv[3], NULL, 10));
	if (sscanf(argv[1], "%u/%u/%u", &family, &model, &stepping) != 3)
		die("CPU: FAMILY/MODEL/STEPPING");
	raw.params = (struct ptw_pt_params){
		.family = family, .model = model, .stepping = stepping,
		.mtc_freq = 3, .nom_freq = 37, .cpuid_0x15_eax = 2, .cpuid_0x15_ebx = 308,
	};
	if (ptw_image_parse(&raw.image, argv[2], &err))
		die(err.text);
	copied.cpu = copied.tid = -1;
	raw.trace = &copied;
	raw.trace_count = 1;
	recording = &raw;
}

int main(int argc, char **argv)
{
	struct ptw_error err;

	if (argc == 6 && !strcmp(argv[1], "--raw")) {
		open_raw(argv + 2);
	} else if (argc == 3 || argc == 4) {
		recording = ptw_recording_open(argv[1], &err);
		if (!recording)
			die(err.text);
		trace_index = strtoul(argv[2], NULL, 10);
		if (trace_index >= recording->trace_count)
			die("no such trace");
		if (argc == 4) {
			struct ptw_recorded_trace *t = &recording->trace[trace_index];

			copied = *t;
			copy_trace(t->data, t->size, strtoul(argv[3], NULL, 10));
			*t = copied;
		}
	} else {
		die("decode RECORDING TRACE [COPIES], or --raw TRACE F/M/S IMAGE COPIES");
	}
	load_image();
	measure();
	return 0;
}
