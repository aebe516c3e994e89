#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Wrong usage and bad files: one line that names the value and what is allowed, with the exit status of the contract.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# refuses STATUS REGEX ARGUMENT…
refuses() {
	local want=$1 regex=$2; shift 2

	run "$@"
	is "$status $(wc -l <"$tmp/err") $(wc -c <"$tmp/out")" "$want 1 0" "$*: status $want, one line, no output"
	like "$(cat "$tmp/err")" "$regex" "$*: says $regex"
}

printf '\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x23' >"$tmp/trace"
: >"$tmp/empty"
image=(--image "$tmp/trace,0,12,400000")

for verb in packets insns calls; do
	run "$verb" --help
	is "$status" 0 "$verb --help"
	like "$(cat "$tmp/out")" "ptwatch $verb --raw .*" "$verb --help has an example"
	refuses 2 'i RECORDING or --raw' "$verb"
	refuses 2 "unknown option --nonsense" "$verb" --nonsense
	refuses 2 "needs a value" "$verb" --raw
	refuses 2 "unexpected argument 'trace'" "$verb" --raw "$tmp/trace" trace
	refuses 2 "'6-85': must be FAMILY/MODEL/STEPPING" "$verb" --raw "$tmp/trace" --cpu 6-85
	refuses 2 "'48': must be 64 or 32" "$verb" --raw "$tmp/trace" --bits 48
	refuses 2 "'16': must be a number from 0 to 15" "$verb" --raw "$tmp/trace" --mtc-freq 16
	refuses 2 "'-1': must be" "$verb" --raw "$tmp/trace" --nom-freq -1
	refuses 2 "'2': must be EAX,EBX" "$verb" --raw "$tmp/trace" --cpuid15 2
	refuses 2 "'4,1,0,1': must be N,CFG,A,B" "$verb" --raw "$tmp/trace" --addr-filter 4,1,0,1
	refuses 2 "'xml': must be text" "$verb" --raw "$tmp/trace" --format xml
	refuses 2 "file offset 'zz': not a hex number" "$verb" --raw "$tmp/trace" --image file,zz,10,400000
	refuses 2 "'0-': must be CPU numbers" "$verb" -i "$tmp" -C 0-
	refuses 2 "only one of them" "$verb" -i "$tmp" --raw "$tmp/trace"
	refuses 1 'No such file' "$verb" --raw "$tmp/missing" "${image[@]}"
	refuses 1 'not a regular file' "$verb" --raw "$tmp" "${image[@]}"
	refuses 1 'No such file' "$verb" --raw "$tmp/trace" --images "$tmp/missing"
	refuses 1 'No such file.*; -i takes' "$verb" -i "$tmp/missing"

	refuses 1 'empty: the file is empty' "$verb" --raw "$tmp/empty" "${image[@]}"
	refuses 2 '-i may be given only once' "$verb" -i "$tmp" -i "$tmp"
	refuses 2 '--raw may be given only once' "$verb" --raw "$tmp/trace" --raw "$tmp/trace"
	refuses 2 '--format text and --json: only one of them' "$verb" -i "$tmp" --json --format text
	refuses 1 "image $tmp/trace: 0x10 bytes at file offset 0x12: the file has only 0x12 bytes" \
		"$verb" --raw "$tmp/trace" --image "$tmp/trace,12,10,400000"
	refuses 1 "0xfff bytes at file offset 0x2: the file has only 0x12 bytes" \
		"$verb" --raw "$tmp/trace" --image "$tmp/trace,2,fff,400000"
	run "$verb" --raw "$tmp/trace" --image "$tmp/trace,2,ffe,400000" --json --format json
	is "$status" 0 "$verb: an image may end with the last page of its file"
	run "$verb" --raw "$tmp/trace" "${image[@]}"
	is "$status" 0 "$verb: a trace of a PSB+ and nothing else"

	status=0
	"$ptwatch" "$verb" --raw "$tmp/trace" "${image[@]}" --count >/dev/full 2>"$tmp/err" || status=$?
	is "$status" 1 "$verb: a full disk is a failure"
	like "$(cat "$tmp/err")" 'No space left' "$verb: and is named"
done

for verb in insns calls; do
	refuses 1 'missing' "$verb" --raw "$tmp/trace" --image "$tmp/missing,0,10,400000"
	refuses 2 "'0': must be a number from 1" "$verb" --raw "$tmp/trace" --tail 0
	refuses 2 "'40x': must be a time" "$verb" --raw "$tmp/trace" --last 40x
	refuses 2 'nom-freq' "$verb" --raw "$tmp/trace" --last 40us
	refuses 2 'at least one --image' "$verb" --raw "$tmp/trace"
	refuses 2 '--time and --no-time: only one' "$verb" -i "$tmp" --time --no-time
	printf '# no code\n' >"$tmp/table"
	run "$verb" --raw "$tmp/trace" --images "$tmp/table"
	is "$status" 0 "$verb: whoever passes --images knows"
done
refuses 2 "unknown option --depth" insns --raw "$tmp/trace" --depth 3
for debug in "$tmp/missing,No such file or directory" "$tmp,not a regular file" "$tmp/trace,not a valid ELF file"; do
	refuses 1 "^ptwatch insns: debug file ${debug%,*}: ${debug#*,}\$" insns --raw "$tmp/trace" "${image[@]}" \
		--debug "${debug%,*}"
done
refuses 2 "'mips': must be att or intel" insns --raw "$tmp/trace" --syntax mips
refuses 2 "'yaml': must be text, ip or json" packets --raw "$tmp/trace" --format yaml

# completes VERB OPTION: the values that bash offers
completes() {
	# shellcheck disable=SC2016 # the inner shell expands them
	bash -c '. "$1"; shift; COMP_WORDS=("$@" ""); COMP_CWORD=$#; _ptwatch; echo "${COMPREPLY[*]}"' bash \
		"$top/userspace/completion/ptwatch" "$ptwatch" "$@"
}
is "$(completes insns --syntax)" 'att intel' 'completion: --syntax'
is "$(completes calls --format)" 'text ip json' 'completion: --format'
is "$(completes packets --format)" 'text ip json' 'completion: --format of packets'

# A reader that has seen enough ends it without a word.
if sample_args skylake-hello; then
	set +o pipefail
	"$ptwatch" insns "${args[@]}" 2>"$tmp/err" | head -n 1 >"$tmp/out"
	set -o pipefail
	is "$(wc -l <"$tmp/out") $(cat "$tmp/err")" '1 ' 'a closed pipe is no error'
	run insns "${args[@]}" --tail 3
	unlike "$(cat "$tmp/out")" $'\033' 'no colours but on a terminal'
else
	skip 2 "no sample skylake-hello in $samples"
fi
done_testing
