#!/bin/sh
# lint.sh BUILD_DIR [FILE...]: clang-format, shellcheck, cppcheck and clang-tidy over everything, or
# clang-format and clang-tidy over the C files that are named. BUILD_DIR has compile_commands.json.
# What is left out, and why: .clang-tidy, tests/cppcheck.txt.
set -eu
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
failed=

# step NAME COMMAND...
step() {
    name=$1
    shift
    printf '%-14s ' "$name"
    if "$@" >"$build/lint-$name.log" 2>&1; then
        echo clean
    else
        echo "FAILED, $build/lint-$name.log:"
        grep -E 'error|warning|^In ' "$build/lint-$name.log" | head -n 20
        failed="$failed $name"
    fi
}

files() {
    git ls-files "$@"
}

tidy() {
    # Generated code is none of ours; what this build does not compile cannot be checked.
    sed -n 's/^ *"file": "\(.*\.c\)",*$/\1/p' "$build/compile_commands.json" | sort -u |
        grep -v '\.pb-c\.c$' | grep -E "$1" |
        xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet
}

check_c() {
    cppcheck --enable=warning,performance,portability --std=c11 --inline-suppr --quiet \
        --suppressions-list=tests/cppcheck.txt --error-exitcode=1 -I . -D_GNU_SOURCE \
        -DCOMMGEMM_RELEASE='""' '-DCGM_KERNEL_FILES(X)=' proto kernels daemon client tests
}

if [ $# -gt 0 ]; then
    step clang-format clang-format --dry-run -Werror "$@"
    step clang-tidy clang-tidy -p "$build" --quiet "$@"
else
    # shellcheck disable=SC2046 # lists of words on purpose
    step clang-format clang-format --dry-run -Werror $(files '*.c' '*.h' '*.cu' '*.cuh')
    # shellcheck disable=SC2046
    step shellcheck shellcheck $(files run .ci/run '*.sh')
    step cppcheck check_c
    step clang-tidy tidy .
fi
[ -z "$failed" ] || { printf 'lint: failed:%s\n' "$failed" >&2 && exit 1; }
