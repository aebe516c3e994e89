#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# packets, insns and calls of a recording: the alarm is marked with the module's number, and what is missing from the
# recording is told, once. The recording is made of a sample's bytes and code; no kernel is needed.
#
# shellcheck disable=SC2016 # backquotes in what is printed
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../conformance/common.sh
. "$(dirname "$0")/../conformance/common.sh"

sample_args skylake-hello || skip_all "no sample skylake-hello in $samples"
hello=$samples/skylake-hello

read -ra flags <<<"$(pkg-config --cflags --libs json-c libelf libdw libbpf)"
if ! cc -std=gnu11 -O1 -D_GNU_SOURCE -I"$top/userspace" -I"$top/uapi" -o "$tmp/from_raw" \
	"$top/tests/recording/from_raw.c" "$top"/userspace/{recording,symbols,common}/*.c \
	"$top/userspace/decode/image.c" "${flags[@]}" >"$tmp/log" 2>&1; then
	diag "$(tail -5 "$tmp/log")"
	fail_all "cannot build tests/recording/from_raw.c"
fi

# The access is the last instruction that ends where the last one of the trace begins.
zcat "$hello/expected-ips.txt.gz" >"$tmp/ips"
ip=$(tail -n 1 "$tmp/ips")
"$tmp/from_raw" "$tmp/crime" "$hello/pt.bin" 156 "$ip"
# The program takes the place of the kernel: an ELF core with one segment of code.
mkdir "$tmp/crime/kcore_dir"
python3 - "$hello/hello" "$tmp/crime/kcore_dir/kcore" <<'END'
import struct, sys
code = open(sys.argv[1], 'rb').read()[0x1000:0x1000 + 0x86fb1]
head = struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\x02\x01\x01', 4, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
segment = struct.pack('<IIQQQQQQ', 1, 5, 4096, 0x401000, 0, len(code), len(code), 4096)
open(sys.argv[2], 'wb').write((head + segment).ljust(4096, b'\0') + code)
END

# As it is for who may not see addresses
echo '0000000000000000 T _text' >"$tmp/crime/kcore_dir/kallsyms"

# ---- the alarm

run insns -i "$tmp/crime" --tail 1
is "$status" 0 'a recording with all its code'
like "$(cat "$tmp/out")" '<-- ALARM #156 write table$' 'insns marks the alarm with the number of the module'
run insns -i "$tmp/crime" --tail 1 --json
like "$(cat "$tmp/out")" '"alarm":156}$' 'JSON, too'
run calls -i "$tmp/crime" --tail 1
like "$(cat "$tmp/out")" '<-- ALARM #156 write table$' 'calls, too'
run calls -i "$tmp/crime" --tail 1 --json
like "$(cat "$tmp/out")" '"alarm":156}$' 'and its JSON'

# ---- --count of a window is the number of its lines

for window in '--tail 20' '--last 20us' '--last 20us --tail 5' '--all --tail 9'; do
	for verb in insns calls; do
		# shellcheck disable=SC2086 # words
		run $verb -i "$tmp/crime" $window --format ip
		lines=$(wc -l <"$tmp/out")
		# shellcheck disable=SC2086
		run $verb -i "$tmp/crime" $window --count
		is "$(cat "$tmp/out")" "$lines" "$verb $window --count: $lines"
	done
done

# ---- what is missing

# tells REGEX ARGUMENT…: exit status 3, and the first line of stderr
tells() {
	local regex=$1; shift

	run "$@"
	is "$status" 3 "$*: status 3"
	like "$(grep -v 'only what the alarm froze' "$tmp/err" | head -n 1)" "$regex" "$*: says $regex first"
}

run calls -i "$tmp/crime" -C 5-6
is "$status $(cat "$tmp/err")" "1 ptwatch calls: $tmp/crime: -C 5-6: no Intel PT trace of that in it; there are those of CPU 1" \
	'a CPU without a trace: which, and which there are'

cp -r "$tmp/crime" "$tmp/cut"
truncate -s -10 "$tmp/cut/data"
size=$(printf '0x%x' "$(stat -c %s "$tmp/cut/data")")
for verb in packets insns calls; do
	tells "cut/data: the recording is incomplete, .*: there should be more at offset $size, but the file has only $size bytes" $verb -i "$tmp/cut"
done
is "$(wc -l <"$tmp/err")" 1 'that is all'
is "$("$ptwatch" insns -i "$tmp/cut" --format ip 2>/dev/null | sha256sum)" \
	"$("$ptwatch" insns -i "$tmp/crime" --format ip | sha256sum)" 'and all of the trace is there'

for verb in insns calls; do
	tells 'crime/data is a part of a recording: .*; pass the directory: -i [^ ]*/crime$' $verb -i "$tmp/crime/data"
