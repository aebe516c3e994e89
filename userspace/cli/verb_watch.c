// SPDX-License-Identifier: BSD-2-Clause
/*
 * ptwatch watch: arm hardware breakpoints, print what hits them, and keep the trace that the hit froze.
 *
 * Nothing here needs undoing: all that is armed belongs to the open device and ends with it, however the
 * program ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/verb.h"
#include "common/number.h"
#include "control/alarm_listener.h"
#include "control/device.h"
#include "control/machine.h"
#include "control/watch_target.h"
#include "recording/recording.h"
#include "report/alarm_point.h"
#include "report/alarm_text.h"

#define VERB "watch"
#define MAX_TARGETS 16
#define DEFAULT_BUFFER (4ULL << 20)
#define DEFAULT_OUTPUT "ptwatch.data"
/* A PMU type no kernel gives out: recordings want one also where perf has no intel_pt. */
#define NO_PMU 1000
/* Alarms kept for the recording; the first ones froze, later ones are of less and less interest. */
#define MAX_KEPT 4096
#define NS_PER_SEC 1000000000ULL
/* How long a command may take to end by SIGTERM. */
#define COMMAND_GRACE (2 * NS_PER_SEC)

struct watch_options {
	bool freeze, json, log;
	const char *output;
	uint64_t buffer;
	const char *buffer_text;	/* as typed; NULL: the default */
	uint64_t where;		/* PTWATCH_RTIT_CTL_OS, PTWATCH_RTIT_CTL_USER */
	uint8_t *cpus;		/* NULL: all online */
	size_t cpus_size;
	uint64_t count;		/* 0: until something else ends it */
	uint64_t rate;		/* 0: the module's default */
	uint64_t timeout;	/* ns; 0: none */
	char **command;		/* NULL: none */
	struct ptw_watch_target target[MAX_TARGETS];
	const char *name[MAX_TARGETS];
	unsigned int targets;
};

struct session {
	const struct watch_options *opt;
	struct ptw_device device;
	struct ptw_alarm_listener *listener;
	struct ptw_symbols *symbols;
	struct ptw_recording_writer *writer;
	uint32_t id[MAX_TARGETS];
	uint64_t alarms;
	struct ptw_alarm *kept;
	size_t kept_count;
	ssize_t pending;	/* the kept alarm whose trace line waits for the recording; -1: none */
	bool frozen;
	bool damaged;		/* a CPU ended its trace by itself */
	int signals;		/* signalfd */
	void (*old_pipe)(int), (*old_xfsz)(int);
	pid_t child;		/* 0: none, or it ended */
	bool command_ended;
	int signal;		/* that ended us; 0: none */
};

static void print_help(void)
{
	fputs("Who touches this memory, or reaches this code? With --freeze: and by what path?\n\n"
	      "Usage: ptwatch watch TARGET… [OPTION]… [-- COMMAND [ARGUMENT]…]\n\n"
	      "TARGET is PLACE:LEN:MODE, up to as many as there are debug registers (4):\n"
	      "  PLACE   sym, sym+0x10, module:sym or 0xADDRESS, in the kernel\n"
	      "  LEN     1, 2, 4 or 8 bytes, aligned; none with mode x\n"
	      "  MODE    w: written, rw: read or written, x: executed\n\n"
	      "      --freeze        trace with Intel PT, and freeze the trace of the CPU that hits\n"
	      "  -o, --output DIR    with --freeze: write the recording there (default " DEFAULT_OUTPUT ")\n"
	      "  -m, --buffer SIZE   trace buffer of each CPU, the newest bytes stay (default 4M)\n"
	      "  -k, --kernel        trace the kernel (default)\n"
	      "  -u, --user          trace user code; with -k both\n"
	      "  -C, --cpu CPUS      trace these CPUs only, e.g. 0-3,8 (the watch is armed on all)\n"
	      "  -n, --count N       end after N alarms (default 1); 0: go on until interrupted\n"
	      "      --follow        the same as --count 0\n"
	      "      --rate N        at most N alarms a second for each target, the rest is counted (default 100)\n"
	      "      --timeout TIME  give up after TIME: 10 or 10s, 500ms, 2m (no alarm by then: exit status 1)\n"
	      "      --no-log        no copy of the alarm in the kernel log\n"
	      "      --json          one JSON object a line for each alarm\n"
	      "  -h, --help          this text\n\n"
	      "COMMAND is run once everything is armed; its end ends the watch. Ctrl-C ends cleanly. Exit status 0 when there\n"
	      "was an alarm, 1 when there was none.\n\n"
	      "Not seen, because the hardware or the kernel masks it: writes by NMI, #MC and #DB handlers, and by devices\n"
	      "(DMA).\n\n"
	      "  ptwatch watch jiffies_64:8:w\n"
	      "  ptwatch watch jiffies_64:8:w --freeze -o crime\n"
	      "  ptwatch watch do_exit:x --follow --json\n", stdout);
}

