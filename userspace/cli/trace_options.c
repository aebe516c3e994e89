// SPDX-License-Identifier: BSD-2-Clause
/* The command line of the verbs that read traces. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/trace_source.h"
#include "cli/verb.h"
#include "common/number.h"
#include "decode/clock.h"

enum {
	OPT_RAW = 256,
	OPT_CPU,
	OPT_BITS,
	OPT_MTC_FREQ,
	OPT_NOM_FREQ,
	OPT_CPUID15,
	OPT_ADDR_FILTER,
	OPT_IMAGE,
	OPT_IMAGES,
	OPT_FORMAT,
	OPT_JSON,
	OPT_COUNT,
	OPT_TAIL,
	OPT_LAST,
	OPT_TIME,
	OPT_NO_TIME,
	OPT_ALL,
	OPT_SOURCE,
	OPT_DEBUG,
	OPT_SYNTAX,
	OPT_DEPTH,
	OPT_JOBS,
};

struct known_option {
	struct option option;
	unsigned int accept;	/* 0: all verbs */
	unsigned int refuse;	/* not those that say so */
};

static const struct known_option known[] = {
	{ { "input", required_argument, NULL, 'i' }, 0, 0 },
	{ { "cpus", required_argument, NULL, 'C' }, 0, 0 },
	{ { "output", required_argument, NULL, 'o' }, ACCEPT_OUTPUT | ACCEPT_OWN_OUTPUT, 0 },
	{ { "raw", required_argument, NULL, OPT_RAW }, 0, 0 },
	{ { "cpu", required_argument, NULL, OPT_CPU }, 0, 0 },
	{ { "bits", required_argument, NULL, OPT_BITS }, 0, 0 },
	{ { "mtc-freq", required_argument, NULL, OPT_MTC_FREQ }, 0, 0 },
	{ { "nom-freq", required_argument, NULL, OPT_NOM_FREQ }, 0, 0 },
	{ { "cpuid15", required_argument, NULL, OPT_CPUID15 }, 0, 0 },
	{ { "addr-filter", required_argument, NULL, OPT_ADDR_FILTER }, 0, 0 },
	{ { "image", required_argument, NULL, OPT_IMAGE }, 0, 0 },
	{ { "images", required_argument, NULL, OPT_IMAGES }, 0, 0 },
	{ { "format", required_argument, NULL, OPT_FORMAT }, 0, ACCEPT_OWN_FORMAT },
	{ { "json", no_argument, NULL, OPT_JSON }, 0, ACCEPT_NO_JSON },
	{ { "count", no_argument, NULL, OPT_COUNT }, 0, ACCEPT_NO_COUNT },
	{ { "help", no_argument, NULL, 'h' }, 0, 0 },
	{ { "tail", required_argument, NULL, OPT_TAIL }, ACCEPT_WINDOW | ACCEPT_TAIL, 0 },
	{ { "last", required_argument, NULL, OPT_LAST }, ACCEPT_WINDOW | ACCEPT_TAIL, 0 },
	{ { "time", no_argument, NULL, OPT_TIME }, ACCEPT_WINDOW | ACCEPT_TAIL, 0 },
	{ { "no-time", no_argument, NULL, OPT_NO_TIME }, ACCEPT_WINDOW | ACCEPT_TAIL, 0 },
	{ { "all", no_argument, NULL, OPT_ALL }, ACCEPT_WINDOW, 0 },
	{ { "source", no_argument, NULL, OPT_SOURCE }, ACCEPT_DISASM, 0 },
	{ { "debug", required_argument, NULL, OPT_DEBUG }, ACCEPT_DISASM, 0 },
	{ { "syntax", required_argument, NULL, OPT_SYNTAX }, ACCEPT_DISASM, 0 },
	{ { "depth", required_argument, NULL, OPT_DEPTH }, ACCEPT_DEPTH, 0 },
	{ { "jobs", required_argument, NULL, OPT_JOBS }, 0, ACCEPT_TAIL },	/* packets need no decoding */
};

