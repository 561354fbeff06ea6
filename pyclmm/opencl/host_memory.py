"""NumPy arrays as operands: which need a copy, and the buffers through which kernels access them.

On a device that shares the host's memory a buffer uses the array in place (``USE_HOST_PTR``) and nothing is
copied. On any other device the array's bytes are transferred.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from mmap import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.lib.stride_tricks import as_strided

from ..errors import DeviceMemoryError
from ..kernels.device import DeviceInfo
from ..problem.gemm import MAX_ALIGN, Operand, alignment, dense
from . import forks, mappings, status
from .staging import download, upload
from .status import out_of_memory

Array = np.ndarray[Any, np.dtype[Any]]

_READ_HERE = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
_READ_WRITE_HERE = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
_UINT8: Any = np.dtype(np.uint8)
HOST_ALIGN = 16  # bytes: the least alignment of allocators on 64-bit machines, so plans rely on it


def is_addressable(x: Array) -> bool:
    """Whether kernels can address *x*: native byte order, address and strides multiples of the element size.
    NumPy aligns complex numbers to half their size, OpenCL to their size.
    """
    return x.dtype.isnative and not [at for at in (location(x), *x.strides) if at % x.itemsize]


def is_copied(x: Array, device: DeviceInfo) -> bool:
    """Whether the layout of *x* requires that the host copies it before kernels read it."""
    # What is transferred has gaps of at most a quarter of its size.
    has_wide_gaps = not device.unified_memory and mappings.extent(x) > 1.25 * x.nbytes
    return has_wide_gaps or not is_addressable(x)


def dense_layout(shape: tuple[int, ...], dtype: np.dtype[Any], device: DeviceInfo) -> Operand:
    """The layout of a new C-contiguous array."""
    return replace(dense(shape, dtype), align=new_align(device))


def new_align(device: DeviceInfo) -> int:
    """The alignment in bytes of new arrays in the memory that *device* reads."""
    return HOST_ALIGN if device.unified_memory else MAX_ALIGN


def layout(x: Array, device: DeviceInfo) -> Operand:
    """The layout of an array that *device* reads without a copy."""
    if device.unified_memory:
        return Operand(x.shape, x.strides, x.dtype, min(HOST_ALIGN, alignment(location(x))))
    start = host_span(x)[1] * x.itemsize if x.size else 0
    return Operand(x.shape, x.strides, x.dtype, alignment(start) if start else MAX_ALIGN)


def phase(x: Array) -> int:
    """Where *x* begins between addresses that are aligned to HOST_ALIGN. Memory that an array owns is, so its
    address, which takes NumPy a microsecond, is not needed.
    """
    return 0 if x.flags.owndata else location(x) % HOST_ALIGN


def may_share(x: Array, out: Array) -> bool:
    """Whether writing *out* may change *x*: by its memory, or by a file that both map."""
    return np.may_share_memory(x, out) or mappings.shares_file(x, out)


def same_view(x: Array, y: Array) -> bool:
    """Whether the two are one view of the same memory."""
    return x is y or bool(x.__array_interface__ == y.__array_interface__)


def host_span(x: Array) -> tuple[Array, int]:
    """The bytes from the lowest to the highest element of *x*, and where there its first one is, in elements.
    They are uint8, because the buffer protocol lacks bfloat16.
    """
    if x.flags.forc:  # the common case, and ten times faster
        return x.reshape(-1, order="A").view(np.uint8), 0
    upward: Any = (..., *(slice(None, None, -1 if s < 0 else 1) for s in x.strides))
    lowest = x[upward]  # a view, of 0-D arrays too
    raw = lowest.view(f"V{x.itemsize}")  # the array interface has no name for some types of ml_dtypes
    low, high = mappings.reach(x, 0)
    memory = as_strided(raw, ((high - low) // x.itemsize,), (x.itemsize,))  # read-only if x is
    return memory.view(np.uint8), (location(x) - location(lowest)) // x.itemsize


def location(x: Array) -> int:
    """Identifies the memory of *x*: its address."""
    return int(x.__array_interface__["data"][0])


def new_memory(device: DeviceInfo) -> int:
    """The flags of a buffer without content. PoCL 3.0 allocates a plain one at its first use, and writes to
    address 0 where the host has no memory. With ALLOC_HOST_PTR it allocates at once, or refuses.
    """
    flags = cl.mem_flags.READ_WRITE
    return flags | cl.mem_flags.ALLOC_HOST_PTR if device.is_cpu else flags


def check_size(nbytes: int, device: DeviceInfo, argument: str) -> None:
    """Raise DeviceMemoryError, naming *argument*, if the device allows no buffer of *nbytes*."""
    if nbytes > device.max_mem_alloc_size:
        raise DeviceMemoryError(
            f"{argument} needs a buffer of {nbytes} bytes; device {device.name!r} allows "
            f"{device.max_mem_alloc_size} (CL_DEVICE_MAX_MEM_ALLOC_SIZE); multiply smaller matrices, "
            "or have matmul multiply NumPy arrays in tiles by memory_limit="
        )


def allocate(context: cl.Context, nbytes: int, device: DeviceInfo, argument: str) -> cl.Buffer:
    """A device buffer. Raises DeviceMemoryError, naming *argument* and the bytes, DeviceLostError or
    ForkError.
    """
    forks.check_process()
    check_size(nbytes, device, argument)
    try:
        return cl.Buffer(context, new_memory(device), max(1, nbytes))
    except cl.Error as error:
        raise out_of_memory(nbytes, device, argument, error) from error


def filled(context: cl.Context, content: Array, device: DeviceInfo, argument: str) -> cl.Buffer:
    """A device buffer with a copy of *content*. Raises as :func:`allocate` does."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    try:
        return cl.Buffer(context, flags, hostbuf=content)
    except cl.Error as error:
        raise out_of_memory(content.nbytes, device, argument, error) from error


