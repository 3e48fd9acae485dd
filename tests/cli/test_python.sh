#!/bin/sh
# client/bindings/python: its structures are laid out as the header's, and a session with a daemon on
# the CPU backend: names, defaults, jobs that need no tensor, errors.
set -eu
bin=$1/bin
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
daemon=
stop() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
    wait
    rm -rf "$work"
}
trap stop EXIT
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

export PYTHONPATH="$source/client/bindings/python" PYTHONPYCACHEPREFIX="$work"
export COMMGEMM_LIBRARY="$bin/../lib/libcommgemm-client.so.0"
[ -e "$COMMGEMM_LIBRARY" ] || { echo "no $COMMGEMM_LIBRARY" >&2; exit 1; }

python3 - >"$work/layout.c" <<'PY'
import commgemm
print("#include <stdio.h>\n#include \"commgemm.h\"\nint main(void)\n{")
for name, fields in commgemm.STRUCTURES.items():
    print(f'    printf("{name} %zu\\n", sizeof(struct {name}));')
    for field, *_ in fields._fields_:
        print(f'    printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));')
print("}")
PY
"${CC:-cc}" -I "$source/client/include" -o "$work/layout" "$work/layout.c"
"$work/layout" >"$work/c"
python3 - >"$work/python" <<'PY'
import ctypes, commgemm
for name, fields in commgemm.STRUCTURES.items():
    print(name, ctypes.sizeof(fields))
    for field, *_ in fields._fields_:
        print(f"{name}.{field}", getattr(fields, field).offset)
PY
diff "$work/c" "$work/python"

# With sanitizers the library cannot be loaded by a program that is built without them.
case $(ldd "$COMMGEMM_LIBRARY") in *libasan* | *libtsan*)
    echo "layouts are the same; the session is left out: the library is built with a sanitizer"
    exit 0 ;;
esac

export COMMGEMM_SOCKET="$work/commgemmd.sock"
"$bin/commgemmd" --set backend=cpu --set devices=1 >"$work/log" 2>&1 &
daemon=$!
tries=100
until [ -S "$COMMGEMM_SOCKET" ] || [ "$tries" -eq 0 ]; do
    tries=$((tries - 1))
    sleep 0.1
done
python3 - <<'PY'
import commgemm
with commgemm.Client(name="test") as client:
    comm = client.join("python", size=1, rank=0)
    plan = client.plan(comm, op="ag_gemm", m=64, n=48, k=32, dtype="bf16", method="ring_exchange")
    assert plan.algorithm == "split_pipelined_ag_p2p", plan.algorithm
    assert plan.reason
    for _ in range(3):
        done = client.wait(client.submit(plan.job(0, kind=commgemm.BARRIER)))
        assert done.status == 0 and done.plan == plan.reply.id and done.phase_list == []
    for _ in range(100):
        client.submit(plan.job(0, kind=commgemm.NOOP, detached=True))
    client.wait_detached()
    try:
        client.wait(client.submit(plan.job(0)))
    except commgemm.Error as error:
        assert error.name == "INVALID_ARGUMENT" and "lhs" in error.detail, error
    else:
        raise AssertionError("a job without operands was taken")
    try:
        client.plan(comm, op="ag_gemm", m=64, n=48, k=32, dtype="bf61")
    except ValueError as error:
        assert "bf61" in str(error)
    wide = client.plan(comm, op="gemm_rs", m=64, n=48, k=32, dtype="bf16", buffer_dtype="fp32")
    wide.close()
    try:
        client.plan(comm, op="gemm", m="many", n=48, k=32)
    except TypeError as error:
        assert "m is 'many'" in str(error), error
    else:
        raise AssertionError("a plan with words for sizes was made")
    plan.close()
try:
    commgemm.Client(socket="/nonexistent")
except commgemm.Error as error:
    assert error.name == "NOT_RUNNING", error
PY
