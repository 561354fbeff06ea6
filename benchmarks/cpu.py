"""Compares pyclmm on a CPU device with numpy.matmul and CLBlast: host arrays in, host array out.

    python benchmarks/cpu.py [--device NAME] [--dtypes float32,float64] [--seed SEED] [--save NAME]

The results in benchmarks/results/ come from these commands, about six minutes for each driver; CPU is a short
name of the processor:

    export OUT=benchmarks/results/cpu
    OCL_ICD_VENDORS=pocl-3.1.icd python benchmarks/cpu.py --save $OUT-pocl-3.1-CPU
    OCL_ICD_VENDORS=pocl-3.0.icd python benchmarks/cpu.py --save $OUT-pocl-3.0-CPU
    OCL_ICD_VENDORS=intel.icd LD_LIBRARY_PATH=... python benchmarks/cpu.py --save $OUT-intel-2026.2-CPU

With --small SEED it is products that NumPy computes in 2 to 200 us, and three fixed ones, without CLBlast:
"pyclmm" chooses the device, as where a caller names none, and "usual" is the default device. Both are the
same unless the driver shows a device without threads:

    POCL_DEVICES="pthread basic" OCL_ICD_VENDORS=... python benchmarks/cpu.py --small 41 --save NAME

Each .icd file has one line, the path of that driver's library (`make conformance` unpacks them below
.conformance/; for Intel's, LD_LIBRARY_PATH is the library's folder). If the machine does other work, give the
run a scheduling group of its own (needs root), and record it with --conditions:

    setsid -w sh -c 'echo -20 > /proc/self/autogroup; exec nice -n -20 "$@"' _ python benchmarks/cpu.py ...

`nice` alone acts within a terminal's group only, and real-time priority is throttled after 2.5 s of work.

Rounds are interleaved, results are medians. Before its turn each contestant gets a pause and one call that is
not timed: OpenBLAS's threads spin for up to 0.1 s after a product and would occupy a core. CLBlast uses the
same device, with buffers that use the arrays' memory.
pyclmm has PoCL bind its threads; POCL_AFFINITY=0 in the environment would leave them alone. The JSON records
whether it was set, and how loaded the machine was.
Some products are listed below, the others are drawn from the seed (products.py). The peak is that of a loop
of multiply-adds alone (peak.py), measured on the same device before each product, as the clock changes. A
driver may run both halves of that loop on one core for a while, so shares are of the highest peak of a run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import clblast
import numpy as np
import peak
import processor
import pyopencl as cl
from products import FOR_CPU, drawn

import pyclmm
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.queues import new_queue
from pyclmm.tools.report import header_json
from pyclmm.tools.timing import dtype_named, random_matrix

CUBES = (128, 256, 512, 1000, 1023, 1024, 1025, 2048, 4096)
OTHERS = (
    (16, 2048, 2048),
    (2048, 16, 2048),
    (2048, 2048, 16),
    (1, 4096, 4096),
    (256, 256, 16384),
    (8192, 128, 128),
)
PAUSE = 0.11  # seconds
SLICE = 0.05  # seconds of calls for a contestant in a round
REAL = {
    "float16": "float",
    "float32": "float",
    "complex64": "float",
    "float64": "double",
    "complex128": "double",
}
SLOW = {"numpy": 4e8, "clblast": 6e9}  # skip products of more multiply-adds; NumPy's limit is for float16
LEAST, MOST = 2e-6, 200e-6  # seconds of NumPy's for a small product
Call = Callable[[], object]


def listed(dtype: np.dtype, largest: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs (A, B) by the name of their shape, M x N x K."""
    rng = np.random.default_rng(1)
    pairs = {}
    for m, n, k in [(n, n, n) for n in CUBES if n <= largest] + [*OTHERS]:
        pairs[f"{m}x{n}x{k}"] = random_matrix(rng, (m, k), dtype), random_matrix(rng, (k, n), dtype)
    a, b = (random_matrix(rng, (64 * 128, 128), dtype).reshape(64, 128, 128) for _ in "ab")
    pairs["64 of 128x128x128"] = a, b
    a, b = (random_matrix(rng, (1024, 1024), dtype) for _ in "ab")
    return pairs | {"1024x1024x1024 A.T": (a.T, b), "1024x1024x1024 B.T": (a, b.T)}


