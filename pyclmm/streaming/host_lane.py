"""The lane of a device that shares the host's memory: arrays are read in place, files into memory."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..opencl import host_memory, pinned
from ..opencl.devices import device_info
from ..opencl.queues import queue_on
from .blocks import Part, of_tile
from .hands import Hands
from .job import Job, Stored, pieces, stored_shape
from .lane import Block, Write, end_all, noted
from .mapped import reach
from .tiles import Tile
from .trace import Trace


class HostLane:
    """A lane for a device that shares the host's memory."""

    def __init__(
        self,
        number: int,
        device: cl.Device,
        job: Job,
        hands: Hands,
        queue: cl.CommandQueue | None,
        trace: Trace | None,
    ) -> None:
        self.name = device.name.strip()
        self._job, self._number, self._trace = job, number, trace
        self._queue = queue or queue_on(device)
        self._most = device_info(device).max_mem_alloc_size  # bytes of an array that is used in place
        self._readers, self._futures = hands.readers, list[Future[Any]]()
        self._slots: dict[tuple[str, int], NDArray[np.uint8]] = {}
        self._tiles: dict[int, tuple[Any, Any, Block | None]] = {}  # acc, out, C
        # A tile of several chunks is written when it is finished: the result never has parts of sums.
        whole = len(job.chunks) == 1 and job.sink.in_memory
        self._in_place = whole and job.sink.dtype == job.dtype

    def load(self, operand: str, slot: int, part: Part) -> Block:
        return self._block(self._job.operand(operand), (operand, slot), self._job.largest(operand), part)

    def begin(self, tile: Tile, slot: int) -> None:
        job, part = self._job, of_tile(tile, self._job.product.stack)
        out = job.sink.view(part.index, part.rows, part.columns) if self._in_place else None
        if out is None or reach(out) > self._most:
            out = self._dense(("out", slot), part, job.dtype)
        acc = self._dense(("acc", slot), part, job.acc_dtype) if job.is_narrow else out
        c = None
        if job.c is not None:
            its = job.c.part(job.product.stack, tile.z, tile.rows, tile.columns)
            c = self._block(job.c, ("c", slot), job.largest_tile, its)
        self._tiles[slot] = acc, out, c

    def multiply(self, tile: Tile, chunk: int, a: Block, b: Block, slots: tuple[int, int, int]) -> None:
        job = self._job
        acc, out, c = self._tiles[slots[2]]
        operands = {"a": a.array, "b": b.array}
        for block in (a, b, c):
            if block is not None:
                block.events()
        if c is not None:
            operands["c"] = c.array
        bias = job.bias_of(tile)
        if bias is not None and job.bias is not None:
            operands["bias"] = job.bias[bias]
        with noted(self._trace, self._number, "product", 0):
            job.multiply(self._queue, chunk, operands, acc, out, [])

    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        _, out, _ = self._tiles[slot]
        part = of_tile(tile, self._job.product.stack)
        with noted(self._trace, self._number, "write", out.nbytes):
            write(part, out)

    def close(self, failed: bool) -> None:
        end_all(self._futures)
        if failed:
            host_memory.finish(self._queue)

    def _block(self, stored: Stored, name: tuple[str, int], elements: int, part: Part) -> Block:
        """A block where it lies, or else in the slot *name*, which has room for so many *elements*."""
        source = stored.source
        if source.in_memory and source.dtype.isnative:
            block = source.view(part.index, part.rows, part.columns)
            if reach(block) <= self._most:
                return Block(block)
        return self._filled(stored, self._memory(name, elements, stored.dtype), part)

    def _memory(self, name: tuple[str, int], elements: int, dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        if name not in self._slots:
            self._slots[name] = np.empty(elements * dtype.itemsize, np.uint8)
        return self._slots[name]

    def _dense(self, name: tuple[str, int], part: Part, dtype: np.dtype[Any]) -> NDArray[Any]:
        memory = self._memory(name, self._job.largest_tile, dtype)
        return memory[: part.elements * dtype.itemsize].view(dtype).reshape(part.shape)

    def _filled(self, stored: Stored, memory: NDArray[np.uint8], part: Part) -> Block:
        source, dtype = stored.source, stored.dtype
        flat = memory[: part.elements * dtype.itemsize].view(dtype)
        step = source.row_step()
        futures = [
            self._readers.submit(self._read, stored, piece, flat[start : start + piece.elements])
            for piece, start in pieces(part, source.turned, dtype.itemsize, pinned.PIECE, step)
        ]
        self._note(futures)
        array = flat.reshape(stored_shape(part, source.turned))
        return Block(array.swapaxes(-1, -2) if source.turned else array, futures)

    def _note(self, futures: list[Future[Any]]) -> None:
        """Remember work in flight, for :meth:`close`."""
        self._futures = [each for each in self._futures if not each.done()] + futures

    def _read(self, stored: Stored, piece: Part, target: NDArray[Any]) -> None:
        source = stored.source
        with noted(self._trace, self._number, "read", target.nbytes):
            shaped = target.reshape(stored_shape(piece, source.turned))
            source.read(shaped, piece.index, piece.rows, piece.columns)
