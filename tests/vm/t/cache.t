#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# tests/vm/cache with a cheap item in a cache of its own: what is interrupted is
# never used, two at once prepare once, clean removes what is ours and only that.
# shellcheck disable=SC2016 # recipes and commands for another shell
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../lib/tap.sh
. "$here/../../lib/tap.sh"

needs_guest
plan 27

scratch=$(mktemp -d)
tap_cleanup rm -rf "$scratch"
export PTWATCH_CACHE=$scratch/cache
cache=$here/../cache

# cache with an item 'fake' whose recipe is the first argument.
# fake_cache RECIPE ARGUMENT…
fake_cache() {
	bash -c 'set -euo pipefail; cache=$1 recipe=$2; shift 2; . "$cache"
		ITEMS+=(fake); eval "recipe_fake() { $recipe
		}"; main "$@"' cache "$cache" "$@"
}
# status COMMAND…: its exit status, in $rc; its output in $output.
status() { rc=0; output=$("$@" 2>&1) || rc=$?; }
wait_for() { local i; for ((i = 0; i < 100; i++)); do "$@" && return; sleep 0.1; done; return 1; }

status "$cache" --help
is "$rc" 0 '--help succeeds'
like "$output" 'prepare.*path.*list.*clean' '--help names the commands'
status "$cache" nonsense
is "$rc" 2 'an unknown command is wrong usage'
status "$cache" path nonsense
is "$rc" 2 'an unknown item is wrong usage'
like "$output" 'kernel-6.12' 'which names the items there are'
status "$cache" path root
is "$rc" 1 'what is not prepared has no path'
like "$output" 'cache prepare root' 'and the message says what to do'

# A directory that is not ours.
mkdir "$scratch/foreign"
echo precious >"$scratch/foreign/file"
status env PTWATCH_CACHE="$scratch/foreign" "$cache" clean
is "$rc" 1 'clean refuses a directory that is no cache'
status env PTWATCH_CACHE="$scratch/foreign" "$cache" prepare root
is "$rc" 1 'prepare refuses a directory with something else in it'
is "$(cat "$scratch/foreign/file")" precious 'which stays as it was'

# A preparation that is killed half-way.
slow="echo half >\"\$1/file\"; : >$scratch/started; while [[ ! -e $scratch/go ]]; do sleep 0.1; done; echo whole >\"\$1/file\"; echo once >>$scratch/runs"
export -f fake_cache
export cache
setsid bash -c 'fake_cache "$@"' sh "$slow" prepare fake 2>/dev/null &
pid=$!
ok 'a preparation starts' wait_for test -e "$scratch/started"
kill -KILL -- "-$pid"
wait "$pid" 2>/dev/null || true
status fake_cache "$slow" path fake
is "$rc" 1 'killed half-way, it leaves nothing that is used'
is "$(find "$PTWATCH_CACHE/tmp" -mindepth 1 -maxdepth 1 | wc -l)" 1 'but a temporary directory'

# Two at once; the first of them also sweeps up.
: >"$scratch/go"
fake_cache "$slow" prepare fake 2>"$scratch/first" & first=$!
fake_cache "$slow" prepare fake 2>"$scratch/second" & second=$!
ok 'of two preparations at once the first succeeds' wait "$first"
ok 'and the second' wait "$second"
is "$(cat "$scratch/runs")" once 'the work was done once'
path=$(fake_cache "$slow" path fake)
is "$(cat "$path/file")" whole 'the item is whole'
is "$(find "$PTWATCH_CACHE/tmp" -mindepth 1 -maxdepth 1 | wc -l)" 0 'nothing temporary is left'
is "$(find "$path" -maxdepth 0 -perm 755)" "$path" 'an item can be read by others'

# Another recipe is another item; a failing recipe leaves none.
status fake_cache 'echo other >"$1/file"' path fake
is "$rc" 1 'a changed recipe is not satisfied by the old item'
status fake_cache 'echo "the reason"; false; echo bad >"$1/file"' prepare fake
is "$rc" 1 'a recipe that fails in its midst fails'
like "$output" 'the reason.*could not prepare fake' 'and says why'
status fake_cache 'echo "the reason"; false; echo bad >"$1/file"' path fake
is "$rc" 1 'and leaves no item'

# Clean.
exec {fd}>>"$PTWATCH_CACHE/locks/use"
flock -s "$fd"
status "$cache" clean
is "$rc" 1 'clean refuses while the cache is in use'
exec {fd}>&-
status unshare --mount sh -c "mkdir $path/mnt; mount --bind $scratch/foreign $path/mnt; $cache clean"
is "$rc $(cat "$scratch/foreign/file")" '1 precious' 'clean refuses while something is mounted in it'
status "$cache" clean
is "$rc" 0 'clean succeeds'
ok 'and leaves nothing' test ! -e "$PTWATCH_CACHE"
