// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch: the program. Finds the verb and hands over; each verb reads its own options. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/verb.h"
#include "common/version.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* In the order a person meets them. */
static const struct ptw_verb *const verbs[] = {
	&verb_info,
	&verb_watch,
	&verb_watches,
	&verb_unwatch,
	&verb_record,
	&verb_snapshot,
	&verb_calls,
	&verb_insns,
	&verb_packets,
	&verb_latency,
	&verb_markers,
	&verb_stat,
	&verb_evidence,
	&verb_flame,
	&verb_timeline,
	&verb_export,
};

static const struct ptw_verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(verbs[i]->name, name))
			return verbs[i];
	return NULL;
}

static int unknown_verb(const char *name)
{
	const char *words[ARRAY_SIZE(verbs) + 1] = { NULL };
	const char *near;

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		words[i] = verbs[i]->name;
	near = cli_near(name, words);
	if (near)
		return cli_usage(NULL, "unknown verb '%s', did you mean '%s'?", name, near);
	return cli_usage(NULL, "unknown verb '%s'", name);
}

static void print_help(FILE *out)
{
	fputs("Who touched this memory, or reached this code, and by what exact path did the CPU get there?\n\n"
	      "Usage: ptwatch VERB [OPTION]…\n\n", out);
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(out, "  %-10s %s\n", verbs[i]->name, verbs[i]->summary);
	fputs("\n"
	      "`ptwatch VERB --help` and ptwatch-VERB(1) tell more. Try:\n\n"
	      "  ptwatch info                                         can this machine do it?\n"
	      "  ptwatch watch jiffies_64:8:w                         who writes it: CPU, process, values, stack\n"
	      "  ptwatch watch jiffies_64:8:w --freeze -o crime       … with Intel PT: and by which path?\n"
	      "  ptwatch calls -i crime --last 40us\n\n"
	      "Exit status: 0 done; 1 failed; 2 wrong usage; 3 done, but the trace had errors or gaps; 4 this machine\n"
	      "or kernel can't (no Intel PT, no module, lockdown).\n", out);
}

int main(int argc, char **argv)
{
	const struct ptw_verb *verb;
	const char *word = argc > 1 ? argv[1] : NULL;

	/* Then what a verb prints at once is written by its flush, which tells why that fails. */
	if (!isatty(STDOUT_FILENO))
		setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	if (!word) {
		print_help(stderr);
		return PTW_EXIT_USAGE;
	}
	if (!strcmp(word, "--help") || !strcmp(word, "-h") || (!strcmp(word, "help") && argc == 2)) {
		print_help(stdout);
		return cli_flush(NULL);
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		puts("ptwatch " PTWATCH_VERSION);
		return cli_flush(NULL);
	}
	if (!strcmp(word, "help")) {
		/* `ptwatch help VERB` is `ptwatch VERB --help`. */
		char help[] = "--help";
		char *help_argv[] = { argv[2], help, NULL };

		verb = find_verb(argv[2]);
		return verb ? verb->run(2, help_argv) : unknown_verb(argv[2]);
	}
	if (word[0] == '-')
		return cli_usage(NULL, "unknown option %s", word);
	verb = find_verb(word);
	if (!verb)
		return unknown_verb(word);
	return verb->run(argc - 1, argv + 1);
}
