#!/bin/sh
# leaks.sh BIN SESSIONS: sessions with imports come and go; fds and device memory stay the same.
set -eu
bin=$1
sessions=$2
work=$(mktemp -d)
daemon=
export COMMGEMM_SOCKET="$work/commgemmd.sock"

stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    wait
    rm -rf "$work"
}
trap stop EXIT

executor() {
    "$bin/commgemmctl" status --json | sed -n 's/.*"executor_pid": *\([0-9]*\).*/\1/p'
}

measure() {
    memory=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | paste -sd+ | tr -d ' ')
    echo "$(find "/proc/$daemon/fd" "/proc/$(executor)/fd" -type l | wc -l) fds, $((memory)) MiB on the GPUs"
}

rounds() {
    for _ in $(seq "$1"); do
        "$bin/commgemm-bench" --validate --import --one-process --op ag_gemm --method ring_exchange \
            --world 2 -m 64 -n 64 -k 64 --datatype bf16 --seed 1 >"$work/bench" 2>&1 || {
            cat "$work/bench" >&2
            exit 1
        }
    done
}

"$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set backend=cuda --set devices=2 >"$work/log" 2>&1 &
daemon=$!
tries=600
until "$bin/commgemmctl" buffers create probe --bytes 4K >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { cat "$work/log" >&2; exit 1; }
    sleep 0.1
done
"$bin/commgemmctl" buffers destroy probe
rounds 5
sleep 1
before=$(measure)
rounds "$sessions"
sleep 1
after=$(measure)
echo "before: $before"
echo "after $sessions sessions with imports: $after"
[ "$before" = "$after" ]
