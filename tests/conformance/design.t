#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The contract's spellings: verbs, options, formats, files and exit statuses as they are promised to others, one by one.
# What needs a machine with our module is in tests/cli and tests/guest.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

# ---- verbs

run --help
verbs=(info watch watches unwatch record snapshot packets insns calls latency markers flame timeline stat evidence export)
is "$(sed -n 's/^  \([a-z]*\)  .*/\1/p' "$tmp/out" | sort | paste -s -d ' ')" "$(printf '%s\n' "${verbs[@]}" | sort | paste -s -d ' ')" \
	'the verbs, and no others'
for verb in "${verbs[@]}"; do
	run "$verb" --help
	[[ $verb == unwatch || $verb == export ]] && json=0 || json=1
	is "$status $((0 < $(grep -c -e '--json' "$tmp/out"))) $(<"$tmp/err")" "0 $json " "$verb: --help, with --json where a program might read"
	# What the help promises is in the man page; options with a bold or italic rest count, too.
	sed 's/\\-/-/g; s/\\f[BIRP]//g' "$top/userspace/man/ptwatch-$verb.1" >"$tmp/man"
	[[ $verb != snapshot ]] || sed 's/\\-/-/g; s/\\f[BIRP]//g' "$top/userspace/man/ptwatch-record.1" >>"$tmp/man"
	# Those that read traces refer to calls(1) for where these come from.
	grep -q 'ptwatch-calls (1)' "$tmp/man" && sed 's/\\-/-/g; s/\\f[BIRP]//g' "$top/userspace/man/ptwatch-calls.1" >>"$tmp/man"
	missing=$(grep -oE '(^| )--[a-z0-9-]+' "$tmp/out" | sort -u | while read -r option; do
		grep -qE -e "$option([^a-z0-9-]|\$)" "$tmp/man" || printf '%s ' "$option"
	done)
	is "$missing" '' "$verb: every option of --help is in the man page"
done

# ---- raw bytes: ptwatch packets|insns|calls --raw TRACE --cpu FAMILY/MODEL/STEPPING …

if sample_args skylake-hello; then
	hello=$(readlink -f "$samples/skylake-hello")
	printf '# code\n\n%s\t%s\t%s\t%s\n' "$hello/hello" 1000 86fb1 401000 >"$tmp/table"
	all=(--raw "$hello/pt.bin" --cpu 6/85/4 --bits 64 --mtc-freq 3 --nom-freq 37 --cpuid15 "2,308" --addr-filter "0,0,0,0" --addr-filter "1,0,0,0")
	for verb in packets insns calls; do
		for format in text ip json; do
			run $verb "${all[@]}" --images "$tmp/table" --format $format
			cp "$tmp/out" "$tmp/by-table"
			is "$status $(<"$tmp/err")" '0 ' "$verb --images TABLE --format $format"
			run $verb "${all[@]}" --image "$hello/hello,1000,86fb1,401000" --format $format
			ok "$verb: --image tells the same" cmp "$tmp/out" "$tmp/by-table"
			[[ $format != ip ]] || is "$(grep -cvE '^[0-9a-f]{16}$' "$tmp/out")" 0 "$verb --format ip: 16 digits a line"
		done
		run $verb "${all[@]}" --images "$tmp/table" --format ip --count
		is "$(<"$tmp/out")" "$("$ptwatch" $verb "${all[@]}" --images "$tmp/table" --format ip | wc -l)" "$verb --count: only their number"
	done
	# The addresses of packets, put together from what each holds of them.
	"$ptwatch" packets "${all[@]}" --json >"$tmp/packets"
	"$ptwatch" packets "${all[@]}" --format ip >"$tmp/ips"
	cat >"$tmp/whole.py" <<'END'
import json, sys
last, keep = 0, {1: 0xffffffffffff0000, 2: 0xffffffff00000000, 3: 0, 4: 0xffff000000000000, 6: 0}
for packet in map(json.loads, open(sys.argv[1])):
    if packet["type"] == "PSB":
        last = 0
    if packet["type"] in ("FUP", "TIP", "TIP.PGE", "TIP.PGD") and packet["ipbytes"]:
        value = int(packet["value"], 16)
        if packet["ipbytes"] == 3 and value >> 47:
            value |= 0xffff << 48
        last = last & keep[packet["ipbytes"]] | value
        print(f"{last:016x}")
END
	python3 "$tmp/whole.py" "$tmp/packets" >"$tmp/whole"
	ok 'packets --format ip: the address of each FUP and TIP' cmp "$tmp/whole" "$tmp/ips"
	is "$("$ptwatch" packets "${all[@]}" --format ip --tail 3)" "$(tail -n 3 "$tmp/ips")" '--tail: of those'
	zcat "$hello/expected-ips.txt.gz" | sort -u >"$tmp/ran"
	"$ptwatch" packets "${all[@]}" --json | grep '"type":"TIP",' | grep -c . >"$tmp/tips"
	is "$(sort -u "$tmp/ips" | comm -23 - "$tmp/ran" | wc -l)" 0 'and all of them are of instructions that ran, or were to'
	run insns "${all[@]}" --images "$tmp/table" --format ip
	is "$(sha256sum <"$tmp/out")" "$(zcat "$hello/expected-ips.txt.gz" | sha256sum)" 'insns --format ip: every instruction, in order'
	# Resynchronised: the trace once more behind damage, which is told with its offset.
	{ cat "$hello/pt.bin"; printf '\2\301'; cat "$hello/pt.bin"; } >"$tmp/damaged"
	run insns --raw "$tmp/damaged" "${all[@]:2}" --images "$tmp/table" --count
	like "$status $(<"$tmp/out") $(<"$tmp/err")" '^3 118468 ptwatch insns: trace offset 0x3930: ' 'status 3: errors with the offset, and on at the next PSB'
else
	skip 40 "no sample skylake-hello in $samples"
fi

# ---- -i and -o as in perf: what is written without -o is read without -i

mkdir "$tmp/here"
for verb in calls stat timeline; do
	(cd "$tmp/here" && run $verb && echo "$status $(<"$tmp/err")") >"$tmp/said" || true
	like "$(<"$tmp/said")" '^2 .*nothing to read: -i RECORDING or --raw TRACE is needed, as there is no ptwatch.data here ' "$verb: nothing to read"
	mkdir "$tmp/here/ptwatch.data"
	(cd "$tmp/here" && run $verb && echo "$status $(<"$tmp/err")") >"$tmp/said" || true
	like "$(<"$tmp/said")" "^1 ptwatch $verb: ptwatch.data" "$verb reads ptwatch.data"
	rmdir "$tmp/here/ptwatch.data"
done

# ---- exit statuses

run bogus
is "$status" 2 'status 2: wrong usage'
run calls -i "$tmp/nothing"
is "$status" 1 'status 1: failed'
if [[ ! -e /dev/ptwatch ]]; then
	for verb in info record watches; do
		[[ $verb != record ]] || set -- -- true
		run $verb "$@"
		set --
		is "$status $(wc -l <"$tmp/err")" '4 1' "$verb: status 4, in one line"
		like "$(<"$tmp/err")" 'no /dev/ptwatch\); load it: modprobe ptwatch, or insmod ptwatch.ko' 'with the reason and the remedy'
	done
else
	skip 6 'the module is loaded'
fi
done_testing
