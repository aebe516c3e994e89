// SPDX-License-Identifier: BSD-2-Clause
#include "flow/jobs.h"

#include <pthread.h>
#include <unistd.h>

#include "decode/ipt.h"
#include "flow/engine.h"
#include "flow/slow.h"
#include "flow/threads.h"

#define JOB_BYTES	(64u << 10)	/* of trace, and what is left to the next PSB */
#define BATCH		2048		/* records */
#define SPARES		16
#define DROP_SWITCHES	8		/* after so many jobs what was looked at of the switches need not stay in memory */
#define BATCHES		2		/* of a lane's first job may wait in any case */
/*
 * Batches of all jobs may wait up to so many bytes for each thread, so that a thread gets through a job while the reader
 * is at the one before; and up to so many in all.
 */
#define AHEAD_BYTES	((size_t)4 << 20)
#define AHEAD_LIMIT	((size_t)96 << 20)
#define MAX_THREADS	256
#define STACK_SIZE	(64 << 20)	/* touched only where it is needed; see start_threads() */

struct job {
	struct job *next;	/* in its lane */
	struct engine engine;
	struct sink sink;
	struct slow *slow;
	size_t start;
	bool running, done;
	const struct tools *owner;	/* of @slow, which can't go to another thread: it holds on to the image */
	struct job_batch *first, **last;
	unsigned int batches;
};

struct lane {
	const struct ptw_recorded_trace *trace;
	struct job *first, **last;
	size_t planned;		/* up to here there are jobs */
	unsigned int window;	/* how many there are */
	uint64_t insns;		/* of the jobs that are over */
	const struct flow_labels *labels;	/* for the switches of its CPU */
	struct flow_runs runs;	/* who ran at its beginning */
	struct ptw_clock clock;	/* its first time is that of all jobs */
	struct ptw_trace_totals totals;
};

/* What a thread decodes with */
struct tools {
	struct code_view *view;
	struct walk *walk;
	struct slow_image *image;	/* when first needed */
};

struct jobs {
	const struct ptw_recording *rec;
	struct ptw_code *code;
	enum sink_mode mode;
	bool reference;		/* leave everything to libipt */
	struct lane *lane;
	size_t lanes;
	unsigned int window;	/* of jobs begun in each lane */
	uint64_t bytes;		/* done */
	unsigned int finished;	/* jobs */
	bool failed;
	size_t ahead;		/* bytes in batches that wait */
	size_t ahead_limit;
	const struct job *awaited;	/* by the reader */
	bool single;		/* one thread decodes */
	struct job_batch *spare;	/* emptied ones, for their memory: fresh pages cost more than what is written there */
	unsigned int spares;

	pthread_mutex_t lock;
	pthread_cond_t work;	/* there may be something to do */
	pthread_cond_t ready;	/* a batch, or the end of a job */
	bool stop;
	pthread_t thread[MAX_THREADS];
	unsigned int threads;
};

/* ---- one job ---- */

static void free_batches(struct job_batch *batch)
{
	struct job_batch *next;

	for (; batch; batch = next) {
		next = batch->next;
		free(batch->flow);
		free(batch->text);
		free(batch);
	}
}

static void free_job(struct job *job)
{
	free_batches(job->first);
	slow_free(job->slow);
	free(job->sink.flow);
	free(job->sink.text);
	free(job);
}

static bool open_tools(struct tools *t, struct ptw_code *code)
{
	t->view = code_view_new(code);
	t->walk = t->view ? walk_new(t->view) : NULL;
	return t->walk;
}

static void close_tools(struct tools *t)
{
	slow_image_free(t->image);
	walk_free(t->walk);
	code_view_free(t->view);
}

/* Until there is a batch, or the end, which is @over. Return: false: out of memory. */
static bool decode(struct jobs *jobs, struct job *job, struct tools *tools, bool *over)
{
	size_t room = BATCH;
	enum engine_status status;

	job->sink.walk = tools->walk;
	for (;;) {
		if (!job->slow) {
			status = jobs->reference ? ENGINE_DOUBT : engine_run(&job->engine, &job->sink, room);
			if (status == ENGINE_DOUBT) {
				if (!tools->image)
					tools->image = slow_image_new(jobs->rec, tools->view);
				job->slow = tools->image ? slow_new(&job->engine, &job->sink) : NULL;
				if (!job->slow)
					return false;
				job->owner = tools;
				continue;
			}
		} else {
			status = slow_run(job->slow, &job->engine, &job->sink, tools->image, room);
			if (status == ENGINE_END) {
				size_t at = slow_end(job->slow);

				slow_free(job->slow);
				job->slow = NULL;
				job->owner = NULL;
				if (at < job->engine.end) {
					engine_start(&job->engine, at, job->engine.end);
					job->engine.psb_insns = job->sink.insns;
					job->sink.events = job->sink.modes = 0;
					continue;
				}
			}
		}
		if (job->sink.failed)
			return false;
		*over = status == ENGINE_END;
		return true;
	}
}

