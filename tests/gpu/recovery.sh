#!/bin/sh
# shellcheck disable=SC2015,SC2317 # cases are called by their names, stop by a trap
# recovery.sh BIN mps|no-mps|cpu [DEVICES [OUT]]: who survives whose death, with named buffers, one on
# each device, whose checksums must stay the same, a second client that says what became of it, and
# jobs of as many ranks as there are devices, at least two, that must be right afterwards. The other
# clients' own kernels are on the last device. cpu: the cases that need no GPU, without the second
# client. OUT: what each case said and what the daemon's log has of it, a file a case.
set -eu
bin=$1
mode=$2
devices=${3:-2}
out=${4:-}
world=$((devices > 2 ? devices : 2))
work=$(mktemp -d)
daemon=
failed=0
[ -z "$out" ] || mkdir -p "$out"
visible=${CUDA_VISIBLE_DEVICES:-}
export COMMGEMM_SOCKET="$work/commgemmd.sock"

stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    [ -z "$out" ] || cp "$work/log" "$out/daemon.log" 2>/dev/null || :
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

unexpected() {
    echo "UNEXPECTED: $*"
    failed=1
}

ctl() {
    timeout 60 "$bin/commgemmctl" "$@"
}

# Of the status; 0 while nothing answers.
value() {
    { ctl status --json 2>/dev/null || :; } | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"
}

now_ms() {
    date +%s%3N
}

# await SECONDS WHAT COMMAND...
await() {
    tries=$(($1 * 20)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || die "$what: not after a long while"
        sleep 0.05
    done
}

has_another_executor() {
    new=$(value executor_pid)
    [ -n "$new" ] && [ "$new" != 0 ] && [ "$new" != "$1" ] && ctl buffers checksum weights.0
}

job_is_right() {
    for op in ag_gemm gemm_rs; do
        timeout 120 "$bin/commgemm-bench" --validate --op "$op" --method ring_exchange \
            --world "$world" -m 256 -n 512 -k 384 --datatype bf16 >"$work/bench" 2>&1 || {
            cat "$work/bench" >&2
            die "$1: the next job ($op) is not right"
        }
    done
}

each_device() {
    seq 0 $((devices - 1))
}

buffers_are_whole() {
    for device in $(each_device); do
        now=$(ctl buffers checksum "weights.$device" | cut -d' ' -f1)
        [ "$now" = "$sum" ] ||
            die "$1: the checksum of weights.$device is $now, it was $sum"
    done
    echo "  $devices buffers are whole ($sum), the next jobs right"
}

# ---- the other clients ---------------------------------------------------------------------------

# begin NAME WORD...: a process of the test in the background; waits for its word.
begin() {
    name=$1 word=$2
    # The slow job is on device 0, as rank 0 is.
    on=$((devices - 1))
    [ "$name" != slow ] || on=0
    CUDA_VISIBLE_DEVICES=$(echo "${visible:-$(seq -s , 0 15)}" | cut -d, -f$((on + 1))) \
        "$bin/gpu_process" "$name" "$COMMGEMM_SOCKET" >"$work/$name" 2>&1 &
    pid=$!
    tries=1200
    until grep -q "$word" "$work/$name"; do
        tries=$((tries - 1))
        kill -0 "$pid" 2>/dev/null && [ "$tries" -gt 0 ] || {
            cat "$work/$name" >&2
            die "$name does not come to '$word'"
        }
        sleep 0.05
    done
}

stayer=
stay() {
    [ "$mode" = cpu ] || { begin stay stays; stayer=$pid; }
}

# stayer_says STATUS CONTEXT: what the second client must have seen; OK: it is still at it.
stayer_says() {
    [ "$mode" != cpu ] || return 0
    [ "$1" != OK ] || { sleep 0.3; kill -TERM "$stayer" 2>/dev/null || :; }
    wait "$stayer" || :
    gone_ms=$(now_ms)
    line=$(tail -n 1 "$work/stay")
    echo "  the other client: ${line#* }"
    case $line in
    *" jobs: $1"*"own context: $2"*) ;;
    *) unexpected "it should have seen $1 and its own context be $2" ;;
    esac
}

# ---- the cases ------------------------------------------------------------------------------------
# Each leaves the name of what happened in `case`, and in `lost` whether there must be a new executor.

lost_under_mps() {
    [ "$mode" = mps ] && echo yes || echo no
}

