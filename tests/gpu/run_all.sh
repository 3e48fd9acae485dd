#!/bin/sh
# shellcheck disable=SC2086 # lists of words on purpose
# run_all.sh BUILD OUT [PART...]: every check that needs GPUs, or some parts (lanes, together, products,
# leaks, recovery, attack, conformance, and opening, which is none of all), from the source folder,
# with the executables of BUILD. One line a check on standard output, each one's own output in OUT.
# The lanes have what needs one GPU, on several of them at a time. Exit status 77 where there is no
# GPU, 1 when a check failed.
set -u
build=$1
out=$2
shift 2
parts=${*:-lanes together products leaks recovery attack conformance}
bin=$build/bin
mkdir -p "$out"
verdicts=$out/verdicts
: >"$verdicts"
daemon=

if ! [ -e /dev/nvidiactl ]; then
    echo "skipped: this machine has no NVIDIA GPU (/dev/nvidiactl)"
    exit 77
fi
gpus=$(nvidia-smi -L | wc -l)
export NCCL_NVLS_ENABLE=0

stop_daemon() {
    [ -n "$daemon" ] || return 0
    kill "$daemon" 2>/dev/null
    wait "$daemon" 2>/dev/null
    daemon=
}
trap stop_daemon EXIT

# check NAME SECONDS COMMAND...: exit status 77 means that the check does not concern this machine.
check() {
    name=$1 limit=$2
    shift 2
    begin=$(date +%s)
    timeout -k 10 "$limit" "$@" >"$out/$name.log" 2>&1
    status=$?
    case $status in
    0) verdict=ok ;;
    77) verdict=skipped ;;
    124 | 137) verdict="FAILED (not done after $limit s)" ;;
    *) verdict="FAILED ($status)" ;;
    esac
    {
        printf '%-40s %s, %s s\n' "$name" "$verdict" "$(($(date +%s) - begin))"
        [ "${verdict%% *}" != FAILED ] || tail -n 5 "$out/$name.log" | sed 's/^/    /'
    } | tee -a "$verdicts"
}

# Two of the lanes at a time where there are two GPUs; each lane has one GPU to itself.
lane_of_backend() {
    check one-backend 200 "$bin/test_gpu_backend"
    check one-imports 60 "$bin/test_gpu_imports"
    check one-epilogue 120 "$bin/test_gpu_epilogue"
    check one-int8 120 "$bin/test_gpu_int8"
    check one-flagged 120 "$bin/test_gpu_flagged"
    check one-kernels 60 "$bin/test_gpu_kernels"
    check one-lives 60 "$bin/test_gpu_lives"
    check one-queues 60 "$bin/test_gpu_queues"
    check one-holds 60 "$bin/test_gpu_holds"
    check one-products 200 "$bin/test_gpu_products"
    check one-executor 240 "$bin/test_gpu_executor"
    check one-numbers 240 "$bin/test_gpu_numbers"
    check one-entries 60 "$bin/test_gpu_entries"
    check one-contents 120 "$bin/test_gpu_contents"
    check one-line 120 "$bin/test_gpu_line"
}

lane_of_clients() {
    check one-copy_in 120 "$bin/test_gpu_copy_in"
    check one-priorities 60 "$bin/test_gpu_priorities"
    check one-refusals 120 "$bin/test_gpu_refusals"
    check one-stream 120 "$bin/test_gpu_stream"
    check one-recordings 120 env CGM_TEST_BACKEND=cuda CGM_TEST_DEVICES=1 "$bin/test_recordings"
    check one-addresses 60 "$bin/test_gpu_addresses"
}

# sanitize TOOL NAME FILTER. That calls fail is part of the tests.
sanitize() {
    case $1 in memcheck) quiet="--report-api-errors no" ;; *) quiet= ;; esac
    check "$1-$2-$(echo "$3" | tr -dc 'a-z_')" 200 compute-sanitizer --tool "$1" $quiet \
        --error-exitcode 3 --target-processes application-only "$bin/test_gpu_$2" "$3"
}

lane_of_sanitizers() {
    if ! command -v compute-sanitizer >/dev/null; then
        echo "compute-sanitizer is not here: no memcheck, no racecheck" | tee -a "$verdicts"
        return
    fi
    for tool in memcheck racecheck; do
        sanitize "$tool" kernels '*'
        sanitize "$tool" epilogue 'test_epilogues*'
    done
    sanitize memcheck copy 'test_every*'
    sanitize memcheck flagged 'test_repeats'
    sanitize memcheck backend 'test_memory*'
    sanitize memcheck backend 'test_exported*'
}

lanes() {
    for lane in backend clients sanitizers; do
        at=$(((${at:--1} + 1) % gpus))
        if [ "$gpus" -gt 1 ]; then
            (CUDA_VISIBLE_DEVICES=$at && export CUDA_VISIBLE_DEVICES && "lane_of_$lane") &
            running="${running:-} $!"
            [ $((at + 1)) -lt "$gpus" ] || { wait $running && running=; }
        else
            "lane_of_$lane"
        fi
    done
    wait ${running:-}
}

