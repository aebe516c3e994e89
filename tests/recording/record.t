#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What `ptwatch record` wrote in the guest: stock perf prints the same instructions in the same order as `ptwatch
# insns`, and both are what the emulator executed; of user code, of the kernel and of both, with switches between
# processes, of one process and of its family, and of one function.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
tap_cleanup rm -rf "$work"
mkdir "$work/out" "$work/truth"
for program in pingpong filter; do
	cc -O1 -static -o "$work/out/$program" "$here/$program.c" || fail_all "cannot build tests/recording/$program.c"
done
cc -m32 -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie -o "$work/out/vdso32" "$here/vdso32.c" ||
	fail_all 'cannot build tests/recording/vdso32.c'

rc=0
"$top/tests/vm/run" --timeout 500 --put "$work/out/pingpong" --put "$work/out/filter" --put "$work/out/vdso32" \
	--put "$here/in_guest.sh" --out "$work/out" --truth "$work/truth" -- /put/in_guest.sh >"$work/run.log" 2>&1 || rc=$?
is "$rc" 0 'the guest does its part'
((rc == 0)) || diag "$(tail -n 15 "$work/run.log")"

# shellcheck source-path=SCRIPTDIR source=decode.sh
. "$here/decode.sh"

: >"$work/all.0"; : >"$work/all.1"
for name in user kernel both ring vdso bpf alone family spin between; do
	is "$(cat "$work/out/$name.status" || true)" 0 "$name: recorded"
	diag "$name: $(grep 'bytes of trace' "$work/out/$name.said" || cat "$work/out/$name.said")"
	for cpu in 0 1; do
		[[ $cpu == 1 || $name =~ ^(alone|family|spin|between)$ ]] || continue
		rc=0
		in_mount "$top/build/ptwatch" insns -i "$name" -C "$cpu" --all --format ip >"$work/ips" 2>"$work/errors" || rc=$?
		# A CPU on which none of it ran has no trace; only the programs that wait for each other are bound to one.
		[[ -s $work/ips || ($cpu == 1 && $name != between) ]] || rc=0
		is "$rc" 0 "$name: cpu $cpu decodes without error or gap"
		((rc == 0)) || diag "$(head -n 3 "$work/errors")"
		cat "$work/ips" >>"$work/all.$cpu"
		# For a 32-bit vDSO perf asks its helper perf-read-vdso32, which Debian does not have.
		[[ ! $name =~ ^(bpf|vdso)$ ]] || continue
		in_root perf script -f -i "/mnt/$name" -C "$cpu" --itrace=i0ns -F ip 2>"$work/errors" |
			awk '{ printf "%016s\n", $1 }' | sed 's/ /0/g' >"$work/perf" || true
		is "$(cmp "$work/ips" "$work/perf" 2>&1 || true)" '' \
			"$name: cpu $cpu: stock perf prints the same $(wc -l <"$work/ips") instructions"
	done
	[[ ! $name =~ ^(bpf|vdso)$ ]] || continue
	is "$(in_root perf script -f -i "/mnt/$name" --itrace=e 2>/dev/null || true)" '' "$name: perf reports no error"
done
for cpu in 0 1; do
	is "$(python3 "$top/tests/lib/same_instructions.py" "$work/truth/cpu$cpu.ips" "$work/all.$cpu")" equal \
		"cpu $cpu: all of them, one after the other, are what was executed"
done

# That the vDSO's code is among them, in all its three ways: each of the 20 rounds ends with a system call out of it.
vdso=$(in_root perf script -f -i /mnt/vdso --no-itrace --show-mmap-events 2>/dev/null |
	sed -n 's/^ *vdso32 .*PERF_RECORD_MMAP2.* \[\(0x[0-9a-f]*\)(\(0x[0-9a-f]*\)) .*\[vdso\]$/\1 \2/p' | tail -n 1)
read -r start size <<<"$vdso"
like "$(in_mount "$top/build/ptwatch" insns -i vdso -C 1 --all --format ip | awk -v a="$(printf %016x "$((start))")" \
	-v b="$(printf %016x "$((start + size))")" '$1 >= a && $1 < b { n++ } END { print n }')" '^[1-9][0-9]{2,}$' 'code of the 32-bit vDSO ran'

# What perf can't follow, as it asks for the program when it has ended: five packets went through it.
is "$(in_mount "$top/build/ptwatch" insns -i bpf -C 1 --all --no-time | grep -c ' bpf_prog_[0-9a-f]*_ptw_filter+0x0 ')" 5 \
	'the instructions of a BPF program that came later, and its name'

# ---- calls

# same_calls NAME [--order]
same_calls() {
	in_root perf script -f -i "/mnt/$1" -C 1 --itrace=cr -F tid,flags,ip,addr >"$work/perf" 2>/dev/null || true
	in_mount "$top/build/ptwatch" calls -i "$1" -C 1 --all --json >"$work/calls" 2>/dev/null || true
	python3 "$top/tests/lib/same_calls.py" "$work/perf" "$work/calls" "${@:2}" || true
}

like "$(same_calls user)" '^[1-9][0-9]* calls, [1-9][0-9]* returns$' 'user: the calls and returns that perf pairs'
like "$(same_calls kernel --order)" '^[1-9][0-9]{3,} of [0-9]+ calls$' 'kernel: the calls that perf tells, in their order'

# ---- the records beside the trace

events() { in_root perf script -f -i "/mnt/$1" --no-itrace "${@:2}" 2>/dev/null || true; }
is "$(events both --show-task-events --show-mmap-events | grep -cE 'PERF_RECORD_COMM exec: (pingpong|exe):')" 2 \
	'both executions are told'
like "$(events both --show-mmap-events)" 'PERF_RECORD_MMAP2 .*r-xp /mnt/pingpong' 'its mapping is told'
ok 'each way between the two processes is told' test "$(events both --show-switch-events |
	grep -cE 'pingpong .*PERF_RECORD_SWITCH_CPU_WIDE OUT')" -ge 24
# Of user code the trace shows no switch.
for name in alone family; do
	events "$name" --show-switch-events --ns >"$work/perf"
	in_mount "$top/build/ptwatch" stat -i "$name" --json >"$work/stat" 2>/dev/null || true
	like "$(python3 "$top/tests/lib/same_switches.py" "$work/perf" "$work/stat" || true)" \
		'^[1-9][0-9]* threads, [1-9][0-9]* times switched in$' "$name: stat's switches and times on a CPU are those of the records"
done
# Where tracing begins, a function is entered.
is "$(in_mount "$top/build/ptwatch" latency -i between --from handle --to spin 2>/dev/null | head -n 1)" 'handle → spin: 5 pairs' \
	'between: each round from the function that begins tracing to the one that stops it'
unlike "$(events both --show-switch-events --show-lost-events)" 'LOST' 'no record was lost'
if [[ -n ${PTWATCH_KEEP_LOGS:-} ]]; then cp -r "$work" "$PTWATCH_KEEP_LOGS/record"; fi
done_testing
