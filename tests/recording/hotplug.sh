#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs in the guest for hotplug.t: records kernel code of CPU 1 while it goes and comes, and while code is changed there that
# nobody hears of, as who listens sleeps from before the CPU goes until the change is made.
#
# hotplug.sh first: records user code of a machine whose CPU 1 comes online for the first time.
set -e
cd /out
# Only what is of interest runs on CPU 1.
taskset -pc 0 $$ >/dev/null
cpu1=/sys/devices/system/cpu/cpu1/online
lodger=/sys/module/lodger/parameters
until_true() {
	local i
	for ((i = 0; i < 3000; i++)); do
		! "$@" || return 0
		sleep 0.1
	done
	return 1
}
said() { [[ $(grep -c "$1" hot.said) == "$2" ]]; }
record() {
	env --default-signal=INT ptwatch record "$@" -o hot >hot.said 2>&1 </dev/null &
	pid=$!
	until_true grep -q Ctrl-C hot.said
}
end() {
	kill -INT "$pid"
	wait "$pid" || echo $? >status
}
on_cpu_1() { taskset -c 1 bash -c "$1"; }
# away CHANGES: CPU 1 goes and comes, and makes CHANGES
away() {
	kill -STOP "$pid"
	echo 0 >$cpu1
	echo 1 >$cpu1
	on_cpu_1 "$1"
	kill -CONT "$pid"
}

if [[ ${1-} == first ]]; then
	cat $cpu1 >online
	record -u -a
	echo 1 >$cpu1
	until_true said 'came online' 1
	cp "$(type -P true)" latecomer
	on_cpu_1 /out/latecomer
	end
	ptwatch insns -i hot --all --format ip >/tmp/ips 2>errors || true
	wc -l </tmp/ips >instructions
	exit
fi

# Else events have the scheduler tell, too: that would be changes of code that is executed all the time.
cd /sys/kernel/tracing
echo 0 >options/record-cmd
event=$PWD/events/oom/oom_score_adj_update/enable
cd /out

record -k -C 1 -m 64M

# The kernel's own code is changed unheard, and executed later; a module is loaded there, and its code is changed.
away "echo 1 >$event"
until_true said 'came online' 1
on_cpu_1 'echo 0 >/proc/self/oom_score_adj'
on_cpu_1 'modprobe lodger'
on_cpu_1 "echo 3 >$lodger/visit"
until_true grep -q '^lodger ' hot.*/kcore_dir/modules
on_cpu_1 "echo 1 >$lodger/awake"
on_cpu_1 "echo 5 >$lodger/visit"

# All is changed back, unheard.
away "echo 0 >$event; echo 0 >$lodger/awake"
until_true said 'came online' 2
on_cpu_1 'echo 0 >/proc/self/oom_score_adj'
on_cpu_1 "echo 7 >$lodger/visit"

end
cat $lodger/visit >visits
