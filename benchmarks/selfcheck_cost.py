"""Measures the cost of a kernel's self-check without its compilation.

    python benchmarks/selfcheck_cost.py [--device NAME] [--json FILE] [--types float16,int8]

Each kernel that `kernel="auto"` may choose is checked in the configuration it would be used in, for a few
element types and shapes: once to compile it, then in rounds over all checks, timed (the median counts). In a
first call a user waits for one check and the compilation, once for a driver and program, because the verdict
is kept.
Exit code 1: a check takes more than 50 ms, or refuses a kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyopencl as cl

from pyclmm import KERNELS
from pyclmm.checks.small_problems import first_wrong_result
from pyclmm.kernels.config import TileConfig
from pyclmm.kernels.interface import Kernel, Work
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import GemmProblem
from pyclmm.selection.select import refusal
from pyclmm.tools.report import header_json

LIMIT_MS = 50.0
ROUNDS = 9
TYPES = ("float32", "float64", "complex64", "int8")
SHAPES = ((1000, 777, 513), (1, 4096, 4096), (4096, 4, 300))


def problems(types: Sequence[str]) -> Iterator[GemmProblem]:
    """Products of each type and shape, of float32 in both precisions."""
    for dtype in types:
        for m, n, k in SHAPES:
            yield problem_of(m, n, k, dtype_of(dtype))
            if dtype == "float32":
                yield problem_of(m, n, k, dtype_of(dtype), precision="high")


@dataclass
class Check:
    """A self-check: what is checked, what is wrong with it, and the seconds of each round."""

    problem: GemmProblem
    kernel: Kernel
    config: TileConfig
    work: Work
    wrong: str | None
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def run(self, queue: cl.CommandQueue) -> None:
        """Run it once more, timed."""
        start, begun = time.perf_counter(), time.process_time()
        first_wrong_result(queue, self.problem, self.kernel, self.config, self.work)
        self.wall.append(time.perf_counter() - start)
        self.processor.append(time.process_time() - begun)

    def row(self) -> dict[str, Any]:
        """Kernel, problem, and the medians in milliseconds."""
        ms, cpu_ms = (round(1e3 * statistics.median(x), 1) for x in (self.wall, self.processor))
        about = {"kernel": self.kernel.name, "problem": str(self.problem), "config": str(self.config)}
        return about | {"ms": ms, "cpu_ms": cpu_ms, "wrong": self.wrong}


def compiled(queue: cl.CommandQueue, types: Sequence[str]) -> Iterator[Check]:
    """Each check, after it has run once."""
    device = device_info(queue.device)
    for problem in problems(types):
        for kernel in (k for k in KERNELS if k.automatic and refusal(k, problem, device) is None):
            config = kernel.configs(problem, device)[0]
            work = kernel.launches(problem, config, device)
            wrong = first_wrong_result(queue, problem, kernel, config, work)
            yield Check(problem, kernel, config, work, wrong)


def main() -> int:
    """Print and write what was measured."""
    parser = argparse.ArgumentParser(description="the cost of the self-check beyond compilation")
    parser.add_argument("--device")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--types", default=",".join(TYPES), help="element types [%(default)s]")
    options = parser.parse_args()
    queue = new_queue(find_device(options.device))
    checks = list(compiled(queue, options.types.split(",")))
    for _ in range(ROUNDS):  # a moment in which the machine is busy falls on one round of each
        for check in checks:
            check.run(queue)
    rows = [check.row() for check in checks]
    for row in rows:
        shown = f"{row['kernel']:12} {row['ms']:6.1f} ms, of the processor {row['cpu_ms']:6.1f}"
        print(f"{shown}  {row['problem']} {row['config']}  {row['wrong'] or ''}")
    times = [row["ms"] for row in rows]
    print(f"{len(rows)} checks: median {statistics.median(times):.1f} ms, most {max(times):.1f} ms")
    if options.json:
        content = header_json(device_info(queue.device)) | {"limit_ms": LIMIT_MS, "checks": rows}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return int(max(times) > LIMIT_MS or any(row["wrong"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
