"""Row: arrays of one name and element type, dense, one behind the other in one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from ..opencl.host_memory import HOST_ALIGN, location
from ..problem.dtypes import dtype_of
from .entries import Entry, Key, Starts
from .lists import Lists

# Bytes of an array in the mean, from which to copy it takes longer than to look where it lies.
_WORTH = 16 << 10
Array = np.ndarray[Any, np.dtype[Any]]


class Row:
    """Arrays of one name and element type, dense, one behind the other. *sizes*: elements, by the pair.

    *aligns*: bytes. Those whose rows are aligned best come first, so none moves another off its alignment.
    """

    def __init__(self, key: Key, sizes: Mapping[int, int], aligns: Mapping[int, int]) -> None:
        self.dtype = dtype_of(key[1])
        self.order = sorted(sizes, key=lambda index: -aligns[index])
        self.ends = np.cumsum([sizes[index] for index in self.order]).tolist()
        self.begins = [0, *self.ends[:-1]]
        self.size: int = self.ends[-1]
        self._pick = itemgetter(*self.order)
        self._looks = self.size * self.dtype.itemsize >= _WORTH * len(self.order)

    @property
    def starts(self) -> dict[int, int]:
        return dict(zip(self.order, self.begins, strict=True))

    def filled(self, given: Sequence[Any], memory: Array) -> Array:
        """The arrays of *given*, all operands of this name: where they lie if they do so, else copied."""
        xs = self._pick(given) if len(self.order) > 1 else (self._pick(given),)
        there = self._there(xs) if self._looks else None
        if there is not None:
            return there
        np.concatenate([x.ravel() for x in xs], out=memory, casting="unsafe")
        return memory

    def _there(self, xs: Sequence[Array]) -> Array | None:
        """The array of which *xs* are consecutive parts; None if there is none."""
        base = xs[0] if xs[0].base is None else xs[0].base
        if type(base) is not np.ndarray or base.dtype != self.dtype or not base.flags.c_contiguous:
            return None
        first, size = location(xs[0]), self.dtype.itemsize
        if first % HOST_ALIGN or not base.flags.writeable:
            return None
        for x, begin in zip(xs, self.begins, strict=True):
            owner = x if x.base is None else x.base
            plain = x.dtype == self.dtype and x.flags.c_contiguous
            if owner is not base or not plain or location(x) != first + begin * size:
                return None
        begin = (first - location(base)) // size
        return base.reshape(-1)[begin : begin + self.size]

    def parts(self, row: Array, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        """Views of *row*, one for each array, of these *shapes*."""
        if len(set(shapes)) == 1 and shapes[0]:
            return list(row.reshape(-1, *shapes[0]))
        found = zip(self.begins, self.ends, shapes, strict=True)
        return [row[begin:end].reshape(shape) for begin, end, shape in found]


def rows_of(entries: Iterable[Entry], lists: Lists) -> dict[Key, Row]:
    """How the operands that kernels read, and the results, lie."""
    sizes: dict[Key, dict[int, int]] = {}
    aligns: dict[Key, dict[int, int]] = {}
    for one in entries:
        for name, key in one.named():
            of_result = name == "out"
            size = math.prod(one.gemm.shape) if of_result else lists[key[0]][one.pair].size
            sizes.setdefault(key, {})[one.pair] = size
            aligns.setdefault(key, {})[one.pair] = getattr(one.gemm.problem, f"{name}_align", 1)
    return {key: Row(key, sizes[key], aligns[key]) for key in sizes}


def starts_of(rows: Mapping[Key, Row]) -> Starts:
    """Where each array begins."""
    starts: dict[str, dict[int, int]] = {}
    for (name, _), row in rows.items():
        starts.setdefault(name, {}).update(row.starts)
    return starts
