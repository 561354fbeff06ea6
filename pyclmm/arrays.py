"""pyopencl Arrays as operands: their strides, offsets, events, and whether two share memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

from .device import DeviceInfo
from .driver import out_of_memory
from .errors import ArgumentError, UnsupportedError
from .host import check_size
from .problem import MAX_ALIGN, Operand, alignment

Array = cla.Array


def operand(x: Array) -> Operand:
    """What the checks need to know of a pyopencl Array."""
    return Operand(tuple(x.shape), tuple(x.strides), x.dtype, alignment(x.offset) if x.offset else MAX_ALIGN)


def element_offset(x: Array, argument: str) -> int:
    """Where in its buffer *x* begins, in elements."""
    offset, rest = divmod(x.offset, x.dtype.itemsize)
    if rest:
        raise UnsupportedError(
            f"{argument} begins {x.offset} bytes into its buffer, not at a whole element of {x.dtype}; "
            "copy it first"
        )
    return int(offset)


def check_context(x: Array, context: cl.Context, argument: str) -> None:
    """Raise ArgumentError unless *x* is in *context*."""
    if x.context != context:
        raise ArgumentError(
            f"{argument} is in another OpenCL context than the queue; allocate all operands and out "
            "in one context"
        )


def _memory(x: Array) -> tuple[int, int]:
    """(identity of the allocation, byte offset of the array's buffer in it)."""
    base = x.base_data
    if not isinstance(base, cl.MemoryObjectHolder):
        return int(getattr(base, "svm_ptr", id(base))), 0
    parent: Any = base.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
    if parent is None:
        return base.int_ptr, 0
    offset: Any = base.get_info(cl.mem_info.OFFSET)
    return parent.int_ptr, offset


def location(x: Array) -> tuple[int, int]:
    """What tells *x*'s memory from another's: its allocation, and where it begins in it."""
    root, at = _memory(x)
    return root, at + x.offset


def _byte_range(x: Array) -> tuple[int, int]:
    low = high = x.offset
    for length, stride in zip(x.shape, x.strides, strict=True):
        reach = (length - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + x.dtype.itemsize


def overlaps(x: Array, y: Array) -> bool:
    """Whether the two share a byte, by the ranges of their bytes (as ``np.may_share_memory``)."""
    if x.size == 0 or y.size == 0:
        return False
    (x_root, x_at), (y_root, y_at) = _memory(x), _memory(y)
    if x_root != y_root:
        return False
    (x_low, x_high), (y_low, y_high) = _byte_range(x), _byte_range(y)
    return x_low + x_at < y_high + y_at and y_low + y_at < x_high + x_at


def empty(
    queue: cl.CommandQueue, shape: tuple[int, ...], dtype: np.dtype[Any], like: Array, device: DeviceInfo
) -> Array:
    """A new C-contiguous Array, from *like*'s allocator where it has one. Raises DeviceMemoryError."""
    nbytes = math.prod(shape) * dtype.itemsize
    check_size(nbytes, device, "out")
    try:
        return cla.Array(queue, shape, dtype, allocator=like.allocator)
    except cl.Error as error:
        raise out_of_memory(nbytes, device, "out", error) from error
