#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What the sources promise about themselves: licences, kernel style, who may touch what.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/tap.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

plan 10

files() { git ls-files -z -- "$@" | xargs -0 -r ls -d 2>/dev/null || true; }

# lacks PATTERN FILE…: those of the files whose first three lines do not match.
lacks() {
	local pattern=$1 file; shift
	for file; do
		head -n 3 "$file" | grep -qE "$pattern" || echo "$file"
	done
}

mapfile -t kernel_files < <(files module Kbuild tests/vm/demo-module tests/vm/modules | grep -v '\.md$')
mapfile -t uapi_files < <(files uapi)
mapfile -t other_files < <(files userspace tests .ci Makefile | grep -vE '^tests/vm/(demo-module|modules)/|\.(md|1|tsv)$')
is "$(lacks 'SPDX-License-Identifier: GPL-2.0( |$)' "${kernel_files[@]}")" '' 'the module is GPL-2.0'
is "$(lacks 'SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note' "${uapi_files[@]}")" '' 'uapi is GPL-2.0 WITH Linux-syscall-note'
is "$(lacks 'SPDX-License-Identifier: BSD-2-Clause' "${other_files[@]}")" '' 'the rest is BSD-2-Clause'

mapfile -t kernel_c < <(files 'module/*.[ch]' 'uapi/*.h' 'tests/vm/demo-module/*.c' 'tests/vm/modules/*.c')
is "$(for file in "${kernel_c[@]}"; do expand "$file" | perl -CSD -ne "print qq($file:$.\n) if length > 101"; done)" '' \
	'kernel code has at most 100 columns'
is "$(grep -nE '[[:space:]]$|^ +[^ *]' "${kernel_c[@]}" || true)" '' 'kernel code is indented with tabs, and nothing trails'
is "$(grep -rnE 'LINUX_VERSION_CODE|KERNEL_VERSION\(' module Kbuild || true)" '' 'no kernel version is asked for'
is "$(grep -lE 'MSR_IA32_RTIT' module/*.[ch])" 'module/rtit.c' 'only rtit.c touches the RTIT MSRs'
is "$(grep -nE '\bHAVE_[A-Z]' module/*.c || true)" '' 'only compat.h knows how kernels differ'

mapfile -t scripts < <(git ls-files | while read -r file; do
	[[ -f $file ]] && head -n 1 "$file" | grep -qE '^#!/bin/(ba)?sh' && echo "$file"
done)
if command -v shellcheck >/dev/null; then
	is "$(shellcheck -x -P SCRIPTDIR -f gcc "${scripts[@]}" || true)" '' 'shellcheck has nothing to say'
else
	skip 1 'shellcheck is not installed'
fi

if command -v man >/dev/null; then
	is "$(for page in userspace/man/*.1; do LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null; done)" '' \
		'the man pages format without warnings'
else
	skip 1 'man is not installed'
fi
