/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * filters [tsx] [ERRATUM…]: check the packets of code whose flow is known, byte for byte: edges of address ranges inside a
 * block, TraceStop, the CR3 filter, PSB and PMI preservation, PSB+, what time packets tell, the given errata; tsx: the
 * CPU tells of TSX. Prints TAP.
 *
 * filters --overflow [ERRATUM…]: with an emulator that has overflows: what comes after each OVF.
 *
 * The traces are of user code on CPU 1, made through /dev/cpu/1/msr. One that an interrupt got into is made again.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "msr.h"

static unsigned int checks, num_ranges;
static bool bdm70, skl014, skl168, skd010, apl11, apl12;

static void result(bool good, const char *name)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++checks, name);
}

static void is(const char *got, const char *expected, const char *name)
{
	result(!strcmp(got, expected), name);
	if (strcmp(got, expected))
		printf("# got      %s\n# expected %s\n", got, expected);
}

/* --- the code -------------------------------------------------------------------------------- */

/* In flat everything up to the RET is one block. */
asm(".text\n"
    "run_flat:	call flat\n"
    "after_flat:	ret\n"
    "flat:\n"
    "f0:	nop\n"
    "f1:	.byte 0x66, 0x90\n"
    "f2:	.byte 0x0f, 0x1f, 0x00\n"
    "f3:	nop\n"
    "f4:	.byte 0x66, 0x90\n"
    "f5:	nop\n"
    "f6:	ret\n"
    "run_branchy:	call branchy\n"
    "after_branchy:	ret\n"
    "branchy:\n"
    "b0:	xorl %ecx, %ecx\n"
    "b1:	jz b3\n"
    "b2:	ud2\n"
    "b3:	testl %ecx, %ecx\n"
    "b4:	jnz b2\n"
    "b5:	jmp b7\n"
    "b6:	ud2\n"
    "b7:	call leaf\n"
    "b8:	ret\n"
    "leaf:\n"
    "l0:	nop\n"
    "l1:	ret\n"
    "run_counted:	call counted\n"
    "after_counted:	ret\n"
    "counted:	movl $4000, %ecx\n"
    "1:	testb $1, %cl\n"
    "	jz 2f\n"
    "2:	decl %ecx\n"
    "	jnz 1b\n"
    "	ret\n"
    "end_counted:\n");
#define COUNTED (1 + 4000 * 4 + 1)

void run_flat(void);
void run_branchy(void);
void run_counted(void);

#define LABELS(X) X(after_flat) X(f0) X(f1) X(f2) X(f3) X(f4) X(f5) X(f6) X(after_branchy) X(b0) X(b1) X(b3) X(b4) X(b5) \
	X(b7) X(b8) X(l0) X(l1) X(counted) X(after_counted) X(end_counted)
#define DECLARE(label) extern const char label[];
LABELS(DECLARE)

static const struct label {
	const char *name, *at;
} labels[] = {
#define ENTRY(label) { #label, label },
	LABELS(ENTRY)
};

static const char *name_of(uint64_t ip)
{
	static char hex[32];

	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
		if ((uintptr_t)labels[i].at == ip)
			return labels[i].name;
	snprintf(hex, sizeof(hex), "%" PRIx64, ip);
	return hex;
}

/* --- packets --------------------------------------------------------------------------------- */

static char text[65536];
static size_t text_len;

static __attribute__((format(printf, 1, 2))) void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (text_len < sizeof(text) - 64)
		text_len += vsnprintf(text + text_len, 64, fmt, ap);
	va_end(ap);
}

static size_t packet_ip(const uint8_t *p, const char *name, uint64_t *last)
{
	static const uint8_t sizes[] = { 0, 2, 4, 6, 6, 0, 8, 0 };
	unsigned int code = p[0] >> 5, size = sizes[code];
	uint64_t ip = 0;

	memcpy(&ip, p + 1, size);
	switch (code) {
	case 0:
		say("%s ", name);
		return 1;
	case 1:
		ip |= *last & ~0xffffULL;
		break;
	case 2:
		ip |= *last & ~0xffffffffULL;
		break;
	case 3:
		ip = (int64_t)(ip << 16) >> 16;
		break;
	case 4:
		ip |= *last & ~0xffffffffffffULL;
		break;
	}
	*last = ip;
	say("%s(%s) ", name, name_of(ip));
	return 1 + size;
}

