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
import os, commgemm
with commgemm.Client(name="test") as client:
    comm = client.join("python", size=1, rank=0)
    plan = client.plan(comm, op="ag_gemm", m=64, n=48, k=32, dtype="bf16", method="ring_exchange")
    assert plan.algorithm == "split_pipelined_ag_p2p", plan.algorithm
    assert plan.reason
    for _ in range(3):
        done = client.wait(client.submit(plan.job(0, kind=commgemm.BARRIER)))
        assert done.status == 0 and done.plan == plan.reply.id and done.phase_list == []
    done = client.wait(client.submit(plan.job(0, kind=commgemm.BARRIER, want_phases=True)))
    assert done.n_phases == len(done.phase_list), (done.n_phases, done.phase_list)
    assert plan.job(0, lhs=None).lhs.id == 0
    try:
        plan.job(0, lhs=3)
    except TypeError as error:
        assert "lhs is 3" in str(error), error
    else:
        raise AssertionError("3 was taken for a tensor")
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
        client.plan(comm, op="gemm", m=2**64 + 8, n=48, k=32)
    except ValueError as error:
        assert "m is" in str(error), error
    else:
        raise AssertionError("a size beyond 64 bits was taken")

    few = client.plan(comm, op="gemm", m=4, n=8, k=2)
    for name, call in {
            "rank": lambda: few.job(2**32), "rows": lambda: few.job(0, rows=2**64 + 2),
            "chunk": lambda: few.job(0, chunk=-2), "ticket": lambda: client.wait(2**64 + 1),
            "timeout_ms": lambda: client.wait(1, 2**40), "size": lambda: client.join("x", 2**32, 0),
            "comm": lambda: client.plan(2**64 + comm, op="gemm", m=4, n=8, k=2),
            "stream": lambda: client.submit(few.job(0), stream=2**64),
            "op": lambda: client.plan(comm, op="gemm\0x", m=4, n=8, k=2),
            "name": lambda: client.join("x\0y", 1, 0),
            "name ": lambda: commgemm.Client(name="x\0y"),
            "socket": lambda: commgemm.Client(socket=os.environ["COMMGEMM_SOCKET"] + "\0"),
            "ticket ": lambda: client.wait("one"), "timeout_ms ": lambda: client.wait(1, None),
            "timeout_ms  ": lambda: client.wait_executor("soon"),
            "name  ": lambda: client.join(5, 1, 0), "rank ": lambda: client.join("x", 1, "0"),
            "name   ": lambda: commgemm.Client(name=None),
            "socket ": lambda: commgemm.Client(socket=5),
            "detached": lambda: few.job(0, detached="yes"),
            "want_phases": lambda: few.job(0, want_phases="all"),
            "job": lambda: client.submit(3), "job ": lambda: client.submit(None, stream=3),
            "buffer_shape": lambda: client.plan(comm, op="bulk_ag", buffer_shape=(1, 2, 3)),
            "buffer_shape ": lambda: client.plan(comm, op="bulk_ag",
                                                 buffer_shape=(2**64 + 1, 2))}.items():
        try:
            call()
        except (ValueError, TypeError) as error:
            assert str(error).startswith(f"{name.strip()} is "), error
        else:
            raise AssertionError(f"a {name} beyond its type was taken")

    class Tensor:
        """Its address is answered for below."""
        def __init__(self, shape, stride, size=4):
            self.shape, self.strides, self.size = shape, stride, size
        def data_ptr(self):
            return 4096
        def element_size(self):
            return self.size
        def stride(self):
            return self.strides

    lib, asked = commgemm.library(), []
    call = lib.call
    def imported(name, *arguments):
        if name != "commgemm_import_pointer":
            return call(name, *arguments)
        asked.append(arguments[2].value)
    lib.call = imported
    plan = client.plan(comm, op="gemm", m=4, n=8, k=2, transb=1)
    def operand(name, shape, stride):
        job = plan.job(0, **{name: Tensor(shape, stride)})
        return asked.pop(), getattr(job, name).row_stride_bytes
    assert operand("lhs", (4, 2), (2, 1))[0] == 32
    assert operand("lhs", (4, 2), (5, 1)) == (68, 20)
    assert operand("lhs", (2, 2, 2), (4, 2, 1))[0] == 32
    assert operand("rhs", (8, 2), (2, 1))[0] == 64  # stored N x K
    assert operand("out", (4, 8), (8, 1))[0] == 128
    assert operand("bias", (8,), (1,))[0] == 32
    for name, shape, stride in [("out", (4, 8), (0, 1)), ("lhs", (4, 2), (1, 4)),
                                ("lhs", (2, 2), (2, 1)), ("out", (3,), (1,)),
                                ("rhs", (2, 8), (8, 1)), ("lhs", (), ())]:
        try:
            operand(name, shape, stride)
        except (ValueError, commgemm.Error) as error:
            assert not asked and str(error), (name, shape, stride)
        else:
            raise AssertionError(f"{name} of {shape}, {stride} was taken")
    one = client.plan(comm, op="gemm", m=4, n=8, k=1)
    one.job(0, lhs=Tensor((4, 1), (1, 4)), rhs=Tensor((1, 8), (1, 1)))  # as torch's t() has them
    assert asked == [16, 32], asked
    for made, name, shape, size in [(plan, "lhs", (4, 2), 2), (plan, "out", (4, 8), 1)]:
        try:
            made.job(0, **{name: Tensor(shape, (64, 1), size)})
        except ValueError as error:
            assert "elements of" in str(error), error
        else:
            raise AssertionError(f"{name} with elements of {size} bytes was taken")
    half, other = client.plan(comm, op="gemm", m=4, n=8, k=2, dtype="bf16"), Tensor((4, 2), (2, 1), 2)
    other.dtype = "torch.float16"
    try:
        half.job(0, lhs=other)
    except ValueError as error:
        assert "float16; this job needs bf16" in str(error), error
    else:
        raise AssertionError("a float16 tensor was taken as bf16")
    other.dtype = "torch.bfloat16"
    half.job(0, lhs=other)
    exact = client.plan(comm, op="gemm", m=4, n=8, k=2, dtype="int8")
    exact.job(0, lhs=Tensor((4, 2), (2, 1), 1), out=Tensor((4, 8), (8, 1)))
    wide = client.plan(comm, op="gemm", m=4, n=8, k=2, dtype="fp16", out_dtype="fp32")
    wide.job(0, lhs=Tensor((4, 2), (2, 1), 2), out=Tensor((4, 8), (8, 1)))
    moved = client.plan(comm, op="ag", m=4, n=8, k=2, dtype="int8")
    moved.job(0, lhs=Tensor((4, 8), (8, 1), 1), out=Tensor((4, 8), (8, 1), 1))
    gelu = client.plan(comm, op="ag_gemm", m=4, n=8, k=2, epilogue=commgemm.BIAS | commgemm.GELU)
    gelu.job(0, bias=Tensor((8,), (1,)), pre_gelu_out=Tensor((4, 8), (8, 1)))
    gelu.job(0, kind=commgemm.COPY_IN, lhs=Tensor((4, 2), (2, 1)))
    for kind, name, shape in [(commgemm.RUN, "bias", (7,)), (commgemm.RUN, "aux_out", (4, 1)),
                              (commgemm.RUN, "pre_gelu_out", (2, 8)),
                              (commgemm.COPY_IN, "lhs", (3, 2))]:
        try:
            stride = (shape[-1], 1)[-len(shape):]
            gelu.job(0, kind=kind, **{name: Tensor(shape, stride)})
        except ValueError as error:
            assert name in str(error), error
        else:
            raise AssertionError(f"{name} of {shape} was taken")
    lib.call = call

