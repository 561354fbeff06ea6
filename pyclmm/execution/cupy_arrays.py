"""CuPy's arrays: always on a CUDA device, in CuPy's current stream and from its memory pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cupy
import numpy as np

from ..cuda import driver
from ..cuda.arrays import CudaArray
from ..errors import DeviceMemoryError, DTypeError
from ..problem.gemm import MAX_ALIGN
from .kinds import AddressOf, KindWithAddresses, Part

# What captured graphs use. CuPy's pool knows of no capture: it would give the memory to others, though a
# graph writes to it later.
_in_graphs: list[Any] = []


class _Cupy(KindWithAddresses):
    advice_for_mixed = "cupy.asarray(x) brings an array to the device, x.get() to the host"

    def on_host(self, name: str, x: Any) -> bool:
        if cupy.cuda.runtime.is_hip:
            raise DTypeError(
                f"{name} is on an AMD GPU by CuPy for ROCm; pyclmm launches in streams of NVIDIA's CUDA "
                f"alone: pass {name}.get()"
            )
        return False

    def cuda_array(self, name: str, x: Any) -> CudaArray:
        return CudaArray(x.data.ptr, x.shape, x.strides, x.dtype, x.device.id, self, x)

    def stream(self, ordinal: int) -> int:
        return int(cupy.cuda.get_current_stream(ordinal).ptr)

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int) -> tuple[Any, int]:
        made = _allocated(ordinal, lambda: cupy.empty(shape, dtype))
        return made, made.data.ptr

    def block(self, nbytes: int, ordinal: int) -> tuple[Any, int]:
        made = _allocated(ordinal, lambda: cupy.cuda.alloc(nbytes))
        return made, made.ptr

    def back(self, x: CudaArray) -> Any:
        if (x.shape, x.strides) == (x.owner.shape, x.owner.strides):
            return x.owner
        return cupy.ndarray(x.shape, x.dtype, x.owner.data, x.strides)

    def parts(self, whole: Any, layouts: Iterable[Part]) -> list[Any]:
        memory, dtype = whole.data, whole.dtype
        return [cupy.ndarray(shape, dtype, memory + start * dtype.itemsize) for shape, _, start in layouts]

    def address_like(self, x: CudaArray) -> AddressOf:
        layout, ordinal, phase = (x.shape, x.strides, x.dtype), x.ordinal, x.address % MAX_ALIGN

        def address_of(x: Any) -> int | None:
            if type(x) is not cupy.ndarray or (x.shape, x.strides, x.dtype) != layout:
                return None
            memory = x.data
            address: int = memory.ptr
            return address if address % MAX_ALIGN == phase and memory.device_id == ordinal else None

        return address_of


def _allocated(ordinal: int, allocate: Any) -> Any:
    """What *allocate* makes on that device. Raises DeviceMemoryError."""
    with cupy.cuda.Device(ordinal):
        try:
            if not driver.capture_of(cupy.cuda.get_current_stream(ordinal).ptr):
                return allocate()
            with driver.uncaptured():
                made = allocate()
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise DeviceMemoryError(f"CuPy's memory pool: {error}") from error
    _in_graphs.append(made)
    return made


CUPY = _Cupy()
