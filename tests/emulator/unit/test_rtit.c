/* SPDX-License-Identifier: BSD-2-Clause */
/* Which writes to the RTIT MSRs are taken and which raise #GP, model by model. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rtit.h"

/* What a driver sets for an ordinary trace. */
#define USUAL (CTL_OS | CTL_USER | CTL_TOPA | CTL_BRANCHEN)
#define ON CTL_TRACEEN
#define MTC(n) ((uint64_t)(n) << 14)
#define CYC(n) ((uint64_t)(n) << 19)
#define PSB(n) ((uint64_t)(n) << 24)
#define ADDR(i, cfg) ((uint64_t)(cfg) << (32 + 4 * (i)))

struct write {
	uint32_t msr;
	uint64_t value;
	enum msr_result expected;
};

static void check(const char *model, uint64_t ctl, const struct write *w, size_t n)
{
	const struct model *m = model_find(model);

	assert_non_null(m);
	for (size_t i = 0; i < n; i++) {
		struct rtit r = { .ctl = ctl }, before = r;
		enum msr_result got = rtit_write(&r, m, w[i].msr, w[i].value);

		if (got != w[i].expected) {
			print_error("%s, CTL %#" PRIx64 ": WRMSR(%#x, %#" PRIx64 "): %d, not %d\n",
				    model, ctl, w[i].msr, w[i].value, got, w[i].expected);
			fail();
		}
		/* What faults changes nothing. */
		if (got == MSR_GP)
			assert_memory_equal(&r, &before, sizeof(r));
	}
}

#define CHECK(model, ctl, ...) do { \
	const struct write w[] = { __VA_ARGS__ }; \
	check(model, ctl, w, sizeof(w) / sizeof(w[0])); \
} while (0)

static void test_ctl(void **state)
{
	(void)state;
	CHECK("skylake-server", 0,
	      { MSR_RTIT_CTL, 0, MSR_OK },
	      { MSR_RTIT_CTL, USUAL | ON, MSR_OK },
	      { MSR_RTIT_CTL, USUAL | ON | CTL_TSCEN | CTL_MTCEN | CTL_CYCEN, MSR_OK },
	      { MSR_RTIT_CTL, USUAL | ON | CTL_CR3FILTER | CTL_DISRETC, MSR_OK },
	      { MSR_RTIT_CTL, (USUAL | ON) & ~CTL_BRANCHEN, MSR_OK },
	      { MSR_RTIT_CTL, (USUAL | ON) & ~CTL_TOPA, MSR_OK },
	      /* Not enumerated: power events, FUPonPTW, fabric, PTW, event trace, DisTNT. */
	      { MSR_RTIT_CTL, 1ULL << 4, MSR_GP },
	      { MSR_RTIT_CTL, CTL_FUPONPTW, MSR_GP },
	      { MSR_RTIT_CTL, CTL_FABRICEN, MSR_GP },
	      { MSR_RTIT_CTL, CTL_PTWEN, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 31, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 55, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 56, MSR_GP },
	      /* Reserved. */
	      { MSR_RTIT_CTL, 1ULL << 18, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 23, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 28, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 48, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 63, MSR_GP },
	      /* Encodings. */
	      { MSR_RTIT_CTL, USUAL | CTL_MTCEN | MTC(3), MSR_OK },
	      { MSR_RTIT_CTL, USUAL | CTL_MTCEN | MTC(9), MSR_OK },
	      { MSR_RTIT_CTL, USUAL | CTL_MTCEN | MTC(1), MSR_GP },
	      { MSR_RTIT_CTL, USUAL | CTL_MTCEN | MTC(15), MSR_GP },
	      { MSR_RTIT_CTL, USUAL | CTL_CYCEN | CYC(13), MSR_OK },
	      { MSR_RTIT_CTL, USUAL | CTL_CYCEN | CYC(14), MSR_GP },
	      { MSR_RTIT_CTL, USUAL | PSB(5), MSR_OK },
	      { MSR_RTIT_CTL, USUAL | PSB(6), MSR_GP },
	      /* Ranges: two of them, filter or stop. */
	      { MSR_RTIT_CTL, ADDR(0, 1) | ADDR(1, 2), MSR_OK },
	      { MSR_RTIT_CTL, ADDR(0, 3), MSR_GP },
	      { MSR_RTIT_CTL, ADDR(1, 15), MSR_GP },
	      { MSR_RTIT_CTL, ADDR(2, 1), MSR_GP },
	      { MSR_RTIT_CTL, ADDR(3, 1), MSR_GP });
	CHECK("icelake-server", 0,
	      { MSR_RTIT_CTL, USUAL | ON | CTL_PTWEN | CTL_FUPONPTW, MSR_OK },
	      { MSR_RTIT_CTL, CTL_PWREVTEN, MSR_GP },
	      { MSR_RTIT_CTL, CTL_EVENTEN, MSR_GP },
	      { MSR_RTIT_CTL, ADDR(3, 1), MSR_OK });
	CHECK("sapphirerapids", 0,
	      { MSR_RTIT_CTL, USUAL | ON | CTL_PTWEN | CTL_PWREVTEN | CTL_INJECTPSBPMI, MSR_OK },
	      { MSR_RTIT_CTL, CTL_EVENTEN, MSR_GP },
	      { MSR_RTIT_CTL, CTL_DISTNT, MSR_GP });
	CHECK("alderlake-n", 0,
	      { MSR_RTIT_CTL, USUAL | ON | CTL_PTWEN | CTL_PWREVTEN | CTL_EVENTEN | CTL_DISTNT, MSR_OK },
	      { MSR_RTIT_CTL, CTL_FABRICEN, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 54, MSR_GP },
	      { MSR_RTIT_CTL, 1ULL << 57, MSR_GP });
	CHECK("single-entry", 0,
	      { MSR_RTIT_CTL, USUAL | ON | CTL_MTCEN, MSR_OK },
	      { MSR_RTIT_CTL, (USUAL | ON) & ~CTL_BRANCHEN, MSR_OK },
	      { MSR_RTIT_CTL, (USUAL | ON) & ~CTL_TOPA, MSR_GP });
	CHECK("broadwell", 0,
	      { MSR_RTIT_CTL, USUAL | ON, MSR_OK },
	      { MSR_RTIT_CTL, USUAL | ON | CTL_CR3FILTER, MSR_OK },
	      /* No single range; branches always; no timing, ranges or PSB frequency. */
	      { MSR_RTIT_CTL, (USUAL | ON) & ~CTL_TOPA, MSR_GP },
	      { MSR_RTIT_CTL, (USUAL | ON) & ~CTL_BRANCHEN, MSR_GP },
	      { MSR_RTIT_CTL, USUAL & ~CTL_BRANCHEN, MSR_OK },
	      { MSR_RTIT_CTL, USUAL | CTL_MTCEN, MSR_GP },
	      { MSR_RTIT_CTL, USUAL | CTL_CYCEN, MSR_GP },
	      { MSR_RTIT_CTL, USUAL | PSB(1), MSR_GP },
	      { MSR_RTIT_CTL, ADDR(0, 1), MSR_GP });
}

