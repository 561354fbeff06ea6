"""An operand that is read by blocks: an array in memory, in a mapped file, or in a dataset."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, StorageError
from . import datasets
from .datasets import Index
from .mapped import MappedFile, reach

_WORTH_A_READ = (
    1 << 16
)  # bytes; a shorter piece is copied from the map, where a system call would take longer


def part_of(index: Index, rows: slice, columns: slice) -> str:
    """A part of an array, in words."""
    stack = f"[{', '.join(_words(each) for each in index)}], " if index else ""
    return f"{stack}rows {rows.start}:{rows.stop}, columns {columns.start}:{columns.stop}"


def _words(each: slice | int) -> str:
    return f"{each.start}:{each.stop}" if isinstance(each, slice) else str(each)


def matrix_of(x: NDArray[Any], as_row: bool) -> NDArray[Any]:
    """*x* as a stack of matrices: a 1-D array as one row or one column."""
    if x.ndim > 1:
        return x
    return x[None, :] if as_row else x[:, None]


class Source:
    """An operand that is read by blocks, by several threads at once.

    ``shape`` has two axes or more; ``nbytes`` counts its elements. ``in_memory``: :meth:`view` works, and
    reads no file. ``reach``: bytes from the first element in memory to the last, gaps included, else 0.
    ``turned``: :meth:`read` fills the transpose of each matrix, because columns lie together.
    """

    in_memory = False
    turned = False
    reach = 0

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize

    def view(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        """The block, without a copy. Raises ArgumentError unless ``in_memory``."""
        raise ArgumentError(f"{self.name} is not in memory; use read")

    def read(self, target: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        """Copy a block into *target*, C-contiguous and in native byte order. Raises StorageError.

        *index* has ints and slices of step 1 for the batch axes. *target* has the block's shape, or that of
        its transpose if ``turned``.
        """
        raise NotImplementedError

    def block(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        """The block as :meth:`read` fills it, a view where there is one. Raises StorageError."""
        shape = np.broadcast_to(0, self.shape)[(*index, rows, columns)].shape
        target = np.empty(shape, self.dtype.newbyteorder("="))
        self.read(target, index, rows, columns)
        return target

    def row_step(self) -> int:
        """The rows (columns if ``turned``) of which a piece should have a multiple."""
        return 1


class ArraySource(Source):
    """A NumPy array in plain memory."""

    in_memory = True

    def __init__(self, name: str, x: NDArray[Any], as_row: bool) -> None:
        self.x = matrix_of(np.asarray(x), as_row)
        super().__init__(name, self.x.shape, self.x.dtype)
        row, column = (abs(stride) for stride in self.x.strides[-2:])
        self.turned = min(self.x.shape[-2:]) > 1 and 0 < row < column
        if self.in_memory:
            self.reach = reach(self.x)

    def view(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        return self.x[(*index, rows, columns)]

    def block(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        block = self.x[(*index, rows, columns)]
        return block.swapaxes(-1, -2) if self.turned else block

    def read(self, target: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        np.copyto(target, self.block(index, rows, columns))


class MappedSource(ArraySource):
    """A view of a memory map. The length of its file is compared before each read."""

    in_memory = False

    def __init__(self, name: str, x: NDArray[Any], as_row: bool, file: MappedFile) -> None:
        super().__init__(name, x, as_row)
        self.file = file
        with datasets.failing_as(name, "the whole array"):
            self.file.check(self.x)

    def view(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        raise ArgumentError(f"{self.name} is in a file; use read")

    def block(self, index: Index, rows: slice, columns: slice) -> NDArray[Any]:
        block = super().block(index, rows, columns)
        with self._failing(index, rows, columns):
            self.file.check(block)
        return block

    def read(self, target: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        block = self.block(index, rows, columns)
        with self._failing(index, rows, columns):
            if not (block.size and self._can_read(block) and self._read_rows(target, block)):
                np.copyto(target, block)

    def _failing(self, index: Index, rows: slice, columns: slice) -> AbstractContextManager[None]:
        return datasets.failing_as(self.name, f"{part_of(index, rows, columns)} of {self.file.path}")

    def _can_read(self, block: NDArray[Any]) -> bool:
        return self.file.can_read() and block.dtype.isnative

    def _read_rows(self, target: NDArray[Any], block: NDArray[Any]) -> bool:
        """Read *block* by the longest runs of bytes that it has in the file. False if they are short."""
        axes = next(axes for axes in range(block.ndim + 1) if axes == block.ndim or _whole(block, axes))
        if axes == block.ndim or (axes and block[(0,) * axes].nbytes < _WORTH_A_READ):
            return False
        for place in itertools.product(*map(range, block.shape[:axes])):
            self.file.read(target[place], block[place])
        return True


def _whole(block: NDArray[Any], axes: int) -> bool:
    """Whether the parts of *block*, each at one place of its first *axes*, are consecutive bytes."""
    return bool(block[(0,) * axes].flags.c_contiguous)


class DatasetSource(Source):
    """What is read by slicing."""

    def __init__(self, name: str, x: Any, as_row: bool) -> None:
        shape, dtype = datasets.layout(name, x)
        self.x, self._one = x, len(shape) == 1
        self._as_row = as_row
        super().__init__(name, ((1, *shape) if as_row else (*shape, 1)) if self._one else shape, dtype)

    def read(self, target: NDArray[Any], index: Index, rows: slice, columns: slice) -> None:
        part = part_of(index, rows, columns)
        where = (columns if self._as_row else rows,) if self._one else (*index, rows, columns)
        if not target.size:
            return
        with datasets.failing_as(self.name, part), datasets.lock_for(self.x):
            shaped = target.reshape(-1) if self._one else target
            if datasets.is_hdf5(self.x):
                if not self.x:
                    raise StorageError(f"{self.name}: {part} could not be read: the HDF5 file is closed")
                self.x.read_direct(shaped, source_sel=where)
                return
            found = np.asarray(self.x[where])
            if found.shape != shaped.shape or found.dtype.newbyteorder("=") != self.dtype.newbyteorder("="):
                raise StorageError(
                    f"{self.name}: {part} came as shape {found.shape} and dtype {found.dtype}, where "
                    f"{shaped.shape} and {self.dtype} were asked for"
                )
            np.copyto(shaped, found)

    def row_step(self) -> int:
        found = datasets.chunks(self.x)
        return found[-2] if found is not None and len(found) > 1 else 1
