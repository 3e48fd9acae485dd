#!/bin/sh
# run_all.sh BUILD OUT: every check that needs GPUs, from the source folder, with the executables of
# BUILD. One line a check on standard output, each one's own output in OUT. Exit status 77 where there
# is no GPU, 1 when a check failed.
set -u
build=$1
out=$2
bin=$build/bin
mkdir -p "$out"
failed=0
passed=0

if ! [ -e /dev/nvidiactl ]; then
    echo "skipped: this machine has no NVIDIA GPU (/dev/nvidiactl)"
    exit 77
fi
gpus=$(nvidia-smi -L | wc -l)
export NCCL_NVLS_ENABLE=0

# check NAME SECONDS COMMAND...
check() {
    name=$1 limit=$2
    shift 2
    begin=$(date +%s)
    if timeout -k 10 "$limit" "$@" >"$out/$name.log" 2>&1; then
        passed=$((passed + 1))
        verdict=ok
    else
        verdict="FAILED ($?)"
        failed=$((failed + 1))
        tail -n 5 "$out/$name.log" | sed 's/^/    /'
    fi
    printf '%-40s %s, %s s\n' "$name" "$verdict" "$(($(date +%s) - begin))"
}

# Random inputs, every element against float64, through daemon, executor and library.
products() {
    for world in 1 2 4; do
        for type in fp32 fp16 bf16; do
            check "ag_gemm-$world-$type" 120 "$bin/commgemm-bench" --private=cuda --validate \
                --op ag_gemm --method ring_exchange --world "$world" -m 512 -n 768 -k 640 \
                --datatype "$type" --bias --aux --transb
            check "gemm_rs-$world-$type" 120 "$bin/commgemm-bench" --private=cuda --validate \
                --op gemm_rs --method ring_exchange --world "$world" -m 512 -n 776 -k 640 \
                --datatype "$type" --bias --transa
        done
        for op in ag rs ar gemm gemm_ar; do
            check "$op-$world" 120 "$bin/commgemm-bench" --private=cuda --validate --op "$op" \
                --method none --world "$world" -m 512 -n 776 -k 640 --datatype bf16
        done
    done
}

echo "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort -u)"
check backend 300 "$bin/test_gpu_backend"
check epilogue 120 "$bin/test_gpu_epilogue"
check executor 120 "$bin/test_gpu_executor"
check copy_in 120 "$bin/test_gpu_copy_in"
[ ! -x "$bin/test_gpu_stream" ] || check stream 120 "$bin/test_gpu_stream"
products
check recovery 200 sh tests/gpu/recovery.sh "$bin" no-mps
check recovery-mps 200 sh tests/gpu/recovery.sh "$bin" mps
check leaks 200 sh tests/gpu/leaks.sh "$bin" 1000
check conformance 550 "$bin/test_gpu_conformance"

echo "$passed checks passed, $failed failed; logs are in $out"
[ "$failed" -eq 0 ]
