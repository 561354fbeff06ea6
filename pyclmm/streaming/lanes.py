"""The two kinds of lanes: of devices that share the host's memory, and of those with memory of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.typing import NDArray

from ..opencl import host_memory, staging, status
from ..opencl.devices import device_info
from .job import Job, pieces, stored_shape
from .lane import Lane, LaneThreads, LoadedBlock, Trace, Write
from .mapped import reach
from .tiles import Region, Tile, region_of


def lane_for(
    number: int,
    device: cl.Device,
    job: Job,
    threads: LaneThreads,
    queue: cl.CommandQueue | None,
    trace: Trace | None,
) -> Lane:
    """The lane that suits *device*. Raises DeviceMemoryError if it has no room for the slots."""
    kind = HostLane if device_info(device).unified_memory else DeviceLane
    return kind(number, device, job, threads, queue, trace)


class HostLane(Lane):
    """A lane for a device that shares the host's memory: arrays are read in place, files into memory."""

    def _prepare(self) -> None:
        job = self._job
        self._slots: dict[tuple[str, int], NDArray[np.uint8]] = {}  # made when they are first needed
        # A tile of several chunks is written when it is finished: the result never has parts of sums.
        self._in_place = len(job.chunks) == 1 and job.sink.in_memory and job.sink.dtype == job.dtype

    def load(self, operand: str, slot: int, region: Region) -> LoadedBlock:
        """The block where it lies, or else in the slot."""
        stored = self._job.operand(operand)
        source = stored.source
        if source.in_memory and source.dtype.isnative:
            block = source.view(region)
            if reach(block) <= self._info.max_mem_alloc_size:
                return LoadedBlock(block)
        memory = self._array(operand, slot, stored_shape(region, source.turned), stored.dtype)
        flat = memory.reshape(-1)

        def read(piece: Region, start: int) -> None:
            target = flat[start : start + piece.elements]
            source.read(target.reshape(stored_shape(piece, source.turned)), piece)

        return self._filled(operand, memory, region, read)

    def _array(self, name: str, slot: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        if (name, slot) not in self._slots:
            self._slots[name, slot] = np.empty(self._job.largest(name) * dtype.itemsize, np.uint8)
        nbytes = math.prod(shape) * dtype.itemsize
        array: NDArray[Any] = self._slots[name, slot][:nbytes].view(dtype).reshape(shape)
        return array

    def _out(self, slot: int, region: Region) -> NDArray[Any]:
        if self._in_place:
            out = self._job.sink.view(region)
            if reach(out) <= self._info.max_mem_alloc_size:
                return out
        return self._array("out", slot, region.shape, self._job.dtype)

    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        _, out, _ = self._tiles[slot]
        write(region_of(tile, self._job.product.stack), out)


class DeviceLane(Lane):
    """A lane for a device with memory of its own: blocks go through pinned memory into its buffers.

    It has a queue for each direction and one for products.
    """

    def _prepare(self) -> None:
        context, device, properties = self._queue.context, self._queue.device, self._queue.properties
        self._up = cl.CommandQueue(context, device, properties=properties)
        self._down = cl.CommandQueue(context, device, properties=properties)
        self._queues = [self._up, self._queue, self._down]
        self._buffers: dict[tuple[str, int], cl.Buffer] = {}
        self._last_use: dict[tuple[str, int], cl.Event] = {}
        self._ended: dict[int, list[cl.Event]] = {}
        self._stack = ExitStack()
        try:
            self._allocate()
            self._up_ring = self._stack.enter_context(staging.ring(self._up))
            self._down_ring = self._stack.enter_context(staging.ring(self._down))
        except BaseException:
            self._drop_rings()
            raise

    def _drop_rings(self) -> None:
        """End the rings as an error does: their memory is kept for nobody."""
        self._stack.__exit__(RuntimeError, RuntimeError(), None)

    def _allocate(self) -> None:
        """All slots, before the first tile: a device without room for them refuses here."""
        job, at = self._job, self._job.blocking
        slots = {"a": (at.a_slots, job.a.dtype), "b": (at.b_slots, job.b.dtype)}
        slots["out"] = at.out_slots, job.dtype
        if job.is_narrow:
            slots["acc"] = at.out_slots, job.acc_dtype
        if job.c is not None:
            slots["c"] = at.out_slots, job.c.dtype
        for name, (count, dtype) in slots.items():
            nbytes = max(1, job.largest(name) * dtype.itemsize)  # a block is empty if K is 0
            for slot in range(count):
                self._buffers[name, slot] = host_memory.allocate(
                    self._queue.context, nbytes, self._info, f"a block of {name}"
                )
        if job.bias is not None:
            self._bias = cla.to_device(self._queue, np.ascontiguousarray(job.bias))

    def load(self, operand: str, slot: int, region: Region) -> LoadedBlock:
        """The block, sent to the slot's buffer by pieces after the last product that used it."""
        stored = self._job.operand(operand)
        last = self._last_use.pop((operand, slot), None)
        after = [] if last is None else [last]
        shape = stored_shape(region, stored.source.turned)
        buffer, array = self._buffers[operand, slot], self._array(operand, slot, shape, stored.dtype)

        def send(piece: Region, start: int) -> cl.Event:
            nbytes, offset = piece.elements * stored.dtype.itemsize, start * stored.dtype.itemsize
            memory, event = self._driven(self._up_ring.borrow), None
            try:
                shape = stored_shape(piece, stored.source.turned)
                stored.source.read(memory[:nbytes].view(stored.dtype).reshape(shape), piece)
                event = self._copied(self._up, buffer, memory[:nbytes], dst_offset=offset, wait_for=after)
            finally:
                self._up_ring.give_back(memory, event)
            self._traced("up", event, nbytes)
            return event

        return self._filled(operand, array, region, send)

    def _array(self, name: str, slot: int, shape: Sequence[int], dtype: np.dtype[Any]) -> cla.Array:
        return cla.Array(self._queue, tuple(shape), dtype, data=self._buffers[name, slot])

    def _enqueued(self, slots: tuple[int, ...], operands: Collection[str], written: Any) -> cl.Event:
        event: cl.Event = written.events[-1]
        self._queue.flush()
        used = [used for used in zip("abc", slots, strict=True) if used[0] in operands]
        self._last_use.update(dict.fromkeys(used, event))
        self._ended[slots[2]] = [event]
        return event

    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        job, region = self._job, region_of(tile, self._job.product.stack)
        buffer, after = self._buffers["out", slot], self._ended.pop(slot)

        def fetch(piece: Region, start: int) -> None:
            nbytes, offset = piece.elements * job.dtype.itemsize, start * job.dtype.itemsize
            memory = self._driven(self._down_ring.borrow)
            try:
                # A blocking copy keeps the driver's lock, for which others wait with the interpreter's.
                event = self._copied(self._down, memory[:nbytes], buffer, src_offset=offset, wait_for=after)
                self._driven(event.wait)
                self._traced("down", event, nbytes)
                write(piece, memory[:nbytes].view(job.dtype).reshape(piece.shape))
            finally:
                self._down_ring.give_back(memory)

        cut = pieces(region, False, job.dtype.itemsize, staging.PIECE)
        futures = [self._threads.writers.submit(fetch, piece, start) for piece, start in cut]
        self._remember(futures)
        for each in futures:
            each.result()

    def close(self, failed: bool) -> None:
        super().close(failed)
        if failed:
            self._drop_rings()
        else:
            self._stack.close()
        self._buffers.clear()
        self._tiles.clear()

    def _copied(self, queue: cl.CommandQueue, target: Any, source: Any, **where: Any) -> cl.Event:
        """The event of a copy that has begun."""
        event: cl.Event = self._driven(
            lambda: cl.enqueue_copy(queue, target, source, is_blocking=False, **where)
        )
        queue.flush()
        return event

    def _driven(self, command: Callable[[], Any]) -> Any:
        """What *command* gives. Raises DeviceLostError or DeviceMemoryError for the driver's errors."""
        try:
            return command()
        except cl.Error as error:
            raise status.rejected(self._info, "a transfer", error) from error
