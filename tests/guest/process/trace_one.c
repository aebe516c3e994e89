// SPDX-License-Identifier: BSD-2-Clause
/*
 * trace_one OUT WHERE FLAGS TARGET COMPETITOR - trace one of two processes
 *
 * Runs the commands TARGET and COMPETITOR (split at blanks) on CPU 0, which take turns there, with a
 * trace of TARGET's process: WHERE is any of "u" and "k", FLAGS are PTWATCH_TRACE_*. Writes the trace
 * to OUT, and prints PTWATCH_FILTER_* and what flags and how many banks' worth there is:
 * FILTER STATE FLAGS BYTES.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptwatch.h>

#define SIZE	(32UL << 20)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

struct process {
	pid_t pid;
	int gate;
};

static struct process run(char *command)
{
	char *argv[16];
	struct process p;
	int gate[2], argc = 0;

	if (pipe(gate))
		fail("pipe");
	for (argv[argc] = strtok(command, " "); argv[argc]; argv[argc] = strtok(NULL, " "))
		argc++;
	p.pid = fork();
	if (p.pid < 0)
		fail("fork");
	if (!p.pid) {
		dup2(gate[0], 0);
		close(gate[0]);
		close(gate[1]);
		execv(argv[0], argv);
		fail(argv[0]);
	}
	close(gate[0]);
	fcntl(gate[1], F_SETFD, FD_CLOEXEC);
	p.gate = gate[1];
	return p;
}

static int pmu_type(void)
{
	FILE *f = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
	int type;

	if (!f || fscanf(f, "%d", &type) != 1)
		fail("intel_pt");
	fclose(f);
	return type;
}

int main(int argc, char **argv)
{
	struct ptwatch_trace trace = { .size = sizeof(trace), .buffer_size = SIZE, .cpus_size = 1 };
	const struct ptwatch_control *control;
	struct process target, competitor;
	uint8_t cpu0 = 1;
	cpu_set_t set;
	int fd, out, status;
	void *data;

	if (argc != 6)
		return 2;
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
	fd = open(PTWATCH_DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fail(PTWATCH_DEVICE);
	target = run(argv[4]);
	competitor = run(argv[5]);
	usleep(200000);	/* both have come to their gates */

	trace.rtit_ctl = PTWATCH_RTIT_CTL_BRANCHEN;
	if (strchr(argv[2], 'u'))
		trace.rtit_ctl |= PTWATCH_RTIT_CTL_USER;
	if (strchr(argv[2], 'k'))
		trace.rtit_ctl |= PTWATCH_RTIT_CTL_OS;
	trace.flags = strtoul(argv[3], NULL, 0);
	trace.cpus = (uintptr_t)&cpu0;
	trace.pt_pmu_type = pmu_type();
	trace.target_kind = PTWATCH_TARGET_PROCESS;
	trace.target = target.pid;
	if (ioctl(fd, PTWATCH_IOC_TRACE_SETUP, &trace))
		fail("SETUP");
	control = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_CONTROL(0));
	data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, PTWATCH_MMAP_DATA(0));
	if (control == MAP_FAILED || data == MAP_FAILED)
		fail("mmap");
	if (ioctl(fd, PTWATCH_IOC_TRACE_START))
		fail("START");
	close(target.gate);
	close(competitor.gate);
	if (waitpid(target.pid, &status, 0) != target.pid || status)
		fail("the target");
	if (waitpid(competitor.pid, &status, 0) != competitor.pid || status)
		fail("the competitor");
	if (ioctl(fd, PTWATCH_IOC_TRACE_STOP))
		fail("STOP");
	out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (out < 0 || write(out, data, control->head) != (ssize_t)control->head)
		fail(argv[1]);
	printf("%u %u %u %llu\n", trace.filter, control->state, control->flags,
	       (unsigned long long)control->head);
	return 0;
}
