# SPDX-License-Identifier: BSD-2-Clause
"""child.py COMMAND…: run it with its output thrown away, and print processor seconds, seconds, and its peak memory in MB."""
import resource
import subprocess
import sys
import time

# What started Python may have had children of its own.
before = resource.getrusage(resource.RUSAGE_CHILDREN)
start = time.monotonic()
status = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
wall = time.monotonic() - start
processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
print(f"{processor:.3f} {wall:.3f} {used.ru_maxrss / 1024:.0f}")
sys.exit(status)