def from_seed(dtype: np.dtype, seed: int, count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs (A, B) of *count* products of *seed*, by their shape and layout."""
    rng = np.random.default_rng(1)
    pairs = {}
    for product in drawn(seed, count, (dtype.name,), largest=FOR_CPU):
        made = (
            random_matrix(rng, (int(np.prod(shape[:-1])), shape[-1]), dtype).reshape(shape)
            for shape in product.stored
        )
        a, b = (
            x.swapaxes(-1, -2) if turned == "T" else x for x, turned in zip(made, product.layout, strict=True)
        )
        pairs["x".join(map(str, product.shape)) + f" {product.layout}"] = a, b
    return pairs


def small(seed: int, count: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, A, B): three fixed products, and *count* drawn ones of float32 that take NumPy LEAST to MOST."""
    rng = np.random.default_rng(seed)

    def operand(way: str, *shape: int) -> np.ndarray:
        x = rng.random(shape if way == "N" else (*shape[:-2], shape[-1], shape[-2]), np.float32)
        return x if way == "N" else x.swapaxes(-1, -2)

    for stack, size in (((), 64), ((), 128), ((1000,), 32)):
        name = f"{size}x{size}x{size}"
        a, b = (operand("N", *stack, size, size) for _ in "ab")
        yield f"{stack[0]} of {name}" if stack else name, a, b
    for layout in itertools.islice(itertools.cycle(("NN", "NT", "TN", "TT")), count):
        seconds = 0.0
        while not LEAST <= seconds <= MOST:
            m, n, k = (int(math.exp(rng.uniform(math.log(4), math.log(600)))) for _ in "mnk")
            a, b = operand(layout[0], m, k), operand(layout[1], k, n)
            seconds = min(timed(partial(np.matmul, a, b)) for _ in range(20))
        yield f"{m}x{n}x{k} {layout}", a, b


def timed(call: Call) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def small_record(name: str, a: np.ndarray, b: np.ndarray, rounds: int) -> dict[str, Any]:
    """The record of a small product: seconds of each side, and where pyclmm computes it."""
    usual, plan = pyclmm.default_queue(), pyclmm.Matmul(a, b)
    explained = plan.explain()
    calls: dict[str, Call] = {
        "pyclmm": lambda: pyclmm.matmul(a, b),
        "usual": lambda: pyclmm.matmul(a, b, queue=usual),
        "numpy": lambda: np.matmul(a, b),
    }
    times = sampled(calls, rounds)
    return {
        "shape": name,
        "kernel": plan.kernel,
        "device": explained.device,
        "elsewhere": explained.elsewhere and asdict(explained.elsewhere),
        "right": checked(a, b, calls["pyclmm"]()) and checked(a, b, calls["usual"]()),
        "seconds": {who: statistics.median(values) for who, values in times.items()},
        "least": {who: min(values) for who, values in times.items()},
    }


def small_summary(records: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """NumPy's time over that of each side, medians and the least: of fixed products, and the geometric mean
    of the drawn. With other work on the machine NumPy's threads may wait for each other, so its median says
    nothing then.
    """
    found: dict[str, dict[str, float]] = {}
    for side, which in itertools.product(("pyclmm", "usual"), ("seconds", "least")):
        ratios = {r["shape"]: r[which]["numpy"] / r[which][side] for r in records}
        fixed = {shape: round(x, 2) for shape, x in ratios.items() if shape[-1].isdigit()}
        drawn_ones = [x for shape, x in ratios.items() if shape not in fixed]
        mean = {"drawn": round(statistics.geometric_mean(drawn_ones), 2)} if drawn_ones else {}
        found[f"{side}, {which}"] = fixed | mean
    return found


def contestants(queue: cl.CommandQueue, a: np.ndarray, b: np.ndarray) -> dict[str, Call]:
    """Functions that compute a @ b, without those that would take minutes."""
    out = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    work = out.size * a.shape[-1]
    calls: dict[str, Call] = {"pyclmm": lambda: pyclmm.matmul(a, b, queue=queue)}
    if a.dtype != np.float16 or work <= SLOW["numpy"]:
        calls["numpy"] = lambda: np.matmul(a, b)
    other = clblast.gemm(queue, a, b, out) if work <= SLOW["clblast"] else None
    if other is not None:
        calls["clblast"] = other
    return calls


def medians(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Median seconds of a call."""
    return {name: statistics.median(values) for name, values in sampled(calls, rounds).items()}


def sampled(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds of calls. Each round begins with another one, as the one before leaves its mark."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        first = turn % len(calls)
        for name, call in [*calls.items()][first:] + [*calls.items()][:first]:
            time.sleep(PAUSE)
            call()
            end = time.perf_counter() + SLICE
            while not times[name] or time.perf_counter() < end:
                times[name].append(timed(call))
    return times


def checked(a: np.ndarray, b: np.ndarray, got: np.ndarray) -> bool:
    """Whether a few rows of *got* are right, within a tolerance that any wrong index exceeds."""
    rows = slice(None, None, max(1, a.shape[-2] // 8))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    right = a[..., rows, :].astype(wide) @ b.astype(wide)
    return bool(np.abs(got[..., rows, :] - right).max() <= 1e-2 * np.abs(right).max())


def measured(
    queue: cl.CommandQueue, name: str, a: np.ndarray, b: np.ndarray, rounds: int
) -> dict[str, object]:
    """The record of one product."""
    flops = 2 * a.shape[-1] * b.shape[-1] * a[..., 0].size * (4 if a.dtype.kind == "c" else 1)
    time.sleep(PAUSE)
    limit = peak.peak_gflops(queue, REAL[a.dtype.name])
    right = checked(a, b, pyclmm.matmul(a, b, queue=queue))
    seconds = medians(contestants(queue, a, b), rounds)
    plan = pyclmm.Matmul(a, b, queue=queue)
    return {
        "shape": name,
        "dtype": a.dtype.name,
        "kernel": plan.kernel,
        "config": str(plan.config),
        "workspace_nbytes": plan.workspace_nbytes,
        "right": right,
        "seconds": seconds,
        "gflops": {who: round(flops / s / 1e9, 1) for who, s in seconds.items()},
        "peak_gflops": round(limit, 1),
    }


def ratio(record: dict[str, Any], peer: str) -> float | None:
    """pyclmm's speed divided by the peer's."""
    seconds = record["seconds"]
    return seconds[peer] / seconds["pyclmm"] if peer in seconds else None


def summary(records: list[dict[str, Any]]) -> dict[str, dict[str, float | str]]:
    """Geometric mean and least ratio, by dtype and peer; the fastest product's part of the highest peak."""
    found: dict[str, dict[str, float | str]] = {}
    for dtype in dict.fromkeys(r["dtype"] for r in records):
        for peer in ("numpy", "clblast"):
            ratios = [x for r in records if r["dtype"] == dtype and (x := ratio(r, peer)) is not None]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                found[f"{dtype} / {peer}"] = {"mean": round(mean, 3), "least": round(min(ratios), 3)}
        mine = [r for r in records if r["dtype"] == dtype]
        best = max(mine, key=lambda r: r["gflops"]["pyclmm"])
        share = best["gflops"]["pyclmm"] / max(r["peak_gflops"] for r in mine)
        found[f"{dtype} / peak"] = {"share": round(share, 3), "shape": best["shape"]}
    return found


def line(record: dict[str, Any]) -> str:
    """A record as a line of the terminal."""
    rates = record["gflops"] | {"peak": record["peak_gflops"]}
    shown = "  ".join(f"{who} {x:7.1f}" for who, x in rates.items())
    wrong = "" if record["right"] else "  WRONG"
    return f"{record['dtype']:10} {record['shape']:24} {shown} GFLOP/s  {record['kernel']}{wrong}"


def plot(records: list[dict[str, Any]], title: str, path: Path) -> None:
    """Bars of the speed relative to NumPy's, a row of axes for each dtype."""
    from matplotlib.figure import Figure  # noqa: PLC0415  an extra

    names = list(dict.fromkeys(r["dtype"] for r in records))
    figure = Figure(figsize=(11, 1 + 2.6 * len(names)), layout="constrained")
    for axes, dtype in zip(figure.subplots(len(names), squeeze=False)[:, 0], names, strict=True):
        mine = [r for r in records if r["dtype"] == dtype and "numpy" in r["seconds"]]
        axes.bar([r["shape"] for r in mine], [ratio(r, "numpy") for r in mine], color="#4477aa")
        axes.axhline(1, color="#333333", linewidth=1)
        axes.set_ylabel(f"{dtype}\ntimes NumPy's speed")
        axes.tick_params(axis="x", labelrotation=60, labelsize=7)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--dtypes", default="float32,float64,complex64,float16")
    parser.add_argument("--largest", type=int, default=4096, help="the largest cube")
    parser.add_argument("--seed", type=int, default=1, help="of the products that are drawn")
    parser.add_argument("--drawn", type=int, default=12, help="how many are drawn for each dtype")
    parser.add_argument("--small", type=int, metavar="SEED", help="small products instead")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--conditions", default="", help="a note on this run, for the JSON")
    parser.add_argument("--save", metavar="NAME", help="write NAME.json and NAME.png")
    args = parser.parse_args()
    queue = new_queue(find_device(args.device))
    info = device_info(queue.device)
    load = [os.getloadavg()[0]]
    header = header_json(info)
    name = processor.described()
    here = processor.with_facts(name, header["device"])
    print(here)
    records: list[dict[str, Any]] = []
    if args.small is not None:
        for shape, a, b in small(args.small, 24):
            records.append(small_record(shape, a, b, args.rounds))
            times = {who: round(s * 1e6, 1) for who, s in records[-1]["seconds"].items()}
            print(f"{shape:20} {times} us  {records[-1]['device'][:12]}", flush=True)
    for dtype in () if args.small is not None else map(dtype_named, args.dtypes.split(",")):
        pairs = listed(dtype, args.largest) | from_seed(dtype, args.seed, args.drawn)
        for shape, (a, b) in pairs.items():
            records.append(measured(queue, shape, a, b, args.rounds) | {"processor": here})
            print(line(records[-1]), flush=True)
    found = summary(records) if args.small is None else small_summary(records)
    for what, values in found.items():
        print(f"{what}: {', '.join(f'{key} {value}' for key, value in values.items())}")
    if args.save:
        load.append(os.getloadavg()[0])
        about = {
            "pocl_affinity": os.environ.get("POCL_AFFINITY"),
            "load": load,
            "conditions": args.conditions,
            "seed": args.seed if args.small is None else args.small,
            "processor": name,
        }
        content = header | about | {"summary": found, "records": records}
        Path(f"{args.save}.json").write_text(json.dumps(content, indent=1) + "\n")
        if args.small is None:
            driver = f"{info.platform} {info.driver_version}, {info.compute_units} compute units"
            title = f"{here}\n{driver}, {str(content['date'])[:10]}"
            plot(records, title, Path(f"{args.save}.png"))


if __name__ == "__main__":
    main()
