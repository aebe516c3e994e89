#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The reports that follow the flow, from a sample of a real processor: exact numbers, and what people type wrong.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../conformance/common.sh
. "$(dirname "$0")/../conformance/common.sh"

# refuses STATUS REGEX ARGUMENT…
refuses() {
	local want=$1 regex=$2; shift 2

	run "$@"
	is "$status $(wc -l <"$tmp/err") $(wc -c <"$tmp/out")" "$want 1 0" "$*: status $want, one line, no output"
	like "$(cat "$tmp/err")" "$regex" "$*: says $regex"
}

# ---- wrong usage

for verb in stat latency markers evidence flame timeline export; do
	run $verb --help
	is "$status" 0 "$verb --help"
	like "$(cat "$tmp/out")" "ptwatch $verb -i rec" "$verb --help has an example"
	more=()
	[[ $verb != latency ]] || more=(--from main --to main)
	[[ $verb != export ]] || more=(--sqlite -o "$tmp/db")
	refuses 2 'i RECORDING or --raw' $verb
	refuses 2 "unknown option --nonsense" $verb --nonsense
	refuses 1 'No such file.*; -i takes' $verb -i "$tmp/missing" "${more[@]}"
done
refuses 2 '--to POINT is needed' latency -i "$tmp" --from main
refuses 2 '--from POINT is needed' latency -i "$tmp" --to main
refuses 2 "--by 'who': no such field in --format 'type:8 id:56'" latency -i "$tmp" --from marker:1 --to marker:2 --by who
refuses 2 '--by id pairs markers' latency -i "$tmp" --from main --to marker:2 --by id
refuses 2 "--worst 'all': must be a number" latency -i "$tmp" --from main --to main --worst all
refuses 2 "--format 'type': must be fields NAME:BITS" markers -i "$tmp" --format type
refuses 2 "field id: a marker has 64 bits, 56 are left" markers -i "$tmp" --format 'type:8 id:57'
refuses 2 "--names '0xA0': must be TYPE=NAME" markers -i "$tmp" --names 0xA0
refuses 2 "--type 'start': must be a number" markers -i "$tmp" --type start
refuses 2 '--context goes with --around' calls -i "$tmp" --context 3
refuses 2 "--tid 'main': must be the number" calls -i "$tmp" --tid main

refuses 2 "--format 'png': must be folded or svg" flame -i "$tmp" --format png
refuses 2 '--format svg and --json: only one of them' flame -i "$tmp" --format svg --json
refuses 2 'unknown option --json' export -i "$tmp" --json
refuses 2 "--from 'noon': must be a time" evidence -i "$tmp" --from noon
refuses 2 '--to comes before --from' evidence -i "$tmp" --from 2 --to 1
refuses 2 '--alarm and --everything: only one' evidence -i "$tmp" --alarm 1 --everything
refuses 2 'as what\? --perf or --sqlite' export -i "$tmp"
refuses 2 '--perf and --sqlite: only one' export -i "$tmp" --perf --sqlite
refuses 2 '-o FILE is needed' export -i "$tmp" --sqlite
refuses 2 '--perf goes with -i' export --raw "$tmp/missing" --image a,0,1,0 --perf -o "$tmp/dir"

# ---- the sample

sample_args skylake-hello || { skip 1 "no sample skylake-hello in $samples"; done_testing; exit; }

run stat "${args[@]}" --json
is "$status" 0 'stat of a sample'
is "$(head -n 1 "$tmp/out" | python3 -c 'import json, sys
t = json.load(sys.stdin)
print(t["bytes"], t["packets"], t["instructions"], t["errors"], t["by_type"]["TNT"], t["by_type"]["CYC"])')" \
	'14640 10116 59234 0 2810 4578' 'stat counts bytes, packets, instructions'
is "$(python3 -c 'import json, sys
t = json.loads(sys.stdin.readline()); print(sum(t["by_type"].values()) == t["packets"])' <"$tmp/out")" True 'the types make all packets'
run stat "${args[@]}"
like "$(cat "$tmp/out")" $'raw  *14,640 +10,116 +59,234 ' 'stat for people'

run latency "${args[@]}" --from __libc_start_main --to return:_dl_relocate_static_pie --json
is "$status" 0 'latency of a sample'
refuses 1 "no_such_function: no such symbol" latency "${args[@]}" --from no_such_function --to main
refuses 2 'without --nom-freq' latency --raw "$samples/skylake-hello/pt.bin" --cpu 6/85/4 \
	--image "$samples/skylake-hello/hello,1000,86fb1,401000" --from main --to return:main