static size_t batch_bytes(const struct job_batch *batch)
{
	return batch->count * sizeof(*batch->flow) + batch->text_size;
}

/*
 * Hand over what the sink has, and that it was the last. Called with the lock held: whoever sees a job done
 * and without batches frees it. Return: false: out of memory.
 */
static bool publish(struct jobs *jobs, struct job *job, bool over)
{
	struct job_batch *batch, had;

	job->done = over;
	if (!job->sink.count && !job->sink.text_used)
		return true;
	batch = over ? NULL : jobs->spare;
	if (batch) {
		jobs->spare = batch->next;
		jobs->spares--;
	} else {
		batch = calloc(1, sizeof(*batch));
		if (!batch)
			return false;
	}
	had = *batch;
	*batch = (struct job_batch){
		.flow = job->sink.flow, .count = job->sink.count, .room = job->sink.room,
		.text = job->sink.text, .text_size = job->sink.text_used, .text_room = job->sink.text_room,
	};
	job->sink.flow = had.flow;
	job->sink.room = had.room;
	job->sink.text = had.text;
	job->sink.text_room = had.text_room;
	job->sink.count = job->sink.text_used = 0;
	*job->last = batch;
	job->last = &batch->next;
	job->batches++;
	jobs->ahead += batch_bytes(batch);
	return true;
}

void jobs_done(struct jobs *jobs, struct job_batch *batch)
{
	if (!batch)
		return;
	batch->next = NULL;
	pthread_mutex_lock(&jobs->lock);
	if (jobs->spares < SPARES) {
		batch->next = jobs->spare;
		jobs->spare = batch;
		jobs->spares++;
		batch = NULL;
	}
	pthread_mutex_unlock(&jobs->lock);
	free_batches(batch);
}

/* ---- the jobs of a lane ---- */

static struct job *new_job(struct jobs *jobs, struct lane *lane, size_t start, size_t end)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->start = start;
	job->last = &job->first;
	job->engine.params = &jobs->rec->params;
	job->engine.data = lane->trace->data;
	job->engine.size = lane->trace->size;
	job->engine.begins = !lane->planned;
	job->engine.who = (struct engine_who){
		.code = jobs->code, .runs = lane->runs, .switch_to = lane->labels->switch_to,
	};
	/* What the reader has seen, far before this, tells nothing here. */
	job->engine.who.runs.home = 0;
	job->engine.who.runs.begun = false;
	engine_start(&job->engine, start, end);
	job->sink.mode = jobs->mode;
	job->sink.clock = lane->clock;
	job->sink.cpu = lane->trace->cpu;
	job->sink.trace = lane->trace - jobs->rec->trace;
	return job;
}

/* Begin jobs until the window is full. Return: false: out of memory. */
static bool plan(struct jobs *jobs, struct lane *lane)
{
	const struct ptw_recorded_trace *t = lane->trace;

	while (lane->window < jobs->window && lane->planned < t->size) {
		size_t start = ipt_next_psb(t->data, t->size, lane->planned), end;
		struct job *job;

		if (start >= t->size) {
			lane->planned = t->size;
			break;
		}
		end = t->size - start > JOB_BYTES ? ipt_next_psb(t->data, t->size, start + JOB_BYTES) : t->size;
		job = new_job(jobs, lane, start, end);
		if (!job)
			return false;
		*lane->last = job;
		lane->last = &job->next;
		lane->window++;
		lane->planned = end;
	}
	return true;
}

static void finish_job(struct jobs *jobs, struct lane *lane)
{
	struct job *job = lane->first;
	struct ptw_trace_totals *t = &lane->totals;

	lane->insns += job->sink.insns;
	t->insns = lane->insns;
	t->branches += job->sink.branches;
	t->errors += job->sink.errors;
	t->overflows += job->sink.overflows;
	t->lost += job->sink.lost;
	if (!t->first_time)
		t->first_time = job->sink.first_time;
	if (job->sink.last_time > t->last_time)
		t->last_time = job->sink.last_time;
	jobs->bytes += job->engine.end - job->start;
	ptw_trace_drop(lane->trace, job->start, job->engine.end);
	/* Where jobs begin, they look for their place among all switches. */
	if (!(++jobs->finished % DROP_SWITCHES)) {
		ptw_recording_side_drop(jobs->rec);
		code_drop(jobs->code);
		for (size_t i = 0; i < jobs->lanes; i++)
			ptw_spool_drop(&jobs->lane[i].labels->at);
	}
	lane->first = job->next;
	if (!lane->first)
		lane->last = &lane->first;
	lane->window--;
	free_job(job);
}