static uint64_t bytes(const uint8_t *p, size_t n)
{
	uint64_t value = 0;

	memcpy(&value, p, n);
	return value;
}

/* TSC ticks per tick of the crystal clock, as CPUID says. */
static unsigned int tsc_numerator, tsc_denominator;
/* Of the trace that was decoded last: the sum of its CYCs between the first TIP.PGE and the last TIP.PGD. */
static uint64_t cycles;

/* TMA: what it must be by the TSC before it, or what it is. */
static void tma(const uint8_t *p, uint64_t tsc)
{
	uint64_t ctc = (unsigned __int128)tsc * tsc_denominator / tsc_numerator;
	uint64_t fast = tsc - ctc * tsc_numerator / tsc_denominator;

	if (bytes(p + 2, 2) == (ctc & 0xffff) && bytes(p + 5, 2) == fast)
		say("TMA ");
	else
		say("TMA(%" PRIx64 ",%" PRIx64 ") ", bytes(p + 2, 2), bytes(p + 5, 2));
}

static size_t cyc(const uint8_t *p, uint64_t *value)
{
	size_t n = 1;
	unsigned int shift = 5;

	*value = p[0] >> 3;
	if (!(p[0] & 4))
		return 1;
	do {
		*value |= (uint64_t)(p[n] >> 1) << shift;
		shift += 7;
	} while (p[n++] & 1);
	return n;
}

/* The packets as text; those of PSB+ and of time only if asked for. mtc_freq: MTCFreq of the trace. */
static const char *decode_mtc(const uint8_t *p, const uint8_t *end, bool all, unsigned int mtc_freq)
{
	bool psb = false, begun = false;
	uint64_t last = 0, tsc = 0, value, since_begin = 0;
	uint8_t mtc = 0;

	cycles = 0;
	text_len = 0;
	text[0] = 0;
	while (p < end) {
		size_t mark = text_len;
		unsigned int n;

		if (p[0] == 0x00) {
			p++;
		} else if (p[0] == 0x02) {
			switch (p[1]) {
			case 0x82: say("PSB "); p += 16; psb = true; last = 0; break;
			case 0x23: say("PSBEND "); p += 2; break;
			case 0xf3: say("OVF "); p += 2; break;
			case 0x83: say("STOP "); p += 2; break;
			case 0x03:
				if (all)
					say("CBR(%u) ", p[2]);
				p += 4;
				break;
			case 0x73:
				if (all)
					tma(p, tsc);
				mtc = bytes(p + 2, 2) >> mtc_freq;
				p += 7;
				break;
			case 0x43:
				value = bytes(p + 2, 6);
				say("PIP(%" PRIx64 "%s) ", value >> 1 << 5, value & 1 ? ",NR" : "");
				p += 8;
				break;
			default: say("?%02x ", p[1]); return text;
			}
		} else if (p[0] == 0x99) {
			if (all)
				say("%s(%x) ", p[1] >> 5 ? "TSX" : "EXEC", p[1] & 0x1f);
			p += 2;
		} else if (p[0] == 0x19) {
			tsc = bytes(p + 1, 7);
			if (all)
				say("TSC ");
			p += 8;
		} else if (p[0] == 0x59) {
			/* A period or more after the last, but so few that 8 bits tell how many. */
			mtc = p[1] - mtc;
			if (all)
				say(mtc && mtc <= 100 ? "MTC " : "MTC(+%u) ", mtc);
			mtc = p[1];
			p += 2;
		} else if ((p[0] & 3) == 3) {
			if (all)
				say("CYC ");
			p += cyc(p, &value);
			since_begin += value;
		} else if (!(p[0] & 1)) {
			say("TNT(");
			for (n = 7; !(p[0] >> n & 1); n--)
				;
			while (--n)
				say("%d", p[0] >> n & 1);
			say(") ");
			p++;
		} else {
			switch (p[0] & 0x1f) {
			case 0x0d: p += packet_ip(p, "TIP", &last); break;
			case 0x11:
				if (!begun)
					since_begin = 0;
				begun = true;
				p += packet_ip(p, "PGE", &last);
				break;
			case 0x01:
				cycles = since_begin;
				p += packet_ip(p, "PGD", &last);
				break;
			case 0x1d: p += packet_ip(p, "FUP", &last); break;
			default: say("?%02x ", p[0]); return text;
			}
		}
		if (psb && !all) {
			psb = strncmp(text + mark, "PSBEND", 6);
			text_len = mark;
			text[mark] = 0;
		}
	}
	if (text_len && text[text_len - 1] == ' ')
		text[text_len - 1] = 0;
	return text;
}

