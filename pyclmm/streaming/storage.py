"""Operands that are read by blocks and results that are written by blocks, from whatever the caller has.

All that can be known is checked when a Source or a Sink is made, before the first tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..opencl import mappings
from ..opencl.mappings import map_of
from ..problem import dtypes
from . import datasets
from .datasets import is_stored, layout
from .mapped import MappedFile
from .sinks import ArraySink, DatasetSink, MappedSink, Sink, check
from .sources import ArraySource, DatasetSource, MappedSource, Source

__all__ = ["Sink", "Source", "is_one", "is_stored", "layout", "overlaps", "sink", "source"]


def source(name: str, x: Any, *, as_row: bool = True) -> Source:
    """The operand *x*, which errors call *name*; a 1-D one of length K is read as (1, K), else as (K, 1).

    Raises DTypeError for a dtype that cannot be multiplied, StorageError for a file that is closed or shorter
    than the array.
    """
    if not isinstance(x, np.ndarray):
        return DatasetSource(name, x, as_row)
    dtypes.type_name(x.dtype, name)
    owner = map_of(x)
    return ArraySource(name, x, as_row) if owner is None else MappedSource(name, x, as_row, MappedFile(owner))


def sink(x: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Sink:
    """``out``, which takes a product of this shape and dtype. A memmap's file gets its blocks on the disk.

    Raises ArgumentError if it is read-only, ShapeError, DTypeError, and StorageError if it is closed, too
    short, or the disk is full.
    """
    if isinstance(x, np.ndarray):
        check(x.shape, x.dtype, shape, dtype)
        owner = map_of(x)
        return ArraySink(x) if owner is None else MappedSink(x, MappedFile(owner))
    check(*layout("out", x), shape, dtype)
    return DatasetSink(x)


def is_one(x: Any, y: Any) -> bool:
    """Whether two handles are of one stored array."""
    return is_stored(x) and is_stored(y) and datasets.same(x, y)


def overlaps(a: Source, out: Sink) -> bool:
    """Whether an operand and the result may share elements. Two names of one file are one file."""
    if isinstance(a, ArraySource) and isinstance(out, ArraySink):
        return _share(a.x, out.x) or mappings.shares_file(a.x, out.x)
    if isinstance(a, DatasetSource) and isinstance(out, DatasetSink):
        return datasets.overlap(a.x, out.x)
    stored, x = (a.x, out.x) if isinstance(a, DatasetSource) else (out.x, a.x)  # type: ignore[attr-defined]
    return datasets.is_hdf5(stored) and datasets.shows(stored, mappings.span_in(x, stored.file.filename))


def _share(x: NDArray[Any], y: NDArray[Any]) -> bool:
    try:
        return np.shares_memory(x, y, max_work=1000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
