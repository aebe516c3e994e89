#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tests/vm/run itself: what goes in, what comes out, and how it ends.
# Without Intel PT and without our module, neither of which is the subject.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$here/../../lib/tap.sh"
needs_guest

plan 56

run=$here/../run
scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"
cd "$scratch"

# guest OPTION… -- COMMAND…: status in $rc, output in the files stdout and stderr.
guest() { rc=0; "$run" --no-pt --no-load "$@" >stdout 2>stderr || rc=$?; }
# refused OPTION…: a call that boots nothing; status in $rc, both outputs in $output.
refused() { rc=0; output=$("$run" "$@" 2>&1 </dev/null) || rc=$?; }
wait_for() { local i; for ((i = 0; i < 900; i++)); do "$@" && return; sleep 0.1; done; return 1; }

# ---- wrong usage, told at once

refused --help
is "$rc" 0 '--help succeeds'
like "$output" '--kernel.*--smp.*--pti.*--no-pt.*--put.*--out.*--shell.*--icount' 'and names the options'
refused --frob -- true
is "$rc" 2 'an unknown option is wrong usage'
refused --no-pt
is "$rc" 2 'no COMMAND is wrong usage'
refused --kernel 2.4 -- true
is "$rc" 2 'an unknown kernel is wrong usage'
like "$output" "'2.4'.*6.12" 'which names it and those there are'
refused --cpu z80 -- true
is "$rc" 2 'an unknown CPU model is wrong usage'
like "$output" "'z80'.*skylake-server.*broadwell" 'which names it and those there are'
refused --put "$scratch/none" -- true
is "$rc" 2 'a missing --put file is wrong usage'
refused --smp
is "$rc" 2 'a missing value is wrong usage'
refused --icount --smp 2 -- true
is "$rc" 2 '--icount takes one CPU'
refused --numa --smp 3 -- true
is "$rc" 2 '--numa takes an even number of CPUs'
refused --shell
is "$rc" 2 '--shell without a terminal is refused'

# ---- what counts as a complaint of a kernel