static const char *decode(const uint8_t *p, const uint8_t *end, bool all)
{
	return decode_mtc(p, end, all, 0);
}

/* --- traces ---------------------------------------------------------------------------------- */

/* A page for the table, and as many for output as the CPU takes, or OUTPUT_PAGES. */
static uint8_t *memory;
static uint64_t table_at, status;
static size_t traced;

#define OUTPUT_PAGES 16

static void setup(unsigned int pages)
{
	uint64_t *table;

	memory = mmap(NULL, (1 + pages) * PAGE, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0);
	memset(memory, 0, (1 + pages) * PAGE);
	table = (uint64_t *)memory;
	table_at = physical(memory);
	for (unsigned int i = 0; i < pages; i++)
		table[i] = physical(memory + (1 + i) * PAGE);
	table[pages] = table_at | ENTRY_END;
}

/* Trace run() as CTL says. `before` is STATUS at the start. */
static void trace(uint64_t ctl, uint64_t before, void (*run)(void))
{
	wr(OUTPUT_BASE, table_at);
	wr(OUTPUT_MASK, 0x7f);
	if (!wr(STATUS, before) || !wr(CTL, TRACEEN | TOPA | BRANCHEN | ctl))
		printf("# CTL %#" PRIx64 " or STATUS %#" PRIx64 ": #GP\n", ctl, before);
	run();
	status = rd(STATUS);
	wr(CTL, 0);
	traced = rd(OUTPUT_MASK);
	traced = (traced >> 7 & 0x1ffffff) * PAGE + (traced >> 32);
}

/* The same, until no interrupt is in it; as text. */
static const char *flow(uint64_t ctl, void (*run)(void))
{
	const char *t = "";

	for (int i = 0; i < 50; i++) {
		trace(USER | ctl, 0, run);
		t = decode(memory + PAGE, memory + PAGE + traced, false);
		if (!strstr(t, "FUP"))
			break;
	}
	return t;
}

/* The CTL bits for range n, whose limits are set. */
static uint64_t set_range(unsigned int n, unsigned int cfg, uint64_t from, uint64_t to)
{
	wr(ADDR0_A + 2 * n, from);
	wr(ADDR0_A + 2 * n + 1, to);
	return ADDR_CFG(n, cfg);
}

/* From and to labels, with an offset perhaps. */
#define range(n, cfg, from, to) set_range(n, cfg, (uintptr_t)from, (uintptr_t)to)

