#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Three stories, told in a guest whose CPU has Intel PT with PTWRITE; in the first one its time is what it executes, so that
# nothing but the story makes a request slow. The reports have to find out by themselves:
# why two of 400 requests were slow, who overwrote a server's memory, and how somebody without rights became root.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/tap.sh"
needs_guest
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
tap_cleanup rm -rf "$work"
[[ -z ${PTWATCH_KEEP_STORIES:-} ]] || tap_cleanup mv "$work" "$PTWATCH_KEEP_STORIES"

build() { cc -O1 -g -static -pthread -fexceptions -fcf-protection=none -o "$work/$1" "${@:2}" || fail_all "cannot build ${*: -1}"; }
for program in intruder inferd unwinder; do build "$program" "tests/stories/$program.c"; done
# With retpolines and return thunks, as functions and in place.
build thunk -mindirect-branch=thunk -mfunction-return=thunk tests/stories/unwinder.c
build inline -mindirect-branch=thunk-inline -mfunction-return=thunk-inline tests/stories/unwinder.c
g++ -O2 -g -static -o "$work/thrower" tests/stories/thrower.cc || fail_all 'cannot build tests/stories/thrower.cc'
programs=(inferd intruder unwinder thunk inline thrower)
# scene WHICH [OPTION]…: in a guest
scene() {
	rc=0
	local puts=() program

	for program in "${programs[@]}"; do puts+=(--put "$work/$program"); done
	tests/vm/run --cpu icelake-server --timeout 400 --put tests/stories/scene.sh "${puts[@]}" --out "$work" "${@:2}" \
		-- /put/scene.sh "$1" >"$work/run.log" 2>&1 || rc=$?
	((rc == 0)) || diag "$(tail -n 15 "$work/run.log")"
}
scene latency --icount
is "$rc" 0 'the first is recorded in the guest'
scene others
is "$rc" 0 'the others are recorded in the guest'
# there COMMAND…: with the programs where the guest had them.
there() {
	# shellcheck disable=SC2016 # the inner shell expands them
	unshare -m sh -c 'mount -t tmpfs none /mnt && for program in $2; do cp "$1/$program" /mnt/ || exit; done && shift 2 && exec "$@"' \
		sh "$work" "${programs[*]}" "$@"
}
report() { there build/ptwatch "$@"; }

# ---- 1: tail latency

names=0xA0=start,0xA1=prefill,0xA2=decode,0xA3=hit,0xA4=done,0xA5=miss
request=(--from marker:0xA0 --to marker:0xA4 --by id --names "$names")
rc=0
report latency -i "$work/tail" "${request[@]}" --worst 2 >"$work/latency.txt" 2>"$work/err" || rc=$?
diag "$(cat "$work/latency.txt")"
((rc == 0)) || diag "$(head -n 5 "$work/err")"
is "$rc" 0 'latency: no gaps in the recording'
like "$(<"$work/latency.txt")" 'marker:0xA0 → marker:0xA4 by id: 400 pairs' '400 requests'
report latency -i "$work/tail" "${request[@]}" --worst 2 --json >"$work/latency.json" 2>/dev/null || true
report export -i "$work/tail" --sqlite -o "$work/tail.db" 2>/dev/null || true
cat >"$work/tail.py" <<'END'
import json, sqlite3, sys
pairs = [json.loads(line) for line in open(sys.argv[1]) if '"type":"pair"' in line]
db = sqlite3.connect(sys.argv[2])
names = {0xA0: "start", 0xA1: "prefill", 0xA2: "decode", 0xA3: "hit", 0xA4: "done", 0xA5: "miss"}
# In which request and phase the noise began, from the calls and markers themselves.
noise, = db.execute("SELECT min(start_ns) FROM call JOIN symbol ON symbol = symbol.id WHERE name = 'noise_flush'").fetchone()
value, = db.execute("SELECT value FROM marker WHERE time_ns <= ? ORDER BY time_ns DESC, rowid DESC LIMIT 1", (noise,)).fetchone()
value &= (1 << 64) - 1
expected = {(hex(value & ((1 << 56) - 1)), "interrupt, softirq", "noise_flush_entry" , names[value >> 56]),
            (hex(100), "on CPU", "recompute_prefix", "miss")}
