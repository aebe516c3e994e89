#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The program with the module, as root in the guest; prints TAP. From the host:
#
#	tests/vm/run --put tests/cli/guest.sh --put tests/lib/tap.sh -- /put/guest.sh
#
# With --no-pt (`tests/vm/run --no-pt …`) it checks what a machine without Intel PT
# does, instead of the freezing.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/lib/tap.sh
if [[ -e $here/tap.sh ]]; then . "$here/tap.sh"; else . "$here/../lib/tap.sh"; fi

out=$(mktemp -d)
chmod 755 "$out"
clean() {
	jobs -p | xargs -r kill 2>/dev/null
	rm -rf "$out"
}
tap_cleanup clean
cd "$out" || exit

# run COMMAND…: $stdout, $stderr, $status. What hangs is a failure, not a hung test.
run() {
	status=0
	timeout -k 5 120 "$@" >"$out/stdout" 2>"$out/stderr" </dev/null || status=$?
	stdout=$(<"$out/stdout")
	stderr=$(<"$out/stderr")
}

# refuses STATUS REGEX COMMAND…: one matching line on stderr, nothing on stdout, and nothing armed
refuses() {
	local expected=$1 regex=$2
	shift 2
	run "$@"
	is "$status" "$expected" "status $expected: $*"
	like "$stderr" "$regex" "says why: $*"
	is "$stdout$(grep -vc ^armed: "$out/stderr")" 1 "in one line: $*"
}

# until CONDITION…: wait for it, 30 seconds at most
until_true() {
	local i
	for ((i = 0; i < 300; i++)); do
		! "$@" || return 0
		sleep 0.1
	done
	return 1
}
held_by_perf() { [[ $(find "/proc/$1/fd" -lname '*perf_event*' 2>/dev/null) ]]; }
end_job() { kill "$1" 2>/dev/null; wait "$1" 2>/dev/null; }

modprobe kvdemo
echo go >/proc/kvdemo
meta=0x$(awk '$3 == "kv_cache_meta" { print $1 }' /proc/kallsyms)
pt=no
[[ ! -e /sys/bus/event_source/devices/intel_pt ]] || pt=yes

# ---- info

run ptwatch info
if [[ $pt == yes ]]; then
	is "$status" 0 'info: status 0'
	like "$stdout" 'Held by +nobody' 'info: nobody holds Intel PT'
	like "$stdout" 'MTCFreq +[0-9]' 'info: MTCFreq has values'
	like "$stdout" 'PSBFreq +0 \(2 KiB\)' 'info: PSBFreq has values, with bytes'
	is "$stderr" '' 'info: nothing to complain about'
else
	is "$status" 4 'info without Intel PT: status 4'
	like "$stderr" 'this CPU has no Intel PT.*without --freeze' 'info without Intel PT: the remedy'
	like "$stdout" 'Intel PT +no' 'info without Intel PT: says so'
	skip 2 'no Intel PT'
fi
like "$stdout" 'Module +loaded.*ABI 1' 'info: the module is loaded'
run ptwatch info --json
is "$(python3 -c 'import json, sys
facts = json.load(sys.stdin)
print(facts["module"]["loaded"], facts["pt"]["present"], facts["cpu"]["breakpoint_slots"])' <<<"$stdout")" \
	"True $([[ $pt == yes ]] && echo True || echo False) 4" 'info --json: the same facts'

# ---- watch: the alarm

run ptwatch watch kv_cache_meta:8:w
is "$status" 0 'watch: status 0'
like "$stderr" "^armed: kv_cache_meta:8:w at $meta on $(nproc) CPUs, waiting… \(not seen: writes by NMI, #MC and #DB handlers, DMA\)" \
	'watch: says that it is armed, and what it will not see'
like "$stdout" "^ALARM #1  write 8 bytes at kv_cache_meta\+0x0 \($meta\)  cpu [0-9]+  pid [0-9]+ \(health_check\)
          old 0x[0-9a-f]{16}  new 0x5a5a0000deadbeef
          stack: kv_note_result\+0x[0-9a-f]+ \[kvdemo\]  " 'watch: the alarm, line by line'
like "$(dmesg | tail -20)" 'ptwatch.*kv_cache_meta' 'watch: the kernel log has it too'

run ptwatch watch kvdemo:kv_cache_meta:4:w --json -n 2
is "$(python3 -c 'import json, sys
for line in sys.stdin:
	alarm = json.loads(line)
	print(alarm["address"] == sys.argv[1], alarm["len"], alarm["access"], alarm["comm"], alarm["new"][-8:])' \
	"$meta" <<<"$stdout" | sort | uniq -c | sed 's/^ *//')" '2 True 4 w health_check deadbeef' 'watch --json -n 2: two objects'
