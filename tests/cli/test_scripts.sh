#!/bin/sh
# Every script is POSIX shell and passes shellcheck; ./run refuses what it does not know.
set -eu
cd "$(dirname "$0")/../.."

scripts="run .ci/run $(find client tests -name '*.sh' | sort)"
for script in $scripts; do
    sh -n "$script"
done

refused() {
    status=0
    ./run "$@" >/dev/null 2>&1 || status=$?
    [ "$status" -eq "$want" ] || { printf './run %s ended with %s\n' "$*" "$status" >&2 && exit 1; }
}
want=2
refused
refused no-such-command
refused build now
want=1
refused peers
refused fuzz soon
./run help >/dev/null

command -v shellcheck >/dev/null || exit 77
# shellcheck disable=SC2086 # a list of words on purpose
shellcheck $scripts
