#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""skid.py: reads perf script --itrace=i0ns -F ip,sym,insn of a trace that ends some time after a store in
storer_store. Prints how many instructions, functions and conditional branches there are from the last such
store to the end.
"""
import re
import sys

LINE = re.compile(r"\s*([0-9a-f]+)\s+(\S+).*\binsn:\s*([0-9a-f ]+)")


def conditional(code):
    i = 0
    while i < len(code) - 1 and (code[i] in (0x2E, 0x3E, 0x66, 0xF2, 0xF3) or code[i] & 0xF0 == 0x40):
        i += 1
    return 0x70 <= code[i] <= 0x7F or (code[i] == 0x0F and code[i + 1] & 0xF0 == 0x80)


path = []
store = None
for text in sys.stdin:
    match = LINE.match(text)
    if not match:
        continue
    code = bytes.fromhex(match[3])
    # mov %rdi, storer_word(%rip)
    if match[2].startswith("storer_store") and code[:3] == b"\x48\x89\x3d":
        path = []
        store = match[1]
    elif store:
        path.append((match[2], code))
if not store:
    sys.exit("no store in the trace")
functions = {name for name, _ in path if not name.startswith("storer_store")}
print(len(path), len(functions), sum(conditional(code) for _, code in path))
