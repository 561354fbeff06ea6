"""Judges the choice of kernels before and after `pyclmm tune --device`, on products drawn at random.

    PYCLMM_TRIAL=off PYCLMM_SELFCHECK=off python benchmarks/tuned.py SEED [--products 60] [--json FILE]
        [--device nvidia] [--side 12288] [--each 4] [--limit 330]

Rates are measured into a temporary folder. Timed are the first --each configurations of every family by each
set of rates (the datasheet's, ours if this device has some, the measured ones), so the choices by all of them
too. Left out is what each set estimates at over three times its choice. The time is of calls without events,
by the device's clock on NVIDIA (burst.py) and by the host's elsewhere. Results are not compared.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyopencl as cl
import pyopencl.array as cla
from burst import Burst
from estimates import CLOSE, judged, summary
from products import FOR_GPU, KINDS, Product, Random, drawn
from survey import build, build_side_by_side, candidates, device_json

import pyclmm
from pyclmm.errors import PyclmmError
from pyclmm.kernels import kernel_named
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.device import DeviceInfo
from pyclmm.kernels.interface import Program
from pyclmm.kernels.rates import MEASURED, Rates, as_numbers
from pyclmm.opencl import clock
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.queues import new_queue

_ROUNDS = 4
_BURST, _LAUNCHES = 0.25e-3, 40  # seconds of calls in a burst, and its most launches
_SLOWER = 3.0  # times the least estimate: not timed
_CLOSE = 1.25  # times the least time: timed in every round
_COMPILING = 0.5  # of the time
Candidate = tuple[str, TileConfig]
Sets = Mapping[str, DeviceInfo]  # the device, by the name of its rates


def tuned(device: str) -> dict[str, Any]:
    """What `pyclmm tune --device` finds, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rates.json"
        command = ["tune", "--rates", "--device", device, "--json", str(file)]
        env = os.environ | {"PYCLMM_CACHE_DIR": folder}
        subprocess.run([sys.executable, "-m", "pyclmm", *command], check=True, env=env)
        return dict(json.loads(file.read_text(encoding="utf-8")))


def sets_of(device: DeviceInfo, measured: Mapping[str, float]) -> dict[str, DeviceInfo]:
    """The device with each set of rates that it may have."""
    ours = MEASURED.get(device.name)
    datasheet = replace(device, name=f"{device.name} unmeasured", user_rates=None).rates
    rates = {"datasheet": datasheet, **({"shipped": ours} if ours else {}), "tuned": Rates(**measured)}
    return {name: replace(device, user_rates=one) for name, one in rates.items()}


def wanted(product: Product, sets: Sets, each: int) -> list[Candidate]:
    """What is timed of *product*, the first that some set of rates chooses first."""
    found: dict[str, tuple[float, Candidate]] = {}
    for device in sets.values():
        own = [
            (kernel_named(name).estimate(product.problem, config, device), (name, config))
            for name, config in candidates(product, device, each)
        ]
        least = min(seconds for seconds, _ in own)
        for seconds, one in own:
            if seconds <= _SLOWER * least:
                found[str(one)] = min(found.get(str(one), (math.inf, one)), (seconds / least, one), key=first)
    return [one for _, one in sorted(found.values(), key=first)]


def first(ranked: tuple[float, Candidate]) -> float:
    return ranked[0]


def programs(products: Sequence[Product], sets: Sets, each: int) -> Iterator[Program]:
    """The programs of all candidates of *products*, in an order that is the same in every process."""
    device = sets["tuned"]
    for product in products:
        for name, config in wanted(product, sets, each):
            work = kernel_named(name).launches(product.problem, config, device)
            yield from (launch.program for launch in work.launches)


