// SPDX-License-Identifier: BSD-2-Clause
#include "cli/watch_options.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/verb.h"
#include "common/number.h"
#include "control/cgroup.h"

#define VERB "watch"
#define DEFAULT_BUFFER (4ULL << 20)

static void print_help(void)
{
	fputs("Who touches this memory, or reaches this code? With --freeze: and by what path?\n\n"
	      "Usage: ptwatch watch TARGET… [OPTION]… [-- COMMAND [ARGUMENT]…]\n\n"
	      "TARGET is PLACE:LEN:MODE; a CPU has 4 debug registers, for 8 bytes each:\n"
	      "  PLACE   sym, sym+0x10, module:sym, 0xADDRESS: in the kernel; of a per-CPU variable every CPU's own\n"
	      "          TYPE.FIELD@PID, TYPE.FIELD@0xADDRESS: a field, its LEN and MODE w may be left out\n"
	      "          BINARY!sym@PID, 0xADDRESS@PID: in a process, all its threads\n"
	      "  LEN     1, 2, 4 or 8 bytes, aligned; 16, 24, 32 on several registers; none with mode x\n"
	      "  MODE    w: written, rw: read or written, x: executed\n"
	      "      --wait-module   module:sym is watched whenever that module is loaded, from before its init on\n"
	      "      --percpu        … and is a per-CPU variable\n\n"
	      "Which hits count (all that is said must hold):\n"
	      "      --if COND       changed, 'new == 0x10', 'new != 0', 'new < -1', 'new & 0xff', '(new & 0xf) == 3'\n"
	      "      --if-stack SYM  only when the kernel stack passes through that function\n"
	      "      --pid, --tgid, --comm, --cgroup LIST     these threads, processes, names (as kworker*), groups only\n"
	      "      --not-pid, --not-tgid, --not-comm, --not-cgroup LIST     all but these\n"
	      "      --cpus CPUS     on these CPUs only, e.g. 0-3,8\n"
	      "      --skip N        not the first N\n\n"
	      "How many:\n"
	      "  -n, --count N       end after N alarms (default 1, --once); 0, --all, --follow: go on until interrupted\n"
	      "      --rate N        at most N alarms a second for each target, the rest is counted (default 100)\n"
	      "      --storm N       disarm at more than N hits a second on a CPU (default 200000); 0: never\n"
	      "      --timeout TIME  give up after TIME: 10 or 10s, 500ms, 2m (no alarm by then: exit status 1)\n\n"
	      "What an alarm does:\n"
	      "      --freeze[=all]  freeze the Intel PT trace of the CPU that hits, or of all\n"
	      "      --start, --stop start or stop the trace of the CPU that hits\n"
	      "      --no-log        no copy in the kernel log\n"
	      "      --panic         panic the machine, after all else\n"
	      "      --persistent    arm and leave: `ptwatch watches` shows it, `ptwatch unwatch` ends it\n"
	      "      --json          one JSON object a line for each alarm\n\n"
	      "The trace:\n"
	      "  -o, --output DIR    write the recording there (default " DEFAULT_OUTPUT ")\n"
	      "  -m, --buffer SIZE   trace buffer of each CPU, the newest bytes stay (default 4M)\n"
	      "  -k, --kernel        trace the kernel (default)\n"
	      "  -u, --user          trace user code; with -k both\n"
	      "  -C, --cpu CPUS      trace these CPUs only, e.g. 0-3,8 (the watch is armed on all)\n"
	      "  -h, --help          this text\n\n"
	      "COMMAND is run once everything is armed; its end ends the watch. Ctrl-C ends cleanly. Exit status 0 when there\n"
	      "was an alarm, 1 when there was none.\n\n"
	      "Not seen, because the hardware or the kernel masks it: writes by NMI, #MC and #DB handlers, and by devices\n"
	      "(DMA).\n\n"
	      "  ptwatch watch jiffies_64:8:w\n"
	      "  ptwatch watch jiffies_64:8:w --freeze -o crime\n"
	      "  ptwatch watch 'task_struct.cred@1234' --all\n"
	      "  ptwatch watch kvdemo:kv_cache_meta:8:w --wait-module --not-comm 'kv*'\n"
	      "  ptwatch watch './server!config:8:w' --pid 1234 --if 'new == 0'\n"
	      "  ptwatch watch do_exit:x --follow --json\n", stdout);
}