static void ranges(void)
{
	uint64_t cfg;

	is(flow(range(0, FILTER, f2, f4), run_flat), "PGE(f2) PGD(f5)", "a range inside a block: its edges");
	is(flow(range(0, FILTER, f2, f4 - 1), run_flat), "PGE(f2) PGD(f4)", "... that ends a byte before an instruction");
	is(flow(range(0, FILTER, f2 + 1, f4), run_flat), "PGE(f3) PGD(f5)", "... that begins after the first byte of one");
	is(flow(range(0, FILTER, f4 + 1, f4 + 1), run_flat), "", "... in the middle of one: that is not in it");
	is(flow(range(0, FILTER, f0, f6), run_flat), "PGE(f0) PGD(after_flat)", "the whole function");
	cfg = range(0, FILTER, f0, f1) | range(1, FILTER, f3, f3);
	is(flow(cfg, run_flat), "PGE(f0) PGD(f2) PGE(f3) PGD(f4)", "two ranges in a block");
	cfg = range(0, FILTER, f0, f2) | range(1, FILTER, f3, f4);
	is(flow(cfg, run_flat), "PGE(f0) PGD(f5)", "two that touch each other");
	is(flow(range(0, FILTER, b3, b8), run_branchy),
	   skl014 ? "PGE(b3) TNT(0) PGD PGE(b8) PGD(after_branchy)" : "PGE(b3) TNT(0) PGD(l0) PGE(b8) PGD(after_branchy)",
	   "left by a CALL, entered by its RET, left by a RET");
	is(flow(range(0, FILTER, b0, b1), run_branchy), "PGE(b0) PGD(b3)", "left by a conditional branch");
	is(flow(range(0, FILTER, l0, l1), run_branchy), "PGE(l0) PGD(b8)", "entered by a CALL");
	cfg = range(0, FILTER, b0, b8) | range(1, FILTER, l0, l1);
	is(flow(cfg, run_branchy), "PGE(b0) TNT(101) PGD(after_branchy)", "in both of two ranges; RET is compressed");
	if (num_ranges < 4)
		return;
	cfg = range(0, FILTER, f6, f6) | range(1, FILTER, f4, f4) | range(2, FILTER, f2, f2) | range(3, FILTER, f0, f0);
	is(flow(cfg, run_flat), "PGE(f0) PGD(f1) PGE(f2) PGD(f3) PGE(f4) PGD(f5) PGE(f6) PGD(after_flat)",
	   "four ranges in a block");
	cfg = range(0, FILTER, f0, f6) | range(3, STOP, f4, f4);
	is(flow(cfg, run_flat), "PGE(f0) PGD(f4) STOP", "TraceStop in the fourth");
}

static const char *end_of(const char *t, const char *from)
{
	const char *at = strstr(t, from);

	return at ? at : t;
}

static void trace_stop(void)
{
	uint64_t cfg = range(0, STOP, f3, f3);

	is(end_of(flow(cfg, run_flat), "PGD"), "PGD(f3) STOP", "TraceStop inside a block");
	result((status & 0x37) == STATUS_STOPPED, "... Stopped is set, and nothing is enabled");
	wr(CTL, TRACEEN | TOPA | BRANCHEN | USER | cfg);
	run_branchy();
	result((rd(STATUS) & 0x37) == STATUS_STOPPED, "... and stays so when TraceEn is set again");
	wr(CTL, 0);
	is(end_of(flow(range(0, STOP, b7, b7), run_branchy), "PGD"), skl014 ? "PGD STOP" : "PGD(b7) STOP",
	   "TraceStop at the target of a branch");
	cfg = range(0, FILTER, f0, f2) | range(1, STOP, f5, f5);
	is(flow(cfg, run_flat), "PGE(f0) PGD(f3) STOP", "a filter, and TraceStop when it has been left");
	cfg = range(0, FILTER, f0, f6) | range(1, STOP, f5, f5);
	is(flow(cfg, run_flat), "PGE(f0) PGD(f5) STOP", "TraceStop in the filter's range");
	cfg = range(0, FILTER, f0, f6) | range(1, STOP, f4 + 1, f4 + 1);
	is(flow(cfg, run_flat), "PGE(f0) PGD(after_flat)", "TraceStop in the middle of an instruction: no");
}

/* A child does the same on the same CPU, in turns with us. */
static pid_t rival;
static int to_rival[2], from_rival[2];

static void start_rival(void)
{
	char c;

	if (pipe(to_rival) || pipe(from_rival))
		exit(1);
	rival = fork();
	while (!rival && read(to_rival[0], &c, 1) == 1) {
		run_flat();
		if (write(from_rival[1], &c, 1) != 1)
			_exit(1);
	}
}

static void take_turns(void)
{
	char c = 0;

	for (int i = 0; i < 3; i++) {
		run_flat();
		if (write(to_rival[1], &c, 1) != 1 || read(from_rival[0], &c, 1) != 1)
			exit(1);
	}
}

