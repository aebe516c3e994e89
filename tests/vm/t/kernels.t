#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Each of the kernels comes up with Intel PT, our module loaded and ptwatch in place.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$here/../../lib/tap.sh"
needs_guest

plan 26

scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"
cd "$scratch"

cat >probe.sh <<'END'
#!/bin/bash
uname -r >/out/release
cat /proc/cpuinfo >/out/cpuinfo
cat /sys/bus/event_source/devices/intel_pt/type >/out/pmu
grep ^ptwatch /proc/modules >/out/loaded
ptwatch --help >/out/help
rmmod ptwatch && modprobe ptwatch && grep ^ptwatch /proc/modules >/out/again
modprobe kvdemo && cat /proc/kvdemo >/out/kvdemo
perf --version >/out/perf
END
chmod 755 probe.sh

for kernel in 6.1 6.12 newest; do
	rc=0
	"$here/../run" --kernel "$kernel" --out "$kernel" --put probe.sh --timeout 300 -- /put/probe.sh >output 2>&1 || rc=$?
	is "$rc" 0 "$kernel: a guest comes up and ends well"
	((rc == 0)) || diag "$(tail -n 20 output)"
	release=$(cat "$kernel/release" || true)
	case $kernel in
	newest) like "$release" '^([7-9]|[1-9][0-9])\.' "$kernel: is a newer kernel ($release)" ;;
	*) like "$release" "^${kernel//./\\.}\\." "$kernel: is that kernel" ;;
	esac
	like "$(cat "$kernel/cpuinfo" || true)" '[[:space:]]intel_pt[[:space:]]' "$kernel: the CPU has Intel PT"
	like "$(cat "$kernel/pmu" || true)" '^[0-9]+$' "$kernel: the kernel's own driver has found it"
	like "$(cat "$kernel/loaded" || true)" '^ptwatch ' "$kernel: ptwatch.ko is loaded when COMMAND starts"
	like "$(cat "$kernel/again" || true)" '^ptwatch ' "$kernel: and loads by modprobe"
	like "$(cat "$kernel/help" || true)" 'watch' "$kernel: ptwatch runs"
	like "$(cat "$kernel/kvdemo" || true)" '^meta 0x5a5a000000000010' "$kernel: the demo module loads"
done

# What QEMU says of a plugin it does not take reaches the person.
rc=0
"$here/../run" --emulator nonsense=1 -- true >output 2>&1 || rc=$?
is "$rc" 125 'an argument the emulator does not know keeps QEMU from starting'
like "$(cat output)" 'nonsense' 'and the message names it'
