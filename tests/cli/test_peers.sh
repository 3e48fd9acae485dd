#!/bin/sh
# The comparison with the peers, where there is neither PyTorch nor a GPU: peers.py explains itself,
# lists its shapes and refuses others; the report makes a table and a picture of figures; the script
# that runs it all starts a daemon and leaves nothing behind.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
bench=$source/client/bench
command -v python3 >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1 TMPDIR="$work"

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# refused STATUS WORDS COMMAND...
refused() {
    expected=$1 words=$2
    shift 2
    status=0
    "$@" >"$work/output" 2>&1 || status=$?
    [ "$status" -eq "$expected" ] || fail "$*: exit status $status: $(cat "$work/output")"
    grep -qF -- "$words" "$work/output" || fail "$*: lacks '$words': $(cat "$work/output")"
}

# ---- peers.py and its shapes ----
for program in peers peers_report bar_chart shape_file; do
    python3 -c 'import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)' \
        "$bench/$program.py" "$work/$program.pyc"
done
python3 "$bench/peers.py" --help | grep -q -- '--output-file' || fail "no --output-file in the help"
[ "$(python3 "$bench/peers.py" --list | wc -l)" -ge 16 ] || fail "shapes are missing"
refused 2 'none: no such shape; there are: all, ag-qkv' python3 "$bench/peers.py" --shapes ag-qkv,none

# misread WORDS LINE: behind a comment and a line that is right.
misread() {
    printf '# comment\nar 8 16 0 fp16 name=a # b\n%s\n' "$2" >"$work/bad.shapes"
    refused 1 "bad.shapes:3: $1" python3 -c 'import sys
sys.path.insert(0, sys.argv[1])
import shape_file
shape_file.read(sys.argv[2], ("ag_gemm", "ar"))' "$bench" "$work/bad.shapes"
}
misread "op, m, n and k are needed" "ag_gemm 8 8"
misread "op is 'rs': it must be one of ag_gemm, ar" "rs 8 8 8"
misread "k is '0': it must be 1 to 16777216" "ag_gemm 8 8 0"
misread "n is '-8': it must be 1 to 16777216" "ag_gemm 8 -8 8"
misread "m is '16777217': it must be 1" "ag_gemm 16777217 8 8"
misread "'fp8' is no type (fp32, fp16" "ag_gemm 8 8 8 fp8"
misread "'name=' is no type" "ag_gemm 8 8 8 name="

# ---- the report ----
has() {
    grep -qF -- "$2" "$work/$1" || fail "$1 lacks '$2': $(cat "$work/$1")"
}
python3 "$bench/peers_report.py" "$source/tests/cli/peers.json" "$work"
has peers.md "at 365 GB/s, the best all-gather of this run (push of link)"
has peers.md "| op | m n k | gemm alone | NCCL alone | NCCL + cuBLAS in sequence | async_tp |"
# The best unsplit product is the daemon's; the floor is that, the links take less.
has peers.md "| ag_gemm | 8192 10240 8192 bf16 | 438 | 348 | 781 | 521 | 511 | 591 | 905 | 590 |"
has peers.md "| 430 | 0.73 | 0.73 ring | 0.84 async_tp, native |"
has peers.md "| 85.0 | 0.36 | 0.40 fused | 0.45 NCCL + cuBLAS in sequence |"
has peers.md "| ag-qkv | split_pipelined_ag_p2p | estimated 500 us \\| serial 800 us |"
has peers.md "- rs-down-512, commgemm_atomic_split: NOT_SUPPORTED: n = 8192 cannot be <divided>"
has peers.md "- as-4864, all: out of memory"
python3 -c 'import sys, xml.dom.minidom as dom
bars = dom.parse(sys.argv[1]).getElementsByTagName("title")
words = [bar.firstChild.data for bar in bars]
assert len(words) == 13, words
assert "auto, ag-qkv 8192 10240 8192: 0.728" in words, words' "$work/peers.svg"
has peers.svg "Floor fraction by shape"

refused 1 "none.json: No such file" python3 "$bench/peers_report.py" "$work/none.json" "$work"
echo '{"rows": 3}' >"$work/bad.json"
refused 1 "none of peers.py's reports" python3 "$bench/peers_report.py" "$work/bad.json" "$work"
refused 1 "usage" python3 "$bench/peers_report.py"

# ---- the script ----
refused 2 "usage" sh "$bench/peers.sh"
[ -e /dev/nvidiactl ] || refused 77 "no NVIDIA GPU" sh "$bench/peers.sh" "$build" "$work/out"
if ! python3 -c 'import torch' 2>/dev/null; then
    PEERS_BACKEND=cpu refused 1 "PyTorch is not installed" sh "$bench/peers.sh" "$build" "$work/out"
    grep -q "backend cpu" "$work/out/daemon.log" || fail "no daemon: $(cat "$work/out/daemon.log")"
    left=$(find "$work" -name 'commgemmd.sock')
    [ -z "$left" ] || fail "left behind: $left"
    ! grep -lsa "$work/tmp" /proc/[0-9]*/cmdline || fail "the daemon is still there"
fi