static void nothing(void)
{
}

static void cr3_filter(void)
{
	uint64_t cfg, own = 0;
	const char *t, *pip;

	trace(OS, 0, nothing);
	t = decode(memory + PAGE, memory + PAGE + traced, true);
	pip = strstr(t, "PIP(");
	if (pip)
		own = strtoull(pip + 4, NULL, 16);
	result(own, "PIP tells CR3");
	wr(CR3_MATCH, own);
	cfg = CR3FILTER | range(0, FILTER, f2, f4);
	is(flow(cfg, run_flat), "PGE(f2) PGD(f5)", "traced if CR3 is that of CR3_MATCH");
	wr(CR3_MATCH, own ^ 0x100000);
	is(flow(cfg, run_flat), "", "not traced if it is another");
	result(!(status & 2), "... when ContextEn is 0");
	wr(CR3_MATCH, own);
	start_rival();
	is(flow(CR3FILTER | range(0, FILTER, f2, f2), take_turns),
	   "PGE(f2) PGD(f3) PGE(f2) PGD(f3) PGE(f2) PGD(f3)", "another process on the CPU is not traced");
	is(flow(range(0, FILTER, f2, f2), take_turns),
	   "PGE(f2) PGD(f3) PGE(f2) PGD(f3) PGE(f2) PGD(f3) PGE(f2) PGD(f3) PGE(f2) PGD(f3) PGE(f2) PGD(f3)",
	   "... but is without the CR3 filter");
	kill(rival, SIGKILL);
	waitpid(rival, NULL, 0);
}

static void preservation(void)
{
	uint64_t pmis = rd(EMU_PMIS), cfg = USER | range(0, FILTER, f2, f4);
	const char *t;

	trace(cfg, BYTE_COUNT(100), run_flat);
	t = decode(memory + PAGE, memory + PAGE + traced, true);
	result(!strstr(t, "PSB"), "a trace that goes on has no PSB");
	trace(cfg | INJECT, BYTE_COUNT(100), run_flat);
	t = decode(memory + PAGE, memory + PAGE + traced, true);
	result(!strstr(t, "PSB"), "InjectPsbPmi without anything pending: no PSB");
	trace(cfg, BYTE_COUNT(100) | PEND_PSB, run_flat);
	result(rd(STATUS) & PEND_PSB, "PendPSB stays as long as it isn't injected");
	trace(cfg | INJECT, BYTE_COUNT(100) | PEND_PSB, run_flat);
	t = decode(memory + PAGE, memory + PAGE + traced, true);
	result(!strncmp(t, "PSB ", 4), "PendPSB and InjectPsbPmi: PSB first");
	result(!(rd(STATUS) & PEND_PSB), "... and PendPSB is clear");
	result(rd(EMU_PMIS) == pmis, "no PMI until now");
	trace(cfg | INJECT, BYTE_COUNT(100) | PEND_PMI, run_flat);
	result(rd(EMU_PMIS) == pmis + 1, "PendTopaPMI and InjectPsbPmi: a PMI");
	result(!(rd(STATUS) & PEND_PMI), "... and PendTopaPMI is clear");
}

static unsigned int rounds = 6000;

static void busy(void)
{
	static volatile unsigned int sink;

	for (unsigned int i = 0; i < rounds; i++)
		if (i * 2654435761u & 0x4000)
			sink += i;
}

static unsigned int count(const char *t, const char *what)
{
	unsigned int n = 0;

	for (t = strstr(t, what); t; t = strstr(t + 1, what))
		n++;
	return n;
}

/* The first PSB+ of t, without the address of FUP and the CR3 of PIP. */
static const char *psb_plus(const char *t)
{
	static char plain[256];
	size_t n = 0;

	t = strstr(t, "PSB ");
	while (t && *t && n < sizeof(plain) - 1) {
		plain[n++] = *t++;
		if (n >= 6 && !strncmp(plain + n - 6, "PSBEND", 6))
			break;
		if (n >= 3 && (!strncmp(plain + n - 3, "FUP", 3) || !strncmp(plain + n - 3, "PIP", 3)))
			t = strchr(t, ')') + 1;
	}
	plain[n] = 0;
	return plain;
}

