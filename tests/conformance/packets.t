#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Every packet that libipt knows is read with the right type, length and payload.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

vectors=$samples/packets/vectors.tsv
checked=0 unknown=()

# field NAME: of the only packet in $tmp/out
field() { sed -nE "s/.*\"$1\":\"?(0x[0-9a-f]+|[0-9]+|[A-Za-z.]+)\"?[,}].*/\1/p" "$tmp/out"; }

# The payload as libipt's fields hold it: sets want_value and, where it means the same, want_count.
translate() {
	local type=$1 count=$2 payload=$3

	want_value=$payload want_count=''
	case $type in
	TNT)	# left-aligned in the vectors
		want_value=$(printf '0x%x' $((count ? payload >> (64 - count) & ((1 << count) - 1) : 0)))
		want_count=$count ;;
	TIP | TIP_PGE | TIP_PGD | FUP) want_count=$count ;;
	PIP)	# CR3 is the payload without NR, in units of 32 bytes
		want_value=$(printf '0x%x' $((payload >> 1 << 5)))
		want_count=$((payload & 1)) ;;
	VMCS) want_value=$(printf '0x%x' $((payload << 12))) ;;
	TMA | CFE* | EVD) want_count=$count ;;
	PTWRITE*) want_count=$((count ? 8 : 4)) ;;
	PWRE) want_value=$(printf '0x%x' $((payload & 0xff80))) ;;	# reserved bits are dropped
	PWRX) want_value=$(printf '0x%x' $((payload & 0x0dff))) ;;
	PAD | PSB | PSBEND | OVF | TRACESTOP | EXSTOP*) want_value='' ;;
	esac
}

name_of() {
	case ${1%_IP} in
	TIP_PGE) echo TIP.PGE ;;
	TIP_PGD) echo TIP.PGD ;;
	MODE_EXEC) echo MODE.Exec ;;
	MODE_TSX) echo MODE.TSX ;;
	TRACESTOP) echo TraceStop ;;
	PTWRITE) echo PTW ;;
	*) echo "${1%_IP}" ;;
	esac
}

check_vector() {
	local len=$1 bytes=$2 type=$3 count=$4 payload=$5 got want value_key=value count_key=count

	printf '%b' "\\x${bytes// /\\x}" >"$tmp/packet"
	run packets --raw "$tmp/packet" --json
	if grep -q '"type":"gap"' "$tmp/out" || [[ $type == B[BIE]P* ]]; then
		unknown+=("$type")
		case $type in
		BBP | BIP | BEP | BEP_IP) skip 1 "$type $bytes: no libipt knows it" ;;
		CFE | CFE_IP | EVD) skip 1 "$type $bytes: this libipt doesn't know it (2.1 does)" ;;
		CYC)	# more than 64 bits of payload could hold
			if ((len == 10)); then
				skip 1 "CYC $bytes: longer than libipt reads"
			else
				is unknown known "CYC $bytes"
			fi ;;
		*) is unknown known "$type $bytes" ;;
		esac
		return
	fi
	case $type in
	TIP* | FUP) count_key=ipbytes ;;
	TNT) count_key=bits ;;
	esac
	translate "$type" "$count" "$payload"
	want="$(wc -l <"$tmp/out") $(name_of "$type") $len ${want_value:+$want_value }$want_count"
	got="1 $(field type) $(field size) ${want_value:+$(field $value_key) }${want_count:+$(field $count_key)}"
	if [[ $type == *_IP ]]; then
		want+=' ip' got+=" $(grep -o '"ip_follows":true' "$tmp/out" | sed 's/.*/ip/')"
	fi
	is "$got" "$want" "$type $bytes"
	checked=$((checked + 1))
}

if [[ -r $vectors ]]; then
	while IFS=$'\t' read -r len bytes _ type count payload _; do
		[[ $len == len ]] || check_vector "$len" "$bytes" "$type" "$count" "$payload"
	done <"$vectors"
	is $((checked + ${#unknown[@]})) $(($(wc -l <"$vectors") - 1)) 'every row was looked at'
	echo "# $checked rows checked; not known to libipt: $(printf '%s\n' "${unknown[@]}" | sort | uniq -c | xargs)"
else
	skip 1 "no $vectors"
fi

# Sizes add up: the packets of a trace are all of its bytes.
for name in skylake-asm skylake-hello; do
	if sample_args "$name"; then
		run packets "${args[@]:0:2}" --json
		is "$status" 0 "$name: packets: exit status"
		is "$(awk -F'"size":' '{ split($2, a, ","); sum += a[1] } END { print sum }' "$tmp/out")" \
			"$(stat -c %s "${args[1]}")" "$name: packets are all of the bytes"
		is "$("$ptwatch" packets "${args[@]:0:2}" --count)" "$(wc -l <"$tmp/out")" "$name: --count"
		"$ptwatch" packets "${args[@]:0:2}" >"$tmp/text"
		is "$(wc -l <"$tmp/text")" "$(wc -l <"$tmp/out")" "$name: as many lines of text"
	else
		skip 4 "no sample $name in $samples"
	fi
done

# A recording by perf of a whole machine. Its README counts packets without padding.
perfdata=$samples/perfdata-kernel/perf.data
if [[ -r $perfdata ]]; then
	run packets -i "$perfdata"
	is "$status" 0 'perf.data: no unknown packet'
	is "$(awk '$3 != "PAD" { n[$1]++ } END { for (cpu in n) print n[cpu] }' "$tmp/out" | sort -n | xargs)" '9106 75987' \
		'perf.data: packets of the two AUX payloads'
	is "$(cat "$tmp/err")" '' 'perf.data: nothing on stderr'
else
	skip 3 "no $perfdata"
fi
done_testing
