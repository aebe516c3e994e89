# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# TAP for tests in bash. A test script sources this, says `plan N` (or calls
# `done_testing` at its end) and checks with ok, is, like. It ends with status
# 0 when all went well, 1 when a check failed or the number of checks is not the
# planned one. A check that fails says where and why on stderr.

_tap_count=0 _tap_failed=0 _tap_plan=''

plan() { _tap_plan=$1; echo "1..$1"; }

# skip_all REASON: nothing here can be tested on this machine.
skip_all() { _tap_plan=0; echo "1..0 # SKIP $*"; exit 0; }

# fail_all REASON: the test cannot even begin, though it should: that is a failure, not a skip.
fail_all() {
	plan 1
	_tap_result 1 "$*"
	exit 1
}

# needs_guest: this test boots a guest. Building the guest and modules for it needs root.
needs_guest() {
	if ((EUID != 0)); then skip_all 'booting a guest needs root'; fi
}

# done_testing: the plan at the end, when the number of checks varies.
done_testing() { plan "$_tap_count"; }

diag() { printf '%s\n' "$*" | sed 's/^/# /' >&2; }

_tap_result() {
	local rc=$1; shift
	_tap_count=$((_tap_count + 1))
	if ((rc == 0)); then
		echo "ok $_tap_count - $*"
	else
		_tap_failed=$((_tap_failed + 1))
		echo "not ok $_tap_count - $*"
		diag "failed: $* (${BASH_SOURCE[2]}:${BASH_LINENO[1]})"
	fi
}

# ok NAME COMMAND…: COMMAND succeeds.
ok() {
	local name=$1 rc=0; shift
	"$@" || rc=$?
	_tap_result "$rc" "$name"
}

# is GOT EXPECTED NAME: the strings are equal.
is() {
	local rc=0
	[[ $1 == "$2" ]] || rc=1
	_tap_result "$rc" "$3"
	if ((rc)); then
		diag "     got: $(printf '%q' "$1")"
		diag "expected: $(printf '%q' "$2")"
	fi
}

# like GOT REGEX NAME: GOT matches the extended regular expression.
like() {
	local rc=0
	[[ $1 =~ $2 ]] || rc=1
	_tap_result "$rc" "$3"
	if ((rc)); then
		diag "     got: $(printf '%q' "$1")"
		diag "expected: a match of $2"
	fi
}

# unlike GOT REGEX NAME: GOT does not match it.
unlike() {
	local rc=0
	[[ ! $1 =~ $2 ]] || rc=1
	_tap_result "$rc" "$3"
	if ((rc)); then
		diag "     got: $(printf '%q' "$1")"
		diag "expected: no match of $2"
	fi
}

# skip N REASON: pass over N checks that this machine cannot do.
skip() {
	local i
	for ((i = 0; i < $1; i++)); do
		_tap_count=$((_tap_count + 1))
		echo "ok $_tap_count # SKIP $2"
	done
}

# tap_cleanup COMMAND…: run at the end, whatever happens.
_tap_cleanup=()
tap_cleanup() { _tap_cleanup=("$@"); }

_tap_end() {
	local rc=$?
	if ((${#_tap_cleanup[@]})); then "${_tap_cleanup[@]}"; fi
	if ((rc)); then
		diag "the test script ended early, with status $rc"
	elif [[ $_tap_plan != "$_tap_count" ]]; then
		diag "${_tap_plan:-no} checks planned, $_tap_count done"
		rc=1
	elif ((_tap_failed)); then
		diag "$_tap_failed of $_tap_count checks failed"
		rc=1
	fi
	exit "$rc"
}
trap _tap_end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Where a test leaves what it made, for who wants to look at it
if [[ -n ${PTWATCH_KEEP_LOGS:-} ]]; then mkdir -p "$PTWATCH_KEEP_LOGS"; fi
