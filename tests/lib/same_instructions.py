#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""same_instructions.py TRUTH DECODED

Compare the emulator's list of executed addresses (64-bit words, 0 where tracing began) with what a decoder
printed (an address in hex a line). Prints "equal", or the first difference.
"""
import array
import sys

executed = array.array("Q")
with open(sys.argv[1], "rb") as file:
    executed.frombytes(file.read())
executed = [ip for ip in executed if ip]
with open(sys.argv[2]) as file:
    decoded = [int(line, 16) for line in file]

for number, (wanted, got) in enumerate(zip(executed, decoded)):
    if wanted != got:
        print(f"instruction {number}: executed {wanted:#x}, decoded {got:#x}")
        break
else:
    if not decoded:
        print("nothing decoded")
    elif len(executed) == len(decoded):
        print("equal")
    else:
        print(f"executed {len(executed)}, decoded {len(decoded)} instructions")