run ptwatch watch jiffies_64:8:w
like "$stdout" '^ALARM #[0-9]+  write 8 bytes at jiffies' 'watch: the example of the man page'
number=$(sed -n 's/^ALARM \(#[0-9]*\) .*/\1/p' "$out/stdout")
like "$(dmesg | tail -80)" "ALARM ${number:-missing}: write 8 bytes at jiffies" 'watch: its number is the one in the kernel log'
run ptwatch watch "$meta:1:rw"
like "$stdout" 'access 1 byte at kv_cache_meta\+0x0' 'watch: an address is named'
like "$stdout" '          old 0x[0-9a-f]{2}  new 0xef
' 'watch: one byte, two digits'
run ptwatch watch kvdemo:health_tick:x
like "$stdout" 'execute health_tick\+0x0 ' 'watch: execution'
unlike "$stdout" 'old 0x' 'watch: execution has no values'
unlike "$stderr" 'begins there' 'watch: execution at a symbol needs no warning'
run ptwatch watch kvdemo:health_tick+1:x kvdemo:health_tick+2:x --timeout 1ms
is "$(grep -c 'health_tick+1:x is hit only if an instruction begins there' "$out/stderr") $(grep -c 'begins there' "$out/stderr")" \
	'1 1' 'watch: execution behind a symbol is warned of, once'
run ptwatch watch kv_cache_meta:8:w kvdemo:health_tick:x -n 4 --no-log
is "$(grep -c ^ALARM <<<"$stdout") $(grep -c ^armed: <<<"$stderr")" '4 2' 'watch: two targets, four alarms'

run ptwatch watch kvdemo:health_tick:8:w --timeout 1ms
like "$stderr" 'kvdemo:health_tick:8:w is code, and this watches data accesses to its bytes' 'watch: the bytes of code are remarked on'

# ---- watch: how it ends

rmmod kvdemo && modprobe kvdemo	# silent again
meta=0x$(awk '$3 == "kv_cache_meta" { print $1 }' /proc/kallsyms)
# What makes perf take all debug registers of a CPU.
four=()
for i in 0 8 16 24; do
	four+=(-e "mem:0x$(printf '%x' $((meta + i)))/8:w")
done
run ptwatch watch kv_cache_meta:8:w --timeout 300ms
is "$status" 1 'nobody in time: status 1'
like "$stderr" 'no hit in time; nothing touched kv_cache_meta:8:w' 'nobody in time: says so'
run ptwatch watch kv_cache_meta:8:w -- true
is "$status" 1 'nobody until the command ended: status 1'
like "$stderr" 'true ended; nothing had touched' 'nobody until the command ended: says so'
run ptwatch watch kv_cache_meta:8:w -- /nonexistent/program
is "$status" 1 'a command that does not exist: status 1'
like "$stderr" 'cannot run /nonexistent/program: No such file' 'a command that does not exist: says so'
for signal in INT TERM; do
	# The shell starts its background jobs with SIGINT ignored.
	# The job may come to its redirection only after we looked whether it is armed.
	: >"$out/stderr"
	env --default-signal=INT ptwatch watch kv_cache_meta:8:w 2>"$out/stderr" &
	pid=$!
	until_true grep -q ^armed: "$out/stderr"
	kill -"$signal" "$pid"
	wait "$pid"
	is "$?" 1 "SIG$signal before any hit: status 1"
	like "$(<"$out/stderr")" 'interrupted; nothing had touched' "SIG$signal before any hit: says so"
done
: >"$out/stderr"
ptwatch watch kv_cache_meta:8:w 2>"$out/stderr" &
pid=$!
until_true grep -q ^armed: "$out/stderr"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
run perf stat -a "${four[@]}" -- true
is "$status" 0 'after SIGKILL all debug registers are free'
run ptwatch watch kv_cache_meta:8:w -- sh -c 'echo go >/proc/kvdemo; sleep 5; echo done >ended'
is "$status" 0 'the command causes the hit: status 0'
like "$stdout" '^ALARM #[0-9]+ ' 'the command causes the hit: alarm'
like "$stdout" 'old 0x5a5a000000000010  new 0x5a5a0000deadbeef' 'the first overwriting: old and new value'
ok 'the command is waited for' test -e ended

# ---- watch: an output nobody reads, a command that does not end

timeout -k 5 60 ptwatch watch jiffies_64:8:w --follow 2>"$out/stderr" | true
is "${PIPESTATUS[0]}" 1 'a reader that left ends --follow: status 1'
unlike "$(<"$out/stderr")" 'ptwatch watch: .*(write|pipe)' 'a reader that left ends --follow: without a word'
status=0; timeout -k 5 60 ptwatch watch jiffies_64:8:w --follow >/dev/full 2>"$out/stderr" || status=$?
is "$status" 1 'a full stdout: status 1'
like "$(<"$out/stderr")" 'cannot write the output: No space left on device' 'a full stdout: the reason'
rmmod kvdemo && modprobe kvdemo
meta=0x$(awk '$3 == "kv_cache_meta" { print $1 }' /proc/kallsyms)
begin=$SECONDS
run ptwatch watch kv_cache_meta:8:w --timeout 300ms -- sh -c 'trap "" TERM; while :; do sleep 0.1; done'
is "$status" 1 '--timeout with a command that ignores SIGTERM: status 1'
ok 'it is killed soon after' test $((SECONDS - begin)) -lt 20
echo go >/proc/kvdemo