done
# Twelve times the trace is twelve gaps without the code.
for ((i = 0; i < 12; i++)); do cat "$hello/pt.bin"; done >"$tmp/long"
"$tmp/from_raw" "$tmp/nokc" "$tmp/long" 1 "$ip"
mkdir "$tmp/nokc/kcore_dir"
for verb in insns calls; do
	tells 'nokc/kcore_dir/kcore is missing: kernel code cannot be followed; copy' $verb -i "$tmp/nokc"
	is "$(grep -cE 'trace offset 0x[0-9a-f]+: no memory mapped at 0x[0-9a-f]+;' "$tmp/err")" 10 "$verb: ten errors"
	like "$(tail -n 1 "$tmp/err")" "^ptwatch $verb: no memory mapped at this address: [0-9]+ more of these\$" \
		"$verb: and how many more"
done
run packets -i "$tmp/nokc" --count
is "$status" 0 'packets need no code'
rmdir "$tmp/nokc/kcore_dir"
tells 'nokc/kcore_dir is missing: kernel code cannot be followed; copy' insns -i "$tmp/nokc"
cp "$tmp/nokc/data" "$tmp/perf.data"
tells 'perf.data holds no copy of the kernel: .*--kcore$' insns -i "$tmp/perf.data"

# Damage beside the trace: what is there is told, and what is lacking.
insns=$("$ptwatch" insns -i "$tmp/crime" --count)
cp -r "$tmp/crime" "$tmp/hurt"
rm "$tmp/hurt/kcore_dir/kallsyms"
for verb in insns calls packets stat; do
	tells 'hurt/kcore_dir/kallsyms is missing: kernel code has no names; copy the whole directory' $verb -i "$tmp/hurt"
done
is "$("$ptwatch" insns -i "$tmp/hurt" --count 2>/dev/null)" "$insns" 'without names the same is told'
echo 'no symbols' >"$tmp/hurt/kcore_dir/kallsyms"
tells 'hurt/kcore_dir/kallsyms: line 1 is not in kallsyms format: kernel code has no names; copy it again' insns -i "$tmp/hurt"
cp "$tmp/crime/kcore_dir/kallsyms" "$tmp/hurt/kcore_dir"
size=$(stat -c %s "$tmp/hurt/kcore_dir/kcore")
for cut in $((size - 500000)) 4096 100 0; do
	truncate -s "$cut" "$tmp/hurt/kcore_dir/kcore"
	tells 'hurt/kcore_dir/kcore: .*: kernel code .*; copy it again' insns -i "$tmp/hurt"
	((cut != size - 500000)) || ok 'some of it can be followed' grep -q '_start\|0000000000401' "$tmp/out"
	tells 'hurt/kcore_dir/kcore: .*: kernel code .*; copy it again' packets -i "$tmp/hurt"
done
is "$(wc -l <"$tmp/out")" "$("$ptwatch" packets -i "$tmp/crime" | wc -l)" 'packets need none of it'
cp "$tmp/crime/kcore_dir/kcore" "$tmp/hurt/kcore_dir"
sed -n 1p "$tmp/crime/alarms.jsonl" >"$tmp/hurt/alarms.jsonl"
echo '{"seq":' >>"$tmp/hurt/alarms.jsonl"
tells 'hurt/alarms.jsonl: line 2: not a line of JSON: of the alarms only the 1 before that are known; copy it again' insns -i "$tmp/hurt"
like "$(cat "$tmp/out")" '<-- ALARM #156 write table$' 'the alarm before it is told'

# A disk that fills up, here by a limit of the file's size: nothing that looks whole is left.
for out in 'flame -o x.svg' 'timeline -o x.json' 'timeline -o x.json.gz' 'flame -o x.folded' 'export --sqlite -o x.db'; do
	read -ra words <<<"$out"
	rc=0
	(cd "$tmp" && trap '' XFSZ && ulimit -f 1 && "$ptwatch" "${words[@]}" -i crime >out 2>err) || rc=$?
	is "$rc $(ls "$tmp"/x.* 2>/dev/null)" '1 ' "$out: failed, and no file"
	like "$(tail -n 1 "$tmp/err")" '^ptwatch [a-z]*: (writing the output|output x[.a-z]*): .' "$out: … and it is said"
