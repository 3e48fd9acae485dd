#!/bin/sh
# recovery.sh BIN mps|no-mps|cpu: who survives whose death on a real GPU, with a named buffer whose
# checksum must stay the same, and a job that must be right afterwards. cpu: the same without a GPU.
set -eu
bin=$1
mode=$2
work=$(mktemp -d)
daemon=
export COMMGEMM_SOCKET="$work/commgemmd.sock"

stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    [ "$mode" != mps ] || echo quit | nvidia-cuda-mps-control >/dev/null 2>&1 || :
    wait
    rm -rf "$work"
}
trap stop EXIT

die() {
    echo "recovery: $*" >&2
    tail -n 30 "$work/log" >&2
    exit 1
}

ctl() {
    "$bin/commgemmctl" "$@"
}

value() {
    ctl status --json | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"
}

now_ms() {
    date +%s%3N
}

# Waits until the daemon has another executor than this one.
await_executor() {
    tries=600
    until new=$(value executor_pid) && [ -n "$new" ] && [ "$new" != 0 ] && [ "$new" != "$1" ] &&
        ctl buffers checksum weights >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || die "no new executor after $1"
        sleep 0.1
    done
}

job_is_right() {
    "$bin/commgemm-bench" --validate --op ag_gemm --method ring_exchange --world 2 -m 256 -n 512 \
        -k 384 --datatype bf16 >"$work/bench" 2>&1 || {
        cat "$work/bench" >&2
        die "$1: the next job is not right"
    }
}

buffer_is_whole() {
    now=$(ctl buffers checksum weights | cut -d' ' -f1)
    [ "$now" = "$sum" ] || die "$1: the buffer's checksum is $now, it was $sum"
    echo "$1: buffer whole ($now)"
}

if [ "$mode" = mps ]; then
    export CUDA_MPS_PIPE_DIRECTORY="$work/mps" CUDA_MPS_LOG_DIRECTORY="$work/mps-log"
    mkdir -p "$work/mps" "$work/mps-log"
    nvidia-cuda-mps-control -d
fi

backend=cuda
[ "$mode" != cpu ] || backend=cpu
"$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set "backend=$backend" --set devices=2 >"$work/log" 2>&1 &
daemon=$!
tries=600
until ctl buffers create weights --bytes 256M >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || die "the daemon does not come up"
    sleep 0.1
done
ctl buffers destroy weights
python3 - "$work/w.npy" <<'PY' || die "no python3 to make the tensor"
import os, sys
rows, cols = 8192, 8192
with open(sys.argv[1], "wb") as f:
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (rows, cols)
    f.write(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + head.ljust(117).encode() + b"\n")
    for _ in range(64):
        f.write(os.urandom(rows * cols * 4 // 64))
PY
ctl buffers import weights "$work/w.npy"
sum=$(ctl buffers checksum weights | cut -d' ' -f1)
echo "256 MiB, checksum $sum, $mode"
job_is_right start

# A client is killed while its jobs run.
depth=8192
[ "$mode" != cpu ] || depth=16
"$bin/commgemm-bench" --benchmark --op gemm_rs --method ring_exchange --world 2 -m 8192 -n 8192 \
    -k "$depth" --datatype bf16 --iters 100000 >"$work/victim" 2>&1 &
victim=$!
done_before=$(value jobs_done)
tries=600
until [ "$(value jobs_done)" -gt $((done_before + 20)) ] && ctl jobs --json | grep -q running; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { cat "$work/victim" >&2; die "the client that is to be killed runs no jobs"; }
    sleep 0.1
done
pkill -KILL -P "$victim" || :
kill -KILL "$victim"
wait "$victim" 2>/dev/null || :
buffer_is_whole "client killed with jobs in flight"
job_is_right "client killed"

# The executor is killed.
old=$(value executor_pid)
begin=$(now_ms)
kill -KILL "$old"
await_executor "$old"
echo "executor killed: served again after $(($(now_ms) - begin)) ms"
buffer_is_whole "executor killed"
job_is_right "executor killed"
ctl status
