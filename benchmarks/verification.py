"""What it costs to check each result: products with verify=True over the same products without.

    python benchmarks/verification.py [--torch | --graphs] [--sizes 1024,8192] [--rounds 7] [--json FILE]

NumPy arrays on the default device, or with --torch PyTorch's tensors on the first CUDA device, timed by its
events; with --graphs these calls are captured first, so that the host's part does not count. Interleaved
rounds with a pause before each side; medians.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cuda_graph import Graph, on_device

import pyclmm
from pyclmm.opencl.clock import elapsed

try:
    import torch
except ImportError:  # for --torch alone
    torch = None

_KINDS = (("float16", "highest"), ("float32", "highest"), ("float32", "high"), ("float64", "high"))
_PAUSE = 0.02  # seconds before each side
_LEAST = 2e-3  # seconds of calls that are timed together

Timed = Callable[[Callable[[], object], int], float]


def in_graph(call: Callable[[], object], calls: int) -> float:
    """Device seconds of one of *calls* calls in a CUDA graph."""
    graph = Graph(call, calls)
    graph.seconds()  # the first replay uploads it
    return graph.seconds()


def arrays(n: int, dtype: str, with_torch: bool) -> list[Any]:
    """Two operands and a place for the result."""
    rng = np.random.default_rng(n)
    made = [rng.standard_normal((n, n), np.float32).astype(dtype) for _ in range(2)]
    made.append(np.empty((n, n), dtype))
    if not with_torch:
        return made
    return [torch.from_numpy(x).cuda() for x in made]


def row(n: int, dtype: str, precision: Any, rounds: int, timed: Timed) -> dict[str, Any]:
    """Seconds of both sides, and their ratio."""
    a, b, out = arrays(n, dtype, timed is not elapsed)
    sides = {
        name: pyclmm.Matmul(a, b, out=out, precision=precision, verify=verify)
        for name, verify in (("plain", False), ("verify", True))
    }
    calls = max(1, int(_LEAST / timed(lambda: sides["plain"](a, b, out=out), 1)))
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, plan in sides.items():
            time.sleep(_PAUSE)
            seconds = timed(lambda plan=plan: plan(a, b, out=out), calls)  # type: ignore[misc]
            if number:
                taken[name].append(seconds)
    pyclmm.finish()
    middle = {name: statistics.median(times) for name, times in taken.items()}
    ratio = statistics.median(v / p for v, p in zip(taken["verify"], taken["plain"], strict=True))
    name = str(sides["plain"].kernel)
    found = {"n": n, "dtype": dtype, "precision": precision, "kernel": name}
    print(
        f"{n:6} {dtype:8} {precision:8} {name:16} {middle['plain'] * 1e3:9.3f} ms {ratio - 1:+.0%}",
        flush=True,
    )
    return {**found, "seconds": middle, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--torch", action="store_true", help="PyTorch's tensors on CUDA")
    where.add_argument("--graphs", action="store_true", help="these, in CUDA graphs")
    parser.add_argument("--sizes", default="1024,8192", help="N of N x N x N, one for each row")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the rows there")
    options = parser.parse_args()
    device = pyclmm.default_queue().device
    print(f"{device.name}, driver {device.driver_version}")
    sizes = [int(n) for n in options.sizes.split(",")]
    timed: Timed = in_graph if options.graphs else on_device if options.torch else elapsed
    rows = [row(n, *kind, options.rounds, timed) for n in sizes for kind in _KINDS]
    if options.json:
        head = {"device": device.name, "driver": device.driver_version}
        head["date"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
        options.json.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
