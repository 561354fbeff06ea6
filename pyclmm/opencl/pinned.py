"""Rings of pinned buffers: transfers between threads that fill or empty them and a device that moves them.

Pinned memory is scarce and slow to allocate, so a ring that is not in use is kept for the next call.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyopencl as cl

from ..kernels.device import DeviceInfo
from .queues import at_release
from .staging import Bytes
from .status import out_of_memory, rejected

# Bytes of one pinned buffer. Smaller ones cost more of the interpreter's time: with 4 MiB a product of 8192
# cubed took 48 ms on an H200, with 8 MiB 40.
PIECE = 8 << 20
DEPTH = 16  # buffers of a ring: each copying thread fills one while the device reads others
_lock = threading.Lock()
_idle: dict[cl.Context, list[Ring]] = {}


class Ring:
    """Pinned buffers of one context, always mapped. Any thread may borrow one."""

    def __init__(self, on: cl.CommandQueue, device: DeviceInfo) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        access: Any = cl.map_flags.READ | cl.map_flags.WRITE
        uint8: Any = np.dtype(np.uint8)
        self._free: queue.SimpleQueue[tuple[Bytes, cl.Event | None]] = queue.SimpleQueue()
        for _ in range(DEPTH):
            try:
                pinned = cl.Buffer(on.context, flags, PIECE)
                mapped, _ = cl.enqueue_map_buffer(on, pinned, access, 0, (PIECE,), uint8, is_blocking=True)
            except cl.Error as error:
                raise out_of_memory(PIECE, device, "pinned memory", error) from error
            self._free.put((mapped, None))

    def borrow(self) -> Bytes:
        """A buffer that nobody uses and no transfer reads. Waits for one."""
        memory, event = self._free.get()
        try:
            if event is not None:
                event.wait()
        except BaseException:
            self._free.put((memory, None))
            raise
        return memory

    def give_back(self, memory: Bytes, event: cl.Event | None = None) -> None:
        """End a loan; *event* ends the transfer that still uses the buffer."""
        self._free.put((memory, event))


@contextmanager
def ring(on: cl.CommandQueue, device: DeviceInfo) -> Iterator[Ring]:
    """A ring of the context of *on* for the length of a block. Raises DeviceMemoryError, DeviceLostError."""
    with _lock:
        idle = _idle.get(on.context, [])
        found = idle.pop() if idle else None
    if found is None:
        found = Ring(on, device)
    yield found  # after an error the ring is not kept: a transfer may still use it
    with _lock:
        _idle.setdefault(on.context, []).append(found)


@at_release
def release() -> None:
    """Free the rings that no call uses."""
    with _lock:
        _idle.clear()


def forget(context: cl.Context) -> None:
    """Drop the rings of a lost context."""
    with _lock:
        _idle.pop(context, None)


_rates: dict[cl.Device, tuple[float, float]] = {}


def link_rates(on: cl.CommandQueue, device: DeviceInfo) -> tuple[float, float]:
    """Bytes a second to and from a device, measured once in a process with pinned memory (a few ms).

    Raises DeviceMemoryError, DeviceLostError or LaunchError.
    """
    if on.device not in _rates:
        with ring(on, device) as pinned:
            memory = pinned.borrow()
            try:
                buffer = cl.Buffer(on.context, cl.mem_flags.READ_WRITE, PIECE)
                up = min(_seconds(on, buffer, memory) for _ in range(6))
                down = min(_seconds(on, memory, buffer) for _ in range(6))
            except cl.Error as error:
                raise rejected(device, "a transfer", error) from error
            finally:
                pinned.give_back(memory)
        _rates[on.device] = PIECE / up, PIECE / down
    return _rates[on.device]


def _seconds(on: cl.CommandQueue, target: Any, source: Any) -> float:
    start = time.perf_counter()
    cl.enqueue_copy(on, target, source, is_blocking=False).wait()
    return time.perf_counter() - start
