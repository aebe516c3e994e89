// SPDX-License-Identifier: BSD-2-Clause
#include "cli/output.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/verb.h"

int cli_error(const char *verb, const struct ptw_error *err)
{
	/* What was already printed belongs before the error where both streams end up in one file. */
	cli_sync();
	if (verb)
		fprintf(stderr, "ptwatch %s: %s\n", verb, err->text);
	else
		fprintf(stderr, "ptwatch: %s\n", err->text);
	return err->status;
}

int cli_usage(const char *verb, const char *format, ...)
{
	va_list args;

	cli_sync();
	fprintf(stderr, "ptwatch%s%s: ", verb ? " " : "", verb ? verb : "");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (see `ptwatch%s%s --help`)\n", verb ? " " : "", verb ? verb : "");
	return PTW_EXIT_USAGE;
}

bool cli_colour(FILE *stream)
{
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	if (no_color && *no_color)
		return false;
	return isatty(fileno(stream)) && term && strcmp(term, "dumb");
}

int cli_width(FILE *stream, int fallback)
{
	struct winsize size;
	const char *columns = getenv("COLUMNS");
	int width = 0;

	if (!ioctl(fileno(stream), TIOCGWINSZ, &size))
		width = size.ws_col;
	else if (columns)
		width = atoi(columns);
	if (width <= 0)
		return fallback;
	return width < 40 ? 40 : width;
}

/* Edit distance in which two swapped neighbours count once; words longer than the table are never near. */
static size_t distance(const char *a, const char *b)
{
	enum { MAX = 32 };
	size_t d[MAX + 1][MAX + 1];
	size_t la = strlen(a), lb = strlen(b);

	if (la > MAX || lb > MAX)
		return MAX;
	for (size_t i = 0; i <= la; i++)
		d[i][0] = i;
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = j;
	for (size_t i = 1; i <= la; i++) {
		for (size_t j = 1; j <= lb; j++) {
			size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[la][lb];
}

const char *cli_near(const char *typed, const char *const *words)
{
	size_t len = strlen(typed), best = len / 3 + 1;
	const char *near = NULL;

	for (; *words; words++) {
		size_t far = distance(typed, *words);

		/* The beginning of a word is as good as one slip. */
		if (len >= 2 && !strncmp(typed, *words, len))
			far = 1;
		/* Nothing in common is no match, however short the words are. */
		if (far <= best && far < len && (!near || far < best)) {
			best = far;
			near = *words;
		}
	}
	return near;
}

int cli_bad_option(const char *verb, int option, char **argv, const struct option *options)
{
	const char *words[64];
	const char *typed = argv[optind - 1], *near;
	char name[64];
	size_t count = 0;

	if (option == ':') {
		if (typed[0] == '-' && typed[1] == '-')
			return cli_usage(verb, "option %s needs a value", typed);
		return cli_usage(verb, "option -%c needs a value", optopt);
	}
	if (optopt) {
		/* A short option that does not exist, or a value for a long one that takes none. */
		for (const struct option *o = options; o->name; o++)
			if (o->val == optopt && !strncmp(typed, "--", 2) && strchr(typed, '='))
				return cli_usage(verb, "option --%s takes no value", o->name);
		return cli_usage(verb, "unknown option -%c", optopt);
	}
	snprintf(name, sizeof(name), "%s", typed + strspn(typed, "-"));
	name[strcspn(name, "=")] = '\0';
	for (; options->name && count < 63; options++)
		words[count++] = options->name;
	words[count] = NULL;
	near = cli_near(name, words);
	if (near)
		return cli_usage(verb, "unknown option --%s, did you mean --%s?", name, near);
	return cli_usage(verb, "unknown option --%s", name);
}

const char *cli_shown(const char *text)
{
	return *text ? text : "''";
}

char *cli_times(uint64_t count, char buf[CLI_TIMES])
{
	if (count == 1)
		snprintf(buf, CLI_TIMES, "once");
	else
		snprintf(buf, CLI_TIMES, "%" PRIu64 " times", count);
	return buf;
}

void cli_progress(const char *verb, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "ptwatch %s: ", verb);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* There is one stdout, so there is one state of it. */
static int output_error;

int cli_sync(void)
{
	errno = 0;
	if ((fflush(stdout) || ferror(stdout)) && !output_error)
		output_error = errno ? errno : EIO;
	return output_error;
}

int cli_flush(const char *verb)
{
	struct ptw_error err;

	if (!cli_sync())
		return PTW_EXIT_OK;
	if (output_error == EPIPE)
		return PTW_EXIT_FAILED;
	ptw_error_set(&err, PTW_EXIT_FAILED, "cannot write the output: %s", strerror(output_error));
	return cli_error(verb, &err);
}

int cli_stdout_closed(struct ptw_error *err)
{
	if (fcntl(STDOUT_FILENO, F_GETFD) >= 0)
		return 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot write the output: stdout is closed");
}
