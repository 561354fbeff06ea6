"""One run of a streamed product: starts a worker for each device, hands out tiles, and waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyopencl as cl

from ..errors import (
    BuildError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceWarning,
    LaunchError,
    UnsupportedError,
    amount,
    in_short,
    tell_caller,
    warn_caller,
)
from ..execution.casts import errors_of_caller
from ..opencl import forks, queues, staging
from ..opencl.devices import device_info
from .checkpoint import Checkpoint
from .job import Job
from .lanes import Lane, lane_for, lane_threads
from .tile_scheduler import TileScheduler
from .tiles import Tile
from .worker import RunState, Worker

# What ends one device's part of a run; the others go on.
_OF_DEVICE = (DeviceLostError, DeviceMemoryError, LaunchError, BuildError, UnsupportedError, cl.Error)
DeviceQueue = tuple[cl.Device, cl.CommandQueue | None]  # the queue that the caller passed


@dataclass(frozen=True)
class StreamProgress:
    """How far a streamed product is.

    ``tiles`` of ``all_tiles`` are finished, ``resumed`` of them by an earlier run (from its checkpoint).
    ``flops``: operations done by this run, of ``all_flops`` that it has to do. ``seconds`` since it began.
    """

    tiles: int
    all_tiles: int
    resumed: int
    flops: float
    all_flops: float
    seconds: float

    @property
    def rate(self) -> float:
        """Operations a second of this run; 0 before its first tile."""
        return self.flops / self.seconds if self.flops and self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at this rate; None before the first tile."""
        return (self.all_flops - self.flops) / self.rate if self.rate else None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", {self.seconds_left:.1f} s left"
        return f"{self.tiles} of {amount(self.all_tiles, 'tiles')}, {self.rate / 1e9:.1f} GFLOP/s{left}"


Report = Callable[[StreamProgress], Any]


def run(
    job: Job,
    devices: Sequence[DeviceQueue],
    seconds: Sequence[float],
    todo: Sequence[Tile],
    all_tiles: int,
    checkpoint: Checkpoint | None = None,
    report: Report | None = None,
) -> None:
    """Compute the tiles *todo* of *job* on *devices*; *seconds*: estimated, a tile on each. Raises what a
    worker raised if no other could take its part, what *report* raises, and ForkError in a process that it
    forks. No thread is left after an error.
    """
    on_host = [device_info(device).unified_memory for device, _ in devices]
    state = RunState(job, TileScheduler(job.blocking, todo, seconds, on_host), checkpoint)
    lanes: list[Lane] = []
    workers: dict[int, Worker] = {}
    errors: dict[int, BaseException] = {}  # why devices have no lane
    with ExitStack() as stack:
        lent = [stack.enter_context(lane_threads()) for _ in devices]
        stack.push(partial(_end, state, workers, lanes))  # before the threads are kept for others
        for number, (device, on) in enumerate(devices):
            try:
                lanes.append(lane_for(device, job, lent[number], on))
            except _OF_DEVICE as error:
                errors[number] = error
                state.lost(number)
                continue
            workers[number] = Worker(number, lanes[-1], job, lent[number], state)
        staging.aside(partial(_start, workers, errors_of_caller()))
        _supervise(state, workers, devices, errors, _reporter(job, todo, all_tiles, report))


def _start(workers: Mapping[int, Worker], errors: Mapping[str, Any]) -> None:
    for worker in workers.values():
        worker.start(errors)


def _end(state: RunState, workers: dict[int, Worker], lanes: list[Lane], error: Any, *_: object) -> None:
    """End the workers, and then the lanes, after an *error* or none; all of them if one raises."""
    if forks.is_forked():  # by the caller's function: their threads did not come along
        return
    state.stop()
    with ExitStack() as stack:
        for lane in lanes:
            stack.callback(lane.close, error is not None)
        for worker in workers.values():
            stack.callback(worker.join)


def _reporter(
    job: Job, todo: Sequence[Tile], all_tiles: int, report: Report | None
) -> Callable[[Tile], None]:
    """What tells *report* of a finished tile."""
    begun, resumed = time.perf_counter(), all_tiles - len(todo)
    flops_each = (8.0 if job.dtype.kind == "c" else 2.0) * max(1, job.product.k)  # of an element
    total = flops_each * sum(tile.elements for tile in todo)
    at = StreamProgress(resumed, all_tiles, resumed, 0.0, total, 0.0)

    def tell(tile: Tile) -> None:
        nonlocal at
        flops, elapsed = at.flops + flops_each * tile.elements, time.perf_counter() - begun
        at = replace(at, tiles=at.tiles + 1, flops=flops, seconds=elapsed)
        if report is not None:
            report(at)
            forks.check_process()  # the caller's function may have forked, and no thread goes on there

    return tell


def _supervise(
    state: RunState,
    workers: dict[int, Worker],
    devices: Sequence[DeviceQueue],
    errors: dict[int, BaseException],
    tell: Callable[[Tile], None],
) -> None:
    """Wait for all tiles. Raises the first error that ends the run."""
    running, heard = set(workers), list[Any]()
    for number, error in errors.items():
        _give_up(devices[number], error, bool(running))
    while running:
        what, number, value = state.reports.get()
        if what == "done":
            tell(value)
            continue
        if what == "told":
            if value not in heard:  # a cast warns in each tile
                heard.append(value)
                tell_caller(*value)
            continue
        running.discard(number)
        if value is None:
            continue
        if not isinstance(value, _OF_DEVICE):
            raise value
        state.lost(number)
        _give_up(devices[number], value, bool(running) and state.remaining > 0)
    if state.remaining:
        raise RuntimeError("tiles are left although every worker has ended")


def _give_up(place: DeviceQueue, error: BaseException, others: bool) -> None:
    """Warn that a device drops out, or raise *error* if it is the last; a lost context is forgotten."""
    device, on = place
    if isinstance(error, DeviceLostError):
        context = queues.context_of(device) if on is None else on.context
        if context is not None:  # another run may have lost it, too
            queues.forget(context)
    if not others:
        raise error
    warn_caller(
        f"device {device.name.strip()!r} takes no more part in the product: {in_short(error)}; "
        "the other devices compute its tiles",
        DeviceWarning,
    )