found = {(p["id"], p["cause"], p["culprit"], p["phase"]) for p in pairs}
print("equal" if found == expected else f"found {found}, expected {expected}")
# From its first instruction to its last, through 400 waits for a request and all interrupts, everything is below _start.
server, = db.execute("SELECT DISTINCT thread FROM marker").fetchone()
first, = db.execute("SELECT call.id FROM call JOIN symbol ON symbol = symbol.id WHERE thread = ? AND name = '_start'", (server,)).fetchone()
print(db.execute("SELECT count(*) FROM call WHERE thread = ? AND parent IS NULL AND id > ?", (server, first)).fetchone()[0], "breaks")
END
is "$(python3 "$work/tail.py" "$work/latency.json" "$work/tail.db" 2>&1)" $'equal\n0 breaks' \
	"latency names both culprits, and the phases; the server's call stack never breaks"
is "$(report markers -i "$work/tail" --type 0xA0 --count 2>/dev/null)" 400 'as many starts'
# A function of the server, by its name; with and without the file's.
count() { report latency -i "$work/tail" --from "$1" --to "$2" --worst 0 --json 2>&1 | sed -n '1s/.*"count":\([0-9]*\),.*/\1/p'; }
is "$(count 'inferd!serve_one' 'return:serve_one') $(count prefill return:decode_batch)" '400 403' \
	'latency from and to functions of a program'
cat >"$work/stat.py" <<'END'
import collections, json, sys
rows = [json.loads(line) for line in sys.stdin]
threads = collections.Counter()
for r in rows:
    if r["type"] == "thread":
        threads[r["comm"]] += r["instructions"]
print(sum(r["instructions"] for r in rows if r["type"] == "thread") == sum(r["instructions"] for r in rows if r["type"] == "trace"),
      max(threads, key=threads.get))
END
is "$(report stat -i "$work/tail" --json 2>/dev/null | python3 "$work/stat.py" 2>&1)" 'True inferd' \
	'stat: every instruction is of a thread, most are of the server'
# ---- 2: memory overwritten

like "$(<"$work/crime.txt")" 'ALARM #1  write 8 bytes at .*server\+0x48' 'the watch saw the write'
report calls -i "$work/crime" --tail 12 >"$work/calls.txt" 2>"$work/err" || true
diag "$(cat "$work/calls.txt")"
like "$(tail -n 1 "$work/calls.txt")" 'note_latency\+0x[0-9a-f]+ \[inferd\]  <-- ALARM #1 write .*server\+0x48' 'calls ends at the writer'
like "$(<"$work/calls.txt")" 'tidy_figures\+0x0 \[inferd\] <- housekeeping\+0x[0-9a-f]+ \[inferd\]' 'and shows its path'
like "$(<"$work/calls.txt")" 'note_latency\+0x0 \[inferd\] <- tidy_figures\+0x[0-9a-f]+ \[inferd\]' 'to the write'

# The alarm's time is told on the clock of the reports: where the timeline has it, and behind the access.
report timeline -i "$work/crime" -o "$work/crime.json.gz" 2>/dev/null || true
report calls -i "$work/crime" --json >"$work/crime.calls" 2>/dev/null || true
cat >"$work/clock.py" <<'END'
import decimal, gzip, json, sys
alarm = json.loads(open(sys.argv[1] + "/crime/alarms.jsonl").readline())
events = json.loads(gzip.open(sys.argv[1] + "/crime.json.gz").read(), parse_float=decimal.Decimal)["traceEvents"]
drawn = [int(e["ts"] * 1000) for e in events if e.get("cat") == "alarm"]
hit, = [r["time_ns"] for r in map(json.loads, open(sys.argv[1] + "/crime.calls")) if r["type"] == "alarm"]
print(drawn == [alarm["time_ns"]], alarm["time_ns"] >= hit, abs(alarm["time_ns"] - hit) < abs(alarm["time"] - hit))
END
is "$(python3 "$work/clock.py" "$work" 2>&1)" 'True True True' "the alarm's time is on the clock of the reports"

