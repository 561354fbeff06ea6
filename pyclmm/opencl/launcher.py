"""How the launches of a product reach a device: by a queue of OpenCL, or by another way that registers here.

A queue's type says which way it is. What is above this folder gets bindings and checks from a
:class:`Launcher` and does not ask which one it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import pyopencl as cl

from ..kernels.device import DeviceInfo
from ..kernels.interface import Work
from . import host_memory, queues, status, workspace
from .binding import Binding
from .devices import device_info
from .program import new_kernel
from .steps import Scalars
from .watch import Watch

Memory = np.ndarray[Any, np.dtype[np.uint8]]


class Launcher:
    """Launches by queues of OpenCL; other ways are subclasses. Each *way* has verdicts of its own."""

    way = "opencl"
    packs_once = True  # whether a binding keeps what it packed of a constant operand

    def binding(
        self, queue: Any, device: DeviceInfo, work: Work, absent: Collection[str], keeps: bool
    ) -> Binding:
        """What a thread launches *work* with on *queue*. *absent*: operands that no kernel reads. *keeps*:
        the workspace stays between calls.
        """
        return Binding(queue, device, work, absent, workspace.own if keeps else workspace.shared)

    def info(self, device: cl.Device) -> DeviceInfo:
        """What kernels know of *device*, as this way launches on it."""
        return device_info(device)

    def home(self, queue: Any) -> Any:
        """What a thread keeps a binding for: the queue, or what its streams share."""
        return queue

    def queue_of_its_own(self, queue: Any) -> Any:
        """A new in-order queue beside *queue*, which may be out of order, or full of commands that wait."""
        return queues.queue_beside(queue)

    def queue_on(self, device: cl.Device) -> Any:
        """A new in-order queue on *device*."""
        return queues.new_queue(device)

    def compute(
        self,
        queue: Any,
        device: DeviceInfo,
        work: Work,
        memory: Mapping[str, Memory],
        scalars: Scalars,
        make: Callable[..., cl.Kernel] = new_kernel,
    ) -> Watch | None:
        """Run *work* on copies of *memory*, the host's by the problem's names, in workspace full of NaN (-1
        for integers). ``memory["out"]`` gets the result. Two names may have the same memory. Returns the
        watch of work that checks a result. Raises as a product does.
        """
        binding = Binding(queue, device, work, (), workspace.poisoned, make)
        apart = {id(x): (name, x) for name, x in memory.items()}
        copies = {key: host_memory.filled(queue.context, x, device, name) for key, (name, x) in apart.items()}
        buffers = {name: copies[id(x)] for name, x in memory.items()}
        try:
            events = binding.enqueue(buffers, scalars, [])
            cl.enqueue_copy(queue, memory["out"], buffers["out"], wait_for=events[-1:], is_blocking=True)
        except cl.Error as error:
            raise status.lost(device, error) from error
        binding.settle()
        return binding.watch


_OPENCL = Launcher()


@singledispatch
def launcher_of(_queue: Any) -> Launcher:
    """The launcher of a queue."""
    return _OPENCL


def info_of(queue: Any) -> DeviceInfo:
    """What kernels know of the device of *queue*, as launches in it are."""
    return launcher_of(queue).info(queue.device)
