/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * COMMAND behind "--", and the signals of a verb that must not leave half a recording behind: they are read
 * where it is safe to stop.
 */
#ifndef PTWATCH_CLI_COMMAND_H
#define PTWATCH_CLI_COMMAND_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

struct cli_command {
	const char *verb;
	char **argv;		/* NULL: none */
	pid_t pid;		/* 0: none, or it ended */
	bool ended;
	bool stop_at_exec;	/* hold it at its first instruction rather than before it executes */
	bool stopped;		/* it is */
	bool unwanted;		/* it is ended before it ran: nobody wants to hear how */
	int go;			/* pipe that holds it back; -1: none */
	int failed;		/* pipe on which it tells why it can't run */
	int signals;		/* signalfd; -1: none */
	int signal;		/* that should end us; 0: none */
	bool takes_dumps;	/* SIGUSR2 is counted, and does not end us */
	unsigned int dumps;	/* how many came */
	sigset_t old;
	void (*old_pipe)(int), (*old_xfsz)(int);
};

#define CLI_COMMAND_INIT(name) { .verb = (name), .go = -1, .failed = -1, .signals = -1 }

/**
 * cli_signals_block() - from here on signals that would end the program are read from command->signals
 *
 * Writing to what nobody reads, or beyond the file size limit, becomes an error of write(2).
 */
int cli_signals_block(struct cli_command *command, struct ptw_error *err);

/** cli_signals_read() - take what came: signal, dumps and the end of the command */
void cli_signals_read(struct cli_command *command);

/** cli_command_prepare() - start command->argv, held back before it executes anything of its own */
int cli_command_prepare(struct cli_command *command, struct ptw_error *err);

/**
 * cli_command_go() - let it go; fails when it can't be executed
 *
 * With stop_at_exec in two steps: the first call returns when the program is in memory and has not run yet.
 */
int cli_command_go(struct cli_command *command, struct ptw_error *err);

/** cli_command_end() - wait for the end; @end: by SIGTERM, and SIGKILL when that is not heeded for two seconds */
void cli_command_end(struct cli_command *command, bool end);

#endif /* PTWATCH_CLI_COMMAND_H */
