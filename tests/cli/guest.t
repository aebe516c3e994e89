#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What the program does with the module: guest.sh in a guest with Intel PT, and in one without.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/tap.sh"
needs_guest
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

plan 6

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

# in_guest NAME CHECKS OPTION…: guest.sh's own checks count as one each; a failed one is shown.
in_guest() {
	local name=$1 checks=$2 rc=0 said; shift 2
	tests/vm/run "$@" --put tests/cli/guest.sh --put tests/lib/tap.sh -- /put/guest.sh >"$work/said" 2>"$work/errors" || rc=$?
	said=$(<"$work/said")
	is "$rc" 0 "$name: guest.sh succeeds"
	is "$(grep -cE '^ok [0-9]+' "$work/said" || true)" "$checks" "$name: all its checks passed"
	unlike "$said" '(^|[[:space:]])not ok' "$name: none failed"
	((rc == 0)) || diag "$(grep -E '^not ok' "$work/said"; tail -n 20 "$work/errors")"
}

in_guest 'with Intel PT' 112
in_guest 'without' 82 --no-pt
