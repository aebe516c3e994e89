#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A trace of one process holds that process's code and nobody else's: decoded, with its own programs as
# the only images, without page table isolation and with it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

programs=$guest_build/process
ptwatch=$guest_dir/../../build/ptwatch

ok 'the test programs build' build_device

# image WORKER: the executable segment, as --image takes it.
image() {
	local segment
	segment=$(readelf -lW "$programs/$1" | awk '$1 == "LOAD" && $8 == "E" {print $2, $5, $3}')
	# shellcheck disable=SC2086 # three words
	printf '%s,%x,%x,%x' "$programs/$1" $segment
}

address() { nm "$programs/$1" | awk -v name="$2" '$3 == name {print $1}'; }
marker1=$(address worker1 marker) marker3=$(address worker3 marker) child=$(address worker1 child_marker)

# decode PTI CASE: the addresses that it executed.
decode() {
	"$ptwatch" insns --raw "$guest_scratch/$1/$2.pt" --cpu 6/85/4 --image "$(image worker1)" --image "$(image worker3)" \
		--format ip >"$guest_scratch/ips" 2>"$guest_scratch/errors" || true
}

# times ADDRESS: how often.
times() { grep -c "^$1" "$guest_scratch/ips" || true; }

# judge PTI CASE FILTER MARKER1 MARKER3 CHILD
judge() {
	local pti=$1 name=$2 what="PTI $1, $2"
	is "$(sed -n "s/^$name //p" "$guest_scratch/$pti/cases" | cut -d' ' -f1-3)" "$3 0 0" "$what: filter, state and flags"
	decode "$pti" "$name"
	is "$(cat "$guest_scratch/errors")" '' "$what: nothing but the process's own code is in the trace"
	is "$(times "$marker1") $(times "$marker3") $(times "$child")" "$4 $5 $6" "$what: all of it is"
}

# user_branches PTI CASE: how many branch packets lead into the target's program, and how many into other user code.
user_branches() {
	"$ptwatch" packets --raw "$guest_scratch/$1/$2.pt" --cpu 6/85/4 | awk '
		$2 ~ /^(TIP|FUP)/ && $3 ~ /^0x/ && length($3) <= 14 { if ($3 ~ /^0x10/ && length($3) == 10) own++; else others++ }
		END { print (own > 100 ? "many" : own + 0), others + 0 }'
}

for pti in off on; do
	mkdir "$guest_scratch/$pti"
	rc=0
	"$guest_dir/../vm/run" --pti $pti --timeout 300 --out "$guest_scratch/$pti" --put "$programs" -- /put/process/in_guest || rc=$?
	is "$rc" 0 "PTI $pti: exit status of the guest"
	# With PTI a process has two page tables: user and kernel code together can't be told by CR3.
	both=1
	[[ $pti == off ]] || both=2
	judge $pti user 1 100 0 0
	judge $pti user-switch 2 100 0 0
	judge $pti exec 1 100 70 0
	judge $pti exec-switch 2 100 70 0
	judge $pti alone 2 100 0 0
	judge $pti children 2 100 0 50
	is "$(sed -n 's/^both //p' "$guest_scratch/$pti/cases" | cut -d' ' -f1-3)" "$both 0 0" "PTI $pti, both: filter, state and flags"
	is "$(user_branches $pti both)" 'many 0' "PTI $pti, both: branches into the process's program, and into no other"
	is "$(sed -n 's/^kernel //p' "$guest_scratch/$pti/cases" | cut -d' ' -f1-3)" '1 0 0' "PTI $pti, kernel: filter, state and flags"
	is "$(user_branches $pti kernel)" '0 0' "PTI $pti, kernel: no branch into user code"
	is "$(grep -v -e 'ptwatch: ' -e 'RETBleed: WARNING' "$guest_scratch/$pti/console.log" | grep -aE "$bad_log" | head -n 5)" '' "PTI $pti: the kernel has nothing to complain about"
done
done_testing
