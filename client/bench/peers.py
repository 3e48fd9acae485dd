#!/usr/bin/env python3
"""Times what else there is on the same shapes: the product alone, NCCL alone, one after the other,
and PyTorch's symmetric-memory operators; with --commgemm also the jobs of a running commgemmd, on
the same tensors and in the same streams. One process a GPU, started by this program itself unless
torch.distributed.run started it.

Every figure is the median of event times, the largest of all ranks; the variants of a shape take
turns, because a GPU's clock drifts; the data is random, because products of zeros run faster; a
result that differs from the sequential one is reported as wrong instead of timed."""

import argparse
import datetime
import json
import os
import statistics
import sys

import shape_file

# Multicast is off on the machines that this is compared on.
SETTINGS = {
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}
NATIVE = "TORCH_SYMM_MEM_ENABLE_NATIVE_ASYNC_TP"  # read by PyTorch at every call
FLUSH_BYTES = 256 << 20
HEAD_START_CYCLES = 2000000  # the CPU enqueues while the GPU sleeps, a millisecond or so
TORCH_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

# A rank has N / world of the whole product for ag and as, K / world for rs and ar.
OPERATIONS = ("ag_gemm", "gemm_rs", "gemm_ar", "gemm_as", "ag", "ar")
SHAPES = shape_file.read(os.path.join(shape_file.FOLDER, "peers.shapes"), OPERATIONS)


class Ranks:
    """This process among the others."""

    def __init__(self, torch, with_commgemm=False):
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symmetric

        self.torch, self.dist, self.symmetric = torch, dist, symmetric
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank)))
        torch.cuda.set_device(self.device)
        dist.init_process_group(
            "nccl", device_id=self.device, timeout=datetime.timedelta(seconds=300)
        )
        self.group = dist.group.WORLD.group_name
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=self.device)
        self.start_line = torch.zeros(1, device=self.device)
        torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
        self.jobs = Jobs(self) if with_commgemm else None

    def type(self, name):
        return getattr(self.torch, TORCH_TYPES[name])

    def random(self, rows, columns, dtype):
        return self.torch.randn(rows, columns, device=self.device, dtype=self.type(dtype))

    def empty(self, rows, columns, dtype):
        return self.torch.empty(rows, columns, device=self.device, dtype=self.type(dtype))

    def largest(self, value):
        """The largest of all ranks' values."""
        cell = self.torch.tensor(float(value), device=self.device, dtype=self.torch.float64)
        self.dist.all_reduce(cell, op=self.dist.ReduceOp.MAX)
        return cell.item()


class Jobs:
    """This rank's jobs of commgemmd."""

    def __init__(self, ranks):
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path.insert(0, os.path.join(here, "..", "bindings", "python"))
        import commgemm

        self.ranks, self.plans = ranks, {}
        self.client = commgemm.Client(name="peers")
        self.comm = self.client.join("peers", ranks.world, ranks.rank, device=ranks.device.index)

    def variant(self, name, shape, op, how, out, **operands):
        """A function that submits the job and returns what it writes; how: the plan's method or
        algorithm. Whoever calls it first makes the plan, so that a refusal is this variant's alone.
        Its attribute `told` does the same and returns the completion."""
        jobs = []

        def submit(which):
            if not jobs:
                plan = self.client.plan(self.comm, op=op, m=shape.m, n=shape.n, k=shape.k,
                                        dtype=shape.dtype, **how)
                self.plans[name] = plan
                jobs.extend(plan.job(self.ranks.rank, out=out, **asked, **operands)
                            for asked in ({"detached": True}, {"want_phases": True}))
            stream = self.ranks.torch.cuda.current_stream().cuda_stream
            return self.client.submit(jobs[which], stream=stream)

        def run():
            submit(0)
            return out

        run.told = lambda: self.client.wait(submit(1), timeout_ms=60000)
        return run

    def reasons(self):
        return {name: f"{plan.algorithm}: {plan.reason}" for name, plan in self.plans.items()}

    def check(self):
        """Raises when a job since the last call failed."""
        self.client.wait_detached(timeout_ms=60000)

    def close_plans(self):
        while self.plans:
            self.plans.popitem()[1].close()


