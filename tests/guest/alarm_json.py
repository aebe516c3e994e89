#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `ptwatch watch --json` says about an alarm, key by key, against what pokee did. Prints TAP."""
import json
import subprocess
import sys

OLD, NEW = 0x1111, 0xFEDCBA9876543210
checks = failed = 0


def equal(got, expected, name):
    global checks, failed
    checks += 1
    good = got == expected
    failed += not good
    print(f"{'ok' if good else 'not ok'} {checks} - ptwatch watch --json: {name}")
    if not good:
        print(f"# got {got!r}, expected {expected!r}")


def symbols():
    """pokee's symbols: name to address."""
    with open("/proc/kallsyms") as f:
        lines = (line.split() for line in f if "[pokee]" in line)
        return {name: int(address, 16) for address, _, name, _ in lines}


def poke(line):
    with open("/proc/pokee", "w") as f:
        f.write(line)


def function_of(address, known):
    """The function at an address, from the last symbol that is not behind it."""
    below = [(a, n) for n, a in known.items() if a <= address and not n.startswith("__pfx")]
    return max(below)[1] if below else None


def main():
    known = symbols()
    poke(f"store 0 1 {OLD:#x}")
    # The shell itself writes to /proc/pokee, on CPU 1: the alarm is its own.
    command = f'echo $$ >/tmp/pid; echo "store 1 1 {NEW:#x}" >/proc/pokee'
    run = subprocess.run(
        ["ptwatch", "watch", "pokee:pokee_word:8:w", "--json", "--no-log", "--",
         "taskset", "-c", "1", "sh", "-c", command],
        stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    with open("/tmp/pid") as f:
        pid = int(f.read())
    equal(run.returncode, 0, "exit status")
    lines = run.stdout.splitlines()
    equal(len(lines), 1, "one line for one alarm")
    alarm = json.loads(lines[0])

    equal(sorted(alarm), sorted(
        "seq watch label time time_ns tsc cpu pid tgid comm cgroup cgroup_path access address len ip ip_symbol "
        "old new stack user_stack regs lost actions".split()), "its keys")
    equal(alarm["seq"], 1, "seq: the first since the module was loaded")
    equal(alarm["watch"], 1, "watch: likewise")
    equal(alarm["lost"], 0, "lost")
    equal(alarm["label"].endswith("pokee_word+0x0"), True, "label")
    equal(alarm["cpu"], 1, "cpu")
    equal(alarm["pid"], pid, "pid")
    equal(alarm["tgid"], pid, "tgid")
    equal(alarm["comm"], "sh", "comm")
    equal(alarm["access"], "w", "access")
    equal(alarm["len"], 8, "len")
    equal(int(alarm["address"], 16), known["pokee_word"], "address")
    equal(int(alarm["old"], 16), OLD, "old")
    equal(int(alarm["new"], 16), NEW, "new")
    address = int(alarm["ip"], 16)
    equal(function_of(address, known), "pokee_store", "ip is in pokee_store")
    offset = address - known["pokee_store"]
    equal(alarm["ip_symbol"].split()[0], f"pokee_store+{offset:#x}", "ip_symbol")
    equal(alarm["regs"]["ip"], alarm["ip"], "regs.ip is ip")
    equal(len(alarm["regs"]), 18, "regs is complete")
    equal(alarm["stack"][0]["ip"], alarm["ip"], "the first of stack is ip")
    callers = [function_of(int(frame["ip"], 16), known) for frame in alarm["stack"]]
    equal("pokee_write" in callers, True, "stack leads to pokee_write")
    equal(0 < int(alarm["user_stack"][0]["ip"], 16) < 1 << 47, True, "user_stack begins in the shell's own code")
    print(f"1..{checks}")
    return 1 if failed else 0


sys.exit(main())
