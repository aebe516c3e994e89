# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2154 # the variables of tests/vm/run
#
# What tests/vm/run builds before a boot: the emulator and ptwatch by their own
# makefiles, and kernel modules inside the private root. Sourced, never run.

# make_quietly ARGUMENT…: run make once at a time, silent unless it fails, and
# without the jobserver of a make that may have called us.
make_quietly() {
	(
		cache_lock "make-$(echo "$TOP" | short_hash)"
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$TOP" "$@" >"$work/make.log" 2>&1
	) && return
	tail -n 15 "$work/make.log" | sed 's/^/  | /' >&2
	return 1
}

# Sets $emulator.
build_emulator() {
	emulator=$TOP/build/emulator/intel_pt.so
	[[ -e $TOP/tests/emulator/Makefile ]] || die 4 "there is no tests/emulator; boot without Intel PT (--no-pt)"
	make_quietly -C tests/emulator "OUT=$TOP/build/emulator" ||
		die 1 "could not build the emulator; mend what 'make -C tests/emulator' reports"
}

# Sets $ptwatch, empty when there is none.
build_ptwatch() {
	ptwatch=$TOP/build/ptwatch
	[[ ! -e $TOP/Makefile ]] || ! make_quietly build/ptwatch || return 0
	[[ $load == no ]] || die 1 "could not build ptwatch; mend what 'make build/ptwatch' reports, or boot without it (--no-load)"
	say "could not build ptwatch; the guest goes without it"
	ptwatch=''
}

# install_ptwatch UPPER: the program with the libraries and the dynamic linker
# it was built for, as the guest's libc may be older or newer than this machine's.
install_ptwatch() {
	local upper=$1 lib interpreter
	[[ -n $ptwatch ]] || return 0
	mkdir -p "$upper/usr/lib/ptwatch" "$upper/usr/bin"
	cp "$ptwatch" "$upper/usr/lib/ptwatch/"
	ldd "$ptwatch" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r lib; do
		cp -L "$lib" "$upper/usr/lib/ptwatch/"
	done
	interpreter=$(ldd "$ptwatch" | awk '$1 ~ /^\/.*ld-linux/ { print $1 }')
	cat >"$upper/usr/bin/ptwatch" <<-END
		#!/bin/sh
		exec /usr/lib/ptwatch/${interpreter##*/} --argv0 ptwatch --library-path /usr/lib/ptwatch /usr/lib/ptwatch/ptwatch "\$@"
	END
	chmod 755 "$upper/usr/bin/ptwatch"
}

# The files a module is built from, NUL-separated: what git would not ignore,
# were it asked, as someone may have built in the tree.
module_sources() {
	find "$@" -type f ! -name '*.o' ! -name '*.ko' ! -name '*.mod' ! -name '*.mod.c' ! -name '.*' \
		! -name Module.symvers ! -name modules.order -print0 | LC_ALL=C sort -z
}

# build_module NAME SUBDIR SOURCE…: build the module whose Kbuild is in SUBDIR of
# the tree from the files and directories SOURCE, out of the tree and once for
# each state of them. Puts its .ko files into $modules and sets $built.
build_module() {
	local rc
	# Not in a condition: that would switch off errexit inside.
	set +e
	(set -e; build_module_locked "$@")
	rc=$?
	set -e
	case $rc in
	0) built=yes ;;
	1) built=no ;;
	*) exit "$rc" ;;
	esac
}

