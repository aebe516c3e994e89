// SPDX-License-Identifier: BSD-2-Clause
/*
 * ptwatch record: trace until something ends it, and keep all of it, or what a ring holds then. ptwatch snapshot: the
 * latter, of the whole system unless told otherwise.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/capture.h"
#include "cli/capture_options.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "common/number.h"
#include "control/device.h"

#define DEFAULT_RING (4ULL << 20)
#define DEFAULT_STREAM (16ULL << 20)
/* A page; of a stream each of the four regions that the module wants has one. */
#define LEAST_RING 4096
#define LEAST_STREAM (4 * 4096)
#define NS_PER_SEC UINT64_C(1000000000)
/* How often the rings are looked at when none of them asks for it. */
#define ROUND_NS (NS_PER_SEC / 4)

struct record_options {
	const char *verb;
	bool snapshot;			/* the verb */
	const char *output;
	bool ring;
	uint64_t buffer;		/* 0: the default; of the ring, too */
	const char *buffer_text;	/* as typed */
	bool stream;			/* -m was given */
	uint64_t time;			/* ns; 0: no end */
	bool json;
	char **command;			/* NULL: none */
	struct capture_options trace;
};

static void print_record_help(void)
{
	fputs("Record what was executed, with Intel PT: every branch, with times, until something ends it.\n\n"
	      "Usage: ptwatch record [OPTION]… [-a | -C CPUS | -p PID | --cgroup DIR | -- COMMAND [ARGUMENT]…]\n\n"
	      "  -o, --output DIR    write the recording there (default " DEFAULT_OUTPUT ")\n", stdout);
	fputs(capture_options_help, stdout);
	fputs("      --ring SIZE     keep the newest SIZE bytes of each CPU (4k or more), and write them at the end\n"
	      "  -m, --buffer SIZE   without --ring: what waits for the disk, for each CPU (default 16M, at least 16k)\n"
	      "      --for TIME      end after TIME: 10 or 10s, 500ms, 2m\n"
	      "      --json          tell what was recorded as a JSON object on stdout\n"
	      "  -h, --help          this text\n\n"
	      "COMMAND alone is traced with all its threads; with -a or -C, what runs there until it ends. It is a program and\n"
	      "its arguments, no shell line: write sh -c 'a; b' for one. Ends with COMMAND or PID, after --for, or by Ctrl-C,\n"
	      "whichever comes first; a COMMAND that still runs is then ended. Exit status 0: recorded; 1: failed, or the disk\n"
	      "was full (what was recorded until then is kept, of rings the newest of each); 3: recorded, with losses. That of\n"
	      "COMMAND is told when it is not 0.\n\n"
	      "  ptwatch record -o rec --start-at recv_request --stop-at send_response -- ./server\n"
	      "  ptwatch record -a --for 1s\n"
	      "  perf script -i ptwatch.data --itrace=i0ns\n", stdout);
}

static void print_snapshot_help(void)
{
	fputs("Trace into a ring in memory, and write what is in it when told to: by Ctrl-C, by SIGUSR2, or after a time.\n\n"
	      "Usage: ptwatch snapshot [OPTION]… [-a | -C CPUS | -p PID | --cgroup DIR | -- COMMAND [ARGUMENT]…]\n\n"
	      "  -o, --output DIR    write the recording there (default " DEFAULT_OUTPUT ")\n"
	      "      --ring SIZE     the newest bytes of each CPU that are kept (default 4M, at least 4k)\n", stdout);
	fputs(capture_options_help, stdout);
	fputs("      --for TIME      write it after TIME: 10 or 10s, 500ms, 2m\n"
	      "      --json          tell what was written as a JSON object on stdout\n"
	      "  -h, --help          this text\n\n"
	      "Without any target: everything, on every CPU (-a). The same as `ptwatch record --ring SIZE`. Exit status 0:\n"
	      "written; 1: failed, or the disk was full (the newest of each ring is kept); 3: written, with losses.\n\n"
	      "  ptwatch snapshot -o now --for 1s              what every CPU has just done\n"
	      "  ptwatch snapshot -o hang & …; kill -USR2 %1   keep the past of a moment that something else decides\n", stdout);
}

/* ---- the command line ---- */

enum { OPT_RING = 256, OPT_FOR, OPT_JSON };

