#!/bin/sh
# coverage.sh BUILD_DIR: runs the suite of a build that counts lines, and says how many lines of the
# broker, the executor and the library it reached; which ones it did not is in
# BUILD_DIR/not_reached.txt. Fails when a part has less than 90 % or a test fails. The CUDA backend
# is not in it: tests/gpu needs the device.
set -eu
build=$1
cd "$(dirname "$0")/.."

find "$build" -name '*.gcda' -exec rm -f {} +
failed=
# These let calls fail, files end or another user write, or take all memory, and the counting itself
# makes some calls, most of them at a process's end.
ctest --test-dir "$build" -E '^(fault\.failing|unit\.log_sink|unit\.loop_table|cli\.outputs)$' -j "$(nproc)" -Q -O "$build/coverage-tests.log" ||
    failed=" (tests failed, see $build/coverage-tests.log)"

# part NAME FOLDER: one line of the report, and the part's lines behind those of not_reached.txt.
part() {
    gcovr --root . --object-directory "$build" --filter "$2/" --exclude '.*/cuda/.*' \
        --gcov-ignore-parse-errors --txt "$build/coverage.txt" 2>"$build/coverage.log"
    sed -n '/^File/,/^TOTAL/p' "$build/coverage.txt" >>"$build/not_reached.txt"
    percent=$(sed -n 's/^TOTAL.* \([0-9]*\)%.*/\1/p' "$build/coverage.txt")
    printf '%-9s %-16s %s %% of %s lines\n' "$1" "$2" "$percent" \
        "$(sed -n 's/^TOTAL *\([0-9]*\) .*/\1/p' "$build/coverage.txt")"
    [ "$percent" -ge 90 ] || failed="$failed ($1: less than 90 %)"
}
: >"$build/not_reached.txt"
part broker daemon/broker
part executor daemon/executor
part library client/lib
[ -z "$failed" ] || { printf 'coverage: failed:%s\n' "$failed" >&2 && exit 1; }
