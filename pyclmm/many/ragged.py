"""ragged_matmul: rows divided among products by sizes that may be on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike
from pyopencl.array import Array

from ..calls import PLAIN, called
from ..errors import ArgumentError, DTypeError
from ..execution import kinds
from ..execution.array_likes import array_of, has_shape
from ..execution.operands import queue_of, sent, single
from ..execution.options import options_of
from ..execution.weights import format_of
from ..opencl.devices import DeviceChoice
from ..problem.gemm import SIZE_TYPES
from ..problem.literals import Casting, Precision, Verify
from ..problem.ragged import SIZES
from ..raising import guarded
from ..selection.select import KernelChoice


@guarded("ragged_matmul")
def ragged_matmul(
    a: Any,
    b: Any,
    group_sizes: Any,
    /,
    out: Any = None,
    *,
    queue: cl.CommandQueue | None = None,
    device: DeviceChoice | None = None,
    kernel: KernelChoice = "auto",
    precision: Precision | None = None,
    reproducible: bool | None = None,
    dtype: DTypeLike | None = None,
    casting: Casting = "same_kind",
    verify: Verify | None = None,
    wait_for: list[cl.Event] | None = None,
) -> Any:
    """Products of groups of rows in one launch, as ``jax.lax.ragged_dot`` and PyTorch's grouped_mm have them.

    Parameters
    ----------
    a, b
        With b of shape (groups, K, N), a is (rows, K): the first ``group_sizes[0]`` rows are multiplied by
        ``b[0]``, the next ones by ``b[1]``, and so on. Rows of no group become zeros. With b of shape (K, N),
        a is (M, K), and K is divided: ``a.T`` and b of shapes (rows, M) and (rows, N) give the gradient of
        the former b.
        NumPy arrays, pyopencl Arrays, or arrays of PyTorch, CuPy or JAX in one place, of any dtypes and
        strides, as for :func:`pyclmm.matmul`. With b of shape (groups, K, N) it may be quantised weights,
        ``q.mT`` of a stack (:class:`pyclmm.QuantizedArray`) where a is.
    group_sizes
        Whole numbers, at most 2,047: how many rows each group has; 0 for an empty group. With Arrays or
        tensors it is an array of int32 or int64 there, and the host does not wait for it; a list or a NumPy
        array is copied to the device of Arrays.
    out, queue, device, kernel, precision, reproducible, dtype, casting, verify, wait_for
        As for :func:`pyclmm.matmul`. A VerificationError's ``stack`` are the groups that are wrong, and its
        ``rows`` those of the result, or of each group's where K is divided.

    Returns
    -------
    (rows, N), or (groups, M, N) where K is divided: *out*, or a new array of the kind that was given.

    Raises
    ------
    As :func:`pyclmm.matmul` does. ArgumentError for a negative size, or more rows than there are: of sizes
    on the host in this call. On a device groups are cut to the rows, and the next such call raises it.
    """
    options = options_of(
        kernel=kernel, precision=precision, reproducible=reproducible, casting=casting, verify=verify,
        dtype=dtype, b_format=format_of(b),
    )  # fmt: skip
    kind = kinds.kind_of(a)
    if kind is None:
        a, b = (x if has_shape(x) else array_of(name, x) for name, x in (("a", a), ("b", b)))
        group_sizes = _sizes_beside(a, b, group_sizes, queue)
    elif kinds.kind_of(group_sizes) is kind and kind.on_host("a", a) and kind.on_host(SIZES, group_sizes):
        _check_sizes(kind.host_array(SIZES, group_sizes), a, b)
    given = {"a": a, "b": b, SIZES: group_sizes}
    if out is not None:
        given["out"] = single(out) if isinstance(out, tuple) else out
    return called(given, options, PLAIN, queue=queue, device=device, wait_for=wait_for)


def _sizes_beside(a: Any, b: Any, sizes: Any, queue: Any) -> Any:
    """*sizes* where a is: the host's memory, or the device of an Array. Raises as :func:`_check_sizes`."""
    if isinstance(sizes, Array) or (isinstance(a, Array) and kinds.kind_of(sizes) is not None):
        return sizes
    sizes = array_of(SIZES, sizes)
    if sizes.dtype.kind not in "iu" and sizes.size:
        raise DTypeError(f"{SIZES} has dtype {sizes.dtype}; pass whole numbers: {SIZES}.astype(np.int32)")
    _check_sizes(sizes, a, b)
    if sizes.dtype.name not in SIZE_TYPES:
        sizes = sizes.astype(np.int64)
    if isinstance(a, Array):
        return sent(sizes, SIZES, queue_of({"a": a} | ({"b": b} if isinstance(b, Array) else {}), queue))
    return sizes


def _check_sizes(sizes: Any, a: Any, b: Any) -> None:
    """Raise ArgumentError for sizes on the host that a, and b, do not have."""
    if sizes.ndim != 1 or np.ndim(a) != 2 or np.ndim(b) not in (2, 3):
        return
    divides_rows = np.ndim(b) == 3
    if not divides_rows and np.shape(a)[1] != np.shape(b)[0]:
        return  # as of x where x.T is meant: their shapes are at fault, not the sizes
    for group, size in enumerate(listed := sizes.tolist()):
        if size < 0:
            raise ArgumentError(f"{SIZES}[{group}] is {size}; pass 0 for an empty group")
    rows = np.shape(a)[0 if divides_rows else 1]
    if (total := sum(listed)) > rows:
        raise ArgumentError(f"{SIZES} add up to {total}, but there are {rows} rows to divide")