static const struct option options[] = {
	{ "output", required_argument, NULL, 'o' },
	TRACE_OPTIONS,
	{ "ring", required_argument, NULL, OPT_RING },
	{ "buffer", required_argument, NULL, 'm' },
	{ "for", required_argument, NULL, OPT_FOR },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Return: -1 to go on, else the exit status. */
static int parse_option(struct record_options *opt, int option, char **argv)
{
	int status;

	switch (option) {
	case 'o':
		if (!*optarg)
			return cli_usage(opt->verb, "-o needs the name of a directory");
		opt->output = optarg;
		break;
	case OPT_RING:
	case 'm':
		*(option == 'm' ? &opt->stream : &opt->ring) = true;
		if (ptw_parse_size(optarg, &opt->buffer) || !opt->buffer)
			return cli_usage(opt->verb, "--%s %s is not a size such as 65536, 512k or 4M",
					 option == 'm' ? "buffer" : "ring", cli_shown(optarg));
		if (opt->buffer < (option == 'm' ? LEAST_STREAM : LEAST_RING))
			return cli_usage(opt->verb, "--%s %s is too small: at least %s for each CPU", option == 'm' ? "buffer" : "ring",
					 optarg, option == 'm' ? "16k" : "4k");
		opt->buffer_text = optarg;
		break;
	case OPT_FOR:
		if (ptw_parse_duration(optarg, &opt->time) || !opt->time)
			return cli_usage(opt->verb, "--for %s is not a time such as 10, 1.5s, 500ms or 2m", cli_shown(optarg));
		break;
	case OPT_JSON:
		opt->json = true;
		break;
	case 'h':
		if (opt->snapshot)
			print_snapshot_help();
		else
			print_record_help();
		return cli_flush(opt->verb);
	default:
		status = capture_option(&opt->trace, opt->verb, option);
		return status == -2 ? cli_bad_option(opt->verb, option, argv, options) : status;
	}
	return -1;
}

/* Return: -1 to go on, else the exit status. */
static int parse_command_line(struct record_options *opt, int argc, char **argv)
{
	int option, status, end;

	/* getopt() mixes what stands before and behind "--", so the command is cut off first. */
	for (end = 1; end < argc; end++)
		if (!strcmp(argv[end], "--"))
			break;
	if (end < argc) {
		if (end + 1 == argc)
			return cli_usage(opt->verb, "no COMMAND after --");
		opt->command = &argv[end + 1];
		argv[end] = NULL;
	}
	opterr = 0;
	while ((option = getopt_long(end, argv, ":o:m:h" TRACE_SHORT_OPTIONS, options, NULL)) != -1) {
		status = parse_option(opt, option, argv);
		if (status >= 0)
			return status;
	}
	if (opt->snapshot && opt->stream)
		return cli_usage(opt->verb, "-m is for `ptwatch record`, which writes to disk meanwhile; how large the ring is, --ring SIZE tells");
	if (opt->ring && opt->stream)
		return cli_usage(opt->verb, "--ring and -m: take one; a ring is written at the end and waits for no disk");
	if (optind < end)
		return cli_usage(opt->verb, "unexpected argument '%s'; a command to run stands behind --", argv[optind]);
	status = capture_options_check(&opt->trace, opt->verb, opt->command);
	if (status >= 0)
		return status;
	if (opt->trace.all || opt->trace.cpus || opt->trace.pid || opt->trace.cgroup || opt->command)
		return -1;
	if (!opt->snapshot)
		return cli_usage(opt->verb, "nothing to record: say -a for everything, -C CPUS, -p PID, or a command behind --");
	opt->trace.all = true;
	return -1;
}

/* ---- recording ---- */

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * NS_PER_SEC + time.tv_nsec;
}

/* A command is the target itself, unless what runs on some CPUs is. */
static bool traces_command(const struct record_options *opt)
{
	return opt->command && !opt->trace.all && !opt->trace.cpus && !opt->trace.pid && !opt->trace.cgroup;
}

static int choose_buffer(const struct record_options *opt, const struct ptwatch_info *info,
			 struct ptw_trace_request *trace, struct ptw_error *err)
{
	uint64_t page = sysconf(_SC_PAGESIZE), size = opt->buffer;
	char text[32];

	trace->mode = opt->ring || !info->modes ? PTWATCH_MODE_RING : PTWATCH_MODE_STREAM;
	if (!size)
		size = trace->mode == PTWATCH_MODE_RING ? DEFAULT_RING : DEFAULT_STREAM;
	trace->buffer_size = (size + page - 1) / page * page;
	if (!info->max_buffer_size || trace->buffer_size <= info->max_buffer_size)
		return 0;
	if (opt->buffer_text)
		return ptw_error_set(err, PTW_EXIT_FAILED, "--%s %s is larger than this machine gives; take at most %s, a CPU's share of half its memory",
				     opt->ring ? "ring" : "buffer", opt->buffer_text,
				     ptw_bytes(info->max_buffer_size, text, sizeof(text)));
	trace->buffer_size = info->max_buffer_size;
	return 0;
}

