/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * probe OUT: check, from inside, what a guest sees of the emulator's skylake-server model: CPUID, the
 * #GP rules and values of MSRs, ToPA as the MSRs show it, PMIs, counters. Prints TAP. Writes
 * OUT/tsc.pt, a trace of user code, and OUT/tsc.range, the guest's TSC before and after it.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include "msr.h"

#define EVTSEL0		0x186
#define PMC0		0xc1
#define FIXED_CTRL	0x38d
#define GLOBAL_STATUS	0x38e
#define GLOBAL_CTRL	0x38f
#define OVF_CTRL	0x390
static unsigned int checks;

static void result(bool good, const char *name)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++checks, name);
}

static void is(uint64_t got, uint64_t expected, const char *name)
{
	result(got == expected, name);
	if (got != expected)
		printf("# got %#" PRIx64 ", expected %#" PRIx64 "\n", got, expected);
}

static void test_cpuid(void)
{
	uint32_t a, b, c, d;
	char name[64];

	__cpuid_count(7, 0, a, b, c, d);
	is(b >> 25 & 1, 1, "CPUID 7: Intel PT");
	is(b & 1, 1, "CPUID 7: the rest is QEMU's (FSGSBASE)");
	static const struct { uint32_t leaf, sub, a, b, c, d; } leaves[] = {
		{ 0x14, 0, 1, 0xf, 7, 0 },
		{ 0x14, 1, 0x02490002, 0x003f3fff, 0, 0 },
		{ 0x14, 2, 0, 0, 0, 0 },
		{ 0x15, 0, 2, 1008, 0, 0 },
		{ 0x0a, 0, 0x07300404, 0, 0, 0x603 },
	};
	for (unsigned int i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++) {
		snprintf(name, sizeof(name), "CPUID %#x.%u", leaves[i].leaf, leaves[i].sub);
		__cpuid_count(leaves[i].leaf, leaves[i].sub, a, b, c, d);
		result(a == leaves[i].a && b == leaves[i].b && c == leaves[i].c && d == leaves[i].d,
		       name);
	}
}

/* Flags that were computed just before must survive an emulated instruction. */
static void test_flags(void)
{
	static const uint32_t leaves[] = { 0x14, 7, 0x0a, 1 };
	bool good = true;

	for (int i = 0; i < 1000; i++) {
		uint8_t z, c, s;
		uint32_t a = leaves[i % 4], b, cx = 0, d;
		uint32_t x = i * 7, y = i % 3 ? 3500 : x;

		asm volatile("cmpl %[y], %[x]\n"
			     "cpuid\n"
			     "setz %[z]\n"
			     "setc %[c]\n"
			     "sets %[s]\n"
			     : "+a"(a), "=&b"(b), "+c"(cx), "=&d"(d), [z] "=m"(z), [c] "=m"(c),
			       [s] "=m"(s)
			     : [x] "r"(x), [y] "r"(y) : "cc");
		good &= z == (x == y) && c == (x < y) && s == ((int32_t)(x - y) < 0);
	}
	result(good, "flags survive CPUID");
}

