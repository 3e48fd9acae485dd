#!/bin/sh
# peers.sh BUILD OUT [OPTION...]: the table with the peers on this machine's GPUs, with the
# executables and the library of BUILD: OUT/peers.json, OUT/peers.md, OUT/peers.svg and the logs.
# Options are peers.py's; by default the layers of peers.shapes and the links. MPS is started when
# it is there and off, and ended again. PEERS_SET="key=value" sets one thing more for the daemon.
# Exit status 77 where there is no GPU; PEERS_BACKEND=cpu goes on all the same, for tests of this
# script.
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ "$#" -ge 2 ] || { echo "usage: peers.sh BUILD OUT [OPTION...]" >&2 && exit 2; }
build=$(cd "$1" && pwd) && mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
shift 2
work=$(mktemp -d)
daemon=
own_mps=
seconds=390 # of all shapes together; what was measured until then is kept
layers=ag-qkv,ag-up,ag-up-2048,ag-up-512,ag-fc1,rs-down,rs-out,rs-down-2048,rs-down-512,rs-fc2
default_shapes=link,$layers,ar-4864,as-4864

clean_up() {
    [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon"; }
    [ -z "$own_mps" ] || echo quit | nvidia-cuda-mps-control >/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

start_mps() {
    command -v nvidia-cuda-mps-control >/dev/null || { mps="no MPS here" && return; }
    if echo get_server_list | nvidia-cuda-mps-control >/dev/null 2>&1; then
        mps="under the machine's MPS"
        return
    fi
    CUDA_MPS_PIPE_DIRECTORY=$work/mps
    CUDA_MPS_LOG_DIRECTORY=$out
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
    if nvidia-cuda-mps-control -d >"$out/mps.log" 2>&1; then
        own_mps=yes
        mps="under MPS"
    else
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
        mps="without MPS, which did not start"
    fi
}

start_daemon() {
    COMMGEMM_SOCKET=$work/commgemmd.sock
    COMMGEMM_LIBRARY=$build/lib/libcommgemm-client.so.0
    export COMMGEMM_SOCKET COMMGEMM_LIBRARY
    devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    [ "$devices" -gt 0 ] || devices=4
    "$build/bin/commgemmd" --socket "$COMMGEMM_SOCKET" --set backend="${PEERS_BACKEND:-cuda}" \
        --set devices="$devices" --set log_level=debug --set state_dir="$work/state" \
        ${PEERS_SET:+--set "$PEERS_SET"} >"$out/daemon.log" 2>&1 &
    daemon=$!
    tries=600
    until "$build/bin/commgemmctl" buffers create probe --bytes 4K >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ] || ! kill -0 "$daemon" 2>/dev/null; then
            echo "peers.sh: the daemon does not serve:" >&2
            tail -n 20 "$out/daemon.log" >&2
            return 1
        fi
        sleep 0.1
    done
    "$build/bin/commgemmctl" buffers destroy probe
}

if ! [ -e /dev/nvidiactl ] && [ -z "${PEERS_BACKEND:-}" ]; then
    echo "peers.sh: this machine has no NVIDIA GPU (/dev/nvidiactl)" >&2
    exit 77
fi
# Multicast is off for all that is compared.
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
start_mps
start_daemon || exit 1
rm -f "$out/peers.json"
timeout -k 10 "$seconds" python3 "$here/peers.py" --commgemm --iters 12 --warmup 3 \
    --shapes "$default_shapes" --note "Client stream to client stream, $mps${PEERS_SET:+, $PEERS_SET}" "$@" \
    --output-file "$out/peers.json" >"$out/peers.log" 2>&1
status=$?
grep -E '^ |^[a-z0-9A-Z-]+ +(ag|rs|ar|gemm)' "$out/peers.log"
[ "$status" -eq 0 ] || { echo "peers.py ended with $status:" && tail -n 20 "$out/peers.log"; } >&2
[ -e "$out/peers.json" ] || exit 1
python3 "$here/peers_report.py" "$out/peers.json" "$out" && echo "$out/peers.md, peers.svg, peers.json"
[ "$status" -eq 0 ]
