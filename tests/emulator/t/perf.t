#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# perf.t [KERNEL…]: stock perf and the kernel's own driver in the guest, on 6.1, 6.12 and the newest kernel, or on the
# given ones:
#
# - In every mode of recording that CPU, kernel and perf have, perf's decoder has no error, and finds in the
#   recording what the mode is for.
# - perf's own shell test of Intel PT, as linux-perf ships it for 6.12 and the newest kernel. Its waits are
#   lengthened, as nothing is fast here, and it prints each result as it counts it; apart from that it is what
#   it is. All its functions pass: the CPU model has all that they ask for.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator
kernels=("$@")
((${#kernels[@]})) || kernels=(6.1 6.12 newest)

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi
"$top/tests/vm/cache" prepare root perf-newest
root=$("$top/tests/vm/cache" path root)
newest=$("$top/tests/vm/cache" path perf-newest)
mkdir -p "$work/newest-perf/newest"
cp "$newest/usr/bin/perf" "$work/newest-perf/newest/"
cp -r "$newest/usr/lib/perf-core/tests/shell" "$work/newest-perf/newest/"

# decode OUT PERF ARGUMENT…: perf script of a recording, run here in the guest's root, as nothing is fast in the guest.
decode() {
	# shellcheck disable=SC2016 # the inner shell expands them
	unshare -m sh -c '
		mount --bind "$1" "$3/mnt" && mount --bind "$2" "$3/opt" && mount -t proc proc "$3/proc" || exit
		root=$3 perf=$4; shift 4
		exec chroot "$root" env HOME=/nowhere "$perf" --buildid-dir /mnt/debug script -f "$@"' \
		sh "$1" "$newest" "$root" "${@:2}"
}

# check_recording OUT PERF NAME: no error, and what is in the recording NAME is there.
check_recording() {
	local out=$1 perf=$2 name=$3 itrace=b least=200 n
	case $name in
	ptw) itrace=w least=4000 ;;
	pwr_evt) itrace=p least=10 ;;
	mwait) itrace=p ;;
	event) itrace=I least=10 ;;
	esac
	decode "$out" "$perf" -i "/mnt/$name" "--itrace=e$itrace" >"$work/decoded" 2>"$work/err" || true
	is "$(grep 'instruction trace error' "$work/decoded" | head -3)" '' "$kernel: $name: no decode error"
	unlike "$(<"$work/err")" 'rror|nvalid|orrupt|lost' "$kernel: $name: no complaint"
	n=$(grep -cv 'instruction trace error' "$work/decoded" || true)
	case $name in
	ptw) is "$n" 4000 "$kernel: ptw: 4000 PTWRITEs" ;;
	# The interrupts that end a HLT are wake reason 1; MWAIT ends by itself here, which is reason 4.
	mwait)
		is "$(grep -oE 'mwait:  hints: .* extensions: [^ ]*|wake reason: 0x4' "$work/decoded" | uniq -c | tr -s ' ' | tr '\n' ,)" \
			"$(for _ in 1 2 3; do echo -n ' 1 mwait: hints: 0x20 extensions: 0, 1 wake reason: 0x4,'; done)" \
			"$kernel: mwait: three, each with its hint, and each ends" ;;
	*) ok "$kernel: $name: $n of what it is for" test "$n" -gt "$least" ;;
	esac
}

# check_recordings OUT PERF-HERE
check_recordings() {
	local out=$1 decoder=$2 name what why
	diag "$kernel: $(<"$out/release") $(<"$out/version")"
	while read -r name what why; do
		case $what in
		ok) check_recording "$out" "$decoder" "$name" ;;
		skipped) skip 1 "$kernel: $name: $why" ;;
		*)
			is "$what" ok "$kernel: $name: recorded"
			diag "$(head -3 "$out/$name.err")" ;;
		esac
	done <"$out/results"
	is "$(wc -l <"$out/results")" 16 "$kernel: all modes of recording were looked at"
}

# check_functions FUNCTIONS LOG: those of perf's test.
check_functions() {
	local functions=$1 log=$2 line name='' why='' n=0 result now
	while IFS= read -r line; do
		case $line in
		'--- Test'*) name=${line#--- Test } name=${name% ---} why='' ;;
		'SKIP: '* | *'so skipping') why=${line#SKIP: } ;;
		'=== '*)
			n=$((n + 1))
			read -r result now <<<"${line#=== }"
			is "$result" 0 "$kernel: perf's own test: ${name% }"
			((result == 0)) || diag "$why"
			diag "$kernel: until $now s: ${name% }" ;;
		esac
	done <"$log"
	is "$n" "$functions" "$kernel: all $functions functions of perf's own test ran"
	[[ $n == "$functions" ]] || diag "$(tail -15 "$log")"
}

declare -A guest
# start KERNEL PERF FUNCTIONS DIRECTORY-OF-THE-SHELL-TEST RUN-OPTION…: in the background, as a guest mostly uses one of
# its two CPUs.
start() {
	local kernel=$1 perf=$2 functions=$3 shell=$4; shift 4
	[[ " ${kernels[*]} " == *" $kernel "* ]] || return 0
	{
		status=0
		"$top/tests/vm/run" --no-load --kernel "$kernel" --cpu alderlake-n --put "$build/ptwrite" --put "$build/exec64" \
			--put "$here/guest/perf_records.sh" --put "$here/guest/perf_shell_test.sh" --put "$here/guest/jitdump.h" \
			--out "$work/$kernel" --timeout 1800 "$@" -- sh -c \
			"bash /put/perf_records.sh $perf && { [ $functions = 0 ] || sh /put/perf_shell_test.sh $perf $shell; }" \
			>"$work/$kernel.log" 2>&1 || status=$?
		echo "$status" >"$work/$kernel.status"
	} &
	guest[$kernel]=$!
}

# finish KERNEL PERF-HERE FUNCTIONS: check what it has left.
finish() {
	local kernel=$1 decoder=$2 functions=$3 out=$work/$1
	[[ ${guest[$kernel]-} ]] || return 0
	wait "${guest[$kernel]}"
	is "$(<"$work/$kernel.status")" 0 "$kernel: all of it ended well in the guest"
	[[ $(<"$work/$kernel.status") == 0 ]] || diag "$(tail -15 "$work/$kernel.log")"
	cp "$build/ptwrite" "$build/exec64" "$out/"
	check_recordings "$out" "$decoder"
	((functions == 0)) || check_functions "$functions" "$out/shell_test.log"
	diag "$kernel: $(<"$out/seconds") s in the guest"
	rm -rf "$out"
}

start newest /put/newest/perf 15 /put/newest/shell --put "$work/newest-perf/newest"
start 6.12 /usr/bin/perf 14 /usr/lib/perf-core/tests/shell
start 6.1 /usr/bin/perf 0 none
# The newest kernel takes longest, so the others' recordings are looked at meanwhile.
finish 6.1 /usr/bin/perf 0
finish 6.12 /usr/bin/perf 14
finish newest /opt/usr/bin/perf 15
done_testing
