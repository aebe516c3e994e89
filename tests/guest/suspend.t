#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A machine that is traced and watched sleeps (each level of pm_test, then ACPI S3) and is woken by its clock: Intel PT
# and the debug registers, which the CPUs forgot, are as before.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
tap_cleanup rm -rf "$work"
rc=0
"$here/../vm/run" --timeout 300 --append no_console_suspend --out "$work/out" --put "$here/suspend.sh" -- /put/suspend.sh \
	2>"$work/stderr" || rc=$?
is "$rc" 0 'the guest sleeps, wakes up and ends'
((rc == 0)) || diag "$(tail -n 20 "$work/stderr")"
is "$(<"$work/out/log")" 'freezer: slept
devices: slept
platform: slept
processors: slept
core: slept
S3: slept
record: 3' 'each level of suspend, and S3; the recording did not hear all'
like "$(<"$work/out/recorded")" 'CPU 1 came online: its processes, and code that was changed there, are recorded as they are now' 'and says of which CPU'
log=$(tr -d '\r' <"$work/out/console.log")
like "$log" 'ACPI: PM: Low-level resume complete' 'it did sleep'
is "$(grep -o '"new":"[^"]*"' "$work/out/alarms" | tr '\n' ' ')" '"new":"0x0000000000000011" "new":"0x0000000000000022" "new":"0x0000000000000033" ' \
	'the watch sees what is written before, and on each CPU afterwards'
store=$(awk '$3 == "pokee_store" { print $1 }' "$work/out/recording/kcore_dir/kallsyms")
for cpu in 0 1; do
	rc=0
	"$here/../../build/ptwatch" insns -i "$work/out/recording" -C "$cpu" --all --format ip >"$work/ips" 2>"$work/errors" || rc=$?
	is "$rc $(<"$work/errors")" '0 ' "cpu $cpu: its trace has no error or gap"
	ok "cpu $cpu: the write after it woke up is in the trace" grep -qx "$store" "$work/ips"
done
is "$(grep -v 'ptwatch: ' "$work/out/console.log" | grep -aE 'BUG|WARNING|unchecked MSR' | head -n 5)" '' 'the kernel has nothing to complain about'
done_testing
