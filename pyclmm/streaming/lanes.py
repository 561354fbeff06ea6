"""Lanes: of devices that share the host's memory, and of those with memory of their own.

A lane brings the blocks of a streamed product to one device, has them multiplied there, and brings the tiles
back. Reading, writing and copying are done by threads of a pool, because NumPy and files release the
interpreter's lock.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
from numpy.typing import NDArray

from ..errors import VerificationError
from ..execution import verdicts
from ..opencl import host_memory, staging, status
from ..opencl.devices import device_info
from ..opencl.mappings import extent
from ..opencl.queues import at_release, queue_beside, queue_on
from .arrivals import Arrivals
from .job import Job, pieces, stored_shape
from .tiles import Region, Tile, region_of

_CPUS = os.cpu_count() or 1
_READERS = max(2, min(8, _CPUS - 1))  # that fill blocks; 6 to 14 were alike on 16 cores beside an H200
_WRITERS = max(2, min(12, _CPUS * 3 // 4))  # that empty tiles: 12 bring 45 GB/s to arrays there, 8 bring 37
_lock = threading.RLock()
_idle: list[LaneThreads] = []
Write = Callable[[Region, NDArray[Any]], None]  # takes a part of the result


class LaneThreads:
    """Thread pools of a lane: ``readers``, ``writers``, three ``loops``, one ``multiplier``. They are kept
    for the next run: starting takes a millisecond, and kernel objects belong to the thread that multiplied.
    """

    def __init__(self) -> None:
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="pyclmm-read")
        self.writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="pyclmm-write")
        self.loops = ThreadPoolExecutor(3, thread_name_prefix="pyclmm-loop")
        self.multiplier = ThreadPoolExecutor(1, thread_name_prefix="pyclmm-multiply")

    def end(self) -> None:
        """End the threads when they have done what they do. Drop what they have not begun."""
        for pool in (self.readers, self.writers, self.loops, self.multiplier):
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def lane_threads() -> Iterator[LaneThreads]:
    """Threads for the length of a block, which nobody else has. All that was given to them must have ended.
    After an error they end: a pool whose thread the system refused still has the task, and would do it later.
    """
    with _lock:
        found = _idle.pop() if _idle else None
    if found is None:
        found = LaneThreads()
    try:
        yield found
    except BaseException:
        found.end()
        raise
    with _lock:
        _idle.append(found)


@at_release
def release() -> None:
    """End the threads that no run uses."""
    with _lock:
        ended, _idle[:] = list(_idle), []
    for each in ended:
        each.end()


@dataclass
class LoadedBlock:
    """A block on its way to a slot of a lane, or there: the futures *transfers* give the events that end
    these.
    """

    slot: int
    array: Any
    transfers: list[Future[Any]] = field(default_factory=list)

    def events(self) -> list[cl.Event]:
        """The events that its first use waits for, once its copies are enqueued. Raises as reading did."""
        done, self.transfers = self.transfers, []
        return [event for each in done if (event := each.result()) is not None]


class Lane(ABC):
    """One device's part in a streamed product. A subclass says where blocks and tiles lie, and how these are
    delivered. Raises DeviceMemoryError if the device has no room for the slots.
    """

    def __init__(
        self, device: cl.Device, job: Job, threads: LaneThreads, queue: cl.CommandQueue | None
    ) -> None:
        self._job, self._threads = job, threads
        self._info = device_info(device)
        self._queue = queue or queue_on(device)
        self._queues = [self._queue]
        self._tiles: dict[int, tuple[Any, Any, LoadedBlock | None]] = {}  # acc, out, C of each slot
        self._bias: Any = job.bias
        self._futures: list[Future[Any]] = []  # of what readers and writers do
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Get what slots and transfers need."""

    @abstractmethod
    def load(self, operand: str, slot: int, region: Region) -> LoadedBlock:
        """Begin to bring a block of "a", "b" or "c" into *slot*."""

    @abstractmethod
    def _array(self, name: str, slot: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """The memory of a slot as an array."""

    def _out(self, slot: int, region: Region) -> Any:
        """Where a tile is computed."""
        return self._array("out", slot, region.shape, self._job.dtype)

    def begin(self, tile: Tile, slot: int) -> None:
        """Make the tile slot ready for *tile*; begin to load its part of C if there is one."""
        job, region = self._job, region_of(tile, self._job.product.stack)
        out = self._out(slot, region)
        acc = self._array("acc", slot, region.shape, job.acc_dtype) if job.is_narrow else out
        c = None if "c" not in job.operands else self.load("c", slot, job.region("c", tile))
        self._tiles[slot] = acc, out, c

    def multiply(self, tile: Tile, chunk: int, a: LoadedBlock, b: LoadedBlock, slot: int) -> None:
        """Multiply two blocks into the *tile* in *slot*."""
        acc, out, c = self._tiles[slot]
        blocks = {"a": a, "b": b} | ({} if c is None else {"c": c})
        wait_for = [event for block in blocks.values() for event in block.events()]
        operands = {name: block.array for name, block in blocks.items()}
        bias = self._job.bias_of(tile)
        if bias is not None:
            operands["bias"] = self._bias[bias]
        with _naming(tile):
            written = self._job.multiply(self._queue, chunk, operands, acc, out, wait_for)
        self._enqueued(blocks, slot, written)

    def _enqueued(self, blocks: Mapping[str, LoadedBlock], slot: int, written: Any) -> None:  # noqa: B027
        """Note that *blocks* are multiplied into *written*, a tile in *slot*, on a queue that may go on."""

    @abstractmethod
    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        """Pass the finished tile on to *write*, in parts. It is complete on return."""

    def close(self, failed: bool) -> None:
        """Wait until the device uses nothing of this lane, and free what it has."""
        for each in self._futures:
            each.cancel()
        staging.wait_for_all(self._futures)
        if failed:
            for queue in self._queues:
                host_memory.finish(queue)

    def _filled(
        self, operand: str, slot: int, array: Any, region: Region, fill: Callable[[Region, int], Any]
    ) -> LoadedBlock:
        """*array*, in *slot*, as a block of *operand*. *fill* gets its pieces and their first elements."""
        source = self._job.operands[operand]
        cut = pieces(region, source.turned, source.dtype.itemsize, staging.PIECE, source.row_step())
        submit = self._threads.readers.submit
        futures = [submit(copy_context().run, fill, piece, start) for piece, start in cut]
        self._remember(futures)
        if source.turned:
            array = array.transpose((*range(array.ndim - 2), array.ndim - 1, array.ndim - 2))
        return LoadedBlock(slot, array, futures)

    def _remember(self, futures: list[Future[Any]]) -> None:
        """Remember work in flight, for :meth:`close`."""
        self._futures = [each for each in self._futures if not each.done()] + futures


class HostLane(Lane):
    """A lane for a device that shares the host's memory: arrays are read in place, files into memory."""

    def _prepare(self) -> None:
        job = self._job
        self._slots: dict[tuple[str, int], NDArray[np.uint8]] = {}  # made when they are first needed
        # A tile of several chunks is written when it is finished: the result never has parts of sums.
        self._in_place = len(job.chunks) == 1 and job.sink.in_memory and job.sink.dtype == job.dtype

    def load(self, operand: str, slot: int, region: Region) -> LoadedBlock:
        """The block where it lies, or else in the slot."""
        source = self._job.operands[operand]
        if source.in_memory and source.dtype.isnative:
            block = source.view(region)
            if extent(block) <= self._info.max_mem_alloc_size:
                return LoadedBlock(slot, block)
        memory = self._array(operand, slot, stored_shape(region, source.turned), source.native)
        flat = memory.reshape(-1)

        def read(piece: Region, start: int) -> None:
            target = flat[start : start + piece.elements]
            source.read(target.reshape(stored_shape(piece, source.turned)), piece)

        return self._filled(operand, slot, memory, region, read)

    def _array(self, name: str, slot: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        if (name, slot) not in self._slots:
            self._slots[name, slot] = np.empty(self._job.largest(name) * dtype.itemsize, np.uint8)
        nbytes = math.prod(shape) * dtype.itemsize
        array: NDArray[Any] = self._slots[name, slot][:nbytes].view(dtype).reshape(shape)
        return array

    def _out(self, slot: int, region: Region) -> NDArray[Any]:
        if self._in_place:
            out = self._job.sink.view(region)
            if extent(out) <= self._info.max_mem_alloc_size:
                return out
        return self._array("out", slot, region.shape, self._job.dtype)

    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        _, out, _ = self._tiles[slot]
        write(region_of(tile, self._job.product.stack), out)


class DeviceLane(Lane):
    """A lane for a device with memory of its own: blocks go through pinned memory into its buffers. It has a
    queue for each direction and one for products.
    """

    def _prepare(self) -> None:
        self._up, self._down = (queue_beside(self._queue, self._queue.properties) for _ in range(2))
        self._queues = [self._up, self._queue, self._down]
        verify = self._job.options.verify
        self._arrivals = Arrivals(self._down, self._info, verify, self._job.product.stack) if verify else None
        self._buffers: dict[tuple[str, int], cl.Buffer] = {}
        self._last_use: dict[tuple[str, int], cl.Event] = {}
        self._ended: dict[int, list[cl.Event]] = {}
        self._allocate()
        self._up_ring, self._down_ring = staging.taken(self._up), staging.taken(self._down)

    def _allocate(self) -> None:
        """All slots, before the first tile: a device without room for them refuses here."""
        job, at = self._job, self._job.blocking
        counts = {"a": at.a_slots, "b": at.b_slots}
        dtypes = {name: x.native for name, x in job.operands.items()} | {"out": job.dtype}
        if job.is_narrow:
            dtypes["acc"] = job.acc_dtype
        for name, dtype in dtypes.items():
            nbytes = max(1, job.largest(name) * dtype.itemsize)  # a block is empty if K is 0
            for slot in range(counts.get(name, at.out_slots)):
                self._buffers[name, slot] = host_memory.allocate(
                    self._queue.context, nbytes, self._info, f"a block of {name}"
                )
        if job.bias is not None:
            self._bias = cla.to_device(self._queue, np.ascontiguousarray(job.bias))

    def load(self, operand: str, slot: int, region: Region) -> LoadedBlock:
        """The block, sent to the slot's buffer by pieces after the last product that used it."""
        source, dtype = self._job.operands[operand], self._job.operands[operand].native
        last = self._last_use.pop((operand, slot), None)
        after = [] if last is None else [last]
        shape = stored_shape(region, source.turned)
        buffer, array = self._buffers[operand, slot], self._array(operand, slot, shape, dtype)

        def send(piece: Region, start: int) -> cl.Event:
            nbytes, offset = piece.elements * dtype.itemsize, start * dtype.itemsize
            memory, event = self._driven(self._up_ring.borrow), None
            try:
                shape = stored_shape(piece, source.turned)
                source.read(memory[:nbytes].view(dtype).reshape(shape), piece)
                event = self._copied(self._up, buffer, memory[:nbytes], dst_offset=offset, wait_for=after)
            finally:
                self._up_ring.give_back(memory, event)
            return event

        return self._filled(operand, slot, array, region, send)

    def _array(self, name: str, slot: int, shape: Sequence[int], dtype: np.dtype[Any]) -> cla.Array:
        return cla.Array(self._queue, tuple(shape), dtype, data=self._buffers[name, slot])

    def _enqueued(self, blocks: Mapping[str, LoadedBlock], slot: int, written: Any) -> None:
        event: cl.Event = written.events[-1]
        self._queue.flush()
        self._last_use.update({(name, block.slot): event for name, block in blocks.items()})
        self._ended[slot] = [event]

    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        job, region = self._job, region_of(tile, self._job.product.stack)
        buffer, after = self._buffers["out", slot], self._ended.pop(slot)

        def fetch(piece: Region, start: int) -> None:
            nbytes, offset = piece.elements * job.dtype.itemsize, start * job.dtype.itemsize
            memory = self._driven(self._down_ring.borrow)
            try:
                whole = memory[:nbytes]

                def copy() -> None:
                    # A blocking copy keeps the driver's lock, for which others wait with the interpreter's.
                    event = self._copied(self._down, whole, buffer, src_offset=offset, wait_for=after)
                    self._driven(event.wait)

                if self._arrivals is None:
                    copy()
                else:
                    self._arrivals.fetch(copy, whole, buffer, offset, piece)
                write(piece, whole.view(job.dtype).reshape(piece.shape))
            finally:
                self._down_ring.give_back(memory)

        cut = pieces(region, False, job.dtype.itemsize, staging.PIECE)
        submit = self._threads.writers.submit
        futures = [submit(copy_context().run, fetch, piece, start) for piece, start in cut]
        self._remember(futures)
        for each in futures:
            each.result()

    def close(self, failed: bool) -> None:
        super().close(failed)
        if not failed:  # else a transfer may still use them
            staging.keep(self._up_ring)
            staging.keep(self._down_ring)
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


@contextmanager
def _naming(tile: Tile) -> Iterator[None]:
    """Verification errors and warnings in this block name *tile*; errors have rows, columns and products of
    the whole result."""
    row, column = tile.rows.start, tile.columns.start
    try:
        with verdicts.part_of(f" (in a tile that begins at row {row}, column {column})"):
            yield
    except VerificationError as error:
        for name, span in (("rows", tile.rows), ("columns", tile.columns), ("stack", tile.z)):
            setattr(error, name, tuple(span.start + at for at in getattr(error, name)))
        raise


def lane_for(device: cl.Device, job: Job, threads: LaneThreads, queue: cl.CommandQueue | None) -> Lane:
    """The lane that suits *device*. Raises DeviceMemoryError if it has no room for the slots."""
    kind = HostLane if device_info(device).unified_memory else DeviceLane
    return kind(device, job, threads, queue)
