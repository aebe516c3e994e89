/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The MSRs of the CPU that a guest program runs on, by way of /dev/cpu/1/msr: it is tied to CPU 1, so that what it
 * starts there traces itself. The msr driver answers #GP with EIO.
 */
#ifndef MSR_H
#define MSR_H

#ifndef _GNU_SOURCE
#error "msr.h needs _GNU_SOURCE"
#endif
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGE 4096UL

#define OUTPUT_BASE	0x560
#define OUTPUT_MASK	0x561
#define CTL		0x570
#define STATUS		0x571
#define CR3_MATCH	0x572
#define ADDR0_A		0x580
#define PLATFORM_INFO	0xce
/* The emulator's own counters. */
#define EMU_MARK_BEGIN	0x4fff0001
#define EMU_MARK_END	0x4fff0002
#define EMU_PMIS	0x4fff0003
#define EMU_USER	0x4fff0011
#define EMU_ALL_USER	0x4fff0013
#define EMU_BETWEEN	0x100

#define TRACEEN		1ULL
#define CYCEN		(1ULL << 1)
#define OS		(1ULL << 2)
#define USER		(1ULL << 3)
#define CR3FILTER	(1ULL << 7)
#define TOPA		(1ULL << 8)
#define MTCEN		(1ULL << 9)
#define TSCEN		(1ULL << 10)
#define BRANCHEN	(1ULL << 13)
#define MTC_FREQ(n)	((uint64_t)(n) << 14)
#define ADDR_CFG(n, cfg) ((uint64_t)(cfg) << (32 + 4 * (n)))
#define FILTER		1
#define STOP		2
#define INJECT		(1ULL << 56)

#define STATUS_FILTER	1
#define STATUS_CONTEXT	2
#define STATUS_TRIGGER	4
#define STATUS_ERROR	0x10
#define STATUS_STOPPED	0x20
#define PEND_PSB	(1ULL << 6)
#define PEND_PMI	(1ULL << 7)
#define BYTE_COUNT(n)	((uint64_t)(n) << 32)

#define ENTRY_END	1
#define ENTRY_STOP	0x10

static int msr_fd;

static inline void msr_open(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	msr_fd = open("/dev/cpu/1/msr", O_RDWR);
	if (!sched_setaffinity(0, sizeof(set), &set) && msr_fd >= 0)
		return;
	perror("/dev/cpu/1/msr (module msr)");
	exit(1);
}

static inline bool wr(uint32_t msr, uint64_t value)
{
	return pwrite(msr_fd, &value, 8, msr) == 8;
}

static inline bool try_rd(uint32_t msr, uint64_t *value)
{
	return pread(msr_fd, value, 8, msr) == 8;
}

/* A value that no test expects if it faults. */
static inline uint64_t rd(uint32_t msr)
{
	uint64_t value;

	return try_rd(msr, &value) ? value : 0xdeadULL << 48;
}

/* The physical address of the page at p, which must be there. */
static inline uint64_t physical(const void *p)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	if (pread(fd, &entry, 8, (uintptr_t)p / PAGE * 8) != 8)
		entry = 0;
	close(fd);
	return (entry & ((1ULL << 55) - 1)) * PAGE;
}

#endif /* MSR_H */
