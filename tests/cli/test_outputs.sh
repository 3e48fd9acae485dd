#!/bin/sh
# What cannot be printed is an error, not silence: standard output on a full disk, or closed. No
# file and no socket gets the number of a standard output that is closed. A file that cannot be
# written to its end is not there.
set -eu
build=$1
bin=$build/bin

[ -c /dev/full ] || exit 77

work=$(mktemp -d)
daemon=
stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    [ -z "$daemon" ] || wait "$daemon" 2>/dev/null || :
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM HUP
export TMPDIR="$work" COMMGEMM_SOCKET="$work/commgemmd.sock"

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# is_failure STATUS WHAT
is_failure() {
    [ "$1" -eq 1 ] || fail "$2: the exit status is $1"
    grep -q 'standard output: cannot write' "$work/errors" ||
        fail "$2: it does not say so: $(cat "$work/errors")"
}

# refuses PROGRAM ARGUMENT...
refuses() {
    program=$1
    shift
    status=0
    "$bin/$program" "$@" >/dev/full 2>"$work/errors" || status=$?
    is_failure "$status" "$program $* >/dev/full"
    status=0
    "$bin/$program" "$@" >&- 2>"$work/errors" || status=$?
    is_failure "$status" "$program $* >&-"
}

"$bin/commgemmd" --config /dev/null --set backend=cpu --set devices=1 --set state_dir=none \
    2>"$work/log" &
daemon=$!
tries=600
until grep -q ': ready' "$work/log"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "no daemon: $(cat "$work/log")"
    sleep 0.05
done

for option in --help --version --print-config; do
    refuses commgemmd "$option"
done
refuses commgemmctl help
refuses commgemmctl status
refuses commgemmctl sessions --json
refuses commgemm-bench --help
refuses commgemm-bench --version
refuses commgemm-bench -m 32 -n 32 -k 32 --world 1 --iters 1 --warmup 0

# Without the others everything works as ever.
"$bin/commgemmctl" status <&- 2>&- >"$work/status" || fail "status <&- 2>&-: exit status $?"
grep -q 'Sessions: 1' "$work/status" || fail "status <&- 2>&-: $(cat "$work/status")"

# leaves_nothing FILE PROGRAM ARGUMENT...: with room for the beginning of the file.
leaves_nothing() {
    file=$1 program=$2
    shift 2
    status=0
    (
        ulimit -f 1
        exec "$bin/$program" "$@"
    ) >/dev/null 2>"$work/errors" || status=$?
    [ "$status" -eq 1 ] || fail "$program $*: the exit status is $status"
    grep -q 'cannot write: File too large' "$work/errors" ||
        fail "$program $*: it does not say so: $(cat "$work/errors")"
    [ ! -e "$file" ] || fail "$program $*: it left $(wc -c <"$file") bytes"
}

small='-m 32 -n 32 -k 32 --world 1 --iters 1 --warmup 0'
# shellcheck disable=SC2086 # a list of words on purpose
for option in output-file timeline 'compare --csv' 'compare --plot'; do
    leaves_nothing "$work/result" commgemm-bench $small --$option "$work/result"
done
"$bin/commgemmctl" buffers create some --bytes 64K >/dev/null
leaves_nothing "$work/some.npy" commgemmctl buffers export some "$work/some.npy"
