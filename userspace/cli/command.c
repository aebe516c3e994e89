// SPDX-License-Identifier: BSD-2-Clause
#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/output.h"

#define GRACE_MS 2000	/* how long a command may take to end by SIGTERM */

int cli_signals_block(struct cli_command *command, struct ptw_error *err)
{
	/* All that would end the program but for faults. */
	static const int ends[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU,
		SIGIO, SIGPWR, SIGSTKFLT,
	};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(&set, ends[i]);
	for (int rt = SIGRTMIN; rt <= SIGRTMAX; rt++)
		sigaddset(&set, rt);
	sigaddset(&set, SIGCHLD);
	/* These come as errors of write(): EPIPE and EFBIG. */
	command->old_pipe = signal(SIGPIPE, SIG_IGN);
	command->old_xfsz = signal(SIGXFSZ, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, &command->old);
	command->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (command->signals < 0)
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot create a signal file: %s", strerror(errno));
	return 0;
}

static void reap(struct cli_command *command)
{
	int status;

	if (!command->pid || waitpid(command->pid, &status, WNOHANG) != command->pid)
		return;
	command->pid = 0;
	command->ended = true;
	if (command->unwanted)
		return;
	if (WIFSIGNALED(status))
		cli_progress(command->verb, "%s was ended by signal %d (%s)", command->argv[0], WTERMSIG(status),
			     strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		cli_progress(command->verb, "%s ended with status %d", command->argv[0], WEXITSTATUS(status));
}

void cli_signals_read(struct cli_command *command)
{
	struct signalfd_siginfo info;

	while (read(command->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap(command);
		else if (info.ssi_signo == SIGUSR2 && command->takes_dumps)
			command->dumps++;
		else
			command->signal = info.ssi_signo;
	}
}

/* In the child. What it is held back by also ends when the parent dies: then it does not run at all. */
static void __attribute__((noreturn)) become_command(const struct cli_command *command, int go, int failed)
{
	char byte;
	int error;
	ssize_t got;

	do
		got = read(go, &byte, 1);
	while (got < 0 && errno == EINTR);
	if (got != 1)
		_exit(127);
	signal(SIGPIPE, command->old_pipe);
	signal(SIGXFSZ, command->old_xfsz);
	sigprocmask(SIG_SETMASK, &command->old, NULL);
	if (command->stop_at_exec)
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	execvp(command->argv[0], command->argv);
	error = errno;
	got = write(failed, &error, sizeof(error));
	_exit(got == sizeof(error) ? 127 : 126);
}

int cli_command_prepare(struct cli_command *command, struct ptw_error *err)
{
	int go[2], failed[2];

	if (pipe2(go, O_CLOEXEC))
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot create a pipe: %s", strerror(errno));
	if (pipe2(failed, O_CLOEXEC)) {
		close(go[0]);
		close(go[1]);
		return ptw_error_set(err, PTW_EXIT_FAILED, "cannot create a pipe: %s", strerror(errno));
	}
	command->pid = fork();
	if (!command->pid) {
		close(go[1]);
		close(failed[0]);
		become_command(command, go[0], failed[1]);
	}
	close(go[0]);
	close(failed[1]);
	command->go = go[1];
	command->failed = failed[0];
	if (command->pid > 0)
		return 0;
	command->pid = 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot run %s: %s", command->argv[0], strerror(errno));
}

int cli_command_go(struct cli_command *command, struct ptw_error *err)
{
	int error = 0, status;
	ssize_t got;

	if (command->stopped) {
		command->stopped = false;
		if (!ptrace(PTRACE_DETACH, command->pid, NULL, NULL))
			return 0;
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s ended before it could run: %s", command->argv[0], strerror(errno));
	}
	got = write(command->go, "", 1);
	close(command->go);
	command->go = -1;
	/* The pipe closes by itself when the command runs. */
	if (got == 1)
		got = read(command->failed, &error, sizeof(error));
	close(command->failed);
	command->failed = -1;
	if (got != sizeof(error) && command->stop_at_exec) {
		if (waitpid(command->pid, &status, 0) == command->pid && WIFSTOPPED(status)) {
			command->stopped = true;
			return 0;
		}
		command->pid = 0;
		return ptw_error_set(err, PTW_EXIT_FAILED, "%s ended before it could run", command->argv[0]);
	}
	if (got != sizeof(error))
		return 0;
	waitpid(command->pid, NULL, 0);
	command->pid = 0;
	return ptw_error_set(err, PTW_EXIT_FAILED, "cannot run %s: %s", command->argv[0], strerror(error));
}

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000ULL + time.tv_nsec / 1000000;
}

void cli_command_end(struct cli_command *command, bool end)
{
	struct pollfd fd = { .fd = command->signals, .events = POLLIN };
	uint64_t deadline = 0;

	command->unwanted = command->go >= 0 || command->stopped;
	/* Held back still: it goes by itself. */
	if (command->go >= 0)
		close(command->go);
	if (command->failed >= 0)
		close(command->failed);
	command->go = command->failed = -1;
	/* It has not run yet, and nobody wants it any more. */
	if (command->stopped)
		kill(command->pid, SIGKILL);
	command->stopped = false;
	while (command->pid) {
		int wait = -1;

		if (end || command->signal) {
			kill(command->pid, SIGTERM);
			if (!deadline)
				deadline = now_ms() + GRACE_MS;
			end = false;
			command->signal = 0;
		}
		if (deadline) {
			uint64_t time = now_ms();

			if (time >= deadline)
				kill(command->pid, SIGKILL);
			wait = time >= deadline ? -1 : (int)(deadline - time + 1);
		}
		poll(&fd, 1, wait);
		cli_signals_read(command);
	}
}
