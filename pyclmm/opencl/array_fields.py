"""Where many NumPy arrays lie, and their layouts, read at once: that takes 60 ns each in place of 800.

The fields of an array's C structure are public: the macros of NumPy's C API, which are compiled into every
extension, read them there. So all are gathered by one indexing of the memory. :data:`READABLE` is False where
they are not found as NumPy says they are; then callers ask the arrays. :func:`reads_host` tells whether a CPU
device's kernels take such addresses, without buffers.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from ..errors import PyclmmError
from ..kernels.device import DeviceInfo
from ..kernels.interface import Launch, Program, Work
from .binding import Binding
from .devices import device_info
from .host_memory import HOST_ALIGN, location, svm_of
from .queues import new_queue
from .steps import scalars_of

Words = NDArray[np.int64]
_HEAD = object.__basicsize__  # bytes of an object before its own fields
# PyArrayObject_fields: data, nd, dimensions, strides, base, descr, flags. The second and the last are C ints.
_FIELDS = np.arange(7)[:, None]
_MASKS: Words = np.array([-1, 2**32 - 1, -1, -1, 0, -1, 2**32 - 1], np.int64)[:, None]
_PLATFORM = sys.implementation.name, sys.byteorder, ctypes.sizeof(ctypes.c_void_p)
_IS_KNOWN = _PLATFORM == ("cpython", "little", 8)
_ALL = 2**57 if _IS_KNOWN else 1
# All memory from address _HEAD on, as whole words, so that an object's address // 8 is the place of its first
# field. Nothing is read that is not indexed.
_PLACE = {"shape": (_ALL,), "typestr": "<i8", "data": (_HEAD, True), "version": 3}
_MEMORY: Words = np.asarray(SimpleNamespace(__array_interface__=_PLACE))
# Which reads one sooner than the array does. Where READABLE, WORDS[id(x) >> 3] is the address of x's first
# element.
WORDS = memoryview(_MEMORY.data)


class ArrayFields(NamedTuple):
    """*places*: the address of each array. *layouts*: equal to others if and only if all shapes, strides,
    dtype objects, flags and the addresses modulo HOST_ALIGN are."""

    places: Words
    layouts: Words


def fields_of(xs: Sequence[NDArray[Any]]) -> ArrayFields:
    """The fields of *xs*, which must be NumPy arrays."""
    fields = _MEMORY.take((np.fromiter(map(id, xs), np.int64, len(xs)) >> 3) + _FIELDS) & _MASKS
    places, ndim, lists = fields[0].copy(), fields[1], (fields[2:4] - _HEAD) >> 3
    most = ndim.max(initial=0)
    if ndim.min(initial=most) == most:
        lengths = [_MEMORY.take(lists + np.arange(most)[:, None, None]).ravel()]
    else:
        lengths = [_MEMORY.take(lists[:, ndim > axis] + axis).ravel() for axis in range(most)]
    fields[0] %= HOST_ALIGN
    fields[2:4] = 0
    return ArrayFields(places, np.concatenate([fields.ravel(), *lengths]))


def _are_found() -> bool:
    """Whether the fields of an array are where they should be."""
    for x in (np.zeros(4, np.float32), np.zeros((3, 5, 2))[::-1, 1:]):
        told = [location(x), x.ndim, 0, 0, 0, id(x.dtype), x.flags.num]
        found = (_MEMORY.take((id(x) >> 3) + _FIELDS) & _MASKS).ravel()
        found[2:4] = 0
        if found.tolist() != told:
            return False
        lengths = fields_of([x]).layouts[len(told) :].reshape(-1, 2).T.ravel()
        if lengths.tolist() != [*x.shape, *x.strides]:
            return False
    return True


READABLE = _IS_KNOWN and _are_found()


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
    return bool(svm_of(device) & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)


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
