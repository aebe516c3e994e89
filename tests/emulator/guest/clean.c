/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clean: run as init of a guest whose clock is the number of executed instructions. Runs the workload (system
 * calls, signals, faults, single steps, 32-bit code, self-modifying pages...), and CPUID and flags across it, and
 * prints the TSC after each part: one instruction more or less anywhere, or an interrupt that comes elsewhere,
 * changes all that follows. At last it tells what the emulator has counted, and powers off.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>
#include <x86intrin.h>

#include "workload.h"

static uint64_t hash = 0xcbf29ce484222325;

static void mix(uint64_t x)
{
	hash = (hash ^ x) * 0x100000001b3;
}

static void say(const char *what)
{
	printf("clean: %s: TSC %llu, hash %016llx\n", what, (unsigned long long)__rdtsc(),
	       (unsigned long long)hash);
	fflush(stdout);
}

/* All leaves, with flags that were computed just before. */
static void cpuids(void)
{
	for (uint32_t leaf = 0; leaf < 0x20; leaf++) {
		uint32_t a = leaf, b, c = 0, d;
		uint64_t flags;

		asm volatile("cmpl $7, %%eax\n"
			     "cpuid\n"
			     "pushfq\n"
			     "popq %[flags]\n"
			     : "+a"(a), "=b"(b), "+c"(c), "=d"(d), [flags] "=r"(flags) :: "cc");
		mix(a);
		mix(b);
		mix(c);
		mix(d);
		mix(flags & 0x8d5);
	}
}

static void hex(char *to, uint64_t value)
{
	for (int i = 0; i < 16; i++)
		to[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
}

/*
 * The instructions so far, kernel and user, as the emulator counts them (something else without it). It takes as many
 * to say whatever they are, so that what follows is the same everywhere.
 */
static void say_counts(void)
{
	char line[] = "clean: counted kernel ################ user ################\n";
	uint32_t a, b, c, d;

	__cpuid_count(0x4fff0000, 0x10, a, b, c, d);
	hex(strchr(line, '#'), (uint64_t)d << 32 | a);
	__cpuid_count(0x4fff0000, 0x11, a, b, c, d);
	hex(strchr(line, '#'), (uint64_t)d << 32 | a);
	if (write(STDOUT_FILENO, line, sizeof(line) - 1) < 0)
		perror("write");
}

int main(void)
{
	static const char *const no_programs[WORKLOAD_PROGRAMS];

	setvbuf(stdout, NULL, _IOLBF, 0);
	mkdir("/proc", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	say("begin");
	cpuids();
	say("CPUID");
	workload_setup(no_programs);
	for (int i = 0; i < 3; i++) {
		workload_run(1, true);
		say("workload");
	}
	sync();
	say_counts();
	reboot(RB_POWER_OFF);
	return 1;
}
