#!/usr/bin/env python3
"""From what peers.py measured to a table (Markdown) and a picture (SVG) of floor fractions. Needs
nothing but Python."""

import json
import os
import sys

import bar_chart

# Bytes that a rank of world w sends for an operation, as a part of (w - 1) / w of a matrix.
MOVED = {
    "ag_gemm": lambda row: row["m"] * row["k"],
    "gemm_rs": lambda row: row["m"] * row["n"],
    "gemm_ar": lambda row: 2 * row["m"] * row["n"],
    "gemm_as": lambda row: row["m"] * row["n"],
    "ag": lambda row: row["m"] * row["n"],
    "rs": lambda row: row["m"] * row["n"],
    "ar": lambda row: 2 * row["m"] * row["n"],
}
TYPE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "int32": 4}

# Variants in the order of the columns: what is compared with, and ours.
OTHERS = {
    "sequence": "NCCL + cuBLAS in sequence",
    "async_tp": "async_tp",
    "async_tp_native": "async_tp, native",
    "one_shot": "one-shot",
    "two_shot": "two-shot",
}
OURS = {
    "commgemm": "auto",
    "commgemm_serial": "serial",
    "commgemm_copies": "serial, copies",
    "commgemm_ring": "ring",
    "commgemm_split": "split",
    "commgemm_atomic": "atomic",
    "commgemm_atomic_split": "atomic split",
    "commgemm_fused": "fused",
}
COLORS = {
    "sequence": "#a0aec0",
    "async_tp": "#b7791f",
    "async_tp_native": "#ecc94b",
    "one_shot": "#975a16",
    "two_shot": "#d69e2e",
    "commgemm": "#1a202c",
    "commgemm_serial": "#90cdf4",
    "commgemm_copies": "#63b3ed",
    "commgemm_ring": "#3182ce",
    "commgemm_split": "#38a169",
    "commgemm_atomic": "#805ad5",
    "commgemm_atomic_split": "#d53f8c",
    "commgemm_fused": "#e53e3e",
}


def sent_bytes(row, world):
    return MOVED[row["op"]](row) * TYPE_BYTES[row["dtype"]] * (world - 1) / world


def link_rate(report):
    """The best all-gather of the run: bytes per microsecond and where, or None."""
    world, best = report["world_size"], None
    for row in report["rows"]:
        names = {"ag": row["us"], "ag_gemm": {"nccl"} & set(row["us"])}.get(row["op"], ())
        for name in names:
            rate = sent_bytes(row, world) / row["us"][name]
            if rate > 0 and (not best or rate > best[0]):
                best = (rate, f"{name} of {row['name']}")
    return best


def floor_us(row, rate, world):
    """The longer of the best unsplit product and the time on the links; None when it is unknown."""
    gemms = [row["us"][name] for name in ("gemm", "commgemm_gemm") if name in row["us"]]
    if not rate or ("gemm" in row["op"] and not gemms):
        return None
    return max(min(gemms, default=0), sent_bytes(row, world) / rate[0])


def fractions(row, floor):
    """Floor fraction of each variant that does the whole operation."""
    return {name: floor / us for name, us in row["us"].items()
            if floor and name in {**OTHERS, **OURS}}


def best_of(values, names, pick):
    there = [name for name in names if name in values]
    return pick(there, key=values.get) if there else None


# ---- the table ----------------------------------------------------------------------------------


def columns_of(rows, names):
    return [name for name in names if any(name in row["us"] for row in rows)]


def us(value):
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def fraction(value):
    return "" if value is None else f"{value:.2f}"


def row_cells(row, columns, rate, world):
    floor = floor_us(row, rate, world)
    parts = fractions(row, floor)
    ours = best_of(parts, [name for name in OURS if name != "commgemm"], max)
    other = best_of(parts, OTHERS, max)
    cells = [row["op"], f"{row['m']} {row['n']} {row['k']} {row['dtype']}",
             us(row["us"].get("gemm")), us(row["us"].get("nccl"))]
    cells += [us(row["us"].get(name)) for name in columns]
    cells += [us(floor), fraction(parts.get("commgemm")),
              f"{fraction(parts[ours])} {OURS[ours]}" if ours else "",
              f"{fraction(parts[other])} {OTHERS[other]}" if other else ""]
    return cells


