#!/bin/sh
# Every row of `commgemmctl algorithms` with every operation that it lists: timed and checked by
# commgemm-bench, one sweep for each kind of plan; where one is refused, it says why.
set -eu
build=$1
work=$(mktemp -d)
daemon=
stop() {
    [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon"; } || :
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM HUP
export TMPDIR="$work" COMMGEMM_SOCKET="$work/commgemmd.sock"

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

"$build/bin/commgemmd" --config /dev/null --socket "$COMMGEMM_SOCKET" --set backend=cpu \
    2>"$work/daemon.log" &
daemon=$!
tries=0
until "$build/bin/commgemmctl" algorithms --json >"$work/algorithms.json" 2>/dev/null &&
    grep -q no_overlap "$work/algorithms.json"; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || fail "no daemon: $(cat "$work/daemon.log")"
    sleep 0.1
done

"$build/bin/commgemmctl" algorithms >"$work/algorithms.txt"
awk 'length > 100 { exit 1 }' "$work/algorithms.txt" || fail "wide: $(cat "$work/algorithms.txt")"
grep -q 'parameters: num_splits, ' "$work/algorithms.txt" || fail "$(cat "$work/algorithms.txt")"

# "algorithm op" on each line.
tr '{' '\n' <"$work/algorithms.json" |
    sed -n 's/.*"name":"\([a-z0-9_]*\)","ops":"\([^"]*\)".*/\1 \2/p' | tr -d ',' |
    while read -r name ops; do
        for op in $ops; do echo "$name $op"; done
    done | sort >"$work/listed"
[ "$(wc -l <"$work/listed")" -ge 28 ] || fail "few algorithms: $(cat "$work/listed")"

# sweep NAME OPS OPTION...: each operation once, every algorithm in turn, each result checked.
sweep() {
    name=$1 ops=$2
    shift 2
    for op in $ops; do echo "$op 96 64 80 name=$name"; done >"$work/$name.shapes"
    "$build/bin/commgemm-bench" --shapes "$work/$name.shapes" --compare --validate --iters 2 \
        --warmup 0 --csv "$work/$name.csv" "$@" >"$work/$name.log" 2>&1 ||
        fail "$name: $(cat "$work/$name.log")"
}

# ran NAME: "algorithm op" of what was timed and is right.
ran() {
    awk -F, 'NR > 1 && $11 != "" && $12 > 0 && $20 != "" && $20 <= 1 { print $11, $2 }' \
        "$work/$1.csv" | sort -u
}

# all_of NAME OPS: whatever is listed for these operations ran.
all_of() {
    for op in $2; do grep " $op\$" "$work/listed"; done | sort >"$work/wanted"
    ran "$1" >"$work/ran"
    comm -23 "$work/wanted" "$work/ran" >"$work/missing"
    [ ! -s "$work/missing" ] || fail "$1: not timed or not checked: $(cat "$work/missing")
$(cat "$work/$1.log")"
}

products="gemm ag_gemm gemm_rs gemm_ar gemm_as"
moves="ag rs ar a2av"
bulk="bulk_ag bulk_rs"

sweep plain "$products $bulk $moves" --world 4
all_of plain "$products $bulk $moves"
sweep transposed "$products $bulk" --world 2 --datatype bf16 --transa --transb --bias
all_of transposed "$products $bulk"
sweep gelu "$products" --world 4 --datatype fp16 --transb --bias --gelu
all_of gelu "$products"
sweep added "gemm ag_gemm gemm_rs $bulk" --world 2 --transa --accumulate
all_of added "gemm ag_gemm gemm_rs $bulk"
sweep integers "gemm ag_gemm gemm_rs gemm_ar" --world 2 --datatype int8
all_of integers "gemm ag_gemm gemm_rs gemm_ar"
sweep exchange "a2av" --world 3 --datatype bf16
all_of exchange "a2av"

# An algorithm that cannot do what is asked for is left out with its reason, not the run.
sweep strips "gemm_rs" --world 2 --num-splits 3 --method pipeline
grep -q '^split_pipelined_rs_p2p: refused: .*num_splits' "$work/strips.log" ||
    fail "no reason: $(cat "$work/strips.log")"
ran strips | grep -q '^split_pipelined_rs gemm_rs$' || fail "$(cat "$work/strips.log")"