static void test_while_tracing(void **state)
{
	(void)state;
	CHECK("skylake-server", USUAL | ON,
	      { MSR_RTIT_CTL, USUAL | ON, MSR_OK },		/* the same */
	      { MSR_RTIT_CTL, USUAL | ON | CTL_TSCEN, MSR_GP },
	      { MSR_RTIT_CTL, (USUAL | ON) & ~CTL_OS, MSR_GP },
	      { MSR_RTIT_CTL, 0, MSR_OK },
	      { MSR_RTIT_CTL, USUAL, MSR_OK },
	      { MSR_RTIT_CTL, USUAL | CTL_TSCEN, MSR_OK },	/* clears TraceEn: may change all */
	      { MSR_RTIT_CTL, 1ULL << 18, MSR_GP },
	      { MSR_RTIT_STATUS, 0, MSR_GP },
	      { MSR_RTIT_OUTPUT_BASE, 0, MSR_GP },
	      { MSR_RTIT_OUTPUT_MASK, 0x7f, MSR_GP },
	      { MSR_RTIT_CR3_MATCH, 0, MSR_GP },
	      { MSR_RTIT_ADDR0_A, 0, MSR_GP },
	      { MSR_RTIT_ADDR0_A + 3, 0, MSR_GP });
}

static void test_others(void **state)
{
	(void)state;
	CHECK("skylake-server", 0,
	      { MSR_RTIT_OUTPUT_BASE, 0x12345f80, MSR_OK },
	      { MSR_RTIT_OUTPUT_BASE, 0x12345001, MSR_GP },
	      { MSR_RTIT_OUTPUT_BASE, 0x12345040, MSR_GP },
	      { MSR_RTIT_OUTPUT_BASE, 1ULL << 40, MSR_GP },
	      { MSR_RTIT_OUTPUT_MASK, 0, MSR_OK },
	      { MSR_RTIT_OUTPUT_MASK, ~0ULL, MSR_OK },
	      { MSR_RTIT_STATUS, 0, MSR_OK },
	      { MSR_RTIT_STATUS, 0x37, MSR_OK },
	      { MSR_RTIT_STATUS, 1ULL << 3, MSR_GP },
	      { MSR_RTIT_STATUS, 1ULL << 6, MSR_GP },
	      { MSR_RTIT_STATUS, 1ULL << 31, MSR_GP },
	      { MSR_RTIT_STATUS, 0x1ffffULL << 32, MSR_OK },
	      { MSR_RTIT_STATUS, 1ULL << 49, MSR_GP },
	      { MSR_RTIT_CR3_MATCH, 0x1234000, MSR_OK },
	      { MSR_RTIT_CR3_MATCH, 0x20, MSR_OK },
	      { MSR_RTIT_CR3_MATCH, 0x10, MSR_GP },
	      { MSR_RTIT_CR3_MATCH, 1, MSR_GP },
	      { MSR_RTIT_ADDR0_A, 0x7fffffffffff, MSR_OK },
	      { MSR_RTIT_ADDR0_A, 0x800000000000, MSR_GP },
	      { MSR_RTIT_ADDR0_A + 3, 0xffff800000000000, MSR_OK },
	      { MSR_RTIT_ADDR0_A + 3, 0xfffe800000000000, MSR_GP },
	      { MSR_RTIT_ADDR0_A + 4, 0, MSR_GP },
	      { MSR_RTIT_ADDR3_B, 0, MSR_GP },
	      { MSR_RTIT_ADDR3_B + 1, 0, MSR_OTHER },
	      { 0x573, 0, MSR_OTHER },
	      { 0x562, 0, MSR_OTHER });
	CHECK("icelake-server", 0,
	      { MSR_RTIT_STATUS, STATUS_PENDPSB, MSR_GP },
	      { MSR_RTIT_ADDR3_B, 0, MSR_OK });
	CHECK("sapphirerapids", 0,
	      { MSR_RTIT_STATUS, STATUS_PENDPSB | STATUS_PENDTOPAPMI, MSR_OK },
	      { MSR_RTIT_ADDR0_A + 4, 0, MSR_GP });
	CHECK("broadwell", 0,
	      { MSR_RTIT_STATUS, 1ULL << 32, MSR_GP },	/* no PacketByteCnt */
	      { MSR_RTIT_ADDR0_A, 0, MSR_GP });
}