# ---- watch: what this machine says no to

refuses 1 'kv_cache_mete: no such symbol; did you mean .*kv_cache_meta' ptwatch watch kv_cache_mete:8:w
refuses 1 'kv_cache_meta\+4:8:w: 0x[0-9a-f]+ is not aligned to 8 bytes.*watch 4 bytes there' ptwatch watch kv_cache_meta+4:8:w
refuses 1 'kv_cache_meta is data' ptwatch watch kv_cache_meta:x
refuses 2 'not aligned to 8 bytes' ptwatch watch "0x$(printf '%x' $((meta + 4))):8:w"
refuses 1 '5 targets, but a CPU has 4 debug registers' \
	ptwatch watch kv_cache_meta:1:w kv_cache_meta+1:1:w kv_cache_meta+2:1:w kv_cache_meta+3:1:w kv_cache_meta+4:1:w
refuses 1 'one the kernel refuses \(entry code' ptwatch watch 0xfffffe0000000000:8:w
refuses 1 'not mapped, or one' ptwatch watch 0xffffffffffffeff8:8:w
if grep -qw la57 /proc/cpuinfo; then
	skip 3 'this kernel has 5-level page tables'
else
	refuses 1 'no address of this kernel' ptwatch watch 0xff80000000000000:8:w
fi
refuses 1 'needs root' setpriv --reuid nobody --clear-groups ptwatch watch kv_cache_meta:8:w
refuses 1 'needs root' setpriv --reuid nobody --clear-groups ptwatch watch "$meta:8:w"
run setpriv --reuid nobody --clear-groups ptwatch info
is "$status" "$([[ $pt == yes ]] && echo 1 || echo 4)" 'info as nobody: status'
like "$stdout" 'Module +loaded, but' 'info as nobody tells the rest'

perf stat -a "${four[@]}" -- sleep 1000 >/dev/null 2>&1 &
perf=$!
until_true held_by_perf "$perf"
sleep 1
refuses 1 "no free debug register for kv_cache_meta:8:w .*perf \(pid $perf\)" ptwatch watch kv_cache_meta:8:w
end_job "$perf"
run ptwatch watch kv_cache_meta:8:w
is "$status" 0 'free again: status 0'

# ---- watch --freeze

if [[ $pt == no ]]; then
	refuses 4 'this CPU has no Intel PT.*watch without --freeze works here' ptwatch watch kv_cache_meta:8:w --freeze
	ok 'no recording was begun' test ! -e ptwatch.data
	done_testing
	exit
fi

perf record -q -a -e intel_pt//k -o "$out/perf.data" -- sleep 1000 >/dev/null 2>&1 &
perf=$!
until_true held_by_perf "$perf"
sleep 1
refuses 1 "Intel PT is in use by perf, most likely perf \(pid $perf\); stop the perf session" \
	ptwatch watch kv_cache_meta:8:w --freeze
