#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
#
# where_it_ended.py IPS KALLSYMS [SYMBOL]: where the truth of a CPU ends, as the emulator wrote it: by a write of an MSR, which
# switched tracing off, or in which function; and whether SYMBOL is among the last million instructions.
import array
import bisect
import re
import sys

symbols = sorted((int(a, 16), name) for a, kind, name, *_ in map(str.split, open(sys.argv[2])) if kind in "tTwW")
starts = [a for a, _ in symbols]


def function(ip):
    return symbols[max(bisect.bisect(starts, ip) - 1, 0)][1]


ips = array.array("Q")
with open(sys.argv[1], "rb") as file:
    # There may be gigabytes before.
    file.seek(max(file.seek(0, 2) - 8 * 1000000, 0))
    ips.frombytes(file.read())
last = [function(ip) for ip in ips if ip > 1]
if len(sys.argv) > 3:
    print(sys.argv[3] if sys.argv[3] in last else "not " + sys.argv[3], end=" ")
print("switched off" if last and re.search("write_msr|wrmsr", last[-1]) else "ended in " + (last[-1] if last else "nothing"))