/* perf knows ranges of user code by the file they are in. */
static void find_files(struct capture_request *request, const struct ptw_process *process)
{
	for (uint32_t i = 0; process && i < request->trace.nr_ranges; i++) {
		const struct ptwatch_range *range = &request->trace.ranges[i];
		struct ptw_range_file *file = &request->range_file[i];

		file->path = ptw_process_file(process, range->start, range->end - range->start + 1, &file->offset);
	}
}

static int prepare(struct capture *capture, struct cli_command *command, const struct record_options *opt,
		   struct capture_request *request, struct ptw_error *err)
{
	struct trace_places places = { NULL };
	char exe[64], program[4096];
	pid_t pid = opt->trace.pid;
	ssize_t length;
	int ret = -1;

	*request = (struct capture_request){ .verb = opt->verb, .output = opt->output };
	if (opt->command) {
		/* Its code must be there to be found in, and be what is traced. */
		command->stop_at_exec = traces_command(opt) || capture_options_need_process(&opt->trace);
		if (cli_command_prepare(command, err) || (command->stop_at_exec && cli_command_go(command, err)))
			return -1;
		if (!pid)
			pid = command->pid;
	}
	if (pid && (capture_options_need_process(&opt->trace) || (opt->trace.pid && opt->trace.ranges))) {
		places.process = ptw_process_open(pid, err);
		if (!places.process)
			return -1;
		snprintf(exe, sizeof(exe), "/proc/%d/exe", pid);
		length = readlink(exe, program, sizeof(program) - 1);
		program[length < 0 ? 0 : length] = '\0';
		places.program = program;
	}
	request->watched = pid;
	if (opt->trace.start_at && trace_place_find(&places, opt->trace.start_at, &request->start_at, err))
		goto out;
	if (opt->trace.stop_at && trace_place_find(&places, opt->trace.stop_at, &request->stop_at, err))
		goto out;
	if (opt->trace.stop_at && request->start_at.address == request->stop_at.address) {
		ptw_error_set(err, PTW_EXIT_USAGE, "--start-at %s and --stop-at %s are both 0x%" PRIx64 ": what comes there cannot both start and stop; take two places",
			      opt->trace.start_at, opt->trace.stop_at, request->start_at.address);
		goto out;
	}
	if (capture_options_request(&opt->trace, &capture->device.info, &places, traces_command(opt) ? pid : 0,
				    &request->trace, err))
		goto out;
	find_files(request, places.process);
	if (!choose_buffer(opt, &capture->device.info, &request->trace, err) && !capture_prepare(capture, request, err))
		ret = 0;
out:
	trace_places_free(&places);
	return ret;
}

static void show_progress(const struct capture *capture, uint64_t elapsed)
{
	const char *verb = capture->request->verb;
	char bytes[32];

	ptw_bytes(ptw_recording_size(capture->writer), bytes, sizeof(bytes));
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\rptwatch %s: %" PRIu64 " s, %s written; Ctrl-C ends   ", verb, elapsed / NS_PER_SEC, bytes);
	else
		cli_progress(verb, "%" PRIu64 " s, %s written", elapsed / NS_PER_SEC, bytes);
}

