#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# With an internal buffer that overflows now and then, the instructions that libipt decodes are those
# that QEMU executed but for those lost: libipt reports each overflow, resumes where the flow was when it
# resolved, and misses nothing elsewhere. And the comparison that says so finds what is wrong.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator
# Bytes. No power of two, so that overflows and PSBs don't keep step.
every=499

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi

plan 11

# Event configurations: TSC 400, MTC 200 (period 3: c000), CYC 2.
status=0
"$top/tests/vm/run" --no-load --put "$build/capture" --put "$build/exec64" --put "$build/exec32" --truth "$work/truth" --out "$work/out" --timeout 120 \
	--emulator "overflow=$every" --emulator stats=on \
	-- /put/capture /out 1 both:both:c602 user:user:600 >"$work/log" 2>&1 || status=$?
is "$status" 0 'recorded in the guest'
((status == 0)) || diag "$(tail -15 "$work/log")"

# compare_cpu CPU TRUTH OVERFLOWS
compare_cpu() {
	"$build/compare" --overflows "$3" "$2" "$work/out/"{both,user}"/cpu$1.pt" >"$work/compare.log" 2>&1
}

for cpu in 0 1; do
	overflows=$(sed -n "s/^intel_pt: cpu$cpu:.* overflows \([0-9]*\)$/\1/p" "$work/out/qemu.log")
	status=0
	compare_cpu "$cpu" "$work/truth/cpu$cpu.ips" "$overflows" || status=$?
	line=$(grep ^equal= "$work/compare.log" || true)
	is "$status" 0 "cpu$cpu: all but what was lost is the same, and all $overflows overflows are reported"
	((status == 0)) || diag "$(cat "$work/compare.log")"
	diag "cpu$cpu: $line"
	like "$line" \
		'^equal=[0-9]{7,} .*errors=0 overflows=[0-9]{3,} .*lost=[0-9]{4,} most=[0-9]{1,5} off=[0-9]{2,}$' \
		"cpu$cpu: more than a million, no decode error, overflows with packets on and off"
done

# What must not pass. The 100th instruction comes well before the first overflow.
truth=$work/truth/cpu1.ips
unequal() {
	local status=0
	compare_cpu 1 "$2" "$3" || status=$?
	is "$status" 1 "refused: $1"
	like "$(<"$work/compare.log")" "$4" "refused, as: $4"
}
{ head -c 800 "$truth"; printf '\x05\x10\x40\0\0\0\0\0'; tail -c +809 "$truth"; } >"$work/wrong"
unequal 'an instruction that is another one' "$work/wrong" "$overflows" 'first difference at truth word 100,'
{ head -c 800 "$truth"; printf '\x05\x10\x40\0\0\0\0\0'; tail -c +801 "$truth"; } >"$work/gap"
unequal 'a gap without an overflow' "$work/gap" "$overflows" 'first difference at truth word 100,'
unequal 'an overflow too few' "$truth" $((overflows + 1)) "overflows=$overflows "
