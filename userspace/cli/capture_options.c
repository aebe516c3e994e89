// SPDX-License-Identifier: BSD-2-Clause
#include "cli/capture_options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "cli/output.h"
#include "cli/verb.h"
#include "common/number.h"
#include "control/machine.h"

const char capture_options_help[] =
	"  -a, --all           everything, on every CPU\n"
	"  -C, --cpu CPUS      everything on these CPUs, e.g. 0-3,8; with -p, --cgroup: only there\n"
	"  -p, --pid PID       this process, all its threads\n"
	"      --cgroup DIR    the processes in this control group and those below (version 2)\n"
	"      --follow-fork   with -p or COMMAND: the processes it starts, too\n"
	"  -u, --user          user code only; -u -k both (default)\n"
	"  -k, --kernel        the kernel only\n"
	"      --filter RANGE  only this code: 'sym', 'sym1 - sym2', 0xA-0xB, 'binary!sym'; up to as many as the\n"
	"                      CPU has address ranges (`ptwatch info`)\n"
	"      --stop-in RANGE end each CPU's trace when it comes here\n"
	"      --start-at SYM  trace a CPU from where it comes here …\n"
	"      --stop-at SYM   … to here, again and again; in the kernel, or 'binary!sym'\n"
	"      --mtc N|off     a time packet each 2^N crystal clocks (default 3 or as near as the CPU has)\n"
	"      --cyc[=N]       cycle counts, at least 2^(N-1) cycles apart (default 0: each)\n"
	"      --psb N         a point to begin decoding each 2 KiB << N (default 0)\n"
	"      --ptw           PTWRITE instructions     --pwr-evt      power states\n"
	"      --event-trace   interrupts, exceptions   --no-tnt       no conditional branches\n"
	"      --no-retc       each return in full      --no-tsc, --no-branch\n";

/* Return: -1 to go on, else the exit status. */
static int take_field(const char *verb, const char *name, const char *text, int *value)
{
	uint64_t number;

	if (ptw_parse_uint(text, 0, 15, &number))
		return cli_usage(verb, "--%s %s is not a number from 0 to 15; `ptwatch info` lists those of this CPU", name, cli_shown(text));
	*value = number;
	return -1;
}

static int add_range(struct capture_options *options, const char *verb, uint32_t kind)
{
	if (!optarg[strspn(optarg, " ")])
		return cli_usage(verb, "--%s needs a range: 'sym', 'sym1 - sym2', 0xA-0xB or 'binary!sym'",
				 kind == PTWATCH_RANGE_FILTER ? "filter" : "stop-in");
	if (options->ranges == TRACE_PLACES)
		return cli_usage(verb, "more than %d ranges; CPUs have %d at most", TRACE_PLACES, PTWATCH_MAX_RANGES);
	options->range_kind[options->ranges] = kind;
	options->range[options->ranges++] = optarg;
	return -1;
}

