#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Runs in the guest for suspend.t: a machine that is traced and watched sleeps and wakes up; what there was to see is in /out.
#
# It stays on CPU 0: what perf tells of a CPU ends when that CPU goes, until ptwatch notices that it is back, and a suspend
# changes the kernel's code. What ptwatch does when it notices is in the trace, too: the ring has room for that.
taskset -p 1 $$ >/dev/null
modprobe pokee
ptwatch record -a -k --ring 8M -o /tmp/recording --for 20m 2>/tmp/recorded &
record=$!
until grep -q Ctrl-C /tmp/recorded; do sleep 0.1; done
ptwatch watch pokee_word:8:w -n 3 --json >/tmp/alarms 2>/tmp/armed &
watch=$!
until grep -q ^armed: /tmp/armed; do sleep 0.1; done
# By another function than those after sleep
taskset -c 1 sh -c 'echo same 1 1 0x11 >/proc/pokee'
until grep -q '"new"' /tmp/alarms; do sleep 0.1; done

# The directories of the host are no device that can sleep.
exec </dev/null >/tmp/log 2>&1
pkill -x cat
until umount /ptwatch/io; do sleep 0.1; done
umount /out || exit
cd /sys/bus/virtio/drivers/9pnet_virtio || exit
devices=$(echo virtio*)
for device in $devices; do echo "$device" >unbind; done

# Each level is what a suspend does up to there, and back.
for level in freezer devices platform processors core; do
	echo "$level" >/sys/power/pm_test
	if echo mem >/sys/power/state; then echo "$level: slept"; else echo "$level: refused"; fi
done
echo none >/sys/power/pm_test
echo 0 >/sys/class/rtc/rtc0/wakealarm
echo +4 >/sys/class/rtc/rtc0/wakealarm
if echo mem >/sys/power/state; then echo 'S3: slept'; else echo 'S3: refused'; fi

for device in $devices; do echo "$device" >bind; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none io /ptwatch/io
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=mmap out /out
taskset -c 0 sh -c 'echo store 0 1 0x22 >/proc/pokee'
taskset -c 1 sh -c 'echo store 1 1 0x33 >/proc/pokee'
wait $watch
kill -INT $record
wait $record
echo "record: $?"
cp -r /tmp/log /tmp/alarms /tmp/recorded /tmp/recording /out
