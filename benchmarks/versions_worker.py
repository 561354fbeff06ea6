"""Runs products of one version of pyclmm for versions.py.

    python benchmarks/versions_worker.py TREE [--device NAME]

Requests and answers are lines of JSON on stdin and stdout. It uses only public names that every version has.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from burst import Burst

Array = np.ndarray[Any, Any]
TURN = 4e-3  # seconds of bursts in a turn on a GPU; at most three bursts
PAUSE, SLICE = 0.11, 0.05  # seconds of rest before a turn and of calls in it, on a CPU: see cpu.py
NUMBERS = 2**24 - 3  # random numbers, repeated in large operands. The count is coprime to the lengths of rows
WORDS = ("high", "medium")  # these types mean float32 at that precision


def version(tree: Path) -> Any:
    """The package pyclmm of *tree*. Its cl/ may lie beside the package."""
    sys.path.insert(0, str(tree))
    import pyclmm  # noqa: PLC0415  the tree must be on the path

    if Path(pyclmm.__file__).parent.parent.resolve() != tree.resolve():
        raise SystemExit(f"{tree} has no package pyclmm: {pyclmm.__file__} was imported")
    pyclmm.__path__.append(str(tree))
    return pyclmm


def find_device(pyclmm: Any, name: str | None) -> cl.Device:
    """A device with *name* in its name or its platform's: the first GPU, or else the first device."""
    pyclmm.devices()  # PyOpenCL sees Intel's runtime of pip only if pyclmm looked first
    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    if name:
        devices = [d for d in devices if name.lower() in f"{d.platform.name} {d.name}".lower()]
    if not devices:
        raise SystemExit(f"no OpenCL device named {name!r}" if name else "no OpenCL device")
    return next((d for d in devices if d.type & cl.device_type.GPU), devices[0])


def dtype_of(kind: Any) -> np.dtype[Any]:
    if kind == "bfloat16":
        import ml_dtypes  # noqa: PLC0415  an extra

        kind = ml_dtypes.bfloat16
    return np.dtype("float32" if kind in WORDS else kind)