/* t begins where tracing did: the output has not gone round, as it may when an interrupt is too much for it. */
static bool from_the_beginning(const char *t)
{
	const char *end = strstr(t, "PSBEND"), *pge = end ? strstr(end, "PGE(") : NULL;

	return !strncmp(t, "PSB ", 4) && pge && pge - end < 32;
}

/* What PSB+ has, and when it comes. */
static void psb(bool timing, bool tsx)
{
	const char *t = "", *mode = tsx ? "EXEC(1) TSX(0) FUP " : "EXEC(1) FUP ";
	char expected[256];

	/* Without User the trace begins with packets off; with OS they are on after it. */
	for (int i = 0; i < 50; i++) {
		trace(OS | TSCEN, 0, nothing);
		t = decode(memory + PAGE, memory + PAGE + traced, true);
		if (from_the_beginning(t))
			break;
	}
	snprintf(expected, sizeof(expected), "PSB %sPIP TSC CBR(%u) PSBEND", bdm70 ? mode : "",
		 (unsigned int)(rd(PLATFORM_INFO) >> 8 & 0xff));
	is(psb_plus(t), expected, bdm70 ? "BDM70: FUP and MODE in a PSB+ before TIP.PGE" : "a PSB+ before TIP.PGE");
	if (!timing)
		return;
	trace(OS | USER | CYCEN | TSCEN | MTCEN | MTC_FREQ(3), 0, busy);
	t = decode_mtc(memory + PAGE, memory + PAGE + traced, true, 3);
	result(count(t, "PSB ") > 1, "a PSB each 2 KiB");
	snprintf(expected, sizeof(expected), "PSB %sPIP TSC TMA CBR(%u) PSBEND", mode,
		 (unsigned int)(rd(PLATFORM_INFO) >> 8 & 0xff));
	is(psb_plus(t + 4), expected, "a PSB+ meanwhile: complete, in order, without CYC");
	printf("# %u MTCs, %u TMAs\n", count(t, "MTC "), count(t, "TMA "));
	result(count(t, "MTC ") > 10 && !count(t, "MTC("), "MTC: the crystal's periods, one after the other");
	result(count(t, "TMA ") > 1 && !count(t, "TMA("), "TMA goes with TSC as CPUID 15H says");
}

/* CYC: executed instructions. */
static void cyc_exact(void)
{
	uint64_t cfg = CYCEN | range(0, FILTER, counted, end_counted - 1);
	const char *t = flow(cfg, run_counted);

	result(!strncmp(t, "PGE(counted) TNT", 16) && count(t, "PGD") == 1, "a loop is traced");
	printf("# %" PRIu64 " cycles\n", cycles);
	if (skl168)
		result(cycles < COUNTED && cycles > COUNTED - 100, "SKL168: some cycles before a PSB are not told");
	else
		result(cycles == COUNTED, "CYC: as many cycles as instructions");
}

/* Output to a range of one page, in a circle. */
static void single_range(void)
{
	uint64_t cfg = TRACEEN | USER | BRANCHEN | range(0, FILTER, f2, f4), ptrs = 0;
	const char *t = "";

	for (int i = 0; i < 50; i++) {
		memset(memory + PAGE, 0, 2 * PAGE);
		wr(OUTPUT_BASE, physical(memory + PAGE));
		wr(OUTPUT_MASK, PAGE - 1);
		wr(STATUS, 0);
		wr(CTL, cfg);
		run_flat();
		wr(CTL, 0);
		ptrs = rd(OUTPUT_MASK);
		t = decode(memory + PAGE, memory + PAGE + (ptrs >> 32), false);
		if (!strstr(t, "FUP"))
			break;
	}
	is(t, "PGE(f2) PGD(f5)", "single range: the same packets");
	result((ptrs & 0xffffffff) == PAGE - 1, "... and the mask stays");
	wr(OUTPUT_MASK, (PAGE - 16) << 32 | (PAGE - 1));
	wr(STATUS, BYTE_COUNT(100));
	memset(memory + PAGE, 0, 2 * PAGE);
	wr(CTL, TRACEEN | USER | BRANCHEN);
	busy();
	status = rd(STATUS);
	wr(CTL, 0);
	ptrs = rd(OUTPUT_MASK) >> 32;
	result(memory[2 * PAGE - 1] && memory[PAGE] && !memory[2 * PAGE] && ptrs && ptrs < PAGE && !(status & 0x30),
	       "... which goes on at its begin when it is full, and not beyond");
}

