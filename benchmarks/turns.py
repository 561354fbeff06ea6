"""Times a few ways to compute one product on a CPU, which take turns, for the pages that compare them.

    python benchmarks/turns.py register|constant_b [--json FILE] [--rounds 300]

``register`` is for page 10 of the road: the steps before it, and what a CPU's loop and work-group make of it.
``constant_b`` is for docs/howto/service.md: a plan that may keep its weights packed, and one that may not.
A turn is a mean of as many calls as fill 5 ms, from NumPy arrays to a NumPy array. Each way is checked.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import processor

import pyclmm
from pyclmm.opencl.clock import elapsed

Ways = dict[str, Callable[[], object]]
TURN = 0.005  # seconds: short, so that some turns are undisturbed


def _tile(bm: int, sgm: int, sgn: int, vectors: int, vec: int) -> pyclmm.TileConfig:
    """A configuration of `register` with 4 x 4 elements a work-item."""
    options = {"fetch_b": 0, "held": 1, "slices": 1, "vectors": vectors}
    return pyclmm.TileConfig(bm, bm, 16, sgm, sgn, 4, 4, vec, 2, 1, options)


REGISTER: dict[str, Any] = {
    "`tiled`, 16 x 16": ("tiled", pyclmm.TileConfig.square(16)),
    "`block`, 64 x 64, 4 x 4 a work-item": ("block", pyclmm.TileConfig(64, 64, 16, tm=4, tn=4)),
    "`register`, as for a GPU, 32 x 32, 4 x 4 a work-item": ("register", _tile(32, 16, 32, 0, 4)),
    "the same with the CPU's loop and work-group": ("register", _tile(32, 16, 32, 1, 4)),
    "64 x 64, and 16 work-items with one column each side by side": ("register", _tile(64, 4, 64, 1, 1)),
    "`packed`": "packed",
}
CONSTANT: dict[str, bool] = {"with `constant_b=True`": True, "without": False}


def register() -> tuple[list[int], Ways]:
    """256 cubed by the kernels of page 10."""
    a, b, out = _operands(256, 256, 256)
    plans = {name: pyclmm.Matmul(a, b, out=out, kernel=kernel) for name, kernel in REGISTER.items()}
    return [256, 256, 256], {name: checked_call(plan, a, b, out) for name, plan in plans.items()}


def constant_b() -> tuple[list[int], Ways]:
    """256 rows times large weights, which `packed` copies into panels."""
    a, b, out = _operands(256, 2048, 2048)
    plans = {name: pyclmm.Matmul(a, b, out=out, constant_b=constant) for name, constant in CONSTANT.items()}
    return [256, 2048, 2048], {name: checked_call(plan, a, b, out) for name, plan in plans.items()}


def _operands(m: int, n: int, k: int) -> list[np.ndarray[Any, Any]]:
    """Integers, so that every kernel gives the same sums."""
    rng = np.random.default_rng(0)
    made = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n))]
    return [*made, np.empty((m, n), np.float32)]


def checked_call(plan: pyclmm.Matmul[Any], a: Any, b: Any, out: Any) -> Callable[[], object]:
    plan(a, b, out=out)
    np.testing.assert_array_equal(out, a @ b)
    return lambda: plan(a, b, out=out)


def turns(ways: Ways, rounds: int, turn: float = TURN) -> dict[str, list[float]]:
    """Seconds of a call, by way, one for each round of turns that take *turn* seconds. The order changes."""
    calls: dict[str, int] = {}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for name, call in ways.items():
        calls[name] = max(1, round(turn / elapsed(call, 3)))
    names = list(ways)
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            taken[name].append(elapsed(ways[name], calls[name]))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("register", "constant_b"))
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    before = os.getloadavg()[0]
    sides, ways = {"register": register, "constant_b": constant_b}[given.what]()
    taken = turns(ways, given.rounds)
    for name, samples in taken.items():
        low, middle, high = (1e3 * part for part in statistics.quantiles(samples, n=4))
        print(f"{name:60} {middle:7.3f} ms, half of the rounds {low:.3f} to {high:.3f}")
    if given.json:
        device = pyclmm.default_queue().device
        content = {
            "device": {"name": device.name.strip(), "driver_version": device.driver_version},
            "platform": device.platform.name.strip(),
            "processor": processor.described(),
            "cpus": os.cpu_count(),
            "date": datetime.date.today().isoformat(),
            "load": [before, os.getloadavg()[0]],
            "sides": sides,
            "seconds": {name: [float(f"{x:.4g}") for x in samples] for name, samples in taken.items()},
        }
        given.json.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