def markdown_table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in rows]


def table(report, rate):
    rows, world = report["rows"], report["world_size"]
    columns = columns_of(rows, {**OTHERS, **OURS})
    head = ["op", "m n k", "gemm alone", "NCCL alone"]
    head += [{**OTHERS, **OURS}[name] for name in columns]
    head += ["floor", "floor fraction: auto", "best of ours by name", "best of the others"]
    return markdown_table(head, [row_cells(row, columns, rate, world) for row in rows])


def choices(report):
    """What auto took, where, and why."""
    told = [(row["name"], row["commgemm"]["commgemm"]) for row in report["rows"]
            if "commgemm" in row.get("commgemm", {})]
    if not told:
        return []
    cells = [[name, *(part.strip().replace("|", "\\|") for part in why.partition(":")[::2])]
             for name, why in told]
    return ["", "What auto took:", "", *markdown_table(["shape", "algorithm", "why"], cells)]


def refusals(report):
    lines = [f"- {row['name']}, {name}: {' '.join(why.split())}"
             for row in report["rows"] for name, why in row["refused"].items()]
    return ["", "Not measured:", "", *lines] if lines else []


def conditions(report, rate):
    text = (f"{report['date']}, {report['world_size']} x {report['gpu']}, driver "
            f"{report['driver']}, CUDA {report['cuda']}, torch {report['torch']}, NCCL "
            f"{report['nccl']}; {report['iters']} turns after {report['warmup']} to warm up, all "
            "variants in turn on the same tensors and streams; medians of event times in us, the "
            "largest of all ranks. Sizes are the whole product's.")
    if report.get("note"):
        text += f" {report['note']}."
    floor = "No link rate was measured, so there is no floor."
    if rate:
        floor = (f"Floor: the longer of the best unsplit product and the bytes that a rank sends at "
                 f"{rate[0] / 1e3:.0f} GB/s, the best all-gather of this run ({rate[1]}).")
    return [text, "", floor, ""]


def markdown(report):
    rate = link_rate(report)
    lines = ["# Beside NCCL and PyTorch", "", *conditions(report, rate), *table(report, rate),
             *choices(report), *refusals(report)]
    return "\n".join(lines) + "\n"


# ---- the picture --------------------------------------------------------------------------------


def picture(report):
    rate, world = link_rate(report), report["world_size"]
    rows = [row for row in report["rows"] if "gemm" in row["op"]]
    names = columns_of(rows, {**OTHERS, **OURS})
    series = [bar_chart.Series({**OTHERS, **OURS}[name], COLORS[name]) for name in names]
    groups = []
    for row in rows:
        parts = fractions(row, floor_us(row, rate, world))
        label = (row["name"], f"{row['m']} {row['n']} {row['k']}")
        groups.append(bar_chart.Group(label, [parts.get(name) for name in names]))
    return bar_chart.draw("Floor fraction by shape",
                          f"{world} x {report['gpu']}, {report['date']}; 1 is the floor: the longer "
                          "of the product alone and the bytes at the links' rate",
                          "floor / time of the job", series, groups)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main(arguments):
    if len(arguments) != 2:
        sys.exit("usage: peers_report.py peers.json FOLDER: writes FOLDER/peers.md and peers.svg")
    source, folder = arguments
    try:
        with open(source, encoding="utf-8") as file:
            report = json.load(file)
        write(os.path.join(folder, "peers.md"), markdown(report))
        write(os.path.join(folder, "peers.svg"), picture(report))
    except OSError as error:
        sys.exit(f"peers_report.py: {error.filename}: {error.strerror}")
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"peers_report.py: {source}: it is none of peers.py's reports: {error!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
