"""The kernels of layers.cl, and work-group sizes for them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from pyopencl.array import Array

_SOURCE = Path(__file__).with_name("layers.cl")
_MOST_ITEMS = 256  # of a work-group: enough for any device to be busy, and every GPU allows it
_CPU_COLUMNS = 64  # of a work-item: 256 bytes of each row, and two work-items or more where h is 128


class Kernels:
    """The kernels of layers.cl for the device of *queue*. *half*: pictures are stored as float16."""

    def __init__(self, queue: cl.CommandQueue, half: bool = False) -> None:
        self.queue = queue
        on_cpu = bool(queue.device.type & cl.device_type.CPU)
        self.items = min(_MOST_ITEMS, queue.device.max_work_group_size)
        self.columns = _CPU_COLUMNS if on_cpu else 1
        self.tile = (1, 1) if on_cpu else (32, self.items // 32)  # the work-group of `backward`
        source = _SOURCE.read_text(encoding="utf-8")
        options = [f"-DHALF={half:d}", f"-DCOLUMNS={self.columns}"]
        self._program = built(queue, source, options)

    def new(self, name: str) -> cl.Kernel:
        """A kernel object with arguments of its own."""
        return cl.Kernel(self._program, name)

    def run(self, kernel: cl.Kernel, count: int, *args: Any) -> None:
        """Enqueue *kernel* with at least *count* work-items, after setting its arguments."""
        kernel.set_args(*args)
        cl.enqueue_nd_range_kernel(self.queue, kernel, (padded(count, self.items),), (self.items,))


def built(queue: cl.CommandQueue, source: str, options: Sequence[str] = ()) -> cl.Program:
    """The compiled program. PyOpenCL warns of whatever a compiler says, and Intel's always says something."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program: cl.Program = cl.Program(queue.context, source).build(list(options), devices=[queue.device])
        return program


def padded(count: int, multiple: int) -> int:
    """The least multiple that is not below *count*."""
    return -(-count // multiple) * multiple


class Shuffle:
    """Makes an order of *count* pictures for each epoch, on the device. One seed gives the same orders."""

    def __init__(self, kernels: Kernels, count: int, seed: int) -> None:
        self._kernels, self._count, self._seed = kernels, count, seed
        self._kernel = kernels.new("shuffled_order")
        self.order = cla.empty(kernels.queue, count, np.int32)

    def epoch(self, number: int) -> Array:
        """The order of epoch *number*. It is overwritten by the next one."""
        half_bits = max(1, -(-(self._count - 1).bit_length() // 2))
        key = np.random.SeedSequence((self._seed, number)).generate_state(1)[0]
        args = np.int32(self._count), np.uint32(half_bits), np.uint32(key), self.order.data
        self._kernels.run(self._kernel, self._count, *args)
        return self.order
