#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tests/bench/hits.sh [KERNEL…]: what a watch's hit costs in executed kernel instructions, beside an empty handler's in the
# same run, and how far the CPU gets until a freeze has stopped its trace, each way there is to stop it.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/tests/bench
kernels=("$@")
((${#kernels[@]})) || kernels=(6.1 6.12 newest)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -Wextra -static -D_GNU_SOURCE -I"$top/uapi" -o "$work/hits" "$here/guest/hits.c" "$top/tests/guest/guest.c"

for kernel in "${kernels[@]}"; do
	echo "$kernel:"
	"$top/tests/vm/run" --kernel "$kernel" --put "$work/hits" --out "$work/$kernel" --truth "$work/$kernel/truth" \
		-- sh -c 'modprobe pokee && cp /proc/kallsyms /out/ && /put/hits' >"$work/$kernel.numbers"
	# NAME, what it is, what it may be (r: times the empty handler's), as the design has it.
	awk '
		{ n[$1] = $2 }
		function line(key, what, most, relative) {
			if (!(key in n)) { printf "  %-66s not measured\n", what; bad = 1; return }
			printf "  %-66s%8d%7.2f", what, n[key], n[key] / n["empty"]
			if (most != "") {
				over = relative ? n[key] / n["empty"] > most : n[key] > most
				printf "   at most %s%s%s", most, relative ? " times" : "", over ? "  TOO MUCH" : ""
				bad += over
			}
			print ""
		}
		END {
			printf "  %-66s%8s%7s\n", "a hit, kernel instructions in the #DB path", "", "times"
			line("empty", "wide watch, empty handler")
			line("false-value", "condition on the value is false", 1.15, 1)
			line("false-comm", "condition on the name is false", 1.15, 1)
			line("event", "alarm with stack as an event", 3200)
			line("event-all", "  on all CPUs, until it is delivered")
			line("log", "alarm with stack in the log", 3200)
			line("log-all", "  on all CPUs, until it is delivered")
			line("freeze-hardware", "alarm that freezes, stopped by hardware", 1200)
			line("freeze-early", "  in front of the handlers", 1200)
			line("freeze-handler", "  by the handler", 1200)
			line("freeze-hardware-false", "condition of a freezing watch is false: hardware")
			line("freeze-early-false", "  in front of the handlers")
			line("freeze-handler-false", "  by the handler")
			exit bad > 0
		}' "$work/$kernel.numbers" || failed=1
	echo "  skid: instructions and functions recorded after the store (perf: 509 in 22):"
	"$here/skid_of_truth.py" "$work/$kernel/truth/cpu1.ips" "$work/$kernel/kallsyms" | sed 's/^/    /'
done
exit "${failed:-0}"
