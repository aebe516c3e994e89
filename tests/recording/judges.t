#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# A trace of a real processor as a recording, judged by this machine's perf: the same instructions in the same order, and
# the same calls with the same returns. The guest's recordings are judged so by record.t.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../conformance/common.sh
. "$(dirname "$0")/../conformance/common.sh"

sample_args skylake-hello || skip_all "no sample skylake-hello in $samples"
command -v perf >/dev/null || skip_all 'no perf on this machine'
hello=$(readlink -f "$samples/skylake-hello")

read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw libbpf)"
if ! cc -std=gnu11 -O1 -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$tmp/recording" "$top/tests/bench/recording.c" \
	"$top"/userspace/{recording,symbols,common}/*.c "$top/userspace/decode/image.c" "${flags[@]}" >"$tmp/log" 2>&1; then
	diag "$(tail -5 "$tmp/log")"
	fail_all 'cannot build tests/bench/recording.c'
fi
"$tmp/recording" "$tmp/rec" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 1

run insns -i "$tmp/rec" --format ip
is "$status $(cat "$tmp/err")" '0 ' 'all of it is there'
is "$(wc -l <"$tmp/out")" 59234 'as many as the sample has'
perf script -f -i "$tmp/rec" --itrace=i0ns -F ip 2>/dev/null | awk '{ printf "%016s\n", $1 }' | sed 's/ /0/g' >"$tmp/perf"
ok 'instruction by instruction what perf tells' cmp "$tmp/out" "$tmp/perf"

run calls -i "$tmp/rec" --json
perf script -f -i "$tmp/rec" --itrace=cr -F tid,flags,ip,addr >"$tmp/perf" 2>/dev/null
is "$(python3 "$top/tests/lib/same_calls.py" "$tmp/perf" "$tmp/out")" '232 calls, 228 returns' 'calls and returns as perf pairs them'

# A function of a process, which has no address of its own
run insns -i "$tmp/rec" --symbol 'hello!main' --count
is "$(cat "$tmp/out")" 8 'the instructions of a function by its binary and name'
run insns -i "$tmp/rec" --symbol main --count
is "$(cat "$tmp/out")" 8 'and by its name alone, which the kernel has not'
run insns -i "$tmp/rec" --symbol 'other!main' --count
like "$status $(cat "$tmp/out" "$tmp/err")" '^1 ptwatch insns: other!main: no file other was mapped' 'not those of another binary'
done_testing