run latency "${args[@]}" --from main --to return:main --worst 1 --json
is "$(python3 -c 'import json, sys
lines = [json.loads(line) for line in sys.stdin]
print(lines[0]["count"], lines[-1]["type"], lines[-1]["duration_ns"] == lines[0]["max_ns"])' <"$tmp/out")" '1 pair True' \
	'main is entered and left once'

run calls "${args[@]}"
is "$(awk 'length > 200' "$tmp/out" | wc -l)" 0 'lines of calls are cut'
run calls "${args[@]}" --around main --context 2
like "$(cat "$tmp/out")" 'main\+0x0 \[hello\] <- __libc_start_main\+0x' '--around shows the call'
lines=$(wc -l <"$tmp/out")
ok "--around --context 2 is short ($lines lines)" test "$lines" -le 10
run flame "${args[@]}"
like "$(head -n 3 "$tmp/out")" 'trace;_start;__libc_start_main [0-9]+' 'folded stacks'
total=$(awk '{ sum += $NF } END { print sum }' "$tmp/out")
run flame "${args[@]}" --json
is "$(python3 -c 'import json, sys; print(sum(json.loads(line)["self_ns"] for line in sys.stdin))' <"$tmp/out")" "$total" \
	'the same as JSON'
run flame "${args[@]}" -o "$tmp/flame.svg"
is "$(python3 - "$tmp/flame.svg" <<'END'
import sys, xml.dom.minidom
boxes = [g for g in xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("g")]
titles = [g.getElementsByTagName("title")[0].firstChild.data for g in boxes]
print(any(t.startswith("main — ") for t in titles), titles[0].startswith("all — "), float(boxes[0].getAttribute("data-w")))
END
)" 'True True 1200.0' 'the picture is XML and has its functions'

run flame "${args[@]}" -o "$tmp/flame.svg.gz"
is "$status $(zcat "$tmp/flame.svg.gz" | sha256sum)" "0 $(sha256sum <"$tmp/flame.svg")" 'compressed, it is the same picture'
run flame "${args[@]}" -o "$tmp/flame.gz"
is "$status $(zcat "$tmp/flame.gz" | sha256sum)" "0 $("$ptwatch" flame "${args[@]}" | sha256sum)" 'without .svg it is folded'

# A timeline nests: every end has its beginning, and no time runs backwards in a track.
cat >"$tmp/nests.py" <<'END'
import gzip, json, sys
events = json.load(gzip.open(sys.argv[1]) if sys.argv[1].endswith("gz") else open(sys.argv[1]))["traceEvents"]
stacks, last = {}, {}
for e in events:
    track = (e["pid"], e["tid"])
    if e["ph"] in "BEi":
        assert e["ts"] >= last.get(track, 0), e
        last[track] = e["ts"]
    if e["ph"] == "B":
        stacks.setdefault(track, []).append(e["name"])
    elif e["ph"] == "E":
        assert stacks[track].pop() == e["name"], e
print(sum(e["ph"] == "B" for e in events), sum(len(s) for s in stacks.values()), any(e["name"] == "main" for e in events))
END
run timeline "${args[@]}" -o "$tmp/line.json.gz"
is "$status" 0 'a timeline, compressed'
begins=$("$ptwatch" timeline "${args[@]}" | grep -c '"ph":"B"')
is "$(python3 "$tmp/nests.py" "$tmp/line.json.gz")" "$begins 0 True" "$begins calls nest"
is "$("$ptwatch" timeline "${args[@]}" --json | sha256sum)" "$("$ptwatch" timeline "${args[@]}" | sha256sum)" '--json changes nothing'
"$ptwatch" timeline "${args[@]}" --depth 2 >"$tmp/line.json"
like "$(python3 "$tmp/nests.py" "$tmp/line.json")" '^[0-9]+ 0 False$' '--depth 2 has no main'

run export "${args[@]}" --sqlite -o "$tmp/db"
is "$status" 0 'a database'
is "$(python3 - "$tmp/db" <<'END'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
one = lambda sql: db.execute(sql).fetchone()
print(one("SELECT value FROM meta WHERE key = 'schema'")[0], one("SELECT count(*) FROM call")[0],
      one("SELECT p.name FROM call c JOIN call q ON c.parent = q.id JOIN symbol s ON c.symbol = s.id JOIN symbol p ON q.symbol = p.id "
          "WHERE s.name = 'main'")[0], one("SELECT sum(self_ns) FROM call")[0])
