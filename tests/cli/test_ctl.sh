#!/bin/sh
# commgemmctl against a private daemon: every verb, as a table and as JSON, and a buffer's life.
set -eu
build=$1
ctl=$build/bin/commgemmctl

work=$(mktemp -d)
daemon=
stop() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || :
        wait "$daemon" 2>/dev/null || :
    fi
    rm -rf "$work"
}
trap stop EXIT
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

"$build/bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set backend=cpu --set devices=2 \
    >"$work/log" 2>&1 &
daemon=$!
# It serves when a buffer can be created: socket and executor are there.
tries=0
until "$ctl" buffers create probe --bytes 4K >/dev/null 2>&1; do
    tries=$((tries + 1))
    kill -0 "$daemon" 2>/dev/null || fail "the daemon ended"
    [ "$tries" -lt 300 ] || fail "the daemon does not come up: $("$ctl" status 2>&1)"
    sleep 0.1
done
expect 0 '' buffers destroy probe

# write_npy FILE ROWS COLUMNS: a .npy file of random bits.
write_npy() {
    {
        printf '\223NUMPY\001\000\166\000'
        printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2, $3), }"
        head -c $(($2 * $3 * 4)) /dev/urandom
    } >"$1"
}
write_npy "$work/a.npy" 12 10

for verb in status sessions comms buffers plans jobs imports quotas algorithms; do
    expect 0 "\"$verb\":[" "$verb" --json
    expect 0 '' "$verb"
done
for key in pid executor_pid backend jobs_done jobs_failed sessions buffers; do
    expect 0 "\"$key\":" status --json
done
expect 0 "\"pid\":$daemon" status --json
expect 0 'Backend: cpu' status
for key in pid uid ranks; do
    expect 0 "\"$key\":" sessions --json
done
expect 0 '"device_names":"CPU device 0, CPU device 1"' status --json
expect 0 'commgemmctl' sessions
expect 0 'split_pipelined_ag_p2p' algorithms
expect 0 'num_splits' algorithms
expect 0 '"parameters":' algorithms --json
# The manual lists what the daemon does.
"$ctl" algorithms | sed -n 's/^ *\([0-9]\{1,\}\)  \([a-z0-9_]*\) .*/\1 \2/p' >"$work/algorithms"
[ "$(wc -l <"$work/algorithms")" -ge 16 ] || fail "few algorithms: $("$ctl" algorithms)"
while read -r number name; do
    grep -qF ".It Cm $name No ($number)" "$build/daemon/man/commgemmd.8" ||
        fail "algorithm $name is not in the manual"
done <"$work/algorithms"
grep -qF '.It Cm num_max_streams' "$build/daemon/man/commgemmd.8" || fail "no table of parameters"

expect 0 'export with --shape 12x10' buffers import weights "$work/a.npy"
for key in name bytes owner mode generation tainted; do
    expect 0 "\"$key\":" buffers --json
done
expect 0 'weights' buffers
expect 0 '' buffers export weights "$work/b.npy" --shape 12x10
cmp "$work/a.npy" "$work/b.npy" || fail "export differs from import"
expect 0 '"buffers":[{"name":"weights","bytes":480,' buffers export weights "$work/b.npy" --json
# An export that fails leaves what was there, or nothing behind a link.
cp "$work/b.npy" "$work/kept.npy"
(ulimit -f 0 && "$ctl" buffers export weights "$work/b.npy" --shape 12x10 2>/dev/null) &&
    fail "an export without room ends well"
cmp "$work/b.npy" "$work/kept.npy" || fail "an export that failed took the file"
set -- "$work"/.commgemm-*
[ ! -e "$1" ] || fail "an export that failed left $*"
chmod 600 "$work/b.npy"
expect 0 '' buffers export weights "$work/b.npy" --shape 12x10
case $(ls -l "$work/b.npy") in
-rw-------*) ;;
*) fail "an export changed the mode of the file" ;;
esac
before=$("$ctl" buffers checksum weights)
expect 0 "\"checksum\":\"${before%% *}\"" buffers checksum weights --json
[ "$("$ctl" buffers checksum weights)" = "$before" ] || fail "the checksum changed"

expect 1 'object exists already' buffers import weights "$work/a.npy"
expect 1 'object exists already' buffers create weights --bytes 8
expect 2 '--shape is "100000x10"' buffers export weights "$work/b.npy" --shape 100000x10
expect 2 '--shape is "0x1"' buffers export weights "$work/b.npy" --shape 0x1
expect 1 '/dev/full' buffers export weights /dev/full
expect 1 "$work/no/b.npy" buffers export weights "$work/no/b.npy"
expect 1 'no such object' buffers checksum none
expect 2 ': ?[31mx: name is' buffers checksum "$(printf '\033[31mx')"
expect 2 'a b' buffers create 'a b' --bytes 8
expect 2 '' buffers create .hidden --bytes 8
expect 2 'from 0001 to 0777' buffers create none --bytes 8 --mode 0000

# A file that is cut off leaves no buffer behind.
head -c 600 "$work/a.npy" >"$work/cut.npy"
expect 2 'truncated' buffers import cut "$work/cut.npy"
expect 1 'no such object' buffers checksum cut

expect 0 '"name":"zeros"' buffers create zeros --bytes 1M --mode 0640 --json
expect 0 '0640' buffers
expect 0 '' buffers export zeros "$work/zeros.npy"
[ "$(tail -c 1048576 "$work/zeros.npy" | tr -d '\000' | wc -c)" -eq 0 ] || fail "not zeroed"
expect 0 '{"version":1,"buffers":[{"name":"zeros"}]}' buffers destroy zeros --json
expect 0 '' buffers destroy weights
expect 1 'no such object' buffers destroy weights

expect 0 'daemon         release ' doctor
expect 0 '"result":"ok"' doctor --json
ln -s "$COMMGEMM_SOCKET" "$work/link"
expect 0 "$work/link exists and may be used" doctor --socket "$work/link"
expect 0 'caf?/sock: No such file' doctor --socket "$work/$(printf '%b' 'caf\0351')/sock"
expect 2 'unknown option: - and byte 0xc3' status "$(printf '%b' '-\0303\0251')"
# A session that an operator ends: its process finds the daemon gone and lives, or gets the signal.
expect 1 'session 4711 does not exist' kill 4711
expect 2 'SESSION is "first"' kill first
expect 2 'term, kill' kill 4711 --signal usr1
start_bench() {
    "$build/bin/commgemm-bench" --op gemm --world 1 -m 256 -n 256 -k 256 --iters 1000000 \
        >"$work/bench" 2>&1 &
    bench=$!
    tries=0
    until session=$("$ctl" sessions --json | tr '{' '\n' |
        sed -n 's/^"id":\([0-9]*\),.*"name":"commgemm-bench".*/\1/p') && [ -n "$session" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "the benchmark has no session: $(cat "$work/bench")"
        sleep 0.1
    done
}
start_bench
expect 0 ' is left alone' kill "$session"
wait "$bench" && fail "the benchmark did not notice"
grep -q 'daemon' "$work/bench" || fail "the benchmark says: $(cat "$work/bench")"
start_bench
expect 0 "{\"version\":1,\"kill\":[{\"session\":$session,\"pid\":" kill "$session" --signal kill --json
wait "$bench" && fail "the benchmark lives on"

expect 0 '' drain
expect 0 'Draining: yes' status
expect 0 '{"version":1,"drain":[{"draining":false}]}' drain --undo --json
expect 0 'Draining: no' status

kill "$daemon"
wait "$daemon" || :
daemon=
expect 3 'the daemon is not running' status