build_module_locked() {
	local name=$1 subdir=$2 key item tmp start=$SECONDS; shift 2
	cd "$TOP"
	key=$({
		echo "$kernel_item $ROOT"
		declare -f compile_module
		module_sources "$@" | xargs -0 sha256sum
	} | short_hash)
	item=$CACHE/module-$name-$kernel-$key
	cache_lock "module-$name-$kernel"
	if [[ ! -e $item ]]; then
		((EUID == 0)) || die 4 "building $name for kernel $kernel needs chroot; run as root"
		make_temp tmp "module-$name"
		mkdir "$tmp/source" "$tmp/item"
		module_sources "$@" | cpio -0 -pdm --quiet "$tmp/source"
		if ! compile_module "$tmp/source/$subdir" >"$tmp/log" 2>&1; then
			grep -E -A3 'error|warning|\*\*\*' "$tmp/log" | head -n 20 | sed 's/^/  | /' >&2
			cp "$tmp/log" "$CACHE/module-$name.log"
			remove_tree "$tmp"
			exit 1
		fi
		find "$tmp/source" -name '*.ko' -exec cp {} "$tmp/item/" \;
		# Old states go: a developer makes many of them.
		find "$CACHE" -maxdepth 1 -name "module-$name-$kernel-*" -printf '%T@ %p\n' | sort -rn |
			tail -n +9 | cut -d' ' -f2- | while read -r old; do remove_tree "$old"; done
		mv -T "$tmp/item" "$item"
		remove_tree "$tmp"
		say "built module $name for kernel $kernel in $((SECONDS - start)) s"
	fi
	cp "$item"/*.ko "$modules/"
}

# compile_module DIR: in a mount namespace, so that the mounts go when it ends.
# The kernel's headers appear in the root where Debian installs them.
compile_module() {
	# shellcheck disable=SC2016 # expanded by the inner shell
	unshare --mount --pid --fork --kill-child -- sh -ec '
		root=$1 headers=$2 source=$3 kv=$4
		for kbuild in "$headers"/usr/lib/linux-kbuild-*; do
			mkdir -p "$root/usr/lib/${kbuild##*/}"
			mount --bind "$kbuild" "$root/usr/lib/${kbuild##*/}"
		done
		mount --bind "$headers/usr/src" "$root/usr/src"
		mount --bind "$source" "$root/build"
		mount -t proc proc "$root/proc"
		mount -t tmpfs tmpfs "$root/tmp"
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
			chroot "$root" make -j"$(nproc)" -C "/usr/src/linux-headers-$kv" M=/build CC=gcc-14 modules' \
		sh "$ROOT" "$kernel_item/headers" "$1" "$(<"$kernel_item/release")"
}

# All modules of the tree, into $modules. Our own may be missing with --no-load.
build_modules() {
	local dir name
	if [[ ! -e $TOP/Kbuild ]]; then
		[[ $load == no ]] || die 1 "there is no module (no Kbuild) to load; use --no-load"
	else
		build_module ptwatch . Kbuild module uapi
		if [[ $built == no ]]; then
			[[ $load == no ]] || die 1 "ptwatch.ko does not build for kernel $kernel; see $CACHE/module-ptwatch.log"
			say "ptwatch.ko does not build for kernel $kernel; the guest goes without it"
		fi
	fi
	for dir in "$VM_DIR"/demo-module "$VM_DIR"/modules/*; do
		[[ -e $dir/Kbuild ]] || continue
		name=${dir##*/}
		build_module "${name%-module}" "${dir#"$TOP/"}" "${dir#"$TOP/"}"
		[[ $built == yes ]] || die 1 "module $name does not build for kernel $kernel; see $CACHE/module-${name%-module}.log"
	done
}

# install_modules UPPER: the built modules, for modprobe and below /ptwatch.
install_modules() {
	local upper=$1 kv file tree=$work/depmod
	kv=$(<"$kernel_item/release")
	mkdir "$tree"
	# Links, not copies: depmod only reads them, and writes its tables anew.
	cp -al "$kernel_item/modules/lib" "$tree/"
	rm -f "$tree/lib/modules/$kv"/modules.{alias,dep,symbols,soft,dev,weak}* "$tree/lib/modules/$kv"/modules.builtin*.bin
	# 7.x has no package with these; depmod wants them.
	for file in modules.{order,builtin,builtin.modinfo}; do
		[[ -e $tree/lib/modules/$kv/$file ]] || : >"$tree/lib/modules/$kv/$file"
	done
	mkdir "$tree/lib/modules/$kv/extra"
	find "$modules" -name '*.ko' -exec cp {} "$tree/lib/modules/$kv/extra/" \;
	root_program /usr/sbin/depmod -b "$tree" "$kv"
	mkdir -p "$upper/usr/lib/modules/$kv"
	(cd "$tree/lib/modules/$kv" && rm -rf kernel && cp -r . "$upper/usr/lib/modules/$kv/")
	find "$modules" -name '*.ko' -exec cp {} "$upper/ptwatch/" \;
	rm -rf "$tree"
}