done

# ---- --symbol and windows of insns

# A few instructions of the kernel: _text calls kv_note of a module, which a jump is taken in.
python3 - "$tmp/kernel" <<'END'
import struct, sys
code = bytes.fromhex('e80b00000090c3').ljust(0x10, b'\xcc') + bytes.fromhex('90750190c3')
head = struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\x02\x01\x01', 4, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
segment = struct.pack('<IIQQQQQQ', 1, 5, 4096, 0xffffffff81000000, 0, len(code), len(code), 4096)
open(sys.argv[1] + '.kcore', 'wb').write((head + segment).ljust(4096, b'\0') + code)
# PSB TSC MODE.Exec FUP PSBEND, taken and returned, then the end
trace = '0282' * 8 + '1900100000000000' + '9901' + '7d000000 81ffff' + '0223' + '0e' + '01'
open(sys.argv[1] + '.pt', 'wb').write(bytes.fromhex(trace))
END
"$tmp/from_raw" "$tmp/kernel" "$tmp/kernel.pt" 1 ffffffff81000000
mkdir "$tmp/kernel/kcore_dir"
mv "$tmp/kernel.kcore" "$tmp/kernel/kcore_dir/kcore"
printf '%s\n' 'ffffffff81000000 T _text' $'ffffffff81000010 t kv_note\t[kvdemo]' $'ffffffff81000015 t kv_rest\t[kvdemo]' \
	>"$tmp/kernel/kcore_dir/kallsyms"
note=$'ffffffff81000010\nffffffff81000011\nffffffff81000014'
for symbol in kv_note kvdemo:kv_note 'kvdemo!kv_note' kv_note+0x1 0xffffffff81000011; do
	run insns -i "$tmp/kernel" --all --symbol "$symbol" --format ip
	is "$(<"$tmp/out")" "$note" "insns --symbol $symbol"
	run insns -i "$tmp/kernel" --all --symbol "$symbol" --count
	is "$status $(<"$tmp/out")" '0 3' "insns --symbol $symbol --count"
done
run insns -i "$tmp/kernel" --all --symbol kv_rest
like "$status $(<"$tmp/out")$(<"$tmp/err")" '^0 .*insns: nothing of kv_rest ran;' 'insns --symbol of what did not run'
run insns -i "$tmp/kernel" --symbol kv_nothing
like "$status $(<"$tmp/out")$(<"$tmp/err")" '^1 .*kv_nothing: no such symbol' 'and of what there is not'
run insns "${args[@]}" --symbol hello!main --format ip
is "$(<"$tmp/out")" "$(awk '$1 >= "00000000004017c5" && $1 < "00000000004017df"' "$tmp/ips")" 'of a program'

span='the trace is from 0.000123507 to 0.000389421: give times within'
# says_nothing TEXT ARGUMENT…: no output, and why
says_nothing() {
	local text=$1; shift

	run insns "${args[@]}" "$@"
	is "$status $(<"$tmp/out")$(<"$tmp/err")" "0 ptwatch insns: $text" "insns $*: says that there is nothing"
}
says_nothing "nothing ran from 5.000000000 to 6.500000000; $span" --from 5 --to 6.5
says_nothing "nothing ran from 0.000400000 on; $span" --from 0.0004
says_nothing "nothing ran up to 0.000001000; $span" --to 1us --json
says_nothing "nothing of hello!main ran up to 0.000200000; $span" --symbol hello!main --to 0.0002
says_nothing "nothing of qsort ran; \`ptwatch flame\` tells which functions did" --symbol qsort
for symbol in 'hello!nosuch: hello has no such function' 'nosuch!main: no file nosuch was mapped in the trace, or it is not here any more'; do
	run insns "${args[@]}" --symbol "${symbol%%:*}"
	is "$status $(<"$tmp/out")$(<"$tmp/err")" "1 ptwatch insns: $symbol" "insns --symbol ${symbol%%:*}: there is none"
done
run insns "${args[@]}" --from 5 --count
is "$(<"$tmp/out") $(<"$tmp/err")" "0 ptwatch insns: nothing ran from 5.000000000 on; $span" 'counted, too'
run insns "${args[@]}" --from 0.0001 --to 0.0002
is "$status $(wc -l <"$tmp/out") $(<"$tmp/err")" '0 42532 ' 'a window inside: all of it'