#define MAX_JOBS	256
#define KNOWN	(sizeof(known) / sizeof(known[0]))
#define OWN	32	/* at most as many options of a verb */

void trace_options_help(unsigned int accept)
{
	fputs("  -i, --input RECORDING   a recording (directory), or a perf.data (default " DEFAULT_OUTPUT ")\n"
	      "  -C, --cpus CPU[,CPU…]   only the traces of these CPUs; without it all, or those that\n"
	      "                          an alarm froze\n",
	      stdout);
	if (accept & ACCEPT_OUTPUT)
		fputs("  -o, --output FILE       write there; with a name in .gz compressed\n", stdout);
	if (!(accept & ACCEPT_NO_JSON))
		printf("      --json              one JSON object a line%s\n",
		       accept & ACCEPT_OWN_FORMAT ? "" : ", like --format json");
	if (!(accept & ACCEPT_OWN_FORMAT))
		printf("      --format FORMAT     text%s or json\n",
		       accept & ACCEPT_IP_FORMAT ? ", ip (addresses only)" : "");
	if (!(accept & ACCEPT_NO_COUNT))
		fputs("      --count             print only how many there are\n", stdout);
	if (accept & (ACCEPT_WINDOW | ACCEPT_TAIL))
		fputs("      --tail N            only the last N lines of each CPU\n"
		      "      --last TIME         only the last 40us, 1.5ms, 2s … of each CPU\n"
		      "      --no-time           without times\n",
		      stdout);
	if (accept & ACCEPT_WINDOW)
		fputs("      --all               also what came after the access that raised the alarm\n", stdout);
	if (accept & ACCEPT_DEPTH)
		fputs("      --depth N           only N levels of calls\n", stdout);
	if (accept & ACCEPT_DISASM)
		fputs("      --source            with file:line, where the code has DWARF\n"
		      "      --debug FILE        a vmlinux or module (.ko) with DWARF; may be repeated\n"
		      "      --syntax SYNTAX     att (as in the kernel) or intel\n",
		      stdout);
	if (!(accept & ACCEPT_TAIL))
		fputs("      --jobs N            decode with N threads; without it one for each core\n", stdout);
	fputs("\nRaw Intel PT bytes instead of a recording; offsets, sizes and addresses in hex:\n\n"
	      "      --raw TRACE                     the bytes\n"
	      "      --cpu FAMILY/MODEL/STEPPING     CPU that wrote them, for its errata\n"
	      "      --image FILE,FILEOFF,SIZE,VADDR code that ran; may be repeated\n"
	      "      --images TABLE                  the same from a file, fields separated by tabs\n"
	      "      --mtc-freq N --nom-freq N       as in IA32_RTIT_CTL and MSR_PLATFORM_INFO\n"
	      "      --cpuid15 EAX,EBX               ratio of TSC and crystal clock\n"
	      "      --addr-filter N,CFG,A,B         address range N (0-3): CFG 1 filter, 2 TraceStop\n"
	      "      --bits 64|32                    mode of code where the trace doesn't tell\n", stdout);
}

/* A decimal number, or hex with 0x; the whole of @text up to @stop. */
static int parse_number(const char **text, char stop, int base, uint64_t max, uint64_t *value)
{
	char *end;

	if (!**text || !strchr("0123456789abcdefABCDEF", **text))
		return -1;
	if (base == 10 && (*text)[0] == '0' && ((*text)[1] | 0x20) == 'x')
		base = 16;
	errno = 0;
	*value = strtoull(*text, &end, base);
	if (errno || end == *text || *end != stop || *value > max)
		return -1;
	*text = stop ? end + 1 : end;
	return 0;
}

