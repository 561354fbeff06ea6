"""PackedRow: arrays of one name and element type, dense, one behind the other in one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem.dtypes import dtype_of
from .apart import Lists
from .groups import Key, ListEntry

Shapes = dict[int, tuple[int, ...]]  # by the number of the pair


class PackedRow:
    """Arrays of these *shapes* as elements of one type. Those whose rows are aligned best (*aligns*, bytes)
    come first, so that none moves another off its alignment."""

    def __init__(self, name: str, shapes: Shapes, aligns: Mapping[int, int]) -> None:
        self.dtype = dtype = dtype_of(name)
        self.order = sorted(shapes, key=lambda pair: -aligns[pair])
        self.shapes = [shapes[pair] for pair in self.order]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        self.size: int = ends[-1]
        self.starts = dict(zip(self.order, [0, *ends[:-1]], strict=True))
        self.offsets = [start * dtype.itemsize for start in self.starts.values()]

    def parts(self, row: NDArray[Any]) -> Iterable[tuple[int, NDArray[Any]]]:
        """Each pair and the view of *row* that is its array."""
        make, dtype = np.ndarray, self.dtype
        views = [make(shape, dtype, row, at) for shape, at in zip(self.shapes, self.offsets, strict=True)]
        return zip(self.order, views, strict=True)


def rows_of(
    entries: Iterable[ListEntry], lists: Lists, memory: tuple[int, ...]
) -> tuple[dict[Key, PackedRow], dict[tuple[str, int], int]]:
    """How operands and results in the *memory* of these numbers lie, by key, and where each begins."""
    found: dict[Key, tuple[Shapes, dict[int, int]]] = {}
    for one in entries:
        for name, key in one.keys.items():
            if key[2] in memory:
                shapes, aligns = found.setdefault(key, ({}, {}))
                shapes[one.pair] = one.gemm.shape if name == "out" else lists[key[0]][one.pair].shape
                aligns[one.pair] = getattr(one.gemm.problem, f"{name}_align", 1)
    rows = {key: PackedRow(key[1], *its) for key, its in found.items()}
    starts = {(key[0], pair): start for key, row in rows.items() for pair, start in row.starts.items()}
    return rows, starts
