#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# `ptwatch record` with everything it can be told: where, when, whom, and the controls of a CPU that has them all, with page
# table isolation. What is decoded is what the emulator executed, and perf's own recordings beside ours decode, too.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
tap_cleanup rm -rf "$work"
mkdir "$work/out" "$work/truth" "$work/module"
cc -O1 -static -o "$work/out/pingpong" "$here/pingpong.c" || fail_all 'cannot build tests/recording/pingpong.c'
cc -O1 -static -o "$work/out/ptwrite" "$top/tests/emulator/guest/ptwrite.c" || fail_all 'cannot build ptwrite.c'

rc=0
"$top/tests/vm/run" --cpu alderlake-n --pti on --timeout 900 --put "$work/out/pingpong" --put "$work/out/ptwrite" \
	--put "$here/forms.sh" --out "$work/out" --truth "$work/truth" -- /put/forms.sh >"$work/run.log" 2>&1 || rc=$?
is "$rc" 0 'the guest does its part'
((rc == 0)) || diag "$(tail -n 15 "$work/run.log")"

# shellcheck source-path=SCRIPTDIR source=decode.sh
. "$here/decode.sh"
said() { cat "$work/out/$1.said"; }
status() { cat "$work/out/$1.status" 2>/dev/null || true; }

# ---- all that CPU 1 executed while it was traced, one recording after the other

: >"$work/all"
for name in both start-kernel start-user stop-in filter-numbers filter-binary filter-span between.perf cgroup module retc power \
	cyc untimed first; do
	is "$(status "$name")" 0 "$name: recorded"
	[[ $(status "$name") == 0 ]] || diag "$(said "$name")"
	rc=0
	in_mount "$top/build/ptwatch" insns -i "$name" -C 1 --all --format ip >"$work/ips" 2>"$work/errors" || rc=$?
	is "$rc" 0 "$name: decodes without error or gap"
	((rc == 0)) || diag "$(head -n 3 "$work/errors")"
	fields=ip
	[[ $name != module ]] || fields=ip,sym
	in_root perf script -f -i "/mnt/$name" -C 1 --itrace=i0ns -F "$fields" 2>"$work/errors" | tee "$work/named" |
		awk '{ printf "%016s\n", $1 }' | sed 's/ /0/g' >"$work/perf" || true
	[[ $name != module ]] || cp "$work/named" "$work/perf" "$work/module/"
	# perf wants times. And it does not know that a MOV CR3 ends a trace by the CR3 filter: see below.
	[[ $name == untimed || $name == module ]] ||
		is "$(cmp "$work/ips" "$work/perf" 2>&1 || true)" '' "$name: stock perf prints the same $(wc -l <"$work/ips") instructions"
	cat "$work/ips" >>"$work/all"
	cp "$work/ips" "$work/ips.$name"
done
is "$(python3 "$top/tests/lib/same_instructions.py" "$work/truth/cpu1.ips" "$work/all")" equal \
	'all of them, one after the other, are what CPU 1 executed'

# ---- where and when

address() { nm "$work/out/pingpong" | awk -v name="$1" '$3 == name { print $1 }'; }
# times NAME ADDRESS: how often it was executed
times() { grep -c "^$2" "$work/ips.$1" || true; }
spin=$(address spin) handle=$(address handle)
# 12 rounds in each process, and 5 in the program that is executed anew.
is "$(times filter-binary "$spin")" 29 "--filter 'binary!sym': each call of the function"
is "$(times filter-binary "$handle")" 0 'and not its caller'
is "$(times filter-span "$spin") $(times filter-span "$handle")" '29 29' "--filter 'sym1 - sym2': both functions"
# The parent's calls alone, as a process has places of its own.
is "$(times start-user "$handle") $(times start-user "$spin")" '12 0' '--start-at, --stop-at in a program: from the one to the other'
unlike "$(cut -c1-4 "$work/ips.start-user" | sort -u)" '^ffff' 'and no kernel'
ok '--start-at, --stop-at in the kernel: a trace' test -s "$work/ips.start-kernel"
is "$(times stop-in "$spin")" 0 '--stop-in: nothing of the range is executed in the trace'
is "$(times cgroup "$spin")" 29 '--cgroup: all that the processes in it did'
is "$(in_root perf script -f -i /mnt/cgroup -C 1 --itrace=i0ns -F comm 2>/dev/null | sort -u | tr -d ' ' | grep -vxE 'pingpong|exe|sh' || true)" \
	'' 'and nobody else'

