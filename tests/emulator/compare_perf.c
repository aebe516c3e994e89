/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * compare_perf TRUTH-DIR [STATE]: check that the instructions on stdin, which perf script printed with
 * --itrace=i0ns -F cpu,ip, are those of TRUTH-DIR/cpuN.ips (see truth.c), for each CPU in order, address by
 * address. With STATE, a file, go on where the comparison that left it there ended, and leave it for the next;
 * the truth must end with the last.
 *
 * Prints one line of counts, and the first difference with its surroundings. Exit status: 0 equal, 1 not,
 * 2 usage or files.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CPUS 8
#define CONTEXT 8
/* Words of the truth below this are marks. */
#define FIRST_IP 16

struct truth {
	uint64_t *ips;
	size_t n, at;
};

static struct truth truths[MAX_CPUS];

static void read_truth(const char *dir, int cpu)
{
	struct truth *t = &truths[cpu];
	char path[512];
	long len;
	FILE *f;

	snprintf(path, sizeof(path), "%s/cpu%d.ips", dir, cpu);
	f = fopen(path, "rb");
	if (!f)
		return;
	fseek(f, 0, SEEK_END);
	len = ftell(f);
	rewind(f);
	t->n = len / 8;
	t->ips = malloc(len + 8);
	if (fread(t->ips, 8, t->n, f) != t->n) {
		perror(path);
		exit(2);
	}
	fclose(f);
}

static void skip_marks(struct truth *t)
{
	while (t->at < t->n && t->ips[t->at] < FIRST_IP)
		t->at++;
}

static void show(const struct truth *t, int cpu, uint64_t decoded)
{
	printf("cpu %d: first difference at truth word %zu:\n", cpu, t->at);
	for (size_t i = t->at > CONTEXT ? t->at - CONTEXT : 0; i < t->at + CONTEXT && i < t->n; i++)
		printf("  truth %016" PRIx64 "%s\n", t->ips[i], i == t->at ? "  <-- here" : "");
	printf("  decoded %016" PRIx64 "\n", decoded);
}

int main(int argc, char **argv)
{
	uint64_t equal = 0, user = 0, errors = 0, ip;
	bool differs = false;
	char line[512];
	FILE *state;
	int cpu;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: perf script --itrace=i0ns -F cpu,ip | compare_perf TRUTH-DIR [STATE]\n");
		return 2;
	}
	for (cpu = 0; cpu < MAX_CPUS; cpu++)
		read_truth(argv[1], cpu);
	state = argc == 3 ? fopen(argv[2], "r") : NULL;
	for (cpu = 0; state && cpu < MAX_CPUS; cpu++)
		if (fscanf(state, "%zu", &truths[cpu].at) != 1)
			truths[cpu].at = 0;
	while (!differs && fgets(line, sizeof(line), stdin)) {
		struct truth *t;

		if (sscanf(line, " [%d] %" SCNx64, &cpu, &ip) != 2) {
			if (errors++ < CONTEXT)
				printf("%s", line);
			continue;
		}
		if (cpu < 0 || cpu >= MAX_CPUS) {
			fprintf(stderr, "CPU %d\n", cpu);
			return 2;
		}
		t = &truths[cpu];
		skip_marks(t);
		if (t->at == t->n || t->ips[t->at] != ip) {
			differs = true;
			show(t, cpu, ip);
			for (int i = 0; i < 200 && fgets(line, sizeof(line), stdin); i++) {
				int other;

				if (i < 4 * CONTEXT && (sscanf(line, " [%d]", &other) != 1 || other == cpu))
					printf("  then %s", line);
			}
			break;
		}
		t->at++;
		equal++;
		user += !(ip >> 63);
	}
	for (cpu = 0; cpu < MAX_CPUS; cpu++)
		skip_marks(&truths[cpu]);
	if (argc == 3) {
		state = fopen(argv[2], "w");
		for (cpu = 0; state && cpu < MAX_CPUS; cpu++)
			fprintf(state, "%zu\n", truths[cpu].at);
		if (!state || fclose(state))
			return 2;
	} else {
		for (cpu = 0; cpu < MAX_CPUS && !differs; cpu++) {
			differs = truths[cpu].at < truths[cpu].n;
			if (differs)
				printf("cpu %d: the truth goes on at word %zu\n", cpu, truths[cpu].at);
		}
	}
	printf("equal=%" PRIu64 " user=%" PRIu64 " kernel=%" PRIu64 " differs=%d errors=%" PRIu64 " left=", equal, user,
	       equal - user, differs, errors);
	for (cpu = 0; cpu < MAX_CPUS && truths[cpu].n; cpu++)
		printf("%s%zu", cpu ? "," : "", truths[cpu].n - truths[cpu].at);
	printf("\n");
	return differs || errors;
}
