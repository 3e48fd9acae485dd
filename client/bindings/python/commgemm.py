"""libcommgemm-client for Python, by ctypes: jobs of commgemmd on the tensors and in the streams of
this process. Nothing but the standard library and the shared library is needed.

    import commgemm, torch
    client = commgemm.Client()
    comm = client.join("tp", size=4, rank=rank)
    plan = client.plan(comm, op="ag_gemm", m=8192, n=57344, k=8192, dtype="bf16")
    job = plan.job(rank, lhs=shard, rhs=weights, out=out)   # tensors on the GPU
    client.submit(job, stream=torch.cuda.current_stream().cuda_stream)

A call of the library that fails is a commgemm.Error with the library's own text; what cannot even
be handed to it is a TypeError or a ValueError that names it. Sizes are the whole product's, as in
commgemm.h, which says everything else too. A tensor is whatever has data_ptr(), element_size(),
shape and stride(); it must have the shape and the type that the plan needs. An Operand is taken as
it is, and None is no operand."""

import collections
import ctypes
import functools
import os

_WHOLE = 0xFFFFFFFF
_OPERANDS = (
    "lhs", "rhs", "bias", "gelu_input", "aux_in", "out", "bias_grad", "pre_gelu_out", "aux_out",
    "lhs_scale", "rhs_scale", "out_scale",
)
# The table of enum commgemm_op: rows and columns on a rank, as they are without transa and transb,
# and those of a chunk of the user buffer. w: the comm's size; r, c: buffer_shape; s, t: rows that
# the rank sends and receives, u: the most that one sends.
_PRODUCT = {"lhs": "m k", "rhs": "k n", "out": "m n"}
_SHAPES = {
    "gemm": {**_PRODUCT, "chunk": "m k"},
    "ag_gemm": {"lhs": "m/w k", "rhs": "k n/w", "out": "m n/w", "aux_out": "m k",
                "chunk": "m/w k"},
    "gemm_rs": {"lhs": "m k/w", "rhs": "k/w n", "out": "m/w n", "chunk": "m/w n"},
    "gemm_ar": {"lhs": "m k/w", "rhs": "k/w n", "out": "m n", "chunk": "m n"},
    "gemm_as": {"lhs": "m k", "rhs": "k n/w", "out": "m n", "bias": "1 n/w", "chunk": "m k"},
    "bulk_ag": {**_PRODUCT, "aux_in": "r/w c", "aux_out": "r c", "chunk": "r/w c"},
    "bulk_rs": {**_PRODUCT, "aux_in": "r c", "aux_out": "r/w c", "chunk": "r/w c"},
    "ag": {"lhs": "m/w n", "out": "m n", "chunk": "m/w n"},
    "rs": {"lhs": "m n", "out": "m/w n", "chunk": "m/w n"},
    "ar": {"lhs": "m n", "out": "m n", "chunk": "m n"},
    "a2av": {"lhs": "s n", "out": "t n", "chunk": "u n"},
}
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "int32": 4}
_FRAMEWORK_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8",
                     "int32": "int32"}
_DTYPE_OF_BYTES = {4: "fp32", 2: "fp16", 1: "int8"}
NOOP, RUN, COPY_IN, BARRIER = range(4)
BIAS, GELU, GRAD, ACCUMULATE = 1, 2, 4, 8


class Error(Exception):
    """A call that did not return OK: its status, the status' name and the detail."""

    def __init__(self, status, name, detail):
        super().__init__(f"{name}: {detail}" if detail else name)
        self.status, self.name, self.detail = status, name, detail


# ---- the structures of commgemm.h; a test compares their layouts ---------------------------------


class ConnectOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("socket", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("ring_entries", ctypes.c_uint32),
        ("no_ring", ctypes.c_int),
        ("spin_ns", ctypes.c_uint64),
    ]


class JoinOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("comm", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("size", ctypes.c_uint32),
        ("create", ctypes.c_int),
        ("mode", ctypes.c_uint32),
        ("ranks", ctypes.POINTER(ctypes.c_uint32)),
        ("n_ranks", ctypes.c_uint32),
        ("devices", ctypes.POINTER(ctypes.c_int32)),
        ("timeout_ms", ctypes.c_int),
    ]


class PlanOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("comm", ctypes.c_uint64),
        ("op", ctypes.c_int),
        ("method", ctypes.c_int),
        ("algorithm", ctypes.c_int),
        ("m", ctypes.c_uint64),
        ("n", ctypes.c_uint64),
        ("k", ctypes.c_uint64),
        ("dtype", ctypes.c_int),
        ("out_dtype", ctypes.c_int),
        ("transa", ctypes.c_int),
        ("transb", ctypes.c_int),
        ("epilogue", ctypes.c_uint32),
        ("comm_type", ctypes.c_int),
        ("buffer_shape", ctypes.c_uint64 * 2),
        ("buffer_dtype", ctypes.c_int),
        ("tp_size", ctypes.c_uint32),
        ("num_splits", ctypes.c_uint32),
        ("num_max_streams", ctypes.c_uint32),
        ("comm_cga_size", ctypes.c_uint32),
        ("gemm_priority", ctypes.c_int),
        ("comm_priority", ctypes.c_int),
        ("num_comm_sm", ctypes.c_uint32),
        ("set_sm_margin", ctypes.c_int),
        ("use_ce", ctypes.c_int),
        ("atomic_gemm", ctypes.c_int),
        ("rs_overlap_first_gemm", ctypes.c_int),
        ("aggregate_ag", ctypes.c_int),
        ("mode", ctypes.c_uint32),
        ("allow_tf32", ctypes.c_int),
        ("counts", ctypes.POINTER(ctypes.c_uint32)),
        ("n_counts", ctypes.c_uint32),
    ]


class PlanReply(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint64),
        ("comm", ctypes.c_uint64),
        ("op", ctypes.c_int),
        ("algorithm", ctypes.c_int),
        ("workspace_bytes", ctypes.c_uint64),
        ("reason", ctypes.c_char * 160),
    ]


class Operand(ctypes.Structure):
    """Memory of a job: (id, generation) of a buffer or an import, and where in it."""

    _fields_ = [
        ("id", ctypes.c_uint64),
        ("offset_bytes", ctypes.c_uint64),
        ("row_stride_bytes", ctypes.c_uint64),
        ("generation", ctypes.c_uint32),
    ]


class JobFields(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("plan", ctypes.c_uint64),
        ("rank", ctypes.c_uint32),
        ("rows", ctypes.c_uint64),
        *((name, Operand) for name in _OPERANDS),
        ("accumulate", ctypes.c_int),
        ("want_phases", ctypes.c_int),
        ("chunk", ctypes.c_uint32),
        ("deadline_ms", ctypes.c_uint64),
        ("detached", ctypes.c_int),
    ]


