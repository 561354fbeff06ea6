"""Times every step from the naive kernel to matrix units, for one product in one run on one GPU.

    python benchmarks/ladder.py [--json FILE] [--n 4096] [--rounds 7]

Each step is a kernel, a configuration if the kernel has several steps, a dtype and a precision. Times are
measured as in benchmarks/gpu.py: profiling events, interleaved rounds, medians. cuBLAS runs through PyTorch
at each precision. A wrong result stops the run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu
import numpy as np
import torch

from pyclmm.kernels.config import TileConfig
from pyclmm.opencl.devices import find_device
from pyclmm.opencl.queues import new_queue


def _tile(bm: int, bn: int, tn: int, stages: int, **options: int) -> TileConfig:
    """A configuration of `register` with 8 x TN sums a work-item."""
    given = {"fetch_b": 0, "held": 1, "slices": 1, **options}
    return TileConfig(bm, bn, 8, 32, 16 * tn // 2, 8, tn, 4, stages, 0, tuple(sorted(given.items())))


@dataclass(frozen=True)
class Step:
    """One step: what runs, and the largest relative error of the result, by norm."""

    label: str
    kernel: Any
    dtype: str = "float32"
    precision: str = "highest"
    tolerance: float = gpu.TOLERANCE


STEPS = (
    Step("naive", "naive"),
    Step("tiled, 16 x 16", "tiled"),
    Step("register, 8 x 8 a work-item", ("register", _tile(128, 128, 8, 2))),
    Step("register, 8 x 16 a work-item", ("register", _tile(128, 128, 16, 2))),
    Step("register, pipelined copies", ("register", _tile(128, 128, 16, 3, held=0, fetch_b=1))),
    Step("auto, tuned", "auto"),
    Step('TF32 ("medium"), mma', "mma", precision="medium", tolerance=1e-3),
    Step('TF32 ("medium"), wgmma', "wgmma", precision="medium", tolerance=1e-3),
    Step('float32 by parts ("high"), split', "split", precision="high"),
    Step("float16, mma", "mma", "float16", tolerance=1e-3),
    Step("float16, wgmma", "wgmma", "float16", tolerance=1e-3),
)
PEERS = {"cuBLAS float32": "float32", "cuBLAS TF32": "tf32", "cuBLAS float16": "float16"}


class Rung:
    """A step that is planned and checked, ready to be timed."""

    def __init__(self, step: Step, timed: gpu.GpuProduct):
        self.timed = timed
        error = timed.plan(step.label, step.kernel, step.precision)
        if not error < step.tolerance:
            raise SystemExit(f"{step.label}: error {error}")
        plan = timed.plans[step.label]
        self.about = {"label": step.label, "kernel": plan.kernel, "config": str(plan.config),
                      "dtype": step.dtype, "precision": step.precision, "error": error}  # fmt: skip

    def seconds(self) -> float:
        return float(self.timed.pyclmm(str(self.about["label"])))


def peer(timed: gpu.GpuProduct, kind: str) -> Callable[[], float]:
    """cuBLAS on the operands of *timed*, with or without TF32."""

    def seconds() -> float:
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        return float(timed.cublas())

    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--n", type=int, default=4096, help="M, N and K")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    queue = new_queue(find_device("nvidia"), profiling=True)
    numbers = np.random.default_rng(0).standard_normal(options.n**2 + 4096, dtype=np.float32)
    compared = {
        dtype: gpu.GpuProduct(queue, numbers.astype(dtype), (1, options.n, options.n, options.n), "NN")
        for dtype in ("float32", "float16")
    }
    for timed in compared.values():
        timed.burst = 8  # a peer's calls between two events; with fewer the launch would count
    rungs = [Rung(step, compared[step.dtype]) for step in STEPS]
    runs = {str(rung.about["label"]): rung.seconds for rung in rungs}
    runs |= {name: peer(compared["float16" if kind == "float16" else "float32"], kind)
             for name, kind in PEERS.items()}  # fmt: skip
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds + 1):
        for name, run in runs.items():
            samples[name].append(run())
    seconds = {name: statistics.median(times[1:]) for name, times in samples.items()}
    flops = 2 * options.n**3
    for name, value in seconds.items():
        print(f"{name:36} {value * 1e6:12.1f} us {flops / value / 1e12:8.2f} TFLOP/s")
    if options.json:
        content = {**gpu.about(queue.device), "date": datetime.date.today().isoformat(), "n": options.n,
                   "flops": flops, "steps": [r.about for r in rungs], "seconds": seconds}  # fmt: skip
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
