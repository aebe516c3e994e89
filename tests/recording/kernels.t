#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# User and kernel code recorded on the oldest and on the newest kernel (record.t has the one between them): stock perf and
# `ptwatch insns` print the same instructions, which are those that the emulator executed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"

plan 18
for kernel in 6.1 newest; do
	work=$scratch/$kernel rc=0
	mkdir -p "$work/out" "$work/truth"
	cc -O1 -static -o "$work/out/pingpong" "$here/pingpong.c" || fail_all 'cannot build tests/recording/pingpong.c'
	# shellcheck disable=SC2016 # the guest's shell expands them
	"$top/tests/vm/run" --kernel "$kernel" --timeout 400 --put "$work/out/pingpong" --out "$work/out" --truth "$work/truth" -- \
		sh -c 'cp /put/pingpong /mnt && cd /out && for where in user kernel; do
			taskset -c 0 ptwatch record -o "$where" "--$where" -C 1 -- /mnt/pingpong 1 2>"$where.said" || exit; done' \
		>"$work/run.log" 2>&1 || rc=$?
	is "$rc" 0 "$kernel: both are recorded"
	((rc == 0)) || diag "$(tail -n 15 "$work/run.log" "$work/out"/*.said)"

	# shellcheck source-path=SCRIPTDIR source=decode.sh
	. "$here/decode.sh"
	: >"$work/all"
	for where in user kernel; do
		rc=0
		in_mount "$top/build/ptwatch" insns -i "$where" -C 1 --all --format ip >"$work/ips" 2>"$work/errors" || rc=$?
		is "$rc" 0 "$kernel, $where: decodes without error or gap"
		((rc == 0)) || diag "$(head -n 3 "$work/errors")"
		cat "$work/ips" >>"$work/all"
		in_root perf script -f -i "/mnt/$where" -C 1 --itrace=i0ns -F ip 2>/dev/null |
			awk '{ printf "%016s\n", $1 }' | sed 's/ /0/g' >"$work/perf" || true
		is "$(cmp "$work/ips" "$work/perf" 2>&1 || true)" '' "$kernel, $where: stock perf prints the same $(wc -l <"$work/ips") instructions"
		is "$(in_root perf script -f -i "/mnt/$where" --itrace=e 2>/dev/null || true)" '' "$kernel, $where: perf reports no error"
	done
	ok "$kernel: kernel code was recorded" test "$(grep -c ^ffff "$work/all")" -gt 10000
	is "$(python3 "$top/tests/lib/same_instructions.py" "$work/truth/cpu1.ips" "$work/all")" equal \
		"$kernel: all of them, one after the other, are what was executed"
done
