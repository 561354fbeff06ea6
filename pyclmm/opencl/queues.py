"""Queues and their contexts: the default queue, and queues on a given device."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyopencl as cl

from .. import environment
from . import forks
from .devices import DeviceChoice, default_device, find_device

_lock = threading.Lock()
_contexts: dict[cl.Device, cl.Context] = {}
_default: dict[str, cl.CommandQueue] = {}  # by the value of PYOPENCL_CTX
_chosen: dict[DeviceChoice, cl.CommandQueue] = {}  # by what was given as device=
_meanwhile: list[Callable[[], None]] = []


def meanwhile(start: Callable[[], None]) -> None:
    """Call *start* before the first cached queue is made: meanwhile, as a driver takes long to start."""
    _meanwhile.append(start)


def _begin() -> None:
    while _meanwhile:
        _meanwhile.pop()()


def default_queue() -> cl.CommandQueue:
    """The in-order queue on the default device, one for each process. Raises NoDeviceError or ForkError."""
    forks.check_process()
    key = environment.CONTEXT.value
    queue = _default.get(key)
    if queue is not None:
        return queue
    with _lock:
        if key not in _default:
            _begin()
            _default[key] = new_queue(default_device())
        return _default[key]


def queue_on(choice: DeviceChoice) -> cl.CommandQueue:
    """A cached in-order queue on the device that :func:`find_device` finds. Raises as it does."""
    forks.check_process()
    searched = type(choice) in (str, int)  # a search takes long, so its queue is cached by name
    queue = _chosen.get(choice) if searched else None
    if queue is not None:
        return queue
    with _lock:
        _begin()
    device = find_device(choice)
    with _lock:
        queue = _chosen.get(device)
        if queue is None:
            queue = _chosen[device] = new_queue(device)
        if searched:
            _chosen[choice] = queue
    return queue


def context_of(device: cl.Device) -> cl.Context | None:
    """This module's context for *device*, if it has made one."""
    return _contexts.get(device)


def forget(context: cl.Context) -> None:
    """Drop a lost context and its queues, so that the next call makes new ones."""
    with _lock:
        for device in [device for device, kept in _contexts.items() if kept == context]:
            del _contexts[device]
        for key in [key for key, queue in _default.items() if queue.context == context]:
            del _default[key]
        for choice in [choice for choice, queue in _chosen.items() if queue.context == context]:
            del _chosen[choice]


def new_queue(device: cl.Device, *, profiling: bool = False) -> cl.CommandQueue:
    """A new in-order queue on *device*, in this module's context for the device.

    The context is kept, because Intel's CPU runtime frees a context that only a queue refers to.
    """
    context = _contexts.get(device) or _contexts.setdefault(device, cl.Context([device]))
    if profiling:
        return cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
    return cl.CommandQueue(context, device)
