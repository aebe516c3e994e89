#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Recordings of CPUs with errata, as the emulator imitates them, decode as what was executed: libipt is told the CPU and the
# filter, and what is not plain is left to it. Told another CPU, they do not. What follows an overflow does so likewise, but for
# what is told as lost.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "$0")/../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"

cat >"$scratch/guest.sh" <<'END'
#!/bin/bash
# Runs in the guest.
cp /put/pingpong /mnt/pingpong
cd /out || exit
record() {
	local name=$1; shift
	taskset -c 0 ptwatch record -o "$name" "$@" 2>"$name.said" || exit
}
# ksys_read() leaves the filter by direct calls (SKL014).
record kernel -k -C 1 --filter ksys_read -- /mnt/pingpong 1
record user -u -C 1 --cyc -- /mnt/pingpong 1
# PSB, then TIP.PGE (BDM70)
record whole -k -C 1 -- /mnt/pingpong 1
END
chmod 755 "$scratch/guest.sh"

# record NAME CPU ERRATA [EMULATOR-ARGUMENT]: to $scratch/NAME
record() {
	local rc=0
	work=$scratch/$1
	mkdir -p "$work/out" "$work/truth"
	cp "$scratch/pingpong" "$work/out"
	"$top/tests/vm/run" --cpu "$2" --timeout 900 --emulator "errata=$3" ${4:+--emulator "$4"} --put "$scratch/pingpong" \
		--put "$scratch/guest.sh" --out "$work/out" --truth "$work/truth" -- /put/guest.sh >"$work/run.log" 2>&1 || rc=$?
	is "$rc" 0 "${3//+/, }: recorded"
	((rc == 0)) || diag "$(tail -n 15 "$work/run.log" "$work/out"/*.said)"
}
cc -O1 -static -o "$scratch/pingpong" "$here/pingpong.c" || fail_all 'cannot build tests/recording/pingpong.c'
record plain skylake-client bdm70+skl014+skl168
# shellcheck source-path=SCRIPTDIR source=decode.sh
. "$here/decode.sh"

# decode RECORDING…: to $work/ips; what was wrong to $errors
decode() {
	local recording
	: >"$work/ips"
	: >"$work/errors"
	for recording; do
		in_mount "$top/build/ptwatch" insns -i "$recording" -C 1 --all --format ip >>"$work/ips" 2>>"$work/errors" || true
	done
	errors=$(head -n 3 "$work/errors")
}

decode kernel user whole
is "$errors" '' 'BDM70, SKL014, SKL168: no error'
is "$(python3 "$top/tests/lib/same_instructions.py" "$work/truth/cpu1.ips" "$work/ips")" equal \
	"$(wc -l <"$work/ips") instructions are what was executed"

# The same bytes, of a CPU that is not known to have errata: what follows a branch out of the filter is taken for executed.
sed -i 's/GenuineIntel,6,94,/GenuineIntel,6,10,/' "$work/out"/{kernel,user}/data
decode kernel user
like "$(python3 "$top/tests/lib/same_instructions.py" "$work/truth/cpu1.ips" "$work/ips")" '^instruction [0-9]+: executed' \
	'not without knowing the CPU'

# judge: the recordings in $work against the truth
judge() {
	local recording args=()
	for recording in kernel user whole; do
		in_mount "$top/build/ptwatch" insns -i "$recording" -C 1 --all --json >"$work/$recording.insns" 2>>"$work/errors" || true
		in_mount "$top/build/ptwatch" packets -i "$recording" -C 1 --json >"$work/$recording.packets" 2>>"$work/errors" || true
		args+=("$work/$recording.insns" "$work/$recording.packets")
	done
	python3 "$top/tests/lib/same_but_lost.py" "$work/truth/cpu1.ips" "${args[@]}"
}

# The CYCs are those of the user code.
record skylake skylake-client skd007+skd010 overflow=499
like "$(judge)" '^equal but for [1-9][0-9]+ overflows and [1-9][0-9]* gaps$' 'SKD007, SKD010: what was executed, but for what is told'
cut=$(grep -c 'CYC cut off by the OVF' "$work/user.packets" || true)
is "$((cut > 0)) $cut" "1 $(grep -c '"OVF"' "$work/user.packets")" "$cut CYCs are cut off, each before an OVF"
sed -i 's/GenuineIntel,6,94,/GenuineIntel,6,10,/' "$work/out"/*/data
unlike "$(judge)" '^equal' '... not without knowing the CPU'

# A filter, and overflows while tracing is off
record goldmont goldmont apl11+apl12 overflow=499
like "$(judge)" '^equal but for [1-9][0-9]+ overflows and 0 gaps$' 'APL12: what was executed, but for what overflows lost'
sed -i 's/GenuineIntel,6,[0-9]*,/GenuineIntel,6,10,/' "$work/out"/*/data
unlike "$(judge)" '^equal' '... not without knowing the CPU'
if [[ -n ${PTWATCH_KEEP_LOGS:-} ]]; then cp -r "$scratch" "$PTWATCH_KEEP_LOGS/errata"; fi
done_testing
