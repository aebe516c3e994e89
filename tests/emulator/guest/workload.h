/* SPDX-License-Identifier: BSD-2-Clause */
/* What is executed while the truth is compared. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

/* Map what must be mapped before the executable mappings are written out. */
void workload_setup(void);

/*
 * Do everything that bends the flow of a CPU, rounds times, in this process and in children of it:
 * calls of all sorts, syscalls, faults, signals, context switches, REP, 32-bit code, single steps.
 */
void workload_run(unsigned int rounds);

#endif /* WORKLOAD_H */
