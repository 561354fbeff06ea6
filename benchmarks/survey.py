"""Times every kernel and configuration that could compute products drawn at random, to fit and judge
estimates.

    python benchmarks/survey.py SEED [--products 75] [--kinds ...] [--each 8] [--limit 400] [--json FILE]

Times are those of sampled.py, without events. Programs are compiled before, in processes side by side.
PYCLMM_TRIAL=off and PYCLMM_SELFCHECK=off leave out what a first call checks; results are not compared here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyopencl as cl
from products import KINDS, Product, drawn

from pyclmm.errors import PyclmmError
from pyclmm.kernels import KERNELS
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.device import AmxSupport, Caches, DeviceInfo, Target
from pyclmm.kernels.interface import Program
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.program import built
from pyclmm.opencl.queues import new_queue
from pyclmm.selection.select import offer

LISTED = (
    *((n, n, n) for n in (512, 1000, 1024, 1536, 2048, 3072, 4096, 4097, 8192)),
    *((4096, 4096, 16), (256, 256, 65536), (512, 512, 16384), (65536, 256, 256), (8192, 8192, 256)),
    *((64, 512, 512, 512), (1024, 128, 128, 128), (1, 8192, 8192), (4, 8192, 8192), (16, 4096, 4096)),
)
_LAYOUTS = ("NN", "NT", "TN")
_LEFT_OUT = ("flat", "single_group", "sequential")  # never the best on a GPU
_LOOPS = ("tiled", "naive")  # the best for tiny products at most
_MOST_LOOPS = 2e9  # multiply-adds: of larger products the textbook's kernels are not timed


def device_json(device: DeviceInfo) -> dict[str, Any]:
    return asdict(device) | {"extensions": sorted(device.extensions)}


def device_from(content: dict[str, Any]) -> DeviceInfo:
    """The device of :func:`device_json`, with the rates of this version."""
    made = _tuples(content)
    parts = {"target": Target, "caches": Caches, "amx": AmxSupport}
    made |= {name: kind(**_tuples(content[name])) for name, kind in parts.items() if name in content}
    return DeviceInfo(**{**made, "extensions": frozenset(content["extensions"]), "user_rates": None})


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(x) if isinstance(x, list) else x for name, x in content.items()}


def config_from(content: dict[str, Any]) -> TileConfig:
    """A survey's configuration. Those up to 2026-11-29 name "along", which `register` always does now."""
    options = {name: value for name, value in dict(content["options"]).items() if name != "along"}
    return TileConfig(**{**content, "options": options})


def asked(options: argparse.Namespace) -> list[Product]:
    """The products of the options: drawn, thin ones, and the listed shapes."""
    products = list(drawn(options.seed, options.products, options.kinds))
    products += drawn(options.seed, options.thin, options.kinds, thin=True)
    for number, shape in enumerate(LISTED if options.listed else ()):
        layouts = (_LAYOUTS[(number + i) % 3] for i in range(len(options.kinds)))
        products += [
            Product(kind, shape, layout) for kind, layout in zip(options.kinds, layouts, strict=True)
        ]
    return products


def candidates(product: Product, device: DeviceInfo, each: int) -> Iterator[tuple[str, TileConfig]]:
    """The first *each* configurations of every family."""
    problem = product.problem
    left_out = (*_LEFT_OUT, *(_LOOPS if product.flops > 2 * _MOST_LOOPS else ()))
    for kernel in (k for k in KERNELS if k.name not in left_out):
        configs = offer(kernel, problem, device)
        if not isinstance(configs, str):
            most = min(each, 2) if kernel.name in _LOOPS else each
            yield from ((kernel.name, config) for _, config in configs[:most])


def programs(products: Sequence[Product], device: DeviceInfo, each: int) -> list[Program]:
    """The programs of all candidates of *products*, in an order that is the same in every process."""
    families = {kernel.name: kernel for kernel in KERNELS}
    found: dict[Program, None] = {}
    for product in products:
        problem = product.problem
        for name, config in candidates(product, device, each):
            work = families[name].launches(problem, config, device)
            found |= {launch.program: None for launch in work.launches}
    return list(found)


