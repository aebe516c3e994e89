#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Damaged recordings and symbol tables under the address and undefined behaviour sanitizers, from a fixed seed:
# PTWATCH_FUZZ files of each kind (data, kcore, kallsyms, alarms.jsonl, perf's own file).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
tap_cleanup rm -rf "$work"
export PTWATCH_FUZZ=${PTWATCH_FUZZ:-400}

read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw libbpf cmocka)"
plan 2
for test in symbols recording; do
	if ! cc -std=gnu11 -O1 -g -D_GNU_SOURCE -fsanitize=address,undefined -fno-sanitize-recover=undefined \
		-I"$top/userspace" -I"$top/uapi" -o "$work/$test" "$top/tests/unit/test_$test.c" \
		"$top"/userspace/{recording,symbols,common}/*.c "$top/userspace/decode/image.c" \
		"${flags[@]}" >"$work/log" 2>&1; then
		diag "$(tail -5 "$work/log")"
		skip 1 "can't build $test with sanitizers"
		continue
	fi
	status=0
	ulimit -t 300
	"$work/$test" >"$work/log" 2>&1 || status=$?
	is "$status" 0 "$test: no crash, no leak, no hang"
	((status == 0)) || diag "$(grep -v '^ok' "$work/log" | head -30)"
done