def fds():
    import os
    return len(os.listdir("/proc/self/fd"))

def fail(*_):
    raise commgemm.Error(-1, "TIMEOUT", "")

before = fds()
for _ in range(3):
    commgemm.Client().join("collected", size=1, rank=0)
    assert fds() == before, "a client that was collected has left something"

import sys

class Late(Exception):
    """Raised between two steps of the interpreter, as a signal's handler may."""

def close_until(client, left):
    """Closes the client and raises behind `left` steps; False: it was closed before."""
    def step(frame, event, _):
        nonlocal left
        frame.f_trace_opcodes = True
        left -= event in ("line", "opcode")
        if left < 0:
            raise Late()
        return step
    sys.settrace(step)
    try:
        client.close()
    except Late:
        return True
    finally:
        sys.settrace(None)
    return False

steps, raised = 0, True
while raised:
    client = commgemm.Client()
    raised = close_until(client, steps)
    client.close()
    steps += 1
    assert fds() == before, f"a close that was interrupted at step {steps} has left something"
assert steps > 3, steps

wait = commgemm.Client.wait_executor
commgemm.Client.wait_executor = fail
try:
    commgemm.Client()
except commgemm.Error:
    assert fds() == before, "a client that was not made has left something"
commgemm.Client.wait_executor = wait
try:
    commgemm.Client(socket="/nonexistent")
except commgemm.Error as error:
    assert error.name == "NOT_RUNNING", error
PY
python3 "$source/tests/cli/python_operands.py"
