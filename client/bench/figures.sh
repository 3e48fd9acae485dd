#!/bin/sh
# figures.sh BIN_DIR: the figures of commgemm, measured here and now on private daemons
# with the CPU backend. Prints one line a figure, with what it is compared with.
set -eu
bin=$1
work=$(mktemp -d)
daemon=
clean_up() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# measure NAME OPTION...: one run of commgemm-bench; its JSON goes to $work/NAME.json.
measure() {
    name=$1
    shift
    "$bin/commgemm-bench" --private=cpu --output-file "$work/$name.json" "$@" >"$work/$name.log" ||
        { cat "$work/$name.log" >&2 && exit 1; }
}

# number NAME KEY: from a run's JSON.
number() {
    sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$work/$1.json" | head -n 1
}

# figure TEXT VALUE UNIT [OTHER OTHER_VALUE]
figure() {
    awk -v text="$1" -v value="$2" -v unit="$3" -v other="${4-}" -v than="${5-}" 'BEGIN {
        printf "%-40s %14.3f %-4s", text, value, unit
        if (other != "") printf "  %.2f times %s (%.3f)", value / than, other, than
        printf "\n"
    }'
}

rss_kib() {
    sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$1/status"
}

noop_figures() {
    measure polling --op noop --world 1 --set spin_us=10000000
    figure "noop round trip, both polling, p50" "$(number polling roundtrip_us_p50)" us \
        "bare shared-memory ping-pong" "$(number polling raw_poll_us_p50)"
    figure "noop jobs a second, 64 in flight" "$(number polling jobs_per_s)" "1/s" "" ""
    figure "  allocations of the executor meanwhile" "$(number polling executor_allocations)" "" "" ""
    figure "  its system calls, yields included" "$(number polling executor_syscalls)" "" "jobs" \
        "$(number polling jobs)"
    measure sleeping --op noop --world 1 --set spin_us=0
    figure "noop round trip, both sleeping, p50" "$(number sleeping sleeping_roundtrip_us_p50)" us \
        "socket round trip, both sleeping" "$(number sleeping socket_sleeping_us_p50)"
}

gemm_figure() {
    measure gemm --op gemm --method none --world 1 -m 2048 -n 2048 -k 2048 --datatype fp32 \
        --iters 20 --warmup 3 --blas-threads 1
    figure "gemm fp32 2048^3" "$(number gemm ms)" ms "OpenBLAS alone" "$(number gemm openblas_ms)"
}

# serve OPTION...: a daemon of this script's own on $work/commgemmd.sock.
serve() {
    "$bin/commgemmd" --socket "$work/commgemmd.sock" --set backend=cpu "$@" 2>"$work/commgemmd.log" &
    daemon=$!
    tries=100
    until "$bin/commgemmctl" --socket "$work/commgemmd.sock" buffers create probe --bytes 4K \
        >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { cat "$work/commgemmd.log" >&2 && exit 1; }
        sleep 0.1
    done
    "$bin/commgemmctl" --socket "$work/commgemmd.sock" buffers destroy probe
}

unserve() {
    kill "$daemon"
    wait "$daemon" || true
    daemon=
}

# background OPTION...: one bench after the other, until end_background. It is of a process group of
# its own, which timeout ends as a whole.
background() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    timeout 60 sh -c 'while "$@"; do :; done' sh "$bin/commgemm-bench" \
        --socket "$work/commgemmd.sock" "$@" >"$work/background.log" 2>&1 &
    bench=$!
    sleep 3
}

end_background() {
    kill "$bench"
    wait "$bench" || true
}

memory_figures() {
    serve
    idle=$(rss_kib "$daemon")
    figure "broker idle, resident" "$idle" KiB
    background --op ag --method none --world 32 -m 64 -n 64 --datatype fp32 --benchmark --iters 1000000
    busy=$(rss_kib "$daemon")
    end_background
    figure "a session with comm, plan and buffers" "$(awk "BEGIN { print ($busy - $idle) / 32 }")" KiB
    unserve
}

# What strace sees of the executor in two seconds of noops, when it is installed.
syscall_figure() {
    command -v strace >/dev/null || return 0
    serve --set spin_us=10000000
    executor=$("$bin/commgemmctl" --socket "$work/commgemmd.sock" status --json |
        sed -n 's/.*"executor_pid": *\([0-9]*\).*/\1/p')
    background --op noop --iters 1000000
    before=$(jobs_done)
    timeout -s INT 2 strace -f -c -o "$work/strace" -p "$executor" 2>/dev/null || true
    after=$(jobs_done)
    end_background
    # A poller that waits for a client yields the processor; work makes no call.
    figure "system calls by strace, without sched_yield" "$(awk '$NF == "total" { n += $4 }
        $NF == "sched_yield" { n -= $4 } END { print n + 0 }' "$work/strace")" "" \
        "noops in that time" "$((after - before))"
    unserve
}

jobs_done() {
    "$bin/commgemmctl" --socket "$work/commgemmd.sock" status --json |
        sed -n 's/.*"jobs_done": *\([0-9]*\).*/\1/p'
}

printf 'machine: %s, %s processors, %s\n' \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(uname -sr)"
printf 'date: %s\n\n' "$(date -u +%Y-%m-%d)"
noop_figures
gemm_figure
memory_figures
syscall_figure
"$bin/commgemm-load"