# ---- the tree around a function

run calls "${args[@]}" --around new_do_write --depth 1 --no-time
is "$status $(<"$tmp/err")" '0 ' 'calls --around with --depth'
is "$(awk '{ print $1 }' "$tmp/out" | paste -s -d ' ')" \
	"--- … __libc_start_main+0x0 … main+0x0 _IO_puts+0x0 … _IO_new_file_overflow+0x0 _IO_new_do_write+0x0 new_do_write+0x0 _IO_new_file_write+0x0" \
	'what led there, and what it calls'
run calls "${args[@]}" --around new_do_write --depth 3 --no-time --json
is "$(grep -c . "$tmp/out") $(sed -n '$s/.*"type":"\([a-z]*\)".*/\1/p' "$tmp/out")" '10 syscall' 'two levels deeper'
run calls "${args[@]}" --around new_do_write --depth 1 --count
is "$(<"$tmp/out")" 7 'and as many calls are counted'
run calls "${args[@]}" --around __tunable_get_val --depth 1 --tail 2 --format ip
is "$(<"$tmp/out")" $'0000000000446980\n0000000000446980' '--tail: of those that are wanted'

# ---- a signal in front of a function's first instruction

# main calls f, which is interrupted there; handler runs, and makes the system call that leads back; f returns.
cat >"$tmp/signal.s" <<'END'
	.globl main, f, handler
main:	.type main, @function
	call f
	nop
	ret
	.size main, . - main
	.org 0x10
f:	.type f, @function
	nop
	ret
	.size f, . - f
	.org 0x20
handler: .type handler, @function
	nop
	syscall
	.size handler, . - handler
END
cc -nostdlib -static -Wl,-Ttext=0x401000,-emain,--build-id=none -o "$tmp/signal.elf" "$tmp/signal.s" 2>"$tmp/log" || diag "$(<"$tmp/log")"
python3 - "$tmp/signal.pt" <<'END'
import struct, sys
ip = lambda kind, address: bytes([6 << 5 | kind]) + struct.pack('<Q', address)
FUP, TIP, PGE, PGD = 0x1d, 0x0d, 0x11, b'\x01'
# PSB TSC MODE.Exec FUP PSBEND
trace = bytes.fromhex('0282' * 8 + '1900100000000000' + '9901') + ip(FUP, 0x401000) + bytes.fromhex('0223')
trace += ip(FUP, 0x401010) + PGD + ip(PGE, 0x401020) + PGD + ip(PGE, 0x401010) + ip(TIP, 0x401005)
trace += ip(FUP, 0x401005) + PGD
open(sys.argv[1], 'wb').write(trace)
END
mkdir -p "$tmp/proc/12/task/12"
printf 'Name:\tsignal\nTgid:\t12\nPPid:\t1\n' >"$tmp/proc/12/status"
echo signal >"$tmp/proc/12/comm"
printf '00401000-00402000 r-xp %08x 08:01 5 %s\n' "$(readelf -lW "$tmp/signal.elf" | awk '$1 == "LOAD" && /R E/ { print $2 }')" \
	"$tmp/signal.elf" >"$tmp/proc/12/maps"
signal() {
	"$tmp/from_raw" "$tmp/signal" "$tmp/signal.pt" 1 1 "$tmp/proc" "$@"
	run calls -i "$tmp/signal" --no-time --json
	python3 -c 'import json, sys
for line in sys.stdin:
	row = json.loads(line)
	print(row["depth"], row["type"], row.get("symbol", "-").split("+")[0], end="; ")' <"$tmp/out"
}
is "$(signal through)" '0 begin main; 1 call f; 2 interrupt -; 2 call handler; 3 syscall -; 1 interrupt -; ' \
	'of a trace that nothing turns off: it is handled within f, which returns'
like "$(signal)" '^0 begin main; 1 call f; 2 interrupt -; 0 begin handler; ' 'of one that breakpoints may turn on and off: what begins may be anything'

# ---- no answer without a word

