#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What the program does with the module: guest.sh in a guest with Intel PT, and in one without, where targets.sh
# follows it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/tap.sh"
needs_guest
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

plan 6

work=$(mktemp -d)
tap_cleanup rm -rf "$work"

# in_guest NAME CHECKS SCRIPTS OPTION…: the scripts' own checks count as one each; a failed one is shown.
in_guest() {
	local name=$1 checks=$2 scripts=$3 rc=0 said; shift 3
	tests/vm/run "$@" --put tests/cli/guest.sh --put tests/cli/targets.sh --put tests/cli/threads.c --put tests/lib/tap.sh -- \
		sh -c "rc=0; for script in $scripts; do /put/\$script || rc=1; done; exit \$rc" >"$work/said" 2>"$work/errors" || rc=$?
	said=$(<"$work/said")
	is "$rc" 0 "$name: $scripts succeed"
	is "$(grep -cE '^ok [0-9]+' "$work/said" || true)" "$checks" "$name: all its checks passed"
	unlike "$said" '(^|[[:space:]])not ok' "$name: none failed"
	((rc == 0)) || diag "$(grep -E '^not ok' "$work/said"; tail -n 20 "$work/errors")"
}

in_guest 'with Intel PT' 148 guest.sh
in_guest 'without' 169 'guest.sh targets.sh' --no-pt