static void in_and_out(void)
{
	for (unsigned int i = 0; i < 2000; i++)
		run_branchy();
}

static void system_calls(void)
{
	for (unsigned int i = 0; i < 3000; i++)
		syscall(SYS_getppid);
}

static void overflows(void)
{
	unsigned int all, fups, pges;
	const char *t;

	trace(USER, 0, busy);
	t = decode(memory + PAGE, memory + PAGE + traced, true);
	all = count(t, "OVF");
	fups = count(t, "OVF FUP(");
	pges = count(t, "OVF EXEC(1) PGE(");
	printf("# %u overflows, %u with FUP, %u with TIP.PGE\n", all, fups, pges);
	result(all > 3, "the buffer overflows");
	if (skd010)
		result(!fups, "SKD010: no FUP after OVF");
	else
		result(fups > 3, "FUP after OVF");
	if (apl12) {
		trace(USER | range(0, FILTER, l0, l1), 0, in_and_out);
		t = decode(memory + PAGE, memory + PAGE + traced, true);
		printf("# %u overflows, %u with FUP\n", count(t, "OVF"), count(t, "OVF FUP("));
		result(count(t, "OVF FUP(") > 1 && !count(t, "OVF FUP(l0)") && !count(t, "OVF FUP(l1)"),
		       "APL12: FUP after OVF though the filter is off");
		/* The context is off: in the kernel. */
		trace(USER, 0, system_calls);
		t = decode(memory + PAGE, memory + PAGE + traced, true);
		printf("# %u overflows\n", count(t, "OVF"));
		result(count(t, "OVF") > 3 && !count(t, "OVF FUP(ffff"), "... but not where nothing may be traced");
	}
	if (!apl11)
		return;
	/* An overflow that lasts until TraceEn is cleared. */
	for (rounds = 1; rounds < 500; rounds += 3) {
		trace(OS | USER, 0, busy);
		t = decode(memory + PAGE, memory + PAGE + traced, true);
		if (strlen(t) > 7 && !strcmp(t + strlen(t) - 7, "OVF PGD"))
			break;
	}
	result(strlen(t) > 7 && !strcmp(t + strlen(t) - 7, "OVF PGD"), "APL11: TIP.PGD after OVF as TraceEn is cleared");
}

static bool said(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	unsigned int a, b, c, d;
	bool tsx;

	setvbuf(stdout, NULL, _IOLBF, 0);
	msr_open();
	bdm70 = said(argc, argv, "bdm70");
	skl014 = said(argc, argv, "skl014");
	skd010 = said(argc, argv, "skd010");
	apl11 = said(argc, argv, "apl11");
	apl12 = said(argc, argv, "apl12");
	skl168 = said(argc, argv, "skl168");
	tsx = said(argc, argv, "tsx");
	__cpuid_count(0x15, 0, a, b, c, d);
	tsc_denominator = a;
	tsc_numerator = b;
	__cpuid_count(0x14, 1, a, b, c, d);
	num_ranges = a & 7;
	__cpuid_count(0x14, 0, a, b, c, d);
	setup(c & 2 ? OUTPUT_PAGES : 1);
	if (said(argc, argv, "--overflow")) {
		overflows();
	} else {
		if (b & 4) {
			ranges();
			trace_stop();
			cr3_filter();
		}
		if (b & 0x40)
			preservation();
		/* One page of output is too little for a second PSB. */
		psb(b & 2 && c & 2, tsx);
		if (b & 2 && c & 2)
			cyc_exact();
		if (c & 4)
			single_range();
	}
	printf("1..%u\n", checks);
	return 0;
}
