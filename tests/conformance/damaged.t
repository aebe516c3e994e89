#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Damaged traces never crash or hang the program: the same 120 damages every time, made from a fixed seed.
#
# PTWATCH_DAMAGE=N runs N of them; PTWATCH may name a program built with sanitizers, or `valgrind …` in a wrapper.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rounds=${PTWATCH_DAMAGE:-120}
RANDOM=20407

# damage FILE: some bits flipped, a stretch overwritten, or the end cut off, in place.
damage() {
	local size i at

	size=$(stat -c %s "$1")
	case $((RANDOM % 3)) in
	0)	for ((i = RANDOM % 8; i >= 0; i--)); do
			at=$(((RANDOM << 15 | RANDOM) % size))
			poke "$1" "$at" "$((RANDOM % 256))"
		done ;;
	1)	at=$(((RANDOM << 15 | RANDOM) % size))
		for ((i = RANDOM % 64; i >= 0 && at < size; i--, at++)); do poke "$1" "$at" "$((RANDOM % 256))"; done ;;
	2)	truncate -s $(((RANDOM << 15 | RANDOM) % size)) "$1"
		[[ ! -s $1 ]] || poke "$1" "$((RANDOM % $(stat -c %s "$1")))" "$((RANDOM % 256))" ;;
	esac
}

poke() { printf '%b' "$(printf '\\x%02x' "$3")" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# survives ARGUMENT…: within the time limit, exit status 0, 1 or 3
survives() {
	status=0
	timeout 60 "$ptwatch" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
	[[ $status == [013] ]] && ! grep -qE 'Sanitizer|runtime error' "$tmp/err"
}

# The first bytes are what the header of an image is to a trace: also wrong code must not hurt.
wrong_image() { head -c 552881 /dev/zero | tr '\0' '\353\376' >"$tmp/image"; }

plan 4
for name in broadwell-single skylake-hello; do
	if ! sample_args "$name"; then
		skip 1 "no sample $name in $samples"
		continue
	fi
	bad=0
	cp -f "${args[1]}" "$tmp/pristine"
	chmod u+w "$tmp/pristine"
	for ((round = 0; round < rounds / 2; round++)); do
		cp "$tmp/pristine" "$tmp/trace"
		damage "$tmp/trace"
		args[1]=$tmp/trace
		for verb in packets insns calls; do
			if ! survives "$verb" "${args[@]}"; then
				bad=$((bad + 1))
				diag "$name, round $round: $verb: exit status $status"
				cp "$tmp/trace" "${TMPDIR:-/tmp}/ptwatch-damaged-$name-$round" && tail -n 5 "$tmp/err" >&2
			fi
		done
		if ! survives insns "${args[@]}" --count; then
			bad=$((bad + 1)) && diag "$name, round $round: insns --count: exit status $status"
		fi
	done
	is "$bad" 0 "$name: $((rounds / 2)) damaged copies"
done

if sample_args skylake-hello; then
	wrong_image
	args[-1]=$tmp/image,0,86fb1,401000
	ok 'code that is not the code that ran' survives insns "${args[@]}" --format ip

	# What is not damaged is still there: a hole in the middle costs at most up to the next PSB.
	sample_args skylake-hello
	cp -f "${args[1]}" "$tmp/trace"
	chmod u+w "$tmp/trace"
	printf '\377\377\377\377' | dd of="$tmp/trace" bs=1 seek=8000 conv=notrunc status=none
	args[1]=$tmp/trace
	run insns "${args[@]}" --format ip
	zcat "$samples/skylake-hello/expected-ips.txt.gz" >"$tmp/expected"
	is "$status $(tail -n 1 "$tmp/out") $(grep -c 'trace offset 0x.* bytes lost' "$tmp/err")" \
		"3 $(tail -n 1 "$tmp/expected") 1" 'a hole: exit status 3, the end is still reached, the gap is told'
else
	skip 2 "no sample skylake-hello in $samples"
fi
