#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The stories, in the guest: the first one (latency), or the others. The programs lie beside this script; they run from
# /mnt, where the host finds them, too.
set -euo pipefail
cd /out
cp "${0%/*}/inferd" "${0%/*}/intruder" /mnt/
modprobe ledger

# Tail latency: one of 400 requests recomputes, in another an interrupt's softirq works for long.
if [[ $1 == latency ]]; then
	ptwatch record -o tail --ptw -- /mnt/inferd serve 400 100 150 2>tail.txt
	exit
fi

# Memory overwritten: a thread of the server that only keeps figures writes into the cache.
mkfifo /tmp/go
# On a CPU of its own: the host has no code of the other programs, and where they have run decoding goes on at the next PSB only.
taskset -c 0 /mnt/inferd lose <>/tmp/go >/tmp/pid &
pid=$!
while [[ ! -s /tmp/pid ]]; do sleep 0.1; done
taskset -c 1 ptwatch watch "/mnt/inferd!server+0x48@$pid:8:w" --freeze -k -u -o crime -- sh -c 'echo >/tmp/go; sleep 10' >crime.txt 2>&1 ||
	echo "status $?" >>crime.txt

# Evidence after the fact: somebody without rights uses the hole in /dev/ledger.
ptwatch record -k -a -o evidence -- /mnt/intruder >id.txt 2>evidence.txt

# No story: functions called and left in every way there is, while tracers of others have put their code into the kernel's.
mount -t tracefs none /sys/kernel/tracing 2>/dev/null || true
mount -t debugfs none /sys/kernel/debug 2>/dev/null || true
for program in unwinder thunk inline thrower; do cp "${0%/*}/$program" /mnt/; done
(
	cd /sys/kernel/tracing
	echo __x64_sys_kill >set_ftrace_filter
	echo function_graph >current_tracer
	mkdir instances/plain
	echo group_send_sig_info >instances/plain/set_ftrace_filter
	echo function >instances/plain/current_tracer
	echo "p:entry complete_signal" >kprobe_events
	echo "r:return kill_something_info" >>kprobe_events
	echo "p:inside do_send_sig_info+5" >>kprobe_events 2>/dev/null || echo "p:inside do_send_sig_info+9" >>kprobe_events
	echo 1 >events/kprobes/enable
	# A jump takes the place of the probe in the function when there is time for that.
	for ((i = 0; i < 100; i++)); do
		grep -q 'do_send_sig_info.*OPTIMIZED' /sys/kernel/debug/kprobes/list && break
		sleep 0.2
	done
	cat /sys/kernel/debug/kprobes/list >/out/jumps.txt
) 2>tracers.txt || echo "status $?" >>tracers.txt
for program in unwinder thunk inline thrower; do ptwatch record -o "$program-trace" -- "/mnt/$program" 30 2>"$program.txt"; done
# For stock perf, too, which wants one CPU and the kernel alone: with the jump, and with the breakpoint instead.
taskset -c 0 ptwatch record -k -C 1 -o jumps -- taskset -c 1 /mnt/unwinder 30 2>>unwinder.txt
echo 0 >/proc/sys/debug/kprobes-optimization
cat /sys/kernel/debug/kprobes/list >traps.txt
taskset -c 0 ptwatch record -k -C 1 -o traps -- taskset -c 1 /mnt/unwinder 30 2>>unwinder.txt