class Random:
    """Random numbers of one element type. They are the same in every process."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        rng = np.random.default_rng(0)
        x: Array = rng.standard_normal(NUMBERS, dtype=np.float64 if dtype.char in "dD" else np.float32)
        self.numbers = (x + 1j * x[::-1] if dtype.kind == "c" else x).astype(dtype)

    def operand(self, shape: list[int], start: int) -> Array:
        count = math.prod(shape)
        flat = self.numbers[start:] if count <= NUMBERS - start else np.resize(self.numbers[start:], count)
        return flat[:count].reshape(shape)


class Product(ABC):
    """A product ready to be timed, on the device or on host arrays."""

    def __init__(self, a: Array, b: Array, layout: str) -> None:
        """*a* and *b* are as stored. *layout* has a T for each that is transposed."""
        self.a, self.b = (x.swapaxes(-1, -2) if t == "T" else x for x, t in zip((a, b), layout, strict=True))

    @abstractmethod
    def call(self) -> None:
        """Compute the product once and wait for it."""

    @abstractmethod
    def result(self) -> Array:
        """The result of one more call."""

    @abstractmethod
    def turn(self, calls: int) -> list[float]:
        """Seconds a call takes in each of several bursts of *calls* calls."""

    def seconds(self) -> float:
        """Seconds that one call takes by the host's clock."""
        start = time.perf_counter()
        self.call()
        return time.perf_counter() - start

    def judged(self) -> dict[str, Any]:
        """The digest of the result's bits, and its error in some rows and columns, relative in the norm."""
        got = self.result()
        digest = hashlib.sha256(np.ascontiguousarray(got).view(np.uint8).data).hexdigest()
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        m, n = got.shape[-2:]
        rows, columns = np.linspace(0, m - 1, 8).astype(int), np.linspace(0, n - 1, 64).astype(int)
        a, b, got = self.a[..., rows, :], self.b[..., columns], got[..., rows, :][..., columns]
        some = slice(None, None, max(1, a.shape[0] // 8)) if a.ndim > 2 else slice(None)
        want = a[some].astype(wide) @ b[some].astype(wide)
        error = np.linalg.norm(got[some].astype(wide) - want) / np.linalg.norm(want)
        return {"digest": digest, "error": float(error)}


class OnDevice(Product):
    """Operands on the device, launches without events."""

    def __init__(self, worker: Worker, request: dict[str, Any], a: Array, b: Array) -> None:
        super().__init__(a, b, request["layout"])
        self.queue, self.burst = worker.queue, worker.burst
        self.operands = [cla.empty(self.queue, x.shape, x.dtype) for x in (a, b)]
        if not request["build"]:
            for x, host in zip(self.operands, (a, b), strict=True):
                x.set(host)
        shape = (*self.a.shape[:-1], self.b.shape[-1])
        self.memory = cl.Buffer(
            self.queue.context, cl.mem_flags.READ_WRITE, math.prod(shape) * a.dtype.itemsize
        )
        self.out = cla.Array(self.queue, shape, a.dtype, data=self.memory)
        trans_a, trans_b = request["layout"]
        self.plan = worker.pyclmm.Matmul(*self.operands, out=self.out, trans_a=trans_a, trans_b=trans_b,
                                         precision=request["precision"])  # fmt: skip
        # Versions before 2026-11-27 make an event at each call if they are not told to make none.
        has_choice = "events" in inspect.signature(self.plan.enqueue).parameters
        self.silently: dict[str, Any] = {"events": False} if has_choice else {}

    def _enqueue(self) -> None:
        self.plan.enqueue(*self.operands, out=self.out, **self.silently)

    def call(self) -> None:
        self._enqueue()
        self.queue.finish()

    def result(self) -> Array:
        cl.enqueue_fill_buffer(self.queue, self.memory, np.full(1, 255, np.uint8), 0, self.memory.size)
        self.call()
        return self.out.get()

    def turn(self, calls: int) -> list[float]:
        self.call()  # the GPU now switches to this process
        times: list[float] = []
        while len(times) < 3 and sum(times) * calls < TURN:
            times.append(self._burst(calls))
        return times

    def _burst(self, calls: int) -> float:
        if self.burst:
            return self.burst.seconds(self._enqueue, calls, launches=3)
        start = time.perf_counter()
        for _ in range(calls):
            self._enqueue()
        self.queue.finish()
        return (time.perf_counter() - start) / calls


class OnHost(Product):
    """NumPy operands and a NumPy result."""

    def __init__(self, worker: Worker, request: dict[str, Any], a: Array, b: Array) -> None:
        super().__init__(a, b, request["layout"])
        self.queue, self.matmul = worker.queue, worker.pyclmm.matmul
        self.precision = request["precision"]
        self.plan = worker.pyclmm.Matmul(self.a, self.b, queue=self.queue, precision=self.precision)

    def result(self) -> Array:
        result: Array = self.matmul(self.a, self.b, queue=self.queue, precision=self.precision)
        return result

    def call(self) -> None:
        self.result()

    def turn(self, calls: int) -> list[float]:
        del calls  # the number follows from SLICE
        time.sleep(PAUSE)
        times = [self.seconds()]
        if times[0] > 2 * SLICE:
            return times
        times = []  # without the first call: it found cold caches and sleeping threads
        end = time.perf_counter() + SLICE
        while not times or time.perf_counter() < end:
            times.append(self.seconds())
        return times


class Worker:
    """Answers requests. It holds one product at a time."""

    def __init__(self, pyclmm: Any, device: cl.Device) -> None:
        self.pyclmm = pyclmm
        self.context = cl.Context([device])  # a queue of Intel's runtime does not keep it alive
        self.queue = cl.CommandQueue(self.context)
        self.burst = Burst(self.queue) if "NVIDIA" in device.platform.name else None
        self.random: tuple[str, Random] | None = None
        self.product: Product | None = None

    def hold(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the plan and run it once. With ``build`` operands are uninitialized, and nothing is held."""
        kind, (*stack, m, n, k), layout = request["type"], request["shape"], request["layout"]
        shapes = [[*stack, k, m] if layout[0] == "T" else [*stack, m, k],
                  [*stack, n, k] if layout[1] == "T" else [*stack, k, n]]  # fmt: skip
        if request["build"]:
            operands = [np.empty(shape, dtype_of(kind)) for shape in shapes]
        else:
            if self.random is None or self.random[0] != kind:
                self.random = (kind, Random(dtype_of(kind)))
            operands = [self.random[1].operand(shape, 777 * i) for i, shape in enumerate(shapes)]
        made = OnHost if request["host"] else OnDevice
        start = time.perf_counter()
        self.product = product = made(self, request | {"precision": self._precision(kind)}, *operands)
        product.call()
        first = time.perf_counter() - start
        if request["build"]:
            self.product = None
            return {}
        about = {"kernel": str(product.plan.kernel), "config": str(product.plan.config)}
        return {"plan": about, "first": first, "seconds": min(product.seconds() for _ in range(2))}

    @staticmethod
    def _precision(kind: str) -> str:
        return kind if kind in WORDS else "highest"

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        action = request["do"]
        if action == "hold":
            return self.hold(request)
        if action == "about":
            device = self.queue.device
            about = {"device": device.name, "driver": device.driver_version, "platform": device.platform.name}
            return {
                **about,
                "gpu": bool(device.type & cl.device_type.GPU),
            }
        if action == "drop" or self.product is None:
            self.product = None
            return {}
        return {"times": self.product.turn(request["calls"])} if action == "turn" else self.product.judged()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--device", help="text in the name of the device or its platform")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of drivers must not mix with answers
    pyclmm = version(options.tree)
    worker = Worker(pyclmm, find_device(pyclmm, options.device))
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # the worker must survive a failed product
            worker.product = None
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
