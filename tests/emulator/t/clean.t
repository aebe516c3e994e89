#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The emulator leaves the guest as it is: with a clock that counts executed instructions (QEMU's -icount), a
# guest without it and one with it say the same, to the letter: all of the kernel's log with its times, and a
# program's TSC after each part of a workload.
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
plan 3

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
	difference=$(diff "$work/$2.log" "$work/$1.log" | head -6) || true
	is "$difference" '' "$3"
}

boot without
like "$(<"$work/without.log")" 'clean: workload: TSC [0-9]+, hash .*clean: workload:' 'a guest without the emulator runs'
boot again
same again without 'a second one says the same: the clock is deterministic'
boot with stats=on
same with without 'so does one with the emulator'
