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
cc -O1 -static -o "$work/out/pingpong" "$here/pingpong.c" || fail_all 'cannot build tests/recording/pingpong.c'

rc=0
"$top/tests/vm/run" --timeout 500 --put "$work/out/pingpong" --put "$here/in_guest.sh" --out "$work/out" \
	--truth "$work/truth" -- /put/in_guest.sh >"$work/run.log" 2>&1 || rc=$?
is "$rc" 0 'the guest does its part'
((rc == 0)) || diag "$(tail -n 15 "$work/run.log")"

# Decoded here, where it is fast: the program is where the guest had it, and perf is the guest's.
root=$("$top/tests/vm/cache" path root)
# shellcheck disable=SC2016 # the inner shells expand them
in_mount() {
	unshare -m sh -c 'mount --bind "$1" /mnt && shift && cd /mnt && exec "$@"' sh "$work/out" "$@"
}
# shellcheck disable=SC2016
in_root() {
	unshare -m sh -c 'mount --bind "$1" "$2/mnt" && mount -t proc proc "$2/proc" && root=$2 && shift 2 &&
		exec chroot "$root" "$@"' sh "$work/out" "$root" "$@"
}

: >"$work/all.0"; : >"$work/all.1"
for name in user kernel both ring alone family spin; do
	is "$(cat "$work/out/$name.status" || true)" 0 "$name: recorded"
	diag "$name: $(grep 'bytes of trace' "$work/out/$name.said" || cat "$work/out/$name.said")"
	for cpu in 0 1; do
		[[ $cpu == 1 || $name =~ ^(alone|family|spin)$ ]] || continue
		rc=0
		in_mount "$top/build/ptwatch" insns -i "$name" -C "$cpu" --all --format ip >"$work/ips" 2>"$work/errors" || rc=$?
		# A CPU on which none of it ran has no trace.
		[[ -s $work/ips || $cpu == 1 ]] || rc=0
		is "$rc" 0 "$name: cpu $cpu decodes without error or gap"
		((rc == 0)) || diag "$(head -n 3 "$work/errors")"
		in_root perf script -f -i "/mnt/$name" -C "$cpu" --itrace=i0ns -F ip 2>"$work/errors" |
			awk '{ printf "%016s\n", $1 }' | sed 's/ /0/g' >"$work/perf" || true
		is "$(cmp "$work/ips" "$work/perf" 2>&1 || true)" '' \
			"$name: cpu $cpu: stock perf prints the same $(wc -l <"$work/ips") instructions"
		cat "$work/ips" >>"$work/all.$cpu"
	done
	is "$(in_root perf script -f -i "/mnt/$name" --itrace=e 2>/dev/null || true)" '' "$name: perf reports no error"
done
for cpu in 0 1; do
	is "$(python3 "$top/tests/lib/same_instructions.py" "$work/truth/cpu$cpu.ips" "$work/all.$cpu")" equal \
		"cpu $cpu: all of them, one after the other, are what was executed"
done

# ---- the records beside the trace

events() { in_root perf script -f -i "/mnt/$1" --no-itrace "${@:2}" 2>/dev/null || true; }
is "$(events both --show-task-events --show-mmap-events | grep -cE 'PERF_RECORD_COMM exec: (pingpong|exe):')" 2 \
	'both executions are told'
like "$(events both --show-mmap-events)" 'PERF_RECORD_MMAP2 .*r-xp /mnt/pingpong' 'its mapping is told'
ok 'each way between the two processes is told' test "$(events both --show-switch-events |
	grep -cE 'pingpong .*PERF_RECORD_SWITCH_CPU_WIDE OUT')" -ge 24
unlike "$(events both --show-switch-events --show-lost-events)" 'LOST' 'no record was lost'
if [[ -n ${PTWATCH_KEEP_LOGS:-} ]]; then cp -r "$work" "$PTWATCH_KEEP_LOGS/record"; fi
done_testing
