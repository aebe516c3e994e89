#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs in the guest for forms.t: recordings of every kind, to /out. CPU 1 is the one that is compared with the truth;
# ptwatch, and what no decoder can follow, stays on CPU 0.
cp /put/pingpong /put/ptwrite /mnt/
cd /out || exit
modprobe -a pokee || exit

# record NAME ARGUMENT…: what it said, and its status, beside the recording
record() {
	local name=$1 status=0; shift
	timeout -k 5 100 taskset -c 0 ptwatch record -o "$name" "$@" >"$name.said" 2>&1 || status=$?
	echo "$status" >"$name.status"
}
pingpong=(-- /mnt/pingpong 1)

# With page table isolation CR3 does not tell user and kernel code of one process: its switches do.
record both "${pingpong[@]}"
record start-kernel -k -C 1 --start-at ksys_write --stop-at ksys_read "${pingpong[@]}"
record start-user -u -C 1 --start-at handle --stop-at spin "${pingpong[@]}"
record stop-in -u -C 1 --stop-in spin "${pingpong[@]}"
function=$(awk '$3 == "pokee_function" { print $1 }' /proc/kallsyms)
record filter-numbers -k -C 1 --filter "0x$function-0x${function%?}f" -- sh -c 'echo "exec 1 20" >/proc/pokee'
record filter-binary -u -C 1 --filter 'pingpong!spin' "${pingpong[@]}"
record filter-span -u -C 1 --filter 'spin - handle' "${pingpong[@]}"

# perf's own, between ours: it gets Intel PT back as it left it. To memory: perf records each switch of a CPU, and where writing them
# takes switches, a slow machine never comes to the end of it.
taskset -c 0 perf record -q -BN -e intel_pt//u -m 1M,1M -o /dev/shm/between.perf -- /mnt/pingpong 1 2>between.perf.said
echo $? >between.perf.status
cp /dev/shm/between.perf .

# A control group, and somebody else on the same CPU
mkdir /sys/fs/cgroup/traced
taskset -c 1 nice -n 19 sh -c "while :; do :; done" &
busy=$!
record cgroup -u --cgroup /sys/fs/cgroup/traced -- sh -c 'echo $$ >/sys/fs/cgroup/traced/cgroup.procs; exec /mnt/pingpong 1'
kill "$busy"

# A module that comes while it is recorded. The kernel's code of one process is told by CR3.
record module -k -- taskset -c 1 sh -c 'modprobe storer; echo "none 20" >/proc/storer'

# Controls. What is switched off is off in the packets, what is switched on is there, and the rest can be followed.
record ptw -u --ptw -- /mnt/ptwrite 8
record retc -u -C 1 --no-retc "${pingpong[@]}"
record power -k -C 1 --pwr-evt -- sleep 0.1
record cyc -u -C 1 --cyc --mtc 0 --psb 1 "${pingpong[@]}"
record untimed -u -C 1 --no-tsc --mtc off --psb 5 "${pingpong[@]}"
record events -u --event-trace -- /mnt/pingpong
record no-tnt -u --no-tnt -- /mnt/pingpong
record no-branch -u --no-branch --ptw -- /mnt/ptwrite 8

taskset -c 0 ptwatch snapshot --json -o ring -u -C 0 --for 1ms >ring.said 2>ring.errors
echo $? >ring.status

# Two sessions, and the second one where the first is
env --default-signal=INT ptwatch record -u -C 1 --filter 0x401000-0x402000 -o first 2>first.said &
first=$!
until grep -q Ctrl-C first.said; do sleep 0.1; done
record second --json -u -C 0 --for 1ms
record third -u -C 1 --for 1ms
kill -INT "$first"; wait "$first"
echo $? >first.status
