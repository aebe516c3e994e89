#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What can be watched and which hits count, as root in the guest; prints TAP. From the host:
#
#	tests/vm/run --put tests/cli/targets.sh --put tests/cli/threads.c --put tests/lib/tap.sh -- /put/targets.sh
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
	timeout -k 5 60 "$@" >"$out/stdout" 2>"$out/stderr" </dev/null || status=$?
	stdout=$(<"$out/stdout")
	stderr=$(<"$out/stderr")
}

# refuses STATUS REGEX TARGET…: one matching line on stderr, nothing on stdout
refuses() {
	local expected=$1 regex=$2
	shift 2
	run ptwatch watch "$@"
	is "$status $(wc -l <"$out/stderr") $stdout" "$expected 1 " "status $expected, in one line: $*"
	like "$stderr" "$regex" "says why: $*"
}

# of EXPRESSION: what python makes of each line of JSON `a`, one a line
of() {
	python3 -c 'import json, sys
for line in open(sys.argv[1]):
	a = json.loads(line)
	print('"$1"')' "$out/stdout"
}

until_true() {
	local i
	for ((i = 0; i < 300; i++)); do
		! "$@" || return 0
		sleep 0.1
	done
	return 1
}
armed() { grep -q ^armed: "$out/stderr"; }

# begin TARGET…: ptwatch in the background, armed; finish waits for its end.
begin() {
	: >"$out/stderr"
	timeout -k 5 60 ptwatch watch "$@" >"$out/stdout" 2>"$out/stderr" </dev/null &
	watcher=$!
	until_true armed
}
finish() {
	status=0
	wait "$watcher" || status=$?
	stdout=$(<"$out/stdout")
	stderr=$(<"$out/stderr")
}

# poke_watch POKE OPTION…: watch pokee_word while CPU 0 pokes it, with all alarms as JSON
poke_watch() {
	local poke=$1
	shift
	run ptwatch watch --all --json --no-log "$@" -- taskset -c 0 sh -c "echo $poke >/proc/pokee"
}

modprobe pokee
rmmod kvdemo 2>/dev/null

# ---- which hits count

poke_watch 'store 0 4 0x10' pokee_word:8:w
is "$status $(of 'a["new"][-4:]' | tr '\n' ' ')" '0 0010 0011 0012 0013 ' 'every store is an alarm'
poke_watch 'store 0 4 0x10' pokee_word:8:w --if 'new == 0x12'
is "$(of 'a["old"][-4:], a["new"][-4:]')" '0011 0012' '--if new ==: one, and its old value'
poke_watch 'store 0 4 0x10' pokee_word:8:w --if 'new & 1'
is "$(of 'a["new"][-4:]' | tr '\n' ' ')" '0011 0013 ' '--if new &'
poke_watch 'store 0 4 0x10' pokee_word:8:w --if '(new & 3) == 2'
is "$(of 'a["new"][-4:]' | tr '\n' ' ')" '0012 ' '--if (new & mask) == value'
poke_watch 'same 0 5 7' pokee_word:8:w --if changed
is "$(of 'a["new"][-4:]' | tr '\n' ' ')" '0007 ' '--if changed: the first of five'
poke_watch 'store 0 4 0xfffffffd' pokee_word:4:w --if 'new < -1'
is "$(of 'a["new"][-8:]' | tr '\n' ' ')" 'fffffffd fffffffe ' '--if new < -1 compares signed values of LEN bytes'
poke_watch 'store 0 4 0xfffffffd' pokee_word:4:w --if 'new < 5'
is "$(of 'a["new"][-8:]' | tr '\n' ' ')" '00000000 ' '--if new < 5 compares unsigned ones'
poke_watch 'store 0 5 0x20' pokee_word:8:w --skip 3
is "$(of 'a["new"][-4:]' | tr '\n' ' ')" '0023 0024 ' '--skip'
poke_watch 'store 0 2 0x20' pokee_word:8:w --cpus 1
is "$status $stdout" '1 ' '--cpus: not on another CPU'
poke_watch 'store 0 2 0x20' pokee_word:8:w --cpus 0
is "$(of 'a["cpu"]' | tr '\n' ' ')" '0 0 ' '--cpus: on this one'
poke_watch 'store 0 2 0x20' pokee_word:8:w --if-stack pokee_same
is "$status $stdout" '1 ' '--if-stack: not through that function'
like "$stderr" 'nothing had touched pokee_word:8:w \(2 hits did not meet the conditions\)' '… and there were hits'
poke_watch 'same 0 2 0x20' pokee_word:8:w --if-stack pokee_same
is "$(of 'len(a["stack"]) > 3')" $'True\nTrue' '--if-stack: through that function'
poke_watch 'store 0 2 0x20' pokee_word:8:w --not-comm 'sh*'
is "$status $stdout" '1 ' '--not-comm: any but these'
poke_watch 'store 0 2 0x20' pokee_word:8:w --not-comm 'bash*,kworker*' --not-tgid 1 --not-pid 1
is "$(of 'a["comm"]' | tr '\n' ' ')" 'sh sh ' 'deny lists without the writer'
poke_watch 'store 0 2 0x20' pokee_word:8:w --comm 'kworker*' --comm sh
is "$(of 'a["comm"]' | tr '\n' ' ')" 'sh sh ' '--comm: allowed'
poke_watch 'store 0 2 0x20' pokee_word:8:w --tgid 1
is "$status $stdout" '1 ' '--tgid: another process'
# The writer is this shell, which can be named.
begin pokee_word:8:w --pid $BASHPID --json -n 2
taskset -pc 0 $BASHPID >/dev/null
echo 'store 0 2 5' >/proc/pokee
finish
is "$status $(of 'a["pid"]' | sort -u)" "0 $BASHPID" '--pid: this thread'

mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
mkdir -p /sys/fs/cgroup/tenant/inner
begin pokee_word:8:w --cgroup tenant --json -n 2
echo 'store 0 2 5' >/proc/pokee
# shellcheck disable=SC2016
taskset -c 0 sh -c 'echo $$ >/sys/fs/cgroup/tenant/inner/cgroup.procs; echo store 0 2 6 >/proc/pokee'
finish
is "$(of 'a["new"][-1:], a["cgroup_path"]' | tr '\n' ' ')" '6 /tenant/inner 7 /tenant/inner ' '--cgroup: it and those below'
begin pokee_word:8:w --not-cgroup /tenant -n 1
# shellcheck disable=SC2016
taskset -c 0 sh -c 'echo $$ >/sys/fs/cgroup/tenant/cgroup.procs; echo store 0 2 6 >/proc/pokee'
echo 'store 0 1 9' >/proc/pokee
finish
like "$stdout" 'new 0x0000000000000009' '--not-cgroup: any but the tenant'
refuses 1 "'nosuchgroup' is no cgroup below /sys/fs/cgroup" pokee_word:8:w --cgroup nosuchgroup

# ---- several registers

poke_watch 'beside 0 3 5' pokee_word:32:w
word=$(of 'a["address"]' | sort -u)
is "$(of 'int(a["hit_address"], 16) - int(a["address"], 16), a["len"]' | tr '\n' ' ')" '8 32 16 32 24 32 ' \
	'32 bytes: which part was hit'
is "$word" "0x$(awk '$3 == "pokee_word" { print $1 }' /proc/kallsyms)" '32 bytes: at their address'
run ptwatch watch pokee_word+8:24:w --no-log -- taskset -c 0 sh -c 'echo beside 0 2 5 >/proc/pokee'
like "$stdout" '^ALARM #[0-9]+  write 8 bytes at pokee_word\+0x8 ' '24 bytes: the label of the part'
refuses 1 'need 5 debug registers \(one for each 8 bytes\), but a CPU has 4' pokee_word:32:w pokee_function:x

# ---- per-CPU variables

