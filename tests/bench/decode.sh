#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# How fast traces are decoded, against libipt's own decoders on the same trace in the same run. A recording of a real
# processor, many times over; or PTWATCH_BENCH="RECORDING TRACE" of your own.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
samples=${PTWATCH_SAMPLES:-$top/../shared/samples}
hello=$samples/skylake-hello
out=$top/build/bench
read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw)"

mkdir -p "$out"
make -s -C "$top/userspace" OUT="$top/build" "$top/build/userspace/libptwatch.a"
cc -std=gnu11 -O2 -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$out/decode" "$top/tests/bench/decode.c" \
	"$top/build/userspace/libptwatch.a" -pthread -lipt -lZydis "${flags[@]}"

if [[ ${PTWATCH_BENCH:-} ]]; then
	read -ra what <<<"$PTWATCH_BENCH"
elif [[ -r $hello/pt.bin ]]; then
	what=(--raw "$hello/pt.bin" 6/85/4 "$hello/hello,1000,86fb1,401000" "${PTWATCH_BENCH_COPIES:-1000}")
else
	echo "bench: no trace: neither $hello nor PTWATCH_BENCH=\"RECORDING TRACE\"" >&2
	exit 1
fi

"$out/decode" "${what[@]}" | awk '
	{ rate[$1] = $2 }
	function line(what, is, of, want) {
		ok = is >= want * of
		printf "%-58s %8.1f M/s  %6.2f times (wanted: %.2f)%s\n", what, is, is / of, want, ok ? "" : "  TOO SLOW"
		bad += !ok
	}
	END {
		printf "libipt: %.1f M instructions/s one by one, %.1f M/s in blocks\n", rate["libipt-insn"], rate["libipt-block"]
		line("addresses of all instructions / libipt one by one", rate["insns"], rate["libipt-insn"], 1)
		line("flow of calls and returns / libipt in blocks", rate["flow"], rate["libipt-block"], 0.9)
		line("totals / libipt in blocks", rate["totals"], rate["libipt-block"], 0.9)
		line("flow by two threads / libipt in blocks", rate["flow-2-wall"], rate["libipt-block"], 1.8 * 0.9)
		line("totals by two threads / libipt in blocks", rate["totals-2-wall"], rate["libipt-block"], 1.8 * 0.9)
		printf "two threads against one: flow %.2f, totals %.2f times (on an idle machine)\n",
			rate["flow-2-wall"] / rate["flow-1-wall"], rate["totals-2-wall"] / rate["totals-1-wall"]
		exit bad > 0
	}'
