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

void alarm_printer_print(struct alarm_printer *printer, const struct ptw_alarm *alarm)
{
	struct ptw_alarm_style style = { .colour = cli_colour(stdout), .width = cli_width(stdout, 110) };
	char name[PTW_ALARM_USER_MAX][NAME_SIZE], cgroup[4096];
	const char *names[PTW_ALARM_USER_MAX];
	struct ptw_process *process = NULL;

	if (alarm->user_count)
		process = process_of(printer, alarm->tgid);
	for (uint32_t i = 0; process && i < alarm->user_count; i++)
		names[i] = ptw_process_format(process, alarm->user_stack[i], name[i], NAME_SIZE);
	if (process)
		style.names.user = names;
	if (alarm->cgroup)
		style.names.cgroup = ptw_cgroup_path(alarm->cgroup, cgroup, sizeof(cgroup));
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
}