static void test_reads(void **state)
{
	const struct model *m = model_find("skylake-server");
	struct rtit r = { 0 };
	uint64_t x;

	(void)state;
	/* The low bits of MASK_PTRS are ones; the enable bits of STATUS can't be written. */
	assert_int_equal(rtit_write(&r, m, MSR_RTIT_OUTPUT_MASK, 0x500000180), MSR_OK);
	assert_int_equal(rtit_read(&r, m, MSR_RTIT_OUTPUT_MASK, 0, &x), MSR_OK);
	assert_true(x == 0x5000001ff);
	assert_int_equal(rtit_write(&r, m, MSR_RTIT_STATUS, 0x1230000000037), MSR_OK);
	assert_int_equal(rtit_read(&r, m, MSR_RTIT_STATUS, 0, &x), MSR_OK);
	assert_true(x == 0x1230000000030);
	assert_int_equal(rtit_read(&r, m, MSR_RTIT_STATUS, STATUS_TRIGGEREN, &x), MSR_OK);
	assert_true(x == 0x1230000000034);
	assert_int_equal(rtit_read(&r, m, MSR_RTIT_ADDR0_A + 4, 0, &x), MSR_GP);
	assert_int_equal(rtit_read(&r, m, 0x573, 0, &x), MSR_OTHER);
}

static void test_cpuid(void **state)
{
	struct cpuid_regs r;

	(void)state;
	assert_true(model_cpuid(model_find("skylake-server"), 0x14, 0, &r));
	assert_int_equal(r.eax, 1);
	assert_int_equal(r.ebx, 0xf);
	assert_int_equal(r.ecx, 7);
	assert_true(model_cpuid(model_find("skylake-server"), 0x14, 1, &r));
	assert_int_equal(r.eax, 0x02490002);
	assert_int_equal(r.ebx, 0x003f3fff);
	assert_true(model_cpuid(model_find("broadwell"), 0x14, 0, &r));
	assert_int_equal(r.eax, 0);
	assert_int_equal(r.ebx, 1);
	assert_int_equal(r.ecx, 1);
	assert_false(model_cpuid(model_find("broadwell"), 7, 0, &r));
	assert_null(model_find("no-such-model"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ctl),
		cmocka_unit_test(test_while_tracing),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_cpuid),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("rtit", tests, NULL, NULL);
}
