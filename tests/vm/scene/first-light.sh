#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The demo's scene, played in the guest: somebody overwrites kv_cache_meta. Who, and how did they get there?
set -euo pipefail
cd /out

# Show a command as one would type it, then run it.
run() {
	printf '\n# %s\n' "$*"
	"$@"
}

cat <<END

A small key-value cache keeps a table, kv_cache_meta. Now and then its first word changes,
and nobody knows who did it. We watch the word, with Intel PT running on every CPU. (In this module
the mischief begins when "go" is written to /proc/kvdemo.)
END
run modprobe kvdemo
# The bug waits for "go": from then on the cache's health check notes its results in the table.
printf '\n# %s\n' "ptwatch watch kv_cache_meta:8:w --freeze -o crime -- sh -c 'echo go >/proc/kvdemo; sleep 10'"
ptwatch watch kv_cache_meta:8:w --freeze -o crime -- sh -c 'echo go >/proc/kvdemo; sleep 10'

cat <<END

The trace of that CPU stopped in the #DB handler. What did it do before? The last calls, with
times, and the last instructions up to the store:
END
run ptwatch calls -i crime --tail 30
run ptwatch insns -i crime --tail 20
