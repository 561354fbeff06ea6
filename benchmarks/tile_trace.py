"""When devices copy and multiply in a product in tiles, for the pictures of scale.py."""

from __future__ import annotations

import contextlib
import time
from typing import Any
from unittest import mock

import numpy as np
import pyopencl as cl

from pyclmm.opencl.queues import new_queue
from pyclmm.streaming import lanes
from pyclmm.streaming.job import Job


class Trace:
    """Collects what devices do in products in tiles of a block. Their queues are made with profiling."""

    def __init__(self) -> None:
        self._done: list[tuple[int, str, Any, int, list[Any]]] = []
        self._devices: dict[cl.Device, int] = {}  # numbers, in the order of a plan's devices
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Trace:
        multiply, copied = Job.multiply, lanes.DeviceLane._copied

        def multiplied(job: Job, queue: cl.CommandQueue, *arguments: Any) -> Any:
            start = time.perf_counter()
            written = multiply(job, queue, *arguments)
            on_host = isinstance(written, np.ndarray)  # and has ended
            event = (start, time.perf_counter()) if on_host else written.events[-1]
            self._note(queue, "product", event, 0, arguments[-1])
            return written

        def moved(lane: Any, queue: cl.CommandQueue, target: Any, source: Any, **where: Any) -> cl.Event:
            event = copied(lane, queue, target, source, **where)
            what, memory = ("up", source) if queue is lane._up else ("down", target)
            self._note(queue, what, event, memory.nbytes, [])
            return event

        def profiling(device: cl.Device) -> cl.CommandQueue:
            self._devices[device] = len(self._devices)
            return new_queue(device, profiling=True)

        patches = (
            (lanes, "queue_on", profiling),
            (Job, "multiply", multiplied),
            (lanes.DeviceLane, "_copied", moved),
        )
        for where, name, by in patches:
            self._stack.enter_context(mock.patch.object(where, name, by))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _note(self, queue: cl.CommandQueue, what: str, event: Any, nbytes: int, after: list[Any]) -> None:
        self._done.append((self._devices[queue.device], what, event, nbytes, list(after)))

    def spans(self) -> list[list[Any]]:
        """[device, what, start, stop, bytes], in seconds from the device's first. All must have ended."""
        found, before = [], dict[int, float]()
        for device, what, event, nbytes, after in self._done:
            start, stop = event if isinstance(event, tuple) else _span(event)
            if what == "product" and not isinstance(event, tuple):
                # It is several launches, of which the last has an event: it begins when the one before it on
                # its queue and its transfers have ended.
                ends = [_span(each)[1] for each in after]
                start = max([before.get(device, 0.0), *ends]) or start
                before[device] = stop
            found.append([device, what, start, stop, nbytes])
        begun = {device: min(x[2] for x in found if x[0] == device) for device in {x[0] for x in found}}
        return [[d, what, round(a - begun[d], 6), round(b - begun[d], 6), n] for d, what, a, b, n in found]


def _span(event: Any) -> tuple[float, float]:
    return event.profile.start * 1e-9, event.profile.end * 1e-9
