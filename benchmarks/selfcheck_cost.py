"""Measures the cost of a kernel's self-check without its compilation.

    python benchmarks/selfcheck_cost.py [--device NAME] [--json FILE] [--types float16,int8]

Each kernel that `kernel="auto"` may choose is checked in the configuration it would be used in, for a few
element types and shapes: once to compile it, then five times more, timed (the median counts). In a first call
a user waits for one check and the compilation, once for a driver and program, because the verdict is kept.
Exit code 1: a check takes more than 50 ms, or refuses a kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyopencl as cl

from pyclmm import KERNELS
from pyclmm.checks.small_problems import first_wrong_result
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.canonical import problem_of
from pyclmm.problem.dtypes import dtype_of
from pyclmm.problem.gemm import GemmProblem
from pyclmm.selection.select import refusal
from pyclmm.tools.report import header_json

LIMIT_MS = 50.0
ROUNDS = 5
TYPES = ("float32", "float64", "complex64", "int8")
SHAPES = ((1000, 777, 513), (1, 4096, 4096), (4096, 4, 300))


def problems(types: Sequence[str]) -> Iterator[GemmProblem]:
    """Products of each type and shape, of float32 in both precisions."""
    for dtype in types:
        for m, n, k in SHAPES:
            yield problem_of(m, n, k, dtype_of(dtype))
            if dtype == "float32":
                yield problem_of(m, n, k, dtype_of(dtype), precision="high")


def measured(queue: cl.CommandQueue, types: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Kernel, problem and milliseconds of each check: wall time and processor time."""
    device = device_info(queue.device)
    for problem in problems(types):
        for kernel in (k for k in KERNELS if k.automatic and refusal(k, problem, device) is None):
            config = kernel.configs(problem, device)[0]
            launches = kernel.launches(problem, config, device)
            reason = first_wrong_result(queue, problem, kernel, config, launches)
            wall, work = [], []
            for _ in range(ROUNDS):
                start, begun = time.perf_counter(), time.process_time()
                first_wrong_result(queue, problem, kernel, config, launches)
                wall.append(time.perf_counter() - start)
                work.append(time.process_time() - begun)
            ms, cpu_ms = (round(1e3 * statistics.median(x), 1) for x in (wall, work))
            row = {"kernel": kernel.name, "problem": str(problem), "ms": ms, "cpu_ms": cpu_ms}
            yield row | {"wrong": reason}


def main() -> int:
    """Print and write what was measured."""
    parser = argparse.ArgumentParser(description="the cost of the self-check beyond compilation")
    parser.add_argument("--device")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--types", default=",".join(TYPES), help="element types [%(default)s]")
    options = parser.parse_args()
    queue = new_queue(find_device(options.device))
    rows = []
    for row in measured(queue, options.types.split(",")):
        shown = f"{row['kernel']:12} {row['ms']:6.1f} ms, of the processor {row['cpu_ms']:6.1f}"
        print(f"{shown}  {row['problem']}  {row['wrong'] or ''}", flush=True)
        rows.append(row)
    times = [row["ms"] for row in rows]
    print(f"{len(rows)} checks: median {statistics.median(times):.1f} ms, most {max(times):.1f} ms")
    if options.json:
        content = header_json(device_info(queue.device)) | {"limit_ms": LIMIT_MS, "checks": rows}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return int(max(times) > LIMIT_MS or any(row["wrong"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
