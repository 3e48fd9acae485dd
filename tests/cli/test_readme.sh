#!/bin/sh
# The README says what is true: its program is the example that is built, its table has every
# configuration key with its default.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2016 # the marks of a code block
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '1d;$d' >"$work/program.c"
diff -u "$source/client/examples/hello_gemm.c" "$work/program.c"

"$build/bin/commgemmd" --print-config >"$work/printed.conf"
# shellcheck disable=SC2016 # the marks of code, here and below
sed -n 's/^#\([a-z_]*\) =$/| `\1` | |/p; s/^#\([a-z_]*\) = \(.*\)/| `\1` | \2 |/p' \
    "$work/printed.conf" | sort >"$work/keys"
# shellcheck disable=SC2016
sed -n 's/^\(| `[a-z_]*` | [^|]*|\).*/\1/p' "$source/README.md" | sort >"$work/table"
[ -s "$work/keys" ]
comm -23 "$work/keys" "$work/table" >"$work/missing"
if [ -s "$work/missing" ]; then
    printf 'the README has no such rows:\n' >&2
    cat "$work/missing" >&2
    exit 1
fi
