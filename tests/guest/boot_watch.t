#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# insmod ptwatch.ko watch=…: no program of ours runs in the guest, only insmod and what hits. Once from the initramfs,
# before there is a root file system, and then from there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"

cat >"$scratch/boot" <<'END'
dmesg -t | grep -A6 'ptwatch: ' | sed 's/^/early: /'
rmmod ptwatch && echo 'early: unloaded'
try() {
	dmesg -C
	insmod /ptwatch/ptwatch.ko "$1" 2>/dev/null && echo "loaded: $1" || echo "refused: $1"
	dmesg -t | grep -m1 'ptwatch: watch='
}
try watch=no_such_symbol_anywhere:8:w
try watch=panic_timeout:4:q
try watch=panic_timeout+1:4:w
dmesg -C
insmod /ptwatch/ptwatch.ko watch=print_fatal_signals:4:w,proc_dointvec:8:x,pokee:pokee_word+8:8:rw,pokee:pokee_percpu:8:w || echo 'not loaded'
modprobe pokee
# proc_dointvec() runs, and writes what no module could ask for by name: it is not exported.
echo 77 >/proc/sys/kernel/print-fatal-signals
echo 'beside 1 1 0x55' >/proc/pokee
echo 'percpu 0 1 0x66' >/proc/pokee
echo 'percpu 1 1 0x67' >/proc/pokee
sleep 1
dmesg -t | grep 'ptwatch: '
rmmod ptwatch && echo unloaded
insmod /ptwatch/ptwatch.ko watch=pokee:pokee_word:32:w
echo 'beside 1 1 0x55' >/proc/pokee
sleep 0.5
dmesg -t | grep 'of the 32'
END
rc=0
"$(dirname "$0")/../vm/run" --no-load --no-pt --append early_watch=__x64_sys_chroot:8:x,squashfs:squashfs_fill_super:8:x --put "$scratch/boot" -- bash /put/boot >"$scratch/out" 2>"$scratch/err" || rc=$?
out=$(<"$scratch/out")
is "$rc" 0 'exit status of the guest'
early=$(sed -n 's/^early: //p' "$scratch/out")
like "$early" 'ALARM #1: execution of squashfs:squashfs_fill_super
ptwatch: CPU: [0-9]+ PID: [0-9]+ Comm: (busybox|mount)' 'from the initramfs: a function of a module that is loaded after ours'
like "$early" 'ALARM #[0-9]+: execution of __x64_sys_chroot
ptwatch: CPU: [0-9]+ PID: 1 Comm: ' 'from the initramfs: what process 1 does before there is a /sbin/init'
like "$early" 'unloaded' 'from the initramfs: the module can be unloaded later'
like "$out" 'refused: watch=no_such_symbol_anywhere:8:w
ptwatch: watch=: there are 0 symbols called no_such_symbol_anywhere' 'an unknown symbol is refused, with its name'
like "$out" 'refused: watch=panic_timeout:4:q
ptwatch: watch=panic_timeout:4:q: .*MODE one of w, rw, x' 'an unknown mode is refused, with what is allowed'
like "$out" 'refused: watch=panic_timeout\+1:4:w
ptwatch: watch=panic_timeout\+1:4:w: refused \(error -22, PTWATCH_WHY_\* 4' 'a misaligned address is refused, with the reason'
unlike "$out" 'not loaded' 'four watches at load time'
like "$out" 'ALARM #[0-9]+: write 4 bytes at print_fatal_signals, old 0x0{8} new 0x0000004d' 'a kernel variable is written'
like "$out" 'ALARM #[0-9]+: execution of proc_dointvec' 'a kernel function is executed'
like "$out" 'ALARM #[0-9]+: access to 8 bytes at pokee:pokee_word\+8, old 0x0{16} new 0x0{14}55' 'a variable of a module that came later'
like "$out" 'ALARM #[0-9]+: write 8 bytes at pokee:pokee_percpu, old 0x0{16} new 0x0{14}66' 'a per-CPU variable of it, on CPU 0'
like "$out" 'ALARM #[0-9]+: write 8 bytes at pokee:pokee_percpu, old 0x0{16} new 0x0{14}67' 'and on CPU 1'
like "$out" 'Call Trace:
ptwatch:  pokee_percpu_store' 'with the stack'
is "$(grep -v ^early: "$scratch/out" | grep -c 'no watch sees writes by NMI')" 1 'the blind spots are named once'
like "$out" 'ALARM #[0-9]+: write 8 bytes at \+0x8 of the 32 at pokee:pokee_word, old 0x0{14}55 new 0x0{14}55' \
	'a watch of 32 bytes names the part that was hit'
like "$out" 'unloaded' 'the module can be unloaded while they are armed'
done_testing
