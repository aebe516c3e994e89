// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch record: trace until something ends it, and keep all of it. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/capture.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "common/number.h"
#include "control/device.h"

#define VERB "record"
#define DEFAULT_BUFFER (4ULL << 20)
#define DEFAULT_OUTPUT "ptwatch.data"
#define NS_PER_SEC UINT64_C(1000000000)
/* How often the rings are looked at when none of them asks for it. */
#define ROUND_NS (NS_PER_SEC / 4)

struct record_options {
	const char *output;
	uint64_t buffer;
	const char *buffer_text;	/* as typed; NULL: the default */
	uint64_t where;			/* PTWATCH_RTIT_CTL_OS, PTWATCH_RTIT_CTL_USER */
	uint8_t *cpus;			/* NULL: all online */
	size_t cpus_size;
	bool all;
	uint64_t time;			/* ns; 0: no end */
	char **command;			/* NULL: none */
};

static void print_help(void)
{
	fputs("Record what was executed, with Intel PT: every branch, with times, until something ends it.\n\n"
	      "Usage: ptwatch record [OPTION]… [-a | -C CPUS | -- COMMAND [ARGUMENT]…]\n\n"
	      "  -o, --output DIR    write the recording there (default " DEFAULT_OUTPUT ")\n"
	      "  -a, --all           every CPU\n"
	      "  -C, --cpu CPUS      these CPUs only, e.g. 0-3,8\n"
	      "  -u, --user          user code only; -k -u both (default)\n"
	      "  -k, --kernel        the kernel only\n"
	      "      --ring SIZE     keep the newest SIZE bytes of each CPU, and write them at the end\n"
	      "      --for TIME      end after TIME: 10 or 10s, 500ms, 2m\n"
	      "  -h, --help          this text\n\n"
	      "Ends with COMMAND, after --for, or by Ctrl-C, whichever comes first. COMMAND is a program and its arguments, no\n"
	      "shell line: write sh -c 'a; b' for one. Exit status 0: recorded; 1: failed; 3: recorded, with losses. The status\n"
	      "of COMMAND is told when it is not 0.\n\n"
	      "  ptwatch record -a --for 1s\n"
	      "  ptwatch record -o rec -- ls -l\n"
	      "  perf script -i rec --itrace=i0ns\n", stdout);
}

/* ---- the command line ---- */

enum { OPT_RING = 256, OPT_FOR };

static const struct option options[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "all", no_argument, NULL, 'a' },
	{ "cpu", required_argument, NULL, 'C' },
	{ "user", no_argument, NULL, 'u' },
	{ "kernel", no_argument, NULL, 'k' },
	{ "ring", required_argument, NULL, OPT_RING },
	{ "for", required_argument, NULL, OPT_FOR },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Return: -1 to go on, else the exit status. */
static int parse_option(struct record_options *opt, int option, char **argv)
{
	switch (option) {
	case 'o':
		if (!*optarg)
			return cli_usage(VERB, "-o needs the name of a directory");
		opt->output = optarg;
		break;
	case 'a':
		opt->all = true;
		break;
	case 'C':
		free(opt->cpus);
		opt->cpus = NULL;
		if (ptw_parse_cpus(optarg, &opt->cpus, &opt->cpus_size) < 0)
			return cli_usage(VERB, "--cpu %s is not a list of CPUs such as 0-3,8", optarg);
		break;
	case 'u':
		opt->where |= PTWATCH_RTIT_CTL_USER;
		break;
	case 'k':
		opt->where |= PTWATCH_RTIT_CTL_OS;
		break;
	case OPT_RING:
		if (ptw_parse_size(optarg, &opt->buffer) || !opt->buffer)
			return cli_usage(VERB, "--ring %s is not a size such as 65536, 512k or 4M", optarg);
		opt->buffer_text = optarg;
		break;
	case OPT_FOR:
		if (ptw_parse_duration(optarg, &opt->time) || !opt->time)
			return cli_usage(VERB, "--for %s is not a time such as 10, 1.5s, 500ms or 2m", optarg);
		break;
	case 'h':
		print_help();
		return cli_flush(VERB);
	default:
		return cli_bad_option(VERB, option, argv, options);
	}
	return -1;
}

/* Return: -1 to go on, else the exit status. */
static int parse_command_line(struct record_options *opt, int argc, char **argv)
{
	int option, status, end;

	*opt = (struct record_options){ .buffer = DEFAULT_BUFFER, .output = DEFAULT_OUTPUT };
	/* getopt() mixes what stands before and behind "--", so the command is cut off first. */
	for (end = 1; end < argc; end++)
		if (!strcmp(argv[end], "--"))
			break;
	if (end < argc) {
		if (end + 1 == argc)
			return cli_usage(VERB, "no COMMAND after --");
		opt->command = &argv[end + 1];
		argv[end] = NULL;
	}
	opterr = 0;
	while ((option = getopt_long(end, argv, ":o:aC:ukh", options, NULL)) != -1) {
		status = parse_option(opt, option, argv);
		if (status >= 0)
			return status;
	}
	if (optind < end)
		return cli_usage(VERB, "unexpected argument '%s'; a command to run stands behind --", argv[optind]);
	if (opt->all && opt->cpus)
		return cli_usage(VERB, "-a is every CPU and -C some of them: take one");
	if (!opt->all && !opt->cpus && !opt->command)
		return cli_usage(VERB, "nothing to record: say -a for every CPU, -C CPUS, or a command behind --");
	if (!opt->where)
		opt->where = PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_USER;
	return -1;
}

