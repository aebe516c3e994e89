#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Damaged traces never crash or hang the program: the same 40 damages every time, made from a fixed seed.
#
# PTWATCH_DAMAGE=N runs N of them; PTWATCH may name a program built with sanitizers, or `valgrind …` in a wrapper.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rounds=${PTWATCH_DAMAGE:-40}
RANDOM=20407

# damage FILE: a few bytes changed, a stretch overwritten, or the end cut off, in place.
damage() {
	local size i at bytes=''

	size=$(stat -c %s "$1")
	at=$(((RANDOM << 15 | RANDOM) % size))
	case $((RANDOM % 3)) in
	0)	for i in 1 2 3; do
			poke "$1" $(((RANDOM << 15 | RANDOM) % size)) "$(printf '\\x%02x' $((RANDOM % 256)))"
		done ;;
	1)	for ((i = RANDOM % 64; i >= 0; i--)); do printf -v bytes '%s\\x%02x' "$bytes" $((RANDOM % 256)); done
		poke "$1" "$at" "$bytes" ;;
	2)	truncate -s "$at" "$1" ;;
	esac
}

poke() { printf '%b' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# survives ARGUMENT…: within the time limit, exit status 0, 1 or 3
survives() {
	status=0
	timeout 60 "$ptwatch" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
	[[ $status == [013] ]] && ! grep -qE 'Sanitizer|runtime error' "$tmp/err"
}

# The first bytes are what the header of an image is to a trace: also wrong code must not hurt.
wrong_image() { head -c 552881 /dev/zero | tr '\0' '\353\376' >"$tmp/image"; }

plan 8
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

	# What is not damaged is still there: the copy behind the damaged one begins with a PSB.
	sample_args skylake-hello
	cp -f "${args[1]}" "$tmp/trace"
	chmod u+w "$tmp/trace"
	poke "$tmp/trace" 6000 '\x02\x0b\x02\x0b\x02\x0b\x02\x0b\x02\x0b\x02\x0b\x02\x0b\x02\x0b'
	cat "${args[1]}" >>"$tmp/trace"
	args[1]=$tmp/trace
	run insns "${args[@]}" --format ip
	zcat "$samples/skylake-hello/expected-ips.txt.gz" >"$tmp/expected"
	is "$status $(grep -c 'trace offset 0x.* bytes lost' "$tmp/err")" '3 1' 'a hole: exit status 3, told once'
	ok 'all after the next PSB is there' cmp <(tail -n 59234 "$tmp/out") "$tmp/expected"
	ok 'all before the hole is there' cmp <(head -n 20000 "$tmp/out") <(head -n 20000 "$tmp/expected")
else
	skip 4 "no sample skylake-hello in $samples"
fi

# The last packet cut off: once in each kind of packet that has more than one byte, behind its first and before its last.
# What libipt's packet decoder says of the whole trace tells where a packet is.
if sample_args skylake-hello; then
	trace=${args[1]} bad=0 kinds=0 seen=' '
	run packets "${args[@]}"
	cp "$tmp/out" "$tmp/packets"
	before=0 kind=''
	while read -r offset next; do
		offset=$((16#$offset))
		if [[ $kind && $seen != *" $kind "* ]] && ((offset - before > 1)); then
			seen+="$kind " kinds=$((kinds + 1))
			head -c "$before" "$trace" >"$tmp/trace"
			args[1]=$tmp/trace
			run insns "${args[@]}" --format ip
			mv "$tmp/out" "$tmp/whole"
			[[ $status == 0 ]] || { bad=$((bad + 1)) && diag "$kind at $before, not cut: exit status $status"; }
			for size in $((before + 1)) $((offset - 1)); do
				head -c "$size" "$trace" >"$tmp/trace"
				run insns "${args[@]}" --format ip
				says=$(printf 'trace offset 0x%x: incomplete packet.*; %d bytes lost$' "$before" $((size - before)))
				if [[ $status != 3 ]] || ! grep -q "$says" "$tmp/err" || ! cmp -s "$tmp/out" "$tmp/whole"; then
					bad=$((bad + 1)) && diag "$kind at $before, cut at $size: exit status $status: $(cat "$tmp/err")"
				fi
			done
		fi
		before=$offset kind=$next
	done < <(tail -n +200 "$tmp/packets" | awk '$1 ~ /^[0-9a-f]+$/ { print $1, $2 }')
	is "$bad of $kinds" '0 of 6' 'the last packet cut off: exit status 3, all before it is there'

	head -c 5006 "$trace" >"$tmp/trace"
	said=''
	for report in packets insns 'insns --count' calls stat 'stat --json' markers flame timeline 'latency --from main --to main'; do
		# shellcheck disable=SC2086
		run $report "${args[@]}"
		said+=" $status $(grep -c 'trace offset 0x138d: incomplete packet' "$tmp/err")"
	done
	# Without the code only the packets are known.
	run stat "${args[@]:0:4}"
	is "$said $status $(grep -c 'trace offset 0x138d: incomplete packet; 1 bytes lost' "$tmp/err")" \
		' 3 1 3 1 3 1 3 1 3 1 3 1 3 1 3 1 3 1 3 1 3 1' 'every report says so'
else
	skip 2 "no sample skylake-hello in $samples"
fi
