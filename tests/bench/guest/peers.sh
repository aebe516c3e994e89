#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# peers.sh PERF: what the guest measures for tests/bench/peers. Prints KEY NUMBER lines; what this kernel or perf
# can't do is missing. The two recordings from which skid is counted go to /out/pause and /out/sample, or why there is none to their .err.
set -u
perf=$1
modprobe storer
addr=0x$(awk '$3 == "storer_word" { print $1 }' /proc/kallsyms)
dmesg -n 1
cd /tmp || exit

# field NAME: of the last measurement.
field() { sed "s/.*\b$1 \([0-9]*\).*/\1/" /proc/storer; }
store() { taskset -c 0 sh -c "echo '$1 $2' >/proc/storer"; }

# hit KEY: of each of a batch of 20 stores, what the stores alone cost taken off.
hit() { echo "$1 $((($(field best) - none) / 20))"; }

# recorded KEY OPTION…: with perf recording CPU 0, from CPU 1.
recorded() {
	local key=$1; shift
	taskset -c 1 "$perf" record -q -o x.data "$@" -C 0 -- taskset -c 0 sh -c 'echo "none 1000" >/proc/storer' >/dev/null 2>err ||
		return 0
	hit "$key"
	rm -f x.data
}

store none 1000
none=$(field best)
store empty 1000
hit empty
echo "arm $(field arm)"
echo "disarm $(field disarm)"
store dump 60
hit dump
taskset -c 1 "$perf" stat -e "mem:$addr/8:w" -C 0 -- taskset -c 0 sh -c 'echo "none 1000" >/proc/storer' >/dev/null 2>&1 && hit stat
recorded record -e "mem:$addr/8:w" -c 1 -m 4096
recorded record-g -e "mem:$addr/8:w" -c 1 -g -m 4096
for size in 512 4096 61440; do
	recorded "sample-$size" -e "{intel_pt//k,mem:$addr/8:w/aux-sample-size=$size,period=1/}" -m 64M,1M
done
recorded pause -e intel_pt//k -e "mem:$addr/8:w/aux-action=pause/" -c 1 -m 4M,16M

# skid NAME OPTION…: the way from one store to where the trace ends, for tests/bench/peers to count.
skid() {
	local name=$1; shift
	if taskset -c 1 "$perf" record -q --kcore -o "/tmp/$name" "$@" -C 0 -- taskset -c 0 sh -c 'echo "none 20" >/proc/storer' \
		>/dev/null 2>"/out/$name.err"; then
		cp -r "/tmp/$name" /out/
	fi
	rm -rf "/tmp/$name"
}
skid pause -e intel_pt//k -e "mem:$addr/8:w/aux-action=pause/" -c 1 -m 4M,4M
skid sample -e "{intel_pt//k,mem:$addr/8:w/aux-sample-size=4096,period=1/}" -m 16M,1M

# switches KEY [OPTION…]: with perf recording, if there are options.
switches() {
	local key=$1; shift
	if (($#)); then
		"$perf" record -q -o x.data "$@" -- /put/peers pingpong 1000 2>err | sed "s/^switch/$key/"
		rm -f x.data
	else
		/put/peers pingpong 1000 | sed "s/^switch/$key/"
	fi
}
switches switch
switches switch-events -e dummy:u --switch-events
switches switch-user -e intel_pt//u -m 1M,16M
switches switch-user-alone -e intel_pt//u --no-switch-events -m 1M,16M
switches switch-kernel-all -e intel_pt//k -a --no-switch-events -m 1M,16M
/put/peers onoff 20 | sed 's/^/ioctl-/'
