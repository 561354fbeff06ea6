"""Worker: drives one lane by threads, which load blocks, multiply and deliver; and what workers share."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import bring
from ..opencl import staging
from .checkpoint import Checkpoint
from .fingerprints import WrittenTile
from .job import Job
from .lanes import Lane, LaneThreads, LoadedBlock
from .tile_scheduler import TileScheduler
from .tiles import Region, Slots, Tile, block_key, region_of

_AHEAD = 8  # tiles whose blocks are loaded before all their products are enqueued; the slots bound it too
_PATIENCE = 0.1  # seconds between two looks whether the run was stopped
_Step = tuple[Tile, int, LoadedBlock, LoadedBlock]  # a chunk of a tile, and its blocks of A and B


class Stopped(Exception):  # noqa: N818 - no error
    """The run was stopped: by the caller, or by an error elsewhere."""


class RunState:
    """What the workers of a run share: who gets which tile, and what was finished. Any thread may call it."""

    def __init__(self, job: Job, scheduler: TileScheduler, checkpoint: Checkpoint | None) -> None:
        self._job, self._scheduler, self._checkpoint = job, scheduler, checkpoint
        self.stopped = threading.Event()
        self.reports: queue.SimpleQueue[tuple[str, int, Any]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._leaving: set[int] = set()  # workers that have failed, and end
        self._keeping = threading.Lock()

    @property
    def remaining(self) -> int:
        """Tiles that are not done."""
        with self._changed:
            return self._scheduler.remaining

    def next(self, worker: int) -> Tile | None:
        """The next tile for a worker; waits while there may be one later. None: there are no more."""
        with self._changed:
            while not self.stopped.is_set() and self._scheduler.remaining and worker not in self._leaving:
                tile = self._scheduler.next(worker)
                if tile is not None:
                    return tile
                self._changed.wait()
            return None

    def deliver(self, lane: Lane, tile: Tile, slot: int) -> Callable[[], None]:
        """Have the lane deliver a tile. Returns what sees that it is kept, and needs the slot no more."""
        whole = region_of(tile, self._job.product.stack)
        if self._checkpoint is None or self._job.sink.persistent:
            at = self._checkpoint
            written = None if at is None else at.written(whole, self._job.dtype)
            lane.deliver(tile, slot, partial(self._write, written=written))
            return partial(self._note, tile, whole, written)
        checkpoint, kept = self._checkpoint, np.empty(whole.shape, self._job.dtype)

        def keep(region: Region, block: NDArray[Any]) -> None:
            kept[region.within(whole)] = block

        def finish() -> None:  # ``out`` does not survive the process, so the checkpoint keeps the tile
            checkpoint.finish(tile.number, kept)
            self._write(whole, kept)

        lane.deliver(tile, slot, keep)
        return finish

    def _note(self, tile: Tile, region: Region, written: WrittenTile | None) -> None:
        """Note a tile that ``out`` has, after it is safe there."""
        if self._checkpoint is not None:
            digest = self._checkpoint.digest(region, written)
            with self._keeping:
                self._job.sink.flush()
                self._checkpoint.finish(tile.number, None, digest)

    def _write(self, region: Region, block: NDArray[Any], written: WrittenTile | None = None) -> None:
        sink = self._job.sink
        if not (sink.in_memory and np.may_share_memory(block, sink.view(region))):  # else written in place
            sink.write(block, region)
        if written is not None:
            written.add(region, block)

    def done(self, worker: int, tile: Tile, seconds: float) -> None:
        """A tile was delivered."""
        with self._changed:
            self._scheduler.done(worker, tile, seconds)
            self._changed.notify_all()
        self.reports.put(("done", worker, tile))

    def leave(self, worker: int) -> None:
        """A worker has failed: it gets no more tiles, and does not wait for one."""
        with self._changed:
            self._leaving.add(worker)
            self._changed.notify_all()

    def lost(self, worker: int) -> None:
        """Give the tiles of a worker, whose threads have ended, to the others."""
        with self._changed:
            self._scheduler.lost(worker)
            self._changed.notify_all()

    def stop(self) -> None:
        """Make every worker end soon."""
        self.stopped.set()
        with self._changed:
            self._changed.notify_all()


class _BlockCache:
    """The slots of one operand: which blocks they hold, and how many steps still need them."""

    def __init__(self, count: int) -> None:
        self._slots = Slots(count)
        self._blocks: dict[int, LoadedBlock] = {}
        self._users: dict[int, int] = {}
        self._changed = threading.Condition()

    def get(self, key: Any, load: Callable[[int], LoadedBlock], check: Callable[[], None]) -> LoadedBlock:
        """The block of *key*, for one step, loaded by *load* if no slot holds it. Waits for a slot, until
        *check* raises.
        """
        with self._changed:
            slot = self._slots.find(key)
            found = slot is not None
            while slot is None:
                check()
                slot = self._slots.place(key, self._users.keys())
                if slot is None:
                    self._changed.wait(_PATIENCE)
            self._users[slot] = self._users.get(slot, 0) + 1
        if not found:
            self._blocks[slot] = load(slot)
        return self._blocks[slot]

    def release(self, slot: int) -> None:
        """A step has used a slot."""
        with self._changed:
            self._users[slot] -= 1
            if not self._users[slot]:
                del self._users[slot]
                self._changed.notify()


class Worker:
    """The loops of one lane. They end when the run has no more tiles, or at the first error."""

    def __init__(self, number: int, lane: Lane, job: Job, threads: LaneThreads, state: RunState) -> None:
        self._number, self._lane, self._job, self._state = number, lane, job, state
        at = job.blocking
        self._caches = {"a": _BlockCache(at.a_slots), "b": _BlockCache(at.b_slots)}
        self._tile_slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(at.out_slots):
            self._tile_slots.put(slot)
        self._ahead = threading.Semaphore(_AHEAD)
        self._steps: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self._multiplied: queue.SimpleQueue[tuple[Tile, int] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._broken = threading.Event()
        self._threads = threads
        self._counting = threading.Lock()
        self._running = 4
        self._since = time.perf_counter()  # when the last tile was delivered
        self._taken: dict[int, float] = {}  # when a tile was taken, by its number
        self._futures: list[Future[None]] = []

    def start(self, errors: Mapping[str, Any]) -> None:
        """Start the loops, in which NumPy's casts do with an overflow what *errors* say."""
        loops = self._threads.loops
        pools = (loops, self._load), (self._threads.multiplier, self._multiply)
        # Two deliver: while one waits for the end of its tile the other begins the next.
        for pool, loop in (*pools, (loops, self._deliver), (loops, self._deliver)):
            context = Context()
            context.run(bring.set, self._tell)
            self._futures.append(pool.submit(context.run, self._guarded, loop, errors))

    def _tell(self, *told: Any) -> None:
        self._state.reports.put(("told", self._number, told))

    def join(self) -> None:
        """Wait until the loops have ended."""
        staging.wait_for_all(self._futures)

    def _guarded(self, loop: Callable[[], None], errors: Mapping[str, Any]) -> None:
        try:
            with np.errstate(**errors):
                loop()
        except Stopped:
            self._break()
        except BaseException as error:
            self._error = self._error or error
            self._break()
        finally:
            if loop == self._load:
                self._steps.put(None)
            elif loop == self._multiply:
                self._multiplied.put(None)
                self._multiplied.put(None)
            with self._counting:
                self._running -= 1
                is_last = not self._running
            if is_last:
                self._state.reports.put(("ended", self._number, self._error))  # no error: for lack of tiles

    def _break(self) -> None:
        """Make the other loops end, too."""
        self._broken.set()
        self._state.leave(self._number)

    def _load(self) -> None:
        """Take tiles, and have their blocks brought to the device, as far ahead as there are slots."""
        while True:
            while not self._ahead.acquire(timeout=_PATIENCE):
                self._check()
            tile = self._state.next(self._number)
            if tile is None:
                return
            self._taken[tile.number] = time.perf_counter()
            for chunk in range(len(self._job.chunks)):
                a, b = (self._block(name, tile, chunk) for name in "ab")
                self._steps.put((tile, chunk, a, b))

    def _check(self) -> None:
        """Raise Stopped if this worker is to end."""
        if self._broken.is_set() or self._state.stopped.is_set():
            raise Stopped

    def _block(self, name: str, tile: Tile, chunk: int) -> LoadedBlock:
        def load(slot: int) -> LoadedBlock:
            return self._lane.load(name, slot, self._job.region(name, tile, chunk))

        key = block_key(self._job.product, name, tile, chunk)
        return self._caches[name].get(key, load, self._check)

    def _multiply(self) -> None:
        last, slot = len(self._job.chunks) - 1, -1
        while (step := self._steps.get()) is not None:
            self._check()
            tile, chunk, a, b = step
            if chunk == 0:
                slot = self._free_tile()
                self._lane.begin(tile, slot)
            self._lane.multiply(tile, chunk, a, b, slot)
            self._caches["a"].release(a.slot)
            self._caches["b"].release(b.slot)
            if chunk == last:
                self._ahead.release()
                self._multiplied.put((tile, slot))

    def _free_tile(self) -> int:
        """A slot for a tile; waits for one."""
        while True:
            self._check()
            try:
                return self._tile_slots.get(timeout=_PATIENCE)
            except queue.Empty:
                continue

    def _deliver(self) -> None:
        while (item := self._multiplied.get()) is not None:
            self._check()
            tile, slot = item
            keep = self._state.deliver(self._lane, tile, slot)
            self._tile_slots.put(slot)
            keep()
            with self._counting:
                now = time.perf_counter()
                began = max(self._since, self._taken.pop(tile.number))  # it may have had to wait for a tile
                seconds, self._since = now - began, now
            self._state.done(self._number, tile, seconds)