class TunedProduct:
    """One product on the device, and its time by candidates."""

    def __init__(self, queue: cl.CommandQueue, burst: Burst | None, product: Product, random: Random) -> None:
        self.queue, self.burst, self.product = queue, burst, product
        host = [random.operand(shape, product.dtype, 777 * i) for i, shape in enumerate(product.stored)]
        self.operands = [cla.to_device(queue, x) for x in host]
        *stack, m, n, _ = product.shape
        self.out = cla.zeros(queue, (*stack, m, n), product.dtype)

    def timer(self, candidate: Candidate, device: DeviceInfo) -> Callable[[], float]:
        """What times a candidate, whose first call has been made."""
        (name, config), (trans_a, trans_b) = candidate, self.product.layout
        plan: Any = pyclmm.Matmul(
            *self.operands, out=self.out, trans_a=trans_a, trans_b=trans_b, kernel=candidate,
            precision=self.product.precision,
        )  # fmt: skip
        call = plan.bind(*self.operands, out=self.out)
        family, problem = kernel_named(name), self.product.problem
        call()
        self.queue.finish()
        launches = len(family.launches(problem, config, device).launches)
        calls = max(1, min(int(_BURST / family.estimate(problem, config, device)), _LAUNCHES // launches))
        if self.burst is not None:
            burst = self.burst
            return lambda: burst.seconds(call, calls, launches)

        def run() -> None:
            for _ in range(calls):
                call()
            self.queue.finish()

        return lambda: clock.elapsed(run) / calls


def timed(made: TunedProduct, those: Sequence[Candidate], device: DeviceInfo) -> list[dict[str, Any]]:
    """The time of each candidate: the median of rounds, of one round where it is far from the least."""
    runs: list[tuple[Candidate, Callable[[], float], list[float]]] = []
    for one in those:
        try:
            run = made.timer(one, device)
            runs.append((one, run, [run()]))
        except (PyclmmError, cl.Error, RuntimeError) as error:
            print(f"{made.product} {one[0]} {one[1]}: {str(error)[:150]}", flush=True)
    least = min(times[0] for _, _, times in runs)
    close = [run for run in runs if run[2][0] <= _CLOSE * least]
    for _ in range(_ROUNDS):
        for _, run, times in close:
            times.append(run())
    return [
        {"kernel": name, "config": asdict(config), "seconds": statistics.median(times[1:] or times)}
        for (name, config), _, times in runs
    ]


def survey(
    queue: cl.CommandQueue, products: Sequence[Product], sets: Sets, each: int, end: float
) -> Iterator[dict[str, Any]]:
    """The rows of the products that are timed before *end*."""
    device, random = sets["tuned"], Random()
    burst = Burst(queue) if device.vendor == "nvidia" else None
    for product in products:
        if time.monotonic() > end:
            print("out of time before", product)
            return
        made = TunedProduct(queue, burst, product, random)
        row = asdict(product) | {"candidates": timed(made, wanted(product, sets, each), device)}
        best = min(row["candidates"], key=lambda one: float(one["seconds"]))
        print(f"{product}: {best['kernel']} {best['seconds'] * 1e6:.1f} us", flush=True)
        yield row


def report(path: Path, names: Sequence[str]) -> None:
    """By each set of rates, the share of products whose choice is close to the best, and a table by kind."""
    for name in names:
        products = list(judged(path, name))
        close = sum(one.loss <= CLOSE for one in products) / len(products)
        print(f"{name} rates: {close:.0%} of {len(products)} products within {CLOSE - 1:.0%} of the best")
        print(summary(products))
        for one in sorted(products, key=lambda one: -one.loss)[:5]:
            print(f"{one.loss:5.2f} {one.product}: {one.pick}, best {one.best}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--products", type=int, default=60)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--device", default="nvidia")
    parser.add_argument("--side", type=int, default=FOR_GPU.side, help="the longest that is drawn")
    parser.add_argument("--each", type=int, default=4, help="configurations of a family")
    parser.add_argument("--limit", type=float, default=330, help="seconds for all")
    parser.add_argument("--json", type=Path, default=Path("tuned.json"))
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    started, queue = time.monotonic(), new_queue(find_device(options.device))
    device = replace(device_info(queue.device), user_rates=None)
    largest = replace(FOR_GPU, side=options.side)
    products = list(drawn(options.seed, options.products, options.kinds, largest=largest))
    if options.part:  # the file holds what was measured
        content = json.loads(options.json.read_text(encoding="utf-8"))
        sets = sets_of(device, content["rates"]["tuned"])
        part, parts = options.part
        build(queue, list(dict.fromkeys(programs(products, sets, options.each)))[part::parts])
        return
    found = tuned(options.device)
    sets = sets_of(device, found["rates"])
    rates = {name: as_numbers(one.rates) for name, one in sets.items()}
    about = {"device": device_json(device), "rates": rates, "refused": found["refused"], "seed": options.seed,
             "date": datetime.date.today().isoformat()}  # fmt: skip
    options.json.write_text(json.dumps(about) + "\n", encoding="utf-8")
    needed = list(dict.fromkeys(programs(products, sets, options.each)))
    compiling = _COMPILING * (options.limit - (time.monotonic() - started))
    build_side_by_side(sys.argv[1:], max(1, (os.cpu_count() or 2) - 1), compiling, __file__)
    held = build(queue, needed)
    print(f"{len(needed)} programs: {time.monotonic() - started:.0f} s since the start", flush=True)
    rows: list[dict[str, Any]] = []
    for row in survey(queue, products, sets, options.each, started + options.limit):
        rows.append(row)
        options.json.write_text(json.dumps(about | {"rows": rows}) + "\n", encoding="utf-8")
    print(f"timed: {time.monotonic() - started:.0f} s since the start")
    report(options.json, list(sets))
    del held


if __name__ == "__main__":
    main()
