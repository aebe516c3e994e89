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
	const struct ptw_symbols *symbols;	/* the kernel's; NULL: addresses */
	/* The processes of the last alarms: they may end before the next one. */
	struct ptw_process *process[ALARM_PRINTER_PROCESSES];
	pid_t tgid[ALARM_PRINTER_PROCESSES];
	unsigned int next;
};

/** alarm_printer_print() - one alarm; without the line about its trace, which comes last of the block */
void alarm_printer_print(struct alarm_printer *printer, const struct ptw_alarm *alarm);
void alarm_printer_release(struct alarm_printer *printer);

#endif /* PTWATCH_CLI_ALARM_PRINTER_H */
