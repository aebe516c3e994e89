# SPDX-License-Identifier: BSD-2-Clause
"""turns.py OUT…: have guests, which run guest/speed.c with these directories as their /out, do the same pieces of work
in turns. Prints for each piece its name and the CPU time it took each guest's CPU, in seconds: the least of ROUNDS.
The pieces are short and many, so that some of them have the host for themselves.
"""
import glob
import os
import sys
import time

PIECES = "sort", "strings", "syscall", "read", "fork", "fault"
ROUNDS = 25
BOOT = 300


def contents(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def cpu_thread(out):
    """The thread of the first CPU of the QEMU that shares this directory."""
    for comm in glob.glob("/proc/[0-9]*/task/*/comm"):
        if contents(comm).startswith("CPU 0") and f"path={out}," in contents(comm.split("/task/")[0] + "/cmdline"):
            return os.path.dirname(comm)
    return None


class Guest:
    def __init__(self, out):
        self.out, self.n, self.thread = os.path.realpath(out), 0, None

    def wait(self, condition, what, limit):
        end = time.monotonic() + limit
        while not (result := condition()):
            if time.monotonic() > end:
                sys.exit(f"turns: {self.out}: {what} in {limit} s")
            time.sleep(0.002)
        return result

    def seconds(self):
        return int(contents(self.thread + "/schedstat").split()[0]) / 1e9

    def go(self, piece):
        self.n += 1
        with open(f"{self.out}/new", "w") as f:
            print(piece, file=f)
        os.rename(f"{self.out}/new", f"{self.out}/go.{self.n}")

    def do(self, piece):
        self.thread = self.thread or self.wait(lambda: cpu_thread(self.out), "no QEMU", BOOT)
        before = self.seconds()
        self.go(piece)
        self.wait(lambda: os.path.exists(f"{self.out}/done.{self.n}"), f"{piece} was not done", BOOT)
        return self.seconds() - before


guests = [Guest(out) for out in sys.argv[1:]]
for guest in guests:
    # Whatever is left of booting, and QEMU's translation of these pieces.
    for piece in PIECES:
        guest.do(piece)
        guest.do(piece)
for piece in PIECES:
    rounds = [[guest.do(piece) for guest in guests] for _ in range(ROUNDS)]
    print(piece, *(f"{min(times):.4f}" for times in zip(*rounds)), flush=True)
for guest in guests:
    guest.go("")
