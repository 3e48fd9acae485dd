#!/bin/sh
# commgemmctl tune: what auto measured is listed, exported, imported by another daemon, and cleared.
set -eu
build=$1
ctl=$build/bin/commgemmctl

work=$(mktemp -d)
daemon=
end_daemon() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || :
        wait "$daemon" 2>/dev/null || :
    fi
    daemon=
}
trap 'end_daemon; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
export COMMGEMM_SOCKET="$work/commgemmd.sock"

fail() {
    printf '%s\n' "$*" >&2
    sed 's/^/daemon: /' "$work/log" >&2
    exit 1
}

# expect STATUS WORDS ARGUMENT...: the exit status, and the words on either output.
expect() {
    expected=$1 words=$2
    shift 2
    status=0
    "$ctl" "$@" >"$work/output" 2>&1 || status=$?
    [ "$status" -eq "$expected" ] ||
        fail "$*: exit status $status, expected $expected: $(cat "$work/output")"
    [ -z "$words" ] || grep -qF -- "$words" "$work/output" || fail "$*: lacks '$words': $(cat "$work/output")"
}

# start FOLDER: a daemon that keeps what it measures there.
start() {
    "$build/bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set backend=cpu --set devices=2 \
        --set "state_dir=$work/$1" >"$work/log" 2>&1 &
    daemon=$!
    tries=0
    until "$ctl" status >/dev/null 2>&1; do
        tries=$((tries + 1))
        kill -0 "$daemon" 2>/dev/null || fail "the daemon ended"
        [ "$tries" -lt 300 ] || fail "the daemon does not come up"
        sleep 0.1
    done
}

# reason: why a plan of gemm_rs has its algorithm.
reason() {
    "$build/bin/commgemm-bench" --op gemm_rs --world 2 --m 64 --n 64 --k 64 --iters 1 --warmup 0 \
        >"$work/bench" 2>&1 || fail "bench: $(cat "$work/bench")"
    grep 'auto: ' "$work/bench" || fail "no reason: $(cat "$work/bench")"
}

start first
expect 0 'OP' tune
expect 0 '"tune":[]' tune --json
case $(reason) in
*'kept since'*) fail "it was measured before: $(reason)" ;;
*' measured '*) ;;
*) fail "it was not measured: $(reason)" ;;
esac
case $(reason) in
*'; kept since '*) ;;
*) fail "it was forgotten: $(reason)" ;;
esac
expect 0 'gemm_rs' tune
expect 0 'gemm_rs' tune show
expect 0 '"op":"gemm_rs","m":64,"n":64,"k":64,"dtype":"fp32","world":2,"algorithm":"' tune show --json
expect 0 "1 plans' times exported" tune export "$work/times"
[ "$(sed -n '$s/^end 1 .*/whole/p' "$work/times")" = whole ] || fail "exported: $(cat "$work/times")"
grep -q ' platform="cpu: [^"]* devices, OpenBLAS [0-9.]* [A-Za-z]*" ' "$work/times" ||
    fail "the library's version is no part of the key: $(cat "$work/times")"
expect 0 '"tune":[{"exported":1}]' tune export "$work/times" --json
expect 1 'No such file' tune export "$work/no/such/file"
# What is no file stays what it is.
mkfifo "$work/pipe"
{ sleep 0.5 && cat "$work/pipe"; } >"$work/piped" 2>/dev/null & # a reader that comes late
expect 0 "1 plans' times exported" tune export "$work/pipe"
wait $!
[ -p "$work/pipe" ] || fail "the pipe was replaced"
cmp "$work/times" "$work/piped" || fail "piped: $(cat "$work/piped")"
ln -s "$work/linked" "$work/link"
expect 0 '' tune export "$work/link"
[ -L "$work/link" ] || fail "the link was replaced"
cmp "$work/times" "$work/linked" || fail "linked: $(cat "$work/linked")"
expect 0 "1 plans' times cleared" tune clear
expect 0 '"tune":[]' tune --json
grep -q '^end 0 ' "$work/first/timings" || fail "not cleared on disk: $(cat "$work/first/timings")"

# Another daemon takes the file, and no other file.
end_daemon
start second
expect 0 "1 plans' times imported" tune import "$work/times"
case $(reason) in
*'; kept since '*) ;;
*) fail "it was not imported: $(reason)" ;;
esac
sed 's/m=64/m=65/' "$work/times" >"$work/changed"
expect 2 'the file was changed' tune import "$work/changed"
sed '$d' "$work/times" >"$work/short"
expect 2 'line 3: the file was cut off' tune import "$work/short"
sed 's/op=gemm_rs/op=gemm_xx/' "$work/times" >"$work/foreign"
expect 2 'line 2: op is missing or wrong' tune import "$work/foreign"
expect 2 'the file is of something else' tune import "$0"
sed '1s/2/1/' "$work/times" >"$work/older"
expect 2 'line 1: the file is of another release: this one reads version 2' tune import "$work/older"
expect 1 'No such file' tune import "$work/nothing"
expect 2 '' tune import
expect 2 '' tune export
expect 2 '' tune forget
end_daemon
expect 3 '' tune clear
expect 3 '' tune
