/* SPDX-License-Identifier: BSD-2-Clause */
/* Alarms on stdout, as text or JSON, with the names that the machine they happened on can give. */
#ifndef PTWATCH_CLI_ALARM_PRINTER_H
#define PTWATCH_CLI_ALARM_PRINTER_H

#include <stdbool.h>
#include <sys/types.h>

#include "control/process.h"
#include "recording/recording.h"
#include "symbols/symbols.h"

#define ALARM_PRINTER_PROCESSES 4

struct alarm_printer {
	bool json;
	struct ptw_pt_params clock;	/* of ptw_perf_time(), for JSON */
	struct ptw_symbols *symbols;	/* the kernel's, owned; NULL: addresses */
	uint64_t modules;		/* which modules @symbols knows, as alarm_printer_modules() tells; 0: not known */
	/* The processes of the last alarms: they may end before the next one. */
	struct ptw_process *process[ALARM_PRINTER_PROCESSES];
	pid_t tgid[ALARM_PRINTER_PROCESSES];
	unsigned int next;
};

/** alarm_printer_modules() - a number for the modules that are loaded, and where; another when they change */
uint64_t alarm_printer_modules(void);

/** alarm_printer_print() - one alarm; without the line about its trace, which comes last of the block */
void alarm_printer_print(struct alarm_printer *printer, const struct ptw_alarm *alarm);
void alarm_printer_release(struct alarm_printer *printer);

#endif /* PTWATCH_CLI_ALARM_PRINTER_H */
