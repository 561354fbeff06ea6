"""What a worker has: its device, the memory of it, and how many tasks share it."""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import dataclass
from typing import Any

import distributed

from .. import environment, file_locks, store
from ..errors import ArgumentError, DTypeError, NoDeviceError, brief
from ..opencl.devices import DeviceChoice, default_device, device_info, devices, find_device

_log = logging.getLogger(__name__)
_UNKNOWN = 2 << 30  # bytes of a device and of a host that nobody could ask
_given: dict[str, str] = {}  # id of a worker in this process -> its device, as device= takes it


class DevicePlugin(distributed.WorkerPlugin):
    """Gives each worker of a host a device of its own: ``client.register_plugin(DevicePlugin())``.

    devices
        Numbers or names as ``device=`` takes them, the same on every host; a device that stands twice
        serves two workers. None: every GPU of a host, or every device if it has no GPU.

    A worker takes the first device whose lock file is free: ``pyclmm/device-PLACE-NUMBER.lock`` in the user's
    folder on the host, ``XDG_RUNTIME_DIR``, or else in ``pyclmm-USER`` beside other temporary files. The
    system frees the lock when the process ends, so the worker that a nanny starts in place of a killed one
    takes the same device. A worker that finds none free shares one, by its process number, and logs a
    warning. Hosts without ``fcntl`` (Windows) have no lock: there the name of the worker counts, if it is a
    number, as LocalCluster gives it.

    Without the plugin each worker uses the default device (``PYOPENCL_CTX``, or the largest GPU).

    Raises DTypeError for *devices* that are no sequence of numbers and names, ArgumentError for an empty one;
    on the worker NoDeviceError, or ArgumentError if its host has no such device.
    """

    name = "pyclmm-device"

    def __init__(self, devices: list[int | str] | tuple[int | str, ...] | None = None) -> None:
        if devices is not None:
            if not isinstance(devices, list | tuple) or not all(type(d) in (int, str) for d in devices):
                raise DTypeError(f"devices is {brief(devices)}; pass a list of numbers or names, or None")
            if not devices:
                raise ArgumentError("devices is empty; pass a number or a name, or None for all")
        self._choices = None if devices is None else tuple(devices)
        self._lock: int | None = None

    def setup(self, worker: Any) -> None:
        """Take a device for *worker*. Dask calls it when the worker starts or the plugin is registered."""
        numbers = self._numbers()
        place = self._free_place(numbers)
        if place is None:
            name = str(worker.name)  # a number, as LocalCluster gives it
            place = (int(name) if name.isdecimal() else os.getpid()) % len(numbers)
            if file_locks.CAN_LOCK:
                _log.warning(
                    "%d devices, all taken: worker %s shares %s", len(numbers), worker.name, numbers[place]
                )
        _given[worker.id] = numbers[place]

    def teardown(self, worker: Any) -> None:
        """Give the device back."""
        _given.pop(worker.id, None)
        if self._lock is not None:
            file_locks.unlock(self._lock)
            self._lock = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_choices": self._choices, "_lock": None}

    def _numbers(self) -> list[str]:
        """The devices of this host that workers share out, by number."""
        every = devices()
        if self._choices is None:
            return [d.number for d in every if d.kind == "gpu"] or [d.number for d in every]
        number_of = {d.device: d.number for d in every}
        return [number_of[find_device(choice)] for choice in self._choices]

    def _free_place(self, numbers: list[str]) -> int | None:
        """The first place in *numbers* whose lock is free; it is locked then."""
        if not file_locks.CAN_LOCK:
            return None
        folder = environment.user_runtime()
        for place, number in enumerate(numbers):
            self._lock = store.try_lock(folder / f"device-{place}-{number.replace(':', '.')}.lock")
            if self._lock is not None:
                return place
        return None


def device_here() -> DeviceChoice | None:
    """The device that :class:`DevicePlugin` gave to the worker of this thread; None: the default device."""
    if not _given:
        return None
    try:
        return _given.get(distributed.get_worker().id)
    except ValueError:  # no worker: another scheduler of Dask runs the task
        return None


@dataclass(frozen=True)
class Limits:
    """The bytes that one task may have on the device and in the host's memory; how many run at once."""

    device: int
    host: int
    tasks: int


def limits(device: int | None = None, host: int | None = None) -> Limits:
    """What is given, else half of the device's memory and a quarter of the worker's, shared by its threads.

    Of several workers the least. Workers are those of the current ``distributed.Client``, which are asked
    once for each client and set of workers. Without a client: this process.
    """
    try:
        client = distributed.default_client()
    except ValueError:
        return Limits(device or _local_device() // 2, host or distributed.system.MEMORY_LIMIT // 4, 1)
    if client.asynchronous:  # cannot be waited for here
        return Limits(device or _UNKNOWN // 2, host or _UNKNOWN // 2, 1)
    threads = client.nthreads()
    tasks = max(1, sum(threads.values()))
    if device is not None and host is not None:
        return Limits(device, host, tasks)
    known = _asked.get(client)
    if known is None or known[0] != set(threads):
        known = _asked[client] = set(threads), client.run(facts, on_error="ignore")
    found = [
        (memory[0] // (2 * threads.get(worker, 1)), memory[1] // (4 * threads.get(worker, 1)))
        for worker, memory in known[1].items()
    ] or [(_UNKNOWN // 2, _UNKNOWN // 2)]
    return Limits(device or min(f[0] for f in found), host or min(f[1] for f in found), tasks)


_asked: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def facts(dask_worker: Any) -> tuple[int, int]:
    """The bytes of a worker's device and of its memory limit. Dask passes the worker."""
    device = find_device(_given.get(dask_worker.id))
    limit = dask_worker.memory_manager.memory_limit
    return device_info(device).global_mem_size, int(limit) if limit else distributed.system.MEMORY_LIMIT


def _local_device() -> int:
    """The bytes of this process's default device."""
    try:
        return int(device_info(default_device()).global_mem_size)
    except NoDeviceError:  # the graph may be for workers that have one
        return _UNKNOWN
