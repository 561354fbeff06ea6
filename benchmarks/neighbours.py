"""Measures what neighbouring work-items should read (coalescing), for docs/road/03_naive.md.

    python benchmarks/neighbours.py [--side 512] [--elements 16777216] [--rounds 7] [--json FILE]

First a copy of float32 numbers in which neighbouring work-items read elements 1, 2, 4 ... 32 apart. Each
element is read once and written once, so only the order differs. Then the product of docs/road/03_naive.md,
with dimension 0 along a row of the result and along a column. Both results are checked. Rounds are
interleaved, from an enqueue to the end of the kernel, and the least time counts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.opencl.devices import device_info

APART = (1, 2, 4, 8, 16, 32)
SOURCE = """
__kernel void copy(const int apart, __global const float *x, __global float *out)
{
  const int id = get_global_id(0), row = get_global_size(0) / apart;
  out[id] = x[id % row * apart + id / row];
}
__kernel void multiply(const int n, __global const float *a, __global const float *b, __global float *out)
{
  const int j = get_global_id(ALONG), i = get_global_id(1 - ALONG);
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
  out[i * n + j] = sum;
}
"""


def least(queue: cl.CommandQueue, cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least seconds of each case. One run of each is not counted."""
    walls: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, enqueue in cases.items():
            queue.finish()
            start = time.perf_counter()
            enqueue()
            queue.finish()
            if number:
                walls[name].append(time.perf_counter() - start)
    return {name: min(times) for name, times in walls.items()}


def copies(queue: cl.CommandQueue, program: cl.Program, elements: int, rounds: int) -> dict[str, float]:
    """Seconds of a copy, by how far apart neighbours read. Raises AssertionError for a wrong copy."""
    host = np.arange(elements, dtype=np.float32)
    x, out = cla.to_device(queue, host), cla.empty(queue, elements, np.float32)
    kernel = cl.Kernel(program, "copy")

    def run(apart: int) -> Callable[[], object]:
        return lambda: kernel(queue, (elements,), (256,), np.int32(apart), x.data, out.data)

    for apart in APART:
        run(apart)()
        np.testing.assert_array_equal(out.get(), host.reshape(-1, apart).T.ravel())
    return least(queue, {str(apart): run(apart) for apart in APART}, rounds)


def products(queue: cl.CommandQueue, programs: list[cl.Program], side: int, rounds: int) -> dict[str, float]:
    """Seconds of a product, by what dimension 0 runs along. Raises AssertionError for a wrong product."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (side, side)).astype(np.float32) for _ in range(2))
    x, y, out = cla.to_device(queue, a), cla.to_device(queue, b), cla.empty(queue, a.shape, np.float32)
    kernels = [cl.Kernel(program, "multiply") for program in programs]

    def run(along: int) -> Callable[[], object]:
        return lambda: kernels[along](queue, a.shape, (16, 16), np.int32(side), x.data, y.data, out.data)

    for along in (0, 1):
        run(along)()
        np.testing.assert_array_equal(out.get(), a @ b)
    return least(queue, {"row": run(0), "column": run(1)}, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--side", type=int, default=512, help="of the matrices, a multiple of 16")
    parser.add_argument("--elements", type=int, default=2**24, help="of the copy, a multiple of 8192")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    queue = pyclmm.default_queue()
    info = device_info(queue.device)
    programs = [cl.Program(queue.context, SOURCE).build(f"-DALONG={along}") for along in (0, 1)]
    copied = copies(queue, programs[0], given.elements, given.rounds)
    multiplied = products(queue, programs, given.side, given.rounds)
    rates = {apart: 8e-9 * given.elements / seconds for apart, seconds in copied.items()}
    for apart, seconds in copied.items():
        print(f"copy, {apart:>2} apart: {1e3 * seconds:9.3f} ms {rates[apart]:9.2f} GB/s")
    for along, seconds in multiplied.items():
        print(f"product, dimension 0 along a {along}: {1e3 * seconds:.3f} ms")
    if given.json:
        content = {
            "device": queue.device.name.strip(),
            "platform": queue.device.platform.name.strip(),
            "driver": queue.device.driver_version,
            "date": datetime.date.today().isoformat(),
            "cpu": info.is_cpu,
            "elements": given.elements,
            "side": given.side,
            "copy_s": copied,
            "copy_gb_per_s": rates,
            "product_s": multiplied,
        }
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
