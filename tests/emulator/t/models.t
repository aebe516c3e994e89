#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# models.t [MODEL…]: each CPU model: it boots, enumerates what it should and takes or refuses MSR values accordingly,
# its packets keep to filters, and stock perf records and decodes on it without an error; with errata, which perf must
# cope with, on one, and with overflows on another.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "$0")/../../lib/tap.sh"
needs_guest

here=$(cd "$(dirname "$0")/.." && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/build/emulator
chosen=$*

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

if ! make -s -C "$here" tests OUT="$build" >"$work/make.log" 2>&1; then
	diag "$(tail -5 "$work/make.log")"
	fail_all "cannot build; tests/packages lists what is needed"
fi

cat >"$work/guest" <<'END2'
modprobe msr
/put/enumerate >/out/enumerated
[ "$1" = none ] || /put/filters "$@" >/out/filters.tap
dmesg | grep -E 'WARNING: CPU|unchecked MSR|BUG:' >/out/complaints
[ "$1" != none ] && [ "$1" != --overflow ] || exit 0
cd /tmp
# What is mapped already: without MTC perf can't tell which code was where before it was mapped.
mkfifo go
sh -c 'read x <go; i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done; echo >done' &
perf record -q -o u -m ,4M -e intel_pt//u -p $! sh -c 'echo >go; while [ ! -e done ]; do sleep 0.1; done' 2>/out/record.log
perf script -i u --itrace=be -F ip >decoded 2>/out/errors
grep -i error decoded >>/out/errors
wc -l <decoded >/out/branches
END2

# Two guests at a time, each of which mostly uses one of its CPUs; what they left is checked afterwards, in order.
checks=()

# model NAME ENUMERATED [RUN-OPTION…] -- [ERRATUM…]
model() {
	local name=$1 expected=$2 options=(); shift 2
	[[ ! $chosen || " $chosen " == *" $name "* ]] || return 0
	while [[ $1 != -- ]]; do options+=("$1"); shift; done
	shift
	while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
	{
		status=0
		"$top/tests/vm/run" --no-load --cpu "$name" --put "$work/guest" --put "$build/enumerate" \
			--put "$build/filters" --out "$work/$name" --timeout 600 "${options[@]}" -- sh /put/guest "$@" \
			>"$work/$name.log" 2>&1 || status=$?
		echo "$status" >"$work/$name.status"
	} &
	checks+=("$name" "$expected" "${1:-}")
}

# check NAME ENUMERATED FIRST-ARGUMENT
check() {
	local name=$1 out=$work/$1 line
	is "$(<"$work/$name.status")" 0 "$name: the guest ran"
	[[ $(<"$work/$name.status") == 0 ]] || diag "$(tail -5 "$work/$name.log")"
	is "$(<"$out/enumerated")" "$2" "$name: CPUID, and which MSR values are taken"
	is "$(<"$out/complaints")" '' "$name: no complaint in the kernel's log"
	[[ $3 != none ]] || return 0
	while read -r line; do
		case $line in
		'ok '* | 'not ok '*) is "${line%% [0-9]*}" ok "$name: ${line#*- }" ;;
		'#'*) diag "guest: ${line#\# }" ;;
		esac
	done <"$out/filters.tap"
	like "$(tail -1 "$out/filters.tap")" '^1\.\.[0-9]+$' "$name: these came to their end"
	[[ $3 != --overflow ]] || return 0
	is "$(<"$out/errors")" '' "$name: perf finds no error"
	like "$(<"$out/branches")" '^[0-9]{4,}$' "$name: in thousands of branches"
}

# CTL: CYCEn 1, OS 2, User 3, PwrEvtEn 4, FUPonPTW 5, CR3Filter 7, ToPA 8, MTCEn 9, TSCEn 10, DisRETC 11, PTWEn 12,
# BranchEn 13, CycThresh 19 to 22, PSBFreq 24 to 26, EventEn 31, ADDRn_CFG 32, 33, 36 …, DisTNT 55, InjectPsbPmi 56.
model broadwell 'pt=1 vmx=1/0 leaf14=0/1/1 leaf14.1=0/0
ctl=2d8c mtc=1 cyc=1 psb=1 topa=taken single=#GP nobranch=#GP
ranges=0 cr3=taken pend=#GP bytes=#GP' -- tsx
model icelake-server 'pt=1 vmx=1/1 leaf14=1/1f/7 leaf14.1=2490004/3f3fff
ctl=333307783fae mtc=249 cyc=3fff psb=3f topa=taken single=taken nobranch=taken
ranges=4 cr3=taken pend=#GP bytes=taken' --emulator errata=bdm70+skl014+skl168 -- tsx bdm70 skl014 skl168
model sapphirerapids 'pt=1 vmx=1/1 leaf14=1/7f/7 leaf14.1=2490002/3f3fff
ctl=100003307783fbe mtc=249 cyc=3fff psb=3f topa=taken single=taken nobranch=taken
ranges=2 cr3=taken pend=taken bytes=taken' --emulator errata=skd010+apl11+apl12 --emulator overflow=256 -- --overflow skd010 apl11 apl12
model alderlake-n 'pt=1 vmx=1/1 leaf14=1/1ff/7 leaf14.1=2490004/3f3fff
ctl=180333387783fbe mtc=249 cyc=3fff psb=3f topa=taken single=taken nobranch=taken
ranges=4 cr3=taken pend=taken bytes=taken' --
model single-entry 'pt=1 vmx=0 leaf14=1/f/1 leaf14.1=2490002/3f3fff
ctl=3307782f8e mtc=249 cyc=3fff psb=3f topa=taken single=#GP nobranch=taken
ranges=2 cr3=taken pend=#GP bytes=taken' -- tsx
model goldmont 'pt=1 vmx=0 leaf14=1/1f/7 leaf14.1=2490002/3f3fff
ctl=3307783fae mtc=249 cyc=3fff psb=3f topa=taken single=taken nobranch=taken
ranges=2 cr3=taken pend=#GP bytes=taken' -- none
model none 'pt=0 vmx=0 leaf14=0/0/0 leaf14.1=0/0
ctl=fffffffffffffffe mtc=ffff cyc=ffff psb=ffff topa=taken single=taken nobranch=taken
ranges=4 cr3=taken pend=taken bytes=taken' -- none
wait
set -- "${checks[@]}"
while (($#)); do
	check "$1" "$2" "$3"
	shift 3
done
done_testing
