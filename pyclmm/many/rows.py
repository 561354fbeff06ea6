"""PackedRow: arrays of one name and element type, dense, one behind the other in one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

import numpy as np

from ..opencl.host_memory import HOST_ALIGN, location
from ..problem.dtypes import dtype_of
from .apart import Lists
from .entries import Key, ListEntry, Starts

# Bytes of an array in the mean, from which to copy it takes longer than to look where it lies.
_WORTH = 16 << 10
Array = np.ndarray[Any, np.dtype[Any]]


class PackedRow:
    """Arrays of one name and element type, dense, one behind the other. *sizes*: elements, by the pair.

    *aligns*: bytes. Those whose rows are aligned best come first, so none moves another off its alignment.
    *firsts*: for each pair the one that has its array.
    """

    def __init__(
        self, key: Key, sizes: Mapping[int, int], aligns: Mapping[int, int], firsts: Mapping[int, int]
    ) -> None:
        self.dtype = dtype_of(key[1])
        self.order = sorted(sizes, key=lambda index: -aligns[index])
        self.ends = np.cumsum([sizes[index] for index in self.order]).tolist()
        self.begins = [0, *self.ends[:-1]]
        self.size: int = self.ends[-1]
        starts = dict(zip(self.order, self.begins, strict=True))
        self.starts = {pair: starts[first] for pair, first in firsts.items()}
        self._offsets = [begin * self.dtype.itemsize for begin in self.begins]
        self._pick = itemgetter(*self.order)
        self._looks = self.size * self.dtype.itemsize >= _WORTH * len(self.order)

    def filled(self, given: Sequence[Any], memory: Array) -> Array:
        """The arrays of *given*, all operands of this name: where they lie if they do so, else copied."""
        xs = self._pick(given) if len(self.order) > 1 else (self._pick(given),)
        there = self._there(xs) if self._looks else None
        if there is not None:
            return there
        np.concatenate([x.ravel() for x in xs], out=memory, casting="unsafe")
        return memory

    def _there(self, xs: Sequence[Array]) -> Array | None:
        """The memory of which *xs* are consecutive parts; None if there is none."""
        base: Any = xs[0] if xs[0].base is None else xs[0].base
        if not isinstance(base, memoryview) and not (type(base) is np.ndarray and base.dtype.isbuiltin == 1):
            return None
        first, size = location(xs[0]), self.dtype.itemsize
        for x, begin in zip(xs, self.begins, strict=True):
            is_dense = x.dtype == self.dtype and x.flags.c_contiguous
            owner = x if x.base is None else x.base
            if owner is not base or not is_dense or location(x) != first + begin * size:
                return None
        memory = np.asarray(base)
        if first % HOST_ALIGN or not memory.flags.c_contiguous:
            return None
        return np.frombuffer(memory, self.dtype, self.size, first - location(memory))

    def parts(self, row: Array, shapes: Sequence[tuple[int, ...]]) -> Iterable[Any]:
        """Views of *row*, one for each array, of these *shapes*."""
        memory: Any = row.view(np.uint8).data  # it makes arrays sooner than slices and reshape
        return map(np.ndarray, shapes, repeat(self.dtype), repeat(memory), self._offsets)


def rows_of(
    entries: Iterable[ListEntry], lists: Lists, repeats: Mapping[str, Sequence[int]]
) -> dict[Key, PackedRow]:
    """How the operands that kernels read, and the results, lie; those that *repeats* names, as
    :func:`.lists.repeats_of` does, lie there once."""
    sizes: dict[Key, dict[int, int]] = {}
    aligns: dict[Key, dict[int, int]] = {}
    firsts: dict[Key, dict[int, int]] = {}
    seen: dict[tuple[Key, int], int] = {}
    for one in entries:
        for name, key in one.keys.items():
            number = repeats[key[0]][one.pair] if key[0] in repeats else one.pair
            first = seen.setdefault((key, number), one.pair)
            firsts.setdefault(key, {})[one.pair] = first
            size = math.prod(one.gemm.shape) if name == "out" else lists[key[0]][first].size
            sizes.setdefault(key, {})[first] = size
            aligns.setdefault(key, {})[first] = getattr(one.gemm.problem, f"{name}_align", 1)
    return {key: PackedRow(key, sizes[key], aligns[key], firsts[key]) for key in sizes}


def starts_of(rows: Mapping[Key, PackedRow]) -> Starts:
    """Where each array begins."""
    starts: dict[str, dict[int, int]] = {}
    for (name, _), row in rows.items():
        starts.setdefault(name, {}).update(row.starts)
    return starts