static void test_gp(void)
{
	static const struct { uint32_t msr; uint64_t value; bool good; } writes[] = {
		{ CTL, 0, true },
		{ CTL, USER | TOPA | BRANCHEN, true },
		{ CTL, 1ULL << 4, false },
		{ CTL, 1ULL << 18, false },
		{ CTL, 1ULL << 9 | 1ULL << 14, false },		/* MTCFreq 1 */
		{ CTL, 14ULL << 19, false },			/* CycThresh 14 */
		{ CTL, 6ULL << 24, false },			/* PSBFreq 6 */
		{ CTL, 3ULL << 32, false },			/* ADDR0_CFG 3 */
		{ CTL, 1ULL << 40, false },			/* ADDR2_CFG */
		{ CTL, 1ULL << 56, false },
		{ CTL, 0, true },
		{ OUTPUT_BASE, 0x1000, true },
		{ OUTPUT_BASE, 0x1001, false },
		{ OUTPUT_BASE, 1ULL << 40, false },
		{ STATUS, 8, false },
		{ STATUS, 0, true },
		{ CR3_MATCH, 0x20, true },
		{ CR3_MATCH, 0x10, false },
		{ ADDR0_A, 0x800000000000, false },
		{ ADDR0_A + 3, 0xffff800000000000, true },
		{ ADDR0_A + 4, 0, false },
		{ EVTSEL0, 1ULL << 32, false },
		{ FIXED_CTRL, 1ULL << 12, false },
		{ GLOBAL_CTRL, 1ULL << 4, false },
		{ GLOBAL_CTRL, 0x70000000fULL, true },
		{ GLOBAL_CTRL, 0, true },
		{ GLOBAL_STATUS, 0, false },
		{ OVF_CTRL, 1ULL << 55, true },
		{ OVF_CTRL, 1ULL << 40, false },
		{ EMU_PMIS, 0, false },
	};
	char name[96];
	uint64_t x;

	for (unsigned int i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
		snprintf(name, sizeof(name), "WRMSR %#x, %#" PRIx64 ": %s", writes[i].msr,
			 writes[i].value, writes[i].good ? "taken" : "#GP");
		is(wr(writes[i].msr, writes[i].value), writes[i].good, name);
	}
	result(!try_rd(ADDR0_A + 4, &x), "RDMSR of a range that isn't there: #GP");
	is(rd(OUTPUT_MASK) & 0x7f, 0x7f, "OUTPUT_MASK_PTRS[6:0] reads as ones");
	is(rd(CR3_MATCH), 0x20, "what faulted didn't change the register");

	/* TraceEn, with neither ring traced. */
	result(wr(OUTPUT_BASE, 0) && wr(OUTPUT_MASK, 0x7f) && wr(STATUS, 0), "prepare a trace");
	is(wr(CTL, TRACEEN | BRANCHEN), true, "TraceEn with a single range");
	is(rd(STATUS) & 0x3f, STATUS_TRIGGER | STATUS_FILTER, "STATUS: TriggerEn, FilterEn, no ContextEn");
	is(wr(CTL, TRACEEN | BRANCHEN), true, "the same CTL while tracing: taken");
	is(wr(CTL, TRACEEN | BRANCHEN | USER), false, "another CTL while tracing: #GP");
	is(wr(OUTPUT_BASE, 0x1000), false, "OUTPUT_BASE while tracing: #GP");
	is(wr(OUTPUT_MASK, 0x7f), false, "OUTPUT_MASK_PTRS while tracing: #GP");
	is(wr(STATUS, 0), false, "STATUS while tracing: #GP");
	is(wr(CR3_MATCH, 0), false, "CR3_MATCH while tracing: #GP");
	is(wr(ADDR0_A, 0), false, "ADDR0_A while tracing: #GP");
	is(wr(CTL, 0), true, "TraceEn off");
}

/* --- ToPA ------------------------------------------------------------------------------------ */

static void busy(unsigned int n)
{
	volatile unsigned int sink = 0;

	for (unsigned int i = 0; i < n; i++)
		if (i * 2654435761u & 0x4000)
			sink += i;
}

static bool topa_trace(uint64_t table, unsigned int work, uint64_t *status, uint64_t *ptrs)
{
	if (!wr(OUTPUT_BASE, table) || !wr(OUTPUT_MASK, 0x7f) || !wr(STATUS, 0) ||
	    !wr(CTL, TRACEEN | USER | TOPA | BRANCHEN))
		return false;
	busy(work);
	*status = rd(STATUS);
	*ptrs = rd(OUTPUT_MASK);
	return wr(CTL, 0);
}

static void test_topa(void)
{
	static const uint8_t psb[16] = {
		2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82
	};
	uint8_t *m = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0);
	uint64_t *table = (uint64_t *)m, status, ptrs;

	memset(m, 0, 4 * PAGE);
	table[0] = physical(m + PAGE);
	table[1] = physical(m + 2 * PAGE);
	table[2] = physical(m) | ENTRY_END;
	result(topa_trace(physical(m), 100, &status, &ptrs), "ToPA: a trace that fits");
	is(status & 0x30, 0, "ToPA: neither Error nor Stopped");
	result(!memcmp(m + PAGE, psb, 16), "ToPA: it begins with PSB");
	is(ptrs & 0xffffffff, 0x7f, "ToPA: still in the first region");
	result(m[PAGE + (ptrs >> 32) - 1] && !m[PAGE + (rd(OUTPUT_MASK) >> 32)],
	       "ToPA: memory is written up to the offset");

	table[0] |= ENTRY_STOP;
	memset(m + PAGE, 0, 3 * PAGE);
	result(topa_trace(physical(m), 200000, &status, &ptrs), "STOP: a trace that is too long");
	is(status & 0x37, STATUS_STOPPED, "STOP: Stopped, and nothing is enabled");
	is(ptrs, PAGE << 32 | 0x7f, "STOP: the offset is the region's size");
	result(m[2 * PAGE - 1] && !m[2 * PAGE], "STOP: full, and not a byte beyond");
	is(rd(CTL), 0, "STOP: CTL as written");
	result(wr(CTL, TRACEEN | USER | TOPA | BRANCHEN), "STOP: on again with Stopped set");
	is(rd(STATUS) & 0x37, STATUS_STOPPED, "STOP: it stays stopped");
	wr(CTL, 0);

	table[0] = physical(m + PAGE) | ENTRY_END;
	result(topa_trace(physical(m), 10, &status, &ptrs), "END first: taken");
	is(status & 0x37, STATUS_ERROR, "END first: Error");
	table[0] = physical(m + PAGE) | 1 << 6;
	table[0] |= PAGE;	/* 8 KiB at an odd page */
	result(topa_trace(physical(m), 10, &status, &ptrs), "misaligned region: taken");
	is(status & 0x37, STATUS_ERROR, "misaligned region: Error");
	is(wr(STATUS, 0) ? rd(STATUS) & 0x30 : 1, 0, "Error can be cleared");
}