def build(queue: cl.CommandQueue, those: Sequence[Program]) -> list[cl.Program]:
    made = []
    for program in those:
        try:
            made.append(built(queue.context, program))
        except PyclmmError as error:
            print(f"does not build: {program.source}: {str(error)[:200]}", flush=True)
    return made


def build_side_by_side(arguments: Sequence[str], jobs: int, limit: float, script: str = __file__) -> None:
    """Fill the driver's cache from *jobs* processes of *script*, for at most *limit* seconds."""
    own = [sys.executable, script, *arguments, "--part"]
    children = [subprocess.Popen([*own, str(i), str(jobs)]) for i in range(jobs)]
    end = time.monotonic() + limit
    for child in children:
        try:
            child.wait(max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()


def surveyed(timed: Any, device: DeviceInfo, each: int, rounds: int) -> dict[str, Any]:
    """The times of all candidates and of cuBLAS."""
    product, found = timed.product, []
    for name, config in candidates(product, device, each):
        try:
            plan = timed.plan((name, config))
            timed.burst.queue.finish()
            launches = len(plan.enqueue(*timed.operands, out=timed.out))
            found.append((name, config, plan, launches, timed.eventless(plan, launches)))
        except (PyclmmError, cl.Error, RuntimeError) as error:
            print(f"{product} {name} {config}: {str(error)[:150]}", flush=True)
    least = min(row[4] for row in found)
    close = [row for row in found if row[4] < 1.6 * least]  # the others are timed once
    times: dict[int, list[float]] = {id(row): [row[4]] for row in found}
    peer = []
    for _ in range(rounds):
        for row in close:
            times[id(row)].append(timed.eventless(row[2], row[3]))
        peer.append(timed.cublas())
    rows = [
        {"kernel": row[0], "config": asdict(row[1]), "launches": row[3],
         "seconds": statistics.median(times[id(row)][1:] or times[id(row)])}
        for row in found
    ]  # fmt: skip
    return {**asdict(product), "cublas_seconds": statistics.median(peer[1:]), "candidates": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--products", type=int, default=75)
    parser.add_argument("--thin", type=int, default=0, help="so many products with M or N under 32")
    parser.add_argument("--listed", action="store_true", help="the shapes of matrix_units.py too")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--limit", type=float, default=400, help="seconds for compiling, and as many for timing"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"))
    device = device_info(queue.device)
    products = asked(options)
    needed = programs(products, device, options.each)
    if options.part:
        part, parts = options.part
        build(queue, needed[part::parts])
        return
    started = time.perf_counter()
    build_side_by_side(sys.argv[1:], max(1, (os.cpu_count() or 2) - 1), options.limit)
    print(f"{len(needed)} programs: {time.perf_counter() - started:.0f} s", flush=True)
    held = build(queue, needed)
    print(f"loaded: {time.perf_counter() - started:.0f} s", flush=True)

    from burst import Burst  # noqa: PLC0415  the processes that compile need no PyTorch
    from sampled import OnDevice, SampledProduct  # noqa: PLC0415

    burst, random, started = Burst(queue), OnDevice(queue), time.perf_counter()
    about = {"device": device_json(device), "seed": options.seed, "date": datetime.date.today().isoformat()}
    rows = []
    for product in products:
        if time.perf_counter() - started > options.limit:
            print("out of time before", product)
            break
        rows.append(surveyed(SampledProduct(burst, product, random), device, options.each, options.rounds))
        best = min(rows[-1]["candidates"], key=lambda row: row["seconds"])
        ratio = rows[-1]["cublas_seconds"] / best["seconds"]
        print(f"{product}: {ratio:.2f} {best['kernel']} {best['seconds'] * 1e6:.1f} us", flush=True)
        if options.json:
            options.json.write_text(json.dumps({**about, "rows": rows}) + "\n")
    print(f"timed: {time.perf_counter() - started:.0f} s")
    del held


if __name__ == "__main__":
    main()
