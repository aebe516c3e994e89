#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The program on a machine without our module: help, versions, and one line with
# a remedy for everything that can be typed wrongly. The command lines are split
# at blanks, as the tables below have no others.
# shellcheck disable=SC2086
set -u
TOP=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/lib/tap.sh
. "$TOP/tests/lib/tap.sh"
ptwatch=${PTWATCH:-$TOP/build/ptwatch}
[[ -x $ptwatch ]] || skip_all "no $ptwatch; run make"

out=$(mktemp -d)
clean() { rm -rf "$out"; }
tap_cleanup clean

# run ARGUMENT…: $stdout, $stderr, $status
run() {
	status=0
	"$ptwatch" "$@" >"$out/stdout" 2>"$out/stderr" </dev/null || status=$?
	stdout=$(<"$out/stdout")
	stderr=$(<"$out/stderr")
}

# fails STATUS REGEX ARGUMENTS: nothing on stdout, one matching line on stderr.
fails() {
	run $3
	is "$status" "$1" "status $1: ptwatch $3"
	like "$stderr" "$2" "says why: ptwatch $3"
	is "$stdout$(wc -l <"$out/stderr")" 1 "in one line: ptwatch $3"
}

# fails_with STATUS REGEX ARGUMENT…: the same for arguments that are empty or have blanks
fails_with() {
	local expected=$1 regex=$2
	shift 2
	run "$@"
	is "$status" "$expected" "status $expected: ptwatch ${*@Q}"
	like "$stderr" "$regex" "says why: ptwatch ${*@Q}"
	is "$stdout$(wc -l <"$out/stderr")" 1 "in one line: ptwatch ${*@Q}"
}

run --help
is "$status" 0 'ptwatch --help'
for verb in info watch watches unwatch record snapshot packets insns calls latency markers flame timeline stat evidence export; do
	like "$stdout" "
  $verb " "--help lists $verb"
	run $verb --help
	is "$status" 0 "ptwatch $verb --help"
	like "$stdout" "ptwatch $verb" "$verb --help has a usage line"
	is "$stderr" '' "$verb --help writes to stdout only"
	first=$stdout
	run help $verb
	is "$stdout" "$first" "ptwatch help $verb is the same"
	run --help
done
run --version
like "$stdout" '^ptwatch [0-9]+\.[0-9]+\.[0-9]+$' 'ptwatch --version'
run
is "$status" 2 'without a verb: status 2'
like "$stderr" 'Usage: ptwatch VERB' 'without a verb: how to use it'
for arguments in --help 'watch --help' --version; do
	status=0; "$ptwatch" $arguments >/dev/full 2>"$out/stderr" || status=$?
	is "$status" 1 "output that cannot be written is a failure: $arguments"
	like "$(<"$out/stderr")" 'cannot write the output: No space left on device$' "with the reason: $arguments"
done
status=0; "$ptwatch" watch 0xffffffff82000000:8:w >&- 2>"$out/stderr" || status=$?
is "$status" 1 'watch without a stdout does not begin'
is "$(<"$out/stderr")" 'ptwatch watch: cannot write the output: stdout is closed' 'watch without a stdout says so'
status=0; "$ptwatch" watch --frob >&- 2>"$out/stderr" || status=$?
is "$status" 2 'watch without a stdout: usage comes first'

fails 2 "unknown verb 'watsh', did you mean 'watch'\?" watsh
fails 2 "unknown verb 'isns', did you mean 'insns'\?" isns
fails 2 "unknown verb 'frobnicate'" frobnicate
fails 2 'unknown option --frob' --frob
fails 2 'unknown option --jsno, did you mean --json\?' 'info --jsno'
fails 2 "unexpected argument 'now'" 'info now'

# ---- watch: what is wrong whatever the machine

fails 2 'nothing to watch; the form is' watch
fails 2 'no LEN and MODE; the form is' 'watch jiffies'
fails 2 'did you mean jiffies:8:w\?' 'watch jiffies:8'
fails 2 'did you mean jiffies:8:w\?' 'watch jiffies:w'
fails 2 'no read-only watch; use rw' 'watch jiffies:8:r'
fails 2 "'z' is not a MODE" 'watch jiffies:8:z'
fails 2 '1, 2, 4 or 8 bytes, not 3' 'watch jiffies:3:w'
fails 2 '1, 2, 4 or 8 bytes, not 12; several together 16, 24 or 32' 'watch jiffies:12:w'
fails 2 '40 bytes need 5 debug registers, and a CPU has 4; watch at most 32 bytes' 'watch jiffies:40:w'
fails 2 "'-8' is not a LEN" 'watch jiffies:-8:w'
fails 2 'an execute watch has no length; write do_exit:x' 'watch do_exit:4:x'
fails 2 'an execute watch has no length; write do_exit:x' 'watch do_exit:8:x'
fails 2 'not aligned to 8 bytes.*watch 4 bytes there' 'watch 0xffffffff82000004:8:w'
fails 2 'not a kernel address.*add --pid PID' 'watch 0x400000:8:w'
fails 2 'not a kernel address.*add --pid PID' 'watch 0x400000:8:w --comm cat'
fails 2 'neither a kernel address' 'watch 0x8000000000000000:8:w'
fails 2 'which process\? Say it by one --pid PID' 'watch prog!counter'
fails 2 'which process\? Say it by one --pid PID' 'watch prog!counter --pid 1,2'
fails 2 '--pid is the process of prog!counter, and whose hits count for jiffies:8:w; write prog!counter@7' \
	'watch prog!counter jiffies:8:w --pid 7'
