#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Stock perf opens what we write, and finds the same instructions in it, in the same order, as ptwatch. The trace is
# one that the kernel's own driver and perf recorded in the guest; it is read, and written again as a recording of ours
# with the kernel's code taken from perf's copy.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"

top=$(cd "$(dirname "$0")/../.." && pwd)
ptwatch=${PTWATCH:-$top/build/ptwatch}
work=$(mktemp -d)
tap_cleanup rm -rf "$work"

[[ -x $ptwatch ]] || skip_all "no program at $ptwatch"
needs_guest

read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw)"
if ! make -s -C "$top/userspace" OUT="$top/build" "$top/build/userspace/libptwatch.a" >"$work/make.log" 2>&1 ||
   ! cc -std=gnu11 -O2 -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$work/rewrite" \
	"$top/tests/recording/rewrite.c" "$top/build/userspace/libptwatch.a" "${flags[@]}" >>"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build tests/recording/rewrite.c"
fi

# Two perfs: this machine's, where there is one, and the guest's, run here because nothing is fast in the guest.
root=$("$top/tests/vm/cache" path root)
perf_here() { perf script -f -i "$work/$1" "${@:2}"; }
perf_guest() {
	# shellcheck disable=SC2016 # the inner shell expands them
	unshare -m sh -c '
		mount --bind "$1" "$2/mnt" && mount -t proc proc "$2/proc" || exit
		recording=$3; root=$2; shift 3
		exec chroot "$root" perf script -f -i "/mnt/$recording" "$@"' sh "$work" "$root" "$@"
}

status=0
"$top/tests/vm/run" --no-load --timeout 300 --out "$work" -- \
	perf record -q -o /out/stock -e intel_pt//k --kcore -C 0 -- sleep 0.1 >"$work/run.log" 2>&1 || status=$?
((status == 0)) || { diag "$(tail -15 "$work/run.log")"; echo "Bail out! perf record failed in the guest"; exit 1; }

perfs=(perf_guest)
! command -v perf >/dev/null || perfs+=(perf_here)
plan $((5 + 5 * ${#perfs[@]}))

"$ptwatch" insns -i "$work/stock" --format ip >"$work/stock.ips" 2>"$work/err" || diag "$(head -3 "$work/err")"
count=$(wc -l <"$work/stock.ips")
diag "$count instructions"
ok "perf's recording: more than 100,000 instructions" test "$count" -gt 100000
is "$(grep -vcE '^ffff[0-9a-f]{12}$' "$work/stock.ips" || true)" 0 "all of them are the kernel's"

ok "written again" "$work/rewrite" "$work/stock" "$work/ours" "$work/stock/kcore_dir"
"$ptwatch" insns -i "$work/ours" --format ip >"$work/ours.ips" 2>"$work/err" || diag "$(head -3 "$work/err")"
ok "ours: the same instructions" cmp -s "$work/stock.ips" "$work/ours.ips"
is "$(stat -c %a "$work/ours")" 700 "ours: for its owner only"

for perf in "${perfs[@]}"; do
	$perf ours --itrace=i0ns -F ip >"$work/perf.out" 2>"$work/perf.err" || true
	sed 's/^ *//; s/ *$//' "$work/perf.out" >"$work/perf.ips"
	ok "$perf: the same instructions in the same order" cmp "$work/ours.ips" "$work/perf.ips"
	is "$($perf ours --itrace=e 2>/dev/null)" '' "$perf: no decode error"
	unlike "$(cat "$work/perf.err")" 'rror|nvalid|orrupt' "$perf: no complaint"
	like "$($perf ours --itrace=cr 2>/dev/null | grep -c 'pt_config_start\|native_write_msr')" '^[1-9]' \
		"$perf: calls and returns, with the kernel's symbols"
	like "$($perf ours --header-only 2>/dev/null)" 'cpuid : GenuineIntel,6,[0-9]+,' "$perf: the CPU in the header"
done
