// SPDX-License-Identifier: GPL-2.0
/*
 * Streams: a ring whose regions are read while others are written.
 *
 * Each region has INT, so that its end brings an NMI, which stops the CPU, notes how far it got and
 * has it go on (a pass, see engine.c). The last region before the reader's tail has STOP: what is
 * unread is never overwritten. It is never meant to be reached, as what the CPU still holds then is
 * lost uncounted. When the region before it is full and the reader has not moved, the CPU is sent
 * to the sink, a buffer of its own that nobody reads: what goes there is lost, but counted to the
 * byte. It comes back to the stream, behind what it wrote last, in the first pass that finds the
 * next region free; ptw_stream_advance() sees to one.
 *
 * So of the bytes that the CPU wrote since SETUP, head can be read, and lost were lost.
 */
#include <asm/barrier.h>
#include <asm/msr.h>

#include "ptwatch.h"

#define SINK_REGIONS	2
#define SINK_REGION	(64 * 1024UL)

int ptw_stream_init(struct ptw_cpu_trace *ct)
{
	struct ptw_buffer *buffer = ct->banks[0].buffer;

	/* One is written, one has STOP and is not meant to be reached, one is read. */
	if (buffer->nr_regions < 4)
		return -EINVAL;
	ct->stream.sink = ptw_buffer_alloc_output(ct->cpu, SINK_REGIONS * SINK_REGION, SINK_REGION,
						  PTW_TOPA_SINK);
	if (!ct->stream.sink)
		return -ENOMEM;
	ct->stream.stop_region = buffer->nr_regions - 1;
	ptw_topa_set_stop(buffer->topa, ct->stream.stop_region, true);
	return 0;
}

void ptw_stream_free(struct ptw_cpu_trace *ct)
{
	ptw_buffer_put(ct->stream.sink);
}

static u64 region_end(const struct ptw_buffer *buffer, unsigned int region)
{
	const struct ptw_region *r = &buffer->regions[region];

	return r->offset + (PAGE_SIZE << r->order);
}

static void end_gap(struct ptw_cpu_trace *ct)
{
	struct ptwatch_control *control = ct->control;
	struct ptw_stream *stream = &ct->stream;
	struct ptwatch_loss *loss = &control->losses[control->nr_losses % PTWATCH_LOSSES];

	loss->position = stream->head;
	loss->bytes = stream->gap_bytes;
	loss->start_tsc = stream->gap_tsc;
	loss->end_tsc = rdtsc();
	stream->gap_bytes = 0;
	/* Before head moves on: who sees bytes behind the gap sees the gap. */
	smp_store_release(&control->nr_losses, control->nr_losses + 1);
}

void ptw_stream_collect(struct ptw_cpu_trace *ct)
{
	struct ptw_buffer *buffer = ct->banks[0].buffer;
	struct ptw_stream *stream = &ct->stream;
	bool stopped = ct->output.status & RTIT_STATUS_STOPPED;
	u64 from, to, written;

	stream->overrun = false;
	if (stream->sinking) {
		written = ptw_topa_offset(stream->sink->topa, &ct->output, NULL);
		stream->overrun = stopped && written == stream->sink->size;
		if (stream->overrun)
			ct->flags |= PTWATCH_CONTROL_OVERRUN;
		stream->gap_bytes += written;
		stream->lost += written;
		smp_store_release(&ct->control->lost, stream->lost);
		return;
	}

	div64_u64_rem(stream->head, buffer->size, &from);
	to = ptw_topa_offset(buffer->topa, &ct->output, NULL);
	written = to >= from ? to - from : to + buffer->size - from;
	if (stopped && to == region_end(buffer, stream->stop_region)) {
		/* Full to the last byte, from an empty buffer's first region on. */
		if (!written)
			written = buffer->size;
		stream->overrun = true;
		ct->flags |= PTWATCH_CONTROL_OVERRUN;
	}
	stream->head += written;
	/* After the bytes, see wmb() in ptw_rtit_stop(); pairs with the reader's acquire. */
	smp_store_release(&ct->control->head, stream->head);
	if (stream->overrun) {
		stream->gap_tsc = rdtsc();
		end_gap(ct);
	}
}

/* Is the region after the one that head is in free? If so, up to which one may be written? */
static bool find_room(const struct ptw_cpu_trace *ct, unsigned int region, unsigned int *last)
{
	unsigned int count = ct->banks[0].buffer->nr_regions;
	unsigned int tail_region = READ_ONCE(ct->stream.tail_region);

	*last = (tail_region + count - 1) % count;
	return *last != region;
}

void ptw_stream_prepare(struct ptw_cpu_trace *ct)
{
	struct ptw_buffer *buffer = ct->banks[0].buffer;
	struct ptw_stream *stream = &ct->stream;
	unsigned int region, last;
	u64 offset;

	div64_u64_rem(stream->head, buffer->size, &offset);
	region = ptw_buffer_region(buffer, offset);
	if (!find_room(ct, region, &last)) {
		if (!stream->sinking) {
			stream->gap_tsc = rdtsc();
			WRITE_ONCE(stream->sinking, true);
		}
		/*
		 * Against ptw_stream_advance(), which stores tail_region and then looks at sinking:
		 * one of us sees what the other did, or the CPU would stay in the sink although
		 * there is room.
		 */
		smp_mb();
		if (!find_room(ct, region, &last)) {
			ptw_topa_seek(stream->sink->topa, 0, 0, &ct->output);
			return;
		}
	}
	if (stream->sinking) {
		end_gap(ct);
		WRITE_ONCE(stream->sinking, false);
	}
	ptw_topa_seek(buffer->topa, region, offset - buffer->regions[region].offset, &ct->output);
	if (last != stream->stop_region) {
		ptw_topa_set_stop(buffer->topa, stream->stop_region, false);
		ptw_topa_set_stop(buffer->topa, last, true);
		stream->stop_region = last;
	}
}

void ptw_stream_end(struct ptw_cpu_trace *ct)
{
	if (!ct->stream.sinking)
		return;
	end_gap(ct);
	WRITE_ONCE(ct->stream.sinking, false);
}

static void resume(void *info)
{
	struct ptw_cpu_trace *ct = info;

	if (ct->stream.sinking)
		ptw_engine_request(ct, PTW_REQUEST_RESTART);
}

int ptw_stream_advance(struct ptw_cpu_trace *ct, u64 tail)
{
	struct ptw_buffer *buffer = ct->banks[0].buffer;
	u64 offset;

	/* The reader's accesses come before the CPU's next ones: whatever it read, it has read. */
	if (tail < ct->control->tail || tail > smp_load_acquire(&ct->control->head))
		return -EINVAL;
	WRITE_ONCE(ct->control->tail, tail);
	div64_u64_rem(tail, buffer->size, &offset);
	WRITE_ONCE(ct->stream.tail_region, ptw_buffer_region(buffer, offset));
	smp_mb();	/* pairs with the one in ptw_stream_prepare() */
	if (READ_ONCE(ct->stream.sinking) && READ_ONCE(ct->owned))
		smp_call_function_single(ct->cpu, resume, ct, true);
	return 0;
}

bool ptw_stream_readable(const struct ptw_cpu_trace *ct)
{
	struct ptw_buffer *buffer = ct->banks[0].buffer;
	u64 offset;

	div64_u64_rem(smp_load_acquire(&ct->control->head), buffer->size, &offset);
	return ptw_buffer_region(buffer, offset) != READ_ONCE(ct->stream.tail_region);
}