complained() { bash -c '. "$1/../common.sh"; complaints /dev/stdin' sh "$here"; }
cat >reports <<'END'
[    9.1] BUG: KASAN: slab-use-after-free in watch_hit+0x1/0x2
[    9.1] BUG: sleeping function called from invalid context at mm/slab.h:1
[    9.1] BUG: scheduling while atomic: swapper/0/1/0x2
[    9.1] BUG: using smp_processor_id() in preemptible [00000000] code: sh/1
[    9.1] BUG: unable to handle page fault for address: 0000000000000010
[    9.1] BUG: MAX_LOCKDEP_CHAINS too low!
[    9.1] kernel BUG at lib/list_debug.c:1!
[    9.1] WARNING: CPU: 0 PID: 1 at kernel/smp.c:1 call_on+0x1/0x2
[    9.1] WARNING: possible circular locking dependency detected
[    9.1] WARNING: inconsistent lock state
[    9.1] WARNING: suspicious RCU usage
[    9.1] INFO: task sh:1 blocked for more than 300 seconds.
[    9.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[    9.1] INFO: trying to register non-static key.
[    9.1] UBSAN: shift-out-of-bounds in a.c:1:2
[    9.1] ODEBUG: free active (active state 0) object: 00000000 object type: timer_list
[    9.1] refcount_t: underflow; use-after-free.
[    9.1] list_del corruption. prev->next should be 1, but was 2.
[    9.1] Oops: general protection fault, probably for non-canonical address
[    9.1] general protection fault: 0000 [#1]
[    9.1] unchecked MSR access error: WRMSR to 0x570
[    9.1] kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
[    9.1] Kernel panic - not syncing: sysrq triggered crash
END
is "$(complained <reports | wc -l)" "$(wc -l <reports)" 'every kind of report is one complaint'
is "$(sed 's/$/\r/' reports | complained | head -n 1)" 'BUG: KASAN: slab-use-after-free in watch_hit+0x1/0x2' \
	'told without its time and a carriage return'
cat >content <<'END'
[    9.1] Command line: console=ttyS0 panic=-1 nokaslr DEBUG=1
[    9.1] ... MAX_LOCKDEP_SUBCLASSES:  8
[    9.1] kmemleak: Kernel memory leak detector initialized (mem pool available: 15678)
[    9.1] ptwatch: ALARM #1: write 8 bytes at kv_cache_meta+0x0/0x80 [kvdemo]
[    9.1] ptwatch: Call Trace:
[    9.1] rcu: Preemptible hierarchical RCU implementation.
[    9.1] kasan: KernelAddressSanitizer initialized
END
is "$(complained <content)" '' 'what a content kernel says is none'
# ---- one guest that does as it should

cat >probe.sh <<'END'
#!/bin/bash
# Runs in the guest.
printf '%s\0' "$@" >/out/words
id -u >/out/uid
cat >/out/stdin
cat /proc/cpuinfo >/out/cpuinfo
ls -d /sys/bus/event_source/devices/intel_pt >/out/pmu 2>/dev/null
cat /proc/cmdline >/out/cmdline
stat -c '%a %n' /put/* >/out/modes
cmp /put/bytes /out/bytes && echo same >/out/compared
mkdir -p /out/deep/er && echo nested >/out/deep/er/file
modprobe msr && ls -d /dev/cpu/0/msr >/out/msr
modprobe kvdemo && echo go >/proc/kvdemo
for i in 1 2 3 4 5 6 7 8 9 10; do
	sleep 0.3
	grep -q 'overwritten 0' /proc/kvdemo || break
done
cat /proc/kvdemo >/out/kvdemo
ps -o comm= -C health_check >/out/comm
rmmod kvdemo
echo 'to stdout'
echo 'to stderr' >&2
echo 'again to stdout' >/dev/stdout
cat /put/bytes
printf 'no newline at the end' >&2
# Holds the outputs open, and must not hold up the end.
sleep 1000 &
exit 42
END
chmod 750 probe.sh
# Every byte, and enough of them to fill pipes and buffers.
for ((i = 0; i < 256; i++)); do printf '%b' "\\x$(printf %02x "$i")"; done >some
for ((i = 0; i < 2048; i++)); do cat some; done >bytes
chmod 604 bytes
mkdir out
cp bytes out/bytes
# shellcheck disable=SC2016 # to arrive as it is
words=('' 'two words' $'new\nline' '*' '"quoted" $HOME `x`' -- --kernel "it's" 'ünï')
printf '%s\0' "${words[@]}" >words

start=$SECONDS
guest --out out --put probe.sh --put bytes --timeout 200 -- /put/probe.sh "${words[@]}" <words
diag "a boot took $((SECONDS - start)) s"
is "$rc" 42 'the exit status is passed on'
{ printf 'to stdout\nagain to stdout\n'; cat bytes; } >expected
ok 'stdout is exact, byte by byte' cmp expected stdout
{ printf 'to stderr\nno newline at the end'; } >expected
grep -v '^run: \|^  | ' stderr >stderr.guest || true
ok 'stderr is separate and exact' cmp expected <(printf %s "$(cat stderr.guest)")
ok 'the words of COMMAND arrive as they were' cmp words out/words
is "$(cat out/uid)" 0 'COMMAND runs as root'
is "$(stat -c %s out/stdin)" 0 'its stdin is empty'
is "$(cat out/compared)" same '/put has the file, and /out is the directory'
is "$(grep -c '604 /put/bytes' out/modes)" 1 'a file keeps its mode'
is "$(grep -c '750 /put/probe.sh' out/modes)" 1 'also an executable'
is "$(cat out/deep/er/file)" nested 'directories below /out come back'
is "$(grep -c ^processor out/cpuinfo)" 2 'there are two CPUs'
unlike "$(cat out/cpuinfo)" '[[:space:]]intel_pt[[:space:]]' '--no-pt: no intel_pt in cpuinfo'
is "$(cat out/pmu)" '' '--no-pt: no intel_pt PMU'
unlike "$(cat out/cpuinfo)" '[[:space:]]pti[[:space:]]' 'page table isolation is off unless asked for'
is "$(cat out/msr)" /dev/cpu/0/msr 'modprobe msr works'
like "$(cat out/kvdemo)" 'meta 0x5a5a0000deadbeef' 'kvdemo overwrites its table when told'
is "$(cat out/comm)" health_check 'in a thread named health_check'
ok 'the kernel log is in console.log' grep -q 'Linux version 6.12' out/console.log

# ---- a guest that hangs, on one CPU, with isolation

guest --smp 1 --pti on --out hang --timeout 10 -- bash -c '
	echo before; echo kept >/out/kept; cat /proc/cpuinfo >/out/cpuinfo; echo 1 >/proc/sys/kernel/sysrq; sleep 1000'
is "$rc" 125 'a guest that hangs is stopped, with status 125'
like "$(cat stderr)" 'run: COMMAND did not end within 10 s' 'and the reason'
is "$(cat stdout)" before 'what it said before is not lost'
is "$(cat hang/kept)" kept 'nor what it wrote under /out'
is "$(grep -c ^processor hang/cpuinfo)" 1 '--smp 1 is one CPU'
like "$(cat hang/cpuinfo)" '[[:space:]]pti[[:space:]]' '--pti on is in effect'

# ---- a guest that panics

# shellcheck disable=SC2016 # the guest's shell expands them
guest --numa --mem 768M --out panic --timeout 200 -- bash -c '
	echo last words; echo kept >/out/kept
	for node in /sys/devices/system/node/node?; do echo "${node##*/} $(<$node/cpulist) $(ls -d $node/memory[0-9]* | wc -l)"; done >/out/nodes
	sleep 0.5; echo c >/proc/sysrq-trigger; sleep 1000'
is "$rc" 125 'a panic gives status 125'
like "$(cat stderr)" 'run: the guest panicked: Kernel panic - not syncing' 'and says so'
like "$(cat stderr)" 'sysrq' 'with the last lines of the log'
is "$(cat stdout)" 'last words' 'what it said before is not lost'
is "$(cat panic/kept)" kept 'nor what it wrote under /out'
# A block is 128 MiB.
is "$(cat panic/nodes)" $'node0 0 3\nnode1 1 3' '--numa: two nodes, each with a CPU and half of the memory'

# ---- a terminal, streaming, and being killed: nothing is left behind

# script(1) gives run a terminal; what appears on it comes in while the guest runs.
mkfifo keyboard
exec {keyboard}<>keyboard
setsid script -qfec "stty cols 93; '$run' --no-pt --no-load --out '$scratch/shell' --shell -- \
	bash -c 'tty; stty size; echo ready; read -r line; echo \"got \$line\"; sleep 1000'" /dev/null \
	>terminal 2>&1 <keyboard &
script=$!
ok '--shell: output appears while the guest runs' wait_for grep -q ready terminal
like "$(cat terminal)" '/dev/hvc0' 'on a terminal'
like "$(cat terminal)" ' 93' 'of the same width'
echo typed >&"$keyboard"
ok 'which takes input' wait_for grep -q 'got typed' terminal
qemu=$(pgrep -f "qemu-system.*path=$scratch/shell")
work=$(tr '\0' '\n' <"/proc/$qemu/cmdline" | sed -n 's,/initrd$,,p')
ok 'its temporary directory is there' test -d "$work"
kill "$(ps -o ppid= -p "$qemu")"
ok 'killed, run ends' wait_for sh -c "! kill -0 $script 2>/dev/null"
ok 'and QEMU with it' sh -c "! kill -0 $qemu 2>/dev/null"
ok 'and its temporary directory' test ! -e "$work"
exec {keyboard}>&-

# ---- killed so that it cannot clean up

running() { pgrep -f "qemu-system.*path=$scratch/killed" >/dev/null; }
"$run" --no-pt --no-load --out killed -- sleep 1000 >/dev/null 2>&1 &
pid=$!
ok 'another guest' wait_for running
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
gone() { ! running; }
ok 'QEMU does not outlive a run that was killed by force' wait_for gone
