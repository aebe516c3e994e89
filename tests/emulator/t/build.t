#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# A changed header is compiled into all that include it, however the place for the results was spelled before and
# is now: parts that disagree about a struct would end in an emulator that crashes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/tap.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
plan 2

work=$(mktemp -d)
tap_cleanup rm -rf "$work"
includes=$(grep -l '^#include "vcpu.h"' tests/emulator/*.c | sed 's|.*/||' | sort)
relative=$(realpath --relative-to=tests/emulator "$work")
make -s -C tests/emulator "OUT=$relative" "$work/intel_pt.so" >&2
declare -A kind=([$relative]=relative [$work]=absolute)
for out in "$relative" "$work"; do
	is "$(make -n -C tests/emulator "OUT=$out" -W vcpu.h "$work/intel_pt.so" | sed -n 's/.* -c -o .* //p' | sort)" "$includes" \
		"with OUT ${kind[$out]}: all that include vcpu.h"
done
