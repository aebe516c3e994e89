#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Stock perf and the kernel's own driver in the guest, on each kernel, in every mode of recording that the CPU has:
# perf's decoder has no error, and finds in the recording what the mode is for.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"
[[ ${PTWATCH_TEST_UNFINISHED:-} == 1 ]] ||
	skip_all 'not yet seen to pass as a whole; PTWATCH_TEST_UNFINISHED=1 runs it'
needs_guest

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi
"$top/tests/vm/cache" prepare root perf-newest
root=$("$top/tests/vm/cache" path root)
newest=$("$top/tests/vm/cache" path perf-newest)

# decode OUT PERF ARGUMENT…: perf script of a recording, run here in the guest's root, as nothing is fast in the guest.
decode() {
	# shellcheck disable=SC2016 # the inner shell expands them
	unshare -m sh -c '
		mount --bind "$1" "$3/mnt" && mount --bind "$2" "$3/opt" && mount -t proc proc "$3/proc" || exit
		root=$3 perf=$4; shift 4
		exec chroot "$root" env HOME=/nowhere "$perf" --buildid-dir /mnt/debug script -f "$@"' \
		sh "$1" "$newest" "$root" "${@:2}"
}

# found OUT PERF NAME: what is in the recording NAME is there.
found() {
	local out=$1 perf=$2 name=$3 n
	count() { decode "$out" "$perf" -i "/mnt/$name" "$@" 2>/dev/null | wc -l; }
	case $name in
	ptw)
		n=$(count --itrace=w)
		is "$n" 4000 "$kernel: ptw: 4000 PTWRITEs" ;;
	pwr_evt)
		n=$(count --itrace=p)
		ok "$kernel: pwr_evt: power events ($n)" test "$n" -gt 10 ;;
	event)
		n=$(count --itrace=I)
		ok "$kernel: event: events ($n)" test "$n" -gt 10 ;;
	*)
		n=$(count --itrace=b)
		ok "$kernel: $name: branches ($n)" test "$n" -gt 200 ;;
	esac
}

# boot KERNEL PERF-IN-THE-GUEST PERF-HERE RUN-OPTION…
boot() {
	local kernel=$1 perf=$2 decoder=$3 status=0 name what why errors out=$work/$1; shift 3
	"$top/tests/vm/run" --no-load --kernel "$kernel" --put "$build/ptwrite" --put "$build/exec64" --put "$here/guest/perf_records.sh" \
		--out "$out" --timeout 1200 "$@" -- bash /put/perf_records.sh "$perf" >"$work/log" 2>&1 || status=$?
	is "$status" 0 "$kernel: recorded in the guest"
	((status == 0)) || diag "$(tail -15 "$work/log")"
	diag "$kernel: $(<"$out/release") $(<"$out/version")"
	cp "$build/ptwrite" "$build/exec64" "$out/"
	while read -r name what why; do
		case $what in
		ok)
			errors=$(decode "$out" "$decoder" -i "/mnt/$name" --itrace=e 2>"$work/err" | grep -ci error || true)
			is "$errors" 0 "$kernel: $name: no decode error"
			((errors == 0)) || diag "$(decode "$out" "$decoder" -i "/mnt/$name" --itrace=e 2>&1 | head -3)"
			unlike "$(<"$work/err")" 'rror|nvalid|orrupt|lost' "$kernel: $name: no complaint"
			found "$out" "$decoder" "$name" ;;
		skipped) skip 1 "$kernel: $name: $why" ;;
		*)
			is "$what" ok "$kernel: $name: recorded"
			diag "$(head -3 "$out/$name.err")" ;;
		esac
	done <"$out/results"
	rm -rf "$out"
}

boot 6.1 /usr/bin/perf /usr/bin/perf --cpu alderlake-n
boot 6.12 /usr/bin/perf /usr/bin/perf --cpu alderlake-n
boot newest /put/bin/perf /opt/usr/bin/perf --put "$newest/usr/bin" --cpu alderlake-n
done_testing
