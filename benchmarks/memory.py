"""Reads the memory of a process over many calls, random or growing ones, or over one product of much memory.

    python benchmarks/memory.py [--device NAME] [--calls 20000] [--shapes 5000] [--seed 1] [--save FILE.json]
    python benchmarks/memory.py --growing [--device NAME] [--calls 3000] [--save FILE.json]
    python benchmarks/memory.py --large [--device NAME] [--save FILE.json]

Each call is a matmul of one of that many random shapes. Drawn at random too: the dtypes of a and b, whether
each is transposed, whether they are NumPy arrays or Arrays, and whether `out` is given and of which dtype.
With --growing each call has a shape of its own, a little larger than the one before, and the next dtype;
NumPy arrays and Arrays take turns. These need few programs and much workspace. The last reading follows
pyclmm.release(). With --large it is one product, of 40,000 x 32,768 by 32,768 x 3 elements of uint8, whose
conversion to 32 bits would take four times the memory of A.

After each EVERY calls the resident memory is read, so the script needs Linux. benchmarks/pictures.py draws
the files benchmarks/results/memory-*.json. They come from these commands:

    export PYCLMM_TRIAL=off PYCLMM_CACHE_DIR=$(mktemp -d)
    OCL_ICD_VENDORS=pocl-3.1.icd python benchmarks/memory.py --save benchmarks/results/memory-pocl-3.1.json
    OCL_ICD_VENDORS=pocl-3.1.icd python benchmarks/memory.py --growing \\
        --save benchmarks/results/memory-growing-pocl-3.1.json
    OCL_ICD_VENDORS=pocl-3.1.icd python benchmarks/memory.py --large \\
        --save benchmarks/results/memory-large-pocl-3.1.json

and likewise for the other drivers (see cpu.py). Trials in child processes are off: they take a second for
each program and do not change the memory of this process.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import logging
import os
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import processor
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
from pyclmm.opencl.devices import device_info, find_device
from pyclmm.opencl.queues import new_queue
from pyclmm.problem.dtypes import ELEMENT_TYPES, dtype_of, result_dtype

EVERY, SHOWN = 100, 500  # calls between two readings, and between two lines of progress
LARGE = (40_000, 3, 32_768)  # M, N, K
LARGEST = 8  # M, N and K are up to 2 to this power: small, so that memory is that of programs and plans
SETTINGS = ("PYCLMM_SELFCHECK", "PYCLMM_TRIAL", "PYOPENCL_NO_CACHE")


@dataclass(frozen=True)
class Shape:
    """M, N, K and the stacks of a and b."""

    m: int
    n: int
    k: int
    left: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One call of matmul; ``out`` is a dtype, or None for no out."""

    shape: Shape
    a: np.dtype[Any]
    b: np.dtype[Any]
    out: np.dtype[Any] | None
    trans_a: bool
    trans_b: bool
    on_device: bool


def draw_shape(r: random.Random) -> Shape:
    m, n, k = (round(2 ** r.uniform(0, LARGEST)) for _ in "mnk")
    left, right = r.choice((((), ()), ((), ()), ((3,), ()), ((2,), (2,)), ((2, 1), (3,))))
    return Shape(m, n, k, left, right)


def draw_call(r: random.Random, shapes: list[Shape]) -> Call:
    """A valid call. Six in ten have operands of one dtype, four in ten an out."""
    types = [dtype_of(name) for name in ELEMENT_TYPES]
    while True:
        a = r.choice(types)
        b = a if r.random() < 0.6 else r.choice(types)
        out = None if r.random() < 0.6 else r.choice(types)
        try:
            result_dtype(a, b, None, out)
        except pyclmm.DTypeError:  # no such product, or out cannot hold it
            continue
        flags = (r.random() < 0.5 for _ in range(3))
        return Call(r.choice(shapes), a, b, out, *flags)


def matrices(
    rng: np.random.Generator, stack: tuple[int, ...], rows: int, cols: int, dtype: np.dtype[Any], trans: bool
) -> np.ndarray:
    """A stack of matrices of small integers, each stored by columns if *trans*."""
    shape = (*stack, cols, rows) if trans else (*stack, rows, cols)
    values = rng.integers(0, 3, shape).astype(dtype)
    return np.swapaxes(values, -1, -2) if trans else values


def perform(call: Call, queue: cl.CommandQueue, rng: np.random.Generator) -> None:
    """Make the call and compare one element with NumPy's."""
    s = call.shape
    a = matrices(rng, s.left, s.m, s.k, call.a, call.trans_a)
    b = matrices(rng, s.right, s.k, s.n, call.b, call.trans_b)
    stack = np.broadcast_shapes(s.left, s.right)
    out = None if call.out is None else np.zeros((*stack, s.m, s.n), call.out)
    if call.on_device:
        target = None if out is None else cla.to_device(queue, out)
        result = pyclmm.matmul(on_device(queue, a), on_device(queue, b), target, queue=queue).get()
    else:
        result = pyclmm.matmul(a, b, out, queue=queue)
    first = (0,) * len(stack)
    want = np.matmul(a[(*first[: len(s.left)], slice(0, 1))], b[(*first[: len(s.right)], ..., slice(0, 1))])
    if result[(*first, 0, 0)] != want.astype(result.dtype)[0, 0]:
        raise SystemExit(f"wrong result of {call}")


