#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# watch --panic: a hit takes the machine down, with its alarm in the log and Intel PT switched off on the CPU it came from.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"

cat >"$scratch/take_down" <<'END'
modprobe pokee
cat /proc/kallsyms >/out/kallsyms
# The CPU that is to panic is traced.
ptwatch record -C 1 -k --ring 1M -o /tmp/rec --for 10m 2>/tmp/recording &
until grep -q Ctrl-C /tmp/recording; do sleep 0.1; done
ptwatch watch pokee_word:8:w --if 'new == 0x77' --panic 2>/tmp/armed &
until grep -q ^armed: /tmp/armed; do sleep 0.1; done
taskset -c 1 sh -c 'echo store 1 1 0x76 >/proc/pokee'
sleep 1
echo survived
taskset -c 1 sh -c 'echo store 1 1 0x77 >/proc/pokee'
sleep 60
echo 'still there'
END
rc=0
# A reboot ends QEMU.
"$(dirname "$0")/../vm/run" --timeout 200 --append panic=1 --put "$scratch/take_down" --out "$scratch/out" --truth "$scratch/truth" \
	-- bash /put/take_down >"$scratch/stdout" 2>"$scratch/stderr" || rc=$?
is "$rc" 125 'the guest died'
is "$(<"$scratch/stdout")" survived 'but not of a hit whose condition is false'
log=$(tr -d '\r' <"$scratch/out/console.log")
like "$log" 'ptwatch: ALARM #1: write 8 bytes at pokee_word\+0x0, old 0x0{14}76 new 0x0{14}77' 'the alarm is in the log'
like "$log" 'Call Trace:
[^
]*pokee_store\+' 'with its stack'
like "$log" 'Kernel panic - not syncing: ptwatch: ALARM #1 of watch [0-9]+ \(pokee_word\+0x0\)' 'and is what the machine died of'

# Where tracing ended on the CPU of the hit: after both stores, where it was switched off, and not where the CPU was halted.
is "$(python3 "$(dirname "$0")/where_it_ended.py" "$scratch/truth/cpu1.ips" "$scratch/out/kallsyms" pokee_store)" \
	'pokee_store entered 2 times, switched off' 'Intel PT was switched off on the CPU of the hit'
done_testing
