// SPDX-License-Identifier: BSD-2-Clause
/* ptwatch insns: every instruction that ran. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/trace_source.h"
#include "cli/verb.h"
#include "report/disasm.h"
#include "report/insns.h"
#include "report/source_line.h"

#define ACCEPT	(ACCEPT_IP_FORMAT | ACCEPT_WINDOW | ACCEPT_DISASM)

static void print_help(void)
{
	fputs("Every instruction that ran, in order: time, CPU, address, symbol, instruction.\n\n"
	      "Usage: ptwatch insns -i RECORDING [OPTION]…\n"
	      "       ptwatch insns --raw TRACE --cpu F/M/S --image FILE,FILEOFF,SIZE,VADDR… [OPTION]…\n\n",
	      stdout);
	trace_options_help(ACCEPT);
	fputs("\nExamples:\n\n"
	      "  ptwatch insns -i crime --tail 30 --source\n"
	      "  ptwatch insns --raw pt.bin --cpu 6/85/4 --image hello,1000,27,401000 --format ip\n", stdout);
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
		.disasm = tools->disasm,
		.lines = tools->lines,
	};
	uint64_t count, total = 0;
	size_t i;

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
	static const struct trace_verb verb = {
		.name = "insns",
		.accept = ACCEPT,
		.follows_code = true,
		.help = print_help,
		.report = report,
	};

	return trace_verb_run(&verb, argc, argv);
}

const struct ptw_verb verb_insns = {
	.name = "insns",
	.summary = "every instruction that ran, with symbols, disassembly and source lines",
	.run = run,
};