def on_device(queue: cl.CommandQueue, x: np.ndarray) -> cla.Array:
    """An Array with the strides of *x*."""
    if x.flags.c_contiguous:
        return cla.to_device(queue, x)
    stored = cla.to_device(queue, np.swapaxes(x, -1, -2))
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return stored.transpose(axes)


def resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def grown_call(number: int) -> Call:
    """The call of that number: 64 to 67 x n x n, where n grows by one every four calls; dtypes in turn."""
    types = [dtype_of(name) for name in ELEMENT_TYPES]
    n, dtype = 200 + number // 4, types[number % len(types)]
    on_device = number // len(types) % 2 == 1
    return Call(Shape(64 + number % 4, n, n, (), ()), dtype, dtype, None, False, False, on_device)


class Builds(logging.Handler):
    """Counts the programs that are compiled inside a ``with`` block, and the different ones among them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count = 0
        self.different: set[str] = set()
        self._logger = logging.getLogger("pyclmm.opencl.program")
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith("options for %s: "):
            self.count += 1
            self.different.add(record.getMessage())

    def __enter__(self) -> Builds:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.DEBUG)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)


def random_calls(calls: int, shapes: int, seed: int) -> Iterator[Call]:
    """Calls of *shapes* random shapes."""
    r = random.Random(seed)
    drawn = [draw_shape(r) for _ in range(shapes)]
    return (draw_call(r, drawn) for _ in range(calls))


def measure(
    queue: cl.CommandQueue, calls: Iterable[Call], seed: int, every: int = EVERY
) -> Iterator[dict[str, float]]:
    """A reading after each *every* calls."""
    rng = np.random.default_rng(seed)
    start = time.perf_counter()
    with Builds() as builds:
        for number, call in enumerate(calls, 1):
            perform(call, queue, rng)
            if number % every == 0:
                queue.finish()
                yield {
                    "calls": number,
                    "megabytes": round(resident() / 1e6, 1),
                    "builds": builds.count,
                    "programs": len(builds.different),
                    "seconds": round(time.perf_counter() - start),
                }


def peak() -> int:
    """The most resident memory of this process so far, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def large(queue: cl.CommandQueue, shape: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    """Readings with the operands of a product in memory, at its peak, and after it."""
    m, n, k = shape
    a, b = np.ones((m, k), np.uint8), np.ones((k, n), np.uint8)
    yield {"what": "operands", "megabytes": round(resident() / 1e6, 1)}
    start = time.perf_counter()
    try:
        c = pyclmm.matmul(a, b, queue=queue)
    except pyclmm.DeviceMemoryError as error:
        yield {"what": "refused", "megabytes": 0.0, "error": str(error)}
        return
    seconds = time.perf_counter() - start
    if not (c == k % 256).all():
        raise SystemExit("wrong result")
    yield {"what": "peak", "megabytes": round(peak() / 1e6, 1), "seconds": round(seconds, 2)}
    del c
    yield {"what": "after", "megabytes": round(resident() / 1e6, 1)}


def released() -> float:
    """Resident megabytes after pyclmm has given back what it keeps, and the C library too."""
    pyclmm.release()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return round(resident() / 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--device", help="see pyclmm.devices(); default: the first GPU, else the first device"
    )
    parser.add_argument("--growing", action="store_true", help="each call has a larger shape than the last")
    parser.add_argument("--calls", type=int, help="default: 20000, growing 3000")
    parser.add_argument("--shapes", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--code", default="", help="a name of the measured code, for the JSON")
    parser.add_argument("--save", type=Path, metavar="FILE.json")
    parser.add_argument("--large", action="store_true", help="one product of much memory")
    args = parser.parse_args()
    count = args.calls or (3000 if args.growing else 20000)
    calls = map(grown_call, range(count)) if args.growing else random_calls(count, args.shapes, args.seed)
    queue = new_queue(find_device(args.device))
    info = device_info(queue.device)
    content: dict[str, Any] = {
        "device": info.name,
        "driver": f"{info.platform} {info.driver_version}",
        "processor": processor.described(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "code": args.code,
        "growing": args.growing,
        "large": args.large,
        "shapes": count if args.growing else args.shapes,
        "seed": args.seed,
        "settings": {name: os.environ.get(name, "") for name in SETTINGS},
        "readings": [],
    }
    readings = large(queue, LARGE) if args.large else measure(queue, calls, args.seed)
    for reading in readings:
        content["readings"].append(reading)
        if args.large or reading["calls"] % SHOWN == 0 or reading["calls"] == count:
            print("  ".join(f"{key} {value}" for key, value in reading.items()), flush=True)
            if args.save:
                args.save.write_text(json.dumps(content, indent=1) + "\n")
    content["released"] = released()
    print(f"megabytes after pyclmm.release() {content['released']}")
    if args.save:
        args.save.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
