#!/bin/sh
# leaks.sh BIN SESSIONS [BACKEND]: sessions with imports come and go; fds and device memory stay the
# same.
set -eu
bin=$1
sessions=$2
backend=${3:-cuda}
work=$(mktemp -d)
daemon=
export COMMGEMM_SOCKET="$work/commgemmd.sock"

stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    wait
    rm -rf "$work"
}
trap stop EXIT

executor() {
    "$bin/commgemmctl" status --json | sed -n 's/.*"executor_pid": *\([0-9]*\).*/\1/p'
}

measure() {
    memory=0
    [ "$backend" = cpu ] ||
        memory=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits |
            awk '{ sum += $1 } END { print sum }')
    echo "$(find "/proc/$daemon/fd" "/proc/$(executor)/fd" -type l | wc -l) fds, $memory MiB on the GPUs"
}

"$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set "backend=$backend" --set devices=2 >"$work/log" 2>&1 &
daemon=$!
tries=600
until "$bin/commgemmctl" buffers create probe --bytes 4K >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { cat "$work/log" >&2; exit 1; }
    sleep 0.1
done
"$bin/commgemmctl" buffers destroy probe
# The same five times: what ended sessions have left is given back a little later.
settled() {
    last=
    same=0
    while [ "$same" -lt 5 ]; do
        now=$(measure)
        same=$(($([ "$now" = "$last" ] && echo "$same" || echo 0) + 1))
        last=$now
        sleep 0.3
    done
    echo "$last"
}

# "fds, MiB": neither is more than the other one's.
no_more() {
    echo "$1, $2" | awk -F '[ ,]+' '{ exit !($1 <= $8 && $3 <= $10) }'
}

"$bin/many_sessions" 20
before=$(settled)
begin=$(date +%s)
"$bin/many_sessions" "$sessions"
echo "took $(($(date +%s) - begin)) s"
tries=20
after=$(settled)
until no_more "$after" "$before" || [ "$tries" -eq 0 ]; do
    tries=$((tries - 1))
    after=$(settled)
done
echo "before: $before"
echo "after $sessions sessions with imports: $after"
no_more "$after" "$before"
