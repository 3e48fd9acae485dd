#!/bin/sh
# mps_uid.sh BIN: an MPS that serves another uid alone. The daemon must not hang in its first CUDA call:
# it says whom that MPS serves and what to do, and works when it has gone. Needs root, for the other uid.
set -eu
bin=$1
other=12345
if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null ||
    ! command -v nvidia-cuda-mps-control >/dev/null; then
    echo "skipped: it needs root, setpriv and nvidia-cuda-mps-control"
    exit 77
fi
work=$(mktemp -d)
daemon=
export COMMGEMM_SOCKET="$work/commgemmd.sock"
export CUDA_MPS_PIPE_DIRECTORY="$work/mps" CUDA_MPS_LOG_DIRECTORY="$work/mps-log"
mkdir "$work/mps" "$work/mps-log"
chmod 711 "$work"
chown "$other" "$work/mps" "$work/mps-log"

as_other() {
    setpriv --reuid "$other" --regid "$other" --clear-groups "$@"
}

quit_mps() {
    echo quit | as_other timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1 || :
}

stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    quit_mps
    wait
    rm -rf "$work"
}
trap stop EXIT

ctl() {
    timeout 20 "$bin/commgemmctl" "$@"
}

# await SECONDS WORDS COMMAND...: until its output has the words.
await() {
    tries=$(($1 * 5)) words=$2
    shift 2
    until "$@" 2>&1 | grep -q "$words"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || {
            echo "no \"$words\" in the output of: $*"
            "$@" || :
            tail -n 20 "$work/log"
            exit 1
        }
        sleep 0.2
    done
    echo "\"$words\": $*"
}

as_other timeout 20 nvidia-cuda-mps-control -d
"$bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set backend=cuda --set log_level=info \
    >"$work/log" 2>&1 &
daemon=$!
await 30 "serves uid $other alone" ctl doctor
await 5 "nvidia-cuda-mps-control -d -M" ctl buffers create probe --bytes 4K
quit_mps
await 60 "probe" sh -c "timeout 20 '$bin/commgemmctl' buffers create probe --bytes 4K;
    timeout 20 '$bin/commgemmctl' buffers"
