// SPDX-License-Identifier: BSD-2-Clause
/*
 * A process to be traced, or not to be: no address of it is another's, as each copy is linked
 * somewhere else (see the Makefile). It waits for its standard input to end, calls marker() N times
 * and gives the CPU away after each, so that it and others take turns.
 *
 *	worker N			that
 *	worker N exec PROGRAM N2	and then becomes PROGRAM N2
 *	worker N fork N2		and then has a child call child_marker() N2 times
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned int sum;

__attribute__((noinline)) void marker(unsigned int i)
{
	sum += i;
}

__attribute__((noinline)) void child_marker(unsigned int i)
{
	sum -= i;
}

int main(int argc, char **argv)
{
	unsigned int i, n = argc > 1 ? atoi(argv[1]) : 0;
	char byte;

	while (read(0, &byte, 1) > 0)
		;
	for (i = 0; i < n; i++) {
		marker(i);
		sched_yield();
	}
	if (argc == 5 && !strcmp(argv[2], "exec")) {
		execl(argv[3], argv[3], argv[4], NULL);
		return 1;
	}
	if (argc == 4 && !strcmp(argv[2], "fork")) {
		pid_t pid = fork();

		if (!pid) {
			n = atoi(argv[3]);
			for (i = 0; i < n; i++) {
				child_marker(i);
				sched_yield();
			}
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	return 0;
}
