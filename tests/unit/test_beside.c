// SPDX-License-Identifier: BSD-2-Clause
/* When what perf lost is made up for. The program's own part is no library: it is compiled in, and what it calls is played here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cli/beside.c"

static char told[256];
static const char *losses;	/* of the round: a digit for each CPU that lost records */
static bool disk_full;

static void note(const char *text, uint32_t cpu, uint64_t id)
{
	size_t used = strlen(told);

	snprintf(told + used, sizeof(told) - used, "%s%s %u %u", used ? "; " : "", text, cpu, (unsigned int)id);
}

/* ---- what is played ---- */

void cli_progress(const char *verb, const char *format, ...)
{
}

int ptw_device_trace_setup(struct ptw_device *device, const struct ptw_trace_request *request, struct ptw_error *err)
{
	return 0;
}

struct ptw_sideband *ptw_sideband_open(const struct ptw_sideband_request *request, struct ptw_error *err)
{
	return NULL;
}

void ptw_sideband_close(struct ptw_sideband *sideband)
{
}

int ptw_sideband_fd(const struct ptw_sideband *sideband)
{
	return -1;
}

const uint64_t *ptw_sideband_ids(const struct ptw_sideband *sideband, size_t *count)
{
	*count = 0;
	return NULL;
}

uint64_t ptw_sideband_id(const struct ptw_sideband *sideband, uint32_t cpu)
{
	return 500 + cpu;
}

int ptw_sideband_drain(struct ptw_sideband *sideband, ptw_sideband_take *take, void *arg, struct ptw_error *err)
{
	return 0;
}

int ptw_sideband_renew(struct ptw_sideband *sideband, ptw_sideband_take *take, void *arg, int *cpu, struct ptw_error *err)
{
	return 0;
}

bool ptw_sideband_missed(struct ptw_sideband *sideband, uint32_t *cpu)
{
	if (!*losses)
		return false;
	*cpu = *losses++ - '0';
	return true;
}

uint64_t ptw_sideband_lost(const struct ptw_sideband *sideband)
{
	return 0;
}

void ptw_sideband_visit(const struct ptw_sideband *sideband)
{
}

int ptw_recording_set_sideband(struct ptw_recording_writer *w, const uint64_t *ids, size_t count, struct ptw_error *err)
{
	return 0;
}

int ptw_recording_add_processes(struct ptw_recording_writer *w, struct ptw_error *err)
{
	return 0;
}

int ptw_recording_add_unheard(struct ptw_recording_writer *w, uint32_t cpu, uint64_t id, struct ptw_error *err)
{
	note("unheard", cpu, id);
	return 0;
}

int ptw_recording_add_missed(struct ptw_recording_writer *w, uint32_t cpu, uint64_t id, struct ptw_error *err)
{
	note("missed", cpu, id);
	return disk_full ? ptw_error_set(err, PTW_EXIT_FAILED, "full") : 0;
}

int ptw_recording_add_records(struct ptw_recording_writer *w, const void *first, size_t first_size, const void *second,
			      size_t second_size, struct ptw_error *err)
{
	return 0;
}

int ptw_recording_add_switches(struct ptw_recording_writer *w, const struct ptwatch_switch *switches, size_t count, uint64_t id,
			       struct ptw_error *err)
{
	return 0;
}

int ptw_recording_end_round(struct ptw_recording_writer *w, struct ptw_error *err)
{
	strcat(told, told[0] ? "; round" : "round");
	return 0;
}

void ptw_recording_release(struct ptw_recording_writer *w)
{
}

/* ---- tests ---- */

static struct ptw_device device;
static struct beside beside;

static int setup(void **state)
{
	told[0] = '\0';
	disk_full = false;
	beside = (struct beside){ .device = &device, .verb = "record" };
	return 0;
}

static void take_round(const char *lost, bool last)
{
	losses = lost;
	beside_round(&beside, last);
}

/* At once and before the round is over, once for all CPUs; where losses go on, when they are over or all is. */
static void losses_are_made_up(void **state)
{
	take_round("", false);
	take_round("13", false);
	take_round("", false);
	assert_string_equal(told, "round; missed 3 503; round; round");

	told[0] = '\0';
	take_round("1", false);
	take_round("2", false);
	take_round("1", false);
	take_round("", false);
	take_round("", false);
	assert_string_equal(told, "missed 1 501; round; round; round; missed 1 501; round; round");

	told[0] = '\0';
	take_round("1", false);
	take_round("2", false);
	take_round("2", true);
	assert_string_equal(told, "missed 1 501; round; round; missed 2 502; round");
}

static void a_full_disk_ends_it(void **state)
{
	disk_full = true;
	take_round("1", false);
	assert_true(beside.full);
	assert_string_equal(beside.full_error.text, "full");
	take_round("", false);
	take_round("1", true);
	assert_string_equal(told, "missed 1 501; round; round; round");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(losses_are_made_up, setup),
		cmocka_unit_test_setup(a_full_disk_ends_it, setup),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