def add_jobs(ranks, shape, variants, out, **operands):
    """The same operation by commgemmd, in each of the ways."""
    for name, how in WAYS[shape.op].items() if ranks.jobs else ():
        variants[name] = ranks.jobs.variant(name, shape, shape.op, how, out, **operands)


AUTO = {"commgemm": {"method": "auto"}, "commgemm_serial": {"method": "none"},
        "commgemm_copies": {"algorithm": "no_overlap", "use_ce": 1}}


def with_algorithms(**names):
    """auto, serial, and these algorithms under commgemm_ and their key."""
    return {**AUTO, **{"commgemm_" + key: {"algorithm": name} for key, name in names.items()}}


WAYS = {
    "ag_gemm": with_algorithms(ring="split_pipelined_ag_p2p", atomic="atomic_gemm_ag_p2p",
                               fused="fused_ag"),
    "gemm_rs": with_algorithms(ring="split_pipelined_rs_p2p", split="split_pipelined_rs",
                               atomic="atomic_gemm_rs_p2p", atomic_split="atomic_gemm_rs",
                               fused="fused_rs"),
    "gemm_ar": with_algorithms(ring="two_shot_ar", split="one_shot_ar", fused="fused_ar"),
    "gemm_as": with_algorithms(split="split_as", atomic="atomic_gemm_as", fused="fused_as"),
    "ag": AUTO,
    "ar": with_algorithms(ring="two_shot_ar", split="one_shot_ar"),
}


# ---- variants: name -> a function that does it once and returns the result, or None -------------


def native(function):
    """The same with PyTorch's own kernels, where it has some for the shape."""

    def run():
        os.environ[NATIVE] = "1"
        try:
            return function()
        finally:
            del os.environ[NATIVE]

    return run


def both(variants, name, function):
    variants[name] = function
    variants[name + "_native"] = native(function)


