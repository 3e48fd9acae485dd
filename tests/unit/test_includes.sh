#!/bin/sh
# Every #include "..." points downwards, as CONTRIBUTING.md says.
set -eu
cd "$(dirname "$0")/../.."

# Folder, and an extended regular expression of the project's headers that its files may include.
# The first folder that a file lies in counts.
rules='
proto/                  ^proto/
kernels/                ^kernels/
daemon/broker/          ^(proto|daemon/broker)/
daemon/executor/algo/   ^(proto/(ring|types|status)\.h|daemon/executor/(backend|operation|algorithm)\.h|daemon/executor/algo/)
daemon/executor/host/   ^(proto|daemon/executor/host)/|^daemon/executor/backend\.h
daemon/executor/cpu/    ^(proto|kernels|daemon/executor/(cpu|host))/|^daemon/executor/(backend|flagged_gemm)\.h
daemon/executor/cuda/   ^(proto|kernels|daemon/executor/(cuda|host))/|^daemon/executor/(backend|flagged_gemm)\.h
daemon/man/             ^(proto/(status|types)|daemon/broker/config|daemon/executor/algorithm)\.h|^daemon/man/
daemon/executor/        ^(proto/|kernels/|daemon/executor/[^/]*$)
client/include/         ^$
client/lib/             ^(commgemm\.h$|proto/|client/(include|lib)/)
client/common/          ^(commgemm\.h$|proto/|kernels/|client/(include|common)/)
client/ctl/             ^(commgemm\.h$|proto/|kernels/|client/(include|common|ctl)/)
client/bench/           ^(commgemm\.h$|proto/|kernels/|client/(include|common|bench)/)
client/examples/        ^(commgemm\.h$|kernels/|client/(common|examples)/)
'
# What protoc-c generates, found by an include directory of its own.
everywhere='^commgemm\.pb-c\.h$'

rule_of() {
    printf '%s\n' "$rules" | while read -r folder allowed; do
        case "$folder" in
        "") ;;
        *) case "$1" in "$folder"*) printf '%s\n' "$allowed" && break ;; esac ;;
        esac
    done
}

check_file() {
    allowed=$(rule_of "$1")
    [ -n "$allowed" ] || { printf '%s: no rule for its folder\n' "$1" && return; }
    sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$1" |
        grep -Ev "$everywhere" | grep -Ev "$allowed" |
        sed "s|^|$1 includes |" || true
}

wrong=$(find proto kernels daemon client -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort |
    while read -r file; do check_file "$file"; done)
if [ -n "$wrong" ]; then
    printf '%s\n' "$wrong" >&2
    exit 1
fi