int capture_option(struct capture_options *options, const char *verb, int option)
{
	uint64_t number;

	switch (option) {
	case 'a':
		options->all = true;
		break;
	case 'C':
		free(options->cpus);
		options->cpus = NULL;
		if (ptw_parse_cpus(optarg, &options->cpus, &options->cpus_size) < 0)
			return cli_usage(verb, "--cpu %s is not a list of CPUs such as 0-3,8", cli_shown(optarg));
		break;
	case 'p':
		if (ptw_parse_uint(optarg, 1, INT32_MAX, &number))
			return cli_usage(verb, "--pid %s is not the number of a process", cli_shown(optarg));
		options->pid = number;
		break;
	case TRACE_CGROUP:
		options->cgroup = optarg;
		break;
	case TRACE_FOLLOW_FORK:
		options->follow_fork = true;
		break;
	case 'u':
		options->where |= PTWATCH_RTIT_CTL_USER;
		break;
	case 'k':
		options->where |= PTWATCH_RTIT_CTL_OS;
		break;
	case TRACE_FILTER:
		return add_range(options, verb, PTWATCH_RANGE_FILTER);
	case TRACE_STOP_IN:
		return add_range(options, verb, PTWATCH_RANGE_STOP);
	case TRACE_START_AT:
	case TRACE_STOP_AT:
		if (!*optarg)
			return cli_usage(verb, "--%s needs a symbol, or 'binary!sym'", option == TRACE_START_AT ? "start-at" : "stop-at");
		if (option == TRACE_STOP_AT)
			options->stop_at = optarg;
		else
			options->start_at = optarg;
		break;
	case TRACE_MTC:
		options->clear &= ~PTWATCH_RTIT_CTL_MTCEN;
		if (strcmp(optarg, "off"))
			return take_field(verb, "mtc", optarg, &options->mtc);
		options->clear |= PTWATCH_RTIT_CTL_MTCEN | PTWATCH_RTIT_CTL_MTCFREQ;
		break;
	case TRACE_CYC:
		options->cyc = 0;
		return optarg ? take_field(verb, "cyc", optarg, &options->cyc) : -1;
	case TRACE_PSB:
		return take_field(verb, "psb", optarg, &options->psb);
	case TRACE_PTW:
		options->set |= PTWATCH_RTIT_CTL_PTWEN | PTWATCH_RTIT_CTL_FUPONPTW;
		break;
	case TRACE_PWR_EVT:
		options->set |= PTWATCH_RTIT_CTL_PWREVTEN;
		break;
	case TRACE_EVENT_TRACE:
		options->set |= PTWATCH_RTIT_CTL_EVENTEN;
		break;
	case TRACE_NO_TNT:
		options->set |= PTWATCH_RTIT_CTL_DISTNT;
		break;
	case TRACE_NO_RETC:
		options->set |= PTWATCH_RTIT_CTL_DISRETC;
		break;
	case TRACE_NO_TSC:
		options->clear |= PTWATCH_RTIT_CTL_TSCEN;
		break;
	case TRACE_NO_BRANCH:
		options->clear |= PTWATCH_RTIT_CTL_BRANCHEN;
		break;
	default:
		return -2;
	}
	return -1;
}

int capture_options_check(const struct capture_options *options, const char *verb, bool command)
{
	if (options->all && options->cpus)
		return cli_usage(verb, "-a is every CPU and -C some of them: take one");
	if (options->pid && options->cgroup)
		return cli_usage(verb, "-p and --cgroup: take one");
	if (options->all && (options->pid || options->cgroup))
		return cli_usage(verb, "-a is everything: take it, or -p or --cgroup");
	if (options->follow_fork && !options->pid && (!command || options->all || options->cpus || options->cgroup))
		return cli_usage(verb, "--follow-fork is about one process: add -p PID, or a command without -a and -C");
	if (options->stop_at && !options->start_at)
		return cli_usage(verb, "--stop-at needs --start-at; --stop-in ends a trace for good");
	if (options->stop_at && !strcmp(options->start_at, options->stop_at))
		return cli_usage(verb, "--start-at and --stop-at are both %s: what comes there cannot both start and stop; take two places",
				 options->stop_at);
	if (options->clear & PTWATCH_RTIT_CTL_BRANCHEN && options->set & (PTWATCH_RTIT_CTL_DISTNT | PTWATCH_RTIT_CTL_EVENTEN))
		return cli_usage(verb, "--no-tnt and --event-trace need branches: leave --no-branch out");
	return -1;
}

/* ---- places ---- */

bool capture_options_need_process(const struct capture_options *options)
{
	/* A plain name may be one of the program's; what is no address can only be found when it is there. */
	for (unsigned int i = 0; i < options->ranges; i++)
		if (strncmp(options->range[i], "0x", 2))
			return true;
	return (options->start_at && strncmp(options->start_at, "0x", 2)) ||
	       (options->stop_at && strncmp(options->stop_at, "0x", 2));
}

static int load_symbols(struct trace_places *places, struct ptw_error *err)
{
	if (places->symbols)
		return 0;
	places->symbols = ptw_symbols_new();
	if (!places->symbols)
		return ptw_error_set(err, PTW_EXIT_FAILED, "out of memory");
	if (!ptw_symbols_load_kallsyms(places->symbols, "/proc/kallsyms", err))
		return 0;
	ptw_symbols_free(places->symbols);
	places->symbols = NULL;
	return -1;
}

static void set_label(struct trace_place *place, const char *text)
{
	snprintf(place->label, sizeof(place->label), "%.*s", PTWATCH_LABEL_SIZE - 1, text);
}

static int find_user(const struct trace_places *places, const char *binary, const char *symbol, const char *spelling,
		     struct trace_place *place, struct ptw_error *err)
{
	struct ptw_user_symbol found;

	if (ptw_process_symbol(places->process, binary, symbol, &found, err))
		return -1;
	if (!found.is_function)
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s is data, not code", spelling);
	place->address = found.address;
	place->size = found.size;
	place->user = true;
	set_label(place, spelling);
	return 0;
}

