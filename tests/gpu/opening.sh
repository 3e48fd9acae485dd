#!/bin/sh
# shellcheck disable=SC2015 # both fail alike
# opening.sh BIN OUT: how long an executor takes to open, step by step, with all kernels loaded at once
# (CUDA_MODULE_LOADING=EAGER, as the executor sets it unless it is set) and on demand (LAZY), in turn;
# and how much device memory each takes. The first of four is the one from a cold disk.
set -eu
bin=$1
out=$2
work=$(mktemp -d)
daemon=
mkdir -p "$out"
export COMMGEMM_SOCKET="$work/commgemmd.sock"

stop_daemon() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    wait
    daemon=
}
stop() {
    stop_daemon
    rm -rf "$work"
}
trap stop EXIT

used() {
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | awk '{ sum += $1 } END { print sum }'
}

# open_once MODE ROUND
open_once() {
    log=$out/$1-$2.log
    before=$(used)
    begin_ms=$(date +%s%3N)
    CUDA_MODULE_LOADING=$1 "$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set backend=cuda \
        --set log_level=debug >"$log" 2>&1 &
    daemon=$!
    tries=1200
    until timeout 20 "$bin/commgemmctl" buffers create probe --bytes 4K >/dev/null 2>&1; do
        tries=$((tries - 1))
        kill -0 "$daemon" 2>/dev/null && [ "$tries" -gt 0 ] || {
            tail -n 20 "$log"
            return 1
        }
        sleep 0.05
    done
    echo "$1: serves after $(($(date +%s%3N) - begin_ms)) ms, $(($(used) - before)) MiB on the GPUs"
    sed -n 's/.*opening: /    /p' "$log"
    grep 'cannot be loaded ahead' "$log" || :
    stop_daemon
}

for round in 1 2; do
    open_once EAGER "$round"
    open_once LAZY "$round"
done
