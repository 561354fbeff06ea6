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
from . import machines, storage
from .streamed import StreamedMatmul

# Tiles are faster where operands and result have at least so many bytes and the product takes at least so
# large a part of the time of their transfers (H200, 2026-11-23; docs/scale.md).
_LEAST_BYTES = 256 << 20
_LEAST_PART = 0.7


def is_stored(*arrays: Any) -> bool:
    """Whether one of *arrays* lies in a file or is read by slicing."""
    return any(type(x) is not np.ndarray and type(x) is not Array and storage.is_stored(x) for x in arrays)


def pays(operands: Mapping[str, NDArray[Any]], requested: tuple[Any, ...], queue: cl.CommandQueue) -> bool:
    """Whether a call on NumPy arrays is computed in tiles although nothing asks for it.

    It is where a buffer would be larger than the device allows, and on devices with their own memory where
    transfers and product overlap to good effect. *requested* holds the first fields of Options.
    """
    a, b = operands["a"], operands["b"]
    if a.ndim < 2 or b.ndim < 2 or (a.nbytes + b.nbytes) * 2 < _LEAST_BYTES or requested[3] != "auto":
        return False
    m, k = a.shape[-2:] if requested[0] == "N" else a.shape[:-3:-1]
    n = b.shape[-1] if requested[1] == "N" else b.shape[-2]
    if 0 in (m, n, k, a.size, b.size):
        return False
    info = device_info(queue.device)
    stack = max(a.size // (m * k), b.size // (k * n))
    result = stack * m * n * max(a.itemsize, b.itemsize)
    if max(a.nbytes, b.nbytes, result) > info.max_mem_alloc_size:
        return True
    total = a.nbytes + b.nbytes + result
    if info.unified_memory or total < _LEAST_BYTES:
        return False
    if total > info.global_mem_size * 3 // 4:
        return True
    seconds = machines.seconds_of(info, (a.dtype, b.dtype), requested, (m, n, k)) * stack
    return bool(seconds >= _LEAST_PART * machines.transfer_seconds(queue, info, total))


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
                f"{name} is given for a product in tiles, which takes arrays of the host and in files with "
                f"the matrices in the last two axes; leave {name} out"
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
