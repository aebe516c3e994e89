/* SPDX-License-Identifier: BSD-2-Clause */
/* What is executed while the truth is compared. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <stdbool.h>

/* Programs that it executes: a 64-bit and a 32-bit one (exec.c). */
#define WORKLOAD_PROGRAMS 2

/*
 * Map what must be mapped before the executable mappings are written out. execute: the paths of
 * WORKLOAD_PROGRAMS programs; NULL for those that there are not.
 */
void workload_setup(const char *const *execute);

/*
 * Do everything that bends the flow of a CPU, rounds times, in this process and in children of it:
 * calls of all sorts, syscalls, faults, signals, context switches, REP, 32-bit code, single steps, debug
 * registers, NMIs, other programs, code that is written as it goes. Without all, what perf can't follow
 * is left out: code that is in no file, 32-bit code of a 64-bit program, and INT1.
 */
void workload_run(unsigned int rounds, bool all);

/* Code at SMC has SMC_VERSIONS versions. Each execution of smc_commit makes it the next one, circling. */
#define SMC ((unsigned char *)0x12000000)
#define SMC_SIZE 16
#define SMC_VERSIONS 3
extern const unsigned char smc_versions[SMC_VERSIONS][SMC_SIZE];
void smc_commit(void);

#endif /* WORKLOAD_H */
