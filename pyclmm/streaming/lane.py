"""What the lanes have in common: threads, blocks on their way, and the base of both kinds.

A lane brings the blocks of a streamed product to one device, has them multiplied there, and brings the tiles
back. Reading, writing and copying are done by threads of a pool, because NumPy and files release the
interpreter's lock.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..opencl import host_memory, staging
from ..opencl.devices import device_info
from ..opencl.queues import at_release, new_queue, queue_on
from .job import Job, pieces
from .tiles import Region, Tile, region_of

_CPUS = os.cpu_count() or 1
_READERS = max(2, min(8, _CPUS - 1))  # that fill blocks; 6 to 14 were alike on 16 cores beside an H200
_WRITERS = max(2, min(12, _CPUS * 3 // 4))  # that empty tiles: 12 bring 45 GB/s to arrays there, 8 bring 37
_lock = threading.Lock()
_idle: list[LaneThreads] = []
Write = Callable[[Region, NDArray[Any]], None]  # takes a part of the result
# Is told what a device did: its number; "up", "product" or "down"; the event that ended it, or for a product
# of a HostLane the host's seconds of its start and end; the bytes moved; the events after which it began.
Trace = Callable[[int, str, Any, int, list[cl.Event]], None]


class LaneThreads:
    """Thread pools of one lane: ``readers``, ``writers``, ``loops`` for three loops, one ``multiplier``.

    They are kept for the next run: to start threads takes a millisecond, and kernel objects belong to a
    thread, so one that multiplied before has them.
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
    """A block on its way to a lane, or there: *ready* futures give the events that end its transfers."""

    array: Any
    ready: list[Future[Any]] = field(default_factory=list)

    def events(self) -> list[cl.Event]:
        """The events to wait for before its first use; waits until its copies are enqueued. Raises what
        reading it raised."""
        done, self.ready = self.ready, []
        return [event for each in done if (event := each.result()) is not None]


class Lane(ABC):
    """One device's part in a streamed product.

    A subclass says where blocks and tiles lie, and how these are delivered. Raises DeviceMemoryError if the
    device has no room for the slots.
    """

    def __init__(
        self,
        number: int,
        device: cl.Device,
        job: Job,
        threads: LaneThreads,
        queue: cl.CommandQueue | None,
        trace: Trace | None,
    ) -> None:
        self._number, self._job, self._threads, self._trace = number, job, threads, trace
        self._info = device_info(device)
        self._queue = new_queue(device, profiling=True) if trace is not None else queue or queue_on(device)
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
        c = None if job.c is None else self.load("c", slot, job.region("c", tile))
        self._tiles[slot] = acc, out, c

    def multiply(
        self, tile: Tile, chunk: int, a: LoadedBlock, b: LoadedBlock, slots: tuple[int, int, int]
    ) -> None:
        """Multiply two blocks into a tile; *slots*: those of a, b and the tile."""
        acc, out, c = self._tiles[slots[2]]
        blocks = {"a": a, "b": b} | ({} if c is None else {"c": c})
        wait_for = [event for block in blocks.values() for event in block.events()]
        operands = {name: block.array for name, block in blocks.items()}
        bias = self._job.bias_of(tile)
        if bias is not None:
            operands["bias"] = self._bias[bias]
        start = time.perf_counter()
        written = self._job.multiply(self._queue, chunk, operands, acc, out, wait_for)
        event = self._enqueued(slots, operands, written)
        self._traced("product", event or (start, time.perf_counter()), after=wait_for)

    def _enqueued(self, slots: tuple[int, ...], operands: Collection[str], written: Any) -> cl.Event | None:
        """*operands* in *slots* are multiplied into *written*. The event that ends it; None: it has ended."""
        return None

    @abstractmethod
    def deliver(self, tile: Tile, slot: int, write: Write) -> None:
        """Pass the finished tile on to *write*, in parts. It is complete on return."""

    def close(self, failed: bool) -> None:
        """Wait until the device uses nothing of this lane, and free what it has."""
        for each in self._futures:
            each.cancel()
        wait(self._futures)
        if failed:
            for queue in self._queues:
                host_memory.finish(queue)

    def _filled(
        self, operand: str, array: Any, region: Region, fill: Callable[[Region, int], Any]
    ) -> LoadedBlock:
        """*array*, a slot's memory, as a block of *operand*: readers call *fill* with its pieces and where
        in the block each begins, in elements."""
        source = self._job.operand(operand).source
        size, step = source.dtype.itemsize, source.row_step()
        cut = pieces(region, source.turned, size, staging.PIECE, step)
        futures = [self._threads.readers.submit(fill, piece, start) for piece, start in cut]
        self._remember(futures)
        if source.turned:
            array = array.transpose((*range(array.ndim - 2), array.ndim - 1, array.ndim - 2))
        return LoadedBlock(array, futures)

    def _traced(self, what: str, event: Any, nbytes: int = 0, after: Sequence[cl.Event] = ()) -> None:
        """Tell the trace, if there is one."""
        if self._trace is not None:
            self._trace(self._number, what, event, nbytes, list(after))

    def _remember(self, futures: list[Future[Any]]) -> None:
        """Remember work in flight, for :meth:`close`."""
        self._futures = [each for each in self._futures if not each.done()] + futures
