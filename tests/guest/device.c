// SPDX-License-Identifier: BSD-2-Clause
/*
 * The promises of <linux/ptwatch.h>, kept or not: run as root in a guest with two CPUs, Intel PT,
 * pokee.ko and msr.ko. Prints TAP.
 *
 *	device [PART…]		all parts, or those whose names are given; "single" only then
 *	device --list		the names
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest.h"

static const struct {
	const char *name;
	void (*test)(void);
} parts[] = {
	{ "info", test_info },
	{ "setup", test_setup },
	{ "ownership", test_ownership },
	{ "mapping", test_mapping },
	{ "tracing", test_tracing },
	{ "stream", test_stream },
	{ "banks", test_banks },
	{ "ranges", test_ranges },
	{ "reasons", test_reasons },
	{ "switches", test_switches },
	{ "processes", test_processes },
	{ "watch", test_watch_arguments },
	{ "hits", test_hits },
	{ "limits", test_limits },
	{ "freeze", test_freeze },
	{ "netlink", test_netlink },
	{ "conditions", test_conditions },
	{ "targets", test_targets },
	{ "delivery", test_delivery },
	{ "backlog", test_backlog },
	{ "user-stacks", test_user_stacks },
	{ "freeze-all", test_freeze_all },
	{ "debuggers", test_debuggers },
	{ "hotplug", test_hotplug },
	{ "hotplug-storm", test_hotplug_storm },
	{ "end", test_session_end },
	{ "rights", test_rights },
	/* It unloads the module. */
	{ "module", test_module },
	/* Last: there is no way back. */
	{ "lockdown", test_lockdown },
};

static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc == 1;
}

int main(int argc, char **argv)
{
	unsigned int i;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
			puts(parts[i].name);
		return 0;
	}
	/* What a test that hangs has printed shows where. */
	setlinebuf(stdout);
	/* A call that never returns is a failure, not a hung test. */
	alarm(slow_kernel() ? 1500 : 400);
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (!wanted(parts[i].name, argc, argv))
			continue;
		diag("%s", parts[i].name);
		pin(0);
		parts[i].test();
	}
	/* Of another CPU than the rest. */
	if (argc > 1 && wanted("single", argc, argv))
		test_single();
	return done_testing();
}
