#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs in the guest for numa.t and prints TAP: on which node lies what each CPU writes and reads?

Told by what is not ours: IA32_RTIT_OUTPUT_BASE of each CPU, the tables as they lie in memory (/proc/kcore), /proc/self/pagemap
of what is mapped, and which blocks of memory are a node's (/sys/devices/system).
"""
import ctypes
import fcntl
import glob
import mmap
import os
import re
import struct

PAGE = 4096
RTIT_OUTPUT_BASE = 0x560
USER, BRANCH = 1 << 3, 1 << 13
RING, STREAM, BANKS = 0, 1, 2
END = 1
# struct ptwatch_trace of uapi/linux/ptwatch.h
TRACE = struct.Struct('=IIQQQIiIIQIIIiII96xQIIiI16x')
SETUP = 3 << 30 | TRACE.size << 16 | 0xF7 << 8 | 0x10
START, STOP = 0xF711, 0xF712
OFFSET_DATA, OFFSET_SWITCHES, OFFSET_BANK = 1 << 39, 1 << 38, 35

checks = 0


def check(good, name, why=''):
    global checks
    checks += 1
    print(f"{'' if good else 'not '}ok {checks} - {name}")
    if not good:
        print(f'# {why}')


# ---- what the machine says

def number_of(path, base=10):
    with open(path) as f:
        return int(f.read(), base)


block_size = number_of('/sys/devices/system/memory/block_size_bytes', 16)
node_of_block, node_of_cpu = {}, {}
for path in glob.glob('/sys/devices/system/node/node*/memory[0-9]*'):
    node, block = re.fullmatch(r'.*/node(\d+)/memory(\d+)', path).groups()
    node_of_block[int(block)] = int(node)
for path in glob.glob('/sys/devices/system/node/node*/cpu[0-9]*'):
    node, cpu = re.fullmatch(r'.*/node(\d+)/cpu(\d+)', path).groups()
    node_of_cpu[int(cpu)] = int(node)


def nodes_of(start, size=PAGE):
    return {node_of_block.get(at // block_size) for at in range(start, start + size, PAGE)}


class Memory:
    """Physical memory, as /proc/kcore shows it"""

    def __init__(self):
        self.fd = os.open('/proc/kcore', os.O_RDONLY)
        header = os.pread(self.fd, 64, 0)
        (start,), (size, count) = struct.unpack_from('<Q', header, 32), struct.unpack_from('<HH', header, 54)
        self.parts = []
        for i in range(count):
            kind, _, offset, _, physical, _, length, _ = struct.unpack('<IIQQQQQQ', os.pread(self.fd, size, start + i * size))
            # The segments without memory behind them have no physical address.
            if kind == 1 and physical != 2 ** 64 - 1 and physical < 1 << 52:
                self.parts.append((physical, length, offset))

    def page(self, physical):
        for start, length, offset in self.parts:
            if start <= physical and physical + PAGE <= start + length:
                page = os.pread(self.fd, PAGE, offset + physical - start)
                if len(page) == PAGE:
                    return page
        raise SystemExit(f'# /proc/kcore does not have {physical:#x}')


memory = Memory()
pagemap = os.open('/proc/self/pagemap', os.O_RDONLY)


def output_base(cpu):
    fd = os.open(f'/dev/cpu/{cpu}/msr', os.O_RDONLY)
    base = struct.unpack('<Q', os.pread(fd, 8, RTIT_OUTPUT_BASE))[0]
    os.close(fd)
    return base


# ---- what is ours

# User code only, so that how much is written does not depend on time
def session(mode, cpus, buffer_size, region_size, banks=0, switches=0):
    fd = os.open('/dev/ptwatch', os.O_RDWR)
    bitmap = ctypes.create_string_buffer(bytes([cpus]))
    arg = bytearray(TRACE.pack(
        TRACE.size, 0, USER | BRANCH, buffer_size, ctypes.addressof(bitmap), 1,
        number_of('/sys/bus/event_source/devices/intel_pt/type'), 0, mode, region_size, banks, switches, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    fcntl.ioctl(fd, SETUP, arg)
    return fd


def mapped_nodes(fd, offset, size):
    """Of a mapping of the device, page by page"""
    nodes = set()
    with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ, offset=offset) as view:
        # The address, without asking for a buffer that may be written
        with open('/proc/self/maps') as f:
            start = [int(line.split('-')[0], 16) for line in f if '/dev/ptwatch' in line and int(line.split()[2], 16) == offset]
        for at in range(0, size, PAGE):
            view[at]
            entry = struct.unpack('<Q', os.pread(pagemap, 8, (start[0] + at) // PAGE * 8))[0]
            frame = entry & (1 << 55) - 1
            nodes |= nodes_of(frame * PAGE) if entry >> 63 and frame else {'not there'}
    return nodes


def walk(base):
    """The tables from one on, and the regions: two sets of nodes, and how many there are"""
    tables, regions = [], set()
    while base not in tables:
        tables.append(base)
        for (entry,) in struct.iter_unpack('<Q', memory.page(base)):
            address, size = entry & ((1 << 52) - PAGE), PAGE << (entry >> 6 & 15)
            if entry & END:
                base = address
                break
            regions.add((address, size))
    of_tables = set().union(*(nodes_of(table) for table in tables))
    of_regions = set().union(*(nodes_of(*region) for region in regions))
    return of_tables, of_regions, len(tables), sum(size for _, size in regions)


def look_at_tables(name, tables, size):
    for cpu, node in node_of_cpu.items():
        of_tables, of_regions, count, total = walk(output_base(cpu))
        check((count, total) == (tables, size), f'{name}: CPU {cpu} goes through {tables} tables and {size} bytes',
              f'{count} tables, {total} bytes')
        check(of_tables == {node}, f'{name}: the tables of CPU {cpu} are on its node {node}', of_tables)
        check(of_regions == {node}, f'{name}: what CPU {cpu} writes is on its node {node}', of_regions)


def look_at_mappings(name, fd, what):
    for cpu, node in node_of_cpu.items():
        for part, offset, size in what:
            nodes = mapped_nodes(fd, cpu << 40 | offset, size)
            check(nodes == {node}, f'{name}: the {part} of CPU {cpu} is on its node {node}', nodes)


check(node_of_cpu == {0: 0, 1: 1}, 'each CPU has a node of its own', node_of_cpu)
every = 3
# Who sets it up is on one of them: memory that nobody says the node of is there.
for here in 0, 1:
    os.sched_setaffinity(0, {here})

    # A thousand regions are three tables, and a ring has them twice: it leads from the first into the second.
    size = 1024 * PAGE
    fd = session(RING, every, size, PAGE, switches=1024)
    fcntl.ioctl(fd, START)
    fcntl.ioctl(fd, STOP)
    name = f'a ring, set up on CPU {here}'
    look_at_tables(name, 6, size)
    look_at_mappings(name, fd, [('control page', 0, PAGE), ('buffer', OFFSET_DATA, size),
                                ('room for switches', OFFSET_SWITCHES, 9 * PAGE)])
    os.close(fd)

    # As large as can be had
    fd = session(RING, every, 32 << 20, 0)
    fcntl.ioctl(fd, START)
    fcntl.ioctl(fd, STOP)
    look_at_tables(f'large regions, set up on CPU {here}', 2, 32 << 20)
    os.close(fd)

    fd = session(BANKS, every, 16 * PAGE, PAGE, banks=3)
    look_at_mappings(f'banks, set up on CPU {here}', fd,
                     [(f'bank {bank}', OFFSET_DATA | bank << OFFSET_BANK, 16 * PAGE) for bank in range(3)])
    os.close(fd)

    fd = session(STREAM, every, 16 * PAGE, PAGE)
    fcntl.ioctl(fd, START)
    fcntl.ioctl(fd, STOP)
    look_at_tables(f'a stream, set up on CPU {here}', 1, 16 * PAGE)
    # Nobody reads: what comes then goes to the sink, until it stops.
    fcntl.ioctl(fd, START)
    for cpu in node_of_cpu:
        os.sched_setaffinity(0, {cpu})
        while walk(output_base(cpu))[3] == 16 * PAGE:
            for _ in range(1000):
                os.getppid()
    fcntl.ioctl(fd, STOP)
    os.sched_setaffinity(0, {here})
    look_at_tables(f'the sink, set up on CPU {here}', 1, 2 << 16)
    os.close(fd)
print(f'1..{checks}')