refuses 1 'Intel PT is in use by perf' ptwatch record -o held -- true
run ptwatch info
like "$stdout" "Held by +perf \(pid $perf\), on CPU 0" 'info: perf holds Intel PT'
end_job "$perf"
until_true ptwatch watch kv_cache_meta:8:w --freeze -o free >/dev/null 2>&1
# The limit: all CPUs' buffers within half of the memory
most=$(ptwatch info --json | python3 -c 'import json, os, sys
most = json.load(sys.stdin)["pt"]["max_buffer_size"]
total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
print(most if most == total // 2 // os.cpu_count() & ~4095 else f"{most} of {total}")')
like "$most" '^[0-9]+$' 'max_buffer_size is a CPU'"'"'s share of half of the memory'
refuses 1 '--buffer 512G is larger than this machine gives; take at most [0-9.]+ MiB, a CPU'"'"'s share of half its memory$' \
	ptwatch watch kv_cache_meta:8:w --freeze -m 512G
refuses 1 "--ring $((most + 4096)) is larger than this machine gives; take at most [0-9.]+ MiB, a CPU's share of half its memory\$" \
	ptwatch snapshot --ring $((most + 4096)) -C 0
refuses 1 "CPU 77 is not online; online: $(</sys/devices/system/cpu/online)\$" ptwatch watch kv_cache_meta:8:w --freeze -C 77
refuses 1 'nonexistent' ptwatch watch kv_cache_meta:8:w --freeze -o /nonexistent/dir/crime
# Nothing is said of a command that did not run: neither held back before its exec, nor stopped behind it.
refuses 1 'nonexistent' ptwatch record -C 0 -o /nonexistent/dir/crime -- true
refuses 1 'nonexistent' ptwatch record -o /nonexistent/dir/crime -- true
refuses 1 'no_such_function: no such symbol' ptwatch record --filter no_such_function -- true
refuses 1 '--cgroup /tmp is no cgroup of version 2; it takes the directory of one' ptwatch record --cgroup /tmp -- true
refuses 2 "'do_exit - ' has one end only" ptwatch record -a --filter 'do_exit - ' -- true
refuses 2 '--start-at panic and --stop-at panic\+0x0 are both 0x[0-9a-f]+: what comes there cannot both start and stop' \
	ptwatch record -a --start-at panic --stop-at panic+0x0

run ptwatch watch kv_cache_meta:8:w --freeze -o crime
is "$status" 0 'watch --freeze: status 0'
like "$stdout" '
          trace: [0-9,]+ bytes frozen on cpu [0-9]+, [0-9,]+ instructions? after the write$' 'watch --freeze: the trace line'
like "$stderr" 'read it: ptwatch calls -i crime' 'watch --freeze: how to read it'
ok 'the recording has its parts' test -s crime/data -a -s crime/kcore_dir/kcore -a -s crime/kcore_dir/kallsyms -a \
	-s crime/alarms.jsonl
is "$(wc -l <crime/alarms.jsonl)" 1 'the recording has the alarm'
timeout -k 5 120 ptwatch watch jiffies_64:8:w --freeze -o closed 2>"$out/stderr" | true
is "${PIPESTATUS[0]}" 1 'watch --freeze and a reader that left: status 1'
ok 'the recording is written all the same' test -s closed/data -a -s closed/alarms.jsonl
is "$(echo closed*)" closed 'and nothing else is left'
for signal in QUIT USR1; do
	: >"$out/stderr"
	ptwatch watch panic:x --freeze -o early 2>"$out/stderr" &
	pid=$!
	until_true grep -q ^armed: "$out/stderr"
	kill -"$signal" "$pid"
	wait "$pid"
	is "$? $(echo early*)" '1 early*' "SIG$signal before any hit: status 1, and no half recording is left"
done
mkdir small && mount -t tmpfs -o size=1m tmpfs small
refuses 1 'No space left on device' ptwatch record -o small/crime -- true
run ptwatch watch jiffies_64:8:w --freeze -o small/crime
is "$status" 1 'a full disk: status 1'
is "$(grep -c '^ptwatch watch: ' "$out/stderr")" 2 'a full disk: progress and one error'
like "$stderr" 'ptwatch watch: .*No space left on device' 'a full disk: the reason'
is "$(ls -A small)" '' 'a full disk: nothing is left'
umount small
run ptwatch watch jiffies_64:8:w --freeze -o twice -n 2 -C 0
like "$stderr" 'this alarm froze no trace: (CPU [1-9][0-9]* is not traced|that of CPU 0 had been stopped by an alarm before)
' \
	'an alarm that froze no trace: the reason'
run ptwatch insns -i crime --tail 30
ok 'insns reads it' test "$status" -eq 0 -o "$status" -eq 3
like "$stdout" 'kv_note_result' 'insns: the culprit is among the last instructions'
run ptwatch watch kv_cache_meta:8:w --freeze -o crime -m 64k -n 2 --json
is "$status $(wc -l <<<"$stdout")" '0 2' 'watch --freeze -n 2 --json: two objects'
ok 'the older recording was moved aside' test -d crime.old
is "$(wc -l <crime/alarms.jsonl)" 2 'the recording has both alarms'
run ptwatch watch kv_cache_meta:8:w --freeze=all -o all -m 64k
is "$status" 0 'watch --freeze=all: status 0'
like "$stdout" '
          trace: [0-9,]+ bytes frozen on cpu [0-9]+, [0-9,]+ instructions? after the write$' 'watch --freeze=all: the trace line'
run ptwatch watch kv_cache_meta:8:w --stop -o stopped -m 64k
is "$status" 0 'watch --stop: status 0'
unlike "$stdout" 'frozen' 'watch --stop: nothing is frozen'
run ptwatch calls -i stopped
like "$stdout" 'kv_note_result' 'watch --stop: the trace holds the hit'
run ptwatch watch kvdemo:health_tick:x --start -o started -m 64k --timeout 2s
is "$status" 0 'watch --start: status 0'
run ptwatch calls -i started --tail 20
like "$stdout" '<- ' 'watch --start: there is a trace'
run ptwatch info
like "$stdout" 'Held by +nobody' 'afterwards nobody holds Intel PT'

done_testing
