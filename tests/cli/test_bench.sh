#!/bin/sh
# commgemm-bench with daemons of its own: checks, times, files, refusals, and what is left behind when
# it is ended.
set -eu
build=$1
bench=$build/bin/commgemm-bench

work=$(mktemp -d)
running=
stop() {
    [ -z "$running" ] || kill -KILL "$running" 2>/dev/null || :
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM HUP
export TMPDIR="$work"

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# expect STATUS WORDS ARGUMENT...: the exit status, and the words on either output.
expect() {
    expected=$1 words=$2
    shift 2
    status=0
    "$bench" "$@" >"$work/output" 2>&1 || status=$?
    [ "$status" -eq "$expected" ] ||
        fail "$*: exit status $status, expected $expected: $(cat "$work/output")"
    grep -qF -- "$words" "$work/output" || fail "$*: lacks '$words': $(cat "$work/output")"
}

# has KEY...: in the last JSON report.
has() {
    for key in "$@"; do
        grep -q "\"$key\":" "$work/report.json" || fail "no $key in $(cat "$work/report.json")"
    done
}

# is KEY VALUE
is() {
    grep -q "\"$1\": $2,\{0,1\}\$" "$work/report.json" ||
        fail "$1 is not $2 in $(cat "$work/report.json")"
}

# Nothing of a private daemon is left: no folder, no process that has its socket in its command line.
expect_nothing_left() {
    tries=0
    while [ -n "$(find "$work" -mindepth 1 -maxdepth 1 -name 'commgemm-bench.*')" ] ||
        grep -lsa "$work/commgemm-bench" /proc/[0-9]*/cmdline >/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "left behind: $(ls "$work") $(grep -lsa "$work" /proc/[0-9]*/cmdline)"
        sleep 0.1
    done
}

"$bench" --help | sed -n 's/^.*--\([a-z][a-z-]*\).*/\1/p' | while read -r option; do
    "$bench" --manual | sed 's/\\-/-/g' | grep -q -- "--$option" || fail "--$option is not in the manual"
done
if command -v mandoc >/dev/null; then
    "$bench" --manual | mandoc -T lint -W warning || fail "mandoc complains"
fi

expect 1 "$work/no/such/file.json" --private=cpu --output-file "$work/no/such/file.json"
expect 1 "$work/no/such/file.svg" --private=cpu --timeline "$work/no/such/file.svg"
expect 3 "$work/nothing.sock" --socket "$work/nothing.sock" --op gemm
expect 2 "fp8" --datatype fp8
expect 2 "there is no key 'devises'" --private=cpu --op noop --set devises=3
expect 2 "devices is 'x'" --private=cpu --op noop --set devices=x
expect_nothing_left

small="--private=cpu -m 96 -n 64 -k 80"
# shellcheck disable=SC2086 # lists of words on purpose
check() {
    expect 0 "success" $small --validate --output-file "$work/report.json" "$@"
    is success true
    is validated true
}
for datatype in fp32 fp16 bf16; do
    check --op ag_gemm --method ring_exchange --world 4 --datatype "$datatype" --bias --aux
    check --op gemm_rs --method ring_exchange --world 2 --datatype "$datatype" --transa --transb
done
is algorithm '"split_pipelined_rs_p2p"'
check --op gemm --method none --world 1 --accumulate
check --op ag_gemm --world 2 --rows 48 --one-process
check --op gemm_rs --world 2 --import --bias
check --op ag_gemm --world 2 --no-ring
check --op ag_gemm --world 4 --aggregate-ag --algorithm split_pipelined_ag_p2p
check --op ag --world 4
check --op rs --world 4
check --op ar --world 4
check --op ar --world 3 --method ring_exchange --datatype bf16
check --op ar --world 2 --algorithm one_shot_ar
check --op gemm_rs --world 4 --method pipeline --num-splits 3 --rs-overlap-first-gemm --bias
is algorithm '"split_pipelined_rs"'
check --op gemm_ar --world 4 --method pipeline --num-splits 5 --bias
check --op gemm_ar --world 4 --method ring_exchange --transb --datatype fp16
check --op gemm_as --world 4 --bias --transa
check --op gemm_as --world 2 --method pipeline --num-splits 7 --datatype bf16
is algorithm '"split_as"'
check --op bulk_ag --world 4 --method bulk --buffer-shape 36x17 --accumulate
check --op bulk_rs --world 4 --method bulk --datatype bf16 --buffer-dtype fp32 --transa
is algorithm '"bulk_overlap_rs"'
check --op a2av --world 4
check --op a2av --world 3 --datatype fp16
is max_error_ratio '[0-9.e+-]*'
for op in gemm ag_gemm gemm_rs gemm_ar gemm_as; do
    check --op "$op" --world 2 --gelu --bias --datatype bf16
    check --op "$op" --world 3 -m 99 -n 66 -k 81 --gelu --grad --bias
done
check --op gemm --world 2 --grad --bias --transa --accumulate
check --op bulk_rs --world 2 --grad --bias --method bulk
for op in gemm ag_gemm gemm_rs gemm_ar; do
    check --op "$op" --world 2 --datatype int8
    is max_error_ratio '0\(\.0\)*'
done
check --op ag --world 2 --datatype int8
check --op rs --world 2 --datatype int32

# shellcheck disable=SC2086
expect 0 "no_overlap" $small --op ag_gemm --method ring_exchange --world 2 --benchmark --iters 5 \
    --warmup 1 --output-file "$work/report.json" --timeline "$work/job.svg" --debug
has backend op method algorithm reason world_size m n k datatype success max_error_ratio ms ms_min \
    ms_max ms_p99 gemm_ms comm_ms serial_ms tflops num_splits aggregate_ag use_ce seed bias
is backend '"cpu"'
is op '"ag_gemm"'
is method '"ring_exchange"'
is world_size 2
is iters 5
is floor_ms null
is floor_fraction null
is overlap_efficiency null
has machine cpu processors gpus command date
is gpus null
grep -q '"command": "commgemm-bench --private=cpu -m 96 ' "$work/report.json" ||
    fail "no command line in $(cat "$work/report.json")"
grep -q '>commgemm-bench --private=cpu -m 96 .* --debug</text>' "$work/job.svg" ||
    fail "no command line in the picture"
grep -q ' processors</text>' "$work/job.svg" || fail "no machine in the picture"
grep -q 'device 1 compute' "$work/job.svg" || fail "no row for device 1 in the timeline"
grep -q '</svg>' "$work/job.svg" || fail "the timeline is cut off"
# shellcheck disable=SC2086
expect 0 "OpenBLAS" $small --op gemm --world 1 --iters 3 --output-file "$work/report.json"
has openblas_ms

# Rows that no rank number divides, where columns are what is divided.
# shellcheck disable=SC2086
expect 0 "collective alone" $small --op gemm_as --world 2 --rows 33 --benchmark --iters 2

# Comparisons: each algorithm beside the floor; sweeps go on behind a shape that is refused.
# shellcheck disable=SC2086
expect 0 "speedup: over no_overlap" $small --op gemm_ar --world 2 --compare --validate --iters 3 \
    --warmup 0 --csv "$work/compare.csv" --plot "$work/compare.svg" --output-file "$work/report.json"
has variants floor_fraction link_gb_per_s speedup communication_ms local_k global_k
is local_k 40
is global_k 80
is world_size 2
is validated true
for variant in auto no_overlap "gemm alone" "collective alone" one_shot_ar two_shot_ar fused_ar; do
    grep -q "\"variant\": \"$variant\"" "$work/report.json" || fail "$variant is not compared"
    grep -q ",$variant," "$work/compare.csv" || fail "$variant is not in the CSV"
done
grep -q '<title>two_shot_ar, gemm_ar-96-64-80: ' "$work/compare.svg" || fail "no bar of two_shot_ar"
# shellcheck disable=SC2086
"$bench" $small --op gemm --world 1 --compare --iters 1 --json >"$work/report.json" 2>"$work/output"
is op '"gemm"'
grep -q MILLISECONDS "$work/output" || fail "the table is not on standard error"
printf 'ag_gemm 96 64 80 bf16 NT name=first\ngemm_rs 97 64 80 name=odd,"one # \nar 32 64 0 fp16\n' \
    >"$work/some.shapes"
expect 2 'odd,"one: plan of job gemm_rs: ' --private=cpu --world 2 --shapes "$work/some.shapes" --iters 2 \
    --csv "$work/sweep.csv" --plot "$work/sweep.svg" --output-file "$work/report.json"
grep -q '^first .*FLOOR' "$work/output" && fail "the table is mixed up"
grep -Eq '^ar-32-64-0 +ar +32 +64 +0 +fp16 NN ' "$work/output" || fail "$(cat "$work/output")"
grep -q '^"odd,""one",gemm_rs,97,64,80,fp32,NN,2,cpu,,,,.*"plan of job gemm_rs: ' "$work/sweep.csv" ||
    fail "$(cat "$work/sweep.csv")"
has rows error link_gb_per_s
# A pipe is opened once, and what was there stays when a run fails to write.
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/piped" &
expect 0 '' --private=cpu --op ag --world 2 -m 8 -n 8 --iters 1 --warmup 0 --output-file "$work/pipe"
wait $!
grep -q '"op": "ag"' "$work/piped" || fail "the pipe's reader has $(cat "$work/piped")"
cp "$work/report.json" "$work/kept.json"
(ulimit -f 0 && "$bench" --private=cpu --op ag --world 2 -m 8 -n 8 --iters 1 --warmup 0 \
    --output-file "$work/report.json" >/dev/null 2>&1) && fail "a report without room ends well"
cmp "$work/report.json" "$work/kept.json" || fail "a report that failed took the old one"
expect 2 'missing.npy' --private=cpu --op gemm --lhs "$work/missing.npy"
is success false
grep -q '"name": "ar-32-64-0"' "$work/report.json" || fail "no name in $(cat "$work/report.json")"
grep -q ' processors</text>' "$work/sweep.svg" || fail "no machine in the picture"
has machine command date
grep -q '</svg>' "$work/sweep.svg" || fail "the picture is cut off"
echo "ag_gemm 8 8 eight" >>"$work/some.shapes"
expect 2 "some.shapes:4: k 'eight': it must be 1 to 16777216" --private=cpu \
    --shapes "$work/some.shapes"
expect 1 "$work/no/such.csv" --private=cpu --compare --csv "$work/no/such.csv"
expect 1 "$work/no/such.svg" --private=cpu --compare --plot "$work/no/such.svg"
expect_nothing_left

# shellcheck disable=SC2086
refuse() {
    words=$1
    shift
    status=0
    "$bench" $small "$@" >"$work/output" 2>&1 || status=$?
    [ "$status" -ne 0 ] || fail "$*: was accepted"
    grep -qF -- "$words" "$work/output" || fail "$*: lacks '$words': $(cat "$work/output")"
}
refuse pipeline --op ag_gemm --method pipeline
refuse 97 --op ag_gemm -m 97 --world 2
refuse ring_exchange --op ag_gemm --method ring_exchange --algorithm no_overlap
refuse 'use bulk' --op bulk_ag --method pipeline
refuse 'buffer_shape has 37 rows' --op bulk_ag --world 4 --buffer-shape 37x5
refuse 'counts add up to 96; m is 97' --op a2av --world 4 -m 97
refuse 'num_splits' --op gemm_rs --world 2 --method ring_exchange --num-splits 3
refuse 'use split_pipelined_rs' --op gemm_rs --world 2 --method none --rs-overlap-first-gemm
refuse "rs takes" --op rs --datatype int8
refuse "grad is set alone" --op gemm --grad
refuse "sums lhs" --op gemm_rs --grad --bias
refuse "does not go with accumulate" --op gemm --gelu --accumulate
expect_nothing_left

expect 0 "million jobs" --private=cpu --op noop --iters 200 --output-file "$work/report.json"
has backend op roundtrip_us_p50 roundtrip_us_p99 jobs_per_s socket_us_p50 raw_poll_us_p50
has reason world_size max_error_ratio ms ms_p99 tflops overlap_efficiency

# ended SIGNAL WHOM: in the middle of a long run.
ended() {
    "$bench" --private=cpu --op ag_gemm --world 2 -m 512 -n 512 -k 512 --iters 1000000 \
        >"$work/output" 2>&1 &
    running=$!
    tries=0
    until [ "$(pgrep -P "$running" -c commgemm-bench)" -eq 2 ] && sleep 0.5; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "no clients: $(cat "$work/output")"
        sleep 0.1
    done
    case $2 in
    worker) kill "-$1" "$(pgrep -P "$running" -n commgemm-bench)" ;;
    *) kill "-$1" "$running" ;;
    esac
    status=0
    wait "$running" || status=$?
    running=
    [ "$status" -ne 0 ] || fail "$1 to the $2: exit status 0"
    expect_nothing_left_of_run
}
expect_nothing_left_of_run() {
    # A parent that was killed cannot remove its folder; its processes end all the same.
    tries=0
    while grep -lsa "$work/commgemm-bench" /proc/[0-9]*/cmdline >/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "still running: $(grep -lsa "$work" /proc/[0-9]*/cmdline)"
        sleep 0.1
    done
}
if command -v pgrep >/dev/null; then
    ended TERM parent
    ended INT parent
    expect_nothing_left
    ended KILL worker
    grep -q "signal 9" "$work/output" || fail "the killed client is not named: $(cat "$work/output")"
    expect_nothing_left
    ended STOP worker
    grep -q "stopped by a signal" "$work/output" ||
        fail "the stopped client is not named: $(cat "$work/output")"
    expect_nothing_left
    ended KILL parent
fi
