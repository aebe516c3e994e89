#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Each CPU writes its trace to memory of its own node, through tables that lie there, whichever CPU it was set up from.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
rc=0
"$guest_dir/../vm/run" --numa --timeout 300 --append oops=panic --out "$guest_scratch/out" --put "$guest_dir/numa.py" \
	-- sh -c 'modprobe msr && exec python3 /put/numa.py' >"$guest_scratch/tap" || rc=$?
relay_tap "$guest_scratch/tap" ''
is "$rc" 0 'exit status of the guest'
is "$(grep -v 'ptwatch: ' "$guest_scratch/out/console.log" | grep -aE "$bad_log" | head -n 5)" '' 'the kernel has nothing to complain about'
done_testing