/* ---- threads ---- */

/* The job that the reader will want first: the nearest to the head of its lane. */
static struct job *choose(struct jobs *jobs, const struct tools *tools)
{
	bool room = jobs->ahead < jobs->ahead_limit;
	struct job *best = NULL;
	unsigned int best_place = ~0u;

	for (size_t i = 0; i < jobs->lanes; i++) {
		unsigned int place = 0;

		for (struct job *job = jobs->lane[i].first; job && place <= best_place; job = job->next, place++) {
			if (job->running || job->done || (job->owner && job->owner != tools))
				continue;
			/* The reader may have to wait for the first of any lane. */
			if (!room && (place || job->batches >= BATCHES))
				break;
			if (place < best_place || job->batches < best->batches) {
				best = job;
				best_place = place;
			}
			break;
		}
	}
	return best;
}

static void *work(void *context)
{
	struct jobs *jobs = context;
	struct tools tools = { 0 };
	bool fine = open_tools(&tools, jobs->code), over = false;

	pthread_mutex_lock(&jobs->lock);
	while (!jobs->stop && !jobs->failed) {
		struct job *job = fine ? choose(jobs, &tools) : NULL;

		if (!fine) {
			jobs->failed = true;
			break;
		}
		if (!job) {
			pthread_cond_wait(&jobs->work, &jobs->lock);
			continue;
		}
		job->running = true;
		pthread_mutex_unlock(&jobs->lock);
		fine = decode(jobs, job, &tools, &over);
		pthread_mutex_lock(&jobs->lock);
		job->running = false;
		fine = fine && publish(jobs, job, over);
		/* Not for each batch, with something else to do: waking the reader costs as much as a good part of one. */
		if (!fine || (job == jobs->awaited && (over || jobs->single || job->batches >= BATCHES)))
			pthread_cond_signal(&jobs->ready);
	}
	pthread_cond_broadcast(&jobs->ready);
	pthread_mutex_unlock(&jobs->lock);
	close_tools(&tools);
	return NULL;
}

struct job_batch *jobs_next(struct jobs *jobs, size_t n)
{
	struct lane *lane = &jobs->lane[n];
	struct job_batch *batch = NULL;

	pthread_mutex_lock(&jobs->lock);
	while (!jobs->failed) {
		struct job *job = lane->first;

		if (!job)
			break;
		if ((batch = job->first)) {
			job->first = batch->next;
			if (!job->first)
				job->last = &job->first;
			job->batches--;
			jobs->ahead -= batch_bytes(batch);
			batch->insns = lane->insns;
			/* All of them: one may have to wait for its own job. */
			pthread_cond_broadcast(&jobs->work);
			break;
		}
		if (job->done) {
			finish_job(jobs, lane);
			jobs->failed |= !plan(jobs, lane);
			pthread_cond_broadcast(&jobs->work);
		} else {
			jobs->awaited = job;
			pthread_cond_wait(&jobs->ready, &jobs->lock);
			jobs->awaited = NULL;
		}
	}
	pthread_mutex_unlock(&jobs->lock);
	return batch;
}

bool jobs_failed(const struct jobs *jobs)
{
	return jobs->failed;
}

const struct ptw_trace_totals *jobs_totals(const struct jobs *jobs, size_t lane)
{
	return &jobs->lane[lane].totals;
}

uint64_t jobs_bytes(struct jobs *jobs)
{
	uint64_t bytes;

	pthread_mutex_lock(&jobs->lock);
	bytes = jobs->bytes;
	pthread_mutex_unlock(&jobs->lock);
	return bytes;
}

/* ---- beginning and end ---- */

static bool only_padding(const struct ptw_recorded_trace *t)
{
	size_t dropped = 0;

	for (size_t i = 0; i < t->size; i++) {
		if (t->data[i])
			return false;
		ptw_trace_read_to(t, &dropped, i);
	}
	return true;
}

/* Without a PSB nothing can be decoded: a job that only says so. */
static bool plan_nothing(struct jobs *jobs, struct lane *lane)
{
	struct job *job = new_job(jobs, lane, 0, lane->trace->size);
	struct ptw_flow *f;

	if (!job)
		return false;
	f = sink_put(&job->sink, PTW_FLOW_GAP, 0);
	f->event = PTW_EVENT_OTHER;
	f->text = "no PSB in the trace: nothing to start from";
	f->value = lane->trace->size;
	job->sink.errors = 1;
	job->sink.lost = lane->trace->size;
	*lane->last = job;
	lane->last = &job->next;
	lane->window++;
	lane->planned = lane->trace->size;
	return !job->sink.failed && publish(jobs, job, true);
}

