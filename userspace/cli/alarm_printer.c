// SPDX-License-Identifier: BSD-2-Clause
#include "cli/alarm_printer.h"

#include <stdio.h>

#include "cli/output.h"
#include "control/cgroup.h"
#include "report/alarm_text.h"

#define NAME_SIZE 128

static struct ptw_process *process_of(struct alarm_printer *printer, pid_t tgid)
{
	struct ptw_process *process = NULL;
	unsigned int i;

	/* Read anew: it may have executed another program or loaded a library since. */
	if (ptw_thread_tgid(tgid) == tgid)
		process = ptw_process_open(tgid, NULL);
	for (i = 0; i < ALARM_PRINTER_PROCESSES; i++)
		if (printer->process[i] && printer->tgid[i] == tgid)
			break;
	if (i == ALARM_PRINTER_PROCESSES) {
		if (!process)
			return NULL;
		i = printer->next++ % ALARM_PRINTER_PROCESSES;
	}
	if (process) {
		ptw_process_close(printer->process[i]);
		printer->process[i] = process;
		printer->tgid[i] = tgid;
	}
	return printer->process[i];
}

uint64_t alarm_printer_modules(void)
{
	uint64_t hash = 14695981039346656037ULL;
	FILE *file = fopen("/proc/modules", "re");
	char name[64], address[32], line[128];

	/* The rest of a line, its references, changes all the time. */
	while (file && fscanf(file, "%63s %*s %*s %*s %*s %31s%*[^\n]", name, address) == 2) {
		snprintf(line, sizeof(line), "%s %s;", name, address);
		for (const char *c = line; *c; c++)
			hash = (hash ^ (unsigned char)*c) * 1099511628211ULL;
	}
	if (file)
		fclose(file);
	return hash;
}

/* A module that came since has names, too, and one that went has given its addresses to others. */
static void renew_symbols(struct alarm_printer *printer)
{
	uint64_t modules = alarm_printer_modules();
	struct ptw_symbols *symbols;

	if (!printer->symbols || modules == printer->modules)
		return;
	symbols = ptw_symbols_new();
	if (!symbols || ptw_symbols_load_kallsyms(symbols, "/proc/kallsyms", NULL)) {
		ptw_symbols_free(symbols);
		return;
	}
	ptw_symbols_free(printer->symbols);
	printer->symbols = symbols;
	printer->modules = modules;
}

void alarm_printer_print(struct alarm_printer *printer, const struct ptw_alarm *alarm)
{
	struct ptw_alarm_style style = { .colour = cli_colour(stdout), .width = cli_width(stdout, 110) };
	char name[PTW_ALARM_USER_MAX][NAME_SIZE], cgroup[4096];
	const char *names[PTW_ALARM_USER_MAX];
	struct ptw_process *process = NULL;

	renew_symbols(printer);
	if (alarm->user_count)
		process = process_of(printer, alarm->tgid);
	for (uint32_t i = 0; process && i < alarm->user_count; i++)
		names[i] = ptw_process_format(process, alarm->user_stack[i], name[i], NAME_SIZE);
	if (process)
		style.names.user = names;
	if (alarm->cgroup)
		style.names.cgroup = ptw_cgroup_path(alarm->cgroup, cgroup, sizeof(cgroup));
	style.names.clock = &printer->clock;
	if (printer->json)
		ptw_alarm_write_json_named(stdout, alarm, printer->symbols, &style.names);
	else
		ptw_alarm_write_text(stdout, alarm, printer->symbols, &style);
	cli_sync();
}

void alarm_printer_release(struct alarm_printer *printer)
{
	for (unsigned int i = 0; i < ALARM_PRINTER_PROCESSES; i++) {
		ptw_process_close(printer->process[i]);
		printer->process[i] = NULL;
	}
	ptw_symbols_free(printer->symbols);
	printer->symbols = NULL;
}