def ag_gemm(ranks, shape):
    torch, dist = ranks.torch, ranks.dist
    columns = shape.n // ranks.world
    lhs = ranks.random(shape.m // ranks.world, shape.k, shape.dtype)
    rhs = ranks.random(shape.k, columns, shape.dtype)
    gathered = ranks.empty(shape.m, shape.k, shape.dtype)
    out = ranks.empty(shape.m, columns, shape.dtype)

    def gather():
        dist.all_gather_into_tensor(gathered, lhs)

    def sequence():
        gather()
        return torch.mm(gathered, rhs, out=out)

    def fused():
        return torch.ops.symm_mem.fused_all_gather_matmul(lhs, [rhs], 0, ranks.group)[1][0]

    variants = {"sequence": sequence, "gemm": lambda: drop(torch.mm(gathered, rhs, out=out))}
    variants["nccl"] = gather
    both(variants, "async_tp", fused)
    add_jobs(ranks, shape, variants, out, lhs=lhs, rhs=rhs)
    if ranks.jobs:
        alone = shape._replace(n=columns)
        product = ranks.empty(shape.m, columns, shape.dtype)
        job = ranks.jobs.variant("commgemm_gemm", alone, "gemm", {"method": "none"}, product,
                                 lhs=gathered, rhs=rhs)
        variants["commgemm_gemm"] = lambda: drop(job())
        variants["commgemm_gemm"].told = job.told
    return variants


def gemm_rs(ranks, shape):
    torch, dist = ranks.torch, ranks.dist
    lhs = ranks.random(shape.m, shape.k // ranks.world, shape.dtype)
    rhs = ranks.random(shape.k // ranks.world, shape.n, shape.dtype)
    partial = ranks.random(shape.m, shape.n, shape.dtype)
    out = ranks.empty(shape.m // ranks.world, shape.n, shape.dtype)

    def scatter():
        dist.reduce_scatter_tensor(out, partial)

    def sequence():
        torch.mm(lhs, rhs, out=partial)
        scatter()
        return out

    def fused():
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(lhs, rhs, "sum", 0, ranks.group)

    variants = {"sequence": sequence, "gemm": lambda: drop(torch.mm(lhs, rhs, out=partial))}
    variants["nccl"] = scatter
    both(variants, "async_tp", fused)
    add_jobs(ranks, shape, variants, out, lhs=lhs, rhs=rhs)
    return variants


def gemm_ar(ranks, shape):
    torch, dist = ranks.torch, ranks.dist
    lhs = ranks.random(shape.m, shape.k // ranks.world, shape.dtype)
    rhs = ranks.random(shape.k // ranks.world, shape.n, shape.dtype)
    out = ranks.empty(shape.m, shape.n, shape.dtype)
    other = ranks.random(shape.m, shape.n, shape.dtype)

    def sequence():
        torch.mm(lhs, rhs, out=out)
        dist.all_reduce(out)
        return out

    variants = {
        "sequence": sequence,
        "gemm": lambda: drop(torch.mm(lhs, rhs, out=out)),
        "nccl": lambda: drop(dist.all_reduce(other, op=dist.ReduceOp.AVG)),
    }
    add_jobs(ranks, shape, variants, ranks.empty(shape.m, shape.n, shape.dtype), lhs=lhs,
             rhs=rhs)
    return variants


def gemm_as(ranks, shape):
    torch, dist = ranks.torch, ranks.dist
    columns = shape.n // ranks.world
    lhs = ranks.random(shape.m, shape.k, shape.dtype)
    rhs = ranks.random(shape.k, columns, shape.dtype)
    own = ranks.random(shape.m, columns, shape.dtype)
    out = ranks.empty(shape.m * ranks.world, columns, shape.dtype)

    def gather():
        dist.all_gather_into_tensor(out, own)

    def sequence():
        torch.mm(lhs, rhs, out=own)
        gather()
        return out

    # Every rank holds the columns of the others behind its own, where the collective puts blocks.
    whole = ranks.empty(shape.m, shape.n, shape.dtype)
    variants = {
        "sequence": sequence,
        "gemm": lambda: drop(torch.mm(lhs, rhs, out=own)),
        "nccl": gather,
    }
    add_jobs(ranks, shape, variants, whole, lhs=lhs, rhs=rhs)
    for name in WAYS[shape.op] if ranks.jobs else ():
        variants[name] = in_blocks(ranks, shape, variants[name])
    return variants


def in_blocks(ranks, shape, function):
    """The product is compared as the collective leaves it: every rank's columns as a block of rows.
    The comparison alone does this, not the job: it is no part of what is timed."""

    def run():
        return function()

    columns = shape.n // ranks.world
    run.told = function.told
    run.arrange = lambda product: ranks.torch.cat(product.split(columns, dim=1))
    return run


def all_gather(ranks, shape):
    dist = ranks.dist
    rows = shape.m // ranks.world
    own = ranks.random(rows, shape.n, shape.dtype)
    out = ranks.empty(shape.m, shape.n, shape.dtype)
    shared = ranks.symmetric.empty(shape.m, shape.n, device=ranks.device,
                                   dtype=ranks.type(shape.dtype))
    handle = ranks.symmetric.rendezvous(shared, ranks.group)

    def nccl():
        dist.all_gather_into_tensor(out, own)
        return out

    def push():
        """By copy engines, staggered: what the links carry at best. The result is not looked at,
        because this rank's stream does not know when the others' copies are there."""
        for distance in range(1, ranks.world):
            peer = (ranks.rank + distance) % ranks.world
            handle.get_buffer(peer, own.shape, own.dtype, ranks.rank * own.numel()).copy_(own)

    variants = {"sequence": nccl, "push": push}
    add_jobs(ranks, shape, variants, ranks.empty(shape.m, shape.n, shape.dtype), lhs=own)
    return variants


def all_reduce(ranks, shape):
    dist, operators = ranks.dist, ranks.torch.ops.symm_mem
    kept = ranks.random(shape.m, shape.n, shape.dtype)
    data = kept.clone()
    shared = ranks.symmetric.empty(
        shape.m, shape.n, device=ranks.device, dtype=getattr(ranks.torch, shape.dtype)
    )
    ranks.symmetric.rendezvous(shared, ranks.group)

    # All begin with the same data, or what is summed in place again and again would overflow.
    def renewed(target, function):
        function.prepare = lambda: target.copy_(kept)
        return function

    def nccl():
        dist.all_reduce(data)
        return data

    variants = {
        "sequence": renewed(data, nccl),
        "one_shot": renewed(
            shared, lambda: operators.one_shot_all_reduce(shared, "sum", ranks.group)
        ),
        "two_shot": renewed(
            shared, lambda: operators.two_shot_all_reduce_(shared, "sum", ranks.group)
        ),
    }
    reduced = ranks.empty(shape.m, shape.n, shape.dtype)
    add_jobs(ranks, shape, variants, reduced, lhs=kept)
    return variants


BUILDERS = {
    "ag_gemm": ag_gemm,
    "gemm_rs": gemm_rs,
    "gemm_ar": gemm_ar,
    "gemm_as": gemm_as,
    "ag": all_gather,
    "ar": all_reduce,
}


def drop(_):
    """Of a variant whose result is none of the whole operation."""
    return None


# ---- measuring ----------------------------------------------------------------------------------


def differs(result, expected):
    """True when it is not the same up to what another order of additions does."""
    if result is None or expected is None:
        return False
    if result.shape != expected.shape:
        return True
    left, right = result.float(), expected.float()
    scale = right.abs().max().clamp(min=1e-6)
    return not bool(((left - right).abs().max() / scale <= 0.02).item())


def try_variants(ranks, variants):
    """Runs each once; those that work on all ranks, and why the others do not."""
    works, refused = {}, {}
    expected = None
    for name, function in variants.items():
        why = ""
        try:
            prepare(function)
            result = function()
            ranks.torch.cuda.synchronize()
            if ranks.jobs:
                ranks.jobs.check()
            if hasattr(function, "arrange"):
                result = function.arrange(result)
            if name == "sequence":
                expected = None if result is None else result.clone()
            elif differs(result, expected):
                why = "its result is wrong"
        except Exception as error:  # whatever a version of PyTorch does not have
            why = repr(error)[:300]
        if ranks.largest(bool(why)):
            refused[name] = why or "it fails on another rank"
        else:
            works[name] = function
    return works, refused


def prepare(function):
    """What belongs to a turn and is not timed."""
    if hasattr(function, "prepare"):
        function.prepare()


def all_begin(ranks, function):
    """All ranks begin together and find no data in the cache; the CPU is ahead of the GPU. GPUs do
    not sleep equally long, so a small collective follows, as one does before most layers."""
    prepare(function)
    ranks.flush.zero_()
    ranks.dist.barrier()
    ranks.torch.cuda.synchronize()
    ranks.torch.cuda._sleep(HEAD_START_CYCLES)
    ranks.dist.all_reduce(ranks.start_line)


def time_once(ranks, function):
    """Microseconds on this rank."""
    begin, end = (ranks.torch.cuda.Event(True) for _ in range(2))
    all_begin(ranks, function)
    begin.record()
    function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def measure(ranks, variants, iters, warmup):
    times = {name: [] for name in variants}
    for turn in range(warmup + iters):
        for name, function in variants.items():
            micros = time_once(ranks, function)
            if turn >= warmup:
                times[name].append(micros)
    return {name: round(ranks.largest(statistics.median(t)), 1) for name, t in times.items()}


def look_inside(ranks, variants, turns):
    """What the executor says of its jobs: us from the launch to the end, the median of this rank's,
    and the phases of the last one."""
    told = {name: [] for name, function in variants.items() if hasattr(function, "told")}
    for _ in range(turns):
        for name, dones in told.items():
            all_begin(ranks, variants[name])
            dones.append(variants[name].told())
    return {name: {"running_us": statistics.median(done.running_ns for done in dones) / 1e3,
                   "phases": [phase_of(phase) for phase in dones[-1].phase_list]}
            for name, dones in told.items()}


def phase_of(phase):
    whole = {name: getattr(phase, name) for name in ("device", "rank", "queue", "chunk", "peer")}
    return {"name": phase.name, "begin_us": phase.begin_ns / 1e3, "end_us": phase.end_ns / 1e3,
            **whole}


def run_shape(ranks, shape, options):
    row = {**shape._asdict(), "us": {}, "refused": {}}
    ranks.torch.cuda.empty_cache()
    try:
        variants = BUILDERS[shape.op](ranks, shape)
    except Exception as error:
        row["refused"]["all"] = repr(error)[:300]
        return row
    works, row["refused"] = try_variants(ranks, variants)
    row["us"] = measure(ranks, works, options.iters, options.warmup)
    if ranks.jobs:
        ranks.jobs.check()
        row["commgemm"] = ranks.jobs.reasons()
        if options.inside:
            row["inside"] = look_inside(ranks, works, options.inside)
        ranks.jobs.close_plans()
    parts = {"gemm", "nccl", "commgemm_gemm"} if "gemm" in shape.op else {"push"}
    whole = {name: us for name, us in row["us"].items() if name not in parts}
    row["best"] = min(whole, key=whole.get) if whole else None
    return row


# ---- what it ran on, and the report -------------------------------------------------------------


def driver_release():
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def describe(torch, world):
    return {
        "version": 1,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "driver": driver_release(),
        "gpu": torch.cuda.get_device_name(),
        "world_size": world,
        "environment": {name: os.environ[name] for name in SETTINGS},
    }


def print_row(row, file):
    times = "  ".join(f"{name} {us:.1f}" for name, us in row["us"].items())
    print(f"{row['name']:13} {row['op']:8} {times}  best {row.get('best')}", file=file,
          flush=True)
    for name, why in row["refused"].items():
        print(f"{'':13} {name}: {why}", file=file, flush=True)


def write(path, report):
    text = json.dumps(report, indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def run(options):
    import torch

    ranks = Ranks(torch, options.commgemm)
    report = {**describe(torch, ranks.world), "note": options.note, "iters": options.iters,
              "warmup": options.warmup, "rows": []}
    table = sys.stderr if options.output_file == "-" else sys.stdout
    if ranks.rank == 0:
        print("  ".join(f"{key} {report[key]}" for key in
                        ("date", "torch", "cuda", "nccl", "driver", "gpu", "world_size")),
              file=table)
        print("medians in us, the largest of all ranks", file=table, flush=True)
    for shape in options.shapes:
        row = run_shape(ranks, shape, options)
        report["rows"].append(row)
        if ranks.rank == 0:
            print_row(row, table)
            if options.output_file not in (None, "-"):
                write(options.output_file, report)  # what is there stays there
    if ranks.rank == 0 and options.output_file == "-":
        write("-", report)
    if ranks.jobs:
        ranks.jobs.client.close()
    ranks.dist.destroy_process_group()


# ---- command line -------------------------------------------------------------------------------


def find_shapes(text):
    known = {shape.name: shape for shape in SHAPES}
    names = list(known) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown)}: no such shape; there are: all, {', '.join(known)}"
        )
    return [known[name] for name in names]


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be at least 1")
    return number


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", type=find_shapes, default=SHAPES, metavar="NAME,...",
                        help="which rows of the table; default all; see --list")
    parser.add_argument("--iters", type=positive, default=20, help="timed turns; default 20")
    parser.add_argument("--warmup", type=positive, default=5, help="turns before; default 5")
    parser.add_argument("--commgemm", action="store_true",
                        help="also the jobs of the commgemmd at $COMMGEMM_SOCKET; the library is "
                        "$COMMGEMM_LIBRARY, else libcommgemm-client.so.0")
    parser.add_argument("--inside", type=positive, metavar="TURNS",
                        help="then TURNS more of the jobs of commgemmd, which say how long they took "
                        "from launch to end and what each queue did; for the JSON")
    parser.add_argument("--world", type=positive, help="processes to start; default: the GPUs")
    parser.add_argument("--output-file", metavar="FILE", help="write JSON; - for standard output")
    parser.add_argument("--note", default="", help="a line for the report: how it was run")
    parser.add_argument("--list", action="store_true", help="print the table of shapes and end")
    return parser.parse_args(arguments)


def start_ranks(options, arguments):
    try:
        import torch
    except ImportError:
        sys.exit("peers.py: PyTorch is not installed; try: pip install torch")
    world = options.world or torch.cuda.device_count()
    if world < 1 or world > torch.cuda.device_count():
        sys.exit(f"peers.py: {options.world or 'one or more'} GPUs are needed, "
                 f"{torch.cuda.device_count()} are here")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               f"--nproc-per-node={world}", os.path.abspath(__file__), *arguments]
    os.execv(sys.executable, command)


def main(arguments):
    options = parse(arguments)
    if options.list:
        for shape in SHAPES:
            print(f"{shape.name:13} {shape.op:8} M {shape.m:5} N {shape.n:6} K {shape.k:6} "
                  f"{shape.dtype:4} {shape.what}")
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    os.environ.pop(NATIVE, None)
    if "RANK" in os.environ:
        run(options)
    else:
        start_ranks(options, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
