#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
#
# where_it_ended.py IPS KALLSYMS [SYMBOL]: where the truth of a CPU ends, as the emulator wrote it: by a write of an MSR, which
# switched tracing off, or in which function; and before that, how often SYMBOL was entered in all of it.
import array
import bisect
import re
import sys

symbols = sorted((int(a, 16), name) for a, kind, name, *_ in map(str.split, open(sys.argv[2])) if kind in "tTwW")
starts = [a for a, _ in symbols]
entries = [a for a, name in symbols if name == sys.argv[3]] if len(sys.argv) > 3 else []
PIECE = 1 << 20


def function(ip):
    return symbols[max(bisect.bisect(starts, ip) - 1, 0)][1]


entered = 0
last = None
with open(sys.argv[1], "rb") as file:
    # There may be gigabytes.
    while piece := file.read(8 * PIECE):
        ips = array.array("Q")
        ips.frombytes(piece[: len(piece) // 8 * 8])
        entered += sum(ips.count(a) for a in entries)
        # 0 and 1 are marks.
        last = next((ip for ip in reversed(ips) if ip > 1), last)
if len(sys.argv) > 3:
    print(f"{sys.argv[3]} entered {entered} times", end=", ")
end = function(last) if last else "nothing"
print("switched off" if re.search("write_msr|wrmsr", end) else "ended in " + end)
