#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""skid.py KALLSYMS: reads perf script --itrace=i0ns -F ip,sym,insn of a trace that ends some time after a store in
storer_store, whose address is in KALLSYMS (later perfs have other names for what is in a module). Prints how many
instructions, functions and conditional branches there are from the last such store to the end.
"""
import re
import sys

LINE = re.compile(r"\s*([0-9a-f]+)\s+(\S+).*\binsn:\s*([0-9a-f ]+)")


def conditional(code):
    i = 0
    while i < len(code) - 1 and (code[i] in (0x2E, 0x3E, 0x66, 0xF2, 0xF3) or code[i] & 0xF0 == 0x40):
        i += 1
    return 0x70 <= code[i] <= 0x7F or (code[i] == 0x0F and code[i + 1] & 0xF0 == 0x80)


with open(sys.argv[1], encoding="ascii", errors="replace") as f:
    symbols = {fields[2]: int(fields[0], 16) for fields in map(str.split, f) if len(fields) > 2}
start = symbols["storer_store"]
storer = range(start, min(address for address in symbols.values() if address > start))
path = []
store = None
for text in sys.stdin:
    match = LINE.match(text)
    if not match:
        continue
    code = bytes.fromhex(match[3])
    # mov %rdi, storer_word(%rip)
    if int(match[1], 16) in storer and code[:3] == b"\x48\x89\x3d":
        path = []
        store = match[1]
    elif store:
        path.append((int(match[1], 16), match[2], code))
if not store:
    sys.exit("no store in the trace")
functions = {name for address, name, _ in path if address not in storer}
print(len(path), len(functions), sum(conditional(code) for *_, code in path))
