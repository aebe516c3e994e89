#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The same as device.t on the oldest and the newest kernel: what the module uses
# of a kernel differs between them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

ok 'the test program builds' build_device
for kernel in 6.1 newest; do
	run_device "$kernel" "$kernel: "
done
done_testing
