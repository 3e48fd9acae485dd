"""Shapes and types of the Python binding's operands are those that the executor checks: a job whose
operands end where their memory ends runs, and is refused with one of them an element further on, or
with narrower rows."""

import ctypes
import itertools
import threading

import commgemm
from commgemm import ACCUMULATE, BIAS, COPY_IN, GELU, GRAD, RUN

RANKS, BYTES = 2, 65536
SIZES = {"m": 12, "n": 10, "k": 6, "buffer_shape": (8, 14)}
COUNTS = (ctypes.c_uint32 * 4)(1, 3, 2, 6)  # m rows
INPUTS = ("lhs", "rhs", "bias", "gelu_input", "aux_in")
OUTPUTS = ("out", "bias_grad", "pre_gelu_out", "aux_out")
OF_EPILOGUES = {"bias": lambda e: e & BIAS and not e & GRAD,
                "gelu_input": lambda e: e & GELU and e & GRAD,
                "bias_grad": lambda e: e & BIAS and e & GRAD,
                "pre_gelu_out": lambda e: e & GELU and not e & GRAD}


class Buffer(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("generation", ctypes.c_uint32), ("tainted", ctypes.c_int),
                ("writable", ctypes.c_int), ("fd", ctypes.c_int)]


class Rank:
    def __init__(self, rank):
        self.rank, self.client, self.buffers = rank, commgemm.Client(), {}
        for name in INPUTS + OUTPUTS:
            self.buffers[name] = buffer = Buffer()
            commgemm.library().call("commgemm_buffer_create", self.client.handle, None,
                                    ctypes.c_uint64(BYTES), -1, 0, 0, ctypes.byref(buffer))

    def join(self):
        self.comm = self.client.join("operands", RANKS, self.rank)

    def operand(self, name, shape, size, shift, narrower):
        """The last bytes of its buffer; None: its rows are too narrow to be narrower."""
        buffer, row = self.buffers[name], shape[1] * size
        stride = row - size if narrower else row
        begin = BYTES - (shape[0] * row) + shift * size
        if stride == 0:
            return None
        return commgemm.Operand(buffer.id, begin, stride, buffer.generation)

    def submit(self, plan, kind, rows, chunk, known, moved=None, **how):
        """The ticket of a job, of whose operands `moved` lies elsewhere."""
        operands = {}
        for name, (shape, size) in known.items():
            at = how if name == moved else {"shift": 0, "narrower": False}
            operands[name] = self.operand(name, shape, size, **at)
            if operands[name] is None:
                return None
        return self.client.submit(plan.job(self.rank, kind, rows, chunk, **operands))

    def wait(self, ticket):
        try:
            self.client.wait(ticket)
        except commgemm.Error as error:
            return str(error)
        return ""


def known_operands(plan, rank, kind, rows, chunk):
    """{name: (shape, bytes of an element)} of those that such a job takes."""
    known = plan._operands
    size = lambda name: commgemm._BYTES[known.type_of(name)]
    if kind == COPY_IN:
        return {"lhs": (known.copied_in(rank, rows, chunk), size("chunk"))}
    epilogue = plan.request.epilogue
    return {name: (known.shape(name, rank, rows), size(name))
            for name in INPUTS + OUTPUTS if known.shape(name, rank, rows) is not None
            and OF_EPILOGUES.get(name, lambda _: True)(epilogue)}


def check(ranks, plans, kind, rows, chunk, words):
    """Jobs of all ranks together: a right one, then those with an operand of rank 0 elsewhere."""
    known = [known_operands(plan, r.rank, kind, rows, chunk) for r, plan in zip(ranks, plans)]
    cases = [(None, {})] + [(name, how) for name in known[0]
                            for how in ({"shift": 1, "narrower": False},
                                        {"shift": 0, "narrower": True})]
    for name, how in cases:
        first = ranks[0].submit(plans[0], kind, rows, chunk, known[0], name, **how)
        if first is None:
            continue
        tickets = [first] + [r.submit(plan, kind, rows, chunk, operands)
                             for r, plan, operands in zip(ranks[1:], plans[1:], known[1:])]
        told = [r.wait(ticket) for r, ticket in zip(ranks, tickets)]
        if name is None:
            assert told == [""] * RANKS, (words, told)
        else:
            assert told[0].startswith("INVALID_ARGUMENT") and f"{name}" in told[0], \
                (words, name, how, known[0][name], told)
    return len(cases)


def plans_of(ranks, **options):
    """Of all ranks; None: there is no such plan."""
    try:
        return [r.client.plan(r.comm, **SIZES_OF.get(options["op"], SIZES_ALONE), **options)
                for r in ranks]
    except commgemm.Error:
        return None


SIZES_ALONE = {name: SIZES[name] for name in "mnk"}
SIZES_OF = {"bulk_ag": SIZES, "bulk_rs": SIZES,
            "a2av": {**SIZES_ALONE, "counts": COUNTS, "n_counts": len(COUNTS)}}
EPILOGUES = (0, BIAS, GELU | BIAS, GRAD | GELU | BIAS, GRAD | BIAS, ACCUMULATE)
TYPES = ({"dtype": "fp32"}, {"dtype": "bf16", "out_dtype": "fp32"}, {"dtype": "int8"},
         {"dtype": "fp16", "buffer_dtype": "fp32"})


def main():
    ranks, tried, jobs, ops = [Rank(r) for r in range(RANKS)], 0, 0, set()
    threads = [threading.Thread(target=r.join) for r in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    combinations = itertools.product(commgemm._SHAPES, EPILOGUES, TYPES, (0, 1), (0, 1))
    for op, epilogue, types, transa, transb in combinations:
        options = {"op": op, "method": "none", **types}
        if "rhs" in commgemm._SHAPES[op]:
            options.update(epilogue=epilogue, transa=transa, transb=transb)
        elif epilogue or transa or transb:
            continue
        plans = plans_of(ranks, **options)
        if plans is None:
            continue
        ops.add(op)
        tried += 1
        for rows in (0,) if op == "a2av" else (0, 4):
            jobs += check(ranks, plans, RUN, rows, None, (options, rows))
        for chunk in (None, 0):
            jobs += check(ranks, plans, COPY_IN, 0, chunk, (options, "COPY_IN", chunk))
        for plan in plans:
            plan.close()
    assert ops == set(commgemm._SHAPES), set(commgemm._SHAPES) - ops
    print(f"{tried} plans, {jobs} jobs of {RANKS} ranks")


main()
