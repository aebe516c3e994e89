// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch insns: every instruction that ran. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "cli/trace_source.h"
#include "cli/verb.h"
#include "common/number.h"
#include "decode/clock.h"
#include "recording/sideband.h"
#include "report/disasm.h"
#include "report/duration.h"
#include "report/function.h"
#include "report/insns.h"
#include "report/source_line.h"

#define ACCEPT	(ACCEPT_IP_FORMAT | ACCEPT_WINDOW | ACCEPT_DISASM)

enum { OPT_FROM = TRACE_OPTION_OWN, OPT_TO, OPT_SYMBOL };

static struct {
	uint64_t from, to;
	const char *symbol;
	struct ptw_function function;	/* that it names */
} own;

static void print_help(void)
{
	fputs("Every instruction that ran, in order: time, CPU, thread (where it is known), address, symbol, instruction.\n\n"
	      "Usage: ptwatch insns -i RECORDING [OPTION]…\n"
	      "       ptwatch insns --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nOf insns:\n\n"
	      "      --from TIME         from this time on, in seconds as shown\n"
	      "      --to TIME           … up to this one\n"
	      "      --symbol SYM        only those of this function; BINARY!SYM: of a process\n"
	      "\nExamples:\n\n"
	      "  ptwatch insns -i crime --tail 30 --source\n"
	      "  ptwatch insns --raw pt.bin --cpu 6/85/4 --image hello,1000,27,401000 --format ip\n", stdout);
}

static int take_option(int option, const char *value)
{
	if (option == OPT_SYMBOL)
		own.symbol = value;
	else if (ptw_parse_duration(value, option == OPT_FROM ? &own.from : &own.to))
		return cli_usage("insns", "--%s '%s': must be a time in seconds, such as 126.4579",
				 option == OPT_FROM ? "from" : "to", value);
	return PTW_EXIT_OK;
}

static int check(const struct trace_options *options)
{
	if (own.to && own.to < own.from)
		return cli_usage("insns", "--to comes before --from");
	if ((own.from || own.to) && options->raw && !ptw_clock_known(&options->params))
		return cli_usage("insns", "--from and --to need --nom-freq N to know how fast the TSC runs");
	return PTW_EXIT_OK;
}

/* The addresses of the function that --symbol names. */
static int find_symbol(const struct trace_source *source, struct ptw_insns_options *insns, struct ptw_error *err)
{
	const struct ptw_symbols *symbols = source->view[0].symbols;
	const struct ptw_symbol *symbol;

	if (ptw_function_find(&own.function, own.symbol, symbols, source->view[0].image, err))
		return -1;
	/* Code of processes is where each has it mapped, so it goes by its name. */
	if (!own.function.address) {
		insns->object = own.function.object[0] ? own.function.object : NULL;
		insns->function = own.function.name;
		return 0;
	}
	symbol = ptw_symbols_at(symbols, own.function.address);
	if (!symbol)
		return ptw_error_set(err, PTW_EXIT_FAILED, "--symbol %s: no function is there", own.symbol);
	insns->low = symbol->addr;
	insns->high = ptw_symbols_end(symbols, symbol);
	return 0;
}

/* Nothing printed is no answer. */
static void say_nothing_found(const struct ptw_insns_found *found)
{
	char window[2 * PTW_DURATION + 16] = "", first[PTW_DURATION], last[PTW_DURATION];

	if (own.from && own.to)
		snprintf(window, sizeof(window), " from %s to %s", ptw_time(own.from, first), ptw_time(own.to, last));
	else if (own.from)
		snprintf(window, sizeof(window), " from %s on", ptw_time(own.from, first));
	else if (own.to)
		snprintf(window, sizeof(window), " up to %s", ptw_time(own.to, first));
	fprintf(stderr, "ptwatch insns: nothing %s%s%sran%s; ", own.symbol ? "of " : "", own.symbol ? own.symbol : "", own.symbol ? " " : "", window);
	if (!window[0])
		fprintf(stderr, "`ptwatch flame` tells which functions did\n");
	else if (!found->timed)
		fprintf(stderr, "the trace tells no times: do without --from and --to\n");
	else
		fprintf(stderr, "the trace is from %s to %s: give times within\n", ptw_time(found->first_ns, first),
			ptw_time(found->last_ns, last));
}

