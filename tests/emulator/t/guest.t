#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What a guest sees: CPUID, MSRs with their faults, ToPA, PMIs, counters, the TSC; and that the
# kernel's own intel_pt driver found what the model enumerates.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi

status=0
# shellcheck disable=SC2016 # for the guest's shell
"$top/tests/vm/run" --no-load --put "$build/probe" --put "$build/counts" --out "$work/out" --timeout 180 \
	-- sh -c '
	modprobe msr && /put/counts >/out/counts.tap
	/put/probe /out >/out/probe.tap
	cd /sys/bus/event_source/devices/intel_pt/caps && grep . * >/out/caps
	dmesg >/out/dmesg' >"$work/log" 2>&1 || status=$?
is "$status" 0 'the guest ran'
((status == 0)) || diag "$(tail -15 "$work/log")"

# The guest's checks become ours.
while read -r line; do
	case $line in
	'ok '* | 'not ok '*) is "${line%% [0-9]*}" ok "${line#*- }" ;;
	'#'*) diag "guest: ${line#\# }" ;;
	esac
done < <(cat "$work/out/probe.tap" "$work/out/counts.tap")
like "$(tail -1 "$work/out/probe.tap")" '^1\.\.[0-9]+$' 'the probe reached its end'
like "$(tail -1 "$work/out/counts.tap")" '^1\.\.[0-9]+$' 'the counts reached their end'

is "$(LC_ALL=C sort "$work/out/caps")" 'cr3_filtering:1
cycle_thresholds:3fff
event_trace:0
ip_filtering:1
max_subleaf:1
mtc:1
mtc_periods:249
num_address_ranges:2
output_subsys:0
payloads_lip:0
power_event_trace:0
psb_cyc:1
psb_periods:3f
ptwrite:0
single_range_output:1
tnt_disable:0
topa_multiple_entries:1
topa_output:1' "the kernel driver's caps are those of the model"
like "$(<"$work/out/dmesg")" 'Skylake events, Intel PMU driver' 'the kernel found the PMU'
unlike "$(<"$work/out/dmesg")" 'WARNING:|unchecked MSR access' 'no complaint in the kernel log'

read -r low high <"$work/out/tsc.range"
rc=0
packets=$("$build/tsc_check" "$work/out/tsc.pt" "$low" "$high") || rc=$?
is "$rc" 0 "TSC packets are between the guest's RDTSC before and after"
diag "$packets in $((high - low)) ticks"

# Arguments.
refused() {
	local out
	out=$("$top/tests/vm/run" --no-load --emulator "$1" --out "$work/refused" -- true 2>&1) && return 1
	like "$out" "$2" "refused: $1"
}
refused model=z80 'no such model'
refused nonsense=1 'no such argument'
refused log=maybe 'no such argument or value'
refused overflow=100 'no such argument or value'

done_testing
