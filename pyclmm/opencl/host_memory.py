"""NumPy operands: the least copying that makes them readable, and the buffers around them.

On a device that shares the host's memory a buffer is laid around the array where it is
(``USE_HOST_PTR``), so nothing is copied in or out. On others the array's bytes are transferred.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.lib.stride_tricks import as_strided

from ..errors import DeviceMemoryError
from ..kernels.device import DeviceInfo
from ..problem.gemm import MAX_ALIGN, Layouts, Operand, alignment, dense
from . import status
from .staging import download, upload
from .status import out_of_memory

Array = np.ndarray[Any, np.dtype[Any]]

Operands = Mapping[str, Array]

_IN_BUFFER_PROTOCOL = "biufc"  # kinds of dtypes; bfloat16 (V) is not
_READ_HERE = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
_READ_WRITE_HERE = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
HOST_ALIGN = 16  # bytes: what every allocator of a 64-bit machine gives, so plans may count on it


def is_addressable(x: Array) -> bool:
    """Whether kernels can address *x*: native byte order, whole elements from one to the next.

    Aligned to whole elements: to NumPy half a complex number is enough, to OpenCL it is not.
    """
    return x.dtype.isnative and not any(at % x.itemsize for at in (_address(x), *x.strides))


def is_copied(x: Array, device: DeviceInfo) -> bool:
    """Whether the host copies *x* before kernels read it, because of its layout alone."""
    return not is_addressable(x) or _has_wide_gaps(x, device)


def dense_layout(shape: tuple[int, ...], dtype: np.dtype[Any], device: DeviceInfo) -> Operand:
    """The layout of a new array."""
    return replace(dense(shape, dtype), align=new_align(device))


def new_align(device: DeviceInfo) -> int:
    """Bytes that new arrays are aligned to, in the memory where *device* reads them."""
    return HOST_ALIGN if device.unified_memory else MAX_ALIGN


def layout(x: Array, device: DeviceInfo) -> Operand:
    """The layout of an array that *device* reads as it is."""
    if device.unified_memory:
        return Operand(x.shape, x.strides, x.dtype, min(HOST_ALIGN, alignment(_address(x))))
    start = Span.around(x).start * x.itemsize if x.size else 0
    return Operand(x.shape, x.strides, x.dtype, alignment(start) if start else MAX_ALIGN)


def signature(operands: Operands) -> tuple[Layouts, tuple[str, ...]]:
    """What a plan depends on: the layouts, and the operands that writing ``out`` would spoil.

    C in place is no clash: a kernel reads C(i, j) only where it is about to write out(i, j). What an
    array has allocated itself is aligned to HOST_ALIGN; asking for an address takes NumPy a microsecond. A
    dtype's letter tells longlong from int64, which are equal dtypes, and each gives results of its own.
    """
    layouts = [
        (name, x.shape, x.strides, x.dtype, x.dtype.char, 0 if x.flags.owndata else _address(x) % HOST_ALIGN)
        for name, x in operands.items()
    ]
    out = operands.get("out")
    if out is None:
        return tuple(layouts), ()
    sharing = [n for n, x in operands.items() if n != "out" and np.may_share_memory(x, out)]
    overlapping = [n for n in sharing if n != "c" or not _same_view(operands[n], out)]
    return tuple(layouts), tuple(overlapping)


def _same_view(x: Array, y: Array) -> bool:
    return x is y or bool(x.__array_interface__ == y.__array_interface__)


@dataclass(frozen=True)
class Span:
    """The bytes from an array's lowest to its highest element."""

    memory: Array  # uint8: the buffer protocol does not know every dtype (bfloat16)
    start: int  # how many elements into `memory` the array's first one lies

    @classmethod
    def around(cls, x: Array) -> Span:
        if x.flags.forc:  # the common case, and a tenth of the cost
            return cls(x.reshape(-1, order="A").view(np.uint8), 0)
        upward: Any = (..., *(slice(None, None, -1 if s < 0 else 1) for s in x.strides))
        lowest = x[upward]  # a view, also of 0-D arrays
        memory = as_strided(lowest, (_extent(x),), (x.itemsize,), writeable=x.flags.writeable)
        start = (_address(x) - _address(lowest)) // x.itemsize
        return cls(memory.view(np.uint8), start)