static int wait_for_end(struct capture *capture, struct cli_command *command, const struct record_options *opt,
			int target, struct ptw_error *err)
{
	uint64_t start = now(), deadline = opt->time ? start + opt->time : 0, time = start, wait, shown = start;
	/* On a terminal the line is written over; elsewhere lines become rarer. */
	uint64_t pause = NS_PER_SEC;
	bool terminal = isatty(STDERR_FILENO), any = false;
	struct pollfd fds[] = {
		{ .fd = capture_fd(capture), .events = POLLIN },
		{ .fd = command->signals, .events = POLLIN },
		{ .fd = target, .events = POLLIN },	/* a process that has ended; -1: none */
	};

	while (!command->signal && !command->dumps && !command->ended && !capture->beside.full && !fds[2].revents) {
		wait = ROUND_NS;
		if (deadline) {
			if (time >= deadline)
				break;
			if (deadline - time < wait)
				wait = deadline - time;
		}
		/* Rounded up, so that the last round does not spin. */
		if (poll(fds, 3, wait / 1000000 + 1) < 0 && errno != EINTR)
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
	int target = -1, ret = -1;

	if (opt->trace.pid) {
		target = syscall(SYS_pidfd_open, opt->trace.pid, 0);
		if (target < 0)
			return ptw_error_set(err, PTW_EXIT_FAILED, "process %d: %s", opt->trace.pid,
					     errno == ESRCH ? "it has ended" : strerror(errno));
	}
	if (capture_start(capture, err))
		goto out;
	if (opt->command) {
		if (cli_command_go(command, err))
			goto out;
	} else {
		fprintf(stderr, "%s; Ctrl-C %s\n", opt->snapshot ? "tracing into a ring" : "recording",
			opt->ring ? "or SIGUSR2 writes it" : "ends it");
	}
	if (!wait_for_end(capture, command, opt, target, err) && !capture_stop(capture, err) &&
	    !capture_finish(capture, err))
		ret = 0;
out:
	if (target >= 0)
		close(target);
	return ret;
}

static void conclude(struct capture *capture, const struct record_options *opt)
{
	char number[32];

	if (opt->json) {
		struct json_object *object = json_object_new_object();

		json_object_object_add(object, "recording", json_object_new_string(opt->output));
		json_object_object_add(object, "cpus", json_object_new_int64(capture->device.trace_count));
		json_object_object_add(object, "bytes", json_object_new_int64(capture->bytes));
		json_object_object_add(object, "lost", json_object_new_int64(capture->lost));
		json_object_object_add(object, "gaps", json_object_new_int64(capture->gaps));
		json_object_object_add(object, "switches_lost", json_object_new_int64(capture->beside.switches_lost));
		puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
		json_object_put(object);
		return;
	}
	cli_progress(opt->verb, "%s bytes of trace of %zu CPU%s in %s", ptw_commas(capture->bytes, number, sizeof(number)),
		     capture->device.trace_count, capture->device.trace_count == 1 ? "" : "s", opt->output);
}

/* The disk was full: why, and what there is all the same */
static void explain_full(const struct capture *capture, const struct record_options *opt, struct ptw_error *err)
{
	const char *why = capture->beside.full_error.text;
	char kept[32], all[32];

	if (capture->request->trace.mode == PTWATCH_MODE_RING && capture->lost)
		ptw_error_set(err, PTW_EXIT_FAILED, "%.700s; kept in %.160s: the newest %s of %s bytes of trace", why, opt->output,
			      ptw_commas(capture->bytes, kept, sizeof(kept)),
			      ptw_commas(capture->bytes + capture->lost, all, sizeof(all)));
	else
		ptw_error_set(err, PTW_EXIT_FAILED, "%.800s; what was recorded until then is kept in %.160s", why, opt->output);
}

static int run_verb(struct record_options *opt, int argc, char **argv)
{
	struct capture_request request;
	struct capture capture = { .device.fd = -1, .epoll = -1 };
	struct cli_command command = CLI_COMMAND_INIT(opt->verb);
	struct ptw_error err;
	bool lossy = false;
	int status = parse_command_line(opt, argc, argv), ret;

	if (status >= 0)
		goto out;
	command.argv = opt->command;
	command.takes_dumps = true;
	ret = ptw_device_open(&capture.device, &err);
	if (!ret)
		ret = cli_signals_block(&command, &err);
	if (!ret)
		ret = prepare(&capture, &command, opt, &request, &err);
	if (!ret)
		ret = record(&capture, &command, opt, &err);
	if (!ret) {
		conclude(&capture, opt);
		lossy = capture_report(&capture);
	}
	if (!ret && capture.beside.full) {
		explain_full(&capture, opt, &err);
		ret = -1;
	}
	status = ret ? cli_error(opt->verb, &err) : cli_flush(opt->verb);
	if (status == PTW_EXIT_OK && lossy)
		status = PTW_EXIT_GAPS;
	capture_close(&capture);
	/* Nobody waits for a command whose recording is over. */
	cli_command_end(&command, true);
	if (command.signals >= 0)
		close(command.signals);
out:
	capture_options_free(&opt->trace);
	return status;
}

static int run_record(int argc, char **argv)
{
	struct record_options opt = { .verb = "record", .output = DEFAULT_OUTPUT, .trace = TRACE_OPTIONS_INIT };

	return run_verb(&opt, argc, argv);
}

static int run_snapshot(int argc, char **argv)
{
	struct record_options opt = {
		.verb = "snapshot", .output = DEFAULT_OUTPUT, .snapshot = true, .ring = true, .trace = TRACE_OPTIONS_INIT,
	};

	return run_verb(&opt, argc, argv);
}

const struct ptw_verb verb_record = {
	.name = "record",
	.summary = "record what was executed: everything, some CPUs, a process or a command",
	.run = run_record,
};

const struct ptw_verb verb_snapshot = {
	.name = "snapshot",
	.summary = "trace into a ring, and keep what is in it at a moment you choose",
	.run = run_snapshot,
};
