#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""same_switches.py PERF STAT: is what `ptwatch stat --json` says of each thread that of the records of switches?

PERF is what `perf script --show-switch-events --no-itrace --ns` printed. How often a thread was switched in has to be the
same, and its time on a CPU, but for what the times of a trace may be behind at each switch.
"""
import collections
import json
import re
import sys

BEHIND_NS = 20000

record = re.compile(r' (\d+) +\[\d+\] +(\d+)\.(\d{9}): PERF_RECORD_SWITCH_CPU_WIDE (IN|OUT)')
since, time, count = {}, collections.Counter(), collections.Counter()
for line in open(sys.argv[1]):
    match = record.search(line)
    if not match:
        continue
    tid, now = int(match[1]), int(match[2] + match[3])
    if match[4] == 'IN':
        since[tid] = now
        count[tid] += 1
    elif tid in since:
        time[tid] += now - since.pop(tid)

threads = [json.loads(line) for line in open(sys.argv[2])]
threads = [thread for thread in threads if thread['type'] == 'thread' and thread['tid'] > 0]
wrong = []
for thread in threads:
    tid, on_cpu, switches = thread['tid'], thread['on_cpu_ns'], thread['switched_in']
    if switches != count[tid] or abs(on_cpu - time[tid]) > BEHIND_NS * count[tid]:
        wrong.append(f'thread {tid}: {switches} times, {on_cpu} ns; records say {count[tid]}, {time[tid]}')
print('; '.join(wrong) or f'{len(threads)} threads, {sum(thread["switched_in"] for thread in threads)} times switched in')
