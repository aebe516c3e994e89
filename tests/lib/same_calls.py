# SPDX-License-Identifier: BSD-2-Clause
"""same_calls.py PERF OURS [--order]: are the calls that `perf script --itrace=cr -F tid,flags,ip,addr` and `ptwatch calls --json` tell
the same, in order, and are they paired with the same returns? Prints "N calls, M returns" or where they differ.

With --order only which calls there are and in what order, and ours may go on where perf's end: perf changes threads by
time, so where the kernel switches them its calls and returns are not always of one thread, and it tells none behind the
last switch. Prints "N of M calls", then.

perf tells calls and returns one by one; a return belongs to its thread's innermost call that it goes back behind. Ours tell a
call once it is known when it returned."""
import json
import re
import sys

MAX_INSN = 15


def perf_calls(path):
    """(from, to, returned) of each call, in order"""
    calls, stacks = [], {}
    for line in open(path, encoding="utf-8"):
        m = re.match(r"\s*(\d+)\s+(call|return)\s.*?([0-9a-f]+) => +([0-9a-f]+)\s*$", line)
        if not m:
            continue
        kind, ip, addr = m.group(2), int(m.group(3), 16), int(m.group(4), 16)
        stack = stacks.setdefault(m.group(1), [])
        if kind == "call" and addr:
            stack.append(len(calls))
            calls.append([ip, addr, False])
        elif kind == "return":
            for i in range(len(stack) - 1, -1, -1):
                if 0 < addr - calls[stack[i]][0] <= MAX_INSN:
                    calls[stack[i]][2] = True
                    del stack[i:]
                    break
    return [tuple(c) for c in calls]


def our_calls(path):
    """The same of ours"""
    calls = []
    for line in open(path, encoding="utf-8"):
        c = json.loads(line)
        if c["type"] == "call" and "ip" in c:
            calls.append((int(c["from"], 16), int(c["ip"], 16), "duration_ns" in c))
    return calls


perf, ours = perf_calls(sys.argv[1]), our_calls(sys.argv[2])
if "--order" in sys.argv:
    perf, ours = [c[:2] + (True,) for c in perf], [c[:2] + (True,) for c in ours]
for number, (p, o) in enumerate(zip(perf, ours)):
    if p != o:
        print(f"call {number}: perf {p[0]:x} => {p[1]:x} {p[2]}, ours {o[0]:x} => {o[1]:x} {o[2]}")
        sys.exit(1)
if "--order" in sys.argv and len(perf) <= len(ours):
    print(f"{len(perf)} of {len(ours)} calls")
    sys.exit(0)
if len(perf) != len(ours):
    print(f"perf tells {len(perf)} calls, ours are {len(ours)}")
    sys.exit(1)
print(f"{len(ours)} calls, {sum(c[2] for c in ours)} returns")