# Random inputs, every element against float64, through library, daemon and executor.
bench() {
    check "$1" 120 "$bin/commgemm-bench" --socket "$COMMGEMM_SOCKET" --validate --op "$2" \
        --world "$3" --datatype "$4" -m 512 -n 776 -k 640 --method "$5" $6
}

start_daemon() {
    COMMGEMM_SOCKET=$(mktemp -u)
    export COMMGEMM_SOCKET
    "$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set backend=cuda --set log_level=debug \
        >"$out/daemon.log" 2>&1 &
    daemon=$!
    tries=600
    until "$bin/commgemmctl" buffers create probe --bytes 4K >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
    "$bin/commgemmctl" buffers destroy probe
}

products() {
    start_daemon || {
        check daemon 10 tail -n 20 "$out/daemon.log"
        echo "daemon FAILED: it does not serve" | tee -a "$verdicts"
        return
    }
    for world in 1 2 4; do
        for type in fp32 fp16 bf16; do
            bench "ag_gemm-$world-$type" ag_gemm "$world" "$type" ring_exchange \
                "--bias --aux --transb"
            bench "gemm_rs-$world-$type" gemm_rs "$world" "$type" ring_exchange "--bias --transa"
        done
        for op in ag rs ar gemm gemm_ar; do
            bench "$op-$world" "$op" "$world" bf16 none ""
        done
        bench "ag_gemm-$world-by-kernel" ag_gemm "$world" bf16 ring_exchange "--no-ce"
        bench "gemm_rs-$world-by-kernel" gemm_rs "$world" bf16 ring_exchange \
            "--no-ce --num-comm-sm 4 --set-sm-margin --gemm-priority -1 --comm-priority -4"
    done
    stop_daemon
}

# What the lanes ran on one GPU each, once more on all of them.
together() {
    check copy 120 "$bin/test_gpu_copy"
    [ "$gpus" -gt 1 ] || return 0
    check backend 300 "$bin/test_gpu_backend"
    check imports 60 "$bin/test_gpu_imports"
    check group 120 "$bin/test_gpu_group"
    check executor 240 "$bin/test_gpu_executor"
    check numbers 240 "$bin/test_gpu_numbers"
    check contents 120 "$bin/test_gpu_contents"
    check line 120 "$bin/test_gpu_line"
    check copy_in 120 "$bin/test_gpu_copy_in"
    check priorities 60 "$bin/test_gpu_priorities"
    check lives 120 "$bin/test_gpu_lives"
    check refusals 120 "$bin/test_gpu_refusals"
    check stream 120 "$bin/test_gpu_stream"
    check recordings 120 env CGM_TEST_BACKEND=cuda CGM_TEST_DEVICES="$gpus" "$bin/test_recordings"
    check addresses 60 "$bin/test_gpu_addresses"
}

leaks() {
    check leaks 150 sh tests/gpu/leaks.sh "$bin" 1000
}

# On one GPU, and on all; $RECOVERY_DEVICES may say other numbers of GPUs.
recovery() {
    check mps-of-another-uid 120 sh tests/gpu/mps_uid.sh "$bin"
    some=1
    [ "$gpus" -eq 1 ] || some="1 $gpus"
    for devices in ${RECOVERY_DEVICES:-$some}; do
        for mode in no-mps mps; do
            name=recovery-$mode-$devices
            check "$name" 240 env CUDA_VISIBLE_DEVICES="$(seq -s , 0 $((devices - 1)))" \
                sh tests/gpu/recovery.sh "$bin" "$mode" "$devices" "$out/$name"
        done
    done
}

# What each part of it did is shown.
attack() {
    check attack 300 sh tests/gpu/attack.sh "$bin" "$out/attack"
    sed 's/^/    /' "$out/attack.log"
}

# And that nothing is loaded behind a stream that waits, where kernels are loaded on demand.
opening() {
    check opening 120 sh tests/gpu/opening.sh "$bin" "$out/opening"
    sed 's/^/    /' "$out/opening.log"
    for test in products queues lives kernels; do
        check "lazy-$test" 200 env CUDA_MODULE_LOADING=LAZY CUDA_VISIBLE_DEVICES=0 \
            "$bin/test_gpu_$test"
    done
    check lazy-stream 120 env CUDA_MODULE_LOADING=LAZY "$bin/test_gpu_stream"
}

conformance() {
    check conformance 300 env CGM_TEST_THIN="${CGM_TEST_THIN:-8}" "$bin/test_gpu_conformance"
}

echo "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort -u)"
for part in $parts; do
    case $part in
    lanes | together | products | leaks | recovery | attack | conformance | opening) "$part" ;;
    *) echo "run_all.sh: no such part: $part" >&2 && exit 2 ;;
    esac
done

failed=$(grep -c '^[^ ].* FAILED' "$verdicts")
echo "$(grep -c '^[^ ].* ok, ' "$verdicts") checks passed, $failed failed; logs are in $out"
[ "$failed" -eq 0 ]
