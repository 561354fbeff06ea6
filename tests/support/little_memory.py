"""Products in a process that gets little memory: ``python -m tests.support.little_memory NAME ...``.

It is a process of its own: the heap of one that has run tests holds memory that was freed, and what other
libraries do without memory is not pyclmm's.
"""

from __future__ import annotations

import gc
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import pyclmm
import pyclmm.linalg
from pyclmm.opencl import arrays
from pyclmm.opencl.queues import default_queue

SIDE = 5000
COLUMN = np.broadcast_to(np.float32(3), (SIDE, 1))  # takes no memory, but their product takes 100 MB
ROW = np.broadcast_to(np.float32(5), (1, SIDE))


@contextmanager
def little_memory() -> Iterator[None]:
    """In this block the process gets 50 MB more than it has."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    size = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize"))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + (50 << 20), hard))
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def long_list() -> list[list[float]]:
    return [[2.0] * 4000] * 4000  # little memory; as an array 128 MB


def on_the_device() -> Any:
    """PoCL gives a buffer without memory, and the kernel writes to address 0."""
    x, y = (cla.to_device(default_queue(), np.ascontiguousarray(each)) for each in (COLUMN, ROW))
    return pyclmm.matmul(x, y)[-1, -1].get()


def in_dask() -> Any:
    da, dask = import_module("dask.array"), import_module("pyclmm.dask")
    x, y = (da.from_array(x, chunks=-1, asarray=False) for x in (COLUMN, ROW))
    return dask.matmul(x, y, memory_limit="1 GiB", host_limit="1 GiB").compute(scheduler="synchronous")


PLANE = np.broadcast_to(np.arange(SIDE, dtype=np.float32) % 3, (SIDE, SIDE))  # to make it flat takes a copy
OF_ARRAYS = r"of ndarray \(5000, 1\) float32, ndarray \(1, 5000\) float32"


def calls() -> dict[str, tuple[Callable[[], Any], str]]:
    """Calls by name, with what the error of each says that was asked for."""
    plan, tiles = pyclmm.Matmul(COLUMN, ROW), pyclmm.StreamedMatmul(COLUMN, ROW, memory_limit="8 MiB")
    column, square = PLANE[:4000, :1], (SIDE, SIDE)
    in_tiles = r"StreamedMatmul of list, ndarray \(4000, 1\) float32"
    vdot = r"linalg\.vdot of ndarray \(5000, 5000\) float32"
    return {
        "matmul": (lambda: pyclmm.matmul(COLUMN, ROW), f"the product {OF_ARRAYS}"),
        "gemm": (lambda: pyclmm.gemm(COLUMN, ROW, alpha=1.0), f"the product {OF_ARRAYS}"),
        "plan": (lambda: plan(COLUMN, ROW), f"a plan's product {OF_ARRAYS}"),
        "tiles": (lambda: tiles(COLUMN, ROW), "StreamedMatmul of .*ndarray "),
        "a list": (lambda: pyclmm.matmul(long_list(), column), "arrays of list, ndarray"),
        "Matmul": (lambda: pyclmm.Matmul(long_list(), column).estimate(), "arrays of list, ndarray"),
        "StreamedMatmul": (lambda: pyclmm.StreamedMatmul(long_list(), column).shape, in_tiles),
        "vdot": (lambda: pyclmm.linalg.vdot(PLANE, PLANE.reshape(*square, 1)), vdot),
        "einsum": (lambda: pyclmm.linalg.einsum("ij,ij->ij", PLANE, PLANE), r"linalg\.einsum of ndarray "),
        "Arrays": (on_the_device, r"rejected 100000000 bytes for out"),
        "empty": (lambda: arrays.empty(default_queue(), square, "f4").shape, r"rejected 100000000 bytes"),
        "matrix_power": (lambda: pyclmm.linalg.matrix_power(PLANE, 0), r"linalg\.matrix_power of ndarray "),
        "dask": (in_dask, "a chunk's product"),
    }


def tried(call: Callable[[], Any], asked: str) -> str:
    """ "right", or what went wrong in two calls with little memory, each followed by one without a limit."""
    before = call()
    for _ in range(2):  # also as a call like the last one
        try:
            with little_memory():
                call()
        except pyclmm.DeviceMemoryError as error:
            if not re.search(f"{asked}.*(the host has no memory|OUT_OF_HOST_MEMORY)", str(error)):
                return f"the error says {error}"
        else:
            return "no error"
        if not np.array_equal(call(), before):
            return "the next result is wrong"
    return "right"


def is_elsewhere(name: str) -> bool:
    """Whether the buffers of this call are in memory that is not the host's."""
    return name in ("Arrays", "empty") and not default_queue().device.type & cl.device_type.CPU


if __name__ == "__main__":
    known = calls()
    for name in sys.argv[1:]:
        call, asked = known[name]
        try:
            found = (
                "needs a CPU, whose buffers are in the host's memory"
                if is_elsewhere(name)
                else tried(call, asked)
            )
        except ImportError as error:
            found = f"needs {error.name}"
        print(f"{name}: {found}", flush=True)
