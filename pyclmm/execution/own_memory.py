"""Arrays whose library lends no memory: results and workspace are pyclmm's own.

Such are numba's, and all others with CUDA's array interface or DLPack on a CUDA device.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..cuda import dlpack, driver
from ..cuda.arrays import CudaArray
from ..cuda.device_array import DeviceArray
from ..cuda.streams import Stream, context_of
from ..errors import ArgumentError, DTypeError, PyclmmError
from ..opencl import queues
from ..problem.gemm import dense
from .array_likes import unreadable
from .kinds import KindWithAddresses, Part

LEGACY = 1  # the handle of CUDA's legacy default stream, which waits for all others that are not set apart


def _layout_in(told: Mapping[str, Any]) -> tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any]]:
    """(address, shape, strides in bytes, dtype) that CUDA's array interface tells (its version 3, numba's
    documentation). Raises ValueError, TypeError, AttributeError and KeyError for what is no array's.
    """
    if told.get("version", 0) not in range(4):
        raise ValueError(f"CUDA's array interface has version {told['version']}, and 0 to 3 are known")
    address, _ = told["data"]
    address, dtype = operator.index(address or 0), np.dtype(str(told["typestr"]))  # of None it is float64
    shape = tuple(map(operator.index, told["shape"]))
    steps = told.get("strides")
    strides = dense(shape, dtype).strides if steps is None else tuple(map(operator.index, steps))
    largest = max(map(abs, (*shape, *strides)), default=0)
    if len(strides) != len(shape) or min(shape, default=0) < 0 or largest >= 1 << 63:
        raise ValueError(f"CUDA's array interface has shape {shape} and strides {strides}")
    if not 0 <= address < 1 << 64 or (address == 0 not in shape):
        raise ValueError(f"CUDA's array interface has address {address}, where no elements are")
    return address, shape, strides, dtype


def _stream_in(told: Mapping[str, Any]) -> int | None:
    """The handle of the stream in which the array is written; None if it is complete."""
    stream = told.get("stream")
    if stream is not None and not 0 < operator.index(stream) < 1 << 64:
        raise ValueError(
            f"CUDA's array interface has stream {stream}; 1 is the legacy default stream, 2 that of a thread"
        )
    return stream if stream is None else operator.index(stream)


class _Protocols(KindWithAddresses):
    """Any array with one of the two protocols, looked at in full; a result is a DeviceArray."""

    advice_for_mixed = "numba.cuda.to_device(x) or your library's function brings an array there"
    has_views = False

    def __init__(self) -> None:
        # Operands of work that may not have ended: their library knows nothing of it.
        self._held: deque[tuple[driver.Event, Any]] = deque()
        self._lock = threading.RLock()  # a finalizer may run inside and call pyclmm
        queues.at_release(self.release)

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any], ordinal: int) -> tuple[Any, int]:
        made = DeviceArray(shape, dtype, Stream(context_of(ordinal), LEGACY))
        return made, made.address

    def block(self, nbytes: int, ordinal: int) -> tuple[Any, int]:
        made = driver.PooledMemory(context_of(ordinal).handle, LEGACY, nbytes)
        return made, made.address

    def parts(self, whole: Any, layouts: Iterable[Part]) -> list[Any]:
        size = whole.dtype.itemsize
        return [whole.viewed(shape, start * size) for shape, _, start in layouts]

    def launched(self, operands: Iterable[CudaArray], stream: Stream) -> None:
        """What comes later in the stream that an array names finds the product complete."""
        event, owners = driver.Event(stream.context.handle, stream.handle), [x.owner for x in operands]
        self.release()
        self._held.append((event, owners))
        for owner in owners:
            producer = _stream_in(getattr(owner, "__cuda_array_interface__", {}))
            if producer not in (None, LEGACY) and not isinstance(owner, DeviceArray):
                driver.order(stream.context.handle, LEGACY, producer)

    def release(self) -> None:
        """Let go of the operands of work that has ended."""
        with self._lock:
            while self._held and self._held[0][0].has_ended():
                self._held.popleft()

    def cuda_array(self, name: str, x: Any) -> CudaArray:
        try:
            if not hasattr(x, "__cuda_array_interface__"):
                capsule = x.__dlpack__(stream=LEGACY)
                return CudaArray(*dlpack.read(capsule), self, (x, capsule))
            told = x.__cuda_array_interface__
            address, shape, strides, dtype = _layout_in(told)
            stream, is_read_only = _stream_in(told), bool(told["data"][1])
            has_mask = told.get("mask") is not None
        except (PyclmmError, MemoryError):
            raise
        except Exception as error:  # a library has its own
            raise unreadable(name, x, error) from error
        if has_mask:
            raise DTypeError(f"{name} has a mask, which would be ignored; pass its plain numbers")
        if is_read_only and name == "out":
            raise ArgumentError("out is read-only; pass a writeable array, or none to get a new one")
        ordinal = driver.ordinal_of(address) if address else 0
        if ordinal is None:
            raise DTypeError(
                f"{name} is at {address:#x}, which is no memory of a CUDA device; pass an array on one"
            )
        if stream not in (None, LEGACY):
            driver.order(context_of(ordinal).handle, stream, LEGACY)
        return CudaArray(address, shape, strides, dtype, ordinal, self, x)

    def stream(self, ordinal: int) -> int:
        return LEGACY

    def back(self, x: CudaArray) -> Any:
        if x.strides != dense(x.shape, x.dtype).strides:
            raise DTypeError("the result would be a view, which has no array here; pass out=")
        return x.owner if x.shape == x.owner.shape else x.owner.viewed(x.shape)


PROTOCOLS = _Protocols()
