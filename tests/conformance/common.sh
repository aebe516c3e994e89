# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
#
# For the conformance tests: where the program and the samples are. The samples are recordings of real processors that
# lie beside the project, not in it; a test skips what it has no sample for.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source-path=SCRIPTDIR
source "$top/tests/lib/tap.sh"

ptwatch=${PTWATCH:-$top/build/ptwatch}
samples=${PTWATCH_SAMPLES:-$top/../shared/samples}

[[ -x $ptwatch ]] || skip_all "no program at $ptwatch"

tmp=$(mktemp -d)
tap_cleanup rm -rf "$tmp"

# Arguments for each sample, as its README has them.
timing=(--mtc-freq 3 --nom-freq 37 --cpuid15 2,308)

# sample_args NAME: sets `args` to what --raw decoding of the sample needs.
sample_args() {
	local dir=$samples/$1

	case $1 in
	broadwell-single) args=(--raw "$dir/3842849.trace" --cpu 6/79/1 --image "$dir/a.out,0,6fc,400000") ;;
	skylake-asm) args=(--raw "$dir/pt.bin" --cpu 6/85/4 "${timing[@]}" --image "$dir/hello,1000,27,401000") ;;
	skylake-hello) args=(--raw "$dir/pt.bin" --cpu 6/85/4 "${timing[@]}" --image "$dir/hello,1000,86fb1,401000") ;;
	esac
	[[ -r ${args[1]} ]]
}

# run ARGUMENT…: runs the program; stdout is in $tmp/out, stderr in $tmp/err, the exit status in `status`.
run() {
	status=0
	"$ptwatch" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
}
