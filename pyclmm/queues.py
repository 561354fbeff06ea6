"""Which device and queue a call uses: the default one, and devices chosen by name. Never asks."""

from __future__ import annotations

import os
import threading

import pyopencl as cl

from . import forks
from .errors import INSTALL_HINT, ArgumentError, NoDeviceError, unknown_name

_lock = threading.Lock()
_contexts: dict[cl.Device, cl.Context] = {}
_default: dict[str, cl.CommandQueue] = {}  # by PYOPENCL_CTX


def all_devices() -> list[cl.Device]:
    """Every device of every platform; NoDeviceError says what to install if there is none."""
    forks.check_process()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise NoDeviceError(f"no OpenCL platform was found; {INSTALL_HINT}") from error
    devices = [device for platform in platforms for device in _devices(platform)]
    if not devices:
        raise NoDeviceError(f"no OpenCL platform here has a device; {INSTALL_HINT}")
    return devices


def _devices(platform: cl.Platform) -> list[cl.Device]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # CL_DEVICE_NOT_FOUND: a driver whose hardware is not there
        return []


def default_device() -> cl.Device:
    """The device that PYOPENCL_CTX names, else the largest GPU, else the first device."""
    if os.environ.get("PYOPENCL_CTX"):
        all_devices()  # a missing driver gets pyclmm's own message
        try:
            return cl.create_some_context(interactive=False).devices[0]
        except (RuntimeError, ValueError, cl.Error) as error:
            choice = os.environ["PYOPENCL_CTX"]
            raise NoDeviceError(
                f"PYOPENCL_CTX={choice!r} names no device ({error}); unset it, or see `pyclmm info`"
            ) from error
    devices = all_devices()
    gpus = [d for d in devices if d.type & cl.device_type.GPU]
    return max(gpus, key=lambda d: d.max_compute_units * d.max_clock_frequency) if gpus else devices[0]


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


def device_labels() -> dict[str, cl.Device]:
    """Devices by "platform:device" number, as `pyclmm info` lists them."""
    labels = {}
    for p, platform in enumerate(cl.get_platforms()):
        for d, device in enumerate(_devices(platform)):
            labels[f"{p}:{d}"] = device
    return labels


def find_device(choice: str | None) -> cl.Device:
    """The device of that number ("0:1") or with *choice* in its or its platform's name."""
    if choice is None:
        return default_device()
    all_devices()
    labels = device_labels()
    if choice in labels:
        return labels[choice]
    named = [d for d in labels.values() if choice.lower() in f"{d.platform.name} {d.name}".lower()]
    if len(named) > 1:
        matches = [label for label, device in labels.items() if device in named]
        raise ArgumentError(f"device {choice!r} fits several devices: name one of {matches}")
    if not named:
        raise unknown_name(
            "device", choice, [*labels, *dict.fromkeys(d.name.strip() for d in labels.values())]
        )
    return named[0]
