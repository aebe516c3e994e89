#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# All CPUs are traced when another kernel takes over: Intel PT is off before it runs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"
mkdir "$scratch/root" "$scratch/root/dev"
cc -O1 -static -o "$scratch/kexec" "$here/kexec/kexec.c" || fail_all 'cannot build tests/guest/kexec/kexec.c'
cp "$scratch/kexec" "$scratch/root/init"
mknod "$scratch/root/dev/console" c 5 1
(cd "$scratch/root" && find . -print0 | cpio -0 -o -H newc --quiet -R 0:0) >"$scratch/initrd"
"$here/../vm/cache" prepare kernel-6.12
cp "$("$here/../vm/cache" path kernel-6.12)/vmlinuz" "$scratch/vmlinuz"

cat >"$scratch/go_over" <<'END_OF_SCRIPT'
cat /proc/kallsyms >/out/kallsyms
# Before, as a hash of all of it is made, which would be a long trace.
/put/kexec /put/vmlinuz /put/initrd || exit
ptwatch record -a -k --ring 1M -o /tmp/rec --for 10m 2>/tmp/recording &
until grep -q Ctrl-C /tmp/recording; do sleep 0.1; done
echo traced
/put/kexec
echo "still there: $?"
END_OF_SCRIPT
rc=0
# The second kernel's end is QEMU's.
"$here/../vm/run" --timeout 200 --put "$scratch/go_over" --put "$scratch/kexec" --put "$scratch/vmlinuz" --put "$scratch/initrd" \
	--out "$scratch/out" --truth "$scratch/truth" -- bash /put/go_over >"$scratch/stdout" 2>"$scratch/stderr" || rc=$?
is "$rc $(<"$scratch/stdout")" '125 traced' 'the guest is gone, in the middle of a recording'
log=$(tr -d '\r' <"$scratch/out/console.log")
like "$log" 'kexec_core: Starting new kernel(.|
)*Linux version(.|
)*the next kernel is here' 'another kernel came up in its place'
for cpu in 0 1; do
	is "$(python3 "$here/where_it_ended.py" "$scratch/truth/cpu$cpu.ips" "$scratch/out/kallsyms")" 'switched off' \
		"cpu $cpu: Intel PT was switched off before, and stayed off"
done
done_testing
