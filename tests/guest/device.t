#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# /dev/ptwatch and its alarms, in a guest: the promises of uapi/linux, one by one.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

ok 'the test program builds' build_device
run_device "${PTWATCH_TEST_KERNEL:-6.12}" '' json
done_testing
