#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# /dev/ptwatch on a CPU with the least of Intel PT: Broadwell's ToPA has one entry, and its VMX excludes Intel PT. And where the
# kernel has no core PMU.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
ok 'the test program builds' build_device
rc=0
mkdir "$guest_scratch/out"
"$guest_dir/../vm/run" --cpu broadwell --timeout 300 --append oops=panic --out "$guest_scratch/out" --put "$guest_build/device" \
	--put "$guest_dir/vmx.sh" -- sh -c 'modprobe -a pokee msr && /put/device single && /put/vmx.sh' >"$guest_scratch/tap" || rc=$?
relay_tap "$guest_scratch/tap" ''
is "$rc" 0 'exit status of the guest'
said() { cat "$guest_scratch/out/$1.said" "$guest_scratch/out/$1.status"; }
is "$(said refused)" $'ptwatch record: this CPU cannot trace while VMX is on; stop virtual machines and `modprobe -r kvm_intel`\n4' \
	'a CPU in VMX operation, which excludes Intel PT: refused, and why'
like "$(said ended)" 'CPU 1 ended its trace because a virtual machine was started; what it wrote before is kept' \
	'VMXON amid a session: it says so, and keeps what there was'
like "$(said again)" '0$' 'when VMX is off, it goes on'
is "$(grep -v 'ptwatch: ' "$guest_scratch/out/console.log" | grep -aE "$bad_log" | head -n 5)" '' 'the kernel has nothing to complain about'

# A kernel without a driver for the core PMU: nobody else unmasks the interrupt that a stream's buffer is full. It has room for
# a buffer of more than a gigabyte, too.
mkdir "$guest_scratch/no-pmu"
cat >"$guest_scratch/no_pmu.sh" <<'END'
ls /sys/bus/event_source/devices >/out/pmus
ptwatch record -C 1 -k --ring 1100M -o /tmp/big -- taskset -c 1 sh -c 'echo here' >/out/big 2>&1
echo "recorded $?" >>/out/big
ptwatch stat -i /tmp/big >/dev/null 2>>/out/big
echo "decoded $?" >>/out/big
modprobe -a pokee msr && /put/device stream
END
rc=0
"$guest_dir/../vm/run" --mem 6G --timeout 300 --append 'oops=panic clearcpuid=arch_perfmon' --out "$guest_scratch/no-pmu" \
	--put "$guest_build/device" --put "$guest_scratch/no_pmu.sh" -- sh /put/no_pmu.sh >"$guest_scratch/no-pmu/tap" || rc=$?
# Between them it may have told how far it is.
like "$(<"$guest_scratch/no-pmu/big")" '^here
(.*
)*ptwatch record: [0-9,]+ bytes of trace of 1 CPU in /tmp/big
recorded 0
decoded 0$' 'a ring of 1,100 MiB for one CPU'
unlike "$(tr '\n' ' ' <"$guest_scratch/no-pmu/pmus")" '(^| )cpu ' 'there is no core PMU'
relay_tap "$guest_scratch/no-pmu/tap" 'no core PMU: '
is "$rc" 0 'no core PMU: exit status of the guest'
is "$(grep -v 'ptwatch: ' "$guest_scratch/no-pmu/console.log" | grep -aE "$bad_log" | head -n 5)" '' 'no core PMU: the kernel has nothing to complain about'
done_testing
