#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Event trace, which libipt knows from 2.1 on: a page fault, its handler of two instructions, and the IRET back. Packets as the
# SDM has them where flow is traced, too: CFE without its IP bit, as the FUP and TIP of the branch tell where.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

python3 - "$tmp" <<'END'
import sys
code = bytes.fromhex('909090ffe0').ljust(0x10, b'\x90') + bytes.fromhex('9048cf')
# PSB MODE.Exec FUP PSBEND, EVD CFE FUP TIP, CFE TIP, TIP.PGD
trace = ('0282' * 8 + '9901' + '7d001000000000' + '0223' + '025300efbeadde00000000' + '0213010e' + '3d0210' + '2d1010' +
         '02130200' + '2d0210' + '01')
open(sys.argv[1] + '/code', 'wb').write(code)
open(sys.argv[1] + '/trace', 'wb').write(bytes.fromhex(trace))
END
args=(--raw "$tmp/trace" --cpu 6/190/0 --image "$tmp/code,0,13,1000")

run packets "${args[@]:0:4}" --no-time
[[ $status == 0 ]] || skip_all "this libipt doesn't know event trace (2.1 does)"
is "$(sed -n '/EVD/,$p' "$tmp/out")" '0000001b  EVD        type 0 0xdeadbeef
00000026  CFE        type 1 vector 14
0000002a  FUP        0x1002
0000002d  TIP        0x1010
00000030  CFE        type 2 vector 0
00000034  TIP        0x1002
00000037  TIP.PGD    -' 'packets'

run insns "${args[@]}" --no-time
# libipt 2.1 gives the IRET its address, 2.2 does not.
is "$status $(sed 's/^--- iret at 0x0000000000001011 \[code\]$/--- iret/' "$tmp/out")" '0 --- enabled at 0x0000000000001000 [code]
0000000000001000  nop
0000000000001001  nop
--- vector 14 at 0x0000000000001002 [code]
--- interrupt at 0x0000000000001002 [code] → 0x0000000000001010 [code]
0000000000001010  nop
0000000000001011  iretq
--- iret
0000000000001002  nop
0000000000001003  jmp %rax
--- disabled' 'instructions, and the events among them'
run insns "${args[@]}" --json
is "$(python3 -c 'import json, sys
for e in map(json.loads, sys.stdin):
    if e["type"] == "event":
        print(e["event"], e.get("value"), end="; ")' <"$tmp/out")" \
	'enabled None; vector 0xe; interrupt None; iret None; disabled None; ' 'JSON, too'
run insns "${args[@]}" --count
is "$status $(<"$tmp/out")" '0 6' 'counted'
run stat "${args[@]}" --json
is "$(head -n 1 "$tmp/out" | python3 -c 'import json, sys
t = json.load(sys.stdin); print(t["instructions"], t["errors"], t["by_type"]["CFE"], t["by_type"]["EVD"])')" '6 0 2 1' 'stat'
done_testing
