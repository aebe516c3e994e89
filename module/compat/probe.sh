#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# probe.sh OUTPUT PROBEDIR COMPILER FLAGS...
#
# Writes OUTPUT, a header with `#define HAVE_X` for each PROBEDIR/have_x.c that compiles with the flags the
# kernel compiles modules with. Called by Kbuild. A probe must fail for one reason only; have_kernel.c must
# compile on every kernel, or the flags themselves are broken.
set -eu
out=$1 dir=$2
shift 2

tmp=$out.probe.$$
trap 'rm -f "$tmp" "$tmp.o" "$tmp.log"' EXIT

echo "/* Written by compat/probe.sh for this kernel; do not edit. */" >"$tmp"
for probe in "$dir"/have_*.c; do
	name=$(basename "$probe" .c | tr '[:lower:]' '[:upper:]')
	if "$@" -c -o "$tmp.o" "$probe" 2>"$tmp.log"; then
		echo "#define $name 1"
	elif [ "$name" = HAVE_KERNEL ]; then
		echo "ptwatch: the kernel's own headers do not compile:" >&2
		cat "$tmp.log" >&2
		exit 1
	else
		echo "/* $name is not set */"
	fi
done >>"$tmp"
mv "$tmp" "$out"
