#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs in the guest for ends.t and prints TAP: how a recording ends, that nothing is lost uncounted, and where the bytes
# come from that are written.
set -u
# shellcheck source=tests/lib/tap.sh
. /put/tap.sh
cd /tmp || exit
modprobe msr

# run COMMAND…: $stderr, $status
run() {
	status=0
	timeout -k 5 100 "$@" >/tmp/stdout 2>/tmp/stderr </dev/null || status=$?
	stderr=$(</tmp/stderr)
}
valid() { timeout -k 5 100 ptwatch packets -i "$1" --count >/dev/null 2>/tmp/why || { cat /tmp/why >&2; return 1; }; }
until_true() {
	local i
	for ((i = 0; i < 300; i++)); do
		! "$@" || return 0
		sleep 0.1
	done
	return 1
}

bytes() { rdmsr -p 1 -u "$1" 2>/dev/null || python3 -c 'import os, struct, sys
fd = os.open("/dev/cpu/1/msr", os.O_RDONLY)
print(struct.unpack("<Q", os.pread(fd, 8, int(sys.argv[1], 16)))[0])' "$1"; }

ended() { ! kill -0 "$1" 2>/dev/null; }

# begin COMMAND…: in the background, until it says that it records; $pid
begin() {
	env --default-signal=INT "$@" >/tmp/stdout 2>/tmp/stderr </dev/null &
	pid=$!
	until_true grep -q Ctrl-C /tmp/stderr
}
finish() { status=0; wait "$pid" || status=$?; stderr=$(</tmp/stderr); }

# ---- ends

run ptwatch record -u -a -o time --for 300ms
is "$status" 0 '--for: status 0'
ok '--for: a recording' valid time
begin ptwatch record -u -a -o interrupted
kill -INT "$pid"; finish
is "$status" 0 'Ctrl-C: status 0'
ok 'Ctrl-C: a recording' valid interrupted
begin ptwatch snapshot -u -o moment
kill -USR2 "$pid"; finish
is "$status" 0 'snapshot, SIGUSR2: status 0'
ok 'snapshot: a recording' valid moment
sleep 1000 &
target=$!
begin ptwatch record -p "$target" -o killed
kill -KILL "$target"; finish
is "$status" 0 'the target is killed: status 0'
ok 'the target is killed: a recording' valid killed
run ptwatch record -u -o failing -- sh -c 'exit 7'
is "$status" 0 'the command fails: status 0'
like "$stderr" 'ptwatch record: sh ended with status 7' 'the command fails: says so'
run ptwatch record -u -o cut --for 300ms -- sleep 1000
is "$status" 0 'the time is over before the command: status 0'
like "$stderr" 'sleep was ended by signal 15' 'and the command is ended'
run ptwatch record -u -o none -- /nonexistent/program
is "$status" 1 'a command that does not exist: status 1'
like "$stderr" 'cannot run /nonexistent/program: No such file' 'a command that does not exist: says so'
run ptwatch record -u -o none -p 999999
is "$status" 1 'a process that does not exist: status 1'
run ptwatch record -o none --filter no_such_function_at_all -a --for 1
is "$status" 1 'a function that does not exist: status 1'
run ptwatch record -o none -a --for 1 --mtc 5
is "$status" 4 'a value that this CPU does not take: status 4'
like "$stderr" '--mtc 5: this CPU takes 0, 3, 6, 9$' 'and those it does'
run ptwatch record -o none -a --for 1 --ptw
is "$status" 4 'what this CPU lacks: status 4'
like "$stderr" 'this CPU has no PTWEn; .ptwatch info. lists what it has' 'by its name'
ok 'nothing is left of what did not begin' test ! -e none
is "$(echo none.*)" 'none.*' 'nor anything half done'

# Killed, so that nobody completes it: what was written until then is read where it was, and that it isn't all is told.
begin taskset -c 0 ptwatch record -u -C 1 -o dead
taskset -c 1 sh -c 'for i in 1 2 3 4 5; do ls / >/dev/null; done'
dead=$(echo dead.??????)
count() { timeout -k 5 100 taskset -c 0 ptwatch "$1" -i "$dead" --count 2>/dev/null | tr -dc 0-9; }
written() { local n; n=$(count packets); ((${n:-0} > 1000)); }
ok 'a recording under way can be read' until_true written
before=$(count packets)
kill -KILL "$pid"; finish
is "$status" 137 'killed: status of SIGKILL'
run ptwatch packets -i "$dead" --count
is "$status" 3 'killed: reading says by its status that it is not all'
is "$(cat /tmp/stderr)" "ptwatch packets: $dead/data: the recording is incomplete, and this is what it has: it was not finished: the \
recorder was killed, or the machine went down" 'and in one line'
ok 'not less than before' test "$(tr -dc 0-9 </tmp/stdout)" -ge "$before"
run ptwatch insns -i "$dead" --count
is "$status" 3 'killed: instructions, too'
ok 'and they are there' test "$(tr -dc 0-9 </tmp/stdout)" -gt 1000

mkdir small && mount -t tmpfs -o size=3m tmpfs small
begin ptwatch record -u -a -o small/full --cyc
until_true ended "$pid"
finish
is "$status" 1 'a full disk: status 1'
like "$stderr" 'No space left on device.*; what was recorded until then is kept in small/full' 'a full disk: says so'
ok 'a full disk: what was recorded is one' valid small/full
is "$(ls small)" full 'a full disk: nothing else is left'
umount small

# It fills up amid the recording, and what does not fit first is a record of a process: a ring is written at the end.
mount -t tmpfs -o size=8m tmpfs small
begin taskset -c 0 ptwatch record -u -C 1 --ring 64k -o small/records
dd if=/dev/zero of=small/filler bs=64k 2>/dev/null
busy_until_ended() { ended "$pid" || { ls / >/dev/null; ls / >/dev/null; ended "$pid"; }; }
until_true busy_until_ended
finish
is "$status" 1 'a disk that fills up: status 1'
like "$stderr" 'No space left on device.*; what was recorded until then is kept in small/records' 'a disk that fills up: says so'
is "$(echo small/*)" 'small/filler small/records' 'a disk that fills up: the recording is there'
ok 'a disk that fills up: with what the ring has' valid small/records
umount small

# A ring for which the room that was kept does not do: its newest part is there.
mount -t tmpfs -o size=8m tmpfs small
before=$(bytes 0x4fff0014)
taskset -c 1 sh -c 'while :; do :; done' &
busy=$!
begin taskset -c 0 ptwatch record -u -C 1 --ring 2m --cyc -o small/ring
until (($(bytes 0x4fff0014) - before > 3 << 20)); do sleep 0.1; done
dd if=/dev/zero of=small/filler bs=64k 2>/dev/null
until_true busy_until_ended
kill "$busy"
finish
is "$status" 1 'a disk without room for the ring: status 1'
like "$stderr" 'No space left on device; free some space or record elsewhere; kept in small/ring: the newest [0-9,]+ of 2,097,152 bytes of trace$' \
	'a disk without room for the ring: says what is lacking'
is "$(grep -c 'lost\|No space' <<<"$stderr")" 1 'in one line'
ok 'a disk without room for the ring: what there is is a recording' valid small/ring
kept=$(sed -n 's/.*the newest \([0-9,]*\) of.*/\1/p' <<<"$stderr" | tr -d ,)
ok 'and much of it' test "$kept" -gt 100000
is "$(python3 - small/ring/data <<'END'
import struct, sys
data = open(sys.argv[1], 'rb').read()
at, end = struct.unpack_from('<QQ', data, 40)
end += at
while at < end:
	kind, misc, size = struct.unpack_from('<IHH', data, at)
	length = struct.unpack_from('<Q', data, at + 8)[0] if kind == 71 else 0
	if kind == 71: print(length, data[at + size:at + size + 16] == b'\x02\x82' * 8)
	at += size + length
END
)" "$(((kept + 7) / 8 * 8)) True" 'as many bytes as it says, from a PSB on'
umount small

