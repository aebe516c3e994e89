#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# PTWRITE in all its forms, on the client model and the newest kernel: what a program sees of it, and what stock
# perf records of it.
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
plan 6

status=0
# shellcheck disable=SC2016 # for the guest's shell
"$top/tests/vm/run" --no-load --cpu alderlake-n --kernel newest --put "$build/features" --out "$work/out" \
	--timeout 300 -- sh -c '
	/put/features >/out/plain && cd /tmp || exit
	cat /sys/bus/event_source/devices/intel_pt/caps/ptwrite >/out/cap
	perf record -o ptw -e intel_pt/ptw,fup_on_ptw/u /put/features >/out/traced 2>/out/record.log
	perf script -i ptw --itrace=w -F ip,event >/out/seen 2>/dev/null' >"$work/log" 2>&1 || status=$?
is "$status" 0 'the guest ran'
((status == 0)) || diag "$(tail -15 "$work/log")"
cd "$work/out"

is "$(<cap)" 1 'the driver finds PTWRITE'
is "$(grep -h 'not ok' plain traced || true)" '' 'flags survive it, it faults as it must, and RFLAGS.TF traps after it, traced or not'
is "$(tail -qn 1 plain traced | paste -sd' ')" 'end end' 'the program comes to its end'
addresses=$(awk '/ptwrite:/ { print $2 }' seen)
is "$(head -8 <<<"$addresses" | paste -sd' ')" "$(awk '$1 == "ptwrite" { print $2 }' traced | paste -sd' ')" \
	'perf sees each form at its address'
is "$(wc -l <<<"$addresses")" 309 'and all those of a loop, and one that is single-stepped'