head -c 4096 /dev/zero >"$tmp/padding"
nothing_in=(--raw "$tmp/padding" --cpu 6/85/4 "${timing[@]}" --image "$hello/hello,1000,86fb1,401000")
# empty VERB TEXT ARGUMENT…: no line of output but a frame, exit status 0, and on stderr this one line
empty() {
	local verb=$1 text=$2; shift 2

	run "$verb" "$@"
	is "$status $(<"$tmp/err")" "0 ptwatch $verb: $text" "$verb ${*: -3}: says that there is nothing"
}
json() { python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]; print("valid")' "$tmp/out"; }

stat='`ptwatch stat` tells what there is in'
for form in --json --no-time; do
	empty calls "nothing ran in the trace; $stat it" "${nothing_in[@]}" $form
	empty calls '_IO_cleanup is not entered in the trace; `ptwatch flame` tells which functions are' "${nothing_in[@]}" --around _IO_cleanup $form
	is "$(wc -c <"$tmp/out")" 0 'and on stdout nothing'
	empty insns 'no instruction in the trace; `ptwatch packets` tells what there is in it' "${nothing_in[@]}" $form
	is "$(wc -c <"$tmp/out")" 0 'and on stdout nothing'
done
empty calls "nothing ran in the trace; $stat it" "${nothing_in[@]}" --last 1us
empty calls "nothing ran in the trace; $stat it" "${nothing_in[@]}" --count
is "$(<"$tmp/out")" 0 'counted, too'
empty insns 'no instruction in the trace; `ptwatch packets` tells what there is in it' "${nothing_in[@]}" --count
is "$(<"$tmp/out")" 0 'counted, too'
empty calls 'qsort is not entered in the trace; `ptwatch flame` tells which functions are' "${args[@]}" --around qsort
empty calls 'main is entered once, but not within the last 1.000us: give a longer --last' "${args[@]}" --around main --last 1us
is "$(wc -c <"$tmp/out")" 0 'and on stdout nothing'
for verb in calls flame timeline evidence; do
	run $verb "${args[@]}" --tid 7
	is "$status $(<"$tmp/err")" "1 ptwatch $verb: --tid 7: no such thread in the trace; \`ptwatch stat\` lists them" "$verb --tid of no thread"
done

flame='`ptwatch flame` tells which functions ran'
for form in '' --json; do
	# shellcheck disable=SC2086 # none, or a word
	empty latency "no pair: neither qsort nor return:abort came by in the trace; $flame" "${args[@]}" --from qsort \
		--to return:abort $form
	# shellcheck disable=SC2086
	empty latency "no pair: main came by once, but qsort never; $flame" "${args[@]}" --from main --to qsort $form
	# shellcheck disable=SC2086
	empty latency 'no pair: exit came by once and main once, but in no thread one after the other; turn --from and --to round, or pair markers across threads with --by FIELD' \
		"${args[@]}" --from exit --to main $form
	# shellcheck disable=SC2086
	empty latency 'no pair: neither marker:1 nor marker:2 came by in the trace; `ptwatch markers` tells which markers there are' "${args[@]}" --from marker:1 \
		--to marker:2 $form
	[[ ! $form ]] || is "$(json)" valid 'latency: JSON all the same'
	# shellcheck disable=SC2086
	empty markers 'no PTWRITE in the trace; record with --ptw a program that executes it' "${args[@]}" $form
	is "$(wc -c <"$tmp/out")" 0 'and on stdout nothing'
	# shellcheck disable=SC2086
	empty flame "no time was spent, but perhaps by idle threads (--idle); $stat the trace" "${nothing_in[@]}" $form
	is "$(wc -c <"$tmp/out")" 0 'and on stdout nothing'
	# shellcheck disable=SC2086
	empty evidence 'nothing of note in it; --from and --to show all of a stretch' "${args[@]}" $form
	# shellcheck disable=SC2086
	empty evidence "no system call of which the kernel's code was traced, in that time" "${args[@]}" --from 1 --to 2 $form
	is "$(wc -c <"$tmp/out")" 0 'and on stdout nothing'
done
empty flame "no time was spent, but perhaps by idle threads (--idle); $stat the trace" "${nothing_in[@]}" --format svg
like "$(<"$tmp/out")" '</svg>' 'an empty picture is one'
run flame --raw "$hello/pt.bin" --cpu 6/85/4 --image "$hello/hello,1000,86fb1,401000" -o "$tmp/no.svg"
is "$status $(<"$tmp/err")" "2 ptwatch flame: without --nom-freq N nothing is known about times (see \`ptwatch flame --help\`)" \
	'flame: without a clock no times'
