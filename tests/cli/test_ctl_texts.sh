#!/bin/sh
# What commgemmctl says without a daemon: help, man page, completion, usage errors, exit statuses.
set -eu
build=$1
ctl=$build/bin/commgemmctl

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export COMMGEMM_SOCKET="$work/no.sock"

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# expect STATUS WORDS ARGUMENT...: the exit status, and the words on either output.
expect() {
    expected=$1 words=$2
    shift 2
    status=0
    "$ctl" "$@" >"$work/output" 2>&1 || status=$?
    [ "$status" -eq "$expected" ] || fail "$*: exit status $status, expected $expected"
    grep -qF -- "$words" "$work/output" || fail "$*: lacks '$words': $(cat "$work/output")"
}

expect 0 'buffers create NAME' --help
expect 0 'buffers create NAME' help
expect 0 '--bytes=N' buffers create --help
expect 0 'buffers create NAME' help buffers
expect 0 '--bytes=N' help buffers create
expect 2 '"buffers frob" is no verb' help buffers frob
expect 0 'commgemmctl ' version
expect 0 'commgemmctl ' --version
expect 2 'a verb is missing'
expect 2 '"frob" is no verb' frob
expect 2 '"buffers frob" is no verb' buffers frob
expect 2 'buffers import needs NAME FILE' buffers import x
expect 2 'unknown or ambiguous option --frob' status --frob
expect 2 '--bytes is "12Q"' buffers create x --bytes 12Q
expect 2 '--bytes is "-1"' buffers create x --bytes=-1
expect 2 '--bytes is missing' buffers create x
expect 2 '--mode is "9"' buffers create x --bytes 4K --mode 9
expect 2 'try: commgemmctl buffers create --help' buffers create
expect 2 'SESSION is "99999999999999999999"; it must be a number from 1 to 18446744073709551615' \
    kill 99999999999999999999
expect 2 'the shell is "fish"' completion fish
expect 3 'the daemon is not running' status
expect 3 'try: ' sessions --json
expect 3 "$work/other.sock" status --socket "$work/other.sock"
expect 1 'cannot open: No such file' buffers import x "$work/none.npy"
printf 'text' >"$work/text.npy"
expect 2 'no .npy file' buffers import x "$work/text.npy"

"$ctl" doctor >"$work/doctor" || fail "doctor: $(cat "$work/doctor")"
grep -q '^ok  *here  *memfd ' "$work/doctor" || fail "doctor: no row about memfd"
grep -q '^warning  *here  *daemon ' "$work/doctor" || fail "doctor: no row about the daemon"

# Exit status of a verb whose output cannot be written.
status=0
"$ctl" help >/dev/full 2>"$work/output" || status=$?
[ "$status" -eq 1 ] || fail "help >/dev/full: exit status $status"
grep -q 'standard output: cannot write' "$work/output"

"$ctl" man >"$work/commgemmctl.1"
if command -v mandoc >/dev/null; then
    mandoc -T lint "$work/commgemmctl.1" || fail "mandoc has something to say"
fi

command -v bash >/dev/null || exit 0
"$ctl" completion bash >"$work/completion"
# offers EXPECTED WORD...: what is offered for the last word.
offers() {
    expected=$1
    shift
    # shellcheck disable=SC2016 # bash expands it
    offered=$(cd "$work" && bash -c '
        . ./completion
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _commgemmctl
        echo "${COMPREPLY[*]}"' - "$@")
    # $0 is taken by "-": the words begin with the program.
    [ "$offered" = "$expected" ] || fail "completion of '$*': '$offered', expected '$expected'"
}
offers 'status' commgemmctl st
offers 'create checksum' commgemmctl buffers c
offers 'create checksum' commgemmctl --json --socket /s buffers c
offers 'create checksum' commgemmctl --socket = /s buffers c
offers '--bytes' commgemmctl buffers create --b
offers '' commgemmctl sessions ''
offers 'bash' commgemmctl completion ''
offers 'doctor' commgemmctl help doc
offers 'text.npy' commgemmctl buffers import name te
offers 'text.npy' commgemmctl --socket = te
