#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Memory doesn't grow with the recording: of three times the trace, a report needs what it needs of it once. Both are
# larger than what is joined in memory (JOIN_IN_MEMORY of the reader). One thread, as what several decode ahead differs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../conformance/common.sh
. "$(dirname "$0")/../conformance/common.sh"

sample_args skylake-hello || skip_all "no sample skylake-hello in $samples"
hello=$(readlink -f "$samples/skylake-hello")

read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw libbpf)"
if ! cc -std=gnu11 -O1 -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$tmp/recording" "$top/tests/bench/recording.c" \
	"$top"/userspace/{recording,symbols,common}/*.c "$top/userspace/decode/image.c" "${flags[@]}" >"$tmp/log" 2>&1; then
	diag "$(tail -5 "$tmp/log")"
	fail_all 'cannot build tests/bench/recording.c'
fi

# 70 MB and 210 MB
"$tmp/recording" "$tmp/once" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 5000
"$tmp/recording" "$tmp/thrice" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 15000

peak() { python3 "$top/tests/bench/child.py" "$ptwatch" "$@" | cut -d ' ' -f 3; }

for command in 'stat --jobs 1' 'packets --count' 'latency --jobs 1 --from main --to return:main'; do
	read -ra words <<<"$command"
	once=$(peak "${words[0]}" -i "$tmp/once" "${words[@]:1}")
	thrice=$(peak "${words[0]}" -i "$tmp/thrice" "${words[@]:1}")
	ok "$command: $once MB, and of three times the trace $thrice MB" test "$thrice" -le $((once + 3))
	ok "$command: less than 300 MB" test "$thrice" -lt 300
done
# What is written for others grows, on the disk.
for command in 'timeline -o /dev/null' "export --sqlite -o $tmp/db"; do
	read -ra words <<<"$command"
	once=$(peak "${words[0]}" -i "$tmp/once" --jobs 1 "${words[@]:1}")
	rm -f "$tmp/db"
	thrice=$(peak "${words[0]}" -i "$tmp/thrice" --jobs 1 "${words[@]:1}")
	rm -f "$tmp/db"
	ok "${words[*]:0:2}: $once MB, and of three times the trace $thrice MB" test "$thrice" -le $((once + 3))
	ok "${words[*]:0:2}: less than 300 MB" test "$thrice" -lt 300
done

# Nor with what is recorded beside it: two million switches, each told twice, need what a few need; decoded with two threads.
rm -rf "$tmp/once" "$tmp/thrice"
"$tmp/recording" "$tmp/few" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 100 100
"$tmp/recording" "$tmp/many" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 100 1000000
for command in 'stat --jobs 2' 'latency --jobs 2 --from main --to return:main'; do
	read -ra words <<<"$command"
	few=$(peak "${words[0]}" -i "$tmp/few" "${words[@]:1}")
	many=$(peak "${words[0]}" -i "$tmp/many" "${words[@]:1}")
	# What is sorted and looked at at once
	ok "$command: $few MB, and with two million switches $many MB" test "$many" -le $((few + 32))
	for name in few many; do
		"$ptwatch" "${words[0]}" -i "$tmp/$name" "${words[@]:1}" >"$tmp/$name.out" 2>&1 || true
		# Thread, instructions, how often it was switched in, gaps and time
		awk '/^77 / { print $1, $2, $3, $5; next } 1' "$tmp/$name.out" >"$tmp/$name.same"
	done
	is "$(cat "$tmp/many.same")" "$(cat "$tmp/few.same")" "$command: the same is told"
	[[ $command == stat* ]] || continue
	is "$(awk '/^77 / { print $4 }' "$tmp/few.out" "$tmp/many.out" | xargs)" '101 1,000,001' 'but for how often the thread was switched in'
done
# Nor with processes: of 200,000 that begin, run a program and end, little more is in memory than of 100. Behind them come 40
# that execute the sample.
rm -rf "$tmp/few" "$tmp/many"
"$tmp/recording" "$tmp/few" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 1 0 100 40
"$tmp/recording" "$tmp/many" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 1 0 200000 40
for command in 'stat --jobs 1' 'packets --count' 'insns --tail 1' 'latency --from main --to return:main' 'calls --depth 3' \
	'flame -o /dev/null' 'timeline -o /dev/null' 'evidence --from 2 --to 3' "export --sqlite -o $tmp/db"; do
	read -ra words <<<"$command"
	for name in few many; do
		rm -f "$tmp/db"
		peak "${words[0]}" -i "$tmp/$name" "${words[@]:1}" >"$tmp/$name.peak"
	done
	few=$(cat "$tmp/few.peak") many=$(cat "$tmp/many.peak")
	# What is sorted at once, what is in memory before any of it is in a file, and what was looked at lately
	ok "${words[*]:0:2}: $few MB, and with 200,000 processes $many MB" test "$many" -le $((few + 64))
done
is "$(sqlite3 "$tmp/db" 'SELECT count(*) FROM thread')" 200001 'each of them is told'
for name in few many; do
	"$ptwatch" stat -i "$tmp/$name" >"$tmp/$name.out"
	# Who ran and executed nothing is no row of its own.
	awk '/child/ { print $3, $4 }' "$tmp/$name.out" | sort | uniq -c >"$tmp/$name.same"
done
insns=$(zcat "$hello/expected-ips.txt.gz" | wc -l)
is "$(xargs <"$tmp/many.same")" "40 ${insns::-3},${insns: -3} 2" 'each of the 40, whose numbers others had before, executed what the sample did'
is "$(cat "$tmp/few.same")" "$(cat "$tmp/many.same")" 'however many there are'

# Where there is no room for that, it is said.
rm -rf "$tmp/many"
"$tmp/recording" "$tmp/many" "$hello/pt.bin" "$hello/hello,1000,86fb1,401000" 1 0 16000
rc=0
TMPDIR=$tmp/nowhere "$ptwatch" stat -i "$tmp/many" >"$tmp/out" 2>&1 || rc=$?
is "$rc" 1 'no directory for temporary files: an error'
is "$(cat "$tmp/out")" "ptwatch stat: what it tells of processes: No such file or directory; so much of it needs room in \$TMPDIR, or /var/tmp" \
	'… that says what is lacking'
done_testing
