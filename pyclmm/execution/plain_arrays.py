"""Calls on plain NumPy arrays, with few checks.

What the general way (host_path.py) finds out about each array takes longer than a product of 64 cubed. Two
arrays that own their memory share none, and own memory lies at HOST_ALIGN. So the shape, strides and dtype of
each, compared with those of the planned call, say everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..opencl import host_memory
from ..opencl.binding import Binding
from ..opencl.host_memory import Array
from ..opencl.last_call import Given
from ..opencl.steps import Scalars

_Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]


def _layout(x: Array) -> _Layout:
    return x.shape, x.strides, x.dtype


@dataclass(frozen=True)
class PlainCalls:
    """The calls of a plan whose operands, a and b, and result are plain arrays, used where they lie."""

    a: _Layout
    b: _Layout
    out: _Layout
    makes_out: bool
    names: tuple[str, str]  # the problem's names of a and b

    @classmethod
    def of(cls, operands: Mapping[str, Array], out: Array, names: Mapping[str, str]) -> PlainCalls:
        """*out*: the planned result, or one like it. *names*: the problem's names of the operands."""
        a, b = operands["a"], operands["b"]
        return cls(_layout(a), _layout(b), _layout(out), "out" not in operands, (names["a"], names["b"]))

    def result(self, given: Given) -> Array | None:
        """The array for the result if *given* is such a call, else None."""
        a, b, c, bias, out = given
        if c is not None or bias is not None or not (_is_plain(a, self.a) and _is_plain(b, self.b)):
            return None
        if self.makes_out:
            return None if out is not None else np.empty(self.out[0], self.out[2])
        if out is None or out is a or out is b or not _is_plain(out, self.out):
            return None
        return out  # type: ignore[no-any-return]  # a Given holds anything

    def run(self, binding: Binding, given: Given, out: Array, scalars: Scalars) -> None:
        """Compute *out*, the array that :meth:`result` gave. It is complete, unless this raises.

        Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        a, b = given[:2]
        first, second = self.names
        values = {first: host_memory.used_in_place(binding.queue, binding.device, a, "a")}
        values[second] = (
            values[first] if b is a else host_memory.used_in_place(binding.queue, binding.device, b, "b")
        )
        values["out"] = host_memory.used_in_place(binding.queue, binding.device, out, "out")
        try:
            events = binding.enqueue(values, scalars, [], is_waited_for=True)
            host_memory.wait(binding.device, events[-1:])
        except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
            host_memory.finish(binding.queue)
            raise
        binding.settle()


def _is_plain(x: Any, layout: _Layout) -> bool:
    """Whether *x* is an array of exactly this layout that owns its memory and may be written."""
    if type(x) is not np.ndarray:
        return False
    shape, strides, dtype = layout
    if x.dtype is not dtype or x.shape != shape or x.strides != strides:
        return False
    flags = x.flags
    return flags.owndata and flags.writeable
