#!/bin/sh
# The demo succeeds, and its last line names a picture that is there.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sh "$source/client/examples/demo.sh" "$build/bin" "$work/demo" >"$work/output" 2>&1 ||
    { cat "$work/output" "$work/demo/commgemmd.log" >&2 && exit 1; }
last=$(tail -n 1 "$work/output")
picture=${last#picture: }
if [ "$picture" = "$last" ] || ! grep -q '</svg>' "$picture"; then
    printf 'the last line names no picture: %s\n' "$last" >&2
    exit 1
fi