def is_plain(x: Array, device: DeviceInfo, argument: str) -> bool:
    """Whether OpenCL takes every array with the layout of *x* itself; else its :func:`host_span`. Raises
    DeviceMemoryError if that is too large."""
    check_size(mappings.extent(x), device, argument)
    return device.unified_memory and x.flags.forc and _is_in_buffer_protocol(x.dtype)


def is_used_whole(x: Array, device: DeviceInfo) -> bool:
    """Whether OpenCL takes the memory of every array with the layout of *x* as it is, all that its owner has.
    Not where elements share memory: to ask a result of np.broadcast_arrays whether it is writeable warns."""
    shared = any(step == 0 and length > 1 for step, length in zip(x.strides, x.shape, strict=True))
    return device.unified_memory and _is_in_buffer_protocol(x.dtype) and not shared


def _is_in_buffer_protocol(dtype: np.dtype[Any]) -> bool:
    return dtype.isbuiltin != 2  # 2: a type that a package has registered, such as bfloat16


def new_is_plain(shape: tuple[int, ...], dtype: np.dtype[Any], device: DeviceInfo, argument: str) -> bool:
    """:func:`is_plain` of new arrays."""
    check_size(math.prod(shape) * dtype.itemsize, device, argument)
    return device.unified_memory and _is_in_buffer_protocol(dtype)


def may_be_addressed(device: cl.Device, info: DeviceInfo) -> bool:
    """Whether to try if kernels on *device* read and write the host's memory by its address. Drivers of which
    some crash would else be asked: OpenCL promises it only of fine-grain system memory (SVM), and PoCL's
    kernels on CPUs run in this process, though it does not say so.
    """
    svm = svm_of(device)
    return bool(svm & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM) or bool(svm and info.vendor == "pocl")


def svm_of(device: cl.Device) -> int:
    """What *device* says of shared virtual memory; 0 of a driver of OpenCL 1."""
    try:
        return int(device.svm_capabilities)
    except (cl.Error, AttributeError):
        return 0


def wait(device: DeviceInfo, after: list[cl.Event]) -> None:
    """Wait for *after*, which end what uses host arrays in place. Raises DeviceLostError."""
    try:
        cl.wait_for_events(after)
    except cl.Error as error:
        raise status.lost(device, error) from error