fails 2 "'me' is neither the number of a process nor an address" 'watch task_struct.cred@me'
fails 2 'is a field or user code' 'watch task_struct@1'
fails 2 "'0x400000' is not a kernel address" 'watch inode.i_size@0x400000'
fails 2 'jiffies:8:w is given twice' 'watch jiffies:8:w jiffies:8:w'
fails 2 'names no module; write MODULE:jiffies:8:w' 'watch jiffies:8:w --wait-module'
fails 2 'without --wait-module the kernel' 'watch kvdemo:jiffies:8:w --percpu'
fails 2 'not a 64-bit address' 'watch 0xnonsense:8:w'
fails 2 'add --freeze' 'watch jiffies:8:w -o x'
fails 2 'not a size' 'watch jiffies:8:w --freeze -m much'
fails 2 'not a list of CPUs' 'watch jiffies:8:w --freeze -C 3-1'
fails 2 'not a number of alarms' 'watch jiffies:8:w -n few'
fails 2 '--count -1 is not a number of alarms from 1 to 4294967295, or 0 for no end' 'watch jiffies:8:w -n -1'
fails 2 'not a time' 'watch jiffies:8:w --timeout soon'
fails 2 'not a number of alarms a second' 'watch jiffies:8:w --rate 0'
fails 2 'no COMMAND after --' 'watch jiffies:8:w --'
fails 2 "--if 'changd': 'new' or 'changed' expected at 'changd'; write changed, new ==" 'watch jiffies:8:w --if changd'
fails 2 "--if 'new&0x100': the mask has bits beyond the 1 byte watched" 'watch jiffies:1:w --if new&0x100'
fails 2 "--if 'new==256': 1 byte hold 0 to 0xff" 'watch jiffies:1:w --if new==256'
fails 2 "--if new==1: of more than 8 bytes only 'changed' can be told" 'watch jiffies:16:w --if new==1'
fails 2 'do_exit:x is about execution, which has no value' 'watch do_exit:x --if changed'
fails 2 "'x' is not the number of a thread" 'watch jiffies:8:w --pid 1,x'
fails 2 "'-1' is not the number of a process" 'watch jiffies:8:w --not-tgid -1'
fails 2 'an entry is empty' 'watch jiffies:8:w --comm a,,b'
fails 2 "longer than the 15 bytes that a thread's name has" 'watch jiffies:8:w --not-comm a-very-long-name'
fails 2 'a \* may only be the end of a name' 'watch jiffies:8:w --comm k*r'
fails 2 'not a list of CPUs' 'watch jiffies:8:w --cpus 1-'
fails 2 '--skip x is not a number of hits' 'watch jiffies:8:w --skip x'
fails 2 '--storm -1 is not a number of hits a second' 'watch jiffies:8:w --storm -1'
fails 2 "--freeze=some: it is 'cpu'" 'watch jiffies:8:w --freeze=some'
fails 2 '--freeze and --stop: only one of them' 'watch jiffies:8:w --stop --freeze'
fails 2 '--count and --follow: only one of them' 'watch jiffies:8:w --follow -n 2'
fails 2 '--log and --no-log: only one of them' 'watch jiffies:8:w --no-log --log'
fails 2 '--count may be given only once' 'watch jiffies:8:w -n 1 --count 2'
fails 2 '--json may be given only once' 'watch jiffies:8:w --json --json'
fails 2 '--persistent: a trace ends with the program' 'watch jiffies:8:w --persistent --freeze'
fails 2 "another process's once that one has ended" 'watch task_struct.cred@1 --persistent'
fails 2 'no COMMAND and no --timeout' 'watch jiffies:8:w --persistent --timeout 1'
fails 2 'which watch\?' unwatch
fails 2 'unknown option --json' 'unwatch --json 1'
fails 2 "unexpected argument 'jiffies'" 'watches jiffies'
fails 2 'add --follow' 'watches --count 1'
fails 2 'not a number of alarms' 'watches --follow --count 0'
fails 2 'ptwatch watches --follow' watch
fails 2 'option --timeout needs a value' 'watch jiffies:8:w --timeout'
fails 2 'unknown option --freezed, did you mean --freeze\?' 'watch jiffies:8:w --freezed'