struct tools {
	struct ptw_disasm *disasm;
	struct ptw_source_lines *lines;
};

static int open_tools(struct tools *tools, const struct trace_source *source, struct ptw_error *err)
{
	const struct trace_options *options = source->options;
	size_t i;

	if (options->format == PTW_FORMAT_IP || options->count)
		return 0;
	tools->disasm = ptw_disasm_new(options->intel_syntax);
	if (!tools->disasm)
		return ptw_error_set(err, PTW_EXIT_FAILED, "disassembler: out of memory");
	if (!options->source)
		return 0;
	tools->lines = ptw_source_lines_new(source->view[0].image, source->view[0].symbols, err);
	if (!tools->lines)
		return -1;
	for (i = 0; i < options->debug_file_count; i++)
		if (ptw_source_lines_add(tools->lines, options->debug_files[i], err))
			return -1;
	return 0;
}

static int report_all(struct trace_source *source, const struct tools *tools, struct ptw_out *out,
		      struct ptw_error *err)
{
	const struct trace_options *options = source->options;
	struct ptw_insns_options insns = {
		.format = options->format,
		.no_time = options->no_time,
		.tail = options->tail,
		.last_ns = options->last_ns,
		.from_ns = own.from,
		.to_ns = own.to,
		.disasm = tools->disasm,
		.lines = tools->lines,
	};
	struct ptw_insns_found found = { 0 };
	uint64_t count, total = 0;
	size_t i;

	if (own.from || own.to || own.symbol)
		insns.found = &found;
	if (own.symbol && find_symbol(source, &insns, err))
		return -1;
	insns.symbols = source->recording || source->view[0].symbols;
	for (i = 0; source->recording && i < source->recording->side_count && !insns.threads; i++)
		insns.threads = source->recording->side[i].type == PTW_SIDE_SWITCH;
	for (i = 0; i < source->count; i++) {
		if (!options->count) {
			if (ptw_report_insns(&source->view[i], &insns, out, err))
				return -1;
			continue;
		}
		if (ptw_count_insns(&source->view[i], &insns, &count, err))
			return -1;
		total += count;
	}
	if (options->count)
		ptw_out_printf(out, "%" PRIu64 "\n", total);
	if (insns.found && !found.insns)
		say_nothing_found(&found);
	else if (!insns.found && (options->count ? !total : !ptw_out_any(out)))
		trace_source_nothing(source, "no instruction in the trace; `ptwatch packets` tells what there is in it");
	return 0;
}

static int report(struct trace_source *source, struct ptw_out *out, struct ptw_error *err)
{
	struct tools tools = { 0 };
	int ret;

	ret = open_tools(&tools, source, err) || report_all(source, &tools, out, err) ? -1 : 0;
	if (!ret && tools.lines && !ptw_source_lines_found(tools.lines))
		fprintf(stderr, "ptwatch insns: no DWARF for this code, so no source lines; --debug names a "
				"file with it\n");
	ptw_source_lines_free(tools.lines);
	ptw_disasm_free(tools.disasm);
	return ret;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "from", required_argument, NULL, OPT_FROM },
		{ "to", required_argument, NULL, OPT_TO },
		{ "symbol", required_argument, NULL, OPT_SYMBOL },
		{ 0 },
	};
	static const struct trace_verb verb = {
		.name = "insns",
		.accept = ACCEPT,
		.follows_code = true,
		.help = print_help,
		.options = options,
		.take_option = take_option,
		.check = check,
		.report = report,
	};

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_insns = {
	.name = "insns",
	.summary = "every instruction that ran, with symbols, disassembly and source lines",
	.run = run,
};