int trace_place_find(struct trace_places *places, const char *spelling, struct trace_place *place,
		     struct ptw_error *err)
{
	const struct ptw_symbol *symbol = NULL, *next;
	const char *bang = strchr(spelling, '!');
	char binary[256];

	*place = (struct trace_place){ .address = 0 };
	if (bang) {
		snprintf(binary, sizeof(binary), "%.*s", (int)(bang - spelling), spelling);
		if (!places->process)
			return ptw_error_set(err, PTW_EXIT_USAGE,
					     "%s is user code, which every process has elsewhere: say which, with -p PID or a command",
					     spelling);
		return find_user(places, binary, bang + 1, spelling, place, err);
	}
	/* The program that is traced comes before the kernel. */
	if (places->process && places->program && !strchr(spelling, ':') && strncmp(spelling, "0x", 2) &&
	    !find_user(places, places->program, spelling, spelling, place, NULL))
		return 0;
	if (load_symbols(places, err) || ptw_symbols_resolve(places->symbols, spelling, &place->address, &symbol, err))
		return -1;
	set_label(place, spelling);
	place->user = !(place->address >> 63);
	if (!symbol)
		return 0;
	if (!strchr("tTwW", symbol->type))
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s is data, not code", spelling);
	place->size = symbol->size;
	/* kallsyms has no sizes: up to the next symbol. */
	for (uint64_t at = symbol->addr + 16; !place->size && at < symbol->addr + (1 << 20); at += 16) {
		next = ptw_symbols_at(places->symbols, at);
		if (next && next->addr > symbol->addr)
			place->size = next->addr - symbol->addr;
	}
	/* Behind the symbol's beginning: what is left of it. */
	if (place->size > place->address - symbol->addr)
		place->size -= place->address - symbol->addr;
	return 0;
}

static char *trim(char *text)
{
	size_t length;

	while (isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
	return text;
}

static int find_range(struct trace_places *places, const char *spelling, struct ptwatch_range *range,
		      struct ptw_error *err)
{
	struct trace_place from, to;
	char text[512], *dash, *second = NULL;

	if (strlen(spelling) >= sizeof(text))
		return ptw_error_set(err, PTW_EXIT_USAGE, "--filter: a range of more than %zu characters", sizeof(text) - 1);
	strcpy(text, spelling);
	/* Names of files may have a dash, addresses don't. */
	dash = strstr(text, " - ");
	if (!dash && !strncmp(text, "0x", 2))
		dash = strchr(text, '-');
	if (dash) {
		second = trim(dash + (*dash == ' ' ? 3 : 1));
		*dash = '\0';
	}
	if (!*trim(text) || (second && !*second))
		return ptw_error_set(err, PTW_EXIT_USAGE, "'%s' has one end only; a range is 'sym', 'sym1 - sym2', 0xA-0xB or 'binary!sym'",
				     spelling);
	if (trace_place_find(places, trim(text), &from, err) || (second && trace_place_find(places, second, &to, err)))
		return -1;
	range->start = from.address;
	if (second) {
		/* A number is the last byte, a function ends where it ends. */
		range->end = strncmp(second, "0x", 2) ? to.address + (to.size ? to.size - 1 : 0) : to.address;
	} else if (!from.size) {
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s: how far it goes is not known; say where it ends: 0xA-0xB", spelling);
	} else {
		range->end = from.address + from.size - 1;
	}
	if (range->end < range->start)
		return ptw_error_set(err, PTW_EXIT_USAGE, "%s ends (0x%llx) before it begins (0x%llx)", spelling,
				     (unsigned long long)range->end, (unsigned long long)range->start);
	return 0;
}

/* ---- the request ---- */

static int set_field(const struct ptwatch_info *info, const char *name, uint64_t mask, int value, uint64_t *ctl,
		     struct ptw_error *err)
{
	char allowed[128] = "";
	uint32_t values = 0;

	for (size_t i = 0; i < ptw_rtit_field_count; i++)
		if (ptw_rtit_fields[i].mask == mask)
			values = ptw_rtit_values(info, &ptw_rtit_fields[i]);
	if (values >> value & 1) {
		*ctl = (*ctl & ~mask) | (uint64_t)value << __builtin_ctzll(mask);
		return 0;
	}
	for (int i = 0, used = 0; i < 16; i++)
		if (values >> i & 1)
			used += snprintf(allowed + used, sizeof(allowed) - used, "%s%d", used ? ", " : "", i);
	if (!values)
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED, "--%s %d: this CPU can't choose it; leave it out", name, value);
	return ptw_error_set(err, PTW_EXIT_UNSUPPORTED, "--%s %d: this CPU takes %s", name, value, allowed);
}