# ---- nothing is lost uncounted

number() { sed -n "s/^ptwatch record: \([0-9,]*\) bytes of trace $1.*/\1/p" /tmp/stderr | tr -d ,; }
before=$(bytes 0x4fff0014)
taskset -c 1 sh -c 'while :; do :; done' &
busy=$!
begin taskset -c 0 ptwatch record -u -C 1 -m 64k --cyc -o lossy
kill -STOP "$pid"; sleep 1; kill -CONT "$pid"; sleep 0.2
kill -INT "$pid"; finish
kill "$busy"
after=$(bytes 0x4fff0014)
is "$status" 3 'a reader that sleeps: status 3'
like "$stderr" 'bytes of trace were lost in [0-9,]+ gaps' 'and says what was lost'
is "$(($(number of) + $(number were)))" "$((after - before))" 'read and lost are what the CPU wrote, to the byte'
ok 'and what was read is a recording' valid lossy

# ---- a CPU that goes and comes back

cpu1=/sys/devices/system/cpu/cpu1/online
begin taskset -c 0 ptwatch record -u -a -o gone
echo 0 >$cpu1
until_true grep -q 'CPU 1 went offline' /tmp/stderr
echo 1 >$cpu1
until_true grep -q 'CPU 1 came online' /tmp/stderr
cp "$(type -P true)" latecomer
taskset -c 1 ./latecomer
kill -INT "$pid"; finish
is "$status" 3 'a CPU goes and comes back: status 3'
is "$(grep -c 'came online' /tmp/stderr)" 1 'says so once'
like "$stderr" 'CPU 1 came online: its processes, and code that was changed there, are recorded as they are now' 'and what that means'
told=$(timeout -k 5 100 perf script -i gone -C 1 --no-itrace --show-mmap-events --show-lost-events 2>/dev/null)
is "$(grep -Eo 'CPU 1 (went|came|did)' /tmp/stderr | tr '\n' ' ')" 'CPU 1 went CPU 1 came ' 'that it went was told before, once'
like "$told" 'PERF_RECORD_MMAP2 .*r-xp /tmp/latecomer' 'what is mapped there later is told'
like "$told" 'PERF_RECORD_LOST' 'and that something was lost before'
# All that the CPU did meanwhile is in the trace; to print that, too, takes perf minutes on a busy machine.
timeout -k 5 400 perf script -i gone -C 1 --comm latecomer --itrace=i0ns -F comm,ip 2>/dev/null | awk '$1 == "latecomer" { printf "%016s\n", $2 }' |
	sed 's/ /0/g' >by_perf
