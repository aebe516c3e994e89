#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A timeline opens in speedscope, and the picture is that of the trace: speedscope from npm, in a Chromium without a
# window. Skipped where npm or chromium are missing, or npm's registry can't be reached.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../conformance/common.sh
. "$(dirname "$0")/../conformance/common.sh"

version=1.25.0
sample_args skylake-hello || skip_all "no sample skylake-hello in $samples"
for tool in npm chromium python3; do
	command -v "$tool" >/dev/null || skip_all "$tool is not installed"
done
cache=${PTWATCH_CACHE:-$HOME/.cache/ptwatch}/speedscope-$version
if [[ ! -e $cache/index.html ]]; then
	(cd "$tmp" && timeout 120 npm pack "speedscope@$version" >/dev/null 2>&1 && tar xzf "speedscope-$version.tgz") ||
		skip_all "npm can't fetch speedscope $version"
	mkdir -p "${cache%/*}"
	cp -r "$tmp/package/dist/release" "$cache.$$"
	mv -T "$cache.$$" "$cache" 2>/dev/null || rm -rf "$cache.$$"
fi

# A container may have next to no /dev/shm.
show() { # FILE URL
	timeout 600 chromium --headless=new --no-sandbox --disable-dev-shm-usage --use-angle=swiftshader --enable-unsafe-swiftshader \
		--user-data-dir="$tmp/chromium" --window-size=1200,700 --virtual-time-budget=20000 --screenshot="$1" "$2" >"$tmp/log" 2>&1
}
if ! show "$tmp/blank.png" about:blank || [[ ! -s $tmp/blank.png ]]; then
	skip_all "chromium does not run here: $(tail -n 1 "$tmp/log")"
fi

cp -r "$cache" "$tmp/site"
run timeline "${args[@]}" -o "$tmp/site/t.json.gz"
is "$status" 0 'a timeline'

# On any free port, which is told first.
python3 -u - "$tmp/site" >"$tmp/port" 2>/dev/null <<'END' &
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_port)
server.serve_forever()
END
server=$!
tap_cleanup sh -c "kill $server; rm -rf '$tmp'"
while [[ ! -s $tmp/port ]]; do sleep 0.1; done
url=http://127.0.0.1:$(<"$tmp/port")

rc=0
show "$tmp/shot.png" "$url/index.html#profileURL=$url/t.json.gz" || rc=$?
is "$rc" 0 'speedscope opened it'
((rc == 0)) || diag "$(tail -n 3 "$tmp/log")"
cat >"$tmp/look.py" <<'END'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, packed = 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    if kind == b"IHDR":
        width, height, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
    if kind == b"IDAT":
        packed += data[at + 8:at + 8 + size]
    at += 12 + size
channels = {2: 3, 6: 4}[colour]
raw, stride, rows, last = zlib.decompress(packed), width * channels, [], None
for y in range(height):
    kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
    for x in range(stride):
        a = row[x - channels] if x >= channels else 0
        b = last[x] if last else 0
        c = last[x - channels] if last and x >= channels else 0
        if kind == 1: row[x] = row[x] + a & 255
        elif kind == 2: row[x] = row[x] + b & 255
        elif kind == 3: row[x] = row[x] + (a + b) // 2 & 255
        elif kind == 4:
            p, q, r = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            row[x] = row[x] + (a if p <= q and p <= r else b if q <= r else c) & 255
    last = row
    rows.append(row)
def pixel(x, y): return tuple(rows[y][x * channels:x * channels + 3])
def coloured(x, y): return max(pixel(x, y)) - min(pixel(x, y)) > 12
# Rows of calls are 20 high and begin at 143; text is in their middle, so look at their lower edge.
def row(n): return 143 + 20 * n + 17
share = lambda n: sum(coloured(x, row(n)) for x in range(width)) * 100 // width
# main() is in the third row; it began 237.434 of 265.913 microseconds after the first instruction.
main = pixel(1130, row(2))
begin = next(x for x in range(1000, width) if pixel(x, row(2)) == main)
print(width, height, share(0) >= 98, share(1) >= 90, 20 < share(3) < 75, abs(begin - width * 237.434 / 265.913) <= 3, share(20))
END
is "$(python3 "$tmp/look.py" "$tmp/shot.png" 2>&1)" '1200 700 True True True True 0' 'the picture has the calls where they were'
done_testing