def _extent(x: Array) -> int:
    """Elements from the lowest to the highest."""
    steps = zip(x.shape, x.strides, strict=True)
    return int(1 + sum((length - 1) * abs(stride) // x.itemsize for length, stride in steps))


def _address(x: Array) -> int:
    return int(x.__array_interface__["data"][0])


def location(x: Array) -> int:
    """What tells *x*'s memory from another's: its address."""
    return _address(x)


def _has_wide_gaps(x: Array, device: DeviceInfo) -> bool:
    """Whether *x* is transferred, and gaps between its elements outweigh the data."""
    if device.unified_memory or x.size == 0:
        return False
    return _extent(x) * x.itemsize > 1.25 * x.nbytes


def check_size(nbytes: int, device: DeviceInfo, argument: str) -> None:
    """Raise DeviceMemoryError where the device allows no buffer of *nbytes*."""
    if nbytes > device.max_mem_alloc_size:
        raise DeviceMemoryError(
            f"{argument} needs a buffer of {nbytes} bytes; device {device.name!r} allows "
            f"{device.max_mem_alloc_size} (CL_DEVICE_MAX_MEM_ALLOC_SIZE); multiply in parts"
        )


def allocate(context: cl.Context, nbytes: int, device: DeviceInfo, argument: str) -> cl.Buffer:
    """A device buffer; DeviceMemoryError names *argument* and the bytes where there is none."""
    check_size(nbytes, device, argument)
    try:
        return cl.Buffer(context, cl.mem_flags.READ_WRITE, max(1, nbytes))
    except cl.Error as error:
        raise out_of_memory(nbytes, device, argument, error) from error


def filled(context: cl.Context, content: Array, device: DeviceInfo, argument: str) -> cl.Buffer:
    """A device buffer that holds a copy of *content*; errors as :func:`allocate`."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    try:
        return cl.Buffer(context, flags, hostbuf=content)
    except cl.Error as error:
        raise out_of_memory(content.nbytes, device, argument, error) from error


@dataclass(frozen=True)
class Form:
    """How the memory of arrays of one layout is handed to OpenCL."""

    plain: bool  # the array itself can be
    start: int  # how many elements into that memory the array's first one lies

    def memory(self, x: Array) -> Array:
        return x if self.plain else Span.around(x).memory


def form_of(x: Array, device: DeviceInfo, argument: str) -> Form:
    """The form of *x* and every array with its layout. Raises DeviceMemoryError where it is too large."""
    span = Span.around(x)
    check_size(span.memory.nbytes, device, argument)
    plain = device.unified_memory and x.flags.forc and x.dtype.kind in _IN_BUFFER_PROTOCOL
    return Form(plain, span.start)


def dense_form(shape: tuple[int, ...], dtype: np.dtype[Any], device: DeviceInfo, argument: str) -> Form:
    """The form of new arrays. Raises DeviceMemoryError where they are too large."""
    check_size(math.prod(shape) * dtype.itemsize, device, argument)
    return Form(device.unified_memory and dtype.kind in _IN_BUFFER_PROTOCOL, 0)


class HostBuffers:
    """The buffers of one call on NumPy arrays, and the way of the result back to the host."""

    def __init__(self, queue: cl.CommandQueue, device: DeviceInfo) -> None:
        self.queue = queue
        self.device = device
        self._context = queue.context
        self.uploads: list[cl.Event] = []  # what a kernel must wait for
        self._inputs: list[tuple[Array, int, cl.Buffer]] = []  # memory, size of an element, buffer
        self._out: tuple[Array, cl.Buffer] | None = None

    def read(self, x: Array, form: Form, argument: str) -> tuple[cl.Buffer, int]:
        """(buffer, offset in elements) through which kernels read *x*."""
        memory = form.memory(x)
        for other, size, buffer in self._inputs:  # A @ A.T: one buffer, not two on one memory
            if size == x.itemsize and np.may_share_memory(memory, other) and _within(memory, other):
                return buffer, form.start + (_address(memory) - _address(other)) // size
        buffer = self._input_buffer(memory, argument)
        self._inputs.append((memory, x.itemsize, buffer))
        return buffer, form.start

    def _input_buffer(self, memory: Array, argument: str) -> cl.Buffer:
        try:
            if self.device.unified_memory:  # Intel's runtime copies an array that it is told is only read
                flags = _READ_WRITE_HERE if memory.flags.writeable else _READ_HERE
                return cl.Buffer(self._context, flags, 0, memory)
            buffer = cl.Buffer(self._context, cl.mem_flags.READ_ONLY, memory.nbytes)
            self.uploads += upload(self.queue, buffer, memory)
            return buffer
        except cl.Error as error:
            raise out_of_memory(memory.nbytes, self.device, argument, error) from error

    def write(self, x: Array, form: Form) -> tuple[cl.Buffer, int]:
        """(buffer, offset in elements) through which kernels write *x*."""
        memory = form.memory(x)
        try:
            if self.device.unified_memory:
                buffer = cl.Buffer(self._context, _READ_WRITE_HERE, 0, memory)
            else:
                buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, memory.nbytes)
                if memory.nbytes != x.nbytes:  # gaps come back with the result
                    self.uploads += upload(self.queue, buffer, memory)
        except cl.Error as error:
            raise out_of_memory(memory.nbytes, self.device, "out", error) from error
        self._out = memory, buffer
        return buffer, form.start

    def read_back(self, after: list[cl.Event]) -> None:
        """Wait for *after*, then make what was written visible in its array.

        Raises DeviceLostError where the kernel did not come to its end.
        """
        if self._out is None:
            return
        memory, buffer = self._out
        try:
            if self.device.in_place:
                cl.wait_for_events(after)
            elif self.device.unified_memory:
                self._map(buffer, memory.nbytes, after)
            else:
                download(self.queue, memory, buffer, after)
        except cl.Error as error:
            raise status.lost(self.device, error) from error

    def _map(self, buffer: cl.Buffer, nbytes: int, after: list[cl.Event]) -> None:
        uint8: Any = np.dtype(np.uint8)
        mapped, _ = cl.enqueue_map_buffer(
            self.queue, buffer, cl.map_flags.READ, 0, (nbytes,), uint8, wait_for=after, is_blocking=True
        )
        mapped.base.release(self.queue)

    def finish(self) -> None:
        """Wait until nothing uses the host arrays any more; a call that fails must not return before."""
        with contextlib.suppress(cl.Error):
            self.queue.finish()


def _within(x: Array, y: Array) -> bool:
    """Whether all bytes of the one lie in those of the other."""
    ahead = _address(x) - _address(y)
    return 0 <= ahead <= y.nbytes - x.nbytes
