/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of /dev/ptwatch share: checks that print TAP, sessions, pokes, and the perf system
 * calls as a competitor for Intel PT.
 */
#ifndef GUEST_H
#define GUEST_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <linux/ptwatch.h>

#define PAGE 4096UL
#define KERNEL_TRACE \
	(PTWATCH_RTIT_CTL_OS | PTWATCH_RTIT_CTL_USER | PTWATCH_RTIT_CTL_TSCEN | \
	 PTWATCH_RTIT_CTL_BRANCHEN)
#define USER_TRACE (KERNEL_TRACE & ~PTWATCH_RTIT_CTL_OS)
#define ANY_RATE 1000000000U	/* alarms a second: never reached */

#define FORMAT(n) __attribute__((format(printf, n, n + 1)))

/* ---- checks ---- */

bool ok(bool good, const char *name, ...) FORMAT(2);
bool is(uint64_t got, uint64_t expected, const char *name, ...) FORMAT(3);
bool check_call(long result, int error, int expected, const char *name, ...) FORMAT(4);
void diag(const char *text, ...) FORMAT(1);
/* Print the plan. Return: the exit status. */
int done_testing(void);
/* Nothing can go on from here: say why and end with a failed check. */
__attribute__((noreturn)) void die(const char *text, ...) FORMAT(1);

/* CALL returns -1 (as a number or as MAP_FAILED) with exactly this errno. */
#define FAILS(call, expected, ...) \
	({ \
		long result_ = (errno = 0, (long)(call)); \
		check_call(result_, errno, expected, __VA_ARGS__); \
	})
#define WORKS(call, ...) FAILS(call, 0, __VA_ARGS__)

/* ---- the machine ---- */

void pin(unsigned int cpu);
uint64_t symbol(const char *name);	/* its address; ends the test when there is none */
bool has_symbol(const char *name);
uint64_t symbol_end(const char *name);	/* the next symbol's address */
uint64_t rdtsc(void);
int pt_pmu_type(void);
bool online(unsigned int cpu, bool on);	/* through sysfs; false: refused */
uint64_t now_ms(void);
/* Is this the kernel that looks for faults (tests/vm/debug.config)? */
bool slow_kernel(void);
void sleep_ms(unsigned int ms);
/* Something to trace: user code and system calls on this CPU for about that long. */
void work_ms(unsigned int ms);

/* Run FUNC in a child. Return: its exit status, -1 when it was killed. */
int in_child(int (*func)(void *), void *arg);

/* ---- sessions ---- */

int open_device(void);			/* ends the test when it fails */
struct ptwatch_trace trace_arg(uint64_t rtit_ctl, uint64_t buffer_size);
/* TRACE_SETUP on the CPUs of a mask, with 64 KiB each. */
int setup(int fd, uint8_t cpu_mask);
const volatile struct ptwatch_control *map_control(int fd, unsigned int cpu);
const uint8_t *map_data(int fd, unsigned int cpu, uint64_t size);
/* A copy of the control page at rest. */
struct ptwatch_control read_control(const volatile struct ptwatch_control *control);
bool starts_with_psb(const uint8_t *data);
bool contains_psb(const uint8_t *data, uint64_t size);

/* ---- watches and pokes ---- */

struct ptwatch_watch watch_arg(uint64_t address, uint32_t len, uint32_t access);
/* WATCH_ADD with this; returns the id; ends the test when it fails. */
uint32_t add_watch(int fd, struct ptwatch_watch watch);
int del_watch(int fd, uint32_t id);
int stat_watch(int fd, uint32_t id, struct ptwatch_watch_stat *stat);
/* Wait until every hit is accounted for, which must come to pass. */
struct ptwatch_watch_stat settled(int fd, uint32_t id);
/* Hits that found no record, of all watches since the module was loaded: what PTWATCH_A_LOST tells. */
extern uint64_t dropped_alarms;
/* By this thread, which goes to CPU first. Return: 0 or -1 with errno. */
int poke(const char *kind, unsigned int cpu, unsigned int count, uint64_t value);
/* The payload of an attribute of a message that read(2) gave; NULL: it has none. */
const void *alarm_attribute(const void *message, int wanted, unsigned int *len);
/* poll(2) with a time limit in ms: what of POLLIN | POLLPRI is there. */
short poll_device(int fd, int timeout);

/* ---- perf ---- */

/* A data watch of perf's on one CPU. Return: fd or -1 with errno. */
int perf_watch(unsigned int cpu, uint64_t address);

/* intel_pt on a CPU, disabled. Return: fd or -1 with errno. */
int perf_pt_open(unsigned int cpu);
/* Trace a little with perf on a CPU. Return: bytes it got, with a PSB in front; -1: it failed. */
long perf_pt_trace(unsigned int cpu);

/* ---- the parts ---- */

void test_info(void);
void test_setup(void);
void test_ownership(void);
void test_mapping(void);
void test_tracing(void);
void test_stream(void);
void test_banks(void);
void test_ranges(void);
void test_single(void);
void test_reasons(void);
void test_switches(void);
void test_processes(void);
void test_watch_arguments(void);
void test_hits(void);
void test_limits(void);
void test_conditions(void);
void test_targets(void);
void test_delivery(void);
void test_backlog(void);
void test_hotplug(void);
void test_user_stacks(void);
void test_freeze_all(void);
void test_hotplug_storm(void);
void test_debuggers(void);
void test_freeze(void);
void test_netlink(void);
void test_session_end(void);
void test_rights(void);
void test_module(void);
void test_lockdown(void);

#endif /* GUEST_H */
