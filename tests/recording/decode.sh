# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# Sourced by tests whose recordings were made in the guest: decoded here, where it is fast, by programs that find
# $work/out at /mnt as the guest had it. $top and $work are the test's.
# shellcheck disable=SC2154

root=$("$top/tests/vm/cache" path root)
# in_mount COMMAND…: from here
# shellcheck disable=SC2016 # the inner shell expands them
in_mount() {
	unshare -m sh -c 'mount --bind "$1" /mnt && shift && cd /mnt && exec "$@"' sh "$work/out" "$@"
}
# in_root COMMAND…: from the guest's Debian, as its perf
# shellcheck disable=SC2016
in_root() {
	unshare -m sh -c 'mount --bind "$1" "$2/mnt" && mount -t proc proc "$2/proc" && root=$2 && shift 2 &&
		exec chroot "$root" "$@"' sh "$work/out" "$root" "$@"
}
