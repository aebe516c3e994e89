#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""skid_of_truth.py IPS KALLSYMS: reads what the emulator says was executed while a CPU traced, and the guest's symbols.
For each stretch of tracing that ends behind a store in pokee_counted (the cmp or add behind it is where the
#DB came) prints how many instructions and functions there are after the store, and which.
"""
import bisect
import struct
import sys

symbols = []
for line in open(sys.argv[2]):
    address, kind, name = line.split()[:3]
    if kind in "tTwW":
        symbols.append((int(address, 16), name))
symbols.sort()
starts = [address for address, _ in symbols]


def function(address):
    return symbols[bisect.bisect(starts, address) - 1][1]


data = open(sys.argv[1], "rb").read()
ips = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
stretch = []
seen = set()
for ip in list(ips) + [0]:
    if ip > 1:
        stretch.append(ip)
        continue
    # The store is the last instruction of pokee_counted before the first of asm_exc_debug.
    last = max((i for i, a in enumerate(stretch[-3000:]) if function(a) == "pokee_counted"), default=None)
    if last is not None:
        tail = stretch[-3000:][last + 1:]
        names = []
        for a in tail:
            if function(a) not in names:
                names.append(function(a))
        key = (len(tail), tuple(names))
        if key not in seen and (not names or names[0] == "asm_exc_debug"):
            seen.add(key)
            print(len(tail), len(names), " ".join(names))
    stretch = []