enum {
	OPT_WAIT_MODULE = 256, OPT_PERCPU, OPT_IF, OPT_IF_STACK, OPT_PID, OPT_TGID, OPT_COMM, OPT_CGROUP, OPT_NOT_PID, OPT_NOT_TGID,
	OPT_NOT_COMM, OPT_NOT_CGROUP, OPT_CPUS, OPT_SKIP, OPT_ONCE, OPT_ALL, OPT_FOLLOW, OPT_RATE, OPT_STORM, OPT_TIMEOUT,
	OPT_FREEZE, OPT_START, OPT_STOP, OPT_LOG, OPT_NO_LOG, OPT_PANIC, OPT_PERSISTENT, OPT_JSON, OPT_END,
};

static const struct option options[] = {
	{ "wait-module", no_argument, NULL, OPT_WAIT_MODULE },
	{ "percpu", no_argument, NULL, OPT_PERCPU },
	{ "if", required_argument, NULL, OPT_IF },
	{ "if-stack", required_argument, NULL, OPT_IF_STACK },
	{ "pid", required_argument, NULL, OPT_PID },
	{ "tgid", required_argument, NULL, OPT_TGID },
	{ "comm", required_argument, NULL, OPT_COMM },
	{ "cgroup", required_argument, NULL, OPT_CGROUP },
	{ "not-pid", required_argument, NULL, OPT_NOT_PID },
	{ "not-tgid", required_argument, NULL, OPT_NOT_TGID },
	{ "not-comm", required_argument, NULL, OPT_NOT_COMM },
	{ "not-cgroup", required_argument, NULL, OPT_NOT_CGROUP },
	{ "cpus", required_argument, NULL, OPT_CPUS },
	{ "skip", required_argument, NULL, OPT_SKIP },
	{ "count", required_argument, NULL, 'n' },
	{ "once", no_argument, NULL, OPT_ONCE },
	{ "all", no_argument, NULL, OPT_ALL },
	{ "follow", no_argument, NULL, OPT_FOLLOW },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "storm", required_argument, NULL, OPT_STORM },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "freeze", optional_argument, NULL, OPT_FREEZE },
	{ "start", no_argument, NULL, OPT_START },
	{ "stop", no_argument, NULL, OPT_STOP },
	{ "log", no_argument, NULL, OPT_LOG },
	{ "no-log", no_argument, NULL, OPT_NO_LOG },
	{ "panic", no_argument, NULL, OPT_PANIC },
	{ "persistent", no_argument, NULL, OPT_PERSISTENT },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "output", required_argument, NULL, 'o' },
	{ "buffer", required_argument, NULL, 'm' },
	{ "kernel", no_argument, NULL, 'k' },
	{ "user", no_argument, NULL, 'u' },
	{ "cpu", required_argument, NULL, 'C' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* The options whose lists may be given in several pieces. */
static bool is_repeatable(int option)
{
	return option >= OPT_PID && option <= OPT_NOT_CGROUP;
}

static const char *name_of(int option)
{
	for (const struct option *o = options; o->name; o++)
		if (o->val == option)
			return o->name;
	return "?";
}

/* What was given so far, by the numbers of the options. */
struct given {
	bool option[OPT_END];
};

/* Of several options that say one thing, only one may. */
static int check_exclusive(const struct given *given, const int *list, size_t count)
{
	int first = 0;

	for (size_t i = 0; i < count; i++) {
		if (!given->option[list[i]])
			continue;
		if (first)
			return cli_usage(VERB, "--%s and --%s: only one of them", name_of(first), name_of(list[i]));
		first = list[i];
	}
	return -1;
}

/* ---- lists of who ---- */

static int parse_who(const char *name, uint32_t kind, struct ptwatch_who *filter)
{
	struct ptw_error err;

	switch (kind) {
	case PTWATCH_WHO_COMM:
		if (strlen(name) >= sizeof(filter->comm))
			return cli_usage(VERB, "'%s' is longer than the 15 bytes that a thread's name has; write its beginning and *, as '%.14s*'",
					 name, name);
		if (strchr(name, '*') && strchr(name, '*')[1])
			return cli_usage(VERB, "'%s': a * may only be the end of a name", name);
		strcpy(filter->comm, name);
		return -1;
	case PTWATCH_WHO_CGROUP:
		if (ptw_cgroup_id(name, (uint64_t *)&filter->id, &err))
			return cli_error(VERB, &err);
		return -1;
	default:
		if (ptw_parse_uint(name, 0, INT_MAX, (uint64_t *)&filter->id))
			return cli_usage(VERB, "'%s' is not the number of a %s", name,
					 kind == PTWATCH_WHO_PID ? "thread" : "process");
		return -1;
	}
}

/* Return: -1 to go on, else the exit status. */
static int parse_list(struct watch_options *opt, int option, char *list)
{
	static const uint32_t kinds[] = {
		PTWATCH_WHO_PID, PTWATCH_WHO_TGID, PTWATCH_WHO_COMM, PTWATCH_WHO_CGROUP,
	};
	bool deny = option >= OPT_NOT_PID;
	uint32_t kind = kinds[option - (deny ? OPT_NOT_PID : OPT_PID)];
	char *name;
	int status;

	while ((name = strsep(&list, ","))) {
		struct ptwatch_who *filter = &opt->filter[opt->filters];

		if (!*name)
			return cli_usage(VERB, "--%s: an entry is empty; write a list as 1,2,3", name_of(option));
		if (opt->filters == PTWATCH_MAX_WHO)
			return cli_usage(VERB, "--%s: more than %d entries in the lists of who", name_of(option), PTWATCH_MAX_WHO);
		*filter = (struct ptwatch_who){ .kind = kind, .flags = deny ? PTWATCH_WHO_DENY : 0 };
		status = parse_who(name, kind, filter);
		if (status >= 0)
			return status;
		opt->filters++;
	}
	return -1;
}

/* Return: -1 to go on, else the exit status. */
static int parse_option(struct watch_options *opt, int option, char **argv)
{
	struct ptw_error err;
	uint64_t number;

	switch (option) {
	case OPT_WAIT_MODULE:
		opt->wait_module = true;
		break;
	case OPT_PERCPU:
		opt->percpu = true;
		break;
	case OPT_IF:
		if (ptw_value_condition_parse(optarg, &opt->condition, &err))
			return cli_usage(VERB, "--if %s", err.text);
		opt->has_condition = true;
		break;
	case OPT_IF_STACK:
		if (!*optarg)
			return cli_usage(VERB, "--if-stack needs the name of a function");
		opt->stack = optarg;
		break;
	case OPT_PID: case OPT_TGID: case OPT_COMM: case OPT_CGROUP:
	case OPT_NOT_PID: case OPT_NOT_TGID: case OPT_NOT_COMM: case OPT_NOT_CGROUP:
		return parse_list(opt, option, optarg);
	case OPT_CPUS:
		if (ptw_parse_cpus(optarg, &opt->hit_cpus, &opt->hit_cpus_size) < 0)
			return cli_usage(VERB, "--cpus %s is not a list of CPUs such as 0-3,8", cli_shown(optarg));
		break;
	case OPT_SKIP:
		if (ptw_parse_uint(optarg, 0, UINT64_MAX, &opt->skip))
			return cli_usage(VERB, "--skip %s is not a number of hits", cli_shown(optarg));
		break;
	case 'n':
		if (ptw_parse_uint(optarg, 0, UINT32_MAX, &opt->count))
			return cli_usage(VERB, "--count %s is not a number of alarms from 1 to %u, or 0 for no end", cli_shown(optarg),
					 UINT32_MAX);
		break;
	case OPT_ONCE:
		opt->count = 1;
		break;
	case OPT_ALL:
	case OPT_FOLLOW:
		opt->count = 0;
		break;
	case OPT_RATE:
		if (ptw_parse_uint(optarg, 1, UINT32_MAX, &opt->rate))
			return cli_usage(VERB, "--rate %s is not a number of alarms a second, from 1", cli_shown(optarg));
		break;
	case OPT_STORM:
		if (ptw_parse_uint(optarg, 0, UINT32_MAX - 1, &number))
			return cli_usage(VERB, "--storm %s is not a number of hits a second, or 0 for no limit", cli_shown(optarg));
		opt->storm = number ? number : UINT32_MAX;
		break;
	case OPT_TIMEOUT:
		if (ptw_parse_duration(optarg, &opt->timeout) || !opt->timeout)
			return cli_usage(VERB, "--timeout %s is not a time such as 10, 1.5s, 500ms or 2m", cli_shown(optarg));
		break;
	case OPT_FREEZE:
		if (optarg && strcmp(optarg, "all") && strcmp(optarg, "cpu"))
			return cli_usage(VERB, "--freeze=%s: it is 'cpu', the CPU that hits (the default), or 'all'", optarg);
		opt->actions |= PTWATCH_ACTION_FREEZE;
		if (optarg && !strcmp(optarg, "all"))
			opt->actions |= PTWATCH_ACTION_FREEZE_ALL;
		break;
	case OPT_START:
		opt->actions |= PTWATCH_ACTION_START;
		break;
	case OPT_STOP:
		opt->actions |= PTWATCH_ACTION_STOP;
		break;
	case OPT_LOG:
		opt->actions |= PTWATCH_ACTION_LOG;
		break;
	case OPT_NO_LOG:
		opt->actions &= ~PTWATCH_ACTION_LOG;
		break;
	case OPT_PANIC:
		opt->actions |= PTWATCH_ACTION_PANIC;
		break;
	case OPT_PERSISTENT:
		opt->persistent = true;
		break;
	case OPT_JSON:
		opt->json = true;
		break;
	case 'o':
		if (!*optarg)
			return cli_usage(VERB, "-o needs the name of a directory");
		opt->output = optarg;
		break;
	case 'm':
		if (ptw_parse_size(optarg, &opt->buffer) || !opt->buffer)
			return cli_usage(VERB, "--buffer %s is not a size such as 65536, 512k or 4M", cli_shown(optarg));
		if (opt->buffer < 4096)
			return cli_usage(VERB, "--buffer %s is too small: at least 4k for each CPU", optarg);
		opt->buffer_text = optarg;
		break;
	case 'k':
		opt->where |= PTWATCH_RTIT_CTL_OS;
		break;
	case 'u':
		opt->where |= PTWATCH_RTIT_CTL_USER;
		break;
	case 'C':
		if (ptw_parse_cpus(optarg, &opt->cpus, &opt->cpus_size) < 0)
			return cli_usage(VERB, "--cpu %s is not a list of CPUs such as 0-3,8", cli_shown(optarg));
		break;
	case 'h':
		print_help();
		return cli_flush(VERB);
	default:
		return cli_bad_option(VERB, option, argv, options);
	}
	return -1;
}

/* ---- the whole of it ---- */

static bool is_user(const struct ptw_watch_target *target)
{
	return target->kind == PTW_PLACE_USER_SYMBOL || target->kind == PTW_PLACE_USER_ADDRESS;
}

/*
 * --pid says whose hits count, and, where the place is one of a process, which process that is: then it is
 * no condition, as all its threads are watched.
 */
static int take_process(struct watch_options *opt)
{
	const struct ptw_watch_target *orphan = NULL, *user = NULL;
	unsigned int kept = 0, pids = 0;

	for (unsigned int i = 0; i < opt->targets; i++) {
		if (!is_user(&opt->target[i]))
			continue;
		user = &opt->target[i];
		if (!opt->target[i].pid)
			orphan = user;
	}
	if (!orphan)
		return -1;
	for (unsigned int i = 0; i < opt->filters; i++) {
		const struct ptwatch_who *filter = &opt->filter[i];

		if (filter->flags || (filter->kind != PTWATCH_WHO_PID && filter->kind != PTWATCH_WHO_TGID)) {
			opt->filter[kept++] = *filter;
			continue;
		}
		opt->pid = (pid_t)filter->id;
		pids++;
	}
	if (!pids && orphan->kind == PTW_PLACE_USER_ADDRESS)
		return cli_usage(VERB, "%s: 0x%llx is not a kernel address (those begin with 0xff); for one in a process, add --pid PID",
				 orphan->text, (unsigned long long)orphan->address);
	if (pids != 1 || !opt->pid)
		return cli_usage(VERB, "%s: which process? Say it by one --pid PID", orphan->text);
	for (unsigned int i = 0; i < opt->targets; i++)
		if (!is_user(&opt->target[i]))
			return cli_usage(VERB, "--pid is the process of %s, and whose hits count for %s; write %s@%d instead", orphan->text,
					 opt->target[i].text, orphan->text, opt->pid);
	opt->filters = kept;
	return -1;
}

static int check_targets(struct watch_options *opt)
{
	int status = take_process(opt);

	if (status >= 0)
		return status;
	for (unsigned int i = 0; i < opt->targets; i++) {
		struct ptw_watch_target *target = &opt->target[i];
		struct ptw_error err;

		for (unsigned int k = 0; k < i; k++)
			if (!strcmp(target->text, opt->target[k].text))
				return cli_usage(VERB, "%s is given twice", target->text);
		if (opt->wait_module && (target->kind != PTW_PLACE_SYMBOL || !strchr(target->place, ':')))
			return cli_usage(VERB, "--wait-module: %s names no module; write MODULE:%s", target->text, target->text);
		if (!opt->has_condition)
			continue;
		if (target->access == PTWATCH_ACCESS_X)
			return cli_usage(VERB, "--if: %s is about execution, which has no value", target->text);
		/* Without LEN only the place itself tells, later. */
		if (target->len > 8 && opt->condition.op != PTW_VALUE_CHANGED)
			return cli_usage(VERB, "--if %s: of more than 8 bytes only 'changed' can be told", opt->condition.text);
		if (target->len && target->len <= 8) {
			struct ptw_value_condition fitted = opt->condition;

			if (ptw_value_condition_fit(&fitted, target->len, false, &err))
				return cli_usage(VERB, "--if %s", err.text);
		}
	}
	return -1;
}

static int check_options(struct watch_options *opt, const struct given *given)
{
	static const int counts[] = { 'n', OPT_ONCE, OPT_ALL, OPT_FOLLOW };
	static const int logs[] = { OPT_LOG, OPT_NO_LOG };
	static const int traces[] = { OPT_FREEZE, OPT_START, OPT_STOP };
	int status;

	status = check_exclusive(given, counts, 4);
	if (status < 0)
		status = check_exclusive(given, logs, 2);
	if (status < 0)
		status = check_exclusive(given, traces, 3);
	if (status >= 0)
		return status;
	if (!(opt->actions & TRACE_ACTIONS) && (opt->output || opt->where || opt->cpus || opt->buffer_text))
		return cli_usage(VERB, "-o, -m, -k, -u and -C are about the trace; add --freeze to have one");
	if (opt->percpu && !opt->wait_module)
		return cli_usage(VERB, "--percpu is about a module that is not loaded; without --wait-module the kernel's symbols tell");
	if (opt->persistent) {
		if (opt->actions & TRACE_ACTIONS)
			return cli_usage(VERB, "--persistent: a trace ends with the program, so there is none to freeze, start or stop");
		for (unsigned int i = 0; i < opt->targets; i++)
			if (opt->target[i].kind == PTW_PLACE_FIELD && opt->target[i].pid)
				return cli_usage(VERB, "--persistent: the memory of %s is another process's once that one has ended; a watch that ends with it is not persistent",
						 opt->target[i].text);
		if (opt->command || opt->timeout)
			return cli_usage(VERB, "--persistent arms and leaves; there is no COMMAND and no --timeout to wait for");
		/* Who looks later wants to see more than the first. */
		if (!given->option['n'] && !given->option[OPT_ONCE])
			opt->count = 0;
	}
	/* What is started wants to run on, until something else ends it. */
	if (opt->actions & PTWATCH_ACTION_START && !given->option['n'] && !given->option[OPT_ONCE])
		opt->count = 0;
	return -1;
}

int watch_options_parse(struct watch_options *opt, int argc, char **argv)
{
	struct given given = { { false } };
	int option, status, end;

	*opt = (struct watch_options){
		.actions = PTWATCH_ACTION_EVENT | PTWATCH_ACTION_LOG, .count = 1, .buffer = DEFAULT_BUFFER,
	};
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
		if (option > 0 && option < OPT_END && option != '?' && option != ':') {
			if (given.option[option] && !is_repeatable(option))
				return cli_usage(VERB, "--%s may be given only once", name_of(option));
			given.option[option] = true;
		}
		status = parse_option(opt, option, argv);
		if (status >= 0)
			return status;
	}
	if (optind == end)
		return cli_usage(VERB,
				 "nothing to watch; the form is SYMBOL[+OFFSET]:LEN:MODE, e.g. jiffies_64:8:w (alarms of watches that are armed: ptwatch watches --follow)");
	for (; optind < end; optind++) {
		struct ptw_error err;

		if (opt->targets == MAX_TARGETS)
			return cli_usage(VERB, "more than %d targets", MAX_TARGETS);
		if (ptw_watch_target_parse(argv[optind], &opt->target[opt->targets], &err))
			return cli_usage(VERB, "%s", err.text);
		opt->targets++;
	}
	status = check_targets(opt);
	if (status < 0)
		status = check_options(opt, &given);
	if (status >= 0)
		return status;
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

void watch_options_free(struct watch_options *opt)
{
	free(opt->cpus);
	free(opt->hit_cpus);
}
