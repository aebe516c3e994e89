#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# How fast traces are decoded, against libipt's own decoders on the same trace in the same run; against stock perf, from
# the recording to the listing; and how much memory a long recording needs. A trace of a real processor, many times over;
# the first also with PTWATCH_BENCH="RECORDING TRACE" of your own. PTWATCH_BENCH_MB: size of the long recording (1024).
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
samples=${PTWATCH_SAMPLES:-$top/../shared/samples}
hello=$samples/skylake-hello
out=$top/build/bench
read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw libbpf)"

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

bad=0
# One core's rates are by processor time, those of two threads by the clock on the wall: where others are at work too, these
# say little, and the processor time of both threads beside them says what could be had. Before all others, where that is
# allowed, it is as if nobody else were here.
first=()
if chrt -f 1 true 2>/dev/null; then first=(chrt -f 1); else echo "others may be in the way: chrt -f 1 is not allowed here"; fi
"${first[@]}" "$out/decode" "${what[@]}" >"$out/rates"
awk '
	{ cpu[$1] = $2; wall[$1] = $3 }
	function line(what, is, of, want) {
		ok = is >= want * of
		printf "%-58s %8.1f M/s  %6.2f times (wanted: %.2f)%s\n", what, is, is / of, want, ok ? "" : "  TOO SLOW"
		bad += !ok
	}
	function scaling(what) {
		printf "%s, two threads against one: %.2f times (wanted on an idle machine: 1.80), with %.2f of its processor time\n",
			what, wall[what "-2"] / wall[what], cpu[what] / cpu[what "-2"]
	}
	END {
		printf "libipt: %.1f M instructions/s one by one, %.1f M/s in blocks\n", cpu["libipt-insn"], cpu["libipt-block"]
		line("addresses of all instructions / libipt one by one", cpu["insns"], cpu["libipt-insn"], 1)
		line("flow of calls and returns / libipt in blocks", cpu["flow"], cpu["libipt-block"], 0.9)
		line("totals / libipt in blocks", cpu["totals"], cpu["libipt-block"], 0.9)
		line("flow by two threads / libipt in blocks", wall["flow-2"], cpu["libipt-block"], 1.8 * 0.9)
		line("totals by two threads / libipt in blocks", wall["totals-2"], cpu["libipt-block"], 1.8 * 0.9)
		scaling("flow")
		scaling("totals")
		exit bad > 0
	}' "$out/rates" || bad=1

[[ -r $hello/pt.bin ]] || exit $bad

# ---- from the recording to the listing, and memory

make -s -C "$top/userspace" OUT="$top/build" "$top/build/ptwatch"
cc -std=gnu11 -O2 -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$out/recording" "$top/tests/bench/recording.c" \
	"$top/build/userspace/libptwatch.a" "${flags[@]}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# record NAME COPIES; measure COMMAND…: sets cpu, wall and mb
record() { "$out/recording" "$work/$1" "$hello/pt.bin" "$(readlink -f "$hello")/hello,1000,86fb1,401000" "$2"; }
measure() {
	read -r cpu wall mb < <(python3 "$top/tests/bench/child.py" "$@" 2>"$work/errors" || true)
	[[ ${mb:-} ]] || { echo "bench: $* failed: $(head -n 2 "$work/errors")" >&2; exit 1; }
}

# The best of some runs, as others may be at work on this machine: of each time for itself
best() {
	local runs=$1 best_cpu=999999 best_wall=999999; shift
	while ((runs--)); do
		measure "$@"
		read -r best_cpu best_wall < <(awk -v a="$cpu" -v b="$best_cpu" -v c="$wall" -v d="$best_wall" \
			'BEGIN { print a < b ? a : b, c < d ? c : d }')
	done
	cpu=$best_cpu wall=$best_wall
}

# The reports as they come, from the command line to their end, packets and symbols and all
copies=4000
record verbs $copies
insns=$((copies * $(zcat "$hello/expected-ips.txt.gz" | wc -l)))
libipt=$(awk '$1 == "libipt-block" { print $2 }' "$out/rates")
for command in stat 'calls --count' 'latency --from main --to return:main'; do
	read -ra words <<<"$command"
	best 3 "${first[@]}" taskset -c 0 "$top/build/ptwatch" "${words[0]}" -i "$work/verbs" "${words[@]:1}"
	one=$cpu
	best 3 "${first[@]}" "$top/build/ptwatch" "${words[0]}" -i "$work/verbs" "${words[@]:1}"
	awk -v name="${words[0]}" -v insns="$insns" -v libipt="$libipt" -v one="$one" -v wall="$wall" -v cpu="$cpu" 'BEGIN {
		one = insns / one / 1e6; both = insns / wall / 1e6
		printf "%s: %.1f M/s on one core, %.2f times libipt in blocks (wanted: 0.90)%s; on all %.1f M/s, %.2f times (wanted: 1.62)%s; %.2f s of processor time\n",
			name, one, one / libipt, (one >= 0.9 * libipt) ? "" : "  TOO SLOW",
			both, both / libipt, (both >= 1.62 * libipt) ? "" : "  TOO SLOW", cpu
		exit !(one >= 0.9 * libipt && both >= 1.62 * libipt) }' || bad=1
done
rm -rf "$work/verbs"

if command -v perf >/dev/null; then
	record perf 200
	best 2 perf script -f -i "$work/perf" --itrace=i0ns -F ip
	perf_cpu=$cpu perf_wall=$wall
	best 5 "$top/build/ptwatch" insns -i "$work/perf" --format ip
	awk -v p="$perf_cpu" -v o="$cpu" -v pw="$perf_wall" -v ow="$wall" 'BEGIN {
		printf "11.8 M addresses: perf script --itrace=i0ns %.2f s of processor time, ptwatch %.2f s: %.1f times (wanted: 10)%s\n",
			p, o, p / o, (p >= 10 * o) ? "" : "  TOO SLOW"
		printf "  until it was there: %.2f s, %.2f s: %.1f times\n", pw, ow, pw / ow
		exit !(p >= 10 * o) }' || bad=1
	rm -rf "$work/perf"
else
	echo "no perf here to compare with"
fi

size=${PTWATCH_BENCH_MB:-1024}
declare -A peak
for mb_of in $((size / 10)) "$size"; do
	record "long.$mb_of" $((mb_of * (1 << 20) / $(stat -Lc %s "$hello/pt.bin")))
	for verb in stat insns packets; do
		[[ $verb == stat ]] && more=() || more=(--count)
		measure "$top/build/ptwatch" $verb -i "$work/long.$mb_of" "${more[@]}"
		peak[$verb.$mb_of]=$mb
	done
	rm -rf "$work/long.$mb_of"
done
for verb in stat insns packets; do
	small=${peak[$verb.$((size / 10))]} large=${peak[$verb.$size]}
	printf '%s: peak memory %d MB for %d MB of trace, %d MB for %d MB (wanted: less than 300, and but for what threads decode ahead no more than the smaller needs)' \
		"$verb" "$small" $((size / 10)) "$large" "$size"
	if ((large < 300 && large <= small + small / 10 + 5)); then echo; else echo '  TOO MUCH'; bad=1; fi
done
exit $bad
