"""Arrays in a CUDA device's memory, whichever library made them: their layout, and what overlaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ArgumentError, UnsupportedError
from ..opencl.mappings import check_out, meet
from ..problem.dtypes import check_order
from ..problem.gemm import MAX_ALIGN, Operand, alignment, dense


@dataclass(frozen=True, eq=False)
class CudaArray:
    """Where an array lies: *address*, *shape*, *strides* in bytes, *dtype*, the number of its device.

    *kind* is the adapter of its library (execution/kinds.py), *owner* the library's array, which holds the
    memory and which callers get.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    ordinal: int
    kind: Any
    owner: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def transpose(self, axes: Sequence[int]) -> CudaArray:
        """A view with the axes in another order."""
        return self.viewed(tuple(self.shape[i] for i in axes), tuple(self.strides[i] for i in axes))

    def viewed(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> CudaArray:
        """A view of another shape and strides in bytes, from the first element."""
        return replace(self, shape=shape, strides=strides)


class XlaArray(CudaArray):
    """One of JAX's. XLA tells its address anew when it launches, so plans differ (execution/xla_path.py)."""


def placed(kind: Any, address: int, layout: tuple[Any, ...], ordinal: int, owner: Any) -> CudaArray:
    """An array of that *kind*; *layout*: its shape, strides in bytes and dtype."""
    make: Any = kind.array_type or CudaArray
    made: CudaArray = make(address, *layout, ordinal, kind, owner)
    return made


def new(kind: Any, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int) -> CudaArray:
    """A new C-contiguous array of that *kind*. Raises DeviceMemoryError."""
    owner, address = kind.new(shape, dtype, ordinal)
    return placed(kind, address, (shape, dense(shape, dtype).strides, dtype), ordinal, owner)


def operand(x: CudaArray, argument: str) -> Operand:
    """The layout of *x*. Raises UnsupportedError for an odd offset, DTypeError for the other byte order,
    ArgumentError as :func:`check_out` does."""
    check_order(x.dtype, argument)
    if argument == "out":
        check_out(x)
    if x.address % min(x.dtype.itemsize, 8):
        raise UnsupportedError(f"{argument} does not begin at a whole element of {x.dtype}; copy it first")
    return Operand(x.shape, x.strides, x.dtype, alignment(x.address))


def common_ordinal(operands: Mapping[str, CudaArray]) -> int:
    """The number of the device of all. Raises ArgumentError if they are on several."""
    first = operands["a"]
    for name, x in operands.items():
        if x.ordinal != first.ordinal:
            raise ArgumentError(
                f"{name} is on CUDA device {x.ordinal}, but a is on device {first.ordinal}; "
                "bring all operands and out to one device"
            )
    return first.ordinal


def phase(x: CudaArray) -> int:
    """Where *x* begins between aligned addresses."""
    return x.address % MAX_ALIGN


def may_share(x: CudaArray, y: CudaArray) -> bool:
    """Whether the byte ranges of the two overlap."""
    return meet(x, x.address, y, y.address)


def same_view(x: CudaArray, y: CudaArray) -> bool:
    """Whether the two are one view of the same memory."""
    return (x.address, x.shape, x.strides, x.dtype) == (y.address, y.shape, y.strides, y.dtype)
