#!/bin/sh
# peers.py without PyTorch: it compiles, explains itself, lists its shapes, and refuses others.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
peers=$source/client/bench/peers.py
command -v python3 >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

python3 -c 'import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)' \
    "$peers" "$work/peers.pyc"
python3 "$peers" --help | grep -q -- '--output-file' || exit 1
[ "$(python3 "$peers" --list | wc -l)" -ge 16 ] || exit 1
status=0
python3 "$peers" --shapes ag-qkv,none 2>"$work/error" || status=$?
[ "$status" -eq 2 ] || exit 1
grep -q 'none: no such shape; there are: all, ag-qkv' "$work/error" || exit 1
