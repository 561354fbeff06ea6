"""Queues and the contexts they are in: the default one, and new ones on a device."""

from __future__ import annotations

import os
import threading

import pyopencl as cl

from . import forks
from .devices import default_device

_lock = threading.Lock()
_contexts: dict[cl.Device, cl.Context] = {}
_default: dict[str, cl.CommandQueue] = {}  # by PYOPENCL_CTX


def default_queue() -> cl.CommandQueue:
    """The cached in-order queue on the default device, one a process."""
    forks.check_process()
    key = os.environ.get("PYOPENCL_CTX", "")
    queue = _default.get(key)
    if queue is not None:
        return queue
    with _lock:
        if key not in _default:
            _default[key] = new_queue(default_device())
        return _default[key]


def forget(context: cl.Context) -> None:
    """Begin a new context next time, where the one kept is that (lost) one."""
    with _lock:
        for device in [device for device, kept in _contexts.items() if kept == context]:
            del _contexts[device]
        for key in [key for key, queue in _default.items() if queue.context == context]:
            del _default[key]


def new_queue(device: cl.Device, *, profiling: bool = False) -> cl.CommandQueue:
    """An in-order queue on *device*, in this module's context for it.

    The context is kept: Intel's CPU runtime lets go of one that only a queue refers to.
    """
    context = _contexts.get(device) or _contexts.setdefault(device, cl.Context([device]))
    if profiling:
        return cl.CommandQueue(context, device, cl.command_queue_properties.PROFILING_ENABLE)
    return cl.CommandQueue(context, device)
