#!/bin/sh
# demo.sh BIN_DIR FOLDER: a tensor-parallel MLP on four processes and a private daemon with the CPU
# backend; then the processes are killed, then the executor. Everything is kept in FOLDER.
set -eu
bin=$1
folder=$2
world=4
mlp=$bin/commgemm-demo-mlp
patience=120 # seconds

rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# A socket's address has room for about 100 characters: not below the folder.
run=$(mktemp -d)
socket=$run/commgemmd.sock
daemon=
ranks=

clean_up() {
    # shellcheck disable=SC2086 # a list of process ids
    [ -z "$ranks" ] || kill -KILL $ranks 2>/dev/null || true
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait
    rm -rf "$run"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

headline() {
    printf '\n== %s\n' "$*"
}

die() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

ctl() {
    "$bin/commgemmctl" --socket "$socket" "$@"
}

# value KEY: of the only entry of `commgemmctl status`.
value() {
    ctl status --json | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"
}

# await COMMAND...: until it succeeds.
await() {
    tries=$((patience * 10))
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || die "gave up waiting for: $*"
        sleep 0.1
    done
}

start_ranks() {
    ranks=
    for rank in $(seq 0 $((world - 1))); do
        "$mlp" "$1" "$folder" "$socket" "$world" "$rank" &
        ranks="$ranks $!"
    done
}

# await_ranks NAME: until every rank has left its file of this name, or one has ended.
await_ranks() {
    for rank in $(seq 0 $((world - 1))); do
        tries=$((patience * 10))
        until [ -e "$folder/$1-$rank" ]; do
            for pid in $ranks; do
                kill -0 "$pid" 2>/dev/null || die "process $pid of a rank has ended early"
            done
            tries=$((tries - 1))
            [ "$tries" -gt 0 ] || die "rank $rank does not get on"
            sleep 0.1
        done
    done
}

new_executor_runs() {
    pid=$(value executor_pid)
    [ -n "$pid" ] && [ "$pid" -gt 0 ] && [ "$pid" -ne "$1" ]
}

headline "a private daemon: CPU backend, $world devices"
"$bin/commgemmd" --socket "$socket" --set backend=cpu --set "devices=$world" --set state_dir=none \
    2>"$folder/commgemmd.log" &
daemon=$!
await ctl status
printf 'commgemmd is process %s, its executor %s\n' "$daemon" "$(value executor_pid)"

headline "the tensors, as .npy files"
"$mlp" files "$folder"

headline "y = relu(x w1 + b1) w2 on $world processes, one a rank, in bf16"
start_ranks load
await_ranks loaded
"$mlp" report "$folder" "$socket" "$world"
printf 'error ratio: |out - float64| / bound over all elements of the unsharded product, at most 1\n'

headline "SIGKILL to the $world processes; new ones look for their buffers"
# shellcheck disable=SC2086 # a list of process ids
kill -KILL $ranks
for pid in $ranks; do
    wait "$pid" 2>/dev/null || true
done
start_ranks find
await_ranks found

executor=$(value executor_pid)
headline "SIGKILL to the executor, process $executor; the same $world processes go on"
kill -KILL "$executor"
for pid in $ranks; do
    wait "$pid" || die "process $pid of a rank failed"
done
ranks=
await new_executor_runs "$executor"
"$mlp" report "$folder" "$socket" "$world" >"$folder/report-after.txt" ||
    die "the results are not right any more"
printf 'the new executor is process %s; all results are still right\n' "$(value executor_pid)"

headline "commgemmctl status"
ctl status

headline "where the time of one job goes: ag_gemm, ring_exchange"
"$bin/commgemm-bench" --socket "$socket" --op ag_gemm --method ring_exchange --world "$world" \
    -m 2048 -n 256 -k 4096 --datatype bf16 --bias --timeline "$folder/timeline.svg" \
    >"$folder/timeline.txt"
[ -s "$folder/timeline.svg" ] || die "no picture was drawn"
printf 'picture: %s\n' "$folder/timeline.svg"