/* The times of all jobs count from the same one. */
static void find_first_time(const struct jobs *jobs, struct lane *lane)
{
	const struct ptw_recorded_trace *t = lane->trace;
	size_t psb = 0, dropped = 0;
	uint64_t tsc;

	lane->clock.params = &jobs->rec->params;
	while ((psb = ipt_next_psb(t->data, t->size, psb)) < t->size) {
		if (engine_psb_tsc(t->data, t->size, psb, &tsc)) {
			lane->clock.started = true;
			lane->clock.first = tsc;
			return;
		}
		ptw_trace_read_to(t, &dropped, psb);
		psb += 16;
	}
}

static bool open_lane(struct jobs *jobs, struct lane *lane, const struct jobs_trace *trace)
{
	lane->trace = &jobs->rec->trace[trace->index];
	lane->labels = trace->labels;
	lane->runs = trace->labels->runs;
	lane->last = &lane->first;
	lane->totals.bytes = lane->trace->size;
	find_first_time(jobs, lane);
	if (ipt_next_psb(lane->trace->data, lane->trace->size, 0) < lane->trace->size)
		return plan(jobs, lane);
	return only_padding(lane->trace) || plan_nothing(jobs, lane);
}

/*
 * Even if it is only one, which waits for the reader as the reader for it: the stack of whoever calls us
 * may be too small. libipt's block decoder calls itself for each step of a loop without packets, up to
 * 65,535 times (the instructions that a block can have), with some 200 bytes each.
 */
static void start_threads(struct jobs *jobs, unsigned int threads)
{
	pthread_attr_t attr;

	if (pthread_attr_init(&attr))
		return;
	if (!pthread_attr_setstacksize(&attr, STACK_SIZE))
		for (; jobs->threads < threads; jobs->threads++)
			if (pthread_create(&jobs->thread[jobs->threads], &attr, work, jobs))
				break;
	pthread_attr_destroy(&attr);
}

struct jobs *jobs_new(const struct ptw_recording *rec, struct ptw_code *code, const struct jobs_trace *trace, size_t traces,
		      enum sink_mode mode, bool reference, unsigned int threads, struct ptw_error *err)
{
	struct jobs *jobs = calloc(1, sizeof(*jobs));
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (!jobs)
		goto no_memory;
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->work, NULL);
	pthread_cond_init(&jobs->ready, NULL);
	jobs->rec = rec;
	jobs->code = code;
	jobs->mode = mode;
	jobs->reference = reference;
	if (!threads)
		threads = cores > 1 ? cores : 1;
	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	jobs->single = threads == 1;
	jobs->window = threads == 1 ? 1 : traces ? 2 + 2 * threads / traces : 2;
	jobs->ahead_limit = threads == 1 ? 0 : threads * AHEAD_BYTES < AHEAD_LIMIT ? threads * AHEAD_BYTES : AHEAD_LIMIT;
	jobs->lane = calloc(traces ? traces : 1, sizeof(*jobs->lane));
	if (!jobs->lane)
		goto no_memory;
	for (jobs->lanes = 0; jobs->lanes < traces; jobs->lanes++)
		if (!open_lane(jobs, &jobs->lane[jobs->lanes], &trace[jobs->lanes])) {
			jobs->lanes++;
			goto no_memory;
		}
	start_threads(jobs, threads);
	if (!jobs->threads)
		goto no_memory;
	return jobs;
no_memory:
	jobs_free(jobs);
	ptw_error_set(err, PTW_EXIT_FAILED, "stream: out of memory");
	return NULL;
}

void jobs_free(struct jobs *jobs)
{
	if (!jobs)
		return;
	pthread_mutex_lock(&jobs->lock);
	jobs->stop = true;
	pthread_cond_broadcast(&jobs->work);
	pthread_mutex_unlock(&jobs->lock);
	for (unsigned int i = 0; i < jobs->threads; i++)
		pthread_join(jobs->thread[i], NULL);
	for (size_t i = 0; i < jobs->lanes; i++) {
		struct job *job;

		while ((job = jobs->lane[i].first)) {
			jobs->lane[i].first = job->next;
			free_job(job);
		}
	}
	free_batches(jobs->spare);
	free(jobs->lane);
	pthread_cond_destroy(&jobs->ready);
	pthread_cond_destroy(&jobs->work);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
}
