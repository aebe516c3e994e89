#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# hotplug.t [KERNEL…|first]: kernel code of a CPU that goes and comes back, twice, on 6.12 or, as each takes minutes, on the given
# ones of 6.1, 6.12 and newest: also where code is changed or loaded there, `ptwatch insns` and stock perf print the
# instructions that the emulator executed, all of them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"
kernels=("$@")
(($#)) || kernels=(6.12)
[[ $* != first ]] || kernels=()

# A CPU that was never online until then: what goes on there is told, and that it is not traced.
if [[ ! $* || $* == first ]]; then
	work=$scratch/first rc=0
	mkdir -p "$work/out"
	"$top/tests/vm/run" --append maxcpus=1 --timeout 300 --put "$here/hotplug.sh" --out "$work/out" -- /put/hotplug.sh first \
		>"$work/run.log" 2>&1 || rc=$?
	is "$rc" 0 'a CPU comes for the first time: recorded'
	((rc == 0)) || diag "$(tail -n 15 "$work/run.log" "$work/out/hot.said")"
	# shellcheck source-path=SCRIPTDIR source=decode.sh
	. "$here/decode.sh"
	is "$(cat "$work/out/online" "$work/out/status" || true)" $'0\n3' 'it was not there, and status 3'
	is "$(grep 'came online' "$work/out/hot.said")" "ptwatch record: CPU 1 came online: its processes, and code that was changed there, are\
 recorded as they are now; it is not traced, as it was offline at the start" 'says so'
	like "$(in_root perf script -f -i /mnt/hot -C 1 --no-itrace --show-mmap-events 2>/dev/null)" 'PERF_RECORD_MMAP2 .*r-xp /out/latecomer' \
		'what is mapped there is told'
	is "$(head -n 3 "$work/out/errors")" '' 'what is traced decodes without error or gap'
	ok 'and is there' test "$(cat "$work/out/instructions" || echo 0)" -gt 1000
fi

for kernel in "${kernels[@]}"; do
	work=$scratch/$kernel rc=0
	mkdir -p "$work/out" "$work/truth"
	"$top/tests/vm/run" --kernel "$kernel" --timeout 1500 --put "$here/hotplug.sh" --out "$work/out" --truth "$work/truth" \
		-- /put/hotplug.sh >"$work/run.log" 2>&1 || rc=$?
	is "$rc" 0 "$kernel: recorded"
	((rc == 0)) || diag "$(tail -n 15 "$work/run.log" "$work/out/hot.said")"
	diag "$kernel: $(grep 'bytes of trace' "$work/out/hot.said" || true)"
	is "$(cat "$work/out/status" || true)" 3 "$kernel: status 3, as there is something that nobody heard"
	is "$(cat "$work/out/visits" || true)" 'asleep 10 awake 5' "$kernel: the module's code was executed, before and after each change"

	# shellcheck source-path=SCRIPTDIR source=decode.sh
	. "$here/decode.sh"
	in_mount "$top/build/ptwatch" insns -i hot -C 1 --all --format ip >"$work/ips" 2>"$work/errors" || true
	is "$(head -n 3 "$work/errors")" '' "$kernel: decodes without error or gap"
	is "$(python3 "$top/tests/lib/same_instructions.py" "$work/truth/cpu1.ips" "$work/ips")" equal \
		"$kernel: $(wc -l <"$work/ips") instructions are what was executed"
	in_root perf script -f -i /mnt/hot -C 1 --itrace=i0ns -F ip 2>/dev/null | awk '{ printf "%016s\n", $1 }' | sed 's/ /0/g' >"$work/perf" || true
	is "$(cmp "$work/ips" "$work/perf" 2>&1 || true)" '' "$kernel: stock perf prints the same"
	like "$(in_mount "$top/build/ptwatch" calls -i hot -C 1 --all 2>/dev/null)" 'lodger_visit' "$kernel: the late module's function has its name"
	visit=$(awk '$3 == "lodger_visit" { print $1 }' "$work/out/hot/kcore_dir/kallsyms")
	is "$(grep -c "^$visit$" "$work/ips")" 15 "$kernel: and is there each time"
	if [[ -n ${PTWATCH_KEEP_LOGS:-} ]]; then cp -r "$work" "$PTWATCH_KEEP_LOGS/hotplug-$kernel"; fi
done
done_testing
