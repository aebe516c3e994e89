#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The emulator leaves the guest as it is: with a clock that counts executed instructions (QEMU's -icount), a
# guest without it and one with it say the same, to the letter: all of the kernel's log with its times, and a
# program's TSC after each part of a workload. Traced all the time, too.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi
plan 7

"$top/tests/vm/cache" prepare root kernel-6.12
root=$("$top/tests/vm/cache" path root)
kernel=$("$top/tests/vm/cache" path kernel-6.12)
mkdir "$work/root"
cp "$build/clean" "$work/root/init"
(cd "$work/root" && find . -print0 | cpio -0 -o -H newc --quiet -R 0:0) >"$work/initrd"

# boot NAME [PLUGIN-ARGUMENTS]: no device whose answers depend on the host; the same random numbers each time.
boot() {
	local name=$1 plugin=()
	if (($# > 1)); then plugin=(-plugin "$build/intel_pt.so,model=none,$2"); fi
	timeout 500 "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \
		"$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" \
		-machine q35,hpet=off -accel tcg -cpu Skylake-Server,-x2apic,level=0x16,-rdrand,-rdseed -smp 1 -m 512M \
		-icount shift=2,sleep=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1 \
		-nodefaults -no-user-config -display none -no-reboot -monitor none \
		-kernel "$kernel/vmlinuz" -initrd "$work/initrd" \
		-append 'console=ttyS0 panic=-1 nokaslr tsc=reliable mitigations=off quiet' \
		-serial "file:$work/$name.log" "${plugin[@]}" >"$work/$name.qemu" 2>&1 </dev/null
}

# same NAME REFERENCE WHAT
same() {
	local difference
	difference=$(diff <(grep -av 'clean: counted' "$work/$2.log") <(grep -av 'clean: counted' "$work/$1.log") | head -6) || true
	is "$difference" '' "$3"
}

boot without
like "$(<"$work/without.log")" 'clean: workload: TSC [0-9]+, hash .*clean: workload:' 'a guest without the emulator runs'
boot with log=off
same with without 'one with it says the same'
boot counted stats=on
same counted without 'so does one whose instructions are counted'
boot drill drill=on,stats=on
same drill without 'and one that is traced all the time, without knowing it'
bytes=$(sed -n 's/.*packet bytes \([0-9]*\),.*/\1/p' "$work/drill.qemu")
ok 'which generated a megabyte of packets or more' test "${bytes:-0}" -ge 1000000
diag "$(grep -c . "$work/without.log") lines; $(grep -a instructions "$work/drill.qemu")"
# Up to there: what is executed while QEMU turns the power off, in a thread of its own, differs from time to time.
counted=$(grep -a 'clean: counted' "$work/counted.log")
like "$counted" 'kernel 0{8}[1-9a-f][0-9a-f]{7} user 0{10}[1-9a-f][0-9a-f]{5}' 'instructions were counted'
is "$(grep -a 'clean: counted' "$work/drill.log")" "$counted" \
	'both kinds of translation count the same number of them, in the kernel and in user mode'
