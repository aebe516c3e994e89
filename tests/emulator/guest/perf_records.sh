#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# perf_records.sh PERF: record with stock perf in every way that this CPU, kernel and perf can, each to
# /out/NAME. /out/results has a line for each: NAME ok, or NAME skipped REASON, or NAME failed.
set -u
perf=$1
pt=/sys/bus/event_source/devices/intel_pt
# Where the host, too, finds programs of ours.
cp /put/ptwrite /put/exec64 /mnt/

cap() { [[ $(cat "$pt/caps/$1" 2>/dev/null) == 1 ]]; }

# record_program NAME PROGRAM OPTION…
record_program() {
	local name=$1 program=$2; shift 2
	# shellcheck disable=SC2086 # with its arguments
	if "$perf" record -q --no-buildid-mmap -o "/tmp/$name" "$@" -- $program >/dev/null 2>"/out/$name.err"; then
		cp -r "/tmp/$name" /out/ && echo "$name ok"
	else
		echo "$name failed"
	fi >>/out/results
	rm -rf "/tmp/$name"
	cut -d' ' -f1 /proc/uptime >>/out/times
}

echo 'ls -lR /usr/share/perf-core | sort | cksum; cat /proc/self/maps' >/tmp/programs.sh
# record NAME OPTION…: of a few programs.
record() { record_program "$1" 'sh /tmp/programs.sh' "${@:2}"; }

skipped() { echo "$1 skipped ${*:2}" >>/out/results; }

# Interrupts take long here. The kernel must not sample less for it, or short programs get no sample at all.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent

uname -r >/out/release
"$perf" --version >/out/version
grep . "$pt"/caps/* | sed 's/.*caps.//' >/out/caps

# The first puts the vDSO, which is nowhere else, into the cache of build IDs; -N leaves that alone. With build IDs in
# the mmap records, which later perfs have unless told otherwise, there would be none of the vDSO.
record user -e intel_pt//u
mkdir /out/debug
cp -r /root/.debug/.build-id "/root/.debug/[vdso]" /out/debug/
cut -d' ' -f1 /proc/uptime >/out/times
record kernel -N -a --kcore -e intel_pt//k
record both -N --kcore -e intel_pt//
record noretcomp -N -e intel_pt/noretcomp/u
record snapshot -N --snapshot=e -m ,64K -e intel_pt//u
record sample -N --aux-sample=8192 -c 100000 -e '{intel_pt//u,instructions:u}'
if cap psb_cyc; then record cyc -N -e intel_pt/cyc,cyc_thresh=2/u; else skipped cyc 'this CPU has no CYC packets'; fi
if cap mtc; then
	record mtc -N -e intel_pt/mtc,mtc_period=0/u
	# Without time perf can't tell one program of a process from the next: one that is all there is.
	record_program notime /mnt/exec64 -N -e intel_pt/mtc=0,tsc=0/u
else
	skipped mtc 'this CPU has no MTC packets'
	skipped notime 'this CPU has no MTC packets'
fi
if cap ip_filtering; then
	record filter -N --kcore -e intel_pt//k --filter 'filter vfs_read'
else
	skipped filter 'this CPU has no address ranges'
fi
if cap ptwrite; then
	record_program ptw '/mnt/ptwrite 4000' -N -e intel_pt/ptw,fup_on_ptw/u
else
	skipped ptw 'this CPU has no PTWRITE'
fi
if cap power_event_trace; then
	record pwr_evt -N -a --kcore -e intel_pt/pwr_evt/k
	modprobe pokee
	echo 'echo mwait 1 3 0x20 >/proc/pokee' >/tmp/mwait.sh
	record_program mwait 'taskset -c 1 sh /tmp/mwait.sh' -N -C 1 -m ,16M --kcore -e intel_pt/pwr_evt/k
else
	skipped pwr_evt 'this CPU has no power events'
	skipped mwait 'this CPU has no power events'
fi
if cap event_trace; then record event -N --kcore -e intel_pt/event/; else skipped event 'this CPU has no event trace'; fi
if cap tnt_disable; then record notnt -N -e intel_pt/notnt/u; else skipped notnt 'this CPU cannot disable TNT'; fi
# Only later perfs know the action, only later kernels take it.
if "$perf" record -q -N -o /tmp/paused -e intel_pt/aux-action=start-paused/u true 2>/dev/null; then
	record pause -N -e intel_pt/aux-action=start-paused/u -e instructions/period=50000,aux-action=resume/u \
		-e instructions/period=100000,aux-action=pause/u
else
	skipped pause "$("$perf" --version) on $(uname -r) has no pause action"
fi
cut -d. -f1 /proc/uptime >/out/seconds
