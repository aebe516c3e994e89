#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# perf_shell_test.sh PERF DIRECTORY: run perf's own shell test of Intel PT, which is in DIRECTORY, with PERF. What it
# says goes to /out/shell_test.log, with a line "=== RESULT UPTIME" after each function.
PATH=$(dirname "$1"):$PATH
export PATH
mkdir -p /tmp/perf/tests/shell /tmp/perf/util
cp -r "$2/lib" "$2/test_intel_pt.sh" /tmp/perf/tests/shell/
cp /put/jitdump.h /tmp/perf/util/
cd /tmp/perf || exit
# Waits of 5 seconds; workloads that last 30.
sed -i 's/tm_out=50/tm_out=1200/' tests/shell/lib/waiting.sh
# shellcheck disable=SC2016 # for the test's shell
sed -i -e 's/thloop 30 2/thloop 600 2/' -e 's/i < 30000; i++/i < 600000; i++/' \
	-e '/^count_result()/,/^}/s/^{/{\n\techo "=== $1 $(cut -d. -f1 \/proc\/uptime)"/' tests/shell/test_intel_pt.sh
# Interrupts take long here, too. The kernel must not sample less for it, or "uname" gets no sample at all.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
status=0
tests/shell/test_intel_pt.sh >/out/shell_test.log 2>&1 || status=$?
cut -d. -f1 /proc/uptime >/out/seconds
exit $status
