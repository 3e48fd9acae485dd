#!/bin/sh
# What the daemon logs where a CUDA executor is installed but does not start: with backend = auto
# that is no error, and it serves with the CPU; with backend = cuda it is one.
set -eu
build=$1

work=$(mktemp -d)
daemon=
stop() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || :
        wait "$daemon" 2>/dev/null || :
    fi
    daemon=
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
unset JOURNAL_STREAM
export COMMGEMM_LIBEXEC="$work"
ln -s "$build/bin/commgemm-executor-cpu" "$work/commgemm-executor-cpu"
printf '#!/bin/sh\nexit 7\n' >"$work/commgemm-executor-cuda"
chmod +x "$work/commgemm-executor-cuda"

# logs WORDS BACKEND: the words come within a bounded time.
logs() {
    "$build/bin/commgemmd" --socket "$work/commgemmd.sock" --set "backend=$2" 2>"$work/log" &
    daemon=$!
    tries=600
    until grep -q "$1" "$work/log"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { cat "$work/log" >&2 && exit 1; }
        sleep 0.05
    done
    stop
}

logs 'backend cpu, 4 devices' auto
if grep ' error ' "$work/log"; then
    exit 1
fi
grep -q ' warning .*trying the next backend' "$work/log"
logs ' error *executor: ' cuda
