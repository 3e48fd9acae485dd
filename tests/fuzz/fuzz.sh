#!/bin/sh
# fuzz.sh BUILD_DIR SECONDS: runs every fuzz target for that long, starting from its seeds and from
# what earlier runs found. Findings stay in BUILD_DIR/findings.
set -eu
build=$1
seconds=$2
source=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$build/findings" "$build/log"

failed=
for program in "$source"/fuzz_*.c; do
    target=$(basename "$program" .c)
    found=$build/corpus/$target
    log=$build/log/$target.log
    mkdir -p "$found"
    printf '%-12s ' "$target"
    if "$build/bin/$target" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$target-" \
        "$found" "$source/corpus/${target#fuzz_}" >"$log" 2>&1; then
        sed -n 's/^stat::number_of_executed_units: *\(.*\)/clean, \1 inputs/p' "$log"
    else
        printf 'FAILED, log %s\n' "$log"
        tail -n 40 "$log" >&2
        failed="$failed $target"
    fi
done
if [ -n "$failed" ]; then
    printf 'fuzz: failed:%s; the inputs are in %s/findings\n' "$failed" "$build" >&2
    exit 1
fi
