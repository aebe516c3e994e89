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

# record NAME OPTION…: of a few programs.
record() {
	local name=$1; shift
	if "$perf" record -q -o "/tmp/$name" "$@" -- \
		sh -c 'ls -lR /sys/bus/event_source /usr/share/perf-core | sort | gzip -c | cksum; cat /proc/self/maps' \
		>/dev/null 2>"/out/$name.err"; then
		cp -r "/tmp/$name" /out/ && echo "$name ok"
	else
		echo "$name failed"
	fi >>/out/results
	rm -rf "/tmp/$name"
}

skipped() { echo "$1 skipped ${*:2}" >>/out/results; }

uname -r >/out/release
"$perf" --version >/out/version
grep . "$pt"/caps/* | sed 's/.*caps.//' >/out/caps

record user -e intel_pt//u
record kernel -a --kcore -e intel_pt//k
record both --kcore -e intel_pt//
record noretcomp -e intel_pt/noretcomp/u
record snapshot --snapshot=e -m ,64K -e intel_pt//u
record sample --aux-sample=8192 -c 100000 -e '{intel_pt//u,instructions:u}'
if cap psb_cyc; then record cyc -e intel_pt/cyc,cyc_thresh=2/u; else skipped cyc 'this CPU has no CYC packets'; fi
if cap mtc; then
	record mtc -e intel_pt/mtc,mtc_period=0/u
	# Without time perf can't tell one program of a process from the next: one that is all there is.
	if "$perf" record -q -o /out/notime -e intel_pt/mtc=0,tsc=0/u -- /mnt/exec64 2>/out/notime.err; then
		echo 'notime ok' >>/out/results
	else
		echo 'notime failed' >>/out/results
	fi
else
	skipped mtc 'this CPU has no MTC packets'
fi
if cap ip_filtering; then
	record filter --kcore -e intel_pt//k --filter 'filter vfs_read'
else
	skipped filter 'this CPU has no address ranges'
fi
if cap ptwrite; then
	if "$perf" record -q -o /out/ptw -e intel_pt/ptw,fup_on_ptw/u -- /mnt/ptwrite 4000 2>/out/ptw.err; then
		echo 'ptw ok' >>/out/results
	else
		echo 'ptw failed' >>/out/results
	fi
else
	skipped ptw 'this CPU has no PTWRITE'
fi
if cap power_event_trace; then
	record pwr_evt -a --kcore -e intel_pt/pwr_evt/k
else
	skipped pwr_evt 'this CPU has no power events'
fi
if cap event_trace; then record event --kcore -e intel_pt/event/; else skipped event 'this CPU has no event trace'; fi
if cap tnt_disable; then record notnt -e intel_pt/notnt/u; else skipped notnt 'this CPU cannot disable TNT'; fi
# Only later perfs know the action, only later kernels take it.
if "$perf" record -q -o /tmp/paused -e intel_pt/aux-action=start-paused/u true 2>/dev/null; then
	record pause -e intel_pt/aux-action=start-paused/u -e instructions/period=50000,aux-action=resume/u \
		-e instructions/period=100000,aux-action=pause/u
else
	skipped pause "$("$perf" --version) on $(uname -r) has no pause action"
fi
# The vDSO is only in here.
cp -r /root/.debug /out/debug
