#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The instructions that libipt decodes from what the kernel's own intel_pt driver recorded are those
# that QEMU executed, address by address: user code, the kernel, and both, on both CPUs, with and
# without page table isolation, for several sets of timing packets, and for a
# single function of the kernel.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator
minimum=10000000

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi

# Event configurations: TSC 400, MTC 200 (period 3: c000), CYC 2, no RET compression 800.
plan 11
total=0

# boot NAME ROUNDS RUN-OPTION… -- CONFIG…: record in a guest, and compare both CPUs.
boot() {
	local name=$1 rounds=$2 options=() cpu config traces line status; shift 2
	while [[ $1 != -- ]]; do options+=("$1"); shift; done
	shift
	status=0
	"$top/tests/vm/run" --no-load --put "$build/capture" --truth "$work/$name" \
		--out "$work/$name.out" --timeout 300 "${options[@]}" \
		-- /put/capture /out "$rounds" "$@" >"$work/$name.log" 2>&1 || status=$?
	is "$status" 0 "$name: recorded in the guest"
	((status == 0)) || diag "$(tail -15 "$work/$name.log")"
	for cpu in 0 1; do
		traces=()
		for config; do traces+=("$work/$name.out/${config%%:*}/cpu$cpu.pt"); done
		status=0
		"$build/compare" "$work/$name/cpu$cpu.ips" "${traces[@]}" >"$work/compare.log" 2>&1 ||
			status=$?
		line=$(grep ^equal= "$work/compare.log" || true)
		is "$status" 0 "$name: cpu$cpu: decoded and executed instructions are the same"
		((status == 0)) || diag "$(cat "$work/compare.log")"
		diag "$name: cpu$cpu: $line"
		like "$line" 'equal=[0-9]{7,} .*errors=0 overflows=0 ' \
			"$name: cpu$cpu: more than a million, no decode error, no overflow"
		line=${line#equal=}
		total=$((total + ${line%% *}))
	done
	rm -rf "${work:?}/$name" "$work/$name.out"
}

boot pti-off 1 --pti off -- user:user:600 kernel:kernel:c600 both:both:c602 \
	function:kernel:400:do_syscall_64
boot pti-on 1 --pti on --emulator long-tnt=on -- user:user:c602 kernel:kernel:400 both:both:c00

ok "no fewer than $minimum instructions in all" test "$total" -ge "$minimum"
diag "$total instructions compared"
