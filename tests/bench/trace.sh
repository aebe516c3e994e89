#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tests/bench/trace.sh [KERNEL…]: what tracing costs, in executed kernel instructions, beside what perf's tracing costs in the
# same run: a context switch, START and STOP, the change of banks at a freeze. Without page table isolation and with it.
# Exit status 1 when a cost is over its limit.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/tests/bench
kernels=("$@")
((${#kernels[@]})) || kernels=(6.12)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -Wextra -D_GNU_SOURCE -I"$top/uapi" -static -no-pie -fno-pie -o "$work/trace" "$here/guest/trace.c"

for kernel in "${kernels[@]}"; do
	for pti in off on; do
		echo "$kernel, page table isolation $pti:"
		"$top/tests/vm/run" --kernel "$kernel" --pti $pti --truth "$work/truth" --append nowatchdog --put "$work/trace" \
			-- /put/trace >"$work/numbers"
		echo "swap-untraced $("$here/untraced_of_truth.py" "$work/numbers" "$work/truth/cpu0.ips")" >>"$work/numbers"
		# What it is, ours, perf's beside it, what it may be.
		awk '
			{ n[$1] = $2 }
			function line(what, ours, theirs, name, most) {
				printf "  %-58s%7.0f", what, ours
				if (name != "") printf "   %s %.0f", name, theirs
				if (name != "" && ours >= 1) printf " (%.1f times)", theirs / ours
				if (most != "") {
					over = ours > most
					printf "   at most %d%s", most, (over ? "  TOO MUCH" : "")
					bad += over
				}
				print ""
			}
			function added(key) { return n["switch-" key] - n["switch-none"] }
			END {
				line("a context switch without tracing", n["switch-none"])
				line("the same again, and again", n["switch-none-again"])
				line("the same while all user code is traced", n["switch-traced"])
				line("added to that, traced process told by CR3", n["switch-cr3"] - n["switch-traced"], added("perf-pt"), "perf per-task trace", 0)
				line("added to it, trace switched with the task", added("toggle"), added("perf-pt"), "perf per-task trace", 200)
				line("  the same, a stream", added("toggle-stream"), added("perf-pt"), "perf per-task trace", 200)
				line("added to it, a record of it", added("record"), added("perf-side"), "perf switch events", 600)
				line("START, one CPU", n["start"], n["perf-enable"], "perf ENABLE", n["perf-enable"])
				line("STOP, one CPU", n["stop"], n["perf-disable"], "perf DISABLE", n["perf-disable"])
				line("executed untraced while a freeze changes banks", n["swap-untraced"], 0, "", 999)
				exit bad > 0
			}' "$work/numbers" || failed=1
	done
done
exit "${failed:-0}"