# ---- recordings that cannot be read

: >"$out/empty"
head -c 5000 /dev/urandom >"$out/noise"
mkdir "$out/dir"
for verb in packets insns calls; do
	for input in empty noise dir absent; do
		run $verb -i "$out/$input"
		is "$status" 1 "$verb -i $input: status 1"
		like "$stderr" "^ptwatch $verb: .*$input" "$verb -i $input: names it"
		[[ $input != absent ]] || like "$stderr" 'that .ptwatch record -o. or .ptwatch watch --freeze -o. wrote' "$verb -i $input: and what it takes"
		is "$(wc -l <"$out/stderr")" 1 "$verb -i $input: in one line"
	done
done

# ---- this machine

if [[ ! -e /dev/ptwatch ]]; then
	fails 4 'ptwatch module is not loaded \(no /dev/ptwatch\); load it: modprobe ptwatch, or insmod ptwatch\.ko$' \
		'watch 0xffffffff82000000:8:w'
	# Known symbols, unknown ones, misaligned ones: that comes later.
	for target in jiffies_64:8:w vprintkx:x nosuchmodule:thing:8:w vprintk+1:8:w task_struct.crde@1 nofile!x@1; do
		fails 4 'module is not loaded' "watch $target"
	done
	fails 4 'module is not loaded' watches
	fails 4 'module is not loaded' 'watches --follow'
	fails 4 'module is not loaded' 'unwatch all'
	run info
	is "$status" 4 'info without the module: status 4'
	like "$stderr" 'ptwatch module is not loaded.*load it' 'info without the module: the remedy'
	is "$(wc -l <"$out/stderr")" 1 'info without the module: one line'
	like "$stdout" "Kernel +$(uname -r)" 'info without the module tells what is known'
	like "$stdout" 'Module +not loaded' 'info says that the module is not loaded'
	run info --json
	is "$status" 4 'info --json without the module: status 4'
	is "$(python3 -c 'import json, sys
facts = json.load(sys.stdin)
print(facts["can_trace"], facts["module"]["loaded"], facts["kernel"]["release"])' <<<"$stdout")" \
		"False False $(uname -r)" 'info --json is one JSON object with the same facts'
	if ! grep -qw intel_pt /proc/cpuinfo; then
		if grep -q GenuineIntel /proc/cpuinfo; then reason=''; else reason=" \(only Intel's have\)"; fi
		like "$stderr" "this CPU has no Intel PT$reason" 'info says that there is no Intel PT'
		like "$stdout" '"present":false' 'info --json too'
	else
		skip 2 'this CPU has Intel PT'
	fi
else
	skip 39 'the module is loaded here'
fi

# ---- what can be typed wrongly to record and snapshot, whatever the machine

fails 2 'nothing to record: say -a for everything, -C CPUS, -p PID, or a command behind --' 'record'
fails 2 'no COMMAND after --' 'record --'
fails 2 "unexpected argument 'ls'; a command to run stands behind --" 'record ls'
fails 2 '-a is every CPU and -C some of them: take one' 'record -a -C 0'
fails 2 '-p and --cgroup: take one' 'record -p 1 --cgroup /'
fails 2 '-a is everything: take it, or -p or --cgroup' 'record -a -p 1'
fails 2 '--pid x is not the number of a process' 'record -p x'
fails 2 '--cpu 3- is not a list of CPUs' 'record -C 3-'
fails 2 '--ring 0 is not a size such as 65536, 512k or 4M' 'record -a --ring 0'
fails 2 '--buffer many is not a size' 'record -a -m many'
fails 2 '--buffer 16383 is too small: at least 16k for each CPU' 'record -a -m 16383'
fails 2 '--ring 4095 is too small: at least 4k for each CPU' 'record -a --ring 4095'
fails 2 '--ring 1 is too small: at least 4k for each CPU' 'snapshot --ring 1'
fails 2 '--buffer 4095 is too small: at least 4k for each CPU' 'watch jiffies:8:w --freeze -m 4095'
fails 2 '--ring and -m: take one' 'record -a --ring 1M -m 1M'
fails 2 '--ring and -m: take one' 'record -a -m 1M --ring 1M'
fails 2 '-m is for .ptwatch record., .*; how large the ring is, --ring SIZE tells' 'snapshot -m 1M'
fails 2 '--start-at and --stop-at are both do_exit: what comes there cannot both start and stop' \
	'record -a --start-at do_exit --stop-at do_exit'