/* ---- recording ---- */

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * NS_PER_SEC + time.tv_nsec;
}

static int prepare(struct capture *capture, const struct record_options *opt, struct capture_request *request,
		   struct ptw_error *err)
{
	const struct ptwatch_info *info = &capture->device.info;
	uint64_t page = sysconf(_SC_PAGESIZE);
	char text[32];

	*request = (struct capture_request){
		.verb = VERB,
		.output = opt->output,
		.trace = {
			.rtit_ctl = ptw_trace_default_rtit_ctl(info, opt->where),
			.buffer_size = (opt->buffer + page - 1) / page * page,
			.cpus = opt->cpus,
			.cpus_size = opt->cpus_size,
		},
	};
	if (info->max_buffer_size && request->trace.buffer_size > info->max_buffer_size) {
		if (opt->buffer_text)
			return ptw_error_set(err, PTW_EXIT_FAILED, "--ring %s is larger than this machine gives; take at most %s",
					     opt->buffer_text, ptw_bytes(info->max_buffer_size, text, sizeof(text)));
		request->trace.buffer_size = info->max_buffer_size;
	}
	return capture_prepare(capture, request, err);
}

static void show_progress(const struct capture *capture, uint64_t elapsed)
{
	char bytes[32];

	ptw_bytes(ptw_recording_size(capture->writer), bytes, sizeof(bytes));
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\rptwatch record: %" PRIu64 " s, %s written; Ctrl-C ends   ", elapsed / NS_PER_SEC, bytes);
	else
		cli_progress(VERB, "%" PRIu64 " s, %s written", elapsed / NS_PER_SEC, bytes);
}

static int wait_for_end(struct capture *capture, struct cli_command *command, const struct record_options *opt,
			struct ptw_error *err)
{
	uint64_t start = now(), deadline = opt->time ? start + opt->time : 0, time = start, wait, shown = start;
	/* On a terminal the line is written over; elsewhere lines become rarer. */
	uint64_t pause = NS_PER_SEC;
	bool terminal = isatty(STDERR_FILENO), any = false;
	struct pollfd fds[] = {
		{ .fd = capture_fd(capture), .events = POLLIN },
		{ .fd = command->signals, .events = POLLIN },
	};

	while (!command->signal && !command->ended && !capture->full) {
		wait = ROUND_NS;
		if (deadline) {
			if (time >= deadline)
				break;
			if (deadline - time < wait)
				wait = deadline - time;
		}
		/* Rounded up, so that the last round does not spin. */
		if (poll(fds, 2, wait / 1000000 + 1) < 0 && errno != EINTR)
			return ptw_error_set(err, PTW_EXIT_FAILED, "cannot wait: %s", strerror(errno));
		cli_signals_read(command);
		if (capture_round(capture, err))
			return -1;
		time = now();
		if (time - shown >= pause) {
			show_progress(capture, time - start);
			shown = time;
			any = true;
			if (!terminal)
				pause *= 2;
		}
	}
	if (any && terminal)
		fputc('\n', stderr);
	return 0;
}

static int record(struct capture *capture, struct cli_command *command, const struct record_options *opt,
		  struct ptw_error *err)
{
	if (opt->command && cli_command_prepare(command, err))
		return -1;
	if (capture_start(capture, err))
		return -1;
	if (opt->command ? cli_command_go(command, err) :
			   !fprintf(stderr, "recording to %s; Ctrl-C ends it\n", opt->output))
		return -1;
	if (wait_for_end(capture, command, opt, err) || capture_stop(capture, err) || capture_finish(capture, err))
		return -1;
	return 0;
}

static void conclude(const struct capture *capture, const struct record_options *opt)
{
	char number[32];

	cli_progress(VERB, "%s bytes of trace of %zu CPU%s in %s", ptw_commas(capture->bytes, number, sizeof(number)),
		     capture->device.trace_count, capture->device.trace_count == 1 ? "" : "s", opt->output);
}

static int run(int argc, char **argv)
{
	struct record_options opt;
	struct capture_request request;
	struct capture capture = { .device.fd = -1 };
	struct cli_command command = CLI_COMMAND_INIT(VERB);
	struct ptw_error err;
	bool lossy = false;
	int status = parse_command_line(&opt, argc, argv), ret;

	if (status >= 0)
		goto out;
	command.argv = opt.command;
	ret = ptw_device_open(&capture.device, &err);
	if (!ret)
		ret = cli_signals_block(&command, &err);
	if (!ret)
		ret = prepare(&capture, &opt, &request, &err);
	if (!ret)
		ret = record(&capture, &command, &opt, &err);
	if (!ret) {
		conclude(&capture, &opt);
		lossy = capture_report(&capture);
	}
	if (!ret && capture.full) {
		ptw_error_set(&err, PTW_EXIT_FAILED, "%.800s; what was recorded until then is kept in %.160s",
			      capture.full_error.text, opt.output);
		ret = -1;
	}
	status = ret ? cli_error(VERB, &err) : cli_flush(VERB);
	if (status == PTW_EXIT_OK && lossy)
		status = PTW_EXIT_GAPS;
	capture_close(&capture);
	/* Nobody waits for a command whose recording is over. */
	cli_command_end(&command, true);
	if (command.signals >= 0)
		close(command.signals);
out:
	free(opt.cpus);
	return status;
}

const struct ptw_verb verb_record = {
	.name = VERB,
	.summary = "record what was executed, by all, on some CPUs, or by a command",
	.run = run,
};
