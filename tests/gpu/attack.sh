#!/bin/sh
# shellcheck disable=SC2086,SC2317 # lists of words on purpose; stop is called by a trap
# attack.sh BIN OUT [BACKEND [SECONDS]]: what the fault and hostile suites do to the CPU backend, done
# to the CUDA one, from the source folder. Side by side: test_hostile, test_deaths, as much of the
# table of steps and of chaos as fits into SECONDS (60), each with a daemon of its own; some have one
# GPU, others all. Then one daemon with a named buffer that hostile_client attacks: its checksum, fds
# and device memory stay the same, and the next jobs are right. One line a check on standard output,
# each one's own output in OUT.
set -eu
bin=$1
out=$2
backend=${3:-cuda}
seconds=${4:-60}
work=$(mktemp -d)
daemon=
failed=0
mkdir -p "$out"
export COMMGEMM_SOCKET="$work/commgemmd.sock"
export CGM_TEST_BACKEND="$backend"
gpus=0
each=1    # second of each attack
workers=2 # daemons of the table of steps: contexts on a GPU are made one after the other
[ "$backend" != cpu ] || each=0.2 workers=8
[ "$backend" = cpu ] || gpus=$(nvidia-smi -L | wc -l)
CGM_TEST_DEVICES=$([ "$gpus" -gt 2 ] && echo "$gpus" || echo 2)
export CGM_TEST_DEVICES

stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    wait
    rm -rf "$work"
}
trap stop EXIT

ctl() {
    timeout 20 "$bin/commgemmctl" "$@"
}

# Of the status; nothing while nobody answers.
value() {
    { ctl status --json 2>/dev/null || :; } | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"
}

# verdict NAME STATUS SECONDS WORDS
verdict() {
    case $2 in
    0) word=ok ;;
    124 | 137) word="FAILED (not done in time)" ;;
    *) word="FAILED ($2)" ;;
    esac
    printf '%-20s %s, %s s%s\n' "$1" "$word" "$3" "${4:+: $4}"
    [ "$2" -eq 0 ] || {
        failed=1
        grep -aE 'FAILED|ERROR|^chaos|went wrong|does not|recovery:|\[ +LINE' "$out/$1.log" |
            head -n 12 | sed 's/^/    /'
        case $word in *time*) tail -n 3 "$out/$1.log" | sed 's/^/    last: /' ;; esac
    }
}

# ---- side by side ---------------------------------------------------------------------------------

# begin NAME LIMIT COMMAND...: in the background; its exit status and end go to files.
begin() {
    name=$1 limit=$2
    shift 2
    (
        status=0
        timeout -k 10 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
        echo "$status $(date +%s)" >"$work/$name.status"
    ) &
    begun="$begun $name"
}

# What a log says about how much was done.
summary() {
    grep -aE '^\[  PASSED|cases of|rounds on|numbers checked' "$out/$1.log" | tr '\n' ';' | head -c 200
}

side_by_side() {
    begun=
    since=$(date +%s)
    chaos="--verbose --rounds 100 --limit 60 --seconds $seconds"
    limit=$((seconds + 90))
    # Ranks share a GPU.
    one="env CUDA_VISIBLE_DEVICES=0"
    another="env CUDA_VISIBLE_DEVICES=$((gpus > 1 ? gpus - 1 : 0))"
    begin hostile $((limit + 90)) $one "$bin/test_hostile"
    # Alone it takes a minute; where all of them share a GPU, three at times.
    begin deaths-executor $((limit + 90)) $one "$bin/test_deaths" 'test_executor*'
    begin deaths $limit $another "$bin/test_deaths" '-test_executor*'
    begin restarts $limit $another "$bin/test_restarts"
    begin chaos-one $limit $another "$bin/commgemm-chaos" $chaos
    # Ranks have the GPUs that there are. A case that begins late may restart an executor, which makes
    # contexts behind those of all others.
    begin steps $((limit + 90)) env CGM_FAULT_WORKERS=$workers "$bin/test_steps" -v -t "$seconds"
    begin chaos-1 $limit "$bin/commgemm-chaos" $chaos
    begin chaos-2 $limit "$bin/commgemm-chaos" $chaos
    wait
    for name in $begun; do
        read -r status end <"$work/$name.status"
        verdict "$name" "$status" $((end - since)) "$(summary "$name")"
    done
}

# ---- one daemon under siege -----------------------------------------------------------------------

