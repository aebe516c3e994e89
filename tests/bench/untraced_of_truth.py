#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""untraced_of_truth.py NUMBERS CPU.ips: how many instructions were executed, but not traced, between two marks.

NUMBERS is what tests/bench/guest/trace.c prints: the addresses of the CPUIDs that set the marks (swap-mark1,
swap-mark2) and how many instructions were executed between them (swap-executed).
"""
import array
import sys

numbers = dict(line.split() for line in open(sys.argv[1]))
ips = array.array("Q")
with open(sys.argv[2], "rb") as truth:
    ips.frombytes(truth.read())
mark1, mark2 = int(numbers["swap-mark1"], 16), int(numbers["swap-mark2"], 16)
end = max(i for i in range(len(ips)) if ips[i] == mark2)
begin = max(i for i in range(end) if ips[i] == mark1)
# Neither mark counts itself.
print(round(float(numbers["swap-executed"])) - (end - begin - 1))