run ptwatch watch runqueues:4:w --json --no-log -n 60 --rate 100000 --storm 0 -- \
	sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do taskset -c 0 sleep 0.01; taskset -c 1 sleep 0.01; done'
is "$status $(of 'a["cpu"], a["address"]' | sort -u | wc -l) $(of 'a["address"]' | sort -u | wc -l)" '0 2 2' \
	'a per-CPU variable: each CPU its own address'
like "$stderr" '^armed: runqueues:4:w \(per-CPU\) on 2 CPUs' 'a per-CPU variable: says so'

# ---- a field of a process

mkfifo fifo
sh -c 'read -r go <fifo; exec setpriv --reuid nobody --clear-groups sleep 0.5' &
victim=$!
# Overlayfs overrides credentials at every look-up, and puts them back: only what is committed is a change.
begin "task_struct.cred@$victim" --all --json --no-log --if-stack commit_creds
echo go >fifo
finish
is "$status" 0 'task_struct.cred@PID: status 0 when the process ended'
like "$stderr" "^armed: task_struct.cred@$victim at 0xf" 'task_struct.cred@PID: armed'
is "$(of 'a["label"], a["len"], a["access"]' | sort -u)" "task_struct.cred@$victim 8 w" 'size and mode are those of the field'
is "$(of 'a["pid"]' | sort -u)" "$victim" 'the process itself commits its credentials'
like "$(of 'str(a["stack"])')" 'commit_creds.*sys_setresuid' '… in setresuid()'
like "$(of 'str(a["stack"])')" 'commit_creds.*begin_new_exec' '… and when it executes a program'
refuses 1 "'task_struct' has no field 'crde'; did you mean cred" task_struct.crde@1
refuses 1 "no struct or union 'task_strukt'; did you mean task_struct" task_strukt.cred@1
refuses 1 "'cred' is a pointer" task_struct.cred.uid@1
refuses 1 'a process has a task_struct; .*cred.uid@0xADDR' cred.uid@1
refuses 1 'there is no process 4000000' task_struct.cred@4000000
refuses 1 'task_struct has no field|has no size|which need [0-9]+ debug registers' task_struct.thread@1

# ---- in a process

gcc -O1 -g -fno-omit-frame-pointer -pthread -o threads "$here/threads.c"
mkfifo orders
./threads <orders &
victim=$!
exec {orders}>orders
begin "threads!counter" --pid "$victim" --all --json
echo >&"$orders"
finish
is "$status" 0 'binary!sym: status 0 when the process ended'
like "$stderr" "^armed: threads!counter at 0x[0-9a-f]+ in 2 threads of process $victim" 'binary!sym: in all its threads'
is "$(of 'a["comm"], int(a["new"], 16), a["len"]' | sort | tr '\n' ' ')" \
	'early 11 8 early 12 8 late 13 8 main 10 8 ' 'binary!sym: by every thread, also a new one'
exec {orders}>&-
./threads <fifo &
victim=$!
exec {orders}>fifo
refuses 1 "has no symbol 'contuer'; did you mean counter" "threads!contuer@$victim"
refuses 1 "nosuchfile is not mapped in process $victim; its program is .*/threads" "nosuchfile!counter@$victim"
refuses 1 'is data, nothing executes it' "threads!counter@$victim:x"
refuses 1 "0x10000 is not mapped in process $victim" "0x10000@$victim:8:w"
begin "threads!bump@$victim" -n 1
echo >&"$orders"
finish
like "$stdout" '^ALARM #[0-9]+  execute threads!bump\+0x0 ' 'a function of a process: execution'
exec {orders}>&-
wait "$victim" 2>/dev/null

# ---- a module that is not loaded yet

refuses 1 'kvdemo: no symbols of such a module \(is it loaded\?\).*; --wait-module waits for it' kvdemo:kv_buckets:8:w
begin kvdemo:kv_buckets:8:w --wait-module --all --json --timeout 20
like "$(<"$out/stderr")" '^armed: kvdemo:kv_buckets:8:w as soon as module kvdemo is loaded' 'waits for a module'
alarms() { (($(wc -l <"$out/stdout") == $1)); }
for i in 1 2; do
	modprobe kvdemo
	until_true alarms "$i"
	rmmod kvdemo