END
)" "1 $begins __libc_start_main $total" 'with the same calls, and their parents'
refuses 1 'it exists; remove it' export "${args[@]}" --sqlite -o "$tmp/db"
refuses 1 'No such file or directory' flame "${args[@]}" -o "$tmp/no/such/dir"

# Times of packets are those of the instructions between them.
run packets "${args[@]}"
is "$(grep -m 1 PGE "$tmp/out" | tr -s ' ') $(grep PGD "$tmp/out" | tail -n 1 | tr -s ' ')" \
	'00000617 TIP.PGE 0x4016a0 0.000123507 00003484 TIP.PGD - 0.000389420' 'packets have times'
run packets "${args[@]}" --tail 2 --no-time
is "$(cat "$tmp/out")" $'0000392c  CYC        0x190\n0000392e  MTC        0x7c' 'packets --tail'
run packets "${args[@]}" --last 2us --count
is "$(cat "$tmp/out")" 14 'packets --last --count'
run insns "${args[@]}" --symbol main
is "$(awk '{ print $1, $2 }' "$tmp/out" | sed -n '1p;$p')" $'0.000360941 00000000004017c5\n0.000387440 00000000004017de' \
	'insns --symbol'
run insns "${args[@]}" --symbol main --count
is "$(cat "$tmp/out")" 8 'counted'
run insns "${args[@]}" --from 0.00036 --to 0.000361 --count
is "$(cat "$tmp/out")" 121 'insns --from --to --count'
run insns "${args[@]}" --from 0.00036 --to 0.000361 --format ip
is "$(wc -l <"$tmp/out")" 121 'as many'
refuses 2 '--to comes before --from' insns "${args[@]}" --from 2 --to 1
refuses 1 'no_such: no such symbol' insns "${args[@]}" --symbol no_such

# Code of a file without symbols: the addresses are as before, and the file is told.
dd if="$samples/skylake-hello/hello" of="$tmp/text.bin" bs=4096 skip=1 status=none
bare=("${args[@]:0:${#args[@]}-1}" "$tmp/text.bin,0,86fb1,401000")
run insns "${bare[@]}" --no-time
like "$(head -n 1 "$tmp/out")" '^--- enabled at 0x00000000004016a0 \[text.bin\]$' 'insns of code without symbols'
run insns "${bare[@]}" --tail 1 --json
is "$(python3 -c 'import json, sys
first, *_, last = [json.loads(line) for line in sys.stdin]
print(first["type"], first["ip"], first.get("symbol"), first.get("symbol_module"))' <"$tmp/out")" \
	"insn 0x$(zcat "$samples/skylake-hello/expected-ips.txt.gz" | tail -n 1) None text.bin" 'and as JSON'
run flame "${bare[@]}"
like "$(head -n 1 "$tmp/out")" '^trace;0x4016a0 \[text.bin\] [0-9]+$' 'and in stacks'

run markers "${args[@]}" --count
is "$(cat "$tmp/out")" 0 'no markers in it'

# ---- threads: in order, and the same, with any number of them

for ((i = 0; i < 12; i++)); do cat "$samples/skylake-hello/pt.bin"; done >"$tmp/long"
long=(--raw "$tmp/long" "${args[@]:2}")
for command in 'insns --format ip' 'calls --json' 'stat --json' 'timeline'; do
	read -ra words <<<"$command"
	one=$("$ptwatch" "${words[@]}" "${long[@]}" --jobs 1 | sha256sum)
	for jobs in 2 8; do
		is "$("$ptwatch" "${words[@]}" "${long[@]}" --jobs $jobs | sha256sum)" "$one" "$command: with $jobs threads as with one"
	done
done
is "$("$ptwatch" insns "${long[@]}" --format ip --jobs 8 | sha256sum)" \
	"$(for ((i = 0; i < 12; i++)); do zcat "$samples/skylake-hello/expected-ips.txt.gz"; done | sha256sum)" 'which is what ran'
refuses 2 "--jobs '0': must be a number of threads from 1 to 256" insns "${long[@]}" --jobs 0
refuses 2 'unknown option --jobs' packets "${long[@]}" --jobs 2
done_testing
