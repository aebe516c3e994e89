// SPDX-License-Identifier: BSD-2-Clause
/*
 * A process of several threads that writes a variable, one after the other, once it is told to on stdin; with
 * an argument one that does nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

long counter = 9;
long counter_b, counter_c, counter_d;

__attribute__((noinline)) void bump(void)
{
	counter++;
}

static int order[2];

/* Exists before the order, and writes when main has. */
static void *early(void *arg)
{
	char byte;

	(void)arg;
	prctl(PR_SET_NAME, "early");
	if (read(order[0], &byte, 1) != 1)
		return NULL;
	bump();
	bump();
	return NULL;
}

static void *late(void *arg)
{
	(void)arg;
	prctl(PR_SET_NAME, "late");
	bump();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t first, second;
	char byte;

	(void)argv;
	if (argc > 1)
		pause();
	prctl(PR_SET_NAME, "main");
	if (pipe(order) || pthread_create(&first, NULL, early, NULL) || read(0, &byte, 1) != 1)
		return 1;
	bump();
	if (write(order[1], &byte, 1) != 1)
		return 1;
	pthread_join(first, NULL);
	pthread_create(&second, NULL, late, NULL);
	pthread_join(second, NULL);
	return 0;
}
