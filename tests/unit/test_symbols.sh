#!/bin/sh
# The functions of the public header, the symbol map, the shared library's exports and the manual's
# names are the same, and the header compiles as C11 and C++11 without a warning.
set -eu
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
header=$root/client/include/commgemm.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "$1" >&2
    exit 1
}

# Names before a parenthesis; static inline functions are not exported.
${CC:-cc} -E -P -x c "$header" | grep -v '^static inline' |
    grep -oE '\bcommgemm_[a-z0-9_]+\(' | tr -d '(' | sort -u > "$work/header"
[ "$(wc -l < "$work/header")" -gt 40 ] || fail "found too few functions in $header"

grep -oE 'commgemm_[a-z0-9_]+' "$root/client/lib/libcommgemm-client.map" | sort -u > "$work/map"
diff "$work/header" "$work/map" || fail "header (<) and symbol map (>) differ"

grep -oE 'commgemm_[a-z0-9_]+' "$root/client/man/libcommgemm.3.in" | sort -u > "$work/manual"
missing=$(comm -23 "$work/header" "$work/manual")
[ -z "$missing" ] || fail "libcommgemm(3) does not mention: $missing"

if [ -e "$build/lib/libcommgemm-client.so" ]; then
    nm -D --defined-only "$build/lib/libcommgemm-client.so" | awk '$2 == "T" { print $3 }' |
        sed 's/@.*//' | sort -u > "$work/exports"
    diff "$work/header" "$work/exports" || fail "header (<) and exports (>) differ"
    ! readelf -d "$build/lib/libcommgemm-client.so" | grep -E 'NEEDED.*(cuda|cublas|nccl)' ||
        fail "the library needs a CUDA library"
fi

${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c "$header"
if command -v "${CXX:-c++}" > /dev/null; then
    ${CXX:-c++} -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
        -I "$root/client/include" "$root/client/examples/header_in_cxx.cc"
fi
