#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# On the kernel that looks for faults: all that the module is asked to do, by the
# device tests and by the demo, then its end. The kernel may not complain. Before
# that, that it does complain, and that we see it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$here/../../lib/tap.sh"
[[ ${PTWATCH_TEST_DEBUG:-} == 1 ]] ||
	skip_all 'takes minutes, and a quarter of an hour to build a kernel once; run make check-debug'
# shellcheck source-path=SCRIPTDIR source=../../guest/lib.sh
. "$here/../../guest/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../common.sh
. "$here/../common.sh"

run=$here/../run
cd "$guest_scratch"

# kmemleak believes memory of the last seconds to be on its way: two scans.
cat >leaks.sh <<'END_OF_SCRIPT'
#!/bin/bash
# Runs in the guest: what kmemleak finds, to /out/leaks.
for _ in 1 2; do
	sleep 8
	echo scan >/sys/kernel/debug/kmemleak || exit
done
cat /sys/kernel/debug/kmemleak >/out/leaks
END_OF_SCRIPT

# ---- it does complain

kinds=(rcu sleep cpu shift index timer list leak locks freed)
cat >misdeeds.sh <<'END_OF_SCRIPT'
#!/bin/bash
# Runs in the guest: each misdeed and what it brings into the kernel's log.
modprobe misdeed || exit
for kind; do
	dmesg --clear
	echo "$kind" >/proc/misdeed || exit
	[[ $kind != leak ]] || /put/leaks.sh
	dmesg >"/out/$kind"
done
END_OF_SCRIPT
chmod 755 leaks.sh misdeeds.sh

rc=0
"$run" --kernel debug --no-pt --no-load --timeout 900 --out misdeeds --put misdeeds.sh --put leaks.sh \
	-- /put/misdeeds.sh "${kinds[@]}" 2>stderr || rc=$?
is "$rc" 0 'a guest with the debug kernel comes up and survives misdeeds'
((rc == 0)) || diag "$(tail -n 20 stderr)"
like "$(cat stderr)" "run: the guest's kernel complained: .*\(.* reports\)" 'run tells that the kernel complained'
# reported KIND REGEX: the first complaint about a misdeed is this one.
reported() { like "$(complaints "misdeeds/$1" | head -n 1)" "$2" "the kernel reports, and we recognise: $1"; }
reported rcu 'suspicious RCU usage'
reported sleep 'sleeping function called from invalid context'
reported cpu 'using smp_processor_id\(\) in preemptible'
reported shift 'UBSAN: shift-out-of-bounds'
reported index 'UBSAN: array-index-out-of-bounds'
reported timer 'ODEBUG: free active'
reported list 'list_add|WARNING'
reported leak 'kmemleak: [0-9]+ new suspected memory leak'
reported locks 'possible circular locking dependency'
reported freed 'KASAN: slab-use-after-free'
like "$(cat misdeeds/leaks || true)" 'unreferenced object .*no_leak' 'kmemleak names the function that lost its memory'

# ---- it does not complain about us

cat >all.sh <<'END_OF_SCRIPT'
#!/bin/bash
# Runs in the guest: everything with ptwatch that there is to do, then its end.
# What the kernel itself lost at boot is not the subject.
echo clear >/sys/kernel/debug/kmemleak
insmod /ptwatch/ptwatch.ko || exit

modprobe -a pokee msr || exit
device() { "$@" >>/out/tap || echo "$*" >>/out/failed; }
# It expects the first alarm of all.
device /put/alarm_json.py

mkdir -p /out/scene
/put/first-light.sh >/out/scene/output 2>&1
echo $? >/out/scene/status
# What waits for this module loads it itself.
rmmod kvdemo || exit

# shellcheck disable=SC2046 # words
device /put/device $(/put/device --list | grep -vx lockdown)

# A recording, and all that it does with the module, by the program
cd /tmp || exit
for how in '-a' '-a --ring 1M' '-u --follow-fork' '-a --start-at ksys_write --stop-at ksys_read'; do
	# shellcheck disable=SC2086 # words
	ptwatch record $how -o recording -- sh -c 'for i in 1 2 3; do /bin/true; done' 2>said
	status=$?
	cat said >>/out/recorded
	# This kernel is so slow that who reads the stream may not keep up, and says so: no fault.
	[[ $status == 0 || ($status == 3 && $(<said) == *'bytes of trace were lost in '*) ]] || echo "record $how: $status" >>/out/failed
done

rmmod pokee && rmmod ptwatch || exit
/put/leaks.sh || exit

# Lockdown takes kmemleak away, and there is no way back.
insmod /ptwatch/ptwatch.ko && modprobe pokee || exit
device /put/device lockdown
rmmod pokee && rmmod ptwatch
END_OF_SCRIPT
chmod 755 all.sh

ok 'the test program builds' build_device
rc=0
"$run" --kernel debug --no-load --timeout 3000 --out all --put all.sh --put leaks.sh --put "$guest_build/device" \
	--put "$guest_dir/alarm_json.py" --put "$here/../scene/first-light.sh" \
	-- /put/all.sh 2>stderr || rc=$?
is "$rc" 0 'ptwatch is loaded, used and unloaded'
((rc == 0)) || diag "$(tail -n 20 stderr)"
: >>all/tap
relay_tap all/tap 'device: '
is "$(cat all/failed 2>/dev/null || true)" '' 'all parts of the device tests end well'
is "$(cat all/scene/status || true)" 0 'the demo ends well'
like "$(cat all/scene/output || true)" 'ALARM #[0-9]+  write 8 bytes at kv_cache_meta' 'and has its alarm'
is "$(cat all/leaks || true)" '' 'no memory is lost'
is "$(complaints all/console.log)" '' 'the kernel has nothing to complain about'
ok 'the log is that of a debug kernel' grep -q 'Lock dependency validator' all/console.log
if [[ -n ${PTWATCH_KEEP_LOGS:-} ]]; then cp -r misdeeds all "$PTWATCH_KEEP_LOGS/"; fi
done_testing