client_killed_with_jobs() {
    side=8192 depth=8192
    [ "$mode" != cpu ] || side=2048 depth=16
    "$bin/commgemm-bench" --benchmark --op gemm_rs --method ring_exchange --world "$world" -m "$side" \
        -n "$side" -k "$depth" --datatype bf16 --iters 100000 >"$work/victim" 2>&1 &
    victim=$!
    before=$(value jobs_done)
    tries=600
    until [ "$(value jobs_done)" -gt $((before + 20)) ] && ctl jobs --json | grep -q running; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { cat "$work/victim" >&2; die "its jobs do not run"; }
        sleep 0.1
    done
    pkill -KILL -P "$victim" || :
    kill -KILL "$victim" 2>/dev/null || : # without its ranks it may have ended by itself
    wait "$victim" 2>/dev/null || :
    lost=no
    stayer_says OK cudaSuccess
}

client_killed_with_a_kernel() {
    begin spin 'runs a kernel'
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || :
    lost=$(lost_under_mps)
    [ "$lost" = yes ] || { stayer_says OK cudaSuccess; return 0; }
    stayer_says GPU_LOST cudaError
}

client_ended_by_an_operator() {
    begin spin 'runs a kernel'
    session=$(ctl sessions --json | tr '{' '\n' | sed -n 's/.*"id": *\([0-9]*\).*"name": *"spin".*/\1/p')
    ctl kill "$session"
    kill -KILL "$pid" 2>/dev/null || :
    wait "$pid" 2>/dev/null || :
    lost=no
    stayer_says OK cudaSuccess
}

client_faults() {
    begin fault 'own context'
    wait "$pid" || :
    echo "  the client: $(tail -n 1 "$work/fault" | cut -d' ' -f2-)"
    lost=$(lost_under_mps)
    [ "$lost" = yes ] || { stayer_says OK cudaSuccess; return 0; }
    stayer_says GPU_LOST cudaError
}

executor_killed() {
    kill -KILL "$executor"
    lost=yes
    gone_ms=$(now_ms)
    stayer_says EXECUTOR_LOST cudaSuccess
}

job_hangs() {
    begin slow 'the slow job'
    wait "$pid" || :
    echo "  the client: $(tail -n 1 "$work/slow" | cut -d' ' -f2-)"
    lost=yes
    gone_ms=$(now_ms)
    stayer_says EXECUTOR_LOST cudaSuccess
}

run() {
    [ -n "$out" ] || { run_case "$1"; return; }
    lines=$(wc -l <"$work/log")
    # With its status, and the trap at its end.
    run_case "$1" >"$out/$1.txt"
    cat "$out/$1.txt"
    {
        echo "the daemon's log:"
        tail -n +$((lines + 1)) "$work/log"
    } >>"$out/$1.txt"
}

run_case() {
    case=$(echo "$1" | tr _ ' ')
    echo "$case:"
    executor=$(value executor_pid)
    stay
    "$1"
    if [ "$lost" = yes ]; then
        await 60 "$case: a new executor" has_another_executor "$executor"
        echo "  served again $(($(now_ms) - gone_ms)) ms later"
    elif [ "$(value executor_pid)" != "$executor" ]; then
        unexpected "there is another executor"
    fi
    job_is_right "$case"
    buffers_are_whole "$case"
}

# ---- set-up ---------------------------------------------------------------------------------------

if [ "$mode" = mps ]; then
    export CUDA_MPS_PIPE_DIRECTORY="$work/mps" CUDA_MPS_LOG_DIRECTORY="$work/mps-log"
    mkdir -p "$work/mps" "$work/mps-log"
    nvidia-cuda-mps-control -d
fi
backend=cuda job_timeout=1
[ "$mode" != cpu ] || backend=cpu job_timeout=60
"$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set "backend=$backend" --set "devices=$devices" \
    --set "job_timeout=$job_timeout" --set log_level=warning >"$work/log" 2>&1 &
daemon=$!
await 60 "the daemon" ctl buffers create weights --bytes 128M
ctl buffers destroy weights
{
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (8192, 4096), }"
    head -c $((8192 * 4096 * 4)) /dev/urandom
} >"$work/w.npy"
for device in $(each_device); do
    ctl buffers import "weights.$device" --device "$device" "$work/w.npy"
done
sum=$(ctl buffers checksum weights.0 | cut -d' ' -f1)
echo "128 MiB on each of $devices devices, checksum $sum, $world ranks, $mode"
job_is_right start

began_ms=$(now_ms)
run client_killed_with_jobs
run executor_killed
if [ "$mode" != cpu ]; then
    run client_ended_by_an_operator
    run job_hangs
    run client_killed_with_a_kernel
    run client_faults
fi
echo "all cases took $((($(now_ms) - began_ms) / 1000)) s"
ctl status
[ "$mode" != mps ] || ctl doctor || :
echo "the daemon's log:"
cat "$work/log"
exit "$failed"