class Phase(ctypes.Structure):
    """What a queue of a device did for a job; ns since the launch."""

    _fields_ = [
        ("begin_ns", ctypes.c_uint64),
        ("end_ns", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        *((name, ctypes.c_uint32) for name in ("device", "rank", "queue", "chunk", "peer")),
    ]

    @property
    def name(self):
        return library().c.commgemm_phase_name(self.kind).decode()


class Completion(ctypes.Structure):
    """How a job ended; times in ns. phase_list: the phases, of a job that was to have them."""

    _fields_ = [
        ("ticket", ctypes.c_uint64),
        ("status", ctypes.c_int),
        ("algorithm", ctypes.c_int),
        ("plan", ctypes.c_uint64),
        ("comm_number", ctypes.c_uint64),
        ("queued_ns", ctypes.c_uint64),
        ("waiting_ns", ctypes.c_uint64),
        ("running_ns", ctypes.c_uint64),
        ("reason", ctypes.c_char * 160),
        ("detail", ctypes.c_char * 192),
        ("n_phases", ctypes.c_uint32),
        ("phases_lost", ctypes.c_uint32),
        ("phases", ctypes.c_void_p),
    ]


# C name -> structure, for the test.
STRUCTURES = {
    "commgemm_connect_options": ConnectOptions,
    "commgemm_join_options": JoinOptions,
    "commgemm_plan_options": PlanOptions,
    "commgemm_plan": PlanReply,
    "commgemm_operand": Operand,
    "commgemm_job": JobFields,
    "commgemm_phase": Phase,
    "commgemm_completion": Completion,
}


# ---- the library ---------------------------------------------------------------------------------


class _Library:
    """The functions, and the check of what they return."""

    _NAMES = ("commgemm_status_name commgemm_last_error commgemm_algorithm_name "
              "commgemm_phase_name")

    def __init__(self):
        path = os.environ.get("COMMGEMM_LIBRARY", "libcommgemm-client.so.0")
        self.c = ctypes.CDLL(path)
        for name in self._NAMES.split():
            getattr(self.c, name).restype = ctypes.c_char_p

    def error(self, status, detail=None):
        name = self.c.commgemm_status_name(status).decode()
        text = self.c.commgemm_last_error() if detail is None else detail
        return Error(status, name, text.decode(errors="replace"))

    def call(self, name, *arguments):
        status = getattr(self.c, name)(*arguments)
        if status != 0:
            raise self.error(status)

    def init(self, name, structure):
        """Defaults from the library, which may know more fields than this module."""
        value = structure()
        size = ctypes.c_size_t(ctypes.sizeof(structure))
        getattr(self.c, f"commgemm_{name}_init_sized")(ctypes.byref(value), size)
        return value

    def number(self, table, value):
        """A number from a name: number("dtype", "bf16")."""
        if isinstance(value, int):
            return value
        found = getattr(self.c, f"commgemm_{table}_from_name")(_text(table, str(value)))
        if found < 0:
            raise ValueError(f"{table} is {value!r}; there is none of that name")
        return found


_library = None


def library():
    """Loaded by the first call: $COMMGEMM_LIBRARY, else libcommgemm-client.so.0."""
    global _library
    if _library is None:
        _library = _Library()
    return _library


def _set(structure, name, value):
    """A field; an Error that names it where the value is not one that it can hold."""
    try:
        setattr(structure, name, value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is {value!r}: {error}") from None
    held = getattr(structure, name)
    if isinstance(held, ctypes.Array):
        held, value = list(held), list(value) + [0] * (len(held) - len(value))
    if isinstance(value, (int, list)) and held != value:
        raise ValueError(f"{name} is {value!r}, which is beyond what its type can hold")


def _exact(name, value, ctype=ctypes.c_int):
    """An argument."""
    try:
        number = ctype(value)
    except TypeError as error:
        raise TypeError(f"{name} is {value!r}: {error}") from None
    if number.value != value:
        raise ValueError(f"{name} is {value!r}, which is beyond what its type can hold")
    return number


def _text(name, value):
    """A string, which for the library ends with its first NUL."""
    try:
        encoded = os.fsencode(value)
    except TypeError as error:
        raise TypeError(f"{name} is {value!r}: {error}") from None
    if b"\0" in encoded:
        raise ValueError(f"{name} is {value!r}, which has a NUL in it")
    return encoded


# ---- what a program uses -------------------------------------------------------------------------


class _Operands:
    """What the operands of a plan's jobs are: their shapes as they are stored, and their types."""

    def __init__(self, request, world):
        lib = library()
        dtypes = {lib.number("dtype", name): name for name in _BYTES}
        op = next((name for name in _SHAPES if lib.number("op", name) == request.op), None)
        self.request, self.world = request, world
        self.table = _SHAPES[op] if op and world else {}
        self.product = "rhs" in self.table
        self.moves_buffer = "aux_in" in self.table
        self.partials = op in ("gemm_rs", "gemm_ar")
        self.dtype = dtypes[request.dtype]
        natural = "int32" if self.product and self.dtype == "int8" else self.dtype
        self.out_dtype = dtypes.get(request.out_dtype, natural)
        natural = self.out_dtype if self.partials else self.dtype
        self.buffer_dtype = dtypes.get(request.buffer_dtype, natural)

    def _words(self, name):
        """Of the table; an epilogue's operands follow from out, or from lhs."""
        if name in self.table or not self.product:
            return self.table.get(name)
        columns = self.table["out"].split()[1]
        if not self.request.epilogue & GELU and name == "bias_grad":
            columns = self.table["lhs"].split()[0]
        return {"bias": f"1 {columns}", "bias_grad": f"1 {columns}",
                "gelu_input": self.table["out"], "pre_gelu_out": self.table["out"]}.get(name)

    def _sizes(self, rank, rows):
        request, world = self.request, self.world
        sizes = {"1": 1, "m": rows or request.m, "n": request.n, "k": request.k,
                 "r": request.buffer_shape[0], "c": request.buffer_shape[1]}
        if request.n_counts == world * world and 0 <= rank < world:
            sent = [sum(request.counts[i * world:(i + 1) * world]) for i in range(world)]
            received = sum(request.counts[i * world + rank] for i in range(world))
            sizes.update(s=sent[rank], t=received, u=max(sent))
        return sizes

    def _turned(self, name):
        if name == "rhs":
            return self.request.transb
        if name == "chunk":
            return self.request.transa and self.product and not (self.partials or self.moves_buffer)
        return self.request.transa and (name == "lhs" or
                                        name == "aux_out" and not self.moves_buffer)

    def shape(self, name, rank, rows):
        """(rows, columns); None: not known, or no operand of this plan."""
        words, sizes = self._words(name), self._sizes(rank, rows)
        if words is None or any(word[0] not in sizes for word in words.split()):
            return None
        a, b = (sizes[word[0]] // (self.world if word.endswith("/w") else 1)
                for word in words.split())
        return (b, a) if self._turned(name) else (a, b)

    def copied_in(self, rank, rows, chunk):
        """The shape of a COPY_IN's lhs; chunk None: of all chunks, one below the other."""
        shape = self.shape("chunk", rank, rows)
        if shape is None or chunk is not None or "/w" not in self.table["chunk"]:
            return shape
        return shape[0] * self.world, shape[1]

    def type_of(self, name):
        """Of an epilogue's operands: as out's."""
        if name == "chunk" or name.startswith("aux") and self.moves_buffer:
            return self.buffer_dtype
        return self.dtype if name in ("lhs", "rhs", "aux_out") else self.out_dtype


class Plan:
    """What commgemm_plan_create made; close() or the client's end gives it back."""

    _NUMBERED = ("op", "method", "algorithm", "dtype", "out_dtype", "buffer_dtype")

    def __init__(self, client, comm, **options):
        lib = library()
        request = lib.init("plan_options", PlanOptions)
        _set(request, "comm", comm)
        for name, value in options.items():
            if not hasattr(request, name):
                raise TypeError(f"{name}: commgemm_plan_options has no such field")
            table = "dtype" if name.endswith("dtype") else name
            _set(request, name, lib.number(table, value) if name in self._NUMBERED else value)
        self.client, self.reply, self.request = client, PlanReply(), request
        lib.call("commgemm_plan_create", client.handle, ctypes.byref(request),
                 ctypes.byref(self.reply))
        self._operands = _Operands(request, client.sizes.get(request.comm))

    @property
    def algorithm(self):
        return library().c.commgemm_algorithm_name(self.reply.algorithm).decode()

    @property
    def reason(self):
        return self.reply.reason.decode(errors="replace")

    def _check(self, name, tensor, wanted, dtype):
        """What lies beyond a tensor that is too small is not the job's."""
        found, size = _matrix(tensor)[:2], tensor.element_size()
        if wanted is None:
            return
        spelled = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
        if size != _BYTES[dtype] or _FRAMEWORK_DTYPES.get(spelled, dtype) != dtype:
            raise ValueError(f"{name}: a tensor with elements of {size} bytes, of type "
                             f"{spelled or '?'}; this job needs {dtype}")
        if wanted != found:
            raise ValueError(f"{name}: a tensor of shape {tuple(tensor.shape)}; this job needs "
                             f"{wanted[0]} x {wanted[1]}")

    def job(self, rank, kind=RUN, rows=0, chunk=None, detached=False, want_phases=False,
            **operands):
        """A job of this plan; operands by name. It may be submitted again and again, as long as the
        tensors stay allocated. chunk: the one that a COPY_IN is for; None: all."""
        job, known = library().init("job", JobFields), self._operands
        job.plan = self.reply.id
        for name, value in (("kind", kind), ("rank", rank), ("rows", rows),
                            ("detached", detached), ("want_phases", want_phases),
                            ("chunk", _WHOLE if chunk is None else chunk)):
            _set(job, name, value)
        for name, tensor in operands.items():
            if name not in _OPERANDS:
                raise TypeError(f"{name}: no such operand; there are {', '.join(_OPERANDS)}")
            if tensor is None:
                continue
            if not isinstance(tensor, Operand) and not hasattr(tensor, "data_ptr"):
                raise TypeError(f"{name} is {tensor!r}; it must be a tensor or an Operand")
            if kind == RUN and not isinstance(tensor, Operand):
                self._check(name, tensor, known.shape(name, rank, rows), known.type_of(name))
            elif kind == COPY_IN and name == "lhs" and not isinstance(tensor, Operand):
                self._check(name, tensor, known.copied_in(rank, rows, chunk),
                            known.type_of("chunk"))
            setattr(job, name, self.client.operand(tensor))
        return job

    def close(self):
        library().call("commgemm_plan_destroy", self.client.handle,
                       ctypes.c_uint64(self.reply.id))


def _matrix(tensor):
    """(rows, columns, bytes from row to row) of a tensor: its last dimension makes the columns, the
    others the rows. An Error where that is no matrix."""
    shape, size = tensor.shape, tensor.element_size()
    if len(shape) == 0 or size not in _DTYPE_OF_BYTES:
        raise ValueError(f"a tensor of shape {tuple(shape)} with elements of {size} bytes; it must "
                         "have a dimension, and elements of 4, 2 or 1 bytes")
    lib, numbers = library(), ctypes.c_uint64 * len(shape)
    rows, columns, pitch = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    lib.call("commgemm_collapse", numbers(*shape), numbers(*(s * size for s in tensor.stride())),
             len(shape), len(shape) - 1, lib.number("dtype", _DTYPE_OF_BYTES[size]),
             ctypes.byref(rows), ctypes.byref(columns), ctypes.byref(pitch))
    return rows.value, columns.value, pitch.value


class Client:
    """One session; one thread at a time, unless commgemm.h allows more."""

    handle = None  # of one that is closed

    def __init__(self, socket=None, name="python", ring_entries=0, executor_timeout_ms=60000):
        lib = library()
        options = lib.init("connect_options", ConnectOptions)
        if socket:
            options.socket = _text("socket", socket)
        options.name = _text("name", name)
        if ring_entries:
            _set(options, "ring_entries", ring_entries)
        self.handle = ctypes.c_void_p()
        self.sizes = {}  # of comms
        lib.call("commgemm_connect", ctypes.byref(options), ctypes.byref(self.handle))
        try:
            self.wait_executor(executor_timeout_ms)
        except BaseException:
            self.close()
            raise

    def wait_executor(self, timeout_ms=-1):
        """After EXECUTOR_LOST, NO_EXECUTOR or GPU_LOST, before what was lost is submitted again, in
        its order."""
        library().call("commgemm_wait_executor", self.handle, _exact("timeout_ms", timeout_ms))

    def close(self):
        """Ends the session. The streams that jobs were submitted in run empty first."""
        # Taken and ended in one call, as a signal's handler may raise between any two.
        take = functools.partial(self.__dict__.pop, "handle", None)
        collections.deque(map(library().c.commgemm_disconnect, iter(take, None)), maxlen=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        """Else the session would stay, with its ranks, until the process ends."""
        if self.handle:
            self.close()

    def join(self, name, size, rank, device=-1, timeout_ms=0):
        """The id of the comm, when all ranks have joined; made by whoever comes first."""
        lib = library()
        options = lib.init("join_options", JoinOptions)
        options.name, options.create, options.n_ranks = _text("name", name), 1, 1
        _set(options, "size", size)
        _set(options, "timeout_ms", timeout_ms)
        options.ranks = (ctypes.c_uint32 * 1)(_exact("rank", rank, ctypes.c_uint32))
        options.devices = (ctypes.c_int32 * 1)(_exact("device", device, ctypes.c_int32))
        comm = ctypes.c_uint64()
        lib.call("commgemm_comm_join", self.handle, ctypes.byref(options), ctypes.byref(comm))
        self.sizes[comm.value] = size
        return comm.value

    def plan(self, comm, **options):
        """Every field of commgemm_plan_options by name; op, method, algorithm and types also by
        their spelling: plan(comm, op="ag_gemm", m=..., n=..., k=..., dtype="bf16")."""
        return Plan(self, comm, **options)

    def operand(self, tensor):
        """Where a tensor lies, for a job: its last dimension makes the columns, which must lie side
        by side, the others the rows. Its allocation is imported once."""
        if isinstance(tensor, Operand):
            return tensor
        rows, columns, pitch = _matrix(tensor)
        found, row = Operand(), columns * tensor.element_size()
        library().call("commgemm_import_pointer", self.handle,
                       _exact("data_ptr", tensor.data_ptr(), ctypes.c_uint64),
                       ctypes.c_uint64((rows - 1) * (pitch or row) + row), ctypes.byref(found))
        found.row_stride_bytes = pitch
        return found

    def submit(self, job, stream=None):
        """The job's ticket. stream: an integer (torch: stream.cuda_stream), whose order the job then
        takes; None: at once."""
        ticket = ctypes.c_uint64()
        if not isinstance(job, JobFields):
            raise TypeError(f"job is {job!r}; it must be one that Plan.job made")
        if stream is None:
            library().call("commgemm_submit", self.handle, ctypes.byref(job), ctypes.byref(ticket))
        else:
            library().call("commgemm_submit_on_stream", self.handle, ctypes.byref(job),
                           _exact("stream", stream, ctypes.c_uint64), ctypes.byref(ticket))
        return ticket.value

    def wait(self, ticket, timeout_ms=-1):
        """The completion of a job that was not detached; an Error when the job failed."""
        lib, done = library(), Completion()
        lib.call("commgemm_wait", self.handle, _exact("ticket", ticket, ctypes.c_uint64),
                 _exact("timeout_ms", timeout_ms), ctypes.byref(done))
        phases = ctypes.cast(done.phases, ctypes.POINTER(Phase))
        done.phase_list = [Phase.from_buffer_copy(phases[i]) for i in range(done.n_phases)]
        lib.c.commgemm_completion_fini(ctypes.byref(done))
        done.n_phases = len(done.phase_list)
        if done.status != 0:
            raise lib.error(done.status, done.detail)
        return done

    def wait_detached(self, timeout_ms=-1):
        """Until all detached jobs have ended; an Error with the first that failed."""
        lib, first, count = library(), Completion(), ctypes.c_uint64()
        lib.call("commgemm_wait_detached", self.handle, 0, _exact("timeout_ms", timeout_ms))
        lib.call("commgemm_detached_failures", self.handle, ctypes.byref(first),
                 ctypes.byref(count))
        if count.value:
            raise lib.error(first.status, first.detail)