# perf goes on behind such a MOV CR3 to the next branch that it asks a packet for, and takes TIP.PGD for that one's: what it has
# more than the truth is there, and all else is the same.
in_mount "$top/build/ptwatch" insns -i module -C 1 --all --no-time 2>/dev/null | awk '/mov .*, %cr3$/ { print $3 }' | sort -u >"$work/cr3"
diff "$work/ips.module" "$work/module/perf" >"$work/more" || true
is "$(grep -vE '^> |^[0-9]+a[0-9,]+$' "$work/more" | head -n 3)" '' \
	"module: stock perf prints the same $(wc -l <"$work/ips.module") instructions in their order, and more"
ok 'but only where a MOV CR3 ended the trace' test "$(grep -c '^[0-9]' "$work/more")" -le "$(grep -cFf "$work/cr3" "$work/ips.module")"
store=$(awk '$3 == "storer_store" { print $1 }' "$work/out/module/kcore_dir/kallsyms")
is "$(times module "$store")" 20 'a module that was loaded meanwhile: each call of its function'
is "$(grep -c "^ *$store storer_store" "$work/module/named" || true)" 20 'and perf names it'

# ---- controls

packets() { { in_mount "$top/build/ptwatch" packets -i "$1" -C "${2:-1}" 2>/dev/null || true; } | awk '{ print $3 }' | sort | uniq -c; }
# count NAME PACKET [CPU]: how many there are
count() { packets "$1" "${3:-1}" | awk -v kind="$2" '$2 ~ "^" kind { n += $1 } END { print n + 0 }'; }
in_mount "$top/build/ptwatch" packets -i ptw -C 0 >"$work/packets" || true
is "$(grep -c ' PTW' "$work/packets")" 8 '--ptw: a packet for each PTWRITE'
is "$(grep -A1 ' PTW' "$work/packets" | grep -c ' FUP')" 8 'with its address behind it'
ok '--no-retc: more TIP packets than with it' test "$(count retc 'TIP$')" -gt "$(count cyc 'TIP$')"
# libipt knows these packets from 2.1 on.
ok '--event-trace: events' test "$(in_root perf script -f -i /mnt/events -D 2>/dev/null | grep -c ' CFE ' || true)" -gt 0
ok '--pwr-evt: power states' test "$(count power PWRE)" -gt 0 -a "$(count power EXSTOP)" -gt 0
ok '--cyc: cycle counts' test "$(count cyc CYC)" -gt 10
is "$(count untimed CYC) $(count untimed MTC) $(count untimed TSC)" '0 0 0' '--no-tsc --mtc off: no times'
is "$(count no-tnt TNT 0)" 0 '--no-tnt: no conditional branches'
ok 'but all else' test "$(count no-tnt TIP 0)" -gt 10
is "$(count no-branch TNT 0) $(count no-branch TIP 0)" '0 0' '--no-branch: no branches'
is "$(count no-branch PTW 0)" 8 'but PTWRITE'
for name in events no-tnt no-branch second ring; do is "$(status $name)" 0 "$name: recorded"; done

# ---- what --json tells

for name in second ring; do
	bytes=$(said "$name" | sed -n 's/.*"bytes":\([0-9]*\),.*/\1/p')
	is "$(said "$name" | grep '^{')" \
		"{\"recording\":\"$name\",\"cpus\":1,\"bytes\":$bytes,\"lost\":0,\"gaps\":0,\"switches_lost\":0}" "$name: --json"
	# They are written in multiples of 8.
	is "$({ in_mount "$top/build/ptwatch" stat -i "$name" --json 2>/dev/null || true; } | sed -n 's/.*"type":"trace",.*"bytes":\([0-9]*\),.*/\1/p')" \
		$(((bytes + 7) / 8 * 8)) "$name: so many bytes are there"
done

# ---- who has the CPU

is "$(status third)" 1 'a CPU that another session records: status 1'
like "$(said third)" 'Intel PT of CPU 1 is in use by another ptwatch session: [^ ]+ \(pid [0-9]+\); end it and try again' 'and who has it'
if [[ -n ${PTWATCH_KEEP_LOGS:-} ]]; then cp -r "$work" "$PTWATCH_KEEP_LOGS/forms"; fi
done_testing