static int choose_ctl(const struct capture_options *options, const struct ptwatch_info *info, uint64_t *ctl,
		      struct ptw_error *err)
{
	uint64_t where = options->where ? options->where : PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_USER, lacks;
	char names[256];

	*ctl = ptw_trace_default_rtit_ctl(info, where);
	*ctl = (*ctl & ~options->clear) | options->set;
	/* FUPonPTW comes with PTWEn, as an extra. */
	if (!(info->rtit_ctl & PTWATCH_RTIT_CTL_FUPONPTW))
		*ctl &= ~PTWATCH_RTIT_CTL_FUPONPTW;
	if (options->mtc >= 0) {
		*ctl |= PTWATCH_RTIT_CTL_MTCEN;
		if (set_field(info, "mtc", PTWATCH_RTIT_CTL_MTCFREQ, options->mtc, ctl, err))
			return -1;
	}
	if (options->cyc >= 0) {
		*ctl |= PTWATCH_RTIT_CTL_CYCEN;
		if (options->cyc && set_field(info, "cyc", PTWATCH_RTIT_CTL_CYCTHRESH, options->cyc, ctl, err))
			return -1;
	}
	if (options->psb >= 0 && set_field(info, "psb", PTWATCH_RTIT_CTL_PSBFREQ, options->psb, ctl, err))
		return -1;
	lacks = *ctl & ~info->rtit_ctl;
	if (lacks && info->rtit_ctl)
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED, "this CPU has no %s; `ptwatch info` lists what it has",
				     ptw_rtit_names(lacks, names, sizeof(names)));
	lacks = info->rtit_ctl_required & ~*ctl;
	if (lacks)
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED, "this CPU can't do without %s (an erratum)",
				     ptw_rtit_names(lacks, names, sizeof(names)));
	return 0;
}

int capture_options_request(const struct capture_options *options, const struct ptwatch_info *info,
			  struct trace_places *places, pid_t target, struct ptw_trace_request *request,
			  struct ptw_error *err)
{
	if (choose_ctl(options, info, &request->rtit_ctl, err))
		return -1;
	request->cpus = options->cpus;
	request->cpus_size = options->cpus_size;
	if (options->ranges > info->address_ranges)
		return ptw_error_set(err, PTW_EXIT_UNSUPPORTED, "%u ranges, but this CPU has %u; name fewer or larger ones",
				     options->ranges, info->address_ranges);
	for (unsigned int i = 0; i < options->ranges; i++) {
		request->ranges[i].kind = options->range_kind[i];
		if (find_range(places, options->range[i], &request->ranges[i], err))
			return -1;
	}
	request->nr_ranges = options->ranges;
	if (options->start_at)
		request->flags |= PTWATCH_TRACE_PAUSED;
	if (options->follow_fork)
		request->flags |= PTWATCH_TRACE_FOLLOW_FORK;
	if (options->pid || target) {
		request->target_kind = PTWATCH_TARGET_PROCESS;
		request->target = target ? target : options->pid;
	}
	if (options->cgroup) {
		request->target_kind = PTWATCH_TARGET_CGROUP;
		struct statfs fs;

		/* Open as long as the program runs. */
		request->target = open(options->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (request->target >= 0 && !fstatfs(request->target, &fs) && fs.f_type != CGROUP2_SUPER_MAGIC)
			return ptw_error_set(err, PTW_EXIT_FAILED, "--cgroup %s is no cgroup of version 2; it takes the directory of one, e.g. /sys/fs/cgroup/system.slice",
					     options->cgroup);
		if (request->target < 0)
			return ptw_error_set(err, PTW_EXIT_FAILED, "--cgroup %s: %s; it takes the directory of a cgroup, e.g. /sys/fs/cgroup/system.slice",
					     cli_shown(options->cgroup), strerror(errno));
	}
	return 0;
}

void trace_places_free(struct trace_places *places)
{
	ptw_symbols_free(places->symbols);
	ptw_process_close(places->process);
}

void capture_options_free(struct capture_options *options)
{
	free(options->cpus);
}
