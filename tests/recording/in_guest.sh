#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs in the guest for record.t: the recordings that are compared with the truth, to /out. CPU 1 is the one that is
# recorded, and ptwatch stays on CPU 0; the program lies where the host shows it, too.
cp /put/pingpong /mnt/pingpong
cd /out || exit

# record NAME ARGUMENT…: what it said, and its status, beside the recording
record() {
	local name=$1 status=0; shift
	timeout -k 5 100 taskset -c 0 ptwatch record -o "$name" "$@" 2>"$name.said" || status=$?
	echo "$status" >"$name.status"
}

# What runs on CPU 1, whoever it is; for user code the only program there.
record user -u -C 1 -- /mnt/pingpong 1
record kernel -k -C 1 -- /mnt/pingpong 1
record both -C 1 -- /mnt/pingpong 1
record ring -C 1 --ring 8M -- /mnt/pingpong 1
# A 32-bit program, which calls the functions of its own vDSO
cp /put/vdso32 /mnt/vdso32
record vdso -u -C 1 -- /mnt/vdso32 1
# A BPF program that comes while it is recorded
record bpf -k -C 1 -- /put/filter 1
# The program, on whichever CPU
record alone -u -- /mnt/pingpong 1
record family -u --follow-fork -- /mnt/pingpong 1
record spin -u --follow-fork --filter spin -- /mnt/pingpong 1
# From the one function on, up to the other, five times
record between -u --start-at '/mnt/pingpong!handle' --stop-at '/mnt/pingpong!spin' -- /mnt/pingpong 1 1
