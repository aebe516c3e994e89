# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# What tests/vm/cache and tests/vm/run have in common: messages, the cache
# directory, locks and temporary directories. Sourced, never run.

PROG=${0##*/}
VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034 # used by run
TOP=$(cd "$VM_DIR/../.." && pwd)
CACHE=${PTWATCH_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set PTWATCH_CACHE}/.cache}/ptwatch}
MARKER=.ptwatch-cache

say() { printf '%s: %s\n' "$PROG" "$*" >&2; }

# die STATUS MESSAGE…: one line that names the thing and the remedy.
die() { local rc=$1; shift; say "$@"; exit "$rc"; }

# The first 12 hex digits of the SHA-256 of stdin: plenty to tell items apart.
short_hash() { local h; h=$(sha256sum); printf '%s\n' "${h:0:12}"; }

# Create the cache, marked as ours. The marker is what `cache clean` demands,
# so that a mistyped PTWATCH_CACHE never costs anyone a directory: only a
# missing or an empty directory becomes a cache.
cache_init() {
	[[ $CACHE == /* ]] || die 2 "cache directory '$CACHE' is not absolute; set PTWATCH_CACHE to an absolute path"
	if [[ ! -e $CACHE/$MARKER ]]; then
		mkdir -p "$CACHE" 2>/dev/null || die 1 "cannot create '$CACHE'; set PTWATCH_CACHE to a writable directory"
		[[ -z $(ls -A "$CACHE") || -e $CACHE/$MARKER ]] ||
			die 1 "'$CACHE' is neither empty nor a ptwatch cache; set PTWATCH_CACHE to another directory"
		echo "ptwatch's test cache; remove it with tests/vm/cache clean" >"$CACHE/$MARKER"
	fi
	mkdir -p "$CACHE/tmp" "$CACHE/locks"
}

# Hold a lock until this process and the children that inherit it are gone:
# a helper that outlives a killed preparation still keeps others out.
# cache_lock NAME [flock option…]
cache_lock() {
	local name=$1 fd; shift
	exec {fd}>>"$CACHE/locks/$name"
	flock "$@" "$fd"
}

# Remove a tree that may have been a chroot, but never anything mounted in it.
remove_tree() {
	local path
	path=$(readlink -m "$1")
	if awk -v p="$path/" 'index($5 "/", p) == 1 { found = 1 } END { exit !found }' /proc/self/mountinfo; then
		die 1 "something is mounted below '$path'; unmount it first"
	fi
	rm -rf --one-file-system -- "$path"
}

# make_temp VARIABLE NAME: a temporary directory inside the cache, locked as
# long as its maker lives. Those whose maker was killed are swept up first.
make_temp() {
	local -n _dir=$1 # the caller's variable
	local old fd sweep
	exec {sweep}>>"$CACHE/locks/tmp"
	flock "$sweep"
	for old in "$CACHE"/tmp/*/; do
		[[ -d $old ]] || continue
		exec {fd}<"$old"
		if flock -n "$fd"; then remove_tree "$old"; fi
		exec {fd}<&-
	done
	_dir=$(mktemp -d "$CACHE/tmp/$2.XXXXXX")
	chmod 755 "$_dir"
	exec {fd}<"$_dir"
	flock "$fd"
	exec {sweep}>&-
}

# complaints FILE: what the kernel whose log FILE is found wrong with itself, a
# line for each report; nothing when it was content. lockdep begins with WARNING
# or INFO, atomic sleeps and KASAN with BUG.
complaints() {
	tr -d '\r' <"$1" | grep -aoE \
		-e '\b(BUG|WARNING|UBSAN|KASAN|KFENCE|ODEBUG|refcount_t|Oops|Kernel panic - not syncing):.*' \
		-e '\b(kernel BUG at|general protection fault|unchecked MSR access error|stack segment|double fault)\b.*' \
		-e '\bINFO: (task .* blocked|possible|suspicious|trying to register|lockdep|rcu|inconsistent).*' \
		-e '\b(list_add|list_del|slab|SLUB|page table) .*(corruption|check failed).*' \
		-e '\b(unable to handle|turning off the locking correctness validator|Voluntary context switch within RCU)\b.*' \
		-e '\b(kmemleak: [0-9]+ new suspected memory leaks|unreferenced object 0x).*' || true
}

# A program of the private root $ROOT, run through that root's own dynamic
# linker: no chroot, no root rights, and the host's libc does not matter.
root_program() {
	local program=$1; shift
	"$ROOT/lib64/ld-linux-x86-64.so.2" --argv0 "${program##*/}" \
		--library-path "$ROOT/usr/lib/x86_64-linux-gnu" "$ROOT$program" "$@"
}
