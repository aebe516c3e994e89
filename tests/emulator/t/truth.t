#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The instructions that libipt decodes from what the kernel's own intel_pt driver recorded are those
# that QEMU executed, address by address: user code, the kernel, and both, on both CPUs, with and
# without page table isolation and the other mitigations, for several sets of timing packets, and for
# a single function of the kernel. What stock perf decodes from its own recordings is compared, too.
#
# PTWATCH_TRUTH_ROUNDS=N does N times as much.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator
more=${PTWATCH_TRUTH_ROUNDS:-1}
# How much the kernel does meanwhile depends on the machine: 93 million in all when it was idle, 122 when it was busy.
minimum=$((50000000 * more))

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi

plan 21
total=0
puts=(--put "$build/capture" --put "$build/exec64" --put "$build/exec32")

# boot NAME ROUNDS RUN-OPTION… -- CONFIG…: record in a guest, and compare both CPUs.
boot() {
	local name=$1 rounds=$2 options=() cpu config traces line counted status; shift 2
	while [[ $1 != -- ]]; do options+=("$1"); shift; done
	shift
	status=0
	"$top/tests/vm/run" --no-load "${puts[@]}" --truth "$work/$name" --out "$work/$name.out" \
		--timeout 900 "${options[@]}" -- /put/capture /out $((rounds * more)) "$@" >"$work/$name.log" 2>&1 ||
		status=$?
	is "$status" 0 "$name: recorded in the guest"
	((status == 0)) || diag "$(tail -15 "$work/$name.log")"
	for cpu in 0 1; do
		traces=()
		for config; do traces+=("$work/$name.out/${config%%:*}/cpu$cpu.pt"); done
		status=0
		"$build/compare" "$work/$name/cpu$cpu.ips" "${traces[@]}" >"$work/compare.log" 2>&1 ||
			status=$?
		line=$(grep ^equal= "$work/compare.log" || true)
		is "$status" 0 "$name: cpu$cpu: decoded and executed instructions are the same"
		((status == 0)) || diag "$(cat "$work/compare.log")"
		diag "$name: cpu$cpu: $line"
		like "$line" 'equal=[0-9]{7,} .*errors=0 overflows=0 .* changes=[1-9]' \
			"$name: cpu$cpu: more than a million, with code that changes, no decode error, no overflow"
		# What libipt's flow is compared with was gathered one by one; the counters must have counted the same.
		counted=$(awk '$1 != $2 { bad++ } { n++ } END { print n + 0, bad + 0 }' "$work/$name/cpu$cpu.counts")
		like "$counted" '^[1-9][0-9]* 0$' "$name: cpu$cpu: counted as many as there were, kernel and user, in each trace"
		[[ $counted == *' 0' ]] || diag "$(paste -sd, "$work/$name/cpu$cpu.counts")"
		line=${line#equal=}
		total=$((total + ${line%% *}))
	done
	rm -rf "${work:?}/$name" "$work/$name.out"
}

# Event configurations: TSC 400, MTC 200 (its period in 3c000), CYC 2 (its threshold in 780000), no RET
# compression 800, PSB period in f000000.
boot mitigations-off 1 --pti off -- user:user:c600 kernel:kernel:600 both:both:c602 \
	function:kernel:400:do_syscall_64
boot mitigations-on 1 --pti on --emulator long-tnt=on -- user:user:24602 kernel:kernel:400 \
	both:both:3180c02 bare:both:0

ok "no fewer than $minimum instructions in all" test "$total" -ge "$minimum"
diag "$total instructions compared"

# perf does not know whose code it is before the first switch when whole CPUs are traced, so here it traces
# a process and its children. Code that is in no file is left out, and so is 32-bit code of a 64-bit program,
# as perf takes the mode from the file.
status=0
# shellcheck disable=SC2016 # for the guest's shell
"$top/tests/vm/run" --no-load "${puts[@]}" --truth "$work/perf" --out "$work/perf.out" --timeout 900 -- sh -c '
	cp /put/* /mnt
	# The kernel patches itself on first use of this and that: let it, before.
	/mnt/capture --run 1
	perf record -q -o /out/user -m 4M,64M -e intel_pt//u -- /mnt/capture --run 1 &&
	perf record -q -o /out/both -m 4M,64M --kcore -e intel_pt/cyc/ -- \
		sh -c "/mnt/exec64; /mnt/exec32; ls -l / | sort >/dev/null" &&
	cp -r /root/.debug /out/debug' >"$work/perf.log" 2>&1 || status=$?
is "$status" 0 'perf: recorded in the guest'
((status == 0)) || diag "$(tail -15 "$work/perf.log")"
cp "$build/capture" "$build/exec64" "$build/exec32" "$work/perf.out/"
root=$("$top/tests/vm/cache" path root)
for recording in user both; do
	status=0
	# shellcheck disable=SC2016 # the inner shell expands them
	unshare -m sh -c 'mount --bind "$1" "$2/mnt" && mount -t proc proc "$2/proc" || exit
		exec chroot "$2" env HOME=/nowhere perf --buildid-dir /mnt/debug script -f -i "/mnt/$3" \
			--itrace=i0nse -F cpu,ip' sh "$work/perf.out" "$root" "$recording" 2>"$work/err" |
		"$build/compare_perf" "$work/perf" "$work/state" >"$work/compare.log" || status=$?
	is "$status" 0 "perf: $recording: decoded and executed instructions are the same"
	((status == 0)) || diag "$(cat "$work/compare.log")"
	line=$(tail -1 "$work/compare.log")
	diag "perf: $recording: $line"
	like "$line" '^equal=[0-9]{6,} .*errors=0 ' "perf: $recording: hundreds of thousands, without an error"
done
like "$line" ' left=0,0$' 'perf: nothing is missing at the end'
