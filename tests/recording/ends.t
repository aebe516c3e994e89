#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# How recordings end: ends.sh in a guest. Its checks count as one each.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
rc=0
"$here/../vm/run" --timeout 1500 --out "$guest_scratch/out" --put "$here/ends.sh" --put "$here/../lib/tap.sh" -- /put/ends.sh \
	>"$guest_scratch/tap" 2>"$guest_scratch/errors" || rc=$?
relay_tap "$guest_scratch/tap" ''
is "$rc" 0 'the guest ends well'
# Our own alarm's stack is no trouble, nor is how long an NMI takes on a busy machine.
is "$(grep -avE 'ptwatch: |NMI handler .* took too long' "$guest_scratch/out/console.log" | grep -aE "$bad_log" | head -n 5)" '' \
	'the kernel has nothing to complain about'
((rc == 0)) || diag "$(tail -n 30 "$guest_scratch/errors")"
done_testing
