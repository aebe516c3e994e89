# SPDX-License-Identifier: BSD-2-Clause
"""same_calls.py PERF OURS [--order|--inside COMM]: are the calls that `perf script --itrace=cr -F tid,flags,ip,addr` and `ptwatch calls --json` tell
the same, in order, and are they paired with the same returns? Prints "N calls, M returns" or where they differ.

With --order only which calls there are and in what order, and ours may go on where perf's end: perf changes threads by
time, so where the kernel switches them its calls and returns are not always of one thread, and it tells none behind the
last switch. Prints "N of M calls", then.

With --inside COMM likewise; and with perf's returns, each of the thread that ours has, each call of the threads of that name is
inside of the same other one. Prints "N of M calls, all P of COMM inside of the same".

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


def perf_parents(path, threads, switch):
    """Of each call the one inside of which it is: the thread's innermost that was not returned from; None: there is none"""
    parents, stacks, calls, number, switched = [], {}, [], -1, False
    for line in open(path, encoding="utf-8"):
        m = re.match(r"\s*\d+\s+(call|return)\s.*?([0-9a-f]+) => +([0-9a-f]+)\s*$", line)
        if not m:
            continue
        ip, addr = int(m.group(2), 16), int(m.group(3), 16)
        if m.group(1) == "call" and addr:
            number += 1
            calls.append(ip)
            stack = stacks.setdefault(threads[number], [])
            parents.append(stack[-1] if stack else None)
            stack.append(number)
            # What comes back out of it is another thread.
            switched = addr == switch
        elif m.group(1) == "return" and 0 <= number < len(threads) - 1:
            stack = stacks.setdefault(threads[number + switched], [])
            for i in range(len(stack) - 1, -1, -1):
                if 0 < addr - calls[stack[i]] <= MAX_INSN:
                    del stack[i:]
                    break
    return parents


def our_parents(rows):
    """The same by depth, what is no call passed over"""
    parents, stacks = [], {}
    for row in rows:
        if row["type"] in ("switch", "gap", "marker", "alarm"):
            continue
        stack, depth = stacks.setdefault(row["tid"], []), row["depth"]
        # What a tail call takes the place of is called still.
        while stack and stack[-1][0] >= depth + (row["type"] == "tail-call"):
            stack.pop()
        if row["type"] == "call" and "ip" in row:
            parents.append(next((number for _, number in reversed(stack) if number is not None), None))
            stack.append((depth, len(parents) - 1))
        elif row["type"] != "tail-call":
            stack.append((depth, None))
    return parents


def same_parents(count):
    rows = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
    calls = [row for row in rows if row["type"] == "call" and "ip" in row]
    switch = next((int(c["ip"], 16) for c in calls if c.get("symbol") == "__switch_to_asm+0x0"), None)
    theirs, own = perf_parents(sys.argv[1], [c["tid"] for c in calls[:count]], switch), our_parents(rows)
    name = lambda number: "nothing" if number is None else f"call {number}, {calls[number]['symbol']}"
    of_comm = [number for number in range(count) if calls[number]["comm"] == sys.argv[4]]
    for number in of_comm:
        if theirs[number] != own[number]:
            print(f"call {number}, {calls[number]['symbol']}: perf has it inside of {name(theirs[number])}, ours of {name(own[number])}")
            sys.exit(1)
    return f", all {len(of_comm)} of {sys.argv[4]} inside of the same"


perf, ours = perf_calls(sys.argv[1]), our_calls(sys.argv[2])
partly = "--order" in sys.argv or "--inside" in sys.argv
if partly:
    perf, ours = [c[:2] + (True,) for c in perf], [c[:2] + (True,) for c in ours]
for number, (p, o) in enumerate(zip(perf, ours)):
    if p != o:
        print(f"call {number}: perf {p[0]:x} => {p[1]:x} {p[2]}, ours {o[0]:x} => {o[1]:x} {o[2]}")
        sys.exit(1)
if partly and len(perf) <= len(ours):
    print(f"{len(perf)} of {len(ours)} calls" + (same_parents(len(perf)) if "--inside" in sys.argv else ""))
    sys.exit(0)
if len(perf) != len(ours):
    print(f"perf tells {len(perf)} calls, ours are {len(ours)}")
    sys.exit(1)
print(f"{len(ours)} calls, {sum(c[2] for c in ours)} returns")
