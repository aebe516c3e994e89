#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Traces of real processors and damaged copies of them: decoding along kept paths, by two threads, tells what libipt
# tells, down to each address and branch; with the address and undefined behaviour sanitizers watching. So they do over
# the unit tests of what reads code and records, among them damaged jitdump files.
#
# PTWATCH_FUZZ=N runs N damaged copies of each trace; the same ones every time.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/../conformance source=../conformance/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../conformance/common.sh"

rounds=${PTWATCH_FUZZ:-60}
out=$top/build/sanitize
sanitize='-O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer'
read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw libbpf cmocka)"
read -ra sanitizers <<<"$sanitize"

if ! make -s -C "$top/userspace" OUT="$out" CFLAGS="$sanitize" "$out/userspace/libptwatch.a" >"$tmp/make.log" 2>&1 ||
   ! cc -std=gnu11 "${sanitizers[@]}" -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$out/fuzz-flow" \
	"$top/tests/fuzz/flow.c" "$out/userspace/libptwatch.a" -pthread -lipt -lZydis "${flags[@]}" >>"$tmp/make.log" 2>&1; then
	diag "$(tail -5 "$tmp/make.log")"
	fail_all "cannot build tests/fuzz/flow.c"
fi

plan 8
for name in broadwell-single skylake-asm skylake-hello; do
	if ! sample_args "$name"; then
		skip 1 "no sample $name in $samples"
		continue
	fi
	status=0
	UBSAN_OPTIONS=halt_on_error=1 timeout 300 "$out/fuzz-flow" "$rounds" 20407 --raw "${args[1]}" "${args[3]}" \
		"${args[-1]}" >"$tmp/out" 2>"$tmp/err" || status=$?
	is "$status $(tail -n 1 "$tmp/out")" "0 $rounds rounds, 0 differ" "$name"
	((status == 0)) || { head -n 20 "$tmp/out" "$tmp/err" >&2; }
done

for unit in flow errata user_code decode sideband; do
	status=0
	cc -std=gnu11 "${sanitizers[@]}" -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$tmp/$unit" \
		"$top/tests/unit/test_$unit.c" "$out/userspace/libptwatch.a" -pthread -lipt -lZydis "${flags[@]}" >"$tmp/log" 2>&1 &&
		PTWATCH_FUZZ=300 UBSAN_OPTIONS=halt_on_error=1 timeout 300 "$tmp/$unit" >"$tmp/log" 2>&1 || status=$?
	is "$status" 0 "tests/unit/test_$unit.c with sanitizers"
	((status == 0)) || diag "$(grep -v '^ok' "$tmp/log" | head -n 20)"
done
