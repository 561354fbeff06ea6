"""Where matmul and gemm come in: which calls are computed in tiles, and how they are passed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl.array import Array

from ..errors import ArgumentError
from ..execution.options import events_of
from ..opencl.devices import device_info
from . import storage
from .streamed import StreamedMatmul

# On an H200 tiles are faster from about this many bytes of operands and result on (docs/scale.md).
_OVERLAP = 128 << 20
_LEAST = 1024  # rows and columns of a product that is worth cutting


def is_stored(*arrays: Any) -> bool:
    """Whether one of *arrays* lies in a file or is read by slicing."""
    return any(type(x) is not np.ndarray and type(x) is not Array and storage.is_stored(x) for x in arrays)


def pays(operands: Mapping[str, NDArray[Any]], kernel: Any, queue: cl.CommandQueue) -> bool:
    """Whether a call on NumPy arrays is computed in tiles although nothing asks for it.

    It is where a buffer would be larger than the device allows, and on devices with their own memory where
    transfers and product overlap to good effect.
    """
    a, b = operands["a"], operands["b"]
    if kernel != "auto" or a.ndim < 2 or b.ndim < 2 or (a.nbytes + b.nbytes) * 2 < _OVERLAP:
        return False
    info = device_info(queue.device)
    stack = max(a.size // (a.shape[-2] * a.shape[-1]), b.size // (b.shape[-2] * b.shape[-1]))
    result = stack * a.shape[-2] * b.shape[-1] * max(a.itemsize, b.itemsize)
    if max(a.nbytes, b.nbytes, result) > info.max_mem_alloc_size:
        return True
    if info.unified_memory:
        return False
    total = a.nbytes + b.nbytes + result
    is_large = min(a.shape[-2], b.shape[-1]) >= _LEAST and a.shape[-1] >= _LEAST
    return total > info.global_mem_size * 3 // 4 or (is_large and total >= _OVERLAP)


def streamed(
    operands: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    progress: Any = None,
    wait_for: list[cl.Event] | None = None,
    axes: Any = None,
    axis: Any = None,
    mixed: Any = None,
) -> Any:
    """The product of *operands* ("a", "b", and those given of "c", "bias", "out") in tiles.

    *options*: the keywords of :class:`StreamedMatmul`. Raises as that does.
    """
    for name, value in (("axes", axes), ("axis", axis), ("mixed", mixed)):
        if value is not None:
            raise ArgumentError(
                f"{name} is given for a product in tiles, which takes arrays of the host and in files with the "
                f"matrices in the last two axes; leave {name} out"
            )
    if progress is not None and not callable(progress):
        raise ArgumentError(f"progress is {progress!r}; pass a function that takes a StreamProgress")
    for event in events_of(wait_for):
        event.wait()
    plan = StreamedMatmul(
        operands["a"],
        operands["b"],
        operands.get("c"),
        bias=operands.get("bias"),
        out=operands.get("out"),
        **options,
    )
    return plan(progress=progress)
