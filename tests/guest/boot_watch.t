#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# insmod ptwatch.ko watch=…: no program of ours runs in the guest, only insmod and what hits.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"

cat >"$scratch/boot" <<'END'
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
END
rc=0
"$(dirname "$0")/../vm/run" --no-load --no-pt --put "$scratch/boot" -- bash /put/boot >"$scratch/out" 2>"$scratch/err" || rc=$?
out=$(<"$scratch/out")
is "$rc" 0 'exit status of the guest'
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
is "$(grep -c 'no watch sees writes by NMI' "$scratch/out")" 1 'the blind spots are named once'
like "$out" 'unloaded' 'the module can be unloaded while they are armed'
done_testing
