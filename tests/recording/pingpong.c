// SPDX-License-Identifier: BSD-2-Clause
/*
 * pingpong [CPU]: two processes that wait for each other, so that the CPU goes from one to the other, of which one
 * executes the program anew at the end: the same addresses, mapped by others, at other times. Static and without
 * library calls where it matters, so that all its code is in one file.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 12

static volatile unsigned int sink;

__attribute__((noinline)) unsigned int spin(unsigned int n)
{
	unsigned int x = n;

	for (unsigned int i = 0; i < n; i++)
		x = x * 3 + (x >> 3 & 1 ? 7 : 1);
	return x;
}

__attribute__((noinline)) void handle(unsigned int n)
{
	sink += spin(n);
}

static void pass(int from, int to)
{
	char byte;

	if (read(from, &byte, 1) != 1)
		_exit(1);
	handle(10);
	if (write(to, &byte, 1) != 1)
		_exit(1);
}

int main(int argc, char **argv)
{
	int ping[2], pong[2], status;

	if (argc > 2) {
		for (int i = 0; i < 5; i++)
			handle(20);
		return 0;
	}
	if (argc > 1) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(atoi(argv[1]), &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			return 1;
	}
	if (pipe(ping) || pipe(pong))
		return 1;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		for (int i = 0; i < ROUNDS; i++)
			pass(ping[0], pong[1]);
		execl("/proc/self/exe", "pingpong", "once", "more", (char *)NULL);
		_exit(1);
	}
	for (int i = 0; i < ROUNDS; i++) {
		handle(15);
		if (write(ping[1], "", 1) != 1 || read(pong[0], &status, 1) != 1)
			return 1;
	}
	wait(&status);
	return status;
}
