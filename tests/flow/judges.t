#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# A recording by stock perf of a whole machine, kernel and programs, with processes that switch, run others and are
# interrupted: our decoder tells address by address what the emulator executed, and what stock perf's decoder tells.
# With and without page table isolation.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"

top=$(cd "$(dirname "$0")/../.." && pwd)
ptwatch=${PTWATCH:-$top/build/ptwatch}
work=$(mktemp -d)
tap_cleanup rm -rf "$work"

[[ -x $ptwatch ]] || skip_all "no program at $ptwatch"
needs_guest
root=$("$top/tests/vm/cache" path root)

# perf_there HOME RECORDING ARGUMENT…: the guest's perf, with the files that were mapped, here where it is faster.
perf_there() {
	# shellcheck disable=SC2016 # the inner shell expands them
	unshare -m sh -c '
		mount --bind "$1" "$2/mnt" && mount -t proc proc "$2/proc" || exit
		recording=$3; root=$2; shift 3
		exec chroot "$root" env HOME=/mnt perf script -f -i "/mnt/$recording" "$@"' sh "$1" "$root" "${@:2}"
}

# What runs is small: nothing is fast in the guest, and no data may be lost.
cat >"$work/scene" <<'SCENE'
set -e
export HOME=/out
perf record -q -o /out/both --kcore -a -m ,16M -e intel_pt//  -- sh -c 'ls / | wc -l; (exit 3) || true; cat /proc/self/stat' >/dev/null
perf record -q -o /out/user -m ,4M -e intel_pt//u -- sh -c 'ls / | wc -l; (exit 3) || true' >/dev/null
SCENE

plan 14
for pti in off on; do
	dir=$work/$pti
	mkdir -p "$dir/out" "$dir/truth"
	status=0
	"$top/tests/vm/run" --no-load --pti "$pti" --timeout 500 --put "$work/scene" --out "$dir/out" --truth "$dir/truth" \
		-- sh /put/scene >"$dir/run.log" 2>&1 || status=$?
	((status == 0)) || { diag "$(tail -15 "$dir/run.log")"; echo "Bail out! perf record failed in the guest"; exit 1; }
	export HOME=$dir/out

	for cpu in 0 1; do
		status=0
		"$ptwatch" insns -i "$dir/out/both" -C "$cpu" --format ip >"$dir/ours.$cpu" 2>"$dir/err" || status=$?
		diag "pti $pti, cpu $cpu: $(wc -l <"$dir/ours.$cpu") instructions; $(head -c 200 "$dir/err")"
		is "$status" 0 "pti $pti, cpu $cpu: no error, no gap"
		is "$(python3 "$top/tests/lib/same_instructions.py" "$dir/truth/cpu$cpu.ips" "$dir/ours.$cpu" --first)" equal \
			"pti $pti, cpu $cpu: what the emulator executed"
		perf_there "$dir/out" both -C "$cpu" --itrace=i0ns -F ip 2>/dev/null | tr -d ' ' |
			awk 'length { printf "%016s\n", $0 }' | tr ' ' 0 >"$dir/perf.$cpu" || true
		ok "pti $pti, cpu $cpu: what stock perf's decoder tells" cmp "$dir/ours.$cpu" "$dir/perf.$cpu"
	done
	"$ptwatch" insns -i "$dir/out/user" --count >"$dir/count" 2>"$dir/err" || true
	is "$(cat "$dir/count")" "$(perf_there "$dir/out" user --itrace=i0ns -F ip 2>/dev/null | grep -c .)" \
		"pti $pti: user code alone: as many instructions as perf's decoder tells"
done
