#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The three stories, in the guest. The programs lie beside this script; they run from /mnt, where the host finds them, too.
set -euo pipefail
cd /out
cp "${0%/*}/inferd" "${0%/*}/intruder" /mnt/
modprobe ledger

# Tail latency: one of 400 requests recomputes, in another an interrupt's softirq works for long.
ptwatch record -o tail --ptw -- /mnt/inferd serve 400 300 150 2>tail.txt

# Memory overwritten: a thread of the server that only keeps figures writes into the cache.
mkfifo /tmp/go
/mnt/inferd lose <>/tmp/go >/tmp/pid &
pid=$!
while [[ ! -s /tmp/pid ]]; do sleep 0.1; done
ptwatch watch "/mnt/inferd!server+0x48@$pid:8:w" --freeze -k -u -o crime -- sh -c 'echo >/tmp/go; sleep 10' >crime.txt 2>&1 ||
	echo "status $?" >>crime.txt

# Evidence after the fact: somebody without rights uses the hole in /dev/ledger.
ptwatch record -k -a -o evidence -- /mnt/intruder >id.txt 2>evidence.txt