/* ---- the command line ---- */

enum { OPT_FREEZE = 256, OPT_FOLLOW, OPT_RATE, OPT_TIMEOUT, OPT_LOG, OPT_NO_LOG, OPT_JSON };

static const struct option options[] = {
	{ "freeze", no_argument, NULL, OPT_FREEZE },
	{ "output", required_argument, NULL, 'o' },
	{ "buffer", required_argument, NULL, 'm' },
	{ "kernel", no_argument, NULL, 'k' },
	{ "user", no_argument, NULL, 'u' },
	{ "cpu", required_argument, NULL, 'C' },
	{ "count", required_argument, NULL, 'n' },
	{ "follow", no_argument, NULL, OPT_FOLLOW },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "log", no_argument, NULL, OPT_LOG },
	{ "no-log", no_argument, NULL, OPT_NO_LOG },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Return: -1 to go on, else the exit status. */
static int parse_option(struct watch_options *opt, int option, char **argv)
{
	switch (option) {
	case OPT_FREEZE:
		opt->freeze = true;
		break;
	case 'o':
		if (!*optarg)
			return cli_usage(VERB, "-o needs the name of a directory");
		opt->output = optarg;
		break;
	case 'm':
		if (ptw_parse_size(optarg, &opt->buffer) || !opt->buffer)
			return cli_usage(VERB, "--buffer %s is not a size such as 65536, 512k or 4M", optarg);
		opt->buffer_text = optarg;
		break;
	case 'k':
		opt->where |= PTWATCH_RTIT_CTL_OS;
		break;
	case 'u':
		opt->where |= PTWATCH_RTIT_CTL_USER;
		break;
	case 'C':
		free(opt->cpus);
		opt->cpus = NULL;
		if (ptw_parse_cpus(optarg, &opt->cpus, &opt->cpus_size) < 0)
			return cli_usage(VERB, "--cpu %s is not a list of CPUs such as 0-3,8", optarg);
		break;
	case 'n':
		if (ptw_parse_uint(optarg, 0, UINT32_MAX, &opt->count))
			return cli_usage(VERB, "--count %s is not a number of alarms from 1 to %u, or 0 for no end", optarg,
					 UINT32_MAX);
		break;
	case OPT_FOLLOW:
		opt->count = 0;
		break;
	case OPT_RATE:
		if (ptw_parse_uint(optarg, 1, UINT32_MAX, &opt->rate))
			return cli_usage(VERB, "--rate %s is not a number of alarms a second, from 1", optarg);
		break;
	case OPT_TIMEOUT:
		if (ptw_parse_duration(optarg, &opt->timeout) || !opt->timeout)
			return cli_usage(VERB, "--timeout %s is not a time such as 10, 1.5s, 500ms or 2m", optarg);
		break;
	case OPT_LOG:
		opt->log = true;
		break;
	case OPT_NO_LOG:
		opt->log = false;
		break;
	case OPT_JSON:
		opt->json = true;
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
static int parse_command_line(struct watch_options *opt, int argc, char **argv)
{
	int option, status, end;

	*opt = (struct watch_options){ .log = true, .count = 1, .buffer = DEFAULT_BUFFER };
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
	while ((option = getopt_long(end, argv, ":o:m:kuC:n:h", options, NULL)) != -1) {
		status = parse_option(opt, option, argv);
		if (status >= 0)
			return status;
	}
	if (optind == end)
		return cli_usage(VERB, "nothing to watch; the form is SYMBOL[+OFFSET]:LEN:MODE, e.g. jiffies_64:8:w");
	for (; optind < end; optind++) {
		struct ptw_error err;

		if (opt->targets == MAX_TARGETS)
			return cli_usage(VERB, "more than %d targets", MAX_TARGETS);
		if (ptw_watch_target_parse(argv[optind], &opt->target[opt->targets], &err))
			return cli_usage(VERB, "%s", err.text);
		opt->name[opt->targets++] = argv[optind];
	}
	if (!opt->freeze && (opt->output || opt->where || opt->cpus || opt->buffer_text))
		return cli_usage(VERB, "-o, -m, -k, -u and -C are about the trace; add --freeze to have one");
	if (!opt->output)
		opt->output = DEFAULT_OUTPUT;
	/*
	 * The watched memory is the kernel's and so is the code that touches it. A recording holds no user
	 * code yet, and the decoder would lose the kernel's next steps at each stretch it can't follow.
	 */
	if (!opt->where)
		opt->where = PTWATCH_RTIT_CTL_OS;
	return -1;
}

/* ---- alarms ---- */

static void print_trace_line(const struct session *s, const struct ptw_alarm *alarm, int64_t insns_after)
{
	if (s->opt->json)
		return;
	ptw_alarm_write_trace_text(stdout, alarm, insns_after);
	cli_sync();
}

static bool keep_alarm(struct session *s, const struct ptw_alarm *alarm)
{
	struct ptw_alarm *kept;

	if (s->kept_count == MAX_KEPT)
		return false;
	kept = realloc(s->kept, (s->kept_count + 1) * sizeof(*kept));
	if (!kept)
		return false;
	s->kept = kept;
	s->kept[s->kept_count++] = *alarm;
	return true;
}

/* Nobody is there to be told more once stdout can't be written. */
static bool wants_more(const struct session *s)
{
	if (cli_sync())
		return false;
	return !s->opt->count || s->alarms < s->opt->count;
}

static void say_why_not_frozen(const struct session *s, const struct ptw_alarm *alarm)
{
	struct ptwatch_control control;

	for (size_t i = 0; i < s->device.trace_count; i++) {
		const struct ptw_cpu_trace *trace = &s->device.trace[i];

		if (trace->cpu != alarm->cpu)
			continue;
		if (!ptw_control_read(trace->control, &control) && control.state == PTWATCH_STATE_ERROR)
			cli_progress(VERB, "this alarm froze no trace: CPU %u had ended its trace with an error", alarm->cpu);
		else
			cli_progress(VERB, "this alarm froze no trace: that of CPU %u had been stopped by an alarm before",
				     alarm->cpu);
		return;
	}
	cli_progress(VERB, "this alarm froze no trace: CPU %u is not traced", alarm->cpu);
}

static void on_alarm(const struct ptw_alarm *alarm, void *arg)
{
	struct session *s = arg;
	struct ptw_alarm_style style;
	bool froze = alarm->have_trace && alarm->trace_state == PTWATCH_STATE_FROZEN;
	bool kept = false;
	unsigned int i;

	/* The group carries everyone's alarms. */
	for (i = 0; i < s->opt->targets; i++)
		if (s->id[i] == alarm->watch)
			break;
	if (i == s->opt->targets || !wants_more(s))
		return;
	s->alarms++;
	if (s->opt->freeze)
		kept = keep_alarm(s, alarm);
	if (s->opt->json) {
		ptw_alarm_write_json(stdout, alarm, s->symbols);
	} else {
		style.colour = cli_colour(stdout);
		style.width = cli_width(stdout, 110);
		ptw_alarm_write_text(stdout, alarm, s->symbols, &style);
	}
	cli_sync();
	if (!s->opt->freeze)
		return;
	if (!froze) {
		say_why_not_frozen(s, alarm);
		return;
	}
	s->frozen = true;
	/* The line that ends the block waits for the decoder, unless the next block is to come first. */
	if (!wants_more(s) && kept)
		s->pending = s->kept_count - 1;
	else
		print_trace_line(s, alarm, -1);
}

/* ---- arming ---- */

static int load_symbols(struct session *s, struct ptw_error *err)
{
	bool needed = false;

	for (unsigned int i = 0; i < s->opt->targets; i++)
		needed |= !s->opt->target[i].is_address;
	s->symbols = ptw_symbols_new();
	if (!s->symbols)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	if (!ptw_symbols_load_kallsyms(s->symbols, "/proc/kallsyms", err))
		return 0;
	/* Without names an address can still be watched. */
	ptw_symbols_free(s->symbols);
	s->symbols = NULL;
	return needed ? -1 : 0;
}

/* Breakpoints are compared with where instructions begin. */
static void warn_of_offsets(const struct watch_options *opt)
{
	for (unsigned int i = 0; i < opt->targets; i++) {
		const char *offset = strrchr(opt->target[i].label, '+');

		if (opt->target[i].access != PTWATCH_ACCESS_X || !offset || !strcmp(offset, "+0x0"))
			continue;
		cli_progress(VERB, "%s is hit only if an instruction begins there; within one nothing ever hits", opt->name[i]);
		return;
	}
}

static int resolve_targets(struct session *s, struct watch_options *opt, struct ptw_error *err)
{
	/* First of all: without the module, or the right to use it, it matters little what else is wrong. */
	if (ptw_device_open(&s->device, err))
		return -1;
	if (load_symbols(s, err))
		return -1;
	for (unsigned int i = 0; i < opt->targets; i++)
		if (ptw_watch_target_resolve(&opt->target[i], s->symbols, err))
			return -1;
	if (opt->targets > s->device.info.breakpoint_slots)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%u targets, but a CPU has %u debug registers; watch fewer",
				     opt->targets, s->device.info.breakpoint_slots);
	warn_of_offsets(opt);
	return 0;
}

static int start_trace(struct session *s, struct ptw_error *err)
{
	const struct ptwatch_info *info = &s->device.info;
	struct ptw_trace_request request = { .cpus = s->opt->cpus, .cpus_size = s->opt->cpus_size };
	struct ptw_trace_config config = { .rtit_ctl = ptw_trace_default_rtit_ctl(info, s->opt->where) };
	uint64_t page = sysconf(_SC_PAGESIZE);
	int pmu = ptw_pt_pmu_type();
	char text[32];

	request.rtit_ctl = config.rtit_ctl;
	request.buffer_size = (s->opt->buffer + page - 1) / page * page;
	if (info->max_buffer_size && request.buffer_size > info->max_buffer_size) {
		if (s->opt->buffer_text)
			return ptw_error_set(err, PTW_EXIT_FAILED, "--buffer %s is larger than this machine gives; take at most %s",
					     s->opt->buffer_text, ptw_bytes(info->max_buffer_size, text, sizeof(text)));
		request.buffer_size = info->max_buffer_size;
	}
	if (ptw_device_trace_setup(&s->device, &request, err))
		return -1;

	config.params.family = info->family;
	config.params.model = info->model;
	config.params.stepping = info->stepping;
	config.params.bits = 64;
	config.params.mtc_freq = config.rtit_ctl >> 14 & 0xf;
	config.params.nom_freq = info->max_nonturbo_ratio;
	config.params.cpuid_0x15_eax = info->cpuid_15[0];
	config.params.cpuid_0x15_ebx = info->cpuid_15[1];
	ptw_perf_time(&config.params);
	config.pt_pmu_type = pmu < 0 ? NO_PMU : pmu;
	memcpy(config.cpuid_14_0, info->cpuid_14_0, sizeof(config.cpuid_14_0));
	memcpy(config.cpuid_14_1, info->cpuid_14_1, sizeof(config.cpuid_14_1));
	/*
	 * Now rather than after the alarm: what can't be written should be known before anyone waits for
	 * it.
	 */
	s->writer = ptw_recording_create(s->opt->output, &config, err);
	if (!s->writer)
		return -1;
	return ptw_device_trace_start(&s->device, err);
}

static int arm(struct session *s, struct ptw_error *err)
{
	struct ptwatch_watch_stat stat;
	unsigned int cpus;
	uint8_t *online;
	size_t size;
	int count = ptw_online_cpus(&online, &size);

	if (count > 0)
		free(online);
	for (unsigned int i = 0; i < s->opt->targets; i++) {
		const struct ptw_watch_target *target = &s->opt->target[i];
		struct ptwatch_watch watch = {
			.address = target->address,
			.len = target->len,
			.access = target->access,
			.actions = PTWATCH_ACTION_EVENT,
			.max_hits = s->opt->count,
			.max_rate = s->opt->rate,
		};

		if (s->opt->log)
			watch.actions |= PTWATCH_ACTION_LOG;
		if (s->opt->freeze)
			watch.actions |= PTWATCH_ACTION_FREEZE;
		memcpy(watch.label, target->label, sizeof(watch.label));
		if (ptw_device_watch_add(&s->device, &watch, s->opt->name[i], err))
			return -1;
		s->id[i] = watch.id;
		/* It may have hit, and be disarmed, already. */
		if (ptw_device_watch_stat(&s->device, watch.id, &stat, NULL) || !stat.armed_cpus)
			cpus = count > 0 ? count : 0;
		else
			cpus = stat.armed_cpus;
		fprintf(stderr, "armed: %s at 0x%016" PRIx64 " on %u CPU%s, waiting… (not seen: writes by NMI, #MC and #DB handlers, DMA)\n",
			s->opt->name[i], target->address, cpus, cpus == 1 ? "" : "s");
	}
	return 0;
}

static int block_signals(struct session *s, sigset_t *old, struct ptw_error *err)
{
	/* All that would end the program, and leave half a recording behind, but for faults. */
	static const int ends[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU,
		SIGIO, SIGPWR, SIGSTKFLT,
	};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(&set, ends[i]);
	for (int rt = SIGRTMIN; rt <= SIGRTMAX; rt++)
		sigaddset(&set, rt);
	sigaddset(&set, SIGCHLD);
	/* These come as errors of write(): EPIPE and EFBIG. */
	s->old_pipe = signal(SIGPIPE, SIG_IGN);
	s->old_xfsz = signal(SIGXFSZ, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, old);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signals < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot create a signal file: %s", strerror(errno));
	return 0;
}

static int run_command(struct session *s, const sigset_t *old, struct ptw_error *err)
{
	int failed[2], error = 0;
	ssize_t got;

	if (pipe2(failed, O_CLOEXEC))
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot create a pipe: %s", strerror(errno));
	s->child = fork();
	if (!s->child) {
		signal(SIGPIPE, s->old_pipe);
		signal(SIGXFSZ, s->old_xfsz);
		sigprocmask(SIG_SETMASK, old, NULL);
		execvp(s->opt->command[0], s->opt->command);
		error = errno;
		/* The pipe closes by itself when the command runs. */
		got = write(failed[1], &error, sizeof(error));
		_exit(got == sizeof(error) ? 127 : 126);
	}
	if (s->child < 0)
		error = errno;
	close(failed[1]);
	if (s->child > 0 && read(failed[0], &error, sizeof(error)) == sizeof(error))
		waitpid(s->child, NULL, 0);
	close(failed[0]);
	if (!error)
		return 0;
	s->child = 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot run %s: %s", s->opt->command[0], strerror(error));
}

/* ---- waiting ---- */

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * NS_PER_SEC + time.tv_nsec;
}

