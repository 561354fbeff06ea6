"""NumPy arrays, Arrays and CudaArrays alike: views by strides, new results, and arrays of ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl.array as cla
from numpy.lib.stride_tricks import as_strided

from ..cuda import arrays as cuda_arrays
from ..cuda.arrays import CudaArray
from ..cuda.streams import constant
from ..errors import ArgumentError
from ..opencl import arrays
from ..opencl.late_events import takes_late
from ..problem.axes import counted
from ..problem.contraction import View
from ..problem.gemm import dense


def viewed(x: Any, view: View) -> Any:
    """*x* with another shape and strides, from its first element. A view of an Array shares its events."""
    if isinstance(x, np.ndarray):
        return _viewed_in_memory(x, view) if x.size else as_strided(x, view.shape, view.strides)
    if isinstance(x, CudaArray):
        return x.viewed(view.shape, view.strides)
    takes_late(x)  # so that a product that writes the view may be late
    # An Array without elements may have no buffer, which PyOpenCL would take for a wish to have one.
    if x.base_data is None:
        return cla.Array(x.queue or x.context, view.shape, x.dtype, allocator=x.allocator)
    return cla.Array(
        x.queue or x.context, view.shape, x.dtype, allocator=x.allocator,
        data=x.base_data, offset=x.offset, strides=view.strides, events=x.events,
    )  # fmt: skip


def _viewed_in_memory(x: np.ndarray[Any, Any], view: View) -> Any:
    """:func:`viewed` of an array with elements. As a view of its owner's memory it is made five times faster
    than by as_strided, and matmul sees whose memory it is."""
    memory = x if x.base is None else x.base
    if type(memory) is np.ndarray and memory.flags.c_contiguous and memory.dtype is x.dtype:
        if memory is x and x.dtype.isbuiltin == 1:
            return np.ndarray(view.shape, x.dtype, x, 0, view.strides)
        address, is_readonly = x.__array_interface__["data"]
        start, its_readonly = memory.__array_interface__["data"]
        if is_readonly == its_readonly and x.dtype.isbuiltin == 1:
            return np.ndarray(view.shape, x.dtype, memory, address - start, view.strides)
    return as_strided(x, view.shape, view.strides)


def permutation(ndim: int, axes: Sequence[int]) -> list[int]:
    """*axes*, each of *ndim* once, counted from the first. Raises AxisError and ArgumentError."""
    found = list(counted("x", axes, ndim))
    if len(found) != ndim:
        raise ArgumentError(f"axes is {tuple(axes)}; pass each of the {ndim} axes of x once")
    return found


def permuted(x: Any, axes: Sequence[int]) -> Any:
    """*x* with its axes in another order; of an axis that is left out it has the first place."""
    if isinstance(x, np.ndarray) and len(axes) == x.ndim:
        return x.transpose(axes)  # its base is that of x
    return viewed(x, View(tuple(x.shape[i] for i in axes), tuple(x.strides[i] for i in axes)))


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """*x*, a scalar or C-contiguous, in another *shape*."""
    if isinstance(x, CudaArray):
        return x.viewed(shape, dense(shape, x.dtype).strides)
    return x.reshape(shape)


def is_contiguous(x: Any) -> bool:
    """Whether the elements of *x* lie one after the other in C order."""
    if not isinstance(x, CudaArray):
        return bool(x.flags.c_contiguous)
    steps = zip(x.shape, x.strides, dense(x.shape, x.dtype).strides, strict=True)
    return x.size == 0 or all(length == 1 or own == step for length, own, step in steps)


def has_views(x: Any) -> bool:
    """Whether a view of *x* can be a result: some libraries cannot be given one of their own array."""
    return not isinstance(x, CudaArray) or bool(x.kind.has_views)


def new(shape: tuple[int, ...], dtype: np.dtype[Any], like: Any, queue: Any) -> Any:
    """A new C-contiguous array of the kind of *like*."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype)
    if isinstance(like, CudaArray):
        return cuda_arrays.new(like.kind, shape, dtype, like.ordinal)
    return arrays.empty(queue, shape, dtype, like.allocator)


def one(dtype: np.dtype[Any], like: Any, queue: Any) -> Any:
    """The number 1 without an axis, of the kind of *like*."""
    if isinstance(like, CudaArray):
        kept = constant(queue.context, np.ones(1, dtype))
        return cuda_arrays.placed(like.kind, kept.address, ((), (), dtype), like.ordinal, kept)
    number = np.ones((), dtype)
    return number if isinstance(like, np.ndarray) else cla.to_device(queue, number)


def plain(x: Any) -> Any:
    """*x*, or the scalar that NumPy's functions return for a result without axes."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x
