"""PackedRow: arrays of one name and element type, dense, one behind the other in one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..opencl.host_memory import HOST_ALIGN, location
from ..problem.dtypes import dtype_of
from .apart import Lists
from .groups import Key, ListEntry

# Bytes of an array in the mean, from which to copy it takes longer than to look where it lies.
_WORTH = 16 << 10
_AT_ONCE = 64
Array = np.ndarray[Any, np.dtype[Any]]
Shapes = dict[int, tuple[int, ...]]  # by the number of the array


class PackedRow:
    """Arrays of these *shapes* as elements of one type, before that of these *dtypes*. Those whose rows are
    aligned best (*aligns*, bytes) come first, so that none moves another off its alignment."""

    def __init__(self, name: str, shapes: Shapes, aligns: Mapping[int, int], dtypes: set[Any]) -> None:
        self.dtype = dtype = dtype_of(name)
        self._is_plain = dtypes == {dtype}
        self.order = sorted(shapes, key=lambda number: -aligns[number])
        self.shapes = [shapes[number] for number in self.order]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        self.size: int = ends[-1]
        self.starts = dict(zip(self.order, [0, *ends[:-1]], strict=True))
        self.offsets = [start * dtype.itemsize for start in self.starts.values()]

    def filled(self, given: Sequence[Any], memory: Array) -> Array:
        """The arrays of *given* in a row: where they lie if they lie so, else copied to *memory*."""
        xs = [given[number] for number in self.order]
        if self._is_plain and self.offsets[-1] >= _WORTH * len(xs) and self._is_row(xs):
            return as_strided(xs[0], (self.size,), (self.dtype.itemsize,))
        with suppress(TypeError):  # one has gaps, or a type that is not in the buffer protocol
            if self._is_plain:
                _join(xs, memory.view(np.uint8).data)
                return memory
        np.concatenate(xs, axis=None, out=memory, casting="unsafe")
        return memory

    def _is_row(self, xs: Sequence[Array]) -> bool:
        first = location(xs[0])
        places = zip(xs, self.offsets, strict=True)
        return first % HOST_ALIGN == 0 and all(
            x.flags.c_contiguous and location(x) == first + offset for x, offset in places
        )

    def parts(self, row: Array) -> Iterable[tuple[int, Any]]:
        """The number of each array, and the view of *row* that it is."""
        memory: Any = row.view(np.uint8).data  # it makes arrays sooner than slices and reshape
        make: Any = np.ndarray
        views = map(make, self.shapes, repeat(self.dtype), repeat(memory), self.offsets)
        return zip(self.order, views, strict=True)


def _join(xs: Sequence[Any], memory: Any) -> None:
    """Copy *xs*, some at a time: that takes half as long as NumPy's concatenate for small ones."""
    at = 0
    for begin in range(0, len(xs), _AT_ONCE):
        part = b"".join(xs[begin : begin + _AT_ONCE])
        memory[at : at + len(part)] = part
        at += len(part)


def rows_of(
    entries: Iterable[ListEntry], lists: Lists, firsts: Mapping[str, Sequence[int]]
) -> tuple[dict[Key, PackedRow], dict[tuple[str, int], int]]:
    """How the operands that kernels read, and the results, lie, and where each begins. An operand that
    several pairs have (*firsts*: the first of them) lies there once."""
    found: dict[Key, tuple[Shapes, dict[int, int], set[Any]]] = {}
    numbers: dict[tuple[Key, int], int] = {}
    for one in entries:
        for name, key in one.keys.items():
            number = one.pair if name == "out" else firsts[key[0]][one.pair]
            shapes, aligns, dtypes = found.setdefault(key, ({}, {}, set()))
            like = one.gemm if name == "out" else lists[key[0]][number]
            shapes[number] = like.shape
            dtypes.add(like.dtype)
            aligns[number] = getattr(one.gemm.problem, f"{name}_align", 1)
            numbers[key, one.pair] = number
    rows = {key: PackedRow(key[1], *its) for key, its in found.items()}
    return rows, {(key[0], pair): rows[key].starts[number] for (key, pair), number in numbers.items()}