timeout -k 5 400 ptwatch insns -i gone -C 1 --all --format ip >by_us 2>/tmp/why || cat /tmp/why >&2
ok 'its instructions are there' test "$(wc -l <by_perf)" -gt 1000
is "$(python3 -c 'print(open("by_perf").read() in open("by_us").read())')" True 'the same for stock perf and for us, in their order'

# Between two looks at it
begin taskset -c 0 ptwatch record -u -C 1 -o unseen
kill -STOP "$pid"
until_true grep -q '^State:.*T' "/proc/$pid/status"
echo 0 >$cpu1
echo 1 >$cpu1
kill -CONT "$pid"
until_true grep -q 'CPU 1 came online' /tmp/stderr
kill -INT "$pid"; finish
is "$(grep -Eo 'CPU 1 (went offline: |came|did)' /tmp/stderr | tr '\n' ' ')" 'CPU 1 went offline:  CPU 1 came ' \
	'a CPU goes and comes back unseen: both are told'

# ---- a CPU that goes for good

before=$(bytes 0x4fff0014)
begin taskset -c 0 ptwatch record -C 1 -o left
taskset -c 1 sh -c 'for i in 1 2 3; do ls / >/dev/null; done'
echo 0 >$cpu1
until_true grep -q 'CPU 1 went offline' /tmp/stderr
kill -INT "$pid"; finish
is "$status" 3 'the only CPU goes: status 3'
is "$(grep 'CPU 1' /tmp/stderr)" 'ptwatch record: CPU 1 went offline: its trace pauses there, and goes on if it comes back
ptwatch record: CPU 1 did not come back online' 'told when it goes, and that it did not come back'
echo 1 >$cpu1
is "$(number of)" "$(($(bytes 0x4fff0014) - before))" 'what was recorded is all that the CPU wrote'
timeout -k 5 400 ptwatch insns -i left --all --count >/tmp/stdout 2>/tmp/why
is "$(cat /tmp/why)" '' 'it decodes without error or gap'
ok 'and is there' test "$(tr -dc 0-9 </tmp/stdout)" -gt 1000

