#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""same_but_lost.py TRUTH INSNS PACKETS [INSNS PACKETS]…

Compare the emulator's list of executed addresses (64-bit words; 0 where tracing began, 1 where an overflow ended) with what
`ptwatch insns --json` and `ptwatch packets --json` say of the recordings that were made meanwhile, one after the other. All
that was executed must be decoded, in order, but for what is told as lost: what was executed while an overflow lasted, and up
to the next PSB where a gap says so. (When an overflow began the list does not say.) Prints "equal but for N overflows and M gaps", or what is wrong.
"""
import array
import json
import sys


def fail(text):
    print(text)
    sys.exit()


def read_truth(path):
    """Addresses; and for each overflow how many were executed before it ended."""
    words = array.array("Q")
    with open(path, "rb") as file:
        words.frombytes(file.read())
    ips, ends = [], []
    for word in words:
        if word == 1:
            ends.append(len(ips))
        elif word:
            ips.append(word)
    return ips, ends


def read_json(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def segments(insns):
    """Addresses, and the gap that they end with; None: the end."""
    ips = []
    for record in insns:
        if record["type"] == "insn":
            ips.append(int(record["ip"], 16))
        elif record["type"] == "gap" or record.get("event") == "overflow":
            yield ips, record
            ips = []
    yield ips, None


class Judge:
    def __init__(self, truth):
        self.ips, self.ends = read_truth(truth)
        self.at = 0             # in self.ips
        self.overflow = 0       # the next one
        self.anywhere = False   # the next segment may begin later, though before the next overflow ends
        self.gaps = 0

    def limit(self, last):
        """Before it, all that is decoded before the next overflow was executed."""
        return self.ends[self.overflow] if self.overflow < last else len(self.ips)

    def take(self, ips, last, name):
        limit = self.limit(last)
        if self.anywhere and ips:
            found = next((i for i in range(self.at, limit - len(ips) + 1)
                          if self.ips[i] == ips[0] and self.ips[i:i + len(ips)] == ips), None)
            if found is None:
                fail(f"{name}: {len(ips)} instructions from {ips[0]:#x} after a gap were not executed so before overflow "
                     f"{self.overflow}")
            self.at = found
        for number, ip in enumerate(ips):
            if self.at >= limit or self.ips[self.at] != ip:
                wanted = f"{self.ips[self.at]:#x}" if self.at < limit else "nothing"
                fail(f"{name}: instruction {self.at}: executed {wanted}, decoded {ip:#x} ({number} after overflow "
                     f"{self.overflow - 1})")
            self.at += 1
        if ips:
            self.anywhere = False

    def take_recording(self, insns, packets, name):
        offsets = [int(p["offset"], 16) for p in packets if p["type"] == "OVF"]
        first, last = self.overflow, self.overflow + len(offsets)
        if last > len(self.ends):
            fail(f"{name}: {len(offsets)} overflows in the trace, {len(self.ends) - first} were")
        for ips, gap in segments(insns):
            self.take(ips, len(self.ends), name)
            if gap is None:
                break
            lost = gap.get("lost", 0)
            if gap["type"] == "gap":
                offset = int(gap["offset"], 16)
                self.gaps += 1
                if first + sum(o < offset for o in offsets) != self.overflow or offset not in offsets:
                    fail(f"{name}: gap at {offset:#x}, which is not the next overflow: {gap}")
                self.overflow = first + sum(o < offset + lost for o in offsets)
                self.anywhere = True
                self.at = self.ends[self.overflow - 1]
            else:
                if self.overflow == last:
                    fail(f"{name}: one overflow too many: {gap}")
                self.at = self.ends[self.overflow]
                self.overflow += 1
                self.anywhere = False
        if self.overflow != last:
            fail(f"{name}: {last - self.overflow} overflows are not told")


def main():
    judge = Judge(sys.argv[1])
    for insns, packets in zip(sys.argv[2::2], sys.argv[3::2]):
        judge.take_recording(read_json(insns), read_json(packets), insns)
    if judge.overflow != len(judge.ends):
        fail(f"{len(judge.ends) - judge.overflow} overflows are in no recording")
    print(f"equal but for {judge.overflow} overflows and {judge.gaps} gaps")


main()