static int parse_cpu(struct trace_options *options, const char *value)
{
	uint64_t family, model, stepping;
	const char *at = value;

	if (parse_number(&at, '/', 10, 0xffff, &family) || parse_number(&at, '/', 10, 0xff, &model) ||
	    parse_number(&at, '\0', 10, 0xff, &stepping))
		return cli_usage(options->verb, "--cpu '%s': must be FAMILY/MODEL/STEPPING, such as 6/85/4",
				 value);
	options->params.family = family;
	options->params.model = model;
	options->params.stepping = stepping;
	return PTW_EXIT_OK;
}

static int parse_cpuid15(struct trace_options *options, const char *value)
{
	const char *at = value;
	uint64_t eax, ebx;

	if (parse_number(&at, ',', 10, UINT32_MAX, &eax) || parse_number(&at, '\0', 10, UINT32_MAX, &ebx))
		return cli_usage(options->verb, "--cpuid15 '%s': must be EAX,EBX, such as 2,308", value);
	options->params.cpuid_0x15_eax = eax;
	options->params.cpuid_0x15_ebx = ebx;
	return PTW_EXIT_OK;
}

static int parse_addr_filter(struct trace_options *options, const char *value)
{
	const char *at = value;
	uint64_t n, cfg, a, b;

	if (parse_number(&at, ',', 10, PTW_ADDR_RANGES - 1, &n) || parse_number(&at, ',', 10, 2, &cfg) ||
	    parse_number(&at, ',', 16, UINT64_MAX, &a) || parse_number(&at, '\0', 16, UINT64_MAX, &b))
		return cli_usage(options->verb,
				 "--addr-filter '%s': must be N,CFG,A,B with N 0-3, CFG 0 (unused), "
				 "1 (filter) or 2 (TraceStop), A and B hex addresses",
				 value);
	options->params.addr[n] = (struct ptw_addr_range){ .cfg = cfg, .a = a, .b = b };
	return PTW_EXIT_OK;
}

static int parse_small(struct trace_options *options, const char *name, const char *value, uint64_t max,
		       uint8_t *to)
{
	const char *at = value;
	uint64_t number;

	if (parse_number(&at, '\0', 10, max, &number))
		return cli_usage(options->verb, "--%s '%s': must be a number from 0 to %d", name, value,
				 (int)max);
	*to = number;
	return PTW_EXIT_OK;
}

static int parse_positive(struct trace_options *options, const char *name, const char *value, uint64_t *to)
{
	const char *at = value;

	if (parse_number(&at, '\0', 10, UINT64_MAX, to) || !*to)
		return cli_usage(options->verb, "--%s '%s': must be a number from 1", name, value);
	return PTW_EXIT_OK;
}

static bool may_repeat(int option)
{
	return option == OPT_IMAGE || option == OPT_IMAGES || option == OPT_ADDR_FILTER ||
	       option == OPT_DEBUG;
}

/* Flags may be repeated: that says nothing new. */
static int check_once(const struct trace_options *options, int option, uint64_t *given)
{
	size_t i;

	for (i = 0; i < KNOWN && known[i].option.val != option; i++)
		;
	if (i == KNOWN)
		return PTW_EXIT_OK;	/* the verb's own */
	if (*given >> i & 1 && known[i].option.has_arg && !may_repeat(option))
		return option < OPT_RAW ? cli_usage(options->verb, "-%c may be given only once", option) :
					  cli_usage(options->verb, "--%s may be given only once",
						    known[i].option.name);
	*given |= 1ULL << i;
	/* Which of the two came last would decide. */
	if (option == OPT_TIME || option == OPT_NO_TIME)
		for (i = 0; i < KNOWN; i++)
			if (known[i].option.val == (option == OPT_TIME ? OPT_NO_TIME : OPT_TIME) &&
			    *given >> i & 1)
				return cli_usage(options->verb, "--time and --no-time: only one of them");
	return PTW_EXIT_OK;
}

