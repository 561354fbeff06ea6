"""An operand that is read by blocks: an array in memory, in a mapped file, or in a dataset.

All that can be known is checked when a Source is made, before the first tile.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StorageError
from ..opencl.mappings import map_of
from ..problem import dtypes
from . import datasets
from .mapped import MappedFile, reach
from .tiles import Region

# Bytes; a shorter piece is copied from the map, where a system call would take longer.
_WORTH_A_READ = 1 << 16


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

    def view(self, region: Region) -> NDArray[Any]:
        """The block, without a copy. Only where ``in_memory``."""
        raise NotImplementedError

    def read(self, target: NDArray[Any], region: Region) -> None:
        """Copy a block into *target*, C-contiguous and in native byte order. Raises StorageError.

        *target* has the block's shape, or that of its transpose if ``turned``.
        """
        raise NotImplementedError

    def block(self, region: Region) -> NDArray[Any]:
        """The block as :meth:`read` fills it, a view where there is one. Raises StorageError."""
        target = np.empty(region.shape, self.dtype.newbyteorder("="))
        self.read(target, region)
        return target

    def row_step(self) -> int:
        """The rows (columns if ``turned``) of which a piece should have a multiple."""
        return 1


class ArraySource(Source):
    """A NumPy array in plain memory."""

    in_memory = True

    def __init__(self, name: str, x: NDArray[Any], as_row: bool) -> None:
        x = np.asarray(x)
        self.x = x if x.ndim > 1 else x[None, :] if as_row else x[:, None]
        super().__init__(name, self.x.shape, self.x.dtype)
        row, column = (abs(stride) for stride in self.x.strides[-2:])
        self.turned = min(self.x.shape[-2:]) > 1 and 0 < row < column
        if self.in_memory:
            self.reach = reach(self.x)

    def view(self, region: Region) -> NDArray[Any]:
        return self.x[region.where]

    def block(self, region: Region) -> NDArray[Any]:
        block = self.x[region.where]
        return block.swapaxes(-1, -2) if self.turned else block

    def read(self, target: NDArray[Any], region: Region) -> None:
        np.copyto(target, self.block(region))


class MappedSource(ArraySource):
    """A view of a memory map. The length of its file is compared before each read."""

    in_memory = False

    def __init__(self, name: str, x: NDArray[Any], as_row: bool, file: MappedFile) -> None:
        super().__init__(name, x, as_row)
        self.file = file
        with datasets.failing_as(name, "the whole array"):
            self.file.check(self.x)

    def block(self, region: Region) -> NDArray[Any]:
        block = super().block(region)
        with self._failing(region):
            self.file.check(block)
        return block

    def read(self, target: NDArray[Any], region: Region) -> None:
        block = self.block(region)
        with self._failing(region):
            can_read = block.size and block.dtype.isnative and self.file.can_read()
            if not (can_read and self._read_rows(target, block)):
                np.copyto(target, block)

    def _failing(self, region: Region) -> AbstractContextManager[None]:
        return datasets.failing_as(self.name, f"{region} of {self.file.path}")

    def _read_rows(self, target: NDArray[Any], block: NDArray[Any]) -> bool:
        """Read *block* by the longest runs of bytes that it has in the file. False if they are short."""
        runs = (axes for axes in range(block.ndim) if block[(0,) * axes].flags.c_contiguous)
        axes = next(runs, None)
        if axes is None or (axes and block[(0,) * axes].nbytes < _WORTH_A_READ):
            return False
        for place in itertools.product(*map(range, block.shape[:axes])):
            self.file.read(target[place], block[place])
        return True


class DatasetSource(Source):
    """What is read by slicing."""

    def __init__(self, name: str, x: Any, as_row: bool) -> None:
        shape, dtype = datasets.layout(name, x)
        self.x, self._one = x, len(shape) == 1
        self._as_row = as_row
        super().__init__(name, ((1, *shape) if as_row else (*shape, 1)) if self._one else shape, dtype)

    def read(self, target: NDArray[Any], region: Region) -> None:
        where = (region.columns if self._as_row else region.rows,) if self._one else region.where
        if not target.size:
            return
        with datasets.failing_as(self.name, str(region)), datasets.lock_for(self.x):
            shaped = target.reshape(-1) if self._one else target
            if datasets.is_hdf5(self.x):
                if not self.x:
                    raise StorageError(f"{self.name}: {region} could not be read: the HDF5 file is closed")
                self.x.read_direct(shaped, source_sel=where)
                return
            found = np.asarray(self.x[where])
            if found.shape != shaped.shape or found.dtype.newbyteorder("=") != self.dtype.newbyteorder("="):
                raise StorageError(
                    f"{self.name}: {region} came as shape {found.shape} and dtype {found.dtype}, where "
                    f"{shaped.shape} and {self.dtype} were asked for"
                )
            np.copyto(shaped, found)

    def row_step(self) -> int:
        found = datasets.chunks(self.x)
        return found[-2] if found is not None and len(found) > 1 else 1


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
