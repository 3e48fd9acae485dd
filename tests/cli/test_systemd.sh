#!/bin/sh
# systemd-analyze finds nothing to say about the units, with the built daemon as ExecStart.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
command -v systemd-analyze >/dev/null || exit 77

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed "s|^ExecStart=[^ ]*|ExecStart=$build/bin/commgemmd|; s|@[A-Z]*@|/usr|" \
    "$source/systemd/commgemmd.service.in" >"$work/commgemmd.service"
cp "$source/systemd/commgemmd.socket" "$work"
sed 's|/usr/bin/nvidia-cuda-mps-control|/bin/true|' "$source/systemd/commgemm-mps.service" \
    >"$work/commgemm-mps.service"

status=0
XDG_RUNTIME_DIR=$work systemd-analyze verify "$work/commgemmd.service" "$work/commgemmd.socket" \
    "$work/commgemm-mps.service" \
    >"$work/output" 2>&1 || status=$?
if [ "$status" -ne 0 ] || [ -s "$work/output" ]; then
    printf 'systemd-analyze verify ended with %s:\n' "$status" >&2
    cat "$work/output" >&2
    exit 1
fi