fails 2 '--for 1e3 is not a time' 'record -a --for 1e3'
fails_with 2 "--cpu '' is not a list of CPUs" record -C ''
fails_with 2 "--pid '' is not the number of a process" record -p ''
fails_with 2 "--ring '' is not a size" record -a --ring ''
fails_with 2 "--for '' is not a time" record -a --for ''
fails_with 2 "--mtc '' is not a number from 0 to 15" record -a --mtc ''
fails_with 2 "--filter needs a range: 'sym', 'sym1 - sym2', 0xA-0xB or 'binary!sym'" record -a --filter ''
fails_with 2 '--stop-in needs a range' record -a --stop-in ' '
fails_with 2 '--start-at needs a symbol' record -a --start-at ''
fails_with 2 '--stop-at needs a symbol' record -a --start-at do_exit --stop-at ''
fails_with 2 "--timeout '' is not a time" watch jiffies:8:w --timeout ''
fails 2 '--for soon is not a time such as 10, 1.5s, 500ms or 2m' 'record -a --for soon'
fails 2 '--mtc 16 is not a number from 0 to 15; .ptwatch info. lists those of this CPU' 'record -a --mtc 16'
fails 2 '--psb x is not a number from 0 to 15' 'record -a --psb x'
fails 2 '--cyc 99 is not a number from 0 to 15' 'record -a --cyc=99'
fails 2 '--follow-fork is about one process: add -p PID, or a command without -a and -C' 'record -a --follow-fork'
fails 2 '--stop-at needs --start-at; --stop-in ends a trace for good' 'record -a --stop-at do_exit'
fails 2 '--no-tnt and --event-trace need branches: leave --no-branch out' 'record -a --no-tnt --no-branch'
fails 2 'unknown option --buffers, did you mean --buffer\?' 'record -a --buffers 1'
fails 2 "unexpected argument 'now'" 'snapshot now'

# ---- man pages and completion

for page in $(cd "$TOP/userspace/man" && printf '%s\n' *.1); do
	if command -v man >/dev/null; then
		is "$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z \
			"$TOP/userspace/man/$page" 2>&1 >/dev/null)" '' "$page formats without warnings"
	else
		skip 1 'no man here'
	fi
done

# complete_words WORD…: what is offered for the last of the words behind `ptwatch`
complete_words() {
	# shellcheck disable=SC2016
	bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ptwatch; printf "%s\n" "${COMPREPLY[@]}"' \
		bash "$TOP/userspace/completion/ptwatch" "$ptwatch" "$@" | LC_ALL=C sort | tr '\n' ' '
}
export PTWATCH_KALLSYMS=$out/kallsyms
printf '%s\n' 'ffffffff82000000 D kv_table' 'ffffffff82000010 b kv_buffer' 'ffffffff81000000 T kv_text' \
	'ffffffffc0a01180 d kv_cache_meta	[kvdemo]' >"$PTWATCH_KALLSYMS"
is "$(complete_words in)" 'info insns ' 'completion: verbs'
is "$(complete_words watch --fr)" '--freeze ' 'completion: options of watch'
is "$(complete_words info --)" '--help --json ' 'completion: options of info'
is "$(complete_words watch kv_)" 'kv_buffer: kv_cache_meta: kv_table: ' 'completion: data symbols'
is "$(complete_words watch --if-stack kv_)" 'kv_text ' 'completion: functions for --if-stack'
is "$(complete_words watch --not-c)" '--not-cgroup --not-comm ' 'completion: lists of who'
is "$(complete_words watches --f)" '--follow ' 'completion: options of watches'
is "$(complete_words watch kv_te)" 'kv_text: ' 'completion: functions where no data matches'
is "$(complete_words watch kvdemo : kv_)" 'kv_cache_meta: ' 'completion: symbols of a module'
is "$(complete_words watch kvdemo :)" 'kv_cache_meta: ' 'completion: all symbols of a module'
is "$(complete_words watch kv_table :)" '1: 2: 4: 8: x ' 'completion: lengths'
is "$(complete_words watch kv_table : 8 :)" 'rw w ' 'completion: modes'
is "$(complete_words watch kv_table : 8 : w kv_b)" 'kv_buffer: ' 'completion: a second target'
is "$(complete_words watch --rate '')" ' ' 'completion: nothing for a number'
is "$(complete_words record --st)" '--start-at --stop-at --stop-in ' 'completion: options of record'
is "$(complete_words record --start-at kv_)" 'kv_text ' 'completion: code to start at'
is "$(complete_words snapshot --ri)" '--ring ' 'completion: options of snapshot'

done_testing