# The names of a program's functions, too, are whole in the evidence.
is "$(report evidence -i "$work/crime" --json 2>/dev/null | sed -n 's/.*"symbol":"\([^"]*\)+0x.*"meaning":.*/\1/p' | tail -n 4 | paste -s -d ' ')" \
	'housekeeping tidy_figures note_latency note_latency' 'evidence names the path to the write and the writer'

# For others: stock perf finds the same calls in what is exported, of the kernel and the server, on the way to the hit.
if command -v perf >/dev/null; then
	cpu=$(sed -n 's/.*"cpu":\([0-9]*\).*/\1/p' "$work/crime/alarms.jsonl")
	report export -i "$work/crime" -C "$cpu" --perf -o "$work/exported" 2>/dev/null || true
	since=$(tail -n 1 "$work/calls.txt" | awk '{ printf "%.3f", $1 - 0.02 }')
	for recording in crime exported; do
		there perf script -i "$work/$recording" -C "$cpu" --itrace=cr --time "$since," -F comm,tid,ip,addr 2>/dev/null \
			>"$work/$recording.branches" || true
	done
	is "$(awk '$1 == "inferd" && $3 ~ /^4/ { print "some"; exit }' "$work/crime.branches")" some 'perf follows the server'
	is "$(md5sum <"$work/exported.branches")" "$(md5sum <"$work/crime.branches")" 'export --perf: the same calls of the same threads'
else
	skip 2 'perf is not installed'
fi

# ---- 3: evidence after the fact

like "$(<"$work/id.txt")" '^uid=0\(root\)' 'the intruder has become root'
rc=0
report evidence -i "$work/evidence" >"$work/evidence.out" 2>"$work/err" || rc=$?
diag "$(head -n 60 "$work/evidence.out" | cut -c -150)"
is "$rc" 0 'evidence: no gaps in the recording'
report evidence -i "$work/evidence" --json >"$work/evidence.json" 2>/dev/null || true
cat >"$work/chain.py" <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
def find(event, start, what=None):
    for i in range(start, len(rows)):
        if rows[i]["event"] == event and (what is None or rows[i].get("symbol", "").split("+")[0].split(".")[0] == what or what in rows[i]["meaning"]):
            return i
    sys.exit(f"no {event} {what} from row {start} on")
at = find("kernel entry", 0)
assert at == 0 and rows[0]["since_t0_ns"] == 0, rows[0]
chain = [("system call", "__x64_sys_ioctl"), ("module code", "ledger_ioctl"), ("copy from user", None), ("call", "ledger_take"),
         ("call", "ledger_enter"), ("call", "ledger_become_operator"), ("credentials", "commit_creds"), ("kernel exit", None),
         ("kernel entry", None), ("system call", "__x64_sys_execve"), ("exec", None), ("new program", "'id'")]
for event, what in chain:
    at = find(event, at + 1, what)
wrong = [r for r in rows if r.get("suspicious")]
print(len({r["pid"] for r in rows}), [r["symbol"].split("+")[0] for r in wrong], "in ioctl" in wrong[-1]["meaning"])
times = [r["time_ns"] for r in rows]
print(times == sorted(times), all("address" in r for r in rows if r["event"] not in ("new program", "kernel exit", "gap")))
END
is "$(python3 "$work/chain.py" "$work/evidence.json" 2>&1)" "1 ['prepare_kernel_cred', 'commit_creds'] True"$'\n'"True True" \
	'ioctl, copy_from_user, credentials, exec: in this order, of this process only'
kallsyms=$work/evidence/kcore_dir/kallsyms
for symbol in commit_creds ledger_ioctl __x64_sys_ioctl; do
	address=$(awk -v s=$symbol '$3 == s { print $1; exit }' "$kallsyms")
	like "$(<"$work/evidence.out")" "$address .*$symbol\\+0x0" "$symbol at its address"
done
like "$(<"$work/evidence.out")" 'commit_creds\+0x0 +the process gets other credentials, in ioctl, whose work that is not' \
	'it says what is wrong'
# ---- call stacks

is "$(<"$work/tracers.txt")" '' 'the function tracers, kprobes and a kretprobe are there'
cat >"$work/stacks.py" <<'END'
"""stacks.py DATABASE PROGRAM: who called whom in it, and how often; thirty rounds."""
import sqlite3, sys
unwinder = {
    ("main", "all_ways", "call"): 30, ("all_ways", "ends_in_call", "call"): 30, ("all_ways", "leaf", "tail-call"): 60,
    ("all_ways", "calls_pointer", "call"): 30, ("calls_pointer", "leaf", "call"): 30, ("all_ways", "ends_in_pointer", "call"): 30,
    ("all_ways", "long_jump", "call"): 30, ("long_jump", "calls_jumps", "call"): 30, ("calls_jumps", "jumps", "call"): 30,
    ("jumps", "leaf", "call"): 30, ("long_jump", "leaf", "call"): 30,
    ("all_ways", "catches", "call"): 30, ("catches", "cleans_up", "call"): 30, ("cleans_up", "throws", "call"): 30,
    ("catches", "leaf", "call"): 30,
    ("all_ways", "gets_signal", "call"): 60, ("handler", "leaf", "call"): 60, ("gets_signal", "leaf", "call"): 60,
}
# catches_int is called by all_throws and by catches_two; a call at the end of a function is made for its caller.
thrower = {
    ("main", "all_throws", "call"): 30, ("all_throws", "catches_int", "call"): 30, ("main", "catches_two", "tail-call"): 30,
    ("catches_int", "passes_by", "call"): 60, ("catches_two", "passes_by", "call"): 30, ("passes_by", "throws_again", "call"): 90,
    ("throws_again", "destroys", "call"): 90, ("destroys", "throws", "call"): 90, ("throws", "leaf", "call"): 90,
    ("destroys", "destroyed", "call"): 90, ("throws_again", "leaf", "call"): 90, ("catches_int", "leaf", "call"): 60,
    ("all_throws", "leaf", "tail-call"): 30, ("catches_two", "catches_int", "call"): 30, ("catches_two", "leaf", "tail-call"): 30,
    ("main", "leaf", "tail-call"): 30,
}
expected = thrower if sys.argv[2] == "thrower" else unwinder
own = {name for pair in expected for name in pair[:2]} | {"handler"}
db = sqlite3.connect(sys.argv[1])
thread, first = db.execute("SELECT thread, call.id FROM call JOIN symbol ON symbol = symbol.id WHERE name = '_start'").fetchone()
pairs = dict(((caller, name, kind), count) for caller, name, kind, count in db.execute("""
	SELECT p.name, s.name, c.kind, count(*) FROM call c JOIN symbol s ON s.id = c.symbol
	JOIN call d ON d.id = c.parent JOIN symbol p ON p.id = d.symbol WHERE c.thread = ? AND c.id > ? GROUP BY 1, 2, 3""", (thread, first)))
found = {pair: count for pair, count in pairs.items() if pair[0] in own and pair[1] in own}
print("equal" if found == expected else f"found {found}")
count = lambda function: sum(count for (_, name, _), count in pairs.items() if name == function)
print(count("handler"), "handlers,", count("__x64_sys_kill"), "kills,", count("complete_signal"), "signals,",
      count("_Unwind_RaiseException"), "raised,",
      db.execute("SELECT count(*) FROM call WHERE thread = ? AND parent IS NULL AND id > ?", (thread, first)).fetchone()[0], "breaks")
END
for program in unwinder thunk inline thrower; do
	rc=0
	report export -i "$work/$program-trace" --sqlite -o "$work/$program.db" 2>"$work/err" || rc=$?
	is "$rc $(cat "$work/err")" '0 ' "$program: no gaps in the recording"
	expected='60 handlers, 60 kills, 60 signals, 0 raised, 0 breaks'
	# Thrown, and thrown again by the same function.
	[[ $program != thrower ]] || expected='0 handlers, 0 kills, 0 signals, 180 raised, 0 breaks'
	is "$(python3 "$work/stacks.py" "$work/$program.db" "$program" 2>&1)" "equal"$'\n'"$expected" \
		"$program: every function is called by who called it, whatever is left by tail calls, longjmp, exceptions, signals"
done

# Stock perf has the kernel's calls inside of the same others, where probes are jumps and where they are breakpoints.
like "$(<"$work/jumps.txt")" 'do_send_sig_info\+0x[59] .*\[OPTIMIZED\]' 'a probe is a jump'
unlike "$(<"$work/traps.txt")" 'OPTIMIZED' 'and then it is a breakpoint'
for which in jumps traps; do
	report calls -i "$work/$which" -C 1 --all --json >"$work/$which.calls" 2>"$work/err" || true
	is "$(cat "$work/err")" '' "$which: no gaps in the recording"
	is "$(grep -c '"type":"tail-call".*"symbol":"kprobe_[a-z]*_page' "$work/$which.calls" || true)" 0 "$which: they take no function's place"
	is "$(grep '"comm":"unwinder"' "$work/$which.calls" | grep -c '"symbol":"trace_graph_entry+0x0' || true)" 60 "$which: the tracers ran"
	if command -v perf >/dev/null; then
		there perf script -f -i "$work/$which" -C 1 --itrace=cr -F tid,flags,ip,addr >"$work/$which.perf" 2>/dev/null || true
		like "$(python3 tests/lib/same_calls.py "$work/$which.perf" "$work/$which.calls" --inside unwinder)" \
			'^([0-9]+) of ([0-9]+) calls, all [0-9]{5} of unwinder inside of the same$' "$which: each call is inside of the one that perf has it in"
	else
		skip 1 'perf is not installed'
	fi
done
like "$(grep -h -o '"type":"exception".*"symbol":"asm_exc_int3.*caller":"do_send_sig_info' "$work/traps.calls" | wc -l)" '^60$' 'the breakpoint was hit'
done_testing
