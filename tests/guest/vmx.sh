#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs in the guest for cpus.t, on a CPU whose VMX excludes Intel PT: CPU 1 goes into VMX operation, as the emulator has it.
cd /out || exit

# vmx 0|1: CPU 1 leaves it, enters it
vmx() {
	taskset -c 1 python3 -c 'import os, struct, sys
os.pwrite(os.open("/dev/cpu/1/msr", os.O_WRONLY), struct.pack("<Q", int(sys.argv[1])), 0x4fff0004)' "$1"
}

vmx 1
taskset -c 0 ptwatch record -u -C 1 --ring 64k --for 1ms -o refused >refused.said 2>&1
echo $? >refused.status
vmx 0

# Amid a session
env --default-signal=INT taskset -c 0 ptwatch record -u -C 1 --ring 64k -o ended >ended.said 2>&1 &
record=$!
until grep -q Ctrl-C ended.said; do sleep 0.1; done
vmx 1
kill -INT "$record"
wait "$record"
echo $? >ended.status
vmx 0

taskset -c 0 ptwatch record -u -C 1 --ring 64k --for 1ms -o again >again.said 2>&1
echo $? >again.status
