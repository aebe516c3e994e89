#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# make demo shows what it promises, and what it shows is what the guest's CPUs executed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/tap.sh"
needs_guest
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

plan 19

work=$(mktemp -d)
tap_cleanup rm -rf "$work"
mkdir "$work/truth"

rc=0
tests/vm/demo --out "$work/out" --truth "$work/truth" >"$work/stdout" 2>"$work/stderr" || rc=$?
is "$rc" 0 'the demo ends with status 0'
((rc == 0)) || diag "$(tail -n 20 "$work/stderr")"
said=$(<"$work/stdout")

address=$(awk '$3 == "kv_cache_meta" { print $1 }' "$work/out/crime/kcore_dir/kallsyms")
like "$said" "ALARM #1  write 8 bytes at kv_cache_meta\+0x0 \(0x$address\)  cpu [01]  pid [0-9]+ \(health_check\)" \
	'the alarm names address, CPU and thread'
like "$said" 'old 0x5a5a000000000010  new 0x5a5a0000deadbeef' 'it shows the value before and after'
like "$said" 'stack: kv_note_result\+0x[0-9a-f]+ \[kvdemo\] +finish_check\+0x[0-9a-f]+ \[kvdemo\] +health_tick\+0x[0-9a-f]+ \[kvdemo\]' \
	'the stack begins at the store'
like "$said" 'trace: [0-9,]+ bytes frozen on cpu [01], [0-9]+ instructions after the write' 'it tells what was frozen'
like "$said" 'walk_buckets\+0x0 \[kvdemo\] <- health_tick' 'calls show the loop before'
like "$said" 'check_[a-z]+\+0x0 \[kvdemo\] <- walk_buckets' 'calls show the indirect calls'
like "$said" 'kv_note_result\+0x0 \[kvdemo\] <- finish_check' 'calls show the culprit'
like "$said" 'make install modules_install' 'it says how to do the same on real hardware'

last_insn=$(grep -E '^ +[0-9.]+ +[01] +([0-9]+|-) [0-9a-f]{16} ' "$work/stdout" | tail -n 1)
like "$last_insn" 'kv_note_result\+0x[0-9a-f]+ \[kvdemo\] +mov .*<-- ALARM #1 write kv_cache_meta\+0x0' \
	'the last instruction shown is the store'

# The kernel's own log tells the same, without userspace.
like "$(<"$work/out/console.log")" 'ptwatch: ALARM #1: write 8 bytes at kv_cache_meta\+0x0, old 0x5a5a000000000010 new 0x5a5a0000deadbeef' \
	'the kernel log has the alarm'
like "$(<"$work/out/console.log")" 'ptwatch:  kv_note_result\+0x[0-9a-f]+/0x[0-9a-f]+ \[kvdemo\]' 'the kernel log has the stack'
unlike "$(<"$work/out/console.log")" 'BUG:|WARNING:|Oops|unchecked MSR' 'the kernel has nothing to complain about'

alarm=$(<"$work/out/crime/alarms.jsonl")
is "$(python3 -c 'import json, sys; a = json.loads(sys.argv[1]); print(a["seq"], a["comm"], a["address"], a["len"], a["old"], a["new"])' "$alarm")" \
	"1 health_check 0x$address 8 0x5a5a000000000010 0x5a5a0000deadbeef" 'alarms.jsonl has the alarm'

# Every instruction of both CPUs, in order.
for cpu in 0 1; do
	rc=0
	build/ptwatch insns -i "$work/out/crime" -C "$cpu" --all --format ip >"$work/decoded" 2>"$work/errors" || rc=$?
	is "$rc" 0 "cpu $cpu: the trace decodes without error or gap"
	is "$(python3 tests/lib/same_instructions.py "$work/truth/cpu$cpu.ips" "$work/decoded")" 'equal' \
		"cpu $cpu: decoded is what was executed"
done
is "$(build/ptwatch insns -i "$work/out/crime" -C 0 --all --count)" \
	"$(build/ptwatch insns -i "$work/out/crime" -C 0 --all --format ip | wc -l)" '--count counts what --format ip prints'
