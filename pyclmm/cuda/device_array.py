"""DeviceArray: a result in memory of pyclmm's own, for arrays whose library no adapter allocates from."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from typing import Any

import numpy as np

from ..errors import LaunchError
from ..opencl import queues
from . import dlpack, driver
from .streams import Context, Stream

_MOST_DROPPED = 256 << 20  # bytes of a device that wait to be freed


class DeviceArray:
    """A C-contiguous array on a CUDA device, written in *stream*. Other libraries take it without a copy.

    It has CUDA's array interface (version 3, numba's documentation) and DLPack's methods. Its memory is freed
    some time after the last library has let go of it: only the whole device's end of work shows that none
    reads it any more, and nobody waits for that at each array.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Stream) -> None:
        self.shape, self.dtype, self._stream = shape, dtype, stream
        self.nbytes = math.prod(shape) * dtype.itemsize
        _free_dropped(stream.context, _MOST_DROPPED)
        self._memory: driver.PooledMemory | DeviceArray = driver.PooledMemory(
            stream.context.handle, stream.handle, self.nbytes
        )
        self.address: int = self._memory.address

    def viewed(self, shape: tuple[int, ...], offset: int = 0) -> DeviceArray:
        """An array of another *shape* in the same memory, *offset* bytes behind where this one begins."""
        made = copy.copy(self)
        made.shape, made.address = shape, self.address + offset
        made.nbytes = math.prod(shape) * self.dtype.itemsize
        made._memory = self  # which drops it when the last view is gone
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind == "V":
            raise AttributeError(f"CUDA's array interface has no {self.dtype}; DLPack has")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self._stream.handle or 1,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._stream.context.ordinal

    def __dlpack__(
        self, *, stream: int | None = None, dl_device: Any = None, copy: bool | None = None, **_: Any
    ) -> Any:
        """A capsule; work that is put into *stream* from now on, the legacy default stream for None, finds
        the result complete. -1: the caller sees to that. Raises BufferError where a copy is asked for."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a pyclmm array lends its own memory; copy what your library makes of it")
        if stream != -1:
            driver.order(self._stream.context.handle, self._stream.handle, 1 if stream is None else stream)
        return dlpack.capsule(self.address, self.shape, self.dtype, self._stream.context.ordinal, self)

    def __repr__(self) -> str:
        device = self._stream.context.device.name.strip()
        return (
            f"<pyclmm array {self.shape} of {self.dtype} on {device}: pass it to your library's from_dlpack>"
        )

    def __del__(self) -> None:
        memory = getattr(self, "_memory", None)
        if isinstance(memory, driver.PooledMemory) and _dropped is not None:  # None at the end of the process
            dropped = _dropped[self._stream.context]
            dropped.append(memory)  # no lock: this may run within anything
            dropped.nbytes += memory.nbytes


class _Dropped(list[driver.PooledMemory]):
    """Memory that nobody holds any more."""

    nbytes = 0


_dropped: defaultdict[Context, _Dropped] = defaultdict(_Dropped)


def _free_dropped(context: Context, most: int) -> None:
    """Free what was dropped, once all work of the device has ended, if it is more than *most* bytes."""
    waiting = _dropped[context]
    count = len(waiting)
    if waiting.nbytes <= most:
        return
    try:
        driver.wait_for_all(context.handle)
    except LaunchError:  # while a stream is being captured: all stays
        return
    freed, waiting[:count] = waiting[:count], []  # others may have been added meanwhile
    waiting.nbytes -= sum(memory.nbytes for memory in freed)


@queues.at_release
def release() -> None:
    """Free what was dropped, of all devices."""
    for context in [context for context in _dropped if context.is_known]:
        _free_dropped(context, -1)