/* --- through the kernel's driver ------------------------------------------------------------- */

#define AUX_SIZE (1UL << 20)
#define DATA_SIZE (9 * PAGE)

static void test_driver(const char *out)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr), .config = 1 << 10, .disabled = 1, .exclude_kernel = 1,
		.exclude_hv = 1, .aux_watermark = 64 * 1024,
	};
	FILE *f = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
	uint64_t pmis = rd(EMU_PMIS), before, after, head;
	struct perf_event_mmap_page *page;
	char path[256];
	uint8_t *aux;
	int fd;

	if (!f || fscanf(f, "%u", &attr.type) != 1) {
		result(false, "the kernel has an intel_pt PMU");
		return;
	}
	fclose(f);
	fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	page = mmap(NULL, DATA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	page->aux_offset = DATA_SIZE;
	page->aux_size = AUX_SIZE;
	aux = mmap(NULL, AUX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, DATA_SIZE);
	result(aux != MAP_FAILED, "perf traces this process");
	before = __rdtsc();
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	busy(1000000);
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	after = __rdtsc();
	head = page->aux_head;
	printf("# %" PRIu64 " bytes, %" PRIu64 " PMIs\n", head, rd(EMU_PMIS) - pmis);
	result(head > 200000 && head < AUX_SIZE, "the buffer filled in part");
	/* The driver asks for an interrupt at each watermark it passes. */
	result(rd(EMU_PMIS) - pmis >= head / attr.aux_watermark / 2 && rd(EMU_PMIS) > pmis,
	       "PMIs came as NMIs and the driver went on");
	is(rd(GLOBAL_STATUS) >> 55 & 1, 0, "the driver acknowledged them");
	snprintf(path, sizeof(path), "%s/tsc.pt", out);
	f = fopen(path, "wb");
	fwrite(aux, 1, head, f);
	fclose(f);
	snprintf(path, sizeof(path), "%s/tsc.range", out);
	f = fopen(path, "w");
	fprintf(f, "%" PRIu64 " %" PRIu64 "\n", before, after);
	fclose(f);
	munmap(aux, AUX_SIZE);
	munmap(page, DATA_SIZE);
	close(fd);
}

/* --- counters -------------------------------------------------------------------------------- */

static uint64_t loop(uint64_t n)
{
	uint64_t before = rd(EMU_USER);

	asm volatile("1:	incq %%rax\n	decq %0\n	jnz 1b" : "+r"(n) :: "rax", "cc");
	return rd(EMU_USER) - before;
}

static void test_counters(void)
{
	uint64_t few, many, pmc;

	loop(10);
	few = loop(1000);
	many = loop(101000);
	is(many - few, 300000, "instructions are counted exactly");

	wr(GLOBAL_CTRL, 0);
	wr(EVTSEL0, 0xc0 | 1 << 16 | 1 << 22);
	wr(PMC0, 0);
	wr(GLOBAL_CTRL, 1);
	loop(100000);
	wr(GLOBAL_CTRL, 0);
	pmc = rd(PMC0);
	result(pmc >= 300000 && pmc < 310000, "a PMC counts user instructions");
	wr(PMC0, 0xffffff00);
	is(rd(PMC0), 0xffffffffff00, "a PMC is written sign-extended from 32 bits");
	wr(GLOBAL_CTRL, 1);
	loop(1000);
	wr(GLOBAL_CTRL, 0);
	is(rd(GLOBAL_STATUS) & 1, 1, "overflow is in GLOBAL_STATUS");
	wr(OVF_CTRL, 1);
	is(rd(GLOBAL_STATUS) & 1, 0, "and can be cleared");
	wr(EVTSEL0, 0);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	msr_open();
	test_cpuid();
	test_flags();
	test_gp();
	test_topa();
	test_counters();
	test_driver(argv[1]);
	printf("1..%u\n", checks);
	return 0;
}
