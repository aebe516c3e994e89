#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Real traces give exactly the instructions that they are known to hold, in order, without an error.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

check_sample() {
	local name=$1 count=$2

	if ! sample_args "$name"; then
		skip 10 "no sample $name in $samples"
		return
	fi
	run insns "${args[@]}" --format ip
	is "$status" 0 "$name: addresses: exit status"
	is "$(cat "$tmp/err")" '' "$name: nothing on stderr"
	ok "$name: $count addresses, each as expected" cmp "$tmp/out" <(zcat "$samples/$name/expected-ips.txt.gz")
	is "$(wc -l <"$tmp/out")" "$count" "$name: as many as the sample's README says"

	run insns "${args[@]}" --count
	is "$status $(cat "$tmp/out")" "0 $count" "$name: --count"

	# The same code by a table, and the same addresses in the other formats.
	IFS=, read -r file offset size address <<<"${args[-1]}"
	printf '%s\t%s\t%s\t0x%s\n' "$file" "$offset" "$size" "$address" >"$tmp/table"
	run insns "${args[@]:0:${#args[@]}-2}" --images "$tmp/table" --count
	is "$status $(cat "$tmp/out")" "0 $count" "$name: --images"
	run insns "${args[@]}" --json
	ok "$name: --json has the same addresses" cmp \
		<(sed -nE 's/.*"type":"insn".*"ip":"0x([0-9a-f]{16})".*/\1/p' "$tmp/out") \
		<(zcat "$samples/$name/expected-ips.txt.gz")
	run insns "${args[@]}" --no-time
	ok "$name: text has the same addresses" cmp <(grep -oE '^[0-9a-f]{16}' "$tmp/out") \
		<(zcat "$samples/$name/expected-ips.txt.gz")

	run insns "${args[@]}" --format ip --tail 5
	ok "$name: --tail 5" cmp "$tmp/out" <(zcat "$samples/$name/expected-ips.txt.gz" | tail -n 5)
	run calls "${args[@]}"
	is "$status $(cat "$tmp/err")" '0 ' "$name: calls finds no error"
}

plan 36
check_sample broadwell-single 21
check_sample skylake-asm 8
check_sample skylake-hello 59234

if sample_args skylake-hello; then
	# Returns find their calls: main is called once, from the C library, and its callees are one level deeper.
	run calls "${args[@]}" --json
	depth_of() { sed -nE "s/.*\"depth\":([0-9]+),.*\"symbol\":\"$1\+0x0 .*/\1/p" "$tmp/out" | head -n 1; }
	is "$(grep -c '"symbol":"main+0x0 ' "$tmp/out")" 1 'main is called once'
	like "$(grep '"symbol":"main+0x0 ' "$tmp/out")" '"caller":"__libc_start_main\+0x' 'by __libc_start_main'
	is "$(depth_of exit)" "$(depth_of main)" 'exit() is called from where main was'
	run calls "${args[@]}" --count
	is "$(cat "$tmp/out")" "$("$ptwatch" calls "${args[@]}" --format ip | wc -l)" 'calls: --count and --format ip agree'
	run insns "${args[@]}" --tail 40 --last 1us --syntax intel
	like "$(tail -n 2 "$tmp/out")" '_exit\+0x27 .* syscall' 'the last instruction is the exit system call'
	run insns "${args[@]/6\/85\/4/6\/85\/4}" --source --tail 1
	like "$(cat "$tmp/err")" 'no DWARF' '--source says once that there is none'
else
	skip 6 "no sample skylake-hello in $samples"
fi