# Stopped when it has set the trace up, and listens on the last CPU
timeout -k 5 200 strace -f -o stops -e trace=perf_event_open -e inject="perf_event_open:signal=SIGSTOP:when=$(nproc)" \
	taskset -c 0 ptwatch record -C 1 -o early >/tmp/stdout 2>/tmp/stderr </dev/null &
tracer=$!
until_true grep -q 'stopped by SIGSTOP' stops
pid=$(sed -n 's/^\([0-9]*\) .*stopped by SIGSTOP.*/\1/p' stops)
echo 0 >$cpu1
kill -CONT "$pid"
until_true grep -q 'CPU 1 went offline' /tmp/stderr
kill -INT "$pid"
status=0; wait "$tracer" || status=$?
is "$status" 3 'it went before tracing began: status 3'
is "$(grep 'CPU 1' /tmp/stderr)" 'ptwatch record: CPU 1 went offline before tracing began: it is traced if it comes back
ptwatch record: CPU 1 did not come back online' 'says so'
echo 1 >$cpu1

# ---- watch has the same beside its trace

run ptwatch watch jiffies_64:8:w --freeze -o crime -- sh -c 'sleep 0.5; exec sleep 1'
is "$status" 0 'watch --freeze: status 0'
events=$(timeout -k 5 100 perf script -i crime --no-itrace --show-task-events --show-mmap-events --show-switch-events 2>/dev/null)
like "$events" 'PERF_RECORD_SWITCH_CPU_WIDE OUT' 'its recording knows switches'
like "$events" 'PERF_RECORD_MMAP2 .*r-xp .*bash' 'and the code of the processes that run'

# ---- not copied

strace -f -o calls -e trace=openat,mmap,write -e raw=mmap,write taskset -c 0 ptwatch record -u -C 1 -o copied --for 300ms 2>/dev/null
is "$(python3 - calls copied/data <<'END'
import re, struct, sys
# Where the device's buffers are mapped, and which writes take more than a page from elsewhere
device, maps, traced, elsewhere = set(), [], 0, 0
for line in open(sys.argv[1]):
	m = re.search(r'openat\(.*"/dev/ptwatch".*= (\d+)', line)
	if m: device.add(int(m[1]))
	m = re.search(r'mmap\((\w+), (\w+), (\w+), (\w+), (\w+), (\w+)\) = (\w+)', line)
	if m and int(m[5], 0) in device:
		maps.append((int(m[7], 0), int(m[2], 0)))
	m = re.search(r'write\((\w+), (\w+), (\w+)\) = (\w+)', line)
	if m:
		at, size = int(m[2], 0), int(m[4], 0)
		if any(a <= at < a + s for a, s in maps): traced += size
data, trace = open(sys.argv[2], 'rb').read(), 0
at, end = struct.unpack_from('<QQ', data, 40)
end += at
while at < end:
	kind, misc, size = struct.unpack_from('<IHH', data, at)
	if kind == 71:
		length = struct.unpack_from('<Q', data, at + 8)[0]
		trace += length; at += length
	at += size
# Each piece is padded to 8 bytes in the file.
print('all' if 0 <= trace - traced < 8 * 64 and traced else f'{traced} of {trace}')
END
)" all 'write(2) takes all bytes of trace from where the CPU put them'
done_testing
