"""Where matmul and gemm come in: which calls are computed in tiles, and how they are passed on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl.array import Array

from ..errors import ArgumentError
from ..execution.options import Options, wait_here
from ..opencl import staging
from ..opencl.devices import device_info
from ..opencl.mappings import extent
from ..problem.gemm import MAX_DIMENSION
from ..quantized import QuantizedArray
from . import datasets, machines
from .operands import sizes_of
from .streamed import StreamedMatmul

# Tiles are faster where operands and result have at least so many bytes and the product takes at least so
# large a part of the time of their transfers (H200, 2026-11-23; docs/scale.md).
_LEAST_BYTES = 256 << 20
_LEAST_PART = 0.7
_PLAIN = {np.ndarray, Array, QuantizedArray}  # types of arrays that are in no file
_TAKEN = {"a", "b", "c", "bias", "out"}  # operands that are cut into tiles
_TABLE_ROWS = 128  # a stack has a table with 32 bytes for each product: at most 512 MiB of it


def is_stored(*arrays: Any) -> bool:
    """Whether one of *arrays* lies in a file or is read by slicing."""
    if _PLAIN.issuperset(map(type, arrays)):
        return False
    return any(datasets.is_stored(x) for x in arrays if type(x) not in _PLAIN)


def pays(operands: Mapping[str, NDArray[Any]], options: Options, queue: cl.CommandQueue) -> bool:
    """Whether a call on NumPy arrays is computed in tiles although nothing asks for it: where M, N, K or the
    stack is more than a kernel counts to, a buffer would be larger than the device allows, or a device has
    its own memory, and transfers and product overlap to good effect.
    """
    a, b = operands["a"], operands["b"]
    if options.b_format or options.kernel != "auto" or not (a.size and b.size and a.ndim and b.ndim):
        return False
    m, n, k = sizes_of(a.shape, b.shape, options)
    stack = 1 if a.ndim <= 2 and b.ndim <= 2 else _matrices(a, b)
    result = stack * m * n * max(a.itemsize, b.itemsize)
    total = a.nbytes + b.nbytes + result
    least = max(total, *map(extent, operands.values()))  # a few microseconds until here
    if least < _LEAST_BYTES or operands.keys() - _TAKEN:
        return False
    too_long = max(m, n, k, stack * _TABLE_ROWS) > MAX_DIMENSION
    info = device_info(queue.device)
    buffers = (extent(x) if info.unified_memory else x.nbytes for x in operands.values())
    if too_long or max(result, *buffers) > info.max_mem_alloc_size:
        return True
    if info.unified_memory or total < _LEAST_BYTES or 1 in (a.ndim, b.ndim):
        return False
    if total > info.global_mem_size * 3 // 4:
        return True
    seconds = machines.seconds_of(info, (a.dtype, b.dtype), options, (m, n, k)) * stack
    return bool(seconds >= _LEAST_PART * total / max(staging.link_rates(queue)))


def _matrices(a: NDArray[Any], b: NDArray[Any]) -> int:
    """The matrices of the result. numpy.broadcast_shapes takes 32 axes at most, NumPy's arrays 64."""
    axes = itertools.zip_longest(a.shape[-3::-1], b.shape[-3::-1], fillvalue=1)
    return math.prod(max(pair) for pair in axes)


def streamed(
    operands: Mapping[str, Any],
    options: Options,
    *,
    unfit: Mapping[str, Any] = MappingProxyType({}),
    progress: Any = None,
    wait_for: list[cl.Event] | None = None,
    **keywords: Any,
) -> Any:
    """The product of *operands* ("a", "b", and those given of "c", "bias", "out") in tiles. *unfit*:
    arguments for whole arrays only. *keywords*: those of :class:`StreamedMatmul` that are no options. Raises
    as that does.
    """
    others = {name: x for name, x in operands.items() if name not in _TAKEN}
    stored = [name for name, x in operands.items() if is_stored(x)]
    or_read = f", or read {stored[0]} first, {stored[0]}[...]" if stored else ""
    for name, value in {**unfit, **others}.items():
        if value is not None:
            raise ArgumentError(
                f"{name} is given for a product in tiles, which takes arrays of the host and in files with "
                f"the matrices in the last two axes; leave {name} out{or_read}"
            )
    wait_here(wait_for)
    read = operands["a"], operands["b"], operands.get("c")
    more: dict[str, Any] = {"bias": operands.get("bias"), "out": operands.get("out")}
    plan = StreamedMatmul(*read, **more, **options.keywords(), **keywords)
    return plan(*read, **more, progress=progress)