start_daemon() {
    "$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set "backend=$backend" \
        --set "devices=$CGM_TEST_DEVICES" --set log_level=warning >"$out/daemon.log" 2>&1 &
    daemon=$!
    tries=600
    until ctl buffers create weights --bytes 64M >/dev/null 2>&1; do
        tries=$((tries - 1))
        kill -0 "$daemon" 2>/dev/null && [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
    ctl buffers destroy weights
}

# 64 MiB that nobody could guess, as a matrix of fp32.
import_weights() {
    {
        printf '\223NUMPY\001\000\166\000'
        printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (4096, 4096), }"
        head -c $((4096 * 4096 * 4)) /dev/urandom
    } >"$work/w.npy"
    ctl buffers import weights "$work/w.npy"
    rm "$work/w.npy"
}

checksum() {
    ctl buffers checksum weights | cut -d' ' -f1
}

measure() {
    memory=0
    [ "$backend" = cpu ] ||
        memory=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits |
            awk '{ sum += $1 } END { print sum }')
    fds=$(find "/proc/$daemon/fd" "/proc/$(value executor_pid)/fd" -type l 2>/dev/null | wc -l)
}

# settle FDS MIB: measures until there are no more of either, for a minute: what a client leaves goes
# without anybody waiting for it, a slice at a time.
settle() {
    for _ in $(seq 240); do
        measure
        [ "$fds" -gt "$1" ] || [ "$memory" -gt "$2" ] || return 0
        sleep 0.25
    done
    find "/proc/$daemon/fd" "/proc/$(value executor_pid)/fd" -type l -printf '%l\n' |
        sed 's/[0-9]*\]$//' | sort | uniq -c | sort -rn | head -n 8
    echo "fds are left"
    return 1
}

job_is_right() {
    for op in ag_gemm gemm_rs; do
        for world in 2 4; do
            timeout 60 "$bin/commgemm-bench" --validate --op "$op" --method ring_exchange \
                --world "$world" -m 256 -n 512 -k 384 --datatype bf16 || return 1
        done
    done
}

# Another user where that is possible: then it cannot end what is not its own. It ends with 0 when
# the daemon serves it still.
attack() {
    as=
    [ "$(id -u)" -ne 0 ] || as="--as 12345"
    timeout -k 5 60 "$bin/hostile_client" $as --seconds "$each"
}

# What has a name stays when its client has gone, as it should.
destroy_named() {
    ctl buffers | awk 'NR > 1 && $2 != "weights" { print $2 }' | while read -r name; do
        ctl buffers destroy "$name" || :
    done
}

# The first attack makes what is made once on a GPU; the second one must leave nothing more.
siege() {
    start_daemon || {
        echo "the daemon does not serve"
        tail -n 20 "$out/daemon.log"
        return 1
    }
    chmod 711 "$work" && chmod 666 "$COMMGEMM_SOCKET"
    import_weights
    sum=$(checksum)
    executor=$(value executor_pid)
    job_is_right || return 1
    measure
    fds_before=$fds
    attack || { echo "the first attack ended with $?" && return 1; }
    job_is_right || return 1
    destroy_named
    settle $((fds_before + 4)) 1000000000 || return 1
    memory_before=$memory
    attack || { echo "the second attack ended with $?" && return 1; }
    job_is_right || return 1
    destroy_named
    "$bin/many_sessions" 30
    # A stream's workspace of 33 MiB comes with its first product and stays; a GPU has 14 streams.
    settle $((fds_before + 4)) $((memory_before + 14 * 34 * gpus)) || settled=no
    echo "before: $fds_before fds, $memory_before MiB on the GPUs; after: $fds fds, $memory MiB"
    [ "$(value executor_pid)" = "$executor" ] || { echo "there is another executor" && return 1; }
    [ "$(checksum)" = "$sum" ] || { echo "the buffer does not have its bytes" && return 1; }
    [ "${settled:-yes}" = yes ] || { echo "descriptors or device memory are left" && return 1; }
    ctl status
}

side_by_side
since=$(date +%s)
status=0
siege >"$out/siege.log" 2>&1 || status=$?
verdict siege "$status" $(($(date +%s) - since)) "$(grep -a '^before' "$out/siege.log" || :)"
[ "$status" -eq 0 ] || {
    tail -n 15 "$out/siege.log" | sed 's/^/    /'
    tail -n 15 "$out/daemon.log" | sed 's/^/    /'
}
exit "$failed"
