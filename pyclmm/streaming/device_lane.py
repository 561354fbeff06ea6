"""The lane of a device with memory of its own: blocks go through pinned memory into buffers of the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from ..opencl import host_memory, pinned, status
from ..opencl.devices import device_info
from ..opencl.queues import new_queue, queue_on
from .blocks import Part, of_tile
from .hands import Hands
from .job import Job, Stored, pieces, stored_shape
from .lane import Block, Write, end_all, noted
from .tiles import Tile
from .trace import Trace


class DeviceLane:
    """A lane for a device with memory of its own: a queue for each direction and one for products."""

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
        self._device = device_info(device)
        profiling = trace is not None
        self._queue = new_queue(device, profiling=True) if profiling else queue or queue_on(device)
        self._up = cl.CommandQueue(self._queue.context, device, properties=self._queue.properties)
        self._down = cl.CommandQueue(self._queue.context, device, properties=self._queue.properties)
        self._stack = ExitStack()
        self._buffers: dict[tuple[str, int], cl.Buffer] = {}
        self._last_use: dict[tuple[str, int], cl.Event] = {}
        self._tiles: dict[int, tuple[Any, Any, Block | None]] = {}  # acc, out, C
        self._ended: dict[int, list[cl.Event]] = {}
        self._bias: Any = None
        try:
            self._allocate()
            self._up_ring = self._stack.enter_context(pinned.ring(self._up, self._device))
            self._down_ring = self._stack.enter_context(pinned.ring(self._down, self._device))
        except BaseException:
            self._stack.__exit__(RuntimeError, RuntimeError(), None)
            raise
        self._readers, self._writers = hands.readers, hands.writers
        self._futures: list[Future[Any]] = []

    def _allocate(self) -> None:
        """All slots, before the first tile: a device without room for them refuses here."""
        job, at = self._job, self._job.blocking
        tile = job.largest_tile
        sizes = [
            ("a", at.a_slots, job.largest("a") * job.a.dtype.itemsize),
            ("b", at.b_slots, job.largest("b") * job.b.dtype.itemsize),
            ("out", at.out_slots, tile * job.dtype.itemsize),
            ("acc", at.out_slots if job.is_narrow else 0, tile * job.acc_dtype.itemsize),
            ("c", 0 if job.c is None else at.out_slots, tile * (job.c.dtype.itemsize if job.c else 0)),
        ]
        for name, count, nbytes in sizes:
            for slot in range(count):
                self._buffers[name, slot] = host_memory.allocate(
                    self._queue.context, nbytes, self._device, f"a block of {name}"
                )
        if job.bias is not None:
            self._bias = cla.to_device(self._queue, np.ascontiguousarray(job.bias))

    def load(self, operand: str, slot: int, part: Part) -> Block:
        return self._sent(self._job.operand(operand), (operand, slot), part)

    def begin(self, tile: Tile, slot: int) -> None:
        job, part = self._job, of_tile(tile, self._job.product.stack)
        out = self._array(("out", slot), part.shape, job.dtype)
        acc = self._array(("acc", slot), part.shape, job.acc_dtype) if job.is_narrow else out
        c = None
        if job.c is not None:
            its = job.c.part(job.product.stack, tile.z, tile.rows, tile.columns)
            c = self._sent(job.c, ("c", slot), its)
        self._tiles[slot] = acc, out, c

    def multiply(self, tile: Tile, chunk: int, a: Block, b: Block, slots: tuple[int, int, int]) -> None:
        job = self._job
        acc, out, c = self._tiles[slots[2]]
        operands = {"a": a.array, "b": b.array}
        wait_for = a.events() + b.events()
        if c is not None:
            operands["c"] = c.array
            wait_for += c.events()
        bias = job.bias_of(tile)
        if bias is not None:
            operands["bias"] = self._bias[bias]
        written = job.multiply(self._queue, chunk, operands, acc, out, wait_for)
        event = written.events[-1]
        self._queue.flush()
        used = [("a", slots[0]), ("b", slots[1])] + ([("c", slots[2])] if c is not None else [])
        self._last_use.update(dict.fromkeys(used, event))
        self._ended[slots[2]] = [event]
        if self._trace is not None:
            self._trace.product(self._number, event, wait_for)

    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        job, part = self._job, of_tile(tile, self._job.product.stack)
        buffer, after = self._buffers["out", slot], self._ended.pop(slot)
        size = job.dtype.itemsize
        futures = [
            self._writers.submit(self._fetch, buffer, piece, start * size, after, write)
            for piece, start in pieces(part, False, size, pinned.PIECE)
        ]
        self._note(futures)
        for each in futures:
            each.result()

    def close(self, failed: bool) -> None:
        end_all(self._futures)
        if failed:
            for queue in (self._up, self._queue, self._down):
                host_memory.finish(queue)
            self._stack.__exit__(RuntimeError, RuntimeError(), None)
        else:
            self._stack.close()
        self._buffers.clear()
        self._tiles.clear()

    def _array(self, name: tuple[str, int], shape: Sequence[int], dtype: np.dtype[Any]) -> cla.Array:
        return cla.Array(self._queue, tuple(shape), dtype, data=self._buffers[name])

    def _sent(self, stored: Stored, name: tuple[str, int], part: Part) -> Block:
        source, dtype = stored.source, stored.dtype
        last = self._last_use.pop(name, None)
        after = [] if last is None else [last]
        futures = [
            self._readers.submit(
                self._send, stored, piece, self._buffers[name], start * dtype.itemsize, after
            )
            for piece, start in pieces(part, source.turned, dtype.itemsize, pinned.PIECE, source.row_step())
        ]
        self._note(futures)
        array = self._array(name, stored_shape(part, source.turned), dtype)
        if source.turned:
            axes = (*range(array.ndim - 2), array.ndim - 1, array.ndim - 2)
            array = array.transpose(axes)  # type: ignore[no-untyped-call]
        return Block(array, futures)

    def _note(self, futures: list[Future[Any]]) -> None:
        """Remember work in flight, for :meth:`close`."""
        self._futures = [each for each in self._futures if not each.done()] + futures

    def _send(
        self, stored: Stored, piece: Part, buffer: cl.Buffer, offset: int, after: list[cl.Event]
    ) -> Any:
        source, nbytes = stored.source, piece.elements * stored.dtype.itemsize
        memory, event = self._borrowed(self._up_ring), None
        try:
            target = memory[:nbytes].view(stored.dtype).reshape(stored_shape(piece, source.turned))
            with noted(self._trace, self._number, "read", nbytes):
                source.read(target, piece.index, piece.rows, piece.columns)
            event = self._driven(
                lambda: cl.enqueue_copy(
                    self._up, buffer, memory[:nbytes], dst_offset=offset, wait_for=after, is_blocking=False
                )
            )
            self._up.flush()
        finally:
            self._up_ring.give_back(memory, event)
        if self._trace is not None:
            self._trace.transfer(self._number, "up", event, nbytes)
        return event

    def _fetch(
        self, buffer: cl.Buffer, piece: Part, offset: int, after: list[cl.Event], write: Write
    ) -> None:
        dtype = self._job.dtype
        nbytes = piece.elements * dtype.itemsize
        memory = self._borrowed(self._down_ring)
        try:
            # A blocking copy keeps the driver's lock, for which others wait with the interpreter's.
            event = self._driven(
                lambda: cl.enqueue_copy(
                    self._down, memory[:nbytes], buffer, src_offset=offset, wait_for=after, is_blocking=False
                )
            )
            self._down.flush()
            self._driven(event.wait)
            if self._trace is not None:
                self._trace.transfer(self._number, "down", event, nbytes)
            with noted(self._trace, self._number, "write", nbytes):
                write(piece, memory[:nbytes].view(dtype).reshape(piece.shape))
        finally:
            self._down_ring.give_back(memory)

    def _borrowed(self, ring: pinned.Ring) -> Any:
        return self._driven(ring.borrow)

    def _driven(self, command: Callable[[], Any]) -> Any:
        """What *command* gives. Raises DeviceLostError or DeviceMemoryError for the driver's errors."""
        try:
            return command()
        except cl.Error as error:
            raise status.rejected(self._device, "a transfer", error) from error