ok 'and no picture' test ! -e "$tmp/no.svg"
empty timeline "nothing ran in the trace, so the picture is empty; $stat it" "${nothing_in[@]}"
is "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["traceEvents"])' "$tmp/out")" '[]' 'timeline: JSON all the same'
empty export "nothing ran in the trace, so there are no calls in the database; $stat it" "${nothing_in[@]}" --sqlite -o "$tmp/empty.db"
# PTWRITE %eax, behind a PSB, and what it wrote
printf '\xf3\x0f\xae\xe0\xeb\xfe' >"$tmp/ptwrite"
python3 -c 'import sys; open(sys.argv[1], "wb").write(bytes.fromhex("0282" * 8 + "9901" + "7d001000000000" + "0223" + "0212010000a1"))' "$tmp/marker"
marked=(--raw "$tmp/marker" --cpu 6/85/4 --image "$tmp/ptwrite,0,6,1000")
run markers "${marked[@]}" --count
is "$(<"$tmp/out")$(<"$tmp/err")" 1 'a marker'
empty markers 'no marker of type 0xA0 among 1; without --type all are shown' "${marked[@]}" --format 'type:32 id:32' --type 0xA0
printf '\xff\xff\xff\xff' >"$tmp/other"
run packets --raw "$tmp/other" --json
like "$status $(tail -n 1 "$tmp/err")" '^3 .*no packet in the trace: are these bytes of Intel PT' 'packets of what is no trace'
is "$(json)" valid 'packets: JSON all the same'

# ---- a program's file that is not here

data=$samples/perfdata-kernel/perf.data
if [[ -r $data ]] && ! [[ -e /lib64/ld-2.23.so ]]; then
	for verb in insns calls; do
		run $verb -i "$data"
		is "$status $(grep -c 'ld-2.23.so .*ran' "$tmp/err") $(grep -c 'no code of ld-2.23.so at 0x' "$tmp/err")" '3 1 5' \
			"$verb: one line about the file, and each of its gaps"
		like "$(<"$tmp/err")" "/lib64/ld-2.23.so with the build id a3f83cd3799ef4149d3763cee54dd18b967b7ddb ran, but is not here: copy it here .*"$'\n'".*no code of ld-2.23.so" \
			'its name, its build id and what to do, before the first gap'
		run $verb -i "$data" --json
		is "$(grep -c '"error":".*no code of ld-2.23.so' "$tmp/out") $(json)" '5 valid' 'JSON, too'
	done
	perf script -i "$data" --show-mmap-events 2>/dev/null >"$tmp/mmaps" || true
	like "$(<"$tmp/mmaps")" '\[0x7fb36d08b000\(0x227000\) .*: r-xp /lib64/ld-2.23.so' 'perf says that it was mapped at this address'
else
	skip 7 'no sample perfdata-kernel, or the file is here'
fi

# ---- the last ones: of each CPU, and as many are counted

if [[ -r $data ]]; then
	run packets -i "$data" --tail 5 --json
	is "$(sed 's/.*"cpu":\([0-9]*\).*/\1/' "$tmp/out" | uniq -c | xargs)" '5 0 5 3' 'packets --tail 5 of two CPUs'
	run packets -i "$data" --tail 5 --count
	is "$(<"$tmp/out")" 10 'counted'
else
	skip 2 'no sample perfdata-kernel'
fi
for verb in packets insns calls; do
	run $verb --help
	like "$(<"$tmp/out")" '--tail N +only the last N lines of each CPU' "$verb --help says so"
	is "$(grep -c '^Of each CPU only the last$' "$top/userspace/man/ptwatch-$verb.1")" 1 'and its man page'
done

# ---- what is left out, and why

left='alarms (1) are left out: the recording does not tell how its TSC relates to time; `ptwatch calls` shows where they hit'
run timeline -i "$tmp/crime"
is "$status $(<"$tmp/err")" "0 ptwatch timeline: $left" 'timeline: an alarm without a place in time'
run export -i "$tmp/crime" --sqlite -o "$tmp/crime.db"
is "$status $(<"$tmp/err")" "0 ptwatch export: $left" 'export, too'
if [[ -r $data ]]; then
	run stat -i "$data"
	like "$status $(<"$tmp/err")" '^0 ptwatch stat: .*perf.data holds no copy of the kernel: .*--kcore$' 'stat of packets alone says what is missing'
else
	skip 1 'no sample perfdata-kernel'
fi
done_testing
