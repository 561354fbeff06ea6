"""Calls on plain NumPy arrays, with few checks.

What the general way (host_path.py) finds out about each array takes longer than a product of 64 cubed. Two
arrays that own their memory share none, and own memory lies at HOST_ALIGN. So the shape, strides and dtype of
each, compared with those of the planned call, say everything. An operand may also be a view of all the memory
that another array owns: what ``x.T`` and ``x.reshape`` return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..opencl import host_memory
from ..opencl.binding import Binding
from ..opencl.host_memory import Array
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

    def result(self, given: Mapping[str, Array]) -> Array | None:
        """The array for the result if *given* is such a call, else None."""
        out = given.get("out")
        if len(given) != (2 if out is None else 3):
            return None
        of_a, of_b = _owner(given["a"], self.a), _owner(given["b"], self.b)
        if of_a is None or of_b is None:
            return None
        if self.makes_out:
            return None if out is not None else np.empty(self.out[0], self.out[2])
        if out is None or out is of_a or out is of_b or _owner(out, self.out) is not out:
            return None
        return out

    def run(self, binding: Binding, given: Mapping[str, Array], out: Array, scalars: Scalars) -> None:
        """Compute *out*, the array that :meth:`result` gave. It is complete, unless this raises.

        Raises LaunchError, DeviceMemoryError or DeviceLostError.
        """
        a, b = given["a"], given["b"]
        first, second = self.names
        values = {first: host_memory.used_in_place(binding.queue, binding.device, a, "a")}
        values[second] = (
            values[first]
            if _share_memory(a, b)
            else host_memory.used_in_place(binding.queue, binding.device, b, "b")
        )
        values["out"] = host_memory.used_in_place(binding.queue, binding.device, out, "out")
        try:
            events = binding.enqueue(values, scalars, [], is_waited_for=True)
            host_memory.wait(binding.device, events[-1:])
        except BaseException:  # Ctrl-C too: afterwards the caller may free the arrays or write to them
            host_memory.finish(binding.queue)
            raise
        binding.settle()


def _owner(x: Any, layout: _Layout) -> Array | None:
    """The array that owns just the memory of *x*, if *x* has exactly this layout and may be written."""
    if type(x) is not np.ndarray:
        return None
    shape, strides, dtype = layout
    if x.dtype is not dtype or x.shape != shape or x.strides != strides:
        return None
    flags = x.flags
    if not flags.writeable:
        return None
    if flags.owndata:
        return x
    memory = x.base
    whole = type(memory) is np.ndarray and memory.flags.owndata and memory.nbytes == x.nbytes
    return memory if whole else None


def _share_memory(x: Array, y: Array) -> bool:
    """Whether two arrays that have an owner have the same."""
    return x is y or (x if x.base is None else x.base) is (y if y.base is None else y.base)
