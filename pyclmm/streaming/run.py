"""One run of a streamed product: starts a worker for each device, hands out tiles, and waits."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from .. import plan_cache
from ..errors import (
    BuildError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceWarning,
    LaunchError,
    UnsupportedError,
    in_short,
)
from ..opencl import pinned
from ..opencl.devices import device_info
from ..opencl.queues import context_of
from .blocks import Part, of_tile
from .checkpoint import Checkpoint
from .handout import Handout
from .hands import hands
from .job import Job
from .lane import Lane
from .lanes import lane_for
from .progress import StreamProgress
from .tiles import Tile
from .trace import Trace
from .worker import Worker

# What ends one device's part of a run; the others go on.
_OF_DEVICE = (DeviceLostError, DeviceMemoryError, LaunchError, BuildError, UnsupportedError, cl.Error)
Place = tuple[cl.Device, cl.CommandQueue | None]  # the queue that the caller passed
Report = Callable[[StreamProgress], Any]


class _Desk:
    """Hands out tiles to workers and collects what they report."""

    def __init__(self, job: Job, handout: Handout, checkpoint: Checkpoint | None) -> None:
        self._job, self._handout, self._checkpoint = job, handout, checkpoint
        self.stopped = threading.Event()
        self.reports: queue.SimpleQueue[tuple[str, int, Any]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._leaving: set[int] = set()  # workers that have failed, and end
        self._keeping = threading.Lock()

    @property
    def remaining(self) -> int:
        with self._changed:
            return self._handout.remaining

    def next(self, worker: int) -> Tile | None:
        with self._changed:
            while not self.stopped.is_set() and self._handout.remaining and worker not in self._leaving:
                tile = self._handout.next(worker)
                if tile is not None:
                    return tile
                self._changed.wait()
            return None

    def deliver(self, lane: Lane, tile: Tile, slot: int) -> Callable[[], None]:
        part = of_tile(tile, self._job.product.stack)
        if self._checkpoint is None or self._job.sink.persistent:
            lane.deliver(tile, slot, self._write)
            return partial(self._note, tile, part)
        kept = np.empty(part.shape, self._job.dtype)
        lane.deliver(tile, slot, _into(kept, part))
        return partial(self._keep, tile, part, kept)

    def _note(self, tile: Tile, part: Part) -> None:
        """Note a tile that ``out`` has, after it is safe there."""
        if self._checkpoint is not None:
            digest = self._checkpoint.digest(part)
            with self._keeping:
                self._job.sink.flush()
                self._checkpoint.finish(tile.number, None, digest)

    def _keep(self, tile: Tile, part: Part, kept: NDArray[Any]) -> None:
        """Keep a tile in the checkpoint, since ``out`` does not survive the process."""
        if self._checkpoint is not None:
            self._checkpoint.finish(tile.number, kept)
        self._write(part, kept)

    def _write(self, part: Part, block: NDArray[Any]) -> None:
        sink = self._job.sink
        if sink.in_memory and np.may_share_memory(block, sink.view(part.index, part.rows, part.columns)):
            return  # the device wrote it in place
        sink.write(block, part.index, part.rows, part.columns)

    def done(self, worker: int, tile: Tile, seconds: float) -> None:
        with self._changed:
            self._handout.done(worker, tile, seconds)
            self._changed.notify_all()
        self.reports.put(("done", worker, tile))

    def leave(self, worker: int) -> None:
        with self._changed:
            self._leaving.add(worker)
            self._changed.notify_all()

    def ended(self, worker: int, error: BaseException | None) -> None:
        self.reports.put(("ended", worker, error))

    def lost(self, worker: int) -> None:
        """Give the tiles of a worker, whose threads have ended, to the others."""
        with self._changed:
            self._handout.lost(worker)
            self._changed.notify_all()

    def stop(self) -> None:
        """Make every worker end soon."""
        self.stopped.set()
        with self._changed:
            self._changed.notify_all()


def _into(kept: NDArray[Any], tile: Part) -> Callable[[Part, NDArray[Any]], None]:
    """What copies the parts of a tile into *kept*."""

    def write(part: Part, block: NDArray[Any]) -> None:
        rows = slice(part.rows.start - tile.rows.start, part.rows.stop - tile.rows.start)
        columns = slice(part.columns.start - tile.columns.start, part.columns.stop - tile.columns.start)
        z: tuple[Any, ...] = ()
        if kept.ndim == 3:
            last, first = part.index[-1], tile.index[-1]
            at = first.start if isinstance(first, slice) else 0
            z = (slice(last.start - at, last.stop - at) if isinstance(last, slice) else last - at,)
        kept[(*z, rows, columns)] = block

    return write


def run(
    job: Job,
    devices: Sequence[Place],
    seconds: Sequence[float],
    todo: Sequence[Tile],
    all_tiles: int,
    checkpoint: Checkpoint | None = None,
    report: Report | None = None,
    trace: Trace | None = None,
) -> None:
    """Compute the tiles *todo* of *job* on *devices*; *seconds*: a tile on each, estimated.

    Raises what a worker raised if no other could take its part, and what *report* raises. After an error no
    thread of the run is left, and no device uses the operands or the result.
    """
    on_host = [device_info(device).unified_memory for device, _ in devices]
    handout = Handout(job.blocking, todo, len(devices), seconds, on_host)
    desk = _Desk(job, handout, checkpoint)
    with ExitStack() as stack:
        crew = _Crew(job, desk, stack, trace)
        errors = crew.start(devices)
        _supervise(desk, crew.workers, devices, errors, _reporter(job, todo, all_tiles, report))
        crew.failed = False


class _Crew:
    """The lanes and workers of a run."""

    def __init__(self, job: Job, desk: _Desk, stack: ExitStack, trace: Trace | None) -> None:
        self._job, self._desk, self._stack, self._trace = job, desk, stack, trace
        self._lanes: list[Lane] = []
        self.workers: dict[int, Worker] = {}
        self.failed = True

    def start(self, devices: Sequence[Place]) -> dict[int, BaseException]:
        """Make a lane and a worker for each device. Returns why devices have none."""
        errors: dict[int, BaseException] = {}
        lent = [self._stack.enter_context(hands()) for _ in devices]
        self._stack.callback(self.close)  # before the hands are kept for others
        for number, (device, on) in enumerate(devices):
            try:
                lane = lane_for(number, device, self._job, lent[number], on, self._trace)
            except _OF_DEVICE as error:
                errors[number] = error
                continue
            self._lanes.append(lane)
            self.workers[number] = Worker(number, lane, self._job, lent[number], self._desk)
        for number in errors:
            self._desk.lost(number)
        for worker in self.workers.values():
            worker.start()
        return errors

    def close(self) -> None:
        """End the workers, and then the lanes."""
        self._desk.stop()
        for worker in self.workers.values():
            worker.join()
        while self._lanes:
            self._lanes.pop().close(self.failed)


def _reporter(
    job: Job, todo: Sequence[Tile], all_tiles: int, report: Report | None
) -> Callable[[Tile], None]:
    """What tells *report* of a finished tile."""
    begun = time.perf_counter()
    k = max(1, job.product.k)
    count, flops, total = 0, 0.0, sum(2.0 * k * _elements(tile) for tile in todo)
    factor = 4.0 if job.dtype.kind == "c" else 1.0

    def tell(tile: Tile) -> None:
        nonlocal count, flops
        count, flops = count + 1, flops + 2.0 * k * _elements(tile)
        if report is not None:
            resumed = all_tiles - len(todo)
            elapsed = time.perf_counter() - begun
            report(
                StreamProgress(resumed + count, all_tiles, resumed, factor * flops, factor * total, elapsed)
            )

    return tell


def _elements(tile: Tile) -> int:
    return (tile.z[1] - tile.z[0]) * (tile.rows[1] - tile.rows[0]) * (tile.columns[1] - tile.columns[0])


def _supervise(
    desk: _Desk,
    workers: dict[int, Worker],
    devices: Sequence[Place],
    errors: dict[int, BaseException],
    tell: Callable[[Tile], None],
) -> None:
    """Wait for all tiles. Raises the first error that ends the run."""
    running = set(workers)
    for number, error in errors.items():
        _give_up(devices[number], error, bool(running))
    while running:
        what, number, value = desk.reports.get()
        if what == "done":
            tell(value)
            continue
        running.discard(number)
        if value is None:
            continue
        if not isinstance(value, _OF_DEVICE):
            raise value
        desk.lost(number)
        _give_up(devices[number], value, bool(running) and desk.remaining > 0)
    if desk.remaining:
        raise RuntimeError("tiles are left although every worker has ended")


def _give_up(place: Place, error: BaseException, others: bool) -> None:
    """Warn that a device takes no more part; raise *error* if there are no others.

    Later calls do not find the context of a lost one.
    """
    device, on = place
    if isinstance(error, DeviceLostError):
        context = context_of(device) if on is None else on.context
        if context is not None:  # another run may have lost it, too
            plan_cache.forget(context)
            pinned.forget(context)
    if not others:
        raise error
    warnings.warn(
        f"device {device.name.strip()!r} takes no more part in the product: {in_short(error)}; "
        "the other devices compute its tiles",
        DeviceWarning,
        stacklevel=6,
    )
