# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# What device.t and kernels.t share: boot a kernel, run the test program in it,
# pass on its checks as ours, and look through the kernel's log.
guest_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$guest_dir/../lib/tap.sh"
guest_build=${OUT:-$guest_dir/../../build}/tests/guest

needs_guest
guest_scratch=$(mktemp -d)
tap_cleanup rm -rf "$guest_scratch"

build_device() {
	make -C "$guest_dir" WERROR=1 OUT="$guest_build" >"$guest_scratch/make.log" 2>&1 && return
	cat "$guest_scratch/make.log" >&2
	return 1
}

# What the kernel says when something of it, or of ours in it, is broken.
bad_log='BUG:|WARNING:|Oops|general protection|unable to handle|Kernel panic|Call Trace:|unchecked MSR access'
bad_log+='|possible (circular|recursive) locking|INFO: (lockdep|possible|rcu|task .* blocked)|rcu:.*stall|soft lockup'
bad_log+='|hard LOCKUP|use-after-free|KASAN|KFENCE|UBSAN|refcount_t|list_(add|del) corruption|scheduling while atomic'
# Not "NMI handler took too long": that is a time, which an emulated CPU on a busy machine says nothing about.
bad_log+='|sleeping function called|unreferenced object'

# relay_tap FILE PREFIX: the checks of a TAP as checks of ours; its plans must add up.
relay_tap() {
	local line planned=0 seen=0
	while IFS= read -r line; do
		case $line in
		'ok '*) seen=$((seen + 1)); _tap_result 0 "$2${line#ok * - }" ;;
		'not ok '*) seen=$((seen + 1)); _tap_result 1 "$2${line#not ok * - }" ;;
		1..*) planned=$((planned + ${line#1..})) ;;
		*) diag "${line#\# }" ;;
		esac
	done <"$1"
	is "$seen" "$planned" "$2the program did the checks it planned"
}

# run_device KERNEL PREFIX [ARGUMENT…]: boot, test, judge; ARGUMENTs are in_guest's.
run_device() {
	local kernel=$1 prefix=$2 out=$guest_scratch/out-$1 rc=0; shift 2
	mkdir "$out"
	"$guest_dir/../vm/run" --kernel "$kernel" --timeout 900 --append oops=panic --out "$out" \
		--put "$guest_build/device" --put "$guest_dir/in_guest" --put "$guest_dir/alarm_json.py" \
		-- /put/in_guest "$@" >"$out/tap" || rc=$?
	relay_tap "$out/tap" "$prefix"
	is "$rc" 0 "${prefix}exit status of the guest"
	# Our own alarm's stack is no trouble.
	is "$(grep -v 'ptwatch: ' "$out/console.log" | grep -aE "$bad_log" | head -n 5)" '' "${prefix}the kernel has nothing to complain about"
	like "$(tr -d '\r' <"$out/console.log")" 'ptwatch: ALARM #[0-9]+: write 8 bytes at logged by the device test, old 0x[0-9a-f]{16} new 0x0000000000001234' \
		"${prefix}the alarm that was to be logged is in the kernel's log"
}
