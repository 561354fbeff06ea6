"""Whether a CPU device's kernels read and write the process's memory by its addresses, without buffers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from ..errors import PyclmmError
from ..kernels.device import DeviceInfo
from ..kernels.interface import Launch, Program, Work
from .binding import Binding
from .devices import device_info
from .queues import new_queue
from .steps import scalars_of

_log = logging.getLogger(__name__)
_PROGRAM = Program("cpu/addresses.cl", ())


@lru_cache(maxsize=64)
def reads_host(device: cl.Device) -> bool:
    """Whether kernels on *device* may be given addresses of NumPy arrays.

    OpenCL allows it where the device has CL_DEVICE_SVM_FINE_GRAIN_SYSTEM: Intel's CPU runtime, PoCL 7 and
    llvmpipe say so. PoCL 3 does not say it, but runs kernels in this process. So devices that use arrays in
    place are asked too; on all of them it must show in a kernel, or arrays go through buffers.
    """
    info = device_info(device)
    if not (info.is_cpu and info.unified_memory and (info.in_place or _says_so(device))):
        return False
    try:
        return _shows(new_queue(device), info)
    except (cl.Error, PyclmmError) as error:
        _log.info("%s does not read memory by addresses: %s", info.name, error)
        return False


def _says_so(device: cl.Device) -> bool:
    try:
        return bool(device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)
    except cl.Error:  # OpenCL 1.2
        return False


def _shows(queue: cl.CommandQueue, device: DeviceInfo) -> bool:
    number, found = np.array([41], np.int64), np.zeros(1, np.int64)
    here, plain = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, cl.mem_flags.READ_WRITE
    buffer = cl.Buffer(queue.context, here, hostbuf=number)
    told = cl.Buffer(queue.context, plain, found.nbytes)
    _run(queue, device, "tell", {"buffer": buffer, "told": told})
    cl.enqueue_copy(queue, found, told, is_blocking=True)
    address = number.ctypes.data
    if found[0] != address:  # nothing is read at an address that is not the host's
        return False
    places = np.array([address // number.itemsize])
    own = cl.Buffer(queue.context, plain | cl.mem_flags.COPY_HOST_PTR, hostbuf=places)
    _run(queue, device, "follow", {"base": None, "places": own})
    return bool(number[0] == 42)


def _run(queue: cl.CommandQueue, device: DeviceInfo, kernel: str, buffers: Mapping[str, Any]) -> None:
    """Run a kernel once, on *buffers*; None for address 0."""
    binding = Binding(queue, device, Work((Launch(_PROGRAM, kernel, (1,), (1,), tuple(buffers)),)))
    binding.enqueue(buffers, scalars_of(1.0, 0.0), [])
    queue.finish()
    binding.settle()