done
kill -TERM "$watcher"
finish
is "$(of 'a["comm"], "do_one_initcall+" in str(a["stack"]), a["new"][-4:]' | tr '\n' ' ')" \
	'modprobe True 5a00 modprobe True 5a00 ' 'armed before its init function, each time'
refuses 1 'did you mean kvdemo:pokee_word|did you mean pokee:pokee_word' pokee:pokee_wrod:8:w --wait-module

# ---- watches that stay

run ptwatch watch pokee_word:8:w --persistent --if 'new != 3' --no-log
is "$status" 0 '--persistent ends at once'
like "$stderr" '^armed: pokee_word:8:w at 0x[0-9a-f]+ on 2 CPUs, stays as watch [0-9]+ ' '… and tells the number'
id=${stderr#*stays as watch } id=${id%% *}
taskset -c 0 sh -c 'echo store 0 5 1 >/proc/pokee'
run ptwatch watches --json
is "$(of 'a["watch"], a["target"], a["state"], a["persistent"], a["hits"], a["alarms"], a["filtered"], a["rate_limited"]')" \
	"$id pokee_word:8:w armed True 5 4 1 0" 'watches --json: the counts'
run ptwatch watches
like "$stdout" "^ *$id  armed    pokee_word:8:w +persistent +hits 5 = alarms 4 \+ filtered 1 \+" 'watches'
run ptwatch watches --follow --json -n 4 --timeout 20
is "$status $(of 'a["new"][-1:], a["watch"]' | tr '\n' ' ')" "0 1 $id 2 $id 4 $id 5 $id " \
	'watches --follow: alarms from before it began'
: >"$out/stdout"
timeout 60 ptwatch watches --follow --json -n 5 >"$out/stdout" 2>"$out/stderr" &
watcher=$!
until_true grep -q . "$out/stdout"
taskset -c 0 sh -c 'echo store 0 1 6 >/proc/pokee'
finish
is "$status $(of 'a["new"][-1:]' | tr '\n' ' ')" '0 1 2 4 5 6 ' 'watches --follow: those and the new one, once'
run ptwatch unwatch pokee_word
is "$status$stdout$stderr" 0 'unwatch by name'
run ptwatch unwatch "$id"
is "$status" 1 'unwatch of what is gone: status 1'
like "$stderr" "there is no watch $id" '… and says so'
run ptwatch unwatch pokee_wrod
like "$stderr" "there is no watch 'pokee_wrod'" 'unwatch of what never was'
run ptwatch watches
is "$status $stdout" '0 ' 'no watch is left'
run ptwatch unwatch all
is "$status" 0 'unwatch all without any: fine'
for verb in watches 'watches --follow' 'unwatch all'; do
	# shellcheck disable=SC2086
	run setpriv --reuid nobody --clear-groups ptwatch $verb
	is "$status" 1 "$verb as nobody: status 1"
	like "$stderr" 'needs root' "$verb as nobody: says why"
done

# ---- debug registers that gdb holds

cat >hold.gdb <<'END'
break main
run stay
watch counter
watch counter_b
watch counter_c
watch counter_d
continue
END
gdb -q -batch -x hold.gdb ./threads >gdb.log 2>&1 &
gdb=$!
gdb_holds() { grep -q 'Hardware watchpoint.*counter_d' gdb.log; }
until_true gdb_holds
refused() { ! timeout 20 ptwatch watch pokee_word:8:w --timeout 1ms 2>&1 | grep -q 'no hit in time'; }
until_true refused
refuses 1 "no free debug register for pokee_word:8:w .*gdb \(pid $gdb\)" pokee_word:8:w
kill "$gdb"
wait "$gdb" 2>/dev/null
registers_free() { ! refused; }
until_true registers_free
poke_watch 'store 0 1 1' pokee_word:8:w
is "$status" 0 'free again'

done_testing
