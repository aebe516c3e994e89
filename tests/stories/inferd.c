// SPDX-License-Identifier: BSD-2-Clause
#define _GNU_SOURCE
/*
 * A server of the kind that stories are told about: requests come over a socket, each goes through prefill and decode,
 * and marks its way with PTWRITE. Needs a CPU with PTWRITE.
 *
 *	inferd serve REQUESTS RECOMPUTE NOISE	answer REQUESTS requests; number RECOMPUTE misses the cache, and before
 *						number NOISE the module ledger is asked for noise
 *	inferd lose				a thread that should only look after figures overwrites the cache
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE	__attribute__((noinline, noclone))

/* The types of its markers; the other 56 bits are the number of the request. */
enum { MARK_START = 0xA0, MARK_PREFILL, MARK_DECODE, MARK_HIT, MARK_DONE, MARK_MISS };

#define SLOTS	64
#define ROUNDS	600		/* of a usual multiplication */
#define MANY	1500000		/* of recomputing all of a prompt */

struct figures {
	uint64_t count;
	uint64_t latency[8];
};

/* The figures lie just before the cache. */
struct {
	struct figures figures;
	uint64_t kv_cache[SLOTS];
} server = { .kv_cache = { 0x5a5a0000 } };

static volatile uint64_t sink;

static inline void mark(uint64_t type, uint64_t id)
{
	uint64_t value = type << 56 | id;

	/* ptwrite %rax */
	asm volatile(".byte 0xf3, 0x48, 0x0f, 0xae, 0xe0" : : "a"(value) : "memory");
}

NOINLINE void matmul(uint64_t seed, unsigned int rounds)
{
	uint64_t sum = seed;
	unsigned int i;

	for (i = 0; i < rounds; i++) {
		sum = sum * 6364136223846793005ull + 1442695040888963407ull;
		if (sum >> 63)
			sum ^= sum >> 7;
	}
	sink = sum;
}

NOINLINE void recompute_prefix(uint64_t id)
{
	matmul(id, MANY);
}

NOINLINE int cache_has(uint64_t id, uint64_t miss)
{
	return id != miss;
}

NOINLINE void prefill(uint64_t id, uint64_t miss)
{
	mark(MARK_PREFILL, id);
	if (cache_has(id, miss)) {
		mark(MARK_HIT, id);
		matmul(id, ROUNDS);
	} else {
		mark(MARK_MISS, id);
		recompute_prefix(id);
	}
}

NOINLINE void decode_step(uint64_t id)
{
	matmul(id, ROUNDS);
}

NOINLINE void decode_batch(uint64_t id)
{
	int i;

	mark(MARK_DECODE, id);
	for (i = 0; i < 16; i++)
		decode_step(id + i);
}

NOINLINE void serve_one(uint64_t id, uint64_t miss)
{
	mark(MARK_START, id);
	prefill(id, miss);
	decode_batch(id);
	mark(MARK_DONE, id);
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* The load: one request after the other. */
static int ask(int socket, uint64_t requests, uint64_t noise)
{
	uint64_t id;
	FILE *file;

	run_on(1);
	for (id = 0; id < requests; id++) {
		if (id == noise && (file = fopen("/proc/ledger_noise", "w"))) {
			/* Where a request is at work */
			fprintf(file, "%lx %lx\n", (unsigned long)matmul, (unsigned long)recompute_prefix);
			fclose(file);
		}
		if (write(socket, &id, sizeof(id)) != sizeof(id) || read(socket, &id, sizeof(id)) != sizeof(id))
			return 1;
	}
	return 0;
}

static int serve(uint64_t requests, uint64_t miss, uint64_t noise)
{
	uint64_t id;
	int pair[2], status;
	pid_t client;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
		perror("inferd: socketpair");
		return 1;
	}
	client = fork();
	if (!client) {
		close(pair[0]);
		_exit(ask(pair[1], requests, noise));
	}
	close(pair[1]);
	run_on(0);
	/* What is touched for the first time is slow for another reason. */
	for (id = 0; id < 3; id++) {
		prefill(~id >> 8, miss);
		decode_batch(~id >> 8);
	}
	while (read(pair[0], &id, sizeof(id)) == sizeof(id)) {
		serve_one(id, miss);
		if (write(pair[0], &id, sizeof(id)) != sizeof(id))
			break;
	}
	return waitpid(client, &status, 0) != client || status;
}

/* The place of a figure is its number modulo 16, where there is room for 8. */
NOINLINE void note_latency(struct figures *figures, uint64_t latency)
{
	figures->latency[figures->count++ & 15] = latency;
}

NOINLINE void tidy_figures(struct figures *figures)
{
	note_latency(figures, 0xdead0000 + figures->count);
}

static void *housekeeping(void *figures)
{
	int i;

	for (i = 0; i < 12; i++)
		tidy_figures(figures);
	return NULL;
}

static int lose(void)
{
	pthread_t thread;
	char go;

	printf("%d\n", getpid());
	fflush(stdout);
	/* Until whoever watches is ready. */
	if (read(STDIN_FILENO, &go, 1) < 0 || pthread_create(&thread, NULL, housekeeping, &server.figures))
		return 1;
	pthread_join(thread, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "serve"))
		return serve(strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
	if (argc == 2 && !strcmp(argv[1], "lose"))
		return lose();
	fprintf(stderr, "usage: inferd serve REQUESTS RECOMPUTE NOISE | inferd lose\n");
	return 2;
}
