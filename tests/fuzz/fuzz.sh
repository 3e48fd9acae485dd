#!/bin/sh
# fuzz.sh BUILD_DIR SECONDS: runs every fuzz target in BUILD_DIR/bin for that long, one after the
# other, starting from its seeds and from what earlier runs found. Findings stay in
# BUILD_DIR/findings, and every run leaves a line in BUILD_DIR/executions.tsv.
set -eu
build=$1
seconds=$2
source=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$build/findings" "$build/log"
counts=$build/executions.tsv

# Everything that a run needs beside its corpus: a dictionary when the target has one.
options_of() {
    printf '%s ' -max_total_time="$seconds" -timeout=120 -rss_limit_mb=2560 -print_final_stats=1
    [ ! -e "$source/corpus/${1#fuzz_}.dict" ] || printf -- '-dict=%s' "$source/corpus/${1#fuzz_}.dict"
}

# note TARGET LOG: prints and keeps how many inputs were run.
note() {
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$2")
    printf '%s\t%s\t%s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" "${executed:-0}" >>"$counts"
    printf 'clean, %s inputs\n' "${executed:-0}"
}

failed=
for program in "$build"/bin/fuzz_*; do
    target=$(basename "$program")
    found=$build/corpus/$target
    log=$build/log/$target.log
    mkdir -p "$found"
    printf '%-14s ' "$target"
    # shellcheck disable=SC2046 # a list of words on purpose
    if "$program" $(options_of "$target") -artifact_prefix="$build/findings/$target-" \
        "$found" "$source/corpus/${target#fuzz_}" >"$log" 2>&1; then
        note "$target" "$log"
    else
        printf 'FAILED, log %s\n' "$log"
        tail -n 40 "$log" >&2
        failed="$failed $target"
    fi
done
awk -F '\t' '{ sum += $3 } END { printf "all runs of this folder: %.0f inputs\n", sum }' "$counts"
if [ -n "$failed" ]; then
    printf 'fuzz: failed:%s; the inputs are in %s/findings\n' "$failed" "$build" >&2
    exit 1
fi