static int parse_format(struct trace_options *options, const char *value, unsigned int accept)
{
	options->format_text = value;
	if (!strcmp(value, "text"))
		options->format = PTW_FORMAT_TEXT;
	else if (!strcmp(value, "json"))
		options->format = PTW_FORMAT_JSON;
	else if (!strcmp(value, "ip") && accept & ACCEPT_IP_FORMAT)
		options->format = PTW_FORMAT_IP;
	else
		return cli_usage(options->verb, "--format '%s': must be text%s or json", value,
				 accept & ACCEPT_IP_FORMAT ? ", ip" : "");
	return PTW_EXIT_OK;
}

static int add_debug_file(struct trace_options *options, const char *path)
{
	const char **grown = reallocarray(options->debug_files, options->debug_file_count + 1,
					  sizeof(*grown));

	if (!grown)
		return cli_usage(options->verb, "--debug %s: out of memory", path);
	options->debug_files = grown;
	grown[options->debug_file_count++] = path;
	return PTW_EXIT_OK;
}

static int take_image(struct trace_options *options, int option, const char *value)
{
	struct ptw_error err;

	if (option == OPT_IMAGE ? ptw_image_parse(&options->image, value, &err) :
				  ptw_image_read_table(&options->image, value, &err))
		return err.status == PTW_EXIT_USAGE ? cli_usage(options->verb, "%s", err.text) :
						      cli_error(options->verb, &err);
	return PTW_EXIT_OK;
}

/* Options that tell where the trace comes from. */
static int take_source(struct trace_options *options, int option, const char *value)
{
	switch (option) {
	case 'i':
		options->input = value;
		return PTW_EXIT_OK;
	case 'C':
		options->cpus_text = value;
		if (ptw_parse_cpus(value, &options->cpus, &options->cpus_size) < 0)
			return cli_usage(options->verb, "-C '%s': must be CPU numbers, such as 1 or 0-3,8",
					 value);
		return PTW_EXIT_OK;
	case OPT_RAW:
		options->raw = value;
		return PTW_EXIT_OK;
	case OPT_CPU:
		return parse_cpu(options, value);
	case OPT_BITS:
		if (strcmp(value, "64") && strcmp(value, "32"))
			return cli_usage(options->verb, "--bits '%s': must be 64 or 32", value);
		options->params.bits = atoi(value);
		return PTW_EXIT_OK;
	case OPT_MTC_FREQ:
		return parse_small(options, "mtc-freq", value, 15, &options->params.mtc_freq);
	case OPT_NOM_FREQ:
		return parse_small(options, "nom-freq", value, 255, &options->params.nom_freq);
	case OPT_CPUID15:
		return parse_cpuid15(options, value);
	case OPT_IMAGES:
		options->image_table = true;
		return take_image(options, option, value);
	case OPT_ADDR_FILTER:
		return parse_addr_filter(options, value);
	default:
		return take_image(options, option, value);
	}
}

/* Options that tell what of it to show, and how. */
static int take_view(struct trace_options *options, unsigned int accept, int option, const char *value)
{
	const char *text = value;
	uint64_t number;

	switch (option) {
	case OPT_FORMAT:
		return parse_format(options, value, accept);
	case OPT_JSON:
		options->json = true;
		break;
	case OPT_COUNT:
		options->count = true;
		break;
	case OPT_TAIL:
		return parse_positive(options, "tail", value, &options->tail);
	case OPT_DEPTH:
		return parse_positive(options, "depth", value, &options->depth);
	case OPT_JOBS:
		if (parse_number(&value, '\0', 10, MAX_JOBS, &number) || !number)
			return cli_usage(options->verb, "--jobs '%s': must be a number of threads from 1 to %d", text, MAX_JOBS);
		options->jobs = number;
		break;
	case OPT_LAST:
		if (ptw_parse_duration(value, &options->last_ns) || !options->last_ns)
			return cli_usage(options->verb,
					 "--last '%s': must be a time, such as 40us, 1.5ms or 2s", value);
		break;
	case OPT_TIME:
	case OPT_NO_TIME:
		options->no_time = option == OPT_NO_TIME;
		break;
	case OPT_ALL:
		options->all = true;
		break;
	case OPT_SOURCE:
		options->source = true;
		break;
	case OPT_DEBUG:
		options->source = true;
		return add_debug_file(options, value);
	case OPT_SYNTAX:
		if (strcmp(value, "att") && strcmp(value, "intel"))
			return cli_usage(options->verb, "--syntax '%s': must be att or intel", value);
		options->intel_syntax = !strcmp(value, "intel");
		break;
	}
	return PTW_EXIT_OK;
}

