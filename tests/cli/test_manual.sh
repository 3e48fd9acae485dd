#!/bin/sh
# Every test that commgemm(7) names exists, and so does the function in it; the page says what the
# tables say.
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
failed=0

missing() {
    printf 'commgemm(7) names %s: %s\n' "$1" "$2" >&2
    failed=1
}

file_of() {
    area=${1%%.*} name=${1#*.}
    for file in "tests/$area/test_$name.c" "tests/$area/test_$name.sh" "tests/$area/${area}_$name.c"; do
        [ ! -f "$source/$file" ] || { printf '%s\n' "$source/$file" && return; }
    done
}

check() {
    case $1 in
    tests/*) [ -f "$source/$1" ] || missing "$1" "there is no such file" ;;
    *:*)
        file=$(file_of "${1%%:*}")
        grep -qw "${1##*:}" "${file:-/dev/null}" || missing "$1" "there is no such test"
        ;;
    *)
        [ -n "$(file_of "$1")" ] || missing "$1" "there is no such file"
        printf '%s\n' "$known" | grep -q ": $1\$" || missing "$1" "ctest does not know it"
        ;;
    esac
}

known=$(ctest --test-dir "$build" -N)
named=$("$build/daemon/man/cgm_manual_tables" tests)
[ -n "$named" ] || missing nothing "it should name tests"
for test in $named; do
    check "$test"
done

page=$build/daemon/man/commgemm.7
for text in 'Sh THREAT MODEL' 'Sh WHAT HAPPENS WHEN' PEER_LOST 'Buffer size is incorrect' \
    'Invalid collective type' 'Missing inverse scaling factor' 'Poor performance'; do
    grep -q "$text" "$page" || missing "$text" "it is not in $page"
done
! grep -n '^@' "$page" || missing "a table" "it was not filled in"
exit "$failed"