def finish(queue: cl.CommandQueue) -> None:
    """Wait until the device uses no host array. A call that fails must not return earlier."""
    with contextlib.suppress(cl.Error):
        queue.finish()


def _writeable(memory: Array) -> Array:
    """The read-only *memory* as an array that is not, if it is the process's own: what NumPy allocated, or a
    file that was mapped for it alone. Other memory may be protected. Intel's runtime copies an array under
    READ_ONLY in each call."""
    owner: Any = memory
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    if isinstance(owner, np.ndarray):
        is_own = owner.flags.owndata
    else:
        is_own = isinstance(owner, mmap) and not memoryview(owner).readonly
    if not is_own:
        return memory
    its = {**memory.__array_interface__, "data": (location(memory), False)}
    return np.asarray(SimpleNamespace(__array_interface__=its, owner=memory))


class HostBuffers:
    """The buffers of one call on NumPy arrays, and the transfer of the result to the host."""

    def __init__(self, queue: cl.CommandQueue, device: DeviceInfo) -> None:
        self.queue = queue
        self.device = device
        self._context = queue.context
        self.uploads: list[cl.Event] = []  # kernels wait for these
        self._inputs: list[tuple[Array, int, cl.Buffer]] = []  # memory, size of an element, buffer
        self._outs: list[tuple[Array, cl.Buffer]] = []

    def read(self, x: Array, plain: bool, argument: str) -> tuple[cl.Buffer, int]:
        """(buffer, offset in elements) through which kernels read *x*. *plain*: see :func:`is_plain`."""
        memory, start = (x, 0) if plain else host_span(x)
        for other, size, buffer in self._inputs:  # A @ A.T: one buffer for the same memory
            if size == x.itemsize and np.may_share_memory(memory, other):
                ahead = location(memory) - location(other)
                if 0 <= ahead <= other.nbytes - memory.nbytes:  # every byte is in that
                    return buffer, start + ahead // size
        buffer = self._input_buffer(memory, argument)
        self._inputs.append((memory, x.itemsize, buffer))
        return buffer, start

    def _input_buffer(self, memory: Array, argument: str) -> cl.Buffer:
        try:
            if self.device.unified_memory:
                # flags.writeable warns for a result of np.broadcast_arrays. Here that counts as read-only.
                own = _writeable(memory) if memory.data.readonly else memory
                flags = _READ_HERE if own.data.readonly else _READ_WRITE_HERE
                return cl.Buffer(self._context, flags, 0, own)
            buffer = cl.Buffer(self._context, cl.mem_flags.READ_ONLY, memory.nbytes)
            self.uploads += upload(self.queue, buffer, memory)
            return buffer
        except cl.Error as error:
            raise out_of_memory(memory.nbytes, self.device, argument, error) from error

    def write(self, x: Array, plain: bool) -> tuple[cl.Buffer, int]:
        """(buffer, offset in elements) through which kernels write *x*."""
        memory, start = (x, 0) if plain else host_span(x)
        try:
            if self.device.unified_memory:
                buffer = cl.Buffer(self._context, _READ_WRITE_HERE, 0, memory)
            else:
                buffer = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, memory.nbytes)
                if memory.nbytes != x.nbytes:  # the download overwrites the gaps too
                    self.uploads += upload(self.queue, buffer, memory)
        except cl.Error as error:
            raise out_of_memory(memory.nbytes, self.device, "out", error) from error
        self._outs.append((memory, buffer))
        return buffer, start

    def read_back(self, after: list[cl.Event]) -> None:
        """Wait for *after*, then for the results in their arrays. Raises DeviceLostError if one failed."""
        if self.device.in_place or not self._outs:
            wait(self.device, after)
            return
        try:
            for memory, buffer in self._outs:
                if self.device.unified_memory:
                    read, shape, uint8 = cl.map_flags.READ, (memory.nbytes,), _UINT8
                    mapped, _ = cl.enqueue_map_buffer(
                        self.queue, buffer, read, 0, shape, uint8, wait_for=after, is_blocking=True
                    )
                    mapped.base.release(self.queue)
                else:
                    download(self.queue, memory, buffer, after)
        except cl.Error as error:
            raise status.lost(self.device, error) from error