static int check(const struct trace_options *options, unsigned int accept)
{
	if (!options->input && !options->raw)
		return cli_usage(options->verb, "nothing to read: -i RECORDING or --raw TRACE is needed, as there is no " DEFAULT_OUTPUT
				 " here");
	if (options->input && options->raw)
		return cli_usage(options->verb, "-i %s and --raw %s: only one of them", options->input,
				 options->raw);
	if (options->input && options->image.count)
		return cli_usage(options->verb, "--image goes with --raw: a recording brings its code");
	if (options->raw && options->cpus)
		return cli_usage(options->verb, "-C goes with -i: raw bytes are of one CPU");
	if (options->raw && options->last_ns && !ptw_clock_known(&options->params))
		return cli_usage(options->verb, "--last needs --nom-freq N to know how fast the TSC runs");
	if (options->raw && accept & ACCEPT_WINDOW && !options->image.count && !options->image_table)
		return cli_usage(options->verb, "--raw %s: at least one --image FILE,FILEOFF,SIZE,VADDR is "
				 "needed: the code that ran", options->raw);
	return PTW_EXIT_OK;
}

int trace_options_parse(struct trace_options *options, const struct trace_verb *trace_verb, int argc, char **argv)
{
	const char *verb = trace_verb->name;
	unsigned int accept = trace_verb->accept;
	struct option list[KNOWN + OWN + 1] = { 0 };
	size_t i, count = 0;
	uint64_t given = 0;
	int option, status;

	const char *letters = accept & (ACCEPT_OUTPUT | ACCEPT_OWN_OUTPUT) ? ":hi:C:o:" : ":hi:C:";

	*options = (struct trace_options){ .verb = verb };
	for (i = 0; i < KNOWN; i++)
		if ((!known[i].accept || known[i].accept & accept) && !(known[i].refuse & accept))
			list[count++] = known[i].option;
	for (i = 0; i < OWN && trace_verb->options && trace_verb->options[i].name; i++)
		list[count++] = trace_verb->options[i];

	opterr = 0;
	while ((option = getopt_long(argc, argv, letters, list, NULL)) != -1) {
		if (option == '?' || option == ':')
			return cli_bad_option(verb, option, argv, list);
		if (option == 'h') {
			options->help = true;
			return PTW_EXIT_OK;
		}
		status = check_once(options, option, &given);
		if (status)
			return status;
		if (option >= TRACE_OPTION_OWN)
			status = trace_verb->take_option(option, optarg);
		else if (option == 'o')
			options->output = optarg;
		else if (option == 'i' || option == 'C' || (option >= OPT_RAW && option <= OPT_IMAGES))
			status = take_source(options, option, optarg);
		else
			status = take_view(options, accept, option, optarg);
		if (status)
			return status;
	}
	if (optind < argc)
		return cli_usage(verb, "unexpected argument '%s': the trace is named by -i or --raw",
				 argv[optind]);
	if (options->json && options->format_text && strcmp(options->format_text, "json"))
		return cli_usage(verb, "--format %s and --json: only one of them", options->format_text);
	if (options->json)
		options->format = PTW_FORMAT_JSON;
	/* As perf does, with what record, snapshot and watch write without -o. */
	if (!options->input && !options->raw && !access(DEFAULT_OUTPUT, F_OK))
		options->input = DEFAULT_OUTPUT;
	status = check(options, accept);
	return !status && trace_verb->check ? trace_verb->check(options) : status;
}

void trace_options_free(struct trace_options *options)
{
	ptw_image_free(&options->image);
	free(options->cpus);
	free(options->debug_files);
}
