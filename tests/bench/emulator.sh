#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tests/bench/emulator.sh: what the emulator costs: the CPU time that the same work takes in a guest without it, in one
# with it, in one whose instructions are counted, and in one whose kernel and user code is traced. Time of the guest's
# CPU, as the host counts it, of guests that take turns; the least of some rounds each. And how long it takes until a
# shell is there. Fails when one of them is beyond its limit.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/tests/bench
# Seconds until a shell is there; times as long without tracing, with it.
limit_boot=15 limit_with=1.5 limit_traced=7

work=$(mktemp -d)
guests=()
cleanup() {
	if ((${#guests[@]})); then kill "${guests[@]}" 2>/dev/null || true; fi
	wait
	rm -rf "$work"
}
trap cleanup EXIT
cc -O2 -Wall -Wextra -static -o "$work/speed" "$here/guest/speed.c"

# Once for what is prepared and built. Then the least of three: since the kernel began, and since the command.
"$top/tests/vm/run" --no-load -- true
boot='' all=''
for _ in 1 2 3; do
	start=${EPOCHREALTIME/./}
	read -r uptime _ < <("$top/tests/vm/run" --no-load -- cat /proc/uptime)
	took=$((${EPOCHREALTIME/./} - start)) uptime=$((10#${uptime/./} * 10000))
	if [[ ! $boot ]] || ((uptime < boot)); then boot=$uptime; fi
	if [[ ! $all ]] || ((took < all)); then all=$took; fi
done
printf 'boot to shell: %d.%d s, at most %d; from the command to there: %d.%d s\n' \
	$((boot / 1000000)) $((boot / 100000 % 10)) "$limit_boot" $((all / 1000000)) $((all / 100000 % 10))

# guest NAME [OPTION…] -- COMMAND…
guest() {
	local name=$1; shift
	mkdir "$work/$name"
	# shellcheck disable=SC2016 # a dollar of the kernel's
	"$top/tests/vm/run" --no-load --put "$work/speed" --append 'memmap=1M$0x30000000' --out "$work/$name" \
		--timeout 1800 "$@" >&2 &
	guests+=($!)
}
guest without --no-pt -- /put/speed /out
guest with -- /put/speed /out
guest counting --emulator stats=on -- /put/speed /out
# As perf records: TraceEn, OS, User, MTCEn, TSCEn, BranchEn, MTCFreq 3
guest traced -- sh -c 'modprobe msr && /put/speed /out e60d'
python3 "$here/turns.py" "$work/without" "$work/with" "$work/counting" "$work/traced" >"$work/seconds"
for pid in "${guests[@]}"; do wait "$pid"; done
guests=()

awk -v boot="$boot" -v limit_boot="$limit_boot" -v limit_with="$limit_with" -v limit_traced="$limit_traced" '
	BEGIN { printf "%-10s%12s%12s%12s%12s\n", "", "without, s", "with", "counting", "traced, times" }
	{
		printf "%-10s%12.4f%12.2f%12.2f%12.2f\n", $1, $2, $3 / $2, $4 / $2, $5 / $2
		without += $2; with += $3; counting += $4; traced += $5
		bad += $3 > limit_with * $2 || $5 > limit_traced * $2
	}
	END {
		printf "%-10s%12.4f%12.2f%12.2f%12.2f\n", "all", without, with / without, counting / without, traced / without
		bad += boot > limit_boot * 1000000
		printf "%-10s%12s%12s%12s%12s%s\n", "at most", "", limit_with, "", limit_traced, bad ? "   TOO SLOW" : ""
		exit bad > 0
	}' "$work/seconds"