static void reap_command(struct session *s)
{
	int status;

	if (!s->child || waitpid(s->child, &status, WNOHANG) != s->child)
		return;
	s->child = 0;
	s->command_ended = true;
	if (WIFSIGNALED(status))
		cli_progress(VERB, "%s was ended by signal %d (%s)", s->opt->command[0], WTERMSIG(status),
			     strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		cli_progress(VERB, "%s ended with status %d", s->opt->command[0], WEXITSTATUS(status));
}

static void read_signals(struct session *s)
{
	struct signalfd_siginfo info;

	while (read(s->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap_command(s);
		else
			s->signal = info.ssi_signo;
	}
}

/* Whether no watch can hit any more, because each had its --count. */
static bool all_disarmed(struct session *s)
{
	struct ptwatch_watch_stat stat;

	for (unsigned int i = 0; i < s->opt->targets; i++)
		if (!ptw_device_watch_stat(&s->device, s->id[i], &stat, NULL) && stat.armed_cpus)
			return false;
	return true;
}

/* Whether every hit of the watches that can become an alarm has been sent. */
static bool all_delivered(struct session *s)
{
	struct ptwatch_watch_stat stat;

	for (unsigned int i = 0; i < s->opt->targets; i++) {
		if (ptw_device_watch_stat(&s->device, s->id[i], &stat, NULL))
			return true;
		if (stat.hits != stat.alarms + stat.ignored + stat.rate_limited + stat.dropped)
			return false;
	}
	return true;
}

/* An alarm passes through two contexts of the kernel before it is sent: give those on their way a moment. */
static int collect_stragglers(struct session *s, struct ptw_error *err)
{
	bool done;

	for (int i = 0; i < 100 && wants_more(s); i++) {
		done = all_delivered(s);
		if (ptw_alarm_listener_receive(s->listener, on_alarm, s, err))
			return -1;
		if (done)
			break;
		usleep(10000);
	}
	return 0;
}

static int wait_for_alarms(struct session *s, struct ptw_error *err)
{
	uint64_t deadline = s->opt->timeout ? now() + s->opt->timeout : 0, overruns = 0, time;
	struct pollfd fds[] = {
		{ .fd = ptw_alarm_listener_fd(s->listener), .events = POLLIN },
		{ .fd = s->signals, .events = POLLIN },
	};

	while (wants_more(s) && !s->signal && !s->command_ended) {
		int wait = -1;

		if (deadline) {
			time = now();
			if (time >= deadline)
				break;
			/* Rounded up, so that the last round does not spin; an hour at most fits any int. */
			time = (deadline - time) / 1000000 + 1;
			wait = time > 3600000 ? 3600000 : time;
		}
		if (poll(fds, 2, wait) < 0 && errno != EINTR)
			return ptw_error_set(err, PTW_EXIT_FAILED, "cannot wait for alarms: %s", strerror(errno));
		read_signals(s);
		if (ptw_alarm_listener_receive(s->listener, on_alarm, s, err))
			return -1;
		if (ptw_alarm_listener_overruns(s->listener, NULL) == overruns)
			continue;
		overruns = ptw_alarm_listener_overruns(s->listener, NULL);
		cli_progress(VERB, "the kernel sends alarms faster than they are read, some are lost; --rate lowers it");
		/* The last one may be among them: then waiting on would be for ever. */
		if (all_disarmed(s))
			break;
	}
	return collect_stragglers(s, err);
}

/* ---- afterwards ---- */

static void report_losses(struct session *s)
{
	struct ptwatch_watch_stat stat;
	uint64_t overruns, lost;
	char number[32];

	overruns = ptw_alarm_listener_overruns(s->listener, &lost);
	if (overruns)
		cli_progress(VERB, "%s alarms lost on their way (the socket overflowed %" PRIu64 " times)",
			     ptw_commas(lost, number, sizeof(number)), overruns);
	for (unsigned int i = 0; i < s->opt->targets; i++) {
		if (ptw_device_watch_stat(&s->device, s->id[i], &stat, NULL))
			continue;
		if (stat.rate_limited)
			cli_progress(VERB, "%s: %s hits over the rate were counted only; --rate raises it", s->opt->name[i],
				     ptw_commas(stat.rate_limited, number, sizeof(number)));
		if (stat.dropped)
			cli_progress(VERB, "%s: %s hits were dropped because no record was free", s->opt->name[i],
				     ptw_commas(stat.dropped, number, sizeof(number)));
	}
}

static int add_traces(struct session *s, uint64_t *bytes, struct ptw_error *err)
{
	for (size_t i = 0; i < s->device.trace_count; i++) {
		const struct ptw_cpu_trace *trace = &s->device.trace[i];
		struct ptw_trace_pieces pieces;
		struct ptwatch_control control;

		if (ptw_control_read(trace->control, &control))
			return ptw_error_set(err, PTW_EXIT_FAILED,
					     "the control page of CPU %u does not come to rest; `dmesg | tail` may tell more", trace->cpu);
		if (control.state == PTWATCH_STATE_RUNNING)
			continue;
		if (control.state == PTWATCH_STATE_ERROR) {
			s->damaged = true;
			cli_progress(VERB,
				     "CPU %u ended its trace with an error (status 0x%" PRIx64 "); what it wrote before is kept",
				     trace->cpu, (uint64_t)control.rtit_status);
		}
		pieces = ptw_trace_pieces(&control, trace->data);
		if (!pieces.first_size && !pieces.second_size)
			continue;
		*bytes += pieces.first_size + pieces.second_size;
		if (ptw_recording_add_trace(s->writer, trace->cpu, pieces.first, pieces.first_size,
					    pieces.second, pieces.second_size, err))
			return -1;
	}
	return 0;
}

static int write_recording(struct session *s, struct ptw_error *err)
{
	struct ptw_recording_writer *writer;
	uint64_t bytes = 0;
	char number[32];

	cli_progress(VERB, "writing the recording to %s …", s->opt->output);
	if (ptw_device_trace_stop(&s->device, err) || ptw_recording_add_kernel(s->writer, err) ||
	    add_traces(s, &bytes, err))
		return -1;
	for (size_t i = 0; i < s->kept_count; i++)
		if (ptw_recording_add_alarm(s->writer, &s->kept[i], err))
			return -1;
	writer = s->writer;
	s->writer = NULL;	/* finish frees it, however it ends */
	if (ptw_recording_finish(writer, err))
		return -1;
	cli_progress(VERB, "%s bytes of trace written", ptw_commas(bytes, number, sizeof(number)));
	return 0;
}

/* How far behind the access the freeze came; the line is printed without when the trace doesn't tell. */
static void print_pending_trace_line(struct session *s, bool recorded)
{
	const struct ptw_alarm *alarm;
	struct ptw_recording *recording;
	struct ptw_alarm_point point;
	struct ptw_error err;
	int64_t after = -1;

	if (s->pending < 0)
		return;
	alarm = &s->kept[s->pending];
	if (!s->opt->json && recorded) {
		recording = ptw_recording_open(s->opt->output, &err);
		if (!recording)
			cli_error(VERB, &err);
		memset(&point, 0, sizeof(point));
		if (recording && !ptw_alarm_point_find(recording, alarm, &point, &err) && point.found)
			after = point.insns_after;
		ptw_recording_close(recording);
	}
	print_trace_line(s, alarm, after);
	s->pending = -1;
}

/* Without an alarm the answer is "nobody", which is a failure as for grep(1). */
static int no_alarm(struct session *s, struct ptw_error *err)
{
	const char *what = s->opt->targets == 1 ? s->opt->name[0] : "any of the targets";

	if (s->signal)
		return ptw_error_set(err, PTW_EXIT_FAILED, "interrupted; nothing had touched %s", what);
	if (s->command_ended)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s ended; nothing had touched %s", s->opt->command[0], what);
	return ptw_error_set(err, PTW_EXIT_FAILED, "no hit in time; nothing touched %s", what);
}

static int conclude(struct session *s, struct ptw_error *err)
{
	report_losses(s);
	if (!s->alarms)
		return no_alarm(s, err);
	if (!s->opt->freeze)
		return 0;
	if (!s->frozen)
		return ptw_error_set(err, PTW_EXIT_FAILED,
				     "no trace was frozen, so there is no recording; trace every CPU (no -C)");
	if (write_recording(s, err)) {
		print_pending_trace_line(s, false);
		return -1;
	}
	print_pending_trace_line(s, true);
	fprintf(stderr, "read it: ptwatch calls -i %s; ptwatch insns -i %s --tail 30\n", s->opt->output, s->opt->output);
	return 0;
}

/*
 * The command goes on after the last alarm, as it would without us; after a signal or the timeout it ends
 * with us, and if it does not want to, by SIGKILL.
 */
static void end_command(struct session *s)
{
	struct pollfd fd = { .fd = s->signals, .events = POLLIN };
	bool end = !s->alarms;
	uint64_t deadline = 0, time;

	while (s->child) {
		int wait = -1;

		if (end || s->signal) {
			kill(s->child, SIGTERM);
			if (!deadline)
				deadline = now() + COMMAND_GRACE;
			end = false;
			s->signal = 0;
		}
		if (deadline) {
			time = now();
			if (time >= deadline)
				kill(s->child, SIGKILL);
			wait = time >= deadline ? -1 : (int)((deadline - time) / 1000000 + 1);
		}
		poll(&fd, 1, wait);
		read_signals(s);
	}
}

static void close_session(struct session *s)
{
	if (s->writer)
		ptw_recording_abort(s->writer);
	ptw_device_close(&s->device);
	ptw_alarm_listener_close(s->listener);
	ptw_symbols_free(s->symbols);
	if (s->signals >= 0)
		close(s->signals);
	free(s->kept);
}

static int check_streams(struct ptw_error *err)
{
	int fd;

	if (cli_stdout_closed(err))
		return -1;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	return 0;
}

static int run(int argc, char **argv)
{
	struct watch_options opt;
	struct session s = { .opt = &opt, .device.fd = -1, .signals = -1, .pending = -1 };
	struct ptw_error err;
	sigset_t old;
	int status = parse_command_line(&opt, argc, argv);
	int ret;

	if (status >= 0)
		goto out;
	/* Before anything is opened, which would take the place of a stdout or stderr that is closed. */
	ret = check_streams(&err);
	if (!ret)
		ret = resolve_targets(&s, &opt, &err);
	/* From here to the end signals are read where it is safe to stop. */
	if (!ret)
		ret = block_signals(&s, &old, &err);
	if (!ret && opt.freeze)
		ret = start_trace(&s, &err);
	if (!ret) {
		s.listener = ptw_alarm_listener_open(&err);
		ret = s.listener ? 0 : -1;
	}
	if (!ret)
		ret = arm(&s, &err);
	if (!ret && opt.command)
		ret = run_command(&s, &old, &err);
	if (!ret)
		ret = wait_for_alarms(&s, &err);
	if (!ret)
		ret = conclude(&s, &err);
	status = ret ? cli_error(VERB, &err) : cli_flush(VERB);
	if (status == PTW_EXIT_OK && s.damaged)
		status = PTW_EXIT_GAPS;
	/* Disarmed before the command is waited for: it shall not run slower than it must. */
	ptw_device_close(&s.device);
	end_command(&s);
	close_session(&s);
out:
	free(opt.cpus);
	return status;
}

const struct ptw_verb verb_watch = {
	.name = VERB,
	.summary = "who touches this memory or reaches this code, and by what path",
	.run = run,
};
