"""Measures how long single warm calls take, for a service: the median and the slowest hundredth.

    python benchmarks/latency.py [--rows 1,16,64] [--layer 512,512] [--calls 2000] [--json FILE]

A call multiplies ROWS x 512 float32 inputs, as NumPy arrays, by fixed weights, and waits for the result: by
a plan that knows that the weights are constant, by `matmul`, and by NumPy's `@`. Each is checked first. They
follow each other and do not take turns, because the threads of NumPy's BLAS keep the cores for a while after
each call.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pyclmm


def calls(rows: int, k: int, n: int) -> dict[str, Callable[[], object]]:
    """The three ways to multiply. Raises AssertionError if one gives another product."""
    rng = np.random.default_rng(0)
    x, weights = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, k), (k, n)))
    plan = pyclmm.Matmul(x, weights, constant_b=True)
    found: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
        "plan": lambda: plan(x, weights),
        "matmul": lambda: pyclmm.matmul(x, weights),
        "numpy": lambda: x @ weights,
    }
    for call in found.values():
        np.testing.assert_array_equal(call(), x @ weights)
    return dict(found)


def microseconds(ways: dict[str, Callable[[], object]], number: int) -> dict[str, dict[str, float]]:
    """p50 and p99 of *number* calls of each way. A tenth as many before them are not counted."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for name, call in ways.items():
        for at in range(-number // 10, number):
            start = time.perf_counter()
            call()
            if at >= 0:
                taken[name].append(1e6 * (time.perf_counter() - start))
    return {
        name: {f"p{part}": float(np.percentile(times, part)) for part in (50, 99)}
        for name, times in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="1,16,64", help="of the inputs, one measurement for each")
    parser.add_argument("--layer", default="512,512", help="K and N of the weights")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    k, n = map(int, given.layer.split(","))
    device = pyclmm.default_queue().device
    found = {}
    for rows in map(int, given.rows.split(",")):
        found[f"{rows} x {n} x {k}"] = microseconds(calls(rows, k, n), given.calls)
        for name, parts in found[f"{rows} x {n} x {k}"].items():
            print(f"{rows:>5} rows  {name:8} p50 {parts['p50']:7.0f} us  p99 {parts['p99']:7.0f} us")
    if given.json:
        content = {
            "device": device.name.strip(),
            "platform": device.platform.name.strip(),
            "driver": device.driver_version,
            "date": datetime.date.today().isoformat(),
            "calls": given.calls,
            "load": os.getloadavg()[0],
            "us": found,
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
